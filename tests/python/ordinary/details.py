"""Norms, feed-forward layers, positions and adapters in the ways that people write them."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

from . import ordinary
from .attention import Plain


class Usual(Plain):
    """Plain surroundings with PyTorch's attention: a subclass changes something else."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class PaperRMSNorm(nn.Module):
    """The authors' own: the norm over the root of the width, eps outside the root."""

    def __init__(self, d, eps=1e-8):
        super().__init__()
        self.scale, self.eps, self.d = nn.Parameter(torch.ones(d)), eps, d

    def forward(self, x):
        norm_x = x.norm(2, dim=-1, keepdim=True)
        rms_x = norm_x * self.d ** (-1.0 / 2)
        return self.scale * (x / (rms_x + self.eps))


class ScaleNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.g, self.eps = nn.Parameter(torch.ones(1) * d**0.5), eps

    def forward(self, x):
        n = torch.norm(x, dim=-1, keepdim=True).clamp(min=self.eps)
        return x / n * self.g


class VarMeanNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        return torch.addcmul(self.bias, (x - mean) * (var + 1e-5).rsqrt(), self.gain)


@ordinary
class PaperNorms(Usual):
    def extra(self):
        self.norms = nn.ModuleList(PaperRMSNorm(self.dim) for _ in range(4))


@ordinary
class ScaleNorms(Usual):
    """x-transformers' ScaleNorm and a GEGLU by chunk."""

    class GEGLU(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.proj = nn.Linear(d, 4 * d)

        def forward(self, x):
            x, gate = self.proj(x).chunk(2, dim=-1)
            return x * F.gelu(gate)

    def feed_forward(self, d):
        return nn.Sequential(self.GEGLU(d), nn.Dropout(0.1), nn.Linear(2 * d, d))

    def extra(self):
        self.norms = nn.ModuleList(ScaleNorm(self.dim) for _ in range(4))


@ordinary
class VarMeanNorms(Usual):
    """A norm of the embeddings as well, and one before the head."""

    def extra(self):
        self.norms = nn.ModuleList(VarMeanNorm(self.dim) for _ in range(4))
        self.tok = nn.Sequential(nn.Embedding(self.vocab, self.dim), VarMeanNorm(self.dim))
        self.head = nn.Sequential(VarMeanNorm(self.dim), nn.Linear(self.dim, self.vocab))


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ErfGELU(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


@ordinary
class ManyActivations(Usual):
    """Each layer has another activation."""

    depth, dim, heads = 6, 24, 3

    def feed_forward(self, d):
        kinds = [QuickGELU(), ErfGELU(), nn.Mish(), nn.Softplus(), nn.SELU(), nn.LeakyReLU(0.1)]
        self.made = getattr(self, "made", -1) + 1
        return nn.Sequential(nn.Linear(d, 2 * d), kinds[self.made], nn.Linear(2 * d, d))


@ordinary
class DeepNorm(Usual):
    """Post-norm with a weighted residual, ELU, and layers scaled by learned vectors."""

    def extra(self):
        self.gamma = nn.ParameterList(nn.Parameter(1e-1 * torch.ones(self.dim)) for _ in range(4))
        self.alpha = (2 * self.depth) ** 0.25

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for i in range(self.depth):
            x = self.norms[2 * i](x * self.alpha + self.gamma[2 * i] * self.out[i](self.attend(x, i)))
            x = self.norms[2 * i + 1](x * self.alpha + self.gamma[2 * i + 1] * F.elu(self.ffs[i](x)))
        return self.head(x)


@ordinary
class ReZero(Usual):
    """No norms; each branch has one learned factor; the head is a factorised embedding."""

    def extra(self):
        self.resweight = nn.Parameter(torch.zeros(self.depth))
        self.small, self.to_wide = nn.Embedding(self.vocab, 12), nn.Linear(12, self.dim, bias=False)
        self.head_bias = nn.Parameter(torch.zeros(self.vocab))

    def forward(self, ids):
        x = self.to_wide(self.small(ids)) + self.pos(torch.arange(ids.shape[1]))
        for i in range(self.depth):
            x = x + self.resweight[i] * self.out[i](self.attend(x, i))
            x = x + self.resweight[i] * self.ffs[i](x)
        return F.linear(x @ self.to_wide.weight, self.small.weight, self.head_bias)


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.zeros(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.lora_dropout = nn.Dropout(0.05)
        self.scaling = alpha / r

    def forward(self, x):
        result = self.base(x)
        return result + (self.lora_dropout(x) @ self.lora_A.transpose(0, 1) @ self.lora_B.T) * self.scaling


@ordinary
class WithLora(Usual):
    def extra(self):
        self.qkv = nn.ModuleList(LoRALinear(m) for m in self.qkv)
        for ff in self.ffs:
            ff[0] = LoRALinear(ff[0], r=2)


@ordinary
class WithWeightNorm(Usual):
    def feed_forward(self, d):
        return nn.Sequential(
            weight_norm(nn.Linear(d, 2 * d)), nn.Hardswish(), weight_norm(nn.Linear(2 * d, d))
        )


@ordinary
class NormalisedTransformer(Usual):
    """Hidden states stay on the sphere; a branch moves them by learned steps (nGPT)."""

    def extra(self):
        d = self.dim
        self.attn_alpha = nn.Parameter(torch.full((self.depth, d), 0.3))
        self.mlp_alpha = nn.Parameter(torch.full((self.depth, d), 0.3))
        self.sqk = nn.Parameter(torch.ones(self.depth, self.heads, 1, self.head_dim))
        self.sz = nn.Parameter(torch.ones(self.vocab))

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        q, k = self.sqk[i] * F.normalize(q, p=2.0, dim=-1), self.sqk[i] * F.normalize(k, p=2.0, dim=-1)
        return self.merge(F.scaled_dot_product_attention(q, k, v, scale=self.head_dim**0.5, is_causal=True))

    def forward(self, ids):
        x = F.normalize(self.tok(ids) + self.pos(torch.arange(ids.shape[1])), dim=-1)
        for i in range(self.depth):
            a = F.normalize(self.out[i](self.attend(x, i)), dim=-1)
            x = F.normalize(x + self.attn_alpha[i].abs() * (a - x), dim=-1)
            m = F.normalize(self.ffs[i](x), dim=-1)
            x = F.normalize(torch.lerp(x, m, self.mlp_alpha[i].abs()), dim=-1)
        return self.head(x) * self.sz


@ordinary
class SinusoidsInForward(Usual):
    """Positions are sines, then cosines, made in the forward; scaled embeddings; a tied head."""

    def positions(self, n, d):
        half = d // 2
        freq = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / (half - 1)))
        angle = torch.arange(1, n + 1, dtype=torch.float).unsqueeze(1) * freq.unsqueeze(0)
        return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1).view(1, n, -1)

    def forward(self, ids):
        x = math.sqrt(self.dim) * self.tok(ids) + self.positions(ids.size(1), self.dim)
        for i in range(self.depth):
            x = x + self.out[i](self.attend(self.norms[2 * i](x), i))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return (x * self.dim**-0.5) @ self.tok.weight.t()


def rotation_matrices(context_window, d):
    R = torch.zeros((context_window, d, d))
    for position in range(context_window):
        for i in range(d // 2):
            m_theta = position * 10000.0 ** (-2.0 * i / d)
            R[position, 2 * i, 2 * i] = math.cos(m_theta)
            R[position, 2 * i, 2 * i + 1] = -math.sin(m_theta)
            R[position, 2 * i + 1, 2 * i] = math.sin(m_theta)
            R[position, 2 * i + 1, 2 * i + 1] = math.cos(m_theta)
    return R


@ordinary
class RopeAsMatrices(Usual):
    """A tutorial's RoPE: a matrix for each position, multiplied with q and k."""

    longest = 40

    def extra(self):
        self.register_buffer("R", rotation_matrices(self.longest, self.head_dim))

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        R = self.R[: x.shape[1]]
        q, k = torch.einsum("bhtd,tde->bhte", q, R), torch.einsum("bhtd,tde->bhte", k, R)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@ordinary
class ScaledRope(Usual):
    """Llama 3.1's frequencies, smoothed between two wave lengths, over positions divided by 2."""

    def extra(self):
        freqs = 1.0 / (10000.0 ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim))
        wavelen = 2 * math.pi / freqs
        smooth = (32 / wavelen - 1.0) / (4.0 - 1.0)
        mixed = (1 - smooth) * freqs / 8 + smooth * freqs
        freqs = torch.where(wavelen < 8, freqs, torch.where(wavelen > 32, freqs / 8, mixed))
        self.register_buffer("freqs", freqs, persistent=False)

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32) / 2, self.freqs)
        cos, sin = angles.cos().repeat_interleave(2, -1), angles.sin().repeat_interleave(2, -1)

        def rotate(y):
            turned = torch.stack([-y[..., 1::2], y[..., 0::2]], dim=-1).reshape_as(y)
            return y * cos + turned * sin

        return self.merge(F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True))


@ordinary
class DenseFormer(Usual):
    """After each layer, a learned mean of all hidden states so far."""

    depth = 3

    def extra(self):
        self.alphas = nn.ParameterList(nn.Parameter(torch.ones(i + 2) / (i + 2)) for i in range(self.depth))

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        kept = [x]
        for i in range(self.depth):
            x = x + self.out[i](self.attend(self.norms[2 * i](x), i))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
            kept.append(x)
            x = torch.sum(torch.stack(kept, dim=0) * self.alphas[i].view(-1, 1, 1, 1), dim=0)
        return self.head(x)
