"""Decoders that are made of PyTorch's own attention and encoder layers."""

import math

import torch
import torch.nn as nn
from torch import Tensor

from . import ordinary


@ordinary
class WordLanguageModel(nn.Module):
    """PyTorch's example: an encoder with a mask, tokens first."""

    class PositionalEncoding(nn.Module):
        def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 80):
            super().__init__()
            self.dropout = nn.Dropout(p=dropout)
            position = torch.arange(max_len).unsqueeze(1)
            div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
            pe = torch.zeros(max_len, 1, d_model)
            pe[:, 0, 0::2] = torch.sin(position * div_term)
            pe[:, 0, 1::2] = torch.cos(position * div_term)
            self.register_buffer("pe", pe)

        def forward(self, x: Tensor) -> Tensor:
            return self.dropout(x + self.pe[: x.size(0)])

    def __init__(self, ntoken=90, d_model=32, nhead=2, d_hid=64, nlayers=2):
        super().__init__()
        self.pos_encoder = self.PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, d_hid, 0.1)
        self.transformer_encoder = nn.TransformerEncoder(layer, nlayers, enable_nested_tensor=False)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)

    def forward(self, src: Tensor, src_mask: Tensor = None) -> Tensor:
        src = self.embedding(src.transpose(0, 1)) * math.sqrt(self.d_model)
        src = self.pos_encoder(src)
        if src_mask is None:
            src_mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        output = self.transformer_encoder(src, src_mask)
        return self.linear(output).transpose(0, 1)


@ordinary
class EncoderLayerPreNorm(nn.Module):
    """nn.TransformerEncoder as a decoder, norms first, batch first, GELU."""

    def __init__(self, vocab=64, width=48, heads=6, longest=70):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(
            layer, num_layers=2, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.out = nn.Linear(width, vocab, bias=False)
        mask = torch.full((longest, longest), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, ids):
        n = ids.size(1)
        x = self.tok(ids) + self.pos.weight[:n]
        return self.out(self.body(x, mask=self.mask[:n, :n]))


@ordinary
class MultiheadAttentionModule(nn.Module):
    """Blocks around nn.MultiheadAttention, a boolean mask of what is not seen."""

    class Block(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.attn = nn.MultiheadAttention(d, h, dropout=0.1, batch_first=True)
            self.ff = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

        def forward(self, x):
            T = x.size(1)
            mask = torch.triu(torch.ones(T, T, dtype=torch.bool, device=x.device), diagonal=1)
            h = self.ln1(x)
            attn_out, _ = self.attn(h, h, h, attn_mask=mask, need_weights=False)
            x = x + attn_out
            return x + self.ff(self.ln2(x))

    def __init__(self, vocab=50, d=32, h=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.randn(1, 64, d) * 0.02)
        self.blocks = nn.ModuleList([self.Block(d, h) for _ in range(2)])
        self.head = nn.Linear(d, vocab)

    def forward(self, x):
        x = self.emb(x) + self.pos[:, : x.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.head(x)
