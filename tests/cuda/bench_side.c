/* bench_side.c - copies of the side stream on a GPU, beside ops that take all of its memory
 * bandwidth: how long the ops take alone, the copies alone, and both at once; and that a step which
 * does not join ends before copies that are longer than it.
 * usage: bench_side [quick]     quick: small sizes, for the simulator */
#include "core/backend/cuda/memory_int.h"
#include "core/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int backend_cuda_open(const struct backend_config *config, backend **out, err *e);

/* A piece: 16 tokens of 8 heads of 128, f16. */
enum {
    BLOCK_TOKENS = 16,
    HEADS = 8,
    DIM = 128,
    PIECE = BLOCK_TOKENS * HEADS * DIM * 2,
    ROUNDS = 5
};

static struct {
    backend *be;
    struct backend_kv kv;
    int32_t *pairs;
    uint32_t n_blocks, n_ops, n_pieces;
    char *host;
} b;
static err e;

static void need(int rc, const char *what) {
    if (!rc) return;
    fprintf(stderr, "%s: %s\n", what, e.msg);
    exit(1);
}

/* One launch: the host's own time is not what is measured. */
static void enqueue_ops(void) {
    const struct op_kv_copy op = {.kv = b.kv, .pairs = b.pairs, .n_pairs = b.n_blocks / 2};
    const int rc = backend_capture_begin(b.be, 1, &e);
    if (rc < 0) need(rc, "a graph");
    for (uint32_t i = 0; i < b.n_ops && !rc; i++)
        need(backend_kv_copy(b.be, &op), "an op");
    if (!rc) need(backend_capture_end(b.be, &e), "a graph");
    need(backend_graph_launch(b.be, &e), "a graph");
}

static void enqueue_copies(bool in) {
    for (uint32_t i = 0; i < b.n_pieces; i++) {
        const uint64_t at = (uint64_t)i * PIECE;
        need(in ? backend_side_in(b.be, b.kv.k, at, b.host + at, PIECE, &e)
                : backend_side_out(b.be, b.kv.k, at, b.host + at, PIECE, &e),
             "a copy");
    }
    need(backend_side_end(b.be, &e), "a batch");
}

static double ms_since(uint64_t start) {
    return (double)(clock_now_ns() - start) * 1e-6;
}

static int compare(const void *x, const void *y) {
    const double a = *(const double *)x, c = *(const double *)y;
    return (a > c) - (a < c);
}

struct times {
    double enqueued, ops, copies; /* ms since the start */
};

/* The batch begins first, so that it does not wait for the ops. */
static struct times run(bool ops, bool copies, bool in) {
    struct times t = {0};
    const uint64_t start = clock_now_ns();
    if (copies) need(backend_side_begin(b.be, &e), "a batch");
    if (ops) enqueue_ops();
    if (copies) enqueue_copies(in);
    t.enqueued = ms_since(start);
    if (ops) need(backend_sync(b.be, &e), "ops");
    t.ops = ms_since(start);
    need(backend_side_wait(b.be, &e), "copies");
    t.copies = ms_since(start);
    return t;
}

static struct times median_of(bool ops, bool copies, bool in) {
    struct times t[ROUNDS + 1], m;
    for (int i = 0; i <= ROUNDS; i++)
        t[i] = run(ops, copies, in);
    for (int field = 0; field < 3; field++) { /* without the first round */
        double all[ROUNDS];
        for (int i = 0; i < ROUNDS; i++)
            all[i] = *(const double *)((const char *)&t[i + 1] + field * sizeof(double));
        qsort(all, ROUNDS, sizeof all[0], compare);
        *(double *)((char *)&m + field * sizeof(double)) = all[ROUNDS / 2];
    }
    return m;
}

int main(int argc, char **argv) {
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    const struct backend_config config = {.name = "cuda", .max_rows = 16, .max_cols = 512};
    /* 256 MiB out; in, what the staging memory holds. */
    const uint32_t n_pieces[2] = {quick ? 16 : 8192, quick ? 16 : 384};
    need(backend_cuda_open(&config, &b.be, &e), "the device");
    b.n_blocks = quick ? 64 : 32768; /* 1 GiB of K, and of V */
    b.n_ops = quick ? 2 : 60;
    b.kv = (struct backend_kv){.kv_type = QTYPE_F16,
                               .n_blocks = b.n_blocks,
                               .n_kv_heads = HEADS,
                               .block_tokens = BLOCK_TOKENS,
                               .head_dim = DIM};
    need(backend_buf_new(b.be, (uint64_t)b.n_blocks * PIECE, &b.kv.k, &e), "memory");
    need(backend_buf_new(b.be, (uint64_t)b.n_blocks * PIECE, &b.kv.v, &e), "memory");
    void *host;
    need(backend_host_new(b.be, (uint64_t)n_pieces[0] * PIECE, &host, &e), "memory");
    b.host = host;
    need(backend_side_open(b.be, PIECE, &e), "the side stream");
    b.pairs = calloc(b.n_blocks, sizeof *b.pairs);
    for (uint32_t i = 0; i < b.n_blocks; i++)
        b.pairs[i] = (int32_t)(i % 2 ? b.n_blocks / 2 + i / 2 : i / 2);
    for (int in = 0; in < 2; in++) {
        b.n_pieces = n_pieces[in];
        const double mib = (double)b.n_pieces * PIECE / (1 << 20);
        const struct times ops = median_of(true, false, false), copies = median_of(false, true, in),
                           both = median_of(true, true, in);
        printf("%s %.0f MiB: ops alone %.2f ms, copies alone %.2f ms (%.1f GB/s); both: the host "
               "after %.2f ms, ops %.2f ms, copies %.2f ms (one after the other: %.2f)\n",
               in ? "in" : "out", mib, ops.ops, copies.copies, mib * 1.048576 / copies.copies,
               both.enqueued, both.ops, both.copies, ops.ops + copies.copies);
    }
    free(b.pairs);
    backend_host_free(b.be, b.host);
    backend_buf_free(b.kv.v);
    backend_buf_free(b.kv.k);
    backend_close(b.be);
    return 0;
}
