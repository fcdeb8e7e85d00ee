"""Tokenizers of a few hundred tokens, of the kinds that real models have, trained on a given text."""

import io
import json

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
HEADERS = ("{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
           "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
           "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
INST = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{{ eos_token }}"
        "{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}")
TURNS = ("{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
         "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n"
         "{% endif %}")
BARS = ("{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
HARMONY = ("{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
           "{% if add_generation_prompt %}<|start|>assistant{% endif %}")
ROLES = ("{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n"
         "{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}")
PLAIN = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}"
         "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")

# kind: pattern or None, digits alone?, control tokens, bos, eos, template, name in GGUF files
BYTE_LEVEL = {
    "llama3": (LLAMA3, False, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                               "<|eot_id|>"], "<|begin_of_text|>", "<|eot_id|>", HEADERS, "llama-bpe"),
    "qwen": (QWEN2, False, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", CHATML, "qwen2"),
    "qwen35": (QWEN35, False, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", CHATML, "qwen35"),
    "harmony": (O200K, False, ["<|startoftext|>", "<|endoftext|>", "<|start|>", "<|end|>", "<|message|>",
                               "<|channel|>", "<|return|>"], "<|startoftext|>", "<|return|>", HARMONY, "gpt-4o"),
    "gpt2": (None, False, ["<|endoftext|>", "<|pad|>"], "<|endoftext|>", "<|endoftext|>", PLAIN, "gpt-2"),
    "starcoder": (None, True, ["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"], "<|end_of_text|>",
                  "<|end_of_text|>", ROLES, "refact"),
}
# kind: control tokens, user-defined tokens, bos, eos, template, a space before the text?
SENTENCEPIECE = {
    "llama2": ([], [], "<s>", "</s>", INST, True),
    "mistral": (["[INST]", "[/INST]"], [], "<s>", "</s>", INST, True),
    "gemma": (["<start_of_turn>", "<end_of_turn>"], ["\n", "\n\n"], "<bos>", "<eos>", TURNS, False),
    "phi3": (["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"], [], "<s>", "<|end|>", BARS, True),
}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def byte_level(kind, folder, text):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    pattern, digits, control, bos, eos, template, pre = BYTE_LEVEL[kind]
    tok = Tokenizer(models.BPE())
    steps = []
    if digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=296, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=[], show_progress=False)
    tok.train_from_iterator([text], trainer)
    tok.add_special_tokens(control)
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    if kind == "llama3":
        tok.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tok.token_to_id(bos))])
    tok.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "model_max_length": 512, "bos_token": bos, "eos_token": eos, "pad_token": control[0],
              "added_tokens_decoder": {
                  str(tok.token_to_id(t)): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                            "single_word": False, "special": True} for t in control}}
    if kind == "qwen":
        config["chat_template"] = template
    else:
        (folder / "chat_template.jinja").write_text(template)
    write_json(folder / "tokenizer_config.json", config)
    ids = {t: tok.token_to_id(t) for t in control}
    return tok.get_vocab_size(), ids.get(bos), ids[eos], pre


def sentencepiece(kind, folder, text):
    import sentencepiece as spm
    control, defined, bos, eos, template, prefix = SENTENCEPIECE[kind]
    model = io.BytesIO()
    gemma = kind == "gemma"
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(text.split("\n")), model_writer=model, model_type="bpe", vocab_size=352,
        byte_fallback=True, character_coverage=0.99, hard_vocab_limit=False, num_threads=1,
        unk_id=3 if gemma else 0, bos_id=2 if gemma else 1, eos_id=1 if gemma else 2, pad_id=0 if gemma else -1,
        bos_piece="<bos>" if gemma else "<s>", eos_piece="<eos>" if gemma else "</s>", unk_piece="<unk>",
        control_symbols=control, user_defined_symbols=defined, add_dummy_prefix=prefix,
        remove_extra_whitespaces=False, normalization_rule_name="identity", split_digits=True,
        minloglevel=2)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    sp = spm.SentencePieceProcessor(model_proto=model.getvalue())
    config = {"tokenizer_class": "GemmaTokenizer" if gemma else "LlamaTokenizer", "add_bos_token": True,
              "add_eos_token": False, "clean_up_tokenization_spaces": False, "bos_token": bos, "eos_token": eos,
              "unk_token": "<unk>", "model_max_length": 512, "chat_template": template,
              "added_tokens_decoder": {
                  str(sp.piece_to_id(t)): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                           "single_word": False, "special": True}
                  for t in ["<unk>", bos, "<eos>" if gemma else "</s>"] + control}}
    write_json(folder / "tokenizer_config.json", config)
    return sp.get_piece_size(), sp.piece_to_id(bos), sp.piece_to_id(eos), None


def make(kind, folder, text):
    """Writes the tokenizer's files. Returns (n_vocab, bos id or None, eos id, pre-tokenizer's GGUF name)."""
    return (byte_level if kind in BYTE_LEVEL else sentencepiece)(kind, folder, text)
