/* bench_exchange.c - sums over the ranks of a group of GPUs, a thread each: every way to compute
 * one, its time in a captured step, and whether it gives the bits of sums in the order of the
 * ranks.
 *
 * usage: bench_exchange [N_RANKS]     default 2 */
#include "core/backend/cuda/state_int.h"
#include "core/base/clock.h"
#include "tests/support/rng.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_COLS = 4096, MOST_ROWS = 2048, MOST_RANKS = 8, IN_A_STEP = 32, STEPS = 10 };

static const struct {
    const char *name;
    enum cuda_exchange force;
} ways[] = {{"chosen", CUDA_EXCHANGE_AUTO}, {"NCCL", CUDA_EXCHANGE_NCCL}};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

struct rank {
    backend *be;
    backend_buf *x, *work;
    float *in, *got; /* (MOST_ROWS, N_COLS) */
    uint32_t n_rows;
    uint64_t key;
    double us; /* of a sum */
};

static pthread_barrier_t all_here;

static void need(int rc, const err *e) {
    if (rc == 0) return;
    fprintf(stderr, "bench_exchange: %s\n", e->msg[0] ? e->msg : "an exchange failed");
    exit(1);
}

static void sum(struct rank *r, err *e) {
    const struct op_all_reduce a = {
        .x = r->x, .work = r->work, .n_rows = r->n_rows, .n_cols = N_COLS};
    need(backend_all_reduce(r->be, &a), e);
}

static void run_step(struct rank *r, err *e) {
    const int kept = backend_capture_begin(r->be, r->key, e);
    need(kept < 0 ? kept : 0, e);
    for (int i = 0; i < IN_A_STEP && !kept; i++)
        sum(r, e);
    if (!kept) need(backend_capture_end(r->be, e), e);
    need(backend_graph_launch(r->be, e), e);
}

/* One sum that is checked, then steps that are timed. */
static void *run_rank(void *arg) {
    struct rank *r = arg;
    err e = {.code = 0};
    const uint64_t bytes = (uint64_t)r->n_rows * N_COLS * sizeof(float);
    need(backend_upload(r->be, r->x, 0, r->in, bytes, &e), &e);
    sum(r, &e);
    need(backend_sync(r->be, &e), &e);
    need(backend_download(r->be, r->x, 0, r->got, bytes, &e), &e);
    run_step(r, &e);
    need(backend_sync(r->be, &e), &e);
    pthread_barrier_wait(&all_here);
    const uint64_t begin = clock_now_ns();
    for (int i = 0; i < STEPS; i++)
        run_step(r, &e);
    need(backend_sync(r->be, &e), &e);
    r->us = (double)(clock_now_ns() - begin) / 1e3 / STEPS / IN_A_STEP;
    pthread_barrier_wait(&all_here);
    return NULL;
}

static uint64_t count_wrong(const struct rank *ranks, uint32_t n_ranks) {
    const uint64_t n = (uint64_t)ranks[0].n_rows * N_COLS;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        volatile float want = ranks[0].in[i];
        for (uint32_t r = 1; r < n_ranks; r++)
            want = want + ranks[r].in[i];
        for (uint32_t r = 0; r < n_ranks; r++)
            wrong += memcmp(&ranks[r].got[i], (const float *)&want, sizeof want) != 0;
    }
    return wrong;
}

static void run_all(struct rank *ranks, uint32_t n_ranks, uint32_t n_rows, int way) {
    pthread_t ids[MOST_RANKS];
    static uint64_t key;
    key++;
    for (uint32_t r = 0; r < n_ranks; r++) {
        ((struct cuda_backend *)ranks[r].be)->force.exchange = ways[way].force;
        ranks[r].n_rows = n_rows;
        ranks[r].key = key;
        if (pthread_create(&ids[r], NULL, run_rank, &ranks[r])) exit(1);
    }
    double us = 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        pthread_join(ids[r], NULL);
        if (ranks[r].us > us) us = ranks[r].us;
    }
    const double bytes = (double)n_rows * N_COLS * sizeof(float);
    printf("  %-10s %8.1f us %7.1f GB/s, %llu wrong\n", ways[way].name, us, bytes / us / 1e3,
           (unsigned long long)count_wrong(ranks, n_ranks));
    fflush(stdout);
}

static void make_rank(struct rank *r, backend *be, struct rng *rng) {
    const uint64_t n = (uint64_t)MOST_ROWS * N_COLS;
    err e = {.code = 0};
    *r = (struct rank){.be = be, .in = malloc(n * sizeof(float)), .got = malloc(n * sizeof(float))};
    if (!r->in || !r->got) exit(1);
    for (uint64_t i = 0; i < n; i++)
        r->in[i] = (float)(int32_t)rng_next(rng) * 1e-9f;
    need(backend_buf_new(be, n * sizeof(float), &r->x, &e), &e);
    need(backend_buf_new(be, backend_exchange_bytes(be, MOST_ROWS, N_COLS), &r->work, &e), &e);
}

int main(int argc, char **argv) {
    struct rank ranks[MOST_RANKS];
    struct rng rng = {88172645463325252u};
    const uint32_t n_ranks = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
    const struct backend_config config = {
        .name = "cuda", .n_ranks = n_ranks, .max_rows = MOST_ROWS, .max_cols = N_COLS};
    backend *be;
    err e = {.code = 0};
    if (n_ranks < 2 || n_ranks > MOST_RANKS) return 1;
    need(backend_open(&config, &be, &e), &e);
    pthread_barrier_init(&all_here, NULL, n_ranks);
    for (uint32_t r = 0; r < n_ranks; r++)
        make_rank(&ranks[r], backend_peer(be, r), &rng);
    for (uint32_t n_rows = 1; n_rows <= MOST_ROWS; n_rows *= 2) {
        printf("%u rows of %d values\n", n_rows, N_COLS);
        for (int way = 0; way < N_WAYS; way++)
            run_all(ranks, n_ranks, n_rows, way);
    }
    for (uint32_t r = 0; r < n_ranks; r++) {
        backend_buf_free(ranks[r].x);
        backend_buf_free(ranks[r].work);
        free(ranks[r].in);
        free(ranks[r].got);
    }
    backend_close(be);
    return 0;
}
