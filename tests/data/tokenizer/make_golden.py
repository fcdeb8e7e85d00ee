"""Writes demo.jsonl: one JSON object a line with the text and the ids that spm_encode gives it.

usage, in the project root: python3 tests/data/tokenizer/make_golden.py
Needs spm_encode (Debian package sentencepiece). One line of texts.txt is one text.
"""
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = "registry/demo/tokenizer.model"

texts = open(os.path.join(HERE, "texts.txt"), encoding="utf-8", newline="\n").read().split("\n")[:-1]
run = subprocess.run(["spm_encode", "--model=" + MODEL, "--output_format=id"], input="\n".join(texts) + "\n",
                     encoding="utf-8", stdout=subprocess.PIPE, check=True)
lines = run.stdout.split("\n")[:-1]
assert len(lines) == len(texts), (len(lines), len(texts))
with open(os.path.join(HERE, "demo.jsonl"), "w", encoding="utf-8", newline="\n") as out:
    for i, (text, line) in enumerate(zip(texts, lines)):
        row = {"id": "line %d" % (i + 1), "text": text, "tokens": [int(x) for x in line.split()]}
        if "\u2581" in text:
            row["decoded"] = text.replace("\u2581", " ")
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
