/* delta_neon.c - the gated delta net for NEON. */
#include "core/backend/cpu/neon_int.h"

#define LANES            4
#define NX               4
#define DELTA_NAME(name) neon_##name
typedef float32x4_t vec;
#define load(p)          vld1q_f32(p)
#define store(p, v)      vst1q_f32(p, v)
#define splat(x)         vdupq_n_f32(x)
#define mul(a, b)        vmulq_f32(a, b)
#define sub(a, b)        vsubq_f32(a, b)
#define exp_of(x)        exp_f32(x)
#define mul_add(a, b, c) vfmaq_f32(c, a, b)
#define sum_of(v)        sum_lanes(v)
#include "core/backend/cpu/delta/delta_kernel.h"
