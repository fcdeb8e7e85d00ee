"""Models whose makers' code is not in transformers: layers of a family that computes the same, saved with the makers'
names. What that family does otherwise is changed here, by what the makers' code does:

  Ling 2 (bailing_moe_v2)  GLM-4.5's layers: Q, K and V are one matrix, other names
  Kimi Linear (kimi_linear)  transformers' own layers, with the names of the maker's folders
  Step 3.5 (step3p5)       Laguna's layers: attention's gate is a sigmoid, some FFNs are clamped, norms are stored
                           minus 1
"""

import json
import re
import types

import torch


def clamped(gate, up, limit):
    gate = torch.nn.functional.silu(gate)
    return gate * up if not limit else gate.clamp(max=limit) * up.clamp(-limit, limit)


def change_step(model, family):
    import transformers.models.laguna.modeling_laguna as laguna
    functional = types.SimpleNamespace(**vars(torch.nn.functional))
    functional.softplus = torch.sigmoid
    laguna.F = functional

    def dense(mlp, limit):
        return lambda x: mlp.down_proj(clamped(mlp.gate_proj(x), mlp.up_proj(x), limit))

    def routed(experts, limit):
        def forward(x, chosen, weights):
            sum_ = torch.zeros_like(x)
            for row in range(len(x)):
                for e, w in zip(chosen[row].tolist(), weights[row]):
                    gate, up = (experts.gate_up_proj[e] @ x[row]).chunk(2)
                    sum_[row] += w * (experts.down_proj[e] @ clamped(gate, up, limit))
            return sum_
        return forward

    for i, layer in enumerate(model.model.layers):
        shared = getattr(layer.mlp, "shared_experts", None) or getattr(layer.mlp, "shared_expert", None)
        if shared is None:
            layer.mlp.forward = dense(layer.mlp, family["shared_limits"][i])
        else:
            shared.forward = dense(shared, family["shared_limits"][i])
            layer.mlp.experts.forward = routed(layer.mlp.experts, family["limits"][i])


def change(model, family):
    if family["maker"] == "step3p5":
        change_step(model, family)


def ling_tensors(tensors):
    out, qkv = {}, {}
    for name, t in tensors.items():
        name = name.replace("model.embed_tokens", "model.word_embeddings").replace("self_attn", "attention")
        name = name.replace("attention.o_proj", "attention.dense").replace("q_norm", "query_layernorm")
        name = name.replace("k_norm", "key_layernorm").replace("e_score_correction_bias", "expert_bias")
        if m := re.match(r"(.*attention)\.([qkv])_proj\.weight$", name):
            qkv.setdefault(m[1], {})[m[2]] = t
        elif m := re.match(r"(.*experts)\.gate_up_proj$", name):
            for e in range(len(t)):
                gate, up = t[e].chunk(2)
                out.update({f"{m[1]}.{e}.gate_proj.weight": gate, f"{m[1]}.{e}.up_proj.weight": up})
        elif m := re.match(r"(.*experts)\.down_proj$", name):
            out.update({f"{m[1]}.{e}.down_proj.weight": t[e] for e in range(len(t))})
        else:
            out[name] = t
    out.update({f"{k}.query_key_value.weight": torch.cat([v["q"], v["k"], v["v"]]) for k, v in qkv.items()})
    return out


def ling_config(c, family, common):
    rope = dict(c["rope_parameters"])
    config = dict(common, architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe", use_bias=False,
                  use_qkv_bias=False, use_qk_norm=True, num_experts=c["n_routed_experts"],
                  num_shared_experts=c["n_shared_experts"], score_function="sigmoid",
                  moe_router_enable_expert_bias=True, router_dtype="fp32", num_nextn_predict_layers=0,
                  rope_theta=rope.pop("rope_theta"), partial_rotary_factor=rope.pop("partial_rotary_factor"))
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    for key in ["num_experts_per_tok", "n_group", "topk_group", "first_k_dense_replace", "moe_intermediate_size",
                "norm_topk_prob", "routed_scaling_factor", "num_attention_heads", "num_key_value_heads"]:
        config[key] = c[key]
    return config


def step_tensors(tensors):
    out = {}
    for name, t in tensors.items():
        if "norm" in name:
            minus_1 = t.float() - 1
            exact = torch.equal(minus_1.to(t.dtype).float(), minus_1)
            t = minus_1.to(t.dtype) if exact else minus_1
        name = re.sub(r"mlp\.shared_experts?\.", "share_expert.", name)
        name = re.sub(r"mlp\.gate\.weight", "moe.gate.weight", name)
        name = re.sub(r"mlp\.(gate|experts)\.e_score_correction_bias", "moe.router_bias", name)
        if m := re.match(r"(.*)mlp\.experts\.gate_up_proj$", name):
            gate, up = t.chunk(2, dim=1)
            out.update({m[1] + "moe.gate_proj.weight": gate, m[1] + "moe.up_proj.weight": up})
        else:
            out[re.sub(r"mlp\.experts\.down_proj$", "moe.down_proj.weight", name)] = t
    return out


def step_config(c, family, common):
    ropes = [c["rope_parameters"][kind] for kind in c["layer_types"]]
    full = c["rope_parameters"]["full_attention"]
    heads = dict(zip(c["layer_types"], c["num_attention_heads_per_layer"]))
    sparse = [str(i) for i, kind in enumerate(c["mlp_layer_types"]) if kind == "sparse"]
    config = dict(common, architectures=["Step3p5ForCausalLM"], model_type="step3p5", att_impl_type="GQA",
                  num_attention_heads=heads["full_attention"], num_attention_groups=c["num_key_value_heads"],
                  attention_other_setting=dict(attention_type="sliding_attention", head_dim=c["head_dim"],
                                               num_attention_heads=heads["sliding_attention"],
                                               num_attention_groups=c["num_key_value_heads"]),
                  layer_types=c["layer_types"], sliding_window=c["sliding_window"], use_head_wise_attn_gate=True,
                  rope_theta=[r["rope_theta"] for r in ropes],
                  partial_rotary_factors=[r["partial_rotary_factor"] for r in ropes],
                  moe_layers_enum=",".join(sparse), moe_num_experts=c["num_experts"],
                  moe_top_k=c["num_experts_per_tok"], moe_intermediate_size=c["moe_intermediate_size"],
                  share_expert_dim=c["shared_expert_intermediate_size"], moe_router_activation="sigmoid",
                  moe_router_scaling_factor=c["moe_routed_scaling_factor"], norm_expert_weight=True,
                  use_moe_router_bias=True, need_fp32_gate=True, zero_centered=True, num_nextn_predict_layers=0,
                  swiglu_limits=family["limits"], swiglu_limits_shared=family["shared_limits"])
    if full["rope_type"] != "default":
        config["rope_scaling"] = {k: v for k, v in full.items() if k not in ("rope_theta", "partial_rotary_factor")}
        config["yarn_only_types"] = ["full_attention"]
    return config


KIMI = {"forget_gate_down": "f_a_proj", "forget_gate_up": "f_b_proj", "beta_proj": "b_proj",
        "output_gate_down": "g_a_proj", "output_gate_up": "g_b_proj"}


def kimi_tensors(tensors):
    out, moe = {}, "block_sparse_moe."
    for name, t in tensors.items():
        name = name.replace("linear_attn", "self_attn").replace("self_attn.forget_gate.", "self_attn.")
        for ours, theirs in KIMI.items():
            name = name.replace(ours, theirs)
        name = re.sub(r"\b([qkv])_conv(1d)?(\.conv(1d)?)?\.weight$", r"\1_conv1d.weight", name)
        name = re.sub(r"mlp\.(gate|experts)\.e_score", moe + "gate.e_score", name)
        name = re.sub(r"mlp\.(gate\.weight|shared_experts)", moe + r"\1", name)
        if name.endswith("A_log"):
            out[name] = t.reshape(1, 1, -1, 1)
        elif name.endswith("dt_bias"):
            out[name] = t.flatten()
        elif m := re.match(r"(.*self_attn\.)conv1d\.weight$", name):
            for part, weight in zip("qkv", t.chunk(3)):
                out[f"{m[1]}{part}_conv1d.weight"] = weight
        elif m := re.match(r"(.*)mlp\.experts\.gate_up_proj$", name):
            for e in range(len(t)):
                gate, up = t[e].chunk(2)
                out.update({f"{m[1]}{moe}experts.{e}.w1.weight": gate, f"{m[1]}{moe}experts.{e}.w3.weight": up})
        elif m := re.match(r"(.*)mlp\.experts\.down_proj$", name):
            out.update({f"{m[1]}{moe}experts.{e}.w2.weight": t[e] for e in range(len(t))})
        else:
            out[name] = t
    return out


def kimi_config(c, family, common):
    config = {k: v for k, v in c.items() if k not in KIMI_TWICE}
    return dict(common | config, architectures=["KimiLinearForCausalLM"], model_type="kimi_linear",
                topk_method="noaux_tc", moe_layer_freq=1, moe_router_activation_func="sigmoid", mla_use_nope=True,
                num_nextn_predict_layers=0, rope_theta=10000.0, rope_scaling=None, use_grouped_topk=True)


# What transformers calls otherwise than the maker: families.py has both names.
KIMI_TWICE = ["n_routed_experts", "num_local_experts", "num_experts_per_tok", "n_shared_experts", "n_group",
              "norm_topk_prob", "max_position_embeddings"]
MAKERS = {"kimi_linear": (kimi_tensors, kimi_config), "bailing_moe_v2": (ling_tensors, ling_config), "step3p5": (step_tensors, step_config)}


def save(model, family, folder):
    from safetensors.torch import save_file
    rename, describe = MAKERS[family["maker"]]
    tensors = {k: v.detach().contiguous() for k, v in rename(model.state_dict()).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    c, config = family["config"], model.config
    common = {k: c[k] for k in ["hidden_size", "head_dim", "intermediate_size", "num_hidden_layers",
                                "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"] if k in c}
    common.update(hidden_act="silu", vocab_size=config.vocab_size, bos_token_id=config.bos_token_id,
                  eos_token_id=config.eos_token_id, pad_token_id=0, torch_dtype=family.get("dtype", "float32"))
    (folder / "config.json").write_text(json.dumps(describe(c, family, common), indent=1))
    model.generation_config.save_pretrained(folder)
