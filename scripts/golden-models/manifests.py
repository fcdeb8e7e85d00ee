#!/usr/bin/env python3
"""Writes converter.txt beside each golden model: what llama.cpp's converter makes of its folder.

  scripts/golden-models/manifests.py --llama-cpp DIR --gguf OUT [NAME ...]
  scripts/golden-models/manifests.py --gguf OUT --print build/test_hf_manifest [NAME ...]

The first form writes OUT/NAME.gguf for each golden folder without a model.gguf of its own, and OUT/NAME.log; it needs
Python with torch and transformers, and a checkout of llama.cpp, and takes half a minute on 16 cores. The second writes
the manifests, which test_hf_manifest compares with our reading of the folders. `build/test_arch table` takes a folder of
golden models, whose model.gguf may be such files.

What a folder needs before the converter takes it is in maker_config.py. A vocabulary that the converter cannot write
(tiny ones lack tokens that it looks for) is left out. No files can be made of qwen2moe-dense and qwen3moe-dense, whose
dense layers the converter does not know. It takes hunyuan-moe only if `dim` in its hunyuan.py is head_dim, and without
the assertion that this is 128.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import maker_config
from families import FAMILIES
from tokenizers_tiny import BYTE_LEVEL

GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden"
OUTTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def folders(names):
    for path in sorted(GOLDEN.glob("*/*/hf")):
        if (not names or path.parent.name in names) and not (path.parent / "model.gguf").exists():
            yield path


def arguments(path):
    """Of the converter."""
    family, config = FAMILIES.get(path.parent.name), json.loads((path / "config.json").read_text())
    yield from ["--no-lazy", "--outtype", family["outtype"] if family else OUTTYPES[config["dtype"]]]
    if (path / "2_Dense").exists():
        yield "--sentence-transformers-dense-modules"


def subclasses(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses(sub)


def without_failing(write):
    def set_vocab(self):
        try:
            write(self)
        except Exception as error:
            print(f"no vocabulary: {type(error).__name__}: {error}")
    return set_vocab


def patch(base, name):
    """The name of a pre-tokenizer (the converter knows them by a hash); config.json as it is written, although
    transformers, which renames members, knows the family."""
    family = FAMILIES.get(name)
    pre = (family and BYTE_LEVEL.get(family["tokenizer"]) or ["modern-bert" if "modern" in name else "jina-v2-en"])[-1]
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    base.ModelBase.load_hparams = staticmethod(
        lambda folder, is_mistral_format: json.loads((Path(folder) / "config.json").read_text()))
    for cls in {base.TextModel, *subclasses(base.TextModel)}:
        if "set_vocab" in cls.__dict__:
            cls.set_vocab = without_failing(cls.__dict__["set_vocab"])


def convert(path, out):
    import convert_hf_to_gguf
    import conversion.base
    name = path.parent.name
    with open(out / f"{name}.log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        with tempfile.TemporaryDirectory() as work:
            folder = Path(shutil.copytree(path, Path(work) / name))
            config = json.loads((folder / "config.json").read_text())
            maker_config.change(name, config)
            (folder / "config.json").write_text(json.dumps(config))
            patch(conversion.base, name)
            sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out / f"{name}.gguf"), *arguments(path)]
            convert_hf_to_gguf.main()
        return name, None
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        (out / f"{name}.gguf").unlink(missing_ok=True)
        return name, f"{type(error).__name__}: {error}"


def convert_all(llama_cpp, out, names):
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import torch
    torch.set_num_threads(1)
    import convert_hf_to_gguf  # before the processes, which share it
    import conversion
    conversion.load_all_models()
    jobs = [(path, out) for path in folders(names)]
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
        for name, error in pool.starmap(convert, jobs, chunksize=1):
            if error:
                print(f"{name}: {error}", flush=True)


def print_all(out, program, names):
    for path in folders(names):
        file = out / f"{path.parent.name}.gguf"
        if file.exists():
            text = subprocess.run([program, "print", file], check=True, capture_output=True).stdout
            (path.parent / "converter.txt").write_bytes(text)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--llama-cpp", type=Path)
    args.add_argument("--gguf", type=Path, required=True)
    args.add_argument("--print", dest="program")
    args.add_argument("names", nargs="*", metavar="NAME")
    a = args.parse_args()
    a.gguf.mkdir(parents=True, exist_ok=True)
    if a.llama_cpp:
        convert_all(a.llama_cpp, a.gguf.resolve(), a.names)
    if a.program:
        print_all(a.gguf, a.program, a.names)


if __name__ == "__main__":
    main()
