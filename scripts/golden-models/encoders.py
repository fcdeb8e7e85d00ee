#!/usr/bin/env python3
"""Makes tests/golden/encoder: tiny models of the BERT kind, and what transformers computes with them.

  scripts/golden-models/encoders.py --out tests/golden/encoder [NAME ...]

Needs what make.py needs, without llama.cpp. For each model of MODELS:
  NAME/hf/         the folder that transformers saved, with a tokenizer and, if it embeds, its pooling
  NAME/golden.json prompts of token ids with the pooled state (length 1) or the logit of their class; pairs of texts
                   with their ids, the types of their tokens, and the logit; texts with the ids of the tokenizer
  NAME/hidden.f32  if it embeds: the last hidden states of all prompts' tokens, (rows, n_embd) float32
"""

import argparse
import io
import json
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import torch
import transformers

LENGTHS = [1, 7, 33, 130]
PAIRS = [
    ("Where do foxes live?", "Foxes live in dens that they dig in the forest."),
    ("Where do foxes live?", "The boat sailed over the lake."),
    ("Where do foxes live?", ""),
    ("a", "b"),
    ("Wer schl\u00e4ft im Wald?", "Der Fuchs \u2014 und die Eule, nachts um 3:00!\nSie schlafen tags."),
    ("control", "[SEP] </s> yes [CLS] <s> user"),
]

# name: model type, tokenizer, pooling ("cls", "mean", or "class": a sequence classifier), type of the weights,
# what its configuration has besides
ROPES = dict(full_attention=dict(rope_type="default", rope_theta=160000.0),
             sliding_attention=dict(rope_type="default", rope_theta=10000.0))
BERT = dict(hidden_size=32, num_attention_heads=2, intermediate_size=44, num_hidden_layers=3, max_position_embeddings=160,
            layer_norm_eps=1e-12)
SMALL = dict(hidden_size=40, num_attention_heads=5, intermediate_size=60, num_hidden_layers=2,
             max_position_embeddings=150, layer_norm_eps=1e-12)
MODERN = dict(hidden_size=32, num_attention_heads=2, intermediate_size=44, num_hidden_layers=4,
              max_position_embeddings=256, local_attention=16, rope_parameters=ROPES, norm_eps=1e-5)
MODERN_SMALL = {**MODERN, "hidden_size": 40, "num_attention_heads": 5, "local_attention": 32}
MODELS = {
    "bert-cls": ("bert", "wordpiece", "cls", "float16", BERT),
    "bert-mean": ("bert", "wordpiece-cased", "mean", "bfloat16", SMALL),
    "bert-rank": ("bert", "wordpiece", "class", "float32", SMALL),
    "xlmr-cls": ("xlm-roberta", "unigram-nfkc", "cls", "bfloat16", {**BERT, "layer_norm_eps": 1e-5}),
    "xlmr-mean": ("xlm-roberta", "unigram-words", "mean", "float16", {**SMALL, "layer_norm_eps": 1e-5}),
    "xlmr-rank": ("xlm-roberta", "unigram", "class", "float16", {**BERT, "layer_norm_eps": 1e-5}),
    "nomic-mean": ("nomic_bert", "wordpiece", "mean", "float16",
                   {**BERT, "rope_parameters": dict(rope_type="default", rope_theta=1000.0)}),
    "nomic-small": ("nomic_bert", "wordpiece", "mean", "bfloat16",
                    {**SMALL, "rope_parameters": dict(rope_type="default", rope_theta=10000.0)}),
    "modern-cls": ("modernbert", "bytes", "cls", "bfloat16", MODERN),
    "modern-mean": ("modernbert", "bytes", "mean", "float16", MODERN_SMALL),
    "modern-rank": ("modernbert", "bytes", "class", "bfloat16", {**MODERN, "classifier_pooling": "mean"}),
    "modern-rank-cls": ("modernbert", "bytes", "class", "float16", {**MODERN_SMALL, "classifier_pooling": "cls"}),
}
SEEDS = {name: 1400 + i for i, name in enumerate(sorted([*MODELS, "roberta-rank"]))}  # a number was left out
CLASSES = {"cls": "AutoModel", "mean": "AutoModel", "class": "AutoModelForSequenceClassification"}


def template(tok, first, last, between, types):
    from tokenizers import processors
    second = 1 if types else 0
    tok.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {between} $B:{second} {last}:{second}",
        special_tokens=[(t, tok.token_to_id(t)) for t in {first, last}])


def wordpiece(text, cased):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True,
                                                strip_accents=None, lowercase=not cased)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator([text], trainers.WordPieceTrainer(vocab_size=400, special_tokens=special,
                                                              show_progress=False, limit_alphabet=150))
    tok.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    template(tok, "[CLS]", "[SEP]", "[SEP]", True)
    names = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]")
    return tok, {**names, "tokenizer_class": "BertTokenizer", "do_lower_case": not cased}


def fields(data):
    """The fields of a protocol buffer: (number, value) with values of integers or bytes."""
    def varint(i):
        value = shift = 0
        while True:
            value |= (data[i] & 127) << shift
            shift, i = shift + 7, i + 1
            if data[i - 1] < 128:
                return value, i
    i = 0
    while i < len(data):
        key, i = varint(i)
        if key & 7 == 0:
            value, i = varint(i)
        else:
            n, i = varint(i) if key & 7 == 2 else (4 if key & 7 == 5 else 8, i)
            value, i = data[i:i + n], i + n
        yield key >> 3, value


def small_rules():
    """Some of NFKC's rules, since all of them are 300 KB in a tokenizer.json: (from, to) in hexadecimal."""
    rules = [("%X" % (c + 0xFEE0), "%X" % c) for c in range(0x21, 0x7F)] + [(c, "20") for c in ["9", "A", "D", "A0", "3000"]]
    rules += [("FB01", "66 69"), ("BD", "31 2044 32"), ("B2", "32"), ("2026", "2E 2E 2E"), ("65 301", "E9"), ("200B", "20")]
    return "".join(f"{a}\t{b}\n" for a, b in rules)


def unigram(text, kind):
    import sentencepiece as spm
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    out, rules = io.BytesIO(), dict(normalization_rule_name="nmt_nfkc")
    if not kind.endswith("nfkc"):
        with tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False) as f:
            f.write(small_rules())
        rules = dict(normalization_rule_tsv=f.name)
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(text.split("\n")), model_writer=out, model_type="unigram", vocab_size=480,
        character_coverage=0.9995, hard_vocab_limit=False, num_threads=1, minloglevel=2, **rules)
    sp = spm.SentencePieceProcessor(model_proto=out.getvalue())
    # The order of XLM-R: <s>, <pad>, </s>, <unk>, the pieces, <mask>
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(sp.id_to_piece(i), sp.get_score(i)) for i in range(3, sp.get_piece_size())] + [("<mask>", 0.0)]
    tok = Tokenizer(models.Unigram(vocab, unk_id=3, byte_fallback=False))
    rules = dict(fields(dict(fields(out.getvalue()))[3]))  # the normalizer's
    charsmap = normalizers.Precompiled(rules[2])
    space = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    if not kind.endswith("words"):  # as BGE-M3 has it; with words as XLM-R
        tok.normalizer = normalizers.Sequence([charsmap, normalizers.Replace(Regex(" {2,}"), " ")])
        tok.pre_tokenizer = space
    else:
        tok.normalizer = charsmap
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    tok.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
    tok.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)])
    template(tok, "<s>", "</s>", "</s> </s>", False)
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>",
                 unk_token="<unk>", mask_token="<mask>")
    return tok, {**names, "tokenizer_class": "XLMRobertaTokenizer"}


def byte_level(text):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    special = ["<|padding|>", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=special, show_progress=False)
    tok.train_from_iterator([text], trainer)
    tok.normalizer = normalizers.NFC()
    template(tok, "[CLS]", "[SEP]", "[SEP]", False)
    names = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="<|padding|>", unk_token="[UNK]", mask_token="[MASK]")
    return tok, {**names, "tokenizer_class": "PreTrainedTokenizerFast"}


def make_tokenizer(kind, folder, text):
    """Writes the tokenizer's files. Returns it and its names of special tokens."""
    if kind.startswith("wordpiece"):
        tok, config = wordpiece(text, kind.endswith("cased"))
    elif kind.startswith("unigram"):
        tok, config = unigram(text, kind)
    else:
        tok, config = byte_level(text)
    tok.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {**config, "model_max_length": 512, "clean_up_tokenization_spaces": True})
    return tok, config


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def fill(model, seed, dtype):
    """Random weights at which every part of the model matters."""
    gen = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        x, low = torch.randn(p.shape, generator=gen), name.lower()
        if p.dim() == 1:
            x = 1 + 0.2 * x if "norm" in low or ".ln" in low else 0.4 * x
            if name.endswith("bias"):
                x = x - 1 if "norm" in low else x
        elif "embed" not in low:
            wide = ("query" in low or "q_proj" in low) or "qkv" in low
            x = (2.5 if wide else 1.3) * x / p.shape[-1] ** 0.5
        with torch.no_grad():
            p.copy_(x)
            p.data = p.data.to(dtype).float()


def encode(tok, texts):
    return [dict(text=t, ids=tok.encode(t).ids) for t in texts]


def run(model, how, ids, types):
    """The hidden states, and the pooled state or the logit."""
    args = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
    if types:
        args["token_type_ids"] = torch.tensor([types])
    out = model(**args)
    if how == "class":
        return None, [float(x) for x in out.logits[0].double()]
    hidden = out.last_hidden_state[0]
    vector = hidden[0].double() if how == "cls" else hidden.double().mean(0)
    return hidden.float(), (vector / vector.norm()).tolist()


def sentence_files(folder, n_embd, how):
    modules = [dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer"),
               dict(idx=1, name="1", path="1_Pooling", type="sentence_transformers.models.Pooling"),
               dict(idx=2, name="2", path="2_Normalize", type="sentence_transformers.models.Normalize")]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(folder / "1_Pooling" / "config.json", dict(
        word_embedding_dimension=n_embd, pooling_mode_cls_token=how == "cls", pooling_mode_mean_tokens=how == "mean",
        pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False))


def make(out, name, text, texts):
    from tokenizers import Tokenizer
    kind, tokenizer, how, dtype, extra = MODELS[name]
    seed, folder = SEEDS[name], out / name / "hf"
    folder.mkdir(parents=True, exist_ok=True)
    tok, names = make_tokenizer(tokenizer, folder, text)
    ids_of = lambda which: tok.token_to_id(names[which])
    special = dict(pad_token_id=ids_of("pad_token"), bos_token_id=ids_of("cls_token"), eos_token_id=ids_of("sep_token"))
    if kind == "modernbert":
        special |= dict(cls_token_id=ids_of("cls_token"), sep_token_id=ids_of("sep_token"))
    if kind == "xlm-roberta":
        special |= dict(type_vocab_size=1)
    if how == "class":
        special |= dict(num_labels=1)
    config = transformers.AutoConfig.for_model(kind, vocab_size=tok.get_vocab_size(), **special, **extra)
    model = getattr(transformers, CLASSES[how]).from_config(config, attn_implementation="eager").eval().float()
    kept = getattr(torch, dtype)
    fill(model, seed, kept)
    rng, prompts, rows, pairs = np.random.default_rng(seed), [], [], []
    with torch.inference_mode():
        for n in LENGTHS:
            ids = [special["bos_token_id"]] + rng.integers(5, tok.get_vocab_size() - 1, max(n - 2, 0)).tolist()
            ids += [special["eos_token_id"]] * (n > 1)
            hidden, value = run(model, how, ids, None)
            prompts.append(dict(ids=ids, value=value))
            if hidden is not None:
                other, _ = run(model, how, ids[:-1] + [6], None)
                assert n == 1 or n > 60 or float((other[0] - hidden[0]).abs().max()) > 1e-5, "it is causal"
                rows.append(hidden)
        if how == "class":
            plain = json.loads(tok.to_str())
            plain["added_tokens"] = []  # so that no text becomes a control token
            plain = Tokenizer.from_str(json.dumps(plain))
            for query, document in PAIRS[:-1] if tokenizer.startswith("unigram") else PAIRS:
                both = plain.encode(query, document)
                types = both.type_ids if kind == "bert" else None
                _, value = run(model, how, both.ids, types)
                pairs.append(dict(query=query, document=document, ids=both.ids, types=both.type_ids, value=value))
    model.config.dtype = kept
    model.to(kept).save_pretrained(folder)
    path = folder / "config.json"
    write_json(path, json.loads(path.read_text()))
    if how != "class":
        sentence_files(folder, config.hidden_size, how)
        (out / name / "hidden.f32").write_bytes(torch.cat(rows).numpy().astype("<f4").tobytes())
    golden = dict(made_by="scripts/golden-models/encoders.py", torch=torch.__version__,
                  transformers=transformers.__version__, pooling=how, prompts=prompts, pairs=pairs,
                  texts=encode(tok, texts))
    (out / name / "golden.json").write_text(json.dumps(golden) + "\n")
    print(name, tok.get_vocab_size(), [round(p["value"][0], 4) for p in prompts],
          [round(p["value"][0], 4) for p in pairs], flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--out", type=Path, required=True)
    args.add_argument("names", nargs="*")
    a = args.parse_args()
    torch.set_num_threads(2)
    root = Path(__file__).resolve().parents[2]
    text = (root / "tests/golden/demo/heldout.txt").read_text()
    texts = (root / "tests/data/tokenizer/texts.txt").read_text(encoding="utf-8").split("\n")[:-1]
    failed = 0
    for name in a.names or MODELS:
        try:
            make(a.out, name, text + "\n".join(texts * 3), texts)
        except Exception:  # the others are still worth having
            failed = 1
            print("failed:", name, flush=True)
            traceback.print_exc()
    return failed


if __name__ == "__main__":
    sys.exit(main())
