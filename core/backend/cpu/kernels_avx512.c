/* kernels_avx512.c - the table of kernels for AVX-512; the AVX2 kernels where wider vectors gain
 * nothing. */
#include "core/backend/cpu/avx2_int.h"
#include "core/backend/cpu/delta/delta.h"

const struct cpu_isa cpu_isa_avx512 = {
    .name = "avx512",
    .kernel_names = {[CPU_RMSNORM] = "rmsnorm_avx2",
                     [CPU_LAYERNORM] = "layernorm_avx2",
                     [CPU_ADD_ROWS] = "add_rows_avx2",
                     [CPU_ROPE_STORE_F32] = "rope_store_f32_avx2",
                     [CPU_ROPE_STORE_F16] = "rope_store_f16_avx2",
                     [CPU_ROPE_STORE_BF16] = "rope_store_bf16_avx2",
                     [CPU_ROPE_STORE_Q8_0] = "rope_store_q8_0_avx2",
                     [CPU_PAGED_ATTENTION_F32] = "paged_attention_f32_avx512",
                     [CPU_PAGED_ATTENTION_F16] = "paged_attention_f16_avx512",
                     [CPU_PAGED_ATTENTION_BF16] = "paged_attention_bf16_avx512",
                     [CPU_PAGED_ATTENTION_Q8_0] = "paged_attention_q8_0_avx512",
                     [CPU_GLU_SILU] = "glu_silu_avx2",
                     [CPU_GLU_GELU_TANH] = "glu_gelu_tanh_avx2",
                     [CPU_GLU_SWIGLU_OAI] = "glu_swiglu_oai_avx2",
                     [CPU_SOFTCAP] = "softcap_avx2",
                     [CPU_GATE] = "gate_avx2",
                     [CPU_LINEAR_ATTENTION] = "linear_attention_avx512"},
    .block_step = 16,
    .norm_row = avx2_norm_row,
    .glu = {[BACKEND_ACT_SILU] = avx2_glu_silu,
            [BACKEND_ACT_GELU_TANH] = avx2_glu_gelu_tanh,
            [BACKEND_ACT_SWIGLU_OAI] = avx2_glu_swiglu_oai},
    .softcap = avx2_softcap,
    .gate = avx2_gate,
    .rotate = avx2_rotate,
    .encode_kv = avx2_encode_kv,
    .attention = avx512_attention,
    .attention_merge = avx512_attention_merge,
    .delta_conv = avx512_delta_conv,
    .delta_run = avx512_delta_run,
    .delta_norm = avx512_delta_norm,
};
