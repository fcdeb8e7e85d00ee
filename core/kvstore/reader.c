/* reader.c - the threads that read records for readings, in turn, each into its few buffers, and
 * their owners' side. A reading that waits for its owner to take records is passed over. Names are
 * looked up when their turn comes, because segments may be deleted at any time.
 *
 * There are two threads, because one reads and decrypts at about half the rate of plain reads from
 * the page cache. Each takes the next record of a reading, so one reading has both; a place in the
 * ring is taken in the order of records, and the owner gets them in that order. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFERS = 4 };

/* A record in a buffer, or one that a thread reads into it. */
struct arrived {
    uint32_t block;
    int what;
    bool done, failed; /* guarded by the store's lock */
    uint8_t *bytes;    /* (buffer_bytes) */
};

/* The segment that a thread has open for a reading. */
struct opened {
    struct kvstore_file file;
    int64_t id;
    struct kvstore_image *image; /* a reference, if the file is that */
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

    struct opened open[KVSTORE_READERS]; /* of each thread; of the one that ends it, all */

    /* Guarded by the store's lock. */
    kvstore_reading *next;
    struct arrived ring[BUFFERS];
    uint32_t first, n_used; /* buffers that are filled or being filled: from ring[first] on */
    uint32_t block;
    int what;        /* the next record; KVSTORE_* */
    uint32_t n_busy; /* threads that have it */
    bool stopped;    /* no more records are begun */
    bool ended;      /* and its owner was told */
    bool closed;     /* its owner does not use it any more */
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
        pthread_cond_broadcast(&ks->reading);
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
                           .names = mem_new(w->n, sizeof *r->names),
                           .flags = mem_new(w->n, sizeof *r->flags)};
    for (int i = 0; i < KVSTORE_READERS; i++)
        r->open[i].file.fd = -1;
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
    const struct arrived *a = &r->ring[r->first];
    if (r->n_used && a->done) {
        *record = (struct kvstore_record){a->block, a->what, a->bytes};
        rc = a->failed ? ERR_NOT_FOUND : 1;
    } else if (r->ended && !r->n_used) {
        rc = ERR_EXISTS;
    }
    pthread_mutex_unlock(&ks->lock);
    return rc;
}

void kvstore_reading_pop(kvstore_reading *r) {
    kvstore *ks = r->space->ks;
    pthread_mutex_lock(&ks->lock);
    r->first = (r->first + 1) % BUFFERS;
    r->n_used--;
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

/* ---- the threads ---- */

/* Something to do: to forget it, to begin a record, or to end it. With the lock. */
static bool has_work(const kvstore_reading *r) {
    if (r->closed) return !r->n_busy;
    return r->stopped ? !r->n_busy && !r->ended : r->n_used < BUFFERS;
}

static kvstore_reading *next_reading(kvstore *ks) {
    kvstore_reading *r = ks->readings;
    while (r && !has_work(r))
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

static bool is_open(const struct opened *o) {
    return o->file.fd >= 0 || o->file.image;
}

static void close_file(kvstore *ks, struct opened *o) {
    kvstore_file_close(&o->file);
    pthread_mutex_lock(&ks->lock);
    kvstore_image_unref(ks, o->image);
    pthread_mutex_unlock(&ks->lock);
    o->image = NULL;
}

static void close_files(kvstore *ks, kvstore_reading *r) {
    for (int i = 0; i < KVSTORE_READERS; i++)
        close_file(ks, &r->open[i]);
}

/* Gives back its memory, without the lock; then its space may be closed. */
static void forget_reading(kvstore *ks, kvstore_reading *r) {
    kvstore_space *sp = r->space;
    close_files(ks, r);
    free_reading(r);
    pthread_mutex_lock(&ks->lock);
    ks->n_readings--;
    sp->n_readings--;
    pthread_cond_broadcast(&ks->idle);
    pthread_mutex_unlock(&ks->lock);
}

/* Moves to the next record that is wanted. false: there is none. With the lock. */
static bool find_wanted(kvstore_reading *r) {
    for (; r->block < r->n; r->block++, r->what = KVSTORE_BLOCK)
        for (; r->what <= KVSTORE_STATE; r->what *= 2)
            if (r->flags[r->block] & r->what) return true;
    return false;
}

/* A segment that has the record: stays with the open one if that has it. false: there is none.
 * found->image: it is to be opened, with a reference. */
static bool find_file(kvstore *ks, const struct opened *o, const struct kvstore_name *name,
                      int what, struct opened *found, uint32_t *number) {
    found->image = NULL;
    pthread_mutex_lock(&ks->lock);
    struct kvstore_segment *s = is_open(o) ? kvstore_find_segment(ks, o->id, name) : NULL;
    struct kvstore_slot *slot = kvstore_find_slot(ks, name, what);
    if (s)
        for (uint32_t i = 0; i < s->row.n_blocks; i++)
            if ((s->row.flags[i] & what) && !memcmp(&s->row.names[i], name, sizeof *name))
                slot = &s->slots[i];
    if (slot) {
        found->id = slot->segment->row.id;
        *number = slot->number;
        if (!is_open(o) || o->id != found->id) found->image = slot->segment->image;
        if (found->image) found->image->refs++;
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
static int check_file(const kvstore_reading *r, const struct kvstore_head *h,
                      const struct kvstore_name *name, uint32_t number, err *e) {
    const struct kvstore_shape *a = &h->shape, *b = &r->space->shape;
    if (memcmp(h->space, r->space->id, sizeof h->space) == 0 &&
        hash128_same(h->tenant, r->tenant) && a->block_tokens == b->block_tokens &&
        a->block_bytes == b->block_bytes && a->window_bytes == b->window_bytes &&
        a->state_bytes == b->state_bytes && number < h->n_blocks &&
        memcmp(&h->names[number], name, sizeof h->names[0]) == 0)
        return 0;
    return err_set(e, ERR_FORMAT, "its file holds another one");
}

static int open_file(kvstore *ks, struct opened *o, const struct opened *found, err *e) {
    char path[KVSTORE_PATH];
    close_file(ks, o);
    o->image = found->image;
    o->id = found->id;
    if (o->image) return kvstore_image_open(o->image, &ks->root, &o->file, e);
    kvstore_path(ks->folder, o->id, ".kv", path);
    return kvstore_file_open(path, &ks->root, &o->file, e);
}

/* Reads the record that a is for. 0; or it cannot be had. */
static int read_record(kvstore *ks, kvstore_reading *r, struct opened *o, struct arrived *a) {
    const struct kvstore_name *name = &r->names[a->block];
    struct opened found;
    uint32_t number;
    int rc = 0;
    err e;
    if (!find_file(ks, o, name, a->what, &found, &number)) return ERR_NOT_FOUND;
    if (!is_open(o) || o->id != found.id) rc = open_file(ks, o, &found, &e);
    if (!rc) rc = check_file(r, &o->file.head, name, number, &e);
    if (!rc) rc = kvstore_file_read(&o->file, a->what, number, a->bytes, &e);
    if (rc) give_up(ks, found.id, name, &e);
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

/* Takes a buffer for the next record of r; NULL: there is none. With the lock. */
static struct arrived *begin_record(kvstore_reading *r) {
    if (r->stopped || !find_wanted(r)) {
        r->stopped = true;
        return NULL;
    }
    struct arrived *a = &r->ring[(r->first + r->n_used++) % BUFFERS];
    a->block = r->block;
    a->what = r->what;
    a->done = a->failed = false;
    r->what *= 2;
    return a;
}

/* One record of r. */
static void advance(kvstore *ks, kvstore_reading *r, struct opened *o, struct arrived *a) {
    const uint64_t start = clock_now_ns();
    int rc = read_record(ks, r, o, a);
    const uint64_t ns = clock_now_ns() - start;
    pthread_mutex_lock(&ks->lock);
    a->done = true;
    a->failed = rc != 0;
    if (rc)
        r->stopped = true;
    else
        note_rate(ks, record_bytes(&r->space->shape, a->what), ns);
    pthread_mutex_unlock(&ks->lock);
}

/* What there is to do for r, which is busy with this thread. With the lock held on both ends. */
static void serve_reading(kvstore *ks, kvstore_reading *r, int thread) {
    struct arrived *a = begin_record(r);
    const bool ends = !a && r->n_busy == 0 && !r->ended;
    if (!a && !ends) return; /* the other thread has the last one */
    r->n_busy++;
    pthread_mutex_unlock(&ks->lock);
    if (a) advance(ks, r, &r->open[thread], a);
    if (ends) close_files(ks, r);
    pthread_mutex_lock(&ks->lock);
    r->ended = r->ended || ends;
    const bool tell = !r->closed;
    pthread_mutex_unlock(&ks->lock);
    if (tell) r->notify(r->arg);
    pthread_mutex_lock(&ks->lock);
    r->n_busy--;
}

void *kvstore_reader_main(void *arg) {
    const struct kvstore_reader *me = arg;
    kvstore *ks = me->ks;
    pthread_mutex_lock(&ks->lock);
    while (!ks->stopping) {
        kvstore_reading *r = next_reading(ks);
        if (!r) {
            pthread_cond_wait(&ks->reading, &ks->lock);
        } else if (!r->closed) {
            serve_reading(ks, r, me->number);
        } else {
            unlink_reading(ks, r);
            pthread_mutex_unlock(&ks->lock);
            forget_reading(ks, r);
            pthread_mutex_lock(&ks->lock);
        }
    }
    pthread_mutex_unlock(&ks->lock);
    return NULL;
}
