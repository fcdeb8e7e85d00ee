"""The hybrid in PyTorch: Qwen3.5's layers with Hugging Face weight names.

The gated delta net in chunks of 64 positions (Yang and others, Gated Delta Networks, 2024): within a chunk the
corrections solve a triangular system, and a chunk maps the state before it to the one after it by S -> M S + N, so that
only that runs chunk after chunk. Float32, whatever autocast says.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from forms import FORMS
from model import Decoder, rotate

CHUNK = 64


class CentredNorm(nn.Module):
    """RMS norm times 1 + weight, as most of Qwen3.5's are; scaled: times weight."""

    def __init__(self, dim, eps, scaled=False):
        super().__init__()
        self.eps, self.scaled = eps, scaled
        self.weight = nn.Parameter(torch.ones(dim) if scaled else torch.zeros(dim))

    def forward(self, x):
        f = x.float()
        f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)
        return (f * self.weight if self.scaled else f * (1 + self.weight)).to(x.dtype)


def unit_lower_inverse(a):
    """(I + a)^-1 of strictly lower triangular matrices (..., n, n), n a power of two from 8 on."""
    n = a.shape[-1]
    if n == 8:
        eye = torch.eye(8, device=a.device, dtype=a.dtype)
        a2 = a @ a
        return (eye - a) @ (eye + a2) @ (eye + a2 @ a2)
    h = n // 2
    x, y = unit_lower_inverse(torch.stack([a[..., :h, :h], a[..., h:, h:]]))
    z = -(y @ (a[..., h:, :h] @ x))
    return torch.cat([torch.cat([x, torch.zeros_like(z)], -1), torch.cat([z, y], -1)], -2)


def delta_rule(q, k, v, g, beta):
    """q, k, v: (batch, heads, time, d) with q and k of unit length; g (log of the decay) and beta: (batch, heads, time).
    -> (batch, heads, time, d)."""
    n, heads, t, d = v.shape
    more = -t % CHUNK
    q, k, v = (F.pad(x, (0, 0, 0, more)).reshape(n, heads, -1, CHUNK, d) for x in (q * d ** -0.5, k, v))
    g, beta = (F.pad(x, (0, more)).reshape(n, heads, -1, CHUNK) for x in (g, beta))
    g = g.cumsum(-1)
    below = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~below, -math.inf).exp()
    kt = k.transpose(-1, -2)
    system = ((beta[..., None] * k) @ kt * decay).tril(-1)
    grow = g.exp()[..., None]
    solved = unit_lower_inverse(system) @ (beta[..., None] * torch.cat([v, grow * k], -1))
    u, w = solved.split(d, -1)
    seen = q @ kt * decay
    keys = (k * (g[..., -1:] - g).exp()[..., None]).transpose(-1, -2)
    eye = torch.eye(d, device=v.device, dtype=v.dtype)
    m = g[..., -1].exp()[..., None, None] * eye - keys @ w
    add = keys @ u
    state, before = torch.zeros_like(add[:, :, 0]), []
    for i in range(m.shape[2]):
        before.append(state)
        state = m[:, :, i] @ state + add[:, :, i]
    out = (grow * q - seen @ w) @ torch.stack(before, 2) + seen @ u
    return out.reshape(n, heads, -1, d)[:, :, :t]


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.keys, self.values = c.k_heads * c.state, c.v_heads * c.state
        width = 2 * self.keys + self.values
        self.in_proj_qkv = nn.Linear(c.hidden, width, bias=False)
        self.in_proj_z = nn.Linear(c.hidden, self.values, bias=False)
        self.in_proj_a = nn.Linear(c.hidden, c.v_heads, bias=False)
        self.in_proj_b = nn.Linear(c.hidden, c.v_heads, bias=False)
        self.conv1d = nn.Conv1d(width, width, c.conv, groups=width, bias=False)
        self.A_log = nn.Parameter(torch.empty(c.v_heads).uniform_(1, 8).log())
        # steps of 0.001 to 0.1 at the start, so that some heads remember for hundreds of tokens
        step = torch.exp(torch.empty(c.v_heads).uniform_(math.log(.001), math.log(.1)))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = CentredNorm(c.state, c.eps, scaled=True)
        self.out_proj = nn.Linear(self.values, c.hidden, bias=False)

    def forward(self, x):
        c, (n, t, _) = self.c, x.shape
        inputs = F.pad(self.in_proj_qkv(x), (0, 0, c.conv - 1, 0))
        taps = self.conv1d.weight[:, 0].to(inputs.dtype)
        mixed = F.silu(sum(inputs[:, j:j + t] * taps[:, j] for j in range(c.conv)))
        z, a, b = self.in_proj_z(x), self.in_proj_a(x).float(), self.in_proj_b(x).float()
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = (p.float().view(n, t, -1, c.state).transpose(1, 2)
                       for p in mixed.split([self.keys, self.keys, self.values], -1))
            q, k = (p * torch.rsqrt(p.pow(2).sum(-1, keepdim=True) + 1e-6) for p in (q, k))
            q, k = (p.repeat_interleave(c.v_heads // c.k_heads, 1) for p in (q, k))
            g = -self.A_log.exp() * F.softplus(a + self.dt_bias)
            out = delta_rule(q, k, v, g.transpose(1, 2), b.sigmoid().transpose(1, 2)).transpose(1, 2)
            out = self.norm(out) * F.silu(z.float()).view(n, t, -1, c.state)
        return self.out_proj(out.reshape(n, t, -1).to(x.dtype))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden, 2 * c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.q_norm, self.k_norm = CentredNorm(c.head_dim, c.eps), CentredNorm(c.head_dim, c.eps)

    def forward(self, x, cos, sin):
        c, (n, t, _) = self.c, x.shape
        q, gate = self.q_proj(x).view(n, t, c.heads, 2 * c.head_dim).split(c.head_dim, -1)
        k, v = (p(x).view(n, t, c.kv_heads, c.head_dim) for p in (self.k_proj, self.v_proj))
        q, k = (torch.cat([rotate(p[..., :c.rotated], cos, sin), p[..., c.rotated:]], -1)
                for p in (self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)))
        rep = c.heads // c.kv_heads
        k, v = k.repeat_interleave(rep, 1), v.transpose(1, 2).repeat_interleave(rep, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2) * torch.sigmoid(gate)
        return self.o_proj(out.reshape(n, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c, recurrent):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (CentredNorm(c.hidden, c.eps) for _ in range(2))
        if recurrent:
            self.linear_attn = DeltaNet(c)
        else:
            self.self_attn = Attention(c)
        self.mlp = Mlp(c)
        self.drop = nn.Dropout(0.0)

    def forward(self, x, cos, sin):
        h = self.input_layernorm(x)
        x = x + self.drop(self.linear_attn(h) if hasattr(self, "linear_attn") else self.self_attn(h, cos, sin))
        return x + self.drop(self.mlp(self.post_attention_layernorm(x)))


class Hybrid(Decoder):
    def __init__(self):
        form = FORMS["hybrid"]
        super().__init__(form, form.config["rotated"], lambda c, i: Layer(c, form.recurrent(i)),
                         lambda c: CentredNorm(c.hidden, c.eps))

    def compiled_loss(self):
        """Layers one by one: those of a kind share what was compiled."""
        for layer in self.layers:
            layer.compile(dynamic=False)
        return self.loss

    @staticmethod
    def hf_name(name):
        """Parameter name here -> name in a Hugging Face checkpoint."""
        return "model." + name
