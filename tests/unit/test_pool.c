/* test_pool.c - every chunk runs exactly once, for any number of threads and chunks, with chunks of
 * unequal cost, over consecutive jobs. */
#include "core/backend/cpu/pool.h"
#include "tests/unit/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { MANY = 140000, JOBS = 3000 };

struct job {
    atomic_uchar *runs; /* (n_chunks) */
    atomic_int bad_thread, n_foreign;
    uint32_t n_chunks, slow_every; /* every slow_every-th chunk takes long; 0: none */
    int n_threads;
};

static void count_chunk(const void *arg, uint32_t chunk, int thread) {
    struct job *j = (struct job *)(uintptr_t)arg;
    if (thread < 0 || thread >= j->n_threads || chunk >= j->n_chunks)
        atomic_fetch_add(&j->bad_thread, 1);
    else
        atomic_fetch_add(&j->runs[chunk], 1);
    if (thread) atomic_fetch_add(&j->n_foreign, 1);
    if (j->slow_every && chunk % j->slow_every == 0)
        for (volatile int i = 0; i < 20000; i++)
            ;
}

static bool each_once(pool *p, struct job *j) {
    for (uint32_t i = 0; i < j->n_chunks; i++)
        atomic_store(&j->runs[i], 0);
    pool_run(p, j->n_chunks, count_chunk, j);
    for (uint32_t i = 0; i < j->n_chunks; i++)
        if (atomic_load(&j->runs[i]) != 1) return false;
    return atomic_load(&j->bad_thread) == 0;
}

static void test_counts(int n_threads, atomic_uchar *runs) {
    static const uint32_t counts[] = {0, 1, 2, 3, 7, 33, 1000, 65535, 65536, 65537, 131071, MANY};
    pool *p = NULL;
    err e;
    CHECK(pool_new(n_threads, &p, &e) == 0);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct job j = {.runs = runs, .n_chunks = counts[i], .n_threads = n_threads};
        CHECK(each_once(p, &j));
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        struct job j = {.runs = runs, .n_chunks = i % 40, .n_threads = n_threads};
        if (!each_once(p, &j)) {
            CHECK(!"a short job ran its chunks once each");
            break;
        }
    }
    pool_free(p);
}

/* One long chunk at the start of the caller's share: the others take the rest of it. */
static void test_stealing(atomic_uchar *runs) {
    pool *p = NULL;
    err e;
    struct job j = {.runs = runs, .n_chunks = 64, .n_threads = 3, .slow_every = 8};
    CHECK(pool_new(3, &p, &e) == 0);
    for (int i = 0; i < 200; i++)
        CHECK(each_once(p, &j));
    CHECK(atomic_load(&j.n_foreign) > 0);
    pool_free(p);
}

static atomic_uchar runs[MANY];

static void test_every_chunk_once(void) {
    for (int n = 1; n <= 8; n++)
        test_counts(n, runs);
}

static void test_unequal_chunks(void) {
    test_stealing(runs);
}

static void test_default_threads(void) {
    CHECK(pool_default_threads() >= 1);
    pool_free(NULL);
}

int main(void) {
    RUN(test_every_chunk_once);
    RUN(test_unequal_chunks);
    RUN(test_default_threads);
    return check_done();
}
