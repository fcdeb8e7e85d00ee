"""Folders whose matrices were packed and unpacked by the code of compressed-tensors and AutoGPTQ:
make_integers.py COMPRESSED_TENSORS AUTOGPTQ OUT, the first two checkouts of their sources. Needs torch 1.13 and numpy alone:
of compressed-tensors the functions that pack, unpack, quantize and dequantize are loaded by themselves, of AutoGPTQ the
linear layer that computes with torch. OUT/NAME is as make_exports.py writes it, without logits."""
import ast
import hashlib
import json
import math
import os
import struct
import sys
import types
from typing import Literal, Optional, Union

import numpy as np
import torch

CT, GPTQ, OUT = sys.argv[1:4]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 512, "vocab_size": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "hidden_act": "silu",
}  # fmt: skip
SHAPES = {
    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
}  # fmt: skip
GROUP = 32


def functions_of(path, names, scope):
    """Those functions of a source file, without what they are imported with."""
    with open(path) as f:
        tree = ast.parse(f.read())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    assert len(tree.body) == len(names), path
    exec(compile(tree, path, "exec"), scope)


class Strategy:
    BLOCK, GROUP, TENSOR_GROUP, CHANNEL = "block", "group", "tensor_group", "channel"


def compressed_tensors():
    def bounds(args, device):
        return (torch.tensor(float(s * (1 << (args.num_bits - 1)) - (s > 0)), device=device) for s in (-1, 1))

    scope = {
        "torch": torch, "math": math, "ceil": math.ceil, "Union": Union, "Literal": Literal, "Optional": Optional,
        "QuantizationArgs": types.SimpleNamespace, "QuantizationStrategy": Strategy, "calculate_range": bounds,
        "round_to_quantized_type": lambda x, args: torch.round(x),
    }  # fmt: skip
    root = os.path.join(CT, "src/compressed_tensors")
    functions_of(os.path.join(root, "compressors/quantized_compressors/pack_quantized.py"),
                 ("pack_to_int32", "unpack_from_int32"), scope)  # fmt: skip
    functions_of(os.path.join(root, "quantization/lifecycle/forward.py"),
                 ("_process_quantization", "_quantize", "_dequantize"), scope)  # fmt: skip
    return types.SimpleNamespace(**scope)


def limits(w, group):
    v = w.reshape(w.shape[0], -1, group)
    return v.amin(-1), v.amax(-1)


def compress(bits, group, symmetric, order):
    lib = compressed_tensors()

    def pack(w, seed):
        rows, cols = w.shape
        size = group or cols
        idx, sorted_w = None, w
        if order:
            idx = (torch.randperm(cols, generator=torch.Generator().manual_seed(seed)) // size).int()
            sorted_w = w[:, torch.argsort(idx.long(), stable=True)]
        low, high = limits(sorted_w, size)
        top = (1 << bits) - 1
        scale = (torch.maximum(-low, high) * 2 if symmetric else high - low) / top
        scale = scale.bfloat16()
        zero = None if symmetric else torch.clamp(torch.round(-low / scale.float()) - (1 << (bits - 1)), -8, 7).to(torch.int8)
        args = types.SimpleNamespace(strategy=Strategy.GROUP if group else Strategy.CHANNEL, group_size=size, num_bits=bits)
        one = {"args": args, "zero_point": zero, "g_idx": idx}
        q = lib._process_quantization(x=w, scale=scale.float(), do_dequantize=False, dtype=torch.int8, **one)
        out = {"weight_packed": lib.pack_to_int32(q, bits), "weight_shape": torch.tensor(w.shape), "weight_scale": scale}
        if idx is not None:
            out["weight_g_idx"] = idx
        if zero is not None:
            out["weight_zero_point"] = lib.pack_to_int32(zero, bits, packed_dim=0).contiguous()
            one["zero_point"] = lib.unpack_from_int32(out["weight_zero_point"], bits, (rows, scale.shape[1]), packed_dim=0)
        unpacked = lib.unpack_from_int32(out["weight_packed"], bits, w.shape)
        plain = lib._process_quantization(x=unpacked, scale=scale.float(), do_quantize=False, dtype=torch.float32, **one)
        return out, plain

    return pack


def autogptq(order):
    class Conv1D:
        pass

    sys.modules["transformers"] = types.SimpleNamespace(pytorch_utils=types.SimpleNamespace(Conv1D=Conv1D))
    scope = {"__name__": "qlinear"}
    path = os.path.join(GPTQ, "auto_gptq/nn_modules/qlinear/qlinear_cuda.py")
    with open(path) as f:
        exec(compile(f.read(), path, "exec"), scope)

    def pack(w, seed):
        rows, cols = w.shape
        idx = (torch.arange(cols) // GROUP).int()
        if order:
            idx = idx[torch.randperm(cols, generator=torch.Generator().manual_seed(seed))]
        low, high = limits(w[:, torch.argsort(idx.long(), stable=True)], GROUP)
        scale = ((high - low) / 15).half().float()
        zero = torch.clamp(torch.round(-low / scale), 1, 15)
        of = idx.long()
        near = torch.clamp(torch.round(w / scale[:, of]) + zero[:, of], 0, 15) - zero[:, of]
        linear = torch.nn.Linear(cols, rows, bias=False)
        linear.weight.data = near * scale[:, of]
        layer = scope["QuantLinear"](4, GROUP, cols, rows, False, weight_dtype=torch.float32)
        layer.pack(linear, scale.clone(), zero.clone(), idx)
        # In f32 its forward pass on the unit matrix gives the matrix that it computes with.
        plain = layer(torch.eye(cols)).t().contiguous()
        out = {"qweight": layer.qweight, "qzeros": layer.qzeros, "scales": layer.scales.half(), "g_idx": layer.g_idx}
        assert torch.equal(out["scales"].float(), layer.scales)
        return out, plain

    return pack


def bytes_of(t):
    if t.dtype == torch.bfloat16:
        return t.contiguous().view(torch.int16).numpy().astype("<i2").tobytes()
    return np.ascontiguousarray(t.numpy()).tobytes()


def write_safetensors(path, tensors):
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.int64: "I64"}
    header, data = {}, b""
    for name in sorted(tensors, key=lambda n: -tensors[n].element_size()):
        one = bytes_of(tensors[name])
        header[name] = {"dtype": names[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [len(data), len(data) + len(one)]}  # fmt: skip
        data += one
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def make(name, library, quantization, pack):
    gen = torch.Generator().manual_seed(len(name))
    tensors, weights = {}, {}
    for seed, (module, shape) in enumerate(SHAPES.items()):
        out, plain = pack(torch.randn(shape, generator=gen) * 0.15, seed)
        module = f"model.layers.0.{module}"
        tensors.update({f"{module}.{k}": v for k, v in out.items()})
        weights[module + ".weight"] = {"shape": list(shape), **{
            k: hashlib.sha256(bytes_of(plain.to(t))).hexdigest()
            for k, t in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16))}}  # fmt: skip
    tensors["model.embed_tokens.weight"] = torch.randn((8, 64), generator=gen).bfloat16()
    for norm in ("norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"):
        tensors[f"model.{norm}.weight"] = torch.ones(64).bfloat16()
    os.makedirs(os.path.join(OUT, name, "hf"), exist_ok=True)
    write_safetensors(os.path.join(OUT, name, "hf/model.safetensors"), tensors)
    with open(os.path.join(OUT, name, "hf/config.json"), "w") as f:
        json.dump({**CONFIG, "quantization_config": quantization}, f, indent=1)
    with open(os.path.join(OUT, name, "golden.json"), "w") as f:
        json.dump({"made_by": "make_integers.py", "torch": torch.__version__, "notes": {"library": library}, "weights": weights},
                  f, indent=0)  # fmt: skip


def integers(bits, group, symmetric, order):
    weights = {"num_bits": bits, "type": "int", "strategy": "group" if group else "channel", "group_size": group,
               "symmetric": symmetric, "actorder": "group" if order else None}  # fmt: skip
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
            "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}  # fmt: skip


for name, *kind in (("w4a16", 4, GROUP, True, False), ("w4a16-zeros", 4, GROUP, False, False),
                    ("w4a16-order", 4, GROUP, True, True), ("w8a16", 8, None, True, False)):  # fmt: skip
    make(name, "compressed-tensors at 52792be0", integers(*kind), compress(*kind))
make("gptq-order", "AutoGPTQ at 9f7d370",
     {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": True}, autogptq(True))  # fmt: skip
