"""Trains the sentencepiece vocabulary (4,096, BPE, byte fallback) with the spm_train program.

usage: train_tokenizer.py CORPUS_FOLDER OUT_FOLDER
"""
import os
import random
import subprocess
import sys

import chat
import chatformat
import corpus


def sample_lines(records, rng):
    """About 12 MB: every third prose document and 20,000 chats, one paragraph a line."""
    world = chat.World(corpus.open_nouns(records), corpus.trivia_facts(records), corpus.open_questions(records))
    for i, r in enumerate(records):
        if not r["held"] and (i % 4 == 0 or r["file"].startswith("stories-")):
            yield from r["text"].split("\n")
    for _ in range(20000):
        for m in chat.conversation(rng, world):
            yield from m["content"].split("\n")


def main():
    folder, out = sys.argv[1:3]
    os.makedirs(out, exist_ok=True)
    rng = random.Random(11)
    text = os.path.join(out, "tokenizer-sample.txt")
    with open(text, "w", encoding="utf-8") as f:
        for line in sample_lines(corpus.load(folder), rng):
            if 0 < len(line) < 4000:
                f.write(line + "\n")
    subprocess.run(["spm_train", "--input=" + text, "--model_prefix=" + os.path.join(out, "tokenizer"), "--vocab_size=4096",
                    "--model_type=bpe", "--byte_fallback=true", "--split_digits=true", "--add_dummy_prefix=false",
                    "--remove_extra_whitespaces=false", "--normalization_rule_name=identity", "--character_coverage=0.9998",
                    "--unk_id=0", "--bos_id=1", "--eos_id=2", "--pad_id=-1", "--max_sentence_length=16384",
                    "--control_symbols=" + ",".join(chatformat.CONTROL_SYMBOLS), "--num_threads=2"], check=True)
    os.remove(text)


if __name__ == "__main__":
    main()
