/* moe_bench.h - `test_moe bench [type [isa [threads]]]`: a mixture of experts beside a dense layer
 * with equal work per row, in GB/s of weights read and in GOP/s. Not a test: asserts nothing.
 * Weights exceed the caches; rows select experts at random, so n rows read 1 - (1 - used /
 * experts)^n of the experts' weights. */
#ifndef INFERD_TESTS_MOE_BENCH_H
#define INFERD_TESTS_MOE_BENCH_H

#include "core/base/clock.h"
#include "tests/support/matrix.h"

#include <time.h>

enum { BENCH_ROWS = 512, BENCH_REPEATS = 5 };

static const struct bench_shape {
    const char *name;
    uint32_t n_experts, n_used, n_in, n_ff;
} bench_shapes[] = {{"128 experts, 8 used, 2048 x 768", 128, 8, 2048, 768},
                    {"32 experts, 4 used, 2816 x 2816", 32, 4, 2816, 2816},
                    {"8 experts, 2 used, 2048 x 3584", 8, 2, 2048, 3584}};

struct bench_layer {
    backend *be;
    const struct bench_shape *s;
    backend_weight *router, *gate, *up, *down; /* of experts */
    backend_weight **dense;                    /* (n_dense, 3): gate, up, down of n_used * n_ff */
    uint32_t n_dense;
    backend_buf *x, *hidden, *y; /* (BENCH_ROWS, ..) */
};

/* Blocks of one matrix, repeated: a product's time does not depend on the values. */
static backend_weight *bench_weight(backend *be, const struct block_type *t, uint32_t n_experts,
                                    uint32_t n_out, uint32_t n_in) {
    struct matrix m = matrix_make(t, 32, n_in, false);
    uint64_t bytes = 0, all = 0;
    qtype_bytes(t->type, 32, n_in, &bytes);
    qtype_bytes(t->type, (uint64_t)(n_experts ? n_experts : 1) * n_out, n_in, &all);
    uint8_t *data = be_new(all, 1);
    for (uint64_t at = 0; at < all; at += bytes)
        memcpy(data + at, m.packed, all - at < bytes ? all - at : bytes);
    backend_weight *w =
        be_weight_for(be, BACKEND_USE_LINEAR, t->type, n_experts, n_out, n_in, data);
    free(data);
    matrix_free(&m);
    return w;
}

static void bench_moe(const struct bench_layer *l, uint32_t n_rows) {
    struct op_moe op = {.in.x = l->x,
                        .n_rows = n_rows,
                        .n_used = l->s->n_used,
                        .router = l->router,
                        .renormalize = true,
                        .act = BACKEND_ACT_SILU,
                        .gate = l->gate,
                        .up = l->up,
                        .down = l->down,
                        .y = l->y};
    be_need(backend_moe(l->be, &op) == 0, "moe");
}

static void bench_dense(const struct bench_layer *l, uint32_t i, uint32_t n_rows) {
    backend_weight **w = l->dense + 3 * (i % l->n_dense);
    struct op_linear inner = {.in.x = l->x,
                              .n_rows = n_rows,
                              .n_weights = 2,
                              .w = {w[0], w[1]},
                              .act = BACKEND_ACT_SILU,
                              .y = {l->hidden}};
    struct op_linear outer = {
        .in.x = l->hidden, .n_rows = n_rows, .n_weights = 1, .w = {w[2]}, .y = {l->y}};
    be_need(backend_linear(l->be, &inner) == 0 && backend_linear(l->be, &outer) == 0, "linear");
}

/* The time when all enqueued work is done. One CPU thread: its processor time, so that a busy
 * machine counts less. Otherwise: real time. */
static uint64_t bench_now(backend *be) {
    struct timespec t;
    err e = {0};
    be_need(backend_sync(be, &e) == 0, e.msg);
    if (!be_is_cpu(be) || backend_n_threads(be) > 1) return clock_now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Least seconds of one layer over n_rows new rows. */
static double bench_time(const struct bench_layer *l, bool moe, uint32_t n_rows) {
    static float x[BENCH_ROWS * 4096];
    uint32_t n = n_rows < 8 ? 2 * l->n_dense : 1;
    double best = 1e9;
    err e;
    for (int i = 0; i < BENCH_REPEATS; i++) {
        uint64_t spent = 0;
        for (uint32_t k = 0; k < n; k++) {
            for (uint32_t j = 0; j < n_rows * l->s->n_in; j++)
                x[j] = (float)be_rand() * 0x1p-31f - 1;
            be_need(backend_upload(l->be, l->x, 0, x, n_rows * l->s->n_in * 4ull, &e) == 0, "rows");
            uint64_t from = bench_now(l->be);
            if (moe)
                bench_moe(l, n_rows);
            else
                bench_dense(l, k, n_rows);
            spent += bench_now(l->be) - from;
        }
        best = fmin(best, (double)spent * 1e-9 / n);
    }
    return best;
}

static void bench_shape(backend *be, const struct bench_shape *s, const struct block_type *t) {
    static const uint32_t rows[] = {1, 2, 4, 16, 64, 512};
    uint32_t wide = s->n_used * s->n_ff;
    struct bench_layer l = {
        .be = be,
        .s = s,
        .router = bench_weight(be, block_type_of(QTYPE_F32), 0, s->n_experts, s->n_in),
        .gate = bench_weight(be, t, s->n_experts, s->n_ff, s->n_in),
        .up = bench_weight(be, t, s->n_experts, s->n_ff, s->n_in),
        .down = bench_weight(be, t, s->n_experts, s->n_in, s->n_ff),
        .n_dense = s->n_experts / s->n_used,
        .x = be_f32(be, NULL, (uint64_t)BENCH_ROWS * s->n_in),
        .hidden = be_f32(be, NULL, (uint64_t)BENCH_ROWS * wide),
        .y = be_f32(be, NULL, (uint64_t)BENCH_ROWS * s->n_in)};
    l.dense = be_new(l.n_dense * 3, sizeof(backend_weight *));
    for (uint32_t i = 0; i < l.n_dense; i++) {
        l.dense[3 * i] = bench_weight(be, t, 0, wide, s->n_in);
        l.dense[3 * i + 1] = bench_weight(be, t, 0, wide, s->n_in);
        l.dense[3 * i + 2] = bench_weight(be, t, 0, s->n_in, wide);
    }
    double row_bytes = 0, row_ops = 6.0 * s->n_in * wide;
    for (int i = 0; i < 3; i++)
        row_bytes += (double)backend_weight_bytes(l.dense[i]);
    printf("\n%s, %s\n| rows | experts GB/s | dense GB/s | experts GOP/s | dense GOP/s |\n",
           qtype_name(t->type), s->name);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double moe = bench_time(&l, true, rows[i]), dense = bench_time(&l, false, rows[i]);
        double part = 1 - pow(1 - (double)s->n_used / s->n_experts, rows[i]);
        double read = part * row_bytes * s->n_experts / s->n_used * 1e-9;
        double ops = row_ops * rows[i] * 1e-9;
        printf("| %u | %.1f | %.1f | %.1f | %.1f |\n", rows[i], read / moe,
               row_bytes * 1e-9 / dense, ops / moe, ops / dense);
        fflush(stdout);
    }
    for (uint32_t i = 0; i < 3 * l.n_dense; i++)
        backend_weight_free(l.dense[i]);
    free(l.dense);
    backend_weight *w[] = {l.router, l.gate, l.up, l.down};
    for (int i = 0; i < 4; i++)
        backend_weight_free(w[i]);
    backend_buf_free(l.x);
    backend_buf_free(l.hidden);
    backend_buf_free(l.y);
}

static int moe_bench(int argc, char **argv) {
    const char *type = argc > 2 ? argv[2] : "Q4_K";
    const char *isa = argc > 3 && strcmp(argv[3], "-") != 0 ? argv[3] : "";
    struct backend_config config = {.n_threads = argc > 4 ? atoi(argv[4]) : 0,
                                    .max_rows = BENCH_ROWS,
                                    .max_cols = 4 * 2816,
                                    .moe = {128, 8, 3584}};
    backend *be = be_open_config(config, isa);
    if (!be) return 1;
    printf("%s, %d threads\n", backend_isa(be), backend_n_threads(be));
    for (int t = 0; t < N_BLOCK_TYPES; t++)
        for (size_t s = 0; s < sizeof bench_shapes / sizeof bench_shapes[0]; s++)
            if (strcmp(qtype_name(block_types[t].type), type) == 0)
                bench_shape(be, &bench_shapes[s], &block_types[t]);
    backend_close(be);
    return 0;
}

#endif
