/* attention_bench.h - `test_attention bench [isa [threads]]`: rates of paged attention and of rope
 * + KV scatter at TinyLlama's shape (32 heads of 64, 4 KV heads) and over DeepSeek V2 Lite's latent
 * rows (16 heads, 512 + 64). Not a test: asserts nothing. Decode cycles through enough sequences to
 * read K and V from memory; blocks are in random order. */
#ifndef INFERD_TESTS_ATTENTION_BENCH_H
#define INFERD_TESTS_ATTENTION_BENCH_H

#include "core/base/clock.h"
#include "tests/support/be.h"

#include <time.h>

enum { BENCH_ROT = 64, BENCH_BLOCK = 16, BENCH_ROWS = 512, BENCH_WIDTH = 16 * 576 };
enum { BENCH_TOKENS = 1 << 17, BENCH_BLOCKS = BENCH_TOKENS / BENCH_BLOCK, BENCH_REPEATS = 7 };

struct bench_shape {
    const char *name;
    uint32_t n_heads, n_kv_heads, head_dim, v_dim; /* v_dim: of latent rows; otherwise 0 */
};

struct bench_pools {
    backend *be;
    const struct bench_shape *shape;
    struct backend_kv kv;
    int32_t *tables; /* (BENCH_BLOCKS), shuffled */
    float *floats;   /* (BENCH_ROWS, BENCH_WIDTH) random */
};

/* One thread: its processor time, so that a busy machine counts less. Several: real time. */
static uint64_t bench_now(const struct bench_pools *b) {
    struct timespec t;
    if (backend_n_threads(b->be) > 1) return clock_now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void bench_fill(struct bench_pools *b, uint32_t n_rows) {
    const struct bench_shape *shape = b->shape;
    int32_t pos[BENCH_ROWS], slots[BENCH_ROWS];
    float inv_freq[BENCH_ROT / 2];
    const uint64_t width = (uint64_t)n_rows * shape->n_heads * shape->head_dim;
    for (int i = 0; i < BENCH_ROT / 2; i++)
        inv_freq[i] = powf(10000, -2.0f * (float)i / BENCH_ROT);
    struct op_rope_store op = {.q = be_f32(b->be, b->floats, width),
                               .k = be_f32(b->be, b->floats, width),
                               .v = shape->v_dim ? NULL : be_f32(b->be, b->floats, width),
                               .inv_freq = be_f32(b->be, inv_freq, BENCH_ROT / 2),
                               .n_rows = n_rows,
                               .n_heads = shape->n_heads,
                               .n_rot = BENCH_ROT,
                               .kv = b->kv};
    double best = 1e9, repeated = 1e9;
    for (uint32_t from = 0; from < BENCH_TOKENS; from += n_rows) {
        for (uint32_t i = 0; i < n_rows; i++) {
            pos[i] = (int32_t)(from % 32768 + i);
            slots[i] = (int32_t)(from + i);
        }
        op.pos = be_i32(b->be, pos, n_rows);
        op.slots = be_i32(b->be, slots, n_rows);
        for (int again = 0; again < 2; again++) { /* as a second layer would */
            uint64_t start = bench_now(b);
            be_need(backend_rope_store(b->be, &op) == 0, "rope_store");
            double us = (double)(bench_now(b) - start) * 1e-3 / n_rows;
            double *to = again ? &repeated : &best;
            if (us < *to) *to = us;
        }
        backend_buf_free((backend_buf *)op.pos);
        backend_buf_free((backend_buf *)op.slots);
    }
    printf("  rope + store, %u rows: %.3f us a row in the first layer, %.3f in others\n", n_rows,
           best, repeated);
    backend_buf_free((backend_buf *)op.q);
    backend_buf_free(op.k);
    backend_buf_free((backend_buf *)op.v);
    backend_buf_free((backend_buf *)op.inv_freq);
}

static int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The computed rows: the last n_rows of n_seqs sequences of context tokens. */
struct bench_ask {
    uint32_t n_seqs, n_rows, context, window;
    float softcap;
    bool sinks;
};

static void bench_case(struct bench_pools *b, const struct bench_ask *ask) {
    uint32_t n_seqs = ask->n_seqs, n_rows = ask->n_rows, context = ask->context;
    int32_t pos[BENCH_ROWS], start[BENCH_ROWS + 1];
    uint32_t stride = (context + BENCH_BLOCK - 1) / BENCH_BLOCK, n = n_seqs * n_rows;
    const struct bench_shape *shape = b->shape;
    const uint32_t v_dim = backend_kv_v_dim(&b->kv);
    const uint64_t rows = (uint64_t)n * shape->n_heads;
    uint64_t block = 0;
    double keys = 0, ns[BENCH_REPEATS];
    backend_kv_block_bytes(&b->kv, &block);
    for (uint32_t i = 0; i < n; i++) {
        pos[i] = (int32_t)(context - n_rows + i % n_rows);
        keys += ask->window && ask->window <= (uint32_t)pos[i] ? ask->window : (uint32_t)pos[i] + 1;
    }
    for (uint32_t s = 0; s <= n_seqs; s++)
        start[s] = (int32_t)(s * n_rows);
    backend_weight *sinks =
        ask->sinks ? be_weight(b->be, QTYPE_F32, 1, shape->n_heads, b->floats) : NULL;
    struct op_paged_attention op = {.q = be_f32(b->be, b->floats, rows * shape->head_dim),
                                    .pos = be_i32(b->be, pos, n),
                                    .row_start = be_i32(b->be, start, n_seqs + 1),
                                    .n_rows = n,
                                    .n_seqs = n_seqs,
                                    .n_heads = shape->n_heads,
                                    .table_stride = stride,
                                    .window = ask->window,
                                    .scale = 0.125f,
                                    .softcap = ask->softcap,
                                    .sinks = sinks,
                                    .kv = b->kv,
                                    .out = be_f32(b->be, NULL, rows * v_dim)};
    uint32_t rounds = BENCH_BLOCKS / (stride * n_seqs);
    if (n_rows > 1) rounds = rounds < 4 ? rounds : 4;
    for (int r = 0; r < BENCH_REPEATS; r++) {
        uint64_t took = 0;
        for (uint32_t i = 0; i < rounds; i++) {
            op.tables = be_i32(b->be, b->tables + i * stride * n_seqs, (uint64_t)stride * n_seqs);
            uint64_t from = bench_now(b);
            be_need(backend_paged_attention(b->be, &op) == 0, "attention");
            took += bench_now(b) - from;
            backend_buf_free((backend_buf *)op.tables);
        }
        ns[r] = (double)took / rounds;
    }
    qsort(ns, BENCH_REPEATS, sizeof *ns, bench_compare);
    double flops = 2 * keys * shape->n_heads * (shape->head_dim + v_dim);
    double median = ns[BENCH_REPEATS / 2];
    double bytes = (shape->v_dim ? 1 : 2) * (double)block / BENCH_BLOCK * keys;
    printf("  %2u x %3u rows, context %5u", n_seqs, n_rows, context);
    if (ask->window) printf(", window %u", ask->window);
    printf("%s%s: %8.1f us (best %8.1f) %6.1f GFLOP/s", ask->softcap != 0 ? ", softcap" : "",
           sinks ? ", sinks" : "", median * 1e-3, ns[0] * 1e-3, flops / median);
    printf(n_rows == 1 ? " %5.1f GB/s of K and V (best %5.1f)\n" : "\n", bytes / median,
           bytes / ns[0]);
    backend_buf_free((backend_buf *)op.q);
    backend_buf_free(op.out);
    backend_buf_free((backend_buf *)op.pos);
    backend_buf_free((backend_buf *)op.row_start);
    backend_weight_free(sinks);
}

/* Pools of one type, filled, and what is asked of them. */
static void bench_type(struct bench_pools *b, int type, const struct bench_ask *asks, size_t n) {
    const struct bench_shape *shape = b->shape;
    uint64_t block = 0;
    b->kv = (struct backend_kv){.kv_type = type,
                                .n_blocks = BENCH_BLOCKS,
                                .n_kv_heads = shape->n_kv_heads,
                                .block_tokens = BENCH_BLOCK,
                                .head_dim = shape->head_dim,
                                .v_dim = shape->v_dim};
    backend_kv_block_bytes(&b->kv, &block);
    b->kv.k = be_bytes(b->be, NULL, block * BENCH_BLOCKS);
    if (!shape->v_dim) b->kv.v = be_bytes(b->be, NULL, block * BENCH_BLOCKS);
    printf("%s, %s K/V, %s, %d threads\n", shape->name, qtype_name(type), backend_isa(b->be),
           backend_n_threads(b->be));
    bench_fill(b, BENCH_ROWS);
    for (size_t i = 0; i < n; i++)
        if (!shape->v_dim || (!asks[i].window && asks[i].softcap == 0)) bench_case(b, &asks[i]);
    backend_buf_free(b->kv.k);
    backend_buf_free(b->kv.v);
}

static int attention_bench(const char *isa, int n_threads) {
    static const struct bench_ask asks[] = {
        {1, 512, 512, 0, 0, false},  {1, 64, 8192, 0, 0, false},  {1, 1, 512, 0, 0, false},
        {1, 1, 8192, 0, 0, false},   {1, 1, 32768, 0, 0, false},  {32, 1, 512, 0, 0, false},
        {1, 512, 512, 128, 0, true}, {1, 64, 8192, 128, 0, true}, {1, 1, 512, 128, 0, true},
        {1, 1, 32768, 128, 0, true}, {1, 64, 8192, 0, 50, false}, {1, 1, 8192, 0, 50, false},
    };
    static const struct bench_shape shapes[] = {{"32 heads of 64, 4 KV heads", 32, 4, 64, 0},
                                                {"16 heads, latent 512 + 64", 16, 1, 576, 512}};
    static const int types[] = {QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0, QTYPE_F32};
    struct backend_config config = {.name = "cpu",
                                    .isa = isa,
                                    .n_threads = n_threads,
                                    .max_rows = BENCH_ROWS,
                                    .max_cols = BENCH_WIDTH};
    struct bench_pools b = {0};
    err e;
    be_need(backend_open(&config, &b.be, &e) == 0, e.msg);
    b.tables = be_new(BENCH_BLOCKS, sizeof *b.tables);
    b.floats = be_new(BENCH_ROWS * BENCH_WIDTH, sizeof *b.floats);
    be_fill(b.floats, (uint64_t)BENCH_ROWS * BENCH_WIDTH, 1);
    for (uint32_t i = 0; i < BENCH_BLOCKS; i++)
        b.tables[i] = (int32_t)i;
    for (uint32_t i = BENCH_BLOCKS - 1; i > 0; i--) {
        uint32_t k = be_below(i + 1);
        int32_t keep = b.tables[i];
        b.tables[i] = b.tables[k], b.tables[k] = keep;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            b.shape = &shapes[s];
            bench_type(&b, types[t], asks, sizeof asks / sizeof asks[0]);
        }
    free(b.floats);
    free(b.tables);
    backend_close(b.be);
    return 0;
}

#endif
