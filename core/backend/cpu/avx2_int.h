/* avx2_int.h - shared by the AVX2 and AVX-512 kernels; include only from *_avx2.c and
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

/* A mask of the lanes below n. */
ALWAYS_INLINE __m256i lanes_below(uint32_t n) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* For e^x, x finite: x = n ln 2 + r with an integer n, |r| <= ln 2 / 2, e^r = 1 + r + r^2 * tail by
 * its Taylor polynomial of degree 7 (remainder below 6e-9). */
struct exp_parts {
    __m256 n, r, tail;
};

ALWAYS_INLINE struct exp_parts exp_split(__m256 x) {
    struct exp_parts e;
    e.n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln 2 in two parts: the first has trailing zeros, so that n * part is exact */
    e.r = _mm256_fnmadd_ps(e.n, _mm256_set1_ps(0x1.62e4p-1f), x);
    e.r = _mm256_fnmadd_ps(e.n, _mm256_set1_ps(0x1.7f7d1cp-20f), e.r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, e.r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, e.r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, e.r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, e.r, _mm256_set1_ps(1.0f / 6));
    e.tail = _mm256_fmadd_ps(p, e.r, _mm256_set1_ps(0.5f));
    return e;
}

/* 2^n for integers n from -126 to 127. */
ALWAYS_INLINE __m256 exp2_ps(__m256 n) {
    __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

/* e^x within 2 ulp for -87 <= x <= 88; smaller x give 0, larger ones e^88, NaN gives NaN. */
ALWAYS_INLINE __m256 exp_ps(__m256 x) {
    const __m256 low = _mm256_set1_ps(-87.0f), one = _mm256_set1_ps(1);
    __m256 zero = _mm256_cmp_ps(x, low, _CMP_LT_OQ);
    /* max and min return their second operand when one is NaN */
    struct exp_parts e = exp_split(_mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(low, x)));
    __m256 p = _mm256_fmadd_ps(_mm256_fmadd_ps(e.tail, e.r, one), e.r, one);
    return _mm256_andnot_ps(zero, _mm256_mul_ps(p, exp2_ps(e.n)));
}

/* tanh x within 4 ulp, NaN for NaN: (e^2|x| - 1) / (e^2|x| + 1) with the sign of x. e^2|x| - 1 is
 * 2^n (e^r - 1) + (2^n - 1), which cancels no bits for small x; from |x| = 10 on the quotient is 1.
 */
ALWAYS_INLINE __m256 tanh_ps(__m256 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1);
    __m256 a = _mm256_min_ps(_mm256_set1_ps(10), _mm256_andnot_ps(sign, x));
    struct exp_parts e = exp_split(_mm256_add_ps(a, a));
    __m256 power = exp2_ps(e.n);
    __m256 m = _mm256_fmadd_ps(_mm256_mul_ps(e.r, e.r), e.tail, e.r);
    m = _mm256_fmadd_ps(m, power, _mm256_sub_ps(power, one));
    m = _mm256_div_ps(m, _mm256_add_ps(m, _mm256_set1_ps(2)));
    return _mm256_or_ps(m, _mm256_and_ps(sign, x));
}

/* A hint: never faults, even if the address is past the end of the weight. */
ALWAYS_INLINE void prefetch_weights(const uint8_t *w, uint64_t at) {
    _mm_prefetch((const char *)((uintptr_t)w + at), _MM_HINT_T0);
}

void avx2_attention(const struct cpu_attn_job *j);
void avx2_attention_merge(const struct cpu_attn_merge *m);
void avx512_attention(const struct cpu_attn_job *j);
void avx512_attention_merge(const struct cpu_attn_merge *m);
void avx2_norm_row(const struct cpu_row *r);
void avx2_glu_silu(const float *gate, const float *up, float *out, uint32_t n);
void avx2_glu_gelu_tanh(const float *gate, const float *up, float *out, uint32_t n);
void avx2_glu_swiglu_oai(const float *gate, const float *up, float *out, uint32_t n);
void avx2_gate(float *x, const float *gate, uint32_t n);
void avx2_softcap(const float *x, float *out, uint32_t n, float scale, float cap);
void avx2_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r);
void avx2_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n);

#endif
