/* test_backend.c - every op of the CPU backend except rope and attention, for every type and
 * instruction set of this machine, against float64 arithmetic on odd sizes; bitwise batch
 * invariance; refusals. test_gemm tests the kernels of products bit for bit. */
#include "tests/support/matrix.h"
#include "tests/unit/check.h"

#include <sys/resource.h>
#include <unistd.h>

/* ThreadSanitizer is slow, and all types use the same threads: every fifth type. */
#if defined(__SANITIZE_THREAD__)
enum { TYPE_STEP = 5 };
#else
enum { TYPE_STEP = 1 };
#endif

/* Types of the tests that compare bits, for the set of kernels be_isas[i]: quick takes every third.
 */
static int first_type(int i) {
    return be_quick ? i % 3 : 0;
}

static int type_step(void) {
    return be_quick ? 3 : TYPE_STEP;
}

struct linear_case {
    uint32_t n_rows, n_in, n_out;
    int bits;
    bool exact, bias, wide;
};

static void check_linear(backend *be, const struct block_type *type, const struct linear_case *t) {
    struct matrix m = matrix_make(type, t->n_out, t->n_in, t->wide);
    m.rounding = be_rounding(be, m.type);
    uint64_t n_x = (uint64_t)t->n_rows * t->n_in, n_y = (uint64_t)t->n_rows * t->n_out;
    float *x = be_new(n_x, sizeof *x), *y = be_new(n_y, sizeof *y);
    float *bias = be_new(t->n_out, sizeof *bias);
    if (t->exact)
        for (uint32_t r = 0; r < t->n_rows; r++)
            matrix_fill_exact(x + (uint64_t)r * t->n_in, t->n_in, matrix_top(t->bits));
    else
        be_fill(x, n_x, 3);
    be_fill(bias, t->n_out, 1);
    backend_buf *xb = be_f32(be, x, n_x), *yb = be_f32(be, NULL, n_y);
    backend_weight *w = be_weight(be, m.type, t->n_out, t->n_in, m.packed);
    backend_weight *b = be_weight(be, QTYPE_F32, 1, t->n_out, bias);
    struct op_linear op = {.in.x = xb, .n_rows = t->n_rows, .n_weights = 1, .w = {w}, .y = {yb}};
    op.bias[0] = t->bias ? b : NULL;
    CHECK(backend_linear(be, &op) == 0);
    be_get(be, yb, y, n_y);
    uint32_t bad = 0;
    double worst = 0;
    int top = t->exact || !be_is_cpu(be) ? 0 : matrix_top(t->bits);
    for (uint32_t r = 0; r < t->n_rows; r++)
        for (uint32_t o = 0; o < t->n_out; o++) {
            const float *row = x + (uint64_t)r * t->n_in;
            float add = t->bias ? bias[o] : 0;
            double error = fabs(y[(uint64_t)r * t->n_out + o] - matrix_product(&m, row, o, add));
            double d = error / matrix_allowed(&m, row, o, add, top);
            if (!(d <= 1)) bad++;
            worst = fmax(worst, d);
        }
    check_note_error(worst);
    CHECK_MSG(!bad, "%s %s %d bits rows %u in %u out %u: %u over the tolerance, worst %.3g of it",
              backend_isa(be), qtype_name(m.type), t->bits, t->n_rows, t->n_in, t->n_out, bad,
              worst);
    backend_weight_free(b);
    backend_weight_free(w);
    backend_buf_free(yb);
    backend_buf_free(xb);
    free(bias);
    free(y);
    free(x);
    matrix_free(&m);
}

/* A column count that the type's blocks allow. */
static uint32_t any_n_in(int type) {
    static const uint32_t any_in[] = {1, 2, 7, 8, 19, 33, 99, 257, 989};
    static const uint32_t block_in[] = {32, 64, 96, 256, 352, 992, 1024, 512, 768};
    if (block_is_float(type)) return any_in[be_below(9)];
    return qtype_find(type)->block_elems == QK_ELEMS ? 256 * (1 + be_below(4))
                                                     : block_in[be_below(9)];
}

static void test_linear(void) {
    enum { CASES = 12, MOST_PRODUCTS = 1000000 };
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 19, 33, 99, 129, 257};
    static const uint32_t outs[] = {1, 2, 3, 16, 19, 33, 99, 257};
    for (int i = 0; i < 2 * BE_N_ISAS; i++) {
        int bits = i & 1 ? 16 : 8;
        backend *be = be_open_bits(be_isas[i / 2], 2, bits);
        if (!be) continue;
        if (!be_is_cpu(be) && bits == 8) { /* no rounding: one run is enough */
            backend_close(be);
            continue;
        }
        be_rng.state = 11;
        for (int t = 0; t < N_BLOCK_TYPES; t += TYPE_STEP)
            for (int n = 0; n < (be_quick ? 3 : CASES); n++) {
                struct linear_case c = {.n_rows = rows[be_below(10)],
                                        .n_in = any_n_in(block_types[t].type),
                                        .n_out = outs[be_below(8)],
                                        .bits = bits,
                                        .wide = be_rand() & 1,
                                        .exact = be_rand() & 1,
                                        .bias = be_rand() & 1};
                while ((uint64_t)c.n_rows * c.n_in * c.n_out >
                       (be_quick ? MOST_PRODUCTS / 8 : MOST_PRODUCTS))
                    c.n_rows > c.n_out ? (c.n_rows /= 2) : (c.n_out /= 2);
                check_linear(be, &block_types[t], &c);
            }
        backend_close(be);
    }
}

/* Three weights of three types in one op, some with a bias, equal one by one and together. */
static void test_linear_shares_input(void) {
    enum { ROWS = 7, IN = 96 };
    static const uint32_t n_out[3] = {64, 33, 5};
    static const int type[3] = {QTYPE_Q8_0, QTYPE_F16, QTYPE_Q4_0};
    float x[ROWS * IN], together[ROWS * 64], alone[ROWS * 64], bias[33];
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 3);
        if (!be) continue;
        be_fill(x, ROWS * IN, 1);
        be_fill(bias, 33, 1);
        backend_buf *xb = be_f32(be, x, ROWS * IN);
        backend_weight *b = be_weight(be, QTYPE_F32, 1, 33, bias);
        struct matrix m[3];
        struct op_linear op = {.in.x = xb, .n_rows = ROWS, .n_weights = 3, .bias = {NULL, b, NULL}};
        for (int k = 0; k < 3; k++) {
            m[k] = matrix_make(block_type_of(type[k]), n_out[k], IN, false);
            op.w[k] = be_weight(be, type[k], n_out[k], IN, m[k].packed);
            op.y[k] = be_f32(be, NULL, ROWS * n_out[k]);
        }
        CHECK(backend_linear(be, &op) == 0);
        for (int k = 0; k < 3; k++) {
            struct op_linear one = {
                .in.x = xb, .n_rows = ROWS, .n_weights = 1, .w = {op.w[k]}, .bias = {op.bias[k]}};
            one.y[0] = be_f32(be, NULL, ROWS * n_out[k]);
            CHECK(backend_linear(be, &one) == 0);
            be_get(be, op.y[k], together, ROWS * n_out[k]);
            be_get(be, one.y[0], alone, ROWS * n_out[k]);
            CHECK(memcmp(together, alone, ROWS * n_out[k] * sizeof(float)) == 0);
            backend_buf_free(one.y[0]);
        }
        for (int k = 0; k < 3; k++) {
            backend_buf_free(op.y[k]);
            backend_weight_free((backend_weight *)op.w[k]);
            matrix_free(&m[k]);
        }
        backend_weight_free(b);
        backend_buf_free(xb);
        backend_close(be);
    }
}

/* ---- batches, fused forms ---- */

enum { F_IN = 256, F_OUT = 83, F_SIDE = 33, F_ROW = F_OUT + F_SIDE + F_IN + F_OUT };

/* The ops on rows: a normed product of two weights, then a gated one. */
struct layer {
    struct matrix m[2], side;
    float norm[F_IN], bias[F_SIDE];
    const float *x, *residual; /* (rows, F_IN) */
};

struct layer_weights {
    backend_weight *w[2], *side, *norm, *bias;
};

static struct layer_weights put_weights(backend *be, const struct layer *l) {
    struct layer_weights w = {.side = be_weight(be, l->side.type, F_SIDE, F_IN, l->side.packed),
                              .norm = be_weight(be, QTYPE_F32, 1, F_IN, l->norm),
                              .bias = be_weight(be, QTYPE_F32, 1, F_SIDE, l->bias)};
    for (int i = 0; i < 2; i++)
        w.w[i] = be_weight(be, l->m[i].type, F_OUT, F_IN, l->m[i].packed);
    return w;
}

static void free_layer_weights(struct layer_weights *w) {
    backend_weight_free(w->w[0]);
    backend_weight_free(w->w[1]);
    backend_weight_free(w->side);
    backend_weight_free(w->norm);
    backend_weight_free(w->bias);
}

/* Rows order[0..n) of the inputs; the concatenated results of row r go to out + r * F_ROW. */
static void run_rows(backend *be, const struct layer *l, const struct layer_weights *w,
                     const uint32_t *order, uint32_t n, float *out) {
    uint64_t n_x = (uint64_t)n * F_IN, n_y = (uint64_t)n * F_OUT;
    float *x = be_new(n_x, sizeof *x), *other = be_new(n_x, sizeof *x), *y = be_new(n_x, sizeof *y);
    for (uint32_t r = 0; r < n; r++) {
        memcpy(x + (uint64_t)r * F_IN, l->x + (uint64_t)order[r] * F_IN, F_IN * sizeof *x);
        memcpy(other + (uint64_t)r * F_IN, l->residual + (uint64_t)order[r] * F_IN,
               F_IN * sizeof *x);
    }
    backend_buf *xb = be_f32(be, x, n_x), *ob = be_f32(be, other, n_x);
    backend_buf *yb = be_f32(be, NULL, n_y), *zb = be_f32(be, NULL, (uint64_t)n * F_SIDE);
    backend_buf *gb = be_f32(be, NULL, n_y);
    struct op_linear normed = {.in.x = xb,
                               .in.residual = ob,
                               .in.norm = w->norm,
                               .in.eps = 1e-5f,
                               .n_rows = n,
                               .n_weights = 2,
                               .w = {w->w[0], w->side},
                               .bias = {NULL, w->bias},
                               .y = {yb, zb}};
    CHECK(backend_linear(be, &normed) == 0);
    struct op_linear gated = {.in.x = xb,
                              .n_rows = n,
                              .n_weights = 2,
                              .w = {w->w[0], w->w[1]},
                              .act = BACKEND_ACT_SILU,
                              .y = {gb}};
    CHECK(backend_linear(be, &gated) == 0);
    const struct {
        backend_buf *buf;
        uint32_t n;
    } results[] = {{yb, F_OUT}, {zb, F_SIDE}, {xb, F_IN}, {gb, F_OUT}};
    uint32_t at = 0;
    for (int i = 0; i < 4; at += results[i++].n) {
        be_get(be, results[i].buf, y, (uint64_t)n * results[i].n);
        for (uint32_t r = 0; r < n; r++)
            memcpy(out + (uint64_t)order[r] * F_ROW + at, y + (uint64_t)r * results[i].n,
                   results[i].n * sizeof *y);
    }
    backend_buf_free(gb);
    backend_buf_free(zb);
    backend_buf_free(yb);
    backend_buf_free(ob);
    backend_buf_free(xb);
    free(y);
    free(other);
    free(x);
}

static struct layer *make_layer(const struct block_type *type, const float *x,
                                const float *residual) {
    struct layer *l = be_new(1, sizeof *l);
    l->x = x;
    l->residual = residual;
    l->m[0] = matrix_make(type, F_OUT, F_IN, false);
    l->m[1] = matrix_make(type, F_OUT, F_IN, false);
    l->side = matrix_make(block_type_of(QTYPE_F16), F_SIDE, F_IN, false);
    be_fill(l->norm, F_IN, 1);
    be_fill(l->bias, F_SIDE, 1);
    return l;
}

static void free_layer(struct layer *l) {
    matrix_free(&l->m[0]);
    matrix_free(&l->m[1]);
    matrix_free(&l->side);
    free(l);
}

static void shuffle(uint32_t *order, uint32_t n) {
    for (uint32_t r = n - 1; r > 0; r--) {
        uint32_t s = be_below(r + 1), keep = order[r];
        order[r] = order[s], order[s] = keep;
    }
}

/* Every row alone on one thread, and in batches of 1 to 150 on 1 to 8: the same bits. */
static void test_batch_invariance(void) {
    enum { N = 150, N_QUICK = 37 };
    const uint32_t n_rows = be_quick ? N_QUICK : N;
    static const int threads[] = {1, 2, 3, 5, 8};
    float *x = be_new(N * F_IN, sizeof *x), *other = be_new(N * F_IN, sizeof *x);
    float *want = be_new(N * F_ROW, sizeof *want), *got = be_new(N * F_ROW, sizeof *got);
    uint32_t order[N];
    be_rng.state = 5;
    be_fill(x, N * F_IN, 2);
    be_fill(other, N * F_IN, 2);
    for (int i = 0; i < BE_N_ISAS; i++)
        for (int t = first_type(i); t < N_BLOCK_TYPES; t += type_step()) {
            struct layer *l = make_layer(&block_types[t], x, other);
            for (uint32_t r = 0; r < n_rows; r++)
                order[r] = r;
            for (int k = 0; k < 5; k += be_quick ? 2 : 1) {
                backend *be = be_open_bits(be_isas[i], threads[k], t & 1 ? 16 : 8);
                if (!be) continue;
                struct layer_weights w = put_weights(be, l);
                for (uint32_t r = 0; k == 0 && r < n_rows; r++)
                    run_rows(be, l, &w, &order[r], 1, want);
                shuffle(order, n_rows);
                memset(got, 0, n_rows * F_ROW * sizeof *got);
                for (uint32_t at = 0, n; at < n_rows; at += n) {
                    n = k == 2 ? n_rows : 1 + be_below(64);
                    if (n > n_rows - at) n = n_rows - at;
                    run_rows(be, l, &w, order + at, n, got);
                }
                CHECK_MSG(memcmp(got, want, n_rows * F_ROW * sizeof *got) == 0, "%s %s %d threads",
                          be_isas[i], qtype_name(block_types[t].type), threads[k]);
                free_layer_weights(&w);
                backend_close(be);
            }
            free_layer(l);
        }
    free(got);
    free(want);
    free(other);
    free(x);
}

/* A norm before a product equals the product of the normed rows, bit for bit; a gated product is
 * silu of one product times the other, computed in float64 from the two, within 1e-6 (Metal:
 * 4e-6). */
static void test_fused_forms(void) {
    enum { N = 19 };
    static float x[N * F_IN], other[N * F_IN], fused[N * F_ROW], y[2][N * F_OUT];
    uint32_t order[N];
    be_rng.state = 9;
    be_fill(x, N * F_IN, 2);
    be_fill(other, N * F_IN, 2);
    for (uint32_t r = 0; r < N; r++)
        order[r] = r;
    for (int i = 0; i < BE_N_ISAS; i++)
        for (int t = first_type(i); t < N_BLOCK_TYPES; t += type_step()) {
            backend *be = be_open(be_isas[i], 2);
            if (!be) continue;
            struct layer *l = make_layer(&block_types[t], x, other);
            struct layer_weights w = put_weights(be, l);
            run_rows(be, l, &w, order, N, fused);
            backend_weight *identity = be_identity(be, F_IN, F_IN, 0);
            backend_buf *xb = be_f32(be, x, N * F_IN), *ob = be_f32(be, other, N * F_IN);
            backend_buf *nb = be_f32(be, NULL, N * F_IN), *yb = be_f32(be, NULL, N * F_OUT);
            backend_buf *zb = be_f32(be, NULL, N * F_OUT);
            struct op_linear op = {.in.x = xb,
                                   .in.residual = ob,
                                   .in.norm = w.norm,
                                   .in.eps = 1e-5f,
                                   .n_rows = N,
                                   .n_weights = 1,
                                   .w = {identity},
                                   .y = {nb}};
            CHECK(backend_linear(be, &op) == 0);
            op = (struct op_linear){
                .in.x = nb, .n_rows = N, .n_weights = 1, .w = {w.w[0]}, .y = {yb}};
            CHECK(backend_linear(be, &op) == 0);
            be_get(be, yb, y[0], N * F_OUT);
            for (uint32_t r = 0; r < N; r++)
                CHECK(memcmp(y[0] + r * F_OUT, fused + r * F_ROW, F_OUT * sizeof *y[0]) == 0);
            op = (struct op_linear){.in.x = xb, /* now with the residual added */
                                    .n_rows = N,
                                    .n_weights = 2,
                                    .w = {w.w[0], w.w[1]},
                                    .y = {yb, zb}};
            CHECK(backend_linear(be, &op) == 0);
            be_get(be, yb, y[0], N * F_OUT);
            be_get(be, zb, y[1], N * F_OUT);
            for (uint32_t k = 0; k < N * F_OUT; k++) {
                double g = (double)y[0][k], want = g / (1 + exp(-g)) * (double)y[1][k];
                double got = (double)fused[k / F_OUT * F_ROW + F_ROW - F_OUT + k % F_OUT];
                double part = be_is_cpu(be) ? 1e-6 : 4e-6;
                CHECK_MSG(fabs(got - want) <= part * fabs(want) + 1e-20, "%g, not %g", got, want);
            }
            backend_buf_free(zb);
            backend_buf_free(yb);
            backend_buf_free(nb);
            backend_buf_free(ob);
            backend_buf_free(xb);
            backend_weight_free(identity);
            free_layer_weights(&w);
            free_layer(l);
            backend_close(be);
        }
}

static void test_embed_and_gather(void) {
    enum { VOCAB = 57, COLS = 256, N = 33 };
    int32_t ids[N], rows[19];
    float got[N * COLS], sum[19 * COLS], x[N * COLS];
    for (int t = 0; t < N_BLOCK_TYPES; t += TYPE_STEP)
        for (int i = 0; i < BE_N_ISAS; i++) {
            backend *be = be_open(be_isas[i], 2);
            if (!be) continue;
            struct matrix m = matrix_make(&block_types[t], VOCAB, COLS, false);
            for (int k = 0; k < N; k++)
                ids[k] = k < 2 ? k * (VOCAB - 1) : (int32_t)be_below(VOCAB);
            for (int k = 0; k < 19; k++)
                rows[k] = (int32_t)be_below(N);
            backend_weight *w = be_weight(be, m.type, VOCAB, COLS, m.packed);
            backend_buf *idb = be_i32(be, ids, N), *out = be_f32(be, NULL, N * COLS);
            backend_buf *rb = be_i32(be, rows, 19), *picked = be_f32(be, NULL, 19 * COLS);
            struct op_embed op = {.table = w, .ids = idb, .n_rows = N, .scale = 2, .out = out};
            CHECK(backend_embed(be, &op) == 0);
            be_get(be, out, got, N * COLS);
            for (int k = 0; k < N * COLS; k++)
                CHECK(got[k] == 2 * m.values[ids[k / COLS] * COLS + k % COLS]);
            be_fill(x, N * COLS, 1);
            backend_buf *xb = be_f32(be, x, N * COLS);
            struct op_gather g = {
                .x = xb, .rows = rb, .n_out_rows = 19, .n_cols = COLS, .out = picked};
            CHECK(backend_gather(be, &g) == 0);
            be_get(be, picked, sum, 19 * COLS);
            for (int k = 0; k < 19 * COLS; k++)
                CHECK(sum[k] == x[rows[k / COLS] * COLS + k % COLS]);
            g.residual = out;
            CHECK(backend_gather(be, &g) == 0);
            be_get(be, picked, sum, 19 * COLS);
            for (int k = 0; k < 19 * COLS; k++) {
                int at = rows[k / COLS] * COLS + k % COLS;
                CHECK(sum[k] == x[at] + got[at]);
            }
            ids[3] = VOCAB;
            err e;
            CHECK(backend_upload(be, idb, 0, ids, sizeof ids, &e) == 0);
            if (be_is_cpu(be)) CHECK(backend_embed(be, &op) == ERR_INVALID);
            backend_buf_free(xb);
            backend_buf_free(picked);
            backend_buf_free(rb);
            backend_buf_free(out);
            backend_buf_free(idb);
            backend_weight_free(w);
            matrix_free(&m);
            backend_close(be);
        }
}

static void test_refusals(void) {
    err e;
    backend *be = NULL, *good = be_open("", 1);
    struct backend_config config = {.name = "abacus", .max_rows = 1, .max_cols = 1};
    CHECK(backend_open(&config, &be, &e) == ERR_UNSUPPORTED && !be && strstr(e.msg, "cpu"));
    config.name = "cpu", config.isa = "mmx";
    CHECK(backend_open(&config, &be, &e) == ERR_UNSUPPORTED && strstr(e.msg, "generic"));
    config.name = "auto"; /* only the CPU has an ISA: the CPU is selected, then the ISA */
    CHECK(backend_open(&config, &be, &e) == ERR_UNSUPPORTED && strstr(e.msg, "generic"));
    config.isa = "generic", config.n_threads = 1;
    CHECK(backend_open(&config, &be, &e) == 0 && be_is_cpu(be));
    backend_close(be);
    for (int i = 0; i < BE_N_ISAS; i++) {
        if (!be_is_device_set(be_isas[i])) continue;
        config.name = be_isas[i];
        CHECK(backend_open(&config, &be, &e) == ERR_INVALID && !be);
        CHECK_STR(e.param, "isa");
    }
    config.name = "cpu", config.isa = NULL, config.max_rows = 0;
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID && !be);
    config.max_rows = UINT32_MAX, config.max_cols = UINT32_MAX;
    CHECK(backend_open(&config, &be, &e) == ERR_NOMEM && !be);
    config.activation_bits = 12;
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID && !be);

    float data[64] = {0};
    backend_buf *x = be_f32(good, data, 64), *y = be_f32(good, data, 4);
    backend_weight *w = be_weight(good, QTYPE_F32, 8, 8, data);
    struct op_linear op = {.in.x = x, .n_rows = 8, .n_weights = 1, .w = {w}, .y = {y}};
    CHECK(backend_linear(good, &op) == ERR_INVALID); /* y is too small */
    op.y[0] = x;
    CHECK(backend_linear(good, &op) == ERR_INVALID); /* in place */
    op.y[0] = y, op.n_rows = BE_MAX_ROWS + 1;
    CHECK(backend_linear(good, &op) == ERR_INVALID);
    CHECK(backend_upload(good, y, 8, data, 16, &e) == ERR_INVALID);
    CHECK(backend_download(good, y, UINT64_MAX, data, 2, &e) == ERR_INVALID);
    op.n_rows = 1, op.act = BACKEND_ACT_SILU; /* of one weight */
    CHECK(backend_linear(good, &op) == ERR_INVALID);
    op.act = BACKEND_ACT_NONE, op.in.residual = x; /* is x */
    CHECK(backend_linear(good, &op) == ERR_INVALID);
    struct backend_weight_desc desc = {.name = "t",
                                       .type = QTYPE_Q8_0,
                                       .use = BACKEND_USE_LINEAR,
                                       .n_out = 1,
                                       .n_in = 33,
                                       .data = data};
    backend_weight *none;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_INVALID && !none);
    desc.type = 99;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_UNSUPPORTED);
    desc.type = QTYPE_F32, desc.data = (char *)data + 1;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_INVALID);
    desc.data = data, desc.use = 0, desc.n_in = 8;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_INVALID);
    desc.use = BACKEND_USE_VECTOR, desc.n_out = 2;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_INVALID);
    desc.use = BACKEND_USE_EMBED; /* not repacked: no products */
    CHECK(backend_weight_new(good, &desc, &none, &e) == 0 && backend_weight_bytes(none) == 0);
    op.in.residual = NULL, op.w[0] = none;
    CHECK(backend_linear(good, &op) == ERR_INVALID);
    CHECK(backend_weight_bytes(w) == 16 * 8 * sizeof(float));
    backend_weight_free(none);
    backend_weight_free(w);
    backend_buf_free(y);
    backend_buf_free(x);
    backend_close(good);
    backend_close(NULL);
}

static double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* Many short jobs with random pauses: none is lost, none runs twice, and threads without work
 * sleep. */
static void test_threads(void) {
    enum { ROWS = 64, COLS = 256 };
    float *x = be_new(ROWS * COLS, 4), *got = be_new(ROWS * COLS, 4), w[COLS];
    backend *be = be_open("", 4);
    for (int i = 0; i < COLS; i++)
        w[i] = 1;
    backend_buf *xb = be_f32(be, x, ROWS * COLS), *rb = be_f32(be, NULL, ROWS * COLS);
    backend_buf *out = be_f32(be, NULL, ROWS * COLS);
    backend_weight *wb = be_weight(be, QTYPE_F32, 1, COLS, w);
    backend_weight *sum = be_weight(be, QTYPE_F32, 1, COLS, w);
    for (int i = 0; i < ROWS * COLS; i++)
        got[i] = 1;
    err e;
    CHECK(backend_upload(be, rb, 0, got, ROWS * COLS * 4, &e) == 0);
    struct op_linear op = {.in.x = xb,
                           .in.residual = rb,
                           .in.norm = wb,
                           .in.eps = 1e-6f,
                           .n_rows = ROWS,
                           .n_weights = 1,
                           .w = {sum},
                           .y = {out}};
    for (int i = 0; i < 2000; i++) {
        CHECK(backend_linear(be, &op) == 0);
        if (i % 50 == 0) usleep(be_below(300));
    }
    be_get(be, xb, got, ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++)
        CHECK(got[i] == 2000); /* each job added one */
    usleep(20000);
    double before = cpu_seconds();
    usleep(300000);
    CHECK(cpu_seconds() - before < 0.05);
    uint64_t counted = 0;
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strncmp(backend_kernel_name(be, i), "rmsnorm_", 8) == 0)
            counted += backend_dispatch_count(be, i);
    CHECK(counted == 2000);
    backend_weight_free(sum);
    backend_weight_free(wb);
    backend_buf_free(out);
    backend_buf_free(rb);
    backend_buf_free(xb);
    backend_close(be);
    free(got);
    free(x);
}

static void test_choice(void) {
    backend *be = be_open("", 1);
    if (be_best) CHECK_STR(backend_isa(be), be_best);
    backend_close(be);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 1);
        if (!be) SKIP(be_isas[i], "this machine lacks it, or others were asked for");
        backend_close(be);
    }
    RUN(test_choice);
    RUN(test_linear);
    RUN(test_linear_shares_input);
    RUN(test_batch_invariance);
    RUN(test_fused_forms);
    RUN(test_embed_and_gather);
    RUN(test_refusals);
    RUN(test_threads);
    return check_done();
}
