/* rope_store.m - launches of rope_store, which writes the K and V of new rows to the KV cache: head
 * norms, rotary embedding, the store. Owns nothing. */
#include "core/backend/metal/metal_int.h"

enum { MAX_HEAD_DIM = 512, HEAD_STEP = 4, TOKEN_STEP = 4, CHUNK_TOKENS = 128 };

bool metal_kv_fits(const struct backend_kv *kv) {
    const bool dims =
        kv->v_dim ? kv->head_dim <= MARGS_LATENT_MAX_DIM && kv->v_dim <= MARGS_LATENT_MAX_V_DIM
                  : kv->head_dim % HEAD_STEP == 0 && kv->head_dim <= MAX_HEAD_DIM;
    return dims && kv->block_tokens % TOKEN_STEP == 0 && CHUNK_TOKENS % kv->block_tokens == 0;
}

static enum args_norm norm_kind(const backend_weight *norm, uint32_t head_dim) {
    return !norm ? ARGS_NORM_NONE : norm->n_in == head_dim ? ARGS_NORM_HEADS : ARGS_NORM_ROW;
}

int metal_rope_store(backend *be, const struct op_rope_store *a) {
    const struct backend_kv *kv = &a->kv;
    uint64_t block_bytes, q_bytes, kv_bytes;
    if (!metal_kv_fits(kv) || !backend_kv_block_bytes(kv, &block_bytes)) return ERR_UNSUPPORTED;
    const struct args_rope_store args = {.n_heads = a->n_heads,
                                         .n_kv_heads = kv->n_kv_heads,
                                         .n_slots = kv->n_blocks * kv->block_tokens,
                                         .eps = a->eps,
                                         .magnitude = a->magnitude != 0 ? a->magnitude : 1,
                                         .q_log_scale = a->q_log_scale,
                                         .q_log_length = a->q_log_length,
                                         .q_log_from = a->q_log_from,
                                         .norm_last = a->norm_last,
                                         .v_normed = a->v_normed};
    const uint32_t n_pools = !a->k ? 0 : kv->v_dim ? 1 : 2, norm_dim = backend_kv_v_dim(kv);
    uint32_t most = !a->k || a->n_heads > kv->n_kv_heads ? a->n_heads : kv->n_kv_heads;
    q_bytes = (uint64_t)a->n_rows * a->n_heads * kv->head_dim * sizeof(float);
    kv_bytes = n_pools * (uint64_t)a->n_rows * kv->n_kv_heads * kv->head_dim * sizeof(float);
    struct metal_bind none = metal_at(a->inv_freq);
    return metal_dispatch(
        metal_of(be),
        &(struct metal_launch){
            .kernel = "rope_store",
            .n_consts = 9,
            .consts = {{MARGS_ROPE_KV_TYPE, (uint32_t)kv->kv_type},
                       {MARGS_ROPE_HEAD_DIM, kv->head_dim},
                       {MARGS_ROPE_BLOCK_TOKENS, kv->block_tokens},
                       {MARGS_ROPE_Q_NORM, norm_kind(a->q_norm, norm_dim)},
                       {MARGS_ROPE_K_NORM, norm_kind(a->k_norm, norm_dim)},
                       {MARGS_ROPE_N_ROT, a->n_rot},
                       {MARGS_ROPE_INTERLEAVED, a->interleaved},
                       {MARGS_ROPE_NORM_DIM, norm_dim},
                       {MARGS_ROPE_FIRST_ROT, kv->v_dim}},
            .args = &args,
            .args_bytes = sizeof args,
            .n_binds = 10,
            .binds = {metal_at(a->q), metal_at_or(a->k, a->q), metal_at_or(a->v, a->q),
                      metal_at(a->pos), metal_at(a->slots), metal_at(a->inv_freq),
                      a->q_norm ? metal_weight_at(a->q_norm) : none,
                      a->k_norm ? metal_weight_at(a->k_norm) : none, metal_at(kv->k),
                      metal_at_or(kv->v, kv->k)},
            .groups = {metal_div_up(most, MARGS_ROPE_SIMDGROUPS), a->n_rows, 1 + n_pools},
            .threads = {MARGS_ROPE_SIMDGROUPS * 32, 1, 1},
            .read = q_bytes + kv_bytes + a->n_rows * 2 * sizeof(int32_t) +
                    (a->q_norm ? a->q_norm->n_in * sizeof(float) : 0) +
                    (a->k_norm ? a->k_norm->n_in * sizeof(float) : 0) +
                    a->n_rot / 2 * sizeof(float),
            .written = q_bytes + a->n_rows * n_pools * (block_bytes / kv->block_tokens),
        });
}
