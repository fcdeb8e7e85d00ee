"""Makes the golden data from the exported Hugging Face folder with transformers' model in float32.

usage: golden.py [--model llama|hybrid] HF_FOLDER TRAINED_CHECKPOINT GOLDEN_FOLDER [--text HELDOUT_TXT] [--device cpu]

GOLDEN_FOLDER must hold heldout.txt (heldout.py) unless --text names it. The trained checkpoint, before the snap to Q8_0,
gives trained.json. The training code's own model must give the log-probabilities of transformers.
"""
import argparse
import json
import os
import random

import sentencepiece
import torch
import transformers

import chat
import chatformat
import words
from forms import FORMS
from model import new_model

N_POSITIONS = 640
CONTEXT = 512
MAX_NEW = 128

PROMPTS = [
    [("user", "Hello!")],
    [("user", "Tell me a story about a fox who lost his hat.")],
    [("user", "What is the capital of France?")],
    [("system", "You are a pirate."), ("user", "What colour is the sky?")],
    [("user", "Name three fruits.")],
    [("user", "What is 7 + 5?")],
    [("user", "My name is Anna."), ("assistant", "Nice to meet you, Anna! How can I help you?"), ("user", "What is my name?")],
    [("system", "Answer in one sentence."), ("user", "What is a volcano?")],
]


def rounded(x):
    return round(float(x), 6)


def load_trained(name, path):
    model = new_model(name).float().eval()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model


def log_probs(logits_fn, ids, device):
    with torch.no_grad():
        return torch.log_softmax(logits_fn(torch.tensor([ids], device=device))[0].float(), -1)


def positions(lp, ids):
    """One row for each position p that has a successor: what the model says after ids[0..p]."""
    rows = []
    for p in range(len(ids) - 1):
        row = {"top1": int(lp[p].argmax()), "logprob_next": rounded(lp[p, ids[p + 1]])}
        if p % 25 == 0:
            top = lp[p].topk(5)
            row["top5"] = [[int(i), rounded(v)] for v, i in zip(top.values, top.indices)]
        two = lp[p].topk(2).values
        row["margin"] = rounded(two[0] - two[1])
        rows.append(row)
    return rows


def perplexity(logits_fn, tokens, device):
    step = CONTEXT - 1
    sums = []
    for at in range(0, len(tokens) - step + 1, step):
        window = [chatformat.BOS] + tokens[at:at + step]
        lp = log_probs(logits_fn, window, device)
        t = torch.tensor(window[1:], device=device)
        sums.append(float(-lp[:-1].gather(1, t[:, None]).double().sum()))
    n = len(sums) * step
    return {"context": CONTEXT, "windows": len(sums), "tokens_counted": n, "tokens_in_text": len(tokens),
            "mean_nll": rounded(sum(sums) / n), "perplexity": rounded(torch.tensor(sum(sums) / n, dtype=torch.float64).exp()),
            "window_nll_sums": [rounded(s) for s in sums]}


def greedy(logits_fn, sp, messages, device):
    ids = chatformat.encode(sp, messages)
    out, margins = [], []
    while len(out) < MAX_NEW and (not out or out[-1] != chatformat.END):
        with torch.no_grad():
            logits = logits_fn(torch.tensor([ids + out], device=device))[0, -1].float()
        two = logits.topk(2)
        out.append(int(two.indices[0]))
        margins.append(float(two.values[0] - two.values[1]))
    ended = out[-1] == chatformat.END
    return {"messages": messages, "rendered": chatformat.render(messages), "prompt_ids": ids, "output_ids": out,
            "text": sp.decode(out[:-1] if ended else out), "ended": ended, "min_margin": rounded(min(margins)),
            "min_margin_at": margins.index(min(margins))}


def long_prompt():
    """A conversation of about 4,000 tokens that ends with a question about its beginning."""
    rng = random.Random(77)
    world = chat.World(words.OBJECTS, (), ("Why?",))
    turns = [{"role": "user", "content": "Hello, my name is Clara."}, {"role": "assistant", "content": "Hello, Clara! How can I help you?"}]
    while sum(len(t["content"]) for t in turns) < 15000:
        turns += chat.story_turns(rng, world)[:2] + chat.fact_turn(rng, world)
    return turns + [{"role": "user", "content": "What is my name?"}]


def dump(folder, name, obj):
    """JSON broken into lines between its parts, so that changes can be read."""
    text = json.dumps(obj, ensure_ascii=False, separators=(",", ":"))
    for old, new in (("},{", "},\n{"), (',"', ',\n"')) if name.startswith("greedy") else (("},{", "},\n{"), ('"rows":[', '"rows":[\n')):
        text = text.replace(old, new)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("hf")
    ap.add_argument("trained")
    ap.add_argument("golden")
    ap.add_argument("--model", choices=sorted(FORMS), default="llama")
    ap.add_argument("--text")
    ap.add_argument("--device", default="cpu")
    a = ap.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(a.hf, "tokenizer.model"))
    ref = getattr(transformers, FORMS[a.model].transformers).from_pretrained(a.hf, dtype=torch.float32, attn_implementation="eager")
    ref.eval().to(a.device)
    for k, v in ref.state_dict().items():
        assert v.dtype == torch.float32, k
    own = new_model(a.model).float().eval()
    own.load_state_dict({k: ref.state_dict()[own.hf_name(k)].cpu() for k in own.state_dict()})
    own.to(a.device)
    trained = load_trained(a.model, a.trained).to(a.device)
    ref_fn, own_fn, trained_fn = (lambda x: ref(x).logits), own, trained
    with open(a.text or os.path.join(a.golden, "heldout.txt"), encoding="utf-8") as f:
        tokens = sp.encode(f.read())
    ids = [chatformat.BOS] + tokens[:N_POSITIONS - 1]
    lp, lp_own, lp_trained = (log_probs(f, ids, a.device) for f in (ref_fn, own_fn, trained_fn))
    next_id = torch.tensor(ids[1:], device=a.device)[:, None]
    gap = (lp_trained[:-1].gather(1, next_id) - lp[:-1].gather(1, next_id)).abs()
    made_with = "torch %s, transformers %s, float32, device %s" % (torch.__version__, transformers.__version__, a.device)
    dump(a.golden, "positions.json", {"made_with": made_with, "ids": ids, "rows": positions(lp, ids)})
    dump(a.golden, "trained.json", {"made_with": made_with, "ids_from": "positions.json",
                                    "logprob_next": [rounded(v) for v in lp_trained[:-1].gather(1, next_id)[:, 0]],
                                    "mean_abs_difference_to_released": rounded(gap.mean()),
                                    "max_abs_difference_to_released": rounded(gap.max()),
                                    "top1_equal": int((lp_trained.argmax(-1) == lp.argmax(-1)).sum()), "positions": len(ids)})
    p_ref, p_trained = perplexity(ref_fn, tokens, a.device), perplexity(trained_fn, tokens, a.device)
    p_ref["made_with"] = made_with
    p_ref["trained_before_snap"] = {k: p_trained[k] for k in ("mean_nll", "perplexity")}
    dump(a.golden, "perplexity.json", p_ref)
    chats = [greedy(ref_fn, sp, [{"role": r, "content": c} for r, c in p], a.device) for p in PROMPTS]
    dump(a.golden, "greedy.json", {"made_with": made_with, "max_new_tokens": MAX_NEW, "chats": chats})
    dump(a.golden, "greedy_long.json", {"made_with": made_with, "max_new_tokens": MAX_NEW, "chats": [greedy(ref_fn, sp, long_prompt(), a.device)]})
    print(json.dumps({"own_vs_transformers_max_logprob_diff": rounded((lp - lp_own).abs().max()),
                      "trained_vs_released_mean": rounded(gap.mean()), "nll_released": p_ref["mean_nll"],
                      "nll_trained": p_trained["mean_nll"], "min_margins": [c["min_margin"] for c in chats],
                      "min_position_margin": min(r["margin"] for r in positions(lp, ids))}))
    assert (lp - lp_own).abs().max() < 1e-3, "the training code's model is not that of transformers"


if __name__ == "__main__":
    main()
