/* kernels_generic.c - the reference of the row kernels in portable C, written for readability.
 * Every reduction has one fixed order per output. Pure functions; any thread. */
#include "core/backend/cpu/cpu_int.h"
#include "core/backend/cpu/delta/delta.h"

#include <math.h>
#include <string.h>

/* ---- rows ---- */

static float inverse_rms(float sum, const struct cpu_row *r) {
    return 1 / sqrtf(sum / (float)r->n + r->eps);
}

/* The second half of normalize_row if the row is centred. */
static void center_row(const struct cpu_row *r) {
    float sum = 0, squares = 0;
    for (uint32_t i = 0; i < r->n; i++)
        sum += r->x[i];
    const float mean = sum / (float)r->n;
    for (uint32_t i = 0; i < r->n; i++)
        squares += (r->x[i] - mean) * (r->x[i] - mean);
    const float scale = inverse_rms(squares, r);
    for (uint32_t i = 0; i < r->n; i++)
        r->out[i] = (r->x[i] - mean) * scale * r->norm[i] + (r->bias ? r->bias[i] : 0);
}

static void normalize_row(const struct cpu_row *r) {
    float sum = 0, scale = r->residual_scale;
    for (uint32_t i = 0; r->residual_norm && i < r->n; i++)
        sum += r->residual[i] * r->residual[i];
    if (r->residual_norm) scale *= inverse_rms(sum, r);
    sum = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->residual)
            r->x[i] += r->residual[i] * scale * (r->residual_norm ? r->residual_norm[i] : 1);
        sum += r->x[i] * r->x[i];
    }
    if (!r->norm) return;
    if (r->centred) {
        center_row(r);
        return;
    }
    scale = inverse_rms(sum, r);
    for (uint32_t i = 0; i < r->n; i++)
        r->out[i] = r->x[i] * scale * r->norm[i];
}

/* Bounds that return NaN for NaN. */
static float at_least(float x, float least) {
    return x < least ? least : x;
}

static float at_most(float x, float most) {
    return x > most ? most : x;
}

static void glu_silu(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float g = at_least(gate[i], CPU_GATE_MIN);
        out[i] = g / (1 + expf(-g)) * up[i];
    }
}

static void glu_gelu_tanh(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float g = at_least(gate[i], CPU_GATE_MIN);
        out[i] = g / (1 + expf(-g * (CPU_GELU_LINEAR + CPU_GELU_CUBIC * g * g))) * up[i];
    }
}

static void glu_swiglu_oai(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float g = at_most(at_least(gate[i], CPU_GATE_MIN), CPU_OAI_LIMIT);
        float u = at_most(at_least(up[i], -CPU_OAI_LIMIT), CPU_OAI_LIMIT);
        out[i] = g / (1 + expf(-CPU_OAI_ALPHA * g)) * (u + 1);
    }
}

void generic_glu_gelu(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = cpu_gelu(gate[i]) * up[i];
}

static void gate_row(float *x, const float *gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] /= 1 + expf(-gate[i]);
}

static void softcap_row(const float *x, float *out, uint32_t n, float scale, float cap) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = cap * tanhf(scale * x[i]);
}

const struct cpu_isa cpu_isa_generic = {
    .name = "generic",
    .kernel_names = {[CPU_EMBED] = "embed_generic",
                     [CPU_RMSNORM] = "rmsnorm_generic",
                     [CPU_LAYERNORM] = "layernorm_generic",
                     [CPU_ADD_ROWS] = "add_rows_generic",
                     [CPU_ROPE_STORE_F32] = "rope_store_f32_generic",
                     [CPU_ROPE_STORE_F16] = "rope_store_f16_generic",
                     [CPU_ROPE_STORE_BF16] = "rope_store_bf16_generic",
                     [CPU_ROPE_STORE_Q8_0] = "rope_store_q8_0_generic",
                     [CPU_PAGED_ATTENTION_F32] = "paged_attention_f32_generic",
                     [CPU_PAGED_ATTENTION_F16] = "paged_attention_f16_generic",
                     [CPU_PAGED_ATTENTION_BF16] = "paged_attention_bf16_generic",
                     [CPU_PAGED_ATTENTION_Q8_0] = "paged_attention_q8_0_generic",
                     [CPU_GLU_SILU] = "glu_silu_generic",
                     [CPU_GLU_GELU_TANH] = "glu_gelu_tanh_generic",
                     [CPU_GLU_SWIGLU_OAI] = "glu_swiglu_oai_generic",
                     [CPU_GLU_GELU] = "glu_gelu_generic",
                     [CPU_SOFTCAP] = "softcap_generic",
                     [CPU_GATHER] = "gather_generic",
                     [CPU_TOP] = "top_generic",
                     [CPU_KV_COPY] = "kv_copy_generic",
                     [CPU_GATE] = "gate_generic",
                     [CPU_LINEAR_ATTENTION] = "linear_attention_generic",
                     [CPU_SHORT_CONV] = "short_conv_generic",
                     [CPU_HEADS] = "linear_heads_generic",
                     [CPU_MOE_ROUTE] = "moe_route_generic",
                     [CPU_MOE_GATHER] = "moe_gather_generic",
                     [CPU_MOE_COMBINE] = "moe_combine_generic",
                     [CPU_ALL_REDUCE] = "all_reduce_generic",
                     [CPU_ALL_GATHER] = "all_gather_generic"},
    .block_step = 1,
    .norm_row = normalize_row,
    .glu = {[BACKEND_ACT_SILU] = glu_silu,
            [BACKEND_ACT_GELU_TANH] = glu_gelu_tanh,
            [BACKEND_ACT_SWIGLU_OAI] = glu_swiglu_oai,
            [BACKEND_ACT_GELU] = generic_glu_gelu},
    .softcap = softcap_row,
    .gate = gate_row,
    .rotate = generic_rotate,
    .encode_kv = generic_encode_kv,
    .attention = generic_attention,
    .attention_merge = generic_attention_merge,
    .delta_conv = generic_delta_conv,
    .delta_run = generic_delta_run,
    .delta_norm = generic_delta_norm,
};
