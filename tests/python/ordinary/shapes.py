"""Layouts of fused projections and heads, and sizes that coincide."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary
from .attention import Plain


class Fused(Plain):
    """A subclass says how the fused product is laid out."""

    def split(self, x, i):
        raise NotImplementedError

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@ordinary
class FusedHeadsLast(Fused):
    """(size, 3, heads): the fastest axis is the head."""

    def split(self, x, i):
        b, t, _ = x.shape
        y = self.qkv[i](x).view(b, t, self.head_dim, 3, self.heads)
        return y.permute(3, 0, 4, 1, 2).unbind(0)


@ordinary
class FusedPerHead(Fused):
    """(heads, 3, size), taken by indices."""

    def split(self, x, i):
        b, t, _ = x.shape
        y = self.qkv[i](x).reshape(b, t, self.heads, 3, self.head_dim).transpose(1, 2)
        return y[:, :, :, 0], y[:, :, :, 1], y[:, :, :, 2]


@ordinary
class FusedThreeFastest(Fused):
    """(heads, size, 3), by unbind of the last axis."""

    def split(self, x, i):
        y = self.qkv[i](x).view(*x.shape[:2], self.heads, self.head_dim, 3)
        return tuple(z.permute(0, 2, 1, 3) for z in y.unbind(dim=-1))


@ordinary
class FusedVkq(Fused):
    """v, k, q in that order, narrow by narrow; heads = head size = tokens at times."""

    dim, heads, vocab, longest = 64, 8, 64, 64

    def split(self, x, i):
        y = self.qkv[i](x)
        v, k, q = (y.narrow(-1, n * self.dim, self.dim) for n in range(3))
        return [z.unflatten(2, (self.heads, self.head_dim)).movedim(2, 1) for z in (q, k, v)]


@ordinary
class StridedFeatures(Fused):
    """Heads take every fourth feature: the view is (size, heads)."""

    def split(self, x, i):
        b, t, d = x.shape
        q, k, v = self.qkv[i](x).split(d, dim=-1)
        return [y.view(b, t, self.head_dim, self.heads).permute(0, 3, 1, 2) for y in (q, k, v)]

    def merge(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1)


@ordinary
class FusedWithFeedForward(Plain):
    """Attention and MLP share one product in and one out, as in ViT-22B and Command."""

    def extra(self):
        d = self.dim
        self.into = nn.ModuleList(nn.Linear(d, 3 * d + 4 * d, bias=False) for _ in range(self.depth))
        self.outof = nn.ModuleList(nn.Linear(d + 2 * d, d, bias=False) for _ in range(self.depth))

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        d = self.dim
        for i in range(self.depth):
            q, k, v, a, g = self.into[i](self.norms[i](x)).split((d, d, d, 2 * d, 2 * d), dim=-1)
            q, k, v = (y.view(*y.shape[:2], self.heads, -1).transpose(1, 2) for y in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + self.outof[i](torch.cat([y, a * F.silu(g)], dim=-1))
        return self.head(x)


@ordinary
class OneLayerOneHead(nn.Module):
    """As small as can be: width 8, one head, the vocabulary as wide as the context."""

    def __init__(self, n=32, d=8):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(n, d), nn.Embedding(n, d)
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, n)
        self.register_buffer("tril", torch.tril(torch.ones(n, n)))

    def forward(self, idx):
        T = idx.shape[1]
        x = self.wte(idx) + self.wpe.weight[:T]
        h = self.ln(x)
        w = self.q(h) @ self.k(h).transpose(1, 2) / math.sqrt(8)
        w = F.softmax(w.masked_fill(self.tril[:T, :T] == 0, -math.inf), dim=2)
        return self.head(x + w @ self.v(h))


@ordinary
class WideHeads(nn.Module):
    """Heads together are wider than the model, and values are wider than keys."""

    def __init__(self, vocab=46, d=24, h=3, dk=10, dv=14):
        super().__init__()
        self.h, self.dk, self.dv = h, dk, dv
        self.e, self.p = nn.Embedding(vocab, d), nn.Parameter(torch.randn(72, d) * 0.1)
        self.qk = nn.ModuleList(nn.Linear(d, 2 * h * dk) for _ in range(2))
        self.v = nn.ModuleList(nn.Linear(d, h * dv) for _ in range(2))
        self.o = nn.ModuleList(nn.Linear(h * dv, d) for _ in range(2))
        self.ff = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 50), nn.ReLU(), nn.Linear(50, d)) for _ in range(2)
        )
        self.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        b, t = ids.shape
        x = self.e(ids) + self.p[:t]
        for i in range(2):
            n = self.n[i](x)
            q, k = self.qk[i](n).view(b, t, self.h, 2 * self.dk).transpose(1, 2).chunk(2, dim=-1)
            v = self.v[i](n).view(b, t, self.h, self.dv).transpose(1, 2)
            w = torch.softmax(
                q @ k.transpose(2, 3) / math.sqrt(self.dk) + torch.full((t, t), -1e9).triu(1), -1
            )
            x = x + self.o[i]((w @ v).transpose(1, 2).contiguous().view(b, t, self.h * self.dv))
            x = x + self.ff[i](x)
        return self.head(self.n[2](x))


@ordinary
class TwoDimensional(nn.Module):
    """Linear layers see (batch * tokens, features), as hand-made kernels like it."""

    def __init__(self, vocab=57, d=36, h=6):
        super().__init__()
        self.h, self.d = h, d
        self.e, self.p = nn.Embedding(vocab, d), nn.Embedding(60, d)
        self.w = nn.ParameterDict({
            f"{name}{i}": nn.Parameter(torch.randn(a, b) * 0.1)
            for i in range(2)
            for name, a, b in (("qkv", d, 3 * d), ("o", d, d), ("up", d, 2 * d), ("down", 2 * d, d))
        })  # fmt: skip
        self.g = nn.ParameterList(torch.ones(d) for _ in range(5))
        self.head = nn.Parameter(torch.randn(d, vocab) * 0.1)

    def norm(self, x, i):
        return F.layer_norm(x, [self.d], self.g[i], None)

    def forward(self, ids):
        B, T = ids.shape
        x = (self.e(ids) + self.p(torch.arange(T))).view(B * T, self.d)
        for i in range(2):
            q, k, v = (
                torch.mm(self.norm(x, 2 * i), self.w[f"qkv{i}"])
                .view(B, T, 3, self.h, -1)
                .permute(2, 0, 3, 1, 4)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = torch.addmm(x, y.transpose(1, 2).reshape(B * T, self.d), self.w[f"o{i}"])
            y = F.gelu(self.norm(x, 2 * i + 1) @ self.w[f"up{i}"])
            x = x + y @ self.w[f"down{i}"]
        return (self.norm(x, 4) @ self.head).view(B, T, -1)
