/* test_metal_moe.c - mixtures of experts on the Metal device, beyond test_moe.c: the largest number
 * of experts, each gating, all rows routed to one expert, ties, NaN rows, the same bits from both
 * kernel families, dispatches and traffic. Prints an error table. Skipped in a build without Metal.
 */
#include "tests/support/device_main.h"
#include "tests/support/moe64.h"

#ifdef INFERD_METAL

#include "tests/support/metal_families.h"

enum { MAX_ROWS = 80, MAX_COLS = 512 };

static backend *open_metal(uint32_t n_experts, uint32_t n_used) {
    struct backend_config config = {
        .max_rows = MAX_ROWS, .max_cols = MAX_COLS, .moe = {n_experts, n_used, MAX_COLS}};
    return be_open_metal(config);
}

static struct moe_case plain_case(const struct block_type *t, uint32_t n_rows) {
    uint32_t cols = qtype_find(t->type)->block_elems == QK_ELEMS ? 256 : 96;
    return (struct moe_case){.router = block_type_of(QTYPE_F32),
                             .gate = t,
                             .up = t,
                             .down = t,
                             .n_experts = 6,
                             .n_used = 2,
                             .n_in = cols,
                             .n_ff = cols,
                             .n_rows = n_rows,
                             .bits = 16,
                             .act = BACKEND_ACT_SILU,
                             .share = MOE_SHARED_GATED,
                             .renormalize = true};
}

/* ---- against float64 ---- */

/* Each type with one row, with a few rows that share experts, and with many. */
static void test_every_type(void) {
    static const uint32_t rows[] = {1, 9, 70};
    be_rng.state = 31;
    printf("  largest error, of the largest value of its row, at 1, 9 and 70 rows\n");
    for (int t = 0; t < N_BLOCK_TYPES; t++) {
        backend *be = open_metal(6, 2);
        printf("  %-8s", qtype_name(block_types[t].type));
        /* quick: many rows of some types; test_families compares the others with few rows */
        for (int i = 0; i < (be_quick && t % 4 ? 2 : 3); i++) {
            struct moe_case c = plain_case(&block_types[t], rows[i]);
            c.act = BACKEND_ACT_SILU + (enum backend_act)i;
            c.biases = i & 1;
            printf(" %.2e", moe_check_case(be, &c));
        }
        printf("\n");
        backend_close(be);
    }
}

/* Odd widths. */
static void test_odd_sizes(void) {
    static const uint32_t sizes[][2] = {{1, 1}, {3, 19}, {99, 7}, {257, 33}, {31, 511}, {511, 65}};
    static const int types[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16};
    be_rng.state = 32;
    for (int i = 0; i < 6; i++) {
        backend *be = open_metal(7, 3);
        struct moe_case c = plain_case(block_type_of(types[i % 3]), i & 1 ? 67 : 5);
        c.n_in = sizes[i][0], c.n_ff = sizes[i][1];
        c.n_experts = 7, c.n_used = 3, c.biases = true;
        c.share = (enum moe_share)(i % 3);
        moe_check_case(be, &c);
        backend_close(be);
    }
}

/* The largest number of experts, a number that is not a multiple of 32, and all experts used. */
static void test_many_experts(void) {
    static const uint32_t experts[][2] = {{1024, 8}, {1000, 3}, {257, 257}, {1, 1}};
    be_rng.state = 33;
    for (int i = 0; i < 4; i++) {
        backend *be = open_metal(experts[i][0], experts[i][1]);
        for (int many = 0; many < 2; many++) {
            struct moe_case c = plain_case(block_type_of(QTYPE_F32), many ? 11 : 1);
            c.n_experts = experts[i][0], c.n_used = experts[i][1];
            c.n_in = 24, c.n_ff = 9, c.renormalize = i & 1, c.weight_scale = 2.5f;
            moe_check_case(be, &c);
        }
        backend_close(be);
    }
}

/* Each gating with and without a bias for the choice, renormalized or not. */
static void test_gating(void) {
    be_rng.state = 35;
    for (int i = 0; i < 8; i++) {
        backend *be = open_metal(37, 4);
        struct moe_case c = plain_case(block_type_of(QTYPE_F32), i & 1 ? 1 : 13);
        c.n_experts = 37, c.n_used = 4, c.n_in = 24, c.n_ff = 9;
        c.gating = i & 2 ? BACKEND_GATING_SIGMOID : BACKEND_GATING_SOFTMAX;
        c.choice_bias = i & 4;
        for (int renormalize = 0; renormalize < 2; renormalize++) {
            c.renormalize = renormalize;
            moe_check_case(be, &c);
        }
        backend_close(be);
    }
}

/* The sparse mixer, and weights that scale the experts' inputs. */
static void test_mixer(void) {
    be_rng.state = 36;
    for (int i = 0; i < 8; i++) {
        backend *be = open_metal(37, 4);
        struct moe_case c = plain_case(block_type_of(QTYPE_F32), i & 1 ? 1 : 13);
        c.n_experts = 37, c.n_used = 1 + (uint32_t)i % 3, c.n_in = 24, c.n_ff = 9;
        c.renormalize = false;
        if (i & 2) c.gating = BACKEND_GATING_MIXER, c.mixer_limit = i & 4 ? 0.02f : 0.4f;
        c.weighs_input = i % 4 != 3;
        moe_check_case(be, &c);
        backend_close(be);
    }
}

/* Compares the rows of a layer with float64. */
static void check_rows(backend *be, struct moe_layer *l) {
    struct moe_way w = moe_way_new(l);
    w.top = w.top_in = 0;
    moe_draw_rows(&w, l);
    struct moe_placed p = moe_place(be, l);
    float *y = be_new((uint64_t)l->c.n_rows * l->c.n_in, sizeof *y);
    moe_run_rows(be, &p, l, NULL, l->c.n_rows, y);
    for (uint32_t row = 0; row < l->c.n_rows; row++) {
        w.x = l->x + (uint64_t)row * l->c.n_in;
        CHECK(moe_choose(&w));
        CHECK(moe_compare_row(&w, row, y + (uint64_t)row * l->c.n_in) <= 1);
    }
    free(y);
    moe_placed_free(&p);
    moe_way_free(&w);
}

/* All rows are routed to one expert, the first, the last or one between: many tiles of that expert,
 * none of the others. */
static void test_all_rows_to_one_expert(void) {
    static const uint32_t favourites[] = {0, 3, 5};
    be_rng.state = 34;
    for (int i = 0; i < 3; i++) {
        backend *be = open_metal(6, 2);
        struct moe_case c = plain_case(block_type_of(QTYPE_F16), 77);
        c.n_used = 1 + (uint32_t)i % 2, c.biases = true, c.n_in = 40, c.n_ff = 24;
        struct moe_layer l = moe_layer_new(&c);
        l.router_bias[favourites[i]] = 40;
        check_rows(be, &l);
        moe_layer_free(&l);
        backend_close(be);
    }
}

/* ---- routing ---- */

/* Each expert e outputs its own number, 2^-e in column 0 of down's bias. Of equal scores the lowest
 * experts are selected. All other scores are lower, or NaN. */
static void test_ties_and_nan(void) {
    enum { EXPERTS = 40, IN = 8, USED = 5 };
    backend *be = open_metal(EXPERTS, USED);
    struct moe_case c = plain_case(block_type_of(QTYPE_F32), 2);
    c.n_experts = EXPERTS, c.n_used = USED, c.n_in = IN, c.n_ff = IN, c.biases = true;
    c.share = MOE_NOTHING_SHARED;
    struct moe_layer l = moe_layer_new(&c);
    memset(l.router.packed, 0, EXPERTS * IN * sizeof(float));
    memset(l.down.packed, 0, (uint64_t)EXPERTS * IN * IN * sizeof(float));
    for (uint32_t e = 0; e < EXPERTS; e++) {
        l.router_bias[e] = e < 7 ? -1 : e == 8 ? NAN : e < 12 ? 1 : e == 33 || e > 35 ? 1 : 0.5f;
        for (uint32_t o = 0; o < IN; o++)
            l.down_bias[e * IN + o] = ldexpf(1, -(int)e);
    }
    struct moe_placed p = moe_place(be, &l);
    float y[2 * IN];
    moe_run_rows(be, &p, &l, NULL, 2, y); /* 7, 9, 10, 11 and 33 */
    double want = (ldexp(1, -7) + ldexp(1, -9) + ldexp(1, -10) + ldexp(1, -11) + ldexp(1, -33)) / 5;
    for (int i = 0; i < 2 * IN; i++)
        CHECK_MSG(fabs(y[i] - want) <= 1e-6 * want, "%.9g, not %.9g", (double)y[i], want);
    moe_placed_free(&p);
    moe_layer_free(&l);
    backend_close(be);
}

/* An op leaves no state that affects a later op with fewer rows. */
static void test_fewer_rows_follow(void) {
    enum { ROWS = 9 };
    be_rng.state = 37;
    backend *be = open_metal(6, 2);
    struct moe_case c = plain_case(block_type_of(QTYPE_Q8_0), ROWS);
    struct moe_layer l = moe_layer_new(&c);
    struct moe_placed p = moe_place(be, &l);
    static float all[ROWS * MAX_COLS], y[ROWS * MAX_COLS];
    moe_run_rows(be, &p, &l, NULL, ROWS, all);
    for (uint32_t n = ROWS - 1; n > 0; n--) {
        moe_run_rows(be, &p, &l, NULL, n, y);
        CHECK_MSG(memcmp(y, all, (uint64_t)n * c.n_in * sizeof *y) == 0, "%u rows", n);
    }
    moe_placed_free(&p);
    moe_layer_free(&l);
    backend_close(be);
}

/* A NaN row does not change the bits of the others. */
static void test_nan_stays_in_its_row(void) {
    enum { ROWS = 12 };
    be_rng.state = 35;
    backend *be = open_metal(6, 2);
    struct moe_case c = plain_case(block_type_of(QTYPE_Q4_K), ROWS);
    struct moe_layer l = moe_layer_new(&c);
    struct moe_placed p = moe_place(be, &l);
    float want[ROWS * 256], got[ROWS * 256];
    be_fill(l.x, ROWS * 256, 1);
    moe_run_rows(be, &p, &l, NULL, ROWS, want);
    for (uint32_t i = 0; i < 256; i++)
        l.x[4 * 256 + i] = i % 3 ? NAN : INFINITY;
    moe_run_rows(be, &p, &l, NULL, ROWS, got);
    for (uint32_t row = 0; row < ROWS; row++) {
        if (row == 4)
            CHECK(isnan(got[row * 256 + 11]));
        else
            CHECK(memcmp(got + row * 256, want + row * 256, 256 * sizeof *got) == 0);
    }
    moe_placed_free(&p);
    moe_layer_free(&l);
    backend_close(be);
}

/* ---- families ---- */

/* The bits of a row do not depend on the kernel family or on how many rows share an expert, from 1
 * to more than a tile. */
static void check_families(const struct moe_case *c) {
    backend *be = open_metal(c->n_experts, c->n_used);
    const uint32_t n_families = metal_n_families(backend_metal_tiles(be));
    struct moe_layer l = moe_layer_new(c);
    struct moe_placed p = moe_place(be, &l);
    uint64_t n = (uint64_t)c->n_rows * c->n_in;
    float *alone = be_new(n, sizeof *alone), *want = be_new(n, sizeof *want),
          *got = be_new(n, sizeof *got);
    be_fill(l.x, n, 1);
    const uint32_t every =
        be_quick ? 5 : 1; /* of the rows that are compared with themselves alone */
    for (uint32_t row = 0; row < c->n_rows; row += every)
        moe_run_rows(be, &p, &l, &row, 1, alone);
    for (uint32_t f = 0; f < n_families; f++) {
        metal_force(be, &metal_families[f]);
        moe_run_rows(be, &p, &l, NULL, c->n_rows, f ? got : want);
        CHECK_MSG(!f || memcmp(got, want, n * sizeof *got) == 0, "%s, family %u, %u rows",
                  qtype_name(c->gate->type), f, c->n_rows);
    }
    for (uint64_t row = 0; row < c->n_rows; row += every)
        CHECK_MSG(memcmp(want + row * c->n_in, alone + row * c->n_in, c->n_in * sizeof *want) == 0,
                  "%s, row %u of %u: other bits than alone", qtype_name(c->gate->type),
                  (uint32_t)row, c->n_rows);
    free(alone), free(want), free(got);
    moe_placed_free(&p);
    moe_layer_free(&l);
    backend_close(be);
}

static void test_families_give_the_same_bits(void) {
    static const uint32_t rows[] = {3, 14, 37, 80};
    be_rng.state = 36;
    for (int t = 0; t < N_BLOCK_TYPES; t++) {
        /* Quick: many rows of four types, few rows of a quarter of the others. */
        if (be_quick && t > 3 && t % 4) continue;
        struct moe_case c = plain_case(&block_types[t], rows[be_quick && t > 3 ? t % 2 : t % 4]);
        c.act = BACKEND_ACT_SILU + (enum backend_act)t % 3;
        c.biases = t & 1;
        if (t < 3) c.n_in = 75, c.n_ff = 45;
        check_families(&c);
    }
}

/* ---- dispatches and traffic ---- */

static uint32_t kernel_at(const backend *be, const char *name) {
    uint32_t i = 0;
    while (i < backend_n_kernels(be) && strcmp(backend_kernel_name(be, i), name) != 0)
        i++;
    be_need(i < backend_n_kernels(be), name);
    return i;
}

/* One row takes six dispatches and reads the weights of its experts once; several rows take one
 * more, for their lists. */
static void test_dispatches(void) {
    enum { N = 6 };
    const char *products = "moe_vector";
    const struct {
        const char *kernel;
        uint64_t one, many;
    } want[N] = {{"linear_vector", 1, 1}, {"moe_route", 1, 1},   {"moe_lists", 0, 1},
                 {products, 2, 2},        {"moe_combine", 1, 1}, {"input_rows", 0, 0}};
    struct moe_case c = plain_case(block_type_of(QTYPE_Q8_0), 5);
    uint64_t matrix_bytes, before[N];
    qtype_bytes(QTYPE_Q8_0, c.n_ff, c.n_in, &matrix_bytes);
    struct moe_layer l = moe_layer_new(&c);
    float y[5 * 96];
    for (int many = 0; many < 2; many++) {
        uint32_t n_rows = many ? 5 : 1, n_pairs = n_rows * c.n_used;
        backend *be = open_metal(6, 2);
        for (int i = 0; i < N; i++)
            before[i] = backend_dispatch_count(be, kernel_at(be, want[i].kernel));
        struct moe_placed p = moe_place(be, &l);
        moe_run_rows(be, &p, &l, NULL, n_rows, y);
        for (int i = 0; i < N; i++) {
            uint64_t n = backend_dispatch_count(be, kernel_at(be, want[i].kernel)) - before[i];
            CHECK_MSG(n == (many ? want[i].many : want[i].one), "%s: %llu dispatches of %u rows",
                      want[i].kernel, (unsigned long long)n, n_rows);
        }
        uint64_t read, written, used = n_pairs < 6 ? n_pairs : 6;
        backend_kernel_traffic(be, kernel_at(be, products), &read, &written);
        CHECK(written == 2 * n_pairs * 96 * sizeof(float));
        CHECK(read >= used * 3 * matrix_bytes && read <= used * 3 * matrix_bytes * 1.1);
        moe_placed_free(&p);
        backend_close(be);
    }
    moe_layer_free(&l);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_every_type);
    RUN(test_odd_sizes);
    RUN(test_many_experts);
    RUN(test_gating);
    RUN(test_mixer);
    RUN(test_all_rows_to_one_expert);
    RUN(test_ties_and_nan);
    RUN(test_fewer_rows_follow);
    RUN(test_nan_stays_in_its_row);
    RUN(test_families_give_the_same_bits);
    RUN(test_dispatches);
    return check_done();
}
#else
DEVICE_MAIN_SKIPS("metal", "this build has no Metal backend")
#endif
