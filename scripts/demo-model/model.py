"""What both models share, and the Llama-architecture model, in PyTorch, with Hugging Face weight names and half-split RoPE."""
import math
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

from forms import FORMS


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        f = x.float()
        f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * f).to(x.dtype)


def rotate(x, cos, sin):
    """x: (batch, heads, time, head_dim); the first and second half of a head are the two parts of each pair."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.input_layernorm = RMSNorm(c.hidden, c.eps)
        self.post_attention_layernorm = RMSNorm(c.hidden, c.eps)
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)
        self.drop = nn.Dropout(0.0)

    def forward(self, x, cos, sin):
        c = self.c
        n, t, _ = x.shape
        h = self.input_layernorm(x)
        q = self.q_proj(h).view(n, t, c.heads, c.head_dim).transpose(1, 2)
        k = self.k_proj(h).view(n, t, c.kv_heads, c.head_dim).transpose(1, 2)
        v = self.v_proj(h).view(n, t, c.kv_heads, c.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        rep = c.heads // c.kv_heads
        k, v = k.repeat_interleave(rep, 1), v.repeat_interleave(rep, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.o_proj(a.transpose(1, 2).reshape(n, t, -1)))
        h = self.post_attention_layernorm(x)
        return x + self.drop(self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h)))


class Decoder(nn.Module):
    """A form's model without its layers: layer(c, i) makes layer i, norm(c) the last norm."""

    def __init__(self, form, rotated, layer, norm):
        super().__init__()
        self.c = c = SimpleNamespace(**form.config, eps=form.eps)
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(layer(c, i) for i in range(c.layers))
        self.norm = norm(c)
        self.drop = nn.Dropout(0.0)
        freq = 1.0 / (c.theta ** (torch.arange(0, rotated, 2, dtype=torch.float64) / rotated))
        angle = torch.arange(c.context, dtype=torch.float64)[:, None] * freq[None, :]
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02 if "embed" in name else 1 / math.sqrt(p.shape[1])
                if name.split(".")[-2] in ("o_proj", "out_proj", "down_proj"):
                    std /= math.sqrt(2 * c.layers)
                nn.init.normal_(p, std=std)

    def hidden_states(self, ids):
        t = ids.shape[1]
        x = self.drop(self.embed_tokens(ids))
        for layer in self.layers:
            x = layer(x, self.cos[:t], self.sin[:t])
        return self.norm(x)

    def set_dropout(self, p):
        """Drop probability in training, on the embedding and on what each block adds."""
        for m in self.modules():
            if isinstance(m, nn.Dropout):
                m.p = p

    def forward(self, ids):
        """ids: (batch, time) int64 -> logits (batch, time, vocab)."""
        return F.linear(self.hidden_states(ids), self.embed_tokens.weight)

    def loss(self, ids, targets):
        """Mean cross entropy over the targets that are not -100."""
        return F.cross_entropy(self.forward(ids).float().flatten(0, 1), targets.flatten(), ignore_index=-100)


class Llama(Decoder):
    def __init__(self):
        form = FORMS["llama"]
        super().__init__(form, form.config["head_dim"], lambda c, i: Layer(c), lambda c: RMSNorm(c.hidden, c.eps))

    def compiled_loss(self):
        return torch.compile(self.loss, dynamic=False)

    @staticmethod
    def hf_name(name):
        """Parameter name here -> name in a Hugging Face checkpoint."""
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            name = name.replace("." + part, ".self_attn." + part)
        for part in ("gate_proj", "up_proj", "down_proj"):
            name = name.replace("." + part, ".mlp." + part)
        return "model." + name


def new_model(name):
    """A fresh model of a form."""
    if name == "hybrid":
        from hybrid import Hybrid
        return Hybrid()
    return Llama()
