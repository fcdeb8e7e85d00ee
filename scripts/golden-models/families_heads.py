"""Families whose layers differ in heads; the form is that of families.py, which takes them in."""

HEADS = {
    "laguna": dict(
        seed=1209, type="laguna", tokenizer="llama3", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_attention_heads_per_layer=[4, 6, 6, 2],
                    num_key_value_heads=2, head_dim=12, intermediate_size=40, moe_intermediate_size=12,
                    shared_expert_intermediate_size=16, num_experts=6, num_experts_per_tok=2,
                    moe_routed_scaling_factor=2.5, num_hidden_layers=4, max_position_embeddings=512,
                    sliding_window=24, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
                    mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                    rope_parameters=dict(
                        full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=8.0, beta_fast=64.0,
                                            beta_slow=1.0, attention_factor=1.0, original_max_position_embeddings=64,
                                            partial_rotary_factor=0.5),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=1.0)))),
    "laguna-full": dict(
        seed=1210, type="laguna", tokenizer="llama3", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=3, num_key_value_heads=1, head_dim=12, intermediate_size=40,
                    moe_intermediate_size=12, shared_expert_intermediate_size=12, num_experts=5,
                    num_experts_per_tok=3, moe_routed_scaling_factor=1.0, num_hidden_layers=3,
                    max_position_embeddings=512, sliding_window=24, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    layer_types=3 * ["full_attention"], mlp_layer_types=["dense", "sparse", "sparse"],
                    rope_parameters=dict(
                        full_attention=dict(rope_type="default", rope_theta=500000.0, partial_rotary_factor=0.5),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=1.0)))),
    # Step 3.5, whose layers are Laguna's with another gate and clamped FFNs
    "step35": dict(
        seed=1211, type="laguna", maker="step3p5", tokenizer="llama3", outtype="bf16", dtype="bfloat16",
        limits=[0, 0, 0.7, 0.5], shared_limits=[0, 0, 1.1, 0],
        config=dict(hidden_size=32, num_attention_heads=4, num_attention_heads_per_layer=[4, 6, 6, 4],
                    num_key_value_heads=2, head_dim=12, intermediate_size=40, moe_intermediate_size=12,
                    shared_expert_intermediate_size=16, num_experts=6, num_experts_per_tok=2,
                    moe_routed_scaling_factor=3.0, num_hidden_layers=4, max_position_embeddings=512,
                    sliding_window=24, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
                    mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                    rope_parameters=dict(
                        full_attention=dict(rope_type="llama3", rope_theta=500000.0, factor=2.0, low_freq_factor=1.0,
                                            high_freq_factor=32.0, original_max_position_embeddings=64,
                                            partial_rotary_factor=0.5),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=1.0)))),
    "step35-dense": dict(
        seed=1212, type="laguna", maker="step3p5", tokenizer="llama3", outtype="bf16", dtype="bfloat16",
        limits=[0, 0, 0], shared_limits=[0, 0.6, 0],
        config=dict(hidden_size=32, num_attention_heads=2, num_attention_heads_per_layer=[2, 4, 2],
                    num_key_value_heads=1, head_dim=12, intermediate_size=40, moe_intermediate_size=12,
                    shared_expert_intermediate_size=16, num_experts=5, num_experts_per_tok=2,
                    moe_routed_scaling_factor=1.5, num_hidden_layers=3, max_position_embeddings=512,
                    sliding_window=20, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    layer_types=["full_attention", "sliding_attention", "full_attention"],
                    mlp_layer_types=["dense", "dense", "sparse"],
                    rope_parameters=dict(
                        full_attention=dict(rope_type="default", rope_theta=500000.0, partial_rotary_factor=0.5),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=1.0)))),
    "mimo2": dict(
        seed=1213, type="mimo_v2_flash", tokenizer="qwen", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=24, v_head_dim=16,
                    intermediate_size=40, moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2,
                    n_group=1, topk_group=1, norm_topk_prob=True, num_hidden_layers=4, max_position_embeddings=512,
                    sliding_window=20, rms_norm_eps=1e-5, attention_value_scale=0.707, tie_word_embeddings=False,
                    layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
                    mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                    rope_parameters=dict(
                        full_attention=dict(rope_type="default", rope_theta=5000000.0, partial_rotary_factor=0.334),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=0.334)))),
    "mimo2-wide": dict(
        seed=1214, type="mimo_v2_flash", tokenizer="qwen", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=48, v_head_dim=32,
                    intermediate_size=40, moe_intermediate_size=12, n_routed_experts=5, num_experts_per_tok=3,
                    n_group=1, topk_group=1, norm_topk_prob=True, num_hidden_layers=3, max_position_embeddings=512,
                    sliding_window=24, rms_norm_eps=1e-5, attention_value_scale=None, tie_word_embeddings=False,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    mlp_layer_types=["dense", "sparse", "sparse"],
                    rope_parameters=dict(
                        full_attention=dict(rope_type="default", rope_theta=5000000.0, partial_rotary_factor=0.334),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=0.334)))),
    # Laguna M.1: a gate for each element
    "laguna-element": dict(
        seed=1227, type="laguna", tokenizer="llama3", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_attention_heads_per_layer=[4, 2, 6], gating="per-element",
                    num_key_value_heads=2, head_dim=12, intermediate_size=40, moe_intermediate_size=12,
                    shared_expert_intermediate_size=12, num_experts=5, num_experts_per_tok=2,
                    moe_routed_scaling_factor=1.7, num_hidden_layers=3, max_position_embeddings=512,
                    sliding_window=20, rms_norm_eps=1e-6, tie_word_embeddings=False,
                    layer_types=["full_attention", "sliding_attention", "full_attention"],
                    mlp_layer_types=["dense", "dense", "sparse"],
                    rope_parameters=dict(
                        full_attention=dict(rope_type="default", rope_theta=500000.0, partial_rotary_factor=0.5),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=1.0)))),
}
