/* attention_avx512.c - paged attention with vectors of sixteen. AVX-512 F, BW, VL. */
#include "core/backend/cpu/avx2_int.h"

#include <math.h>

enum { LANES = 16, GROUP = 8 };

typedef __m512 vf;

ALWAYS_INLINE vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}

ALWAYS_INLINE void vf_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}

ALWAYS_INLINE void vf_prefetch(const void *p) {
    _mm_prefetch(p, _MM_HINT_T0);
}

ALWAYS_INLINE vf vf_set1(float x) {
    return _mm512_set1_ps(x);
}

ALWAYS_INLINE vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}

ALWAYS_INLINE vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}

ALWAYS_INLINE vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}

ALWAYS_INLINE vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}

ALWAYS_INLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}

ALWAYS_INLINE vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}

ALWAYS_INLINE vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

ALWAYS_INLINE vf vf_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

ALWAYS_INLINE vf vf_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

ALWAYS_INLINE vf vf_set1_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)*p));
}

ALWAYS_INLINE vf vf_zip_low(vf a, vf b) {
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, order, b);
}

ALWAYS_INLINE vf vf_zip_high(vf a, vf b) {
    const __m512i order =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, order, b);
}

ALWAYS_INLINE vf vf_first(vf v, uint32_t n) {
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)((1u << n) - 1), v);
}

ALWAYS_INLINE vf vf_without_first(vf v, uint32_t n) {
    return _mm512_mask_mov_ps(v, (__mmask16)((1u << n) - 1), _mm512_set1_ps(-INFINITY));
}

ALWAYS_INLINE float vf_max_lanes(vf v) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return max_lanes(_mm256_max_ps(_mm512_castps512_ps256(v), high));
}

ALWAYS_INLINE float vf_sum_lanes(vf v) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return sum_lanes(_mm256_add_ps(_mm512_castps512_ps256(v), high));
}

/* x = n + r with |r| <= 1/2; 2^r by the polynomial of degree 6 that interpolates it at the
 * Chebyshev nodes (relative error below 3e-9). */
ALWAYS_INLINE vf vf_exp2(vf x) {
    __mmask16 some = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126), _CMP_NLT_UQ);
    vf n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = _mm512_sub_ps(x, n), p = _mm512_set1_ps(0x1.443fffc8p-13f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5f48c0p-10f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.3b2a1cp-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6aeccp-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebfbe0p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e430p-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_maskz_scalef_ps(some, p, n);
}

#include "core/backend/cpu/attention/attention_tile.h"

void avx512_attention(const struct cpu_attn_job *j) {
    attend_tile(j);
}

void avx512_attention_merge(const struct cpu_attn_merge *m) {
    merge_partials(m);
}
