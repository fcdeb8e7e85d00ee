/* rows.m - launches of embed, gather and kv_copy, which copy rows or blocks, of attention's gate,
 * and of gated and add_normed. Owns nothing. */
#include "core/backend/metal/metal_int.h"

int metal_embed(backend *be, const struct op_embed *a) {
    const backend_weight *t = a->table;
    const struct margs_embed args = {.n_rows = a->n_rows,
                                     .n_cols = (uint32_t)t->n_in,
                                     .row_bytes = metal_row_bytes(t),
                                     .scale = a->scale};
    return metal_dispatch(metal_of(be),
                          &(struct metal_launch){
                              .kernel = "embed",
                              .n_consts = 1,
                              .consts = {{MARGS_EMBED_TYPE, (uint32_t)t->type}},
                              .args = &args,
                              .args_bytes = sizeof args,
                              .n_binds = 3,
                              .binds = {metal_weight_at(t), metal_at(a->ids), metal_at(a->out)},
                              .groups = {metal_div_up(t->n_in, 8 * 64), a->n_rows, 1},
                              .threads = {64, 1, 1},
                              .read = a->n_rows * (args.row_bytes + (uint64_t)sizeof(int32_t)),
                              .written = (uint64_t)a->n_rows * t->n_in * sizeof(float),
                          });
}

int metal_gather(backend *be, const struct op_gather *a) {
    const struct margs_gather args = {
        .n_rows = a->n_out_rows, .n_cols = a->n_cols, .has_residual = a->residual != NULL};
    uint64_t bytes = (uint64_t)a->n_out_rows * a->n_cols * sizeof(float);
    return metal_dispatch(
        metal_of(be), &(struct metal_launch){
                          .kernel = "gather",
                          .args = &args,
                          .args_bytes = sizeof args,
                          .n_binds = 4,
                          .binds = {metal_at(a->x), metal_at_or(a->residual, a->x),
                                    metal_at(a->rows), metal_at(a->out)},
                          .groups = {metal_div_up(a->n_cols, 256), a->n_out_rows, 1},
                          .threads = {256, 1, 1},
                          .read = bytes * (a->residual ? 2 : 1) + a->n_out_rows * sizeof(int32_t),
                          .written = bytes,
                      });
}

int metal_gate(backend *be, const struct op_gate *a) {
    const struct margs_gate args = {
        .n_rows = a->n_rows,
        .n_cols = a->n_cols,
        .gated = a->gate != NULL,
        .unary = (uint32_t)a->unary,
        .xielu = {a->xielu.positive, a->xielu.negative, a->xielu.beta, a->xielu.eps},
        .span = a->span,
        .softplus = a->softplus};
    const uint64_t bytes = (uint64_t)a->n_rows * a->n_cols * sizeof(float);
    const backend_buf *gate = a->gate ? a->gate : a->x; /* a bound buffer is needed */
    return metal_dispatch(metal_of(be),
                          &(struct metal_launch){
                              .kernel = "gate",
                              .args = &args,
                              .args_bytes = sizeof args,
                              .n_binds = 2,
                              .binds = {metal_at(a->x), metal_at(gate)},
                              .groups = {metal_div_up(a->n_cols, 256), a->n_rows, 1},
                              .threads = {256, 1, 1},
                              .read = bytes + (a->gate ? bytes / (a->span ? a->span : 1) : 0),
                              .written = bytes,
                          });
}

int metal_gated(backend *be, const struct op_gated *a) {
    const struct margs_gated args = {.n_rows = a->n_rows,
                                     .n_cols = a->n_cols,
                                     .first = a->first,
                                     .stride = a->stride,
                                     .act = (uint32_t)a->act};
    const uint64_t bytes = (uint64_t)a->n_rows * a->n_cols * sizeof(float);
    return metal_dispatch(metal_of(be), &(struct metal_launch){
                                            .kernel = "gated",
                                            .args = &args,
                                            .args_bytes = sizeof args,
                                            .n_binds = 2,
                                            .binds = {metal_at(a->x), metal_at(a->up)},
                                            .groups = {metal_div_up(a->n_cols, 256), a->n_rows, 1},
                                            .threads = {256, 1, 1},
                                            .read = 2 * bytes,
                                            .written = bytes,
                                        });
}

int metal_add_normed(backend *be, const struct op_add_normed *a) {
    const uint32_t n = a->norm ? (uint32_t)a->norm->n_in : a->n_cols;
    const struct margs_add_normed args = {.n_cols = a->n_cols,
                                          .n = n,
                                          .eps = a->eps,
                                          .scale = a->scale != 0 ? a->scale : 1,
                                          .has_r = a->r != NULL,
                                          .has_norm = a->norm != NULL,
                                          .has_factor = a->factor != NULL};
    const uint64_t bytes = (uint64_t)a->n_rows * a->n_cols * sizeof(float);
    const struct metal_bind x = metal_at(a->x);
    return metal_dispatch(
        metal_of(be), &(struct metal_launch){.kernel = "add_normed",
                                             .args = &args,
                                             .args_bytes = sizeof args,
                                             .n_binds = 4,
                                             .binds = {x, metal_at_or(a->r, a->x),
                                                       a->norm ? metal_weight_at(a->norm) : x,
                                                       a->factor ? metal_weight_at(a->factor) : x},
                                             .groups = {a->n_cols / n, a->n_rows, 1},
                                             .threads = {MARGS_ADD_NORMED_THREADS, 1, 1},
                                             .read = a->r ? 2 * bytes : bytes,
                                             .written = bytes});
}

/* ---- copies of blocks ---- */

/* How many leading pairs can run concurrently: none of them reads or writes a block that an earlier
 * one writes, or writes a block that an earlier one reads. */
static uint32_t count_independent(const int32_t *pairs, uint32_t n_pairs) {
    uint32_t n = 0;
    for (; n < n_pairs && n < ARGS_KV_COPY_PAIRS; n++)
        for (uint32_t i = 0; i < n; i++)
            if (pairs[2 * n] == pairs[2 * i + 1] || pairs[2 * n + 1] == pairs[2 * i + 1] ||
                pairs[2 * n + 1] == pairs[2 * i])
                return n;
    return n;
}

static int copy_blocks(backend *be, const struct backend_kv *kv, uint64_t block_bytes,
                       const struct margs_kv_copy *args) {
    const uint32_t n_pools = kv->v ? 2 : 1;
    const uint64_t bytes = n_pools * args->n_pairs * block_bytes;
    return metal_dispatch(metal_of(be),
                          &(struct metal_launch){
                              .kernel = "kv_copy",
                              .args = args,
                              .args_bytes = sizeof *args,
                              .n_binds = 2,
                              .binds = {metal_at(kv->k), metal_at_or(kv->v, kv->k)},
                              .groups = {metal_div_up(args->n_units, 256), args->n_pairs, n_pools},
                              .threads = {256, 1, 1},
                              .read = bytes,
                              .written = bytes,
                          });
}

int metal_kv_copy(backend *be, const struct op_kv_copy *a) {
    const struct backend_kv *kv = &a->kv;
    const int32_t *pairs = a->pairs;
    const uint32_t n_pairs = a->n_pairs;
    uint64_t block_bytes;
    if (!backend_kv_block_bytes(kv, &block_bytes) || block_bytes / MARGS_KV_COPY_UNIT > UINT32_MAX)
        return ERR_INVALID;
    if (block_bytes % MARGS_KV_COPY_UNIT)
        return ERR_UNSUPPORTED; /* not a block of the kernels' layout */
    struct margs_kv_copy args = {.n_units = (uint32_t)(block_bytes / MARGS_KV_COPY_UNIT)};
    int rc = 0;
    for (uint32_t at = 0, n; at < n_pairs && !rc; at += n) {
        n = count_independent(pairs + 2 * (uint64_t)at, n_pairs - at);
        args.n_pairs = 0;
        for (uint32_t i = at; i < at + n; i++) {
            if (pairs[2 * (uint64_t)i] == pairs[2 * (uint64_t)i + 1]) continue;
            args.pairs[2 * args.n_pairs] = pairs[2 * (uint64_t)i];
            args.pairs[2 * args.n_pairs++ + 1] = pairs[2 * (uint64_t)i + 1];
        }
        if (args.n_pairs) rc = copy_blocks(be, kv, block_bytes, &args);
    }
    return rc;
}
