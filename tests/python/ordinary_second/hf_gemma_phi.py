"""Decoders after Gemma, Phi, OLMo, GPT-NeoX and other open models, each with its own turns."""
import math
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary


class GemmaRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        output = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (output * (1.0 + self.weight.float())).type_as(x)


def half_turn(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


def rope_tables(n, dim, base=10000.0, dtype=torch.float32):
    inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
    freqs = torch.einsum("i,j->ij", torch.arange(n).float(), inv_freq)
    emb = torch.cat((freqs, freqs), dim=-1)
    return emb.cos().to(dtype), emb.sin().to(dtype)


class GemmaLayer(nn.Module):
    def __init__(self, d, heads, kv, hd, ffn, window=None, cap=None, sandwich=False, qk_norm=False, base=1e4):
        super().__init__()
        self.heads, self.kv, self.hd, self.window, self.cap, self.base = heads, kv, hd, window, cap, base
        self.q_proj, self.o_proj = nn.Linear(d, heads * hd, bias=False), nn.Linear(heads * hd, d, bias=False)
        self.k_proj, self.v_proj = nn.Linear(d, kv * hd, bias=False), nn.Linear(d, kv * hd, bias=False)
        self.gate, self.up = nn.Linear(d, ffn, bias=False), nn.Linear(d, ffn, bias=False)
        self.down = nn.Linear(ffn, d, bias=False)
        self.pre_attn, self.pre_ffn = GemmaRMSNorm(d), GemmaRMSNorm(d)
        self.post_attn = GemmaRMSNorm(d) if sandwich else nn.Identity()
        self.post_ffn = GemmaRMSNorm(d) if sandwich else nn.Identity()
        self.q_norm = GemmaRMSNorm(hd) if qk_norm else nn.Identity()
        self.k_norm = GemmaRMSNorm(hd) if qk_norm else nn.Identity()

    def attend(self, x, mask):
        b, n, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, n, self.heads, self.hd)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, n, self.kv, self.hd)).transpose(1, 2)
        v = self.v_proj(x).view(b, n, self.kv, self.hd).transpose(1, 2)
        cos, sin = rope_tables(n, self.hd, self.base, x.dtype)
        q, k = q * cos + half_turn(q) * sin, k * cos + half_turn(k) * sin
        k = k.repeat_interleave(self.heads // self.kv, dim=1)
        v = v.repeat_interleave(self.heads // self.kv, dim=1)
        scores = torch.matmul(q, k.transpose(2, 3)) * self.hd ** -0.5
        if self.cap is not None:
            scores = torch.tanh(scores / self.cap) * self.cap
        if self.window is not None:
            all_ones = torch.ones_like(mask)
            local = torch.triu(all_ones, -1 * self.window + 1) * torch.tril(all_ones, self.window - 1)
            mask = torch.where(local == 1, mask, torch.finfo(mask.dtype).min)
        scores = F.softmax((scores + mask).float(), dim=-1).type_as(q)
        return self.o_proj(torch.matmul(scores, v).transpose(1, 2).contiguous().view(b, n, -1))

    def forward(self, x, mask):
        x = x + self.post_attn(self.attend(self.pre_attn(x), mask))
        y = self.pre_ffn(x)
        return x + self.post_ffn(self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y)))


class Gemma(nn.Module):
    def __init__(self, vocab, d, layers, final_cap=None):
        super().__init__()
        self.embedder = nn.Embedding(vocab, d)
        self.layers, self.norm, self.d, self.final_cap = nn.ModuleList(layers), GemmaRMSNorm(d), d, final_cap

    def forward(self, ids):
        x = self.embedder(ids)
        x = x * torch.tensor(self.d ** 0.5, dtype=x.dtype)
        mask = torch.full((1, 1, ids.size(1), ids.size(1)), -2.3819763e38).to(x.dtype)
        mask = torch.triu(mask, diagonal=1)
        for layer in self.layers:
            x = layer(x, mask)
        logits = torch.matmul(self.norm(x), self.embedder.weight.t())
        if self.final_cap is not None:
            logits = torch.tanh(logits / self.final_cap) * self.final_cap
        return logits


@ordinary
def GemmaScaledEmbeddingMqa():
    return Gemma(64, 32, [GemmaLayer(32, 4, 1, 16, 64) for _ in range(2)])


@ordinary
def Gemma2SoftCapsLocalGlobal():
    layers = [GemmaLayer(48, 4, 2, 12, 96, window=w, cap=50.0, sandwich=True) for w in (12, None)]
    return Gemma(80, 48, layers, final_cap=30.0)


@ordinary
def Gemma2SoftCapsBfloat16():
    layers = [GemmaLayer(32, 4, 2, 8, 64, window=w, cap=50.0, sandwich=True) for w in (16, None)]
    return Gemma(64, 32, layers, final_cap=30.0).to(torch.bfloat16)


@ordinary
def Gemma3QueryKeyNormTwoBases():
    layers = [GemmaLayer(32, 4, 2, 16, 64, window=w, sandwich=True, qk_norm=True, base=b)
              for w, b in ((8, 1e4), (8, 1e4), (None, 1e6))]
    return Gemma(72, 32, layers)


class Parallel(nn.Module):
    """One class serves Phi-2, GPT-NeoX and StableLM: partial rotary and an optional parallel residual."""

    def __init__(self, vocab, d, heads, rotary_pct, parallel, neox_qkv, shared_norm, head_bias):
        super().__init__()
        self.embed_in = nn.Embedding(vocab, d)
        self.heads, self.hd, self.parallel = heads, d // heads, parallel
        self.neox, self.shared = neox_qkv, shared_norm
        self.rot = int(self.hd * rotary_pct)
        self.blocks = nn.ModuleList()
        for _ in range(2):
            b = nn.Module()
            b.input_layernorm, b.post_attention_layernorm = nn.LayerNorm(d), nn.LayerNorm(d)
            b.query_key_value, b.dense = nn.Linear(d, 3 * d), nn.Linear(d, d)
            b.h_to_4h, b.to_h = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.blocks.append(b)
        self.final_layer_norm, self.embed_out = nn.LayerNorm(d), nn.Linear(d, vocab, bias=head_bias)
        bias = torch.tril(torch.ones((128, 128), dtype=torch.bool)).view(1, 1, 128, 128)
        self.register_buffer("bias", bias, persistent=False)
        cos, sin = rope_tables(128, self.rot)
        self.register_buffer("cos_cached", cos[None, None], persistent=False)
        self.register_buffer("sin_cached", sin[None, None], persistent=False)

    def attend(self, b, x):
        n = x.shape[1]
        qkv = b.query_key_value(x)
        if self.neox:
            qkv = qkv.view(*qkv.size()[:-1], self.heads, 3 * self.hd)
            q = qkv[..., : self.hd].permute(0, 2, 1, 3)
            k = qkv[..., self.hd: 2 * self.hd].permute(0, 2, 1, 3)
            v = qkv[..., 2 * self.hd:].permute(0, 2, 1, 3)
        else:
            q, k, v = qkv.view(1, n, 3, self.heads, self.hd).permute(2, 0, 3, 1, 4)
        cos, sin = self.cos_cached[:, :, :n], self.sin_cached[:, :, :n]
        q_rot, q_pass = q[..., : self.rot], q[..., self.rot:]
        k_rot, k_pass = k[..., : self.rot], k[..., self.rot:]
        q = torch.cat((q_rot * cos + half_turn(q_rot) * sin, q_pass), dim=-1)
        k = torch.cat((k_rot * cos + half_turn(k_rot) * sin, k_pass), dim=-1)
        mask = self.bias[:, :, :n, :n]
        q, k = q.reshape(self.heads, n, self.hd), k.reshape(self.heads, n, self.hd)
        scores = torch.zeros(self.heads, n, n, dtype=q.dtype)
        scores = torch.baddbmm(scores, q, k.transpose(1, 2), beta=1.0, alpha=self.hd ** -0.5)
        scores = scores.view(1, self.heads, n, n)
        scores = torch.where(mask, scores, torch.tensor(torch.finfo(scores.dtype).min, dtype=scores.dtype))
        out = torch.matmul(F.softmax(scores, dim=-1).to(v.dtype), v)
        return b.dense(out.permute(0, 2, 1, 3).contiguous().view(1, n, -1))

    def forward(self, ids):
        x = self.embed_in(ids)
        for b in self.blocks:
            y = b.input_layernorm(x)
            att = self.attend(b, y)
            if self.parallel:
                z = y if self.shared else b.post_attention_layernorm(x)
                x = b.to_h(F.gelu(b.h_to_4h(z))) + att + x
            else:
                x = x + att
                x = x + b.to_h(F.gelu(b.h_to_4h(b.post_attention_layernorm(x))))
        return SimpleNamespace(logits=self.embed_out(self.final_layer_norm(x)))


@ordinary
def GptNeoXParallelQuarterRotary():
    return Parallel(64, 64, 4, 0.25, True, True, False, False)


@ordinary
def Phi2ParallelSharedNorm():
    return Parallel(60, 48, 4, 0.5, True, False, True, True)


@ordinary
def StableLmPartialRotaryHalf():
    return Parallel(64, 32, 2, 0.25, False, False, False, False).half()


class GptJ(nn.Module):
    """Even and odd channels turn together; sin and cos repeat for each pair."""

    def __init__(self, vocab=68, d=48, heads=3, rotary_dim=8):
        super().__init__()
        self.wte, self.heads, self.hd, self.rotary_dim = nn.Embedding(vocab, d), heads, d // heads, rotary_dim
        self.h = nn.ModuleList(nn.ModuleDict(dict(
            ln_1=nn.LayerNorm(d), q=nn.Linear(d, d, bias=False), k=nn.Linear(d, d, bias=False),
            v=nn.Linear(d, d, bias=False), o=nn.Linear(d, d, bias=False),
            fc_in=nn.Linear(d, 4 * d), fc_out=nn.Linear(4 * d, d))) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab)
        inv_freq = 1.0 / (10000 ** (torch.arange(0, rotary_dim, 2, dtype=torch.int64) / rotary_dim))
        sinusoid = torch.einsum("i , j -> i j", torch.arange(256, dtype=torch.int64).float(),
                                inv_freq).float()
        self.register_buffer("embed_positions", torch.cat((torch.sin(sinusoid), torch.cos(sinusoid)), dim=1))

    def rotate(self, t, sin, cos):
        sin = torch.repeat_interleave(sin[:, :, None, :], 2, 3)
        cos = torch.repeat_interleave(cos[:, :, None, :], 2, 3)
        x1, x2 = t[:, :, :, ::2], t[:, :, :, 1::2]
        return (t * cos) + (torch.stack((-x2, x1), dim=-1).flatten(-2) * sin)

    def forward(self, ids):
        b, n = ids.shape
        position_ids = torch.arange(0, n).unsqueeze(0)
        embed = self.embed_positions.repeat(position_ids.shape[0], 1, 1)
        sincos = torch.gather(embed, 1, position_ids.unsqueeze(-1).repeat(1, 1, embed.shape[-1]))
        sin, cos = torch.split(sincos, sincos.shape[-1] // 2, dim=-1)
        causal = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)
        x = self.wte(ids)
        for blk in self.h:
            y = blk["ln_1"](x)
            q, k, v = (blk[c](y).view(b, n, self.heads, self.hd) for c in "qkv")
            r = self.rotary_dim
            k = torch.cat([self.rotate(k[..., :r], sin, cos), k[..., r:]], dim=-1).permute(0, 2, 1, 3)
            q = torch.cat([self.rotate(q[..., :r], sin, cos), q[..., r:]], dim=-1).permute(0, 2, 1, 3)
            w = torch.matmul(q.float(), k.float().transpose(-1, -2)) / math.sqrt(self.hd) + causal
            a = torch.matmul(F.softmax(w, dim=-1).to(v.dtype), v.permute(0, 2, 1, 3))
            a = blk["o"](a.permute(0, 2, 1, 3).contiguous().flatten(2))
            x = a + blk["fc_out"](F.gelu(blk["fc_in"](y), approximate="tanh")) + x
        return self.lm_head(self.ln_f(x))


@ordinary
def GptJInterleavedPartialRotary():
    return GptJ()


@ordinary
def GptJInterleavedHalf():
    return GptJ(vocab=64, d=64, heads=4, rotary_dim=16).half()


class OlmoBlock(nn.Module):
    def __init__(self, d, heads, reordered):
        super().__init__()
        self.fused, self.att_out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.ff_proj, self.ff_out = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.heads, self.d, self.reordered = heads, d, reordered
        if reordered:
            self.attn_norm, self.ff_norm = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)
            self.q_norm, self.k_norm = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)

    def norm(self, x):
        return x if self.reordered else F.layer_norm(x, (self.d,), eps=1e-5)

    def forward(self, x, bias):
        B, T, C = x.shape
        q, k, v = self.fused(self.norm(x)).split((C, C, C), dim=-1)
        if self.reordered:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        cos, sin = rope_tables(T, C // self.heads)
        q, k = [(t.float() * cos + half_turn(t.float()) * sin).type_as(v) for t in (q, k)]
        att = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=0.0, is_causal=False)
        att = self.att_out(att.transpose(1, 2).contiguous().view(B, T, C))
        x = x + (self.attn_norm(att) if self.reordered else att)
        h, gate = self.ff_proj(self.norm(x)).chunk(2, dim=-1)
        h = self.ff_out(F.silu(gate) * h)
        return x + (self.ff_norm(h) if self.reordered else h)


class Olmo(nn.Module):
    def __init__(self, vocab=66, d=32, heads=4, reordered=False):
        super().__init__()
        self.wte, self.d = nn.Embedding(vocab, d), d
        self.blocks = nn.ModuleList([OlmoBlock(d, heads, reordered) for _ in range(2)])
        self.ln_f = nn.RMSNorm(d) if reordered else nn.LayerNorm(d, elementwise_affine=False, bias=False)
        self.ff_out = nn.Linear(d, vocab, bias=False)
        self.cache = {}

    def causal_bias(self, n):
        if "bias" not in self.cache or self.cache["bias"].shape[-1] < n:
            att_bias = torch.triu(torch.ones(128, 128, dtype=torch.float), diagonal=1)
            att_bias.masked_fill_(att_bias == 1, torch.finfo(att_bias.dtype).min)
            self.cache["bias"] = att_bias.view(1, 1, 128, 128)
        return self.cache["bias"]

    def forward(self, input_ids):
        x = self.wte(input_ids)
        bias = self.causal_bias(x.shape[1])[:, :, : x.shape[1], : x.shape[1]].to(dtype=x.dtype)
        bias = bias.masked_fill(bias == float("-inf"), torch.finfo(x.dtype).min)
        for block in self.blocks:
            x = block(x, bias)
        return self.ff_out(self.ln_f(x))


@ordinary
def OlmoNormWithoutWeights():
    return Olmo()


@ordinary
def Olmo2NormAfterSublayer():
    return Olmo(d=48, heads=6, reordered=True)


@ordinary
def OlmoCachedBiasBfloat16():
    return Olmo(vocab=64, d=32, heads=2).to(torch.bfloat16)
