"""Makes tiny folders of quantized weights: make.py OUT [FAMILY ...]

OUT/FAMILY-FORMAT/ holds a random llama or qwen3_moe whose matrices are packed as AutoAWQ, GPTQModel,
compressed-tensors, ModelOpt and transformers' FP8 write them, OUT/FAMILY-FORMAT-plain/ the same
model in F32: each value as these libraries dequantize it. Tokenizers are the golden models'.
Standard library only; the same bytes every time.
"""

import json
import os
import random
import shutil
import struct
import sys

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "..", "golden", "arch")
GROUP = 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]

FAMILIES = {
    "llama": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "vocab_size": 301,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "bos_token_id": 296, "eos_token_id": 300, "hidden_act": "silu",
    },
    "qwen3moe": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64,
        "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4,
        "num_experts_per_tok": 2, "norm_topk_prob": True, "max_position_embeddings": 512,
        "vocab_size": 299, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "eos_token_id": 298, "hidden_act": "silu",
    },
}  # fmt: skip

COMPRESSED = {"quant_method": "compressed-tensors"}
FORMATS = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False},
    "gptq-order": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"},
    "w4a16": {**COMPRESSED, "format": "pack-quantized"},
    "w8a16": {**COMPRESSED, "format": "pack-quantized"},
    "fp8": {"quant_method": "fp8", "weight_block_size": [32, 32]},
    "fp8-channel": {**COMPRESSED, "format": "float-quantized"},
    "nvfp4": {**COMPRESSED, "format": "nvfp4-pack-quantized"},
    "nvfp4-modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def bf16(x):
    """Only the first 8 digits: exact for what is stored."""
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", x))[0] & 0xFFFF0000))[0]


def e4m3(b):
    e, m = b >> 3 & 15, b & 7
    v = (1 + m / 8) * 2.0 ** (e - 7) if e else m * 2.0**-9
    return -v if b & 128 else v


def pack(values, dtype):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    code = {"F32": "f", "F16": "e", "I32": "I", "I64": "q", "U8": "B", "F8_E4M3": "B"}[dtype]
    return struct.pack(f"<{len(values)}{code}", *values)


def flat(rows):
    return [v for row in rows for v in row]


def words(rows, bits):
    """Each row's values in 32-bit words, the first in the lowest bits."""
    each = 32 // bits
    return [[sum(v << bits * i for i, v in enumerate(row[at : at + each])) for at in range(0, len(row), each)]
            for row in rows]  # fmt: skip


def turn(rows):
    return [list(row) for row in zip(*rows)]


class Folder:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.packed, self.plain = {}, {}  # name: (dtype, shape, bytes)

    def add(self, name, dtype, shape, values):
        self.packed[name] = dtype, shape, pack(values, dtype)

    def vector(self, name, shape, centre, spread):
        n = 1
        for d in shape:
            n *= d
        values = [f32(self.random.gauss(centre, spread)) for _ in range(n)]
        self.add(name, "F32", shape, values)
        self.plain[name] = self.packed[name]

    def integers(self, rows, cols, bits, symmetric, n_groups, stored):
        r, top = self.random, 1 << bits
        middle, width = top // 2, top / 6
        zeros = [[middle if symmetric else middle + r.randrange(-3, 4) for _ in range(n_groups)] for _ in range(rows)]
        scales = [[stored(r.uniform(0.5, 1) * 0.4 / top * 2) for _ in range(n_groups)] for _ in range(rows)]
        q = [[min(top - 1, max(0, round(r.gauss(middle, width)))) for _ in range(cols)] for _ in range(rows)]
        return q, zeros, scales

    def matrix(self, module, kind, rows, cols):
        groups = cols // GROUP
        of = [c // GROUP for c in range(cols)]
        if kind.startswith("fp8"):
            values = self.fp8(module, kind, rows, cols)
        elif kind.startswith("nvfp4"):
            values = self.nvfp4(module, kind == "nvfp4", rows, cols)
        else:
            channel = kind == "w8a16"
            bits = 8 if channel else 4
            stored = bf16 if kind in ("w4a16", "w8a16") else f16
            if channel:
                groups, of = 1, [0] * cols
            q, z, s = self.integers(rows, cols, bits, kind in ("gptq", "w8a16"), groups, stored)
            if kind == "gptq-order":
                self.random.shuffle(of)
            if kind == "awq":
                self.awq(module, rows, cols, groups, q, z, s)
            elif kind.startswith("gptq"):
                self.gptq(module, rows, cols, groups, q, z, s, of)
            else:
                self.words(module, rows, cols, groups, bits, q, z, s, not channel)
            values = [f32((q[r][c] - z[r][of[c]]) * s[r][of[c]]) for r in range(rows) for c in range(cols)]
        self.plain[module + ".weight"] = "F32", [rows, cols], pack(values, "F32")

    def gptq(self, module, rows, cols, groups, q, z, s, of):
        self.add(module + ".qweight", "I32", [cols // 8, rows], flat(turn(words(q, 4))))
        zeros = words([[v - 1 for v in row] for row in turn(z)], 4)
        self.add(module + ".qzeros", "I32", [groups, rows // 8], flat(zeros))
        self.add(module + ".scales", "F16", [groups, rows], flat(turn(s)))
        self.add(module + ".g_idx", "I32", [cols], of)

    def awq(self, module, rows, cols, groups, q, z, s):
        def ordered(m):
            return words([[row[at + o] for at in range(0, rows, 8) for o in AWQ_ORDER] for row in turn(m)], 4)

        self.add(module + ".qweight", "I32", [cols, rows // 8], flat(ordered(q)))
        self.add(module + ".qzeros", "I32", [groups, rows // 8], flat(ordered(z)))
        self.add(module + ".scales", "F16", [groups, rows], flat(turn(s)))

    def words(self, module, rows, cols, groups, bits, q, z, s, zeros):
        each = 32 // bits
        self.add(module + ".weight_packed", "I32", [rows, cols // each], flat(words(q, bits)))
        self.add(module + ".weight_shape", "I64", [2], [rows, cols])
        self.add(module + ".weight_scale", "BF16", [rows, groups], flat(s))
        if zeros:
            self.add(module + ".weight_zero_point", "I32", [rows // each, groups], flat(turn(words(turn(z), bits))))

    def fp8(self, module, kind, rows, cols):
        r = self.random
        block = (32, 32) if kind == "fp8" else (1, cols)
        n = rows // block[0], cols // block[1]
        q = [[r.randrange(0x20, 0x78) | r.choice((0, 128)) for _ in range(cols)] for _ in range(rows)]
        s = [[f32(r.uniform(0.5, 1) * 0.003) for _ in range(n[1])] for _ in range(n[0])]
        self.add(module + ".weight", "F8_E4M3", [rows, cols], flat(q))
        self.add(module + (".weight_scale_inv" if kind == "fp8" else ".weight_scale"), "F32", list(n), flat(s))
        return [f32(e4m3(q[i][c]) * s[i // block[0]][c // block[1]]) for i in range(rows) for c in range(cols)]

    def nvfp4(self, module, compressed, rows, cols):
        r = self.random
        unit = f32(3000.7 if compressed else 1 / 3000.7)
        q = [[r.randrange(16) for _ in range(cols)] for _ in range(rows)]
        s = [[r.randrange(0x60, 0x78) for _ in range(cols // 16)] for _ in range(rows)]
        pairs = [[row[i] | row[i + 1] << 4 for i in range(0, cols, 2)] for row in q]
        self.add(module + (".weight_packed" if compressed else ".weight"), "U8", [rows, cols // 2], flat(pairs))
        self.add(module + ".weight_scale", "F8_E4M3", [rows, cols // 16], flat(s))
        self.add(module + (".weight_global_scale" if compressed else ".weight_scale_2"), "F32", [1], [unit])
        self.add(module + (".input_global_scale" if compressed else ".input_scale"), "F32", [1], [1.0])
        scale = [[f32(e4m3(b) / unit) if compressed else f32(e4m3(b) * unit) for b in row] for row in s]
        return [f32((-1 if q[i][c] & 8 else 1) * E2M1[q[i][c] & 7] * scale[i][c // 16])
                for i in range(rows) for c in range(cols)]  # fmt: skip


def write(path, tensors):
    header, data = {}, b""
    for name in sorted(tensors):
        dtype, shape, values = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def make(family, kind, out):
    config = FAMILIES[family]
    f = Folder(f"{family} {kind}")
    hidden, head = config["hidden_size"], config["head_dim"]
    f.vector("model.embed_tokens.weight", [config["vocab_size"], hidden], 0, 1)
    f.vector("model.norm.weight", [hidden], 1, 0.1)
    f.vector("lm_head.weight", [config["vocab_size"], hidden], 0, 0.2)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            f.vector(layer + name + ".weight", [hidden], 1, 0.1)
        n_q, n_kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
        for name, rows, cols in (("q", n_q, hidden), ("k", n_kv, hidden), ("v", n_kv, hidden), ("o", hidden, n_q)):
            f.matrix(f"{layer}self_attn.{name}_proj", kind, rows, cols)
        ffs = [("mlp.", config["intermediate_size"])]
        if "num_experts" in config:
            for name in ("q_norm", "k_norm"):
                f.vector(f"{layer}self_attn.{name}.weight", [head], 1, 0.1)
            f.vector(layer + "mlp.gate.weight", [config["num_experts"], hidden], 0, 0.3)
            ffs = [(f"mlp.experts.{x}.", config["moe_intermediate_size"]) for x in range(config["num_experts"])]
        for name, ff in ffs:
            f.matrix(f"{layer}{name}gate_proj", kind, ff, hidden)
            f.matrix(f"{layer}{name}up_proj", kind, ff, hidden)
            f.matrix(f"{layer}{name}down_proj", kind, hidden, ff)
    for suffix, tensors, extra in (("", f.packed, {"quantization_config": FORMATS[kind]}), ("-plain", f.plain, {})):
        folder = os.path.join(out, f"{family}-{kind}{suffix}")
        os.makedirs(folder)
        write(os.path.join(folder, "model.safetensors"), tensors)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump({**config, **extra}, file)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            source = os.path.join(GOLDEN, family, "hf", name)
            if os.path.exists(source):
                shutil.copy(source, folder)


if __name__ == "__main__":
    for family in sys.argv[2:] or FAMILIES:
        for kind in FORMATS:
            make(family, kind, sys.argv[1])
