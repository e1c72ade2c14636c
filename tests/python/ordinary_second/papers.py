"""Decoders after papers: one turn each on an ordinary decoder."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

from . import ordinary


def rms(x, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def swiglu(d, hidden):
    return nn.ModuleDict({"gate": nn.Linear(d, hidden, bias=False), "up": nn.Linear(d, hidden, bias=False),
                          "down": nn.Linear(hidden, d, bias=False)})


def run_swiglu(m, x):
    return m["down"](F.silu(m["gate"](x)) * m["up"](x))


def rope(x, base=10000.0):
    """x is [b, h, n, d]; halves turn by angles that the function computes inline."""
    n, d = x.shape[-2:]
    freq = base ** -(torch.arange(0, d, 2, dtype=torch.float32, device=x.device) / d)
    angle = torch.arange(n, dtype=torch.float32, device=x.device)[:, None] * freq[None]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    x1, x2 = x[..., : d // 2], x[..., d // 2:]
    return torch.cat([x1 * cos - x2 * sin, x1 * sin + x2 * cos], -1)


class DifferentialAttention(nn.Module):
    """The difference of two softmax maps weighs the values."""

    def __init__(self, d, heads, depth):
        super().__init__()
        self.heads, self.hd = heads, d // heads // 2
        self.q_proj, self.k_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v_proj, self.out_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * depth)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.zeros(self.hd).normal_(std=0.1)) for _ in range(4))
        self.subln = nn.RMSNorm(2 * self.hd, eps=1e-5, elementwise_affine=True)

    def forward(self, x):
        b, n, d = x.size()
        q = rope(self.q_proj(x).view(b, n, 2 * self.heads, self.hd).transpose(1, 2)) * self.hd ** -0.5
        k = rope(self.k_proj(x).view(b, n, 2 * self.heads, self.hd).transpose(1, 2))
        v = self.v_proj(x).view(b, n, self.heads, 2 * self.hd).transpose(1, 2)
        w = torch.matmul(q, k.transpose(-1, -2))
        mask = torch.triu(torch.zeros([n, n]).float().fill_(float("-inf")).type_as(w), 1)
        w = F.softmax(torch.nan_to_num(w) + mask, dim=-1, dtype=torch.float32).type_as(w)
        lambda_1 = torch.exp(torch.sum(self.lambda_q1 * self.lambda_k1, dim=-1).float()).type_as(q)
        lambda_2 = torch.exp(torch.sum(self.lambda_q2 * self.lambda_k2, dim=-1).float()).type_as(q)
        w = w.view(b, self.heads, 2, n, n)
        w = w[:, :, 0] - (lambda_1 - lambda_2 + self.lambda_init) * w[:, :, 1]
        att = self.subln(torch.matmul(w, v)) * (1 - self.lambda_init)
        return self.out_proj(att.transpose(1, 2).reshape(b, n, d))


@ordinary
class DifferentialTransformer(nn.Module):
    def __init__(self, vocab=64, d=48, heads=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.attn = nn.ModuleList(DifferentialAttention(d, heads, i) for i in range(2))
        self.mlp = nn.ModuleList(swiglu(d, 96) for _ in range(2))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for attn, mlp in zip(self.attn, self.mlp):
            x = x + attn(rms(x))
            x = x + run_swiglu(mlp, rms(x))
        return self.head(rms(x))


@ordinary
class DeepSeekLatentAttentionDense(nn.Module):
    """Queries and keys come through low ranks; a part of each key carries the positions for all heads."""

    def __init__(self, vocab=60, d=48, heads=4, q_rank=24, kv_rank=16, nope=8, rot=4, vd=12):
        super().__init__()
        self.embed, self.heads, self.kv_rank, self.nope, self.rot, self.vd = (
            nn.Embedding(vocab, d), heads, kv_rank, nope, rot, vd)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "wq_a": nn.Linear(d, q_rank, bias=False), "q_norm": nn.RMSNorm(q_rank),
            "wq_b": nn.Linear(q_rank, heads * (nope + rot), bias=False),
            "wkv_a": nn.Linear(d, kv_rank + rot, bias=False), "kv_norm": nn.RMSNorm(kv_rank),
            "wkv_b": nn.Linear(kv_rank, heads * (nope + vd), bias=False),
            "wo": nn.Linear(heads * vd, d, bias=False),
            "norm1": nn.RMSNorm(d), "norm2": nn.RMSNorm(d), "mlp": swiglu(d, 64)}) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, vocab, bias=False)

    def attend(self, p, x, mask):
        b, n, _ = x.shape
        q = p["wq_b"](p["q_norm"](p["wq_a"](x))).view(b, n, self.heads, self.nope + self.rot).transpose(1, 2)
        q_nope, q_pe = torch.split(q, [self.nope, self.rot], dim=-1)
        kv, k_pe = torch.split(p["wkv_a"](x), [self.kv_rank, self.rot], dim=-1)
        kv = p["wkv_b"](p["kv_norm"](kv)).view(b, n, self.heads, self.nope + self.vd).transpose(1, 2)
        k_nope, v = torch.split(kv, [self.nope, self.vd], dim=-1)
        q = torch.cat([q_nope, rope(q_pe)], dim=-1)
        k = torch.cat([k_nope, rope(k_pe.unsqueeze(1)).expand(-1, self.heads, -1, -1)], dim=-1)
        scores = torch.einsum("bhsd,bhtd->bhst", q, k) * (self.nope + self.rot) ** -0.5
        if mask is not None:
            scores += mask.unsqueeze(0).unsqueeze(1)
        scores = scores.softmax(dim=-1, dtype=torch.float32).type_as(x)
        return p["wo"](torch.einsum("bhst,bhtd->bshd", scores, v).flatten(2))

    def forward(self, tokens):
        n = tokens.size(1)
        mask = None
        if n > 1:
            mask = torch.full((n, n), float("-inf"), device=tokens.device).triu_(1)
        h = self.embed(tokens)
        for p in self.layers:
            h = h + self.attend(p, p["norm1"](h), mask)
            h = h + run_swiglu(p["mlp"], p["norm2"](h))
        return self.head(self.norm(h))


@ordinary
class NormalizedGptHypersphere(nn.Module):
    """Hidden states stay on the unit sphere; learned rates mix each sublayer in."""

    def __init__(self, vocab=64, d=32, heads=4):
        super().__init__()
        self.embed, self.heads, self.d = nn.Embedding(vocab, d), heads, d
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d, bias=False) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(2))
        self.mlp = nn.ModuleList(swiglu(d, 64) for _ in range(2))
        self.s_qk = nn.ParameterList(nn.Parameter(torch.ones(heads, 1, d // heads)) for _ in range(2))
        self.alpha_a = nn.ParameterList(nn.Parameter(torch.full((d,), 0.3)) for _ in range(2))
        self.alpha_m = nn.ParameterList(nn.Parameter(torch.full((d,), 0.3)) for _ in range(2))
        self.s_z, self.head = nn.Parameter(torch.ones(vocab)), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        b, n = ids.shape
        unit = lambda t: F.normalize(t, p=2.0, dim=-1)
        h = unit(self.embed(ids))
        for i in range(2):
            q, k, v = self.qkv[i](h).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            q, k = unit(rope(q)) * self.s_qk[i], unit(rope(k)) * self.s_qk[i]
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=(self.d // self.heads) ** 0.5)
            a = unit(self.out[i](a.transpose(1, 2).reshape(b, n, -1)))
            h = unit(h + self.alpha_a[i].abs() * (a - h))
            m = unit(run_swiglu(self.mlp[i], h * self.d ** 0.5))
            h = unit(h + self.alpha_m[i].abs() * (m - h))
        return self.head(h) * self.s_z


@ordinary
class SinkLogitsAlternatingWindowBfloat16(nn.Module):
    """A learned logit for each head joins the softmax and then leaves, as in recent open models."""

    def __init__(self, vocab=64, d=64, heads=8, kv=2, window=16):
        super().__init__()
        self.embed, self.heads = nn.Embedding(vocab, d), heads
        self.kv, self.hd, self.window = kv, d // heads, window
        self.layers = nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.qkv, layer.out = nn.Linear(d, (heads + 2 * kv) * self.hd), nn.Linear(d, d)
            layer.sinks, layer.mlp = nn.Parameter(torch.zeros(heads)), swiglu(d, 96)
            layer.n1, layer.n2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
            self.layers.append(layer)
        self.norm, self.unembedding = nn.RMSNorm(d, eps=1e-5), nn.Linear(d, vocab, bias=False)
        self.to(torch.bfloat16)

    def sdpa(self, q, k, v, sinks, window):
        n, kv, group, hd = q.shape
        k, v = k[:, :, None, :].expand(-1, -1, group, -1), v[:, :, None, :].expand(-1, -1, group, -1)
        s = sinks.reshape(kv, group, 1, 1).expand(-1, -1, n, -1)
        mask = torch.triu(q.new_full((n, n), -float("inf")), diagonal=1)
        if window > 0:
            mask += torch.tril(mask.new_full((n, n), -float("inf")), diagonal=-window)
        qk = torch.einsum("qhmd,khmd->hmqk", q, k) * hd ** -0.5
        qk = torch.cat([qk + mask[None, None, :, :], s], dim=-1)
        w = torch.softmax(qk, dim=-1)[..., :-1]
        return torch.einsum("hmqk,khmd->qhmd", w, v).reshape(n, -1)

    def forward(self, ids):
        x = self.embed(ids[0])
        n = x.shape[0]
        for i, layer in enumerate(self.layers):
            sizes = [self.heads * self.hd, self.kv * self.hd, self.kv * self.hd]
            q, k, v = layer.qkv(layer.n1(x)).split(sizes, -1)
            q = rope(q.view(n, self.heads, self.hd).transpose(0, 1)).transpose(0, 1)
            k = rope(k.view(n, self.kv, self.hd).transpose(0, 1)).transpose(0, 1)
            q = q.reshape(n, self.kv, self.heads // self.kv, self.hd)
            att = self.sdpa(q, k, v.view(n, self.kv, self.hd), layer.sinks, self.window if i % 2 == 0 else 0)
            x = x + layer.out(att)
            x = x + run_swiglu(layer.mlp, layer.n2(x))
        return self.unembedding(self.norm(x)).unsqueeze(0)


class Plain(nn.Module):
    """An ordinary layer whose residual the variants change."""

    def __init__(self, d, heads, kind, layers):
        super().__init__()
        self.qkv, self.proj, self.heads, self.kind = nn.Linear(d, 3 * d), nn.Linear(d, d), heads, kind
        self.ff1, self.ff2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.n1, self.n2, self.n3, self.n4 = (nn.LayerNorm(d) for _ in range(4))
        self.mid = nn.LayerNorm(4 * d)
        self.alpha = (2 * layers) ** 0.25
        self.g1, self.g2 = nn.Parameter(torch.full((d,), 0.5)), nn.Parameter(torch.full((d,), 0.5))
        self.resweight, self.head_scale = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.ones(heads))

    def attend(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, self.heads, 3 * d // self.heads).transpose(1, 2).chunk(3, dim=-1)
        scores = q @ k.mT * (d // self.heads) ** -0.5
        if self.kind == "softmax1":
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -1e9)
            top = scores.amax(-1, keepdim=True).clamp(min=0)
            e = torch.exp(scores - top)
            p = e / (e.sum(-1, keepdim=True) + torch.exp(-top))
        else:
            p = scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), float("-inf")).softmax(-1)
        out = p @ v
        if self.kind == "normformer":
            out = out * self.head_scale.view(1, -1, 1, 1)
        return self.proj(out.transpose(1, 2).reshape(b, n, d))

    def feed(self, x):
        h = F.gelu(self.ff1(x))
        return self.ff2(self.mid(h) if self.kind == "normformer" else h)

    def forward(self, x):
        if self.kind == "deepnorm":
            x = self.n1(x * self.alpha + self.attend(x))
            return self.n2(x * self.alpha + self.feed(x))
        if self.kind == "rezero":
            x = x + self.resweight * self.attend(x)
            return x + self.resweight * self.feed(x)
        if self.kind == "sandwich" or self.kind == "normformer":
            x = x + self.n3(self.attend(self.n1(x)))
            y = self.feed(self.n2(x))
            return x + (self.n4(y) if self.kind == "sandwich" else y)
        x = x + self.g1 * self.attend(self.n1(x))
        return x + self.g2 * self.feed(self.n2(x))


class PlainModel(nn.Module):
    def __init__(self, kind, vocab=64, d=32, heads=4, layers=2, shared=False, factor=None, normed=False):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, factor or d), nn.Parameter(torch.randn(96, d) * 0.02)
        self.up = nn.Linear(factor, d, bias=False) if factor else nn.Identity()
        self.down = nn.Linear(d, factor, bias=False) if factor else nn.Identity()
        block = [Plain(d, heads, kind, layers) for _ in range(1 if shared else layers)]
        self.blocks = nn.ModuleList(block * layers if shared else block)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(factor or d, vocab)
        if normed:
            for b in self.blocks:
                b.ff1, b.ff2, b.proj = weight_norm(b.ff1), weight_norm(b.ff2), weight_norm(b.proj)

    def forward(self, ids):
        x = self.up(self.embed(ids)) + self.pos[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.down(self.norm(x)))


@ordinary
def DeepNormPostNorm():
    return PlainModel("deepnorm")


@ordinary
def ReZeroWithoutNorms():
    return PlainModel("rezero", vocab=70)


@ordinary
def NormFormerHeadScaleHalf():
    return PlainModel("normformer", d=48, heads=6).half()


@ordinary
def SandwichNormSharedFactorisedEmbedding():
    return PlainModel("sandwich", shared=True, factor=16, layers=3)


@ordinary
def LayerScaleWeightNorm():
    return PlainModel("layerscale", normed=True)


@ordinary
def SoftmaxOffByOne():
    return PlainModel("softmax1", vocab=90, heads=2)
