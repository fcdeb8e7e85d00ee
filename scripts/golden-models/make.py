#!/usr/bin/env python3
"""Makes tests/golden/arch: tiny seeded models, their logits in transformers, and their GGUF files.

  scripts/golden-models/make.py [--llama-cpp DIR] --out tests/golden/arch [NAME ...]

Needs Python with torch, transformers 5, tokenizers, safetensors, sentencepiece, and a checkout of llama.cpp
for its convert_hf_to_gguf.py (that script, conversion/ and gguf-py/ are enough); without --llama-cpp no GGUF
files are written: manifests.py writes converter.txt instead, a few KB of what the file would be. For each family of families.py:
  NAME/hf/          the folder that transformers saved, with a tokenizer of a few hundred tokens
  NAME/model.gguf   what llama.cpp's converter makes of it (plus the keys that it leaves out, families.py)
  NAME/golden.json  prompts, the rows of logits that were kept, greedy continuations, versions
  NAME/logits.f32   (rows, n_vocab) float32, little-endian: eager attention, float32, CPU, no KV cache
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))
import renamed
import tokenizers_tiny
from families import FAMILIES
from families_refused import REFUSED

LENGTHS = [1, 7, 33, 130]  # of prompts
GREEDY = [(7, 12), (33, 12)]  # (length of the prompt, tokens after it)
SPARSE = [63, 64, 511, 512, 1023, 1024]  # rows that are kept of prompts of 500 tokens and more, and two others
MIN_MARGIN = 4e-3             # between the best and the second logit of a row that is kept
FP4 = [0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6]


def stable_topk(x, k, dim=-1, **_):
    """torch.topk leaves open which of two equal scores it takes; here it is the lower expert."""
    values, indices = torch.sort(x, dim=dim, descending=True, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))


torch.topk = stable_topk


def kept_rows(n):
    if n >= 500:
        return sorted({i for i in SPARSE if i < n} | {n // 2, n - 1})
    return range(n) if n < 100 else sorted(set(range(0, n, 8)) | {n - 1})


def fill(model, seed, family):
    """Random weights at which every part of the model matters."""
    gen = torch.Generator().manual_seed(seed)
    gemma = family["type"].startswith("gemma")
    one_plus = (gemma and not family["type"].startswith("gemma4")) or family["type"].startswith(("qwen3_5", "qwen3_next"))
    centred = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=gen)
        if family["type"] == "muse_glimmer" and any(c in name for c in centred):
            x = 0.2 * x
        elif ("norm" in name or ".ln_" in name) and not name.endswith("bias"):
            x = 0.2 * x + (0 if one_plus and "linear_attn" not in name else 1)
        elif "wte" in name or "wpe" in name:
            x = x * (1.0 if "wte" in name else 0.5)
        elif p.dim() == 3 and family["type"].startswith("llama4"):  # (experts, inputs, outputs)
            x = 1.6 * x / p.shape[1] ** 0.5
        elif family["type"] == "gpt2" and p.dim() == 2 and "lm_head" not in name:
            x = (2.0 if "c_attn" in name else 1.3) * x / p.shape[0] ** 0.5
        elif name.endswith(("router.scale", "per_expert_scale")):
            x = (6 if name.endswith("router.scale") else 1) * (1 + 0.3 * x)
        elif name.endswith("A_log"):
            x = 1.2 * x - 2.5  # states that forget within a few tokens, and some that last for hundreds
        elif name.endswith("bias") or name.endswith("sinks") or p.dim() == 1:
            x = 0.4 * x
        elif "embed" in name and "embed_out" not in name:
            x = x * (0.3 if gemma else 1.0)
        elif p.dim() == 3 and family["type"] == "gpt_oss":
            x = 1.3 * x / p.shape[1] ** 0.5
            if name.endswith("gate_up_proj"):
                x = 2.5 * x  # so that the clamp of the activation is reached
        else:
            gain = 2.5 if "router" in name or name.endswith("mlp.gate.weight") or "q_proj" in name else 1.3
            x = gain * x / p.shape[-1] ** 0.5
        if name.endswith("_proj_bias"):
            x = 0.4 * x
        with torch.no_grad():
            p.copy_(x)
    for name, b in model.named_buffers():  # biases that choose experts
        if name.endswith("bias"):
            b.copy_(0.1 * torch.randn(b.shape, generator=gen))
        if name.endswith("layer_scalar"):
            b.copy_(0.8 + 0.2 * torch.randn(b.shape, generator=gen))
    if family.get("ties"):  # experts 1 and 4 always score the same
        for name, p in model.named_parameters():
            if name.endswith("mlp.gate.weight"):
                with torch.no_grad():
                    p[4] = p[1]
    dtype = getattr(torch, family.get("dtype", "float32"))
    for p in model.parameters():
        p.data = p.data.to(dtype).float()
    for name, b in model.named_buffers():
        if name.endswith(("bias", "layer_scalar")):
            b.copy_(b.to(dtype).float())


def mxfp4_experts(model, seed):
    """Experts whose weights are MXFP4 numbers, and the tensors that they are stored as."""
    gen = torch.Generator().manual_seed(seed + 1)
    stored = {}
    table = torch.tensor(FP4)
    for name, p in model.named_parameters():
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        n_expert, n_in, n_out = p.shape
        codes = torch.randint(0, 16, (n_expert, n_out, n_in // 32, 16, 2), generator=gen, dtype=torch.uint8)
        scales = torch.randint(122, 125, (n_expert, n_out, n_in // 32), generator=gen, dtype=torch.uint8)
        value = table[codes.long()].flatten(-2) * torch.pow(2.0, scales.float() - 127)[..., None]
        with torch.no_grad():
            p.copy_(value.reshape(n_expert, n_out, n_in).transpose(1, 2))
        stored[name + "_blocks"] = codes[..., 0] | codes[..., 1] << 4
        stored[name + "_scales"] = scales
    return stored


def add_mtp(folder, family):
    """A layer that predicts further tokens, with the weights of the first layer with attention. transformers has
    no such layer, so neither its tensors nor its key are in the folder that it saves."""
    from safetensors.torch import load_file, save_file
    path = folder / "model.safetensors"
    tensors = load_file(path)
    layer = re.compile(r".*\blayers\.3\.(.*)")
    copies = {"mtp.layers.0." + m[1]: v.clone() for k, v in tensors.items() if (m := layer.match(k))}
    norm = next(v for k, v in copies.items() if k.endswith("input_layernorm.weight"))
    gen = torch.Generator().manual_seed(family["seed"] + 2)
    copies["mtp.fc.weight"] = torch.randn(len(norm), 2 * len(norm), generator=gen).to(norm.dtype)
    for name in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"]:
        copies[f"mtp.{name}.weight"] = norm.clone()
    save_file(tensors | copies, path, metadata={"format": "pt"})


def add_mtp_layer(folder, family):
    """The same after the last layer and by its number, as GLM-4.7-Flash and DeepSeek-V3 have it."""
    from safetensors.torch import load_file, save_file
    path, n = folder / "model.safetensors", family["config"]["num_hidden_layers"]
    tensors = load_file(path)
    last, new = f"model.layers.{n - 1}.", f"model.layers.{n}."
    copies = {new + k[len(last):]: v.clone() for k, v in tensors.items() if k.startswith(last)}
    norm = copies[new + "input_layernorm.weight"]
    gen = torch.Generator().manual_seed(family["seed"] + 2)
    copies[new + "eh_proj.weight"] = torch.randn(len(norm), 2 * len(norm), generator=gen).to(norm.dtype)
    for name in ["enorm", "hnorm", "shared_head.norm"]:
        copies[f"{new}{name}.weight"] = norm.clone()
    save_file(tensors | copies, path, metadata={"format": "pt"})


def save_mxfp4(folder, stored):
    from safetensors.torch import load_file, save_file
    path = folder / "model.safetensors"
    tensors = {k: v for k, v in load_file(path).items() if not k.endswith(("gate_up_proj", "down_proj"))}
    tensors.update({k: v.contiguous() for k, v in stored.items()})
    save_file(tensors, path, metadata={"format": "pt"})


def config_v4(config):
    """What transformers 4 wrote."""
    rope = config.pop("rope_parameters")
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    part = rope.pop("partial_rotary_factor", None)
    if config["model_type"] == "gpt_neox":
        config.update(rotary_pct=part, rotary_emb_base=config.pop("rope_theta"))
    if config["model_type"] == "stablelm":
        config["partial_rotary_factor"] = part
    if config["model_type"] == "qwen3_next":
        config.update(partial_rotary_factor=part, full_attention_interval=4)
        config.pop("layer_types")
    if config["model_type"] == "phi3":
        rope = {"type": "longrope", "short_factor": rope["short_factor"], "long_factor": rope["long_factor"]}
    config["rope_scaling"] = rope if rope.get("rope_type", "longrope") != "default" else None
    config["transformers_version"] = "4.57.1"


def config_hub(config):
    """Gemma 4's sizes of layers with full attention as the makers' folders have them."""
    layer = next(iter(config.pop("per_layer_config").values()))
    config.update(global_head_dim=layer["head_dim"], num_global_key_value_heads=layer.get("num_key_value_heads"))


def finish_config(folder, family):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if family.get("v4"):
        config_v4(config)
    if family.get("hub"):
        config_hub(config.get("text_config", config))
    if family.get("mtp") == "layer":
        config["num_nextn_predict_layers"] = 1
    if family.get("mtp") == "key":
        config.get("text_config", config)["mtp_num_hidden_layers"] = 1
    if family.get("mxfp4"):
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    for name, value in family.get("patch", {}).items():
        config.update({name: value}) if value is not None else config.pop(name)
    tokenizers_tiny.write_json(path, config)


def logits_of(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def margin(rows):
    top = torch.topk(rows, 2, dim=-1).values
    return float((top[..., 0] - top[..., 1]).min())


def golden(model, n_vocab, family):
    """Prompts at which no best token is a matter of rounding, their logits and continuations."""
    rng = np.random.default_rng(family["seed"])
    prompts, kept = [], []
    for n in family.get("lengths", LENGTHS):
        for _ in range(400):
            ids = rng.integers(4, n_vocab - 8, n).tolist()
            rows = logits_of(model, ids)[list(kept_rows(n))]
            if margin(rows) > MIN_MARGIN:
                break
        else:
            raise RuntimeError(f"no prompt of {n} tokens has clear answers")
        prompts.append({"ids": ids, "rows": list(kept_rows(n))})
        kept.append(rows)
        for length, count in family.get("greedy", GREEDY):
            if length != n:
                continue
            text, least = list(ids), 1e9
            for _ in range(count):
                last = logits_of(model, text)[-1]
                least = min(least, margin(last))
                text.append(int(last.argmax()))
            prompts[-1].update(greedy=text[n:], greedy_margin=least)
    return prompts, torch.cat(kept).numpy().astype("<f4")


def make(name, out, text, llama_cpp):
    family = (FAMILIES | REFUSED)[name]
    seed = family["seed"]
    folder = out / name / "hf"
    folder.mkdir(parents=True, exist_ok=True)
    n_vocab, bos, eos, pre = tokenizers_tiny.make(family["tokenizer"], folder, text)
    n_rows = n_vocab + family.get("pad_vocab", 0)
    ids = dict(bos_token_id=bos, eos_token_id=eos, pad_token_id=0)
    text_config, auto = dict(family["config"], vocab_size=n_rows, **ids), transformers.AutoModelForCausalLM
    if text_config.get("hidden_size_per_layer_input"):
        text_config["vocab_size_per_layer_input"] = n_rows
    if family.get("vision"):
        vision, image = dict(family["vision"]), dict(image_token_id=0)
        if family["type"].startswith("qwen"):
            vision.update(out_hidden_size=text_config["hidden_size"])
            image.update(video_token_id=1, vision_start_token_id=2, vision_end_token_id=3)
        text_config = dict(text_config=text_config, vision_config=vision, **image,
                           tie_word_embeddings=text_config["tie_word_embeddings"], **family.get("around", {}))
        if family.get("audio"):
            text_config.update(audio_config=dict(family["audio"]), audio_token_id=1)
        auto = transformers.AutoModelForImageTextToText
    config = transformers.AutoConfig.for_model(family["type"], **text_config)
    make_model = auto.from_config
    if family.get("of_class"):  # which no auto class knows
        make_model = getattr(transformers, family["of_class"])._from_config
    model = make_model(config, attn_implementation="eager", experts_implementation="eager").eval().float()
    fill(model, seed, family)
    if family.get("maker"):
        renamed.change(model, family)
    stored = mxfp4_experts(model, seed) if family.get("mxfp4") else {}
    prompts, rows = golden(model, n_vocab, family)
    dtype = getattr(torch, family.get("dtype", "float32"))
    for part in ["text_config", "vision_config", "audio_config"]:
        if getattr(model.config, part, None) is not None:
            getattr(model.config, part).dtype = dtype
    model.config.dtype = dtype
    model.generation_config = transformers.GenerationConfig(bos_token_id=bos, eos_token_id=eos)
    if family.get("maker"):
        renamed.save(model.to(dtype), family, folder)
    else:
        model.to(dtype).save_pretrained(folder, max_shard_size=family.get("shards", "5GB"))
    if stored:
        save_mxfp4(folder, stored)
    if family.get("mtp"):
        (add_mtp_layer if family["mtp"] == "layer" else add_mtp)(folder, family)
    finish_config(folder, family)
    (out / name / "logits.f32").write_bytes(rows.tobytes())
    (out / name / "golden.json").write_text(json.dumps({
        "made_by": "scripts/golden-models/make.py", "seed": seed, "n_vocab": n_rows,
        "torch": torch.__version__, "transformers": transformers.__version__,
        "llama_cpp": llama_cpp.get("commit"), "prompts": prompts}) + "\n")
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, |logit| up to "
          f"{abs(rows).max():.2f}, least margin {margin(torch.tensor(rows)):.4f}", flush=True)
    if not llama_cpp["dir"]:
        print(f"{name}: no model.gguf, as there is no --llama-cpp", flush=True)
        return
    convert = [sys.executable, str(Path(__file__).parent / "convert.py"), str(llama_cpp["dir"]), str(folder),
               str(out / name / "model.gguf"), family["outtype"], json.dumps(family.get("keys", {})), pre or ""]
    subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--llama-cpp", type=Path)
    args.add_argument("--llama-cpp-commit", default="unknown")
    args.add_argument("--out", type=Path, required=True)
    args.add_argument("names", nargs="*", metavar="NAME")
    a = args.parse_args()
    torch.set_num_threads(4)
    repo = Path(__file__).resolve().parents[2]
    text = (repo / "tests/golden/demo/heldout.txt").read_text()
    failed = []
    for name in a.names or FAMILIES:
        try:
            make(name, a.out, text, {"dir": a.llama_cpp, "commit": a.llama_cpp_commit})
        except Exception as error:  # the others are still worth having
            failed.append(name)
            print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
            if os.environ.get("TRACE"):
                import traceback
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
