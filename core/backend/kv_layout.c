/* kv_layout.c - sizes of KV blocks and of the state of linear attention. Pure; any thread. */
#include "core/backend/backend_int.h"

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

uint32_t backend_linear_chunk(uint32_t head_dim) {
    return head_dim == 64    ? BACKEND_LINEAR_CHUNK_64
           : head_dim == 128 ? BACKEND_LINEAR_CHUNK_128
                             : 0;
}

uint64_t backend_linear_state_bytes(uint32_t head_dim) {
    uint64_t chunk = backend_linear_chunk(head_dim);
    return chunk ? (head_dim + 2 * chunk) * head_dim * sizeof(float) : 0;
}

uint64_t backend_linear_tasks(uint64_t n_rows, uint64_t n_seqs, uint32_t head_dim) {
    return n_rows / backend_linear_chunk(head_dim) + 2 * n_seqs;
}

static uint64_t sums_bytes(const struct backend_linear_limits *l) {
    return (uint64_t)l->n_heads * l->head_dim * l->head_dim * sizeof(float);
}

uint32_t backend_linear_pass(const struct backend_linear_limits *l, uint32_t max_rows) {
    uint64_t most = backend_linear_tasks(max_rows, max_rows, l->head_dim);
    uint64_t n = BACKEND_LINEAR_STATES / sums_bytes(l);
    if (n < 1) n = 1;
    return (uint32_t)(n < most ? n : most);
}

uint64_t backend_linear_pass_bytes(const struct backend_linear_limits *l, uint32_t max_rows) {
    return l->n_heads ? backend_linear_pass(l, max_rows) * sums_bytes(l) : 0;
}
