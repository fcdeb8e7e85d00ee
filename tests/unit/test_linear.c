/* test_linear.c - what backend_linear does around its products, for every instruction set of this
 * machine against float64 arithmetic: the input's residual, scale and norms, gated activations,
 * scaled and capped products; bitwise batch invariance; refusals. The products themselves are
 * test_backend's and test_gemm's. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

/* Parameters of the transformation of a row before a product. */
struct input_case {
    uint32_t n_rows, n;
    float scale; /* of the values */
    bool residual, residual_norm, norm;
    float residual_scale;
    bool centred, bias; /* LayerNorm, of values around 3 * scale */
};

enum { INPUT_X, INPUT_RESIDUAL, INPUT_OUT, N_INPUTS };

/* In float64: v[INPUT_X] becomes the updated stream, v[INPUT_OUT] the product's input. err: the
 * largest error of an f32 stream, per column. */
static void reference_input(const struct input_case *t, double *v[N_INPUTS], const float *norms[3],
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
    double mean = 0;
    for (uint32_t c = 0; t->centred && c < t->n; c++)
        mean += v[INPUT_X][c] / t->n;
    sum = t->centred ? 0 : sum;
    for (uint32_t c = 0; t->centred && c < t->n; c++)
        sum += (v[INPUT_X][c] - mean) * (v[INPUT_X][c] - mean);
    k = 1 / sqrt(sum / t->n + (double)1e-6f);
    for (uint32_t c = 0; c < t->n; c++) {
        v[INPUT_OUT][c] = (v[INPUT_X][c] - mean) * (t->norm ? k * (double)norms[1][c] : 1);
        if (t->bias) v[INPUT_OUT][c] += (double)norms[2][c];
    }
}

/* Absolute error of a centred row's value: of x - mean, whose terms cancel, and of the bias. */
static double centred_error(const struct input_case *t, const double *x, float norm, float bias) {
    double mean = 0, most = 0, squares = 0;
    for (uint32_t c = 0; c < t->n; c++)
        mean += x[c] / t->n, most = fmax(most, fabs(x[c]));
    for (uint32_t c = 0; c < t->n; c++)
        squares += (x[c] - mean) * (x[c] - mean);
    return 1e-6 * (most / sqrt(squares / t->n + 1e-6) * fabs((double)norm) + fabs((double)bias));
}

/* The norm as a separate op yields the same bits as a product's input, and the same stream. got:
 * both after the product; x: before it. */
static void check_norm(backend *be, struct op_norm *op, const float *x, const float *got,
                       uint64_t all) {
    float *alone = be_new(2 * all, sizeof *alone);
    err e;
    be_need(backend_upload(be, op->in.x, 0, x, all * sizeof *x, &e) == 0, "an upload");
    CHECK(backend_norm(be, op) == (op->in.norm ? 0 : ERR_INVALID));
    if (op->in.norm) {
        be_get(be, op->out, alone, all);
        be_get(be, op->in.x, alone + all, all);
        CHECK(memcmp(alone, got, 2 * all * sizeof *got) == 0);
    }
    op->out = op->in.x;
    CHECK(backend_norm(be, op) == ERR_INVALID);
    free(alone);
}

static void check_input(backend *be, const struct input_case *t) {
    const uint32_t n = t->n;
    uint64_t all = (uint64_t)t->n_rows * n;
    float *x = be_new(all, 4), *r = be_new(all, 4), *got = be_new(2 * all, 4);
    float *w[3] = {be_new(n, 4), be_new(n, 4), be_new(n, 4)};
    double *v[N_INPUTS] = {be_new(n, 8), be_new(n, 8), be_new(n, 8)}, *error = be_new(n, 8);
    be_fill(x, all, t->scale);
    be_fill(r, all, t->scale);
    be_fill(w[0], n, 1);
    be_fill(w[1], n, 1);
    be_fill(w[2], n, 1);
    for (uint64_t i = 0; t->centred && i < all; i++)
        x[i] += 3 * t->scale;
    backend_buf *xb = be_f32(be, x, all), *rb = be_f32(be, r, all), *out = be_f32(be, NULL, all);
    backend_weight *w0 = be_weight(be, QTYPE_F32, 1, n, w[0]);
    backend_weight *w1 = be_weight(be, QTYPE_F32, 1, n, w[1]);
    backend_weight *w2 = be_weight(be, QTYPE_F32, 1, n, w[2]);
    backend_weight *identity = be_identity(be, n, n, 0);
    struct op_linear op = {.in = {.x = xb,
                                  .residual = t->residual ? rb : NULL,
                                  .residual_norm = t->residual_norm ? w0 : NULL,
                                  .residual_scale = t->residual_scale,
                                  .norm = t->norm ? w1 : NULL,
                                  .eps = 1e-6f,
                                  .centred = t->centred,
                                  .norm_bias = t->bias ? w2 : NULL},
                           .n_rows = t->n_rows,
                           .n_weights = 1,
                           .w = {identity},
                           .y = {out}};
    CHECK(backend_linear(be, &op) == 0);
    be_get(be, out, got, all);
    be_get(be, xb, got + all, all);
    check_norm(be, &(struct op_norm){.in = op.in, .n_rows = t->n_rows, .out = out}, x, got, all);
    for (uint64_t row = 0; row < all; row += n) {
        for (uint32_t c = 0; c < n; c++)
            v[INPUT_X][c] = (double)x[row + c], v[INPUT_RESIDUAL][c] = (double)r[row + c];
        reference_input(t, v, (const float *[]){w[0], w[1], w[2]}, error);
        for (uint32_t c = 0; c < n; c++) {
            double stream = (double)got[all + row + c], in = (double)got[row + c];
            double share = v[INPUT_X][c] != 0 ? error[c] / fabs(v[INPUT_X][c]) : 0;
            CHECK_MSG(fabs(stream - v[INPUT_X][c]) <= error[c] + 1e-30,
                      "%s n %u: stream %g, not %g", backend_isa(be), n, stream, v[INPUT_X][c]);
            double centred = t->centred ? centred_error(t, v[INPUT_X], w[1][c], w[2][c]) : 0;
            CHECK_MSG(fabs(in - v[INPUT_OUT][c]) <=
                          (2e-5 + share) * fabs(v[INPUT_OUT][c]) + centred + 1e-30,
                      "%s n %u: %g, not %g", backend_isa(be), n, in, v[INPUT_OUT][c]);
            /* only the sum is rounded if no other step is requested */
            if (!t->norm) CHECK(in == stream);
            if (!t->residual) CHECK(got[all + row + c] == x[row + c]);
            if (t->residual && !t->residual_norm && !t->residual_scale)
                CHECK(got[all + row + c] == x[row + c] + r[row + c]);
        }
    }
    op.in.residual_norm = w0, op.in.residual = rb;
    if (t->centred) CHECK(backend_linear(be, &op) == ERR_INVALID);
    backend_weight_free(identity);
    backend_weight_free(w2);
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
    free(w[2]);
    free(got);
    free(r);
    free(x);
}

/* Every combination of the options of struct op_input. */
static void test_input(void) {
    static const uint32_t cols[] = {1, 2, 7, 8, 19, 33, 97, 99, 257, 989};
    static const float scales[] = {1, 1e-4f, 1e4f};
    enum { N_COLS = sizeof cols / sizeof cols[0] };
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_open(be_isas[i], 1 + i % 2 * 2);
        if (!be) continue;
        for (int c = 0; c < N_COLS; c++)
            for (int k = 0; k < 14; k++) {
                const bool centred = k >= 10;
                struct input_case t = {.n_rows = k % 3 * 4 + 1,
                                       .n = cols[c],
                                       .scale = scales[(c + k) % 3],
                                       .norm = k & 1 || centred,
                                       .residual = centred ? k & 1 : k > 1,
                                       .residual_norm = k > 5 && !centred,
                                       .residual_scale = k >> 1 & 1 ? 0 : 0.22f,
                                       .centred = centred,
                                       .bias = k >= 12 || (centred && cols[c] == 1)};
                check_input(be, &t);
            }
        backend_close(be);
    }
}

/* The input of quantized weights is the quantized input of float weights: a product of an
 * identity's output has the same bits; and both update x equally. */
static void test_input_quantized(void) {
    enum { ROWS = 19, IN = 352, OUT = 33, N = ROWS * IN };
    static float x[N], r[N], got[2][N], y[2][ROWS * OUT], w[2][IN];
    be_rng.state = 21;
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
                                              .centred = (k & 3) == 1,
                                              .norm_bias = (k & 3) == 1 ? norms[0] : NULL,
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

/* ---- epilogue of a product ---- */

/* Ops whose products equal the biases, for any values (0 * inf is not 0): one row, n columns. */
struct values {
    backend_buf *x, *y;
    backend_weight *w, *bias[2];
    struct op_linear op;
};

static struct values put_values(backend *be, uint32_t n, const float *first, const float *second) {
    struct values v = {.x = be_f32(be, NULL, 1), .y = be_f32(be, NULL, n)};
    float *ones = be_new(n, sizeof *ones);
    v.w = be_weight(be, QTYPE_F32, n, 1, ones);
    v.bias[0] = be_weight(be, QTYPE_F32, 1, n, first);
    v.bias[1] = be_weight(be, QTYPE_F32, 1, n, second);
    v.op = (struct op_linear){.in.x = v.x,
                              .n_rows = 1,
                              .n_weights = 1,
                              .w = {v.w, v.w},
                              .bias = {v.bias[0], v.bias[1]},
                              .y = {v.y}};
    free(ones);
    return v;
}

static void free_values(struct values *v) {
    backend_weight_free(v->bias[1]);
    backend_weight_free(v->bias[0]);
    backend_weight_free(v->w);
    backend_buf_free(v->y);
    backend_buf_free(v->x);
}

static const float extremes[] = {0,     -0.0f,  1e-40f, -1e-30f,  1e-30f,    -1e4f,    1e4f, -1e30f,
                                 1e30f, -3e38f, 3e38f,  INFINITY, -INFINITY, NAN,      -87,  -88.5f,
                                 88,    89.5f,  -100,   -101,     7,         7.00001f, -7};
enum { N_EXTREMES = sizeof extremes / sizeof extremes[0] };

/* Spreads most of n values over +-range. */
static float *make_values(uint32_t n, float range) {
    float *x = be_new(n, sizeof *x);
    for (uint32_t i = 0; i < n; i++)
        x[i] = i < N_EXTREMES ? extremes[i] : range * (2 * (float)i / (float)n - 1);
    return x;
}

static bool same_value(double got, double want, double error) {
    if (isnan(want)) return isnan(got);
    return got == (double)(float)want || fabs(got - want) <= error;
}

/* As the header defines them; x: the argument of e^-x. */
static double reference_act(enum backend_act act, double g, double u, double *x) {
    double z = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g);
    *x = 0; /* g itself, not rounded */
    if (act == BACKEND_ACT_GELU_TANH) {
        *x = 2 * z;
        if (g == -(double)INFINITY) return -0.0 * u;
        return (z < -10 ? g / (1 + exp(-2 * z)) : g / 2 * (1 + tanh(z))) *
               u; /* 1 - 1 cancels all digits */
    }
    if (act == BACKEND_ACT_SWIGLU_OAI) {
        if (g > 7) g = 7;
        if (u > 7) u = 7;
        if (u < -7) u = -7;
        *x = 1.702 * g, u++;
    }
    if (g == -(double)INFINITY) return -0.0 * u;
    if (act == BACKEND_ACT_GELU) { /* erfc(z) changes by 2 z^2 = g^2 times the error of z */
        *x = 2 * g * g;
        return g / 2 * erfc(-g / sqrt(2)) * u;
    }
    return g / (1 + exp(act == BACKEND_ACT_SILU ? -g : -*x)) * u;
}

/* As reference_act, of bounded inputs. */
static double reference_bounded(const struct op_linear *op, double g, double u, double *x) {
    const struct backend_bounds b = op->bounds;
    if (b.up > 0 && g > (double)b.gate) g = (double)b.gate;
    if (b.up > 0 && u > (double)b.up) u = (double)b.up;
    if (b.up > 0 && u < -(double)b.up) u = -(double)b.up;
    return reference_act(op->act, g, u, x);
}

/* Four roundings, and that of the exponent x, which e^x makes x times as large (Metal: four times
 * that); results below 1e-36 may be 0. All counts of columns, so that each value lies in every
 * lane. */
static void test_acts(void) {
    static const uint32_t cols[] = {1, 7, 33, 97, 25441};
    for (int i = 0; i < BE_N_ISAS; i++) {
        if (!be_row_isa(i)) continue;
        for (int act = BACKEND_ACT_NONE + 1; act < BACKEND_N_ACTS; act++)
            for (int c = 0; c < 5; c++) {
                backend *be = be_open(be_isas[i], c & 1 ? 3 : 1);
                if (!be) continue;
                const uint32_t n = cols[c];
                float *g = make_values(n, act == BACKEND_ACT_GELU_TANH && c & 1 ? 3 : 90);
                float *u = be_new(n, sizeof *u), *got = be_new(n, sizeof *got);
                be_fill(u, n, 9);
                struct values v = put_values(be, n, g, u);
                v.op.n_weights = 2, v.op.act = (enum backend_act)act;
                if (act == BACKEND_ACT_SILU && c & 1)
                    v.op.bounds = (struct backend_bounds){2.5f, 1.5f};
                CHECK(backend_linear(be, &v.op) == 0);
                be_get(be, v.y, got, n);
                for (uint32_t k = 0; k < n; k++) {
                    double x, want = reference_bounded(&v.op, (double)g[k], (double)u[k], &x);
                    double error = (4.8e-7 + 2.4e-7 * fabs(x)) * fabs(want);
                    if (!be_is_cpu(be)) error *= 4;
                    if (isinf(want) || isnan(error)) error = 0;
                    CHECK_MSG(same_value((double)got[k], want, error + 1e-36 * (2 + fabs(u[k]))),
                              "%s act %d of %g, %g = %g, not %g", be_isas[i], act, (double)g[k],
                              (double)u[k], (double)got[k], want);
                }
                free_values(&v);
                free(got);
                free(u);
                free(g);
                backend_close(be);
            }
    }
}

/* Within 5 ulp (Metal: 20, denormals are 0) of cap * tanh, from the smallest values to infinite
 * ones; y_scale alone is one multiplication, exact or not. */
static void test_y_scale_and_softcap(void) {
    static const uint32_t cols[] = {1, 7, 33, 97, 25441};
    static const float scales[] = {0, 0.0625f, 1.7f}, caps[] = {0, 30, 0.37f};
    for (int i = 0; i < BE_N_ISAS; i++)
        for (int c = 0; c < 45; c++) {
            backend *be = be_row_isa(i) ? be_open(be_isas[i], c & 1 ? 3 : 1) : NULL;
            if (!be) continue;
            const uint32_t n = cols[c / 9];
            float cap = caps[c % 3], scale = scales[c / 3 % 3], k = scale != 0 ? scale : 1;
            float *x = make_values(n, c & 1 ? 250 : 2), *got = be_new(n, sizeof *got);
            struct values v = put_values(be, n, x, x);
            v.op.y_scale = scale, v.op.softcap = cap;
            CHECK(backend_linear(be, &v.op) == 0);
            be_get(be, v.y, got, n);
            for (uint32_t at = 0; at < n; at++) {
                double want = (double)(x[at] * k), error = 0;
                if (cap != 0) {
                    want = (double)cap * tanh((double)k * (double)x[at] / (double)cap);
                    error = 5 * 1.2e-7 * fabs(want) +
                            1e-44 * (1 + (double)cap); /* multiples of the smallest value */
                }
                if (!be_is_cpu(be)) error = (cap != 0 ? 4 * error : 0) + 2e-38 * (1 + fabs(cap));
                CHECK_MSG(same_value((double)got[at], want, error),
                          "%s %g * %g capped at %g = %g, not %g", be_isas[i], (double)scale,
                          (double)x[at], (double)cap, (double)got[at], want);
                if (cap != 0 && !isnan(want)) CHECK(fabsf(got[at]) <= cap);
            }
            free_values(&v);
            free(got);
            free(x);
            backend_close(be);
        }
}

/* ---- batches ---- */

enum { B_ROWS = 37, B_IN = 96, B_ODD_IN = 97, B_OUT = 33 };

/* Forms of an op, applied in sequence to the same rows. */
static const struct form {
    bool residual, residual_norm, norm;
    float residual_scale;
    enum backend_act act;
    float y_scale, softcap;
} forms[] = {
    {.residual = true, .norm = true, .residual_scale = 0.3f, .act = BACKEND_ACT_GELU_TANH},
    {.residual = true, .residual_norm = true, .norm = true, .act = BACKEND_ACT_SWIGLU_OAI},
    {.residual = true, .residual_norm = true, .act = BACKEND_ACT_SILU},
    {.residual = true, .residual_scale = 2.5f, .softcap = 30},
    {.norm = true, .y_scale = 0.2f, .softcap = 3},
    {.y_scale = 3},
};
enum { N_FORMS = sizeof forms / sizeof forms[0], B_RESULT = N_FORMS * B_OUT + B_ODD_IN };

struct batch {
    int type;
    uint32_t n_in;
    const float *x, *residual; /* (B_ROWS, n_in) */
    const float *norms[2];     /* (n_in) */
    const void *w[2];          /* (B_OUT, n_in) of type */
};

/* Rows first..first + n - 1; their results, forms' y and then x, go to out (B_ROWS, B_RESULT). */
static void run_forms(backend *be, const struct batch *b, uint32_t first, uint32_t n, float *out) {
    uint64_t at = (uint64_t)first * b->n_in, n_x = (uint64_t)n * b->n_in;
    float *got = be_new(n_x + (uint64_t)n * B_OUT, sizeof *got);
    backend_buf *x = be_f32(be, b->x + at, n_x), *residual = be_f32(be, b->residual + at, n_x);
    backend_buf *y = be_f32(be, NULL, (uint64_t)n * B_OUT);
    backend_weight *w[2], *norms[2];
    for (int i = 0; i < 2; i++) {
        w[i] = be_weight(be, b->type, B_OUT, b->n_in, b->w[i]);
        norms[i] = be_weight(be, QTYPE_F32, 1, b->n_in, b->norms[i]);
    }
    for (int f = 0; f < N_FORMS; f++) {
        const struct form *t = &forms[f];
        struct op_linear op = {.in = {.x = x,
                                      .residual = t->residual ? residual : NULL,
                                      .residual_norm = t->residual_norm ? norms[0] : NULL,
                                      .residual_scale = t->residual_scale,
                                      .norm = t->norm ? norms[1] : NULL,
                                      .eps = 1e-6f},
                               .n_rows = n,
                               .n_weights = t->act != BACKEND_ACT_NONE ? 2 : 1,
                               .w = {w[0], w[1]},
                               .act = t->act,
                               .y_scale = t->y_scale,
                               .softcap = t->softcap,
                               .y = {y}};
        CHECK(backend_linear(be, &op) == 0);
        be_get(be, y, got, (uint64_t)n * B_OUT);
        for (uint32_t r = 0; r < n; r++)
            memcpy(out + (uint64_t)(first + r) * B_RESULT + f * B_OUT, got + (uint64_t)r * B_OUT,
                   B_OUT * sizeof *got);
    }
    be_get(be, x, got, n_x);
    for (uint32_t r = 0; r < n; r++)
        memcpy(out + (uint64_t)(first + r) * B_RESULT + N_FORMS * B_OUT,
               got + (uint64_t)r * b->n_in, b->n_in * sizeof *got);
    for (int i = 0; i < 2; i++) {
        backend_weight_free(norms[i]);
        backend_weight_free(w[i]);
    }
    backend_buf_free(y);
    backend_buf_free(residual);
    backend_buf_free(x);
    free(got);
}

/* Rows alone on one thread, and in batches on one and three: the same bits in every form. */
static void test_forms_batch_invariance(void) {
    static const int types[] = {QTYPE_Q8_0, QTYPE_F32, QTYPE_F16};
    static float x[B_ROWS * B_ODD_IN], residual[B_ROWS * B_ODD_IN], norms[2][B_ODD_IN];
    static float values[2][B_OUT * B_ODD_IN], packed[2][B_OUT * B_ODD_IN];
    static float want[B_ROWS * B_RESULT], got[B_ROWS * B_RESULT];
    be_rng.state = 31;
    be_fill(x, B_ROWS * B_ODD_IN, 2), be_fill(residual, B_ROWS * B_ODD_IN, 2);
    for (int k = 0; k < 2; k++)
        be_fill(norms[k], B_ODD_IN, 1), be_fill(values[k], B_OUT * B_ODD_IN, 1);
    for (int i = 0; i < BE_N_ISAS * 3; i++) {
        struct batch b = {types[i % 3],          B_ODD_IN, x, residual, {norms[0], norms[1]},
                          {packed[0], packed[1]}};
        if (b.type == QTYPE_Q8_0) b.n_in = B_IN;
        for (int k = 0; k < 2; k++)
            qtype_encode(b.type, values[k], packed[k], (uint64_t)B_OUT * b.n_in);
        for (int threads = 1; threads <= 3; threads += 2) {
            backend *be = be_open(be_isas[i / 3], threads);
            if (!be) continue;
            for (uint32_t r = 0; threads == 1 && r < B_ROWS; r++)
                run_forms(be, &b, r, 1, want);
            for (uint32_t most = 5; most <= B_ROWS; most += 16) {
                memset(got, 0, sizeof got);
                for (uint32_t at = 0, n; at < B_ROWS; at += n) {
                    n = B_ROWS - at < most ? B_ROWS - at : most;
                    run_forms(be, &b, at, n, got);
                }
                for (uint32_t r = 0; r < B_ROWS; r++)
                    CHECK(memcmp(got + r * B_RESULT, want + r * B_RESULT,
                                 (N_FORMS * B_OUT + b.n_in) * sizeof *got) == 0);
            }
            backend_close(be);
        }
    }
}

/* Ops that are refused. */
static void test_form_refusals(void) {
    float data[64] = {0};
    backend *be = be_open("", 1);
    backend_buf *x = be_f32(be, data, 64), *y = be_f32(be, data, 64);
    backend_weight *w = be_weight(be, QTYPE_F32, 8, 8, data);
    backend_weight *norm = be_weight(be, QTYPE_F32, 1, 8, data);
    backend_weight *short_norm = be_weight(be, QTYPE_F32, 1, 7, data);
    const struct op_linear good = {
        .in.x = x, .n_rows = 1, .n_weights = 2, .w = {w, w}, .y = {y, y}};
    struct op_linear op = good;
    CHECK(backend_linear(be, &op) == 0);
    op.in.residual_norm = norm; /* of no residual */
    CHECK(backend_linear(be, &op) == ERR_INVALID);
    op = good, op.in.norm = short_norm;
    CHECK(backend_linear(be, &op) == ERR_INVALID);
    op = good, op.act = BACKEND_N_ACTS;
    CHECK(backend_linear(be, &op) == ERR_INVALID);
    const float no_factors[] = {-1, NAN, INFINITY};
    for (size_t i = 0; i < sizeof no_factors / sizeof no_factors[0]; i++) {
        op = good, op.softcap = no_factors[i];
        CHECK(backend_linear(be, &op) == ERR_INVALID);
        op = good, op.y_scale = no_factors[i];
        CHECK(backend_linear(be, &op) == ERR_INVALID);
        op = good, op.in.residual_scale = no_factors[i];
        CHECK(backend_linear(be, &op) == ERR_INVALID);
    }
    for (int act = BACKEND_ACT_SILU; act < BACKEND_N_ACTS; act++) {
        op = good, op.act = (enum backend_act)act;
        CHECK(backend_linear(be, &op) == 0);
        op.softcap = 30;
        CHECK(backend_linear(be, &op) == ERR_INVALID);
        op.softcap = 0, op.y_scale = 2;
        CHECK(backend_linear(be, &op) == ERR_INVALID);
        op.y_scale = 0, op.n_weights = 1;
        CHECK(backend_linear(be, &op) == ERR_INVALID);
        op.n_weights = 2, op.bounds = (struct backend_bounds){1, 1};
        CHECK(backend_linear(be, &op) == (act == BACKEND_ACT_SILU ? 0 : ERR_INVALID));
        op.bounds.gate = 0;
        CHECK(backend_linear(be, &op) == ERR_INVALID);
    }
    backend_weight_free(short_norm);
    backend_weight_free(norm);
    backend_weight_free(w);
    backend_buf_free(y);
    backend_buf_free(x);
    backend_close(be);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_input);
    RUN(test_input_quantized);
    RUN(test_acts);
    RUN(test_y_scale_and_softcap);
    RUN(test_forms_batch_invariance);
    RUN(test_form_refusals);
    return check_done();
}
