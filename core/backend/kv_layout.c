/* kv_layout.c - how many bytes K or V of one block take. Pure; any thread. */
#include "core/backend/backend.h"

#include "core/base/mem.h"

bool backend_kv_block_bytes(const struct backend_kv *kv, uint64_t *bytes) {
    uint64_t rows;
    if (kv->kv_type != QTYPE_F32 && kv->kv_type != QTYPE_F16 && kv->kv_type != QTYPE_BF16 &&
        kv->kv_type != QTYPE_Q8_0)
        return false;
    return kv->n_kv_heads && kv->block_tokens && kv->head_dim &&
           mem_mul(kv->n_kv_heads, kv->block_tokens, &rows) &&
           qtype_bytes(kv->kv_type, rows, kv->head_dim, bytes);
}
