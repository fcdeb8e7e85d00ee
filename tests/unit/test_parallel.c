/* test_parallel.c - exchanges of a group of backends against sums in plain order, bit for bit, on
 * odd sizes; a rank that fails, or comes for something else, holds nobody up. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

#include <pthread.h>

enum { MAX_RANKS = 4, MAX_ROWS = 40, MAX_COLS = 700, ROUNDS = 200 };

static backend *open_group(uint32_t n_ranks, int n_threads) {
    return be_open_config(
        (struct backend_config){
            .n_threads = n_threads, .n_ranks = n_ranks, .max_rows = MAX_ROWS, .max_cols = MAX_COLS},
        NULL);
}

/* One rank's thread. */
struct rank {
    backend *be;
    pthread_t id;
    backend_buf *x, *out, *work;
    uint32_t n_rows, n_cols;
    bool gathers, wants; /* all_gather, and out */
    int rounds, rc;
};

static void *run_rank(void *arg) {
    struct rank *r = arg;
    for (int i = 0; i < r->rounds && !r->rc; i++)
        r->rc =
            r->gathers
                ? backend_all_gather(r->be, &(struct op_all_gather){.part = r->x,
                                                                    .out = r->wants ? r->out : NULL,
                                                                    .work = r->work,
                                                                    .n_rows = r->n_rows,
                                                                    .n_cols = r->n_cols})
                : backend_all_reduce(r->be, &(struct op_all_reduce){.x = r->x,
                                                                    .work = r->work,
                                                                    .n_rows = r->n_rows,
                                                                    .n_cols = r->n_cols});
    return NULL;
}

static void run_ranks(struct rank *ranks, uint32_t n) {
    for (uint32_t r = 0; r < n; r++)
        be_need(pthread_create(&ranks[r].id, NULL, run_rank, &ranks[r]) == 0, "a thread");
    for (uint32_t r = 0; r < n; r++)
        pthread_join(ranks[r].id, NULL);
}

static void make_ranks(struct rank *ranks, backend *be, uint32_t n, struct rank what) {
    for (uint32_t r = 0; r < n; r++) {
        ranks[r] = what;
        ranks[r].be = backend_peer(be, r);
        uint64_t work = backend_exchange_bytes(be, what.n_rows, what.n_cols);
        ranks[r].x = be_bytes(ranks[r].be, NULL, MAX_ROWS * MAX_COLS * sizeof(float));
        ranks[r].out = be_bytes(ranks[r].be, NULL, MAX_ROWS * MAX_COLS * sizeof(float));
        ranks[r].work = work ? be_bytes(ranks[r].be, NULL, work) : NULL;
    }
}

static void free_ranks(struct rank *ranks, uint32_t n) {
    for (uint32_t r = 0; r < n; r++) {
        backend_buf_free(ranks[r].x);
        backend_buf_free(ranks[r].out);
        backend_buf_free(ranks[r].work);
    }
}

static void put(struct rank *r, const float *x, uint64_t n) {
    err e;
    be_need(backend_upload(r->be, r->x, 0, x, n * sizeof *x, &e) == 0, "an upload");
}

static const uint32_t shapes[][2] = {{1, 1},   {1, 3},    {1, 511}, {3, 64},      {7, 333},
                                     {5, 256}, {40, 700}, {2, 4},   {MAX_ROWS, 1}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static void check_reduce(backend *be, uint32_t n_ranks, const uint32_t shape[2]) {
    struct rank ranks[MAX_RANKS];
    static float in[MAX_RANKS][MAX_ROWS * MAX_COLS], got[MAX_ROWS * MAX_COLS];
    uint64_t n = (uint64_t)shape[0] * shape[1];
    make_ranks(ranks, be, n_ranks,
               (struct rank){.n_rows = shape[0], .n_cols = shape[1], .rounds = 1});
    for (uint32_t r = 0; r < n_ranks; r++) {
        be_fill(in[r], n, powf(10, (float)r)); /* of unlike size: another order shows */
        put(&ranks[r], in[r], n);
    }
    run_ranks(ranks, n_ranks);
    for (uint32_t r = 0; r < n_ranks; r++) {
        uint64_t wrong = 0;
        be_get(ranks[r].be, ranks[r].x, got, n);
        for (uint64_t i = 0; i < n; i++) {
            volatile float sum = in[0][i];
            for (uint32_t k = 1; k < n_ranks; k++)
                sum = sum + in[k][i];
            wrong += memcmp(&got[i], (const float *)&sum, sizeof sum) != 0;
        }
        CHECK_MSG(ranks[r].rc == 0 && !wrong, "%u ranks, (%u, %u), rank %u: rc %d, %llu wrong",
                  n_ranks, shape[0], shape[1], r, ranks[r].rc, (unsigned long long)wrong);
    }
    free_ranks(ranks, n_ranks);
}

static void test_all_reduce(void) {
    for (uint32_t n_ranks = 2; n_ranks <= MAX_RANKS; n_ranks++) {
        backend *be = open_group(n_ranks, 5);
        CHECK(backend_n_ranks(be) == n_ranks && backend_rank(be) == 0);
        int n_threads = 0;
        for (uint32_t r = 0; r < n_ranks; r++) {
            CHECK(backend_rank(backend_peer(be, r)) == r);
            CHECK(backend_n_ranks(backend_peer(be, r)) == n_ranks);
            n_threads += backend_n_threads(backend_peer(be, r));
        }
        CHECK(n_threads == 5);
        for (int i = 0; i < N_SHAPES; i++)
            check_reduce(be, n_ranks, shapes[i]);
        backend_close(be);
    }
}

static void check_gather(backend *be, uint32_t n_ranks, const uint32_t shape[2]) {
    struct rank ranks[MAX_RANKS];
    static float all[MAX_ROWS * MAX_COLS], part[MAX_ROWS * MAX_COLS], got[MAX_ROWS * MAX_COLS];
    uint32_t n_cols = shape[1], share = backend_share(n_cols, n_ranks);
    uint64_t n = (uint64_t)shape[0] * n_cols;
    if (share * (n_ranks - 1) >= n_cols) return; /* a rank without a column */
    make_ranks(ranks, be, n_ranks,
               (struct rank){.n_rows = shape[0], .n_cols = n_cols, .rounds = 1, .gathers = true});
    be_fill(all, n, 1);
    for (uint32_t r = 0; r < n_ranks; r++) {
        uint32_t first = r * share, width = n_cols - first < share ? n_cols - first : share;
        for (uint32_t row = 0; row < shape[0]; row++)
            memcpy(part + row * width, all + (uint64_t)row * n_cols + first, width * sizeof *part);
        put(&ranks[r], part, (uint64_t)shape[0] * width);
        ranks[r].wants = r != 1;
    }
    run_ranks(ranks, n_ranks);
    for (uint32_t r = 0; r < n_ranks; r++) {
        be_get(ranks[r].be, ranks[r].out, got, n);
        bool same = memcmp(got, all, n * sizeof *all) == 0;
        CHECK_MSG(ranks[r].rc == 0 && same == (r != 1), "%u ranks, (%u, %u), rank %u: rc %d",
                  n_ranks, shape[0], n_cols, r, ranks[r].rc);
    }
    free_ranks(ranks, n_ranks);
}

static void test_all_gather(void) {
    for (uint32_t n_ranks = 2; n_ranks <= MAX_RANKS; n_ranks++) {
        backend *be = open_group(n_ranks, 3);
        for (int i = 0; i < N_SHAPES; i++)
            check_gather(be, n_ranks, shapes[i]);
        backend_close(be);
    }
}

/* Many exchanges one after the other: a rank that is ahead must not write where others read. */
static void test_rounds(void) {
    struct rank ranks[MAX_RANKS];
    static float ones[MAX_COLS], got[MAX_COLS];
    backend *be = open_group(2, 2);
    make_ranks(ranks, be, 2, (struct rank){.n_rows = 1, .n_cols = 129, .rounds = 20});
    for (int i = 0; i < 129; i++)
        ones[i] = (float)i;
    put(&ranks[0], ones, 129);
    put(&ranks[1], ones, 129);
    run_ranks(ranks, 2);
    be_get(ranks[1].be, ranks[1].x, got, 129);
    for (int i = 0; i < 129; i++)
        CHECK(got[i] == (float)i * (1 << 20));
    free_ranks(ranks, 2);
    backend_close(be);
}

static void *break_soon(void *arg) {
    backend_break(arg);
    return NULL;
}

/* A rank that does not come: the others are told. */
static void test_break(void) {
    struct rank ranks[MAX_RANKS];
    backend *be = open_group(3, 3);
    pthread_t breaker;
    make_ranks(ranks, be, 3, (struct rank){.n_rows = 1, .n_cols = 8, .rounds = ROUNDS});
    ranks[2].rounds = ROUNDS / 2; /* leaves early */
    for (uint32_t r = 0; r < 3; r++)
        be_need(pthread_create(&ranks[r].id, NULL, run_rank, &ranks[r]) == 0, "a thread");
    pthread_join(ranks[2].id, NULL);
    be_need(pthread_create(&breaker, NULL, break_soon, ranks[2].be) == 0, "a thread");
    pthread_join(breaker, NULL);
    pthread_join(ranks[0].id, NULL);
    pthread_join(ranks[1].id, NULL);
    CHECK(ranks[0].rc == ERR_DEVICE && ranks[1].rc == ERR_DEVICE && ranks[2].rc == 0);
    ranks[2].rounds = 1;
    run_rank(&ranks[2]);
    CHECK(ranks[2].rc == ERR_DEVICE); /* for good */
    free_ranks(ranks, 3);
    backend_close(be);
}

/* Ranks that disagree on what they exchange all hear of it. */
static void test_shapes_differ(void) {
    struct rank ranks[MAX_RANKS];
    backend *be = open_group(2, 2);
    make_ranks(ranks, be, 2, (struct rank){.n_rows = 1, .n_cols = 8, .rounds = 1});
    ranks[1].n_cols = 7;
    run_ranks(ranks, 2);
    CHECK(ranks[0].rc == ERR_INVALID && ranks[1].rc == ERR_INVALID);
    free_ranks(ranks, 2);
    backend_close(be);
}

static void test_refusals(void) {
    struct backend_config config = {
        .name = "cpu", .n_ranks = BACKEND_MAX_RANKS + 1, .max_rows = 4, .max_cols = 64};
    backend *be;
    err e = {0};
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID && !be);
    CHECK(strstr(e.msg, "tensor-parallel = 17") != NULL);
    be = be_open(NULL, 1);
    CHECK(backend_n_ranks(be) == 1 && backend_rank(be) == 0 && backend_peer(be, 0) == be);
    backend_buf *x = be_bytes(be, NULL, 64 * sizeof(float));
    backend_buf *y = be_bytes(be, NULL, 64 * sizeof(float));
    backend_break(be); /* nobody waits */
    CHECK(backend_all_reduce(be, &(struct op_all_reduce){.x = x, .n_rows = 1, .n_cols = 64}) == 0);
    CHECK(backend_all_reduce(be, &(struct op_all_reduce){.x = x, .n_rows = 1, .n_cols = 65}) ==
          ERR_INVALID);
    CHECK(backend_all_gather(
              be, &(struct op_all_gather){.part = x, .out = x, .n_rows = 1, .n_cols = 64}) ==
          ERR_INVALID);
    CHECK(backend_all_gather(
              be, &(struct op_all_gather){.part = x, .out = y, .n_rows = 1, .n_cols = 64}) ==
          ERR_UNSUPPORTED);
    backend_buf_free(x);
    backend_buf_free(y);
    backend_close(be);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    be_seed = 5;
    RUN(test_all_reduce);
    RUN(test_all_gather);
    RUN(test_rounds);
    RUN(test_break);
    RUN(test_shapes_differ);
    RUN(test_refusals);
    return check_done();
}
