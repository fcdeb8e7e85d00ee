/* rope_neon.c - rotary embedding, and conversion of K/V to the pools' types, with NEON. Pure
 * functions; any thread. */
#include "core/backend/cpu/neon_int.h"

#include <math.h>

enum { LANES = 4 };

#define F16_MAX 65504.0f

/* u cos - v sin and u sin + v cos, each with one fused operation. */
ALWAYS_INLINE float32x4x2_t rotate_pair(float32x4_t u, float32x4_t v, float32x4_t c,
                                        float32x4_t s) {
    float32x4x2_t turned = {{vfmsq_f32(vmulq_f32(u, c), v, s), vfmaq_f32(vmulq_f32(v, c), u, s)}};
    return turned;
}

void neon_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r) {
    uint32_t half = r->n_rot / 2;
    if (half % LANES) {
        generic_rotate(x, n_heads, r);
        return;
    }
    for (uint32_t h = 0; h < n_heads; h++, x += r->head_dim)
        for (uint32_t i = 0; i < half; i += LANES) {
            float32x4_t c = vld1q_f32(r->cosines + i), s = vld1q_f32(r->sines + i);
            if (r->interleaved) {
                float32x4x2_t pair = vld2q_f32(x + 2 * i);
                vst2q_f32(x + 2 * i, rotate_pair(pair.val[0], pair.val[1], c, s));
            } else {
                float32x4x2_t t = rotate_pair(vld1q_f32(x + i), vld1q_f32(x + half + i), c, s);
                vst1q_f32(x + i, t.val[0]);
                vst1q_f32(x + half + i, t.val[1]);
            }
        }
}

static void encode_f16(const float *x, uint16_t *to, uint32_t n) {
    const float32x4_t max = vdupq_n_f32(F16_MAX), min = vdupq_n_f32(-F16_MAX);
    for (uint32_t i = 0; i < n; i += LANES) {
        float32x4_t v = vmaxq_f32(min, vminq_f32(max, vld1q_f32(x + i))); /* keeps NaN */
        vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(v)));
    }
}

/* Rounds to nearest even; NaN gives NaN. */
static void encode_bf16(const float *x, uint16_t *to, uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES) {
        float32x4_t v = vld1q_f32(x + i);
        uint32x4_t u = vreinterpretq_u32_f32(v), top = vshrq_n_u32(u, 16);
        uint32x4_t odd = vandq_u32(top, vdupq_n_u32(1));
        u = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        top = vorrq_u32(top, vdupq_n_u32(0x40)); /* quiet */
        vst1_u16(to + i, vmovn_u32(vbslq_u32(vceqq_f32(v, v), vshrq_n_u32(u, 16), top)));
    }
}

static void encode_q8_0(const float *x, int8_t *to, uint16_t *scales, uint32_t n) {
    for (uint32_t b = 0; b < n / Q_ELEMS; b++, x += Q_ELEMS, to += Q_ELEMS) {
        float32x4_t v[8], max = vdupq_n_f32(0);
        int16x4_t q[8];
        UNROLL
        for (int i = 0; i < 8; i++) {
            v[i] = vld1q_f32(x + i * LANES);
            max = vmaxq_f32(max, vabsq_f32(v[i])); /* keeps NaN */
        }
        float d = vmaxvq_f32(max) / 127;
        if (isinf(d)) d = NAN;
        float inverse = d > 0 ? 1 / d : 0;
        scales[b] = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(d))), 0);
        UNROLL
        for (int i = 0; i < 8; i++)
            q[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse)));
        UNROLL
        for (int i = 0; i < 8; i += 2)
            vst1_s8(to + i * LANES, vmovn_s16(vcombine_s16(q[i], q[i + 1])));
    }
}

void neon_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n) {
    uint32_t whole = n / LANES * LANES;
    if (type == QTYPE_Q8_0) {
        encode_q8_0(x, values, scales, n);
        return;
    }
    if (type == QTYPE_F16)
        encode_f16(x, values, whole);
    else if (type == QTYPE_BF16)
        encode_bf16(x, values, whole);
    else
        whole = 0;
    uint64_t elem = type == QTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    generic_encode_kv(type, x + whole, (char *)values + whole * elem, scales, n - whole);
}
