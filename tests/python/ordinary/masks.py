"""Ways to write a mask, and windows: each decoder says which keys a query sees in its own way."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from . import ordinary
from .attention import Plain, causal


class Masked(Plain):
    """A plain decoder: a subclass masks the scores."""

    def masked(self, scores, i):
        raise NotImplementedError

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        return self.merge(torch.matmul(F.softmax(self.masked(scores, i), dim=-1), v))


@ordinary
class AdditiveBuffer(Masked):
    def extra(self):
        mask = torch.zeros(self.longest, self.longest)
        mask[torch.triu(torch.ones_like(mask), 1) == 1] = float("-inf")
        self.register_buffer("attn_mask", mask)

    def masked(self, scores, i):
        n = scores.shape[-1]
        return scores + self.attn_mask[:n, :n]


@ordinary
class NegativeBuffer(Masked):
    """(1 - mask) * -10000, as BERT's descendants have it, from a buffer of bytes."""

    def extra(self):
        ones = torch.ones(1, 1, self.longest, self.longest, dtype=torch.uint8)
        self.register_buffer("seen", torch.tril(ones))

    def masked(self, scores, i):
        n = scores.shape[-1]
        return scores + (1.0 - self.seen[:, :, :n, :n].float()) * -10000.0


@ordinary
class ComparedPositions(Masked):
    def masked(self, scores, i):
        pos = torch.arange(scores.size(-1), device=scores.device)
        return scores.masked_fill(pos[None, :] > pos[:, None], float("-inf"))


@ordinary
class ComparedPositionsWhere(Masked):
    """lucidrains' way: ranges of i and j, the greatest negative number."""

    def masked(self, scores, i):
        i_len, j_len = scores.shape[-2:]
        r = torch.arange(i_len, device=scores.device).reshape(-1, 1)
        c = torch.arange(j_len, device=scores.device).reshape(1, -1)
        mask_value = -torch.finfo(scores.dtype).max
        return torch.where((r >= c).unsqueeze(0).unsqueeze(0), scores, mask_value)


@ordinary
class DifferenceOfPositions(Masked):
    """A window by the distance of two positions."""

    def masked(self, scores, i):
        pos = torch.arange(scores.size(-1))
        distance = pos.view(-1, 1) - pos.view(1, -1)
        return scores.masked_fill((distance < 0) | (distance >= 11), float("-inf"))


@ordinary
class DifferenceNegated(Masked):
    def masked(self, scores, i):
        n = scores.size(-1)
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        allowed = (distance <= 0) & (distance > -9)
        return scores.masked_fill(~allowed, -1e9)


@ordinary
class BandOfTriangles(Masked):
    """tril less a lower tril, in bool."""

    def masked(self, scores, i):
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool)
        band = ones.tril() & ~ones.tril(-8)
        return scores.masked_fill(band.logical_not(), float("-inf"))


@ordinary
class BandOfProducts(Masked):
    """tril times triu, in float, compared with 0."""

    def extra(self):
        ones = torch.ones(self.longest, self.longest)
        self.register_buffer("band", torch.tril(ones) * torch.triu(ones, diagonal=-15))

    def masked(self, scores, i):
        n = scores.size(2)
        return scores.masked_fill(self.band[None, None, :n, :n] == 0, float("-inf"))


@ordinary
class LocalAndGlobal(Plain):
    """SDPA with a boolean mask: two layers see five tokens, the third all."""

    depth, heads, dim = 3, 2, 32

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        n = x.shape[1]
        mask = causal(n)
        if i < 2:
            mask = mask.logical_and(torch.ones_like(mask).triu(-4))
        return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


@ordinary
class OneMaskForAll(Plain):
    """The mask is made once in forward and kept on the module for the layers."""

    def forward(self, ids):
        t = ids.shape[1]
        self.mask = torch.full((t, t), float("-inf"), device=ids.device).triu(diagonal=1)
        return super().forward(ids)

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=False))


@ordinary
class MaskFromCumulativeSum(Masked):
    """Positions are a running sum of ones, less one."""

    def masked(self, scores, i):
        position = torch.ones(scores.size(-1), dtype=torch.long).cumsum(0) - 1
        return scores.masked_fill(position[:, None] < position[None, :], -1e4)


@ordinary
class MaskTimesLarge(Masked):
    def masked(self, scores, i):
        n = scores.size(-1)
        return scores - 1e9 * torch.triu(torch.ones(n, n), diagonal=1)


@ordinary
class MaskInPaddedShape(Masked):
    """An optional padding mask is an argument, and absent."""

    def masked(self, scores, i):
        n = scores.size(-1)
        mask = causal(n)[None, None].expand(scores.shape[0], self.heads, -1, -1)
        return scores.masked_fill(mask == 0, float("-inf"))

    def forward(self, ids, padding_mask=None):
        x = super().forward(ids)
        return x if padding_mask is None else x * padding_mask[..., None]


@ordinary
class WindowInRopeDecoder(nn.Module):
    """Interleaved local and global layers whose window is a power of two, RoPE on local ones only."""

    def __init__(self, vocab=64, d=32, h=4, window=16):
        super().__init__()
        self.h, self.window = h, window
        self.e = nn.Embedding(vocab, d)
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d, bias=False) for _ in range(4))
        self.o = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(4))
        self.f = nn.ModuleList(
            nn.Sequential(nn.RMSNorm(d), nn.Linear(d, 64), nn.SiLU(), nn.Linear(64, d)) for _ in range(4)
        )
        self.n = nn.ModuleList(nn.RMSNorm(d) for _ in range(5))
        inv = 1e4 ** -(torch.arange(0, d // h, 2) / (d // h))
        self.register_buffer("inv", inv)

    def rope(self, x):
        ang = torch.arange(x.size(2))[:, None] * self.inv
        c, s = ang.cos(), ang.sin()
        a, b = x[..., : x.size(-1) // 2], x[..., x.size(-1) // 2 :]
        return torch.cat((a * c - b * s, a * s + b * c), -1)

    def forward(self, ids):
        x = self.e(ids)
        _, t, d = x.shape
        i, j = torch.arange(t).unsqueeze(1), torch.arange(t).unsqueeze(0)
        full = j <= i
        local = full & (i - j < self.window)
        for layer in range(4):
            q, k, v = (
                y.view(1, t, self.h, -1).transpose(1, 2)
                for y in self.qkv[layer](self.n[layer](x)).split(d, 2)
            )
            if layer % 2 == 0:
                q, k = self.rope(q), self.rope(k)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=local if layer % 2 == 0 else full)
            x = x + self.o[layer](y.transpose(1, 2).reshape(1, t, d))
            x = x + self.f[layer](x)
        return self.n[4](x) @ self.e.weight.T
