/* rope_store.c - the launch that adds new rows to the K/V pools: head norms, rotary embedding, the
 * store. Owns nothing. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

static uint32_t norm_kind(const backend_weight *norm, uint32_t head_dim) {
    return !norm ? ARGS_NORM_NONE : norm->n_in == head_dim ? ARGS_NORM_HEADS : ARGS_NORM_ROW;
}

/* From MANY_ROWS rows on, blocks do more work each and K is stored by runs of consecutive rows, as
 * a prompt has them. The rows of a decode step lie apart. */
enum { MANY_ROWS = 64, MANY_HEADS = 4 * CUDA_ROPE_WARPS };

/* Blocks for the heads of one row. */
static uint32_t head_blocks(uint32_t n_heads, uint32_t norm, uint32_t block_heads) {
    return norm == ARGS_NORM_ROW ? 1 : cuda_div_up(n_heads, block_heads);
}

static uint32_t element_bytes(int kv_type) {
    return kv_type == QTYPE_F32 ? 4 : kv_type == QTYPE_Q8_0 ? 1 : 2;
}

int cuda_rope_args(const struct op_rope_store *a, struct cargs_rope_store *args) {
    const struct backend_kv *kv = &a->kv;
    uint64_t block_bytes;
    const uint32_t norm_dim = backend_kv_v_dim(kv);
    if (kv->head_dim > CUDA_ROPE_MAX_DIM || !cuda_kv_fits(kv) ||
        !backend_kv_block_bytes(kv, &block_bytes))
        return ERR_UNSUPPORTED;
    *args = (struct cargs_rope_store){.q = cuda_at(a->q),
                                      .k = cuda_at(a->k),
                                      .v = cuda_at(a->v),
                                      .pos = cuda_at(a->pos),
                                      .slots = cuda_at(a->slots),
                                      .inv_freq = cuda_at(a->inv_freq),
                                      .q_norm = cuda_vector(a->q_norm),
                                      .k_norm = cuda_vector(a->k_norm),
                                      .k_pool = cuda_at(kv->k),
                                      .v_pool = cuda_at(kv->v),
                                      .run_bytes = block_bytes / kv->n_kv_heads,
                                      .op = {.n_heads = a->n_heads,
                                             .n_kv_heads = kv->n_kv_heads,
                                             .n_slots = kv->n_blocks * kv->block_tokens,
                                             .eps = a->eps,
                                             .magnitude = a->magnitude != 0 ? a->magnitude : 1,
                                             .q_log_scale = a->q_log_scale,
                                             .q_log_length = a->q_log_length,
                                             .q_log_from = a->q_log_from,
                                             .norm_last = a->norm_last,
                                             .v_normed = a->v_normed},
                                      .n_rows = a->n_rows,
                                      .head_dim = kv->head_dim,
                                      .n_rot = a->n_rot,
                                      .interleaved = a->interleaved,
                                      .kv_type = (uint32_t)kv->kv_type,
                                      .block_tokens = kv->block_tokens,
                                      .q_norm_kind = norm_kind(a->q_norm, norm_dim),
                                      .k_norm_kind = norm_kind(a->k_norm, norm_dim),
                                      .norm_dim = norm_dim,
                                      .first_rot = kv->v_dim};
    return 0;
}

int cuda_rope_store(backend *be, const struct op_rope_store *a) {
    const struct backend_kv *kv = &a->kv;
    struct cargs_rope_store args;
    int rc = cuda_rope_args(a, &args);
    if (rc) return rc;
    const uint64_t block_bytes = args.run_bytes * kv->n_kv_heads;
    const uint64_t row = (uint64_t)kv->head_dim * sizeof(float);
    const uint32_t n_pools = !a->k ? 0 : kv->v_dim ? 1 : 2;
    const uint64_t q_bytes = a->n_rows * a->n_heads * row,
                   kv_bytes = n_pools * (uint64_t)a->n_rows * kv->n_kv_heads * row;
    const bool many = a->n_rows >= MANY_ROWS;
    args.block_heads = many ? MANY_HEADS : CUDA_ROPE_WARPS;
    args.q_blocks = head_blocks(a->n_heads, args.q_norm_kind, args.block_heads);
    args.k_blocks = a->k ? head_blocks(kv->n_kv_heads, args.k_norm_kind, args.block_heads) : 0;
    const uint32_t v_blocks =
        n_pools > 1 ? head_blocks(kv->n_kv_heads, ARGS_NORM_NONE, args.block_heads) : 0;
    uint32_t shared = 0;
    if (a->k && many && args.k_norm_kind != ARGS_NORM_ROW) {
        args.k_tiles = cuda_div_up(a->n_rows, CUDA_ROPE_ROWS) * kv->n_kv_heads;
        args.k_blocks = cuda_div_up(args.k_tiles, a->n_rows);
        shared = CUDA_ROPE_ROWS * (a->n_rot * (uint32_t)sizeof(float) +
                                   kv->head_dim * element_bytes(kv->kv_type) + 4);
    }
    const struct cuda_launch launch = {
        .kernel = cuda_rope_store_kernel(kv->head_dim > CUDA_ROPE_DIM),
        .name = "rope_store",
        .args = &args,
        .args_bytes = sizeof args,
        .grid = {args.q_blocks + args.k_blocks + v_blocks, a->n_rows, 1},
        .threads = 32 * CUDA_ROPE_WARPS,
        .shared = shared,
        .read = q_bytes + kv_bytes + a->n_rows * 2 * sizeof(int32_t) +
                (a->q_norm ? a->q_norm->n_in * sizeof(float) : 0) +
                (a->k_norm ? a->k_norm->n_in * sizeof(float) : 0) + a->n_rot / 2 * sizeof(float),
        .written = q_bytes + a->n_rows * n_pools * (block_bytes / kv->block_tokens),
    };
    return cuda_launch(cuda_of(be), &launch);
}
