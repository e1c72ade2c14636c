"""Decoders after the reference code of Llama, Mistral and small repositories that follow them."""
import math
from dataclasses import dataclass
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn

from . import ordinary


@dataclass
class ModelArgs:
    dim: int = 48
    n_layers: int = 2
    n_heads: int = 6
    n_kv_heads: Optional[int] = None
    vocab_size: int = 64
    hidden_dim: int = 96
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    max_seq_len: int = 128


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end, device=freqs.device), freqs).float()
    return torch.polar(torch.ones_like(freqs), freqs)


def apply_complex_rope(xq, xk, freqs_cis) -> Tuple[torch.Tensor, torch.Tensor]:
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    shape = [d if i == 1 or i == xq_.ndim - 1 else 1 for i, d in enumerate(xq_.shape)]
    freqs_cis = freqs_cis.view(*shape)
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def apply_real_rope(xq, xk, freqs_cos, freqs_sin):
    xq_r, xq_i = xq.float().reshape(xq.shape[:-1] + (-1, 2)).unbind(-1)
    xk_r, xk_i = xk.float().reshape(xk.shape[:-1] + (-1, 2)).unbind(-1)
    cos, sin = freqs_cos[None, :, None, :], freqs_sin[None, :, None, :]
    xq_out = torch.stack([xq_r * cos - xq_i * sin, xq_r * sin + xq_i * cos], dim=-1).flatten(3)
    xk_out = torch.stack([xk_r * cos - xk_i * sin, xk_r * sin + xk_i * cos], dim=-1).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def repeat_kv(x, n_rep):
    bs, slen, n_kv_heads, head_dim = x.shape
    if n_rep == 1:
        return x
    x = x[:, :, :, None, :].expand(bs, slen, n_kv_heads, n_rep, head_dim)
    return x.reshape(bs, slen, n_kv_heads * n_rep, head_dim)


class Attention(nn.Module):
    def __init__(self, args, real, flash):
        super().__init__()
        self.n_heads, self.n_kv_heads = args.n_heads, args.n_kv_heads or args.n_heads
        self.n_rep, self.head_dim = self.n_heads // self.n_kv_heads, args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, self.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(self.n_heads * self.head_dim, args.dim, bias=False)
        self.real, self.flash = real, flash

    def forward(self, x, freqs, mask):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xq, xk = apply_real_rope(xq, xk, *freqs) if self.real else apply_complex_rope(xq, xk, freqs)
        keys, values = repeat_kv(xk, self.n_rep).transpose(1, 2), repeat_kv(xv, self.n_rep).transpose(1, 2)
        xq = xq.transpose(1, 2)
        if self.flash:
            output = F.scaled_dot_product_attention(xq, keys, values, is_causal=True)
        else:
            scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.head_dim)
            if mask is not None:
                scores = scores + mask
            output = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(xq), values)
        return self.wo(output.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class TransformerBlock(nn.Module):
    def __init__(self, args, real, flash):
        super().__init__()
        self.attention = Attention(args, real, flash)
        self.w1 = nn.Linear(args.dim, args.hidden_dim, bias=False)
        self.w2 = nn.Linear(args.hidden_dim, args.dim, bias=False)
        self.w3 = nn.Linear(args.dim, args.hidden_dim, bias=False)
        self.attention_norm = RMSNorm(args.dim, args.norm_eps)
        self.ffn_norm = RMSNorm(args.dim, args.norm_eps)

    def forward(self, x, freqs, mask):
        h = x + self.attention(self.attention_norm(x), freqs, mask)
        y = self.ffn_norm(h)
        return h + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Transformer(nn.Module):
    def __init__(self, args, real=False, flash=False):
        super().__init__()
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleList(TransformerBlock(args, real, flash) for _ in range(args.n_layers))
        self.norm = RMSNorm(args.dim, eps=args.norm_eps)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)
        freqs = precompute_freqs_cis(args.dim // args.n_heads, args.max_seq_len * 2, args.rope_theta)
        self.real, self.flash = real, flash
        if real:
            self.register_buffer("freqs_cos", freqs.real, persistent=False)
            self.register_buffer("freqs_sin", freqs.imag, persistent=False)
        else:
            self.freqs_cis = freqs

    def forward(self, tokens, start_pos: int = 0):
        _bsz, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        if self.real:
            freqs = self.freqs_cos[:seqlen], self.freqs_sin[:seqlen]
        else:
            freqs = self.freqs_cis.to(h.device)[start_pos:start_pos + seqlen]
        mask = None
        if seqlen > 1 and not self.flash:
            mask = torch.full((seqlen, seqlen), float("-inf"), device=tokens.device)
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((seqlen, start_pos)), mask]).type_as(h)
        for layer in self.layers:
            h = layer(h, freqs, mask)
        return self.output(self.norm(h)).float()


@ordinary
def LlamaComplexRopeTriuMask():
    return Transformer(ModelArgs())


@ordinary
def LlamaComplexRopeGqaBfloat16():
    return Transformer(ModelArgs(dim=64, n_heads=8, n_kv_heads=2, rope_theta=500000.0)).bfloat16()


@ordinary
def LlamaRealRopeFlashGqa():
    return Transformer(ModelArgs(n_kv_heads=3, vocab_size=80), real=True, flash=True)


@ordinary
def LlamaRealRopeMaskHalf():
    return Transformer(ModelArgs(dim=32, n_heads=4, hidden_dim=88), real=True).half()


@ordinary
def LlamaRealRopeFlashBfloat16():
    return Transformer(ModelArgs(dim=32, n_heads=4, n_kv_heads=1), real=True, flash=True).to(torch.bfloat16)


@ordinary
class MistralFlatTokensWindow(nn.Module):
    """The model flattens tokens to [n, d] and indexes complex frequencies by position."""

    class Layer(nn.Module):
        def __init__(self, dim, heads, kv, head_dim, hidden):
            super().__init__()
            self.heads, self.kv, self.head_dim, self.repeats = heads, kv, head_dim, heads // kv
            self.wq = nn.Linear(dim, heads * head_dim, bias=False)
            self.wk = nn.Linear(dim, kv * head_dim, bias=False)
            self.wv = nn.Linear(dim, kv * head_dim, bias=False)
            self.wo = nn.Linear(heads * head_dim, dim, bias=False)
            self.w1, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
            self.w2 = nn.Linear(hidden, dim, bias=False)
            self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)

        def rotate(self, x, freqs_cis):
            x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(x_ * freqs_cis[:, None, :]).flatten(-2).type_as(x)

        def forward(self, x, freqs_cis, mask):
            n, _ = x.shape
            y = self.attention_norm(x)
            xq = self.rotate(self.wq(y).view(n, self.heads, self.head_dim), freqs_cis)
            xk = self.rotate(self.wk(y).view(n, self.kv, self.head_dim), freqs_cis)
            xv = self.wv(y).view(n, self.kv, self.head_dim)
            key = torch.repeat_interleave(xk, repeats=self.repeats, dim=1)
            val = torch.repeat_interleave(xv, repeats=self.repeats, dim=1)
            scores = torch.einsum("qhd,khd->hqk", xq, key) * self.head_dim ** -0.5
            probs = (scores + mask).softmax(-1)
            x = x + self.wo(torch.einsum("hqk,khd->qhd", probs, val).reshape(n, -1))
            y = self.ffn_norm(x)
            return x + self.w2(F.silu(self.w1(y)) * self.w3(y))

    def __init__(self, vocab=56, dim=40, heads=4, kv=2, head_dim=12, hidden=72, window=24):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(self.Layer(dim, heads, kv, head_dim, hidden) for _ in range(2))
        self.norm, self.output = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.window, self.head_dim, self._freqs_cis = window, head_dim, None

    @property
    def freqs_cis(self):
        if self._freqs_cis is None:
            self._freqs_cis = precompute_freqs_cis(self.head_dim, 1000, 1000000.0)
        return self._freqs_cis

    def forward(self, input_ids):
        flat = input_ids.reshape(-1)
        positions = torch.arange(flat.shape[0])
        h = self.tok_embeddings(flat)
        tensor = torch.full((flat.shape[0], flat.shape[0]), fill_value=1.0)
        mask = torch.tril(tensor, diagonal=0)
        mask = torch.log(torch.triu(mask, diagonal=-self.window))
        for layer in self.layers:
            h = layer(h, self.freqs_cis[positions], mask)
        return self.output(self.norm(h)).unsqueeze(0)


@ordinary
class FastGptIndexedMask(nn.Module):
    """The mask and the table of cos and sin pairs are indexed by input positions."""

    def __init__(self, vocab=64, dim=64, heads=8, kv=4, inter=96, length=96, dtype=torch.float32):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv, dim // heads
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.wqkv = nn.ModuleList(nn.Linear(dim, (heads + 2 * kv) * self.hd, bias=False) for _ in range(2))
        self.wo = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.w1 = nn.ModuleList(nn.Linear(dim, inter, bias=False) for _ in range(2))
        self.w2 = nn.ModuleList(nn.Linear(inter, dim, bias=False) for _ in range(2))
        self.w3 = nn.ModuleList(nn.Linear(dim, inter, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(RMSNorm(dim) for _ in range(5))
        self.output = nn.Linear(dim, vocab, bias=False)
        cis = precompute_freqs_cis(self.hd, length)
        self.freqs_cis = torch.stack([cis.real, cis.imag], dim=-1).to(dtype)
        self.causal_mask = torch.tril(torch.ones(length, length, dtype=torch.bool))
        self.to(dtype)

    def rope(self, x, freqs_cis):
        xs = x.float().reshape(*x.shape[:-1], -1, 2)
        freqs_cis = freqs_cis.view(1, xs.size(1), 1, xs.size(3), 2)
        out = torch.stack([
            xs[..., 0] * freqs_cis[..., 0] - xs[..., 1] * freqs_cis[..., 1],
            xs[..., 1] * freqs_cis[..., 0] + xs[..., 0] * freqs_cis[..., 1]], -1)
        return out.flatten(3).type_as(x)

    def attend(self, i, x, freqs_cis, mask):
        b, n, _ = x.shape
        kv_size = self.kv * self.hd
        q, k, v = self.wqkv[i](x).split([self.heads * self.hd, kv_size, kv_size], dim=-1)
        q = self.rope(q.view(b, n, self.heads, self.hd), freqs_cis)
        k, v = self.rope(k.view(b, n, self.kv, self.hd), freqs_cis), v.view(b, n, self.kv, self.hd)
        q, k, v = map(lambda t: t.transpose(1, 2), (q, k, v))
        k = k.repeat_interleave(self.heads // self.kv, dim=1)
        v = v.repeat_interleave(self.heads // self.kv, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)
        return self.wo[i](y.transpose(1, 2).contiguous().view(b, n, -1))

    def forward(self, idx):
        input_pos = torch.arange(idx.shape[1], device=idx.device)
        n = idx.shape[1]
        mask = self.causal_mask[None, None, input_pos][..., :n]
        freqs_cis = self.freqs_cis[input_pos]
        x = self.tok_embeddings(idx)
        for i in range(2):
            h = x + self.attend(i, self.norms[2 * i](x), freqs_cis, mask)
            y = self.norms[2 * i + 1](h)
            x = h + self.w2[i](F.silu(self.w1[i](y)) * self.w3[i](y))
        return self.output(self.norms[4](x))


@ordinary
def FastGptIndexedMaskBfloat16():
    return FastGptIndexedMask(heads=4, kv=1, dtype=torch.bfloat16)


@ordinary
class LitGptGroupedQkv(nn.Module):
    """Each group of the fused projection holds its queries, its key and its value."""

    def __init__(self, vocab=70, d=48, heads=6, groups=2, length=75, pct=0.5):
        super().__init__()
        self.heads, self.groups, self.hs, self.length = heads, groups, d // heads, length
        self.n_elem = int(pct * self.hs)
        padded = -(-vocab // 16) * 16
        self.lm_head = nn.Linear(d, padded, bias=False)
        self.wte = nn.Embedding(padded, d)
        self.h = nn.ModuleList(nn.ModuleDict(dict(
            norm_1=nn.LayerNorm(d), attn=nn.Linear(d, (heads + 2 * groups) * self.hs), proj=nn.Linear(d, d),
            norm_2=nn.LayerNorm(d), fc=nn.Linear(d, 4 * d), out=nn.Linear(4 * d, d))) for _ in range(2))
        self.ln_f = nn.LayerNorm(d)
        theta = 1.0 / (10000 ** (torch.arange(0, self.n_elem, 2).float() / self.n_elem))
        idx_theta = torch.outer(torch.arange(length), theta).repeat(1, 2)
        self.register_buffer("cos", torch.cos(idx_theta), persistent=False)
        self.register_buffer("sin", torch.sin(idx_theta), persistent=False)

    def rope(self, x, cos, sin):
        half = x.size(-1) // 2
        rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return ((x * cos) + (rotated * sin)).to(dtype=x.dtype)

    def attend(self, b, x, cos, sin):
        B, T, C = x.size()
        q_per_kv = self.heads // self.groups
        qkv = b["attn"](x).view(B, T, self.groups, q_per_kv + 2, self.hs).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((q_per_kv, 1, 1), dim=2)
        k, v = [t.expand(B, self.groups, q_per_kv, T, self.hs).reshape(B, -1, T, self.hs) for t in (k, v)]
        q, k = q.reshape(B, -1, T, self.hs), k
        q = torch.cat((self.rope(q[..., :self.n_elem], cos, sin), q[..., self.n_elem:]), dim=-1)
        k = torch.cat((self.rope(k[..., :self.n_elem], cos, sin), k[..., self.n_elem:]), dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, scale=1.0 / math.sqrt(self.hs), is_causal=True)
        return b["proj"](y.transpose(1, 2).reshape(B, T, C))

    def forward(self, idx):
        T = idx.size(1)
        assert T <= self.length, f"Cannot forward sequence of length {T}"
        cos, sin = self.cos[:T], self.sin[:T]
        x = self.wte(idx)
        for b in self.h:
            n_1 = b["norm_1"](x)
            x = b["out"](F.gelu(b["fc"](b["norm_2"](x)))) + self.attend(b, n_1, cos, sin) + x
        return self.lm_head(self.ln_f(x))
