/* kv_layout.h - where keys and values lie in the pools of a paged KV cache.
 *
 * Each layer has one K and one V pool of (n_blocks, n_kv_heads) runs. A slot is block *
 * block_tokens + offset in the block. The run of one block and head:
 *   K (head_dim, block_tokens): the tokens of one dimension lie side by side, so that a vector
 *     register takes several keys and no score needs a sum across lanes
 *   V (block_tokens, head_dim)
 * F32, F16, BF16: the values. Q8_0 (head_dim a multiple of 32): the values as int8 in that shape,
 * then one f16 scale for each 32 dimensions of a token: K (head_dim / 32, block_tokens), V
 * (block_tokens, head_dim / 32); value = scale * int8. F16 stores a value beyond its range as its
 * largest value.
 *
 * Multi-head latent attention keeps one row of a token for both: V is the first v_dim dimensions of
 * K, and there is no pool of V. */
#ifndef INFERD_BACKEND_KV_LAYOUT_H
#define INFERD_BACKEND_KV_LAYOUT_H

#include "core/backend/backend.h"

struct backend_kv {
    backend_buf *k, *v;
    int kv_type; /* QTYPE_F32, QTYPE_F16, QTYPE_BF16 or QTYPE_Q8_0 */
    uint32_t n_blocks, n_kv_heads, block_tokens, head_dim;
    uint32_t v_dim; /* not 0: V is the head of K, v is NULL; below head_dim */
};

/* Dimensions of a head of V. */
static inline uint32_t backend_kv_v_dim(const struct backend_kv *kv) {
    return kv->v_dim ? kv->v_dim : kv->head_dim;
}

/* Bytes of one block of K, all heads; a block of V, if it has a pool, takes as many. Does not read
 * k, v and n_blocks. false: the type cannot hold K/V, a count is 0, head_dim does not fit the type,
 * or overflow. */
bool backend_kv_block_bytes(const struct backend_kv *kv, uint64_t *bytes);

/* Does the device have kernels for such a cache? Does not read k, v and n_blocks. */
bool backend_kv_fits(const backend *be, const struct backend_kv *kv);

#endif
