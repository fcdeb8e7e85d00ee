/* rope_store.m - launches of what writes to the K/V pools for new rows: norms of heads, rotary
 * embedding, the store. Owns nothing. */
#include "core/backend/metal/metal_int.h"

enum { MAX_HEAD_DIM = 256, HEAD_STEP = 8, TOKEN_STEP = 4, CHUNK_TOKENS = 128 };
enum { SIMDGROUPS = 4 };                            /* of rope.metal's threadgroups */
enum norm_kind { NORM_NONE, NORM_HEADS, NORM_ROW }; /* rope.metal's NORM_* */

bool metal_kv_fits(const struct backend_kv *kv) {
    return kv->head_dim % HEAD_STEP == 0 && kv->head_dim <= MAX_HEAD_DIM &&
           kv->block_tokens % TOKEN_STEP == 0 && CHUNK_TOKENS % kv->block_tokens == 0;
}

static enum norm_kind kind_of(const backend_weight *norm, uint32_t head_dim) {
    return !norm ? NORM_NONE : norm->n_in == head_dim ? NORM_HEADS : NORM_ROW;
}

int metal_rope_store(backend *be, const struct op_rope_store *a) {
    const struct backend_kv *kv = &a->kv;
    uint64_t block_bytes, q_bytes, kv_bytes;
    if (!metal_kv_fits(kv) || !backend_kv_block_bytes(kv, &block_bytes)) return ERR_UNSUPPORTED;
    const struct kargs_rope_store args = {.n_heads = a->n_heads,
                                          .n_kv_heads = kv->n_kv_heads,
                                          .n_slots = kv->n_blocks * kv->block_tokens,
                                          .eps = a->eps,
                                          .magnitude = a->magnitude != 0 ? a->magnitude : 1};
    uint32_t most = a->n_heads > kv->n_kv_heads ? a->n_heads : kv->n_kv_heads;
    q_bytes = (uint64_t)a->n_rows * a->n_heads * kv->head_dim * sizeof(float);
    kv_bytes = (uint64_t)a->n_rows * kv->n_kv_heads * kv->head_dim * sizeof(float) * 2;
    struct metal_bind none = metal_at(a->inv_freq);
    return metal_dispatch(
        metal_of(be),
        &(struct metal_launch){
            .kernel = "rope_store",
            .n_consts = 7,
            .consts = {{0, (uint32_t)kv->kv_type},
                       {1, kv->head_dim},
                       {2, kv->block_tokens},
                       {3, kind_of(a->q_norm, kv->head_dim)},
                       {4, kind_of(a->k_norm, kv->head_dim)},
                       {5, a->n_rot},
                       {6, a->interleaved}},
            .args = &args,
            .args_bytes = sizeof args,
            .n_binds = 10,
            .binds = {metal_at(a->q), metal_at(a->k), metal_at(a->v), metal_at(a->pos),
                      metal_at(a->slots), metal_at(a->inv_freq),
                      a->q_norm ? metal_weight_at(a->q_norm) : none,
                      a->k_norm ? metal_weight_at(a->k_norm) : none, metal_at(kv->k),
                      metal_at(kv->v)},
            .groups = {metal_div_up(most, SIMDGROUPS), a->n_rows, 3},
            .threads = {SIMDGROUPS * 32, 1, 1},
            .read = q_bytes + kv_bytes + a->n_rows * 2 * sizeof(int32_t) +
                    (a->q_norm ? (a->q_norm->n_in + a->k_norm->n_in) * sizeof(float) : 0) +
                    a->n_rot / 2 * sizeof(float),
            .written = q_bytes + a->n_rows * 2 * (block_bytes / kv->block_tokens),
        });
}
