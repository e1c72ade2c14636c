"""Small ports of published families, each in one class, as a repository of "X in one file" has them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from . import ordinary


def rms(x, weight=None, eps=1e-6):
    x = x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + eps)
    return x if weight is None else x * weight


def half_rope(x, theta=10000.0):
    """x is (batch, heads, tokens, size); the angles are made here."""
    t, d = x.shape[-2], x.shape[-1]
    freq = theta ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
    angle = torch.arange(t, device=x.device, dtype=torch.float32)[:, None] * freq[None, :]
    cos, sin = angle.cos(), angle.sin()
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def pair_rope(x, base=10000):
    """x is (batch, tokens, heads, size); neighbours turn together."""
    seq, dim = x.shape[1], x.shape[-1]
    inv = 1.0 / (base ** (torch.arange(0, dim, 2) / dim))
    sinusoid = torch.einsum("i , j -> i j", torch.arange(seq, dtype=torch.float), inv)
    sin, cos = (
        t[None, :, None, :].repeat_interleave(2, 3) for t in (torch.sin(sinusoid), torch.cos(sinusoid))
    )
    x1, x2 = x[:, :, :, ::2], x[:, :, :, 1::2]
    turned = torch.stack((-x2, x1), dim=-1).flatten(-2)
    return (x * cos) + (turned * sin)


def linear(a, b, bias=False):
    return nn.Linear(a, b, bias=bias)


@ordinary
class GptJ(nn.Module):
    """One norm a layer feeds attention and MLP in parallel; the head has a bias."""

    def __init__(self, vocab=88, dim=32, heads=4, rotary=4):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.wte = nn.Embedding(vocab, dim)
        self.ln = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.qkv = nn.ModuleList(nn.ModuleList(linear(dim, dim) for _ in "qkvo") for _ in range(2))
        self.mlp = nn.ModuleList(
            nn.Sequential(linear(dim, 4 * dim, True), nn.GELU("tanh"), linear(4 * dim, dim, True))
            for _ in range(2)
        )
        self.ln_f, self.lm_head = nn.LayerNorm(dim), linear(dim, vocab, True)
        self.register_buffer("bias", torch.tril(torch.ones(64, 64, dtype=torch.bool)).view(1, 1, 64, 64))
        self.register_buffer("masked_bias", torch.tensor(-1e9), persistent=False)

    def attn(self, layer, x):
        q, k, v = (p(x).view(x.shape[:2] + (self.heads, -1)) for p in self.qkv[layer][:3])
        q = torch.cat([pair_rope(q[..., : self.rotary]), q[..., self.rotary :]], dim=-1)
        k = torch.cat([pair_rope(k[..., : self.rotary]), k[..., self.rotary :]], dim=-1)
        q, k, v = q.permute(0, 2, 1, 3), k.permute(0, 2, 1, 3), v.permute(0, 2, 1, 3)
        att = torch.matmul(q.to(torch.float32), k.to(torch.float32).transpose(-1, -2))
        mask = self.bias[:, :, k.size(-2) - q.size(-2) : k.size(-2), : k.size(-2)]
        att = torch.where(mask, att, self.masked_bias.to(att.dtype))
        att = F.softmax(att / math.sqrt(q.size(-1)), dim=-1).to(v.dtype)
        out = torch.matmul(att, v).permute(0, 2, 1, 3).contiguous()
        return self.qkv[layer][3](out.view(out.size()[:-2] + (-1,)))

    def forward(self, ids):
        h = self.wte(ids)
        for i, ln in enumerate(self.ln):
            n = ln(h)
            h = self.attn(i, n) + self.mlp[i](n) + h
        return self.lm_head(self.ln_f(h))


@ordinary
class NeoX(nn.Module):
    """Queries, keys and values of a head lie together; scores by baddbmm; parallel residuals."""

    def __init__(self, vocab=92, dim=48, heads=4, rotary_pct=0.5):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.rotary_ndims = int(self.size * rotary_pct)
        self.embed_in, self.embed_out = nn.Embedding(vocab, dim), linear(dim, vocab)
        self.norms = nn.ModuleList(nn.LayerNorm(dim, eps=1e-5) for _ in range(5))
        self.qkv = nn.ModuleList(linear(dim, 3 * dim, True) for _ in range(2))
        self.dense = nn.ModuleList(linear(dim, dim, True) for _ in range(2))
        self.up = nn.ModuleList(linear(dim, 4 * dim, True) for _ in range(2))
        self.down = nn.ModuleList(linear(4 * dim, dim, True) for _ in range(2))
        inv = 1.0 / (10000 ** (torch.arange(0, self.rotary_ndims, 2).float() / self.rotary_ndims))
        emb = torch.cat([torch.outer(torch.arange(64).float(), inv)] * 2, dim=-1)
        self.register_buffer("cos_cached", emb.cos()[None, None], persistent=False)
        self.register_buffer("sin_cached", emb.sin()[None, None], persistent=False)

    def rotate(self, x):
        rot, keep = x[..., : self.rotary_ndims], x[..., self.rotary_ndims :]
        cos, sin = (t[:, :, : x.shape[-2], :] for t in (self.cos_cached, self.sin_cached))
        left, right = rot[..., : rot.shape[-1] // 2], rot[..., rot.shape[-1] // 2 :]
        rot = rot * cos + torch.cat((-right, left), dim=-1) * sin
        return torch.cat((rot, keep), dim=-1)

    def attend(self, i, x):
        b, t, _ = x.shape
        qkv = self.qkv[i](x).view(b, t, self.heads, 3 * self.size)
        query = self.rotate(qkv[..., : self.size].permute(0, 2, 1, 3))
        key = self.rotate(qkv[..., self.size : 2 * self.size].permute(0, 2, 1, 3))
        value = qkv[..., 2 * self.size :].permute(0, 2, 1, 3)
        query = query.reshape(b * self.heads, t, self.size)
        key = key.reshape(b * self.heads, t, self.size)
        scores = torch.zeros(b * self.heads, t, t, dtype=query.dtype, device=key.device)
        scores = torch.baddbmm(scores, query, key.transpose(1, 2), beta=1.0, alpha=self.size**-0.5)
        scores = scores.view(b, self.heads, t, t)
        above = torch.ones(t, t, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, torch.finfo(scores.dtype).min)
        out = torch.matmul(F.softmax(scores, dim=-1), value)
        return self.dense[i](out.permute(0, 2, 1, 3).reshape(b, t, -1))

    def forward(self, ids):
        x = self.embed_in(ids)
        for i in range(2):
            attended = self.attend(i, self.norms[2 * i](x))
            x = x + attended + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x))))
        return self.embed_out(self.norms[4](x))


@ordinary
class GptNeoLocal(nn.Module):
    """Global and local layers in turn; a local mask is the lower triangle less a lower one."""

    def __init__(self, vocab=60, dim=32, heads=4, positions=64, window=9):
        super().__init__()
        self.heads = heads
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(positions, dim)
        bias = torch.tril(torch.ones((positions, positions), dtype=bool)).view(1, 1, positions, positions)
        self.register_buffer("global_bias", bias, persistent=False)
        local = torch.bitwise_xor(bias, torch.tril(bias, -window))
        self.register_buffer("local_bias", local, persistent=False)
        self.proj = nn.ModuleList()
        for _ in range(2):
            self.proj.append(nn.ModuleList([nn.Linear(dim, dim, bias=i == 3) for i in range(4)]))
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(5)])
        self.fc = nn.ModuleList([nn.Linear(dim, 2 * dim) for _ in range(2)])
        self.fc_out = nn.ModuleList([nn.Linear(2 * dim, dim) for _ in range(2)])

    def _split_heads(self, tensor, num_heads, attn_head_size):
        tensor = tensor.view(tensor.size()[:-1] + (num_heads, attn_head_size))
        return tensor.permute(0, 2, 1, 3)

    def forward(self, input_ids):
        hidden = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        for layer in range(2):
            residual = hidden
            x = self.norms[2 * layer](hidden)
            q, k, v = (
                self._split_heads(p(x), self.heads, x.shape[-1] // self.heads).to(torch.float32)
                for p in self.proj[layer][:3]
            )
            scores = torch.matmul(q, k.transpose(-1, -2))
            bias = self.local_bias if layer % 2 else self.global_bias
            causal_mask = bias[:, :, : q.size(-2), : k.size(-2)]
            mask_value = torch.tensor(torch.finfo(scores.dtype).min, dtype=scores.dtype)
            scores = torch.where(causal_mask, scores, mask_value)
            out = torch.matmul(nn.functional.softmax(scores, dim=-1).to(v.dtype), v)
            out = out.permute(0, 2, 1, 3).contiguous()
            hidden = residual + self.proj[layer][3](out.view(out.size()[:-2] + (x.shape[-1],)))
            x = self.norms[2 * layer + 1](hidden)
            hidden = hidden + self.fc_out[layer](F.gelu(self.fc[layer](x), approximate="tanh"))
        return F.linear(self.norms[4](hidden), self.wte.weight)


@ordinary
class Falcon(nn.Module):
    """One key head for all queries, taken from the end of the fused product."""

    def __init__(self, vocab=80, dim=32, heads=4):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.emb = nn.Embedding(vocab, dim)
        self.ln = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.qkv = nn.ModuleList(linear(dim, dim + 2 * self.hd) for _ in range(2))
        self.dense = nn.ModuleList(linear(dim, dim) for _ in range(2))
        self.h4h = nn.ModuleList(linear(dim, 4 * dim) for _ in range(2))
        self.back = nn.ModuleList(linear(4 * dim, dim) for _ in range(2))

    def forward(self, ids):
        x = self.emb(ids)
        b, t, d = x.shape
        for i in range(2):
            n = self.ln[i](x)
            fused = self.qkv[i](n).view(b, t, self.heads + 2, self.hd)
            q, k, v = fused[..., :-2, :], fused[..., [-2], :], fused[..., [-1], :]
            q, k, v = (y.transpose(1, 2) for y in (q, k, v))
            q, k = half_rope(q), half_rope(k)
            o = F.scaled_dot_product_attention(q, k, v, None, 0.0, True)
            o = self.dense[i](o.view(b, self.heads, t, self.hd).permute(0, 2, 1, 3).reshape(b, t, d))
            x = x + (self.back[i](F.gelu(self.h4h[i](n))) + o)
        return F.linear(self.ln[2](x), self.emb.weight)


@ordinary
class StarCoder(nn.Module):
    """Learned positions and one key head; queries of all heads are stacked along the tokens."""

    def __init__(self, vocab=64, dim=32, heads=8, n=64):
        super().__init__()
        self.h, self.hd = heads, dim // heads
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(n, dim)
        self.c_attn, self.c_proj = linear(dim, dim + 2 * self.hd, True), linear(dim, dim, True)
        self.fc, self.out = linear(dim, 4 * dim, True), linear(4 * dim, dim, True)
        self.l1, self.l2, self.lf = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.register_buffer("bias", torch.tril(torch.ones((n, n), dtype=torch.bool)), persistent=False)

    def forward(self, ids):
        b, t = ids.shape
        x = self.wte(ids) + self.wpe(torch.arange(t, device=ids.device))
        d = x.shape[-1]
        query, key_value = self.c_attn(self.l1(x)).split((d, 2 * self.hd), dim=2)
        key, value = key_value.split((self.hd, self.hd), dim=-1)
        w = torch.bmm(query.reshape(b, t * self.h, self.hd), key.transpose(-1, -2)) * self.hd**-0.5
        w = w.view(b, t, self.h, t)
        mask = self.bias[None, :t, :t].unsqueeze(2)
        w = torch.where(mask, w, torch.full([], torch.finfo(w.dtype).min, dtype=w.dtype))
        w = w.softmax(-1).view(b, t * self.h, t)
        x = x + self.c_proj(torch.bmm(w, value).view(b, t, d))
        x = x + self.out(F.gelu(self.fc(self.l2(x)), approximate="tanh"))
        return F.linear(self.lf(x), self.wte.weight)


@ordinary
class Opt(nn.Module):
    """The table of positions starts at 2; ReLU; q is scaled when it is made."""

    def __init__(self, vocab=78, dim=36, heads=6):
        super().__init__()
        self.offset, self.heads, self.hd = 2, heads, dim // heads
        self.embed_tokens = nn.Embedding(vocab, dim, padding_idx=1)
        self.embed_positions = nn.Embedding(60 + self.offset, dim)
        self.p = nn.ModuleList(nn.ModuleList(linear(dim, dim, True) for _ in range(4)) for _ in range(2))
        self.fc1 = nn.ModuleList(linear(dim, 72, True) for _ in range(2))
        self.fc2 = nn.ModuleList(linear(72, dim, True) for _ in range(2))
        self.n = nn.ModuleList(nn.LayerNorm(dim) for _ in range(5))

    def _shape(self, x, t):
        return x.view(1, t, self.heads, self.hd).transpose(1, 2).contiguous()

    def forward(self, ids):
        t = ids.shape[-1]
        positions = torch.arange(t) + self.offset
        x = self.embed_tokens(ids) + self.embed_positions(positions)
        future = torch.triu(torch.zeros(t, t).float().fill_(float("-inf")), 1)
        for i in range(2):
            n = self.n[2 * i](x)
            q = self._shape(self.p[i][0](n) * self.hd**-0.5, t).view(self.heads, -1, self.hd)
            k = self._shape(self.p[i][1](n), t).view(self.heads, -1, self.hd)
            v = self._shape(self.p[i][2](n), t).view(self.heads, -1, self.hd)
            w = torch.bmm(q, k.transpose(1, 2)) + future
            o = torch.bmm(F.dropout(F.softmax(w, dim=-1), p=0.1, training=self.training), v)
            o = o.view(1, self.heads, t, self.hd).transpose(1, 2).reshape(1, t, -1)
            x = x + self.p[i][3](o)
            x = x + self.fc2[i](F.relu(self.fc1[i](self.n[2 * i + 1](x))))
        return F.linear(self.n[4](x), self.embed_tokens.weight)


class GemmaNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        out = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (out * (1.0 + self.weight.float())).type_as(x)


class GemmaLayer(nn.Module):
    def __init__(self, d, h, kv, hd, window, qk_norm, cap, sandwich, theta):
        super().__init__()
        self.h, self.kv, self.hd, self.window, self.cap, self.theta = h, kv, hd, window, cap, theta
        self.qkv, self.o = linear(d, (h + 2 * kv) * hd), linear(h * hd, d)
        self.gate, self.up, self.down = linear(d, 2 * d), linear(d, 2 * d), linear(2 * d, d)
        self.pre, self.pre_ff = GemmaNorm(d), GemmaNorm(d)
        self.post = GemmaNorm(d) if sandwich else nn.Identity()
        self.post_ff = GemmaNorm(d) if sandwich else nn.Identity()
        self.qn, self.kn = (GemmaNorm(hd) if qk_norm else nn.Identity() for _ in "qk")

    def mask(self, t):
        min_value = torch.finfo(torch.float32).min
        mask = torch.triu(torch.full((1, 1, t, t), min_value), diagonal=1)
        if self.window:
            ones = torch.ones_like(mask, dtype=torch.bool)
            mask = torch.where(torch.tril(ones, diagonal=-self.window), min_value, mask)
        return mask

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.pre(x)).split([n * self.hd for n in (self.h, self.kv, self.kv)], -1)
        q = half_rope(self.qn(q.view(b, t, self.h, self.hd)).transpose(1, 2), self.theta)
        k = half_rope(self.kn(k.view(b, t, self.kv, self.hd)).transpose(1, 2), self.theta)
        v = v.view(b, t, self.kv, self.hd).transpose(1, 2)
        k, v = (torch.repeat_interleave(y, self.h // self.kv, dim=1) for y in (k, v))
        s = torch.matmul(q * self.hd**-0.5, k.transpose(2, 3))
        if self.cap:
            s = torch.tanh(s / self.cap) * self.cap
        p = F.softmax((s + self.mask(t)).float(), dim=-1).type_as(q)
        o = self.o(torch.matmul(p, v).transpose(1, 2).contiguous().view(b, t, -1))
        x = x + self.post(o)
        n = self.pre_ff(x)
        n = self.down(F.gelu(self.gate(n), approximate="tanh") * self.up(n))
        return x + self.post_ff(n)


class Gemma(nn.Module):
    def __init__(self, layers, vocab=84, d=32, final_cap=0.0):
        super().__init__()
        self.embedder = nn.Embedding(vocab, d)
        self.layers, self.norm = nn.ModuleList(layers), GemmaNorm(d)
        self.d, self.final_cap = d, final_cap

    def forward(self, ids):
        x = self.embedder(ids)
        x = x * torch.tensor(self.d**0.5, dtype=x.dtype)
        for layer in self.layers:
            x = layer(x)
        logits = torch.matmul(self.norm(x), self.embedder.weight.t())
        if self.final_cap:
            logits = torch.tanh(logits / self.final_cap) * self.final_cap
        return logits


@ordinary
def gemma1():
    return Gemma([GemmaLayer(32, 4, 1, 16, None, False, None, False, 1e4) for _ in range(2)])


@ordinary
def gemma2():
    layers = [GemmaLayer(32, 4, 2, 8, (8, None)[i], False, 50.0, True, 1e4) for i in range(2)]
    return Gemma(layers, final_cap=30.0)


@ordinary
def gemma3():
    kinds = [(6, 1e4), (6, 1e4), (None, 1e6)]
    return Gemma([GemmaLayer(32, 4, 2, 12, w, True, None, True, th) for w, th in kinds])


class Small(nn.Module):
    """Embedding, layers, a last norm and a head: a subclass says what a layer computes."""

    def __init__(self, vocab, d, h, layers=2, head_bias=False):
        super().__init__()
        self.d, self.h, self.hd = d, h, d // h
        self.embed, self.unembed = nn.Embedding(vocab, d), linear(d, vocab, head_bias)
        self.blocks = nn.ModuleList(self.block(i) for i in range(layers))
        self.last = nn.LayerNorm(d)

    def heads(self, x):
        return x.unflatten(-1, (-1, self.hd)).transpose(1, 2)

    def forward(self, ids):
        x = self.embed(ids)
        for i, m in enumerate(self.blocks):
            x = self.layer(i, m, x)
        return self.unembed(self.last(x))


@ordinary
class Phi(Small):
    """RoPE for a part of each head, biases everywhere, attention and MLP side by side."""

    def __init__(self):
        super().__init__(86, 40, 4, head_bias=True)

    def block(self, i):
        d = self.d
        mods = {"wqkv": linear(d, 3 * d, True), "o": linear(d, d, True), "ln": nn.LayerNorm(d)}
        mods["mlp"] = nn.Sequential(linear(d, 4 * d, True), nn.GELU("tanh"), linear(4 * d, d, True))
        return nn.ModuleDict(mods)

    def layer(self, i, m, x):
        n = m["ln"](x)
        b, t, d = n.shape
        q, k, v = m["wqkv"](n).view(b, t, 3, self.h, self.hd).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        q = torch.cat((half_rope(q[..., :4]), q[..., 4:]), -1)
        k = torch.cat((half_rope(k[..., :4]), k[..., 4:]), -1)
        s = q @ k.mT * self.hd**-0.5
        s = s + torch.triu(torch.full((t, t), -10000.0), 1)
        o = (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)
        return m["o"](o) + m["mlp"](n) + x


@ordinary
class Olmo2(Small):
    """Norms after the sublayers, and of q and k over their whole width."""

    def __init__(self):
        super().__init__(72, 48, 6)

    def block(self, i):
        d = self.d
        mods = {name: linear(d, d) for name in ("q", "k", "v", "o")}
        mods |= {name: nn.RMSNorm(d, eps=1e-6) for name in ("qn", "kn", "n1", "n2")}
        mods |= {"w1": linear(d, 64), "w2": linear(64, d), "w3": linear(d, 64)}
        return nn.ModuleDict(mods)

    def layer(self, i, m, x):
        q, k, v = self.heads(m["qn"](m["q"](x))), self.heads(m["kn"](m["k"](x))), self.heads(m["v"](x))
        o = F.scaled_dot_product_attention(half_rope(q, 500000.0), half_rope(k, 500000.0), v, is_causal=True)
        x = x + m["n1"](m["o"](o.transpose(1, 2).flatten(2)))
        return x + m["n2"](m["w2"](F.silu(m["w1"](x)) * m["w3"](x)))


@ordinary
class Cohere(Small):
    """Neighbours turn together, a norm without bias, parallel branches, scaled logits."""

    def __init__(self):
        super().__init__(66, 32, 4)
        self.last = nn.LayerNorm(32, bias=False)
        self.logit_scale = 0.0625

    def block(self, i):
        d = self.d
        mods = {"n": nn.LayerNorm(d, bias=False), "q": linear(d, d), "k": linear(d, d // 2)}
        mods |= {"v": linear(d, d // 2), "o": linear(d, d)}
        mods |= {"g": linear(d, 2 * d), "u": linear(d, 2 * d), "down": linear(2 * d, d)}
        return nn.ModuleDict(mods)

    def layer(self, i, m, x):
        n = m["n"](x)
        b, t, _ = n.shape
        q, k, v = (m[name](n).view(b, t, -1, self.hd) for name in "qkv")
        q, k = pair_rope(q), pair_rope(k)
        o = F.scaled_dot_product_attention(
            *(y.transpose(1, 2) for y in (q, k, v)), is_causal=True, enable_gqa=True
        )
        o = m["o"](o.transpose(1, 2).reshape(b, t, -1))
        return x + o + m["down"](F.silu(m["g"](n)) * m["u"](n))

    def forward(self, ids):
        return super().forward(ids) * self.logit_scale


@ordinary
class Granite(Small):
    """Multipliers for embeddings, attention, residuals and logits."""

    def __init__(self):
        super().__init__(81, 32, 4)

    def block(self, i):
        d = self.d
        mods = {"qkv": linear(d, 3 * d), "o": linear(d, d), "gate_up": linear(d, 4 * d)}
        mods |= {"down": linear(2 * d, d), "n1": nn.RMSNorm(d, eps=1e-5), "n2": nn.RMSNorm(d, eps=1e-5)}
        return nn.ModuleDict(mods)

    def layer(self, i, m, x):
        q, k, v = (self.heads(y) for y in m["qkv"](m["n1"](x)).chunk(3, dim=-1))
        s = torch.matmul(half_rope(q), half_rope(k).transpose(-1, -2)) * 0.015625 * 8
        t = s.size(-1)
        s = s.masked_fill(torch.ones(t, t).triu(diagonal=1).bool(), float("-inf"))
        o = torch.matmul(torch.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype), v)
        x = x + m["o"](o.transpose(1, 2).flatten(-2)) * 0.22
        gate, up = m["gate_up"](m["n2"](x)).chunk(2, dim=-1)
        return x + m["down"](F.silu(gate) * up) * 0.22

    def forward(self, ids):
        x = self.embed(ids) * 12.0
        for i, m in enumerate(self.blocks):
            x = self.layer(i, m, x)
        return self.unembed(self.last(x)) / 8.0


@ordinary
class Nemotron(Small):
    """LayerNorm whose weight is kept less one, squared ReLU, half of each head turns."""

    def __init__(self):
        super().__init__(77, 48, 6)

    def block(self, i):
        d = self.d
        mods = nn.ModuleDict({"q": linear(d, d), "k": linear(d, d // 3), "v": linear(d, d // 3)})
        mods.update({"o": linear(d, d), "up": linear(d, 4 * d), "down": linear(4 * d, d)})
        mods.n1, mods.b1 = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        mods.n2, mods.b2 = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        return mods

    def layer(self, i, m, x):
        n = F.layer_norm(x, (self.d,), m.n1 + 1, m.b1, 1e-5)
        q, k, v = self.heads(m["q"](n)), self.heads(m["k"](n)), self.heads(m["v"](n))
        part = self.hd // 2
        q = torch.cat([half_rope(q[..., :part]), q[..., part:]], dim=-1)
        k = torch.cat([half_rope(k[..., :part]), k[..., part:]], dim=-1)
        k, v = k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + m["o"](o.transpose(1, 2).reshape(x.shape))
        n = F.layer_norm(x, (self.d,), m.n2 + 1, m.b2, 1e-5)
        return x + m["down"](torch.pow(F.relu(m["up"](n)), 2))
