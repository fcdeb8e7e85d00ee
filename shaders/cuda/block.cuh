/* block.cuh - quantized blocks as a file has them (core/base/qblock.h), value by value, for
 * repack.cu and rows.cu. value = scale * (q - offset) + minimum in f32, each operation rounded:
 * the bits of qtype_decode. */
#ifndef INFERD_SHADERS_CUDA_BLOCK_CUH
#define INFERD_SHADERS_CUDA_BLOCK_CUH

#include "core/base/qblock.h"
#include "shaders/cuda/format.cuh"

/* The block, and the format that it is repacked to (same offset, group and minimum). */
template <int type> struct block_of;
template <> struct block_of<QTYPE_Q4_0> {
    typedef q4_0_block block;
    enum { elems = 32, format = CUDA_FORMAT_Q4 };
};
template <> struct block_of<QTYPE_Q4_1> {
    typedef q4_1_block block;
    enum { elems = 32, format = CUDA_FORMAT_Q4_MIN };
};
template <> struct block_of<QTYPE_Q5_0> {
    typedef q5_0_block block;
    enum { elems = 32, format = CUDA_FORMAT_Q5 };
};
template <> struct block_of<QTYPE_Q5_1> {
    typedef q5_1_block block;
    enum { elems = 32, format = CUDA_FORMAT_Q5_MIN };
};
template <> struct block_of<QTYPE_Q8_0> {
    typedef q8_0_block block;
    enum { elems = 32, format = CUDA_FORMAT_Q8 };
};
template <> struct block_of<QTYPE_Q2_K> {
    typedef q2_k_block block;
    enum { elems = 256, format = CUDA_FORMAT_Q2_MIN };
};
template <> struct block_of<QTYPE_Q3_K> {
    typedef q3_k_block block;
    enum { elems = 256, format = CUDA_FORMAT_Q3 };
};
template <> struct block_of<QTYPE_Q4_K> {
    typedef q4_k_block block;
    enum { elems = 256, format = CUDA_FORMAT_Q4_MIN };
};
template <> struct block_of<QTYPE_Q5_K> {
    typedef q5_k_block block;
    enum { elems = 256, format = CUDA_FORMAT_Q5_MIN };
};
template <> struct block_of<QTYPE_Q6_K> {
    typedef q6_k_block block;
    enum { elems = 256, format = CUDA_FORMAT_Q6 };
};
template <> struct block_of<QTYPE_IQ4_NL> {
    typedef iq4_nl_block block;
    enum { elems = 32, format = CUDA_FORMAT_IQ4 };
};
template <> struct block_of<QTYPE_IQ4_XS> {
    typedef iq4_xs_block block;
    enum { elems = 256, format = CUDA_FORMAT_IQ4 };
};
template <> struct block_of<QTYPE_MXFP4> {
    typedef mxfp4_block block;
    enum { elems = 32, format = CUDA_FORMAT_MXFP4 };
};

/* Wide types (qblock.h): layouts of other types with scales of their own. */
template <int type> struct threes_block : q3_k_block {};
template <int type> struct fours_block : iq4_xs_block {};

template <> struct block_of<QTYPE_IQ1_W> {
    typedef threes_block<QTYPE_IQ1_W> block;
    enum { elems = 256, format = CUDA_FORMAT_IQ1 };
};
template <> struct block_of<QTYPE_IQ2_W> {
    typedef threes_block<QTYPE_IQ2_W> block;
    enum { elems = 256, format = CUDA_FORMAT_IQ2 };
};
template <> struct block_of<QTYPE_IQ3_XXS_W> {
    typedef fours_block<QTYPE_IQ3_XXS_W> block;
    enum { elems = 256, format = CUDA_FORMAT_IQ3_XXS };
};
template <> struct block_of<QTYPE_IQ3_S_W> {
    typedef fours_block<QTYPE_IQ3_S_W> block;
    enum { elems = 256, format = CUDA_FORMAT_IQ3_S };
};

/* Every quantized type, for tables of kernels. */
#define CUDA_EACH_QTYPE(X)                                                                         \
    X(QTYPE_Q4_0)                                                                                  \
    X(QTYPE_Q4_1)                                                                                  \
    X(QTYPE_Q5_0)                                                                                  \
    X(QTYPE_Q5_1)                                                                                  \
    X(QTYPE_Q8_0)                                                                                  \
    X(QTYPE_Q2_K)                                                                                  \
    X(QTYPE_Q3_K)                                                                                  \
    X(QTYPE_Q4_K)                                                                                  \
    X(QTYPE_Q5_K)                                                                                  \
    X(QTYPE_Q6_K)                                                                                  \
    X(QTYPE_IQ4_NL)                                                                                \
    X(QTYPE_IQ4_XS)                                                                                \
    X(QTYPE_MXFP4)                                                                                 \
    X(QTYPE_IQ1_W)                                                                                 \
    X(QTYPE_IQ2_W)                                                                                 \
    X(QTYPE_IQ3_XXS_W)                                                                             \
    X(QTYPE_IQ3_S_W)

__device__ __forceinline__ float half_value(uint16_t h) {
    return unpack_f16(h).x;
}

__device__ __forceinline__ uint32_t nibble_of(const uint8_t *q, uint32_t i) {
    return q[i % 16] >> (i < 16 ? 0 : 4) & 15;
}

/* ---- q of value i: unsigned, as encode_value expects it ---- */

__device__ __forceinline__ uint32_t block_q(const q4_0_block *b, uint32_t i) {
    return nibble_of(b->q, i);
}
__device__ __forceinline__ uint32_t block_q(const q4_1_block *b, uint32_t i) {
    return nibble_of(b->q, i);
}
__device__ __forceinline__ uint32_t block_q(const q5_0_block *b, uint32_t i) {
    return nibble_of(b->q, i) | (b->high[i / 8] >> i % 8 & 1) << 4;
}
__device__ __forceinline__ uint32_t block_q(const q5_1_block *b, uint32_t i) {
    return nibble_of(b->q, i) | (b->high[i / 8] >> i % 8 & 1) << 4;
}
__device__ __forceinline__ uint32_t block_q(const q8_0_block *b, uint32_t i) {
    return (uint32_t)(b->q[i] + 128);
}
__device__ __forceinline__ uint32_t block_q(const q2_k_block *b, uint32_t i) {
    return b->q[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
}
__device__ __forceinline__ uint32_t block_q(const q3_k_block *b, uint32_t i) {
    return (b->q[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3) | (b->high[i % 32] >> i / 32 & 1)
                                                                       << 2;
}
__device__ __forceinline__ uint32_t block_q(const q4_k_block *b, uint32_t i) {
    return b->q[i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
}
__device__ __forceinline__ uint32_t block_q(const q5_k_block *b, uint32_t i) {
    return (b->q[i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15) | (b->high[i % 32] >> i / 32 & 1)
                                                                       << 4;
}
__device__ __forceinline__ uint32_t block_q(const q6_k_block *b, uint32_t i) {
    return (b->low[i / 128 * 64 + i % 64] >> 4 * (i / 64 % 2) & 15) |
           (b->high[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3) << 4;
}
__device__ __forceinline__ uint32_t block_q(const iq4_nl_block *b, uint32_t i) {
    return nibble_of(b->q, i);
}
__device__ __forceinline__ uint32_t block_q(const iq4_xs_block *b, uint32_t i) {
    return nibble_of(b->q + i / 32 * 16, i % 32);
}
__device__ __forceinline__ uint32_t block_q(const mxfp4_block *b, uint32_t i) {
    return nibble_of(b->q, i);
}

/* ---- scale and minimum (x, y) of a group of tile_of<>::group values ---- */

/* The six-bit scale and minimum of a group of Q4_K and Q5_K. */
__device__ __forceinline__ float2 scale_min(const uint8_t scales[12], uint32_t group, uint16_t d,
                                            uint16_t dmin) {
    uint32_t t = group % 4, scale, least;
    if (group < 4) {
        scale = scales[t] & 63;
        least = scales[t + 4] & 63;
    } else {
        scale = (scales[t + 8] & 15) | scales[t] >> 6 << 4;
        least = scales[t + 8] >> 4 | scales[t + 4] >> 6 << 4;
    }
    return make_float2(half_value(d) * (float)scale, -(half_value(dmin) * (float)least));
}

__device__ __forceinline__ float2 block_scale(const q4_0_block *b, uint32_t) {
    return make_float2(half_value(b->d), 0);
}
__device__ __forceinline__ float2 block_scale(const q4_1_block *b, uint32_t) {
    return make_float2(half_value(b->d), half_value(b->m));
}
__device__ __forceinline__ float2 block_scale(const q5_0_block *b, uint32_t) {
    return make_float2(half_value(b->d), 0);
}
__device__ __forceinline__ float2 block_scale(const q5_1_block *b, uint32_t) {
    return make_float2(half_value(b->d), half_value(b->m));
}
__device__ __forceinline__ float2 block_scale(const q8_0_block *b, uint32_t) {
    return make_float2(half_value(b->d), 0);
}
__device__ __forceinline__ float2 block_scale(const q2_k_block *b, uint32_t group) {
    return make_float2(half_value(b->d) * (float)(b->scales[group] & 15),
                       -(half_value(b->dmin) * (float)(b->scales[group] >> 4)));
}
__device__ __forceinline__ float2 block_scale(const q3_k_block *b, uint32_t group) {
    int low = b->scales[group % 8] >> 4 * (group / 8) & 15,
        high = b->scales[8 + group % 4] >> 2 * (group / 4) & 3;
    return make_float2(half_value(b->d) * (float)((low | high << 4) - 32), 0);
}
__device__ __forceinline__ float2 block_scale(const q4_k_block *b, uint32_t group) {
    return scale_min(b->scales, group, b->d, b->dmin);
}
__device__ __forceinline__ float2 block_scale(const q5_k_block *b, uint32_t group) {
    return scale_min(b->scales, group, b->d, b->dmin);
}
__device__ __forceinline__ float2 block_scale(const q6_k_block *b, uint32_t group) {
    return make_float2(half_value(b->d) * (float)b->scales[group], 0);
}
__device__ __forceinline__ float2 block_scale(const iq4_nl_block *b, uint32_t) {
    return make_float2(half_value(b->d), 0);
}
__device__ __forceinline__ float2 block_scale(const iq4_xs_block *b, uint32_t group) {
    int low = b->scales_low[group / 2] >> 4 * (group % 2) & 15,
        high = b->scales_high >> 2 * group & 3;
    return make_float2(half_value(b->d) * (float)((low | high << 4) - 32), 0);
}
__device__ __forceinline__ float2 block_scale(const mxfp4_block *b, uint32_t) { /* 2^(e - 128) */
    return make_float2(__uint_as_float(b->e < 2 ? 0x200000u << b->e : (uint32_t)(b->e - 1) << 23),
                       0);
}
template <int type>
__device__ __forceinline__ float2 block_scale(const threes_block<type> *b, uint32_t group) {
    return make_float2(0.125f * block_scale((const q3_k_block *)b, group).x, 0);
}
template <int type>
__device__ __forceinline__ float2 block_scale(const fours_block<type> *b, uint32_t group) {
    float unit = type == QTYPE_IQ3_XXS_W ? 0.25f : 1;
    return make_float2(unit * block_scale((const iq4_xs_block *)b, group).x, 0);
}

/* ---- values ---- */

/* The number that q represents, before the scale. */
template <int format> __device__ __forceinline__ int q_number(uint32_t q) {
    if (has_levels4<format>()) {
        uint32_t bytes[2];
        level_bytes<format>(q, bytes);
        return (int)(bytes[0] & 255) - 128;
    }
    if (has_levels3<format>()) return (int)(levels_pair<format>(q, 0) & 255) - 128;
    if (format == CUDA_FORMAT_MXFP4) { /* e2m1, twice its value */
        int size = q & 6 ? (int)(2 + (q & 1)) << ((q >> 1 & 3) - 1) : (int)(q & 1);
        return q & 8 ? -size : size;
    }
    return (int)q - (int)tile_of<format>::offset;
}

/* Value i of a row of blocks. */
template <int type> __device__ __forceinline__ float row_value(const void *row, uint32_t i) {
    typedef block_of<type> B;
    typedef tile_of<B::format> T;
    const typename B::block *b = (const typename B::block *)row + i / B::elems;
    float2 s = block_scale(b, i % B::elems / T::group);
    float v = __fmul_rn(s.x, (float)q_number<B::format>(block_q(b, i % B::elems)));
    return T::has_min ? __fadd_rn(v, s.y) : v;
}

#endif
