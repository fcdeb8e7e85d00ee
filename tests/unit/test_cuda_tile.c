/* test_cuda_tile.c - products of many rows of the CUDA backend: mma tiles, sm_90's wgmma, and
 * cuBLASLt over decoded weights if it is installed. The number of rows and the shape select the
 * kernel; all give a row the bits that it has alone. Single rows are tested by test_cuda_linear and
 * test_linear. */
#include "tests/support/device_main.h"
#include "tests/support/matrix.h"

enum { MOST_ROWS = 520, MOST_COLS = 8960, SOME = 5, SOME_QUICK = 3 };

struct form {
    int type;
    bool pair;
    uint32_t n_out, n_in;
};

struct rows {
    backend_weight *w[2], *bias;
    const float *x; /* (MOST_ROWS, n_in) */
    backend_buf *y;
};

/* Multiplies rows first .. first + n - 1 as a separate batch. */
static void multiply_rows(backend *be, const struct form *f, const struct rows *r, uint32_t first,
                          uint32_t n_rows, float *got) {
    backend_buf *x = be_f32(be, r->x + (uint64_t)first * f->n_in, (uint64_t)n_rows * f->n_in);
    struct op_linear op = {.in.x = x,
                           .n_rows = n_rows,
                           .n_weights = f->pair ? 2 : 1,
                           .w = {r->w[0], f->pair ? r->w[1] : NULL},
                           .bias = {r->bias},
                           .act = f->pair ? BACKEND_ACT_SILU : BACKEND_ACT_NONE,
                           .softcap = f->pair ? 0 : 30,
                           .y = {r->y}};
    CHECK(backend_linear(be, &op) == 0);
    be_get(be, r->y, got, (uint64_t)n_rows * f->n_out);
    backend_buf_free(x);
}

static void check_form(backend *be, const struct form *f) {
    static const uint32_t batches[] = {33, 64, 65, 129, 400, MOST_ROWS};
    uint64_t n_out = f->n_out, n_x = (uint64_t)MOST_ROWS * f->n_in;
    float *x = be_new(n_x, 4), *want = be_new(MOST_ROWS * n_out, 4),
          *got = be_new(MOST_ROWS * n_out, 4);
    float *bias = be_new(n_out, 4);
    struct matrix m[2];
    struct rows r = {.x = x, .y = be_f32(be, NULL, MOST_ROWS * n_out)};
    be_fill(x, n_x, 2), be_fill(bias, n_out, 1);
    for (int i = 0; i < 2; i++) {
        m[i] = matrix_make(block_type_of(f->type), f->n_out, f->n_in, false);
        r.w[i] = be_weight(be, f->type, n_out, f->n_in, m[i].packed);
    }
    r.bias = be_weight(be, QTYPE_F32, 1, n_out, bias);
    uint32_t most = be_quick || f->n_in > 1024 ? 65 : MOST_ROWS, at[SOME];
    int some = be_quick ? SOME_QUICK : SOME;
    for (int i = 0; i < some; i++) {
        at[i] = i ? be_below(most) : most - 1;
        multiply_rows(be, f, &r, at[i], 1, want + at[i] * n_out);
    }
    for (size_t b = 0; b < sizeof batches / sizeof batches[0] && batches[b] <= most; b++)
        for (int i = 0; i < some; i++) {
            uint32_t n = batches[b], first = at[i] < n ? 0 : at[i] - n + 1;
            if (i > 1 && n > 65) break;
            multiply_rows(be, f, &r, first, n, got);
            CHECK_MSG(memcmp(got + (at[i] - first) * n_out, want + at[i] * n_out, n_out * 4) == 0,
                      "%s (%u, %u)%s, row %u of %u: other bits than alone", qtype_name(f->type),
                      f->n_out, f->n_in, f->pair ? " pair" : "", at[i] - first, n);
        }
    for (int i = 0; i < 2; i++) {
        backend_weight_free(r.w[i]);
        matrix_free(&m[i]);
    }
    backend_weight_free(r.bias);
    backend_buf_free(r.y);
    free(bias), free(got), free(want), free(x);
}

/* The quick set has every third form from the second on. */
static void check_forms(const struct form *forms, size_t n) {
    backend *be = be_open_config(
        (struct backend_config){.name = "cuda", .max_rows = MOST_ROWS, .max_cols = MOST_COLS},
        "cuda");
    be_rng.state = 41;
    for (size_t i = be_quick; i < n; i += be_quick ? 3 : 1)
        check_form(be, &forms[i]);
    backend_close(be);
}

static void test_rows(void) {
    static const struct form forms[] = {
        {QTYPE_BF16, true, 257, 264},  {QTYPE_BF16, false, 272, 320}, {QTYPE_F16, false, 260, 296},
        {QTYPE_F16, true, 256, 256},   {QTYPE_Q8_0, true, 304, 352},  {QTYPE_Q6_K, false, 288, 512},
        {QTYPE_Q4_K, false, 259, 256}, {QTYPE_Q4_K, true, 272, 512}};
    check_forms(forms, sizeof forms / sizeof forms[0]);
}

/* Several K splits. */
static void test_long_rows(void) {
    static const struct form forms[] = {{QTYPE_BF16, false, 256, 8328},
                                        {QTYPE_Q4_K, false, 80, 8704},
                                        {QTYPE_Q6_K, true, 48, 8448}};
    check_forms(forms, sizeof forms / sizeof forms[0]);
}

static void run(void) {
    RUN(test_rows);
    RUN(test_long_rows);
}

int main(int argc, char **argv) {
    return device_main(argc, argv, "cuda", run);
}
