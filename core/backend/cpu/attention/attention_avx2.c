/* attention_avx2.c - paged attention with vectors of eight. AVX2, FMA and F16C. */
#include "core/backend/cpu/avx2_int.h"

#include <math.h>

enum { LANES = 8, GROUP = 4 };

typedef __m256 vf;

ALWAYS_INLINE vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}

ALWAYS_INLINE void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v);
}

ALWAYS_INLINE void vf_prefetch(const void *p) {
    _mm_prefetch(p, _MM_HINT_T0);
}

ALWAYS_INLINE vf vf_set1(float x) {
    return _mm256_set1_ps(x);
}

ALWAYS_INLINE vf vf_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}

ALWAYS_INLINE vf vf_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}

ALWAYS_INLINE vf vf_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}

ALWAYS_INLINE vf vf_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}

ALWAYS_INLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}

ALWAYS_INLINE vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}

ALWAYS_INLINE vf vf_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

ALWAYS_INLINE vf vf_load_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

ALWAYS_INLINE vf vf_load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

ALWAYS_INLINE vf vf_set1_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_set1_epi16((short)*p));
}

/* Intel's unpack works within halves. */
ALWAYS_INLINE vf vf_zip_low(vf a, vf b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}

ALWAYS_INLINE vf vf_zip_high(vf a, vf b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}

ALWAYS_INLINE vf vf_first(vf v, uint32_t n) {
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), v, _mm256_castsi256_ps(lanes_below(n)));
}

ALWAYS_INLINE vf vf_without_first(vf v, uint32_t n) {
    return _mm256_blendv_ps(v, _mm256_set1_ps(-INFINITY), _mm256_castsi256_ps(lanes_below(n)));
}

ALWAYS_INLINE float vf_max_lanes(vf v) {
    return max_lanes(v);
}

ALWAYS_INLINE float vf_sum_lanes(vf v) {
    return sum_lanes(v);
}

/* x = n + r with |r| <= 1/2; 2^r by the polynomial of degree 6 that interpolates it at the
 * Chebyshev nodes (relative error below 3e-9). */
ALWAYS_INLINE vf vf_exp2(vf x) {
    const vf low = _mm256_set1_ps(-126);
    vf some = _mm256_cmp_ps(x, low, _CMP_NLT_UQ);
    x = _mm256_max_ps(low, x); /* keeps NaN: the second operand is returned */
    vf n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = _mm256_sub_ps(x, n), p = _mm256_set1_ps(0x1.443fffc8p-13f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5f48c0p-10f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.3b2a1cp-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.c6aeccp-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.ebfbe0p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.62e430p-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    __m256i exponent =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(some, _mm256_mul_ps(p, _mm256_castsi256_ps(exponent)));
}

#include "core/backend/cpu/attention/attention_tile.h"

void avx2_attention(const struct cpu_attn_job *j) {
    attend_tile(j);
}

void avx2_attention_merge(const struct cpu_attn_merge *m) {
    merge_partials(m);
}
