/* unpack_avx512.c - unpacks a panel's K block into a tile of byte codes and f32 scales, with
 * AVX-512 (F, BW).
 *
 * Codes are unsigned bytes, the first operand of vpdpbusd: the format's own codes if they cannot be
 * negative, otherwise the code plus an offset that multiply subtracts (multiply_job in
 * gemm_avx512.c). A panel is read once, sequentially, and prefetched here: products of one row are
 * bound by memory. Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm_avx512_int.h"

#include <string.h>

enum { VEC = 64 };

ALWAYS_INLINE __m512i load(const void *p) {
    return _mm512_loadu_si512(p);
}

ALWAYS_INLINE __m512i bytes(int value) {
    return _mm512_set1_epi8((char)value);
}

/* (x & a) | b */
ALWAYS_INLINE __m512i and_or(__m512i x, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(x, a, b, 0xea);
}

ALWAYS_INLINE __m512 halves_at(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* Shifts v left by n bits (right if n < 0); the caller masks bits that cross bytes. */
ALWAYS_INLINE __m512i shift(__m512i v, int n) {
    return n > 0 ? _mm512_slli_epi16(v, n) : n < 0 ? _mm512_srli_epi16(v, -n) : v;
}

/* dst = d * v, signed bytes, one per output. */
ALWAYS_INLINE void scale_bytes(__m128i v, __m512 d, float *dst) {
    __m512 f = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
    _mm512_store_ps(dst, _mm512_mul_ps(d, f));
}

/* Scales of eight numbers: even ones in the lanes of `even`, odd ones in `odd`. */
ALWAYS_INLINE void scale_eight(__m512i even, __m512i odd, __m512 d, float (*dst)[GEMM_OUTS]) {
    scale_bytes(_mm512_castsi512_si128(even), d, dst[0]);
    scale_bytes(_mm512_castsi512_si128(odd), d, dst[1]);
    scale_bytes(_mm512_extracti32x4_epi32(even, 1), d, dst[2]);
    scale_bytes(_mm512_extracti32x4_epi32(odd, 1), d, dst[3]);
    scale_bytes(_mm512_extracti32x4_epi32(even, 2), d, dst[4]);
    scale_bytes(_mm512_extracti32x4_epi32(odd, 2), d, dst[5]);
    scale_bytes(_mm512_extracti32x4_epi32(even, 3), d, dst[6]);
    scale_bytes(_mm512_extracti32x4_epi32(odd, 3), d, dst[7]);
}

/* dst[s] = d * (number s - bias) for eight six-bit numbers: 64 bytes of low bits, 32 of high. */
ALWAYS_INLINE void scale_six(const uint8_t *low, const uint8_t *high, int bias, __m512 d,
                             float (*dst)[GEMM_OUTS]) {
    const __m512i odd_lanes = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                               0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i l = load(low);
    __m512i h = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)high));
    h = _mm512_srlv_epi16(_mm512_shuffle_i64x2(h, h, 0x50), odd_lanes);
    __m512i even = _mm512_and_si512(l, bytes(15));
    __m512i odd = _mm512_and_si512(shift(l, -4), bytes(15));
    even = and_or(shift(h, 4), bytes(0x30), even);
    odd = and_or(shift(h, 2), bytes(0x30), odd);
    if (bias) {
        even = _mm512_sub_epi8(even, bytes(bias));
        odd = _mm512_sub_epi8(odd, bytes(bias));
    }
    scale_eight(even, odd, d, dst);
}

/* MXFP4: 2^(e - 128). Exponents 0 and 1 give subnormal numbers. */
ALWAYS_INLINE __m512 power_of_two(const uint8_t *e) {
    __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)e));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(x, _mm512_set1_epi32(1)), 23);
    __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), x);
    __mmask16 is_small = _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, small));
}

/* Unpacks the scales and mins of a K block; returns the address of its planes. */
ALWAYS_INLINE const uint8_t *unpack_scales(int type, const uint8_t *p, uint32_t nb,
                                           struct gemm_tile *t) {
    __m512 d, dmin;
    for (uint32_t i = 0; i < 6; i++) /* up to 384 bytes */
        gemm_avx512_ask(p + (uint64_t)i * VEC);
    switch (type) {
    case QTYPE_MXFP4:
        for (uint32_t b = 0; b < nb; b++)
            _mm512_store_ps(t->scale[b], power_of_two(p + (uint64_t)b * 16));
        return p + (uint64_t)nb * 16;
    case QTYPE_Q4_K:
    case QTYPE_Q5_K:
        d = halves_at(p);
        dmin = _mm512_sub_ps(_mm512_set1_ps(-0.0f), halves_at(p + 32));
        scale_six(p + 64, p + 128, 0, d, t->scale);
        scale_six(p + 160, p + 224, 0, dmin, t->min);
        return p + 256;
    case QTYPE_IQ4_XS:
    case QTYPE_IQ3_XXS_W:
    case QTYPE_IQ3_S_W:
        d = halves_at(p);
        if (type == QTYPE_IQ3_XXS_W) d = _mm512_mul_ps(d, _mm512_set1_ps(0.25f));
        scale_six(p + 32, p + 96, 32, d, t->scale);
        return p + 128;
    case QTYPE_Q3_K:
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        d = halves_at(p);
        if (type != QTYPE_Q3_K) d = _mm512_mul_ps(d, _mm512_set1_ps(0.125f));
        scale_six(p + 32, p + 160, 32, d, t->scale);
        scale_six(p + 96, p + 192, 32, d, t->scale + 8);
        return p + 224;
    case QTYPE_Q6_K:
        d = halves_at(p);
        UNROLL
        for (uint32_t s = 0; s < 16; s++)
            scale_bytes(_mm_loadu_si128((const __m128i *)(p + 32 + s * 16)), d, t->scale[s]);
        return p + 288;
    case QTYPE_Q2_K:
        d = halves_at(p);
        dmin = _mm512_sub_ps(_mm512_set1_ps(-0.0f), halves_at(p + 32));
        UNROLL
        for (uint32_t s = 0; s < 16; s++) {
            __m128i v = _mm_loadu_si128((const __m128i *)(p + 64 + s * 16));
            __m128i m = _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
            scale_bytes(_mm_and_si128(v, _mm_set1_epi8(15)), d, t->scale[s]);
            scale_bytes(m, dmin, t->min[s]);
        }
        return p + 320;
    default: /* f16 d, and m if the type has it */
        for (uint32_t b = 0; b < nb; b++)
            _mm512_store_ps(t->scale[b], halves_at(p + (uint64_t)b * 32));
        p += (uint64_t)nb * 32;
        if (type != QTYPE_Q4_1 && type != QTYPE_Q5_1) return p;
        for (uint32_t b = 0; b < nb; b++)
            _mm512_store_ps(t->min[b], halves_at(p + (uint64_t)b * 32));
        return p + (uint64_t)nb * 32;
    }
}

/* Three bits: twos and ones. */
ALWAYS_INLINE bool has_threes(int type) {
    return type == QTYPE_Q3_K || type == QTYPE_IQ1_W || type == QTYPE_IQ2_W;
}

ALWAYS_INLINE bool has_ones(int type) {
    return type == QTYPE_Q5_0 || type == QTYPE_Q5_1 || type == QTYPE_Q5_K || has_threes(type);
}

ALWAYS_INLINE bool has_nibbles(int type) {
    return type != QTYPE_Q8_0 && type != QTYPE_Q2_K && !has_threes(type);
}

/* The table of levels, plus 128, in each 128-bit lane. */
ALWAYS_INLINE __m512i level_table(const int8_t *levels) {
    __m128i t = _mm_xor_si128(_mm_loadu_si128((const __m128i *)levels), _mm_set1_epi8(-128));
    return _mm512_broadcast_i32x4(t);
}

/* Unpacks one block's codes to q (8 groups of 64 bytes); returns the end of its planes. */
ALWAYS_INLINE const uint8_t *unpack_block(int type, const uint8_t *p, __m512i table, uint8_t *q) {
    const bool nibbles = has_nibbles(type), ones = has_ones(type);
    const bool twos = type == QTYPE_Q2_K || has_threes(type) || type == QTYPE_Q6_K;
    const bool levels = gemm_levels(type) != NULL;
    __m512i n[4], two[2], one = _mm512_setzero_si512();
    if (type == QTYPE_Q8_0) {
        UNROLL
        for (int g = 0; g < 8; g++) {
            gemm_avx512_ask(p + g * VEC);
            _mm512_store_si512(q + g * VEC, _mm512_xor_si512(load(p + g * VEC), bytes(128)));
        }
        return p + 8 * VEC;
    }
    if (nibbles) {
        UNROLL
        for (int v = 0; v < 4; v++, p += VEC) {
            gemm_avx512_ask(p);
            n[v] = load(p);
        }
    }
    if (twos) {
        UNROLL
        for (int v = 0; v < 2; v++, p += VEC) {
            gemm_avx512_ask(p);
            two[v] = load(p);
        }
    }
    if (ones) {
        gemm_avx512_ask(p);
        one = load(p);
        p += VEC;
    }
    UNROLL
    for (int g = 0; g < 8; g++) {
        __m512i code;
        if (nibbles)
            code = _mm512_and_si512(shift(n[g % 4], g < 4 ? 0 : -4), bytes(15));
        else
            code = _mm512_and_si512(shift(two[g / 4], -2 * (g % 4)), bytes(3));
        if (nibbles && twos) code = and_or(shift(two[g / 4], 4 - 2 * (g % 4)), bytes(0x30), code);
        if (ones && nibbles) code = and_or(shift(one, 4 - g), bytes(0x10), code);
        if (ones && twos) code = and_or(shift(one, 2 - g), bytes(0x04), code);
        if (levels) code = _mm512_shuffle_epi8(table, code);
        _mm512_store_si512(q + g * VEC, code);
    }
    return p;
}

ALWAYS_INLINE void unpack_codes(int type, const uint8_t *src, uint32_t n_cols,
                                struct gemm_tile *t) {
    uint32_t nb = n_cols / GEMM_BLOCK;
    const int8_t *levels = gemm_levels(type);
    __m512i table = levels ? level_table(levels) : _mm512_setzero_si512();
    const uint8_t *p = unpack_scales(type, src, nb, t);
    for (uint32_t b = 0; b < nb; b++)
        p = unpack_block(type, p, table, t->q[b * 8][0]);
}

/* ---- floats ---- */

const uint8_t *gemm_avx512_floats(const struct gemm_tile *tile) {
    const uint8_t *src;
    memcpy(&src, tile, sizeof src);
    return src;
}

/* If n_cols is odd (and thus below GEMM_COLS), one more column is written. */
void gemm_avx512_widen(int type, const uint8_t *src, uint32_t n_cols, uint8_t *dst) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    if (type == QTYPE_F32) {
        for (uint32_t c = 0; c < n_cols; c++, src += VEC, dst += VEC) {
            gemm_avx512_ask(src);
            _mm512_store_si512(dst, load(src));
        }
        return;
    }
    if (type == QTYPE_F16) {
        for (uint32_t c = 0; c < n_cols; c++, src += VEC / 2, dst += VEC) {
            if (c % 2 == 0) gemm_avx512_ask(src);
            _mm512_store_ps(dst, halves_at(src));
        }
        return;
    }
    for (uint32_t c = 0; c < n_cols; c += 2, src += VEC, dst += 2 * VEC) {
        gemm_avx512_ask(src);
        __m512i pair = load(src);
        _mm512_store_si512(dst, _mm512_slli_epi32(pair, 16));
        _mm512_store_si512(dst + VEC, _mm512_and_si512(pair, high));
    }
}

void gemm_avx512_unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    switch (type) {
    case QTYPE_F32:
    case QTYPE_F16:
    case QTYPE_BF16:
        memcpy(tile, &src, sizeof src);
        break;
#define CODES(t)                                                                                   \
    case t:                                                                                        \
        unpack_codes(t, src, n_cols, tile);                                                        \
        break
        CODES(QTYPE_Q4_0);
        CODES(QTYPE_Q4_1);
        CODES(QTYPE_Q5_0);
        CODES(QTYPE_Q5_1);
        CODES(QTYPE_Q8_0);
        CODES(QTYPE_Q2_K);
        CODES(QTYPE_Q3_K);
        CODES(QTYPE_Q4_K);
        CODES(QTYPE_Q5_K);
        CODES(QTYPE_Q6_K);
        CODES(QTYPE_IQ4_NL);
        CODES(QTYPE_IQ4_XS);
        CODES(QTYPE_MXFP4);
        CODES(QTYPE_IQ1_W);
        CODES(QTYPE_IQ2_W);
        CODES(QTYPE_IQ3_XXS_W);
        CODES(QTYPE_IQ3_S_W);
#undef CODES
    default:
        break;
    }
}
