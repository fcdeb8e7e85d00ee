"""Cohere's families; the form is that of families.py, which takes them in."""

COHERE = {
    "cohere2": dict(
        seed=1050, type="cohere2", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=58,
                    num_hidden_layers=5, max_position_embeddings=512, sliding_window=18, layer_norm_eps=1e-5,
                    logit_scale=0.25, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=50000.0))),
    "cohere": dict(
        seed=1051, type="cohere", tokenizer="gpt2", v4=True, outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=4, intermediate_size=48,
                    num_hidden_layers=2, max_position_embeddings=512, layer_norm_eps=1e-5, logit_scale=0.5,
                    tie_word_embeddings=True, use_qk_norm=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "cohere2moe": dict(  # as North Mini Code: its folder counts the dense layers and leaves out both lists
        seed=1231, type="cohere2_moe", tokenizer="gpt2", v4=True, outtype="bf16", dtype="bfloat16",
        patch=dict(layer_types=None, mlp_layer_types=None, first_k_dense_replace=1),
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=10, intermediate_size=10,
                    prefix_dense_intermediate_size=44, num_experts=6, num_experts_per_tok=2,
                    expert_selection_fn="sigmoid", norm_topk_prob=False, num_hidden_layers=6,
                    layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                                 "full_attention", "sliding_attention"],
                    mlp_layer_types=["dense"] + ["sparse"] * 5, max_position_embeddings=512, sliding_window=18,
                    layer_norm_eps=1e-5, logit_scale=0.25, tie_word_embeddings=True, rope_theta=50000.0)),
    "cohere2moe-shared": dict(
        seed=1232, type="cohere2_moe", tokenizer="gpt2", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=6, num_key_value_heads=2, head_dim=8, intermediate_size=12,
                    num_experts=5, num_experts_per_tok=3, num_shared_experts=2, expert_selection_fn="softmax",
                    num_hidden_layers=4,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                    max_position_embeddings=512, sliding_window=24, rms_norm_eps=1e-6, logit_scale=0.3,
                    tie_word_embeddings=True, rope_theta=10000.0)),
    "cohere2moe-norm": dict(
        seed=1233, type="cohere2_moe", tokenizer="gpt2", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=36, num_attention_heads=2, num_key_value_heads=1, head_dim=20, intermediate_size=12,
                    prefix_dense_intermediate_size=30, num_experts=7, num_experts_per_tok=3, num_shared_experts=1,
                    expert_selection_fn="sigmoid", norm_topk_prob=True, num_hidden_layers=4,
                    layer_types=["full_attention", "full_attention", "sliding_attention", "full_attention"],
                    mlp_layer_types=["dense", "dense", "sparse", "sparse"], max_position_embeddings=512,
                    sliding_window=20, layer_norm_eps=1e-5, logit_scale=0.75, tie_word_embeddings=False,
                    rope_theta=100000.0)),
}
