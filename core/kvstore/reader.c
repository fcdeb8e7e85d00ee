/* reader.c - the thread that reads records for readings, in turn, each into its few buffers, and
 * their owners' side. A reading that waits for its owner to take records is passed over. Names are
 * looked up when their turn comes, because segments may be deleted at any time. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFERS = 4 };

/* A record in a buffer. */
struct arrived {
    uint32_t block;
    int what;
    uint8_t *bytes; /* (buffer_bytes) */
};

struct kvstore_reading {
    /* Fixed. */
    kvstore_space *space;
    struct hash128 tenant;
    struct kvstore_name *names; /* (n) */
    uint8_t *flags;             /* (n) */
    uint32_t n;
    void (*notify)(void *arg);
    void *arg;

    /* The reading thread's. */
    uint32_t block;
    int what; /* the next record; KVSTORE_* */
    struct kvstore_file file;
    int64_t file_id;
    struct kvstore_image *image; /* a reference, if the file is that */

    /* Guarded by the store's lock. */
    kvstore_reading *next;
    struct arrived ring[BUFFERS];
    uint32_t first, n_ready; /* filled buffers: from ring[first] on */
    bool ended, failed;
    bool closed; /* its owner does not use it any more */
};

/* ---- the owner's side ---- */

static void free_reading(kvstore_reading *r) {
    for (int i = 0; i < BUFFERS; i++)
        free(r->ring[i].bytes);
    free(r->names);
    free(r->flags);
    free(r);
}

/* The largest of the wanted records, with its tag. */
static uint64_t buffer_bytes(const struct kvstore_shape *s, const struct kvstore_wanted *w) {
    int all = 0;
    uint64_t most = s->block_bytes;
    for (uint32_t i = 0; i < w->n; i++)
        all |= w->flags[i];
    if ((all & KVSTORE_WINDOW) && s->window_bytes > most) most = s->window_bytes;
    if ((all & KVSTORE_STATE) && s->state_bytes > most) most = s->state_bytes;
    return most + KVSTORE_TAG_BYTES;
}

static int enqueue(kvstore *ks, kvstore_reading *r, err *e) {
    int rc = 0;
    pthread_mutex_lock(&ks->lock);
    if (ks->n_readings == KVSTORE_MAX_READINGS) {
        rc = err_set(e, ERR_FULL, "too many readings of the KV store are open");
    } else {
        ks->n_readings++;
        r->space->n_readings++;
        *ks->readings_tail = r;
        ks->readings_tail = &r->next;
        pthread_cond_signal(&ks->reading);
    }
    pthread_mutex_unlock(&ks->lock);
    return rc;
}

int kvstore_read(kvstore_space *sp, const struct kvstore_wanted *w, kvstore_reading **out, err *e) {
    kvstore_reading *r = mem_new(1, sizeof *r);
    if (!r) return err_no_memory(e);
    const uint64_t bytes = buffer_bytes(&sp->shape, w);
    *r = (kvstore_reading){.space = sp,
                           .tenant = w->tenant,
                           .n = w->n,
                           .notify = w->notify,
                           .arg = w->arg,
                           .what = KVSTORE_BLOCK,
                           .file = {.fd = -1},
                           .names = mem_new(w->n, sizeof *r->names),
                           .flags = mem_new(w->n, sizeof *r->flags)};
    bool ok = r->names && r->flags;
    for (int i = 0; i < BUFFERS && ok; i++)
        ok = (r->ring[i].bytes = mem_new(bytes, 1)) != NULL;
    if (!ok) {
        free_reading(r);
        return err_no_memory(e);
    }
    memcpy(r->names, w->names, w->n * sizeof *r->names);
    memcpy(r->flags, w->flags, w->n * sizeof *r->flags);
    int rc = enqueue(sp->ks, r, e);
    if (rc)
        free_reading(r);
    else
        *out = r;
    return rc;
}

int kvstore_reading_next(kvstore_reading *r, struct kvstore_record *record) {
    kvstore *ks = r->space->ks;
    int rc = 0;
    pthread_mutex_lock(&ks->lock);
    if (r->n_ready) {
        const struct arrived *a = &r->ring[r->first];
        *record = (struct kvstore_record){a->block, a->what, a->bytes};
        rc = 1;
    } else if (r->ended) {
        rc = r->failed ? ERR_NOT_FOUND : ERR_EXISTS;
    }
    pthread_mutex_unlock(&ks->lock);
    return rc;
}

void kvstore_reading_pop(kvstore_reading *r) {
    kvstore *ks = r->space->ks;
    pthread_mutex_lock(&ks->lock);
    r->first = (r->first + 1) % BUFFERS;
    r->n_ready--;
    pthread_cond_signal(&ks->reading);
    pthread_mutex_unlock(&ks->lock);
}

void kvstore_reading_close(kvstore_reading *r) {
    if (!r) return;
    kvstore *ks = r->space->ks;
    pthread_mutex_lock(&ks->lock);
    r->closed = true; /* the thread frees it, perhaps after a read that takes long */
    pthread_cond_signal(&ks->reading);
    pthread_mutex_unlock(&ks->lock);
}

/* ---- the thread ---- */

/* The first reading with something to do, or that was closed; with the lock. */
static kvstore_reading *next_reading(kvstore *ks) {
    kvstore_reading *r = ks->readings;
    while (r && !r->closed && (r->ended || r->n_ready == BUFFERS))
        r = r->next;
    return r;
}

/* Takes one that was closed out of the list; with the lock. */
static void unlink_reading(kvstore *ks, kvstore_reading *r) {
    kvstore_reading **at = &ks->readings;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (ks->readings_tail == &r->next) ks->readings_tail = at;
}

static bool is_open(const kvstore_reading *r) {
    return r->file.fd >= 0 || r->file.image;
}

static void close_file(kvstore *ks, kvstore_reading *r) {
    kvstore_file_close(&r->file);
    pthread_mutex_lock(&ks->lock);
    kvstore_image_unref(ks, r->image);
    pthread_mutex_unlock(&ks->lock);
    r->image = NULL;
}

/* Gives back its memory, without the lock; then its space may be closed. */
static void forget_reading(kvstore *ks, kvstore_reading *r) {
    kvstore_space *sp = r->space;
    close_file(ks, r);
    free_reading(r);
    pthread_mutex_lock(&ks->lock);
    ks->n_readings--;
    sp->n_readings--;
    pthread_cond_broadcast(&ks->idle);
    pthread_mutex_unlock(&ks->lock);
}

/* Moves to the next record that is wanted. false: there is none. */
static bool find_wanted(kvstore_reading *r) {
    for (; r->block < r->n; r->block++, r->what = KVSTORE_BLOCK)
        for (; r->what <= KVSTORE_STATE; r->what *= 2)
            if (r->flags[r->block] & r->what) return true;
    return false;
}

/* A segment that has the record: stays with the open one if that has it. false: there is none.
 * *image: it is to be opened, with a reference. */
static bool find_file(kvstore *ks, const kvstore_reading *r, int64_t *id, uint32_t *number,
                      struct kvstore_image **image) {
    const struct kvstore_name *name = &r->names[r->block];
    *image = NULL;
    pthread_mutex_lock(&ks->lock);
    struct kvstore_segment *s = is_open(r) ? kvstore_find_segment(ks, r->file_id, name) : NULL;
    struct kvstore_slot *slot = kvstore_find_slot(ks, name, r->what);
    if (s)
        for (uint32_t i = 0; i < s->row.n_blocks; i++)
            if ((s->row.flags[i] & r->what) && !memcmp(&s->row.names[i], name, sizeof *name))
                slot = &s->slots[i];
    if (slot) {
        *id = slot->segment->row.id;
        *number = slot->number;
        if (!is_open(r) || r->file_id != *id) *image = slot->segment->image;
        if (*image) (*image)->refs++;
    }
    pthread_mutex_unlock(&ks->lock);
    return slot != NULL;
}

/* A segment that is damaged, or whose file is gone, leaves the store. */
static void give_up(kvstore *ks, int64_t id, const struct kvstore_name *name, const err *e) {
    if (e->code == ERR_IO || e->code == ERR_NOMEM) { /* the system's fault, for now */
        log_warn("kv store: %s", e->msg);
        return;
    }
    pthread_mutex_lock(&ks->lock);
    struct kvstore_segment *s = kvstore_find_segment(ks, id, name);
    if (s) {
        kvstore_drop_segment(ks, s);
        ks->stats.damaged++;
        pthread_cond_signal(&ks->work);
    }
    pthread_mutex_unlock(&ks->lock);
    if (s) log_warn("kv store: a segment is deleted: %s", e->msg);
}

/* Is the open file the segment that the index says it is? Else it was swapped for another one. */
static int check_file(const kvstore_reading *r, uint32_t number, err *e) {
    const struct kvstore_head *h = &r->file.head;
    const struct kvstore_shape *a = &h->shape, *b = &r->space->shape;
    if (memcmp(h->space, r->space->id, sizeof h->space) == 0 &&
        hash128_same(h->tenant, r->tenant) && a->block_tokens == b->block_tokens &&
        a->block_bytes == b->block_bytes && a->window_bytes == b->window_bytes &&
        a->state_bytes == b->state_bytes && number < h->n_blocks &&
        memcmp(&h->names[number], &r->names[r->block], sizeof h->names[0]) == 0)
        return 0;
    return err_set(e, ERR_FORMAT, "its file holds another one");
}

/* Reads the next record into a. 0; or it cannot be had. */
static int read_record(kvstore *ks, kvstore_reading *r, struct arrived *a) {
    const struct kvstore_name *name = &r->names[r->block];
    char path[KVSTORE_PATH];
    struct kvstore_image *image;
    uint32_t number;
    int64_t id;
    int rc = 0;
    err e;
    if (!find_file(ks, r, &id, &number, &image)) return ERR_NOT_FOUND;
    if (!is_open(r) || r->file_id != id) {
        close_file(ks, r);
        r->image = image;
        r->file_id = id;
        if (!image) kvstore_path(ks->folder, id, ".kv", path);
        rc = image ? kvstore_image_open(image, &ks->root, &r->file, &e)
                   : kvstore_file_open(path, &ks->root, &r->file, &e);
    }
    if (!rc) rc = check_file(r, number, &e);
    if (!rc) rc = kvstore_file_read(&r->file, r->what, number, a->bytes, &e);
    a->block = r->block;
    a->what = r->what;
    if (rc) give_up(ks, id, name, &e);
    return rc;
}

static void note_rate(kvstore *ks, uint64_t bytes, uint64_t ns) {
    ks->stats.read_bytes += bytes;
    ks->stats.read_ns += ns;
    if (ns) ks->read_rate += 0.05 * ((double)bytes * 1e9 / (double)ns - ks->read_rate);
}

static uint64_t record_bytes(const struct kvstore_shape *s, int what) {
    return what == KVSTORE_BLOCK    ? s->block_bytes
           : what == KVSTORE_WINDOW ? s->window_bytes
                                    : s->state_bytes;
}

/* One record of a reading, which is busy. */
static void advance(kvstore *ks, kvstore_reading *r, struct arrived *a) {
    const uint64_t start = clock_now_ns();
    int rc = find_wanted(r) ? read_record(ks, r, a) : ERR_EXISTS;
    const uint64_t ns = clock_now_ns() - start;
    pthread_mutex_lock(&ks->lock);
    if (rc) {
        r->ended = true;
        r->failed = rc != ERR_EXISTS;
    } else {
        note_rate(ks, record_bytes(&r->space->shape, r->what), ns);
        r->n_ready++;
        r->what *= 2;
    }
    bool tell = !r->closed;
    pthread_mutex_unlock(&ks->lock);
    if (rc) close_file(ks, r);
    if (tell) r->notify(r->arg);
}

void *kvstore_reader_main(void *arg) {
    kvstore *ks = arg;
    pthread_mutex_lock(&ks->lock);
    while (!ks->stopping) {
        kvstore_reading *r = next_reading(ks);
        if (!r) {
            pthread_cond_wait(&ks->reading, &ks->lock);
            continue;
        }
        const bool closed = r->closed;
        struct arrived *a = &r->ring[(r->first + r->n_ready) % BUFFERS];
        if (closed) unlink_reading(ks, r);
        pthread_mutex_unlock(&ks->lock);
        if (closed)
            forget_reading(ks, r);
        else
            advance(ks, r, a);
        pthread_mutex_lock(&ks->lock);
    }
    pthread_mutex_unlock(&ks->lock);
    return NULL;
}
