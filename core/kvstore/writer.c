/* writer.c - the thread that makes and deletes segments, and alone uses the index while it runs.
 * A segment is written under a temporary name, synced, renamed, and then entered in the index and
 * the table: one of which a part is missing after a crash is deleted by the next kvstore_open.
 * Deleting goes the other way round. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

#define SECOND_NS UINT64_C(1000000000)
enum { RETRY_S = 60, TICK_S = 60, DAY_S = 86400 };

/* ---- deleting ---- */

static void free_images(kvstore *ks) {
    pthread_mutex_lock(&ks->lock);
    struct kvstore_image *image = ks->unused;
    ks->unused = NULL;
    pthread_mutex_unlock(&ks->lock);
    uint64_t bytes = 0;
    for (struct kvstore_image *next; image; image = next) {
        next = image->next;
        bytes += image->bytes;
        free(image);
    }
    pthread_mutex_lock(&ks->lock);
    ks->stats.memory_bytes -= bytes;
    pthread_mutex_unlock(&ks->lock);
}

void kvstore_reap(kvstore *ks) {
    free_images(ks);
    for (;;) {
        char path[KVSTORE_PATH];
        pthread_mutex_lock(&ks->lock);
        struct kvstore_segment *s = ks->gone;
        pthread_mutex_unlock(&ks->lock);
        if (!s) return;
        bool removed = false;
        if (s->on_disk) {
            err e;
            kvstore_path(ks->folder, s->row.id, ".kv", path);
            if (kvstore_catalog_remove(ks->catalog, s->row.id, &e))
                log_debug("kv store: %s", e.msg);
            /* A file that cannot be deleted still counts for the bounds. */
            removed = !file_fails() && (!unlink(path) || errno == ENOENT);
        }
        pthread_mutex_lock(&ks->lock);
        struct kvstore_segment **at = &ks->gone;
        while (*at != s)
            at = &(*at)->next;
        *at = s->next;
        if (removed) {
            ks->stats.files--;
            ks->stats.bytes -= s->row.bytes;
        }
        pthread_cond_broadcast(&ks->idle);
        pthread_mutex_unlock(&ks->lock);
        free(s);
    }
}

/* ---- bounds ---- */

/* May so many bytes be written today? If not, no more are written before tomorrow. The day never
 * goes back, so a clock that is set back does not give more. */
static bool fits_day(kvstore *ks, uint64_t bytes) {
    const int64_t now_s = kvstore_now_s(ks), day = now_s / DAY_S;
    if (day > ks->day) {
        ks->day = day;
        ks->day_bytes = 0;
    }
    pthread_mutex_lock(&ks->lock);
    const uint64_t most = ks->bounds.max_daily_bytes;
    pthread_mutex_unlock(&ks->lock);
    if (!most || (bytes <= most && ks->day_bytes <= most - bytes)) return true;
    if (bytes > most) return false;
    log_info("kv store: nothing more is written today (UTC): %llu bytes were",
             (unsigned long long)ks->day_bytes);
    pthread_mutex_lock(&ks->lock);
    ks->retry_ns = clock_now_ns() + (uint64_t)(DAY_S - now_s % DAY_S) * SECOND_NS;
    pthread_mutex_unlock(&ks->lock);
    return false;
}

/* Deletes segments until that many more files and bytes fit. */
static bool make_room(kvstore *ks, uint64_t bytes, uint64_t files) {
    for (;;) {
        pthread_mutex_lock(&ks->lock);
        const struct kvstore_bounds *b = &ks->bounds;
        bool ever = bytes <= b->max_bytes && files <= b->max_files;
        bool fits = ever && ks->stats.bytes <= b->max_bytes - bytes &&
                    ks->stats.files <= b->max_files - files;
        struct kvstore_segment *worst = fits || !ever ? NULL : kvstore_worst(ks, false);
        if (worst) {
            kvstore_drop_segment(ks, worst);
            ks->stats.evicted++;
        }
        pthread_mutex_unlock(&ks->lock);
        if (fits || !worst) return fits;
        kvstore_reap(ks);
    }
}

/* Takes the memory of one segment more; others leave it first. false: there is no room. */
static bool reserve_memory(kvstore *ks, uint64_t bytes) {
    const uint64_t most = ks->config.max_memory_bytes;
    if (bytes > most) return false;
    for (;;) {
        pthread_mutex_lock(&ks->lock);
        bool fits = ks->stats.memory_bytes <= most - bytes;
        struct kvstore_segment *worst = fits ? NULL : kvstore_worst(ks, true);
        if (fits) ks->stats.memory_bytes += bytes;
        if (worst) ks->stats.memory_evicted++;
        if (worst && !worst->on_disk) {
            kvstore_drop_segment(ks, worst);
        } else if (worst) {
            kvstore_image_unref(ks, worst->image);
            worst->image = NULL;
            ks->stats.memory_segments--;
        }
        pthread_mutex_unlock(&ks->lock);
        if (fits || !worst) return fits; /* what is left is being read */
        kvstore_reap(ks);
    }
}

/* A copy of a sealed image, if it may stay in memory. */
static struct kvstore_image *keep_image(kvstore *ks, const uint8_t *bytes, uint64_t n) {
    if (!reserve_memory(ks, n)) return NULL;
    struct kvstore_image *image = mem_new(1, sizeof *image + n);
    if (!image) {
        pthread_mutex_lock(&ks->lock);
        ks->stats.memory_bytes -= n;
        pthread_mutex_unlock(&ks->lock);
        return NULL;
    }
    image->refs = 1;
    image->bytes = n;
    memcpy(image->data, bytes, n);
    return image;
}

/* ---- writing ---- */

static int write_file(kvstore *ks, int64_t id, const uint8_t *image, uint64_t bytes, err *e) {
    char made[KVSTORE_PATH], path[KVSTORE_PATH];
    kvstore_path(ks->folder, id, ".tmp", made);
    kvstore_path(ks->folder, id, ".kv", path);
    int fd = file_open(made, O_WRONLY | O_CREAT | O_EXCL, 0600);
    bool ok = fd >= 0 && !file_write_at(fd, image, bytes, 0) && !file_sync(fd);
    int why = errno;
    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        why = errno;
    }
    if (ok && file_rename(made, path)) {
        ok = false;
        why = errno;
    }
    if (ok)
        return 0; /* the folder is synced with the index, if at all: a lost entry is a lost file */
    if (fd >= 0) unlink(made);
    return err_set(e, ERR_IO, "%s: %s", ks->folder, strerror(why));
}

static void row_of(const struct kvstore_head *h, int64_t id, uint64_t bytes,
                   struct kvstore_row *row) {
    *row = (struct kvstore_row){.id = id,
                                .tenant = h->tenant,
                                .first = h->first,
                                .n_blocks = h->n_blocks,
                                .block_tokens = h->shape.block_tokens,
                                .bytes = bytes,
                                .created_s = h->created_s,
                                .used_s = h->created_s};
    memcpy(row->space, h->space, sizeof row->space);
    memcpy(row->names, h->names, sizeof row->names);
    for (uint32_t i = 0; i < h->n_blocks; i++)
        row->flags[i] = (uint8_t)(KVSTORE_BLOCK | (h->has_window[i] ? KVSTORE_WINDOW : 0));
    if (h->has_state) row->flags[h->n_blocks - 1] |= KVSTORE_STATE;
}

static bool is_known(kvstore *ks, const struct kvstore_row *row) {
    bool known = true;
    pthread_mutex_lock(&ks->lock);
    for (uint32_t i = 0; i < row->n_blocks && known; i++)
        known = kvstore_find_slot(ks, &row->names[i], row->flags[i]) != NULL;
    pthread_mutex_unlock(&ks->lock);
    return known;
}

/* Enters a written file in the index. */
static int enter_file(kvstore_space *sp, const struct kvstore_row *row, err *e) {
    kvstore *ks = sp->ks;
    int rc = 0;
    if (!sp->known) rc = kvstore_catalog_space(ks->catalog, sp->id, sp->label, ks->version, e);
    if (!rc) sp->known = true;
    if (!rc) rc = kvstore_catalog_add(ks->catalog, row, e);
    if (!rc) rc = kvstore_catalog_set_written(ks->catalog, ks->day, ks->day_bytes, e);
    return rc;
}

static void remove_file(kvstore *ks, int64_t id) {
    char path[KVSTORE_PATH];
    kvstore_path(ks->folder, id, ".kv", path);
    kvstore_catalog_remove(ks->catalog, id, NULL);
    unlink(path);
}

/* Nothing is written for a while; said once until it works again. */
static void note_failure(kvstore *ks, const err *e) {
    pthread_mutex_lock(&ks->lock);
    bool first = ks->stats.writable;
    ks->stats.failed++;
    ks->stats.writable = false;
    ks->retry_ns = clock_now_ns() + RETRY_S * SECOND_NS;
    pthread_mutex_unlock(&ks->lock);
    if (first) log_warn("kv store: nothing is written, next try in %d s: %s", RETRY_S, e->msg);
}

static void note_success(kvstore *ks, uint64_t bytes) {
    pthread_mutex_lock(&ks->lock);
    bool again = !ks->stats.writable;
    ks->stats.writable = true;
    ks->retry_ns = 0;
    ks->stats.written++;
    ks->stats.written_bytes += bytes;
    pthread_mutex_unlock(&ks->lock);
    if (again) log_info("kv store: segments are written again");
}

static void count(kvstore *ks, uint64_t *counter) {
    pthread_mutex_lock(&ks->lock);
    ++*counter;
    pthread_mutex_unlock(&ks->lock);
}

/* Is the folder there, and not one that failed a moment ago? */
static bool may_write(kvstore *ks) {
    pthread_mutex_lock(&ks->lock);
    bool may = ks->catalog && (!ks->retry_ns || clock_now_ns() >= ks->retry_ns);
    pthread_mutex_unlock(&ks->lock);
    return may;
}

/* Writes a sealed image to the folder. false: it is not there. */
static bool write_segment(kvstore_space *sp, const struct kvstore_row *row, const uint8_t *image) {
    kvstore *ks = sp->ks;
    err e;
    if (!may_write(ks)) return false;
    if (!fits_day(ks, row->bytes) || !make_room(ks, row->bytes, 1)) {
        count(ks, &ks->stats.over_budget);
        return false;
    }
    int rc = write_file(ks, row->id, image, row->bytes, &e);
    ks->day_bytes += row->bytes; /* also of a file that failed: some of it was written */
    if (!rc && (rc = enter_file(sp, row, &e)) != 0) remove_file(ks, row->id);
    if (rc)
        note_failure(ks, &e);
    else
        note_success(ks, row->bytes);
    return !rc;
}

static void write_draft(kvstore *ks, struct kvstore_draft_int *d) {
    struct kvstore_head h;
    struct kvstore_row row;
    int64_t id;
    err e;
    kvstore_draft_head(d, &h);
    h.created_s = kvstore_now_s(ks);
    const uint64_t bytes = kvstore_segment_bytes(&h);
    /* Random ids: a folder of files tells nothing of their order. */
    if (getentropy(&id, sizeof id) || getentropy(h.salt, sizeof h.salt)) return;
    row_of(&h, id, bytes, &row);
    if (is_known(ks, &row)) return;
    if (kvstore_segment_seal(&h, &ks->root, d->image, &e)) {
        note_failure(ks, &e);
        return;
    }
    struct kvstore_image *image = keep_image(ks, d->image, bytes);
    const bool on_disk = write_segment(d->space, &row, d->image);
    pthread_mutex_lock(&ks->lock);
    const bool entered = (image || on_disk) && !kvstore_add_segment(ks, &row, image, on_disk);
    if (!entered) kvstore_image_unref(ks, image);
    pthread_mutex_unlock(&ks->lock);
    if (!entered && on_disk) remove_file(ks, id);
}

/* ---- the loop ---- */

/* Uses since the index learned of them. */
struct use {
    int64_t id, used_s;
    uint64_t hits;
};
enum { USES = 512 };

static int take_uses(kvstore *ks, struct use uses[USES]) {
    int n = 0;
    pthread_mutex_lock(&ks->lock);
    for (struct kvstore_segment *s = ks->segments; s && n < USES; s = s->next) {
        if (!s->used || !s->on_disk) continue;
        s->used = false;
        uses[n++] = (struct use){s->row.id, s->row.used_s, s->row.hits};
    }
    pthread_mutex_unlock(&ks->lock);
    return n;
}

static void store_uses(kvstore *ks) {
    struct use uses[USES];
    for (int n = USES; n == USES;) {
        n = take_uses(ks, uses);
        if (!n || kvstore_catalog_begin(ks->catalog, NULL)) return;
        for (int i = 0; i < n; i++)
            kvstore_catalog_use(ks->catalog, uses[i].id, uses[i].used_s, uses[i].hits, NULL);
        kvstore_catalog_end(ks->catalog, NULL);
    }
}

/* Takes a draft, or NULL: something else is to do. With the lock held on both ends. */
static struct kvstore_draft_int *next_draft(kvstore *ks, uint64_t tick_ns) {
    while (!ks->queue && !ks->gone && !ks->unused && !ks->trims && !ks->stopping &&
           clock_now_ns() < tick_ns)
        clock_cond_wait(&ks->work, &ks->lock, clock_now_ns() + SECOND_NS);
    struct kvstore_draft_int *d = ks->stopping ? NULL : ks->queue;
    if (!d) return NULL;
    ks->queue = d->next;
    if (!ks->queue) ks->queue_tail = &ks->queue;
    return d;
}

/* Other bounds: deletes what is beyond them. What the day's bound has stopped may go on. */
static void trim_folder(kvstore *ks) {
    pthread_mutex_lock(&ks->lock);
    const bool trims = ks->trims;
    ks->trims = false;
    if (trims) kvstore_expire(ks);
    if (trims && ks->stats.writable) ks->retry_ns = 0;
    pthread_mutex_unlock(&ks->lock);
    if (trims) make_room(ks, 0, 0);
}

void *kvstore_writer_main(void *arg) {
    kvstore *ks = arg;
    uint64_t tick_ns = clock_now_ns() + TICK_S * SECOND_NS;
    thread_enter_background();
    for (bool stopping = false; !stopping;) {
        pthread_mutex_lock(&ks->lock);
        struct kvstore_draft_int *d = next_draft(ks, tick_ns);
        stopping = ks->stopping;
        pthread_mutex_unlock(&ks->lock);
        trim_folder(ks);
        if (d) write_draft(ks, d);
        if (clock_now_ns() >= tick_ns || stopping) {
            pthread_mutex_lock(&ks->lock);
            kvstore_expire(ks);
            pthread_mutex_unlock(&ks->lock);
            if (ks->catalog) store_uses(ks);
            tick_ns = clock_now_ns() + TICK_S * SECOND_NS;
        }
        kvstore_reap(ks);
        if (!d) continue;
        pthread_mutex_lock(&ks->lock);
        ks->n_done++;
        pthread_mutex_unlock(&ks->lock);
        kvstore_draft_drop(&d->d);
    }
    return NULL;
}
