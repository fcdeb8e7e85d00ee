#!/usr/bin/env python3
"""Makes mixes.txt: which type llama.cpp's llama-quantize gives each tensor, from its --dry-run.

usage: make_mixes.py LLAMA_QUANTIZE COMMIT > mixes.txt
The models have every name and row length that the choice depends on, two rows a matrix, and zeros.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

MODELS = [  # name, layers, heads, kv_heads, n_embd, n_ff, experts, tied
    ("one-layer", 1, 4, 4, 256, 256, 0, 0),
    ("gqa-2", 32, 4, 2, 256, 512, 0, 0),
    ("gqa-4-tied", 33, 8, 2, 512, 768, 0, 1),
    ("gqa-80-layers", 80, 8, 1, 256, 256, 0, 0),
    ("mha-80-layers", 80, 4, 4, 256, 256, 0, 0),
    ("rows-of-288", 5, 9, 3, 288, 800, 0, 0),
    ("eight-experts", 17, 8, 2, 256, 256, 8, 0),
    ("four-experts", 17, 8, 2, 256, 512, 4, 0),
]
TYPES = """F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS
    Q3_K_L Q3_K_M Q3_K_S Q2_K Q2_K_S IQ3_M IQ3_S IQ3_XS IQ3_XXS IQ2_M IQ2_S IQ2_XS IQ2_XXS
    IQ1_M IQ1_S TQ2_0 TQ1_0""".split()
WITH_MATRIX = "Q5_0 Q4_0 IQ4_NL IQ4_XS Q3_K_M IQ3_M IQ3_XXS IQ2_M IQ1_S".split()
ROWS = 2


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def tensors(layers, n_embd, n_ff, experts, tied):
    yield "token_embd.weight", [n_embd, ROWS]
    if not tied:
        yield "output.weight", [n_embd, ROWS]
    yield "output_norm.weight", [n_embd]
    for i in range(layers):
        ffn = "_exps" if experts else ""
        depth = [experts] if experts else []
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{i}.{name}.weight", [n_embd, ROWS]
        for name, n in (("ffn_gate", n_embd), ("ffn_up", n_embd), ("ffn_down", n_ff)):
            yield f"blk.{i}.{name}{ffn}.weight", [n, ROWS] + depth
        if experts:
            yield f"blk.{i}.ffn_gate_inp.weight", [n_embd, experts]


def write_model(path, layers, heads, kv_heads, n_embd, n_ff, experts, tied):
    numbers = {
        "context_length": 512,
        "embedding_length": n_embd,
        "block_count": layers,
        "feed_forward_length": n_ff,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "rope.dimension_count": n_embd // heads,
        "vocab_size": ROWS,
    }
    if experts:
        numbers |= {"expert_count": experts, "expert_used_count": 2}
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    keys += [text("llama." + k) + struct.pack("<II", 4, v) for k, v in numbers.items()]
    keys.append(text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    listed = list(tensors(layers, n_embd, n_ff, experts, tied))
    out = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(keys)) + b"".join(keys)
    offset = 0
    for name, dims in listed:
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", 0, offset)
        n = 4
        for d in dims:
            n *= d
        offset += (n + 31) // 32 * 32
    out += b"\0" * (-len(out) % 32)
    with open(path, "wb") as f:
        f.write(out)
        f.truncate(len(out) + offset)


def write_matrix(path, layers, heads, kv_heads, n_embd, n_ff, experts, tied):
    """An importance matrix of ones, in the older form."""
    listed = [(n, d) for n, d in tensors(layers, n_embd, n_ff, experts, tied) if n.startswith("blk.")]
    with open(path, "wb") as f:
        f.write(struct.pack("<i", len(listed)))
        for name, dims in listed:
            n = dims[0] * (dims[2] if len(dims) > 2 else 1)
            f.write(struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 1, n))
            f.write(struct.pack("<f", 1) * n)


def chosen(quantize, path, name, matrix):
    args = ["--imatrix", matrix] if matrix else []
    run = subprocess.run([quantize, *args, "--dry-run", path, name], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    line = re.compile(r"\] (\S+) +- \[[^\]]*\], type = +(\w+), size =.*?MiB(?: -> .*\((\w+)\))?")
    found = line.findall(run.stdout + run.stderr)
    return {tensor: (to or kept).upper() for tensor, kept, to in found}


def run_lengths(types):
    out = []
    for t in types:
        if out and out[-1][0] == t:
            out[-1][1] += 1
        else:
            out.append([t, 1])
    return ",".join(f"{t}*{n}" for t, n in out)


def main():
    print(f"# Made by make_mixes.py from llama-quantize --dry-run (llama.cpp {sys.argv[2]}).")
    print("# A model (as in MODELS), then a line a type: each tensor's type, from the first layer on;")
    print("# gate, up and Q are 'rest' where they have one type. +imatrix: with an importance matrix.")
    for name, *shape in MODELS:
        layers, heads, kv_heads, n_embd, n_ff, experts, tied = shape
        print(f"model {name} {' '.join(str(x) for x in shape)}")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            write_model(path, *shape)
            matrix = os.path.join(folder, "m.dat")
            write_matrix(matrix, *shape)
            for type_name, given in [(t, "") for t in TYPES] + [(t, matrix) for t in WITH_MATRIX]:
                types = chosen(sys.argv[1], path, type_name, given)
                ffn = "_exps" if experts else ""
                per_layer = lambda role: [types[f"blk.{i}.{role}.weight"] for i in range(layers)]
                roles = ["attn_k", "attn_v", "attn_output", "ffn_down" + ffn]
                others = ["attn_q", "ffn_gate" + ffn, "ffn_up" + ffn]
                rest = set(sum([per_layer(r) for r in others], []))
                assert types["output_norm.weight"] == "F32"
                fields = [f"token_embd={types['token_embd.weight']}*1"]
                if len(rest) == 1:
                    fields.insert(0, f"rest={rest.pop()}")
                else:
                    roles += others
                if not tied:
                    fields.append(f"output={types['output.weight']}*1")
                for role in roles:
                    fields.append(f"{role}={run_lengths(per_layer(role))}")
                print(type_name + ("+imatrix" if given else ""), *fields)


main()
