/* test_moe.c - mixtures of experts of the CPU backend, for every type and instruction set of this
 * machine, against float64 arithmetic on odd sizes; ties, experts that nobody chose, bitwise
 * invariance, refusals. `bench`: see moe_bench.h. */
#include "core/base/mem.h"
#include "tests/support/matrix.h"
#include "tests/unit/check.h"
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

/* ---- a layer and its rows ---- */

enum share { NOTHING_SHARED, SHARED, SHARED_GATED, N_SHARES };

struct moe_case {
    const struct block_type *router, *gate, *up, *down;
    uint32_t n_experts, n_used, n_in, n_ff, n_rows;
    int bits;
    enum backend_act act;
    enum share share;
    bool renormalize, biases, ties, exact; /* exact: see matrix_fill_exact */
    float weight_scale;
};

/* Experts are rows of one matrix: n_out of each expert, one expert's after the other's. */
struct layer {
    struct moe_case c;
    struct matrix router, gate, up, down;
    float *router_bias, *gate_bias, *up_bias, *down_bias; /* zeros without biases */
    float *x, *shared, *shared_gate;                      /* (n_rows, ..) */
};

static float *new_floats(uint64_t n, float scale) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, scale);
    return x;
}

static struct layer new_layer(const struct moe_case *c) {
    uint64_t n_x = (uint64_t)c->n_rows * c->n_in;
    uint32_t n = c->n_experts;
    float bias = c->biases ? 1 : 0;
    struct layer l = {.c = *c,
                      .router = matrix_make(c->router, n, c->n_in, false),
                      .gate = matrix_make(c->gate, n * c->n_ff, c->n_in, false),
                      .up = matrix_make(c->up, n * c->n_ff, c->n_in, false),
                      .down = matrix_make(c->down, n * c->n_in, c->n_ff, false),
                      .router_bias = new_floats(n, bias),
                      .gate_bias = new_floats((uint64_t)n * c->n_ff, bias),
                      .up_bias = new_floats((uint64_t)n * c->n_ff, bias),
                      .down_bias = new_floats((uint64_t)n * c->n_in, bias),
                      .x = new_floats(n_x, 1),
                      .shared = new_floats(n_x, 5),
                      .shared_gate = new_floats(c->n_rows, 2)};
    uint64_t row_bytes = 0;
    qtype_bytes(c->router->type, 1, c->n_in, &row_bytes);
    for (uint32_t e = 1; c->ties && e < n; e += 2) { /* experts 2i and 2i + 1 score alike */
        uint8_t *packed = (uint8_t *)l.router.packed + e * row_bytes;
        float *values = l.router.values + (uint64_t)e * c->n_in;
        memcpy(packed, packed - row_bytes, row_bytes);
        memcpy(values, values - c->n_in, c->n_in * sizeof *values);
        l.router_bias[e] = l.router_bias[e - 1];
    }
    return l;
}

static void free_layer(struct layer *l) {
    matrix_free(&l->router);
    matrix_free(&l->gate);
    matrix_free(&l->up);
    matrix_free(&l->down);
    float *floats[] = {l->router_bias, l->gate_bias, l->up_bias,    l->down_bias,
                       l->x,           l->shared,    l->shared_gate};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        free(floats[i]);
}

/* The layer in a backend, and an op over it that reads and writes n_rows rows. */
struct placed {
    backend_weight *w[8];
    backend_buf *buf[4]; /* x, shared, shared_gate, y */
    struct op_moe op;
};

static struct placed place_weights(backend *be, const struct layer *l) {
    const struct moe_case *c = &l->c;
    uint32_t n = c->n_experts;
    struct placed p = {.w = {be_weight(be, l->router.type, n, c->n_in, l->router.packed),
                             be_experts(be, l->gate.type, n, c->n_ff, c->n_in, l->gate.packed),
                             be_experts(be, l->up.type, n, c->n_ff, c->n_in, l->up.packed),
                             be_experts(be, l->down.type, n, c->n_in, c->n_ff, l->down.packed),
                             be_weight(be, QTYPE_F32, 1, n, l->router_bias),
                             be_experts(be, QTYPE_F32, n, 1, c->n_ff, l->gate_bias),
                             be_experts(be, QTYPE_F32, n, 1, c->n_ff, l->up_bias),
                             be_experts(be, QTYPE_F32, n, 1, c->n_in, l->down_bias)}};
    p.op = (struct op_moe){.n_used = c->n_used,
                           .router = p.w[0],
                           .gate = p.w[1],
                           .up = p.w[2],
                           .down = p.w[3],
                           .renormalize = c->renormalize,
                           .weight_scale = c->weight_scale,
                           .act = c->act};
    if (!c->biases) return p;
    p.op.router_bias = p.w[4];
    p.op.gate_bias = p.w[5];
    p.op.up_bias = p.w[6];
    p.op.down_bias = p.w[7];
    return p;
}

static void free_weights(struct placed *p) {
    for (int i = 0; i < 8; i++)
        backend_weight_free(p->w[i]);
}

/* Rows order[0..n) (NULL: 0..n) of the layer, as they come; row r's result goes to y + r * n_in. */
static void run_rows(backend *be, struct placed *p, const struct layer *l, const uint32_t *order,
                     uint32_t n, float *y) {
    uint32_t n_in = l->c.n_in;
    uint64_t n_x = (uint64_t)n * n_in, row_bytes = n_in * sizeof(float);
    float *x = be_new(n_x, sizeof *x), *shared = be_new(n_x, sizeof *x);
    float *gate = be_new(n, sizeof *gate);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t row = order ? order[i] : i;
        memcpy(x + (uint64_t)i * n_in, l->x + row * n_in, row_bytes);
        memcpy(shared + (uint64_t)i * n_in, l->shared + row * n_in, row_bytes);
        gate[i] = l->shared_gate[row];
    }
    backend_buf *xb = be_f32(be, x, n_x), *sb = be_f32(be, shared, n_x);
    backend_buf *gb = be_f32(be, gate, n), *yb = be_f32(be, shared, n_x);
    p->op.in.x = xb;
    p->op.n_rows = n;
    p->op.shared = l->c.share != NOTHING_SHARED ? sb : NULL;
    p->op.shared_gate = l->c.share == SHARED_GATED ? gb : NULL;
    p->op.y = yb;
    mem_guard_enter();
    uint64_t before = mem_guard_violations();
    CHECK(backend_moe(be, &p->op) == 0);
    CHECK(mem_guard_violations() == before);
    mem_guard_leave();
    be_get(be, yb, x, n_x);
    for (uint32_t i = 0; i < n; i++)
        memcpy(y + (uint64_t)(order ? order[i] : i) * n_in, x + (uint64_t)i * n_in, row_bytes);
    backend_buf_free(yb);
    backend_buf_free(gb);
    backend_buf_free(sb);
    backend_buf_free(xb);
    free(gate);
    free(shared);
    free(x);
}

/* ---- float64 ---- */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* What act makes of gate and up: *gain times *factor. */
static void act_parts(enum backend_act act, double g, double u, double *gain, double *factor) {
    *factor = u;
    if (act == BACKEND_ACT_SILU) {
        *gain = g * sigmoid(g);
    } else if (act == BACKEND_ACT_GELU_TANH) {
        *gain = g / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g)));
    } else {
        g = fmin(g, 7);
        *gain = g * sigmoid(1.702 * g);
        *factor = fmax(-7, fmin(u, 7)) + 1;
    }
}

/* A row's way, and how far from it the backend may be. Activations have top codes. */
struct way {
    const struct layer *l;
    const float *x;
    int top, top_in;                           /* top_in 0: the input is exact */
    double weight[MOST_EXPERTS], weight_error; /* 0: not chosen; relative */
    double *y, *error;                         /* (n_in) */
    float *hidden;                             /* (n_ff) */
    double *hidden_error;
};

/* false: two scores are so near each other that rounding may choose. */
static bool choose(struct way *w) {
    const struct moe_case *c = &w->l->c;
    double score[MOST_EXPERTS], most = -INFINITY, sum = 0, rounding = 0, scale = c->weight_scale;
    bool chosen[MOST_EXPERTS] = {false};
    for (uint32_t e = 0; e < c->n_experts; e++) {
        float bias = w->l->router_bias[e];
        score[e] = matrix_product(&w->l->router, w->x, e, bias);
        rounding = fmax(rounding, matrix_allowed(&w->l->router, w->x, e, bias, w->top_in));
        most = fmax(most, score[e]);
    }
    double last = 0;
    for (uint32_t k = 0; k < c->n_used; k++) {
        uint32_t best = MOST_EXPERTS;
        for (uint32_t e = 0; e < c->n_experts; e++)
            if (!chosen[e] && (best == MOST_EXPERTS || score[e] > score[best])) best = e;
        chosen[best] = true;
        last = score[best];
    }
    for (uint32_t e = 0; e < c->n_experts; e++) {
        if (!chosen[e] && score[e] != last && last - score[e] < 2 * rounding) return false;
        w->weight[e] = chosen[e] ? exp(score[e] - most) : 0;
        if (chosen[e] || !c->renormalize) sum += exp(score[e] - most);
    }
    for (uint32_t e = 0; e < c->n_experts; e++)
        w->weight[e] *= (scale != 0 ? scale : 1) / sum;
    w->weight_error = 2.2 * rounding + 4e-6;
    return true;
}

/* Adds what one expert makes of the row. The slope of each act is below 1.14. */
static void add_expert(struct way *w, uint32_t e) {
    const struct layer *l = w->l;
    const struct moe_case *c = &l->c;
    for (uint32_t i = 0; i < c->n_ff; i++) {
        uint32_t at = e * c->n_ff + i;
        double g = matrix_product(&l->gate, w->x, at, l->gate_bias[at]), gain, factor;
        double u = matrix_product(&l->up, w->x, at, l->up_bias[at]);
        double dg = matrix_allowed(&l->gate, w->x, at, l->gate_bias[at], w->top_in);
        double du = matrix_allowed(&l->up, w->x, at, l->up_bias[at], w->top_in);
        act_parts(c->act, g, u, &gain, &factor);
        w->hidden[i] = (float)(gain * factor);
        w->hidden_error[i] = 1.14 * dg * (fabs(factor) + du) + (fabs(gain) + 1e-6) * du +
                             4e-6 * (fabs(gain) + 1e-3) * fabs(factor);
    }
    for (uint32_t o = 0; o < c->n_in; o++) {
        uint32_t at = e * c->n_in + o;
        const float *row = l->down.values + (uint64_t)at * c->n_ff;
        double y = matrix_product(&l->down, w->hidden, at, l->down_bias[at]);
        double error = matrix_allowed(&l->down, w->hidden, at, l->down_bias[at], w->top);
        for (uint32_t i = 0; i < c->n_ff; i++)
            error += 1.02 * w->hidden_error[i] * fabs((double)row[i]);
        w->y[o] += w->weight[e] * y;
        w->error[o] += fabs(w->weight[e]) * (error + w->weight_error * (fabs(y) + error));
    }
}

/* Largest error in units of what is allowed; one that is no number is infinite. */
static double compare_row(struct way *w, uint32_t row, const float *y) {
    const struct moe_case *c = &w->l->c;
    const float *shared = w->l->shared + (uint64_t)row * c->n_in;
    double share = c->share == NOTHING_SHARED ? 0
                   : c->share == SHARED       ? 1
                                              : sigmoid(w->l->shared_gate[row]);
    double worst = 0;
    memset(w->y, 0, c->n_in * sizeof *w->y);
    memset(w->error, 0, c->n_in * sizeof *w->error);
    for (uint32_t e = 0; e < c->n_experts; e++)
        if (w->weight[e] != 0) add_expert(w, e);
    for (uint32_t o = 0; o < c->n_in; o++) {
        double want = w->y[o] + share * shared[o];
        double error = fabs(y[o] - want) / (w->error[o] + 1e-6 * fabs(shared[o]) + 1e-30);
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
    return worst;
}

static struct way new_way(const struct layer *l) {
    struct way w = {.l = l, .top = matrix_top(l->c.bits)};
    w.top_in = l->c.exact ? 0 : w.top;
    w.y = be_new(l->c.n_in, sizeof *w.y);
    w.error = be_new(l->c.n_in, sizeof *w.error);
    w.hidden = be_new(l->c.n_ff, sizeof *w.hidden);
    w.hidden_error = be_new(l->c.n_ff, sizeof *w.hidden_error);
    return w;
}

static void free_way(struct way *w) {
    free(w->y);
    free(w->error);
    free(w->hidden);
    free(w->hidden_error);
}

/* Draws rows until the scores are apart. */
static void draw_rows(struct way *w, struct layer *l) {
    for (uint32_t row = 0; row < l->c.n_rows; row++) {
        float *x = l->x + (uint64_t)row * l->c.n_in;
        int tries = 1000;
        do {
            float scale = ldexpf(1, (int)be_below(6) - 5);
            if (l->c.exact)
                matrix_fill_exact(x, l->c.n_in, matrix_top(l->c.bits));
            else
                be_fill(x, l->c.n_in, scale);
            w->x = x;
        } while (!choose(w) && --tries);
        be_need(tries, "rows whose scores are apart");
    }
}

static void check_case(backend *be, const struct moe_case *c) {
    struct layer l = new_layer(c);
    struct way w = new_way(&l);
    if (!be_is_cpu(be)) w.top = w.top_in = 0;
    draw_rows(&w, &l);
    struct placed p = place_weights(be, &l);
    float *y = be_new((uint64_t)c->n_rows * c->n_in, sizeof *y);
    run_rows(be, &p, &l, NULL, c->n_rows, y);
    double worst = 0;
    uint32_t n_checked = c->n_rows <= 5 ? c->n_rows : 5;
    for (uint32_t i = 0; i < n_checked; i++) {
        uint32_t row = c->n_rows <= 5 ? i : be_below(c->n_rows);
        w.x = l.x + (uint64_t)row * c->n_in;
        choose(&w);
        worst = fmax(worst, compare_row(&w, row, y + (uint64_t)row * c->n_in));
    }
    CHECK_MSG(worst <= 1,
              "%s %s/%s/%s/%s %d bits, %u of %u experts, in %u ff %u rows %u, act %d share %d "
              "renormalize %d biases %d ties %d exact %d: %.3g of the tolerance",
              backend_isa(be), qtype_name(l.router.type), qtype_name(l.gate.type),
              qtype_name(l.up.type), qtype_name(l.down.type), c->bits, c->n_used, c->n_experts,
              c->n_in, c->n_ff, c->n_rows, c->act, c->share, c->renormalize, c->biases, c->ties,
              c->exact, worst);
    free(y);
    free_weights(&p);
    free_way(&w);
    free_layer(&l);
}

/* ---- cases ---- */

/* A count of columns that all blocks of these types allow. */
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

/* Gate is of type t, up and down of it or of another, the router mostly of floats. */
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
                         .share = (enum share)be_below(N_SHARES),
                         .renormalize = be_below(2),
                         .biases = be_below(2),
                         .ties = be_below(3) == 0,
                         .exact = be_below(2),
                         .weight_scale = be_below(3) ? 0 : 2.5f};
    if (c.n_used > c.n_experts) c.n_used = c.n_experts;
    const struct block_type *wide = qtype_find(c.up->type)->block_elems == QK_ELEMS ? c.up : c.gate;
    c.n_in = any_cols(wide, c.router, true);
    if (c.n_in % qtype_find(c.up->type)->block_elems) c.up = c.gate;
    if (c.n_in % qtype_find(c.router->type)->block_elems) c.router = block_type_of(QTYPE_F32);
    if (!block_is_float(c.router->type)) c.exact = true; /* its scores would be too rough */
    c.n_ff = any_cols(c.down, c.down, c.n_in != MOST_COLS);
    while ((uint64_t)c.n_experts * c.n_in * c.n_ff > MOST_WEIGHTS && c.n_experts > 3)
        c.n_experts = c.n_experts == 60 ? 8 : c.n_experts == 8 ? 5 : 3;
    if (c.n_used > c.n_experts) c.n_used = 2;
    while ((uint64_t)c.n_rows * c.n_used * c.n_in * c.n_ff > MOST_PRODUCTS / (be_quick ? 10 : 1) &&
           c.n_rows > 1)
        c.n_rows /= 2;
    return c;
}

static void test_against_float64(void) {
    const int n_cases = be_quick ? 1 : 3;
    for (int i = 0; i < 2 * BE_N_ISAS; i++) {
        int bits = i & 1 ? 16 : 8;
        backend *be = open_wide(be_isas[i / 2], 2, bits, MOST_COLS);
        if (!be) continue;
        if (!be_is_cpu(be) && bits == 8) { /* it does not round them: once is enough */
            backend_close(be);
            continue;
        }
        be_seed = 21 + (uint64_t)i;
        for (int t = 0; t < N_BLOCK_TYPES; t++)
            for (int n = 0; n < n_cases; n++) {
                struct moe_case c = any_case(&block_types[t], bits);
                check_case(be, &c);
            }
        backend_close(be);
    }
}

/* Blocks of 32 in rows that are no multiple of 256, as in the widest MXFP4 models; both ways. */
static void test_long_rows(void) {
    backend *be = open_wide("", 2, 8, MOST_COLS);
    be_seed = 5;
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
        check_case(be, &c);
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
                             .share = SHARED_GATED,
                             .renormalize = true};
}

/* Equal scores: the lower expert. All experts score alike, each says its number. */
static void test_ties(void) {
    enum { EXPERTS = 5, IN = 32 };
    struct moe_case c = small_case(block_type_of(QTYPE_F32), 3);
    c.n_in = IN, c.n_ff = IN, c.share = NOTHING_SHARED, c.biases = true;
    struct layer l = new_layer(&c);
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
        struct placed p = place_weights(be, &l);
        float y[3 * IN];
        p.op.n_used = 3; /* expert 3, then 0 and 1 */
        run_rows(be, &p, &l, NULL, 3, y);
        double part = be_is_cpu(be) ? 1e-6 : 4e-6;
        double sum = 1 + 2 * exp(-1), want = (4096 + exp(-1) * (1 + 16)) / sum;
        for (uint32_t k = 0; k < 3 * IN; k++)
            CHECK_MSG(fabs(y[k] - want) < part * want, "%s: %.9g, not %.9g", be_isas[i],
                      (double)y[k], want);
        p.op.renormalize = false, p.op.weight_scale = 0.5f; /* the sum is over all experts */
        run_rows(be, &p, &l, NULL, 3, y);
        want *= 0.5 * sum / (1 + 4 * exp(-1));
        for (uint32_t k = 0; k < 3 * IN; k++)
            CHECK_MSG(fabs(y[k] - want) < part * want, "%s: %.9g, not %.9g", be_isas[i],
                      (double)y[k], want);
        free_weights(&p);
        backend_close(be);
    }
    free_layer(&l);
}

/* Weights of experts that no row chose are not looked at: NaN there harms nobody. */
static void test_experts_that_nobody_chose(void) {
    enum { ROWS = 33 };
    struct moe_case c = small_case(block_type_of(QTYPE_F32), ROWS);
    c.biases = true;
    be_seed = 8;
    struct layer l = new_layer(&c);
    struct way w = new_way(&l);
    const uint32_t idle[] = {0, 3};
    for (int k = 0; k < 2; k++) {
        l.router_bias[idle[k]] = -1e4f;
        for (uint64_t i = 0; i < 256 * 256; i++)
            ((float *)l.down.packed)[idle[k] * 256 * 256 + i] = NAN;
    }
    draw_rows(&w, &l);
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_moe(be_isas[i], 3, 8);
        if (!be) continue;
        struct placed p = place_weights(be, &l);
        static float y[ROWS * 256];
        run_rows(be, &p, &l, NULL, ROWS, y);
        for (uint32_t row = 0; row < ROWS; row++) {
            w.x = l.x + row * 256;
            CHECK(choose(&w));
            CHECK(compare_row(&w, row, y + row * 256) <= 1);
        }
        free_weights(&p);
        backend_close(be);
    }
    free_way(&w);
    free_layer(&l);
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
    struct layer l = new_layer(&c);
    uint64_t n = (uint64_t)n_rows * c.n_in;
    float *want = be_new(n, sizeof *want), *got = be_new(n, sizeof *got);
    uint32_t order[MOST_ROWS];
    for (uint32_t r = 0; r < n_rows; r++)
        order[r] = r;
    for (int k = 0; k < 3; k++) {
        backend *be = open_moe(isa, threads[k], c.bits);
        if (!be) break;
        struct placed p = place_weights(be, &l);
        for (uint32_t r = 0; k == 0 && r < n_rows; r++)
            run_rows(be, &p, &l, &order[r], 1, want);
        shuffle(order, n_rows);
        memset(got, 0, n * sizeof *got);
        for (uint32_t at = 0, some; at < n_rows; at += some) {
            some = k == 1 ? n_rows : 1 + be_below(40);
            if (some > n_rows - at) some = n_rows - at;
            run_rows(be, &p, &l, order + at, some, got);
        }
        CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "%s %s %d threads, %d bits", isa,
                  qtype_name(t->type), threads[k], c.bits);
        free_weights(&p);
        backend_close(be);
    }
    free(got);
    free(want);
    free_layer(&l);
}

/* The best set goes through all types, the others through every third. */
static void test_batch_invariance(void) {
    be_seed = 6;
    backend *best = open_moe("", 1, 8);
    for (int i = 0; i < BE_N_ISAS; i++) {
        int step = strcmp(be_isas[i], backend_isa(best)) == 0 && !be_quick ? 1 : 3;
        for (int t = i % step; t < N_BLOCK_TYPES; t += step)
            check_invariance(be_isas[i], &block_types[t], be_quick ? 9 : MOST_ROWS);
    }
    backend_close(best);
}

/* Residual and norm in front: the bits of the rows that op_linear makes of them. */
static void test_input_is_that_of_linear(void) {
    enum { ROWS = 7, IN = 256 };
    static float identity[IN * IN], residual[ROWS * IN], norm[IN], y[ROWS * IN], want[ROWS * IN];
    static float x[ROWS * IN];
    for (uint32_t i = 0; i < IN; i++)
        identity[i * IN + i] = 1;
    be_seed = 12;
    be_fill(residual, ROWS * IN, 1);
    be_fill(norm, IN, 1);
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_moe(be_isas[i], 2, 8);
        if (!be) continue;
        struct moe_case c = small_case(block_type_of(i & 1 ? QTYPE_F16 : QTYPE_Q5_K), ROWS);
        c.share = NOTHING_SHARED;
        struct layer l = new_layer(&c);
        struct placed p = place_weights(be, &l);
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
        free_weights(&p);
        free_layer(&l);
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
    struct layer l = new_layer(&c);
    backend *be = open_moe("generic", 1, 8);
    struct placed p = place_weights(be, &l);
    float y[2 * 256];
    run_rows(be, &p, &l, NULL, 2, y);
    CHECK(count_of(be, "moe_route_generic") == 1);
    CHECK(count_of(be, "moe_gather_generic") == 1);
    CHECK(count_of(be, "moe_combine_generic") == 1);
    CHECK(count_of(be, "linear_q4_k_generic") == 3);
    CHECK(count_of(be, "linear_f32_generic") == 1);
    CHECK(count_of(be, "quantize_rows_generic") == 2);
    CHECK(count_of(be, "glu_silu_generic") == 1);
    free_weights(&p);
    backend_close(be);
    free_layer(&l);
}

/* Scratch is taken at open, or nothing is. */
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
    struct layer l = new_layer(&c);
    backend *be = open_moe("", 1, 8), *plain = be_open("", 1);
    struct placed p = place_weights(be, &l), other = place_weights(plain, &l);
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
    REFUSED(op.weight_scale = -1);
    REFUSED(op.router = op.gate);
    REFUSED(op.gate = op.router);
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
    CHECK(backend_linear(be, &linear) == ERR_INVALID); /* experts are no plain weight */
    backend_buf *bufs[] = {x, y, small, px, py};
    for (int i = 0; i < 5; i++)
        backend_buf_free(bufs[i]);
    free_weights(&other);
    free_weights(&p);
    backend_close(plain);
    backend_close(be);
    free_layer(&l);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "bench") == 0) return moe_bench(argc, argv);
    be_args(argc, argv);
    RUN(test_against_float64);
    RUN(test_long_rows);
    RUN(test_ties);
    RUN(test_experts_that_nobody_chose);
    RUN(test_batch_invariance);
    RUN(test_input_is_that_of_linear);
    RUN(test_counters);
    RUN(test_limits);
    RUN(test_refusals);
    return check_done();
}
