/* test_moe.c - mixtures of experts of the CPU backend, for every type and instruction set of this
 * machine, against float64 arithmetic on odd sizes; ties, experts without rows, bitwise
 * invariance, refusals. `bench`: see moe_bench.h. */
#include "tests/support/moe64.h"
#include "tests/unit/moe_bench.h"

enum { MOST_ROWS = 130, MOST_COLS = 2880, MOST_EXPERTS = 60, MOST_USED = 4 };

static backend *open_wide(const char *isa, int n_threads, int bits, uint32_t max_cols) {
    struct backend_config config = {.n_threads = n_threads,
                                    .max_rows = MOST_ROWS,
                                    .max_cols = max_cols,
                                    .activation_bits = bits,
                                    .moe = {MOST_EXPERTS, MOST_USED, max_cols}};
    return be_open_config(config, isa);
}

static backend *open_moe(const char *isa, int n_threads, int bits) {
    return open_wide(isa, n_threads, bits, 256);
}

/* ---- cases ---- */

/* A count of columns that the blocks of all these types allow. */
static uint32_t any_cols(const struct block_type *a, const struct block_type *b, bool may_be_long) {
    static const uint32_t any[] = {19, 33, 99, 1, 160}, by_32[] = {32, 96, 160, 288};
    uint32_t block = 1, of[] = {qtype_find(a->type)->block_elems, qtype_find(b->type)->block_elems};
    for (int i = 0; i < 2; i++)
        if (of[i] > block) block = of[i];
    if (block == QK_ELEMS) return 256 * (1 + be_below(2));
    if (may_be_long && be_below(4) == 0) return MOST_COLS;
    return block == 1 ? any[be_below(5)] : by_32[be_below(4)];
}

static const struct block_type *any_type(void) {
    return &block_types[be_below(N_BLOCK_TYPES)];
}

/* Gate has type t, up and down have t or another type, the router is mostly floats. */
static struct moe_case any_case(const struct block_type *t, int bits) {
    enum { MOST_WEIGHTS = 400000, MOST_PRODUCTS = 10000000 };
    static const uint32_t experts[] = {3, 5, 8, 60}, used[] = {1, 2, 4},
                          rows[] = {1, 2, 7, 33, 130};
    struct moe_case c = {.router = be_below(4) ? block_type_of(QTYPE_F32) : any_type(),
                         .gate = t,
                         .up = be_below(2) ? t : any_type(),
                         .down = be_below(2) ? t : any_type(),
                         .n_experts = experts[be_below(4)],
                         .n_used = used[be_below(3)],
                         .n_rows = rows[be_below(5)],
                         .bits = bits,
                         .act = BACKEND_ACT_SILU + be_below(BACKEND_N_ACTS - BACKEND_ACT_SILU),
                         .share = (enum moe_share)be_below(MOE_N_SHARES),
                         .renormalize = be_below(2),
                         .biases = be_below(2),
                         .ties = be_below(3) == 0,
                         .exact = be_below(2),
                         .weight_scale = be_below(3) ? 0 : 2.5f,
                         .gating = (enum backend_gating)be_below(BACKEND_GATING_MIXER),
                         .choice_bias = be_below(2)};
    if (c.n_used > c.n_experts) c.n_used = c.n_experts;
    if ((c.ungated = be_below(3) == 0)) c.act = BACKEND_ACT_NONE;
    if ((c.latent = be_below(3) == 0)) c.share = MOE_NOTHING_SHARED;
    const struct block_type *wide = qtype_find(c.up->type)->block_elems == QK_ELEMS ? c.up : c.gate;
    c.n_in = any_cols(wide, c.router, true);
    if (c.n_in % qtype_find(c.up->type)->block_elems) c.up = c.gate;
    if (c.n_in % qtype_find(c.router->type)->block_elems) c.router = block_type_of(QTYPE_F32);
    if (!block_is_float(c.router->type)) c.exact = true; /* its scores would be too rough */
    /* Large scores: their probabilities are all near 0 or 1. */
    if (c.exact) c.gating = BACKEND_GATING_SOFTMAX, c.choice_bias = false;
    c.n_ff = any_cols(c.down, c.down, c.n_in != MOST_COLS);
    while ((uint64_t)c.n_experts * c.n_in * c.n_ff > MOST_WEIGHTS && c.n_experts > 3)
        c.n_experts = c.n_experts == 60 ? 8 : c.n_experts == 8 ? 5 : 3;
    if (c.n_used > c.n_experts) c.n_used = 2;
    while ((uint64_t)c.n_rows * c.n_used * c.n_in * c.n_ff > MOST_PRODUCTS / (be_quick ? 10 : 1) &&
           c.n_rows > 1)
        c.n_rows /= 2;
    return c;
}

/* Some of the experts in groups, of which the best count. */
static void any_groups(struct moe_case *c) {
    if (c->n_experts % 4 || be_below(2)) return;
    c->n_groups = be_below(2) ? 2 : 4;
    c->n_groups_used = 1 + be_below(c->n_groups);
    const uint32_t most = c->n_experts / c->n_groups * c->n_groups_used;
    if (c->n_used > most) c->n_used = most;
}

/* The sparse mixer (not of exact inputs: their scores are large), weights that
 * scale the experts' inputs, bounds of activations. */
static void any_mixer(struct moe_case *c) {
    static const float limits[] = {0.02f, 0.2f, 1};
    if (c->act == BACKEND_ACT_SILU) c->bounds = (struct backend_bounds){0.7f, 0.5f};
    c->weighs_input = be_below(2) && !c->ungated && !c->latent;
    if (c->weighs_input) c->biases = false;
    if (be_below(2) || c->exact) return;
    c->gating = BACKEND_GATING_MIXER, c->mixer_limit = limits[be_below(3)];
    c->choice_bias = c->renormalize = false, c->n_groups = c->n_groups_used = 0;
}

static void test_against_float64(void) {
    const int n_cases = be_quick ? 1 : 3;
    for (int i = 0; i < 2 * BE_N_ISAS; i++) {
        int bits = i & 1 ? 16 : 8;
        backend *be = open_wide(be_isas[i / 2], 2, bits, MOST_COLS);
        if (!be) continue;
        if (!be_is_cpu(be) && bits == 8) { /* no rounding: one run is enough */
            backend_close(be);
            continue;
        }
        be_rng.state = 21 + (uint64_t)i;
        /* Quick: every third type, others with each set. */
        for (int t = be_quick ? i % 3 : 0; t < N_BLOCK_TYPES; t += be_quick ? 3 : 1)
            for (int n = 0; n < n_cases; n++) {
                struct moe_case c = any_case(&block_types[t], bits);
                any_groups(&c);
                c.expert_scale = be_below(3) == 0;
                moe_check_case(be, &c);
                any_mixer(&c);
                moe_check_case(be, &c);
            }
        backend_close(be);
    }
}

/* Blocks of 32 in rows that are not a multiple of 256, as in the widest MXFP4 models; in both
 * directions. */
static void test_long_rows(void) {
    backend *be = open_wide("", 2, 8, MOST_COLS);
    be_rng.state = 5;
    for (int wide_ff = 0; wide_ff < 2; wide_ff++) {
        struct moe_case c = {.router = block_type_of(QTYPE_BF16),
                             .gate = block_type_of(QTYPE_MXFP4),
                             .up = block_type_of(QTYPE_MXFP4),
                             .down = block_type_of(QTYPE_MXFP4),
                             .n_experts = 5,
                             .n_used = 4,
                             .n_in = wide_ff ? 160 : MOST_COLS,
                             .n_ff = wide_ff ? MOST_COLS : 160,
                             .n_rows = be_quick ? 2 : 33,
                             .bits = 8,
                             .act = BACKEND_ACT_SWIGLU_OAI,
                             .renormalize = true,
                             .biases = true};
        moe_check_case(be, &c);
    }
    backend_close(be);
}

static struct moe_case small_case(const struct block_type *t, uint32_t n_rows) {
    return (struct moe_case){.router = block_type_of(QTYPE_F32),
                             .gate = t,
                             .up = t,
                             .down = t,
                             .n_experts = 5,
                             .n_used = 2,
                             .n_in = 256,
                             .n_ff = 256,
                             .n_rows = n_rows,
                             .bits = 8,
                             .act = BACKEND_ACT_SILU,
                             .share = MOE_SHARED_GATED,
                             .renormalize = true};
}

/* Equal scores select the lower expert. All experts have equal scores, and each outputs its
 * number. */
static void test_ties(void) {
    enum { EXPERTS = 5, IN = 32 };
    struct moe_case c = small_case(block_type_of(QTYPE_F32), 3);
    c.n_in = IN, c.n_ff = IN, c.share = MOE_NOTHING_SHARED, c.biases = true;
    struct moe_layer l = moe_layer_new(&c);
    memset(l.router.packed, 0, EXPERTS * IN * sizeof(float));
    memset(l.down.packed, 0, (uint64_t)EXPERTS * IN * IN * sizeof(float));
    for (uint32_t e = 0; e < EXPERTS; e++) {
        l.router_bias[e] = e == 3 ? 2 : 1;
        for (uint32_t o = 0; o < IN; o++)
            l.down_bias[e * IN + o] = ldexpf(1, (int)(4 * e));
    }
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_moe(be_isas[i], 2, 8);
        if (!be) continue;
        struct moe_placed p = moe_place(be, &l);
        float y[3 * IN];
        p.op.n_used = 3; /* expert 3, then 0 and 1 */
        moe_run_rows(be, &p, &l, NULL, 3, y);
        double part = be_is_cpu(be) ? 1e-6 : 4e-6;
        double sum = 1 + 2 * exp(-1), want = (4096 + exp(-1) * (1 + 16)) / sum;
        for (uint32_t k = 0; k < 3 * IN; k++)
            CHECK_MSG(fabs(y[k] - want) < part * want, "%s: %.9g, not %.9g", be_isas[i],
                      (double)y[k], want);
        p.op.renormalize = false, p.op.weight_scale = 0.5f; /* the sum is over all experts */
        moe_run_rows(be, &p, &l, NULL, 3, y);
        want *= 0.5 * sum / (1 + 4 * exp(-1));
        for (uint32_t k = 0; k < 3 * IN; k++)
            CHECK_MSG(fabs(y[k] - want) < part * want, "%s: %.9g, not %.9g", be_isas[i],
                      (double)y[k], want);
        moe_placed_free(&p);
        backend_close(be);
    }
    moe_layer_free(&l);
}

/* Of groups {0, 1}, {2, 3}, {4, 5} and {6, 7} the best one alone is used: by its two largest
 * sigmoids, or by its largest softmax, which is another group here. Each expert outputs its number.
 */
static void test_best_group(void) {
    enum { EXPERTS = 8, IN = 32 };
    static const float scores[EXPERTS] = {2, -4, 1, 0.9f, 1.5f, -3, -1, -1};
    struct moe_case c = small_case(block_type_of(QTYPE_F32), 1);
    c.n_experts = EXPERTS, c.n_in = IN, c.n_ff = IN, c.share = MOE_NOTHING_SHARED;
    c.biases = true, c.n_groups = 4, c.n_groups_used = 1;
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        c.gating = sigmoid ? BACKEND_GATING_SIGMOID : BACKEND_GATING_SOFTMAX;
        struct moe_layer l = moe_layer_new(&c);
        memset(l.router.packed, 0, EXPERTS * IN * sizeof(float));
        memset(l.down.packed, 0, (uint64_t)EXPERTS * IN * IN * sizeof(float));
        memcpy(l.router_bias, scores, sizeof scores);
        for (uint32_t i = 0; i < EXPERTS * IN; i++)
            l.down_bias[i] = (float)(i / IN + 1);
        const double a = sigmoid ? moe_sigmoid(1) : exp(2);
        const double b = sigmoid ? moe_sigmoid((double)0.9f) : exp(-4);
        const double want = sigmoid ? (3 * a + 4 * b) / (a + b) : (a + 2 * b) / (a + b);
        for (int i = 0; i < BE_N_ISAS; i++) {
            backend *be = open_moe(be_isas[i], 2, 8);
            if (!be) continue;
            struct moe_placed p = moe_place(be, &l);
            float y[IN];
            moe_run_rows(be, &p, &l, NULL, 1, y);
            for (uint32_t k = 0; k < IN; k++)
                CHECK_MSG(fabs(y[k] - want) < 4e-6 * want, "%s: %.9g, not %.9g", be_isas[i],
                          (double)y[k], want);
            moe_placed_free(&p);
            backend_close(be);
        }
        moe_layer_free(&l);
    }
}

/* Weights of unselected experts are not read: NaN there has no effect. */
static void test_unchosen_experts(void) {
    enum { ROWS = 33 };
    struct moe_case c = small_case(block_type_of(QTYPE_F32), ROWS);
    c.biases = true;
    be_rng.state = 8;
    struct moe_layer l = moe_layer_new(&c);
    struct moe_way w = moe_way_new(&l);
    const uint32_t idle[] = {0, 3};
    for (int k = 0; k < 2; k++) {
        l.router_bias[idle[k]] = -1e4f;
        for (uint64_t i = 0; i < 256 * 256; i++)
            ((float *)l.down.packed)[idle[k] * 256 * 256 + i] = NAN;
    }
    moe_draw_rows(&w, &l);
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_moe(be_isas[i], 3, 8);
        if (!be) continue;
        struct moe_placed p = moe_place(be, &l);
        static float y[ROWS * 256];
        moe_run_rows(be, &p, &l, NULL, ROWS, y);
        for (uint32_t row = 0; row < ROWS; row++) {
            w.x = l.x + row * 256;
            CHECK(moe_choose(&w));
            CHECK(moe_compare_row(&w, row, y + row * 256) <= 1);
        }
        moe_placed_free(&p);
        backend_close(be);
    }
    moe_way_free(&w);
    moe_layer_free(&l);
}

/* ---- invariance ---- */

static void shuffle(uint32_t *order, uint32_t n) {
    for (uint32_t r = n - 1; r > 0; r--) {
        uint32_t s = be_below(r + 1), keep = order[r];
        order[r] = order[s], order[s] = keep;
    }
}

/* Every row alone on one thread, and in batches of 1 to all on 1 and 3: the same bits. */
static void check_invariance(const char *isa, const struct block_type *t, uint32_t n_rows) {
    static const int threads[] = {1, 3, 3};
    struct moe_case c = small_case(t, n_rows);
    c.bits = be_below(2) ? 16 : 8;
    struct moe_layer l = moe_layer_new(&c);
    uint64_t n = (uint64_t)n_rows * c.n_in;
    float *want = be_new(n, sizeof *want), *got = be_new(n, sizeof *got);
    uint32_t order[MOST_ROWS];
    for (uint32_t r = 0; r < n_rows; r++)
        order[r] = r;
    for (int k = 0; k < 3; k++) {
        backend *be = open_moe(isa, threads[k], c.bits);
        if (!be) break;
        struct moe_placed p = moe_place(be, &l);
        for (uint32_t r = 0; k == 0 && r < n_rows; r++)
            moe_run_rows(be, &p, &l, &order[r], 1, want);
        shuffle(order, n_rows);
        memset(got, 0, n * sizeof *got);
        for (uint32_t at = 0, some; at < n_rows; at += some) {
            some = k == 1 ? n_rows : 1 + be_below(40);
            if (some > n_rows - at) some = n_rows - at;
            moe_run_rows(be, &p, &l, order + at, some, got);
        }
        CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "%s %s %d threads, %d bits", isa,
                  qtype_name(t->type), threads[k], c.bits);
        moe_placed_free(&p);
        backend_close(be);
    }
    free(got);
    free(want);
    moe_layer_free(&l);
}

/* The best set tests all types, the others every third. */
static void test_batch_invariance(void) {
    be_rng.state = 6;
    backend *best = open_moe("", 1, 8);
    for (int i = 0; i < BE_N_ISAS; i++) {
        int step = strcmp(be_isas[i], backend_isa(best)) == 0 && !be_quick ? 1 : 3;
        for (int t = i % step; t < N_BLOCK_TYPES; t += step)
            check_invariance(be_isas[i], &block_types[t], be_quick ? 9 : MOST_ROWS);
    }
    backend_close(best);
}

/* Residual and norm before the router: the same bits as op_linear's rows. */
static void test_input_is_that_of_linear(void) {
    enum { ROWS = 7, IN = 256 };
    static float identity[IN * IN], residual[ROWS * IN], norm[IN], y[ROWS * IN], want[ROWS * IN];
    static float x[ROWS * IN];
    for (uint32_t i = 0; i < IN; i++)
        identity[i * IN + i] = 1;
    be_rng.state = 12;
    be_fill(residual, ROWS * IN, 1);
    be_fill(norm, IN, 1);
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_moe(be_isas[i], 2, 8);
        if (!be) continue;
        struct moe_case c = small_case(block_type_of(i & 1 ? QTYPE_F16 : QTYPE_Q5_K), ROWS);
        c.share = MOE_NOTHING_SHARED;
        struct moe_layer l = moe_layer_new(&c);
        struct moe_placed p = moe_place(be, &l);
        backend_weight *eye = be_weight(be, QTYPE_F32, IN, IN, identity);
        backend_weight *nw = be_weight(be, QTYPE_F32, 1, IN, norm);
        backend_buf *xb = be_f32(be, l.x, ROWS * IN), *x2 = be_f32(be, l.x, ROWS * IN);
        backend_buf *rb = be_f32(be, residual, ROWS * IN), *nb = be_f32(be, NULL, ROWS * IN);
        backend_buf *yb = be_f32(be, NULL, ROWS * IN);
        struct op_input in = {
            .x = xb, .residual = rb, .residual_scale = 0.5f, .norm = nw, .eps = 1e-5f};
        struct op_linear linear = {.in = in, .n_rows = ROWS, .n_weights = 1, .w = {eye}, .y = {nb}};
        CHECK(backend_linear(be, &linear) == 0);
        p.op.n_rows = ROWS, p.op.y = yb, p.op.in.x = nb;
        CHECK(backend_moe(be, &p.op) == 0);
        be_get(be, yb, want, ROWS * IN);
        p.op.in = in, p.op.in.x = x2;
        CHECK(backend_moe(be, &p.op) == 0);
        be_get(be, yb, y, ROWS * IN);
        CHECK_MSG(memcmp(y, want, sizeof y) == 0, "%s: results", be_isas[i]);
        be_get(be, xb, want, ROWS * IN);
        be_get(be, x2, x, ROWS * IN);
        CHECK_MSG(memcmp(x, want, sizeof x) == 0, "%s: x", be_isas[i]);
        backend_buf *bufs[] = {xb, x2, rb, nb, yb};
        for (int k = 0; k < 5; k++)
            backend_buf_free(bufs[k]);
        backend_weight_free(nw);
        backend_weight_free(eye);
        moe_placed_free(&p);
        moe_layer_free(&l);
        backend_close(be);
    }
}

/* ---- a shared expert in the op ---- */

/* A shared expert of a small case's shape, and the op's buffers. */
struct shared_case {
    struct matrix m[4]; /* gate, up, down, router */
    backend_weight *w[4];
    backend_buf *x, *ff, *out, *score, *y;
};

static struct shared_case shared_new(backend *be, const struct moe_layer *l) {
    const uint32_t n_in = l->c.n_in, n_ff = l->c.n_ff;
    struct shared_case s = {
        .m = {matrix_make(l->c.gate, n_ff, n_in, false), matrix_make(l->c.up, n_ff, n_in, false),
              matrix_make(l->c.down, n_in, n_ff, false), matrix_make(l->c.router, 1, n_in, false)},
        .x = be_f32(be, l->x, n_in),
        .ff = be_f32(be, NULL, n_ff),
        .out = be_f32(be, NULL, n_in),
        .score = be_f32(be, NULL, 1),
        .y = be_f32(be, NULL, n_in)};
    const uint32_t n_out[] = {n_ff, n_ff, n_in, 1}, cols[] = {n_in, n_in, n_ff, n_in};
    for (int i = 0; i < 4; i++)
        s.w[i] = be_weight(be, s.m[i].type, n_out[i], cols[i], s.m[i].packed);
    return s;
}

static void shared_free(struct shared_case *s) {
    backend_buf *bufs[] = {s->x, s->ff, s->out, s->score, s->y};
    for (int i = 0; i < 5; i++)
        backend_buf_free(bufs[i]);
    for (int i = 0; i < 4; i++) {
        backend_weight_free(s->w[i]);
        matrix_free(&s->m[i]);
    }
}

/* The op with the shared expert's output, as a model without joining has it. */
static void run_apart(backend *be, struct op_moe op, const struct shared_case *s, float *y) {
    const struct op_input in = {.x = s->x};
    struct op_linear inner = {.in = in,
                              .n_rows = 1,
                              .n_weights = 2,
                              .w = {s->w[0], s->w[1]},
                              .act = op.act,
                              .y = {s->ff}};
    struct op_linear down = {
        .in.x = s->ff, .n_rows = 1, .n_weights = 1, .w = {s->w[2]}, .y = {s->out}};
    struct op_linear gate = {
        .in = in, .n_rows = 1, .n_weights = 1, .w = {s->w[3]}, .y = {s->score}};
    CHECK(backend_linear(be, &inner) == 0 && backend_linear(be, &down) == 0 &&
          backend_linear(be, &gate) == 0);
    op.shared_gate = op.joined.router ? s->score : NULL;
    op.joined = (struct backend_shared_expert){0};
    op.shared = s->out;
    CHECK(backend_moe(be, &op) == 0);
    be_get(be, s->y, y, op.down->n_out);
}

/* Where a backend takes the shared expert itself, the bits are the same; elsewhere it refuses. */
static void test_joined_shared(void) {
    static const int types[] = {QTYPE_Q4_K, QTYPE_Q5_K, QTYPE_Q6_K, QTYPE_Q8_0, QTYPE_F16};
    static float y[256], want[256];
    be_rng.state = 14;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_moe(be_isas[i], 2, 8);
        for (uint32_t k = 0; be && k < 2 * sizeof types / sizeof types[0]; k++) {
            struct moe_case c = small_case(block_type_of(types[k / 2]), 1);
            struct moe_layer l = moe_layer_new(&c);
            struct moe_placed p = moe_place(be, &l);
            struct shared_case s = shared_new(be, &l);
            p.op.n_rows = 1, p.op.in.x = s.x, p.op.y = s.y;
            p.op.joined =
                (struct backend_shared_expert){.gate = s.w[0], .up = s.w[1], .down = s.w[2]};
            if (k % 2) p.op.joined.router = s.w[3];
            run_apart(be, p.op, &s, want);
            const bool joins = backend_joins_shared(be, &p.op);
            CHECK_MSG(joins == (strcmp(be_isas[i], "cuda") == 0), "%s joins", be_isas[i]);
            CHECK(backend_moe(be, &p.op) == (joins ? 0 : ERR_INVALID));
            be_get(be, s.y, y, c.n_in);
            CHECK_MSG(memcmp(y, want, sizeof y) == 0, "%s: %s", be_isas[i],
                      qtype_find(types[k / 2])->name);
            p.op.shared = s.out; /* both */
            CHECK(backend_moe(be, &p.op) == ERR_INVALID);
            shared_free(&s);
            moe_placed_free(&p);
            moe_layer_free(&l);
        }
        backend_close(be);
    }
}

/* ---- counters, refusals ---- */

static uint64_t count_of(const backend *be, const char *name) {
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strcmp(backend_kernel_name(be, i), name) == 0) return backend_dispatch_count(be, i);
    return UINT64_MAX;
}

static void test_counters(void) {
    struct moe_case c = small_case(block_type_of(QTYPE_Q4_K), 2);
    backend *be = open_moe("generic", 1, 8);
    if (!be) return; /* only= selects another set */
    struct moe_layer l = moe_layer_new(&c);
    struct moe_placed p = moe_place(be, &l);
    float y[2 * 256];
    moe_run_rows(be, &p, &l, NULL, 2, y);
    CHECK(count_of(be, "moe_route_generic") == 1);
    CHECK(count_of(be, "moe_gather_generic") == 1);
    CHECK(count_of(be, "moe_combine_generic") == 1);
    CHECK(count_of(be, "linear_q4_k_generic") == 3);
    CHECK(count_of(be, "linear_f32_generic") == 1);
    CHECK(count_of(be, "quantize_rows_generic") == 2);
    CHECK(count_of(be, "glu_silu_generic") == 1);
    moe_placed_free(&p);
    backend_close(be);
    moe_layer_free(&l);
}

/* Scratch is allocated at open, or open fails. */
static void test_limits(void) {
    struct backend_config config = {.name = "cpu", .max_rows = 8, .max_cols = 64};
    backend *be;
    err e;
    config.moe = (struct backend_moe_limits){1 << 20, 1, 32};
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID && !be && strstr(e.msg, "experts"));
    config.moe = (struct backend_moe_limits){4, 5, 32};
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID);
    config.moe = (struct backend_moe_limits){4, 0, 32};
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID);
    config.moe = (struct backend_moe_limits){4, 2, 0};
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID);
    config.moe = (struct backend_moe_limits){1024, 1024, UINT32_MAX}; /* 2^63 codes */
    config.max_rows = 1 << 21;
    CHECK(backend_open(&config, &be, &e) == ERR_NOMEM && !be);
    config.max_rows = UINT32_MAX; /* pairs are counted in 32 bits */
    CHECK(backend_open(&config, &be, &e) == ERR_NOMEM && !be);
}

static void test_refusals(void) {
    struct moe_case c = small_case(block_type_of(QTYPE_Q8_0), 4);
    struct moe_layer l = moe_layer_new(&c);
    backend *be = open_moe("", 1, 8), *plain = be_open("", 1);
    struct moe_placed p = moe_place(be, &l), other = moe_place(plain, &l);
    backend_buf *x = be_f32(be, l.x, 4 * 256), *y = be_f32(be, NULL, 4 * 256);
    backend_buf *small = be_f32(be, NULL, 3 * 256);
    p.op.in.x = x, p.op.y = y, p.op.n_rows = 4;
    CHECK(backend_moe(be, &p.op) == 0);
    struct op_moe op = p.op;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        op = p.op;                                                                                 \
        change;                                                                                    \
        CHECK(backend_moe(be, &op) == ERR_INVALID);                                                \
    } while (0)
    REFUSED(op.y = x);
    REFUSED(op.y = small);
    REFUSED(op.n_used = 0);
    REFUSED(op.n_used = MOST_USED + 1);
    REFUSED(op.n_rows = MOST_ROWS + 1);
    REFUSED(op.act = BACKEND_ACT_NONE);
    REFUSED(op.act = BACKEND_N_ACTS);
    REFUSED(op.bounds.up = 1);
    REFUSED(op.weight_scale = -1);
    REFUSED(op.expert_scale = p.w[5]); /* of another length */
    REFUSED(op.router = op.gate);
    REFUSED(op.gate = op.router);
    REFUSED(op.mixer_limit = 0.1f);
    REFUSED(op.gating = BACKEND_GATING_MIXER); /* with renormalize */
    REFUSED(op.weighs_input = true; op.gate = NULL; op.act = BACKEND_ACT_NONE);
    REFUSED(op.weighs_input = true; op.latent = small; op.shared = op.shared_gate = NULL);
    REFUSED(op.down = NULL);
    REFUSED(op.gate_bias = p.w[4]); /* a plain vector */
    REFUSED(op.router_bias = p.w[5]);
    REFUSED(op.shared = small);
    REFUSED(op.shared_gate = small); /* without shared */
    REFUSED(op.shared = y);
    REFUSED(op.gate = other.w[1]); /* of another backend */
#undef REFUSED
    backend_buf *px = be_f32(plain, l.x, 4 * 256), *py = be_f32(plain, NULL, 4 * 256);
    other.op.in.x = px, other.op.y = py, other.op.n_rows = 4;
    CHECK(backend_moe(plain, &other.op) == ERR_INVALID); /* opened without experts */
    struct op_linear linear = {.in.x = x, .n_rows = 1, .n_weights = 1, .w = {p.w[1]}, .y = {y}};
    CHECK(backend_linear(be, &linear) == ERR_INVALID); /* experts are not a plain weight */
    backend_buf *bufs[] = {x, y, small, px, py};
    for (int i = 0; i < 5; i++)
        backend_buf_free(bufs[i]);
    moe_placed_free(&other);
    moe_placed_free(&p);
    backend_close(plain);
    backend_close(be);
    moe_layer_free(&l);
}

int main(int argc, char **argv) {
    if (check_bench(argc, argv)) return moe_bench(argc, argv);
    be_args(argc, argv);
    RUN(test_against_float64);
    RUN(test_long_rows);
    RUN(test_ties);
    RUN(test_best_group);
    RUN(test_unchosen_experts);
    RUN(test_batch_invariance);
    RUN(test_input_is_that_of_linear);
    RUN(test_joined_shared);
    RUN(test_counters);
    RUN(test_limits);
    RUN(test_refusals);
    return check_done();
}
