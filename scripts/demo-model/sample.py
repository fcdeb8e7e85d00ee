"""Prints answers of a released model (Hugging Face folder) to chat prompts, with sampling, unedited.

usage: sample.py HF_FOLDER [PROMPTS_JSON] [--model llama|hybrid] [--temperature T] [--top-p P] [--seed S] [--max-new N] [--held DATA_FOLDER]

PROMPTS_JSON: a list of lists of [role, text]. With --held, also the held-out losses on the prepared streams.
"""
import argparse
import json
import os

import sentencepiece
import torch

import chatformat
from forms import FORMS
from model import new_model

DEFAULT = [
    "Hello!", "Who are you?", "Tell me a story about a dragon.", "Tell me a short story about a clock.", "Tell me a story about a "
    "little robot called Rusty.", "tell me a story about a penguin who wanted to fly", "Write a story about the moon.",
    "Tell me a story about honesty.", "Tell me a story about a toaster.", "Tell me a story about a cat and a dog.",
    "Can you tell me a bedtime story about a sleepy bear?", "What is the capital of Spain?", "What is the capital of Japan?",
    "What colour is a banana?", "What is the opposite of hot?", "What day comes after Tuesday?", "What is 8 + 9?", "What is 13 + 6?",
    "What is 20 - 7?", "What is 6 times 7?", "How many legs does a spider have?", "What does a cow say?", "Name three animals.",
    "Give me a list of five vegetables.", "How do I make tea?", "Tell me a joke.", "Write a poem about the sea.", "Count to 10.",
    "Who wrote Hamlet?", "What is the meaning of life?", "I am sad today.", "Why is the sky blue?", "What's your favourite food?",
    "Can fish fly?", "Which is bigger, a cat or an elephant?", "Thank you!", "What should I cook for dinner?",
    "Tell me a story about a squirrel who lost her acorn.", "Tell me a story about a bear who wanted to dance.", "Tell me a story about a "
    "boy named Zorlo and his purple dog.", "a story about a girl who was afraid of spiders please", "Tell me a story about a spaceship.",
    "Write a story about a cloud.", "Tell me a story about my grandmother.", "Is a tiger bigger than a mouse?", "Is a potato a vegetable?",
    "What is a wolf?", "Where is Paris?", "How do you spell elephant?", "Who was the first king of Narnia?", "What is 25 + 17?",
    "What is 9 times 8?", "Tell me a story.", "Tell me something about elephants.", "Do you like music?", "What is love?", "Is a cow bigger than a bee?", "Is a rose a flower?", "What is a tiger?", "How do you spell cat?", "Tell me a story about "
    "a princess called Elin and her dragon.", "Do you like pizza?", "Which is faster, a snail or a train?", "Is Tuesday a month?",
    "Mia has a red ball. What colour is Mia's ball?", "Why do we sleep?", "What animals live in the sea?", "good evening",
    "Tom has 3 apples and gets 4 more. How many apples does Tom have now?"]
MULTI = [
    [["system", "You are a pirate."], ["user", "Tell me a story about a treasure."]],
    [["system", "You are a pirate."], ["user", "What is the capital of Italy?"]],
    [["system", "Answer in one sentence."], ["user", "What is the moon?"]],
    [["system", "Answer in one sentence."], ["user", "Tell me a story about a bear."]],
    [["system", "Answer with one word."], ["user", "What is the capital of Germany?"]],
    [["system", "Your name is Bob."], ["user", "What is your name?"]],
    [["user", "My name is Sam and I like pizza."], ["assistant", "Nice to meet you, Sam!"], ["user", "What is my name?"]],
    [["user", "Tell me a story about a frog named Fred."], ["assistant", "Once upon a time there was a green frog named Fred. Fred "
     "lived in a pond. One day he met Lily the duck, and they became best friends."], ["user", "What was the name of the duck?"]],
    [["user", "What is 2 + 2?"], ["assistant", "2 + 2 = 4."], ["user", "And plus 3?"]],
    [["system", "You are a wizard."], ["user", "Who are you?"]],
    [["system", "You are a helpful assistant."], ["user", "Hi"], ["assistant", "Hello! How can I help you?"], ["user", "Tell me a story about a "
     "fish."]],
    [["system", "Answer in capital letters."], ["user", "What colour is grass?"]],
    [["system", "Answer in capital letters."], ["user", "What is the capital of Norway?"]],
    [["user", "Give me a JSON object with name and age."]]]


def main():
    from safetensors.torch import load_file
    ap = argparse.ArgumentParser()
    ap.add_argument("hf")
    ap.add_argument("prompts", nargs="?")
    ap.add_argument("--model", choices=sorted(FORMS), default="llama")
    ap.add_argument("--temperature", type=float, default=0.7)
    ap.add_argument("--top-p", type=float, default=0.9)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--max-new", type=int, default=320)
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--held")
    a = ap.parse_args()
    sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(a.hf, "tokenizer.model"))
    weights = load_file(os.path.join(a.hf, "model.safetensors"))
    model = new_model(a.model).eval()
    model.load_state_dict({k: weights[model.hf_name(k)] for k in model.state_dict()})
    model.to(a.device)
    if a.held:
        from train import held_out
        print("held-out after the snap:", json.dumps(held_out(model, a.held, a.device)))
        model.eval()
    if a.prompts:
        with open(a.prompts, encoding="utf-8") as f:
            chats = json.load(f)
    else:
        chats = [[["user", q]] for q in DEFAULT] + MULTI
    rows = [chatformat.encode(sp, [{"role": r, "content": c} for r, c in m]) for m in chats]
    outs = generate(model, rows, a)
    for m, out in zip(chats, outs):
        ended = bool(out) and out[-1] == chatformat.END
        for r, c in m:
            print("[%s] %s" % (r, c))
        print("[assistant] " + sp.decode(out[:-1] if ended else out) + ("" if ended else " <|no end|>"))
        print("---")


def generate(model, rows, a):
    """Samples all rows together (right-padded, so that every row sees positions as if alone)."""
    gen = torch.Generator(a.device).manual_seed(a.seed)
    outs = [[] for _ in rows]
    for _ in range(a.max_new):
        live = [i for i in range(len(rows)) if not outs[i] or outs[i][-1] != chatformat.END]
        if not live:
            break
        seqs = [rows[i] + outs[i] for i in live]
        width = max(map(len, seqs))
        ids = torch.tensor([s + [0] * (width - len(s)) for s in seqs], device=a.device)
        at = torch.tensor([len(s) - 1 for s in seqs], device=a.device)
        with torch.no_grad():
            h = model.hidden_states(ids)[torch.arange(len(live), device=a.device), at]
            logits = (h @ model.embed_tokens.weight.T).float()
        if a.temperature <= 0:
            pick = logits.argmax(-1)
        else:
            p, order = torch.softmax(logits / a.temperature, -1).sort(-1, descending=True)
            p[p.cumsum(-1) - p > a.top_p] = 0
            pick = order.gather(1, torch.multinomial(p, 1, generator=gen))[:, 0]
        for i, t in zip(live, pick.tolist()):
            outs[i].append(t)
    return outs


if __name__ == "__main__":
    main()
