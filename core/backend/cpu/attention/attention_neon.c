/* attention_neon.c - paged attention with NEON vectors of four. */
#include "core/backend/cpu/neon_int.h"

#include <math.h>

enum { LANES = 4, GROUP = 8 };

typedef float32x4_t vf;

ALWAYS_INLINE vf vf_load(const float *p) {
    return vld1q_f32(p);
}

ALWAYS_INLINE void vf_store(float *p, vf v) {
    vst1q_f32(p, v);
}

ALWAYS_INLINE void vf_prefetch(const void *p) {
    __builtin_prefetch(p);
}

ALWAYS_INLINE vf vf_set1(float x) {
    return vdupq_n_f32(x);
}

ALWAYS_INLINE vf vf_add(vf a, vf b) {
    return vaddq_f32(a, b);
}

ALWAYS_INLINE vf vf_sub(vf a, vf b) {
    return vsubq_f32(a, b);
}

ALWAYS_INLINE vf vf_mul(vf a, vf b) {
    return vmulq_f32(a, b);
}

ALWAYS_INLINE vf vf_div(vf a, vf b) {
    return vdivq_f32(a, b);
}

ALWAYS_INLINE vf vf_fma(vf a, vf b, vf c) {
    return vfmaq_f32(c, a, b);
}

ALWAYS_INLINE vf vf_max(vf a, vf b) {
    return vmaxq_f32(a, b);
}

ALWAYS_INLINE vf vf_load_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

ALWAYS_INLINE vf vf_load_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

ALWAYS_INLINE vf vf_load_i8(const int8_t *p) {
    int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

ALWAYS_INLINE vf vf_set1_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_dup_u16(p)));
}

ALWAYS_INLINE vf vf_zip_low(vf a, vf b) {
    return vzip1q_f32(a, b);
}

ALWAYS_INLINE vf vf_zip_high(vf a, vf b) {
    return vzip2q_f32(a, b);
}

ALWAYS_INLINE vf vf_first(vf v, uint32_t n) {
    return first_lanes(v, n, vdupq_n_f32(-INFINITY));
}

ALWAYS_INLINE vf vf_without_first(vf v, uint32_t n) {
    return first_lanes(vdupq_n_f32(-INFINITY), n, v);
}

ALWAYS_INLINE float vf_max_lanes(vf v) {
    return vmaxvq_f32(v);
}

ALWAYS_INLINE float vf_sum_lanes(vf v) {
    return sum_lanes(v);
}

/* x = n + r with |r| <= 1/2; 2^r by the polynomial of degree 6 that interpolates it at the
 * Chebyshev nodes (relative error below 3e-9). */
ALWAYS_INLINE vf vf_exp2(vf x) {
    const vf low = vdupq_n_f32(-126);
    uint32x4_t none = vcltq_f32(x, low);
    x = vmaxq_f32(x, low); /* keeps NaN */
    vf n = vrndnq_f32(x), r = vsubq_f32(x, n), p = vdupq_n_f32(0x1.443fffc8p-13f);
    p = vfmaq_f32(vdupq_n_f32(0x1.5f48c0p-10f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.3b2a1cp-7f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.c6aeccp-5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.ebfbe0p-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.62e430p-1f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1), p, r);
    p = vmulq_f32(p, power_of_two(n));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), none));
}

#include "core/backend/cpu/attention/attention_tile.h"

void neon_attention(const struct cpu_attn_job *j) {
    attend_tile(j);
}

void neon_attention_merge(const struct cpu_attn_merge *m) {
    merge_partials(m);
}
