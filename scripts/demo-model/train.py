"""Trains a model on the streams made by prepare.py; one GPU, bf16 autocast, AdamW.

usage: train.py DATA_FOLDER OUT_CHECKPOINT [--model llama|hybrid] [--steps N | --seconds S] [--init CHECKPOINT] [--lr X] [--log FILE]

In phases (RECIPES) of longer and longer windows, each with its own mix of streams. The learning rate warms up, then falls
along a cosine to 3 % over all phases together. A step draws its windows from one random generator with a fixed seed.
With --seconds the phases and the learning rate follow the clock instead of the number of steps.
"""
import argparse
import json
import math
import os
import time

import numpy as np
import torch

from model import new_model

NO_LEARN = 0x8000
# tokens a step, learning rate, steps, phases: (share of the training, window length, dropout, {stream: weight})
RECIPES = {
    "llama": (131072, 2e-3, 8200, [(0.68, 1024, 0.10, {"plain": .28, "chat": .66, "cchat": .06}),
                                   (0.14, 2048, 0.10, {"plain": .22, "chat": .64, "cchat": .04, "long": .10}),
                                   (0.18, 8192, 0.10, {"plain": .20, "chat": .54, "cchat": .02, "long": .24})]),
    "hybrid": (65536, 2e-3, 5000, [(0.80, 1024, 0.0, {"plain": .12, "chat": .85, "cchat": .03}),
                                   (0.20, 2048, 0.0, {"plain": .12, "chat": .64, "cchat": .02, "long": .22})])}


class Stream:
    """One stream on the GPU; draws windows of t + 1 tokens."""

    def __init__(self, folder, name, device):
        raw = np.load(os.path.join(folder, name + ".npy"))
        starts = np.load(os.path.join(folder, name + ".starts.npy"))
        self.tokens = torch.from_numpy(raw.view(np.int16)).to(device)
        self.starts = torch.from_numpy(starts).to(device)

    def windows(self, n, t, gen):
        pick = self.starts[torch.randint(len(self.starts), (n,), generator=gen, device=self.tokens.device)]
        at = (pick[:, None] + torch.arange(t + 1, device=pick.device)) % len(self.tokens)
        return self.tokens[at].long() & 0xFFFF

    def held_windows(self, n, t):
        """n windows spread evenly over the stream, the same every time."""
        at = self.starts[torch.linspace(0, len(self.starts) - 1, n, device=self.starts.device).long()]
        at = (at[:, None] + torch.arange(t + 1, device=at.device)) % len(self.tokens)
        return self.tokens[at].long() & 0xFFFF


def split(w):
    """(ids, targets) of windows; targets that are not to be learned become -100."""
    y = w[:, 1:]
    return w[:, :-1] & 0x7FFF, torch.where(y >= NO_LEARN, torch.full_like(y, -100), y)


def mixture(rng, weights, n):
    names = sorted(weights)
    p = np.array([weights[k] for k in names])
    return dict(zip(names, rng.multinomial(n, p / p.sum())))


def held_out(model, folder, device):
    """Mean loss on held-out windows of each stream (the last one, "plain", is training text, for comparison)."""
    out = {}
    model.eval()
    for name, t, n in (("plain-held", 1024, 64), ("chat-held", 1024, 64), ("cchat-held", 1024, 48), ("plain-held", 8192, 12),
                       ("long-held", 8192, 12), ("plain", 1024, 64)):
        s = Stream(folder, name, device)
        total, count = 0.0, 0
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), torch.autocast(device, torch.bfloat16):
            for w in s.held_windows(n, t).split(max(1, 16384 // t)):
                ids, y = split(w)
                k = int((y >= 0).sum())
                total += float(model.loss(ids, y)) * k
                count += k
        out["%s@%d" % (name, t)] = round(total / count, 5)
    model.train()
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("out")
    ap.add_argument("--model", choices=sorted(RECIPES), default="llama")
    ap.add_argument("--steps", type=int)
    ap.add_argument("--seconds", type=float)
    ap.add_argument("--lr", type=float)
    ap.add_argument("--init")
    ap.add_argument("--log")
    a = ap.parse_args()
    tokens, rate, steps, phases = RECIPES[a.model]
    rate, steps = a.lr or rate, a.steps or steps
    begun = time.time()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = new_model(a.model).to(device)
    if a.init:
        model.load_state_dict(torch.load(a.init, weights_only=True))
    streams = {k: Stream(a.data, k, device) for k in ("plain", "chat", "cchat", "long")}
    decay = [p for p in model.parameters() if p.dim() == 2]
    other = [p for p in model.parameters() if p.dim() != 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": .1}, {"params": other, "weight_decay": 0.}], lr=rate,
                            betas=(.9, .95), fused=True)
    gen, rng = torch.Generator(device).manual_seed(2), np.random.default_rng(3)
    loss_fn = model.compiled_loss()
    warm = max(10, steps // 40)
    log, step, end = [], 0, 0.0

    def done():
        return (time.time() - begun) / a.seconds if a.seconds else step / steps

    for share, t, drop, mix in phases:
        model.set_dropout(drop)
        end += share
        while done() < min(end, 1) - 1e-9:
            counts = mixture(rng, mix, tokens // t)
            w = torch.cat([streams[k].windows(int(n), t, gen) for k, n in counts.items() if n])
            ids, y = split(w)
            scale = min(1.0, (step + 1) / warm) * (.03 + .97 * .5 * (1 + math.cos(math.pi * done())))
            for g in opt.param_groups:
                g["lr"] = rate * scale
            with torch.autocast(device, torch.bfloat16):
                loss = loss_fn(ids, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 200 == 0 or step in (10, 50):
                log.append({"step": step, "window": t, "loss": round(loss.item(), 4), "seconds": round(time.time() - begun, 1)})
                print(json.dumps(log[-1]), flush=True)
        log.append({"step": step, "held_out": held_out(model, a.data, device)})
        print(json.dumps(log[-1]), flush=True)
    result = {"steps": step, "tokens": step * tokens, "seconds": round(time.time() - begun, 1),
              "held_out": log[-1]["held_out"], "log": log}
    torch.save({k: v.detach().cpu() for k, v in model.state_dict().items()}, a.out)
    if a.log:
        with open(a.log, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
