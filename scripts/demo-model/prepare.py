"""Tokenizes everything for training.

usage: prepare.py CORPUS_FOLDER TOKENIZER_MODEL OUT_FOLDER [--chats N] [--long N] [--procs P]

Streams are arrays of uint16: the token id, plus 0x8000 where the model shall not learn to predict the token.
NAME.npy holds the tokens, NAME.starts.npy where a training window may begin. Streams: plain (prose and dialogues as
text), chat (template chats), cchat (chats made from the corpus), long (chats of many turns); each also as NAME-held.
"""
import argparse
import json
import multiprocessing as mp
import os
import random

import numpy as np
import sentencepiece

import chat
import chatformat
import corpus

NO_LEARN = 0x8000
_STATE = {}


def pack(sp, messages):
    ids, learn = chatformat.encode_with_mask(sp, messages)
    return [i if l else i | NO_LEARN for i, l in zip(ids, learn)]


def make_chats(job):
    seed, n, long = job
    rng = random.Random(seed)
    make = chat.long_conversation if long else chat.conversation
    docs = [pack(_STATE["sp"], make(rng, _STATE["world"])) for _ in range(n)]
    starts = np.cumsum([0] + [len(d) for d in docs[:-1]], dtype=np.int64)
    return np.array([t for d in docs for t in d], dtype=np.uint16), starts


def encode_plain(text):
    ids = [chatformat.BOS | NO_LEARN] + _STATE["sp"].encode(text) + [chatformat.END]
    return np.array(ids, dtype=np.uint16)


def save(out, name, parts, inner=0):
    """parts: list of (tokens, starts). inner: also allow windows to begin every so many tokens inside a document."""
    tokens = np.concatenate([p[0] for p in parts])
    base = np.cumsum([0] + [len(p[0]) for p in parts[:-1]], dtype=np.int64)
    starts = np.concatenate([p[1] + b for p, b in zip(parts, base)])
    if inner:
        ends = np.append(starts[1:], len(tokens))
        starts = np.concatenate([np.arange(s, max(s + 1, e - inner // 2), inner) for s, e in zip(starts, ends)])
    np.save(os.path.join(out, name + ".npy"), tokens)
    np.save(os.path.join(out, name + ".starts.npy"), starts)
    print("%-12s %9d tokens %8d starts" % (name, len(tokens), len(starts)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus")
    ap.add_argument("tokenizer")
    ap.add_argument("out")
    ap.add_argument("--chats", type=int, default=1300000)
    ap.add_argument("--long", type=int, default=6000)
    ap.add_argument("--procs", type=int, default=os.cpu_count())
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    records = corpus.load(a.corpus)
    nouns = corpus.open_nouns(records)
    _STATE["sp"] = sentencepiece.SentencePieceProcessor(model_file=a.tokenizer)
    _STATE["world"] = chat.World(nouns, corpus.trivia_facts(records), corpus.open_questions(records))
    with open(os.path.join(a.out, "nouns.json"), "w") as f:
        json.dump(nouns, f)
    zero = np.zeros(1, dtype=np.int64)
    with mp.get_context("fork").Pool(a.procs) as pool:  # which hands on _STATE
        for held in (False, True):
            tail = "-held" if held else ""
            texts = [r["text"] for r in records if r["held"] == held and
                     (corpus.is_prose(r) or r["file"].startswith("dialogues-persona"))]
            save(a.out, "plain" + tail, [(t, zero) for t in pool.map(encode_plain, texts, 32)], inner=1024)
            rng = random.Random(21)
            pairs = [m for m, h in corpus.chats(records, rng) if h == held]
            rng.shuffle(pairs)
            docs = [(np.array(pack(_STATE["sp"], m), dtype=np.uint16), zero) for m in pairs]
            save(a.out, "cchat" + tail, docs)
            n, l = (1000, 50) if held else (a.chats, a.long)
            seed = 10 ** 6 if held else 0
            save(a.out, "chat" + tail, pool.map(make_chats, [(seed + i, 500, False) for i in range(n // 500)], 1))
            save(a.out, "long" + tail, pool.map(make_chats, [(2 * 10 ** 6 + seed + i, 25, True) for i in range(l // 25)], 1))


if __name__ == "__main__":
    main()
