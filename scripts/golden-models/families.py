"""The tiny models: one for each architecture, with all that is special about it switched on.

A family is (model_type, configuration, tokenizer kind, options). Sizes are small and odd where the
architecture allows it. Options:
  dtype   what the weights are rounded to and stored as
  v4      config.json as transformers 4 wrote it (most folders in the world)
  shards  model.safetensors in several files
  outtype of convert_hf_to_gguf.py
  mxfp4   experts as openai's checkpoints store them
  pad_vocab  rows of the embedding beyond the vocabulary
  ties    two experts that always score the same: the lower one is taken (make.py)
  keys    metadata that the reference needs and llama.cpp's converter does not write
  hub     config.json names the sizes of Gemma 4's full layers as the makers' folders do
  audio   likewise of an audio part
  vision  configuration of a vision part: config.json and names as models of text and images have them
  mtp     a layer that predicts further tokens ("key": config.json counts it; "tensors": it does not; "layer": it
          comes after the others, under their names)
  patch   members of config.json (None: without them), as folders of the makers have them
  mtp     a layer that predicts further tokens ("key": config.json counts it; "tensors": it does not;
          "layer": it is named as a layer after the last, and counted)
  lengths, greedy  of prompts, if others than usual (make.py)
  around  members of config.json beside a text and a vision part
  of_class  the class of the model, where no auto class knows its type
  maker   weights and config.json under the names of a maker whose model transformers lacks (renamed.py): the
          layers are those of another family that computes the same
"""

from families_cohere import COHERE
from families_heads import HEADS

PHI3_SHORT = [1.0, 1.02, 1.1, 1.3, 1.7, 2.1]
PHI3_LONG = [1.0, 1.3, 2.0, 3.5, 5.0, 7.5]

# Of models with recurrent layers: prompts that cross many boundaries of chunks, kept sparsely.
LONG = dict(lengths=[1, 7, 33, 130, 700, 1500], greedy=[(7, 12), (33, 12), (700, 8)])
PIXTRAL = dict(model_type="pixtral", hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2,
               image_size=32, patch_size=8)
VISION = dict(depth=1, hidden_size=16, intermediate_size=20, num_heads=2, patch_size=4, spatial_merge_size=2,
              num_position_embeddings=16)
GEMMA4_ROPE = dict(full_attention=dict(rope_type="proportional", rope_theta=1000000.0, partial_rotary_factor=0.25),
                   sliding_attention=dict(rope_type="default", rope_theta=10000.0))
GEMMA4_VISION = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2,
                     num_key_value_heads=2, head_dim=8, patch_size=4, position_embedding_size=16)


def kimi(n_experts, n_used, n_shared, n_groups, renormalize):
    """Kimi Linear's sizes under the names of the maker and of transformers."""
    return dict(num_experts=n_experts, n_routed_experts=n_experts, num_local_experts=n_experts,
                num_experts_per_token=n_used, num_experts_per_tok=n_used, num_shared_experts=n_shared,
                n_shared_experts=n_shared, num_expert_group=n_groups, n_group=n_groups, moe_renormalize=renormalize,
                norm_topk_prob=renormalize, model_max_length=2048, max_position_embeddings=2048)


GLIMMER_VISION = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, patch_size=4,
                      pos_emb_height=4, pos_emb_width=4, max_position_embeddings=16)

GLIMMER_AROUND = dict(out_hidden_size=64, projector_hidden_size=16)  # 2 x 2 patches become one

FAMILIES = {
    "llama": dict(
        seed=1005, type="llama", tokenizer="llama3", v4=True, outtype="f32",
        config=dict(hidden_size=48, num_attention_heads=6, num_key_value_heads=2, intermediate_size=76,
                    num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-5,
                    tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64))),
    "llama2": dict(
        seed=1006, type="llama", tokenizer="llama2", v4=True, outtype="f16", dtype="float16",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=4, intermediate_size=52,
                    num_hidden_layers=2, max_position_embeddings=256, rms_norm_eps=1e-6,
                    tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0))),
    "mistral": dict(
        seed=1007, type="mistral", tokenizer="mistral", v4=True, outtype="f32", keys=dict(sliding_window=20),
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                    intermediate_size=60, num_hidden_layers=2, max_position_embeddings=512,
                    sliding_window=20, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "mixtral": dict(
        seed=1008, type="mixtral", tokenizer="mistral", outtype="f32",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                    num_hidden_layers=2, max_position_embeddings=512, sliding_window=None,
                    num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "qwen2": dict(
        seed=1011, type="qwen2", tokenizer="qwen", v4=True, outtype="f32", pad_vocab=13,
        keys=dict(sliding_window=24, sliding_window_pattern=[False, True, True]),
        config=dict(hidden_size=42, num_attention_heads=7, num_key_value_heads=1, intermediate_size=66,
                    num_hidden_layers=3, max_position_embeddings=512, use_sliding_window=True,
                    sliding_window=24, max_window_layers=1, rms_norm_eps=1e-6, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "qwen2moe": dict(
        seed=1012, type="qwen2_moe", tokenizer="qwen", outtype="f32",
        config=dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=3, intermediate_size=50,
                    moe_intermediate_size=20, shared_expert_intermediate_size=28, num_experts=6,
                    num_experts_per_tok=2, norm_topk_prob=False, num_hidden_layers=2,
                    max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "qwen3": dict(
        seed=1013, type="qwen3", tokenizer="qwen", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                    intermediate_size=54, num_hidden_layers=2, max_position_embeddings=256, rms_norm_eps=1e-6,
                    tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                         original_max_position_embeddings=64))),
    "qwen3moe": dict(
        seed=1014, type="qwen3_moe", tokenizer="qwen", outtype="f32", ties=True,
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=14,
                    intermediate_size=40, moe_intermediate_size=20, num_experts=7, num_experts_per_tok=3,
                    norm_topk_prob=True, num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-6,
                    tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "gemma": dict(
        seed=1016, type="gemma", tokenizer="gemma", v4=True, outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=1, head_dim=14,
                    intermediate_size=56, num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-6,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "gemma2": dict(
        seed=1000, type="gemma2", tokenizer="gemma", v4=True, outtype="f32", shards="120KB",
        keys=dict(attention_scale=24 ** -0.5),
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                    intermediate_size=56, num_hidden_layers=3, max_position_embeddings=512, sliding_window=18,
                    query_pre_attn_scalar=24, attn_logit_softcapping=3.0, final_logit_softcapping=6.0,
                    rms_norm_eps=1e-6,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "gemma3": dict(
        seed=1001, type="gemma3_text", tokenizer="gemma", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=28, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                    intermediate_size=36, num_hidden_layers=7, max_position_embeddings=512, sliding_window=16,
                    query_pre_attn_scalar=16, rms_norm_eps=1e-6,
                    rope_parameters=dict(
                        full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "phi3": dict(
        seed=1010, type="phi3", tokenizer="phi3", v4=True, outtype="f32",
        config=dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=44,
                    num_hidden_layers=2, max_position_embeddings=256, original_max_position_embeddings=64,
                    sliding_window=40, rms_norm_eps=1e-5, tie_word_embeddings=False, partial_rotary_factor=0.75,
                    rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, short_factor=PHI3_SHORT,
                                         long_factor=PHI3_LONG, partial_rotary_factor=0.75,
                                         original_max_position_embeddings=64))),
    "gpt-oss": dict(
        seed=1002, type="gpt_oss", tokenizer="harmony", v4=True, outtype="f32",
        config=dict(hidden_size=32, num_attention_heads=6, num_key_value_heads=2, head_dim=12,
                    intermediate_size=24, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=2,
                    max_position_embeddings=512, sliding_window=22, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0,
                                         beta_slow=1.0, truncate=False, original_max_position_embeddings=64))),
    "gpt-oss-mxfp4": dict(
        seed=1003, type="gpt_oss", tokenizer="harmony", v4=True, outtype="bf16", dtype="bfloat16", mxfp4=True,
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                    intermediate_size=64, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
                    max_position_embeddings=512, sliding_window=22, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    layer_types=["sliding_attention", "full_attention"],
                    rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0,
                                         beta_slow=1.0, truncate=False, original_max_position_embeddings=64))),
    "olmo2": dict(
        seed=1009, type="olmo2", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=58,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    "smollm3": dict(
        seed=1015, type="smollm3", tokenizer="llama3", outtype="f32",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=44,
                    num_hidden_layers=5, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True,
                    no_rope_layer_interval=4, use_sliding_window=False,
                    rope_parameters=dict(rope_type="default", rope_theta=2000000.0))),
    "granite": dict(
        seed=1004, type="granite", tokenizer="starcoder", v4=True, outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=1, intermediate_size=62,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    embedding_multiplier=4.0, residual_multiplier=0.45, attention_multiplier=0.23,
                    logits_scaling=3.0,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "qwen35": dict(
        seed=1017, type="qwen3_5", tokenizer="qwen35", outtype="f32", vision=VISION, mtp="key", pad_vocab=5, **LONG,
        config=dict(hidden_size=40, num_attention_heads=3, num_key_value_heads=1, head_dim=24, intermediate_size=52,
                    num_hidden_layers=6, max_position_embeddings=2048, rms_norm_eps=1e-6, linear_conv_kernel_dim=4,
                    linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
                    linear_num_value_heads=6, layer_types=3 * ["linear_attention"] + ["full_attention"] +
                    2 * ["linear_attention"], tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                                         mrope_section=[1, 1, 1], mrope_interleaved=True))),
    "qwen35-tied": dict(
        seed=1018, type="qwen3_5_text", tokenizer="qwen35", outtype="bf16", dtype="bfloat16", **LONG,
        keys={"rope.dimension_count": 16},
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=2, head_dim=32, intermediate_size=64,
                    num_hidden_layers=8, max_position_embeddings=2048, rms_norm_eps=1e-6, linear_conv_kernel_dim=4,
                    linear_key_head_dim=32, linear_value_head_dim=32, linear_num_key_heads=2,
                    linear_num_value_heads=2, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0, partial_rotary_factor=0.5,
                                         mrope_section=[3, 3, 2], mrope_interleaved=True))),
    "qwen35moe": dict(
        seed=1019, type="qwen3_5_moe_text", tokenizer="qwen35", outtype="f32", ties=True, **LONG,
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                    moe_intermediate_size=20, shared_expert_intermediate_size=28, num_experts=6,
                    num_experts_per_tok=2, num_hidden_layers=5, max_position_embeddings=2048, rms_norm_eps=1e-6,
                    linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16,
                    linear_num_key_heads=2, linear_num_value_heads=4, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                                         mrope_section=[1, 1, 0], mrope_interleaved=True))),
    "qwen35moe-tied": dict(
        seed=1020, type="qwen3_5_moe", tokenizer="qwen35", outtype="bf16", dtype="bfloat16", vision=VISION, mtp="key",
        **LONG,
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                    moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=5,
                    num_experts_per_tok=3, num_hidden_layers=4, max_position_embeddings=2048, rms_norm_eps=1e-6,
                    linear_conv_kernel_dim=4, linear_key_head_dim=48, linear_value_head_dim=48,
                    linear_num_key_heads=1, linear_num_value_heads=1, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                                         mrope_section=[2, 1, 1], mrope_interleaved=True))),
    "qwen3next": dict(
        seed=1021, type="qwen3_next", tokenizer="qwen", v4=True, outtype="f32", mtp="tensors", **LONG,
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=1, head_dim=16, intermediate_size=40,
                    moe_intermediate_size=20, shared_expert_intermediate_size=12, num_experts=5,
                    num_experts_per_tok=2, norm_topk_prob=True, num_hidden_layers=5, max_position_embeddings=2048,
                    rms_norm_eps=1e-6, linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16,
                    linear_num_key_heads=2, linear_num_value_heads=4, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))),
    "qwen3next-tied": dict(
        seed=1022, type="qwen3_next", tokenizer="qwen", outtype="bf16", dtype="bfloat16", **LONG,
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=32, intermediate_size=40,
                    moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=4,
                    num_experts_per_tok=3, norm_topk_prob=True, num_hidden_layers=4, max_position_embeddings=2048,
                    rms_norm_eps=1e-6, linear_conv_kernel_dim=4, linear_key_head_dim=32, linear_value_head_dim=32,
                    linear_num_key_heads=2, linear_num_value_heads=2, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))),
    "lfm2": dict(
        seed=1023, type="lfm2", tokenizer="llama3", outtype="f32", **LONG,
        config=dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=1, intermediate_size=52,
                    block_auto_adjust_ff_dim=False, num_hidden_layers=5, max_position_embeddings=2048, norm_eps=1e-5,
                    conv_L_cache=3, conv_bias=False, tie_word_embeddings=True,
                    layer_types=["conv", "conv", "full_attention", "conv", "full_attention"],
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "lfm2-adjusted": dict(
        seed=1024, type="lfm2", tokenizer="llama3", outtype="bf16", dtype="bfloat16", **LONG,
        config=dict(hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=100,
                    block_auto_adjust_ff_dim=True, block_multiple_of=24, block_ffn_dim_multiplier=1.0,
                    num_hidden_layers=4, max_position_embeddings=2048, norm_eps=1e-6, conv_L_cache=3, conv_bias=False,
                    tie_word_embeddings=True, layer_types=["conv", "full_attention", "conv", "conv"],
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "lfm2moe": dict(
        seed=1025, type="lfm2_moe", tokenizer="llama3", outtype="f32", **LONG,
        config=dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, intermediate_size=44,
                    moe_intermediate_size=20, num_experts=6, num_experts_per_tok=2, num_dense_layers=1,
                    use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0, num_hidden_layers=4,
                    max_position_embeddings=2048, norm_eps=1e-5, conv_L_cache=3, conv_bias=False,
                    tie_word_embeddings=True, layer_types=["conv", "full_attention", "conv", "conv"],
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "lfm2moe-scaled": dict(
        seed=1026, type="lfm2_moe", tokenizer="llama3", outtype="bf16", dtype="bfloat16", **LONG,
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                    moe_intermediate_size=16, num_experts=5, num_experts_per_tok=3, num_dense_layers=2,
                    use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.7, num_hidden_layers=5,
                    max_position_embeddings=2048, norm_eps=1e-5, conv_L_cache=3, conv_bias=False,
                    tie_word_embeddings=True,
                    layer_types=["conv", "conv", "full_attention", "conv", "full_attention"],
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "granitehybrid": dict(
        seed=1027, type="granitemoehybrid", tokenizer="starcoder", outtype="f32", **LONG,
        config=dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=1, intermediate_size=56,
                    shared_intermediate_size=56, num_local_experts=0, num_experts_per_tok=0, num_hidden_layers=5,
                    max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    embedding_multiplier=4.0, residual_multiplier=0.45, attention_multiplier=0.23,
                    logits_scaling=3.0, mamba_n_heads=5, mamba_n_groups=1, mamba_d_state=48, mamba_d_head=16,
                    mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=64, mamba_conv_bias=True,
                    position_embedding_type="nope",
                    layer_types=["mamba", "mamba", "attention", "mamba", "mamba"])),
    "granitehybrid-moe": dict(
        seed=1028, type="granitemoehybrid", tokenizer="starcoder", outtype="bf16", dtype="bfloat16", **LONG,
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=16,
                    shared_intermediate_size=20, num_local_experts=6, num_experts_per_tok=2, num_hidden_layers=4,
                    max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    embedding_multiplier=6.0, residual_multiplier=0.3, attention_multiplier=0.125,
                    logits_scaling=2.0, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=16, mamba_d_head=16,
                    mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=32, mamba_conv_bias=True,
                    position_embedding_type="rope", layer_types=["mamba", "attention", "mamba", "mamba"],
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "falcon-h1": dict(
        seed=1029, type="falcon_h1", tokenizer="llama3", outtype="f32", **LONG,
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=52,
                    num_hidden_layers=3, max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    mamba_d_ssm=48, mamba_n_heads=3, mamba_n_groups=1, mamba_d_state=32, mamba_d_head=16,
                    mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=64, mamba_conv_bias=True, mamba_rms_norm=False,
                    mamba_norm_before_gate=False, lm_head_multiplier=0.6, embedding_multiplier=3.0,
                    mlp_multipliers=[0.8, 0.7], key_multiplier=0.9, attention_out_multiplier=0.8,
                    attention_in_multiplier=1.1, ssm_multipliers=[0.9, 0.7, 1.2, 0.8, 1.1], ssm_in_multiplier=1.2,
                    ssm_out_multiplier=0.6,
                    rope_parameters=dict(rope_type="default", rope_theta=100000.0))),
    "falcon-h1-norm": dict(
        seed=1030, type="falcon_h1", tokenizer="llama3", outtype="bf16", dtype="bfloat16", **LONG,
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48,
                    num_hidden_layers=3, max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    mamba_d_ssm=64, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=16, mamba_d_head=16,
                    mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=32, mamba_conv_bias=True, mamba_rms_norm=True,
                    mamba_norm_before_gate=False, lm_head_multiplier=0.5, embedding_multiplier=2.0,
                    mlp_multipliers=[0.9, 0.6], key_multiplier=0.7, attention_out_multiplier=0.9,
                    attention_in_multiplier=1.0, ssm_multipliers=[1.1, 0.9, 0.8, 1.2, 0.7], ssm_in_multiplier=0.9,
                    ssm_out_multiplier=0.8,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "nemotron-h": dict(
        seed=1031, type="nemotron_h", tokenizer="llama3", outtype="f32", **LONG,
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=60,
                    max_position_embeddings=2048, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
                    layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp",
                                       "linear_attention", "mlp"],
                    mamba_num_heads=6, mamba_head_dim=16, ssm_state_size=32, n_groups=2, conv_kernel=4,
                    use_conv_bias=True, chunk_size=32)),
    "nemotron-h-tied": dict(
        seed=1034, type="nemotron_h", tokenizer="llama3", outtype="bf16", dtype="bfloat16", **LONG,
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48,
                    max_position_embeddings=2048, layer_norm_epsilon=1e-5, tie_word_embeddings=True,
                    layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"],
                    mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=48, n_groups=1, conv_kernel=4,
                    use_conv_bias=False, chunk_size=64)),
    "nemotron-h-moe": dict(
        seed=1032, type="nemotron_h", tokenizer="llama3", outtype="bf16", dtype="bfloat16", **LONG,
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=24,
                    max_position_embeddings=2048, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
                    layers_block_type=["linear_attention", "moe", "linear_attention", "full_attention", "moe"],
                    mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=48, n_groups=1, conv_kernel=4,
                    use_conv_bias=True, chunk_size=64, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
                    moe_intermediate_size=20, moe_shared_expert_intermediate_size=28, routed_scaling_factor=2.5,
                    norm_topk_prob=True)),
    "nemotron-h-latent": dict(
        seed=1033, type="nemotron_h", tokenizer="llama3", outtype="f32", **LONG,
        config=dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=12, intermediate_size=24,
                    max_position_embeddings=2048, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
                    layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
                    mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=16, n_groups=2, conv_kernel=4,
                    use_conv_bias=True, chunk_size=32, n_routed_experts=5, num_experts_per_tok=3, n_shared_experts=1,
                    moe_intermediate_size=16, moe_shared_expert_intermediate_size=24, moe_latent_size=20,
                    routed_scaling_factor=1.5, norm_topk_prob=True)),
    "mistral3": dict(
        seed=1100, type="mistral3", tokenizer="llama3", outtype="f32", vision=PIXTRAL,
        config=dict(model_type="ministral3", hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                    intermediate_size=60, num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-5,
                    tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=10000.0, factor=8.0,
                                         original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0,
                                         mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    "mistral3-text": dict(
        seed=1101, type="ministral3", tokenizer="llama3", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=16, intermediate_size=48,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=1000000.0, factor=16.0,
                                         original_max_position_embeddings=24, beta_fast=32.0, beta_slow=1.0,
                                         mscale=1.0, mscale_all_dim=0.6, llama_4_scaling_beta=0.2))),
    "mistral3-small": dict(
        seed=1102, type="mistral3", tokenizer="llama3", outtype="f32", vision=PIXTRAL,
        config=dict(model_type="mistral", hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                    intermediate_size=44, num_hidden_layers=2, max_position_embeddings=512, sliding_window=None,
                    rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "glm4moe": dict(
        seed=1103, type="glm4_moe", tokenizer="qwen", outtype="f32", mtp="layer",
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=50,
                    moe_intermediate_size=20, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2,
                    first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.0,
                    attention_bias=True, use_qk_norm=False, num_hidden_layers=3, max_position_embeddings=512,
                    rms_norm_eps=1e-5, tie_word_embeddings=False, num_nextn_predict_layers=1,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "glm4moe-norm": dict(
        seed=1104, type="glm4_moe", tokenizer="qwen", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=6, num_key_value_heads=1, head_dim=16, intermediate_size=48,
                    moe_intermediate_size=16, n_routed_experts=5, n_shared_experts=2, num_experts_per_tok=3,
                    first_k_dense_replace=2, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                    attention_bias=True, use_qk_norm=True, num_hidden_layers=4, max_position_embeddings=512,
                    rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0, partial_rotary_factor=0.5))),
    "minimax-m2": dict(
        seed=1105, type="minimax_m2", tokenizer="qwen", outtype="f32",
        config=dict(hidden_size=36, num_attention_heads=6, num_key_value_heads=2, head_dim=12, intermediate_size=20,
                    num_local_experts=6, num_experts_per_tok=2, num_hidden_layers=3, max_position_embeddings=512,
                    rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "minimax-m2-old": dict(
        seed=1106, type="minimax_m2", tokenizer="qwen", outtype="bf16", dtype="bfloat16",
        patch=dict(rope_parameters=None, rope_theta=1000000.0, rotary_dim=8, scoring_func="sigmoid",
                   use_routing_bias=True),
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=16, intermediate_size=16,
                    num_local_experts=5, num_experts_per_tok=3, num_hidden_layers=2, max_position_embeddings=512,
                    rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0, partial_rotary_factor=0.5))),
    "ernie4_5": dict(
        seed=1107, type="ernie4_5", tokenizer="llama2", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=52,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-5, use_bias=True,
                    tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    "ernie4_5-moe": dict(
        seed=1108, type="ernie4_5_moe", tokenizer="llama2", outtype="f32",
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=50,
                    moe_intermediate_size=16, moe_num_experts=6, moe_k=2, moe_num_shared_experts=2,
                    moe_layer_start_index=1, moe_layer_interval=2, num_hidden_layers=4, max_position_embeddings=512,
                    rms_norm_eps=1e-5, use_bias=False, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    "dots1": dict(
        seed=1109, type="dots1", tokenizer="qwen", outtype="f32",
        config=dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=3, head_dim=12, intermediate_size=44,
                    moe_intermediate_size=16, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=3,
                    first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                    sliding_window=None, num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-5,
                    tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "exaone-moe": dict(
        seed=1110, type="exaone_moe", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=44,
                    moe_intermediate_size=16, num_experts=5, num_experts_per_tok=2, num_shared_experts=1,
                    first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                    sliding_window=18, sliding_window_pattern="LLG",
                    layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                    mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                    num_hidden_layers=4, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "afmoe": dict(
        seed=1111, type="afmoe", tokenizer="llama3", outtype="f32",
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=44,
                    moe_intermediate_size=16, num_experts=5, num_experts_per_tok=2, num_shared_experts=1,
                    num_dense_layers=1, route_scale=2.5, global_attn_every_n_layers=4, sliding_window=16,
                    mup_enabled=True, num_hidden_layers=5, max_position_embeddings=512, rms_norm_eps=1e-5,
                    tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "hunyuan-moe": dict(
        seed=1112, type="hunyuan_v1_moe", tokenizer="qwen", outtype="f32",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=24,
                    num_experts=5, moe_topk=[2, 2, 2], moe_intermediate_size=[24, 24, 24], num_shared_expert=[1, 1, 1],
                    num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0,
                                         beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))),
    "hunyuan-dense": dict(
        seed=1113, type="hunyuan_v1_dense", tokenizer="qwen", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=1, head_dim=12, intermediate_size=52,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0,
                                         beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))),
    "hy_v3": dict(
        seed=1114, type="hy_v3", tokenizer="qwen", outtype="f32",
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=44,
                    moe_intermediate_size=16, num_experts=6, num_experts_per_tok=2, num_shared_experts=1,
                    router_scaling_factor=2.8, num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-5,
                    tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=11158840.0))),
    "qwen3moe-dense": dict(
        seed=1115, type="qwen3_moe", tokenizer="qwen", outtype="f32",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=16, intermediate_size=40,
                    moe_intermediate_size=16, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True,
                    decoder_sparse_step=2, mlp_only_layers=[3], num_hidden_layers=6, max_position_embeddings=512,
                    rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "qwen2moe-dense": dict(
        seed=1116, type="qwen2_moe", tokenizer="qwen", outtype="f32",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=2, intermediate_size=40,
                    moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts=4,
                    num_experts_per_tok=2, norm_topk_prob=False, mlp_only_layers=[0, 2], num_hidden_layers=3,
                    max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "deepseek2": dict(
        seed=1040, type="deepseek_v2", tokenizer="llama3", outtype="f32",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=None, kv_lora_rank=32,
                    qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, intermediate_size=44,
                    moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
                    first_k_dense_replace=1, topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
                    routed_scaling_factor=1.5, num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-6,
                    tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "deepseek2-groups": dict(
        seed=1041, type="deepseek_v2", tokenizer="llama3", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=5, q_lora_rank=18, kv_lora_rank=32,
                    qk_rope_head_dim=16, qk_nope_head_dim=20, v_head_dim=12, intermediate_size=44,
                    moe_intermediate_size=12, n_routed_experts=9, num_experts_per_tok=3, n_shared_experts=1,
                    first_k_dense_replace=0, topk_method="group_limited_greedy", n_group=3, topk_group=2,
                    norm_topk_prob=False, routed_scaling_factor=4.0, num_hidden_layers=2,
                    max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "deepseek3": dict(
        seed=1042, type="deepseek_v3", tokenizer="llama3", v4=True, outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=48,
                    qk_rope_head_dim=16, qk_nope_head_dim=12, v_head_dim=20, intermediate_size=56,
                    moe_intermediate_size=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1,
                    first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True,
                    routed_scaling_factor=2.5, num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-6,
                    tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=32.0,
                                         beta_slow=1.0, mscale=0.9, mscale_all_dim=0.6,
                                         original_max_position_embeddings=64))),
    "glm4-moe-lite": dict(
        seed=1043, type="glm4_moe_lite", tokenizer="llama3", outtype="bf16", dtype="bfloat16", mtp="layer",
        config=dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=20, kv_lora_rank=32,
                    qk_rope_head_dim=16, qk_nope_head_dim=24, v_head_dim=32, intermediate_size=50,
                    moe_intermediate_size=16, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1,
                    n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.8, num_hidden_layers=3,
                    max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "kimi-linear": dict(
        seed=1130, type="kimi_linear", tokenizer="llama3", outtype="f32", maker="kimi_linear", **LONG,
        config=dict(hidden_size=40, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=32,
                    qk_rope_head_dim=16, qk_nope_head_dim=20, v_head_dim=12, intermediate_size=44,
                    moe_intermediate_size=12, num_hidden_layers=5, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    first_k_dense_replace=1, topk_group=1, routed_scaling_factor=2.446,
                    linear_attn_config=dict(full_attn_layers=[4], kda_layers=[1, 2, 3, 5], head_dim=16, num_heads=3,
                                            short_conv_kernel_size=4),
                    **kimi(n_experts=7, n_used=2, n_shared=1, n_groups=1, renormalize=True))),
    "kimi-linear-groups": dict(
        seed=1131, type="kimi_linear", tokenizer="llama3", outtype="bf16", dtype="bfloat16", maker="kimi_linear", **LONG,
        config=dict(hidden_size=36, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=None, kv_lora_rank=48,
                    qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32, intermediate_size=40,
                    moe_intermediate_size=16, num_hidden_layers=4, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    first_k_dense_replace=2, topk_group=2, routed_scaling_factor=1.5,
                    linear_attn_config=dict(full_attn_layers=[2, 4], kda_layers=[1, 3], head_dim=48, num_heads=2,
                                            short_conv_kernel_size=4),
                    **kimi(n_experts=8, n_used=3, n_shared=2, n_groups=4, renormalize=False))),
    "olmo3": dict(
        seed=1041, type="olmo3", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=58,
                    num_hidden_layers=5, max_position_embeddings=512, sliding_window=18, rms_norm_eps=1e-6,
                    tie_word_embeddings=False,
                    rope_parameters=dict(
                        full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=8.0, beta_fast=32.0,
                                            beta_slow=1.0, original_max_position_embeddings=64),
                        sliding_attention=dict(rope_type="default", rope_theta=500000.0)))),
    "olmo3-plain": dict(
        seed=1042, type="olmo3", tokenizer="gpt2", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=4, intermediate_size=44,
                    num_hidden_layers=3, max_position_embeddings=512, sliding_window=20, rms_norm_eps=1e-6,
                    tie_word_embeddings=False,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "seed-oss": dict(
        seed=1043, type="seed_oss", tokenizer="llama3", v4=True, outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=1, head_dim=12, intermediate_size=60,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    attention_bias=True, attention_out_bias=False, mlp_bias=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000000.0))),
    "exaone4": dict(
        seed=1044, type="exaone4", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=58,
                    num_hidden_layers=5, max_position_embeddings=512, sliding_window=18, sliding_window_pattern=4,
                    rms_norm_eps=1e-5, tie_word_embeddings=False,
                    layer_types=3 * ["sliding_attention"] + ["full_attention", "sliding_attention"],
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "exaone4-full": dict(
        seed=1045, type="exaone4", tokenizer="gpt2", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48,
                    num_hidden_layers=2, max_position_embeddings=512, sliding_window=None,
                    sliding_window_pattern=None, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    layer_types=2 * ["full_attention"],
                    rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64))),
    "arcee": dict(
        seed=1046, type="arcee", tokenizer="llama3", v4=True, outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=60,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0,
                                         beta_slow=1.0, original_max_position_embeddings=64))),
    "granitemoe": dict(
        seed=1047, type="granitemoe", tokenizer="starcoder", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=1, intermediate_size=22,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    num_local_experts=6, num_experts_per_tok=3, embedding_multiplier=4.0, residual_multiplier=0.45,
                    attention_multiplier=0.23, logits_scaling=3.0,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "starcoder2": dict(
        seed=1052, type="starcoder2", tokenizer="starcoder", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=70,
                    num_hidden_layers=2, max_position_embeddings=512, norm_epsilon=1e-5, use_bias=True,
                    sliding_window=None, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=100000.0))),
    "starcoder2-window": dict(
        seed=1053, type="starcoder2", tokenizer="starcoder", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=64,
                    num_hidden_layers=3, max_position_embeddings=512, norm_epsilon=1e-5, use_bias=True,
                    sliding_window=20, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "stablelm": dict(
        seed=1054, type="stablelm", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=66,
                    num_hidden_layers=2, max_position_embeddings=512, layer_norm_eps=1e-5, use_qkv_bias=True,
                    qk_layernorm=False, use_parallel_residual=False, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "stablelm-parallel": dict(
        seed=1055, type="stablelm", tokenizer="gpt2", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=2, intermediate_size=48,
                    num_hidden_layers=3, max_position_embeddings=512, layer_norm_eps=1e-5, use_qkv_bias=False,
                    qk_layernorm=False, use_parallel_residual=True, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))),
    "gptneox": dict(
        seed=1056, type="gpt_neox", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, intermediate_size=70, num_hidden_layers=3,
                    max_position_embeddings=512, layer_norm_eps=1e-5, use_parallel_residual=True,
                    tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.4))),
    "gptneox-serial": dict(
        seed=1057, type="gpt_neox", tokenizer="gpt2", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, intermediate_size=64, num_hidden_layers=2,
                    max_position_embeddings=512, layer_norm_eps=1e-5, use_parallel_residual=False,
                    tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0))),
    # E2B and E4B: per-layer embeddings, K/V shared by the last layers, whose FFNs are wider
    "gemma4-e": dict(
        seed=1070, type="gemma4_text", tokenizer="gemma", outtype="f32", hub=True,
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=16, global_head_dim=24,
                    intermediate_size=36, num_hidden_layers=6, max_position_embeddings=512, sliding_window=18,
                    layer_types=2 * ["sliding_attention"] + ["full_attention"] + 2 * ["sliding_attention"]
                    + ["full_attention"],
                    num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=12,
                    final_logit_softcapping=9.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
                    rope_parameters=GEMMA4_ROPE)),
    # 26B-A4B: experts beside the FFN, V from K; a folder with a vision part
    "gemma4-moe": dict(
        seed=1071, type="gemma4", tokenizer="gemma", outtype="bf16", dtype="bfloat16", hub=True,
        vision=GEMMA4_VISION,
        config=dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, num_global_key_value_heads=1,
                    head_dim=16, global_head_dim=32, attention_k_eq_v=True, intermediate_size=28,
                    num_hidden_layers=4, max_position_embeddings=512, sliding_window=20,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                    hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2,
                    moe_intermediate_size=16, final_logit_softcapping=12.0, rms_norm_eps=1e-6,
                    tie_word_embeddings=True, rope_parameters=GEMMA4_ROPE)),
    # 31B: the same without experts, by the defaults of layer_types
    "gemma4": dict(
        seed=1072, type="gemma4_text", tokenizer="gemma", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=2, num_global_key_value_heads=1,
                    head_dim=16, global_head_dim=32, attention_k_eq_v=True, intermediate_size=40,
                    num_hidden_layers=6, max_position_embeddings=512, sliding_window=16,
                    hidden_size_per_layer_input=0, rms_norm_eps=1e-6, tie_word_embeddings=True,
                    rope_parameters=GEMMA4_ROPE)),
    # 12B: its own type of folder, with vision and audio parts
    "gemma4-unified": dict(
        seed=1073, type="gemma4_unified", tokenizer="gemma", outtype="f32",
        vision=dict(patch_size=4, pooling_kernel_size=2, mm_embed_dim=32, mm_posemb_size=16, output_proj_dims=32),
        audio=dict(audio_embed_dim=16),
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, num_global_key_value_heads=1,
                    head_dim=16, global_head_dim=32, attention_k_eq_v=True, intermediate_size=40,
                    num_hidden_layers=3, max_position_embeddings=512, sliding_window=16,
                    layer_types=2 * ["sliding_attention"] + ["full_attention"],
                    final_logit_softcapping=10.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
                    rope_parameters=GEMMA4_ROPE)),
    # Ling 2, whose layers are GLM-4.5's with groups of experts
    "bailingmoe2": dict(
        seed=1200, type="glm4_moe", maker="bailing_moe_v2", tokenizer="llama3", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=44,
                    moe_intermediate_size=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1,
                    first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
                    use_qk_norm=True, attention_bias=False, num_hidden_layers=3, max_position_embeddings=512,
                    rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=600000.0, partial_rotary_factor=0.5))),
    "bailingmoe2-shared": dict(
        seed=1201, type="glm4_moe", maker="bailing_moe_v2", tokenizer="llama3", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=12, intermediate_size=40,
                    moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
                    first_k_dense_replace=1, n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
                    use_qk_norm=True, attention_bias=False, num_hidden_layers=3, max_position_embeddings=512,
                    rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0,
                                         beta_slow=1.0, original_max_position_embeddings=64,
                                         partial_rotary_factor=1.0))),
    "gpt2-inner": dict(
        seed=1216, type="gpt2", tokenizer="gpt2", outtype="bf16", dtype="bfloat16",
        config=dict(n_embd=32, n_head=2, n_layer=2, n_positions=144, n_inner=72, layer_norm_epsilon=1e-5,
                    tie_word_embeddings=True)),
    "bloom-pairs": dict(
        seed=1220, type="bloom", tokenizer="gpt2", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, n_head=2, n_layer=2, layer_norm_epsilon=1e-5, tie_word_embeddings=True)),
    "mpt-pairs": dict(
        seed=1218, type="mpt", tokenizer="gpt2", outtype="bf16", dtype="bfloat16",
        config=dict(d_model=32, n_heads=2, n_layers=2, expansion_ratio=4, max_seq_len=512, layer_norm_epsilon=1e-5,
                    no_bias=True, tie_word_embeddings=True, attn_config=dict(alibi=True, alibi_bias_max=8))),
    "apertus-plain": dict(
        seed=1208, type="apertus", tokenizer="llama3", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=12000000.0))),
    "phimoe-window": dict(
        seed=1206, type="phimoe", tokenizer="phi3", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=48, num_attention_heads=4, num_key_value_heads=1, intermediate_size=16,
                    num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=512,
                    original_max_position_embeddings=256, router_jitter_noise=0.02, rms_norm_eps=1e-5,
                    attention_bias=False, lm_head_bias=False, tie_word_embeddings=False, sliding_window=40,
                    rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, short_factor=PHI3_SHORT,
                                         long_factor=PHI3_LONG, short_mscale=1.2, long_mscale=1.2,
                                         original_max_position_embeddings=256))),
    # Scout: experts in every layer, norms of Q and K
    "llama4": dict(
        seed=1202, type="llama4_text", tokenizer="harmony", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=20,
                    intermediate_size_mlp=44, num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=1,
                    interleave_moe_layer_step=1, max_position_embeddings=512, attention_chunk_size=40,
                    use_qk_norm=True, attn_temperature_tuning=True, floor_scale=16, attn_scale=0.3,
                    rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=16.0, low_freq_factor=1.0,
                                         high_freq_factor=1.0, original_max_position_embeddings=64))),
    # Maverick: experts in every second layer, no such norms
    "llama4-dense": dict(
        seed=1203, type="llama4_text", tokenizer="harmony", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=16,
                    intermediate_size_mlp=40, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=2,
                    interleave_moe_layer_step=2, max_position_embeddings=512, attention_chunk_size=32,
                    no_rope_layer_interval=3, use_qk_norm=False, attn_temperature_tuning=True, floor_scale=24,
                    attn_scale=0.2, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    "llama4-vision": dict(
        seed=1204, type="llama4", tokenizer="harmony", outtype="bf16", dtype="bfloat16",
        vision=dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                    vision_output_dim=16, image_size=28, patch_size=14, projector_input_dim=16,
                    projector_output_dim=16),
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=16,
                    intermediate_size_mlp=40, num_hidden_layers=4, num_local_experts=5, num_experts_per_tok=1,
                    interleave_moe_layer_step=2, max_position_embeddings=512, attention_chunk_size=32,
                    no_rope_layer_interval=4, use_qk_norm=False, attn_temperature_tuning=True, floor_scale=24,
                    attn_scale=0.2, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    # transformers 5.17 divides by short_factor at any length, unlike the maker: both are the same here
    "phimoe": dict(
        seed=1205, type="phimoe", tokenizer="phi3", outtype="f32",
        config=dict(hidden_size=24, num_attention_heads=2, num_key_value_heads=1, intermediate_size=12,
                    num_hidden_layers=2, num_local_experts=6, num_experts_per_tok=2, max_position_embeddings=256,
                    original_max_position_embeddings=64, router_jitter_noise=0.1, rms_norm_eps=1e-5,
                    attention_bias=True, lm_head_bias=True, tie_word_embeddings=False, sliding_window=None,
                    rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, short_factor=PHI3_SHORT,
                                         long_factor=PHI3_SHORT, short_mscale=1.1, long_mscale=1.25,
                                         original_max_position_embeddings=64))),
    "apertus": dict(
        seed=1207, type="apertus", tokenizer="llama3", outtype="f32",
        config=dict(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, intermediate_size=36,
                    num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64))),
    "gpt2": dict(
        seed=1215, type="gpt2", tokenizer="gpt2", outtype="f32",
        config=dict(n_embd=24, n_head=3, n_layer=3, n_positions=160, layer_norm_epsilon=1e-5,
                    tie_word_embeddings=True)),
    "mpt": dict(
        seed=1217, type="mpt", tokenizer="gpt2", outtype="f32",
        config=dict(d_model=24, n_heads=3, n_layers=3, expansion_ratio=4, max_seq_len=512, layer_norm_epsilon=1e-5,
                    no_bias=True, tie_word_embeddings=True, attn_config=dict(alibi=True, alibi_bias_max=8))),
    "bloom": dict(
        seed=1219, type="bloom", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=24, n_head=3, n_layer=3, layer_norm_epsilon=1e-5, tie_word_embeddings=True)),
    "mistral4": dict(
        seed=1223, type="mistral4", of_class="Mistral4ForCausalLM", tokenizer="llama3", outtype="bf16",
        dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=32,
                    qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=20, intermediate_size=40,
                    moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
                    first_k_dense_replace=0, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.0,
                    num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=10000.0, factor=8.0,
                                         original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0,
                                         mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    "mistral4-dense": dict(
        seed=1224, type="mistral4", of_class="Mistral4ForCausalLM", tokenizer="llama3", outtype="bf16",
        dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=16, kv_lora_rank=32,
                    qk_rope_head_dim=16, qk_nope_head_dim=12, v_head_dim=16, intermediate_size=40,
                    moe_intermediate_size=12, n_routed_experts=5, num_experts_per_tok=3, n_shared_experts=1,
                    first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=False, routed_scaling_factor=1.5,
                    num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=1000000.0, factor=16.0,
                                         original_max_position_embeddings=24, beta_fast=32.0, beta_slow=1.0,
                                         mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
    "muse-glimmer": dict(
        seed=1225, type="muse_glimmer", tokenizer="harmony", outtype="bf16", dtype="bfloat16",
        vision=GLIMMER_VISION, around=GLIMMER_AROUND,
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=36,
                    num_hidden_layers=5, max_position_embeddings=512, sliding_window=24, rms_norm_eps=1e-5,
                    final_logit_softcapping=20.0, qk_scale_factor=3.87, output_multiplier=0.4,
                    tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    "muse-glimmer-short": dict(
        seed=1226, type="muse_glimmer", tokenizer="harmony", outtype="bf16", dtype="bfloat16",
        vision=GLIMMER_VISION, around=GLIMMER_AROUND,
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48,
                    num_hidden_layers=4, max_position_embeddings=512, sliding_window=20, rms_norm_eps=1e-5,
                    final_logit_softcapping=9.0, qk_scale_factor=2.0, output_multiplier=0.7,
                    tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
}

FAMILIES |= HEADS | COHERE
