"""Runs llama.cpp's convert_hf_to_gguf.py on a tiny model.

  convert.py LLAMA_CPP FOLDER OUT.gguf OUTTYPE KEYS PRE

Two things differ from running it by hand: PRE, if not empty, is what the vocabulary's pre-tokenizer is called
(the converter knows tokenizers by a hash that tiny ones cannot have), and KEYS (JSON) are metadata that the
reference implementation computes with and the converter leaves out.
"""

import json
import sys

llama_cpp, folder, out, outtype, keys, pre = sys.argv[1:]
sys.path[:0] = [llama_cpp, llama_cpp + "/gguf-py"]
import convert_hf_to_gguf
from conversion.base import TextModel

keys = json.loads(keys)


def add_keys(model):
    writer, arch = model.gguf_writer, model.gguf_writer.arch
    prefix = arch if isinstance(arch, str) else str(arch)
    if "sliding_window" in keys:
        writer.add_uint32(f"{prefix}.attention.sliding_window", keys["sliding_window"])
    if "sliding_window_pattern" in keys:
        writer.add_array(f"{prefix}.attention.sliding_window_pattern", keys["sliding_window_pattern"])
    if "attention_scale" in keys:
        writer.add_float32(f"{prefix}.attention.scale", keys["attention_scale"])
    if "rope.dimension_count" in keys:
        writer.add_uint32(f"{prefix}.rope.dimension_count", keys["rope.dimension_count"])


if pre:
    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
prepare_metadata = TextModel.prepare_metadata


def prepare(self, *args, **kwargs):
    prepare_metadata(self, *args, **kwargs)
    add_keys(self)


TextModel.prepare_metadata = prepare
sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", out, "--outtype", outtype, "--no-lazy"]
convert_hf_to_gguf.main()
