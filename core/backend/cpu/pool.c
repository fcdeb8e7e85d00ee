/* pool.c - the thread pool of the CPU backend. Owns its threads.
 *
 * Each thread has a lane: one word with the job's number and the units of chunks that are left in
 * it. A thread takes its own lane from the front, so that it reads memory in one stream, then
 * steals from the ends of the others. Taking is a compare-and-swap of the word: it fails for a
 * thread that read the lane of an older job, because the word contains the job's number. fn and arg
 * may be read before that: they change only when every unit has been run, which a successful swap
 * excludes. The caller waits for units, not for threads: a sleeping thread delays no other. */
#include "core/backend/cpu/pool.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <pthread/qos.h>
#endif

enum { SPIN_NS = 30000, SPIN_ROUNDS = 64, CACHE_LINE = 64, MAX_UNITS = 0xffff };

struct worker {
    pool *p;
    pthread_t id;
    int index;
};

struct lane {
    _Alignas(CACHE_LINE) atomic_uint_fast64_t range; /* job << 32 | next unit << 16 | end */
};

struct pool {
    _Alignas(CACHE_LINE) atomic_uint_fast32_t job; /* number; incremented when lanes are filled */
    _Alignas(CACHE_LINE) atomic_uint_fast32_t n_done; /* units of this job that returned */
    /* The job. Atomic because a late thread may read it while the next one is written. */
    _Alignas(CACHE_LINE) _Atomic(pool_fn) fn;
    _Atomic(const void *) arg;
    atomic_uint_fast32_t n_units, n_chunks, chunks_per_unit;
    atomic_bool stopping, caller_sleeps;
    atomic_int n_sleeping;
    pthread_mutex_t mutex; /* guards sleeping and waking, no data */
    pthread_cond_t work, finished;
    int n_threads, n_started;
    struct worker *workers; /* (n_threads - 1) */
    struct lane *lanes;     /* (n_threads) */
};

void pool_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A unit taken from a lane, with its job. */
struct unit {
    pool_fn fn;
    const void *arg;
    uint32_t first, end; /* chunks */
    uint32_t n_units;    /* of the job */
};

/* The owner takes the first unit of its lane, a thief the last one. */
static bool take_chunk(pool *p, int lane, bool steals, struct unit *u) {
    atomic_uint_fast64_t *range = &p->lanes[lane].range;
    uint_fast64_t r = atomic_load(range);
    for (;;) {
        uint32_t next = r >> 16 & 0xffff, end = r & 0xffff;
        if (next >= end) return false;
        uint32_t per = (uint32_t)atomic_load(&p->chunks_per_unit);
        uint32_t n_chunks = (uint32_t)atomic_load(&p->n_chunks);
        u->fn = atomic_load(&p->fn);
        u->arg = atomic_load(&p->arg);
        u->n_units = (uint32_t)atomic_load(&p->n_units);
        u->first = (steals ? end - 1 : next) * per;
        u->end = n_chunks - u->first < per ? n_chunks : u->first + per;
        if (atomic_compare_exchange_weak(range, &r, steals ? r - 1 : r + (1 << 16))) return true;
    }
}

static bool take_any(pool *p, int thread, struct unit *u) {
    if (take_chunk(p, thread, false, u)) return true;
    for (int i = 1; i < p->n_threads; i++)
        if (take_chunk(p, (thread + i) % p->n_threads, true, u)) return true;
    return false;
}

/* Runs units of the open job until none is left. They are reported together: until then the job
 * cannot end, so all of them are of one job. */
static void run_units(pool *p, int thread) {
    struct unit u;
    uint32_t n = 0, n_units = 0;
    for (; take_any(p, thread, &u); n++) {
        n_units = u.n_units;
        for (uint32_t chunk = u.first; chunk < u.end; chunk++)
            u.fn(u.arg, chunk, thread);
    }
    if (n && atomic_fetch_add(&p->n_done, n) + n == n_units && atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_signal(&p->finished);
        pthread_mutex_unlock(&p->mutex);
    }
}

/* Waits for a job other than `seen`: spins, then sleeps. false: the pool stops. */
static bool wait_for_job(pool *p, uint_fast32_t seen) {
    uint64_t until = clock_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_ROUNDS; i++) {
            if (atomic_load(&p->job) != seen) return true;
            pool_pause();
        }
    } while (clock_now_ns() < until);
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(&p->job) == seen && !atomic_load(&p->stopping))
        pthread_cond_wait(&p->work, &p->mutex);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->mutex);
    return !atomic_load(&p->stopping);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    uint_fast32_t seen = 0;
#ifdef __APPLE__
    pthread_set_qos_class_self_np(QOS_CLASS_USER_INITIATED, 0); /* performance cores */
#endif
    while (wait_for_job(w->p, seen)) {
        seen = atomic_load(&w->p->job);
        run_units(w->p, w->index);
    }
    return NULL;
}

static void wait_for_units(pool *p, uint32_t n) {
    uint64_t until = clock_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_ROUNDS; i++) {
            if (atomic_load(&p->n_done) == n) return;
            pool_pause();
        }
    } while (clock_now_ns() < until);
    pthread_mutex_lock(&p->mutex);
    /* An exchange, here and in pool_run: an emulator of ARM on x86 may let a later load pass a
     * store. */
    atomic_exchange(&p->caller_sleeps, true);
    while (atomic_load(&p->n_done) != n)
        pthread_cond_wait(&p->finished, &p->mutex);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->mutex);
}

void pool_run(pool *p, uint32_t n_chunks, pool_fn fn, const void *arg) {
    if (p->n_threads == 1 || n_chunks <= 1) {
        for (uint32_t i = 0; i < n_chunks; i++)
            fn(arg, i, 0);
        return;
    }
    uint32_t per = (n_chunks - 1) / MAX_UNITS + 1, n_units = (n_chunks - 1) / per + 1;
    uint64_t job = (uint32_t)atomic_load(&p->job) + 1, n_threads = (uint64_t)p->n_threads;
    atomic_store(&p->fn, fn);
    atomic_store(&p->arg, arg);
    atomic_store(&p->n_chunks, n_chunks);
    atomic_store(&p->chunks_per_unit, per);
    atomic_store(&p->n_units, n_units);
    atomic_store(&p->n_done, 0);
    for (uint64_t t = 0; t < n_threads; t++) {
        uint64_t next = t * n_units / n_threads, end = (t + 1) * n_units / n_threads;
        atomic_store(&p->lanes[t].range, job << 32 | next << 16 | end);
    }
    atomic_exchange(&p->job, (uint32_t)job);
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->mutex);
    }
    run_units(p, 0);
    wait_for_units(p, n_units);
}

int pool_new(int n_threads, pool **out, err *e) {
    pool *p = mem_new_aligned(sizeof *p);
    *out = NULL;
    if (!p) return err_no_memory(e);
    p->n_threads = n_threads;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    p->workers = mem_new((uint64_t)n_threads, sizeof *p->workers);
    p->lanes = mem_new_aligned((uint64_t)n_threads * sizeof *p->lanes);
    if (!p->workers || !p->lanes) {
        pool_free(p);
        return err_no_memory(e);
    }
    for (int i = 1; i < n_threads; i++) {
        struct worker *w = &p->workers[i - 1];
        *w = (struct worker){.p = p, .index = i};
        int rc = thread_start(&w->id, worker_main, w, "computes", e);
        if (rc) {
            pool_free(p);
            return rc;
        }
        p->n_started++;
    }
    *out = p;
    return 0;
}

void pool_free(pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->stopping, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].id, NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mutex);
    free(p->lanes);
    free(p->workers);
    free(p);
}
