/* moe.c - launches of a mixture of experts: routing, the experts' products, their sum. Kernels:
 * shaders/cuda/moe.cu. Owns their scratch. Only the device knows which experts a row uses: grids
 * are as large as the op's sizes allow, and surplus blocks return at once. */
#include "core/backend/cuda/ops_int.h"

#include "core/base/mem.h"
#include "shaders/cuda/kernels.h"

enum {
    LISTS_THREADS = 1024,
    LEAST_TILE = 8, /* pairs; doubled once or twice if experts have that many */
    COMBINE_THREADS = 256
};

/* ---- scratch ---- */

static int take_moe_scratch(struct cuda_backend *c, enum cuda_scratch which, uint64_t n,
                            uint64_t size, err *e) {
    uint64_t bytes;
    if (!mem_mul(n, size, &bytes)) return err_no_memory(e);
    return cuda_scratch_new(c, which, bytes, e);
}

int cuda_moe_scratch(struct cuda_backend *c, const struct backend_config *config, err *e) {
    const struct backend_moe_limits *lim = &config->moe;
    uint64_t most = (uint64_t)config->max_rows * lim->n_used;
    uint32_t wide = config->max_cols > lim->n_ff ? config->max_cols : lim->n_ff;
    int rc;
    if (!lim->n_experts) return 0;
    if (most > UINT32_MAX) return err_no_memory(e); /* pairs are counted in 32 bits */
    uint64_t tiles = backend_moe_tiles(most, lim->n_experts, LEAST_TILE);
    uint64_t scores = (uint64_t)config->max_rows * lim->n_experts;
    if ((rc = take_moe_scratch(c, CUDA_SCRATCH_MOE_SCORES, scores, sizeof(float), e)) ||
        (rc = take_moe_scratch(c, CUDA_SCRATCH_MOE_EXPERTS, most, sizeof(uint32_t), e)) ||
        (rc = take_moe_scratch(c, CUDA_SCRATCH_MOE_WEIGHTS, most, sizeof(float), e)) ||
        (rc = take_moe_scratch(c, CUDA_SCRATCH_MOE_LIST, most, sizeof(uint32_t), e)) ||
        (rc =
             take_moe_scratch(c, CUDA_SCRATCH_MOE_TILES, tiles, sizeof(struct args_moe_tile), e)) ||
        (rc = take_moe_scratch(c, CUDA_SCRATCH_MOE_FF, most * sizeof(float), lim->n_ff, e)))
        return rc;
    return take_moe_scratch(c, CUDA_SCRATCH_MOE_OUT, most * sizeof(float), wide, e);
}

/* ---- one op ---- */

struct moe_run {
    struct cuda_backend *c;
    const struct op_moe *op;
    struct op_input in; /* its residual is NULL once it has been added */
    uint32_t n_in, n_ff, n_experts, n_pairs, tile_rows, n_tiles;
    uint32_t *experts, *list;
    float *weights, *ff, *out;
    struct args_moe_tile *tiles;
};

/* Prepares the op's rows as the input of products with w. */
static int moe_prepare_input(struct moe_run *r, const backend_weight *w) {
    int rc = cuda_input(r->c, &r->in, r->op->n_rows, r->n_in, cuda_in_of(w), NULL);
    r->in.residual = NULL;
    return rc;
}

static int moe_score(struct moe_run *r) {
    const struct op_moe *a = r->op;
    int rc = moe_prepare_input(r, a->router);
    if (rc) return rc;
    return cuda_product(r->c,
                        &(struct cuda_product){.w = cuda_weight_of(a->router),
                                               .bias = cuda_vector(a->router_bias),
                                               .n_rows = a->n_rows,
                                               .y = cuda_scratch(r->c, CUDA_SCRATCH_MOE_SCORES)});
}

static int moe_route(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct cargs_moe_route args = {
        .scores = cuda_scratch(r->c, CUDA_SCRATCH_MOE_SCORES),
        .experts = r->experts,
        .weights = r->weights,
        .list = r->list,
        .tiles = r->tiles,
        .op = {.n_rows = a->n_rows,
               .n_experts = r->n_experts,
               .n_used = a->n_used,
               .renormalize = a->renormalize,
               .weight_scale = a->weight_scale != 0 ? a->weight_scale : 1},
    };
    uint64_t pair_bytes = 2 * sizeof(uint32_t);
    if (a->n_rows == 1) pair_bytes += sizeof(uint32_t) + sizeof *r->tiles;
    return cuda_launch(
        r->c, &(struct cuda_launch){.kernel = cuda_moe_route_kernel(),
                                    .name = "moe_route",
                                    .args = &args,
                                    .args_bytes = sizeof args,
                                    .grid = {a->n_rows},
                                    .threads = cuda_div_up(r->n_experts, 32) * 32,
                                    .read = (uint64_t)a->n_rows * r->n_experts * sizeof(float),
                                    .written = r->n_pairs * pair_bytes});
}

/* Sorts the pairs by expert. The kernel reads the pairs once to count them, and once more for each
 * expert in use; only the first read is counted as traffic. */
static int moe_list_pairs(const struct moe_run *r) {
    const struct cargs_moe_lists args = {
        .experts = r->experts,
        .list = r->list,
        .tiles = r->tiles,
        .op = {.n_pairs = r->n_pairs,
               .n_experts = r->n_experts,
               .tile_rows = r->tile_rows,
               .n_tiles = r->n_tiles},
    };
    uint32_t most = r->n_pairs > r->n_experts ? r->n_pairs : r->n_experts;
    uint64_t pairs_bytes = (uint64_t)r->n_pairs * sizeof(uint32_t);
    return cuda_launch(
        r->c, &(struct cuda_launch){
                  .kernel = cuda_moe_lists_kernel(),
                  .name = "moe_lists",
                  .args = &args,
                  .args_bytes = sizeof args,
                  .grid = {1},
                  .threads = most < LISTS_THREADS ? cuda_div_up(most, 32) * 32 : LISTS_THREADS,
                  .read = pairs_bytes,
                  .written = pairs_bytes + (uint64_t)r->n_tiles * sizeof *r->tiles});
}

/* ---- products ---- */

/* A product of the experts; n_share pairs read the same row of the input. */
static struct cuda_product moe_product(const struct moe_run *r, const backend_weight *w,
                                       const backend_weight *bias, uint32_t n_share, float *y) {
    return (struct cuda_product){.w = cuda_weight_of(w),
                                 .bias = cuda_vector(bias),
                                 .n_rows =
                                     r->op->n_rows < r->tile_rows ? r->op->n_rows : r->tile_rows,
                                 .y = y,
                                 .tiles = r->tiles,
                                 .list = r->list,
                                 .n_tiles = r->n_tiles,
                                 .n_share = n_share};
}

/* The hidden layer. The input's scratch still holds the rows as the router read them. Gate and up
 * of different formats are two products. */
static int moe_gate_up(struct moe_run *r) {
    const struct op_moe *a = r->op;
    enum cuda_in current = cuda_in_of(a->router);
    struct cuda_product gate = moe_product(r, a->gate, a->gate_bias, a->n_used, r->ff);
    struct cuda_product up = moe_product(r, a->up, a->up_bias, a->n_used, r->out);
    int rc = 0;
    if (gate.w->format == up.w->format) {
        gate.pair = up.w;
        gate.pair_bias = up.bias;
        gate.act = a->act;
    }
    if (cuda_in_of(a->gate) != current) rc = moe_prepare_input(r, a->gate);
    if (!rc) rc = cuda_product(r->c, &gate);
    if (rc || gate.pair) return rc;
    if (cuda_in_of(a->up) != cuda_in_of(a->gate)) rc = moe_prepare_input(r, a->up);
    if (!rc) rc = cuda_product(r->c, &up);
    return rc ? rc : cuda_activate(r->c, a->act, r->ff, r->out, r->ff, r->n_pairs, r->n_ff);
}

static int moe_down(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const struct op_input in = {.x = r->c->scratch[CUDA_SCRATCH_MOE_FF]};
    const struct cuda_product p = moe_product(r, a->down, a->down_bias, 1, r->out);
    int rc = cuda_input(r->c, &in, r->n_pairs, r->n_ff, cuda_in_of(a->down), NULL);
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
        .op = {.n_in = r->n_in, .n_used = a->n_used},
    };
    uint64_t row_bytes = (uint64_t)a->n_rows * r->n_in * sizeof(float);
    return cuda_launch(r->c, &(struct cuda_launch){
                                 .kernel = cuda_moe_combine_kernel(),
                                 .name = "moe_combine",
                                 .args = &args,
                                 .args_bytes = sizeof args,
                                 .grid = {cuda_div_up(r->n_in, COMBINE_THREADS), a->n_rows},
                                 .threads = COMBINE_THREADS,
                                 .read = row_bytes * (a->n_used + (a->shared != NULL)) +
                                         (uint64_t)r->n_pairs * sizeof(float),
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

int cuda_moe(backend *be, const struct op_moe *a) {
    struct cuda_backend *c = cuda_of(be);
    struct moe_run r = {.c = c,
                        .op = a,
                        .in = a->in,
                        .n_in = (uint32_t)a->down->n_out,
                        .n_ff = (uint32_t)a->down->n_in,
                        .n_experts = (uint32_t)a->down->n_experts,
                        .n_pairs = a->n_rows * a->n_used,
                        .experts = cuda_scratch(c, CUDA_SCRATCH_MOE_EXPERTS),
                        .list = cuda_scratch(c, CUDA_SCRATCH_MOE_LIST),
                        .weights = cuda_scratch(c, CUDA_SCRATCH_MOE_WEIGHTS),
                        .ff = cuda_scratch(c, CUDA_SCRATCH_MOE_FF),
                        .out = cuda_scratch(c, CUDA_SCRATCH_MOE_OUT),
                        .tiles = cuda_scratch(c, CUDA_SCRATCH_MOE_TILES)};
    r.tile_rows = choose_tile_rows(r.n_pairs, r.n_experts);
    r.n_tiles = backend_moe_tiles(r.n_pairs, r.n_experts, r.tile_rows);
    int rc = moe_score(&r);
    if (!rc) rc = moe_route(&r);
    if (!rc && a->n_rows > 1) rc = moe_list_pairs(&r);
    if (!rc) rc = moe_gate_up(&r);
    if (!rc) rc = moe_down(&r);
    return rc ? rc : moe_combine(&r);
}
