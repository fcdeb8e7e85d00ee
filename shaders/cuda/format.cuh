/* format.cuh - quantized weights in device memory, bit by bit, and the one function that decodes
 * them: all products and dequantize.cu take their f16 values from decode_step.
 *
 * A TILE is 16 rows by 256 columns, processed in 16 steps of 16 columns. In step j lane l of a
 * warp (g = l / 4, t = l % 4) holds 8 values q of it, unsigned integers: of row g ("half 0") and
 * row g + 8 ("half 1") the columns 16j + 4t .. 16j + 4t + 3, as pairs c = 0, 1, the pair's first
 * and second: the lane's operands of mma, in the column order of format.h. The lane's bits of
 * all steps lie in words of two planes, low and high. A plane consists of chunks of 32 lanes x
 * 16 bytes: words 4k .. 4k + 3 of lane l are the 16 bytes at 512 k + 16 l of the plane. The
 * scales follow in chunks of 8 g x 16 bytes: at 128 k + 16 g words 0, 1 are of row g, words 2, 3
 * of row g + 8: two words of f16 scales of 4 groups, or of (scale, minimum) of two groups; a
 * chunk covers scale_cols columns.
 *
 * THE PLACE OF A BIT is chosen so that decoding is a rotation, an "and" and an fma. A small
 * integer n in the low 11 bits of a half IS the f16 number n * 2^-24 (a subnormal, or of the
 * first exponent, which has the same unit). So the halves of a word, rotated so that the pair's
 * q lie at bit at[half] of both, and masked, are the pair q * 2^(at - 24) exactly, and
 *     value = fma(q * 2^(at - 24), scale * 2^(24 - at), minimum)       rounded once.
 * The scale plane holds scale * 2^(24 - at) as f16, the minimum as f16. Formats without a
 * minimum use -offset * scale, computed here by one multiplication (the constant -offset * 2^(at
 * - 24) is an f16 number too).
 *
 * MXFP4 puts sign, exponent and mantissa of e2m1 at their places in a half, the mantissa at bit
 * 9: with the exponent bias of a half that is level * 2^(9 - 24) again, level as in
 * mxfp4_levels. The IQ formats look up bytes 128 + level: IQ4 and IQ3 nibbles, IQ1 and IQ2 codes
 * that lie where Q3's do.
 *
 * RANGE. All scales (and minima) of a tensor are multiplied by one 2^shift, so that the largest
 * number in its scale planes lies in (32752, 65504]. Values then are at most 1/16 (4 bits) to
 * 1/2 (8 bits), f16 numbers in full precision down to 2^-14 and in steps of 2^-24 below: a
 * value's error is at most 2^-10 of the larger of it and its minimum or offset, plus 2^-24,
 * which is less than 2^-19 of the largest scale's own range. */
#ifndef INFERD_SHADERS_CUDA_FORMAT_CUH
#define INFERD_SHADERS_CUDA_FORMAT_CUH

#include "shaders/cuda/device.cuh"
#include "shaders/cuda/format.h"

/* low, high: bits of a value in the planes; at0, at1: bit position of its lowest bit, by half;
 * offset: q minus the number it represents. */
template <int low_, int high_, int group_, int has_min_, int at0_, int at1_, int offset_>
struct tile_shape {
    enum {
        low = low_,
        high = high_,
        group = group_,
        has_min = has_min_,
        at0 = at0_,
        at1 = at1_,
        offset = offset_,
        low_words = 4 * low_, /* per lane and tile: low_ bits of 8 values of 16 steps */
        high_words = 4 * high_,
        low_chunks = low_, /* of 16 bytes per lane */
        high_chunks = high_,
        scale_cols = (has_min_ ? 2 : 4) * group_, /* columns of a chunk of scales */
        scale_chunks = CUDA_TILE_COLS / scale_cols,
        scale_words = 4 * scale_chunks, /* per lane and tile */
        low_bytes = 512 * low_chunks,
        high_bytes = 512 * high_chunks,
        scale_bytes = 128 * scale_chunks,
        bytes = low_bytes + high_bytes + scale_bytes
    };
};

template <int format> struct tile_of;
template <> struct tile_of<CUDA_FORMAT_Q4> : tile_shape<4, 0, 32, 0, 3, 7, 8> {};
template <> struct tile_of<CUDA_FORMAT_Q4_MIN> : tile_shape<4, 0, 32, 1, 3, 7, 0> {};
template <> struct tile_of<CUDA_FORMAT_Q5> : tile_shape<4, 1, 32, 0, 1, 6, 16> {};
template <> struct tile_of<CUDA_FORMAT_Q5_MIN> : tile_shape<4, 1, 32, 1, 1, 6, 0> {};
template <> struct tile_of<CUDA_FORMAT_Q8> : tile_shape<8, 0, 32, 0, 0, 0, 128> {};
template <> struct tile_of<CUDA_FORMAT_Q6> : tile_shape<4, 2, 16, 0, 1, 5, 32> {};
template <> struct tile_of<CUDA_FORMAT_Q3> : tile_shape<2, 1, 16, 0, 4, 8, 4> {};
template <> struct tile_of<CUDA_FORMAT_Q2_MIN> : tile_shape<2, 0, 16, 1, 7, 9, 0> {};
template <> struct tile_of<CUDA_FORMAT_IQ4> : tile_shape<4, 0, 32, 0, 0, 0, 128> {};
template <> struct tile_of<CUDA_FORMAT_MXFP4> : tile_shape<4, 0, 32, 0, 9, 9, 0> {};
template <> struct tile_of<CUDA_FORMAT_IQ1> : tile_shape<2, 1, 16, 0, 4, 8, 128> {};
template <> struct tile_of<CUDA_FORMAT_IQ2> : tile_shape<2, 1, 16, 0, 4, 8, 128> {};
template <> struct tile_of<CUDA_FORMAT_IQ3_XXS> : tile_shape<4, 0, 32, 0, 0, 0, 128> {};
template <> struct tile_of<CUDA_FORMAT_IQ3_S> : tile_shape<4, 0, 32, 0, 0, 0, 128> {};

/* Codes of three bits, or nibbles, that index a table of levels. */
template <int format> __host__ __device__ __forceinline__ constexpr bool has_levels3() {
    return format == CUDA_FORMAT_IQ1 || format == CUDA_FORMAT_IQ2;
}
template <int format> __device__ __forceinline__ constexpr bool has_levels4() {
    return format == CUDA_FORMAT_IQ4 || format == CUDA_FORMAT_IQ3_XXS ||
           format == CUDA_FORMAT_IQ3_S;
}

/* The bit of a half at which the number that the fma takes lies. */
template <int format> __host__ __device__ __forceinline__ constexpr int number_at(int half) {
    return has_levels3<format>() ? 0 : half ? (int)tile_of<format>::at1 : (int)tile_of<format>::at0;
}

/* The lane's 16 bytes of chunk k of a plane of a tile. */
template <int format>
__device__ __forceinline__ const unsigned char *tile_low(const void *tile, int k, int lane) {
    return (const unsigned char *)tile + 512 * k + 16 * lane;
}
template <int format>
__device__ __forceinline__ const unsigned char *tile_high(const void *tile, int k, int lane) {
    return (const unsigned char *)tile + tile_of<format>::low_bytes + 512 * k + 16 * lane;
}
template <int format>
__device__ __forceinline__ const unsigned char *tile_scale(const void *tile, int k, int lane) {
    return (const unsigned char *)tile + tile_of<format>::low_bytes + tile_of<format>::high_bytes +
           128 * k + 16 * (lane / 4);
}

__device__ __forceinline__ uint32_t rotate_right(uint32_t v, int n) {
    return __funnelshift_r(v, v, n);
}

/* ---- the place of the bits of step j, pair c: both planes' words are rotated right by this
 * number; j counts from the first word's first step. The first of a pair has its bits in the low
 * half of the rotated word, the second in the high half. ---- */

template <int format> __device__ __forceinline__ int low_turn(int j, int c) {
    return tile_of<format>::high == 1 && tile_of<format>::low == 2 ? 8 * (j % 2) + 2 * c
           : format == CUDA_FORMAT_Q2_MIN                          ? 8 * (j % 2) + 4 * c
                                                                   : 8 * c;
}

template <int format> __device__ __forceinline__ int high_turn(int j, int c) {
    return tile_of<format>::low == 2  ? 8 * (j / 2 % 2) + 2 * (j % 2) + c
           : format == CUDA_FORMAT_Q6 ? 2 * (j % 2) + 8 * c
                                      : 4 * (j % 4) + 2 * c;
}

/* Bits of the two halves' q that come from the low plane, in place (the others come from the
 * high one). Q5: the lowest bit of row g's and the highest of row g + 8's are in the high plane,
 * so that the other eight are contiguous. */
template <int format> __device__ __forceinline__ constexpr uint32_t low_mask(int half) {
    typedef tile_of<format> T;
    int at = half ? (int)T::at1 : (int)T::at0;
    int skip = (format == CUDA_FORMAT_Q5 || format == CUDA_FORMAT_Q5_MIN) && !half;
    return ((1u << T::low) - 1) << (at + skip) << 16 | ((1u << T::low) - 1) << (at + skip);
}

template <int format> __device__ __forceinline__ uint32_t all_mask(int half) {
    typedef tile_of<format> T;
    uint32_t m = ((1u << (T::low + T::high)) - 1) << (half ? (int)T::at1 : (int)T::at0);
    return m << 16 | m;
}

/* ---- decoding ---- */

/* Word i of a format's levels + 128, four bytes a word: 16 levels, or 8. */
template <int format> __device__ __forceinline__ constexpr uint32_t level_word(int i) {
    return format == CUDA_FORMAT_IQ1   ? (i ? 0x80877f77u : 0x80898179u)
           : format == CUDA_FORMAT_IQ2 ? (i ? 0x80556778u : 0x80ab9988u)
           : format == CUDA_FORMAT_IQ3_XXS
               ? (i < 2 ? (i ? 0xbeb4aca4u : 0x9c948c84u) : (i == 2 ? 0x646c747cu : 0x424c545cu))
           : format == CUDA_FORMAT_IQ3_S
               ? (i < 2 ? (i ? 0x8f8d8b89u : 0x87858381u) : (i == 2 ? 0x797b7d7fu : 0x71737577u))
               : (i < 2 ? (i ? 0x766a5d4fu : 0x3f2d1801u) : (i == 2 ? 0xa6998d81u : 0xf1d9c5b5u));
}

/* A pair of codes of three bits, at bit `at` of both halves of x, to bytes 128 + level there. */
template <int format> __device__ __forceinline__ uint32_t levels_pair(uint32_t x, int at) {
    uint32_t code = x >> at;
    return pick_bytes(level_word<format>(0), level_word<format>(1),
                      (code & 7) | (code >> 8 & 0x700)) &
           0x00ff00ffu;
}

/* Bytes 128 + level of the nibbles 0..3 of w (bytes[0]) and 4..7 (bytes[1]). A selector of
 * pick_bytes is a nibble too: its low three bits index each half of the table, then its fourth
 * bit selects the half. */
template <int format> __device__ __forceinline__ void level_bytes(uint32_t w, uint32_t bytes[2]) {
    uint32_t within = w & 0x77777777u, half = (w >> 1 & 0x44444444u) | 0x32103210u;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t below = pick_bytes(level_word<format>(0), level_word<format>(1), within >> 16 * i);
        uint32_t above = pick_bytes(level_word<format>(2), level_word<format>(3), within >> 16 * i);
        bytes[i] = pick_bytes(below, above, half >> 16 * i);
    }
}

/* Bytes 0, 2 (c = 0) or 1, 3 (c = 1) of w as a pair of small integers. */
__device__ __forceinline__ uint32_t bytes_pair(uint32_t w, int c) {
    return c ? pick_bytes(w, 0, 0x4341) : w & 0x00ff00ffu;
}

/* MXFP4: half 0's and 1's pairs c from a lane's word: signs at bits 15, 12, 13, 14 (for (c, half) =
 * (0, 0), (0, 1), (1, 0), (1, 1)) of both halves of the word, the rest at 9, 6, 3, 0. */
__device__ __forceinline__ uint32_t mxfp4_pair(uint32_t w, int c, int half) {
    int up = 6 * c + 3 * half, sign = c ? 2 - half : 3 * half;
    return (w << up & 0x0e000e00u) | (w << sign & 0x80008000u);
}

/* The pairs c of half 0 and 1, small integers in place. */
template <int format>
__device__ __forceinline__ void pairs_of(uint32_t low, uint32_t high, int j, int c, uint32_t x[2]) {
    typedef tile_of<format> T;
    uint32_t w = rotate_right(low, low_turn<format>(j, c));
    if (T::high > 0) {
        uint32_t h = rotate_right(high, high_turn<format>(j, c));
        if (format == CUDA_FORMAT_Q6) {
            x[0] = (w & low_mask<format>(0)) | (h & (all_mask<format>(0) & ~low_mask<format>(0)));
            x[1] = (w & low_mask<format>(1)) | (h & (all_mask<format>(1) & ~low_mask<format>(1)));
            return;
        }
        w = select_bits<low_mask<format>(0) | low_mask<format>(1)>(w, h);
    }
    x[0] = w & all_mask<format>(0);
    x[1] = w & all_mask<format>(1);
}

/* The operand of decode_step from a lane's scale words, for step j and half: (scale, scale) or
 * (scale, minimum). scale: the lane's words of the scale plane, from the chunk that holds step 0
 * on. */
template <int format>
__device__ __forceinline__ uint32_t step_scale(const uint32_t *scale, int j, int half) {
    typedef tile_of<format> T;
    int k = 16 * j / T::scale_cols, i = 16 * j % T::scale_cols / T::group;
    if (T::has_min) return scale[4 * k + 2 * half + i];
    return pick_bytes(scale[4 * k + 2 * half + i / 2], 0, i % 2 ? 0x3232 : 0x1010);
}

/* Step j: the f16 pairs of mma's operand a: a[0] row g, columns 4t, 4t + 1 of the 16, a[1] row g
 * + 8, the same; a[2], a[3] columns 4t + 2, 4t + 3. low, high: the lane's words of the planes,
 * from the word that holds step 0 on: of a whole tile, or from step 8 on with j counting from
 * there. scale0, scale1: step_scale of the halves. If j is a compile-time constant, all branches
 * disappear. */
template <int format>
__device__ __forceinline__ void decode_step(const uint32_t *low, const uint32_t *high, int j,
                                            uint32_t scale0, uint32_t scale1, uint32_t a[4]) {
    typedef tile_of<format> T;
    if (format == CUDA_FORMAT_MXFP4) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = mul_f16x2(mxfp4_pair(low[j], i / 2, i % 2), i % 2 ? scale1 : scale0);
        return;
    }
    uint32_t s[2] = {scale0, scale1}, m[2];
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (T::has_min) {
            m[half] = pick_bytes(s[half], 0, 0x3232);
            s[half] = pick_bytes(s[half], 0, 0x1010);
        } else {
            uint32_t to = 0x8000u | (uint32_t)T::offset << number_at<format>(half);
            m[half] = mul_f16x2(s[half], to << 16 | to);
        }
    uint32_t bytes[2];
    if (format == CUDA_FORMAT_Q8) {
        bytes[0] = low[2 * j];
        bytes[1] = low[2 * j + 1];
    }
    if (has_levels4<format>()) level_bytes<format>(low[j], bytes);
#pragma unroll
    for (int c = 0; c < 2; c++) {
        uint32_t x[2];
        if (format == CUDA_FORMAT_Q8 || has_levels4<format>()) {
            x[0] = bytes_pair(bytes[0], c);
            x[1] = bytes_pair(bytes[1], c);
        } else {
            pairs_of<format>(low[j * T::low / 4], T::high > 0 ? high[j * T::high / 4] : 0, j, c, x);
            if (has_levels3<format>()) {
                x[0] = levels_pair<format>(x[0], T::at0);
                x[1] = levels_pair<format>(x[1], T::at1);
            }
        }
        a[2 * c] = fma_f16x2(x[0], s[0], m[0]);
        a[2 * c + 1] = fma_f16x2(x[1], s[1], m[1]);
    }
}

/* ---- encoding, for repack.cu ---- */

/* Adds q of step j, value i of 4 (the row's columns 4t + i), half to a lane's words of a tile
 * (low_words, high_words, initialized to 0). */
template <int format>
__device__ __forceinline__ void encode_value(uint32_t q, int j, int i, int half, uint32_t *low,
                                             uint32_t *high) {
    typedef tile_of<format> T;
    int c = i / 2, second = i % 2;
    if (format == CUDA_FORMAT_Q8) { /* bytes 0, 2: pair 0; 1, 3: pair 1 */
        low[2 * j + half] |= q << (8 * (c + 2 * second));
    } else if (has_levels4<format>()) { /* nibbles in the order of Q8's bytes, half 1 in the high
                                           half */
        low[j] |= q << (4 * (c + 2 * second) + 16 * half);
    } else if (format == CUDA_FORMAT_MXFP4) {
        int up = 6 * c + 3 * half, sign = c ? 2 - half : 3 * half;
        low[j] |= ((q & 7) << (9 - up) | (q >> 3) << (15 - sign)) << (16 * second);
    } else {
        uint32_t in_place = q << ((half ? (int)T::at1 : (int)T::at0) + 16 * second),
                 mask = low_mask<format>(half);
        low[j * T::low / 4] |= rotate_right(in_place & mask, 32 - low_turn<format>(j, c));
        if (T::high > 0)
            high[j * T::high / 4] |= rotate_right(in_place & ~mask, 32 - high_turn<format>(j, c));
    }
}

/* The power of two (besides 2^shift) that a group's scale is multiplied by before it is stored,
 * for half 0: 24 - at0. Half 1's is smaller by 2^(at1 - at0). Levels are at bit 0. */
template <int format> __host__ __device__ __forceinline__ int scale_exponent(int half) {
    return 24 - number_at<format>(half);
}

#endif
