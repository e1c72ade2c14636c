"""A small decoder in plain PyTorch: what AgentCompile asks of a model is a function that returns it."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, HIDDEN, HEADS, LAYERS = 256, 128, 4, 4


def rotate(x):
    size = x.shape[-1]
    frequencies = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    first, second = x[..., : size // 2], x[..., size // 2 :]
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.mlp_norm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.gate = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).split(HIDDEN, dim=-1)
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.output(a.transpose(1, 2).reshape(batch, length, HIDDEN))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def factory():
    torch.manual_seed(0)
    return Decoder().eval()
