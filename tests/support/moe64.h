/* moe64.h - layers of experts with their exact weights, rows through a backend's op_moe, and a
 * float64 reference with tolerances. Single thread. */
#ifndef INFERD_TESTS_MOE64_H
#define INFERD_TESTS_MOE64_H

#include "core/base/mem.h"
#include "tests/support/matrix.h"
#include "tests/unit/check.h"

enum { MOE_MOST_EXPERTS = 1024 }; /* of a layer here */

/* ---- a layer and its rows ---- */

enum moe_share { MOE_NOTHING_SHARED, MOE_SHARED, MOE_SHARED_GATED, MOE_N_SHARES };

struct moe_case {
    const struct block_type *router, *gate, *up, *down;
    uint32_t n_experts, n_used, n_in, n_ff, n_rows;
    int bits;
    enum backend_act act;
    enum moe_share share;
    bool renormalize, biases, ties, exact; /* exact: see matrix_fill_exact */
    enum backend_gating gating;
    bool choice_bias, expert_scale; /* factors of the experts' weights */
    float weight_scale;
    bool weighs_input;
    float mixer_limit;                /* of the sparse mixer */
    bool ungated;                     /* squared ReLU; act is NONE */
    struct backend_bounds bounds;     /* with SILU */
    bool latent;                      /* the experts read a second input as wide as the first */
    uint32_t n_groups, n_groups_used; /* as in op_moe */
};

/* Experts are rows of one matrix: n_out of each expert, one expert's after the other's. */
struct moe_layer {
    struct moe_case c;
    struct matrix router, gate, up, down;
    float *router_bias, *gate_bias, *up_bias, *down_bias; /* zeros without biases */
    float *choice_bias, *expert_scale;                    /* likewise; ones */
    float *x, *latent, *shared, *shared_gate;             /* (n_rows, ..) */
};

static inline float *moe_floats(uint64_t n, float scale) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, scale);
    return x;
}

static inline struct moe_layer moe_layer_new(const struct moe_case *c) {
    uint64_t n_x = (uint64_t)c->n_rows * c->n_in;
    uint32_t n = c->n_experts;
    float bias = c->biases ? 1 : 0;
    struct moe_layer l = {.c = *c,
                          .router = matrix_make(c->router, n, c->n_in, false),
                          .gate = matrix_make(c->gate, n * c->n_ff, c->n_in, false),
                          .up = matrix_make(c->up, n * c->n_ff, c->n_in, false),
                          .down = matrix_make(c->down, n * c->n_in, c->n_ff, false),
                          .router_bias = moe_floats(n, bias),
                          .choice_bias = moe_floats(n, c->choice_bias ? 0.5f : 0),
                          .expert_scale = moe_floats(n, c->expert_scale ? 0.5f : 0),
                          .gate_bias = moe_floats((uint64_t)n * c->n_ff, bias),
                          .up_bias = moe_floats((uint64_t)n * c->n_ff, bias),
                          .down_bias = moe_floats((uint64_t)n * c->n_in, bias),
                          .x = moe_floats(n_x, 1),
                          .latent = moe_floats(n_x, 1),
                          .shared = moe_floats(n_x, 5),
                          .shared_gate = moe_floats(c->n_rows, 2)};
    for (uint32_t e = 0; e < n; e++)
        l.expert_scale[e] += 1;
    uint64_t row_bytes = 0;
    qtype_bytes(c->router->type, 1, c->n_in, &row_bytes);
    for (uint32_t e = 1; c->ties && e < n; e += 2) { /* experts 2i and 2i + 1 score alike */
        uint8_t *packed = (uint8_t *)l.router.packed + e * row_bytes;
        float *values = l.router.values + (uint64_t)e * c->n_in;
        memcpy(packed, packed - row_bytes, row_bytes);
        memcpy(values, values - c->n_in, c->n_in * sizeof *values);
        l.router_bias[e] = l.router_bias[e - 1];
        l.choice_bias[e] = l.choice_bias[e - 1];
    }
    return l;
}

static inline void moe_layer_free(struct moe_layer *l) {
    matrix_free(&l->router);
    matrix_free(&l->gate);
    matrix_free(&l->up);
    matrix_free(&l->down);
    float *floats[] = {l->router_bias, l->gate_bias,   l->up_bias, l->down_bias,   l->x, l->shared,
                       l->shared_gate, l->choice_bias, l->latent,  l->expert_scale};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        free(floats[i]);
}

/* The layer in a backend, and an op over it that reads and writes n_rows rows. */
struct moe_placed {
    backend_weight *w[10];
    backend_buf *buf[4]; /* x, shared, shared_gate, y */
    struct op_moe op;
};

static inline struct moe_placed moe_place(backend *be, const struct moe_layer *l) {
    const struct moe_case *c = &l->c;
    uint32_t n = c->n_experts;
    struct moe_placed p = {.w = {be_weight(be, l->router.type, n, c->n_in, l->router.packed),
                                 be_experts(be, l->gate.type, n, c->n_ff, c->n_in, l->gate.packed),
                                 be_experts(be, l->up.type, n, c->n_ff, c->n_in, l->up.packed),
                                 be_experts(be, l->down.type, n, c->n_in, c->n_ff, l->down.packed),
                                 be_weight(be, QTYPE_F32, 1, n, l->router_bias),
                                 be_experts(be, QTYPE_F32, n, 1, c->n_ff, l->gate_bias),
                                 be_experts(be, QTYPE_F32, n, 1, c->n_ff, l->up_bias),
                                 be_experts(be, QTYPE_F32, n, 1, c->n_in, l->down_bias),
                                 be_weight(be, QTYPE_F32, 1, n, l->choice_bias),
                                 be_weight(be, QTYPE_F32, 1, n, l->expert_scale)}};
    p.op = (struct op_moe){.n_used = c->n_used,
                           .router = p.w[0],
                           .gate = p.w[1],
                           .up = p.w[2],
                           .down = p.w[3],
                           .gating = c->gating,
                           .choice_bias = c->choice_bias ? p.w[8] : NULL,
                           .renormalize = c->renormalize,
                           .weighs_input = c->weighs_input,
                           .mixer_limit = c->mixer_limit,
                           .weight_scale = c->weight_scale,
                           .expert_scale = c->expert_scale ? p.w[9] : NULL,
                           .n_groups = c->n_groups,
                           .n_groups_used = c->n_groups_used,
                           .act = c->act,
                           .bounds = c->bounds};
    if (c->ungated) p.op.gate = NULL;
    if (!c->biases) return p;
    p.op.router_bias = p.w[4];
    p.op.gate_bias = c->ungated ? NULL : p.w[5];
    p.op.up_bias = p.w[6];
    p.op.down_bias = p.w[7];
    return p;
}

static inline void moe_placed_free(struct moe_placed *p) {
    for (int i = 0; i < 10; i++)
        backend_weight_free(p->w[i]);
}

/* Rows order[0..n) (NULL: 0..n) of the layer, in this order; row r's result goes to y + r *
 * n_in. */
static inline void moe_run_rows(backend *be, struct moe_placed *p, const struct moe_layer *l,
                                const uint32_t *order, uint32_t n, float *y) {
    uint32_t n_in = l->c.n_in;
    uint64_t n_x = (uint64_t)n * n_in, row_bytes = n_in * sizeof(float);
    float *x = be_new(n_x, sizeof *x), *shared = be_new(n_x, sizeof *x);
    float *latent = be_new(n_x, sizeof *latent);
    float *gate = be_new(n, sizeof *gate);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t row = order ? order[i] : i;
        memcpy(x + (uint64_t)i * n_in, l->x + row * n_in, row_bytes);
        memcpy(latent + (uint64_t)i * n_in, l->latent + row * n_in, row_bytes);
        memcpy(shared + (uint64_t)i * n_in, l->shared + row * n_in, row_bytes);
        gate[i] = l->shared_gate[row];
    }
    backend_buf *xb = be_f32(be, x, n_x), *sb = be_f32(be, shared, n_x);
    backend_buf *gb = be_f32(be, gate, n), *yb = be_f32(be, shared, n_x);
    backend_buf *lb = be_f32(be, latent, n_x);
    p->op.in.x = xb;
    p->op.n_rows = n;
    p->op.latent = l->c.latent ? lb : NULL;
    p->op.shared = l->c.share != MOE_NOTHING_SHARED ? sb : NULL;
    p->op.shared_gate = l->c.share == MOE_SHARED_GATED ? gb : NULL;
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
    backend_buf_free(lb);
    free(latent);
    backend_buf_free(gb);
    backend_buf_free(sb);
    backend_buf_free(xb);
    free(gate);
    free(shared);
    free(x);
}

/* ---- float64 ---- */

static inline double moe_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* act(gate, up) = *gain times *factor. */
static inline void moe_act_parts(enum backend_act act, double g, double u, double *gain,
                                 double *factor) {
    *factor = u;
    if (act == BACKEND_ACT_NONE) {
        *gain = fmax(u, 0);
    } else if (act == BACKEND_ACT_SILU) {
        *gain = g * moe_sigmoid(g);
    } else if (act == BACKEND_ACT_GELU_TANH) {
        *gain = g / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g)));
    } else if (act == BACKEND_ACT_GELU) {
        *gain = g / 2 * erfc(-g / sqrt(2));
    } else {
        g = fmin(g, 7);
        *gain = g * moe_sigmoid(1.702 * g);
        *factor = fmax(-7, fmin(u, 7)) + 1;
    }
}

/* A row's reference values and tolerances. Activations have top codes. */
struct moe_way {
    const struct moe_layer *l;
    const float *x, *read;                         /* of the router, of the experts */
    int top, top_in;                               /* top_in 0: the input is exact */
    double weight[MOE_MOST_EXPERTS], weight_error; /* 0: not chosen; relative */
    double *y, *error;                             /* (n_in) */
    float *hidden;                                 /* (n_ff) */
    double *hidden_error;
    double relative; /* largest error so far, of the largest value of its row */
};

/* Takes the experts out that are not in the best groups. false: as below. */
static inline bool moe_choose_groups(const struct moe_case *c, const double *key, double rounding,
                                     bool *out) {
    const uint32_t n = c->n_groups, size = n ? c->n_experts / n : 0;
    double group[MOE_MOST_EXPERTS], last = 0;
    bool used[MOE_MOST_EXPERTS] = {false};
    for (uint32_t g = 0; g < n; g++) {
        double best[2] = {-INFINITY, -INFINITY};
        for (uint32_t e = g * size; e < (g + 1) * size; e++) {
            if (key[e] > best[0])
                best[1] = best[0], best[0] = key[e];
            else
                best[1] = fmax(best[1], key[e]);
        }
        group[g] = best[0] + (c->gating == BACKEND_GATING_SIGMOID ? best[1] : 0);
    }
    for (uint32_t k = 0; k < c->n_groups_used && n; k++) {
        uint32_t best = n;
        for (uint32_t g = 0; g < n; g++)
            if (!used[g] && (best == n || group[g] > group[best])) best = g;
        used[best] = true;
        last = group[best];
    }
    for (uint32_t e = 0; e < c->n_experts && n; e++) {
        const uint32_t g = e / size;
        out[e] = !used[g];
        if (out[e] && group[g] != last && last - group[g] < 4 * rounding) return false;
    }
    return true;
}

/* The sparse mixer's weight of the expert with the score own, before which experts with scores from
 * `before` on were chosen. false: as below. */
static inline bool moe_mix(const struct moe_case *c, const double *score, const bool *before,
                           double own, double rounding, double *weight) {
    double sum = 0;
    for (uint32_t i = 0; i < c->n_experts; i++) {
        const double limit = (double)c->mixer_limit, scale = fmax(fabs(score[i]), own);
        if (before[i]) continue;
        if (fabs(own - score[i] - limit * scale) < 4 * rounding + 1e-6 * scale) return false;
        if ((own - score[i]) / scale <= limit || own == score[i]) sum += exp(score[i] - own);
    }
    *weight = 1 / sum;
    return true;
}

/* false: two scores are so close that rounding may decide between them. */
static inline bool moe_choose(struct moe_way *w) {
    const struct moe_case *c = &w->l->c;
    double score[MOE_MOST_EXPERTS], p[MOE_MOST_EXPERTS], most = -INFINITY, sum = 0, all = 0,
                                                         rounding = 0, scale = c->weight_scale;
    const bool sigmoid = c->gating == BACKEND_GATING_SIGMOID;
    bool chosen[MOE_MOST_EXPERTS] = {false}, out[MOE_MOST_EXPERTS] = {false};
    for (uint32_t e = 0; e < c->n_experts; e++) {
        float bias = w->l->router_bias[e];
        score[e] = matrix_product(&w->l->router, w->x, e, bias);
        rounding = fmax(rounding, matrix_allowed(&w->l->router, w->x, e, bias, w->top_in));
        most = fmax(most, score[e]);
    }
    for (uint32_t e = 0; e < c->n_experts; e++)
        all += exp(score[e] - most);
    double key_rounding = rounding;
    for (uint32_t e = 0; e < c->n_experts; e++) {
        p[e] = sigmoid ? moe_sigmoid(score[e]) : exp(score[e] - most) / all;
        if (!sigmoid && !c->choice_bias) continue; /* scores have the same order */
        score[e] = p[e] + (double)w->l->choice_bias[e];
        key_rounding = (sigmoid ? 0.25 : 0.5) * rounding + 1e-6; /* the slope, and exp */
    }
    double last = 0;
    if (!moe_choose_groups(c, score, key_rounding, out)) return false;
    for (uint32_t k = 0; k < c->n_used; k++) {
        uint32_t best = MOE_MOST_EXPERTS;
        for (uint32_t e = 0; e < c->n_experts; e++)
            if (!chosen[e] && !out[e] && (best == MOE_MOST_EXPERTS || score[e] > score[best]))
                best = e;
        if (c->gating == BACKEND_GATING_MIXER &&
            !moe_mix(c, score, chosen, score[best], rounding, &p[best]))
            return false;
        chosen[best] = true;
        last = score[best];
    }
    for (uint32_t e = 0; e < c->n_experts; e++) {
        if (!chosen[e] && !out[e] && score[e] != last && last - score[e] < 2 * key_rounding)
            return false;
        w->weight[e] = chosen[e] ? p[e] : 0;
        if (chosen[e]) sum += p[e];
    }
    for (uint32_t e = 0; e < c->n_experts; e++)
        w->weight[e] *=
            (scale != 0 ? scale : 1) / (c->renormalize ? sum : 1) * (double)w->l->expert_scale[e];
    w->weight_error = 2.2 * rounding + 4e-6;
    return true;
}

/* Adds one expert's output for the row. The slope of each act is below 1.14. */
static inline void moe_add_expert(struct moe_way *w, uint32_t e) {
    const struct moe_layer *l = w->l;
    const struct moe_case *c = &l->c;
    const int top_in = c->latent ? w->top : w->top_in;
    for (uint32_t i = 0; i < c->n_ff; i++) {
        uint32_t at = e * c->n_ff + i;
        double g = matrix_product(&l->gate, w->read, at, l->gate_bias[at]), gain, factor;
        double u = matrix_product(&l->up, w->read, at, l->up_bias[at]);
        double dg = matrix_allowed(&l->gate, w->read, at, l->gate_bias[at], top_in);
        double du = matrix_allowed(&l->up, w->read, at, l->up_bias[at], top_in);
        if (c->weighs_input) {
            const double by = w->weight[e], off = w->weight_error;
            dg = fabs(by) * (dg + off * (fabs(g) + dg)),
            du = fabs(by) * (du + off * (fabs(u) + du));
            g *= by, u *= by;
        }
        if (c->ungated) g = u, dg = du;
        if (c->bounds.up > 0) {
            const double most = (double)c->bounds.up;
            g = fmin(g, (double)c->bounds.gate), u = fmax(-most, fmin(u, most));
        }
        moe_act_parts(c->act, g, u, &gain, &factor);
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
        const double by = c->weighs_input ? 1 : w->weight[e];
        const double off = c->weighs_input ? 4e-6 : w->weight_error;
        w->y[o] += by * y;
        w->error[o] += fabs(by) * (error + off * (fabs(y) + error));
    }
}

/* Largest error in units of the tolerance; NaN counts as infinite. */
static inline double moe_compare_row(struct moe_way *w, uint32_t row, const float *y) {
    const struct moe_case *c = &w->l->c;
    const float *shared = w->l->shared + (uint64_t)row * c->n_in;
    double share = c->share == MOE_NOTHING_SHARED ? 0
                   : c->share == MOE_SHARED       ? 1
                                                  : moe_sigmoid(w->l->shared_gate[row]);
    double worst = 0, largest = 1e-30, most = 0;
    w->read = c->latent ? w->l->latent + (uint64_t)row * c->n_in : w->x;
    memset(w->y, 0, c->n_in * sizeof *w->y);
    memset(w->error, 0, c->n_in * sizeof *w->error);
    for (uint32_t e = 0; e < c->n_experts; e++)
        if (w->weight[e] != 0) moe_add_expert(w, e);
    for (uint32_t o = 0; o < c->n_in; o++) {
        double want = w->y[o] + share * shared[o];
        double off = fabs(y[o] - want);
        double error = off / (w->error[o] + 1e-6 * fabs(shared[o]) + 1e-30);
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
        largest = fmax(largest, fabs(want));
        most = fmax(most, off);
    }
    w->relative = fmax(w->relative, most / largest);
    return worst;
}

static inline struct moe_way moe_way_new(const struct moe_layer *l) {
    struct moe_way w = {.l = l, .top = matrix_top(l->c.bits)};
    w.top_in = l->c.exact ? 0 : w.top;
    w.y = be_new(l->c.n_in, sizeof *w.y);
    w.error = be_new(l->c.n_in, sizeof *w.error);
    w.hidden = be_new(l->c.n_ff, sizeof *w.hidden);
    w.hidden_error = be_new(l->c.n_ff, sizeof *w.hidden_error);
    return w;
}

static inline void moe_way_free(struct moe_way *w) {
    free(w->y);
    free(w->error);
    free(w->hidden);
    free(w->hidden_error);
}

/* Generates rows until the scores differ enough. */
static inline void moe_draw_rows(struct moe_way *w, struct moe_layer *l) {
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
        } while (!moe_choose(w) && --tries);
        be_need(tries, "rows whose scores are apart");
    }
}

/* A layer of this kind with random rows; the largest error of the largest value of its row. */
static inline double moe_check_case(backend *be, const struct moe_case *c) {
    struct moe_layer l = moe_layer_new(c);
    struct moe_way w = moe_way_new(&l);
    struct matrix *all[] = {&l.router, &l.gate, &l.up, &l.down};
    for (int i = 0; i < 4; i++)
        all[i]->rounding = be_rounding(be, all[i]->type);
    if (!be_is_cpu(be)) w.top = w.top_in = 0;
    moe_draw_rows(&w, &l);
    struct moe_placed p = moe_place(be, &l);
    float *y = be_new((uint64_t)c->n_rows * c->n_in, sizeof *y);
    moe_run_rows(be, &p, &l, NULL, c->n_rows, y);
    double worst = 0;
    uint32_t n_checked = c->n_rows <= 5 ? c->n_rows : 5;
    for (uint32_t i = 0; i < n_checked; i++) {
        uint32_t row = c->n_rows <= 5 ? i : be_below(c->n_rows);
        w.x = l.x + (uint64_t)row * c->n_in;
        moe_choose(&w);
        worst = fmax(worst, moe_compare_row(&w, row, y + (uint64_t)row * c->n_in));
    }
    check_note_error(worst);
    CHECK_MSG(worst <= 1,
              "%s %s/%s/%s/%s %d bits, %u of %u experts, in %u ff %u rows %u, act %d share %d "
              "renormalize %d biases %d ties %d exact %d gating %d bias of choice %d ungated %d "
              "latent %d weighs input %d: %.3g of the "
              "tolerance",
              backend_isa(be), qtype_name(l.router.type), qtype_name(l.gate.type),
              qtype_name(l.up.type), qtype_name(l.down.type), c->bits, c->n_used, c->n_experts,
              c->n_in, c->n_ff, c->n_rows, c->act, c->share, c->renormalize, c->biases, c->ties,
              c->exact, c->gating, c->choice_bias, c->ungated, c->latent, c->weighs_input, worst);
    free(y);
    moe_placed_free(&p);
    moe_way_free(&w);
    moe_layer_free(&l);
    return w.relative;
}

#endif
