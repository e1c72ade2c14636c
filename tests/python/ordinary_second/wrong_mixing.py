"""Unsound decoders: a step outside the mask moves facts from later tokens to earlier ones."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from . import unsound


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Llama(nn.Module):
    """An ordinary decoder with rotary positions whose subclasses each spoil one step."""

    vocab_size, dim, heads, kv, ffn, layers, norm_class = 64, 32, 4, 2, 64, 2, RMSNorm

    def __init__(self):
        super().__init__()
        d, self.hd = self.dim, self.dim // self.heads
        self.embed = nn.Embedding(self.vocab_size, d)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": self.norm_class(d), "norm2": self.norm_class(d), "wq": nn.Linear(d, d, bias=False),
            "wk": nn.Linear(d, self.kv * self.hd, bias=False),
            "wv": nn.Linear(d, self.kv * self.hd, bias=False),
            "wo": nn.Linear(d, d, bias=False), "w1": nn.Linear(d, self.ffn, bias=False),
            "w2": nn.Linear(self.ffn, d, bias=False), "w3": nn.Linear(d, self.ffn, bias=False)})
            for _ in range(self.layers))
        self.norm, self.head = self.norm_class(d), nn.Linear(d, self.vocab_size, bias=False)

    def rope(self, x):
        n, d = x.shape[1], x.shape[-1]
        angle = torch.outer(torch.arange(n).float(), 10000 ** (-torch.arange(0, d, 2).float() / d))
        cos, sin = angle.cos()[None, :, None].to(x.dtype), angle.sin()[None, :, None].to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def repeat(self, t):
        return t.repeat_interleave(self.heads // self.kv, dim=2).transpose(1, 2)

    def prepare(self, x):
        return x

    def qk(self, q, k):
        return q, k

    def core(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def feed(self, p, y):
        return p["w2"](F.silu(p["w1"](y)) * p["w3"](y))

    def forward(self, ids):
        b, n = ids.shape
        x = self.embed(ids)
        for p in self.blocks:
            x = self.prepare(x)
            y = p["norm1"](x)
            q, k = self.qk(p["wq"](y).view(b, n, self.heads, self.hd),
                           p["wk"](y).view(b, n, self.kv, self.hd))
            q, k, v = self.rope(q), self.rope(k), p["wv"](y).view(b, n, self.kv, self.hd)
            out = self.core(q.transpose(1, 2), self.repeat(k), self.repeat(v))
            x = x + p["wo"](out.transpose(1, 2).reshape(b, n, -1))
            x = x + self.feed(p, p["norm2"](x))
        return self.head(self.norm(x))


@unsound
class GroupedKeysReshapedAcrossTokens(Llama):
    """The reshape takes tokens for heads after the repeat."""

    def repeat(self, t):
        b, n, kv, d = t.shape
        return t[:, :, :, None, :].expand(b, n, kv, self.heads // kv, d).reshape(b, self.heads, n, d)


class QueriesNormalisedOverTime(Llama):
    """F.normalize takes dim=1 when the caller names none, and dim 1 holds the tokens."""

    def qk(self, q, k):
        return F.normalize(q) * 4, F.normalize(k) * 4


@unsound
def QueriesNormalisedOverTimeBfloat16():
    return QueriesNormalisedOverTime().to(torch.bfloat16)


class WholeSequenceNorm(nn.Module):
    """The norm takes its moments over tokens and channels."""

    def __init__(self, dim):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return F.layer_norm(x, x.shape[1:]) * self.gain + self.shift


@unsound
class LayerNormOverTokensAndChannels(Llama):
    norm_class = WholeSequenceNorm


class PerTensorActivationScale(Llama):
    """One largest value of the whole sequence sets the steps to which activations round."""

    def prepare(self, x):
        scale = 127.0 / x.abs().max().clamp(min=1e-5)
        return (x * scale).round().clamp(-128, 127) / scale


@unsound
def PerTensorActivationScaleHalf():
    return PerTensorActivationScale().half()


@unsound
class MemoryKeysAtTheEnd(Llama):
    """Two learned keys stand behind the tokens, but the mask leaves room for them in front."""

    def __init__(self):
        super().__init__()
        self.mem_k = nn.Parameter(torch.randn(1, self.heads, 2, self.hd))
        self.mem_v = nn.Parameter(torch.randn(1, self.heads, 2, self.hd))

    def core(self, q, k, v):
        k, v = torch.cat((k, self.mem_k), dim=2), torch.cat((v, self.mem_v), dim=2)
        i, j = q.size(2), k.size(2)
        sim = torch.einsum("bhid,bhjd->bhij", q, k) * self.hd ** -0.5
        mask = torch.ones(i, j, dtype=torch.bool).triu(j - i + 1)
        sim = sim.masked_fill(mask, -torch.finfo(sim.dtype).max)
        return torch.einsum("bhij,bhjd->bhid", sim.softmax(-1), v)


@unsound
class LinearAttentionWithoutCumulativeSum(Llama):
    """The sum of keys times values covers the whole sequence."""

    def core(self, q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("bhnd,bhne->bhde", k, v)
        z = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(dim=2)) + 1e-6)
        return torch.einsum("bhnd,bhde,bhn->bhne", q, kv, z)


@unsound
class TokenShiftByRoll(Llama):
    """torch.roll carries the last token to the first place."""

    def prepare(self, x):
        now, before = x.chunk(2, dim=-1)
        return torch.cat((now, torch.roll(before, shifts=1, dims=1)), dim=-1)


class ConvolutionPaddedOnBothSides(Llama):
    """A depthwise convolution of width three keeps the length with a pad of one on each side."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(self.dim, self.dim, kernel_size=3, padding=1, groups=self.dim)

    def feed(self, p, y):
        y = self.conv(y.transpose(1, 2)).transpose(1, 2)
        return super().feed(p, y)


@unsound
def ConvolutionPaddedOnBothSidesHalf():
    return ConvolutionPaddedOnBothSides().to(torch.float16)


@unsound
class TorchDecoderWithUnmaskedMemory(nn.Module):
    """The embeddings are the memory too, and nothing masks the cross attention."""

    def __init__(self, vocab=50, d=32, heads=4):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, d), nn.Embedding(100, d)
        layer = nn.TransformerDecoderLayer(d, heads, dim_feedforward=64, batch_first=True)
        self.decoder, self.out = nn.TransformerDecoder(layer, num_layers=2), nn.Linear(d, vocab)

    def forward(self, ids):
        n = ids.size(1)
        x = self.embed(ids) + self.pos(torch.arange(n))
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        return self.out(self.decoder(x, x, tgt_mask=mask))


@unsound
class TorchMhaMaskWithInvertedSense(nn.Module):
    """nn.MultiheadAttention blocks where the mask is True; the author marks what a token may see."""

    def __init__(self, vocab=50, d=32, heads=2):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.randn(1, 80, d))
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ffn = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d))
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        n = ids.size(1)
        x = self.embed(ids) + self.pos[:, :n]
        may_see = torch.tril(torch.ones(n, n, dtype=torch.bool), diagonal=-1)
        y = self.norm1(x)
        x = x + self.attn(y, y, y, attn_mask=may_see, need_weights=False)[0]
        return self.out(x + self.ffn(self.norm2(x)))
