/* kv.h - the layout of K and V in the pools (core/backend/backend.h shows it) and how their types
 * are loaded. A run is one block of one KV head. */
#ifndef INFERD_METAL_KV_H
#define INFERD_METAL_KV_H

#include "shaders/metal/common.h"

#define KV_SCALE_DIMS 32 /* Q8_0: dimensions of a token that share a scale */

static inline uint kv_value_bytes(uint type) {
    return type == QTYPE_F32 ? 4 : type == QTYPE_Q8_0 ? 1 : 2;
}

/* Bytes of a run's values; Q8_0's scales follow them. */
static inline uint kv_values_bytes(uint type, uint head_dim, uint block_tokens) {
    return head_dim * block_tokens * kv_value_bytes(type);
}

static inline uint kv_run_bytes(uint type, uint head_dim, uint block_tokens) {
    const uint scales = type == QTYPE_Q8_0 ? head_dim / KV_SCALE_DIMS * block_tokens * 2 : 0;
    return kv_values_bytes(type, head_dim, block_tokens) + scales;
}

/* Values at .. at + 3 of a run, `at` a multiple of 4; Q8_0: not yet scaled. */
static inline float4 kv_load4(uint type, device const uchar *run, uint at) {
    if (type == QTYPE_F32) return ((device const float4 *)run)[at / 4];
    if (type == QTYPE_F16) return float4(((device const half4 *)run)[at / 4]);
    if (type == QTYPE_BF16)
        return as_type<float4>(uint4(((device const ushort4 *)run)[at / 4]) << 16u);
    return float4(((device const char4 *)run)[at / 4]);
}

/* Likewise values 2 * pair and 2 * pair + 1. */
static inline float2 kv_load2(uint type, device const uchar *run, uint pair) {
    if (type == QTYPE_F32) return ((device const float2 *)run)[pair];
    if (type == QTYPE_F16) return float2(((device const half2 *)run)[pair]);
    if (type == QTYPE_BF16)
        return as_type<float2>(uint2(((device const ushort2 *)run)[pair]) << 16u);
    return float2(((device const char2 *)run)[pair]);
}

#endif
