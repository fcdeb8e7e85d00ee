/* avx2_int.h - pieces that the AVX2 and AVX-512 kernels share; include only from *_avx2.c and
 * *_avx512.c. */
#ifndef INFERD_CPU_AVX2_INT_H
#define INFERD_CPU_AVX2_INT_H

#include "core/backend/cpu/cpu_int.h"
#include "core/backend/cpu/template.h"

#include <immintrin.h>

/* Sum of eight lanes, always in the same order. */
ALWAYS_INLINE float sum_lanes(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

ALWAYS_INLINE float max_lanes(__m256 v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Lanes below n of memory, zeros in the others. */
ALWAYS_INLINE __m256i lanes_below(uint32_t n) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* e^x within 2 ulp for -87 <= x <= 88; smaller x give 0, larger ones e^88, NaN stays. x = n ln 2 +
 * r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7 (remainder below 6e-9). */
ALWAYS_INLINE __m256 exp_ps(__m256 x) {
    const __m256 low = _mm256_set1_ps(-87.0f);
    __m256 zero = _mm256_cmp_ps(x, low, _CMP_LT_OQ);
    /* max and min return their second operand when one is NaN */
    x = _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(low, x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln 2 in two parts: the first has trailing zeros, so that n * part is exact */
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    __m256i exponent =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(zero, _mm256_mul_ps(p, _mm256_castsi256_ps(exponent)));
}

/* A hint only: it may point behind the weight and never faults. */
ALWAYS_INLINE void prefetch(const uint8_t *w, uint64_t at) {
    _mm_prefetch((const char *)((uintptr_t)w + at), _MM_HINT_T0);
}

void avx2_attention(const struct cpu_attn_job *j);
void avx2_attention_merge(const struct cpu_attn_merge *m);
void avx512_attention(const struct cpu_attn_job *j);
void avx512_attention_merge(const struct cpu_attn_merge *m);
void avx2_norm_row(const struct cpu_row *r);
void avx2_glu_silu(const float *gate, const float *up, float *out, uint32_t n);
void avx2_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r);
void avx2_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n);

#endif
