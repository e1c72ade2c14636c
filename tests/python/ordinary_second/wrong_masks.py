"""Unsound decoders: the mask is wrong, missing, or in the wrong place."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import unsound


class Gpt(nn.Module):
    """An ordinary decoder whose subclasses each spoil one step."""

    vocab_size, d, heads, layers, block_size = 64, 32, 4, 2, 96

    def __init__(self):
        super().__init__()
        d = self.d
        self.wte, self.wpe = nn.Embedding(self.vocab_size, d), nn.Embedding(self.block_size, d)
        self.ln_1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(self.layers))
        self.ln_2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(self.layers))
        self.c_attn = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(self.layers))
        self.c_proj = nn.ModuleList(nn.Linear(d, d) for _ in range(self.layers))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
                                 for _ in range(self.layers))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, self.vocab_size, bias=False)
        tril = torch.tril(torch.ones(self.block_size, self.block_size))
        self.register_buffer("tril", tril, persistent=False)

    def split(self, t):
        B, T, C = t.shape
        return t.view(B, T, self.heads, C // self.heads).transpose(1, 2)

    def merge(self, y):
        B, H, T, D = y.shape
        return y.transpose(1, 2).contiguous().view(B, T, H * D)

    def weights(self, att, T, layer):
        return F.softmax(att.masked_fill(self.tril[:T, :T] == 0, float("-inf")), dim=-1)

    def mix(self, q, k, v, layer):
        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        return self.weights(att, q.size(-2), layer) @ v

    def forward(self, idx):
        T = idx.shape[1]
        x = self.wte(idx) + self.wpe(torch.arange(T, device=idx.device))
        for i in range(self.layers):
            q, k, v = self.c_attn[i](self.ln_1[i](x)).split(self.d, dim=2)
            y = self.merge(self.mix(self.split(q), self.split(k), self.split(v), i))
            x = x + self.c_proj[i](y)
            x = x + self.mlp[i](self.ln_2[i](x))
        return self.lm_head(self.ln_f(x))


@unsound
class ForgottenMask(Gpt):
    def weights(self, att, T, layer):
        return F.softmax(att, dim=-1)


@unsound
class TriuDiagonalTwo(Gpt):
    def weights(self, att, T, layer):
        mask = torch.triu(torch.full((T, T), float("-inf")), diagonal=2)
        return F.softmax(att + mask, dim=-1)


@unsound
class MaskedFillResultDropped(Gpt):
    def weights(self, att, T, layer):
        att.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(att, dim=-1)


@unsound
class FillTinyInsteadOfLarge(Gpt):
    """The author writes 1e-9 for -1e9."""

    def weights(self, att, T, layer):
        return F.softmax(att.masked_fill(self.tril[:T, :T] == 0, 1e-9), dim=-1)


@unsound
class MaskAfterSoftmax(Gpt):
    """The weights of later keys become zero, but the sums still hold them."""

    def weights(self, att, T, layer):
        return F.softmax(att, dim=-1) * self.tril[:T, :T]


@unsound
class SoftmaxOverQueries(Gpt):
    def weights(self, att, T, layer):
        att = att.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(att, dim=-2)


@unsound
class TransposedComparison(Gpt):
    def weights(self, att, T, layer):
        i = torch.arange(T)
        keep = i[:, None] <= i[None, :]
        return torch.where(keep, att, torch.finfo(att.dtype).min).softmax(-1)


@unsound
class CausalOnlyInTraining(Gpt):
    def mix(self, q, k, v, layer):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=self.training)


class OnesAndZerosAdded(Gpt):
    """SDPA adds a float mask, so ones and zeros mask nothing."""

    def mix(self, q, k, v, layer):
        T = q.size(-2)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.tril[:T, :T].to(q.dtype))


@unsound
def OnesAndZerosAddedBfloat16():
    return OnesAndZerosAdded().to(torch.bfloat16)


@unsound
class HeadsViewedWithoutTranspose(Gpt):
    """The view puts tokens of one sequence into heads."""

    def split(self, t):
        B, T, C = t.shape
        return t.contiguous().view(B, self.heads, T, C // self.heads)


@unsound
class HeadsMergedWithoutTranspose(Gpt):
    def merge(self, y):
        B, H, T, D = y.shape
        return y.reshape(B, T, H * D)


class MaskSlicedOneRowDown(Gpt):
    """The rows of the buffer start at one, as if a cache held one token."""

    def weights(self, att, T, layer):
        mask = self.tril[1:T + 1, :T]
        return F.softmax(att.masked_fill(mask == 0, -6e4), dim=-1)


@unsound
def MaskSlicedOneRowDownHalf():
    return MaskSlicedOneRowDown().half()


@unsound
class SoftCapAfterMask(Gpt):
    """tanh turns the mask's value into minus the cap, which still has weight."""

    cap = 5.0

    def weights(self, att, T, layer):
        att = att.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(self.cap * torch.tanh(att / self.cap), dim=-1)


class WeakFillBeforeScale(Gpt):
    """The fill of -20 comes before the scale, which leaves about -7."""

    def mix(self, q, k, v, layer):
        T = q.size(-2)
        att = (q @ k.transpose(-2, -1)) + (1.0 - self.tril[:T, :T]) * -20.0
        return F.softmax(att / math.sqrt(q.size(-1)), dim=-1) @ v


@unsound
def WeakFillBeforeScaleBfloat16():
    return WeakFillBeforeScale().bfloat16()


@unsound
class EverySecondLayerUnmasked(Gpt):
    """The model gives its mask to layers with an even index alone."""

    def weights(self, att, T, layer):
        mask = torch.full((T, T), -1e9).triu(1) if layer % 2 == 0 else None
        if mask is not None:
            att = att + mask
        return att.softmax(dim=-1)


@unsound
class PaddingMaskAlone(Gpt):
    """The mask of real tokens replaces the causal mask, so that every token sees every token."""

    def weights(self, att, T, layer):
        attention_mask = torch.ones(1, T)
        extended = (1.0 - attention_mask[:, None, None, :]) * -10000.0
        return nn.Softmax(dim=-1)(att + extended)


@unsound
class WindowByAbsoluteDistance(Gpt):
    window = 8

    def weights(self, att, T, layer):
        pos = torch.arange(T)
        near = (pos[:, None] - pos[None, :]).abs() < self.window
        return att.masked_fill(~near, torch.finfo(att.dtype).min).softmax(-1)


class ChunksWithoutCausalMask(Gpt):
    """Tokens see their own block of eight and all earlier blocks, and so later tokens of their block."""

    def mix(self, q, k, v, layer):
        block = torch.arange(q.size(-2)) // 8
        return F.scaled_dot_product_attention(q, k, v, attn_mask=block[:, None] >= block[None, :])


@unsound
def ChunksWithoutCausalMaskHalf():
    return ChunksWithoutCausalMask().half()


@unsound
class TopKeysBeforeMask(Gpt):
    """The choice of the best eight keys counts later keys too."""

    def weights(self, att, T, layer):
        kth = att.topk(min(8, T), dim=-1).values[..., -1:]
        att = att.masked_fill(att < kth, -1e4)
        return att.masked_fill(self.tril[:T, :T] == 0, -1e9).softmax(-1)


@unsound
class TalkingHeadsAfterMask(Gpt):
    """Heads mix their masked scores, and a negative weight turns the mask's sign."""

    def __init__(self):
        super().__init__()
        self.talk = nn.Parameter(torch.eye(self.heads) + 0.1 * torch.randn(self.heads, self.heads))

    def weights(self, att, T, layer):
        att = att.masked_fill(self.tril[:T, :T] == 0, -1e9)
        return torch.einsum("bhij,hg->bgij", att, self.talk).softmax(-1)
