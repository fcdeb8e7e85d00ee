/* moe.m - launches of a mixture of experts: routing, the experts' products, their sum. Takes their
 * scratch. Which experts a row goes to is known on the device alone; grids are as large as the
 * numbers of the op allow, and what is beyond returns at once. */
#include "core/backend/metal/metal_int.h"

#include "core/base/mem.h"

enum {
    LISTS_THREADS = 1024,
    VECTOR_TILE = 8, /* most pairs that share a read of an expert's weights (moe.metal) */
    MATRIX_TILE = MARGS_PRODUCT_TILE,
    /* Pairs an expert, on average, above which the matrix family takes over where both may be used:
     * its tiles of 8 rows cost as much as the vector family's (linear.m), and at 6 one expert in
     * seven has more than 8 if they are drawn evenly. */
    VECTOR_AVERAGE = 6,
    NARROW_OUTPUTS = 4096, /* as in linear.m */
    TILE_BYTES = sizeof(struct args_moe_tile)
};

/* ---- scratch ---- */

static int take(struct metal_backend *m, enum metal_scratch which, uint64_t rows, uint64_t cols,
                err *e) {
    uint64_t bytes;
    if (!mem_mul(rows, cols, &bytes) || !mem_mul(bytes, sizeof(float), &bytes))
        return err_no_memory(e);
    return backend_buf_new(&m->base, bytes, &m->scratch[which], e);
}

int metal_moe_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    const struct backend_moe_limits *lim = &c->moe;
    uint64_t most = (uint64_t)c->max_rows * lim->n_used;
    int rc;
    if (!lim->n_experts) return 0;
    if (most > UINT32_MAX) return err_no_memory(e); /* pairs are counted in 32 bits */
    uint64_t tiles = (uint64_t)backend_moe_tiles(most, lim->n_experts, VECTOR_TILE);
    if ((rc = take(m, METAL_SCRATCH_MOE_SCORES, c->max_rows, lim->n_experts, e)) ||
        (rc = take(m, METAL_SCRATCH_MOE_EXPERTS, most, 1, e)) ||
        (rc = take(m, METAL_SCRATCH_MOE_WEIGHTS, most, 1, e)) ||
        (rc = take(m, METAL_SCRATCH_MOE_LIST, most, 1, e)) ||
        (rc = take(m, METAL_SCRATCH_MOE_TILES, tiles, TILE_BYTES / sizeof(float), e)) ||
        (rc = take(m, METAL_SCRATCH_MOE_FF, most, lim->n_ff, e)))
        return rc;
    return take(m, METAL_SCRATCH_MOE_OUT, most, c->max_cols, e);
}

/* ---- one op ---- */

struct moe_run {
    struct metal_backend *m;
    const struct op_moe *op;
    struct metal_bind rows; /* (n_rows, n_in): what the experts read */
    uint32_t n_in, n_ff, n_experts, n_pairs;
    bool matrix; /* the family */
    uint32_t tile_rows, n_tiles;
    struct metal_bind experts, weights, list, tiles;
};

static bool is_matrix(const struct moe_run *r) {
    enum metal_products p = r->m->features.products;
    if (p != METAL_BOTH) return p == METAL_MATRIX_ONLY;
    return r->n_pairs > (uint64_t)VECTOR_AVERAGE * r->n_experts;
}

/* Prepares the rows and scores them. */
static int score(struct moe_run *r) {
    const struct op_moe *a = r->op;
    struct metal_backend *m = r->m;
    int rc = metal_input(m, &a->in, a->n_rows, r->n_in, NULL, &r->rows);
    if (rc) return rc;
    return metal_linear(
        &m->base, &(struct op_linear){.in.x = a->in.norm ? m->scratch[METAL_SCRATCH_IN] : a->in.x,
                                      .n_rows = a->n_rows,
                                      .n_weights = 1,
                                      .w = {a->router},
                                      .bias = {a->router_bias},
                                      .y = {m->scratch[METAL_SCRATCH_MOE_SCORES]}});
}

static int route(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct args_moe_route args = {.n_rows = a->n_rows,
                                        .n_experts = r->n_experts,
                                        .n_used = a->n_used,
                                        .renormalize = a->renormalize,
                                        .weight_scale = a->weight_scale != 0 ? a->weight_scale : 1};
    uint64_t pair_bytes = 2 * sizeof(uint32_t);
    if (a->n_rows == 1) pair_bytes += sizeof(uint32_t) + TILE_BYTES;
    return metal_dispatch(r->m, &(struct metal_launch){
                                    .kernel = "moe_route",
                                    .args = &args,
                                    .args_bytes = sizeof args,
                                    .n_binds = 5,
                                    .binds = {metal_at(r->m->scratch[METAL_SCRATCH_MOE_SCORES]),
                                              r->experts, r->weights, r->list, r->tiles},
                                    .groups = {a->n_rows, 1, 1},
                                    .threads = {metal_div_up(r->n_experts, 32) * 32, 1, 1},
                                    .read = (uint64_t)a->n_rows * r->n_experts * sizeof(float),
                                    .written = r->n_pairs * pair_bytes,
                                });
}

/* Reads of the pairs: one to count, and one for each expert that has some, which are not counted
 * here. */
static int list(const struct moe_run *r) {
    const struct args_moe_lists args = {.n_pairs = r->n_pairs,
                                        .n_experts = r->n_experts,
                                        .tile_rows = r->tile_rows,
                                        .n_tiles = r->n_tiles};
    uint32_t most = r->n_pairs > r->n_experts ? r->n_pairs : r->n_experts;
    uint32_t threads = most < LISTS_THREADS ? metal_div_up(most, 32) * 32 : LISTS_THREADS;
    return metal_dispatch(r->m, &(struct metal_launch){
                                    .kernel = "moe_lists",
                                    .args = &args,
                                    .args_bytes = sizeof args,
                                    .n_binds = 3,
                                    .binds = {r->experts, r->list, r->tiles},
                                    .groups = {1, 1, 1},
                                    .threads = {threads, 1, 1},
                                    .read = (uint64_t)r->n_pairs * sizeof(uint32_t),
                                    .written = (uint64_t)r->n_pairs * sizeof(uint32_t) +
                                               (uint64_t)r->n_tiles * TILE_BYTES,
                                });
}

/* ---- products ---- */

/* Gate and up, or down. */
struct product {
    const backend_weight *w[2], *bias[2]; /* w[1]: up or NULL */
    enum backend_act act;
    struct metal_bind x, y;
    uint32_t n_share; /* pairs that read one row of x */
};

/* Weights of as many experts as the pairs may have, each once: which they are the device knows. An
 * expert with more rows than a tile is read again for each further tile by the vector family; the
 * matrix family's tiles run side by side and share what the first of them brought. */
static uint64_t weight_bytes(const struct moe_run *r, const struct product *p) {
    uint64_t used = r->n_pairs < r->n_experts ? r->n_pairs : r->n_experts, row = 0;
    for (int i = 0; i < 2 && p->w[i]; i++)
        row += metal_row_bytes(p->w[i]) + (p->bias[i] ? sizeof(float) : 0);
    return used * p->w[0]->n_out * row;
}

/* Weight rows of a lane of the vector family, a pair's in twos (linear.m has the reasons). */
static uint32_t lane_width(const struct moe_run *r, const struct product *p) {
    return r->op->n_rows == 1 && !p->w[1] && r->n_pairs * p->w[0]->n_out < NARROW_OUTPUTS ? 1 : 2;
}

static int multiply(const struct moe_run *r, const struct product *p) {
    const backend_weight *w = p->w[0], *up = p->w[1] ? p->w[1] : w;
    uint32_t width = lane_width(r, p), bias = 0;
    uint32_t tile =
        r->matrix ? MARGS_PRODUCT_TILE
                  : MARGS_LINEAR_SIMDGROUPS * MARGS_PRODUCT_SLOTS * (p->w[1] ? width / 2 : width);
    for (uint32_t i = 0; i < 2; i++)
        bias |= (uint32_t)(p->bias[i] != NULL) << i;
    const struct margs_moe_products args = {
        .linear = {.n_in = (uint32_t)w->n_in,
                   .n_out = {(uint32_t)w->n_out},
                   .row_bytes = {metal_row_bytes(w), metal_row_bytes(up)}},
        .n_share = p->n_share};
    struct metal_launch l = {
        .kernel = r->matrix ? "moe_matrix" : "moe_vector",
        .n_consts = MARGS_LINEAR_N_CONSTS,
        .consts = {{MARGS_LINEAR_TYPE, (uint32_t)w->type},
                   {MARGS_LINEAR_TYPE_UP, (uint32_t)up->type},
                   {MARGS_LINEAR_N_WEIGHTS, 1},
                   {MARGS_LINEAR_ACT, p->act},
                   {MARGS_LINEAR_BIAS, bias},
                   {MARGS_LINEAR_EDGE, w->n_in % 8 != 0},
                   {MARGS_LINEAR_SCALED, 0},
                   {MARGS_LINEAR_ROWS, r->op->n_rows == 1 ? 1 : r->tile_rows},
                   {MARGS_LINEAR_WIDTH, width}},
        .args = &args,
        .args_bytes = sizeof args,
        .n_binds = 8,
        .binds = {r->tiles, r->list, p->x, metal_weight_at(w), metal_weight_at(up),
                  p->bias[0] ? metal_weight_at(p->bias[0]) : r->weights,
                  p->bias[1] ? metal_weight_at(p->bias[1]) : r->weights, p->y},
        .groups = {r->n_tiles, metal_div_up(w->n_out, tile), 1},
        .threads = {r->matrix ? MARGS_PRODUCT_THREADS : MARGS_LINEAR_SIMDGROUPS * 32, 1, 1},
        .read = weight_bytes(r, p) + (uint64_t)r->n_pairs / p->n_share * w->n_in * sizeof(float) +
                (uint64_t)r->n_tiles * TILE_BYTES + (uint64_t)r->n_pairs * sizeof(uint32_t),
        .written = (uint64_t)r->n_pairs * w->n_out * sizeof(float),
    };
    return metal_dispatch(r->m, &l);
}

static int gate_up(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    return multiply(r, &(struct product){.w = {a->gate, a->up},
                                         .bias = {a->gate_bias, a->up_bias},
                                         .act = a->act,
                                         .x = r->rows,
                                         .y = metal_at(r->m->scratch[METAL_SCRATCH_MOE_FF]),
                                         .n_share = a->n_used});
}

static int down(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    return multiply(r, &(struct product){.w = {a->down},
                                         .bias = {a->down_bias},
                                         .x = metal_at(r->m->scratch[METAL_SCRATCH_MOE_FF]),
                                         .y = metal_at(r->m->scratch[METAL_SCRATCH_MOE_OUT]),
                                         .n_share = 1});
}

/* ---- results ---- */

static int combine(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct margs_moe_combine args = {.op = {.n_in = r->n_in, .n_used = a->n_used},
                                           .has_shared = a->shared != NULL,
                                           .has_gate = a->shared_gate != NULL};
    uint64_t row_bytes = (uint64_t)a->n_rows * r->n_in * sizeof(float);
    return metal_dispatch(
        r->m, &(struct metal_launch){
                  .kernel = "moe_combine",
                  .args = &args,
                  .args_bytes = sizeof args,
                  .n_binds = 5,
                  .binds = {metal_at(r->m->scratch[METAL_SCRATCH_MOE_OUT]), r->weights,
                            metal_at_or(a->shared, a->in.x), metal_at_or(a->shared_gate, a->in.x),
                            metal_at(a->y)},
                  .groups = {metal_div_up(r->n_in, 256), a->n_rows, 1},
                  .threads = {256, 1, 1},
                  .read = row_bytes * (a->n_used + args.has_shared) +
                          (uint64_t)(r->n_pairs + (args.has_gate ? a->n_rows : 0)) * sizeof(float),
                  .written = row_bytes,
              });
}

int metal_moe(backend *be, const struct op_moe *a) {
    struct metal_backend *m = metal_of(be);
    struct moe_run r = {.m = m,
                        .op = a,
                        .n_in = (uint32_t)a->down->n_out,
                        .n_ff = (uint32_t)a->down->n_in,
                        .n_experts = (uint32_t)a->down->n_experts,
                        .n_pairs = a->n_rows * a->n_used};
    r.matrix = is_matrix(&r);
    r.tile_rows = r.matrix ? MATRIX_TILE : VECTOR_TILE;
    r.n_tiles = backend_moe_tiles(r.n_pairs, r.n_experts, r.tile_rows);
    r.experts = metal_at(m->scratch[METAL_SCRATCH_MOE_EXPERTS]);
    r.weights = metal_at(m->scratch[METAL_SCRATCH_MOE_WEIGHTS]);
    r.list = metal_at(m->scratch[METAL_SCRATCH_MOE_LIST]);
    r.tiles = metal_at(m->scratch[METAL_SCRATCH_MOE_TILES]);
    int rc = score(&r);
    if (!rc) rc = route(&r);
    if (!rc && a->n_rows > 1) rc = list(&r);
    if (!rc) rc = gate_up(&r);
    if (!rc) rc = down(&r);
    return rc ? rc : combine(&r);
}
