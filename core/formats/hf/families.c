/* hf/families.c - the families of model folders: one row each, and which one a config.json is of.
 * Pure. */
#include "core/formats/hf/model_int.h"

#include "core/formats/lacking.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 40 };

#define LLAMA_TRAITS     (HF_PERMUTED | HF_LLAMA_KEYS)
#define GEMMA_TRAITS     (HF_NORM_PLUS_1 | HF_GELU | HF_EMBED_HEAD)
#define GEMMA4_TRAITS    (HF_GELU | HF_EMBED_HEAD | HF_POST_NORMS | HF_IMAGES | HF_GEMMA4)
#define DELTA_NET_TRAITS (HF_NORM_PLUS_1 | HF_POST_NORMS | HF_DELTA_NET)

static const struct hf_family families[] = {
    {"llama", "LlamaForCausalLM", "llama", .traits = LLAMA_TRAITS, .hidden = 4096, .ff = 11008,
     .n_layers = 32, .n_heads = 32, .max_positions = 2048, .vocab = 32000, .rms_eps = 1e-6,
     .rope_theta = 1e4},
    {"mistral", "MistralForCausalLM", "llama", .traits = LLAMA_TRAITS, .window = HF_WINDOW_ALL,
     .hidden = 4096, .ff = 14336, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,
     .max_positions = 131072, .vocab = 32000, .sliding_window = 4096, .rms_eps = 1e-6,
     .rope_theta = 1e4},
    {"mixtral", "MixtralForCausalLM", "llama", .traits = LLAMA_TRAITS | HF_EXPERTS,
     .window = HF_WINDOW_ALL, .hidden = 4096, .ff = 14336, .n_layers = 32, .n_heads = 32,
     .n_kv_heads = 8, .max_positions = 131072, .vocab = 32000, .n_experts = 8, .n_experts_used = 2,
     .rms_eps = 1e-5, .rope_theta = 1e6},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", .traits = HF_LAYER_TYPES | HF_SWITCHED_WINDOW,
     .window = HF_WINDOW_FROM_LAYER, .hidden = 4096, .ff = 22016, .n_layers = 32, .n_heads = 32,
     .n_kv_heads = 32, .max_positions = 32768, .vocab = 151936, .sliding_window = 4096,
     .rms_eps = 1e-6, .rope_theta = 1e4},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "qwen2moe",
     .traits = HF_LAYER_TYPES | HF_SWITCHED_WINDOW | HF_EXPERTS | HF_QWEN_EXPERTS,
     .window = HF_WINDOW_ALTERNATING, .hidden = 2048, .ff = 5632, .n_layers = 24, .n_heads = 16,
     .n_kv_heads = 16, .max_positions = 32768, .vocab = 151936, .sliding_window = 4096,
     .n_experts = 60, .n_experts_used = 4, .expert_ff = 1408, .shared_ff = 5632, .rms_eps = 1e-6,
     .rope_theta = 1e4},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", .traits = HF_LAYER_TYPES | HF_SWITCHED_WINDOW,
     .window = HF_WINDOW_FROM_LAYER, .hidden = 4096, .ff = 22016, .n_layers = 32, .n_heads = 32,
     .n_kv_heads = 32, .head_dim = 128, .max_positions = 32768, .vocab = 151936,
     .sliding_window = 4096, .rms_eps = 1e-6, .rope_theta = 1e4},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3moe",
     .traits = HF_SWITCHED_WINDOW | HF_EXPERTS | HF_QWEN_EXPERTS, .window = HF_WINDOW_ALL,
     .hidden = 2048, .ff = 6144, .n_layers = 24, .n_heads = 32, .n_kv_heads = 4,
     .max_positions = 32768, .vocab = 151936, .sliding_window = 4096, .n_experts = 128,
     .n_experts_used = 8, .expert_ff = 768, .rms_eps = 1e-6, .rope_theta = 1e4},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", "qwen35",
     .traits = DELTA_NET_TRAITS | HF_IMAGES | HF_MROPE, .hidden = 4096, .ff = 12288, .n_layers = 32,
     .n_heads = 16, .n_kv_heads = 4, .head_dim = 256, .max_positions = 32768, .vocab = 248320,
     .rms_eps = 1e-6, .rope_theta = 1e4},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen35moe",
     .traits = DELTA_NET_TRAITS | HF_IMAGES | HF_MROPE | HF_EXPERTS | HF_QWEN_EXPERTS,
     .hidden = 2048, .n_layers = 40, .n_heads = 16, .n_kv_heads = 2, .head_dim = 256,
     .max_positions = 32768, .vocab = 248320, .n_experts = 256, .n_experts_used = 8,
     .expert_ff = 512, .shared_ff = 512, .rms_eps = 1e-6, .rope_theta = 1e4, .renormalize = true},
    {"qwen3_next", "Qwen3NextForCausalLM", "qwen3next",
     .traits = DELTA_NET_TRAITS | HF_EXPERTS | HF_QWEN_EXPERTS, .hidden = 2048, .ff = 5632,
     .n_layers = 48, .n_heads = 16, .n_kv_heads = 2, .head_dim = 256, .max_positions = 32768,
     .vocab = 151936, .n_experts = 512, .n_experts_used = 10, .expert_ff = 512, .shared_ff = 512,
     .rms_eps = 1e-6, .rope_theta = 1e4, .renormalize = true},
    {"lfm2", "Lfm2ForCausalLM", "lfm2", .traits = HF_SHORT_CONV, .hidden = 2560, .ff = 12288,
     .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .max_positions = 128000, .vocab = 65536,
     .rms_eps = 1e-5, .rope_theta = 1e6, .tied = true},
    {"lfm2_moe", "Lfm2MoeForCausalLM", "lfm2moe", .traits = HF_SHORT_CONV | HF_EXPERTS,
     .hidden = 2048, .ff = 7168, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,
     .max_positions = 128000, .vocab = 65536, .n_experts = 32, .n_experts_used = 4,
     .expert_ff = 1792, .rms_eps = 1e-5, .rope_theta = 1e6, .tied = true, .renormalize = true},
    {"gemma", "GemmaForCausalLM", "gemma", .traits = GEMMA_TRAITS, .hidden = 3072, .ff = 24576,
     .n_layers = 28, .n_heads = 16, .n_kv_heads = 16, .head_dim = 256, .max_positions = 8192,
     .vocab = 256000, .rms_eps = 1e-6, .rope_theta = 1e4, .tied = true},
    {"gemma2", "Gemma2ForCausalLM", "gemma2",
     .traits = GEMMA_TRAITS | HF_POST_NORMS | HF_LAYER_TYPES | HF_GEMMA_CAPS,
     .window = HF_WINDOW_PERIOD, .period = 2, .hidden = 2304, .ff = 9216, .n_layers = 26,
     .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .max_positions = 8192, .vocab = 256000,
     .sliding_window = 4096, .rms_eps = 1e-6, .rope_theta = 1e4, .tied = true},
    {"gemma3_text", "Gemma3ForCausalLM", "gemma3",
     .traits = GEMMA_TRAITS | HF_POST_NORMS | HF_LAYER_TYPES | HF_GEMMA_CAPS | HF_IMAGES,
     .window = HF_WINDOW_PERIOD, .period = 6, .hidden = 2304, .ff = 9216, .n_layers = 26,
     .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .max_positions = 131072, .vocab = 262208,
     .sliding_window = 4096, .rms_eps = 1e-6, .rope_theta = 1e6, .tied = true},
    /* EmbeddingGemma: the same with use_bidirectional_attention */
    {"gemma3_text", "Gemma3TextModel", HF_GEMMA_EMBEDDING,
     .traits = GEMMA_TRAITS | HF_POST_NORMS | HF_LAYER_TYPES | HF_GEMMA_CAPS,
     .window = HF_WINDOW_PERIOD, .period = 6, .hidden = 2304, .ff = 9216, .n_layers = 26,
     .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .max_positions = 131072, .vocab = 262208,
     .sliding_window = 4096, .rms_eps = 1e-6, .rope_theta = 1e6, .tied = true},
    {"gemma4_text", "Gemma4ForCausalLM", "gemma4", .traits = GEMMA4_TRAITS, .hidden = 2304,
     .ff = 9216, .n_layers = 30, .n_heads = 8, .n_kv_heads = 4, .head_dim = 256,
     .max_positions = 131072, .vocab = 262144, .sliding_window = 512, .rms_eps = 1e-6,
     .tied = true},
    {"gemma4_unified_text", "Gemma4UnifiedForConditionalGeneration", "gemma4",
     .traits = GEMMA4_TRAITS, .hidden = 2304, .ff = 9216, .n_layers = 30, .n_heads = 8,
     .n_kv_heads = 4, .head_dim = 256, .max_positions = 262144, .vocab = 262144,
     .sliding_window = 1024, .rms_eps = 1e-6, .tied = true},
    {"phi3", "Phi3ForCausalLM", "phi3", .window = HF_WINDOW_ALL, .hidden = 3072, .ff = 8192,
     .n_layers = 32, .n_heads = 32, .max_positions = 4096, .vocab = 32064, .rms_eps = 1e-5,
     .rope_theta = 1e4},
    {"gpt_oss", "GptOssForCausalLM", "gpt-oss",
     .traits = HF_POST_NORMS | HF_GPT_OSS | HF_EXPERTS | HF_LAYER_TYPES, .window = HF_WINDOW_PERIOD,
     .period = 2, .hidden = 2880, .ff = 2880, .n_layers = 36, .n_heads = 64, .n_kv_heads = 8,
     .head_dim = 64, .max_positions = 131072, .vocab = 201088, .sliding_window = 128,
     .n_experts = 128, .n_experts_used = 4, .rms_eps = 1e-5, .rope_theta = 150000},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral3", .traits = LLAMA_TRAITS | HF_IMAGES,
     .window = HF_WINDOW_ALL, .hidden = 4096, .ff = 14336, .n_layers = 32, .n_heads = 32,
     .n_kv_heads = 8, .max_positions = 131072, .vocab = 32000, .sliding_window = 4096,
     .rms_eps = 1e-6, .rope_theta = 1e4},
    {"ministral3", "Ministral3ForCausalLM", "mistral3", .traits = LLAMA_TRAITS | HF_IMAGES,
     .window = HF_WINDOW_ALL, .hidden = 4096, .ff = 14336, .n_layers = 34, .n_heads = 32,
     .n_kv_heads = 8, .head_dim = 128, .max_positions = 262144, .vocab = 131072, .rms_eps = 1e-5,
     .rope_theta = 1e6},
    {"glm4_moe", "Glm4MoeForCausalLM", "glm4moe",
     .traits = HF_POST_NORMS | HF_ROUTED | HF_PREDICTS | HF_PARTIAL, .hidden = 4096, .ff = 10944,
     .n_layers = 46, .n_heads = 96, .n_kv_heads = 8, .max_positions = 131072, .vocab = 151552,
     .rms_eps = 1e-5, .rope_theta = 1e4},
    {"minimax_m2", "MiniMaxM2ForCausalLM", "minimax-m2", .traits = HF_ROUTED | HF_PARTIAL,
     .hidden = 3072, .ff = 1536, .n_layers = 62, .n_heads = 48, .n_kv_heads = 8, .head_dim = 128,
     .max_positions = 196608, .vocab = 200064, .rms_eps = 1e-6, .rope_theta = 5e6},
    {"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", .hidden = 1024, .ff = 3072, .n_layers = 18,
     .n_heads = 16, .n_kv_heads = 2, .head_dim = 128, .max_positions = 131072, .vocab = 103424,
     .rms_eps = 1e-5, .rope_theta = 5e5, .tied = true},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "ernie4_5-moe", .traits = HF_ROUTED | HF_PREDICTS,
     .hidden = 2560, .ff = 12288, .n_layers = 28, .n_heads = 20, .n_kv_heads = 4,
     .max_positions = 131072, .vocab = 103424, .rms_eps = 1e-5, .rope_theta = 5e5, .tied = true},
    {"dots1", "Dots1ForCausalLM", "dots1", .traits = HF_ROUTED | HF_LAYER_TYPES,
     .window = HF_WINDOW_FROM_LAYER, .hidden = 4608, .ff = 10944, .n_layers = 62, .n_heads = 32,
     .n_kv_heads = 32, .max_positions = 2048, .vocab = 152064, .rms_eps = 1e-6, .rope_theta = 1e4},
    {"exaone_moe", "ExaoneMoeForCausalLM", "exaone-moe",
     .traits = HF_ROUTED | HF_LAYER_TYPES | HF_PREDICTS, .window = HF_WINDOW_PERIOD, .period = 4,
     .hidden = 4096, .ff = 16384, .n_layers = 32, .n_heads = 32, .n_kv_heads = 32,
     .max_positions = 2048, .vocab = 102400, .sliding_window = 4096, .rms_eps = 1e-5,
     .rope_theta = 1e4},
    {"afmoe", "AfmoeForCausalLM", "afmoe",
     .traits = HF_POST_NORMS | HF_ROUTED | HF_LAYER_TYPES | HF_LLAMA_KEYS,
     .window = HF_WINDOW_PERIOD, .period = 4, .hidden = 2048, .ff = 6144, .n_layers = 32,
     .n_heads = 16, .head_dim = 128, .max_positions = 16384, .vocab = 200192,
     .sliding_window = 1024, .rms_eps = 1e-5, .rope_theta = 1e4},
    {"bailing_moe_v2", "BailingMoeV2ForCausalLM", "bailingmoe2",
     .traits = HF_ROUTED | HF_PREDICTS | HF_PARTIAL | HF_QKV_STACKED, .hidden = 2048, .ff = 5120,
     .n_layers = 20, .n_heads = 16, .n_kv_heads = 4, .max_positions = 32768, .vocab = 157184,
     .rms_eps = 1e-6, .rope_theta = 6e5},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "hunyuan-dense", .hidden = 4096, .ff = 11008,
     .n_layers = 32, .n_heads = 32, .max_positions = 2048, .vocab = 290943, .rms_eps = 1e-5,
     .rope_theta = 1e4},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", "hunyuan-moe", .traits = HF_ROUTED,
     .hidden = 4096, .ff = 11008, .n_layers = 32, .n_heads = 32, .max_positions = 2048,
     .vocab = 290943, .rms_eps = 1e-5, .rope_theta = 1e4},
    {"hy_v3", "HYV3ForCausalLM", "hy_v3", .traits = HF_ROUTED | HF_PREDICTS, .hidden = 4096,
     .ff = 13312, .n_layers = 80, .n_heads = 64, .n_kv_heads = 8, .head_dim = 128,
     .max_positions = 131072, .vocab = 120832, .rms_eps = 1e-5, .rope_theta = 11158840},
    {"olmo2", "Olmo2ForCausalLM", "olmo2", .traits = HF_POST_NORMS, .hidden = 4096, .ff = 11008,
     .n_layers = 32, .n_heads = 32, .max_positions = 2048, .vocab = 50304, .rms_eps = 1e-5,
     .rope_theta = 1e4},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3",
     .traits = LLAMA_TRAITS | HF_LAYER_TYPES | HF_SWITCHED_WINDOW | HF_NOPE,
     .window = HF_WINDOW_NOPE, .hidden = 2048, .ff = 11008, .n_layers = 36, .n_heads = 16,
     .n_kv_heads = 4, .max_positions = 32768, .vocab = 128256, .rms_eps = 1e-6, .rope_theta = 2e6,
     .tied = true},
    {"granite", "GraniteForCausalLM", "granite",
     .traits = LLAMA_TRAITS | HF_NO_HEAD_DIM | HF_SCALES, .hidden = 4096, .ff = 11008,
     .n_layers = 32, .n_heads = 32, .max_positions = 2048, .vocab = 32000, .rms_eps = 1e-6,
     .rope_theta = 1e4},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", "granitehybrid",
     .traits = LLAMA_TRAITS | HF_NO_HEAD_DIM | HF_SCALES | HF_MAMBA2, .hidden = 4096, .ff = 1024,
     .n_layers = 32, .n_heads = 32, .max_positions = 2048, .vocab = 32000, .rms_eps = 1e-6,
     .rope_theta = 1e4},
    {"falcon_h1", "FalconH1ForCausalLM", "falcon-h1", .traits = HF_LLAMA_KEYS | HF_MAMBA2,
     .hidden = 4096, .ff = 14336, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,
     .max_positions = 8192, .vocab = 128000, .rms_eps = 1e-5, .rope_theta = 1e4},
    {"nemotron_h", "NemotronHForCausalLM", "nemotron_h", .traits = HF_LLAMA_KEYS | HF_MAMBA2,
     .hidden = 4096, .ff = 21504, .n_layers = 4, .n_heads = 32, .n_kv_heads = 8, .head_dim = 128,
     .max_positions = 4096, .vocab = 131072, .rms_eps = 1e-5, .rope_theta = 1e4},
    /* the same with experts: chosen by the kinds of its layers */
    {"nemotron_h", "NemotronHForCausalLM", HF_NEMOTRON_EXPERTS, .traits = HF_LLAMA_KEYS | HF_MAMBA2,
     .hidden = 4096, .ff = 21504, .n_layers = 4, .n_heads = 32, .n_kv_heads = 8, .head_dim = 128,
     .max_positions = 4096, .vocab = 131072, .rms_eps = 1e-5, .rope_theta = 1e4},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "deepseek2", .traits = HF_LLAMA_KEYS | HF_MLA,
     .hidden = 4096, .ff = 11008, .n_layers = 32, .n_heads = 32, .max_positions = 2048,
     .vocab = 32000, .rms_eps = 1e-6, .rope_theta = 1e4},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "deepseek2",
     .traits = HF_LLAMA_KEYS | HF_MLA | HF_IMAGES, .hidden = 7168, .ff = 18432, .n_layers = 61,
     .n_heads = 128, .max_positions = 4096, .vocab = 129280, .rms_eps = 1e-6, .rope_theta = 1e4,
     .renormalize = true},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", "deepseek2", .traits = HF_LLAMA_KEYS | HF_MLA,
     .hidden = 2048, .ff = 10240, .n_layers = 47, .n_heads = 20, .max_positions = 202752,
     .vocab = 154880, .rms_eps = 1e-5, .rope_theta = 1e4, .renormalize = true},
    {"mistral4", "Mistral4ForCausalLM", "mistral4", .traits = HF_LLAMA_KEYS | HF_MLA | HF_IMAGES,
     .hidden = 4096, .ff = 12288, .n_layers = 36, .n_heads = 32, .max_positions = 1048576,
     .vocab = 131072, .rms_eps = 1e-6, .rope_theta = 1e4, .renormalize = true},
    {"kimi_linear", "KimiLinearForCausalLM", "kimi-linear",
     .traits = HF_LLAMA_KEYS | HF_MLA | HF_KDA, .hidden = 2304, .ff = 9216, .n_layers = 27,
     .n_heads = 32, .max_positions = 1048576, .vocab = 163840, .rms_eps = 1e-5, .rope_theta = 1e4,
     .renormalize = true},
    {"olmo3", "Olmo3ForCausalLM", "olmo2", .traits = HF_POST_NORMS | HF_LAYER_TYPES,
     .window = HF_WINDOW_PERIOD, .period = 4, .hidden = 4096, .ff = 11008, .n_layers = 32,
     .n_heads = 32, .max_positions = 2048, .vocab = 50304, .sliding_window = 4096, .rms_eps = 1e-5,
     .rope_theta = 5e5},
    {"seed_oss", "SeedOssForCausalLM", "seed_oss", .traits = HF_POST_NORMS, .hidden = 4096,
     .ff = 27648, .n_layers = 64, .n_heads = 80, .n_kv_heads = 8, .head_dim = 128,
     .max_positions = 524288, .vocab = 155136, .rms_eps = 1e-6, .rope_theta = 1e4},
    {"exaone4", "Exaone4ForCausalLM", "exaone4", .traits = HF_POST_NORMS | HF_LAYER_TYPES,
     .window = HF_WINDOW_PERIOD, .period = 4, .hidden = 4096, .ff = 16384, .n_layers = 32,
     .n_heads = 32, .n_kv_heads = 32, .max_positions = 2048, .vocab = 102400,
     .sliding_window = 4096, .rms_eps = 1e-5, .rope_theta = 1e4},
    {"arcee", "ArceeForCausalLM", "arcee", .traits = LLAMA_TRAITS, .act = "relu2", .hidden = 2560,
     .ff = 18432, .n_layers = 32, .n_heads = 32, .max_positions = 4096, .vocab = 32000,
     .rms_eps = 1e-5, .rope_theta = 1e4},
    {"granitemoe", "GraniteMoeForCausalLM", "granitemoe",
     .traits = LLAMA_TRAITS | HF_NO_HEAD_DIM | HF_SCALES | HF_EXPERTS, .hidden = 4096, .ff = 11008,
     .n_layers = 32, .n_heads = 32, .max_positions = 2048, .vocab = 32000, .n_experts = 8,
     .n_experts_used = 2, .rms_eps = 1e-6, .rope_theta = 1e4},
    {"cohere2", "Cohere2ForCausalLM", "cohere2", .traits = HF_LAYER_TYPES | HF_NO_HEAD_DIM,
     .window = HF_WINDOW_PERIOD, .period = 4, .eps = "layer_norm_eps", .hidden = 8192, .ff = 22528,
     .n_layers = 40, .n_heads = 64, .max_positions = 8192, .vocab = 256000, .sliding_window = 4096,
     .rms_eps = 1e-5, .rope_theta = 1e4, .tied = true},
    {"cohere", "CohereForCausalLM", "command-r", .traits = HF_NO_HEAD_DIM, .eps = "layer_norm_eps",
     .hidden = 8192, .ff = 22528, .n_layers = 40, .n_heads = 64, .max_positions = 8192,
     .vocab = 256000, .rms_eps = 1e-5, .rope_theta = 5e5, .tied = true},
    {"cohere2_moe", "Cohere2MoeForCausalLM", "cohere2moe", .traits = HF_ROUTED | HF_LAYER_TYPES,
     .window = HF_WINDOW_PERIOD, .period = 4, .eps = "layer_norm_eps", .hidden = 8192, .ff = 22528,
     .n_layers = 40, .n_heads = 64, .head_dim = 128, .max_positions = 8192, .vocab = 256000,
     .sliding_window = 4096, .rms_eps = 1e-5, .rope_theta = 1e4, .tied = true},
    {"starcoder2", "Starcoder2ForCausalLM", "starcoder2", .traits = HF_NO_HEAD_DIM,
     .window = HF_WINDOW_ALL, .eps = "norm_epsilon", .act = "gelu_pytorch_tanh", .hidden = 3072,
     .ff = 12288, .n_layers = 30, .n_heads = 24, .n_kv_heads = 2, .max_positions = 4096,
     .vocab = 49152, .rms_eps = 1e-5, .rope_theta = 1e4, .tied = true},
    {"stablelm", "StableLmForCausalLM", "stablelm", .traits = HF_NO_HEAD_DIM,
     .eps = "layer_norm_eps", .rotated = 0.25, .hidden = 2560, .ff = 6912, .n_layers = 32,
     .n_heads = 32, .n_kv_heads = 32, .max_positions = 4096, .vocab = 50304, .rms_eps = 1e-5,
     .rope_theta = 1e4},
    {"gpt_neox", "GPTNeoXForCausalLM", "gptneox", .traits = HF_NO_HEAD_DIM, .eps = "layer_norm_eps",
     .rotated = 0.25, .act = "gelu", .hidden = 6144, .ff = 24576, .n_layers = 44, .n_heads = 64,
     .max_positions = 2048, .vocab = 50432, .rms_eps = 1e-5, .rope_theta = 1e4},
    {"llama4_text", "Llama4ForCausalLM", "llama4", .traits = HF_LLAMA_KEYS | HF_IMAGES | HF_LLAMA4,
     .hidden = 5120, .ff = 16384, .n_layers = 48, .n_heads = 40, .n_kv_heads = 8, .head_dim = 128,
     .max_positions = 131072, .vocab = 202048, .rms_eps = 1e-5, .rope_theta = 5e5},
    {"muse_glimmer_text", "MuseGlimmerForCausalLM", "muse-glimmer",
     .traits = LLAMA_TRAITS | HF_NORM_PLUS_1 | HF_POST_NORMS | HF_LAYER_TYPES | HF_IMAGES,
     .window = HF_WINDOW_PERIOD, .period = 4, .hidden = 6656, .ff = 19968, .n_layers = 52,
     .n_heads = 32, .n_kv_heads = 2, .head_dim = 128, .max_positions = 131072, .vocab = 202048,
     .sliding_window = 2048, .rms_eps = 1e-5, .rope_theta = 5e5},
    {"laguna", "LagunaForCausalLM", "laguna", .ropes_by_kind = true, .read = hf_read_laguna,
     .hidden = 2048, .ff = 8192, .n_layers = 40, .n_heads = 48, .n_kv_heads = 8, .head_dim = 128,
     .max_positions = 131072, .vocab = 100352, .sliding_window = 512, .rms_eps = 1e-6,
     .rope_theta = 5e5},
    {"step3p5", "Step3p5ForCausalLM", "step35", .traits = HF_NORM_PLUS_1 | HF_PREDICTS,
     .ropes_by_kind = true, .read = hf_read_step, .hidden = 4096, .ff = 11264, .n_layers = 45,
     .n_heads = 64, .n_kv_heads = 8, .head_dim = 128, .max_positions = 262144, .vocab = 128896,
     .sliding_window = 512, .rms_eps = 1e-5, .rope_theta = 1e4},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM", "mimo2", .traits = HF_PREDICTS,
     .ropes_by_kind = true, .read = hf_read_mimo, .hidden = 4096, .ff = 16384, .n_layers = 48,
     .n_heads = 64, .n_kv_heads = 4, .head_dim = 192, .max_positions = 262144, .vocab = 152576,
     .sliding_window = 128, .rms_eps = 1e-5, .rope_theta = 5e6},
    {"gpt2", "GPT2LMHeadModel", "gpt2", .traits = HF_OLDER},
    {"mpt", "MPTForCausalLM", "mpt", .traits = HF_OLDER},
    {"bloom", "BloomForCausalLM", "bloom", .traits = HF_OLDER},
    {"apertus", "ApertusForCausalLM", "apertus", .traits = HF_LLAMA_KEYS, .act = "xielu",
     .hidden = 4096, .ff = 14336, .n_layers = 32, .n_heads = 32, .max_positions = 65536,
     .vocab = 131072, .rms_eps = 1e-5, .rope_theta = 12e6},
    {"phimoe", "PhiMoEForCausalLM", "phimoe", .traits = HF_EXPERTS, .window = HF_WINDOW_ALL,
     .hidden = 4096, .ff = 6400, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,
     .max_positions = 131072, .vocab = 32064, .n_experts = 16, .n_experts_used = 2, .rms_eps = 1e-5,
     .rope_theta = 1e6},
    {"bert", "BertModel", "bert", .traits = HF_ENCODER, .eps = "layer_norm_eps", .rms_eps = 1e-12},
    /* has BERT's model_type: chosen by its positions */
    {"jina_bert", "JinaBertModel", "jina-bert-v2", .traits = HF_ENCODER, .eps = "layer_norm_eps",
     .rms_eps = 1e-12},
    {"xlm-roberta", "XLMRobertaModel", "bert", .traits = HF_ENCODER | HF_PADDED_POSITIONS,
     .eps = "layer_norm_eps", .rms_eps = 1e-12},
    {"roberta", "RobertaModel", "bert", .traits = HF_ENCODER | HF_PADDED_POSITIONS,
     .eps = "layer_norm_eps", .rms_eps = 1e-12},
    {"nomic_bert", "NomicBertModel", "nomic-bert", .traits = HF_ENCODER, .eps = "layer_norm_eps",
     .rms_eps = 1e-12},
    {"modernbert", "ModernBertModel", "modern-bert", .traits = HF_ENCODER, .eps = "norm_eps",
     .rms_eps = 1e-5},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

static const struct hf_family *find_family(const char *model_type, const char *class_name) {
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (model_type && strcmp(model_type, families[i].model_type) == 0) return &families[i];
        if (class_name && strcmp(class_name, families[i].class_name) == 0) return &families[i];
    }
    return NULL;
}

static const struct hf_family *find_arch(const char *arch) {
    size_t i = 0;
    while (i < N_FAMILIES && strcmp(families[i].arch, arch) != 0)
        i++;
    return i < N_FAMILIES ? &families[i] : NULL;
}

/* A model of text and images has its text model's members in text_config. NULL: it is none. */
static const char *text_type(const struct hf_reader *r, const char *model_type) {
    const char *inner = hf_text(hf_value(r->root, "text_config"), "model_type");
    if (model_type && strcmp(model_type, "mistral3") == 0)
        return inner && strcmp(inner, "mistral") != 0 ? inner : model_type;
    static const char *const rows[][2] = {{"gemma3", "gemma3_text"},
                                          {"gemma4", "gemma4_text"},
                                          {"gemma4_unified", "gemma4_unified_text"},
                                          {"kimi_k25", "kimi_k2"},
                                          {"llama4", "llama4_text"},
                                          {"muse_glimmer", "muse_glimmer_text"},
                                          {"qwen3_5", "qwen3_5_text"},
                                          {"qwen3_5_moe", "qwen3_5_moe_text"}};
    for (size_t i = 0; model_type && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(model_type, rows[i][0]) == 0) return rows[i][1];
    return NULL;
}

int hf_choose_family(struct hf_reader *r) {
    const cJSON *classes = hf_value(r->root, "architectures");
    const char *class_name = cJSON_IsArray(classes) && cJSON_IsString(classes->child)
                                 ? classes->child->valuestring
                                 : NULL;
    const char *model_type = hf_text(r->root, "model_type");
    char known[512];
    size_t used = 0;
    const char *inner = text_type(r, model_type);
    if (inner) {
        r->json = hf_value(r->root, "text_config");
        if (!cJSON_IsObject(r->json))
            return err_set_param(r->e, ERR_FORMAT, "text_config",
                                 "member 'text_config' is missing");
        model_type = inner;
    }
    /* Ling 2 has the type of Ling 1, which is another model. */
    if (model_type && class_name && strcmp(model_type, "bailing_moe") == 0 &&
        strcmp(class_name, "BailingMoeV2ForCausalLM") == 0)
        model_type = "bailing_moe_v2";
    /* Kimi K2 is DeepSeek V3 in other sizes. */
    if (model_type && strcmp(model_type, "kimi_k2") == 0) model_type = "deepseek_v3";
    const char *positions = hf_text(r->json, "position_embedding_type");
    if (model_type && positions && strcmp(model_type, "bert") == 0 &&
        strcmp(positions, "alibi") == 0)
        model_type = "jina_bert";
    r->config->family = find_family(model_type, model_type ? NULL : class_name);
    const bool both_ways = hf_flag(r->json, "use_bidirectional_attention", false);
    if (r->config->family && both_ways && strcmp(r->config->family->arch, "gemma3") == 0)
        r->config->family = find_arch(HF_GEMMA_EMBEDDING);
    if (r->config->family && hf_has_lone_experts(r))
        r->config->family = find_arch(HF_NEMOTRON_EXPERTS);
    if (r->config->family) return 0;
    if (model_type && lacking_for_folder(model_type))
        return err_set_param(r->e, ERR_UNSUPPORTED, "model_type",
                             "models of type '%s' are not supported: this build lacks %s",
                             model_type, lacking_for_folder(model_type));
    if (!model_type && !class_name)
        return err_set_param(r->e, ERR_FORMAT, "model_type", "member 'model_type' is missing");
    for (size_t i = 0; i < N_FAMILIES && used < sizeof known; i++) {
        if (i && strcmp(families[i].model_type, families[i - 1].model_type) == 0) continue;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 families[i].model_type);
    }
    return err_set_param(r->e, ERR_UNSUPPORTED, "model_type",
                         "models of type '%.*s' are not supported (expected one of %s)",
                         SHOWN_BYTES, model_type ? model_type : class_name, known);
}
