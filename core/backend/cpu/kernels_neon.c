/* kernels_neon.c - the NEON row kernels, and the table of all NEON kernels. A row's last columns
 * are padded with zeros and use the same vector code. Pure functions; any thread. */
#include "core/backend/cpu/delta/delta.h"
#include "core/backend/cpu/neon_int.h"

#include <math.h>
#include <string.h>

enum { LANES = 4 };

ALWAYS_INLINE float32x4_t load_some(const float *p, uint32_t n) {
    float some[LANES] = {0};
    if (n >= LANES) return vld1q_f32(p);
    memcpy(some, p, n * sizeof *p);
    return vld1q_f32(some);
}

ALWAYS_INLINE void store_some(float *p, float32x4_t v, uint32_t n) {
    float some[LANES];
    if (n >= LANES) {
        vst1q_f32(p, v);
        return;
    }
    vst1q_f32(some, v);
    memcpy(p, some, n * sizeof *p);
}

/* Four sums at a time, added in one order. */
struct sums {
    float32x4_t of[4];
};

ALWAYS_INLINE float inverse_rms(const struct sums *s, const struct cpu_row *r) {
    float32x4_t all = vaddq_f32(vaddq_f32(s->of[0], s->of[1]), vaddq_f32(s->of[2], s->of[3]));
    return 1 / sqrtf(sum_lanes(all) / (float)r->n + r->eps);
}

static float residual_scale(const struct cpu_row *r) {
    struct sums s = {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}};
    uint32_t i = 0;
    if (!r->residual_norm) return r->residual_scale;
    for (; i + 4 * LANES <= r->n; i += 4 * LANES) {
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            float32x4_t v = vld1q_f32(r->residual + i + k * LANES);
            s.of[k] = vfmaq_f32(s.of[k], v, v);
        }
    }
    for (; i < r->n; i += LANES) {
        float32x4_t v = load_some(r->residual + i, r->n - i);
        s.of[0] = vfmaq_f32(s.of[0], v, v);
    }
    return r->residual_scale * inverse_rms(&s, r);
}

/* The updated vector of x at column i; n columns are left. */
ALWAYS_INLINE float32x4_t update_vector(const struct cpu_row *r, float scale, uint32_t i,
                                        uint32_t n) {
    float32x4_t v = load_some(r->x + i, n);
    if (!r->residual) return v;
    float32x4_t add = load_some(r->residual + i, n);
    if (r->residual_norm) add = vmulq_f32(add, load_some(r->residual_norm + i, n));
    v = vfmaq_n_f32(v, add, scale);
    store_some(r->x + i, v, n);
    return v;
}

/* x - mean at column i, 0 beyond the row's n columns. */
ALWAYS_INLINE float32x4_t center(const float *x, uint32_t i, uint32_t n, float mean) {
    float some[LANES] = {0};
    float32x4_t v = vsubq_f32(load_some(x + i, n - i), vdupq_n_f32(mean));
    if (n - i >= LANES) return v;
    store_some(some, v, n - i);
    return vld1q_f32(some);
}

/* out = (x - mean) / rms(x - mean) * norm + bias */
static void center_row(const struct cpu_row *r) {
    struct sums s = {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}};
    const uint32_t n = r->n;
    float32x4_t sum = vdupq_n_f32(0);
    for (uint32_t i = 0; i < n; i += LANES)
        sum = vaddq_f32(sum, load_some(r->x + i, n - i));
    const float mean = sum_lanes(sum) / (float)n;
    for (uint32_t i = 0; i < n; i += LANES) {
        float32x4_t v = center(r->x, i, n, mean);
        s.of[0] = vfmaq_f32(s.of[0], v, v);
    }
    const float scale = inverse_rms(&s, r);
    for (uint32_t i = 0; i < n; i += LANES) {
        float32x4_t v = vmulq_n_f32(center(r->x, i, n, mean), scale);
        v = vmulq_f32(v, load_some(r->norm + i, n - i));
        if (r->bias) v = vaddq_f32(v, load_some(r->bias + i, n - i));
        store_some(r->out + i, v, n - i);
    }
}

static void normalize_row(const struct cpu_row *r) {
    struct sums s = {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}};
    float scale = residual_scale(r);
    const uint32_t n = r->n;
    uint32_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            float32x4_t v = update_vector(r, scale, i + k * LANES, LANES);
            s.of[k] = vfmaq_f32(s.of[k], v, v);
        }
    }
    for (; i < n; i += LANES) {
        float32x4_t v = update_vector(r, scale, i, n - i);
        s.of[0] = vfmaq_f32(s.of[0], v, v);
    }
    if (!r->norm) return;
    if (r->centred) {
        center_row(r);
        return;
    }
    scale = inverse_rms(&s, r);
    for (i = 0; i < n; i += LANES) {
        float32x4_t v = vmulq_n_f32(load_some(r->x + i, n - i), scale);
        store_some(r->out + i, vmulq_f32(v, load_some(r->norm + i, n - i)), n - i);
    }
}

/* act(gate, up); act is a constant. max and min of a NaN are NaN. */
ALWAYS_INLINE float32x4_t apply_gate(enum backend_act act, float32x4_t g, float32x4_t u) {
    /* e^-x is bounded, so g must be, too */
    g = vmaxq_f32(g, vdupq_n_f32(CPU_GATE_MIN));
    float32x4_t x = g;
    if (act == BACKEND_ACT_GELU_TANH) {
        x = vmulq_f32(g,
                      vfmaq_n_f32(vdupq_n_f32(CPU_GELU_LINEAR), vmulq_f32(g, g), CPU_GELU_CUBIC));
    } else if (act == BACKEND_ACT_SWIGLU_OAI) {
        const float32x4_t most = vdupq_n_f32(CPU_OAI_LIMIT), least = vdupq_n_f32(-CPU_OAI_LIMIT);
        g = vminq_f32(g, most);
        u = vaddq_f32(vminq_f32(vmaxq_f32(u, least), most), vdupq_n_f32(1));
        x = vmulq_n_f32(g, CPU_OAI_ALPHA);
    }
    float32x4_t e = exp_f32(vnegq_f32(x));
    return vmulq_f32(vdivq_f32(g, vaddq_f32(e, vdupq_n_f32(1))), u);
}

ALWAYS_INLINE void glu_row(enum backend_act act, const float *gate, const float *up, float *out,
                           uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES) {
        float32x4_t g = load_some(gate + i, n - i), u = load_some(up + i, n - i);
        store_some(out + i, apply_gate(act, g, u), n - i);
    }
}

static void glu_silu(const float *gate, const float *up, float *out, uint32_t n) {
    glu_row(BACKEND_ACT_SILU, gate, up, out, n);
}

static void glu_gelu_tanh(const float *gate, const float *up, float *out, uint32_t n) {
    glu_row(BACKEND_ACT_GELU_TANH, gate, up, out, n);
}

static void glu_swiglu_oai(const float *gate, const float *up, float *out, uint32_t n) {
    glu_row(BACKEND_ACT_SWIGLU_OAI, gate, up, out, n);
}

static void gate_row(float *x, const float *gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES) {
        float32x4_t e = exp_f32(vnegq_f32(load_some(gate + i, n - i)));
        float32x4_t v = load_some(x + i, n - i);
        store_some(x + i, vdivq_f32(v, vaddq_f32(e, vdupq_n_f32(1))), n - i);
    }
}

static void softcap_row(const float *x, float *out, uint32_t n, float scale, float cap) {
    for (uint32_t i = 0; i < n; i += LANES) {
        float32x4_t v = tanh_f32(vmulq_n_f32(load_some(x + i, n - i), scale));
        store_some(out + i, vmulq_n_f32(v, cap), n - i);
    }
}

const struct cpu_isa cpu_isa_neon = {
    .name = "neon",
    .kernel_names = {[CPU_RMSNORM] = "rmsnorm_neon",
                     [CPU_LAYERNORM] = "layernorm_neon",
                     [CPU_ADD_ROWS] = "add_rows_neon",
                     [CPU_ROPE_STORE_F32] = "rope_store_f32_neon",
                     [CPU_ROPE_STORE_F16] = "rope_store_f16_neon",
                     [CPU_ROPE_STORE_BF16] = "rope_store_bf16_neon",
                     [CPU_ROPE_STORE_Q8_0] = "rope_store_q8_0_neon",
                     [CPU_PAGED_ATTENTION_F32] = "paged_attention_f32_neon",
                     [CPU_PAGED_ATTENTION_F16] = "paged_attention_f16_neon",
                     [CPU_PAGED_ATTENTION_BF16] = "paged_attention_bf16_neon",
                     [CPU_PAGED_ATTENTION_Q8_0] = "paged_attention_q8_0_neon",
                     [CPU_GLU_SILU] = "glu_silu_neon",
                     [CPU_GLU_GELU_TANH] = "glu_gelu_tanh_neon",
                     [CPU_GLU_SWIGLU_OAI] = "glu_swiglu_oai_neon",
                     [CPU_SOFTCAP] = "softcap_neon",
                     [CPU_GATE] = "gate_neon",
                     [CPU_LINEAR_ATTENTION] = "linear_attention_neon"},
    .block_step = LANES,
    .norm_row = normalize_row,
    .glu = {[BACKEND_ACT_SILU] = glu_silu,
            [BACKEND_ACT_GELU_TANH] = glu_gelu_tanh,
            [BACKEND_ACT_SWIGLU_OAI] = glu_swiglu_oai,
            [BACKEND_ACT_GELU] = generic_glu_gelu},
    .softcap = softcap_row,
    .gate = gate_row,
    .rotate = neon_rotate,
    .encode_kv = neon_encode_kv,
    .attention = neon_attention,
    .attention_merge = neon_attention_merge,
    .delta_conv = neon_delta_conv,
    .delta_run = neon_delta_run,
    .delta_norm = neon_delta_norm,
};
