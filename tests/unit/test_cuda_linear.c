/* test_cuda_linear.c - matrix products of the CUDA backend: a row has the same bits whichever
 * kernel computes it and whatever else is in the batch; rows of several K splits against float64;
 * infinity and NaN propagate. If the backend is linked in (CUDA=standin), each kernel is forced;
 * otherwise the number of rows selects it. test_linear tests everything else of backend_linear. */
#include "core/backend/backend_int.h"
#include "tests/support/device_main.h"
#include "tests/support/matrix.h"

#ifdef INFERD_CUDA_STANDIN
#include "core/backend/cuda/gemm_int.h"
enum { N_WAYS = 3 };
static void force(backend *be, int path) {
    static const struct cuda_force ways[N_WAYS] = {
        {.path = CUDA_PATH_AUTO},
        {.path = CUDA_PATH_SKINNY, .block_tiles = 2, .n_stages = 3},
        {.path = CUDA_PATH_TILE}};
    cuda_of(be)->force = ways[path];
}
#else
enum { N_WAYS = 1 };
static void force(backend *be, int path) {
    (void)be, (void)path;
}
#endif

enum { MOST_ROWS = 70, MOST_COLS = 8704, MOST_OUTS = 1000 };

static backend *open_cuda(void) {
    return be_open_config(
        (struct backend_config){.name = "cuda", .max_rows = MOST_ROWS, .max_cols = MOST_COLS},
        "cuda");
}

/* One weight, or gate and up. */
struct product {
    uint32_t n_weights, n_out, n_in;
    struct matrix m[2];
    backend_weight *w[2], *norm; /* norm: NULL or of the input, whose rows then share a scale */
    backend_buf *y;
    float *x; /* (MOST_ROWS, n_in) */
};

static struct product product_new(backend *be, const int types[2], uint32_t n_weights,
                                  uint32_t n_out, uint32_t n_in) {
    struct product p = {.n_weights = n_weights, .n_out = n_out, .n_in = n_in};
    for (uint32_t i = 0; i < n_weights; i++) {
        p.m[i] = matrix_make(block_type_of(types[i]), n_out, n_in, false);
        p.w[i] = be_weight(be, types[i], n_out, n_in, p.m[i].packed);
    }
    p.x = be_new((uint64_t)MOST_ROWS * n_in, sizeof *p.x);
    be_fill(p.x, (uint64_t)MOST_ROWS * n_in, 2);
    p.y = be_f32(be, NULL, (uint64_t)MOST_ROWS * n_out);
    return p;
}

/* One weight of the norm is large beside the others. */
static void add_norm(backend *be, struct product *p) {
    float *norm = be_new(p->n_in, sizeof *norm);
    be_fill(norm, p->n_in, 1);
    norm[p->n_in / 2] = 300;
    p->norm = be_weight(be, QTYPE_F32, 1, p->n_in, norm);
    free(norm);
}

static void product_free(struct product *p) {
    if (p->norm) backend_weight_free(p->norm);
    for (uint32_t i = 0; i < p->n_weights; i++) {
        backend_weight_free(p->w[i]);
        matrix_free(&p->m[i]);
    }
    backend_buf_free(p->y);
    free(p->x);
}

/* Multiplies rows first .. first + n_rows - 1 as a separate batch; got: (n_rows, n_out). */
static void multiply_rows(backend *be, const struct product *p, uint32_t first, uint32_t n_rows,
                          float *got) {
    backend_buf *x = be_f32(be, p->x + (uint64_t)first * p->n_in, (uint64_t)n_rows * p->n_in);
    struct op_linear op = {.in = {.x = x, .norm = p->norm, .eps = 1e-5f},
                           .n_rows = n_rows,
                           .n_weights = p->n_weights,
                           .y = {p->y}};
    for (uint32_t i = 0; i < p->n_weights; i++)
        op.w[i] = p->w[i];
    if (p->n_weights == 2) op.act = BACKEND_ACT_SILU;
    CHECK(backend_linear(be, &op) == 0);
    be_get(be, p->y, got, (uint64_t)n_rows * p->n_out);
    backend_buf_free(x);
}

/* Batches of many sizes, by each path, against single rows. */
static void check_invariance(backend *be, const struct product *p, uint32_t n_rows) {
    static const uint32_t batches[] = {2, 7, 8, 9, 16, 17, 32, 33, 70};
    uint64_t n_out = p->n_out;
    float *want = be_new(MOST_ROWS * n_out, 4), *got = be_new(MOST_ROWS * n_out, 4);
    force(be, 0);
    for (uint32_t row = 0; row < n_rows; row++)
        multiply_rows(be, p, row, 1, want + row * n_out);
    for (int path = 0; path < N_WAYS; path++)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0] && batches[b] <= n_rows; b++) {
            uint32_t n = batches[b], first = be_below(n_rows - n + 1);
            if (path && b % 3 != (size_t)path) continue;
            force(be, path);
            multiply_rows(be, p, first, n, got);
            CHECK_MSG(memcmp(got, want + first * n_out, n * n_out * sizeof(float)) == 0,
                      "%s (%u, %u)%s, %u rows, path %d: other bits than a row alone",
                      qtype_name(p->m[0].type), p->n_out, p->n_in, p->n_weights == 2 ? " pair" : "",
                      n, path);
        }
    force(be, 0);
    free(want), free(got);
}

static void test_bits_of_every_type(void) {
    static const uint32_t n_outs[] = {17, 1, 100, 15, 33};
    backend *be = open_cuda();
    be_rng.state = 31;
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++) {
        int types[2] = {block_types[t].type, block_types[t].type};
        uint32_t elems = qtype_find(types[0])->block_elems;
        uint32_t n_in = elems == 1 ? 200 + 7 * t : elems == Q_ELEMS ? 352 : 768;
        struct product p = product_new(be, types, 1 + t % 2, n_outs[t % 5], n_in);
        if (t % 3 < 2) add_norm(be, &p);
        check_invariance(be, &p, MOST_ROWS);
        product_free(&p);
    }
    backend_close(be);
}

/* Enough outputs for several blocks per multiprocessor; gate and up of different formats. */
static void test_bits_of_shapes(void) {
    static const struct {
        int types[2];
        uint32_t n_weights, n_out, n_in;
    } shapes[] = {{{QTYPE_Q4_K, 0}, 1, MOST_OUTS, 256},
                  {{QTYPE_BF16, 0}, 1, MOST_OUTS, 72},
                  {{QTYPE_Q8_0, QTYPE_BF16}, 2, 40, 96},
                  {{QTYPE_F16, QTYPE_F32}, 2, 24, 96}};
    backend *be = open_cuda();
    be_rng.state = 32;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct product p =
            product_new(be, shapes[i].types, shapes[i].n_weights, shapes[i].n_out, shapes[i].n_in);
        if (i > 0) add_norm(be, &p);
        check_invariance(be, &p, 33);
        product_free(&p);
    }
    backend_close(be);
}

/* Weights with many and with few outputs over one input, as queries, keys and values have, or a
 * delta net's: batches that use several kernels, against single rows. */
struct several {
    uint32_t n, n_in;
    int types[BACKEND_LINEAR_MAX];
    uint32_t n_out[BACKEND_LINEAR_MAX];
};

static void run_several(backend *be, const struct several *s, backend_weight *const *w,
                        const float *x, uint32_t n_rows, float *got) {
    uint64_t at = 0;
    backend_buf *xb = be_f32(be, x, (uint64_t)n_rows * s->n_in);
    struct op_linear op = {.in.x = xb, .n_rows = n_rows, .n_weights = s->n};
    for (uint32_t i = 0; i < s->n; i++) {
        op.w[i] = w[i];
        op.y[i] = be_f32(be, NULL, (uint64_t)n_rows * s->n_out[i]);
    }
    CHECK(backend_linear(be, &op) == 0);
    for (uint32_t i = 0; i < s->n; at += (uint64_t)n_rows * s->n_out[i], i++) {
        be_get(be, op.y[i], got + at, (uint64_t)n_rows * s->n_out[i]);
        backend_buf_free(op.y[i]);
    }
    backend_buf_free(xb);
}

static void check_several(backend *be, const struct several *s) {
    static const uint32_t rows[] = {2, 11, 32, 33, MOST_ROWS};
    struct matrix m[BACKEND_LINEAR_MAX];
    backend_weight *w[BACKEND_LINEAR_MAX];
    uint64_t all = 0;
    for (uint32_t i = 0; i < s->n; all += s->n_out[i], i++) {
        m[i] = matrix_make(block_type_of(s->types[i]), s->n_out[i], s->n_in, false);
        w[i] = be_weight(be, s->types[i], s->n_out[i], s->n_in, m[i].packed);
    }
    float *x = be_new((uint64_t)MOST_ROWS * s->n_in, 4);
    float *alone = be_new(all, 4), *got = be_new(MOST_ROWS * all, 4);
    be_fill(x, (uint64_t)MOST_ROWS * s->n_in, 2);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const uint32_t n = rows[r], row = be_below(n);
        run_several(be, s, w, x, n, got);
        uint64_t from = 0;
        for (uint32_t i = 0; i < s->n; from += (uint64_t)n * s->n_out[i], i++) {
            const struct several one = {1, s->n_in, {s->types[i]}, {s->n_out[i]}};
            run_several(be, &one, &w[i], x + (uint64_t)row * s->n_in, 1, alone);
            CHECK_MSG(memcmp(got + from + (uint64_t)row * s->n_out[i], alone,
                             s->n_out[i] * sizeof *alone) == 0,
                      "%s: output %u of %u, row %u of %u: other bits than alone",
                      qtype_name(s->types[i]), i, s->n, row, n);
        }
    }
    for (uint32_t i = 0; i < s->n; i++) {
        backend_weight_free(w[i]);
        matrix_free(&m[i]);
    }
    free(got), free(alone), free(x);
}

static void test_several(void) {
    static const struct several cases[] = {
        {3, 72, {QTYPE_BF16, QTYPE_BF16, QTYPE_BF16}, {2064, 40, 33}},
        {3, 136, {QTYPE_F16, QTYPE_F16, QTYPE_F16}, {17, 2050, 64}},
        {4, 512, {QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q4_K}, {272, 130, 16, 9}},
        {4, 256, {QTYPE_Q6_K, QTYPE_Q4_K, QTYPE_F32, QTYPE_Q4_K}, {40, 272, 5, 33}},
        {4, 96, {QTYPE_F32, QTYPE_F32, QTYPE_F32, QTYPE_F32}, {33, 1, 6, 20}},
        {4, 256, {QTYPE_Q8_0, QTYPE_Q6_K, QTYPE_Q4_K, QTYPE_F16}, {33, 17, 64, 40}}};
    backend *be = open_cuda();
    be_rng.state = 37;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_several(be, &cases[i]);
    backend_close(be);
}

/* Two models on a device, whose products of one kernel want more and less shared memory. */
static void test_two_backends(void) {
    backend *be[2] = {open_cuda(), open_cuda()};
    struct product p[2];
    float *want = be_new(MOST_OUTS, 4), *got = be_new(MOST_OUTS, 4);
    be_rng.state = 38;
    for (int i = 0; i < 2; i++)
        p[i] = product_new(be[i], (const int[]){QTYPE_Q8_0, 0}, 1, i ? 100 : MOST_OUTS, 768);
    multiply_rows(be[0], &p[0], 0, 1, want);
    multiply_rows(be[1], &p[1], 0, 1, got);
    multiply_rows(be[0], &p[0], 0, 1, got);
    CHECK(memcmp(got, want, MOST_OUTS * sizeof *got) == 0);
    for (int i = 0; i < 2; i++) {
        product_free(&p[i]);
        backend_close(be[i]);
    }
    free(want), free(got);
}

/* More columns than one K split. */
static void check_splits(backend *be, int type, uint32_t n_weights, uint32_t n_in) {
    struct product p = product_new(be, (const int[]){type, type}, n_weights, 24, n_in);
    float got[3 * 24];
    check_invariance(be, &p, 9);
    multiply_rows(be, &p, 0, 3, got);
    for (uint32_t i = 0; n_weights == 1 && i < 3 * 24; i++) {
        double sum = 0, all = 0;
        for (uint32_t c = 0; c < n_in; c++) {
            double v = (double)p.m[0].values[(uint64_t)(i % 24) * n_in + c] *
                       (double)p.x[(uint64_t)(i / 24) * n_in + c];
            sum += v, all += fabs(v);
        }
        double most = (be_rounding(be, type) + 1e-6) * all;
        CHECK_MSG(fabs((double)got[i] - sum) <= most, "%s: %g, not %g", qtype_name(type),
                  (double)got[i], sum);
    }
    product_free(&p);
}

static void test_splits(void) {
    backend *be = open_cuda();
    be_rng.state = 33;
    check_splits(be, QTYPE_Q4_K, 1, 8448);
    check_splits(be, QTYPE_Q6_K, 2, 8448);
    check_splits(be, QTYPE_BF16, 1, 8200);
    check_splits(be, QTYPE_F16, 2, 8200);
    backend_close(be);
}

/* A row with an infinity or a NaN shows it in every output; its neighbours do not change. */
static void test_not_finite(void) {
    static const int all[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_Q4_K, QTYPE_Q8_0};
    backend *be = open_cuda();
    be_rng.state = 34;
    for (size_t t = 0; t < sizeof all / sizeof all[0]; t++)
        for (uint32_t n_rows = 3; n_rows <= 40; n_rows += 37) {
            struct product p = product_new(be, (const int[]){all[t], 0}, 1, 20, 512);
            if (n_rows == 3) add_norm(be, &p);
            float *want = be_new(MOST_ROWS * 20, 4), *got = be_new(MOST_ROWS * 20, 4);
            multiply_rows(be, &p, 0, n_rows, want);
            p.x[512 + 77] = INFINITY, p.x[2 * 512 + 500] = NAN;
            multiply_rows(be, &p, 0, n_rows, got);
            for (uint32_t i = 0; i < n_rows * 20; i++)
                if (i / 20 == 1 || i / 20 == 2)
                    CHECK(!isfinite(got[i]));
                else
                    CHECK(memcmp(&got[i], &want[i], 4) == 0);
            free(want), free(got);
            product_free(&p);
        }
    backend_close(be);
}

/* BF16 weights are exact down to 2^-32 of the largest; below that, off by 2^-40 of it. */
static void check_spread(backend *be, const struct product *p, double largest) {
    uint32_t n_out = p->n_out, n_in = p->n_in;
    float *got = be_new((uint64_t)MOST_ROWS * n_out, 4);
    multiply_rows(be, p, 0, MOST_ROWS,
                  got); /* row r: column r of the weights; the last four: sums */
    for (uint32_t r = 0; r < MOST_ROWS; r++)
        for (uint32_t o = 0; o < n_out; o++) {
            const float *w = p->m[0].values + (uint64_t)o * n_in, *x = p->x + (uint64_t)r * n_in;
            double sum = 0, all = 0, inputs = 0, is = (double)got[(uint64_t)r * n_out + o];
            for (uint32_t c = 0; c < n_in; c++) {
                double v = (double)w[c] * (double)x[c];
                sum += v, all += fabs(v), inputs += fabs((double)x[c]);
            }
            bool exact = r < MOST_ROWS - 4 && fabs(sum) >= 0x1p-32 * largest;
            double most = exact               ? 0
                          : r < MOST_ROWS - 4 ? 0x1p-40 * largest
                                              : (0x1p-11 + 1e-6) * all + 0x1p-40 * largest * inputs;
            CHECK_MSG(fabs(is - sum) <= most, "row %u, output %u: %.9g, not %.9g", r, o, is, sum);
        }
    free(got);
}

static void test_spread(void) {
    enum { N_OUT = 40, N_IN = 96 };
    backend *be = open_cuda();
    be_rng.state = 35;
    struct product p = product_new(be, (const int[]){QTYPE_BF16, 0}, 1, N_OUT, N_IN);
    uint16_t *packed = be_new(N_OUT * N_IN, sizeof *packed);
    double largest = 0;
    for (uint32_t i = 0; i < N_OUT * N_IN; i++) { /* 2^-30 .. 2^3, the whole range in each row */
        uint32_t exponent = 127 - 30 + be_below(34);
        packed[i] = (uint16_t)(be_below(2) << 15 | exponent << 7 | be_below(128));
        p.m[0].values[i] = bf16_to_f32(packed[i]);
        largest = fmax(largest, fabs((double)p.m[0].values[i]));
    }
    backend_weight_free(p.w[0]);
    p.w[0] = be_weight(be, QTYPE_BF16, N_OUT, N_IN, packed);
    for (uint32_t i = 0; i < (MOST_ROWS - 4) * N_IN; i++)
        p.x[i] = i / N_IN == i % N_IN;
    for (int path = 0; path < N_WAYS; path++) {
        force(be, path);
        check_spread(be, &p, largest);
    }
    force(be, 0);
    check_invariance(be, &p, MOST_ROWS);
    free(packed);
    product_free(&p);
    backend_close(be);
}

/* A norm's largest weight far above the others, rows of very different sizes: as in float64. */
static void test_norm(void) {
    enum { N_OUT = 20, N_IN = 520, N_ROWS = 12 };
    static const int all[] = {QTYPE_BF16, QTYPE_F16};
    backend *be = open_cuda();
    be_rng.state = 36;
    for (int t = 0; t < 2; t++) {
        struct product p = product_new(be, (const int[]){all[t], 0}, 1, N_OUT, N_IN);
        float norm[N_IN], got[N_ROWS * N_OUT];
        be_fill(norm, N_IN, 1);
        norm[3] = -3000;
        p.norm = be_weight(be, QTYPE_F32, 1, N_IN, norm);
        for (uint32_t i = 0; i < N_ROWS * N_IN; i++) /* the last row is one value alone */
            p.x[i] = i / N_IN == N_ROWS - 1 ? (i % N_IN == 3 ? 77.0f : 0)
                                            : ldexpf(p.x[i], 5 * (int)(i / N_IN) - 20);
        multiply_rows(be, &p, 0, N_ROWS, got);
        for (uint32_t r = 0; r < N_ROWS; r++) {
            const float *x = p.x + (uint64_t)r * N_IN;
            double squares = 0;
            for (uint32_t c = 0; c < N_IN; c++)
                squares += (double)x[c] * (double)x[c];
            double rms = sqrt(squares / N_IN + (double)1e-5f);
            for (uint32_t o = 0; o < N_OUT; o++) {
                double sum = 0, all_terms = 0, is = (double)got[r * N_OUT + o];
                for (uint32_t c = 0; c < N_IN; c++) {
                    double v = (double)x[c] / rms * (double)norm[c] *
                               (double)p.m[0].values[(uint64_t)o * N_IN + c];
                    sum += v, all_terms += fabs(v);
                }
                CHECK_MSG(fabs(is - sum) <= (0x1p-11 + 1e-6) * all_terms, "row %u: %g, not %g", r,
                          is, sum);
            }
        }
        product_free(&p);
    }
    backend_close(be);
}

static void run(void) {
    RUN(test_bits_of_every_type);
    RUN(test_bits_of_shapes);
    RUN(test_several);
    RUN(test_two_backends);
    RUN(test_splits);
    RUN(test_not_finite);
    RUN(test_spread);
    RUN(test_norm);
}

int main(int argc, char **argv) {
    return device_main(argc, argv, "cuda", run);
}
