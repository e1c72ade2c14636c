"""What newer families brought: sinks, low-rank keys, layers without RoPE, scaled queries."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from . import ordinary
from .families import Small, half_rope, linear, pair_rope, rms


@ordinary
class Smol(Small):
    """Every other layer knows no positions."""

    def __init__(self):
        super().__init__(69, 32, 4, layers=3)

    def block(self, i):
        d = self.d
        mods = {"qkv": linear(d, 2 * d), "o": linear(d, d), "w1": linear(d, 48), "w3": linear(d, 48)}
        return nn.ModuleDict(mods | {"w2": linear(48, d), "n1": nn.RMSNorm(d), "n2": nn.RMSNorm(d)})

    def layer(self, i, m, x):
        b, t, d = x.shape
        q, k, v = m["qkv"](m["n1"](x)).split([d, d // 2, d // 2], dim=-1)
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        if (i + 1) % 2:
            q, k = half_rope(q), half_rope(k)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + m["o"](o.transpose(1, 2).contiguous().view(b, t, d))
        n = m["n2"](x)
        return x + m["w2"](F.silu(m["w1"](n)) * m["w3"](n))


@ordinary
class TemperatureTuned(Small):
    """Queries of layers without RoPE grow with the logarithm of the position."""

    def __init__(self):
        super().__init__(74, 32, 2)
        self.floor_scale, self.attn_scale = 8, 0.1

    def block(self, i):
        d = self.d
        names = {name: linear(d, d) for name in ("q", "k", "v", "o")}
        return nn.ModuleDict(names | {"n": nn.RMSNorm(d, eps=1e-5), "f": linear(d, d), "n2": nn.RMSNorm(d)})

    def layer(self, i, m, x):
        n = m["n"](x)
        q, k, v = (self.heads(m[name](n)) for name in "qkv")
        if i % 2 == 0:
            q, k = half_rope(q), half_rope(k)
            q, k = rms(q, eps=1e-5), rms(k, eps=1e-5)
        else:
            positions = torch.arange(x.shape[1], device=x.device)
            scales = torch.log1p(torch.floor((positions.float() + 1.0) / self.floor_scale)) * self.attn_scale
            q = (q * (scales + 1.0).view(1, 1, -1, 1)).to(q.dtype)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + m["o"](o.transpose(1, 2).flatten(2))
        return x + F.gelu(m["f"](m["n2"](x)))


class Sinks(nn.Module):
    """A learned logit of each head joins the softmax and takes no value."""

    def __init__(self, d, h, kv, window):
        super().__init__()
        self.h, self.kv, self.hd, self.window = h, kv, d // h, window
        self.norm = nn.RMSNorm(d, eps=1e-5)
        self.qkv, self.out = linear(d, (h + 2 * kv) * self.hd, True), linear(d, d, True)
        self.sinks = nn.Parameter(torch.zeros(h))

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm(x))
        q = qkv[:, :, : self.h * self.hd].contiguous()
        k = qkv[:, :, self.h * self.hd : (self.h + self.kv) * self.hd].contiguous()
        v = qkv[:, :, (self.h + self.kv) * self.hd :].contiguous()
        q = half_rope(q.view(b, t, self.h, self.hd).transpose(1, 2))
        k = half_rope(k.view(b, t, self.kv, self.hd).transpose(1, 2))
        k, v = (
            y[:, :, None].expand(-1, -1, self.h // self.kv, -1, -1).flatten(1, 2)
            for y in (k, v.view(b, t, self.kv, self.hd).transpose(1, 2))
        )
        mask = torch.triu(q.new_full((t, t), -float("inf")), diagonal=1)
        if self.window > 0:
            mask = mask + torch.tril(mask.new_full((t, t), -float("inf")), diagonal=-self.window)
        qk = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(self.hd) + mask
        s = self.sinks.reshape(1, self.h, 1, 1).expand(b, -1, t, 1)
        w = torch.cat([qk, s], dim=-1).softmax(-1)[..., :-1]
        o = torch.einsum("bhqk,bhkd->bqhd", w, v)
        return x + self.out(o.reshape(b, t, d))


@ordinary
class SinkDecoder(nn.Module):
    def __init__(self, vocab=99, d=32):
        super().__init__()
        self.embedding, self.unembedding = nn.Embedding(vocab, d), linear(d, vocab)
        self.attn = nn.ModuleList(Sinks(d, 4, 2, w) for w in (10, 0))
        self.mlp_norm = nn.ModuleList(nn.RMSNorm(d) for _ in range(2))
        self.up = nn.ModuleList(linear(d, 2 * d, True) for _ in range(2))
        self.down = nn.ModuleList(linear(d, d, True) for _ in range(2))
        self.norm = nn.RMSNorm(d)

    def swiglu(self, x, alpha: float = 1.702, limit: float = 7.0):
        x_glu, x_linear = x[..., ::2], x[..., 1::2]
        x_glu = x_glu.clamp(min=None, max=limit)
        x_linear = x_linear.clamp(min=-limit, max=limit)
        return x_glu * torch.sigmoid(alpha * x_glu) * (x_linear + 1)

    def forward(self, ids):
        x = self.embedding(ids)
        for i in range(2):
            x = self.attn[i](x)
            x = x + self.down[i](self.swiglu(self.up[i](self.mlp_norm[i](x))))
        return self.unembedding(self.norm(x))


@ordinary
class LatentAttention(nn.Module):
    """Keys and values come from a narrow latent; one turned key is shared by all heads."""

    def __init__(self, vocab=68, d=32, h=4, nope=8, rope=4, v_dim=6, q_rank=12, kv_rank=10):
        super().__init__()
        self.h, self.nope, self.rope, self.v_dim, self.rank = h, nope, rope, v_dim, kv_rank
        self.embed, self.head = nn.Embedding(vocab, d), linear(d, vocab)
        self.layers = nn.ModuleList()
        for _ in range(2):
            mods = {"wq_a": linear(d, q_rank), "q_norm": nn.RMSNorm(q_rank)}
            mods |= {"wq_b": linear(q_rank, h * (nope + rope)), "wkv_a": linear(d, kv_rank + rope)}
            mods |= {"kv_norm": nn.RMSNorm(kv_rank), "wkv_b": linear(kv_rank, h * (nope + v_dim))}
            mods |= {"wo": linear(h * v_dim, d), "attn_norm": nn.RMSNorm(d), "ffn_norm": nn.RMSNorm(d)}
            mods |= {"w1": linear(d, 2 * d), "w2": linear(2 * d, d), "w3": linear(d, 2 * d)}
            self.layers.append(nn.ModuleDict(mods))
        self.norm = nn.RMSNorm(d)
        self.softmax_scale = (nope + rope) ** -0.5

    def attend(self, m, x, mask):
        b, t, _ = x.size()
        q = m["wq_b"](m["q_norm"](m["wq_a"](x))).view(b, t, self.h, self.nope + self.rope)
        q_nope, q_pe = torch.split(q, [self.nope, self.rope], dim=-1)
        kv, k_pe = torch.split(m["wkv_a"](x), [self.rank, self.rope], dim=-1)
        q_pe, k_pe = pair_rope(q_pe), pair_rope(k_pe.unsqueeze(2))
        kv = m["wkv_b"](m["kv_norm"](kv)).view(b, t, self.h, self.nope + self.v_dim)
        k_nope, v = torch.split(kv, [self.nope, self.v_dim], dim=-1)
        q = torch.cat([q_nope, q_pe], dim=-1)
        k = torch.cat([k_nope, k_pe.expand(-1, -1, self.h, -1)], dim=-1)
        scores = torch.einsum("bshd,bthd->bsht", q, k) * self.softmax_scale
        scores = scores + mask.unsqueeze(1)
        scores = scores.softmax(dim=-1, dtype=torch.float32).type_as(x)
        return m["wo"](torch.einsum("bsht,bthd->bshd", scores, v).flatten(2))

    def forward(self, tokens):
        h = self.embed(tokens)
        t = tokens.size(1)
        mask = torch.full((t, t), float("-inf"), device=tokens.device).triu_(1)
        for m in self.layers:
            h = h + self.attend(m, m["attn_norm"](h), mask)
            n = m["ffn_norm"](h)
            h = h + m["w2"](F.silu(m["w1"](n)) * m["w3"](n))
        return self.head(self.norm(h))


@ordinary
class PerLayerEmbeddings(Small):
    """Each layer mixes in an embedding of its own of the same tokens."""

    def __init__(self):
        super().__init__(58, 32, 4)
        self.per_layer, self.p = nn.Embedding(58, 2 * 8), 8
        self.project = linear(32, 2 * 8)
        self.p_norm = nn.RMSNorm(8)

    def block(self, i):
        d = self.d
        mods = {"qkv": linear(d, 3 * d), "o": linear(d, d), "up": linear(d, 64), "down": linear(64, d)}
        mods |= {"gate": linear(d, 8), "proj": linear(8, d)}
        return nn.ModuleDict(mods | {n: nn.RMSNorm(d) for n in ("n1", "n2", "n3")})

    def layer(self, i, m, x, extra):
        q, k, v = map(self.heads, m["qkv"](m["n1"](x)).chunk(3, -1))
        o = F.scaled_dot_product_attention(half_rope(q), half_rope(k), v, is_causal=True)
        x = x + m["o"](o.transpose(1, 2).flatten(2))
        x = x + m["down"](F.gelu(m["up"](m["n2"](x)), approximate="tanh"))
        return x + m["n3"](m["proj"](F.gelu(m["gate"](x), approximate="tanh") * extra[:, :, i, :]))

    def forward(self, ids):
        x = self.embed(ids) * self.d**0.5
        extra = self.per_layer(ids).reshape(*ids.shape, 2, self.p) * self.p**0.5
        mixed = self.p_norm((self.project(x) * self.d**-0.5).reshape(*ids.shape, 2, self.p))
        extra = (extra + mixed) * 2**-0.5
        for i, m in enumerate(self.blocks):
            x = self.layer(i, m, x, extra)
        return self.unembed(self.last(x))


@ordinary
class GatedAttention(Small):
    """The heads' outputs are gated by a sigmoid of the layer's input."""

    def __init__(self):
        super().__init__(82, 48, 4)

    def block(self, i):
        d = self.d
        mods = {"qg": linear(d, 2 * d), "k": linear(d, d // 2), "v": linear(d, d // 2), "o": linear(d, d)}
        mods |= {"qn": nn.RMSNorm(self.hd, eps=1e-6), "kn": nn.RMSNorm(self.hd, eps=1e-6)}
        mods |= {"n1": nn.RMSNorm(d), "n2": nn.RMSNorm(d), "up": linear(d, 2 * d), "down": linear(d, d)}
        return nn.ModuleDict(mods)

    def layer(self, i, m, x):
        n = m["n1"](x)
        b, t, d = n.shape
        q, gate = torch.chunk(m["qg"](n).view(b, t, -1, 2 * self.hd), 2, dim=-1)
        gate = gate.reshape(b, t, -1)
        q = m["qn"](q).transpose(1, 2)
        k = m["kn"](m["k"](n).view(b, t, -1, self.hd)).transpose(1, 2)
        v = m["v"](n).view(b, t, -1, self.hd).transpose(1, 2)
        q, k = half_rope(q), half_rope(k)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        o = o.transpose(1, 2).reshape(b, t, -1).contiguous() * torch.sigmoid(gate)
        x = x + m["o"](o)
        up, gate = m["up"](m["n2"](x)).chunk(2, dim=-1)
        return x + m["down"](up * F.silu(gate))


@ordinary
class SlidingMistral(nn.Module):
    """The first release's mask: a band of ones, and its logarithm is added."""

    def __init__(self, vocab=63, dim=32, n_heads=4, n_kv_heads=2, window=7):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim, self.window = (
            n_heads,
            n_kv_heads,
            dim // n_heads,
            window,
        )
        self.tok_embeddings, self.output = nn.Embedding(vocab, dim), linear(dim, vocab)
        kv = n_kv_heads * self.head_dim
        self.w = nn.ModuleList(
            nn.ModuleDict({"wq": linear(dim, dim), "wk": linear(dim, kv), "wv": linear(dim, kv),
                           "wo": linear(dim, dim), "w1": linear(dim, 56), "w2": linear(56, dim),
                           "w3": linear(dim, 56), "an": nn.RMSNorm(dim), "fn": nn.RMSNorm(dim)})
            for _ in range(2)
        )  # fmt: skip
        self.norm = nn.RMSNorm(dim)

    def forward(self, input_ids):
        seqlen = input_ids.shape[1]
        h = self.tok_embeddings(input_ids)
        tensor = torch.full((seqlen, seqlen), dtype=h.dtype, fill_value=1, device=h.device)
        mask = torch.tril(tensor, diagonal=0).to(h.dtype)
        mask = torch.triu(mask, diagonal=-self.window)
        mask = torch.log(mask)
        for m in self.w:
            n = m["an"](h)
            xq = pair_rope(m["wq"](n).view(1, seqlen, self.n_heads, self.head_dim))
            xk = pair_rope(m["wk"](n).view(1, seqlen, self.n_kv_heads, self.head_dim))
            xv = m["wv"](n).view(1, seqlen, self.n_kv_heads, self.head_dim)
            key = torch.repeat_interleave(xk, repeats=2, dim=2)
            value = torch.repeat_interleave(xv, repeats=2, dim=2)
            query, key, value = xq.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
            scores = torch.matmul(query, key.transpose(2, 3)) * self.head_dim**-0.5
            scores = scores + mask[None, None, ...]
            scores = nn.functional.softmax(scores.float(), dim=-1).type_as(query)
            output = torch.matmul(scores, value).transpose(1, 2).contiguous().view(1, seqlen, -1)
            h = h + m["wo"](output)
            n = m["fn"](h)
            h = h + m["w2"](nn.functional.silu(m["w1"](n)) * m["w3"](n))
        return self.output(self.norm(h)).float()


@ordinary
class FastGpt(nn.Module):
    """Positions are an argument with a default; RoPE is a real table of pairs."""

    def __init__(self, vocab=87, dim=48, n_head=6, n_local_heads=3, block_size=64):
        super().__init__()
        self.n_head, self.n_local_heads, self.head_dim, self.dim = n_head, n_local_heads, dim // n_head, dim
        self.tok_embeddings, self.output = nn.Embedding(vocab, dim), linear(dim, vocab)
        kv = n_local_heads * self.head_dim
        self.wqkv = nn.ModuleList(linear(dim, dim + 2 * kv) for _ in range(2))
        self.wo = nn.ModuleList(linear(dim, dim) for _ in range(2))
        self.w13 = nn.ModuleList(linear(dim, 128) for _ in range(2))
        self.w2 = nn.ModuleList(linear(64, dim) for _ in range(2))
        self.norms = nn.ModuleList(nn.RMSNorm(dim, eps=1e-5) for _ in range(5))
        freqs = 1.0 / (10000 ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim))
        freqs = torch.outer(torch.arange(block_size), freqs)
        freqs_cis = torch.polar(torch.ones_like(freqs), freqs)
        self.register_buffer("freqs_cis", torch.stack([freqs_cis.real, freqs_cis.imag], dim=-1))
        self.register_buffer("causal_mask", torch.tril(torch.ones(block_size, block_size, dtype=torch.bool)))

    def rotary(self, x, freqs_cis):
        xshaped = x.float().reshape(*x.shape[:-1], -1, 2)
        freqs_cis = freqs_cis.view(1, xshaped.size(1), 1, xshaped.size(3), 2)
        x_out2 = torch.stack(
            [
                xshaped[..., 0] * freqs_cis[..., 0] - xshaped[..., 1] * freqs_cis[..., 1],
                xshaped[..., 1] * freqs_cis[..., 0] + xshaped[..., 0] * freqs_cis[..., 1],
            ],
            -1,
        )
        return x_out2.flatten(3).type_as(x)

    def forward(self, idx, input_pos=None):
        if input_pos is None:
            input_pos = torch.arange(idx.shape[1], device=idx.device)
        mask = self.causal_mask[None, None, input_pos, : idx.shape[1]]
        freqs_cis = self.freqs_cis[input_pos]
        x = self.tok_embeddings(idx)
        for i in range(2):
            n = self.norms[2 * i](x)
            bsz, seqlen, _ = n.shape
            kv_size = self.n_local_heads * self.head_dim
            q, k, v = self.wqkv[i](n).split([self.dim, kv_size, kv_size], dim=-1)
            q = self.rotary(q.view(bsz, seqlen, self.n_head, self.head_dim), freqs_cis)
            k = self.rotary(k.view(bsz, seqlen, self.n_local_heads, self.head_dim), freqs_cis)
            v = v.view(bsz, seqlen, self.n_local_heads, self.head_dim)
            q, k, v = map(lambda x: x.transpose(1, 2), (q, k, v))
            k = k.repeat_interleave(self.n_head // self.n_local_heads, dim=1)
            v = v.repeat_interleave(self.n_head // self.n_local_heads, dim=1)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)
            x = x + self.wo[i](y.transpose(1, 2).contiguous().view(bsz, seqlen, self.dim))
            w1, w3 = self.w13[i](self.norms[2 * i + 1](x)).tensor_split(2, dim=-1)
            x = x + self.w2[i](F.silu(w1) * w3)
        return self.output(self.norms[4](x))
