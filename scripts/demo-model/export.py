"""Snaps trained weights to Q8_0 and writes the release: a GGUF file and a Hugging Face folder with the same values.

usage: export.py CHECKPOINT TOKENIZER_MODEL OUT_GGUF OUT_FOLDER
       export.py --from-gguf GGUF TOKENIZER_MODEL OUT_FOLDER     (only the folder, from a released file)

The released model is what the Q8_0 file holds: the folder's float32 weights are its exact dequantized values.
"""
import json
import os
import shutil
import sys

import numpy as np
import sentencepiece

import chatformat
import gguf
import quant

NAME, LICENSE = "inferd-demo", "mit"
CONFIG = {"vocab": 4096, "hidden": 512, "layers": 5, "heads": 8, "kv_heads": 2, "head_dim": 64, "ffn": 1152, "context": 8192,
          "theta": 50000.0, "eps": 1e-5}
SAMPLING = {"temperature": 0.7, "top_p": 0.9}  # what a request that says nothing gets
PARTS = [("attn_norm", "input_layernorm"), ("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"),
         ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"), ("ffn_norm", "post_attention_layernorm"),
         ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj")]


def names():
    """Pairs (GGUF tensor name, Hugging Face name)."""
    yield "token_embd.weight", "model.embed_tokens.weight"
    for i in range(CONFIG["layers"]):
        for g, h in PARTS:
            yield "blk.%d.%s.weight" % (i, g), "model.layers.%d.%s.weight" % (i, h)
    yield "output_norm.weight", "model.norm.weight"


def to_pairs(w, heads):
    """Rows of each head from half-split order (0, 1, .. | d/2, ..) to pair order (0, d/2, 1, d/2 + 1, ..)."""
    return w.reshape(heads, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def to_halves(w, heads):
    """The inverse of to_pairs."""
    return w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def heads_of(name):
    return {"attn_q": CONFIG["heads"], "attn_k": CONFIG["kv_heads"]}.get(name.split(".")[-2])


def tokenizer_keys(sp):
    tokens, scores, types = [], [], []
    for i in range(sp.get_piece_size()):
        tokens.append(sp.id_to_piece(i))
        scores.append(sp.get_score(i))
        types.append(2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else 1)
    return [("tokenizer.ggml.model", gguf.STRING, "llama"), ("tokenizer.ggml.pre", gguf.STRING, "default"),
            ("tokenizer.ggml.tokens", (gguf.ARRAY, gguf.STRING), tokens),
            ("tokenizer.ggml.scores", (gguf.ARRAY, gguf.FLOAT), scores),
            ("tokenizer.ggml.token_type", (gguf.ARRAY, gguf.I32), types),
            ("tokenizer.ggml.bos_token_id", gguf.U32, chatformat.BOS), ("tokenizer.ggml.eos_token_id", gguf.U32, chatformat.END),
            ("tokenizer.ggml.eot_token_id", gguf.U32, chatformat.END), ("tokenizer.ggml.unknown_token_id", gguf.U32, chatformat.UNK),
            ("tokenizer.ggml.add_bos_token", gguf.BOOL, True), ("tokenizer.ggml.add_eos_token", gguf.BOOL, False),
            ("tokenizer.ggml.add_space_prefix", gguf.BOOL, False),
            ("tokenizer.ggml.remove_extra_whitespaces", gguf.BOOL, False),
            ("tokenizer.chat_template", gguf.STRING, chatformat.TEMPLATE)]


def model_keys():
    c = CONFIG
    return [("general.architecture", gguf.STRING, "llama"), ("general.name", gguf.STRING, NAME),
            ("general.license", gguf.STRING, LICENSE), ("general.file_type", gguf.U32, 7),
            ("general.quantization_version", gguf.U32, 2), ("general.alignment", gguf.U32, gguf.ALIGNMENT),
            ("general.sampling.temp", gguf.FLOAT, SAMPLING["temperature"]),
            ("general.sampling.top_p", gguf.FLOAT, SAMPLING["top_p"]),
            ("llama.vocab_size", gguf.U32, c["vocab"]), ("llama.context_length", gguf.U32, c["context"]),
            ("llama.embedding_length", gguf.U32, c["hidden"]), ("llama.block_count", gguf.U32, c["layers"]),
            ("llama.feed_forward_length", gguf.U32, c["ffn"]), ("llama.attention.head_count", gguf.U32, c["heads"]),
            ("llama.attention.head_count_kv", gguf.U32, c["kv_heads"]), ("llama.attention.key_length", gguf.U32, c["head_dim"]),
            ("llama.attention.value_length", gguf.U32, c["head_dim"]),
            ("llama.attention.layer_norm_rms_epsilon", gguf.FLOAT, c["eps"]),
            ("llama.rope.dimension_count", gguf.U32, c["head_dim"]), ("llama.rope.freq_base", gguf.FLOAT, c["theta"])]


def write_gguf(weights, sp, path):
    """weights: dict of float32 arrays by Hugging Face name."""
    tensors = []
    for g, h in names():
        w = weights[h]
        if w.ndim == 1:
            tensors.append((g, w))
            continue
        heads = heads_of(g)
        tensors.append((g, quant.quantize(to_pairs(w, heads) if heads else w)))
    gguf.write(path, model_keys() + tokenizer_keys(sp), tensors)


def read_gguf(path):
    """Weights of a released file as float32 arrays by Hugging Face name."""
    _, tensors = gguf.read(path)
    out = {}
    for g, h in names():
        heads = heads_of(g)
        out[h] = np.ascontiguousarray(to_halves(tensors[g], heads) if heads else tensors[g])
    return out


def write_folder(weights, tokenizer, out):
    from safetensors.numpy import save_file
    os.makedirs(out, exist_ok=True)
    save_file(weights, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    c = CONFIG
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": c["vocab"], "hidden_size": c["hidden"],
              "num_hidden_layers": c["layers"], "num_attention_heads": c["heads"], "num_key_value_heads": c["kv_heads"],
              "head_dim": c["head_dim"], "intermediate_size": c["ffn"], "max_position_embeddings": c["context"],
              "rope_theta": c["theta"], "rms_norm_eps": c["eps"], "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
              "tie_word_embeddings": True, "bos_token_id": chatformat.BOS, "eos_token_id": chatformat.END,
              "torch_dtype": "float32"}
    special = {i: t for i, t in enumerate(["<unk>", "<s>", "</s>"] + chatformat.CONTROL_SYMBOLS)}
    tok = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_prefix_space": False, "add_bos_token": True,
           "add_eos_token": False, "bos_token": "<s>", "eos_token": "<|end|>", "unk_token": "<unk>",
           "clean_up_tokenization_spaces": False, "model_max_length": c["context"], "chat_template": chatformat.TEMPLATE,
           "added_tokens_decoder": {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                             "single_word": False, "special": True} for i, t in special.items()}}
    gen = {"bos_token_id": chatformat.BOS, "eos_token_id": chatformat.END, "do_sample": True, **SAMPLING}
    for name, obj in (("config.json", config), ("tokenizer_config.json", tok), ("generation_config.json", gen)):
        with open(os.path.join(out, name), "w") as f:
            json.dump(obj, f, indent=2)
            f.write("\n")
    shutil.copy(tokenizer, os.path.join(out, "tokenizer.model"))


def main():
    if sys.argv[1] == "--from-gguf":
        path, tokenizer, folder = sys.argv[2:5]
    else:
        import torch
        from model import hf_name
        checkpoint, tokenizer, path, folder = sys.argv[1:5]
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        weights = {hf_name(k): v.float().numpy() for k, v in state.items()}
        write_gguf(weights, sentencepiece.SentencePieceProcessor(model_file=tokenizer), path)
    write_folder(read_gguf(path), tokenizer, folder)
    print("%s: %d bytes" % (path, os.path.getsize(path)))


if __name__ == "__main__":
    main()
