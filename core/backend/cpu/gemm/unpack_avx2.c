/* unpack_avx2.c - unpacks a panel's K block into a tile: unsigned codes (gemm_ymm_int.h), f32
 * scales and mins; for float weights only their address. The K block is read once, sequentially,
 * while the following ones are prefetched. Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm_ymm_int.h"

enum { VECTORS = 2 }; /* per group */

/* ---- scales ---- */

ALWAYS_INLINE void put_16(float *to, __m256 low, __m256 high) {
    _mm256_store_ps(to, low);
    _mm256_store_ps(to + 8, high);
}

/* Converts n vectors of 16 halves. */
ALWAYS_INLINE void unpack_f16(const uint8_t *src, uint32_t n, float (*to)[GEMM_OUTS]) {
    for (uint32_t i = 0; i < n; i++, src += 32)
        put_16(to[i], _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src)),
               _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + 16))));
}

/* 2^(e - 128): the exponent field is e - 1; 2^-128 and 2^-127 are subnormal. */
ALWAYS_INLINE __m256 power_of_two(__m256i e) {
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
}

ALWAYS_INLINE void unpack_e8(const uint8_t *src, uint32_t n, float (*to)[GEMM_OUTS]) {
    for (uint32_t i = 0; i < n; i++, src += 16) {
        __m128i e = _mm_loadu_si128((const __m128i *)src);
        put_16(to[i], power_of_two(_mm256_cvtepu8_epi32(e)),
               power_of_two(_mm256_cvtepu8_epi32(_mm_srli_si128(e, 8))));
    }
}

/* Multiplies d by 16 signed bytes. */
ALWAYS_INLINE void put_products(float *to, const __m256 d[2], __m128i q) {
    put_16(to, _mm256_mul_ps(d[0], _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q))),
           _mm256_mul_ps(d[1], _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))));
}

ALWAYS_INLINE void load_f16(const uint8_t *src, __m256 d[2]) {
    d[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src));
    d[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + 16)));
}

ALWAYS_INLINE void negate(__m256 d[2]) {
    d[0] = _mm256_xor_ps(d[0], _mm256_set1_ps(-0.0f));
    d[1] = _mm256_xor_ps(d[1], _mm256_set1_ps(-0.0f));
}

/* By a power of two. */
ALWAYS_INLINE void divide(__m256 d[2], int by) {
    d[0] = _mm256_mul_ps(d[0], _mm256_set1_ps(1.0f / (float)by));
    d[1] = _mm256_mul_ps(d[1], _mm256_set1_ps(1.0f / (float)by));
}

/* d * (six[n] - less), four numbers at a time: two bytes of low nibbles, one of high bits. */
ALWAYS_INLINE void unpack_six(const uint8_t *six, uint32_t n, const __m256 d[2], int less,
                              float (*to)[GEMM_OUTS]) {
    const __m128i nibble = _mm_set1_epi8(15), two = _mm_set1_epi8(0x30);
    for (uint32_t i = 0; i < n; i += 4) {
        __m128i high = _mm_loadu_si128((const __m128i *)(six + 8 * n + 4 * i));
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            __m128i low = _mm_loadu_si128((const __m128i *)(six + 8 * i + 16 * (k / 2)));
            low = _mm_and_si128(k % 2 ? _mm_srli_epi16(low, 4) : low, nibble);
            __m128i h =
                k < 2 ? _mm_slli_epi16(high, 4 - 2 * (int)k) : _mm_srli_epi16(high, 2 * (int)k - 4);
            __m128i q = _mm_or_si128(low, _mm_and_si128(h, two));
            put_products(to[i + k], d, _mm_sub_epi8(q, _mm_set1_epi8((char)less)));
        }
    }
}

/* Unpacks the scales and mins of a K block; returns the address of its planes. */
ALWAYS_INLINE const uint8_t *unpack_scales(int type, const uint8_t *src, uint32_t n_blocks,
                                           struct gemm_tile *t) {
    __m256 d[2], dmin[2];
    switch (type) {
    case QTYPE_Q8_0:
    case QTYPE_Q4_0:
    case QTYPE_Q5_0:
    case QTYPE_IQ4_NL:
        unpack_f16(src, n_blocks, t->scale);
        return src + 32 * n_blocks;
    case QTYPE_Q4_1:
    case QTYPE_Q5_1:
        unpack_f16(src, n_blocks, t->scale);
        unpack_f16(src + 32 * n_blocks, n_blocks, t->min);
        return src + 64 * n_blocks;
    case QTYPE_MXFP4:
        unpack_e8(src, n_blocks, t->scale);
        return src + 16 * n_blocks;
    default:
        break;
    }
    load_f16(src, d);
    src += 32;
    switch (type) {
    case QTYPE_Q4_K:
    case QTYPE_Q5_K:
        load_f16(src, dmin);
        negate(dmin);
        unpack_six(src + 32, 8, d, 0, t->scale);
        unpack_six(src + 32 + 96, 8, dmin, 0, t->min);
        return src + 32 + 2 * 96;
    case QTYPE_Q2_K:
        load_f16(src, dmin);
        negate(dmin);
        src += 32;
        for (uint32_t i = 0; i < GEMM_COLS / 16; i++, src += 16) {
            __m128i v = _mm_loadu_si128((const __m128i *)src), nibble = _mm_set1_epi8(15);
            put_products(t->scale[i], d, _mm_and_si128(v, nibble));
            put_products(t->min[i], dmin, _mm_and_si128(_mm_srli_epi16(v, 4), nibble));
        }
        return src;
    case QTYPE_Q6_K:
        for (uint32_t i = 0; i < GEMM_COLS / 16; i++, src += 16)
            put_products(t->scale[i], d, _mm_loadu_si128((const __m128i *)src));
        return src;
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        divide(d, 8);
        unpack_six(src, 16, d, 32, t->scale);
        return src + 2 * 96;
    case QTYPE_Q3_K:
        unpack_six(src, 16, d, 32, t->scale);
        return src + 2 * 96;
    default: /* IQ4_XS, IQ3_XXS_W, IQ3_S_W */
        if (type == QTYPE_IQ3_XXS_W) divide(d, 4);
        unpack_six(src, 8, d, 32, t->scale);
        return src + 96;
    }
}

/* ---- codes ---- */

/* Shifts v left by n bits (right if n < 0); the caller masks bits that cross bytes. */
ALWAYS_INLINE __m256i move_bits(__m256i v, int left) {
    return left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
}

/* Offsets of a block's planes, and their size. */
struct planes {
    bool nibbles;
    uint32_t twos, ones, bytes; /* offsets; 0: none, but without nibbles twos are at 0 */
};

ALWAYS_INLINE struct planes planes_of(int type) {
    switch (type) {
    case QTYPE_Q5_0:
    case QTYPE_Q5_1:
    case QTYPE_Q5_K:
        return (struct planes){.nibbles = true, .ones = 256, .bytes = 320};
    case QTYPE_Q6_K:
        return (struct planes){.nibbles = true, .twos = 256, .bytes = 384};
    case QTYPE_Q3_K:
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        return (struct planes){.ones = 128, .bytes = 192};
    case QTYPE_Q2_K:
        return (struct planes){.bytes = 128};
    case QTYPE_Q8_0:
        return (struct planes){.bytes = 512};
    default:
        return (struct planes){.nibbles = true, .bytes = 256};
    }
}

/* The type's table of levels. */
ALWAYS_INLINE __m256i load_levels(int type, const int8_t *levels) {
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)levels));
    return _mm256_add_epi8(v, _mm256_set1_epi8((char)(1 << gemm_ymm_shift(type))));
}

/* Codes of vector h (0 or 1) of group g. */
ALWAYS_INLINE __m256i unpack_code(int type, const uint8_t *p, int g, uint32_t h, __m256i levels) {
    const struct planes at = planes_of(type);
    p += 32 * h;
    if (type == QTYPE_Q8_0)
        return _mm256_xor_si256(load_256(p + 64 * g), _mm256_set1_epi8((char)0x80));
    const bool has_levels = gemm_levels(type) != NULL;
    if (!at.nibbles) { /* Q2_K, Q3_K, IQ1_W, IQ2_W */
        __m256i q = move_bits(load_256(p + 64 * (g / 4)), -2 * (g % 4));
        q = _mm256_and_si256(q, _mm256_set1_epi8(3));
        if (!at.ones) return q;
        __m256i one = move_bits(load_256(p + at.ones), 2 - g);
        q = _mm256_or_si256(q, _mm256_and_si256(one, _mm256_set1_epi8(4)));
        return has_levels ? _mm256_shuffle_epi8(levels, q) : q;
    }
    __m256i q = move_bits(load_256(p + 64 * (g % 4)), g < 4 ? 0 : -4);
    q = _mm256_and_si256(q, _mm256_set1_epi8(15));
    if (has_levels) return _mm256_shuffle_epi8(levels, q);
    if (at.twos) {
        __m256i two = move_bits(load_256(p + at.twos + 64 * (g / 4)), 4 - 2 * (g % 4));
        return _mm256_or_si256(q, _mm256_and_si256(two, _mm256_set1_epi8(0x30)));
    }
    if (at.ones) {
        __m256i one = move_bits(load_256(p + at.ones), 4 - g);
        return _mm256_or_si256(q, _mm256_and_si256(one, _mm256_set1_epi8(0x10)));
    }
    return q;
}

ALWAYS_INLINE void unpack_quantized(int type, const uint8_t *src, uint32_t n_cols,
                                    struct gemm_tile *tile) {
    const uint32_t n_blocks = n_cols / GEMM_BLOCK, bytes = planes_of(type).bytes;
    const int8_t *table = gemm_levels(type);
    const uint8_t *p = unpack_scales(type, src, n_blocks, tile);
    __m256i levels = table ? load_levels(type, table) : _mm256_setzero_si256();
    uint8_t *q = &tile->q[0][0][0];
    gemm_ymm_ask_ahead(src, (uint32_t)(p - src));
    for (uint32_t b = 0; b < n_blocks; b++, p += bytes, q += GEMM_BLOCK * GEMM_OUTS) {
        gemm_ymm_ask_ahead(p, bytes);
        UNROLL
        for (int g = 0; g < GEMM_BLOCK / 4; g++) {
            UNROLL
            for (uint32_t h = 0; h < VECTORS; h++)
                _mm256_store_si256((__m256i *)(q + 64 * g + 32 * h),
                                   unpack_code(type, p, g, h, levels));
        }
    }
}

void gemm_ymm_unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    switch (type) {
#define UNPACK(t)                                                                                  \
    case t:                                                                                        \
        unpack_quantized(t, src, n_cols, tile);                                                    \
        break;
        UNPACK(QTYPE_Q8_0)
        UNPACK(QTYPE_Q4_0)
        UNPACK(QTYPE_Q4_1)
        UNPACK(QTYPE_Q5_0)
        UNPACK(QTYPE_Q5_1)
        UNPACK(QTYPE_Q2_K)
        UNPACK(QTYPE_Q3_K)
        UNPACK(QTYPE_Q4_K)
        UNPACK(QTYPE_Q5_K)
        UNPACK(QTYPE_Q6_K)
        UNPACK(QTYPE_IQ4_NL)
        UNPACK(QTYPE_IQ4_XS)
        UNPACK(QTYPE_MXFP4)
        UNPACK(QTYPE_IQ1_W)
        UNPACK(QTYPE_IQ2_W)
        UNPACK(QTYPE_IQ3_XXS_W)
        UNPACK(QTYPE_IQ3_S_W)
#undef UNPACK
    default: /* floats */
        memcpy(tile->q, &src, sizeof src);
        break;
    }
}
