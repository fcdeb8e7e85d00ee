/* rope_avx2.c - K/V into the types of the pools with AVX2 and F16C. Pure functions; any thread. */
#include "core/backend/cpu/avx2_int.h"

enum { LANES = 8 };

#define F16_MAX 65504.0f

static void encode_f16(const float *x, uint16_t *to, uint32_t n) {
    const __m256 max = _mm256_set1_ps(F16_MAX), min = _mm256_set1_ps(-F16_MAX);
    for (uint32_t i = 0; i + LANES <= n; i += LANES) {
        __m256 v = _mm256_max_ps(min, _mm256_min_ps(max, _mm256_loadu_ps(x + i))); /* NaN stays */
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

static void encode_q8_0(const float *x, int8_t *to, uint16_t *scales, uint32_t n) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (uint32_t b = 0; b < n / Q_ELEMS; b++, x += Q_ELEMS, to += Q_ELEMS) {
        __m256 max = _mm256_setzero_ps(), zero = max;
        __m256i q[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m256 v = _mm256_loadu_ps(x + i * LANES);
            max = _mm256_max_ps(max, _mm256_and_ps(v, magnitude));
            zero = _mm256_fmadd_ps(v, _mm256_setzero_ps(), zero); /* NaN if one is no number */
        }
        float d = max_lanes(max) / 127 + sum_lanes(zero);
        __m256 inverse = _mm256_set1_ps(d > 0 ? 1 / d : 0);
        UNROLL
        for (int i = 0; i < 4; i++)
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * LANES), inverse));
        /* packing works in 128-bit halves: the permutation puts groups of four back in order */
        __m256i all =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        all = _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)to, all);
        scales[b] =
            (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(d), _MM_FROUND_TO_NEAREST_INT), 0);
    }
}

void avx2_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n) {
    if (type == QTYPE_Q8_0) {
        encode_q8_0(x, values, scales, n);
    } else if (type == QTYPE_F16) {
        uint32_t whole = n / LANES * LANES;
        encode_f16(x, values, whole);
        generic_encode_kv(type, x + whole, (uint16_t *)values + whole, scales, n - whole);
    } else {
        generic_encode_kv(type, x, values, scales, n);
    }
}
