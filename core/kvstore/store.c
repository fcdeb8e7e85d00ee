/* store.c - owns what the store knows: segments, the table of their blocks' names, bounds, spaces
 * and drafts. Opening takes the folder's lock and makes files and index agree. Any thread, under
 * the store's lock, which is never held across a call to the system. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

#define SECOND_NS UINT64_C(1000000000)
#define LOOK_NS   UINT64_C(10000000) /* how often a flush looks: not every end is signalled */

enum { FIRST_BUCKETS = 1024, HOUR_S = 3600, MOST_HITS = 24 };
/* Bytes of K/V in a segment, about: large enough for the disk, small enough to be copied and
 * dropped at little cost. */
enum { SEGMENT_BYTES = 8 << 20 };
enum { READ_RATE_AT_FIRST = 500 * 1000 * 1000 };

int64_t kvstore_now_s(const kvstore *ks) {
    return ks->wall_s + (int64_t)((clock_now_ns() - ks->open_ns) / SECOND_NS);
}

void kvstore_path(const char *folder, int64_t id, const char *suffix, char path[KVSTORE_PATH]) {
    snprintf(path, KVSTORE_PATH, "%s/%016llx%s", folder, (unsigned long long)id, suffix);
}

/* ---- the table of names ---- */

static struct kvstore_slot **bucket_of(const kvstore *ks, const struct kvstore_name *name) {
    uint64_t h;
    memcpy(&h, name->bytes, sizeof h); /* names are random already */
    return &ks->buckets[h & (ks->n_buckets - 1)];
}

static const struct kvstore_name *name_of(const struct kvstore_slot *slot) {
    return &slot->segment->row.names[slot->number];
}

struct kvstore_slot *kvstore_find_slot(const kvstore *ks, const struct kvstore_name *name,
                                       int flags) {
    struct kvstore_slot *slot = *bucket_of(ks, name);
    for (; slot; slot = slot->next)
        if (memcmp(name_of(slot)->bytes, name->bytes, sizeof name->bytes) == 0 &&
            (slot->segment->row.flags[slot->number] & flags) == flags)
            return slot;
    return NULL;
}

static void grow_table(kvstore *ks) {
    const uint64_t n_old = ks->n_buckets;
    struct kvstore_slot **old = ks->buckets,
                        **new = mem_new(2 * n_old, sizeof(struct kvstore_slot *));
    if (!new) return; /* it stays correct */
    ks->buckets = new;
    ks->n_buckets = 2 * n_old;
    for (uint64_t i = 0; i < n_old; i++)
        for (struct kvstore_slot *slot = old[i], *next; slot; slot = next) {
            struct kvstore_slot **to = bucket_of(ks, name_of(slot));
            next = slot->next;
            slot->next = *to;
            *to = slot;
        }
    free(old);
}

int kvstore_add_segment(kvstore *ks, const struct kvstore_row *row, struct kvstore_image *image,
                        bool on_disk) {
    struct kvstore_segment *s =
        mem_new(1, sizeof *s + (size_t)row->n_blocks * sizeof(struct kvstore_slot));
    if (!s) return ERR_NOMEM;
    s->row = *row;
    s->row.label = s->row.version = NULL;
    s->image = image;
    s->on_disk = on_disk;
    s->next = ks->segments;
    if (s->next) s->next->prev = s;
    ks->segments = s;
    for (uint32_t i = 0; i < row->n_blocks; i++) {
        struct kvstore_slot **to = bucket_of(ks, &s->row.names[i]);
        s->slots[i] = (struct kvstore_slot){*to, s, i};
        *to = &s->slots[i];
    }
    ks->n_slots += row->n_blocks;
    if (ks->n_slots > ks->n_buckets) grow_table(ks);
    if (image) ks->stats.memory_segments++;
    if (on_disk) {
        ks->stats.files++;
        ks->stats.bytes += row->bytes;
    }
    return 0;
}

void kvstore_image_unref(kvstore *ks, struct kvstore_image *image) {
    if (!image || --image->refs) return;
    image->next = ks->unused;
    ks->unused = image;
    pthread_cond_signal(&ks->work);
}

void kvstore_drop_segment(kvstore *ks, struct kvstore_segment *s) {
    for (uint32_t i = 0; i < s->row.n_blocks; i++) {
        struct kvstore_slot **at = bucket_of(ks, &s->row.names[i]);
        while (*at != &s->slots[i])
            at = &(*at)->next;
        *at = s->slots[i].next;
    }
    if (s->prev)
        s->prev->next = s->next;
    else
        ks->segments = s->next;
    if (s->next) s->next->prev = s->prev;
    ks->n_slots -= s->row.n_blocks;
    if (s->image) ks->stats.memory_segments--;
    kvstore_image_unref(ks, s->image);
    s->image = NULL;
    s->next = ks->gone;
    ks->gone = s;
}

struct kvstore_segment *kvstore_find_segment(const kvstore *ks, int64_t id,
                                             const struct kvstore_name *name) {
    struct kvstore_slot *slot = *bucket_of(ks, name);
    while (slot && slot->segment->row.id != id)
        slot = slot->next;
    return slot ? slot->segment : NULL;
}

static int64_t value_of(const struct kvstore_row *row) {
    return row->used_s + (int64_t)(row->hits < MOST_HITS ? row->hits : MOST_HITS) * HOUR_S;
}

struct kvstore_segment *kvstore_worst(const kvstore *ks, bool in_memory) {
    struct kvstore_segment *worst = NULL;
    for (struct kvstore_segment *s = ks->segments; s; s = s->next) {
        if (in_memory ? !s->image : !s->on_disk) continue;
        int64_t a = value_of(&s->row), b = worst ? value_of(&worst->row) : INT64_MAX;
        if (a < b || (a == b && s->row.first >= worst->row.first)) worst = s; /* older ones last */
    }
    return worst;
}

void kvstore_expire(kvstore *ks) {
    const int64_t now = kvstore_now_s(ks);
    for (struct kvstore_segment *s = ks->segments, *next; s && ks->bounds.max_age_s; s = next) {
        next = s->next;
        if (now - s->row.used_s <= (int64_t)ks->bounds.max_age_s) continue;
        kvstore_drop_segment(ks, s);
        ks->stats.expired++;
    }
}

/* ---- open ---- */

static int make_folder(const char *folder, err *e) {
    char path[KVSTORE_PATH];
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path - 64)
        return err_set_param(e, ERR_INVALID, "folder", "the path is too long");
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700); /* if that fails, so does the last one */
        *slash = '/';
    }
    if (!file_fails() && (!mkdir(path, 0700) || errno == EEXIST)) return 0;
    return err_set_param(e, ERR_IO, "folder", "%s: %s", folder, strerror(errno));
}

/* The lock is the kernel's: it goes with the process. */
static int take_lock(kvstore *ks, err *e) {
    char path[KVSTORE_PATH];
    snprintf(path, sizeof path, "%s/lock", ks->folder);
    ks->lock_fd = file_open(path, O_RDWR | O_CREAT, 0600);
    if (ks->lock_fd < 0)
        return err_set_param(e, ERR_IO, "folder", "%s: %s", ks->folder, strerror(errno));
    if (!flock(ks->lock_fd, LOCK_EX | LOCK_NB)) return 0;
    return err_set_param(e, ERR_UNAVAILABLE, "folder",
                         "%s is used by another process: give each its own folder", ks->folder);
}

struct loading {
    kvstore *ks;
    uint64_t n_outdated;
};

/* A row whose file is there, of this version. */
static int load_row(void *arg, const struct kvstore_row *row) {
    struct loading *l = arg;
    kvstore *ks = l->ks;
    const char *mine = ks->config.version;
    char path[KVSTORE_PATH];
    struct stat st;
    struct kvstore_row now = *row;
    kvstore_path(ks->folder, row->id, ".kv", path);
    if (mine[0] && (!row->version || strcmp(row->version, mine) != 0)) {
        l->n_outdated++;
        return 0;
    }
    if (stat(path, &st)) return 0;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != row->bytes) {
        ks->stats.damaged++; /* remove_strays deletes it */
        return 0;
    }
    if (now.used_s > ks->wall_s) now.used_s = ks->wall_s;
    return kvstore_add_segment(ks, &now, NULL, true);
}

static int compare_ids(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Deletes every segment's file that the index does not know: those of a process that was killed
 * between two steps, of other versions, of an index that was lost. Only files of our names. */
static int remove_strays(kvstore *ks, err *e) {
    const uint64_t n = ks->stats.files;
    int64_t *ids = mem_new(n, sizeof *ids);
    uint64_t i = 0;
    if (!ids) return err_no_memory(e);
    for (const struct kvstore_segment *s = ks->segments; s; s = s->next)
        ids[i++] = s->row.id;
    qsort(ids, (size_t)n, sizeof *ids, compare_ids);
    DIR *dir = opendir(ks->folder);
    if (!dir) {
        free(ids);
        return err_set_param(e, ERR_IO, "folder", "%s: %s", ks->folder, strerror(errno));
    }
    for (struct dirent *d; (d = readdir(dir));) {
        char *end;
        const unsigned long long id = strtoull(d->d_name, &end, 16);
        const int64_t key = (int64_t)id;
        const bool ours = end - d->d_name == 16 && d->d_name[0] != '-';
        if (!ours || (strcmp(end, ".kv") != 0 && strcmp(end, ".tmp") != 0)) continue;
        if (end[1] == 'k' && bsearch(&key, ids, (size_t)n, sizeof *ids, compare_ids)) continue;
        unlinkat(dirfd(dir), d->d_name, 0);
    }
    closedir(dir);
    free(ids);
    return 0;
}

/* Rows of segments that were not loaded leave the index. */
struct pruning {
    kvstore *ks;
    int64_t *ids;
    uint32_t n, capacity;
};

static int note_unknown(void *arg, const struct kvstore_row *row) {
    struct pruning *p = arg;
    if (kvstore_find_segment(p->ks, row->id, &row->names[0])) return 0;
    if (!mem_grow(&p->ids, p->n, &p->capacity, sizeof *p->ids)) return ERR_NOMEM;
    p->ids[p->n++] = row->id;
    return 0;
}

static int prune_rows(kvstore *ks, err *e) {
    struct pruning p = {.ks = ks};
    int rc = kvstore_catalog_each(ks->catalog, note_unknown, &p, e);
    if (!rc && p.n) rc = kvstore_catalog_begin(ks->catalog, e);
    for (uint32_t i = 0; i < p.n && !rc; i++)
        rc = kvstore_catalog_remove(ks->catalog, p.ids[i], e);
    if (!rc && p.n) rc = kvstore_catalog_end(ks->catalog, e);
    free(p.ids);
    return rc;
}

/* Files and index agree afterwards, and the bounds hold. */
static int load(kvstore *ks, err *e) {
    struct kvstore_key id;
    struct loading l = {.ks = ks};
    bool anew = false;
    kvstore_key_expand(&ks->root, "index", NULL, 0, &id);
    int rc = kvstore_catalog_open(ks->folder, id.bytes, &ks->catalog, &anew, e);
    if (rc) return rc;
    if (anew)
        log_warn("kv store: the index of %s was of another version or secret, or damaged: it "
                 "begins anew, empty",
                 ks->folder);
    ks->day_bytes = kvstore_catalog_written(ks->catalog, &ks->day);
    rc = kvstore_catalog_each(ks->catalog, load_row, &l, e);
    if (!rc) rc = prune_rows(ks, e);
    if (!rc) rc = remove_strays(ks, e);
    if (rc) return rc == ERR_NOMEM ? err_no_memory(e) : rc;
    ks->stats.outdated = l.n_outdated;
    kvstore_expire(ks);
    while (ks->segments &&
           (ks->stats.bytes > ks->bounds.max_bytes || ks->stats.files > ks->bounds.max_files)) {
        kvstore_drop_segment(ks, kvstore_worst(ks, false));
        ks->stats.evicted++;
        kvstore_reap(ks);
    }
    kvstore_reap(ks);
    return 0;
}

static int start_threads(kvstore *ks, err *e) {
    int rc = thread_start(&ks->writer, kvstore_writer_main, ks, "writes the KV store", e);
    ks->writer_started = !rc;
    for (int i = 0; !rc && i < KVSTORE_READERS; i++) {
        struct kvstore_reader *r = &ks->readers[i];
        *r = (struct kvstore_reader){.ks = ks, .number = i};
        rc = thread_start(&r->thread, kvstore_reader_main, r, "reads the KV store", e);
        ks->n_readers += !rc;
    }
    return rc;
}

static int open_folder(kvstore *ks, const struct kvstore_config *config, err *e) {
    ks->folder = mem_strdup(config->folder);
    int rc = ks->folder ? make_folder(ks->folder, e) : err_no_memory(e);
    if (!rc) rc = take_lock(ks, e);
    if (!rc) rc = kvstore_secret_read(config->secret, true, &ks->root, e);
    if (!rc) rc = load(ks, e);
    ks->stats.writable = !rc;
    return rc;
}

static struct kvstore_bounds bounds_of(const struct kvstore_config *c) {
    return (struct kvstore_bounds){c->max_bytes, c->max_files, c->max_age_s, c->max_daily_bytes};
}

void kvstore_set_bounds(kvstore *ks, const struct kvstore_config *bounds) {
    if (!ks->folder) return;
    pthread_mutex_lock(&ks->lock);
    ks->bounds = bounds_of(bounds);
    ks->trims = true;
    pthread_cond_signal(&ks->work);
    pthread_mutex_unlock(&ks->lock);
}

int kvstore_open(const struct kvstore_config *config, kvstore **out, err *e) {
    kvstore *ks = mem_new(1, sizeof *ks);
    if (!ks) return err_no_memory(e);
    pthread_mutex_init(&ks->lock, NULL);
    clock_cond_init(&ks->work);
    clock_cond_init(&ks->idle);
    pthread_cond_init(&ks->reading, NULL);
    ks->config = *config;
    ks->bounds = bounds_of(config);
    ks->lock_fd = -1;
    ks->queue_tail = &ks->queue;
    ks->readings_tail = &ks->readings;
    ks->read_rate = READ_RATE_AT_FIRST;
    ks->wall_s = clock_wall_s();
    ks->open_ns = clock_now_ns();
    ks->n_buckets = FIRST_BUCKETS;
    ks->version = mem_strdup(config->version);
    ks->buckets = mem_new(ks->n_buckets, sizeof(struct kvstore_slot *));
    int rc = ks->version && ks->buckets ? 0 : err_no_memory(e);
    ks->config.folder = ks->config.secret = NULL;
    ks->config.version = ks->version;
    if (!rc && config->folder) rc = open_folder(ks, config, e);
    if (!rc && !config->folder && getentropy(&ks->root, sizeof ks->root))
        rc = err_set(e, ERR_IO, "the system provides no random secret");
    if (!rc) rc = start_threads(ks, e);
    if (rc) {
        kvstore_close(ks);
        return rc;
    }
    *out = ks;
    return 0;
}

static void free_segments(struct kvstore_segment *s) {
    for (struct kvstore_segment *next; s; s = next) {
        next = s->next;
        free(s->image); /* no reading is open */
        free(s);
    }
}

void kvstore_close(kvstore *ks) {
    if (!ks) return;
    pthread_mutex_lock(&ks->lock);
    ks->stopping = true;
    pthread_cond_broadcast(&ks->work);
    pthread_cond_broadcast(&ks->reading);
    pthread_mutex_unlock(&ks->lock);
    if (ks->writer_started) pthread_join(ks->writer, NULL);
    for (int i = 0; i < ks->n_readers; i++)
        pthread_join(ks->readers[i].thread, NULL);
    kvstore_reap(ks); /* images whose readings were closed last */
    free_segments(ks->segments);
    kvstore_catalog_close(ks->catalog);
    if (ks->lock_fd >= 0) close(ks->lock_fd);
    free(ks->buckets);
    memset(&ks->root, 0, sizeof ks->root);
    free(ks->folder);
    free(ks->version);
    pthread_mutex_destroy(&ks->lock);
    pthread_cond_destroy(&ks->work);
    pthread_cond_destroy(&ks->idle);
    pthread_cond_destroy(&ks->reading);
    free(ks);
}

struct hash128 kvstore_client_key(const kvstore *ks) {
    struct kvstore_key k;
    struct hash128 out;
    kvstore_key_expand(&ks->root, "clients", NULL, 0, &k);
    memcpy(&out, k.bytes, sizeof out);
    return out;
}

void kvstore_stats_get(kvstore *ks, struct kvstore_stats *out) {
    pthread_mutex_lock(&ks->lock);
    *out = ks->stats;
    pthread_mutex_unlock(&ks->lock);
}

double kvstore_read_rate(kvstore *ks) {
    pthread_mutex_lock(&ks->lock);
    double rate = ks->read_rate;
    pthread_mutex_unlock(&ks->lock);
    return rate;
}

/* ---- spaces and drafts ---- */

/* Hashes texts with their ends, and numbers as text, so that no two spaces have the same bytes. */
static int space_id(const char *version, const char *identity, const struct kvstore_shape *s,
                    uint8_t id[32], err *e) {
    size_t n = strlen(identity) + strlen(version) + 256;
    char *text = mem_new(n, 1);
    if (!text) return err_no_memory(e);
    int used =
        snprintf(text, n, "inferd kv %d\n%s\n%u %llu %llu %llu\n%s", KVSTORE_LAYOUT, version,
                 s->block_tokens, (unsigned long long)s->block_bytes,
                 (unsigned long long)s->window_bytes, (unsigned long long)s->state_bytes, identity);
    kvstore_sha256(text, (size_t)used, id);
    free(text);
    return 0;
}

static void free_space(kvstore_space *sp) {
    for (int i = 0; i < KVSTORE_DRAFTS; i++)
        if (sp->drafts[i].image) sp->memory.put(sp->memory.arg, sp->drafts[i].image);
    free(sp);
}

int kvstore_space_open(kvstore *ks, const struct kvstore_space_config *config, kvstore_space **out,
                       err *e) {
    uint8_t id[32];
    int rc = space_id(ks->version, config->identity, &config->shape, id, e);
    return rc ? rc : kvstore_space_of(ks, config, id, out, e);
}

/* Not touched, and so not in memory, before it is used. */
static int get_heap(void *arg, uint64_t bytes, void **out, err *e) {
    (void)arg;
    *out = mem_new(bytes, 1);
    return *out ? 0 : err_no_memory(e);
}

static void put_heap(void *arg, void *p) {
    (void)arg;
    free(p);
}

int kvstore_space_of(kvstore *ks, const struct kvstore_space_config *config, const uint8_t id[32],
                     kvstore_space **out, err *e) {
    const struct kvstore_shape *shape = &config->shape;
    struct kvstore_head h = {.shape = *shape, .n_blocks = 1, .has_state = shape->state_bytes != 0};
    uint64_t each = 0;
    h.has_window[0] = shape->window_bytes != 0;
    if (!shape->block_tokens || kvstore_segment_bytes(&h) == UINT64_MAX)
        return err_set(e, ERR_INVALID, "blocks of the KV cache are too large for the KV store");
    kvstore_space *sp = mem_new(1, sizeof *sp);
    if (!sp) return err_no_memory(e);
    sp->ks = ks;
    sp->shape = *shape;
    each = shape->block_bytes + shape->window_bytes + 2 * KVSTORE_TAG_BYTES;
    sp->max_blocks = each >= SEGMENT_BYTES ? 1 : (uint32_t)(SEGMENT_BYTES / each);
    if (sp->max_blocks > KVSTORE_MAX_BLOCKS) sp->max_blocks = KVSTORE_MAX_BLOCKS;
    sp->image_bytes = kvstore_head_bytes(sp->max_blocks) + sp->max_blocks * each +
                      shape->state_bytes + KVSTORE_TAG_BYTES;
    snprintf(sp->label, sizeof sp->label, "%s", config->label);
    sp->memory = config->memory.get ? config->memory
                                    : (struct kvstore_memory){.get = get_heap, .put = put_heap};
    memcpy(sp->id, id, sizeof sp->id);
    int rc = 0;
    for (int i = 0; i < KVSTORE_DRAFTS && !rc; i++) {
        void *image = NULL;
        rc = sp->memory.get(sp->memory.arg, sp->image_bytes, &image, e);
        sp->drafts[i].image = image;
    }
    if (rc) {
        free_space(sp);
        return rc;
    }
    for (int i = 0; i < KVSTORE_DRAFTS; i++) {
        sp->drafts[i].space = sp;
        sp->drafts[i].next = sp->unused;
        sp->unused = &sp->drafts[i];
    }
    sp->n_unused = KVSTORE_DRAFTS;
    *out = sp;
    return 0;
}

void kvstore_space_close(kvstore_space *sp) {
    if (!sp) return;
    kvstore *ks = sp->ks;
    pthread_mutex_lock(&ks->lock);
    struct kvstore_draft_int **at = &ks->queue;
    while (*at) {
        struct kvstore_draft_int *d = *at;
        if (d->space != sp) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        sp->n_unused++;
        ks->n_done++;
        ks->stats.dropped++;
    }
    ks->queue_tail = at;
    while (sp->n_unused < KVSTORE_DRAFTS || sp->n_readings) /* what the threads have now */
        pthread_cond_wait(&ks->idle, &ks->lock);
    pthread_mutex_unlock(&ks->lock);
    free_space(sp);
}

uint32_t kvstore_max_blocks(const kvstore_space *sp) {
    return sp->max_blocks;
}

void kvstore_names(const kvstore_space *sp, struct hash128 tenant,
                   const struct kvstore_name *parent, const int32_t *tokens, uint32_t n_blocks,
                   struct kvstore_name *names) {
    struct kvstore_key key;
    kvstore_key_names(&sp->ks->root, tenant, sp->id, &key);
    for (uint32_t i = 0; i < n_blocks; i++)
        kvstore_name_next(&key, i ? &names[i - 1] : parent,
                          tokens + (uint64_t)i * sp->shape.block_tokens, sp->shape.block_tokens,
                          &names[i]);
}

uint32_t kvstore_find(kvstore_space *sp, const struct kvstore_name *names, uint32_t n,
                      uint8_t *flags) {
    static const int wanted[] = {KVSTORE_BLOCK, KVSTORE_WINDOW, KVSTORE_STATE};
    uint32_t i = 0;
    pthread_mutex_lock(&sp->ks->lock);
    for (; i < n; i++) {
        flags[i] = 0;
        for (int w = 0; w < 3; w++)
            if (kvstore_find_slot(sp->ks, &names[i], wanted[w])) flags[i] |= (uint8_t)wanted[w];
        if (!(flags[i] & KVSTORE_BLOCK)) break;
    }
    pthread_mutex_unlock(&sp->ks->lock);
    return i;
}

void kvstore_touch(kvstore_space *sp, const struct kvstore_name *names, uint32_t n) {
    kvstore *ks = sp->ks;
    pthread_mutex_lock(&ks->lock);
    const int64_t now = kvstore_now_s(ks);
    struct kvstore_segment *last = NULL;
    for (uint32_t i = 0; i < n; i++)
        for (struct kvstore_slot *s = *bucket_of(ks, &names[i]); s; s = s->next) {
            if (memcmp(name_of(s)->bytes, names[i].bytes, sizeof names[i].bytes) != 0) continue;
            if (s->segment != last) s->segment->row.hits++;
            s->segment->row.used_s = now;
            s->segment->used = true;
            last = s->segment;
        }
    pthread_mutex_unlock(&ks->lock);
}

struct kvstore_draft *kvstore_draft_take(kvstore_space *sp, bool *broken) {
    kvstore *ks = sp->ks;
    pthread_mutex_lock(&ks->lock);
    *broken = !ks->config.max_memory_bytes && ks->retry_ns && clock_now_ns() < ks->retry_ns;
    struct kvstore_draft_int *d = *broken ? NULL : sp->unused;
    if (d) {
        sp->unused = d->next;
        sp->n_unused--;
    }
    pthread_mutex_unlock(&ks->lock);
    if (!d) return NULL;
    memset(&d->d, 0, sizeof d->d);
    return &d->d;
}

void kvstore_draft_head(const struct kvstore_draft_int *d, struct kvstore_head *h) {
    *h = (struct kvstore_head){.tenant = d->d.tenant,
                               .shape = d->space->shape,
                               .first = d->d.first,
                               .n_blocks = d->d.n_blocks,
                               .has_state = d->d.has_state};
    memcpy(h->space, d->space->id, sizeof h->space);
    memcpy(h->has_window, d->d.has_window, sizeof h->has_window);
    memcpy(h->names, d->d.names, sizeof h->names);
}

uint8_t *kvstore_draft_record(struct kvstore_draft *draft, int what, uint32_t block) {
    struct kvstore_draft_int *d = (struct kvstore_draft_int *)(void *)draft;
    struct kvstore_range r;
    struct kvstore_head h;
    kvstore_draft_head(d, &h);
    return kvstore_segment_find(&h, what, block, &r) ? d->image + r.at : NULL;
}

void kvstore_draft_submit(struct kvstore_draft *draft) {
    struct kvstore_draft_int *d = (struct kvstore_draft_int *)(void *)draft;
    kvstore *ks = d->space->ks;
    pthread_mutex_lock(&ks->lock);
    d->next = NULL;
    *ks->queue_tail = d;
    ks->queue_tail = &d->next;
    ks->n_submitted++;
    pthread_cond_signal(&ks->work);
    pthread_mutex_unlock(&ks->lock);
}

void kvstore_draft_drop(struct kvstore_draft *draft) {
    struct kvstore_draft_int *d = (struct kvstore_draft_int *)(void *)draft;
    kvstore_space *sp = d->space;
    pthread_mutex_lock(&sp->ks->lock);
    d->next = sp->unused;
    sp->unused = d;
    sp->n_unused++;
    pthread_cond_broadcast(&sp->ks->idle);
    pthread_mutex_unlock(&sp->ks->lock);
}

/* ---- waiting and pruning ---- */

bool kvstore_flush(kvstore *ks, uint64_t deadline_ns) {
    pthread_mutex_lock(&ks->lock);
    const uint64_t n = ks->n_submitted;
    while ((ks->n_done < n || ks->gone) && clock_now_ns() < deadline_ns)
        clock_cond_wait(&ks->idle, &ks->lock, clock_now_ns() + LOOK_NS);
    bool done = ks->n_done >= n && !ks->gone;
    pthread_mutex_unlock(&ks->lock);
    return done;
}
