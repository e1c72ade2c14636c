"""Decoders in plain PyTorch that know nothing of transformers, each in another style of attention,
norm and position. `build(name)` makes one with fixed random weights."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, HIDDEN, HEADS, LAYERS, LONGEST = 199, 64, 4, 2, 96


class HandNorm(nn.Module):
    """RMSNorm as most people write it."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * scale).type_as(x) * self.weight


def rotate(x):
    """RoPE on neighbouring pairs, with frequencies computed in the forward."""
    half = x.shape[-1] // 2
    inverse = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * inverse
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, style, rope, kv_heads, bias):
        super().__init__()
        self.style, self.rope, self.kv_heads = style, rope, kv_heads
        self.size = HIDDEN // HEADS
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=bias)
        self.dropout = nn.Dropout(0.1)
        if style == "buffer":
            mask = torch.tril(torch.ones(LONGEST, LONGEST))
            self.register_buffer("bias", mask.view(1, 1, LONGEST, LONGEST))

    def forward(self, x):
        batch, length, _ = x.shape
        sizes = [HEADS * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        q, k, v = self.qkv(x).split(sizes, dim=-1)
        q, k, v = (t.view(batch, length, -1, self.size).transpose(1, 2) for t in (q, k, v))
        if self.rope:
            q, k = rotate(q), rotate(k)
        if self.style == "gqa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            groups = HEADS // self.kv_heads
            if groups > 1:
                k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
            y = self.attend(q, k, v, length)
        y = y.transpose(1, 2).contiguous().view(batch, length, HIDDEN)
        return self.out(y)

    def attend(self, q, k, v, length):
        if self.style == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.style == "scaled":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
        if self.style == "masked":
            mask = torch.tril(torch.ones(length, length, dtype=torch.bool, device=q.device))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        if self.style == "buffer":
            scores = scores.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
        else:
            mask = torch.tril(torch.ones(length, length, device=q.device))
            scores = scores.masked_fill(mask == 0, float("-inf"))
        return self.dropout(F.softmax(scores, dim=-1)) @ v


class Block(nn.Module):
    def __init__(self, norm, style, rope, kv_heads, gated, bias):
        super().__init__()
        self.norm1, self.norm2 = norm(HIDDEN), norm(HIDDEN)
        self.attention = Attention(style, rope, kv_heads, bias)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN if not gated else 3 * HIDDEN, bias=bias)
        self.gate = nn.Linear(HIDDEN, 3 * HIDDEN, bias=bias) if gated else None
        self.down = nn.Linear(self.up.out_features, HIDDEN, bias=bias)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        h = F.silu(self.gate(h)) * self.up(h) if self.gate is not None else F.gelu(self.up(h))
        return x + self.down(h)


class Decoder(nn.Module):
    def __init__(self, norm, style, rope=False, kv_heads=HEADS, gated=False, bias=True, tied=False):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, HIDDEN)
        self.positions = None if rope else nn.Embedding(LONGEST, HIDDEN)
        blocks = [Block(norm, style, rope, kv_heads, gated, bias) for _ in range(LAYERS)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, idx):
        x = self.tokens(idx)
        if self.positions is not None:
            x = x + self.positions(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


MODELS = {
    "plain_layernorm_sdpa": lambda: Decoder(nn.LayerNorm, "sdpa", tied=True),
    "plain_rmsnorm_rope": lambda: Decoder(
        nn.RMSNorm, "sdpa", rope=True, kv_heads=2, gated=True, bias=False
    ),
    "plain_handnorm_rope_gqa": lambda: Decoder(
        HandNorm, "gqa", rope=True, kv_heads=2, gated=True, bias=False
    ),
    "plain_scaled": lambda: Decoder(nn.LayerNorm, "scaled", rope=True),
    "plain_nanogpt": lambda: Decoder(nn.LayerNorm, "buffer", tied=True),
    "plain_tril": lambda: Decoder(nn.LayerNorm, "tril", kv_heads=1),
    "plain_sdpa_mask": lambda: Decoder(HandNorm, "masked", kv_heads=2, gated=True),
}


def build(name):
    torch.manual_seed(len(name))
    model = MODELS[name]().eval()
    tied = model.head.weight is model.tokens.weight
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.normal_(1.0 if "norm" in path and "bias" not in path else 0.0, 0.2)
            else:
                embedding = 0.15 if tied else 0.5
                weight.normal_(
                    0.0, embedding if "tokens" in path else 1.5 * weight.shape[1] ** -0.5
                )
    return model
