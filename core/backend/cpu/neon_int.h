/* neon_int.h - what the NEON kernels share. Included only by files built for an instruction set of
 * 64-bit ARM. */
#ifndef INFERD_NEON_INT_H
#define INFERD_NEON_INT_H

#include "core/backend/cpu/cpu_int.h"
#include "core/backend/cpu/template.h"

#include <arm_neon.h>
#include <stdint.h>

/* Lanes below n (1..3) of v, fill in the others. */
ALWAYS_INLINE float32x4_t first_lanes(float32x4_t v, uint32_t n, float fill) {
    const uint32x4_t lane = {0, 1, 2, 3};
    return vbslq_f32(vcltq_u32(lane, vdupq_n_u32(n)), v, vdupq_n_f32(fill));
}

/* Sum of the lanes, always in the same order. */
ALWAYS_INLINE float sum_lanes(float32x4_t v) {
    float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}

/* 2^n for whole n from -126 to 127. */
ALWAYS_INLINE float32x4_t power_of_two(float32x4_t n) {
    int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
}

void neon_attention(const struct cpu_attn_job *j);
void neon_attention_merge(const struct cpu_attn_merge *m);
void neon_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r);
void neon_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n);

/* p, of which the compiler no longer knows what was loaded from it: loading again costs less than
 * keeping on the stack what does not fit the registers. */
ALWAYS_INLINE const int8_t *reload(const int8_t *p) {
    __asm__("" : "+r"(p));
    return p;
}

#endif
