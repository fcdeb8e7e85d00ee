/* kv_layout.c - sizes of KV blocks and of state blocks. Pure; any thread. */
#include "core/backend/backend_int.h"

#include "core/base/mem.h"

bool backend_kv_block_bytes(const struct backend_kv *kv, uint64_t *bytes) {
    uint64_t rows;
    if (kv->kv_type != QTYPE_F32 && kv->kv_type != QTYPE_F16 && kv->kv_type != QTYPE_BF16 &&
        kv->kv_type != QTYPE_Q8_0)
        return false;
    if (kv->v_dim && kv->v_dim >= kv->head_dim) return false;
    return kv->n_kv_heads && kv->block_tokens && kv->head_dim &&
           mem_mul(kv->n_kv_heads, kv->block_tokens, &rows) &&
           qtype_bytes(kv->kv_type, rows, kv->head_dim, bytes);
}

static bool dim_ok(uint32_t dim, uint32_t max) {
    return dim && dim % 16 == 0 && dim <= max;
}

bool backend_state_ok(const struct backend_state *s) {
    if ((s->chunk != 16 && s->chunk != BACKEND_STATE_MAX_CHUNK) || s->n_taps < 2 ||
        s->n_taps > BACKEND_STATE_MAX_TAPS)
        return false;
    if (!s->n_v_heads)
        return !s->n_k_heads && !s->k_dim && !s->v_dim && s->channels &&
               s->channels <= BACKEND_STATE_MAX_CHANNELS && !s->channel_decay;
    return !s->channels && (!s->channel_decay || s->k_dim == s->v_dim) && s->n_k_heads &&
           s->n_k_heads <= BACKEND_STATE_MAX_HEADS && s->n_v_heads <= BACKEND_STATE_MAX_HEADS &&
           s->n_v_heads % s->n_k_heads == 0 && dim_ok(s->k_dim, BACKEND_STATE_MAX_K_DIM) &&
           dim_ok(s->v_dim, BACKEND_STATE_MAX_V_DIM);
}

struct backend_state_parts backend_state_parts(const struct backend_state *s) {
    const uint64_t v_cols = (uint64_t)s->n_v_heads * s->v_dim;
    const uint64_t n_tail = (s->n_taps - 1) * backend_state_channels(s);
    struct backend_state_parts p = {.s = 0, .tail = v_cols * s->k_dim};
    p.recent = p.tail + n_tail;
    p.k = p.recent + n_tail;
    p.u = p.k + (uint64_t)s->chunk * s->n_k_heads * s->k_dim;
    p.g = p.u + s->chunk * v_cols;
    p.end = p.g + (uint64_t)s->chunk * s->n_v_heads * backend_state_decays(s);
    return p;
}

uint64_t backend_state_block_bytes(const struct backend_state *s) {
    return backend_state_ok(s) ? backend_state_parts(s).end * sizeof(float) : 0;
}
