"""Decoders from courses, student work, and older toolkits."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary


def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size):
    attn_shape = (1, size, size)
    return torch.triu(torch.ones(attn_shape), diagonal=1).type(torch.uint8) == 0


class AnnotatedNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2, self.eps = nn.Parameter(torch.zeros(features)), eps

    def forward(self, x):
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b_2


class AnnotatedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears, self.attn = clones(nn.Linear(d_model, d_model), 4), None

    def forward(self, query, key, value, mask=None):
        mask, nbatches = mask.unsqueeze(1), query.size(0)
        query, key, value = [lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
                             for lin, x in zip(self.linears, (query, key, value))]
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        self.attn = scores.masked_fill(mask == 0, -1e9).softmax(dim=-1)
        x = torch.matmul(self.attn, value).transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm, self.dropout = AnnotatedNorm(size), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class AnnotatedLayer(nn.Module):
    def __init__(self, d, h, d_ff):
        super().__init__()
        self.self_attn = AnnotatedAttention(h, d)
        self.feed_forward = nn.Sequential(nn.Linear(d, d_ff), nn.ReLU(), nn.Dropout(0.1), nn.Linear(d_ff, d))
        self.sublayer = clones(SublayerConnection(d, 0.1), 2)

    def forward(self, x, mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward)


@ordinary
class AnnotatedDecoderOnly(nn.Module):
    def __init__(self, vocab=41, d_model=32, h=4, d_ff=64, N=2):
        super().__init__()
        self.lut, self.d_model = nn.Embedding(vocab, d_model), d_model
        self.layers = clones(AnnotatedLayer(d_model, h, d_ff), N)
        self.norm, self.generator = AnnotatedNorm(d_model), nn.Linear(d_model, vocab)
        pe, position = torch.zeros(500, d_model), torch.arange(0, 500).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, tgt):
        x = self.lut(tgt) * math.sqrt(self.d_model)
        x = x + self.pe[:, : x.size(1)].requires_grad_(False)
        mask = subsequent_mask(tgt.size(-1)).type_as(tgt.data)
        for layer in self.layers:
            x = layer(x, mask)
        return self.generator(self.norm(x))


def fill_with_neg_inf(t):
    return t.float().fill_(float("-inf")).type_as(t)


@ordinary
class SequenceFirstToolkitDecoder(nn.Module):
    """States are [time, batch, channel]; heads fold into the batch; the model keeps its future mask."""

    def __init__(self, vocab=64, d=48, heads=4, layers=2, padding_idx=1):
        super().__init__()
        self.embed_tokens, self.embed_scale, self.d = nn.Embedding(vocab, d), math.sqrt(d), d
        self.heads, self.padding_idx, self._future_mask = heads, padding_idx, torch.empty(0)
        self.layers = nn.ModuleList(nn.ModuleDict(dict(
            k_proj=nn.Linear(d, d), v_proj=nn.Linear(d, d), q_proj=nn.Linear(d, d), out_proj=nn.Linear(d, d),
            self_attn_layer_norm=nn.LayerNorm(d), final_layer_norm=nn.LayerNorm(d),
            fc1=nn.Linear(d, 64), fc2=nn.Linear(64, d))) for _ in range(layers))
        self.register_buffer("weights", self.get_embedding(300, d, padding_idx), persistent=False)

    @staticmethod
    def get_embedding(num, dim, padding_idx):
        half_dim = dim // 2
        emb = torch.exp(torch.arange(half_dim, dtype=torch.float) * -(math.log(10000) / (half_dim - 1)))
        emb = torch.arange(num, dtype=torch.float).unsqueeze(1) * emb.unsqueeze(0)
        emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=1).view(num, -1)
        emb[padding_idx, :] = 0
        return emb

    def buffered_future_mask(self, tensor):
        dim = tensor.size(0)
        if self._future_mask.size(0) < dim or self._future_mask.dtype != tensor.dtype:
            self._future_mask = torch.triu(fill_with_neg_inf(torch.zeros([dim, dim])), 1)
        self._future_mask = self._future_mask.to(tensor)
        return self._future_mask[:dim, :dim]

    def attention(self, p, query, attn_mask):
        tgt_len, bsz, embed_dim = query.size()
        head_dim = embed_dim // self.heads
        q = p["q_proj"](query) * head_dim ** -0.5
        q, k, v = (t.contiguous().view(tgt_len, bsz * self.heads, head_dim).transpose(0, 1)
                   for t in (q, p["k_proj"](query), p["v_proj"](query)))
        attn_weights = torch.bmm(q, k.transpose(1, 2)) + attn_mask.unsqueeze(0)
        attn = torch.bmm(F.softmax(attn_weights.float(), dim=-1).type_as(attn_weights), v)
        return p["out_proj"](attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim))

    def forward(self, prev_output_tokens):
        bsz, n = prev_output_tokens.shape
        positions = torch.arange(self.padding_idx + 1, self.padding_idx + 1 + n)
        x = self.embed_scale * self.embed_tokens(prev_output_tokens)
        x = x + self.weights.index_select(0, positions).view(1, n, -1)
        x = x.transpose(0, 1)
        for p in self.layers:
            x = p["self_attn_layer_norm"](x + self.attention(p, x, self.buffered_future_mask(x)))
            x = p["final_layer_norm"](x + p["fc2"](F.relu(p["fc1"](x))))
        return F.linear(x.transpose(0, 1), self.embed_tokens.weight), {"attn": None}


@ordinary
class MegatronLikeSequenceFirstHalf(nn.Module):
    """Scores are [b, np, s, s] through baddbmm; a fused softmax in plain form fills -10000."""

    def __init__(self, vocab=64, h=64, heads=4, layers=2):
        super().__init__()
        self.word_embeddings, self.position_embeddings = nn.Embedding(vocab, h), nn.Embedding(128, h)
        self.np, self.hn = heads, h // heads
        self.norm_factor = math.sqrt(self.hn)
        self.layers = nn.ModuleList(nn.ModuleList([
            nn.LayerNorm(h), nn.Linear(h, 3 * h), nn.Linear(h, h), nn.LayerNorm(h), nn.Linear(h, 4 * h),
            nn.Linear(4 * h, h)]) for _ in range(layers))
        self.final_layernorm = nn.LayerNorm(h)
        self.half()

    @staticmethod
    def get_ltor_mask(seq_length):
        attention_mask = torch.tril(torch.ones((1, seq_length, seq_length)))
        attention_mask = attention_mask.view(1, 1, seq_length, seq_length)
        return attention_mask < 0.5

    def core(self, mixed, mask):
        sq, b, _ = mixed.size()
        mixed = mixed.view(sq, b, self.np, 3 * self.hn)
        q, k, v = torch.split(mixed, self.hn, dim=3)
        q, k = q.reshape(sq, b * self.np, -1), k.reshape(sq, b * self.np, -1)
        result = torch.empty(b * self.np, sq, sq, dtype=q.dtype).zero_()
        result = torch.baddbmm(result, q.transpose(0, 1), k.transpose(0, 1).transpose(1, 2), beta=0.0,
                               alpha=1.0 / self.norm_factor)
        scores = result.view(b, self.np, sq, sq).float()
        probs = torch.nn.Softmax(dim=-1)(scores.masked_fill_(mask, -10000.0)).half()
        v = v.reshape(sq, b * self.np, -1).transpose(0, 1)
        context = torch.bmm(probs.view(b * self.np, sq, -1), v).view(b, self.np, sq, -1)
        return context.permute(2, 0, 1, 3).contiguous().view(sq, b, -1)

    def forward(self, ids):
        position_ids = torch.arange(ids.size(1), dtype=torch.long).unsqueeze(0).expand_as(ids)
        x = (self.word_embeddings(ids) + self.position_embeddings(position_ids)).transpose(0, 1).contiguous()
        mask = self.get_ltor_mask(ids.size(1))
        for ln1, qkv, dense, ln2, up, down in self.layers:
            x = x + dense(self.core(qkv(ln1(x)), mask))
            x = x + down(F.gelu(up(ln2(x))))
        x = self.final_layernorm(x)
        return torch.matmul(x, self.word_embeddings.weight.t()).transpose(0, 1).contiguous()


@ordinary
class HeadsInPythonLoop(nn.Module):
    """A student slices the heads in a loop and keeps the mask as uint8."""

    def __init__(self, vocab=64, d=32, heads=4, max_len=100):
        super().__init__()
        self.embedding, self.heads, self.size = nn.Embedding(vocab, d), heads, d // heads
        self.positional = nn.Embedding(max_len, d)
        self.Q, self.K, self.V = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.O, self.fc1, self.fc2 = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.norm1, self.norm2, self.out = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, vocab)
        self.register_buffer("causal", torch.ones(max_len, max_len, dtype=torch.uint8).tril())

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.embedding(tokens) + self.positional(torch.arange(n))
        Q, K, V = self.Q(x), self.K(x), self.V(x)
        outputs = []
        for i in range(self.heads):
            part = slice(i * self.size, (i + 1) * self.size)
            scores = torch.bmm(Q[..., part], K[..., part].permute(0, 2, 1)) / self.size ** 0.5
            scores = scores.masked_fill(self.causal[:n, :n].eq(0).unsqueeze(0), float("-inf"))
            outputs.append(torch.bmm(torch.softmax(scores, dim=2), V[..., part]))
        x = self.norm1(x + self.O(torch.cat(outputs, dim=2)))
        return self.out(self.norm2(x + self.fc2(torch.relu(self.fc1(x)))))


def softmax_by_hand(x):
    e = torch.exp(x - torch.max(x, dim=-1, keepdim=True).values)
    return e / torch.sum(e, dim=-1, keepdim=True)


@ordinary
class PicoFunctionalDictionary(nn.Module):
    """Plain functions on a dictionary of parameters, with np-like splits and stacks."""

    def __init__(self, vocab=64, d=32, heads=4, n_ctx=96, layers=2):
        super().__init__()
        self.vocab, self.heads, self.n_layers = vocab, heads, layers
        shapes = {"wte": (vocab, d), "wpe": (n_ctx, d), "ln_f_g": (d,), "ln_f_b": (d,)}
        for i in range(layers):
            shapes.update({f"h{i}_attn_w": (d, 3 * d), f"h{i}_attn_b": (3 * d,), f"h{i}_proj_w": (d, d),
                           f"h{i}_fc_w": (d, 4 * d), f"h{i}_out_w": (4 * d, d), f"h{i}_g1": (d,),
                           f"h{i}_b1": (d,),
                           f"h{i}_g2": (d,), f"h{i}_b2": (d,)})
        self.p = nn.ParameterDict({n: nn.Parameter(torch.ones(s) if "_g" in n else torch.randn(s) * 0.1)
                                   for n, s in shapes.items()})

    def layer_norm(self, x, g, b, eps=1e-5):
        mean, variance = torch.mean(x, -1, True), torch.var(x, -1, unbiased=False, keepdim=True)
        return self.p[g] * (x - mean) / torch.sqrt(variance + eps) + self.p[b]

    def mha(self, x, i):
        x = x @ self.p[f"h{i}_attn_w"] + self.p[f"h{i}_attn_b"]
        qkv = torch.split(x, x.shape[-1] // 3, dim=-1)
        qkv_heads = [torch.tensor_split(t, self.heads, dim=-1) for t in qkv]
        causal_mask = (1 - torch.tril(torch.ones(x.shape[0], x.shape[0]))) * -1e10
        out_heads = [softmax_by_hand(q @ k.T / math.sqrt(q.shape[-1]) + causal_mask) @ v
                     for q, k, v in zip(*qkv_heads)]
        return torch.hstack(out_heads) @ self.p[f"h{i}_proj_w"]

    def forward(self, inputs):
        ids = inputs.squeeze(0)
        x = self.p["wte"][ids] + self.p["wpe"][range(len(ids))]
        for i in range(self.n_layers):
            x = x + self.mha(self.layer_norm(x, f"h{i}_g1", f"h{i}_b1"), i)
            h = self.layer_norm(x, f"h{i}_g2", f"h{i}_b2") @ self.p[f"h{i}_fc_w"]
            x = x + (0.5 * h * (1 + torch.erf(h / math.sqrt(2.0)))) @ self.p[f"h{i}_out_w"]
        return (self.layer_norm(x, "ln_f_g", "ln_f_b") @ self.p["wte"].T)[None]


@ordinary
class ConvolutionOneLengthMask(nn.Module):
    """Channels come first for conv1d of kernel one; the mask compares positions with lengths."""

    def __init__(self, vocab=52, d=32, heads=4, layers=2):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, d)
        self.position_embeddings, self.heads = nn.Embedding(128, d), heads
        self.qkv = nn.ModuleList(nn.Conv1d(d, 3 * d, 1) for _ in range(layers))
        self.merge = nn.ModuleList(nn.Conv1d(d, d, kernel_size=1) for _ in range(layers))
        self.ffn = nn.ModuleList(nn.Sequential(nn.Conv1d(d, 2 * d, 1), nn.ReLU(), nn.Conv1d(2 * d, d, 1))
                                 for _ in range(layers))
        self.norm1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.norm2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.pred = nn.Linear(d, vocab)

    def forward(self, x):
        bs, slen = x.size()
        alen = torch.arange(slen, dtype=torch.long, device=x.device)
        attn_mask = alen[None, None, :].repeat(bs, slen, 1) <= alen[None, :, None]
        h = self.embeddings(x) + self.position_embeddings(alen.unsqueeze(0))
        for qkv, merge, ffn, norm1, norm2 in zip(self.qkv, self.merge, self.ffn, self.norm1, self.norm2):
            q, k, v = qkv(h.transpose(1, 2)).view(bs, 3, self.heads, -1, slen).unbind(1)
            scores = torch.einsum("bhdn,bhdm->bhnm", q, k) / q.shape[2] ** 0.5
            scores = scores.masked_fill((attn_mask == 0).unsqueeze(1).expand_as(scores), -float("inf"))
            out = torch.einsum("bhnm,bhdm->bhdn", F.softmax(scores, dim=-1), v)
            h = norm1(h + merge(out.reshape(bs, -1, slen)).transpose(1, 2))
            h = norm2(h + ffn(h.transpose(1, 2)).transpose(1, 2))
        return self.pred(h)
