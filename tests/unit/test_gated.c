/* test_gated.c - activations gated by columns of another buffer, and sums with a normed buffer,
 * against float64; bitwise the same for a row alone and in any batch. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

enum { MOST = 70 };
#define EPS 1e-5f

static double activate(enum backend_act act, double g, double u) {
    const double root = sqrt(2 / 3.14159265358979323846);
    if (act == BACKEND_ACT_SILU) return g / (1 + exp(-g)) * u;
    if (act == BACKEND_ACT_GELU_TANH)
        return g / 2 * (1 + tanh(root * (g + 0.044715 * g * g * g))) * u;
    if (act == BACKEND_ACT_GELU) return g / 2 * erfc(-g / sqrt(2)) * u;
    g = fmin(g, 7);
    return g / (1 + exp(-1.702 * g)) * (fmax(fmin(u, 7), -7) + 1);
}

static void run_gated(backend *be, const float *x, const float *up, struct op_gated op, float *y) {
    backend_buf *xb = be_f32(be, x, (uint64_t)op.n_rows * op.n_cols),
                *ub = be_f32(be, up, (uint64_t)op.n_rows * op.stride);
    op.x = xb, op.up = ub;
    CHECK(backend_gated(be, &op) == 0);
    be_get(be, xb, y, (uint64_t)op.n_rows * op.n_cols);
    backend_buf_free(ub);
    backend_buf_free(xb);
}

static void check_gated(backend *be, enum backend_act act) {
    const uint32_t cols = 1 + be_below(99), stride = cols + be_below(50);
    struct op_gated op = {.n_rows = 1 + be_below(MOST),
                          .n_cols = cols,
                          .first = stride > cols ? be_below(stride - cols) : 0,
                          .stride = stride,
                          .act = act};
    const uint64_t n = (uint64_t)op.n_rows * cols, n_up = (uint64_t)op.n_rows * stride;
    float *x = be_new(n, 4), *up = be_new(n_up, 4), *y = be_new(n, 4), *one = be_new(cols, 4);
    be_fill(x, n, 6);
    be_fill(up, n_up, 6);
    run_gated(be, x, up, op, y);
    for (uint32_t r = 0; r < op.n_rows; r++)
        for (uint32_t c = 0; c < cols; c++) {
            const uint64_t i = (uint64_t)r * cols + c;
            const double want = activate(act, x[i], up[(uint64_t)r * stride + op.first + c]);
            CHECK_MSG(fabs(y[i] - want) <= 2e-6 * (1 + fabs(want)), "act %d: %g for %g", act,
                      (double)y[i], want);
        }
    const uint32_t row = be_below(op.n_rows);
    op.n_rows = 1;
    run_gated(be, x + (uint64_t)row * cols, up + (uint64_t)row * stride, op, one);
    CHECK(!memcmp(one, y + (uint64_t)row * cols, cols * sizeof *one));
    free(one);
    free(y);
    free(up);
    free(x);
}

static void run_add(backend *be, const float *x, const float *r, struct op_add_normed op,
                    float *y) {
    const uint64_t n = (uint64_t)op.n_rows * op.n_cols;
    backend_buf *xb = be_f32(be, x, n), *rb = be_f32(be, r, n);
    op.x = xb;
    if (op.r) op.r = rb;
    CHECK(backend_add_normed(be, &op) == 0);
    be_get(be, xb, y, n);
    backend_buf_free(rb);
    backend_buf_free(xb);
}

/* Groups of odd sizes; without a norm, without anything to add; scales of both kinds. */
static void check_add(backend *be, bool normed, bool added, bool scaled) {
    const uint32_t group = 1 + be_below(45), n_groups = 1 + be_below(4), cols = group * n_groups,
                   n_rows = 1 + be_below(MOST);
    const uint64_t n = (uint64_t)n_rows * cols;
    float *x = be_new(n, 4), *r = be_new(n, 4), *y = be_new(n, 4), *one = be_new(cols, 4),
          *norm = be_new(group, 4), factor = 0.75f;
    be_fill(x, n, 3);
    be_fill(r, n, 3);
    be_fill(norm, group, 2);
    backend_weight *w = be_weight(be, QTYPE_F32, 1, group, norm),
                   *f = be_weight(be, QTYPE_F32, 1, 1, &factor);
    struct op_add_normed op = {.norm = normed && added ? w : NULL,
                               .eps = EPS,
                               .scale = scaled ? 1.25f : 0,
                               .factor = scaled ? f : NULL,
                               .n_rows = n_rows,
                               .n_cols = cols};
    backend_buf *any = be_f32(be, r, n); /* run_add puts its own in its place */
    if (added) op.r = any;
    run_add(be, x, r, op, y);
    for (uint64_t at = 0; at < n; at += group) {
        double sum = 0;
        for (uint32_t i = 0; i < group; i++)
            sum += (double)r[at + i] * (double)r[at + i];
        for (uint32_t i = 0; i < group; i++) {
            const double by = op.norm ? norm[i] / sqrt(sum / group + (double)EPS) : 1;
            const double want =
                (scaled ? 1.25 * 0.75 : 1) * (x[at + i] + (added ? r[at + i] * by : 0));
            CHECK_MSG(fabs(y[at + i] - want) <= 3e-6 * (1 + fabs(want) + 3 * fabs(by)),
                      "group of %u: %g for %g", group, (double)y[at + i], want);
        }
    }
    const uint32_t row = be_below(n_rows);
    op.n_rows = 1;
    run_add(be, x + (uint64_t)row * cols, r + (uint64_t)row * cols, op, one);
    CHECK(!memcmp(one, y + (uint64_t)row * cols, cols * sizeof *one));
    backend_buf_free(any);
    backend_weight_free(f);
    backend_weight_free(w);
    void *all[] = {x, r, y, one, norm};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void test_against_float64(void) {
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 2) : NULL;
        if (!be) continue;
        be_rng.state = 3 + (uint64_t)i;
        for (int n = 0; n < 8 && backend_has_op(be, BACKEND_OP_gated); n++)
            for (int act = BACKEND_ACT_SILU; act < BACKEND_N_ACTS; act++)
                check_gated(be, (enum backend_act)act);
        for (int n = 0; n < 32 && backend_has_op(be, BACKEND_OP_add_normed); n++)
            check_add(be, n & 1, n & 2 || n & 1, n & 4);
        backend_close(be);
    }
}

static void test_refusals(void) {
    float zeros[64] = {0};
    backend *be = be_open("", 1);
    backend_buf *x = be_f32(be, zeros, 32), *r = be_f32(be, zeros, 64),
                *small = be_f32(be, zeros, 8);
    backend_weight *norm = be_weight(be, QTYPE_F32, 1, 5, zeros),
                   *pair = be_weight(be, QTYPE_F32, 1, 2, zeros);
    const struct op_gated gated = {
        .x = x, .up = r, .n_rows = 2, .n_cols = 16, .stride = 32, .act = BACKEND_ACT_SILU};
    const struct op_add_normed add = {.x = x, .r = r, .n_rows = 2, .n_cols = 16};
    struct op_gated g;
    struct op_add_normed a;
#define REFUSED(op, from, call, change)                                                            \
    do {                                                                                           \
        op = from;                                                                                 \
        change;                                                                                    \
        CHECK(call(be, &op) == ERR_INVALID);                                                       \
    } while (0)
    g = gated, a = add;
    CHECK(backend_gated(be, &g) == 0 && backend_add_normed(be, &a) == 0);
    REFUSED(g, gated, backend_gated, g.up = x);
    REFUSED(g, gated, backend_gated, g.first = 17);
    REFUSED(g, gated, backend_gated, g.up = small);
    REFUSED(g, gated, backend_gated, g.n_rows = 3);
    REFUSED(g, gated, backend_gated, g.act = BACKEND_ACT_NONE);
    REFUSED(g, gated, backend_gated, g.act = BACKEND_N_ACTS);
    REFUSED(a, add, backend_add_normed, a.r = x);
    REFUSED(a, add, backend_add_normed, a.r = small);
    REFUSED(a, add, backend_add_normed, a.norm = norm); /* 16 columns are no groups of 5 */
    REFUSED(a, add, backend_add_normed, a.factor = pair);
    REFUSED(a, add, backend_add_normed, a.scale = -1);
    REFUSED(a, add, backend_add_normed, (a.norm = pair, a.r = NULL));
    backend_weight_free(pair);
    backend_weight_free(norm);
    backend_buf_free(small);
    backend_buf_free(r);
    backend_buf_free(x);
    backend_close(be);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_against_float64);
    if (be_has_op(BACKEND_OP_gated) && be_has_op(BACKEND_OP_add_normed))
        RUN(test_refusals);
    else
        SKIP("refusals", "this device has none of these ops");
    return check_done();
}
