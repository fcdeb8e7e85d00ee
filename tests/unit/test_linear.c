/* test_linear.c - what backend_linear does around its products, for every instruction set of this
 * machine against float64 arithmetic: the input's residual, scale and norms, gated activations.
 * The products themselves are test_backend's and test_gemm's. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

/* What a row of the stream goes through on its way into a product. */
struct input_case {
    uint32_t n_rows, n;
    float scale; /* of the values */
    bool residual, residual_norm, norm;
    float residual_scale;
};

enum { INPUT_X, INPUT_RESIDUAL, INPUT_OUT, N_INPUTS };

/* In float64: v[INPUT_X] becomes the updated stream, v[INPUT_OUT] the product's input. err: how
 * far an f32 stream may be off, in each column. */
static void reference_input(const struct input_case *t, double *v[N_INPUTS], const float *norms[2],
                            double *error) {
    double sum = 0, k = t->residual_scale != 0 ? (double)t->residual_scale : 1;
    for (uint32_t c = 0; t->residual_norm && c < t->n; c++)
        sum += v[INPUT_RESIDUAL][c] * v[INPUT_RESIDUAL][c];
    if (t->residual_norm) k /= sqrt(sum / t->n + (double)1e-6f);
    sum = 0;
    for (uint32_t c = 0; c < t->n; c++) {
        double add = !t->residual
                         ? 0
                         : v[INPUT_RESIDUAL][c] * k * (t->residual_norm ? (double)norms[0][c] : 1);
        error[c] = 6e-8 * fabs(v[INPUT_X][c] + add) + 2e-6 * (k != 1 ? fabs(add) : 0);
        v[INPUT_X][c] += add;
        sum += v[INPUT_X][c] * v[INPUT_X][c];
    }
    k = 1 / sqrt(sum / t->n + (double)1e-6f);
    for (uint32_t c = 0; c < t->n; c++)
        v[INPUT_OUT][c] = v[INPUT_X][c] * (t->norm ? k * (double)norms[1][c] : 1);
}

static void check_input(backend *be, const struct input_case *t) {
    const uint32_t n = t->n;
    uint64_t all = (uint64_t)t->n_rows * n;
    float *x = be_new(all, 4), *r = be_new(all, 4), *got = be_new(2 * all, 4);
    float *w[2] = {be_new(n, 4), be_new(n, 4)};
    double *v[N_INPUTS] = {be_new(n, 8), be_new(n, 8), be_new(n, 8)}, *error = be_new(n, 8);
    be_fill(x, all, t->scale);
    be_fill(r, all, t->scale);
    be_fill(w[0], n, 1);
    be_fill(w[1], n, 1);
    backend_buf *xb = be_f32(be, x, all), *rb = be_f32(be, r, all), *out = be_f32(be, NULL, all);
    backend_weight *w0 = be_weight(be, QTYPE_F32, 1, n, w[0]);
    backend_weight *w1 = be_weight(be, QTYPE_F32, 1, n, w[1]);
    backend_weight *identity = be_identity(be, n, n, 0);
    struct op_linear op = {.in = {.x = xb,
                                  .residual = t->residual ? rb : NULL,
                                  .residual_norm = t->residual_norm ? w0 : NULL,
                                  .residual_scale = t->residual_scale,
                                  .norm = t->norm ? w1 : NULL,
                                  .eps = 1e-6f},
                           .n_rows = t->n_rows,
                           .n_weights = 1,
                           .w = {identity},
                           .y = {out}};
    CHECK(backend_linear(be, &op) == 0);
    be_get(be, out, got, all);
    be_get(be, xb, got + all, all);
    for (uint64_t row = 0; row < all; row += n) {
        for (uint32_t c = 0; c < n; c++)
            v[INPUT_X][c] = (double)x[row + c], v[INPUT_RESIDUAL][c] = (double)r[row + c];
        reference_input(t, v, (const float *[]){w[0], w[1]}, error);
        for (uint32_t c = 0; c < n; c++) {
            double stream = (double)got[all + row + c], in = (double)got[row + c];
            double share = v[INPUT_X][c] != 0 ? error[c] / fabs(v[INPUT_X][c]) : 0;
            CHECK_MSG(fabs(stream - v[INPUT_X][c]) <= error[c] + 1e-30,
                      "%s n %u: stream %g, not %g", backend_isa(be), n, stream, v[INPUT_X][c]);
            CHECK_MSG(fabs(in - v[INPUT_OUT][c]) <= (2e-5 + share) * fabs(v[INPUT_OUT][c]) + 1e-30,
                      "%s n %u: %g, not %g", backend_isa(be), n, in, v[INPUT_OUT][c]);
            /* nothing but the sum is rounded where nothing else is asked for */
            if (!t->norm) CHECK(in == stream);
            if (!t->residual) CHECK(got[all + row + c] == x[row + c]);
            if (t->residual && !t->residual_norm && !t->residual_scale)
                CHECK(got[all + row + c] == x[row + c] + r[row + c]);
        }
    }
    backend_weight_free(identity);
    backend_weight_free(w1);
    backend_weight_free(w0);
    backend_buf_free(out);
    backend_buf_free(rb);
    backend_buf_free(xb);
    for (int i = 0; i < N_INPUTS; i++)
        free(v[i]);
    free(error);
    free(w[0]);
    free(w[1]);
    free(got);
    free(r);
    free(x);
}

/* Every combination of what struct op_input may ask for. */
static void test_input(void) {
    static const uint32_t cols[] = {1, 2, 7, 8, 19, 33, 97, 99, 257, 989};
    static const float scales[] = {1, 1e-4f, 1e4f};
    enum { N_COLS = sizeof cols / sizeof cols[0] };
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 1 + i % 2 * 2);
        if (!be) continue;
        for (int c = 0; c < N_COLS; c++)
            for (int k = 0; k < 10; k++) {
                struct input_case t = {.n_rows = k % 3 * 4 + 1,
                                       .n = cols[c],
                                       .scale = scales[(c + k) % 3],
                                       .norm = k & 1,
                                       .residual = k > 1,
                                       .residual_norm = k > 5,
                                       .residual_scale = k >> 1 & 1 ? 0 : 0.22f};
                check_input(be, &t);
            }
        backend_close(be);
    }
}

/* An input for quantized weights is the one for float weights, quantized: a product of what an
 * identity wrote has the same bits; and x is updated in both ways alike. */
static void test_input_quantized(void) {
    enum { ROWS = 19, IN = 352, OUT = 33, N = ROWS * IN };
    static float x[N], r[N], got[2][N], y[2][ROWS * OUT], w[2][IN];
    be_seed = 21;
    be_fill(x, N, 2), be_fill(r, N, 3), be_fill(w[0], IN, 1), be_fill(w[1], IN, 1);
    float values[OUT * IN];
    struct q8_0_block packed[OUT * IN / 32];
    be_fill(values, OUT * IN, 1);
    qtype_encode(QTYPE_Q8_0, values, packed, OUT * IN);
    for (int i = 0; i < BE_N_ISAS; i++)
        for (int k = 0; k < 8; k++) {
            backend *be = be_open_bits(be_isas[i], k & 1 ? 3 : 1, k & 4 ? 16 : 8);
            if (!be) continue;
            backend_buf *xb[2], *rb = be_f32(be, r, N), *nb = be_f32(be, NULL, N);
            backend_buf *yb = be_f32(be, NULL, ROWS * OUT);
            backend_weight *norms[2] = {be_weight(be, QTYPE_F32, 1, IN, w[0]),
                                        be_weight(be, QTYPE_F32, 1, IN, w[1])};
            backend_weight *wb = be_weight(be, QTYPE_Q8_0, OUT, IN, packed);
            backend_weight *identity = be_identity(be, IN, IN, 0);
            for (int form = 0; form < 2; form++) {
                xb[form] = be_f32(be, x, N);
                struct op_linear op = {.in = {.x = xb[form],
                                              .residual = rb,
                                              .residual_norm = k & 2 ? norms[0] : NULL,
                                              .residual_scale = k & 2 ? 0 : 0.7f,
                                              .norm = k & 1 ? norms[1] : NULL,
                                              .eps = 1e-5f},
                                       .n_rows = ROWS,
                                       .n_weights = 1,
                                       .w = {form ? identity : wb},
                                       .y = {form ? nb : yb}};
                CHECK(backend_linear(be, &op) == 0);
                if (form) {
                    op.in = (struct op_input){.x = nb}, op.w[0] = wb, op.y[0] = yb;
                    CHECK(backend_linear(be, &op) == 0);
                }
                be_get(be, xb[form], got[form], N);
                be_get(be, yb, y[form], ROWS * OUT);
            }
            CHECK(memcmp(got[0], got[1], sizeof got[0]) == 0);
            CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
            backend_weight_free(identity);
            backend_weight_free(wb);
            backend_weight_free(norms[1]);
            backend_weight_free(norms[0]);
            backend_buf_free(yb);
            backend_buf_free(nb);
            backend_buf_free(rb);
            backend_buf_free(xb[1]);
            backend_buf_free(xb[0]);
            backend_close(be);
        }
}

/* silu(g) * u over the whole range: relative error 1e-6 where it does not underflow. */
static void test_gate(void) {
    enum { ROWS = 99, COLS = 257, N = ROWS * COLS };
    float *x = be_new(2 * N, 4), *got = be_new(N, 4);
    for (int i = 0; i < N; i++) {
        float *g = x + 2 * COLS * (i / COLS) + i % COLS;
        *g = -86 + 172.0f * (float)i / N;
        g[COLS] = be_real() + 2;
    }
    x[0] = -1e30f, x[1] = 1e30f, x[2] = -0.0f, x[3] = 1e-30f, x[4] = -100;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 3);
        if (!be) continue;
        backend_buf *xb = be_f32(be, x, 2 * N), *out = be_f32(be, NULL, N);
        backend_weight *gate = be_identity(be, COLS, 2 * COLS, 0);
        backend_weight *up = be_identity(be, COLS, 2 * COLS, COLS);
        struct op_linear op = {.in.x = xb,
                               .n_rows = ROWS,
                               .n_weights = 2,
                               .w = {gate, up},
                               .act = BACKEND_ACT_SILU,
                               .y = {out}};
        CHECK(backend_linear(be, &op) == 0);
        be_get(be, out, got, N);
        for (int k = 0; k < N; k++) {
            double g = (double)x[2 * COLS * (k / COLS) + k % COLS];
            double u = (double)x[2 * COLS * (k / COLS) + COLS + k % COLS];
            double want = g / (1 + exp(-g)) * u;
            CHECK_MSG(fabs((double)got[k] - want) <= 1e-6 * fabs(want) + 1e-7,
                      "%s silu(%g) * %g = %g, not %g", be_isas[i], g, u, (double)got[k], want);
        }
        backend_weight_free(up);
        backend_weight_free(gate);
        backend_buf_free(out);
        backend_buf_free(xb);
        backend_close(be);
    }
    free(got);
    free(x);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_input);
    RUN(test_input_quantized);
    RUN(test_gate);
    return check_done();
}
