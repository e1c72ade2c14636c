"""Models whose weights are halves, with the casts that people put where halves are too coarse."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary
from .attention import Plain, causal
from .families import Gemma, GemmaLayer
from .gpt import GPT, GPTConfig
from .llama import HfModel, LitGPT, ModelArgs, Transformer


@ordinary
def nano_gpt_bfloat16():
    return GPT(GPTConfig(), flash=False).to(torch.bfloat16)


@ordinary
def llama_bfloat16():
    return HfModel(85, 32, 4, 2, 8).bfloat16()


@ordinary
def llama1_half():
    return Transformer(ModelArgs(vocab_size=62)).half()


@ordinary
def lit_bfloat16():
    return LitGPT(70, 32, 4, 4, 8, 0.5, False, "rms", "llama").to(dtype=torch.bfloat16)


@ordinary
def gemma_bfloat16():
    layers = [GemmaLayer(32, 4, 2, 8, (8, None)[i], True, 50.0, True, 1e4) for i in range(2)]
    return Gemma(layers, final_cap=30.0).bfloat16()


@ordinary
class HalfWithFloatScores(Plain):
    """float16; scores and probabilities are made in float32; logits are float32."""

    def __init__(self):
        super().__init__()
        self.half()

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = torch.matmul(q.float(), k.float().transpose(-1, -2)) / math.sqrt(self.head_dim)
        s = s.masked_fill(~causal(x.shape[1]), float("-inf"))
        return self.merge(torch.matmul(torch.softmax(s, -1).to(v.dtype), v))

    def forward(self, ids):
        return super().forward(ids).to(torch.float32)


class Float32Norm(nn.LayerNorm):
    """LayerNorm in float32 for inputs of any type."""

    def forward(self, x):
        return F.layer_norm(
            x.float(), self.normalized_shape, self.weight.float(), self.bias.float(), self.eps
        ).type_as(x)


@ordinary
class MixedPrecision(Plain):
    """bfloat16 but for the norms' weights and the head; -1e4 hides a key in halves."""

    def __init__(self):
        super().__init__()
        self.bfloat16()
        self.norms.float()
        self.head.float()

    def extra(self):
        self.norms = nn.ModuleList(Float32Norm(self.dim) for _ in range(4))

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = (q @ k.transpose(-1, -2)) * self.head_dim**-0.5
        s = s + torch.full_like(s, -1e4).triu(1)
        return self.merge(s.softmax(-1) @ v)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for i in range(self.depth):
            x = x + self.out[i](self.attend(self.norms[2 * i](x), i))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x.float())
