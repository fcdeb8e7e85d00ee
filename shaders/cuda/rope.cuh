/* rope.cuh - what happens to a head of q, k and v before attention: norm, rotary embedding,
 * conversion to the cache's type. One warp per head; the same bits from every kernel that does
 * it. */
#ifndef INFERD_SHADERS_CUDA_ROPE_CUH
#define INFERD_SHADERS_CUDA_ROPE_CUH

#include "core/base/qblock.h"
#include "shaders/args_attention.h"
#include "shaders/cuda/device.cuh"

namespace {

/* Compile-time constants make less code: N, the quads of a lane (quad i has dimensions 4 (lane + 32
 * i) .. + 3); aligned: head_dim is a multiple of 4. */
#define F16_MAX 65504.0f
#define F32_MAX 3.402823466e38f

__device__ __forceinline__ float inverse_rms(float sum, uint32_t n, float eps) {
    return 1.0f / sqrtf(sum / (float)n + eps);
}

/* Cosines and sines (n_rot / 2) of a row, by n threads, of which this is number i. The angle is
 * rounded to f32 as on every device; sine and cosine are accurate for angles of many turns. */
__device__ __forceinline__ void make_angles(const struct cargs_rope_store &a, float pos,
                                            float *cosines, float *sines, uint32_t i, uint32_t n) {
#pragma unroll 1 /* small code: fetching instructions would cost more than the loop */
    for (; i < a.n_rot / 2; i += n) {
        float s, c;
        sincosf(pos * a.inv_freq[i], &s, &c);
        cosines[i] = c * a.op.magnitude;
        sines[i] = s * a.op.magnitude;
    }
}

__device__ __forceinline__ uint32_t quad_dim(uint32_t i) {
    return 4 * (threadIdx.x % 32 + 32 * i);
}

/* Quad i of a lane, which is not known when compiling: registers have no addresses. */
template <int N>
__device__ __forceinline__ void pick_quad(const float (&v)[N][4], uint32_t i, float (&quad)[4]) {
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) {
        quad[e] = v[0][e];
#pragma unroll
        for (uint32_t j = 1; j < N; j++)
            quad[e] = i == j ? v[j][e] : quad[e];
    }
}

/* Reads n values, with zeros after them. */
template <int N>
__device__ __forceinline__ void read_values(const float *src, uint32_t n, float (&v)[N][4],
                                            bool aligned) {
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t d = quad_dim(i);
        if (aligned) {
            const float4 q =
                d < n ? *reinterpret_cast<const float4 *>(src + d) : make_float4(0, 0, 0, 0);
            v[i][0] = q.x, v[i][1] = q.y, v[i][2] = q.z, v[i][3] = q.w;
        } else {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                v[i][e] = d + e < n ? src[d + e] : 0.0f;
        }
    }
}

template <int N>
__device__ __forceinline__ void read_head(const struct cargs_rope_store &a, const float *src,
                                          float (&v)[N][4], bool aligned) {
    read_values(src, a.head_dim, v, aligned);
}

template <int N>
__device__ __forceinline__ void write_head(const struct cargs_rope_store &a, float *to,
                                           const float (&v)[N][4], bool aligned) {
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t d = quad_dim(i);
        if (aligned) {
            if (d < a.head_dim)
                *reinterpret_cast<float4 *>(to + d) =
                    make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
        } else {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                if (d + e < a.head_dim) to[d + e] = v[i][e];
        }
    }
}

/* f: factors, laid out as v; unused with ARGS_NORM_NONE. */
template <int N>
__device__ __forceinline__ void norm_head(const struct cargs_rope_store &a, uint32_t norm,
                                          float (&v)[N][4], const float (&f)[N][4], float scale) {
    float sum = 0.0f;
    if (norm == ARGS_NORM_NONE) return;
    if (norm == ARGS_NORM_HEADS) {
#pragma unroll
        for (uint32_t i = 0; i < 4 * N; i++)
            if (quad_dim(i / 4) < a.norm_dim) sum = fmaf(v[i / 4][i % 4], v[i / 4][i % 4], sum);
        scale = inverse_rms(warp_sum(sum), a.norm_dim, a.op.eps);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++)
        if (quad_dim(i / 4) < a.norm_dim)
            v[i / 4][i % 4] = v[i / 4][i % 4] * scale * f[i / 4][i % 4];
}

/* rotate, if no quad has dimensions of both halves: few instructions, none of which waits for a
 * branch. */
template <int N>
__device__ __forceinline__ void rotate_quads(const struct cargs_rope_store &a, float (&v)[N][4],
                                             const float *x, const float *cosines,
                                             const float *sines) {
    const uint32_t half = a.n_rot / 2;
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t d = quad_dim(i), at = d - a.first_rot; /* wraps before it */
        if (at >= a.n_rot) continue;
        if (a.interleaved) {
            const float2 c = *reinterpret_cast<const float2 *>(cosines + at / 2),
                         s = *reinterpret_cast<const float2 *>(sines + at / 2);
            const float was[4] = {v[i][0], v[i][1], v[i][2], v[i][3]};
            v[i][0] = fmaf(was[0], c.x, -(was[1] * s.x));
            v[i][1] = fmaf(was[0], s.x, was[1] * c.x);
            v[i][2] = fmaf(was[2], c.y, -(was[3] * s.y));
            v[i][3] = fmaf(was[2], s.y, was[3] * c.y);
        } else {
            const bool second = at >= half;
            const uint32_t pair = second ? at - half : at;
            const float4 o4 = *reinterpret_cast<const float4 *>(x + (second ? d - half : d + half)),
                         c4 = *reinterpret_cast<const float4 *>(cosines + pair),
                         s4 = *reinterpret_cast<const float4 *>(sines + pair);
            const float o[4] = {o4.x, o4.y, o4.z, o4.w}, c[4] = {c4.x, c4.y, c4.z, c4.w},
                        s[4] = {s4.x, s4.y, s4.z, s4.w};
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const float add = second ? v[i][e] * c[e] : -(o[e] * s[e]);
                v[i][e] = fmaf(second ? o[e] : v[i][e], second ? s[e] : c[e], add);
            }
        }
    }
}

/* x (head_dim): memory of the warp for exchanges between lanes. */
template <int N>
__device__ __forceinline__ void rotate(const struct cargs_rope_store &a, float (&v)[N][4], float *x,
                                       const float *cosines, const float *sines, bool aligned) {
    const uint32_t half = a.n_rot / 2;
    if (!a.interleaved) {
        write_head(a, x, v, aligned);
        __syncwarp();
    }
    const bool whole = aligned && half % 4 == 0;
    if (whole) rotate_quads(a, v, x, cosines, sines);
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t d = quad_dim(i);
        if (whole) break;
        float was[4];
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            was[e] = v[i][e];
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const uint32_t at = d + e - a.first_rot; /* wraps before it */
            if (at >= a.n_rot) continue;
            const bool second = a.interleaved ? e % 2 == 1 : at >= half;
            const uint32_t pair = a.interleaved ? at / 2 : second ? at - half : at;
            const float other =
                a.interleaved ? was[e ^ 1] : x[second ? d + e - half : d + e + half];
            const float c = cosines[pair], s = sines[pair];
            v[i][e] = second ? fmaf(other, s, was[e] * c) : fmaf(was[e], c, -(other * s));
        }
    }
    if (!a.interleaved) __syncwarp(); /* x may be reused */
}

/* Norm and rotation of a head of q or k, in the op's order; of v (rotates false) neither. */
template <int N>
__device__ __forceinline__ void norm_and_rotate(const struct cargs_rope_store &a, uint32_t norm,
                                                float (&v)[N][4], const float (&f)[N][4],
                                                float scale, float *x, const float *cosines,
                                                const float *sines, bool rotates, bool aligned) {
#pragma unroll 1 /* small code */
    for (uint32_t step = 0; step < 2; step++) {
        if (step == a.op.norm_last)
            norm_head(a, norm, v, f, scale);
        else if (rotates)
            rotate(a, v, x, cosines, sines, aligned);
    }
}

/* The factor of q at a position. */
__device__ __forceinline__ float q_scale_at(const struct cargs_rope_store &a, int32_t pos) {
    if (a.op.q_log_length == 0 || pos < 0) return 1.0f;
    return 1.0f + a.op.q_log_scale *
                      logf((float)(1 + ((uint32_t)pos + a.op.q_log_from) / a.op.q_log_length));
}

template <int N> __device__ __forceinline__ void scale_head(float (&v)[N][4], float scale) {
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++)
        v[i / 4][i % 4] *= scale;
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
    if (kv_type == QTYPE_F16)
        return pack_f16(v > F16_MAX ? F16_MAX : v < -F16_MAX ? -F16_MAX : v, 0.0f);
    return pack_bf16(v, 0.0f);
}

/* Four values per lane, 32 dimensions of a token over eight lanes, as Q8_0: the largest
 * magnitude becomes 127; a group that contains NaN or infinity gets a scale that is not finite. */
__device__ __forceinline__ void q8_0_bits(const float v[4], uint32_t bits[4], uint16_t *scale) {
    float largest = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
    for (int i = 4; i > 0; i /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(CUDA_ALL, largest, i));
    const bool numbers = fabsf(v[0]) <= F32_MAX && fabsf(v[1]) <= F32_MAX &&
                         fabsf(v[2]) <= F32_MAX && fabsf(v[3]) <= F32_MAX;
    const bool bad = (__ballot_sync(CUDA_ALL, !numbers) >> (threadIdx.x % 32 / 8 * 8) & 255) != 0;
    const float d = bad ? __int_as_float(0x7fffffff) : largest / 127.0f;
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    *scale = (uint16_t)pack_f16(d, 0.0f);
#pragma unroll
    for (uint32_t e = 0; e < 4; e++)
        bits[e] = d > 0.0f ? (uint32_t)(int)rintf(v[e] * inverse) & 255 : 0;
}

/* Converts a quad to the type of K and V; for Q8_0 with the scale of its eight lanes' values. By
 * all lanes of a warp. */
__device__ __forceinline__ void encode(uint32_t kv_type, const float v[4], uint32_t bits[4],
                                       uint16_t *scale) {
    if (kv_type == QTYPE_Q8_0) {
        q8_0_bits(v, bits, scale);
        return;
    }
#pragma unroll
    for (uint32_t e = 0; e < 4; e++)
        bits[e] = value_bits(kv_type, v[e]);
}

/* Address of the scale of a token's dimensions from 32 group on, in a run of K (by_dim) or V. */
__device__ __forceinline__ uint16_t *scale_at(const struct cargs_rope_store &a, unsigned char *run,
                                              bool by_dim, uint32_t token, uint32_t group) {
    return reinterpret_cast<uint16_t *>(run + a.block_tokens * a.head_dim) +
           (by_dim ? group * a.block_tokens + token : token * (a.head_dim / 32) + group);
}

/* Address of the run of head `head` that holds a slot; the token in it is slot % block_tokens. */
__device__ __forceinline__ unsigned char *
slot_run(const struct cargs_rope_store &a, unsigned char *pool, uint32_t slot, uint32_t head) {
    return pool + ((uint64_t)(slot / a.block_tokens) * a.op.n_kv_heads + head) * a.run_bytes;
}

/* Stores a quad of a token of V: contiguous. */
__device__ __forceinline__ void put_quad(unsigned char *run, uint32_t bytes, uint32_t at,
                                         const uint32_t bits[4]) {
    if (bytes == 4)
        *reinterpret_cast<uint4 *>(run + at * 4) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
    if (bytes == 2)
        *reinterpret_cast<uint2 *>(run + at * 2) =
            make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
    if (bytes == 1)
        *reinterpret_cast<uint32_t *>(run + at) =
            bits[0] | bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
}

/* Stores one head to token `token` of a run of K (by_dim) or V (NULL: not stored), and to kept
 * (head_dim) and scales (head_dim / 32) in shared memory (NULL: not kept). By all lanes of a
 * warp. */
template <int N>
__device__ __forceinline__ void store_head(const struct cargs_rope_store &a, const float (&v)[N][4],
                                           unsigned char *run, bool by_dim, uint32_t token,
                                           uint16_t *kept, uint16_t *scales, uint32_t kv_type,
                                           bool aligned) {
    const uint32_t bytes = element_bytes(kv_type);
#pragma unroll 1
    for (uint32_t i = 0; i < N && 128 * i < a.head_dim; i++) {
        const uint32_t d = quad_dim(i);
        uint32_t bits[4];
        uint16_t scale = 0;
        float quad[4];
        pick_quad(v, i, quad);
        encode(kv_type, quad, bits, &scale);
        if (d >= a.head_dim) continue;
        const bool scaled = kv_type == QTYPE_Q8_0 && d % 32 == 0;
        if (run && !by_dim && aligned && a.run_bytes % (4 * bytes) == 0) {
            put_quad(run, bytes, token * a.head_dim + d, bits);
        } else if (run) {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                if (d + e < a.head_dim)
                    put(run, bytes,
                        by_dim ? (d + e) * a.block_tokens + token : token * a.head_dim + d + e,
                        bits[e]);
        }
        if (run && scaled) *scale_at(a, run, by_dim, token, d / 32) = scale;
        if (!kept) continue;
        if (scaled) scales[d / 32] = scale;
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            if (d + e < a.head_dim) kept[d + e] = (uint16_t)bits[e];
    }
}

} // namespace

#endif
