"""Ports of GPT-1 and GPT-2 code, and of decoders of the same age."""
import math
from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary


class Conv1D(nn.Module):
    """This linear layer keeps its weight as [in, out]."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        size_out = x.size()[:-1] + (self.nf,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(*size_out)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class OldLayerNorm(nn.Module):
    def __init__(self, n, eps=1e-12):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n)), eps

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


class OldAttention(nn.Module):
    def __init__(self, nx, n_ctx, n_head, fill):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(n_ctx, n_ctx)).view(1, 1, n_ctx, n_ctx))
        self.n_head, self.split_size, self.fill = n_head, nx, fill
        self.c_attn, self.c_proj = Conv1D(nx * 3, nx), Conv1D(nx, nx)

    def split_heads(self, x, k=False):
        x = x.view(*x.size()[:-1], self.n_head, x.size(-1) // self.n_head)
        return x.permute(0, 2, 3, 1) if k else x.permute(0, 2, 1, 3)

    def merge_heads(self, x):
        x = x.permute(0, 2, 1, 3).contiguous()
        return x.view(*x.size()[:-2], x.size(-2) * x.size(-1))

    def forward(self, x):
        query, key, value = self.c_attn(x).split(self.split_size, dim=2)
        query, key, value = self.split_heads(query), self.split_heads(key, k=True), self.split_heads(value)
        w = torch.matmul(query, key) / math.sqrt(value.size(-1))
        nd, ns = w.size(-2), w.size(-1)
        b = self.bias[:, :, ns - nd:ns, :ns]
        w = w * b - self.fill * (1 - b)
        return self.c_proj(self.merge_heads(torch.matmul(F.softmax(w, dim=-1), value)))


class OldBlock(nn.Module):
    def __init__(self, nx, n_ctx, n_head, fill, post):
        super().__init__()
        self.attn = OldAttention(nx, n_ctx, n_head, fill)
        self.ln_1, self.ln_2 = OldLayerNorm(nx), OldLayerNorm(nx)
        self.c_fc, self.c_proj, self.post = Conv1D(4 * nx, nx), Conv1D(nx, 4 * nx), post

    def mlp(self, x):
        return self.c_proj(gelu_tanh(self.c_fc(x)))

    def forward(self, x):
        if self.post:
            n = self.ln_1(x + self.attn(x))
            return self.ln_2(n + self.mlp(n))
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class OldGpt(nn.Module):
    def __init__(self, vocab, nx, n_ctx, n_head, fill, post):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, nx), nn.Embedding(n_ctx, nx)
        self.h = nn.ModuleList([OldBlock(nx, n_ctx, n_head, fill, post) for _ in range(2)])
        self.ln_f = nn.Identity() if post else OldLayerNorm(nx, eps=1e-5)

    def forward(self, input_ids, past_length=0):
        position_ids = torch.arange(past_length, input_ids.size(-1) + past_length, dtype=torch.long)
        position_ids = position_ids.unsqueeze(0).expand_as(input_ids)
        input_ids = input_ids.view(-1, input_ids.size(-1))
        hidden = self.wte(input_ids) + self.wpe(position_ids.view(-1, position_ids.size(-1)))
        for block in self.h:
            hidden = block(hidden)
        hidden = self.ln_f(hidden)
        return torch.matmul(hidden, self.wte.weight.t())


@ordinary
def Gpt2MultipliedMaskConv1D():
    return OldGpt(vocab=80, nx=48, n_ctx=100, n_head=4, fill=1e10, post=False)


@ordinary
def Gpt1PostNormMultipliedMask():
    return OldGpt(vocab=64, nx=32, n_ctx=80, n_head=4, fill=1e9, post=True)


@ordinary
def Gpt2MultipliedMaskHalf():
    return OldGpt(vocab=80, nx=32, n_ctx=72, n_head=2, fill=1e4, post=False).half()


class WhereAttention(nn.Module):
    def __init__(self, d, heads, n_ctx):
        super().__init__()
        mask = torch.tril(torch.ones((n_ctx, n_ctx), dtype=torch.uint8)).view(1, 1, n_ctx, n_ctx)
        self.register_buffer("bias", mask.bool(), persistent=False)
        self.register_buffer("masked_bias", torch.tensor(-1e4), persistent=False)
        self.qkv, self.out, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads

    def forward(self, hidden):
        q, k, v = [t.unflatten(-1, (self.heads, -1)).permute(0, 2, 1, 3)
                   for t in self.qkv(hidden).chunk(3, -1)]
        weights = torch.matmul(q, k.transpose(-1, -2))
        weights = weights / torch.full([], v.size(-1) ** 0.5, dtype=weights.dtype, device=weights.device)
        query_length, key_length = q.size(-2), k.size(-2)
        causal_mask = self.bias[:, :, key_length - query_length:key_length, :key_length]
        mask_value = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype)
        weights = torch.where(causal_mask, weights.to(weights.dtype), mask_value)
        weights = nn.functional.softmax(weights, dim=-1).type(v.dtype)
        return self.out(torch.matmul(weights, v).permute(0, 2, 1, 3).flatten(2))


CausalOutput = namedtuple("CausalOutput", ["logits", "hidden_states"])


class WhereGpt(nn.Module):
    def __init__(self, vocab=90, d=40, heads=5, n_ctx=128, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(n_ctx, d)
        self.ln_1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.ln_2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.attn = nn.ModuleList(WhereAttention(d, heads, n_ctx) for _ in range(layers))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU("tanh"), nn.Linear(4 * d, d))
                                 for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, input_ids):
        hidden = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[-1])[None])
        all_hidden = (hidden,)
        for ln_1, attn, ln_2, mlp in zip(self.ln_1, self.attn, self.ln_2, self.mlp):
            hidden = attn(ln_1(hidden)) + hidden
            hidden = hidden + mlp(ln_2(hidden))
            all_hidden = all_hidden + (hidden,)
        return CausalOutput(self.lm_head(self.ln_f(hidden)), all_hidden)


@ordinary
def Gpt2WhereFinfoMinNamedTuple():
    return WhereGpt()


@ordinary
def Gpt2WhereFinfoMinBfloat16():
    return WhereGpt(vocab=64, d=64, heads=8, n_ctx=70).bfloat16()


class LocalGlobalAttention(nn.Module):
    """GPT-Neo takes no scale and computes the scores in float32; odd layers see a window."""

    def __init__(self, d, heads, kind, window=16, max_positions=96):
        super().__init__()
        bias = torch.tril(torch.ones((max_positions, max_positions), dtype=bool))
        if kind == "local":
            bias = torch.bitwise_xor(bias, torch.tril(bias, -window))
        self.register_buffer("bias", bias.view(1, 1, max_positions, max_positions), persistent=False)
        self.k_proj = nn.Linear(d, d, bias=False)
        self.v_proj = nn.Linear(d, d, bias=False)
        self.q_proj = nn.Linear(d, d, bias=False)
        self.out_proj = nn.Linear(d, d, bias=True)
        self.heads, self.head_dim = heads, d // heads

    def forward(self, x):
        shape = x.size()[:-1] + (self.heads, self.head_dim)
        q = self.q_proj(x).view(shape).permute(0, 2, 1, 3).to(torch.float32)
        k = self.k_proj(x).view(shape).permute(0, 2, 1, 3).to(torch.float32)
        v = self.v_proj(x).view(shape).permute(0, 2, 1, 3)
        scores = torch.matmul(q, k.transpose(-1, -2))
        ql, kl = q.size(-2), k.size(-2)
        mask_value = torch.tensor(torch.finfo(scores.dtype).min, dtype=scores.dtype)
        scores = torch.where(self.bias[:, :, kl - ql:kl, :kl], scores, mask_value)
        probs = F.softmax(scores, dim=-1).to(v.dtype)
        out = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return self.out_proj(out.view(out.size()[:-2] + (self.heads * self.head_dim,)))


class GptNeo(nn.Module):
    def __init__(self, vocab=72, d=32, heads=4, kinds=("global", "local")):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(96, d)
        self.h = nn.ModuleList()
        for kind in kinds:
            self.h.append(nn.ModuleDict({
                "ln_1": nn.LayerNorm(d), "attn": LocalGlobalAttention(d, heads, kind),
                "ln_2": nn.LayerNorm(d),
                "c_fc": nn.Linear(d, 4 * d), "c_proj": nn.Linear(4 * d, d)}))
        self.ln_f = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device).unsqueeze(0))
        for b in self.h:
            x = x + b["attn"](b["ln_1"](x))
            x = x + b["c_proj"](gelu_tanh(b["c_fc"](b["ln_2"](x))))
        return {"logits": self.lm_head(self.ln_f(x))}["logits"],


@ordinary
def GptNeoGlobalLocal():
    return GptNeo()


@ordinary
def GptNeoGlobalLocalHalf():
    return GptNeo(vocab=50, d=48, heads=3, kinds=("local", "global")).to(torch.float16)


@ordinary
class OptOffsetPositionsRelu(nn.Module):
    """Positions come from a cumulative sum over an attention mask of ones, plus an offset of two."""

    def __init__(self, vocab=96, d=32, heads=4, layers=2, ffn=96, embed=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, embed, padding_idx=1)
        self.project_in, self.project_out = nn.Linear(embed, d, bias=False), nn.Linear(d, embed, bias=False)
        self.embed_positions = nn.Embedding(128 + 2, d)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            layer = nn.Module()
            layer.q_proj, layer.k_proj = nn.Linear(d, d), nn.Linear(d, d)
            layer.v_proj, layer.out_proj = nn.Linear(d, d), nn.Linear(d, d)
            layer.self_attn_layer_norm, layer.final_layer_norm = nn.LayerNorm(d), nn.LayerNorm(d)
            layer.fc1, layer.fc2 = nn.Linear(d, ffn), nn.Linear(ffn, d)
            self.layers.append(layer)
        self.final_layer_norm, self.heads, self.head_dim = nn.LayerNorm(d), heads, d // heads
        self.scaling = self.head_dim ** -0.5

    def make_mask(self, tgt_len, dtype):
        mask = torch.full((tgt_len, tgt_len), torch.tensor(torch.finfo(dtype).min))
        mask_cond = torch.arange(mask.size(-1))
        mask.masked_fill_(mask_cond < (mask_cond + 1).view(mask.size(-1), 1), 0)
        return mask.to(dtype)[None, None, :, :].expand(1, 1, tgt_len, tgt_len)

    def shape(self, t):
        return t.view(1, -1, self.heads, self.head_dim).transpose(1, 2).contiguous()

    def attend(self, layer, h, mask):
        n = h.shape[1]
        q = self.shape(layer.q_proj(h) * self.scaling).view(self.heads, -1, self.head_dim)
        k = self.shape(layer.k_proj(h)).view(self.heads, -1, self.head_dim)
        v = self.shape(layer.v_proj(h)).view(self.heads, -1, self.head_dim)
        w = torch.bmm(q, k.transpose(1, 2)).view(1, self.heads, n, n) + mask
        w = torch.max(w, torch.tensor(torch.finfo(w.dtype).min)).view(self.heads, n, n)
        out = torch.bmm(F.softmax(w, dim=-1), v).view(1, self.heads, n, self.head_dim).transpose(1, 2)
        return layer.out_proj(out.reshape(1, n, -1))

    def forward(self, input_ids):
        attention_mask = torch.ones(input_ids.shape, dtype=torch.long)
        positions = (torch.cumsum(attention_mask, dim=1).type_as(attention_mask) * attention_mask).long() - 1
        embeds = self.embed_tokens(input_ids)
        h = self.project_in(embeds) + self.embed_positions(positions + 2)
        mask = self.make_mask(input_ids.shape[1], h.dtype)
        for layer in self.layers:
            h = h + self.attend(layer, layer.self_attn_layer_norm(h), mask)
            size = h.shape
            flat = h.reshape(-1, h.size(-1))
            flat = flat + layer.fc2(F.relu(layer.fc1(layer.final_layer_norm(flat))))
            h = flat.view(size)
        return F.linear(self.project_out(self.final_layer_norm(h)), self.embed_tokens.weight)


@ordinary
class CtrlSinusoidalAddedMask(nn.Module):
    """The mask is a triu of ones that the scores add times -1e4; angles are sin next to cos."""

    def __init__(self, vocab=60, d=32, heads=2, layers=2):
        super().__init__()
        self.w, self.heads, self.depth, self.d = nn.Embedding(vocab, d), heads, d // heads, d
        self.pos_encoding = self.encode(200, d)
        self.wq = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.wk = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.wv = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.dense = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.ffn = nn.ModuleList(nn.Sequential(nn.Linear(d, 3 * d), nn.ReLU(), nn.Linear(3 * d, d))
                                 for _ in range(layers))
        self.n1 = nn.ModuleList(nn.LayerNorm(d, eps=1e-6) for _ in range(layers))
        self.n2 = nn.ModuleList(nn.LayerNorm(d, eps=1e-6) for _ in range(layers))
        self.last, self.lm_head = nn.LayerNorm(d, eps=1e-6), nn.Linear(d, vocab, bias=True)

    @staticmethod
    def encode(positions, d):
        i = torch.arange(d).float().unsqueeze(0)
        rates = 1 / torch.pow(10000, (2 * (i // 2)) / d)
        rads = torch.arange(positions).float().unsqueeze(1) * rates
        return torch.cat([torch.sin(rads[:, 0::2]), torch.cos(rads[:, 1::2])], dim=-1)

    def split(self, x):
        return x.reshape(x.shape[0], -1, self.heads, self.depth).permute([0, 2, 1, 3])

    def forward(self, ids):
        seq_len = ids.shape[-1]
        mask = torch.triu(torch.ones(seq_len, seq_len), 1)
        position_ids = torch.arange(seq_len).unsqueeze(0).view(-1, seq_len)
        x = self.w(ids) * math.sqrt(self.d) + self.pos_encoding[position_ids, :]
        for i in range(len(self.wq)):
            y = self.n1[i](x)
            q, k, v = self.split(self.wq[i](y)), self.split(self.wk[i](y)), self.split(self.wv[i](y))
            logits = torch.matmul(q, k.permute(0, 1, 3, 2)) / math.sqrt(k.shape[-1])
            logits += mask * -1e4
            out = torch.matmul(torch.softmax(logits, dim=-1), v).permute([0, 2, 1, 3])
            x = x + self.dense[i](out.reshape(1, -1, self.d))
            x = x + self.ffn[i](self.n2[i](x))
        return self.lm_head(self.last(x))


@ordinary
class WhisperTextDecoderOnly(nn.Module):
    """Queries and keys each take the fourth root of the scale; the mask is a -inf triu."""

    def __init__(self, vocab=51, d=48, heads=6, n_ctx=77, layers=2):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, d)
        self.positional_embedding = nn.Parameter(torch.empty(n_ctx, d).normal_())
        self.blocks = nn.ModuleList(nn.ModuleDict(dict(
            query=nn.Linear(d, d), key=nn.Linear(d, d, bias=False), value=nn.Linear(d, d),
            out=nn.Linear(d, d),
            attn_ln=nn.LayerNorm(d), mlp_ln=nn.LayerNorm(d),
            mlp=nn.Sequential(nn.Linear(d, d * 4), nn.GELU(), nn.Linear(d * 4, d)))) for _ in range(layers))
        self.ln, self.heads = nn.LayerNorm(d), heads
        self.register_buffer("mask", torch.empty(n_ctx, n_ctx).fill_(-float("inf")).triu_(1),
                             persistent=False)

    def attend(self, b, x):
        n_batch, n_ctx, n_state = x.shape
        scale = (n_state // self.heads) ** -0.25
        q = b["query"](x).view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3) * scale
        k = b["key"](x).view(*x.shape[:2], self.heads, -1).permute(0, 2, 3, 1) * scale
        v = b["value"](x).view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)
        qk = (q @ k + self.mask[:n_ctx, :n_ctx]).float()
        w = F.softmax(qk, dim=-1).to(q.dtype)
        return b["out"]((w @ v).permute(0, 2, 1, 3).flatten(start_dim=2))

    def forward(self, x):
        x = self.token_embedding(x) + self.positional_embedding[: x.shape[-1]]
        for b in self.blocks:
            x = x + self.attend(b, b["attn_ln"](x))
            x = x + b["mlp"](b["mlp_ln"](x))
        x = self.ln(x)
        return (x @ torch.transpose(self.token_embedding.weight.to(x.dtype), 0, 1)).float()
