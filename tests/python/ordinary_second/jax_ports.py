"""Decoders that people ported from JAX, Haiku, Flax, Keras and Mesh TensorFlow."""
import math
from typing import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary


@ordinary
class HaikuCausalTransformer(nn.Module):
    """The einsum letters are t for queries and T for keys; the mask is -1e30 through where."""

    def __init__(self, vocab_size=100, model_size=48, num_heads=4, key_size=12, num_layers=2, widening=4):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, model_size)
        self.positional = nn.Parameter(0.02 * torch.randn(128, model_size))
        self.num_heads, self.key_size = num_heads, key_size
        self.stack = nn.ModuleList()
        for _ in range(num_layers):
            self.stack.append(nn.ModuleDict({
                "query": nn.Linear(model_size, num_heads * key_size),
                "key": nn.Linear(model_size, num_heads * key_size),
                "value": nn.Linear(model_size, num_heads * key_size),
                "linear": nn.Linear(num_heads * key_size, model_size),
                "up": nn.Linear(model_size, widening * model_size),
                "down": nn.Linear(widening * model_size, model_size),
                "norm_a": nn.LayerNorm(model_size), "norm_b": nn.LayerNorm(model_size)}))
        self.final, self.unembed = nn.LayerNorm(model_size), nn.Linear(model_size, vocab_size)

    def linear_projection(self, x, linear):
        y = linear(x)
        return y.reshape((*x.shape[:-1], self.num_heads, self.key_size))

    def attention(self, p, h, mask):
        query_heads = self.linear_projection(h, p["query"])
        key_heads = self.linear_projection(h, p["key"])
        value_heads = self.linear_projection(h, p["value"])
        attn_logits = torch.einsum("...thd,...Thd->...htT", query_heads, key_heads)
        attn_logits = attn_logits / math.sqrt(self.key_size)
        attn_logits = torch.where(mask.bool(), attn_logits, -1e30)
        attn = torch.einsum("...htT,...Thd->...thd", torch.softmax(attn_logits, -1), value_heads)
        return p["linear"](attn.reshape((*attn.shape[:-2], -1)))

    def forward(self, tokens):
        _, seq_len = tokens.shape
        causal_mask = torch.tril(torch.ones((1, 1, seq_len, seq_len)))
        h = self.embed(tokens) + self.positional[:seq_len]
        for p in self.stack:
            h = h + self.attention(p, p["norm_a"](h), causal_mask)
            h = h + p["down"](F.gelu(p["up"](p["norm_b"](h)), approximate="tanh"))
        return self.unembed(self.final(h))


def make_attention_mask(query_input, key_input, pairwise_fn: Callable = torch.mul):
    mask = pairwise_fn(query_input.unsqueeze(-1), key_input.unsqueeze(-2))
    return mask.unsqueeze(-3)


def combine_masks(*masks):
    mask, *rest = [m for m in masks if m is not None]
    for other in rest:
        mask = torch.logical_and(mask, other)
    return mask


class FlaxSelfAttention(nn.Module):
    def __init__(self, features, num_heads, dtype):
        super().__init__()
        self.num_heads, self.head_dim, self.dtype = num_heads, features // num_heads, dtype
        self.kernels = nn.ParameterDict({
            name: nn.Parameter(torch.randn(features, num_heads, self.head_dim))
            for name in ("query", "key", "value")})
        self.out = nn.Parameter(torch.randn(num_heads, self.head_dim, features))

    def forward(self, x, mask):
        query, key, value = (torch.tensordot(x, self.kernels[n], dims=([-1], [0]))
                             for n in ("query", "key", "value"))
        query = query / torch.sqrt(torch.tensor(self.head_dim)).to(self.dtype)
        low = torch.full(mask.shape, torch.finfo(self.dtype).min, dtype=self.dtype)
        bias = torch.where(mask > 0, torch.zeros(mask.shape, dtype=self.dtype), low)
        weights = torch.einsum("...qhd,...khd->...hqk", query, key) + bias
        weights = torch.softmax(weights, dim=-1).to(self.dtype)
        x = torch.einsum("...hqk,...khd->...qhd", weights, value)
        return torch.tensordot(x, self.out, dims=([-2, -1], [0, 1]))


class FlaxLanguageModel(nn.Module):
    """The causal mask is the combination of a causal mask and a mask of real tokens."""

    def __init__(self, vocab=64, features=32, num_heads=4, layers=2, dtype=torch.float32):
        super().__init__()
        self.token, self.features = nn.Embedding(vocab, features), features
        self.attn = nn.ModuleList([FlaxSelfAttention(features, num_heads, dtype) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(features, eps=1e-6) for _ in range(2 * layers + 1)])
        self.dense_in = nn.ModuleList([nn.Linear(features, 96) for _ in range(layers)])
        self.dense_out = nn.ModuleList([nn.Linear(96, features) for _ in range(layers)])
        self.to(dtype)

    def positions(self, length):
        position = torch.arange(length)[:, None].float()
        scale = -math.log(10000.0 / 1.0) / (self.features // 2 - 1)
        angle = position * (1.0 * torch.exp(torch.arange(self.features // 2).float() * scale))
        return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)[None]

    def forward(self, inputs):
        idxs = torch.arange(inputs.shape[-1]).broadcast_to(inputs.shape)
        causal = make_attention_mask(idxs, idxs, torch.greater_equal)
        real = make_attention_mask(torch.ones_like(inputs), torch.ones_like(inputs))
        mask = combine_masks(causal, None, real)
        x = self.token(inputs)
        x = x + self.positions(inputs.shape[1]).to(x.dtype)
        for i, attn in enumerate(self.attn):
            x = x + attn(self.norms[2 * i](x), mask)
            x = x + self.dense_out[i](F.relu(self.dense_in[i](self.norms[2 * i + 1](x))))
        return torch.matmul(self.norms[-1](x), self.token.weight.T) / math.sqrt(self.features)


@ordinary
def FlaxCombinedMasks():
    return FlaxLanguageModel()


@ordinary
def FlaxCombinedMasksBfloat16():
    return FlaxLanguageModel(vocab=80, features=64, num_heads=8, dtype=torch.bfloat16)


class GroupedJaxLlama(nn.Module):
    """Queries keep a group axis, so that keys need no repeat; positions turn halves of the head."""

    def __init__(self, vocab=64, emb=48, kv_heads=2, group=3, head_dim=8, mlp=96, layers=2):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, emb))
        self.vocab, self.k, self.g, self.d = vocab, kv_heads, group, head_dim
        shapes = {"q": (emb, kv_heads, group, head_dim), "k": (emb, kv_heads, head_dim),
                  "v": (emb, kv_heads, head_dim),
                  "o": (kv_heads, group, head_dim, emb), "wi_0": (emb, mlp), "wi_1": (emb, mlp),
                  "wo": (mlp, emb),
                  "scale_a": (emb,), "scale_b": (emb,)}
        self.params = nn.ModuleList([
            nn.ParameterDict({n: nn.Parameter(torch.ones(s) if len(s) == 1 else torch.randn(s) * emb ** -0.5)
                              for n, s in shapes.items()}) for _ in range(layers)])
        self.last_scale = nn.Parameter(torch.ones(emb))

    @staticmethod
    def rms(x, scale):
        mean2 = torch.mean(torch.square(x.to(torch.float32)), dim=-1, keepdim=True)
        return (x * torch.rsqrt(mean2 + 1e-6)).to(x.dtype) * scale

    def turn(self, x, position):
        fraction = 2 * torch.arange(0, self.d // 2) / self.d
        timescale = 1.0 * (10_000 / 1.0) ** fraction
        sinusoid = position[:, :, None] / timescale
        sinusoid = sinusoid.reshape(*sinusoid.shape[:2], *([1] * (x.ndim - 3)), -1)
        sin, cos = torch.sin(sinusoid), torch.cos(sinusoid)
        first_half, second_half = torch.chunk(x, 2, dim=-1)
        return torch.cat((first_half * cos - second_half * sin, second_half * cos + first_half * sin), dim=-1)

    def forward(self, ids):
        b, n = ids.shape
        x, position = self.table[ids], torch.arange(n)[None, :].repeat(b, 1)
        row = torch.arange(n).reshape(n, 1).expand(n, n)
        col = torch.arange(n).reshape(1, n).expand(n, n)
        bias = torch.where(col <= row, 0.0, -0.7 * torch.finfo(torch.float32).max)[None, None, None]
        for p in self.params:
            y = self.rms(x, p["scale_a"])
            q = self.turn(torch.einsum("bte,ekgd->btkgd", y, p["q"]), position) / math.sqrt(self.d)
            k = self.turn(torch.einsum("bse,ekd->bskd", y, p["k"]), position)
            v = torch.einsum("bse,ekd->bskd", y, p["v"])
            w = torch.softmax(torch.einsum("btkgd,bskd->bkgts", q, k) + bias, dim=-1)
            x = x + torch.einsum("btkgd,kgde->bte", torch.einsum("bkgts,bskd->btkgd", w, v), p["o"])
            y = self.rms(x, p["scale_b"])
            x = x + torch.einsum("btm,me->bte", F.silu(y @ p["wi_0"]) * (y @ p["wi_1"]), p["wo"])
        return torch.einsum("bte,ve->btv", self.rms(x, self.last_scale), self.table)


@ordinary
def MaxTextStyleGroupedEinsum():
    return GroupedJaxLlama()


@ordinary
class ShazeerMultiQueryPaper(nn.Module):
    """The letters follow the paper on multi-query attention: b, n, m, h, k, v, d."""

    def __init__(self, vocab=64, d=32, h=4, k=8, ff=128, layers=2):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocab, d), nn.Embedding(100, d)
        self.P_q = nn.ParameterList([nn.Parameter(torch.randn(h, d, k)) for _ in range(layers)])
        self.P_k = nn.ParameterList([nn.Parameter(torch.randn(d, k)) for _ in range(layers)])
        self.P_v = nn.ParameterList([nn.Parameter(torch.randn(d, k)) for _ in range(layers)])
        self.P_o = nn.ParameterList([nn.Parameter(torch.randn(h, d, k)) for _ in range(layers)])
        self.W_1 = nn.ParameterList([nn.Parameter(torch.randn(d, ff)) for _ in range(layers)])
        self.W_2 = nn.ParameterList([nn.Parameter(torch.randn(ff, d)) for _ in range(layers)])

    def forward(self, ids):
        n = ids.shape[1]
        X = self.embedding(ids) + self.positions.weight[:n]
        mask = torch.ones(n, n).tril().log()
        for P_q, P_k, P_v, P_o, W_1, W_2 in zip(self.P_q, self.P_k, self.P_v, self.P_o, self.W_1, self.W_2):
            M = F.layer_norm(X, X.shape[-1:])
            Q = torch.einsum("bnd,hdk->bhnk", M, P_q)
            K = torch.einsum("bmd,dk->bmk", M, P_k)
            V = torch.einsum("bmd,dv->bmv", M, P_v)
            logits = torch.einsum("bhnk,bmk->bhnm", Q, K)
            weights = torch.softmax(logits + mask, dim=-1)
            O = torch.einsum("bhnm,bmv->bhnv", weights, V)
            X = X + torch.einsum("bhnv,hdv->bnd", O, P_o)
            X = X + F.relu(F.layer_norm(X, X.shape[-1:]) @ W_1) @ W_2
        return F.layer_norm(X, X.shape[-1:]) @ self.embedding.weight.mT


class UnbatchedBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.up, self.down, self.heads = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), heads
        self.g1, self.g2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))

    def forward(self, x):
        seq, d = x.shape
        y = x * torch.rsqrt((x ** 2).mean(1, keepdim=True) + 1e-5) * self.g1
        q, k, v = self.qkv(y).reshape(seq, 3, self.heads, d // self.heads).unbind(1)
        logits = torch.einsum("shd,Shd->hsS", q, k) / (d // self.heads) ** 0.5
        mask = torch.arange(seq)[:, None] >= torch.arange(seq)[None, :]
        logits = torch.where(mask[None], logits, torch.finfo(logits.dtype).min)
        att = torch.einsum("hsS,Shd->shd", logits.softmax(-1), v).reshape(seq, d)
        x = x + self.o(att)
        y = x * torch.rsqrt((x ** 2).mean(1, keepdim=True) + 1e-5) * self.g2
        return x + self.down(F.gelu(self.up(y)))


@ordinary
class EquinoxUnbatchedSequence(nn.Module):
    """The blocks see [seq, d]; the model takes the only sequence out of the batch."""

    def __init__(self, vocab=48, d=32, heads=2, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(70, d)
        self.blocks = nn.ModuleList(UnbatchedBlock(d, heads) for _ in range(layers))
        self.out = nn.Linear(d, vocab)

    def single(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(len(ids)))
        for block in self.blocks:
            x = block(x)
        return self.out(x)

    def forward(self, ids):
        return torch.stack([self.single(row) for row in ids])


@ordinary
class KerasMiniatureGpt(nn.Module):
    """A port of the Keras example: post-norm, a mask from i >= j - n_src + n_dest, and a single block."""

    def __init__(self, vocab_size=77, maxlen=80, embed_dim=32, num_heads=2, feed_forward_dim=32):
        super().__init__()
        self.token_emb, self.pos_emb = nn.Embedding(vocab_size, embed_dim), nn.Embedding(maxlen, embed_dim)
        self.att = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(embed_dim, feed_forward_dim), nn.ReLU(),
                                 nn.Linear(feed_forward_dim, embed_dim))
        self.layernorm1 = nn.LayerNorm(embed_dim, eps=1e-6)
        self.layernorm2 = nn.LayerNorm(embed_dim, eps=1e-6)
        self.dropout1, self.dropout2 = nn.Dropout(0.1), nn.Dropout(0.1)
        self.outputs = nn.Linear(embed_dim, vocab_size)

    @staticmethod
    def causal_attention_mask(n_dest, n_src):
        i = torch.arange(n_dest)[:, None]
        j = torch.arange(n_src)
        return i >= j - n_src + n_dest

    def forward(self, x):
        seq_len = x.shape[-1]
        x = self.token_emb(x) + self.pos_emb(torch.arange(0, seq_len, 1))
        mask = self.causal_attention_mask(seq_len, seq_len)
        attention_output, _ = self.att(x, x, x, attn_mask=torch.logical_not(mask))
        out1 = self.layernorm1(x + self.dropout1(attention_output))
        out2 = self.layernorm2(out1 + self.dropout2(self.ffn(out1)))
        return self.outputs(out2), out2
