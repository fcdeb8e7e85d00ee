/* moe.c - launches of a mixture of experts: routing, the experts' products, their sum. Kernels:
 * shaders/cuda/moe.cu. Owns their scratch. Only the device knows which experts a row uses: grids
 * are as large as the op's sizes allow, and surplus blocks return at once. */
#include "core/backend/cuda/ops_int.h"

#include "core/backend/moe_plan.h"
#include "shaders/cuda/kernels.h"

enum {
    LEAST_TILE = 8, /* pairs; doubled once or twice if experts have that many */
    COMBINE_THREADS = 256
};

_Static_assert((int)CUDA_SCRATCH_MOE_OUT == (int)CUDA_SCRATCH_MOE_SCORES + (int)MOE_OUT,
               "scratch in the order of enum moe_scratch");

int cuda_moe_scratch(struct cuda_backend *c, const struct backend_config *config, err *e) {
    const uint32_t n_ff = config->moe.n_ff;
    uint64_t bytes[MOE_N_SCRATCH] = {0};
    if (!config->moe.n_experts) return 0;
    int rc = moe_scratch_bytes(config, LEAST_TILE,
                               config->max_cols > n_ff ? config->max_cols : n_ff, bytes, e);
    for (int i = 0; i < MOE_N_SCRATCH && !rc; i++)
        rc =
            cuda_scratch_new(c, (enum cuda_scratch)((int)CUDA_SCRATCH_MOE_SCORES + i), bytes[i], e);
    return rc;
}

/* ---- one op ---- */

struct moe_run {
    struct cuda_backend *c;
    const struct op_moe *op;
    struct moe_plan plan;
    struct op_input in; /* its residual is NULL once it has been added */
    uint32_t ready;     /* kinds of it that the scratch holds, of enum cuda_in */
    uint32_t n_pairs;   /* with the shared expert's, if it is joined */
    bool sums;          /* the last product sums the experts' results */
    uint32_t *experts, *list;
    float *weights, *ff, *out;
    struct args_moe_tile *tiles;
};

/* Prepares rows as inputs of the kinds, of n_in columns. */
static int moe_prepare_input(struct moe_run *r, uint32_t kinds, uint32_t n_in) {
    kinds &= ~r->ready;
    int rc = kinds ? cuda_input(r->c, &r->in, r->op->n_rows, n_in, kinds, NULL) : 0;
    r->in.residual = NULL;
    r->ready |= kinds;
    return rc;
}

/* The kinds that the experts' first products read. */
static uint32_t moe_kinds(const struct op_moe *a) {
    return cuda_in_of(a->up) | (a->gate ? (uint32_t)cuda_in_of(a->gate) : 0);
}

/* The input of the experts' first products, if it is not the router's. */
static int moe_experts_input(struct moe_run *r) {
    const struct op_moe *a = r->op;
    if (a->latent) r->in = (struct op_input){.x = a->latent}, r->ready = 0;
    return moe_prepare_input(r, moe_kinds(a), (uint32_t)a->up->n_in);
}

/* A single row's score of the shared expert's gate: after those of the experts. */
static float *joined_score(const struct moe_run *r) {
    return r->op->joined.router
               ? (float *)cuda_scratch(r->c, CUDA_SCRATCH_MOE_SCORES) + r->plan.n_experts
               : NULL;
}

static int moe_score(struct moe_run *r) {
    const struct op_moe *a = r->op;
    const uint32_t kinds = cuda_in_of(a->router) | (a->latent ? 0 : moe_kinds(a));
    int rc = moe_prepare_input(r, kinds, (uint32_t)a->router->n_in);
    if (rc) return rc;
    const struct cuda_product p[] = {
        {.w = cuda_weight_of(a->router),
         .bias = cuda_vector(a->router_bias),
         .n_rows = a->n_rows,
         .y = cuda_scratch(r->c, CUDA_SCRATCH_MOE_SCORES)},
        {.w = cuda_weight_of(a->joined.router), .n_rows = a->n_rows, .y = joined_score(r)}};
    return cuda_products(r->c, p, a->joined.router ? 2 : 1);
}

static int moe_route(const struct moe_run *r) {
    const struct moe_plan *p = &r->plan;
    const struct cargs_moe_route args = {
        .scores = cuda_scratch(r->c, CUDA_SCRATCH_MOE_SCORES),
        .bias = cuda_vector(r->op->choice_bias),
        .expert_scale = cuda_vector(r->op->expert_scale),
        .experts = r->experts,
        .weights = r->weights,
        .list = r->list,
        .tiles = r->tiles,
        .op = p->route,
        .joined = r->op->joined.up != NULL,
    };
    return cuda_launch(r->c, &(struct cuda_launch){.kernel = cuda_moe_route_kernel(),
                                                   .name = "moe_route",
                                                   .args = &args,
                                                   .args_bytes = sizeof args,
                                                   .grid = {p->route.n_rows},
                                                   .threads = p->route_threads,
                                                   .read = p->route_traffic.read,
                                                   .written = p->route_traffic.written});
}

static int moe_list_pairs(const struct moe_run *r) {
    const struct moe_plan *p = &r->plan;
    const struct cargs_moe_lists args = {
        .experts = r->experts, .list = r->list, .tiles = r->tiles, .op = p->lists};
    return cuda_launch(r->c, &(struct cuda_launch){.kernel = cuda_moe_lists_kernel(),
                                                   .name = "moe_lists",
                                                   .args = &args,
                                                   .args_bytes = sizeof args,
                                                   .grid = {1},
                                                   .threads = p->lists_threads,
                                                   .read = p->lists_traffic.read,
                                                   .written = p->lists_traffic.written});
}

/* ---- products ---- */

/* A product of the experts; n_share pairs read the same row of the input. */
static struct cuda_product moe_product(const struct moe_run *r, const backend_weight *w,
                                       const backend_weight *bias, uint32_t n_share, float *y) {
    return (struct cuda_product){.w = cuda_weight_of(w),
                                 .bias = cuda_vector(bias),
                                 .n_rows = r->op->n_rows < r->plan.tile_rows ? r->op->n_rows
                                                                             : r->plan.tile_rows,
                                 .y = y,
                                 .tiles = r->tiles,
                                 .list = r->list,
                                 .n_tiles = r->plan.n_tiles + (r->op->joined.up != NULL),
                                 .n_share = n_share};
}

/* The hidden layer without gate. The pairs of a row are adjacent. */
static int moe_up(struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct cuda_product up = moe_product(r, a->up, a->up_bias, a->n_used, r->ff);
    int rc = moe_experts_input(r);
    if (!rc) rc = cuda_product(r->c, &up);
    return rc ? rc
              : cuda_gate(&r->c->base, &(struct op_gate){.x = r->c->scratch[CUDA_SCRATCH_MOE_FF],
                                                         .n_rows = a->n_rows,
                                                         .n_cols = a->n_used * r->plan.n_ff});
}

/* The hidden layer. Gate and up of different formats, or of inputs that are weighted after them,
 * are two products. */
static int moe_gate_up(struct moe_run *r) {
    const struct op_moe *a = r->op;
    if (!a->gate) return moe_up(r);
    const uint32_t n_share = a->n_used + (a->joined.up != NULL);
    struct cuda_product gate = moe_product(r, a->gate, a->gate_bias, n_share, r->ff);
    struct cuda_product up = moe_product(r, a->up, a->up_bias, n_share, r->out);
    if (gate.w->format == up.w->format && !a->weighs_input) {
        gate.pair = up.w;
        gate.pair_bias = up.bias;
        gate.act = a->act;
        gate.bounds = a->bounds;
        gate.joined = cuda_weight_of(a->joined.gate);
        gate.joined_pair = cuda_weight_of(a->joined.up);
        gate.joined_bounds = a->joined.bounds;
    }
    int rc = moe_experts_input(r);
    if (!rc) rc = cuda_product(r->c, &gate);
    if (rc || gate.pair) return rc;
    rc = cuda_product(r->c, &up);
    return rc ? rc
              : cuda_activate(r->c,
                              &(struct cuda_gated){.act = a->act,
                                                   .bounds = a->bounds,
                                                   .gate = r->ff,
                                                   .up = r->out,
                                                   .scale = a->weighs_input ? r->weights : NULL,
                                                   .y = r->ff},
                              r->plan.n_pairs, r->plan.n_ff);
}

static int moe_down(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct op_input in = {.x = r->c->scratch[CUDA_SCRATCH_MOE_FF]};
    struct cuda_product p = moe_product(r, a->down, a->down_bias, 1, r->out);
    int rc = cuda_input(r->c, &in, r->n_pairs, r->plan.n_ff, cuda_in_of(a->down), NULL);
    if (r->sums) {
        p.y = cuda_at(a->y);
        p.joined = cuda_weight_of(a->joined.down);
        p.slots = (struct cargs_slots){
            .weights = r->weights,
            .shared = cuda_at(a->shared),
            .shared_gate = a->joined.router ? joined_score(r) : cuda_at(a->shared_gate),
            .n = r->n_pairs,
            .n_used = a->n_used,
            .weighed = a->weighs_input,
        };
    }
    return rc ? rc : cuda_product(r->c, &p);
}

static int moe_combine(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct cargs_moe_combine args = {
        .out = r->out,
        .weights = r->weights,
        .shared = cuda_at(a->shared),
        .shared_gate = cuda_at(a->shared_gate),
        .y = cuda_at(a->y),
        .op = r->plan.combine,
    };
    uint64_t row_bytes = (uint64_t)a->n_rows * r->plan.n_in * sizeof(float);
    return cuda_launch(r->c, &(struct cuda_launch){
                                 .kernel = cuda_moe_combine_kernel(),
                                 .name = "moe_combine",
                                 .args = &args,
                                 .args_bytes = sizeof args,
                                 .grid = {cuda_div_up(r->plan.n_in, COMBINE_THREADS), a->n_rows},
                                 .threads = COMBINE_THREADS,
                                 .read = row_bytes * (a->n_used + (a->shared != NULL)) +
                                         (uint64_t)r->plan.n_pairs * sizeof(float),
                                 .written = row_bytes,
                             });
}

/* Pairs of one expert in a tile: more pairs share a read of its weights, fewer waste less of the
 * tensor cores' work. */
static uint32_t choose_tile_rows(uint32_t n_pairs, uint32_t n_experts) {
    uint32_t average = n_pairs / n_experts, rows = LEAST_TILE;
    while (rows < CUDA_MOE_TILE && rows < 2 * average)
        rows *= 2;
    return rows;
}

/* The shared expert is one more pair of a single row: its weights are of the experts' shapes and
 * formats, and there is room for it. */
bool cuda_joins_shared(const backend *be, const struct op_moe *a) {
    const struct cuda_backend *c = (const struct cuda_backend *)be;
    const uint64_t n = a->n_used + 1;
    const struct backend_shared_expert *s = &a->joined;
    if (a->n_rows != 1 || !a->gate || !s->gate || a->latent || a->weighs_input) return false;
    const struct cuda_weight *gate = cuda_weight_of(a->gate), *up = cuda_weight_of(a->up),
                             *down = cuda_weight_of(a->down), *s_gate = cuda_weight_of(s->gate),
                             *s_up = cuda_weight_of(s->up), *s_down = cuda_weight_of(s->down);
    if (gate->format == CUDA_FORMAT_F32 || gate->format != up->format ||
        gate->format != s_gate->format || gate->format != s_up->format ||
        down->format != s_down->format || s->up->n_out != a->up->n_out)
        return false;
    if (s->router && cuda_weight_of(s->router)->format != cuda_weight_of(a->router)->format)
        return false;
    return c->scratch_bytes[CUDA_SCRATCH_MOE_SCORES] > a->down->n_experts * sizeof(float) &&
           c->scratch_bytes[CUDA_SCRATCH_MOE_LIST] >= n * sizeof(uint32_t) &&
           c->scratch_bytes[CUDA_SCRATCH_MOE_TILES] >= n * sizeof(struct args_moe_tile) &&
           c->scratch_bytes[CUDA_SCRATCH_MOE_FF] >= n * a->up->n_out * sizeof(float) &&
           c->scratch_bytes[CUDA_SCRATCH_IN16] >= n * cuda_pitch((uint32_t)a->up->n_out) * 2 &&
           c->scratch_bytes[CUDA_SCRATCH_IN_SCALE] >= n * sizeof(float) &&
           cuda_sums_slots(c, down, (uint32_t)n);
}

int cuda_moe(backend *be, const struct op_moe *a) {
    struct cuda_backend *c = cuda_of(be);
    struct moe_run r = {.c = c,
                        .op = a,
                        .plan = moe_plan_of(a),
                        .in = a->in,
                        .experts = cuda_scratch(c, CUDA_SCRATCH_MOE_EXPERTS),
                        .list = cuda_scratch(c, CUDA_SCRATCH_MOE_LIST),
                        .weights = cuda_scratch(c, CUDA_SCRATCH_MOE_WEIGHTS),
                        .ff = cuda_scratch(c, CUDA_SCRATCH_MOE_FF),
                        .out = cuda_scratch(c, CUDA_SCRATCH_MOE_OUT),
                        .tiles = cuda_scratch(c, CUDA_SCRATCH_MOE_TILES)};
    moe_plan_tiles(&r.plan, choose_tile_rows(r.plan.n_pairs, r.plan.n_experts));
    r.n_pairs = r.plan.n_pairs + (a->joined.up != NULL);
    r.sums = a->n_rows == 1 && cuda_sums_slots(c, cuda_weight_of(a->down), r.n_pairs);
    int rc = moe_score(&r);
    if (!rc) rc = moe_route(&r);
    if (!rc && a->n_rows > 1) rc = moe_list_pairs(&r);
    if (!rc) rc = moe_gate_up(&r);
    if (!rc) rc = moe_down(&r);
    return rc || r.sums ? rc : moe_combine(&r);
}
