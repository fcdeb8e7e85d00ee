"""What the makers' config.json have and transformers does not save: llama.cpp's converter knows some families only by
the members that the makers wrote."""

CLASSES = {"ExaoneMoeForCausalLM": "ExaoneMoEForCausalLM", "MptForCausalLM": "MPTForCausalLM",
           "PhimoeForCausalLM": "PhiMoEForCausalLM", "Mistral4ForCausalLM": "Mistral3ForConditionalGeneration"}
SCORES = {"deepseek2": "softmax", "deepseek3": "sigmoid", "dots1": "sigmoid", "exaone-moe": "sigmoid",
          "minimax-m2": "sigmoid"}
LETTERS = dict(linear_attention="M", mlp="-", moe="E", full_attention="*")


def gemma4(c):
    text = c.get("text_config", c)
    layer = next(iter(text.pop("per_layer_config", {}).values()), None)
    if layer:
        text.update(global_head_dim=layer["head_dim"], num_global_key_value_heads=layer.get("num_key_value_heads"))
    text.setdefault("moe_intermediate_size", None)


def granitehybrid(c):
    names = dict(linear_attention="mamba", full_attention="attention")
    c["layer_types"] = [names[t] for t in c["layer_types"]]


def gptneox(c):
    rope = c.pop("rope_parameters", None)
    if rope:
        c.update(rotary_pct=rope.get("partial_rotary_factor", 1.0), rotary_emb_base=rope["rope_theta"])


def mimo2(c):
    rope, windowed = c.pop("rope_parameters"), [int(t == "sliding_attention") for t in c.pop("layer_types")]
    full, local = rope["full_attention"], rope["sliding_attention"]
    c.update(swa_head_dim=c["head_dim"], swa_v_head_dim=c["v_head_dim"], topk_method="noaux_tc", scoring_func="sigmoid",
             swa_num_attention_heads=c["num_attention_heads"], swa_num_key_value_heads=2 * c["num_key_value_heads"],
             hybrid_layer_pattern=windowed, moe_layer_freq=[int(t == "sparse") for t in c.pop("mlp_layer_types")],
             layernorm_epsilon=c.pop("rms_norm_eps"), rope_theta=full["rope_theta"], swa_rope_theta=local["rope_theta"],
             partial_rotary_factor=full["partial_rotary_factor"])


def nemotron_h(c):
    kinds = c.pop("layers_block_type")
    c.update(num_hidden_layers=len(kinds), hybrid_override_pattern="".join(LETTERS[k] for k in kinds),
             rms_norm_eps=c["layer_norm_epsilon"], mamba_d_head=c["mamba_head_dim"])
    if "moe" not in kinds:
        of_experts = ("n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor")
        for name in [n for n in c if "expert" in n or n.startswith("moe_") or n in of_experts]:
            del c[name]


def nomic(c):
    names = dict(n_embd="hidden_size", n_head="num_attention_heads", n_layer="num_hidden_layers",
                 n_inner="intermediate_size", layer_norm_epsilon="layer_norm_eps")
    c.update({new: c.pop(old) for new, old in names.items()})
    for name in ["max_position_embeddings", "hidden_act", "head_dim"]:
        del c[name]
    c.update(n_positions=8192, max_trained_positions=2048, rotary_emb_base=c.pop("rope_parameters")["rope_theta"],
             rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None, causal=False,
             prenorm=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, activation_function="swiglu")


def change(name, config):
    """Changes the configuration of golden model `name`."""
    config["architectures"] = [CLASSES.get(c, c) for c in config["architectures"]]
    for family, score in SCORES.items():
        if name.startswith(family):
            config.setdefault("scoring_func", score)
    if name.startswith("modern"):
        config["layer_norm_eps"] = config["norm_eps"]
    if name == "afmoe":
        config.update(score_func="sigmoid", route_norm=True)
    if name == "glm4-moe-lite":
        config["first_k_dense_replace"] = config["mlp_layer_types"].count("dense")
    if name == "cohere2":
        config["rotary_pct"] = 1.0
    if name == "minimax-m2":
        config["rotary_dim"] = int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"])
    if name == "cohere2moe":
        config["layer_types"] = ["sliding_attention" if i % 4 else "full_attention" for i in range(6)]
    if name.startswith("bloom"):
        config["seq_length"] = 2048
    if name.startswith("gpt2"):
        config["n_ctx"] = config["n_positions"]
    if name.startswith("hunyuan"):
        config["max_position_embeddings"] = 32768  # the converter knows no other
    for family, edit in [("gemma4", gemma4), ("granitehybrid", granitehybrid), ("gptneox", gptneox),
                         ("mimo2", mimo2), ("nemotron-h", nemotron_h), ("nomic", nomic)]:
        if name.startswith(family):
            edit(config)
