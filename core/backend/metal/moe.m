/* moe.m - launches of a mixture of experts: routing, the experts' products, their sum
 * (core/backend/moe_plan.h has the steps). Owns their scratch. Only the device knows which experts
 * a row uses: grids are as large as the op's sizes allow, and surplus threadgroups return at once.
 */
#include "core/backend/metal/metal_int.h"

#include "core/backend/moe_plan.h"

enum {
    VECTOR_TILE = 8, /* most pairs that share a read of an expert's weights (moe.metal) */
    TILE_PAIRS = MARGS_PRODUCT_TILE,
    /* Average number of pairs of an expert above which tiles take over: those of 8 rows cost as
     * much as the vector family (linear.m), and at 6 one expert in seven has more than 8 if experts
     * are used evenly. */
    VECTOR_AVERAGE = 6,
    NARROW_OUTPUTS = 4096, /* as in linear.m */
    COMBINE_THREADS = 256
};

_Static_assert((int)METAL_SCRATCH_MOE_OUT == (int)METAL_SCRATCH_MOE_SCORES + (int)MOE_OUT,
               "scratch in the order of enum moe_scratch");

int metal_moe_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    uint64_t bytes[MOE_N_SCRATCH] = {0};
    if (!c->moe.n_experts) return 0;
    int rc = moe_scratch_bytes(c, VECTOR_TILE, c->max_cols, bytes, e);
    for (int i = 0; i < MOE_N_SCRATCH && !rc; i++)
        rc = backend_buf_new(&m->base, bytes[i], &m->scratch[(int)METAL_SCRATCH_MOE_SCORES + i], e);
    return rc;
}

/* ---- one op ---- */

struct moe_run {
    struct metal_backend *m;
    const struct op_moe *op;
    struct moe_plan plan;
    struct metal_bind rows; /* (n_rows, n_in): the experts' input, or latent */
    bool in_tiles;          /* which family of kernels */
    struct metal_bind experts, weights, list, tiles;
};

static bool use_tiles(const struct moe_run *r) {
    return metal_takes_tiles(r->m, r->plan.n_pairs > (uint64_t)VECTOR_AVERAGE * r->plan.n_experts);
}

/* Prepares the input rows and computes the router's scores. */
static int moe_score(struct moe_run *r) {
    const struct op_moe *a = r->op;
    struct metal_backend *m = r->m;
    int rc = metal_input(m, &a->in, a->n_rows, (uint32_t)a->router->n_in, NULL, &r->rows);
    if (rc) return rc;
    if (a->latent) r->rows = metal_at(a->latent);
    return metal_linear(
        &m->base, &(struct op_linear){.in.x = a->in.norm ? m->scratch[METAL_SCRATCH_IN] : a->in.x,
                                      .n_rows = a->n_rows,
                                      .n_weights = 1,
                                      .w = {a->router},
                                      .bias = {a->router_bias},
                                      .y = {m->scratch[METAL_SCRATCH_MOE_SCORES]}});
}

static int moe_route(const struct moe_run *r) {
    const struct moe_plan *p = &r->plan;
    const struct metal_bind scores = metal_at(r->m->scratch[METAL_SCRATCH_MOE_SCORES]);
    const backend_weight *bias = r->op->choice_bias, *by_expert = r->op->expert_scale;
    return metal_dispatch(r->m, &(struct metal_launch){
                                    .kernel = "moe_route",
                                    .args = &p->route,
                                    .args_bytes = sizeof p->route,
                                    .n_binds = 7,
                                    .binds = {scores, r->experts, r->weights, r->list, r->tiles,
                                              bias ? metal_weight_at(bias) : scores,
                                              by_expert ? metal_weight_at(by_expert) : scores},
                                    .groups = {p->route.n_rows, 1, 1},
                                    .threads = {p->route_threads, 1, 1},
                                    .read = p->route_traffic.read,
                                    .written = p->route_traffic.written,
                                });
}

static int moe_list_pairs(const struct moe_run *r) {
    const struct moe_plan *p = &r->plan;
    return metal_dispatch(r->m, &(struct metal_launch){
                                    .kernel = "moe_lists",
                                    .args = &p->lists,
                                    .args_bytes = sizeof p->lists,
                                    .n_binds = 3,
                                    .binds = {r->experts, r->list, r->tiles},
                                    .groups = {1, 1, 1},
                                    .threads = {p->lists_threads, 1, 1},
                                    .read = p->lists_traffic.read,
                                    .written = p->lists_traffic.written,
                                });
}

/* ---- products ---- */

/* Gate and up, or down. */
struct moe_product {
    const backend_weight *w[2], *bias[2]; /* w[1]: up or NULL */
    enum backend_act act;
    struct backend_bounds bounds;
    struct metal_bind x, y;
    uint32_t n_share; /* pairs that read the same row of x */
};

/* Weights of as many experts as the pairs can have, each counted once: only the device knows which.
 * The vector family reads an expert again for each further tile of its rows; the tiles of the
 * other family run side by side and share the first one's reads through the cache. */
static uint64_t weight_bytes(const struct moe_run *r, const struct moe_product *p) {
    const struct moe_plan *plan = &r->plan;
    uint64_t used = plan->n_pairs < plan->n_experts ? plan->n_pairs : plan->n_experts, row = 0;
    for (int i = 0; i < 2 && p->w[i]; i++)
        row += metal_row_bytes(p->w[i]) + (p->bias[i] ? sizeof(float) : 0);
    return used * p->w[0]->n_out * row;
}

/* Weight rows of a lane of the vector family, those of a pair in twos (linear.m has the reasons).
 */
static uint32_t lane_width(const struct moe_run *r, const struct moe_product *p) {
    const bool narrow = r->plan.n_pairs * p->w[0]->n_out < NARROW_OUTPUTS;
    return r->op->n_rows == 1 && !p->w[1] && narrow ? 1 : 2;
}

static int moe_multiply(const struct moe_run *r, const struct moe_product *p) {
    const struct moe_plan *plan = &r->plan;
    const backend_weight *w = p->w[0], *up = p->w[1] ? p->w[1] : w;
    uint32_t width = lane_width(r, p), bias = 0;
    uint32_t tile =
        r->in_tiles ? MARGS_PRODUCT_TILE
                    : MARGS_LINEAR_SIMDGROUPS * MARGS_PRODUCT_SLOTS * (p->w[1] ? width / 2 : width);
    for (uint32_t i = 0; i < 2; i++)
        bias |= (uint32_t)(p->bias[i] != NULL) << i;
    const struct margs_moe_products args = {
        .linear = {.n_in = (uint32_t)w->n_in,
                   .n_out = {(uint32_t)w->n_out},
                   .row_bytes = {metal_row_bytes(w), metal_row_bytes(up)},
                   .y_over_cap = p->bounds.gate,
                   .cap = p->bounds.up},
        .n_share = p->n_share};
    struct metal_launch l = {
        .kernel = r->in_tiles ? metal_tile_kernel(r->m, "moe_matrix", "moe_plain") : "moe_vector",
        .n_consts = MARGS_LINEAR_N_CONSTS,
        .consts = {{MARGS_LINEAR_TYPE, (uint32_t)w->type},
                   {MARGS_LINEAR_TYPE_UP, (uint32_t)up->type},
                   {MARGS_LINEAR_N_WEIGHTS, 1},
                   {MARGS_LINEAR_ACT, p->act},
                   {MARGS_LINEAR_BIAS, bias},
                   {MARGS_LINEAR_EDGE, w->n_in % 8 != 0},
                   {MARGS_LINEAR_SCALED, 0},
                   {MARGS_LINEAR_ROWS, r->op->n_rows == 1 ? 1 : plan->tile_rows},
                   {MARGS_LINEAR_WIDTH, width},
                   {MARGS_LINEAR_HALVES, metal_has_halves(r->m)}},
        .args = &args,
        .args_bytes = sizeof args,
        .n_binds = 8,
        .binds = {r->tiles, r->list, p->x, metal_weight_at(w), metal_weight_at(up),
                  p->bias[0] ? metal_weight_at(p->bias[0]) : r->weights,
                  p->bias[1] ? metal_weight_at(p->bias[1]) : r->weights, p->y},
        .groups = {plan->n_tiles, metal_div_up(w->n_out, tile), 1},
        .threads = {r->in_tiles ? MARGS_PRODUCT_THREADS : MARGS_LINEAR_SIMDGROUPS * 32, 1, 1},
        .read = weight_bytes(r, p) +
                (uint64_t)plan->n_pairs / p->n_share * w->n_in * sizeof(float) +
                (uint64_t)plan->n_tiles * sizeof(struct args_moe_tile) +
                (uint64_t)plan->n_pairs * sizeof(uint32_t),
        .written = (uint64_t)plan->n_pairs * w->n_out * sizeof(float),
        .products = (uint64_t)plan->n_pairs * w->n_out * w->n_in * (p->w[1] ? 2 : 1),
    };
    /* As if no pairs shared an expert. */
    for (uint32_t i = 0; i < 2 && p->w[i] && !r->in_tiles; i++)
        l.cycles +=
            metal_product_cycles(p->w[i]->type, 1, (uint64_t)plan->n_pairs * w->n_out * w->n_in);
    return metal_dispatch(r->m, &l);
}

/* Without gate; the pairs of a row are adjacent. */
static int moe_up(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    backend_buf *ff = r->m->scratch[METAL_SCRATCH_MOE_FF];
    int rc = moe_multiply(r, &(struct moe_product){.w = {a->up},
                                                   .bias = {a->up_bias},
                                                   .x = r->rows,
                                                   .y = metal_at(ff),
                                                   .n_share = a->n_used});
    return rc ? rc
              : metal_gate(&r->m->base, &(struct op_gate){.x = ff,
                                                          .n_rows = a->n_rows,
                                                          .n_cols = a->n_used * r->plan.n_ff});
}

/* The weighted input of each pair, in the place of its result. */
static int moe_weigh(const struct moe_run *r) {
    const struct moe_plan *p = &r->plan;
    const struct margs_moe_weigh args = {.n_in = p->n_in, .n_used = r->op->n_used};
    const uint64_t row_bytes = (uint64_t)p->n_in * sizeof(float);
    return metal_dispatch(
        r->m, &(struct metal_launch){
                  .kernel = "moe_weigh",
                  .args = &args,
                  .args_bytes = sizeof args,
                  .n_binds = 3,
                  .binds = {r->rows, r->weights, metal_at(r->m->scratch[METAL_SCRATCH_MOE_OUT])},
                  .groups = {metal_div_up(p->n_in, COMBINE_THREADS), p->n_pairs, 1},
                  .threads = {COMBINE_THREADS, 1, 1},
                  .read = p->n_pairs * (row_bytes + sizeof(float)),
                  .written = p->n_pairs * row_bytes,
              });
}

static int moe_gate_up(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const bool own = a->weighs_input;
    if (!a->gate) return moe_up(r);
    int rc = own ? moe_weigh(r) : 0;
    if (rc) return rc;
    return moe_multiply(r, &(struct moe_product){
                               .w = {a->gate, a->up},
                               .bias = {a->gate_bias, a->up_bias},
                               .act = a->act,
                               .bounds = a->bounds,
                               .x = own ? metal_at(r->m->scratch[METAL_SCRATCH_MOE_OUT]) : r->rows,
                               .y = metal_at(r->m->scratch[METAL_SCRATCH_MOE_FF]),
                               .n_share = own ? 1 : a->n_used});
}

static int moe_down(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    return moe_multiply(r,
                        &(struct moe_product){.w = {a->down},
                                              .bias = {a->down_bias},
                                              .x = metal_at(r->m->scratch[METAL_SCRATCH_MOE_FF]),
                                              .y = metal_at(r->m->scratch[METAL_SCRATCH_MOE_OUT]),
                                              .n_share = 1});
}

/* ---- results ---- */

static int moe_combine(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct moe_plan *p = &r->plan;
    const struct margs_moe_combine args = {
        .op = p->combine, .has_shared = a->shared != NULL, .has_gate = a->shared_gate != NULL};
    uint64_t row_bytes = (uint64_t)a->n_rows * p->n_in * sizeof(float);
    return metal_dispatch(
        r->m, &(struct metal_launch){
                  .kernel = "moe_combine",
                  .args = &args,
                  .args_bytes = sizeof args,
                  .n_binds = 5,
                  .binds = {metal_at(r->m->scratch[METAL_SCRATCH_MOE_OUT]), r->weights,
                            metal_at_or(a->shared, a->in.x), metal_at_or(a->shared_gate, a->in.x),
                            metal_at(a->y)},
                  .groups = {metal_div_up(p->n_in, COMBINE_THREADS), a->n_rows, 1},
                  .threads = {COMBINE_THREADS, 1, 1},
                  .read = row_bytes * (a->n_used + args.has_shared) +
                          (uint64_t)(p->n_pairs + (args.has_gate ? a->n_rows : 0)) * sizeof(float),
                  .written = row_bytes,
              });
}

int metal_moe(backend *be, const struct op_moe *a) {
    struct metal_backend *m = metal_of(be);
    struct moe_run r = {.m = m,
                        .op = a,
                        .plan = moe_plan_of(a),
                        .experts = metal_at(m->scratch[METAL_SCRATCH_MOE_EXPERTS]),
                        .weights = metal_at(m->scratch[METAL_SCRATCH_MOE_WEIGHTS]),
                        .list = metal_at(m->scratch[METAL_SCRATCH_MOE_LIST]),
                        .tiles = metal_at(m->scratch[METAL_SCRATCH_MOE_TILES])};
    r.in_tiles = use_tiles(&r);
    moe_plan_tiles(&r.plan, r.in_tiles ? TILE_PAIRS : VECTOR_TILE);
    int rc = moe_score(&r);
    if (!rc) rc = moe_route(&r);
    if (!rc && a->n_rows > 1) rc = moe_list_pairs(&r);
    if (!rc) rc = moe_gate_up(&r);
    if (!rc) rc = moe_down(&r);
    return rc ? rc : moe_combine(&r);
}
