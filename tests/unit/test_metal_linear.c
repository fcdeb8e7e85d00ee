/* test_metal_linear.c - matrix products on the Metal device: a row has the same bits in every
 * kernel family and batch; errors against float64 for every type; dispatches of ops with several
 * weights. Everything else about backend_linear is in test_linear. Skipped in a build without
 * Metal. */
#include "tests/support/device_main.h"
#include "tests/support/matrix.h"

#ifdef INFERD_METAL
#include "tests/support/metal_families.h"
#if !defined(__APPLE__) && __has_include("tests/metal/standin/runtime/msl_traffic.h")
#include "tests/metal/standin/runtime/msl_traffic.h"
#define HAS_METER
#endif

enum { MAX_ROWS = 70, MAX_COLS = 1024 };

static backend *open_metal(void) {
    return be_open_metal((struct backend_config){.max_rows = MAX_ROWS, .max_cols = MAX_COLS});
}

static uint64_t products(const backend *be) {
    return be_dispatches(be, "linear_vector") + be_dispatches(be, "linear_matrix") +
           be_dispatches(be, "linear_plain");
}

/* The weights of an op and its input. */
struct product {
    uint32_t n_weights, n_rows;
    struct matrix m[BACKEND_LINEAR_MAX];
    float *bias[BACKEND_LINEAR_MAX], *x; /* (n_out), (MAX_ROWS, n_in) */
    backend_buf *xb, *yb[BACKEND_LINEAR_MAX];
    backend_weight *w[BACKEND_LINEAR_MAX], *b[BACKEND_LINEAR_MAX];
    struct op_linear op;
};

static struct product *product_new(backend *be, uint32_t n_weights, const int *types,
                                   const uint32_t *n_outs, uint32_t n_in) {
    struct product *p = be_new(1, sizeof *p);
    p->n_weights = n_weights;
    p->x = be_new((uint64_t)MAX_ROWS * n_in, sizeof *p->x);
    be_fill(p->x, (uint64_t)MAX_ROWS * n_in, 2);
    p->xb = be_f32(be, p->x, (uint64_t)MAX_ROWS * n_in);
    p->op = (struct op_linear){.in.x = p->xb, .n_weights = n_weights};
    for (uint32_t i = 0; i < n_weights; i++) {
        p->m[i] = matrix_make(block_type_of(types[i]), n_outs[i], n_in, i & 1);
        p->bias[i] = be_new(n_outs[i], sizeof *p->bias[i]);
        be_fill(p->bias[i], n_outs[i], 1);
        p->yb[i] = be_f32(be, NULL, (uint64_t)MAX_ROWS * n_outs[i]);
        p->w[i] = be_weight(be, types[i], n_outs[i], n_in, p->m[i].packed);
        p->b[i] = be_weight(be, QTYPE_F32, 1, n_outs[i], p->bias[i]);
        p->op.w[i] = p->w[i], p->op.y[i] = p->yb[i];
    }
    return p;
}

static void product_free(struct product *p) {
    for (uint32_t i = 0; i < p->n_weights; i++) {
        matrix_free(&p->m[i]);
        free(p->bias[i]);
        backend_weight_free(p->w[i]), backend_weight_free(p->b[i]);
        backend_buf_free(p->yb[i]);
    }
    backend_buf_free(p->xb);
    free(p->x);
    free(p);
}

/* Computes rows first .. first + n_rows - 1 of p->x as a batch of their own; got[i] (.., n_out):
 * results of weight i. */
static void run(backend *be, struct product *p, uint32_t first, uint32_t n_rows, float **got) {
    uint64_t n_in = p->m[0].n_in;
    backend_buf *x = be_f32(be, p->x + first * n_in, n_rows * n_in);
    p->op.in.x = x, p->op.n_rows = n_rows;
    CHECK(backend_linear(be, &p->op) == 0);
    for (uint32_t i = 0; i < (p->op.act ? 1 : p->n_weights); i++)
        be_get(be, p->yb[i], got[i] + (uint64_t)first * p->m[i].n_out,
               (uint64_t)n_rows * p->m[i].n_out);
    backend_buf_free(x);
}

/* ---- one order in all families ---- */

/* Compares batches of many sizes in each family with rows computed alone. */
static void check_families(backend *be, struct product *p, uint32_t n_rows) {
    static const uint32_t batches[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 33, 70};
    const enum metal_tiles found = backend_metal_tiles(be);
    const uint32_t n_results = p->op.act ? 1 : p->n_weights;
    float *want[BACKEND_LINEAR_MAX] = {0}, *got[BACKEND_LINEAR_MAX] = {0};
    for (uint32_t i = 0; i < p->n_weights; i++)
        want[i] = be_new((uint64_t)MAX_ROWS * p->m[i].n_out, 4),
        got[i] = be_new((uint64_t)MAX_ROWS * p->m[i].n_out, 4);
    metal_force(be, &metal_families[0]);
    for (uint32_t row = 0; row < n_rows; row++)
        run(be, p, row, 1, want);
    for (uint32_t f = 0; f < metal_n_families(found); f++)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0] && batches[b] <= n_rows; b++) {
            uint32_t n = batches[b], first = be_below(n_rows - n + 1);
            metal_force(be, &metal_families[f]);
            run(be, p, first, n, got);
            for (uint32_t i = 0; i < n_results; i++) {
                uint64_t n_out = p->m[i].n_out, at = first * n_out;
                CHECK_MSG(memcmp(got[i] + at, want[i] + at, n * n_out * sizeof(float)) == 0,
                          "%s (%u, %u), %u rows, family %u: bits differ from a row alone",
                          qtype_name(p->m[i].type), p->m[i].n_out, p->m[i].n_in, n, f);
            }
        }
    metal_unforce(be, found);
    for (uint32_t i = 0; i < p->n_weights; i++)
        free(want[i]), free(got[i]);
}

/* Each type: many rows with few columns and outputs, few rows with more of both. */
static void test_families(void) {
    static const uint32_t n_outs[2][5] = {{33, 1, 31, 3, 8}, {67, 31, 66, 1, 33}};
    static const uint32_t floats[] = {100, 7, 1, 328}, blocks[] = {96, 352}, supers[] = {256, 512};
    backend *be = open_metal();
    be_rng.state = 5;
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++) {
        int type = block_types[t].type;
        uint32_t elems = qtype_find(type)->block_elems;
        for (uint32_t k = 0; k < (elems == 1 ? 4 : 2); k++) {
            uint32_t n_in = elems == 1 ? floats[k] : elems == Q_ELEMS ? blocks[k] : supers[k];
            struct product *p = product_new(be, 1, &type, &n_outs[k % 2][(t + k) % 5], n_in);
            check_families(be, p, k == 0 ? MAX_ROWS : 12);
            product_free(p);
        }
    }
    backend_close(be);
}

/* ---- against float64 ---- */

/* Largest |error| / (sum of |w| |x|) of one weight's products. */
static double worst_error(const struct matrix *m, const float *x, const float *got,
                          uint32_t n_rows) {
    double worst = 0;
    for (uint32_t row = 0; row < n_rows; row++)
        for (uint32_t o = 0; o < m->n_out; o++) {
            double sum = 0, all = 0;
            for (uint32_t c = 0; c < m->n_in; c++) {
                double v = (double)m->values[(uint64_t)o * m->n_in + c] *
                           (double)x[(uint64_t)row * m->n_in + c];
                sum += v, all += fabs(v);
            }
            double e = fabs((double)got[(uint64_t)row * m->n_out + o] - sum);
            CHECK(isfinite(e));
            if (all > 0) worst = fmax(worst, e / all);
        }
    return worst;
}

/* f32 sums of exactly decoded weights: eight sums of at most n_in / 8 roundings each, only some of
 * which have the same sign. */
static void test_error(void) {
    enum { OUTS = 33, ROWS = 12 };
    backend *be = open_metal();
    float *got = be_new(ROWS * OUTS, 4);
    be_rng.state = 6;
    printf("  type    n_in  max |error| / sum |w||x|: 1 row, %d rows\n", ROWS);
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++) {
        int type = block_types[t].type;
        struct product *p = product_new(be, 1, &type, &(uint32_t){OUTS}, 1024);
        run(be, p, 0, 1, &got);
        double one = worst_error(&p->m[0], p->x, got, 1);
        run(be, p, 0, ROWS, &got);
        double many = worst_error(&p->m[0], p->x, got, ROWS);
        printf("  %-7s %4d  %.2g  %.2g\n", qtype_name(type), 1024, one, many);
        CHECK(one < 1e-6 && many < 1e-6);
        product_free(p);
    }
    free(got);
    backend_close(be);
}

/* ---- several weights ---- */

static double act_of(enum backend_act act, double g, double u) {
    if (act == BACKEND_ACT_SILU) return g / (1 + exp(-g)) * u;
    if (act == BACKEND_ACT_GELU_TANH)
        return g / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g))) * u;
    if (act == BACKEND_ACT_GELU) return g / 2 * erfc(-g / sqrt(2)) * u;
    g = fmin(g, 7), u = fmax(fmin(u, 7), -7);
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

/* The product of weight i for one row and output, including the bias. */
static double exact(const struct product *p, uint32_t i, uint32_t row, uint32_t o) {
    const struct matrix *m = &p->m[i];
    double sum = p->op.bias[i] ? (double)p->bias[i][o] : 0;
    for (uint32_t c = 0; c < m->n_in; c++)
        sum += (double)m->values[(uint64_t)o * m->n_in + c] *
               (double)p->x[(uint64_t)row * m->n_in + c];
    return sum;
}

/* The sum of the magnitudes of its terms: products are within 1e-6 of it (test_error). */
static double magnitude(const struct product *p, uint32_t i, uint32_t row, uint32_t o) {
    const struct matrix *m = &p->m[i];
    double all = 0;
    for (uint32_t c = 0; c < m->n_in; c++)
        all += fabs((double)m->values[(uint64_t)o * m->n_in + c] *
                    (double)p->x[(uint64_t)row * m->n_in + c]);
    return all;
}

static void check_values(const struct product *p, uint32_t n_rows, float *const *got) {
    const struct op_linear *op = &p->op;
    double k = op->y_scale != 0 ? (double)op->y_scale : 1;
    for (uint32_t i = 0; i < (op->act ? 1 : p->n_weights); i++)
        for (uint32_t row = 0; row < n_rows; row++)
            for (uint32_t o = 0; o < p->m[i].n_out; o++) {
                double want = exact(p, i, row, o) * k, most = 2e-4, slack = 0;
                if (op->act) {
                    const double gate = want, up = exact(p, 1, row, o);
                    want = act_of(op->act, gate, up);
                    slack = 1e-6 * (magnitude(p, 0, row, o) * fabs(up) +
                                    magnitude(p, 1, row, o) * fabs(gate));
                }
                if (op->softcap != 0) want = (double)op->softcap * tanh(want / (double)op->softcap);
                double v = (double)got[i][(uint64_t)row * p->m[i].n_out + o];
                CHECK_MSG(fabs(v - want) <= most * (1 + fabs(want)) + slack, "act %d: %g, not %g",
                          (int)op->act, v, want);
            }
}

/* n weights of these types in every family, all with a bias except the second; also counts the
 * dispatches of the op. */
static void check_op(backend *be, uint32_t n, const int *types, const uint32_t *n_outs,
                     enum backend_act act, float cap, uint64_t n_dispatches) {
    struct product *p = product_new(be, n, types, n_outs, 256);
    float *got[BACKEND_LINEAR_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        got[i] = be_new((uint64_t)MAX_ROWS * n_outs[i], 4);
        if (i != 1) p->op.bias[i] = p->b[i];
    }
    p->op.act = act, p->op.softcap = cap, p->op.y_scale = cap != 0 ? 0.25f : 0;
    const enum metal_tiles found = backend_metal_tiles(be);
    for (uint32_t f = 0; f < metal_n_families(found); f++)
        for (uint32_t rows = 1; rows <= 11; rows += 10) {
            metal_force(be, &metal_families[f]);
            uint64_t before = products(be);
            run(be, p, 0, rows, got);
            CHECK(products(be) - before == n_dispatches);
            check_values(p, rows, got);
        }
    metal_unforce(be, found);
    check_families(be, p, 17);
    for (uint32_t i = 0; i < n; i++)
        free(got[i]);
    product_free(p);
}

static void test_weights(void) {
    const int same[] = {QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q4_K};
    const int four[] = {QTYPE_Q6_K, QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q4_K};
    const int v_other[] = {QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q6_K};
    const int k_other[] = {QTYPE_Q8_0, QTYPE_F16, QTYPE_Q8_0};
    const int all_other[] = {QTYPE_Q5_K, QTYPE_BF16, QTYPE_MXFP4};
    backend *be = open_metal();
    be_rng.state = 7;
    check_op(be, 3, same, (uint32_t[]){67, 33, 31}, BACKEND_ACT_NONE, 0, 1);
    check_op(be, 3, v_other, (uint32_t[]){33, 3, 67}, BACKEND_ACT_NONE, 30, 2);
    check_op(be, 3, k_other, (uint32_t[]){1, 33, 40}, BACKEND_ACT_NONE, 0, 2);
    check_op(be, 3, all_other, (uint32_t[]){8, 9, 10}, BACKEND_ACT_NONE, 0, 3);
    check_op(be, 4, four, (uint32_t[]){33, 67, 1, 9}, BACKEND_ACT_NONE, 0, 2);
    check_op(be, 4, same, (uint32_t[]){33, 67, 1, 9}, BACKEND_ACT_NONE, 0, 2);
    check_op(be, 2, same, (uint32_t[]){7, 64}, BACKEND_ACT_NONE, 0, 1);
    check_op(be, 2, same, (uint32_t[]){67, 67}, BACKEND_ACT_SILU, 0, 1);
    check_op(be, 2, k_other, (uint32_t[]){33, 33}, BACKEND_ACT_GELU_TANH, 0, 1);
    check_op(be, 2, k_other + 1, (uint32_t[]){33, 33}, BACKEND_ACT_GELU_TANH, 0, 1);
    check_op(be, 2, all_other, (uint32_t[]){5, 5}, BACKEND_ACT_SWIGLU_OAI, 0, 1);
    backend_close(be);
}

/* The op's traffic counters: the bytes of its arrays, each weight once. */
static void test_counted_bytes(void) {
    backend *be = open_metal();
    struct product *p =
        product_new(be, 2, (const int[]){QTYPE_Q4_K, QTYPE_Q4_K}, (const uint32_t[]){33, 67}, 512);
    float *got[] = {be_new(8 * 33, 4), be_new(8 * 67, 4)};
    for (uint32_t rows = 1; rows <= 8; rows += 7) {
        uint64_t before[2], after[2];
        for (uint32_t i = 0; i < backend_n_kernels(be); i++)
            if (strcmp(backend_kernel_name(be, i), "linear_vector") == 0) {
                backend_kernel_traffic(be, i, &before[0], &before[1]);
                run(be, p, 0, rows, got);
                backend_kernel_traffic(be, i, &after[0], &after[1]);
                CHECK(after[0] - before[0] == 100 * 2 * 144 + rows * 512 * sizeof(float));
                CHECK(after[1] - before[1] == rows * 100 * sizeof(float));
            }
    }
    free(got[0]), free(got[1]);
    product_free(p);
    backend_close(be);
}

#ifdef HAS_METER
/* Weight bytes that one row and eight rows load, by the stand-in's traffic meter (check mode only):
 * each byte once, almost none twice. */
static void test_weights_read_once(void) {
    enum { OUTS = 64 };
    backend *be = open_metal();
    float *got = be_new((uint64_t)MAX_ROWS * OUTS, 4);
    const uint32_t rows[] = {1, 8};
    printf("  type    bytes loaded / size of the weight: 1 row, 8 rows\n");
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++) {
        int type = block_types[t].type;
        struct product *p = product_new(be, 1, &type, &(uint32_t){OUTS}, 1024);
        double ratio[2];
        uint64_t size = 0;
        qtype_bytes(type, OUTS, 1024, &size);
        for (int k = 0; k < 2; k++) {
            struct metalsim_argument a;
            uint64_t read = 0, once = 0;
            metalsim_traffic_reset();
            run(be, p, 0, rows[k], &got);
            metalsim_traffic_stop();
            for (uint32_t i = 0; metalsim_traffic_argument(i, &a) == 0; i++)
                if (strcmp(a.name, "w0") == 0) read += a.bytes.read, once += a.bytes.read_once;
            ratio[k] = (double)read / (double)size;
            if (!read) continue; /* plain mode */
            CHECK(once == size);
            CHECK_MSG(ratio[k] <= 1.02, "%s, %u rows: %.3f", qtype_name(type), rows[k], ratio[k]);
        }
        printf("  %-7s %.3f  %.3f\n", qtype_name(type), ratio[0], ratio[1]);
        product_free(p);
    }
    free(got);
    backend_close(be);
}
#endif

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_error);
    RUN(test_families);
    RUN(test_weights);
    RUN(test_counted_bytes);
#ifdef HAS_METER
    RUN(test_weights_read_once);
#endif
    return check_done();
}
#else
DEVICE_MAIN_SKIPS("metal", "this build has no Metal backend")
#endif
