"""Decoders in the style of minimal GPT repositories and lectures."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

from . import ordinary


@dataclass
class GPTConfig:
    block_size: int = 128
    vocab_size: int = 65
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32
    dropout: float = 0.1
    bias: bool = True


class NanoLayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class NanoAttention(nn.Module):
    def __init__(self, config, flash):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head, self.n_embd = config.n_head, config.n_embd
        self.dropout, self.flash = config.dropout, flash
        if not flash:
            mask = torch.tril(torch.ones(config.block_size, config.block_size))
            self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.flash:
            p = self.dropout if self.training else 0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=p, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class NanoBlock(nn.Module):
    def __init__(self, config, flash):
        super().__init__()
        self.ln_1 = NanoLayerNorm(config.n_embd, config.bias)
        self.attn = NanoAttention(config, flash)
        self.ln_2 = NanoLayerNorm(config.n_embd, config.bias)
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.mlp_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class Nano(nn.Module):
    def __init__(self, config, flash):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd),
            wpe=nn.Embedding(config.block_size, config.n_embd),
            drop=nn.Dropout(config.dropout),
            h=nn.ModuleList([NanoBlock(config, flash) for _ in range(config.n_layer)]),
            ln_f=NanoLayerNorm(config.n_embd, bias=config.bias),
        ))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= self.config.block_size, "the sequence is too long"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


@ordinary
def NanoTrilBuffer():
    return Nano(GPTConfig(), flash=False)


@ordinary
def NanoFlashNoBias():
    return Nano(GPTConfig(bias=False, n_embd=64, n_head=8, block_size=64), flash=True)


@ordinary
def NanoFlashBfloat16():
    return Nano(GPTConfig(n_embd=48, n_head=6), flash=True).to(torch.bfloat16)


@ordinary
def NanoTrilHalf():
    return Nano(GPTConfig(n_embd=64, n_head=4, block_size=70), flash=False).half()


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class MinAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, n_embd)
        self.query = nn.Linear(n_embd, n_embd)
        self.value = nn.Linear(n_embd, n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size))[None, None])
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.size()
        k = self.key(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = self.query(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = self.value(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = F.softmax(att.masked_fill(self.mask[:, :, :T, :T] == 0, -1e10), dim=-1)
        return self.proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))


class MinBlock(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = MinAttention(n_embd, n_head, block_size)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), NewGELU(), nn.Linear(4 * n_embd, n_embd),
                                 nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


@ordinary
class MinGptSequentialParameterPositions(nn.Module):
    def __init__(self, vocab=100, n_embd=48, n_head=4, block_size=80):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab, n_embd)
        self.pos_emb = nn.Parameter(torch.zeros(1, block_size, n_embd))
        self.blocks = nn.Sequential(*[MinBlock(n_embd, n_head, block_size) for _ in range(2)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab, bias=False)

    def forward(self, idx):
        b, t = idx.size()
        x = self.tok_emb(idx) + self.pos_emb[:, :t, :]
        return self.head(self.ln_f(self.blocks(x)))


class Head(nn.Module):
    def __init__(self, n_embd, head_size, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        B, T, C = x.shape
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class LectureBlock(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        size = n_embd // n_head
        self.heads = nn.ModuleList([Head(n_embd, size, block_size) for _ in range(n_head)])
        self.proj = nn.Linear(n_embd, n_embd)
        self.net = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x):
        y = self.ln1(x)
        x = x + self.proj(torch.cat([h(y) for h in self.heads], dim=-1))
        return x + self.net(self.ln2(x))


class LectureModel(nn.Module):
    def __init__(self, vocab_size=65, n_embd=32, n_head=4, block_size=72, layers=2):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[LectureBlock(n_embd, n_head, block_size) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx):
        B, T = idx.shape
        tok = self.token_embedding_table(idx)
        pos = self.position_embedding_table(torch.arange(T, device=idx.device))
        return self.lm_head(self.ln_f(self.blocks(tok + pos)))


@ordinary
def LectureHeadsConcatenated():
    return LectureModel()


@ordinary
def LectureSingleLayerEightHeadsOfEight():
    return LectureModel(vocab_size=64, n_embd=64, n_head=8, block_size=128, layers=1)


@ordinary
class BookGptTriuBool(nn.Module):
    """The mask is a triu of ones, which a cast to bool slices and fills in place."""

    class Layer(nn.Module):
        def __init__(self, d, heads, context):
            super().__init__()
            self.W_query = nn.Linear(d, d, bias=False)
            self.W_key = nn.Linear(d, d, bias=False)
            self.W_value = nn.Linear(d, d, bias=False)
            self.out_proj = nn.Linear(d, d)
            self.heads, self.head_dim = heads, d // heads
            self.register_buffer("mask", torch.triu(torch.ones(context, context), diagonal=1))
            self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))
            self.norm1_scale, self.norm1_shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
            self.norm2_scale, self.norm2_shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
            self.drop_shortcut = nn.Dropout(0.1)

        def norm(self, x, scale, shift):
            mean = x.mean(dim=-1, keepdim=True)
            var = x.var(dim=-1, keepdim=True, unbiased=False)
            return scale * ((x - mean) / torch.sqrt(var + 1e-5)) + shift

        def attend(self, x):
            b, num_tokens, d = x.shape
            keys = self.W_key(x).view(b, num_tokens, self.heads, self.head_dim).transpose(1, 2)
            queries = self.W_query(x).view(b, num_tokens, self.heads, self.head_dim).transpose(1, 2)
            values = self.W_value(x).view(b, num_tokens, self.heads, self.head_dim).transpose(1, 2)
            attn_scores = queries @ keys.transpose(2, 3)
            mask_bool = self.mask.bool()[:num_tokens, :num_tokens]
            attn_scores.masked_fill_(mask_bool, -torch.inf)
            weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
            context = (weights @ values).transpose(1, 2)
            return self.out_proj(context.reshape(b, num_tokens, d))

        def forward(self, x):
            shortcut = x
            x = self.drop_shortcut(self.attend(self.norm(x, self.norm1_scale, self.norm1_shift))) + shortcut
            shortcut = x
            return self.drop_shortcut(self.ff(self.norm(x, self.norm2_scale, self.norm2_shift))) + shortcut

    def __init__(self, vocab=50, d=36, heads=3, context=96):
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(vocab, d), nn.Embedding(context, d)
        self.trf_blocks = nn.Sequential(*[self.Layer(d, heads, context) for _ in range(2)])
        self.final_norm = nn.LayerNorm(d)
        self.out_head = nn.Linear(d, vocab, bias=False)

    def forward(self, in_idx):
        batch_size, seq_len = in_idx.shape
        x = self.tok_emb(in_idx) + self.pos_emb(torch.arange(seq_len, device=in_idx.device))
        return self.out_head(self.final_norm(self.trf_blocks(x)))
