/* rope.cuh - what is done to a head of q, k and v before attention: its norm, rotary embedding, how K and V hold
 * it. By one warp each; the same bits from every kernel that does it. */
#ifndef INFERD_SHADERS_CUDA_ROPE_CUH
#define INFERD_SHADERS_CUDA_ROPE_CUH

#include "core/base/qblock.h"
#include "shaders/cuda/cargs.h"
#include "shaders/cuda/device.cuh"

namespace {

#define HEAD_MAX      CUDA_ROPE_MAX_DIM
#define HEAD_PER_LANE (HEAD_MAX / 32) /* values of a head, the i-th is lane + 32 i */
#define F16_MAX       65504.0f
#define F32_MAX       3.402823466e38f

__device__ __forceinline__ float inverse_rms(float sum, uint32_t n, float eps) {
    return 1.0f / sqrtf(sum / (float)n + eps);
}

/* Cosines and sines (n_rot / 2) of a row, by the n threads of which this is number i. The angle is rounded to f32
 * as on every device; sine and cosine are those that hold for angles of many turns. */
__device__ __forceinline__ void make_angles(const struct cargs_rope_store &a, float pos, float *cosines,
                                            float *sines, uint32_t i, uint32_t n) {
    for (; i < a.n_rot / 2; i += n) {
        float s, c;
        sincosf(pos * a.inv_freq[i], &s, &c);
        cosines[i] = c * a.magnitude;
        sines[i] = s * a.magnitude;
    }
}

/* x (head_dim) of one head, by its warp. */
__device__ __forceinline__ void rotate(const struct cargs_rope_store &a, float *x, const float *cosines,
                                       const float *sines, uint32_t lane) {
    for (uint32_t i = lane; i < a.n_rot / 2; i += 32) {
        const uint32_t first = a.interleaved ? 2 * i : i, second = a.interleaved ? first + 1 : i + a.n_rot / 2;
        const float c = cosines[i], s = sines[i], u = x[first], v = x[second];
        x[first] = fmaf(u, c, -(v * s));
        x[second] = fmaf(u, s, v * c);
    }
}

/* A head's values as a warp has them, value lane + 32 i in v[i]. */
__device__ __forceinline__ void read_head(const struct cargs_rope_store &a, const float *src,
                                          float v[HEAD_PER_LANE], uint32_t lane) {
#pragma unroll
    for (uint32_t i = 0; i < HEAD_PER_LANE; i++)
        v[i] = lane + 32 * i < a.head_dim ? src[lane + 32 * i] : 0.0f;
}

/* v, normed, goes to x (head_dim) in shared memory. f: factors, read as v was; with CUDA_NORM_NONE unused. */
__device__ __forceinline__ void norm_head(const struct cargs_rope_store &a, uint32_t norm,
                                          const float v[HEAD_PER_LANE], const float f[HEAD_PER_LANE], float scale,
                                          float *x, uint32_t lane) {
    float sum = 0.0f;
    if (norm == CUDA_NORM_HEADS) {
#pragma unroll
        for (uint32_t i = 0; i < HEAD_PER_LANE; i++)
            sum = fmaf(v[i], v[i], sum);
        scale = inverse_rms(warp_sum(sum), a.head_dim, a.eps);
    }
#pragma unroll
    for (uint32_t i = 0; i < HEAD_PER_LANE; i++)
        if (lane + 32 * i < a.head_dim) x[lane + 32 * i] = norm == CUDA_NORM_NONE ? v[i] : v[i] * scale * f[i];
    __syncwarp();
}

__device__ __forceinline__ uint32_t element_bytes(uint32_t kv_type) {
    return kv_type == QTYPE_F32 ? 4 : kv_type == QTYPE_Q8_0 ? 1 : 2;
}

__device__ __forceinline__ void put(void *to, uint32_t bytes, uint32_t at, uint32_t bits) {
    if (bytes == 4) static_cast<uint32_t *>(to)[at] = bits;
    if (bytes == 2) static_cast<uint16_t *>(to)[at] = (uint16_t)bits;
    if (bytes == 1) static_cast<uint8_t *>(to)[at] = (uint8_t)bits;
}

__device__ __forceinline__ uint32_t value_bits(uint32_t kv_type, float v) {
    if (kv_type == QTYPE_F32) return __float_as_uint(v);
    if (kv_type == QTYPE_F16) return pack_f16(v > F16_MAX ? F16_MAX : v < -F16_MAX ? -F16_MAX : v, 0.0f);
    return pack_bf16(v, 0.0f);
}

/* 32 dimensions of a token, one a lane, as Q8_0: the largest magnitude is 127, a group with a value that
 * is no number has a scale that is none. */
__device__ __forceinline__ uint32_t q8_0_bits(float v, uint16_t *scale) {
    const float largest = warp_max(fabsf(v));
    const bool bad = __any_sync(CUDA_ALL, !(fabsf(v) <= F32_MAX));
    const float d = bad ? __int_as_float(0x7fffffff) : largest / 127.0f;
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    *scale = (uint16_t)pack_f16(d, 0.0f);
    return d > 0.0f ? (uint32_t)(int)rintf(v * inverse) : 0;
}

/* A value, one a lane, as K and V hold it; of Q8_0 with the scale of the warp's values. */
__device__ __forceinline__ uint32_t encode(uint32_t kv_type, float v, uint16_t *scale) {
    return kv_type == QTYPE_Q8_0 ? q8_0_bits(v, scale) : value_bits(kv_type, v);
}

/* Where the scale of a token's dimensions 32 group .. is in a run of K (by_dim) or V. */
__device__ __forceinline__ uint16_t *scale_at(const struct cargs_rope_store &a, unsigned char *run, bool by_dim,
                                              uint32_t token, uint32_t group) {
    return reinterpret_cast<uint16_t *>(run + a.block_tokens * a.head_dim) +
           (by_dim ? group * a.block_tokens + token : token * (a.head_dim / 32) + group);
}

/* Where a slot of head `head` lies in a pool; the token in it is slot % block_tokens. */
__device__ __forceinline__ unsigned char *slot_run(const struct cargs_rope_store &a, unsigned char *pool,
                                                   uint32_t slot, uint32_t head) {
    return pool + ((uint64_t)(slot / a.block_tokens) * a.n_kv_heads + head) * a.run_bytes;
}

/* x (head_dim) of one head to token `token` of a run of K (by_dim) or V, NULL: nowhere; and to bits (head_dim)
 * and scales (head_dim / 32) in shared memory, NULL: not there. */
__device__ __forceinline__ void store_head(const struct cargs_rope_store &a, const float *x, unsigned char *run,
                                           bool by_dim, uint32_t token, uint16_t *bits, uint16_t *scales,
                                           uint32_t lane) {
    const uint32_t bytes = element_bytes(a.kv_type);
    for (uint32_t d = lane; d < a.head_dim; d += 32) {
        uint16_t scale = 0;
        const uint32_t v = encode(a.kv_type, x[d], &scale);
        const bool scaled = a.kv_type == QTYPE_Q8_0 && lane == 0;
        if (run) put(run, bytes, by_dim ? d * a.block_tokens + token : token * a.head_dim + d, v);
        if (run && scaled) *scale_at(a, run, by_dim, token, d / 32) = scale;
        if (bits) bits[d] = (uint16_t)v;
        if (bits && scaled) scales[d / 32] = scale;
    }
}

} // namespace

#endif
