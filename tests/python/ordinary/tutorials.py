"""Decoders as lectures, books and tutorials write them."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary

n_embd, block_size, vocab_size, n_head = 32, 48, 65, 4


class Head(nn.Module):
    """one head of self-attention"""

    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        B, T, C = x.shape
        k = self.key(x)
        q = self.query(x)
        wei = q @ k.transpose(-2, -1) * C**-0.5  # the lecture scales by the width, not the head's
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        wei = self.dropout(wei)
        v = self.value(x)
        return wei @ v


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, head_size):
        super().__init__()
        self.heads = nn.ModuleList([Head(head_size) for _ in range(num_heads)])
        self.proj = nn.Linear(n_embd, n_embd)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        out = torch.cat([h(x) for h in self.heads], dim=-1)
        return self.dropout(self.proj(out))


class FeedFoward(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(0.2)
        )

    def forward(self, x):
        return self.net(x)


class LectureBlock(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.sa = MultiHeadAttention(n_head, n_embd // n_head)
        self.ffwd = FeedFoward(n_embd)
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        x = x + self.ffwd(self.ln2(x))
        return x


@ordinary
class LectureGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[LectureBlock(n_embd, n_head=n_head) for _ in range(2)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets=None):
        B, T = idx.shape
        tok_emb = self.token_embedding_table(idx)
        pos_emb = self.position_embedding_table(torch.arange(T, device=idx.device))
        x = tok_emb + pos_emb
        x = self.blocks(x)
        x = self.ln_f(x)
        logits = self.lm_head(x)
        if targets is None:
            loss = None
        else:
            B, T, C = logits.shape
            loss = F.cross_entropy(logits.view(B * T, C), targets.view(B * T))
        return logits, loss


@ordinary
class LectureGPTOneHead(nn.Module):
    """The lecture half way: a single head, no residuals, no norms."""

    def __init__(self):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.sa_head = Head(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx):
        x = self.token_embedding_table(idx) + self.position_embedding_table(torch.arange(idx.shape[1]))
        return self.lm_head(self.sa_head(x))


def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size):
    "Mask out subsequent positions."
    attn_shape = (1, size, size)
    mask = torch.triu(torch.ones(attn_shape), diagonal=1).type(torch.uint8)
    return mask == 0


def attention(query, key, value, mask=None, dropout=None):
    "Compute 'Scaled Dot Product Attention'"
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class AnnotatedNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x, attn = attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = AnnotatedNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=100):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return self.dropout(x + self.pe[:, : x.size(1)].requires_grad_(False))


class AnnotatedLayer(nn.Module):
    def __init__(self, size, heads, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(heads, size)
        self.w_1, self.w_2 = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.dropout = nn.Dropout(dropout)
        self.sublayer = clones(SublayerConnection(size, dropout), 2)

    def forward(self, x, tgt_mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        return self.sublayer[1](x, lambda x: self.w_2(self.dropout(self.w_1(x).relu())))


@ordinary
class AnnotatedDecoder(nn.Module):
    def __init__(self, vocab=77, d_model=40, heads=5, N=2, log_probabilities=True):
        super().__init__()
        self.lut, self.d_model = nn.Embedding(vocab, d_model), d_model
        self.position = PositionalEncoding(d_model, 0.1)
        self.layers = clones(AnnotatedLayer(d_model, heads, 0.1), N)
        self.norm = AnnotatedNorm(d_model)
        self.generator = nn.Linear(d_model, vocab)

    def forward(self, tgt):
        x = self.position(self.lut(tgt) * math.sqrt(self.d_model))
        tgt_mask = subsequent_mask(tgt.size(-1)).type_as(tgt.data)
        for layer in self.layers:
            x = layer(x, tgt_mask)
        return self.generator(self.norm(x))


@ordinary
class AnnotatedDecoderWithLogSoftmax(AnnotatedDecoder):
    """The tutorial's generator gives log probabilities."""

    def forward(self, tgt):
        return F.log_softmax(super().forward(tgt), dim=-1)


def transpose_qkv(X, num_heads):
    X = X.reshape(X.shape[0], X.shape[1], num_heads, -1)
    X = X.permute(0, 2, 1, 3)
    return X.reshape(-1, X.shape[2], X.shape[3])


def transpose_output(X, num_heads):
    X = X.reshape(-1, num_heads, X.shape[1], X.shape[2])
    X = X.permute(0, 2, 1, 3)
    return X.reshape(X.shape[0], X.shape[1], -1)


def masked_softmax(X, valid_lens):
    """A book's: each query has a number of keys that it sees; the others become -1e6."""
    shape = X.shape
    X = X.reshape(-1, shape[-1])
    mask = torch.arange(X.size(1), dtype=torch.float32)[None, :] < valid_lens[:, None]
    X = torch.where(mask, X, torch.full_like(X, -1e6))
    return F.softmax(X.reshape(shape), dim=-1)


class BookBlock(nn.Module):
    def __init__(self, num_hiddens, num_heads, ffn):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.ln1, self.ln2 = nn.LayerNorm(num_hiddens), nn.LayerNorm(num_hiddens)
        self.dense1, self.dense2 = nn.Linear(num_hiddens, ffn), nn.Linear(ffn, num_hiddens)
        self.relu = nn.ReLU()

    def attend(self, X, dec_valid_lens):
        q, k, v = (transpose_qkv(W(X), self.num_heads) for W in (self.W_q, self.W_k, self.W_v))
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1])
        out = torch.bmm(masked_softmax(scores, dec_valid_lens.repeat(self.num_heads)), v)
        return self.W_o(transpose_output(out, self.num_heads))

    def forward(self, X):
        dec_valid_lens = torch.arange(1, X.shape[1] + 1, device=X.device)
        Y = self.ln1(X + self.attend(X, dec_valid_lens))
        return self.ln2(Y + self.dense2(self.relu(self.dense1(Y))))


@ordinary
class BookDecoder(nn.Module):
    def __init__(self, vocab=61, num_hiddens=32, num_heads=4):
        super().__init__()
        self.embedding, self.num_hiddens = nn.Embedding(vocab, num_hiddens), num_hiddens
        P = torch.zeros((1, 96, num_hiddens))
        X = torch.arange(96, dtype=torch.float32).reshape(-1, 1)
        X = X / torch.pow(10000, torch.arange(0, num_hiddens, 2, dtype=torch.float32) / num_hiddens)
        P[:, :, 0::2], P[:, :, 1::2] = torch.sin(X), torch.cos(X)
        self.P = P
        self.blks = nn.Sequential()
        for i in range(2):
            self.blks.add_module("block" + str(i), BookBlock(num_hiddens, num_heads, 48))
        self.dense = nn.LazyLinear(vocab)
        self.dense(torch.zeros(1, num_hiddens))

    def forward(self, X):
        X = self.embedding(X) * math.sqrt(self.num_hiddens)
        X = X + self.P[:, : X.shape[1], :].to(X.device)
        return self.dense(self.blks(X))


class SelfAttentionFromScratch(nn.Module):
    """A book's compact attention: the mask is a boolean buffer, and is written in place."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.d_out, self.num_heads, self.head_dim = d_out, num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        b, num_tokens, d_in = x.shape
        keys = self.W_key(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        queries = self.W_query(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        values = self.W_value(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        mask_bool = self.mask.bool()[:num_tokens, :num_tokens]
        attn_scores.masked_fill_(mask_bool, -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, num_tokens, self.d_out)
        return self.out_proj(context_vec)


class ScratchNorm(nn.Module):
    def __init__(self, emb_dim):
        super().__init__()
        self.eps = 1e-5
        self.scale = nn.Parameter(torch.ones(emb_dim))
        self.shift = nn.Parameter(torch.zeros(emb_dim))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * ((x - mean) / torch.sqrt(var + self.eps)) + self.shift


class ScratchGELU(nn.Module):
    def forward(self, x):
        inner = torch.sqrt(torch.tensor(2.0 / torch.pi)) * (x + 0.044715 * torch.pow(x, 3))
        return 0.5 * x * (1 + torch.tanh(inner))


class ScratchBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg["emb_dim"]
        self.att = SelfAttentionFromScratch(
            d, d, cfg["context_length"], cfg["drop_rate"], cfg["n_heads"], cfg["qkv_bias"]
        )
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), ScratchGELU(), nn.Linear(4 * d, d))
        self.norm1, self.norm2 = ScratchNorm(d), ScratchNorm(d)
        self.drop_shortcut = nn.Dropout(cfg["drop_rate"])

    def forward(self, x):
        shortcut = x
        x = self.drop_shortcut(self.att(self.norm1(x)))
        x = x + shortcut
        shortcut = x
        x = self.drop_shortcut(self.ff(self.norm2(x)))
        return x + shortcut


@ordinary
class LlmFromScratch(nn.Module):
    def __init__(self):
        super().__init__()
        cfg = {"vocab_size": 83, "context_length": 52, "emb_dim": 48, "n_heads": 4, "n_layers": 2}
        cfg.update(drop_rate=0.1, qkv_bias=True)
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.drop_emb = nn.Dropout(cfg["drop_rate"])
        self.trf_blocks = nn.Sequential(*[ScratchBlock(cfg) for _ in range(cfg["n_layers"])])
        self.final_norm = ScratchNorm(cfg["emb_dim"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)

    def forward(self, in_idx):
        batch_size, seq_len = in_idx.shape
        tok_embeds = self.tok_emb(in_idx)
        pos_embeds = self.pos_emb(torch.arange(seq_len, device=in_idx.device))
        x = self.drop_emb(tok_embeds + pos_embeds)
        return self.out_head(self.final_norm(self.trf_blocks(x)))


@ordinary
class BlogTransformer(nn.Module):
    """A blog's: heads are folded into the batch, q and k are each scaled, the mask is written by indices."""

    def __init__(self, num_tokens=72, k=24, heads=3, depth=2, seq_length=64):
        super().__init__()
        self.k, self.heads = k, heads
        self.token_emb, self.pos_emb = nn.Embedding(num_tokens, k), nn.Embedding(seq_length, k)
        self.layers = nn.ModuleList()
        for _ in range(depth):
            self.layers.append(
                nn.ModuleDict({
                    "tokeys": nn.Linear(k, k, bias=False), "toqueries": nn.Linear(k, k, bias=False),
                    "tovalues": nn.Linear(k, k, bias=False), "unifyheads": nn.Linear(k, k),
                    "norm1": nn.LayerNorm(k), "norm2": nn.LayerNorm(k),
                    "ff": nn.Sequential(nn.Linear(k, 4 * k), nn.ReLU(), nn.Linear(4 * k, k)),
                })
            )  # fmt: skip
        self.toprobs = nn.Linear(k, num_tokens)

    def attention(self, m, x):
        b, t, k = x.size()
        h, s = self.heads, k // self.heads
        queries, keys, values = m["toqueries"](x), m["tokeys"](x), m["tovalues"](x)
        keys = keys.view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        queries = queries.view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        values = values.view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        queries = queries / (s ** (1 / 4))
        keys = keys / (s ** (1 / 4))
        dot = torch.bmm(queries, keys.transpose(1, 2))
        indices = torch.triu_indices(t, t, offset=1)
        dot[:, indices[0], indices[1]] = float("-inf")
        dot = F.softmax(dot, dim=2)
        out = torch.bmm(dot, values).view(b, h, t, s)
        out = out.transpose(1, 2).contiguous().view(b, t, s * h)
        return m["unifyheads"](out)

    def forward(self, x):
        tokens = self.token_emb(x)
        b, t, k = tokens.size()
        positions = self.pos_emb(torch.arange(t))[None, :, :].expand(b, t, k)
        x = tokens + positions
        for layer in self.layers:
            x = layer["norm1"](self.attention(layer, x) + x)
            x = layer["norm2"](layer["ff"](x) + x)
        return self.toprobs(x.view(b * t, k)).view(b, t, -1)


@ordinary
class UvaTutorial(nn.Module):
    """A course's: q, k and v are interleaved by heads in one product, -9e15 hides a key."""

    def __init__(self, vocab=55, embed=32, heads=4, layers=2):
        super().__init__()
        self.embed, self.heads, self.head_dim = nn.Embedding(vocab, embed), heads, embed // heads
        pe = torch.zeros(90, embed)
        position = torch.arange(0, 90, dtype=torch.float).unsqueeze(1)
        div = torch.exp(torch.arange(0, embed, 2).float() * (-math.log(10000.0) / embed))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div), torch.cos(position * div)
        self.register_buffer("pe", pe.unsqueeze(0), persistent=False)
        self.qkv_proj = nn.ModuleList([nn.Linear(embed, 3 * embed) for _ in range(layers)])
        self.o_proj = nn.ModuleList([nn.Linear(embed, embed) for _ in range(layers)])
        self.linear_net = nn.ModuleList([
            nn.Sequential(nn.Linear(embed, 64), nn.Dropout(0.1), nn.ReLU(inplace=True), nn.Linear(64, embed))
            for _ in range(layers)
        ])  # fmt: skip
        self.norm1 = nn.ModuleList([nn.LayerNorm(embed) for _ in range(layers)])
        self.norm2 = nn.ModuleList([nn.LayerNorm(embed) for _ in range(layers)])
        self.out = nn.Linear(embed, vocab)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.pe[:, : x.size(1)]
        batch_size, seq_length, embed_dim = x.size()
        mask = torch.ones(seq_length, seq_length).tril()
        for i in range(len(self.qkv_proj)):
            qkv = self.qkv_proj[i](x).reshape(batch_size, seq_length, self.heads, 3 * self.head_dim)
            q, k, v = qkv.permute(0, 2, 1, 3).chunk(3, dim=-1)
            attn_logits = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size()[-1])
            attn_logits = attn_logits.masked_fill(mask == 0, -9e15)
            values = torch.matmul(F.softmax(attn_logits, dim=-1), v)
            values = values.permute(0, 2, 1, 3).reshape(batch_size, seq_length, embed_dim)
            x = self.norm1[i](x + self.o_proj[i](values))
            x = self.norm2[i](x + self.linear_net[i](x))
        return self.out(x)
