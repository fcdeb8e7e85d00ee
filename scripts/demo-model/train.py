"""Trains the model on the streams made by prepare.py; one GPU, bf16 autocast, AdamW.

usage: train.py DATA_FOLDER OUT_CHECKPOINT [--steps N] [--init CHECKPOINT] [--lr X] [--log FILE]

Three phases: windows of 1,024 tokens, then 2,048, then 8,192, each with its own mix of streams; 131,072 tokens a step.
The learning rate warms up, then falls along a cosine to 3 % over all phases together. A step draws its windows from one
random generator with a fixed seed.
"""
import argparse
import json
import math
import os
import time

import numpy as np
import torch

from model import Config, Llama

NO_LEARN = 0x8000
TOKENS_PER_STEP = 131072
# (share of the steps, window length, dropout, {stream: weight})
PHASES = [(0.68, 1024, 0.10, {"plain": .28, "chat": .66, "cchat": .06}),
          (0.14, 2048, 0.10, {"plain": .22, "chat": .64, "cchat": .04, "long": .10}),
          (0.18, 8192, 0.10, {"plain": .20, "chat": .54, "cchat": .02, "long": .24})]


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
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
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
    ap.add_argument("--steps", type=int, default=8200)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--init")
    ap.add_argument("--log")
    a = ap.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = "cuda"
    model = Llama(Config()).to(device)
    if a.init:
        model.load_state_dict(torch.load(a.init, weights_only=True))
    streams = {k: Stream(a.data, k, device) for k in ("plain", "chat", "cchat", "long")}
    decay = [p for p in model.parameters() if p.dim() == 2]
    other = [p for p in model.parameters() if p.dim() != 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": .1}, {"params": other, "weight_decay": 0.}], lr=a.lr,
                            betas=(.9, .95), fused=True)
    gen, rng = torch.Generator(device).manual_seed(2), np.random.default_rng(3)
    loss_fn = torch.compile(model.loss, dynamic=False)
    phases = [(max(1, round(share * a.steps)), t, drop, mix) for share, t, drop, mix in PHASES]
    steps = sum(p[0] for p in phases)
    warm = max(10, steps // 40)
    log, step, begun = [], 0, time.time()
    for n_steps, t, drop, mix in phases:
        model.set_dropout(drop)
        for _ in range(n_steps):
            counts = mixture(rng, mix, TOKENS_PER_STEP // t)
            w = torch.cat([streams[k].windows(int(n), t, gen) for k, n in counts.items() if n])
            ids, y = split(w)
            scale = min(1.0, (step + 1) / warm) * (.03 + .97 * .5 * (1 + math.cos(math.pi * step / steps)))
            for g in opt.param_groups:
                g["lr"] = a.lr * scale
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_fn(ids, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 200 == 0 or step == steps or step in (10, 50):
                value, now = loss.item(), time.time()
                log.append({"step": step, "window": t, "loss": round(value, 4), "seconds": round(now - begun, 1)})
                print(json.dumps(log[-1]), flush=True)
        log.append({"step": step, "held_out": held_out(model, a.data, device)})
        print(json.dumps(log[-1]), flush=True)
    result = {"steps": steps, "tokens": steps * TOKENS_PER_STEP, "seconds": round(time.time() - begun, 1),
              "held_out": log[-1]["held_out"], "log": log}
    torch.save({k: v.detach().cpu() for k, v in model.state_dict().items()}, a.out)
    if a.log:
        with open(a.log, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
