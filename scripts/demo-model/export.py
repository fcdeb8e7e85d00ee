"""Snaps trained weights to Q8_0 and writes the release: a GGUF file and a Hugging Face folder with the same values.

usage: export.py [--model llama|hybrid] CHECKPOINT TOKENIZER_MODEL OUT_GGUF OUT_FOLDER
       export.py [--model llama|hybrid] --from-gguf GGUF TOKENIZER_MODEL OUT_FOLDER     (only the folder, from a released file)

The released model is what the Q8_0 file holds: the folder's float32 weights are its exact dequantized values, but for
norms and decays that a folder has in another form (forms.py) and that round once more.
"""
import argparse
import json
import os
import shutil

import numpy as np
import sentencepiece

import chatformat
import gguf
import quant
from forms import FORMS, common_keys, config_json

LICENSE = "mit"
SAMPLING = {"temperature": 0.7, "top_p": 0.9}  # what a request that says nothing gets


def tokenizer_keys(form, sp):
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
            ("tokenizer.chat_template", gguf.STRING, form.template)]


def model_keys(form):
    return [("general.architecture", gguf.STRING, form.arch), ("general.name", gguf.STRING, form.name),
            ("general.license", gguf.STRING, LICENSE), ("general.file_type", gguf.U32, 7),
            ("general.quantization_version", gguf.U32, 2), ("general.alignment", gguf.U32, gguf.ALIGNMENT),
            ("general.sampling.temp", gguf.FLOAT, SAMPLING["temperature"]),
            ("general.sampling.top_p", gguf.FLOAT, SAMPLING["top_p"]), *common_keys(form)]


def write_gguf(form, weights, sp, path):
    """weights: dict of float32 arrays by Hugging Face name. Products are quantized, the rest is not."""
    tensors = []
    for g, h in form.tensors():
        w = form.to_file(h, weights[h])
        tensors.append((g, w if w.ndim == 1 or "conv1d" in g else quant.quantize(w)))
    gguf.write(path, model_keys(form) + tokenizer_keys(form, sp), tensors)


def read_gguf(form, path):
    """Weights of a released file as float32 arrays by Hugging Face name."""
    _, tensors = gguf.read(path)
    return {h: np.ascontiguousarray(form.from_file(h, tensors[g])) for g, h in form.tensors()}


def write_folder(form, weights, tokenizer, out):
    from safetensors.numpy import save_file
    os.makedirs(out, exist_ok=True)
    save_file(weights, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    special = {i: t for i, t in enumerate(["<unk>", "<s>", "</s>"] + chatformat.CONTROL_SYMBOLS)}
    tok = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_prefix_space": False, "add_bos_token": True,
           "add_eos_token": False, "bos_token": "<s>", "eos_token": "<|end|>", "unk_token": "<unk>",
           "clean_up_tokenization_spaces": False, "model_max_length": form.config["context"], "chat_template": form.template,
           "added_tokens_decoder": {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                             "single_word": False, "special": True} for i, t in special.items()}}
    gen = {"bos_token_id": chatformat.BOS, "eos_token_id": chatformat.END, "do_sample": True, **SAMPLING}
    for name, obj in (("config.json", config_json(form)), ("tokenizer_config.json", tok), ("generation_config.json", gen)):
        with open(os.path.join(out, name), "w") as f:
            json.dump(obj, f, indent=2)
            f.write("\n")
    shutil.copy(tokenizer, os.path.join(out, "tokenizer.model"))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", choices=sorted(FORMS), default="llama")
    ap.add_argument("--from-gguf", action="store_true")
    ap.add_argument("paths", nargs="+")
    a = ap.parse_args()
    form = FORMS[a.model]
    if a.from_gguf:
        path, tokenizer, folder = a.paths
    else:
        import torch
        from model import new_model
        checkpoint, tokenizer, path, folder = a.paths
        state, name = torch.load(checkpoint, map_location="cpu", weights_only=True), new_model(a.model).hf_name
        weights = {name(k): v.float().numpy() for k, v in state.items()}
        write_gguf(form, weights, sentencepiece.SentencePieceProcessor(model_file=tokenizer), path)
    write_folder(form, read_gguf(form, path), tokenizer, folder)
    print("%s: %d bytes" % (path, os.path.getsize(path)))


if __name__ == "__main__":
    main()
