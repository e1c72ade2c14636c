"""Descendants of GPT-2 and of nanoGPT and minGPT."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

from . import ordinary


@dataclass
class GPTConfig:
    block_size: int = 64
    vocab_size: int = 65
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32
    dropout: float = 0.1
    bias: bool = True


class LayerNorm(nn.Module):
    """LayerNorm but with an optional bias."""

    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, config, flash):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout
        self.flash = flash
        if not self.flash:
            bias = torch.tril(torch.ones(config.block_size, config.block_size))
            self.register_buffer("bias", bias.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.flash:
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0, is_causal=True
            )
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            att = self.attn_dropout(att)
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, config, flash):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config, flash)
        self.ln_2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config, flash):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(config.vocab_size, config.n_embd),
                wpe=nn.Embedding(config.block_size, config.n_embd),
                drop=nn.Dropout(config.dropout),
                h=nn.ModuleList([Block(config, flash) for _ in range(config.n_layer)]),
                ln_f=LayerNorm(config.n_embd, bias=config.bias),
            )
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= self.config.block_size, f"Cannot forward sequence of length {t}"
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
def nano_gpt_flash():
    return GPT(GPTConfig(bias=False), flash=True)


@ordinary
def nano_gpt_by_hand():
    return GPT(GPTConfig(), flash=False)


@ordinary
def nano_gpt_where_sizes_coincide():
    return GPT(GPTConfig(block_size=36, vocab_size=36, n_head=6, n_embd=36), flash=False)


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class KeyQueryValue(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, n_embd)
        self.query = nn.Linear(n_embd, n_embd)
        self.value = nn.Linear(n_embd, n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size))[None, None])
        self.n_head = n_head

    def forward(self, x, layer_past=None):
        B, T, C = x.size()
        k = self.key(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = self.query(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = self.value(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, -1e10)
        y = F.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class MinBlock(nn.Module):
    def __init__(self, n_embd, n_head, block_size, act):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = KeyQueryValue(n_embd, n_head, block_size)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), act, nn.Linear(4 * n_embd, n_embd), nn.Dropout(0.1)
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        x = x + self.mlp(self.ln2(x))
        return x


class MinGPT(nn.Module):
    def __init__(self, vocab_size=100, n_embd=48, n_head=3, block_size=60, act=None):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, n_embd)
        self.pos_emb = nn.Parameter(torch.zeros(1, block_size, n_embd))
        self.drop = nn.Dropout(0.1)
        act = act or nn.GELU()
        self.blocks = nn.Sequential(*[MinBlock(n_embd, n_head, block_size, act) for _ in range(2)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.block_size = block_size

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= self.block_size, "Cannot forward, model block size is exhausted."
        x = self.drop(self.tok_emb(idx) + self.pos_emb[:, :t, :])
        return self.head(self.ln_f(self.blocks(x)))


@ordinary
def min_gpt():
    return MinGPT()


@ordinary
def min_gpt_new_gelu():
    return MinGPT(n_embd=64, n_head=8, block_size=64, vocab_size=64, act=NewGELU())


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        size_out = x.size()[:-1] + (self.nf,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(*size_out)


class OpenAIAttention(nn.Module):
    """As the first ports from TensorFlow had it: keys are kept transposed, and masked by arithmetic."""

    def __init__(self, nx, n_ctx, n_head):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(n_ctx, n_ctx)).view(1, 1, n_ctx, n_ctx))
        self.n_head, self.split_size = n_head, nx
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
        w = torch.matmul(query, key)
        w = w / math.sqrt(value.size(-1))
        nd, ns = w.size(-2), w.size(-1)
        b = self.bias[:, :, ns - nd : ns, :ns]
        w = w * b - 1e10 * (1 - b)
        a = torch.matmul(nn.Softmax(dim=-1)(w), value)
        return self.c_proj(self.merge_heads(a))


class OpenAIBlock(nn.Module):
    def __init__(self, nx, n_ctx, n_head, post):
        super().__init__()
        self.attn = OpenAIAttention(nx, n_ctx, n_head)
        self.ln_1, self.ln_2 = nn.LayerNorm(nx, eps=1e-5), nn.LayerNorm(nx, eps=1e-5)
        self.c_fc, self.c_proj = Conv1D(4 * nx, nx), Conv1D(nx, 4 * nx)
        self.post = post

    def mlp(self, x):
        h = self.c_fc(x)
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * torch.pow(h, 3))))
        return self.c_proj(h)

    def forward(self, x):
        if self.post:
            n = self.ln_1(x + self.attn(x))
            return self.ln_2(n + self.mlp(n))
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class OpenAIGPT(nn.Module):
    def __init__(self, post, vocab=80, nx=40, n_ctx=56, n_head=5):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, nx), nn.Embedding(n_ctx, nx)
        self.h = nn.ModuleList([OpenAIBlock(nx, n_ctx, n_head, post) for _ in range(2)])
        self.ln_f = nn.Identity() if post else nn.LayerNorm(nx)
        self.decoder = nn.Linear(nx, vocab, bias=False)
        self.decoder.weight = self.wte.weight

    def forward(self, input_ids, position_ids=None, token_type_ids=None):
        if position_ids is None:
            position_ids = torch.arange(input_ids.size(-1), dtype=torch.long, device=input_ids.device)
            position_ids = position_ids.unsqueeze(0).expand_as(input_ids)
        hidden = self.wte(input_ids.view(-1, input_ids.size(-1)))
        hidden = hidden + self.wpe(position_ids.view(-1, position_ids.size(-1)))
        for block in self.h:
            hidden = block(hidden)
        return self.decoder(self.ln_f(hidden))


@ordinary
def gpt1_port():
    return OpenAIGPT(post=True)


@ordinary
def gpt2_port():
    return OpenAIGPT(post=False)


@ordinary
class Gpt2WithWhere(nn.Module):
    """The names and the mask of transformers' older GPT-2."""

    def __init__(self, vocab=71, dim=32, heads=2, positions=50):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(positions, dim)
        mask = torch.tril(torch.ones((positions, positions), dtype=torch.bool))
        self.register_buffer("causal", mask.view(1, 1, positions, positions), persistent=False)
        self.layers = nn.ModuleList()
        for _ in range(2):
            names = dict(ln_1=nn.LayerNorm(dim), ln_2=nn.LayerNorm(dim), c_attn=Conv1D(3 * dim, dim))
            names.update(c_proj=Conv1D(dim, dim), c_fc=Conv1D(4 * dim, dim), mlp=Conv1D(dim, 4 * dim))
            self.layers.append(nn.ModuleDict(names))
        self.ln_f = nn.LayerNorm(dim)

    def attend(self, query, key, value):
        attn_weights = torch.matmul(query, key.transpose(-1, -2))
        attn_weights = attn_weights / torch.full(
            [], value.size(-1) ** 0.5, dtype=attn_weights.dtype, device=attn_weights.device
        )
        query_length, key_length = query.size(-2), key.size(-2)
        causal_mask = self.causal[:, :, key_length - query_length : key_length, :key_length]
        mask_value = torch.finfo(attn_weights.dtype).min
        mask_value = torch.full([], mask_value, dtype=attn_weights.dtype, device=attn_weights.device)
        attn_weights = torch.where(causal_mask, attn_weights.to(attn_weights.dtype), mask_value)
        attn_weights = F.softmax(attn_weights, dim=-1).type(value.dtype)
        return torch.matmul(attn_weights, value)

    def forward(self, input_ids, attention_mask=None, use_cache=False):
        shape = input_ids.shape
        position_ids = torch.arange(0, shape[-1], dtype=torch.long, device=input_ids.device).unsqueeze(0)
        x = self.wte(input_ids) + self.wpe(position_ids)
        for layer in self.layers:
            qkv = layer["c_attn"](layer["ln_1"](x)).split(x.shape[-1], dim=2)
            split = [t.view(*shape, self.heads, self.head_dim).permute(0, 2, 1, 3) for t in qkv]
            out = self.attend(*split).permute(0, 2, 1, 3).contiguous()
            x = x + layer["c_proj"](out.view(*shape, -1))
            x = x + layer["mlp"](F.gelu(layer["c_fc"](layer["ln_2"](x)), approximate="tanh"))
        return F.linear(self.ln_f(x), self.wte.weight)


def norm(x):
    return F.rms_norm(x, (x.size(-1),))


class Rotary(nn.Module):
    def __init__(self, dim, max_seq_len, base=1024):
        super().__init__()
        angular_freq = (1 / base) ** torch.linspace(0, 1, steps=dim // 4, dtype=torch.float32)
        angular_freq = torch.cat([angular_freq, angular_freq.new_zeros(dim // 4)])
        theta = torch.einsum("i,j -> ij", torch.arange(max_seq_len, dtype=torch.float32), angular_freq)
        self.cos = nn.Buffer(theta.cos(), persistent=False)
        self.sin = nn.Buffer(theta.sin(), persistent=False)

    def forward(self, x):
        cos, sin = self.cos[None, : x.size(-3), None, :], self.sin[None, : x.size(-3), None, :]
        x1, x2 = x.to(dtype=torch.float32).chunk(2, dim=-1)
        return torch.cat((x1 * cos + x2 * sin, x1 * (-sin) + x2 * cos), 3).type_as(x)


@ordinary
class SpeedrunGPT(nn.Module):
    """As in speed runs of GPT-2: value embeddings, U-net skips, norms of q and k, a cap of the logits."""

    def __init__(self, vocab=96, dim=32, heads=2, layers=4):
        super().__init__()
        self.heads, self.n = heads, layers
        self.embed, self.value_embed = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.qkv_w = nn.Parameter(torch.randn(layers, 3, dim, dim) * 0.1)
        self.proj = nn.ModuleList([nn.Linear(dim, dim, bias=False) for _ in range(layers)])
        self.fc = nn.ModuleList([nn.Linear(dim, 4 * dim, bias=False) for _ in range(layers)])
        self.out = nn.ModuleList([nn.Linear(4 * dim, dim, bias=False) for _ in range(layers)])
        self.lambdas = nn.Parameter(torch.tensor([0.5, 0.5]).repeat(layers, 1))
        self.block_lambdas = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(layers, 1))
        self.skip_weights = nn.Parameter(torch.ones(layers // 2))
        self.rotary = Rotary(dim // heads, 128)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def attention(self, x, ve, i):
        B, T, dim = x.size(0), x.size(1), x.size(2)
        qkv = F.linear(x, self.qkv_w[i].flatten(end_dim=1)).view(B, T, 3 * self.heads, -1)
        q, k, v = qkv.chunk(3, dim=-2)
        q, k = self.rotary(norm(q)), self.rotary(norm(k))
        v = self.lambdas[i, 0] * v + self.lambdas[i, 1] * ve.view_as(v)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale=0.12, is_causal=True
        )
        return self.proj[i](y.transpose(1, 2).contiguous().view(B, T, dim))

    def forward(self, input_seq):
        x = x0 = norm(self.embed(input_seq))
        ve = self.value_embed(input_seq)
        skips = []
        for i in range(self.n):
            if i >= self.n // 2:
                x = x + self.skip_weights[i - self.n // 2] * skips.pop()
            x = self.block_lambdas[i, 0] * x + self.block_lambdas[i, 1] * x0
            x = x + self.attention(norm(x), ve, i)
            x = x + self.out[i](F.relu(self.fc[i](norm(x))).square())
            if i < self.n // 2:
                skips.append(x)
        logits = self.lm_head(norm(x)).float()
        return 15 * logits * torch.rsqrt(logits.square() + 225)


@ordinary
class NanoChatGPT(nn.Module):
    """Untied, no learned norms, queries and keys normalised after RoPE, grouped keys, a softcap."""

    def __init__(self, vocab=104, dim=48, n_head=6, n_kv_head=2, n_layer=2, longest=320):
        super().__init__()
        self.n_head, self.n_kv_head, self.head_dim = n_head, n_kv_head, dim // n_head
        self.wte = nn.Embedding(vocab, dim)
        kv = n_kv_head * self.head_dim
        self.h = nn.ModuleList(
            nn.ModuleDict({
                "c_q": nn.Linear(dim, dim, bias=False), "c_k": nn.Linear(dim, kv, bias=False),
                "c_v": nn.Linear(dim, kv, bias=False), "c_proj": nn.Linear(dim, dim, bias=False),
                "c_fc": nn.Linear(dim, 4 * dim, bias=False), "c_out": nn.Linear(4 * dim, dim, bias=False),
            })
            for _ in range(n_layer)
        )  # fmt: skip
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        channel_range = torch.arange(0, self.head_dim, 2, dtype=torch.float32)
        inv_freq = 1.0 / (10000 ** (channel_range / self.head_dim))
        freqs = torch.outer(torch.arange(longest, dtype=torch.float32), inv_freq)
        self.register_buffer("cos", freqs.cos()[None, :, None, :], persistent=False)
        self.register_buffer("sin", freqs.sin()[None, :, None, :], persistent=False)

    def rotate(self, x, cos, sin):
        assert x.ndim == 4
        d = x.shape[3] // 2
        x1, x2 = x[..., :d], x[..., d:]
        return torch.cat([x1 * cos + x2 * sin, x1 * (-sin) + x2 * cos], 3).to(x.dtype)

    def forward(self, idx, targets=None, kv_cache=None, loss_reduction="mean"):
        B, T = idx.size()
        assert T <= self.cos.size(1)
        T0 = 0 if kv_cache is None else kv_cache.get_pos()
        cos, sin = self.cos[:, T0 : T0 + T], self.sin[:, T0 : T0 + T]
        x = norm(self.wte(idx))
        for block in self.h:
            y = norm(x)
            q = block["c_q"](y).view(B, T, self.n_head, self.head_dim)
            k = block["c_k"](y).view(B, T, self.n_kv_head, self.head_dim)
            v = block["c_v"](y).view(B, T, self.n_kv_head, self.head_dim)
            q, k = norm(self.rotate(q, cos, sin)), norm(self.rotate(k, cos, sin))
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + block["c_proj"](y.transpose(1, 2).contiguous().view(B, T, -1))
            x = x + block["c_out"](F.relu(block["c_fc"](norm(x))).square())
        logits = self.lm_head(norm(x))
        return 15 * torch.tanh(logits / 15)
