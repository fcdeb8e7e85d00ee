"""The two models that these scripts make: their shapes, keys and tensors, and how a GGUF file stores each tensor.

A form has name, arch, transformers (its class there), template (of chats), config, eps, and
  tensors()             pairs (GGUF tensor name, Hugging Face name)
  to_file(hf, w)        a tensor as the file has it, before it is quantized; from_file(hf, w) is the inverse
  keys()                GGUF keys of the architecture
  hf_config()           config.json
Weights are float32 arrays by Hugging Face name, each as transformers has it.
"""
import numpy as np

import chatformat
import gguf

NORM = [("attn_norm", "input_layernorm")]
FFN = [("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj")]
ATTENTION = [("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"), ("attn_v", "self_attn.v_proj"),
             ("attn_output", "self_attn.o_proj")]


def _pairs(parts, i):
    for g, h in parts:
        yield "blk.%d.%s.weight" % (i, g), "model.layers.%d.%s.weight" % (i, h)


class LlamaForm:
    name, arch, transformers, template = "inferd-demo", "llama", "LlamaForCausalLM", chatformat.TEMPLATE
    eps = 1e-5
    config = {"vocab": 4096, "hidden": 512, "layers": 5, "heads": 8, "kv_heads": 2, "head_dim": 64, "ffn": 1152, "context": 8192,
              "theta": 50000.0}

    def tensors(self):
        yield "token_embd.weight", "model.embed_tokens.weight"
        for i in range(self.config["layers"]):
            yield from _pairs(NORM + ATTENTION + [("ffn_norm", "post_attention_layernorm")] + FFN, i)
        yield "output_norm.weight", "model.norm.weight"

    def _heads(self, hf):
        return {"q_proj": self.config["heads"], "k_proj": self.config["kv_heads"]}.get(hf.split(".")[-2])

    def to_file(self, hf, w):
        """Rows of Q and K heads go from half-split order (0, 1, .. | d/2, ..) to pair order (0, d/2, 1, d/2 + 1, ..)."""
        n = self._heads(hf)
        return w.reshape(n, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(w.shape) if n else w

    def from_file(self, hf, w):
        n = self._heads(hf)
        return w.reshape(n, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape) if n else w

    def keys(self):
        return [("rope.dimension_count", gguf.U32, self.config["head_dim"])]

    def hf_config(self):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": self.config["theta"], "mlp_bias": False}


class HybridForm:
    """Qwen3.5: three layers with a gated delta net, then one with gated attention."""
    name, arch, transformers, template = "inferd-hybrid", "qwen35", "Qwen3_5ForCausalLM", chatformat.TOOL_TEMPLATE
    eps = 1e-6
    config = {"vocab": 4096, "hidden": 256, "layers": 8, "heads": 4, "kv_heads": 1, "head_dim": 64, "ffn": 384, "context": 16384,
              "theta": 100000.0, "rotated": 32, "sections": [6, 5, 5], "interval": 4, "conv": 4, "k_heads": 2, "v_heads": 4,
              "state": 64}
    DELTA = [("attn_qkv", "linear_attn.in_proj_qkv"), ("attn_gate", "linear_attn.in_proj_z"),
             ("ssm_alpha", "linear_attn.in_proj_a"), ("ssm_beta", "linear_attn.in_proj_b"), ("ssm_conv1d", "linear_attn.conv1d"),
             ("ssm_norm", "linear_attn.norm"), ("ssm_out", "linear_attn.out_proj")]

    def recurrent(self, i):
        return (i + 1) % self.config["interval"] != 0

    def tensors(self):
        yield "token_embd.weight", "model.embed_tokens.weight"
        for i in range(self.config["layers"]):
            parts = NORM + [("post_attention_norm", "post_attention_layernorm")] + FFN
            if self.recurrent(i):
                yield from _pairs(parts + self.DELTA, i)
                yield "blk.%d.ssm_a" % i, "model.layers.%d.linear_attn.A_log" % i
                yield "blk.%d.ssm_dt.bias" % i, "model.layers.%d.linear_attn.dt_bias" % i
            else:
                yield from _pairs(parts + ATTENTION + [("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm")], i)
        yield "output_norm.weight", "model.norm.weight"

    def _moved(self, hf, w, inverse):
        """V heads: in a folder those of a K head stand together, in a file head h has K head h % k_heads. Rows of most
        tensors, columns of the last product."""
        c = self.config
        part = hf.split("linear_attn.")[-1].split(".")[0] if "linear_attn" in hf else ""
        if part not in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "conv1d", "A_log", "dt_bias", "out_proj"):
            return w
        axis = 1 if part == "out_proj" else 0
        start = 2 * c["k_heads"] * c["state"] if part in ("in_proj_qkv", "conv1d") else 0
        head, per = w.shape[axis] - start, c["v_heads"] // c["k_heads"]
        order = np.arange(head).reshape((per, c["k_heads"], -1) if inverse else (c["k_heads"], per, -1)).swapaxes(0, 1).ravel()
        return np.take(w, np.concatenate([np.arange(start), start + order]), axis)

    def to_file(self, hf, w):
        w = self._moved(hf, w, False)
        if hf.endswith("A_log"):
            return -np.exp(w)
        if hf.endswith("conv1d.weight"):
            return w[:, 0]
        return w + np.float32(1) if hf.endswith("norm.weight") and "linear_attn" not in hf else w

    def from_file(self, hf, w):
        if hf.endswith("A_log"):
            w = np.log(-w)
        elif hf.endswith("conv1d.weight"):
            w = w[:, None]
        elif hf.endswith("norm.weight") and "linear_attn" not in hf:
            w = w - np.float32(1)
        return self._moved(hf, w, True)

    def keys(self):
        c = self.config
        return [("rope.dimension_count", gguf.U32, c["rotated"]),
                ("rope.dimension_sections", (gguf.ARRAY, gguf.I32), c["sections"] + [0]),
                ("full_attention_interval", gguf.U32, c["interval"]), ("ssm.conv_kernel", gguf.U32, c["conv"]),
                ("ssm.state_size", gguf.U32, c["state"]), ("ssm.group_count", gguf.U32, c["k_heads"]),
                ("ssm.time_step_rank", gguf.U32, c["v_heads"]), ("ssm.inner_size", gguf.U32, c["v_heads"] * c["state"])]

    def hf_config(self):
        c = self.config
        return {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "full_attention_interval": c["interval"],
                "layer_types": ["linear_attention" if self.recurrent(i) else "full_attention" for i in range(c["layers"])],
                "linear_conv_kernel_dim": c["conv"], "linear_key_head_dim": c["state"], "linear_value_head_dim": c["state"],
                "linear_num_key_heads": c["k_heads"], "linear_num_value_heads": c["v_heads"],
                "rope_parameters": {"rope_type": "default", "rope_theta": c["theta"], "mrope_section": c["sections"],
                                    "mrope_interleaved": True, "partial_rotary_factor": c["rotated"] / c["head_dim"]}}


FORMS = {"llama": LlamaForm(), "hybrid": HybridForm()}


def common_keys(form):
    """GGUF keys of the architecture, in the file's order."""
    c, a = form.config, form.arch + "."
    return [(a + "vocab_size", gguf.U32, c["vocab"]), (a + "context_length", gguf.U32, c["context"]),
            (a + "embedding_length", gguf.U32, c["hidden"]), (a + "block_count", gguf.U32, c["layers"]),
            (a + "feed_forward_length", gguf.U32, c["ffn"]), (a + "attention.head_count", gguf.U32, c["heads"]),
            (a + "attention.head_count_kv", gguf.U32, c["kv_heads"]), (a + "attention.key_length", gguf.U32, c["head_dim"]),
            (a + "attention.value_length", gguf.U32, c["head_dim"]),
            (a + "attention.layer_norm_rms_epsilon", gguf.FLOAT, form.eps),
            *((a + name, kind, value) for name, kind, value in form.keys()), (a + "rope.freq_base", gguf.FLOAT, c["theta"])]


def config_json(form):
    c = form.config
    return {**form.hf_config(), "vocab_size": c["vocab"], "hidden_size": c["hidden"], "num_hidden_layers": c["layers"],
            "num_attention_heads": c["heads"], "num_key_value_heads": c["kv_heads"], "head_dim": c["head_dim"],
            "intermediate_size": c["ffn"], "max_position_embeddings": c["context"], "rms_norm_eps": form.eps, "hidden_act": "silu",
            "attention_bias": False, "tie_word_embeddings": True, "bos_token_id": chatformat.BOS, "eos_token_id": chatformat.END,
            "torch_dtype": "float32"}
