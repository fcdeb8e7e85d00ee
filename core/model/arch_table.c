/* arch_table.c - one row for each architecture that the forward pass can run. Pure.
 *
 * Facts are from the models' own code (transformers, modeling_*.py) and, where a file has no key
 * for them, from what converters to GGUF rely on (llama.cpp). */
#include "core/model/model_int.h"

#include <stdio.h>
#include <string.h>

static const struct model_arch archs[] = {
    /* Llama 1 to 3, Mistral (with a window), Mixtral (with experts) */
    {.name = "llama",
     .rope_interleaved = true,
     .pre_norm = true,
     .act = BACKEND_ACT_SILU,
     .experts = MODEL_EXPERTS_OPTIONAL,
     .renormalize = true},
    {.name = "qwen2", .pre_norm = true, .qkv_bias = true, .act = BACKEND_ACT_SILU},
    {.name = "qwen2moe",
     .pre_norm = true,
     .qkv_bias = true,
     .act = BACKEND_ACT_SILU,
     .experts = MODEL_EXPERTS_ALWAYS,
     .shared_expert = true},
    {.name = "qwen3", .pre_norm = true, .qk_norm = MODEL_QK_NORM_HEAD, .act = BACKEND_ACT_SILU},
    {.name = "qwen3moe",
     .pre_norm = true,
     .qk_norm = MODEL_QK_NORM_HEAD,
     .act = BACKEND_ACT_SILU,
     .experts = MODEL_EXPERTS_ALWAYS,
     .renormalize = true},
    /* Qwen3.5, 3.6 and 3.8: dense, and with experts */
    {.name = "qwen35",
     .pre_norm = true,
     .ffn_norm_is_post_attention = true,
     .qk_norm = MODEL_QK_NORM_HEAD,
     .act = BACKEND_ACT_SILU,
     .delta_net = true,
     .attention_gate = true,
     .tiled_v_heads = true},
    {.name = "qwen35moe",
     .pre_norm = true,
     .ffn_norm_is_post_attention = true,
     .qk_norm = MODEL_QK_NORM_HEAD,
     .act = BACKEND_ACT_SILU,
     .experts = MODEL_EXPERTS_ALWAYS,
     .renormalize = true,
     .shared_expert = true,
     .delta_net = true,
     .attention_gate = true,
     .tiled_v_heads = true},
    {.name = "qwen3next",
     .pre_norm = true,
     .ffn_norm_is_post_attention = true,
     .qk_norm = MODEL_QK_NORM_HEAD,
     .act = BACKEND_ACT_SILU,
     .experts = MODEL_EXPERTS_ALWAYS,
     .renormalize = true,
     .shared_expert = true,
     .delta_net = true,
     .attention_gate = true},
    /* LFM2 and LFM2.5 */
    {.name = "lfm2",
     .pre_norm = true,
     .qk_norm = MODEL_QK_NORM_HEAD,
     .act = BACKEND_ACT_SILU,
     .short_conv = true},
    {.name = "lfm2moe",
     .pre_norm = true,
     .qk_norm = MODEL_QK_NORM_HEAD,
     .act = BACKEND_ACT_SILU,
     .short_conv = true,
     .experts = MODEL_EXPERTS_ALWAYS,
     .sigmoid_gating = true,
     .renormalize = true},
    {.name = "gemma", .pre_norm = true, .scaled_embeddings = true, .act = BACKEND_ACT_GELU_TANH},
    /* 46 layers: the 27B, whose query_pre_attn_scalar is n_embd / n_heads and in no key */
    {.name = "gemma2",
     .pre_norm = true,
     .post_norm = true,
     .scaled_embeddings = true,
     .act = BACKEND_ACT_GELU_TANH,
     .attn_softcap = 50,
     .logit_softcap = 30,
     .window = 4096,
     .window_period = 2,
     .wide_query_layers = 46},
    {.name = "gemma3",
     .pre_norm = true,
     .post_norm = true,
     .qk_norm = MODEL_QK_NORM_HEAD,
     .scaled_embeddings = true,
     .act = BACKEND_ACT_GELU_TANH,
     .window_period = 6,
     .local_rope = true,
     .local_rope_base = 10000,
     .wide_query_layers = 62},
    {.name = "phi3", .pre_norm = true, .fused_gate_up = true, .act = BACKEND_ACT_SILU},
    {.name = "gpt-oss",
     .pre_norm = true,
     .ffn_norm_is_post_attention = true,
     .qkv_bias = true,
     .output_bias = true,
     .sinks = true,
     .act = BACKEND_ACT_SWIGLU_OAI,
     .window = 128,
     .window_period = 2,
     .yarn_exact = true,
     .experts = MODEL_EXPERTS_ALWAYS,
     .expert_biases = true,
     .renormalize = true},
    /* OLMo 2, and OLMo 3 (with a window; its RoPE scaling is for layers with full attention only)
     */
    {.name = "olmo2",
     .post_norm = true,
     .qk_norm = MODEL_QK_NORM_ROW,
     .act = BACKEND_ACT_SILU,
     .window_period = 4,
     .local_rope = true},
    {.name = "smollm3",
     .rope_interleaved = true,
     .pre_norm = true,
     .act = BACKEND_ACT_SILU,
     .no_rope_period = 4},
    {.name = "granite",
     .rope_interleaved = true,
     .pre_norm = true,
     .scale_keys = true,
     .act = BACKEND_ACT_SILU},
    /* Granite 4.0 */
    {.name = "granitehybrid",
     .rope_interleaved = true,
     .pre_norm = true,
     .scale_keys = true,
     .act = BACKEND_ACT_SILU,
     .experts = MODEL_EXPERTS_OPTIONAL,
     .renormalize = true,
     .shared_expert = true,
     .shared_ungated = true,
     .mamba2 = true,
     .rope_by_key = true},
    {.name = "falcon-h1",
     .pre_norm = true,
     .scale_keys = true,
     .act = BACKEND_ACT_SILU,
     .mamba2 = true,
     .parallel = true,
     .norm_optional = true},
    /* Nemotron-H and Nemotron Nano 2 */
    {.name = "nemotron_h",
     .pre_norm = true,
     .mamba2 = true,
     .lone_blocks = true,
     .squared_relu = true,
     .no_rope = true},
};

enum { N_ARCHS = sizeof archs / sizeof archs[0] };

const struct model_arch *model_arch_find(gguf_str name) {
    for (size_t i = 0; i < N_ARCHS; i++)
        if (name.len == strlen(archs[i].name) && memcmp(name.data, archs[i].name, name.len) == 0)
            return &archs[i];
    return NULL;
}

void model_arch_list(char *text, size_t n) {
    size_t used = 0;
    for (size_t i = 0; i < N_ARCHS && used < n; i++)
        used += (size_t)snprintf(text + used, n - used, "%s%s", i ? ", " : "", archs[i].name);
}
