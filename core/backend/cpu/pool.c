/* pool.c - the thread pool of the CPU backend. Owns its threads; runs nothing of its own.
 *
 * A job is published through one word, the ticket: the job's number and the next chunk to hand
 * out. A thread reads the ticket, then the job, then takes the chunk by compare-and-swap. The
 * caller closes the ticket before it writes the next job, so a late thread that read a newer job
 * with an older ticket fails to take anything. The caller waits for chunks, not for threads: one
 * that was asleep the whole time holds nobody up. */
#include "core/backend/cpu/pool.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 30000, SPIN_ROUNDS = 64, CACHE_LINE = 64 };

#define TICKET_CLOSED 0xffffffffu

struct worker {
    pool *p;
    pthread_t id;
    int index;
};

struct pool {
    _Alignas(CACHE_LINE) atomic_uint_fast64_t ticket; /* job << 32 | next chunk */
    _Alignas(CACHE_LINE) atomic_uint_fast32_t n_done; /* chunks of this job that returned */
    /* The job. Atomic only because a late thread may look while the next one is written. */
    _Alignas(CACHE_LINE) _Atomic(pool_fn) fn;
    _Atomic(const void *) arg;
    atomic_uint_fast32_t n_chunks;
    atomic_bool stopping, caller_sleeps;
    atomic_int n_sleeping;
    pthread_mutex_t mutex; /* guards going to sleep and waking, no data */
    pthread_cond_t work, finished;
    int n_threads, n_started;
    struct worker *workers; /* (n_threads - 1) */
};

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint32_t ticket_job(uint64_t ticket) {
    return (uint32_t)(ticket >> 32);
}

/* Runs chunks of the open job until none is left. */
static void take_chunks(pool *p, int thread) {
    for (;;) {
        uint_fast64_t t = atomic_load(&p->ticket);
        uint32_t chunk = (uint32_t)t;
        pool_fn fn = atomic_load(&p->fn);
        const void *arg = atomic_load(&p->arg);
        uint32_t n = (uint32_t)atomic_load(&p->n_chunks);
        if (chunk == TICKET_CLOSED || chunk >= n) return;
        if (!atomic_compare_exchange_weak(&p->ticket, &t, t + 1)) continue;
        fn(arg, chunk, thread);
        if (atomic_fetch_add(&p->n_done, 1) + 1 == n && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->mutex);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->mutex);
        }
    }
}

/* Waits for a job other than seen: spins, then sleeps. false when the pool stops. */
static bool wait_for_job(pool *p, uint32_t seen) {
    uint64_t until = clock_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_ROUNDS; i++) {
            if (ticket_job(atomic_load(&p->ticket)) != seen) return true;
            pause_cpu();
        }
    } while (clock_now_ns() < until);
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (ticket_job(atomic_load(&p->ticket)) == seen && !atomic_load(&p->stopping))
        pthread_cond_wait(&p->work, &p->mutex);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->mutex);
    return !atomic_load(&p->stopping);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    uint32_t seen = 0;
    while (wait_for_job(w->p, seen)) {
        seen = ticket_job(atomic_load(&w->p->ticket));
        take_chunks(w->p, w->index);
    }
    return NULL;
}

static void wait_for_chunks(pool *p, uint32_t n) {
    uint64_t until = clock_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_ROUNDS; i++) {
            if (atomic_load(&p->n_done) == n) return;
            pause_cpu();
        }
    } while (clock_now_ns() < until);
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->caller_sleeps, true);
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
    uint32_t job = ticket_job(atomic_load(&p->ticket)) + 1;
    atomic_store(&p->ticket, (uint64_t)(job - 1) << 32 | TICKET_CLOSED);
    atomic_store(&p->fn, fn);
    atomic_store(&p->arg, arg);
    atomic_store(&p->n_chunks, n_chunks);
    atomic_store(&p->n_done, 0);
    atomic_store(&p->ticket, (uint64_t)job << 32);
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->mutex);
    }
    take_chunks(p, 0);
    wait_for_chunks(p, n_chunks);
}

int pool_new(int n_threads, pool **out, err *e) {
    pool *p = mem_new_aligned(sizeof *p);
    *out = NULL;
    if (!p) return err_set(e, ERR_NOMEM, "no memory for a thread pool");
    p->n_threads = n_threads;
    atomic_store(&p->ticket, TICKET_CLOSED);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    p->workers = mem_new((uint64_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        pool_free(p);
        return err_set(e, ERR_NOMEM, "no memory for %d threads", n_threads);
    }
    for (int i = 1; i < n_threads; i++) {
        struct worker *w = &p->workers[i - 1];
        *w = (struct worker){.p = p, .index = i};
        int rc = pthread_create(&w->id, NULL, worker_main, w);
        if (rc) {
            pool_free(p);
            return err_set(e, ERR_IO, "cannot start thread %d of %d: %s", i + 1, n_threads,
                           strerror(rc));
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
    free(p->workers);
    free(p);
}
