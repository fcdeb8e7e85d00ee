/* neon_int.h - shared by the NEON kernels; include only from *_neon.c and *_i8mm.c. */
#ifndef INFERD_NEON_INT_H
#define INFERD_NEON_INT_H

#include "core/backend/cpu/cpu_int.h"
#include "core/backend/cpu/template.h"

#include <arm_neon.h>
#include <stdint.h>

/* Lanes below n (1..3) of v, the others of fill. */
ALWAYS_INLINE float32x4_t first_lanes(float32x4_t v, uint32_t n, float32x4_t fill) {
    const uint32x4_t lane = {0, 1, 2, 3};
    return vbslq_f32(vcltq_u32(lane, vdupq_n_u32(n)), v, fill);
}

/* Sum of the lanes, always in the same order. */
ALWAYS_INLINE float sum_lanes(float32x4_t v) {
    float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}

/* 2^n for integers n from -126 to 127. */
ALWAYS_INLINE float32x4_t power_of_two(float32x4_t n) {
    int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
}

/* For e^x, x finite: x = n ln 2 + r with an integer n, |r| <= ln 2 / 2, e^r = 1 + r + r^2 * tail by
 * its Taylor polynomial of degree 7 (remainder below 6e-9). */
struct exp_parts {
    float32x4_t n, r, tail;
};

ALWAYS_INLINE struct exp_parts exp_split(float32x4_t x) {
    struct exp_parts e;
    e.n = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p+0f));
    /* ln 2 in two parts: the first has trailing zeros, so that n * part is exact */
    e.r = vfmsq_n_f32(x, e.n, 0x1.62e4p-1f);
    e.r = vfmsq_n_f32(e.r, e.n, 0x1.7f7d1cp-20f);
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, e.r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, e.r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, e.r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, e.r);
    e.tail = vfmaq_f32(vdupq_n_f32(0.5f), p, e.r);
    return e;
}

/* e^x within 2 ulp for -87 <= x <= 88; smaller x give 0, larger ones e^88, NaN gives NaN. */
ALWAYS_INLINE float32x4_t exp_f32(float32x4_t x) {
    const float32x4_t low = vdupq_n_f32(-87), one = vdupq_n_f32(1);
    uint32x4_t zero = vcltq_f32(x, low);
    struct exp_parts e = exp_split(vminq_f32(vmaxq_f32(x, low), vdupq_n_f32(88)));
    float32x4_t p = vfmaq_f32(one, vfmaq_f32(one, e.tail, e.r), e.r);
    p = vmulq_f32(p, power_of_two(e.n));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), zero));
}

/* tanh x within 4 ulp, NaN for NaN: (e^2|x| - 1) / (e^2|x| + 1) with the sign of x. e^2|x| - 1 is
 * 2^n (e^r - 1) + (2^n - 1), which cancels no bits for small x; from |x| = 10 on the quotient is 1.
 */
ALWAYS_INLINE float32x4_t tanh_f32(float32x4_t x) {
    float32x4_t a = vminq_f32(vabsq_f32(x), vdupq_n_f32(10));
    struct exp_parts e = exp_split(vaddq_f32(a, a));
    float32x4_t power = power_of_two(e.n), m;
    m = vfmaq_f32(e.r, vmulq_f32(e.r, e.r), e.tail);
    m = vfmaq_f32(vsubq_f32(power, vdupq_n_f32(1)), m, power);
    m = vdivq_f32(m, vaddq_f32(m, vdupq_n_f32(2)));
    return vbslq_f32(vdupq_n_u32(0x80000000), x, m);
}

void neon_attention(const struct cpu_attn_job *j);
void neon_attention_merge(const struct cpu_attn_merge *m);
void neon_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r);
void neon_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n);

/* p, with the compiler's knowledge of its contents discarded: loading again costs less than
 * spilling registers to the stack. */
ALWAYS_INLINE const int8_t *reload(const int8_t *p) {
    __asm__("" : "+r"(p));
    return p;
}

#endif
