"""Decoders that build on PyTorch's own attention and encoder modules."""
import math
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from . import ordinary


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=500, batch_first=False):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.transpose(0, 1) if batch_first else pe)
        self.batch_first = batch_first

    def forward(self, x):
        x = x + (self.pe[:, :x.size(1)] if self.batch_first else self.pe[:x.size(0)])
        return self.dropout(x)


class TutorialLanguageModel(nn.Module):
    def __init__(self, ntoken=80, d_model=32, nhead=2, d_hid=64, nlayers=2, norm_first=False):
        super().__init__()
        self.pos_encoder = PositionalEncoding(d_model)
        layers = nn.TransformerEncoderLayer(d_model, nhead, d_hid, 0.1, norm_first=norm_first)
        self.transformer_encoder = nn.TransformerEncoder(layers, nlayers, enable_nested_tensor=False)
        self.embedding, self.d_model = nn.Embedding(ntoken, d_model), d_model
        self.linear = nn.Linear(d_model, ntoken)

    def forward(self, ids, src_mask=None):
        src = ids.t()
        src = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        if src_mask is None:
            src_mask = nn.Transformer.generate_square_subsequent_mask(len(src), dtype=src.dtype)
        return self.linear(self.transformer_encoder(src, src_mask)).transpose(0, 1)


@ordinary
def TorchTutorialEncoderSequenceFirst():
    return TutorialLanguageModel()


@ordinary
def TorchTutorialEncoderBfloat16():
    return TutorialLanguageModel(ntoken=64, d_model=64, nhead=4, norm_first=True).to(torch.bfloat16)


class BatchFirstEncoderModel(nn.Module):
    def __init__(self, vocab=90, d=48, heads=4, is_causal=True, activation="gelu", bias=True):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.pos = PositionalEncoding(d, batch_first=True, max_len=128)
        layer = nn.TransformerEncoderLayer(d, heads, 4 * d, 0.1, activation=activation, batch_first=True,
                                           norm_first=True, bias=bias)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.fc, self.is_causal = nn.Linear(d, vocab), is_causal

    def forward(self, x):
        size = x.size(1)
        mask = torch.triu(torch.ones(size, size, device=x.device) * float("-inf"), diagonal=1)
        x = self.encoder(self.pos(self.emb(x)), mask=mask.to(self.fc.weight.dtype), is_causal=self.is_causal)
        return self.fc(x)


@ordinary
def TorchEncoderBatchFirstCausalHint():
    return BatchFirstEncoderModel()


@ordinary
def TorchEncoderReluFloatMaskHalf():
    return BatchFirstEncoderModel(vocab=64, d=32, is_causal=False, activation="relu", bias=False).half()


@ordinary
class TorchDecoderZeroMemory(nn.Module):
    """nn.TransformerDecoder needs a memory, so the model gives it zeros."""

    def __init__(self, vocab=45, d=32, heads=4, layers=2):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, d), nn.Embedding(100, d)
        layer = nn.TransformerDecoderLayer(d_model=d, nhead=heads, dim_feedforward=64, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, num_layers=layers)
        self.fc_out = nn.Linear(d, vocab)

    def forward(self, x):
        n = x.size(1)
        h = self.embed(x) + self.pos(torch.arange(n, device=x.device))[None]
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool, device=x.device), diagonal=1)
        memory = torch.zeros(x.size(0), 1, h.size(-1), dtype=h.dtype)
        return self.fc_out(self.decoder(h, memory, tgt_mask=mask))


class MhaBlock(nn.Module):
    def __init__(self, d, heads, **options):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, dropout=0.1, batch_first=True, **options)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))

    def forward(self, x, attn_mask, weights=False):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=attn_mask, need_weights=weights)[0]
        return x + self.mlp(self.ln_2(x))


class MhaGpt(nn.Module):
    def __init__(self, vocab=64, d=64, heads=8, weights=False, **options):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(128, d)
        self.blocks = nn.ModuleList([MhaBlock(d, heads, **options) for _ in range(2)])
        self.ln_f, self.head, self.weights = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False), weights

    def forward(self, idx):
        t = idx.size(-1)
        x = self.wte(idx) + self.wpe(torch.arange(t, device=idx.device))
        attn_mask = ~torch.tril(torch.ones(t, t, dtype=torch.bool, device=idx.device))
        for block in self.blocks:
            x = block(x, attn_mask, self.weights)
        return self.head(self.ln_f(x)), x


@ordinary
def TorchMhaBoolMask():
    return MhaGpt()


@ordinary
def TorchMhaBoolMaskWithWeights():
    return MhaGpt(vocab=70, d=32, heads=4, weights=True, bias=False)


@ordinary
def TorchMhaAddedZeroKey():
    return MhaGpt(vocab=50, d=48, heads=3, add_zero_attn=True)


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ClipBlock(nn.Module):
    def __init__(self, d, heads, attn_mask):
        super().__init__()
        self.attn, self.ln_1, self.ln_2 = nn.MultiheadAttention(d, heads), nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(OrderedDict([
            ("c_fc", nn.Linear(d, d * 4)), ("gelu", QuickGELU()), ("c_proj", nn.Linear(d * 4, d))]))
        self.attn_mask = attn_mask

    def attention(self, x):
        mask = self.attn_mask.to(dtype=x.dtype, device=x.device)[: x.shape[0], : x.shape[0]]
        return self.attn(x, x, x, need_weights=False, attn_mask=mask)[0]

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@ordinary
class ClipTextTransformerLanguageModel(nn.Module):
    def __init__(self, vocab=49, width=48, heads=4, context_length=77):
        super().__init__()
        mask = torch.empty(context_length, context_length)
        mask.fill_(float("-inf"))
        mask.triu_(1)
        self.resblocks = nn.Sequential(*[ClipBlock(width, heads, mask) for _ in range(2)])
        self.token_embedding = nn.Embedding(vocab, width)
        self.positional_embedding = nn.Parameter(torch.randn(context_length, width) * 0.01)
        self.ln_final = nn.LayerNorm(width)

    def forward(self, text):
        x = self.token_embedding(text) + self.positional_embedding[: text.shape[1]]
        x = self.resblocks(x.permute(1, 0, 2)).permute(1, 0, 2)
        return self.ln_final(x) @ self.token_embedding.weight.T


@ordinary
class FunctionalMultiHeadForward(nn.Module):
    """Raw parameters go to F.multi_head_attention_forward."""

    def __init__(self, vocab=40, d=32, heads=2):
        super().__init__()
        self.tok, self.pos = nn.Parameter(torch.randn(vocab, d)), nn.Parameter(torch.randn(80, d))
        self.in_w, self.in_b = nn.Parameter(torch.randn(3 * d, d)), nn.Parameter(torch.zeros(3 * d))
        self.out_w, self.out_b = nn.Parameter(torch.randn(d, d)), nn.Parameter(torch.zeros(d))
        self.w1, self.w2 = nn.Parameter(torch.randn(3 * d, d)), nn.Parameter(torch.randn(d, 3 * d))
        self.vocab, self.d, self.heads = vocab, d, heads

    def forward(self, ids):
        n = ids.shape[1]
        x = F.embedding(ids, self.tok).transpose(0, 1) + self.pos[:n, None, :]
        mask = torch.full((n, n), -math.inf).triu(1)
        y = F.layer_norm(x, (self.d,))
        att, _ = F.multi_head_attention_forward(
            y, y, y, self.d, self.heads, self.in_w, self.in_b, None, None, False, 0.0, self.out_w, self.out_b,
            training=self.training, need_weights=False, attn_mask=mask)
        x = x + att
        x = x + F.linear(F.relu(F.linear(F.layer_norm(x, (self.d,)), self.w1)), self.w2)
        return F.linear(F.layer_norm(x, (self.d,)), self.tok).transpose(0, 1).contiguous()


class ModernTorch(nn.Module):
    """nn.RMSNorm, grouped queries inside SDPA, and rotary tables from buffers."""

    def __init__(self, vocab=64, d=64, heads=8, kv=2, attend="gqa"):
        super().__init__()
        self.embed, self.heads = nn.Embedding(vocab, d), heads
        self.kv, self.hd, self.kind = kv, d // heads, attend
        self.layers = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.RMSNorm(d), "norm2": nn.RMSNorm(d), "q": nn.Linear(d, d, bias=False),
            "kv": nn.Linear(d, 2 * kv * self.hd, bias=False), "o": nn.Linear(d, d, bias=False),
            "up": nn.Linear(d, 4 * d, bias=False),
            "down": nn.Linear(2 * d, d, bias=False)}) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, vocab, bias=False)
        angle = torch.outer(torch.arange(96).float(),
                            10000 ** (-torch.arange(0, self.hd, 2).float() / self.hd))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def rotate(self, x):
        n = x.size(-2)
        a, b = x.float().chunk(2, dim=-1)
        cos, sin = self.cos[:n].float(), self.sin[:n].float()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    def attention(self, q, k, v):
        n = q.size(-2)
        if self.kind == "gqa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        if self.kind == "flex":
            block = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device=str(q.device))
            return flex_attention(q, k, v, block_mask=block, enable_gqa=True)
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(n, n))

    def forward(self, ids):
        b, n = ids.shape
        x = self.embed(ids)
        for layer in self.layers:
            y = layer["norm1"](x)
            q = layer["q"](y).view(b, n, self.heads, self.hd).transpose(1, 2)
            k, v = layer["kv"](y).view(b, n, 2, self.kv, self.hd).permute(2, 0, 3, 1, 4).unbind(0)
            att = self.attention(self.rotate(q), self.rotate(k), v)
            x = x + layer["o"](att.transpose(1, 2).flatten(-2))
            gate, up = layer["up"](layer["norm2"](x)).chunk(2, -1)
            x = x + layer["down"](F.silu(gate) * up)
        return self.head(self.norm(x))


@ordinary
def ModernTorchGqaFlag():
    return ModernTorch()


@ordinary
def ModernTorchGqaFlagHalf():
    return ModernTorch(d=32, heads=4, kv=1).half()


@ordinary
def ModernTorchCausalLowerRight():
    return ModernTorch(vocab=88, d=48, heads=4, kv=4, attend="bias")


@ordinary
def ModernTorchFlexAttention():
    return ModernTorch(vocab=64, d=64, heads=4, kv=2, attend="flex")
