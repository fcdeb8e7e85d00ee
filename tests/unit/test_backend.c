/* test_backend.c - every op of the CPU backend but rope and attention, for every type and
 * instruction set of this machine, against float64 arithmetic on odd sizes; bitwise batch
 * invariance; refusals. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

#include <sys/resource.h>
#include <unistd.h>

static const int types[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0, QTYPE_Q4_0};
enum { N_TYPES = sizeof types / sizeof types[0] };

static bool is_quantized(int type) {
    return type == QTYPE_Q8_0 || type == QTYPE_Q4_0;
}

/* A weight in both shapes: packed for the backend, exactly decoded for the reference. */
struct matrix {
    int type;
    uint32_t n_out, n_in;
    void *packed;
    float *values; /* (n_out, n_in) */
};

enum data { RANDOM, EXTREME };

/* EXTREME: every quantized code at the end of its range, signs at random, or values over many
 * magnitudes for the float types. */
static struct matrix make_matrix(int type, uint32_t n_out, uint32_t n_in, enum data data) {
    struct matrix m = {.type = type, .n_out = n_out, .n_in = n_in};
    uint64_t n = (uint64_t)n_out * n_in, bytes = 0;
    be_need(qtype_bytes(type, n_out, n_in, &bytes), "a matrix");
    m.values = be_new(n, sizeof(float));
    m.packed = be_new(bytes, 1);
    for (uint64_t i = 0; i < n; i++)
        m.values[i] = data == RANDOM ? be_real() : ldexpf(be_real(), (int)be_below(20) - 10);
    qtype_encode(type, m.values, m.packed, n);
    if (data == EXTREME && type == QTYPE_Q8_0) {
        struct q8_0_block *b = m.packed;
        for (uint64_t i = 0; i < n; i++)
            b[i / 32].q[i % 32] = be_rand() & 1 ? -128 : 127;
    }
    if (data == EXTREME && type == QTYPE_Q4_0) {
        struct q4_0_block *b = m.packed;
        for (uint64_t i = 0; i < n / 2; i++)
            b[i / 16].q[i % 16] = (uint8_t)((be_rand() & 1 ? 0 : 15) | (be_rand() & 1 ? 0 : 0xf0));
    }
    qtype_decode(type, m.packed, m.values, n);
    return m;
}

static void free_matrix(struct matrix *m) {
    free(m->packed);
    free(m->values);
}

/* Inputs that int16 blocks hold exactly: whole numbers up to 32767 times a power of two, 32767 in
 * each block. The quantization of activations then adds no error of its own. Every other block has
 * all its values at the end of the range. */
static void fill_exact(float *x, uint64_t n) {
    for (uint64_t i = 0; i < n; i += 32) {
        float unit = ldexpf(1, (int)be_below(8) - 12);
        bool ends = be_rand() & 1;
        for (uint64_t k = i; k < i + 32 && k < n; k++)
            x[k] = unit *
                   (ends ? (be_rand() & 1 ? 32767.0f : -32767.0f) : (float)be_below(65535) - 32767);
        x[i] = unit * 32767;
    }
}

/* Allowed error of one output, from the arithmetic's own terms.
 * Sums: 2e-6 of the sum of magnitudes, bias included (n_in / 8 roundings a lane, far from all one
 * way). Quantized activations: half a step, max / 65534, for each column of a block, times its
 * weight. */
static double allowed(const struct matrix *m, const float *x, uint32_t out, float bias,
                      bool exact) {
    const float *w = m->values + (uint64_t)out * m->n_in;
    double sum = fabs((double)bias), steps = 0;
    for (uint32_t c = 0; c < m->n_in; c += 32) {
        double max = 0, weights = 0;
        for (uint32_t k = c; k < c + 32 && k < m->n_in; k++) {
            max = fmax(max, fabs((double)x[k]));
            weights += fabs((double)w[k]);
            sum += fabs((double)x[k] * w[k]);
        }
        steps += weights * max / 65534 * 1.01;
    }
    return 2e-6 * sum + (is_quantized(m->type) && !exact ? steps : 0) + 1e-30;
}

static double reference(const struct matrix *m, const float *x, uint32_t out, float bias) {
    const float *w = m->values + (uint64_t)out * m->n_in;
    double sum = bias;
    for (uint32_t c = 0; c < m->n_in; c++)
        sum += (double)x[c] * w[c];
    return sum;
}

struct linear_case {
    uint32_t n_rows, n_in, n_out;
    enum data data;
    bool exact, bias;
};

static void check_linear(backend *be, int type, const struct linear_case *t) {
    struct matrix m = make_matrix(type, t->n_out, t->n_in, t->data);
    uint64_t n_x = (uint64_t)t->n_rows * t->n_in, n_y = (uint64_t)t->n_rows * t->n_out;
    float *x = be_new(n_x, sizeof *x), *y = be_new(n_y, sizeof *y);
    float *bias = be_new(t->n_out, sizeof *bias);
    if (t->exact)
        for (uint32_t r = 0; r < t->n_rows; r++)
            fill_exact(x + (uint64_t)r * t->n_in, t->n_in);
    else
        be_fill(x, n_x, 3);
    be_fill(bias, t->n_out, 1);
    backend_buf *xb = be_f32(be, x, n_x), *yb = be_f32(be, NULL, n_y);
    backend_weight *w = be_weight(be, type, t->n_out, t->n_in, m.packed);
    backend_weight *b = be_weight(be, QTYPE_F32, 1, t->n_out, bias);
    struct op_linear op = {.x = xb, .n_rows = t->n_rows, .n_weights = 1, .w = {w}, .y = {yb}};
    op.bias[0] = t->bias ? b : NULL;
    CHECK(backend_linear(be, &op) == 0);
    be_get(be, yb, y, n_y);
    uint32_t bad = 0;
    double worst = 0;
    for (uint32_t r = 0; r < t->n_rows; r++)
        for (uint32_t o = 0; o < t->n_out; o++) {
            const float *row = x + (uint64_t)r * t->n_in;
            float add = t->bias ? bias[o] : 0;
            double error = fabs(y[(uint64_t)r * t->n_out + o] - reference(&m, row, o, add));
            double d = error / allowed(&m, row, o, add, t->exact);
            if (!(d <= 1)) bad++;
            worst = fmax(worst, d);
        }
    CHECK_MSG(!bad, "%s %s rows %u in %u out %u: %u over the tolerance, worst %.3g of it",
              backend_isa(be), qtype_name(type), t->n_rows, t->n_in, t->n_out, bad, worst);
    backend_weight_free(b);
    backend_weight_free(w);
    backend_buf_free(yb);
    backend_buf_free(xb);
    free(bias);
    free(y);
    free(x);
    free_matrix(&m);
}

static void test_linear(void) {
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 19, 33, 99, 257};
    static const uint32_t any_in[] = {1, 2, 7, 8, 19, 33, 99, 257, 989};
    static const uint32_t block_in[] = {32, 64, 96, 256, 352, 992, 1024};
    static const uint32_t outs[] = {1, 2, 3, 19, 33, 99, 257};
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 2);
        if (!be) continue;
        be_seed = 11;
        for (int t = 0; t < N_TYPES; t++)
            for (int n = 0; n < 60; n++) {
                struct linear_case c = {.n_rows = rows[be_below(9)],
                                        .n_in = is_quantized(types[t]) ? block_in[be_below(7)]
                                                                       : any_in[be_below(9)],
                                        .n_out = outs[be_below(7)],
                                        .data = be_rand() & 1 ? RANDOM : EXTREME,
                                        .exact = be_rand() & 1,
                                        .bias = be_rand() & 1};
                if ((uint64_t)c.n_rows * c.n_in * c.n_out > 3000000) c.n_rows = 1 + n % 5;
                check_linear(be, types[t], &c);
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
        struct op_linear op = {.x = xb, .n_rows = ROWS, .n_weights = 3, .bias = {NULL, b, NULL}};
        for (int k = 0; k < 3; k++) {
            m[k] = make_matrix(type[k], n_out[k], IN, RANDOM);
            op.w[k] = be_weight(be, type[k], n_out[k], IN, m[k].packed);
            op.y[k] = be_f32(be, NULL, ROWS * n_out[k]);
        }
        CHECK(backend_linear(be, &op) == 0);
        for (int k = 0; k < 3; k++) {
            struct op_linear one = {
                .x = xb, .n_rows = ROWS, .n_weights = 1, .w = {op.w[k]}, .bias = {op.bias[k]}};
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
            free_matrix(&m[k]);
        }
        backend_weight_free(b);
        backend_buf_free(xb);
        backend_close(be);
    }
}

/* Runs linear, rmsnorm with residual and glu on rows order[0..n) of the inputs; out holds the
 * three results of each row one after the other. */
enum { INV_IN = 160, INV_OUT = 147, INV_ROW = INV_OUT + 2 * INV_IN };

struct invariance {
    const float *x, *other; /* (rows, INV_IN) */
    const struct matrix *m;
    const float *norm;
};

static void run_rows(backend *be, const struct invariance *v, const uint32_t *order, uint32_t n,
                     float *out) {
    uint64_t n_x = (uint64_t)n * INV_IN;
    float *x = be_new(n_x, sizeof *x), *other = be_new(n_x, sizeof *x);
    float *y = be_new(n_x, sizeof *y);
    for (uint32_t r = 0; r < n; r++) {
        memcpy(x + (uint64_t)r * INV_IN, v->x + (uint64_t)order[r] * INV_IN, INV_IN * sizeof *x);
        memcpy(other + (uint64_t)r * INV_IN, v->other + (uint64_t)order[r] * INV_IN,
               INV_IN * sizeof *x);
    }
    backend_buf *xb = be_f32(be, x, n_x), *ob = be_f32(be, other, n_x);
    backend_buf *yb = be_f32(be, NULL, n_x), *zb = be_f32(be, NULL, n_x);
    backend_weight *w = be_weight(be, v->m->type, INV_OUT, INV_IN, v->m->packed);
    backend_weight *norm = be_weight(be, QTYPE_F32, 1, INV_IN, v->norm);
    struct op_linear linear = {.x = xb, .n_rows = n, .n_weights = 1, .w = {w}, .y = {yb}};
    CHECK(backend_linear(be, &linear) == 0);
    be_get(be, yb, y, (uint64_t)n * INV_OUT);
    for (uint32_t r = 0; r < n; r++)
        memcpy(out + (uint64_t)order[r] * INV_ROW, y + (uint64_t)r * INV_OUT, INV_OUT * sizeof *y);
    struct op_rmsnorm rms = {.x = xb,
                             .residual = ob,
                             .weight = norm,
                             .eps = 1e-5f,
                             .n_rows = n,
                             .n_cols = INV_IN,
                             .out = zb};
    CHECK(backend_rmsnorm(be, &rms) == 0);
    struct op_glu glu = {
        .gate = zb, .up = ob, .n_rows = n, .n_cols = INV_IN, .act = BACKEND_ACT_SILU, .out = yb};
    CHECK(backend_glu(be, &glu) == 0);
    be_get(be, zb, y, n_x);
    be_get(be, yb, x, n_x);
    for (uint32_t r = 0; r < n; r++) {
        float *to = out + (uint64_t)order[r] * INV_ROW + INV_OUT;
        memcpy(to, y + (uint64_t)r * INV_IN, INV_IN * sizeof *y);
        memcpy(to + INV_IN, x + (uint64_t)r * INV_IN, INV_IN * sizeof *y);
    }
    backend_weight_free(norm);
    backend_weight_free(w);
    backend_buf_free(zb);
    backend_buf_free(yb);
    backend_buf_free(ob);
    backend_buf_free(xb);
    free(y);
    free(other);
    free(x);
}

static void test_batch_invariance(void) {
    enum { N = 133 };
    static const int threads[] = {1, 2, 3, 5};
    float *x = be_new(N * INV_IN, sizeof *x), *other = be_new(N * INV_IN, sizeof *x);
    float *want = be_new(N * INV_ROW, sizeof *want), *got = be_new(N * INV_ROW, sizeof *got);
    float norm[INV_IN];
    uint32_t order[N];
    be_seed = 5;
    be_fill(x, N * INV_IN, 2);
    be_fill(other, N * INV_IN, 2);
    be_fill(norm, INV_IN, 1);
    for (int i = 0; i < BE_N_ISAS; i++)
        for (int t = 0; t < N_TYPES; t++) {
            struct matrix m = make_matrix(types[t], INV_OUT, INV_IN, RANDOM);
            struct invariance v = {x, other, &m, norm};
            for (uint32_t r = 0; r < N; r++)
                order[r] = r;
            for (int k = 0; k < 4; k++) {
                backend *be = be_open(be_isas[i], threads[k]);
                if (!be) continue;
                for (uint32_t r = 0; k == 0 && r < N; r++)
                    run_rows(be, &v, &order[r], 1, want); /* each alone, on one thread */
                for (uint32_t r = N - 1; r > 0; r--) {    /* another order each time */
                    uint32_t s = be_below(r + 1), keep = order[r];
                    order[r] = order[s], order[s] = keep;
                }
                memset(got, 0, N * INV_ROW * sizeof *got);
                for (uint32_t at = 0; at < N;) { /* in batches of 1..64 */
                    uint32_t n = 1 + be_below(64);
                    if (n > N - at) n = N - at;
                    run_rows(be, &v, order + at, n, got);
                    at += n;
                }
                CHECK_MSG(memcmp(got, want, N * INV_ROW * sizeof *got) == 0, "%s %s %d threads",
                          be_isas[i], qtype_name(types[t]), threads[k]);
                backend_close(be);
            }
            free_matrix(&m);
        }
    free(got);
    free(want);
    free(other);
    free(x);
}

static void check_rmsnorm(backend *be, uint32_t n_rows, uint32_t n, bool residual, float scale) {
    uint64_t all = (uint64_t)n_rows * n;
    float *x = be_new(all, 4), *r = be_new(all, 4), *w = be_new(n, 4), *got = be_new(all, 4);
    be_fill(x, all, scale);
    be_fill(r, all, scale);
    be_fill(w, n, 1);
    backend_buf *xb = be_f32(be, x, all), *rb = be_f32(be, r, all), *out = be_f32(be, NULL, all);
    backend_weight *wb = be_weight(be, QTYPE_F32, 1, n, w);
    struct op_rmsnorm op = {.x = xb,
                            .residual = residual ? rb : NULL,
                            .weight = wb,
                            .eps = 1e-6f,
                            .n_rows = n_rows,
                            .n_cols = n,
                            .out = out};
    CHECK(backend_rmsnorm(be, &op) == 0);
    be_get(be, out, got, all);
    for (uint64_t row = 0; row < all; row += n) {
        double sum = 0;
        for (uint32_t c = 0; c < n; c++) {
            if (residual) x[row + c] += r[row + c];
            sum += (double)x[row + c] * x[row + c];
        }
        double inverse = 1 / sqrt(sum / n + 1e-6f);
        for (uint32_t c = 0; c < n; c++) {
            double want = x[row + c] * inverse * w[c];
            CHECK_MSG(fabs(got[row + c] - want) <= 2e-5 * fabs(want) + 1e-30, "%s n %u: %g, not %g",
                      backend_isa(be), n, (double)got[row + c], want);
        }
    }
    be_get(be, xb, got, all); /* the stream holds the sum */
    CHECK(memcmp(got, x, all * sizeof *x) == 0);
    backend_weight_free(wb);
    backend_buf_free(out);
    backend_buf_free(rb);
    backend_buf_free(xb);
    free(got);
    free(w);
    free(r);
    free(x);
}

static void test_rmsnorm(void) {
    static const uint32_t cols[] = {1, 2, 8, 19, 33, 99, 257, 989};
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 2);
        if (!be) continue;
        for (int c = 0; c < 8; c++) {
            check_rmsnorm(be, 1, cols[c], c & 1, 1);
            check_rmsnorm(be, 33, cols[c], true, 1e-4f);
            check_rmsnorm(be, 19, cols[c], false, 1e4f);
        }
        backend_close(be);
    }
}

/* silu(g) * u over the whole range: relative error 1e-6 where it does not underflow. */
static void test_glu(void) {
    enum { ROWS = 99, COLS = 257, N = ROWS * COLS };
    float *g = be_new(N, 4), *u = be_new(N, 4), *got = be_new(N, 4);
    for (int i = 0; i < N; i++) {
        g[i] = -86 + 172.0f * (float)i / N;
        u[i] = be_real() + 2;
    }
    g[0] = -1e30f, g[1] = 1e30f, g[2] = -0.0f, g[3] = 1e-30f, g[4] = -100;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 3);
        if (!be) continue;
        backend_buf *gb = be_f32(be, g, N), *ub = be_f32(be, u, N);
        struct op_glu op = {.gate = gb,
                            .up = ub,
                            .n_rows = ROWS,
                            .n_cols = COLS,
                            .act = BACKEND_ACT_SILU,
                            .out = gb};
        CHECK(backend_glu(be, &op) == 0); /* in place */
        be_get(be, gb, got, N);
        for (int k = 0; k < N; k++) {
            double want = g[k] / (1 + exp(-(double)g[k])) * u[k];
            CHECK_MSG(fabs(got[k] - want) <= 1e-6 * fabs(want) + 1e-7,
                      "%s silu(%g) * %g = %g, not %g", be_isas[i], (double)g[k], (double)u[k],
                      (double)got[k], want);
        }
        backend_buf_free(ub);
        backend_buf_free(gb);
        backend_close(be);
    }
    free(got);
    free(u);
    free(g);
}

static void test_embed_and_gather(void) {
    enum { VOCAB = 57, COLS = 96, N = 33 };
    int32_t ids[N], rows[19];
    float got[N * COLS], sum[19 * COLS], x[N * COLS];
    for (int t = 0; t < N_TYPES; t++)
        for (int i = 0; i < BE_N_ISAS; i++) {
            backend *be = be_open(be_isas[i], 2);
            if (!be) continue;
            struct matrix m = make_matrix(types[t], VOCAB, COLS, RANDOM);
            for (int k = 0; k < N; k++)
                ids[k] = k < 2 ? k * (VOCAB - 1) : (int32_t)be_below(VOCAB);
            for (int k = 0; k < 19; k++)
                rows[k] = (int32_t)be_below(N);
            backend_weight *w = be_weight(be, types[t], VOCAB, COLS, m.packed);
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
            CHECK(backend_embed(be, &op) == ERR_INVALID);
            backend_buf_free(xb);
            backend_buf_free(picked);
            backend_buf_free(rb);
            backend_buf_free(out);
            backend_buf_free(idb);
            backend_weight_free(w);
            free_matrix(&m);
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
    config.isa = NULL, config.max_rows = 0;
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID && !be);
    config.max_rows = UINT32_MAX, config.max_cols = UINT32_MAX;
    CHECK(backend_open(&config, &be, &e) == ERR_NOMEM && !be);

    float data[64] = {0};
    backend_buf *x = be_f32(good, data, 64), *y = be_f32(good, data, 4);
    backend_weight *w = be_weight(good, QTYPE_F32, 8, 8, data);
    struct op_linear op = {.x = x, .n_rows = 8, .n_weights = 1, .w = {w}, .y = {y}};
    CHECK(backend_linear(good, &op) == ERR_INVALID); /* y is too small */
    op.y[0] = x;
    CHECK(backend_linear(good, &op) == ERR_INVALID); /* in place */
    op.y[0] = y, op.n_rows = BE_MAX_ROWS + 1;
    CHECK(backend_linear(good, &op) == ERR_INVALID);
    CHECK(backend_upload(good, y, 8, data, 16, &e) == ERR_INVALID);
    CHECK(backend_download(good, y, UINT64_MAX, data, 2, &e) == ERR_INVALID);
    struct backend_weight_desc desc = {
        .name = "t", .type = QTYPE_Q8_0, .n_out = 1, .n_in = 33, .data = data};
    backend_weight *none;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_INVALID && !none);
    desc.type = 99;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_UNSUPPORTED);
    desc.type = QTYPE_F32, desc.data = (char *)data + 1;
    CHECK(backend_weight_new(good, &desc, &none, &e) == ERR_INVALID);
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

/* Many short jobs with pauses of any length between them: none is lost, none runs twice, and
 * threads without work sleep. */
static void test_threads(void) {
    enum { ROWS = 64, COLS = 256 };
    float *x = be_new(ROWS * COLS, 4), *got = be_new(ROWS * COLS, 4), w[COLS];
    backend *be = be_open("", 4);
    for (int i = 0; i < COLS; i++)
        w[i] = 1;
    backend_buf *xb = be_f32(be, x, ROWS * COLS), *rb = be_f32(be, NULL, ROWS * COLS);
    backend_buf *out = be_f32(be, NULL, ROWS * COLS);
    backend_weight *wb = be_weight(be, QTYPE_F32, 1, COLS, w);
    for (int i = 0; i < ROWS * COLS; i++)
        got[i] = 1;
    err e;
    CHECK(backend_upload(be, rb, 0, got, ROWS * COLS * 4, &e) == 0);
    struct op_rmsnorm op = {.x = xb,
                            .residual = rb,
                            .weight = wb,
                            .eps = 1e-6f,
                            .n_rows = ROWS,
                            .n_cols = COLS,
                            .out = out};
    for (int i = 0; i < 2000; i++) {
        CHECK(backend_rmsnorm(be, &op) == 0);
        if (i % 50 == 0) usleep(be_below(300));
    }
    be_get(be, xb, got, ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++)
        CHECK(got[i] == 2000); /* one was added each time */
    usleep(20000);
    double before = cpu_seconds();
    usleep(300000);
    CHECK(cpu_seconds() - before < 0.05);
    uint64_t counted = 0;
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strncmp(backend_kernel_name(be, i), "rmsnorm_", 8) == 0)
            counted += backend_dispatch_count(be, i);
    CHECK(counted == 2000);
    backend_weight_free(wb);
    backend_buf_free(out);
    backend_buf_free(rb);
    backend_buf_free(xb);
    backend_close(be);
    free(got);
    free(x);
}

int main(void) {
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 1);
        if (!be) SKIP(be_isas[i], "this machine lacks the instruction set");
        backend_close(be);
    }
    RUN(test_linear);
    RUN(test_linear_shares_input);
    RUN(test_batch_invariance);
    RUN(test_rmsnorm);
    RUN(test_glu);
    RUN(test_embed_and_gather);
    RUN(test_refusals);
    RUN(test_threads);
    return check_done();
}
