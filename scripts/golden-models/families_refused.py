"""Configurations of families that inferd refuses today, for whoever adds one, and of others whose goldens are still to
be made: make.py takes them by name, and without names leaves them out. The form is that of families.py."""

REFUSED = {
    "falcon": dict(
        seed=1221, type="falcon", tokenizer="gpt2", outtype="f32",
        config=dict(hidden_size=48, num_attention_heads=4, num_hidden_layers=2, multi_query=True, parallel_attn=True,
                    new_decoder_architecture=False, alibi=False, bias=False, layer_norm_epsilon=1e-5,
                    max_position_embeddings=512, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "falcon-groups": dict(
        seed=1222, type="falcon", tokenizer="gpt2", outtype="bf16", dtype="bfloat16",
        config=dict(hidden_size=32, num_attention_heads=4, num_kv_heads=2, num_hidden_layers=2, parallel_attn=True,
                    new_decoder_architecture=True, alibi=False, bias=False, layer_norm_epsilon=1e-5,
                    max_position_embeddings=512, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
}
