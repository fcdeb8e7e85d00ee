/* ranks.c - a model split over a group of devices: a part on each, and a thread for each rank
 * except rank 0, which the caller's thread drives. A thread opens its part, so that its memory is
 * local to it, and then runs every step that the caller starts. Owns the threads.
 *
 * Where steps overlap, all ranks begin a step, and later all finish it: each picks the tokens from
 * the same logits, and so has them for its next step. Otherwise they run a step when it is to be
 * finished.
 *
 * A thread that waits for a step, or for its end, spins, then sleeps. A rank whose step fails
 * breaks the group: the others return from the exchange in which they wait. */
#include "core/model/model_int.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "core/formats/model_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 30000, SPIN_ROUNDS = 64 };

struct rank {
    struct model_ranks *all;
    backend *be;
    model *m;
    pthread_t id;
    int rc; /* of what it did last */
    err e;
};

struct model_ranks {
    const char *path; /* while opening */
    const struct model_limits *limits;
    const struct model_batch *batch; /* of the step */
    bool begins, finishes;           /* what the ranks are to do with it */
    atomic_uint step, n_done;        /* times that this was said; ranks that have done it */
    atomic_uint failed;              /* 1 + the rank that failed first; 0: none */
    atomic_bool stopping;
    atomic_int n_sleeping;
    pthread_mutex_t mutex; /* guards going to sleep and waking, no data */
    pthread_cond_t wake;
    uint32_t n, n_started; /* the others; their threads */
    bool placed;           /* the thread of model_forward */
    struct rank *others;   /* (n) of ranks 1 .. n */
};

static void wake_all(struct model_ranks *r) {
    if (!atomic_load(&r->n_sleeping)) return;
    pthread_mutex_lock(&r->mutex);
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->mutex);
}

/* Is *value different from x (wanted: equal to x), or are the threads to stop? */
static bool is_time(struct model_ranks *r, atomic_uint *value, unsigned x, bool wanted) {
    return (atomic_load(value) == x) == wanted || atomic_load(&r->stopping);
}

static void wait_until(struct model_ranks *r, atomic_uint *value, unsigned x, bool wanted) {
    uint64_t until = clock_now_ns() + SPIN_NS;
    do
        for (int i = 0; i < SPIN_ROUNDS; i++)
            if (is_time(r, value, x, wanted)) return;
    while (clock_now_ns() < until);
    pthread_mutex_lock(&r->mutex);
    atomic_fetch_add(&r->n_sleeping, 1);
    while (!is_time(r, value, x, wanted))
        pthread_cond_wait(&r->wake, &r->mutex);
    atomic_fetch_sub(&r->n_sleeping, 1);
    pthread_mutex_unlock(&r->mutex);
}

/* Reports a rank's result of its part. The first failure is the cause; later ones are ranks whose
 * group was broken. */
static void report_result(struct model_ranks *r, uint32_t rank, backend *be, int rc) {
    unsigned none = 0;
    if (!rc) return;
    atomic_compare_exchange_strong(&r->failed, &none, rank + 1);
    backend_break_group(be);
}

static void count_done(struct model_ranks *r) {
    atomic_fetch_add(&r->n_done, 1);
    wake_all(r);
}

static int do_part(const struct model_ranks *r, model *m, struct model_output *out, err *e) {
    int rc = r->begins ? model_rank_begin(m, r->batch, e) : 0;
    return rc || !r->finishes ? rc : model_rank_finish(m, out, e);
}

static void *rank_main(void *arg) {
    struct rank *own = arg;
    struct model_ranks *r = own->all;
    struct model_output none;
    unsigned step = 0;
    backend_bind_thread(own->be);
    own->rc = model_rank_open(r->path, own->be, r->limits, &own->m, &own->e);
    report_result(r, backend_rank(own->be), own->be, own->rc);
    for (count_done(r);; count_done(r)) {
        wait_until(r, &r->step, step, false);
        if (atomic_load(&r->stopping)) return NULL;
        step = atomic_load(&r->step);
        mem_guard_enter();
        own->rc = do_part(r, own->m, &none, &own->e);
        mem_guard_leave();
        report_result(r, backend_rank(own->be), own->be, own->rc);
    }
}

/* Waits for the other ranks. rc: rank 0's result, described by e. */
static int join_ranks(struct model_ranks *r, model *m, int rc, err *e) {
    report_result(r, 0, m ? m->be : r->others[0].be, rc);
    wait_until(r, &r->n_done, r->n, true);
    unsigned failed = atomic_load(&r->failed);
    if (failed < 2) return rc;
    const struct rank *first = &r->others[failed - 2];
    if (e) {
        *e = first->e;
        err_prefix(e, "rank %u: ", failed - 1);
    }
    return first->rc;
}

static void ranks_close(struct model_ranks *r) {
    atomic_store(&r->stopping, true);
    pthread_mutex_lock(&r->mutex);
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    for (uint32_t i = 0; i < r->n_started; i++)
        pthread_join(r->others[i].id, NULL);
    for (uint32_t i = 0; i < r->n_started; i++)
        model_rank_close(r->others[i].m);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->mutex);
    free(r->others);
    free(r);
}

static int ranks_new(uint32_t n, struct model_ranks **out, err *e) {
    struct model_ranks *r = mem_new(1, sizeof *r);
    if (!r) return err_no_memory(e);
    r->n = n;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->wake, NULL);
    r->others = mem_new(n, sizeof *r->others);
    if (r->others) {
        *out = r;
        return 0;
    }
    ranks_close(r);
    return err_no_memory(e);
}

static int ranks_start(struct model_ranks *r, backend *be, err *e) {
    for (uint32_t i = 0; i < r->n; i++) {
        struct rank *own = &r->others[i];
        *own = (struct rank){.all = r, .be = backend_peer(be, i + 1)};
        int rc = thread_start(&own->id, rank_main, own, "computes a rank's part", e);
        if (rc) return rc;
        r->n_started++;
    }
    return 0;
}

static int open_group(const char *path, backend *be, const struct model_limits *limits, model **out,
                      err *e) {
    struct model_ranks *r = NULL;
    model *m = NULL;
    int rc = ranks_new(backend_n_local(be) - 1, &r, e);
    if (rc) return rc;
    r->path = path;
    r->limits = limits;
    rc = ranks_start(r, be, e);
    if (rc) {
        ranks_close(r);
        return rc;
    }
    rc = join_ranks(r, NULL, model_rank_open(path, be, limits, &m, e), e);
    if (rc) {
        ranks_close(r);
        model_rank_close(m);
        return rc;
    }
    m->ranks = r;
    *out = m;
    return 0;
}

int model_open(const char *path, backend *be, const struct model_limits *limits, model **out,
               err *e) {
    *out = NULL;
    return backend_n_local(be) > 1 ? open_group(path, be, limits, out, e)
                                   : model_rank_open(path, be, limits, out, e);
}

void model_close(model *m) {
    if (m && m->ranks) ranks_close(m->ranks);
    model_rank_close(m);
}

int model_check(const model *m, err *e) {
    int rc = model_rank_check(m, e);
    for (uint32_t i = 0; !rc && m->ranks && i < m->ranks->n; i++)
        rc = model_rank_check(m->ranks->others[i].m, e);
    return rc;
}

int model_check_files(const model *m, err *e) {
    model_files_look();
    return model_check(m, e);
}

bool model_overlaps(const model *m) {
    return m->part.embeds && m->part.ends && m->limits.max_history && backend_can_overlap(m->be);
}

/* All ranks do it at once. */
static int run_ranks(model *m, bool begins, bool finishes, struct model_output *out, err *e) {
    struct model_ranks *r = m->ranks;
    if (!r->placed) backend_bind_thread(m->be);
    r->placed = true;
    r->begins = begins;
    r->finishes = finishes;
    atomic_store(&r->n_done, 0);
    atomic_fetch_add(&r->step, 1);
    wake_all(r);
    return join_ranks(r, m, do_part(r, m, out, e), e);
}

int model_begin(model *m, const struct model_batch *batch, err *e) {
    struct model_output none;
    if (!m->ranks) return model_rank_begin(m, batch, e);
    m->ranks->batch = batch;
    return model_overlaps(m) ? run_ranks(m, true, false, &none, e) : 0;
}

int model_finish(model *m, struct model_output *out, err *e) {
    if (!m->ranks) return model_rank_finish(m, out, e);
    return run_ranks(m, !model_overlaps(m), true, out, e);
}

int model_forward(model *m, const struct model_batch *batch, struct model_output *out, err *e) {
    int rc = model_begin(m, batch, e);
    return rc ? rc : model_finish(m, out, e);
}
