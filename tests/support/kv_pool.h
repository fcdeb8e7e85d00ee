/* kv_pool.h - K/V pools in the layout of backend.h, written and read one token at a time: the
 * tests' own implementation of the layout. */
#ifndef INFERD_TESTS_KV_POOL_H
#define INFERD_TESTS_KV_POOL_H

#include "core/backend/kv_layout.h"

#include <string.h>

/* One token of one head in a pool on the host. */
struct kv_row {
    const struct backend_kv *kv;
    char *pool;
    bool is_k;
    uint32_t slot, head;
};

static inline uint64_t kv_block_size(const struct backend_kv *kv) {
    uint64_t bytes = 0;
    return backend_kv_block_bytes(kv, &bytes) ? bytes : 0;
}

/* Values of elem bytes at (d, token) of a matrix with n_d dimensions. */
static inline char *kv_at(const struct kv_row *r, char *from, uint32_t n_d, uint32_t d,
                          uint64_t elem) {
    uint32_t tokens = r->kv->block_tokens, token = r->slot % tokens;
    return from + elem * (r->is_k ? (uint64_t)d * tokens + token : (uint64_t)token * n_d + d);
}

static inline void kv_copy_row(const struct kv_row *r, char *values, char *scales, bool in) {
    const struct backend_kv *kv = r->kv;
    uint64_t run = kv_block_size(kv) / kv->n_kv_heads;
    uint64_t elem = kv->kv_type == QTYPE_F32 ? 4 : kv->kv_type == QTYPE_Q8_0 ? 1 : 2;
    char *at = r->pool + (r->slot / kv->block_tokens * kv->n_kv_heads + r->head) * run;
    char *scales_at = at + (uint64_t)kv->block_tokens * kv->head_dim;
    uint32_t n_scales = kv->kv_type == QTYPE_Q8_0 ? kv->head_dim / 32 : 0;
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        char *p = kv_at(r, at, kv->head_dim, d, elem);
        memcpy(in ? p : values + d * elem, in ? values + d * elem : p, elem);
    }
    for (uint32_t g = 0; g < n_scales; g++) {
        char *p = kv_at(r, scales_at, n_scales, g, 2);
        memcpy(in ? p : scales + g * 2, in ? scales + g * 2 : p, 2);
    }
}

/* x (head_dim) as stored. */
static inline void kv_get(const struct kv_row *r, float *x) {
    char values[4096], scales[64];
    kv_copy_row(r, values, scales, false);
    if (r->kv->kv_type != QTYPE_Q8_0) qtype_decode(r->kv->kv_type, values, x, r->kv->head_dim);
    for (uint32_t d = 0; r->kv->kv_type == QTYPE_Q8_0 && d < r->kv->head_dim; d++) {
        uint16_t scale;
        memcpy(&scale, scales + d / 32 * 2, 2);
        x[d] = f16_to_f32(scale) * (float)(int8_t)values[d];
    }
}

/* Stores x (head_dim) and replaces it by the stored values. */
static inline void kv_put(const struct kv_row *r, float *x) {
    char values[4096], scales[64];
    for (uint32_t d = 0; r->kv->kv_type == QTYPE_Q8_0 && d < r->kv->head_dim; d += 32) {
        struct q8_0_block b;
        qtype_encode(QTYPE_Q8_0, x + d, &b, 32);
        memcpy(values + d, b.q, 32);
        memcpy(scales + d / 32 * 2, &b.d, 2);
    }
    if (r->kv->kv_type != QTYPE_Q8_0) qtype_encode(r->kv->kv_type, x, values, r->kv->head_dim);
    kv_copy_row(r, values, scales, true);
    kv_get(r, x);
}

#endif
