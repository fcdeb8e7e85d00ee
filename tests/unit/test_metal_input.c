/* test_metal_input.c - preparation of a product's input on the Metal device: pending residuals and
 * norms, against float64 on odd widths; the same bits in every batch. Prints the largest error of
 * each form. Skipped in a build without Metal. */
#include "tests/support/be.h"
#include "tests/support/device_main.h"

#ifdef INFERD_METAL

enum { MAX_ROWS = 5, MAX_COLS = 32768 };

static backend *open_metal(void) {
    return be_open_metal((struct backend_config){.max_rows = MAX_ROWS, .max_cols = MAX_COLS});
}

/* Rows and the operations applied to them. */
struct rows {
    uint32_t n_rows, n_in;
    bool residual, residual_norm, centred, has_bias;
    float scale, eps;
    float *x, *r, *r_norm, *norm, *bias;
};

static float *new_floats(uint64_t n, float scale) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, scale);
    return x;
}

enum form { NORM, RESIDUAL, NORMED_RESIDUAL, CENTRED, CENTRED_BIAS, N_FORMS };

static struct rows new_rows(uint32_t n_rows, uint32_t n_in, enum form form, float scale) {
    uint64_t n = (uint64_t)n_rows * n_in;
    return (struct rows){.n_rows = n_rows,
                         .n_in = n_in,
                         .residual = form == RESIDUAL || form == NORMED_RESIDUAL,
                         .residual_norm = form == NORMED_RESIDUAL,
                         .centred = form == CENTRED || form == CENTRED_BIAS,
                         .has_bias = form == CENTRED_BIAS,
                         .scale = scale,
                         .eps = 1e-6f,
                         .x = new_floats(n, 4),
                         .r = new_floats(n, 30),
                         .r_norm = new_floats(n_in, 2),
                         .norm = new_floats(n_in, 1),
                         .bias = new_floats(n_in, 1)};
}

static void free_rows(struct rows *s) {
    free(s->x), free(s->r), free(s->r_norm), free(s->norm), free(s->bias);
}

/* Runs backend_norm over rows first .. first + n - 1; x: their values afterwards, out: the
 * result. */
static void run(backend *be, const struct rows *s, uint32_t first, uint32_t n, float *x,
                float *out) {
    uint64_t at = (uint64_t)first * s->n_in, n_all = (uint64_t)n * s->n_in;
    backend_buf *bx = be_f32(be, s->x + at, n_all), *br = be_f32(be, s->r + at, n_all);
    backend_buf *bo = be_f32(be, NULL, n_all);
    backend_weight *norm = be_weight(be, QTYPE_F32, 1, s->n_in, s->norm);
    backend_weight *r_norm = be_weight(be, QTYPE_F32, 1, s->n_in, s->r_norm);
    backend_weight *bias = be_weight(be, QTYPE_F32, 1, s->n_in, s->bias);
    const struct op_norm op = {.in = {.x = bx,
                                      .residual = s->residual ? br : NULL,
                                      .residual_norm = s->residual_norm ? r_norm : NULL,
                                      .residual_scale = s->scale,
                                      .norm = norm,
                                      .norm_bias = s->has_bias ? bias : NULL,
                                      .centred = s->centred,
                                      .eps = s->eps},
                               .n_rows = n,
                               .out = bo};
    CHECK(backend_norm(be, &op) == 0);
    be_get(be, bx, x, n_all);
    be_get(be, bo, out, n_all);
    backend_buf_free(bx), backend_buf_free(br), backend_buf_free(bo);
    backend_weight_free(norm), backend_weight_free(r_norm), backend_weight_free(bias);
}

static double inverse_rms(const double *v, uint32_t n, double eps) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    return 1 / sqrt(sum / n + eps);
}

/* Largest error of a row: of x relative to its terms, of out for the x that the backend stored,
 * relative to the exact value or, if it is centred, to its terms. */
static void compare_row(const struct rows *s, uint32_t row, const float *x, const float *out,
                        double *worst) {
    const float *x0 = s->x + (uint64_t)row * s->n_in, *r0 = s->r + (uint64_t)row * s->n_in;
    double *v = be_new(s->n_in, sizeof *v), inverse = 1, scale = s->scale != 0 ? s->scale : 1;
    for (uint32_t i = 0; i < s->n_in; i++)
        v[i] = r0[i];
    if (s->residual_norm) inverse = inverse_rms(v, s->n_in, s->eps);
    for (uint32_t i = 0; i < s->n_in; i++) {
        double r = s->residual_norm ? v[i] * inverse * s->r_norm[i] : v[i];
        double add = s->residual ? scale * r : 0;
        double error = fabs(x[i] - (x0[i] + add)) / (fabs(x0[i]) + fabs(add) + 1e-30);
        if (!(error <= worst[0])) worst[0] = error;
    }
    for (uint32_t i = 0; i < s->n_in; i++)
        v[i] = x[i];
    double mean = 0, size = 0; /* size: of the terms of mean */
    for (uint32_t i = 0; s->centred && i < s->n_in; i++)
        mean += v[i] / s->n_in, size += fabs(v[i]) / s->n_in;
    for (uint32_t i = 0; i < s->n_in; i++)
        v[i] -= mean;
    inverse = inverse_rms(v, s->n_in, s->eps);
    for (uint32_t i = 0; i < s->n_in; i++) {
        double factor = inverse * s->norm[i], bias = s->has_bias ? s->bias[i] : 0;
        double terms = (fabs(v[i]) + 2 * size) * fabs(factor) + fabs(bias);
        double error = fabs(out[i] - (v[i] * factor + bias)) / (terms + 1e-30);
        if (!(error <= worst[1])) worst[1] = error;
    }
    free(v);
}

static const uint32_t widths[] = {1,    2,    3,    19,   32,   33,   99,   127,   128,   129,  255,
                                  1000, 2880, 4095, 4096, 4097, 5120, 8191, 10000, 32767, 32768};
enum { N_WIDTHS = sizeof widths / sizeof widths[0] };

static void check_form(enum form form, float scale) {
    static const char *const names[N_FORMS] = {"norm", "residual, norm", "normed residual, norm",
                                               "centred", "centred, bias"};
    const double tolerance = 5e-7; /* 4 roundings plus half of the sum's error */
    backend *be = open_metal();
    double worst[2] = {0, 0};
    for (int w = 0; w < N_WIDTHS; w++) {
        struct rows s = new_rows(2 + be_below(MAX_ROWS - 1), widths[w], form, scale);
        uint64_t n = (uint64_t)s.n_rows * s.n_in;
        float *x = be_new(n, sizeof *x), *out = be_new(n, sizeof *out);
        float *x1 = be_new(s.n_in, sizeof *x1), *out1 = be_new(s.n_in, sizeof *out1);
        run(be, &s, 0, s.n_rows, x, out);
        for (uint32_t row = 0; row < s.n_rows; row++) {
            const float *xr = x + (uint64_t)row * s.n_in, *outr = out + (uint64_t)row * s.n_in;
            compare_row(&s, row, xr, outr, worst);
            run(be, &s, row, 1, x1, out1);
            CHECK_MSG(memcmp(x1, xr, s.n_in * sizeof *x1) == 0 &&
                          memcmp(out1, outr, s.n_in * sizeof *out1) == 0,
                      "%s: row %u of %u columns alone has other bits", names[form], row, s.n_in);
        }
        free(x), free(out), free(x1), free(out1);
        free_rows(&s);
    }
    printf("  %-22s x %.2e of its terms, out %.2e relative\n", names[form], worst[0], worst[1]);
    CHECK(worst[0] <= tolerance && worst[1] <= tolerance);
    backend_close(be);
}

static void test_norm(void) {
    be_rng.state = 3;
    check_form(NORM, 0);
}

static void test_residual(void) {
    be_rng.state = 4;
    check_form(RESIDUAL, 0);
    check_form(RESIDUAL, 0.22f);
}

static void test_normed_residual(void) {
    be_rng.state = 5;
    check_form(NORMED_RESIDUAL, 0);
    check_form(NORMED_RESIDUAL, 3);
}

static void test_centred(void) {
    be_rng.state = 6;
    check_form(CENTRED, 0);
    check_form(CENTRED_BIAS, 0);
}

/* A row of zeros is divided by sqrt(eps); a NaN affects only its own row. */
static void test_special_values(void) {
    enum { N = 100 };
    backend *be = open_metal();
    struct rows s = new_rows(3, N, NORM, 0);
    float x[3 * N], out[3 * N], alone[N], alone_x[N];
    memset(s.x, 0, N * sizeof *s.x);
    s.x[N + 7] = NAN;
    run(be, &s, 0, 3, x, out);
    run(be, &s, 2, 1, alone_x, alone);
    for (int i = 0; i < N; i++)
        CHECK(out[i] == 0 && isnan(out[N + i]) && out[2 * N + i] == alone[i]);
    free_rows(&s);
    backend_close(be);
}

/* Traffic counters: each value is read and written once, the norms' factors too. */
static void test_traffic(void) {
    enum { N = 1000, ROWS = 3 };
    backend *be = open_metal();
    struct rows s = new_rows(ROWS, N, NORMED_RESIDUAL, 0);
    float x[ROWS * N], out[ROWS * N];
    run(be, &s, 0, ROWS, x, out);
    uint64_t read = 0, written = 0;
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strcmp(backend_kernel_name(be, i), "input_rows") == 0) {
            CHECK(backend_dispatch_count(be, i) == 1);
            backend_kernel_traffic(be, i, &read, &written);
        }
    CHECK(read == 2 * sizeof x + 2 * N * sizeof *x && written == 2 * sizeof x);
    free_rows(&s);
    backend_close(be);
}

int main(void) {
    RUN(test_norm);
    RUN(test_residual);
    RUN(test_normed_residual);
    RUN(test_centred);
    RUN(test_special_values);
    RUN(test_traffic);
    return check_done();
}
#else
DEVICE_MAIN_SKIPS("metal", "this build has no Metal backend")
#endif
