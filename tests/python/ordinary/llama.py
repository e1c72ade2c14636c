"""Ports of Llama and its relatives: complex and real RoPE, grouped keys, gated MLPs."""

import math
from dataclasses import dataclass
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn

from . import ordinary


@dataclass
class ModelArgs:
    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: Optional[int] = None
    vocab_size: int = 75
    multiple_of: int = 16
    norm_eps: float = 1e-5
    max_seq_len: int = 128
    rope_theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float()).type_as(x)
        return output * self.weight


def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    t = torch.arange(end, device=freqs.device)
    freqs = torch.outer(t, freqs).float()
    return torch.polar(torch.ones_like(freqs), freqs)


def reshape_for_broadcast(freqs_cis: torch.Tensor, x: torch.Tensor):
    ndim = x.ndim
    assert 0 <= 1 < ndim
    assert freqs_cis.shape == (x.shape[1], x.shape[-1])
    shape = [d if i == 1 or i == ndim - 1 else 1 for i, d in enumerate(x.shape)]
    return freqs_cis.view(*shape)


def apply_rotary_emb_complex(xq, xk, freqs_cis) -> Tuple[torch.Tensor, torch.Tensor]:
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = reshape_for_broadcast(freqs_cis, xq_)
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def precompute_freqs_real(dim: int, end: int, theta: float = 10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end), freqs).float()
    return torch.cos(freqs), torch.sin(freqs)


def apply_rotary_emb_real(xq, xk, freqs_cos, freqs_sin) -> Tuple[torch.Tensor, torch.Tensor]:
    xq_r, xq_i = xq.float().reshape(xq.shape[:-1] + (-1, 2)).unbind(-1)
    xk_r, xk_i = xk.float().reshape(xk.shape[:-1] + (-1, 2)).unbind(-1)
    freqs_cos = reshape_for_broadcast(freqs_cos, xq_r)
    freqs_sin = reshape_for_broadcast(freqs_sin, xq_r)
    xq_out_r = xq_r * freqs_cos - xq_i * freqs_sin
    xq_out_i = xq_r * freqs_sin + xq_i * freqs_cos
    xk_out_r = xk_r * freqs_cos - xk_i * freqs_sin
    xk_out_i = xk_r * freqs_sin + xk_i * freqs_cos
    xq_out = torch.stack([xq_out_r, xq_out_i], dim=-1).flatten(3)
    xk_out = torch.stack([xk_out_r, xk_out_i], dim=-1).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def repeat_kv(x: torch.Tensor, n_rep: int) -> torch.Tensor:
    bs, slen, n_kv_heads, head_dim = x.shape
    if n_rep == 1:
        return x
    return (
        x[:, :, :, None, :]
        .expand(bs, slen, n_kv_heads, n_rep, head_dim)
        .reshape(bs, slen, n_kv_heads * n_rep, head_dim)
    )


class Attention(nn.Module):
    def __init__(self, args: ModelArgs, rope, flash):
        super().__init__()
        self.n_heads, self.rope, self.flash = args.n_heads, rope, flash
        self.n_kv_heads = args.n_heads if args.n_kv_heads is None else args.n_kv_heads
        self.n_rep = self.n_heads // self.n_kv_heads
        self.head_dim = args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)

    def forward(self, x, freqs, mask):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = xk.view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = xv.view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xq, xk = self.rope(xq, xk, *freqs)
        keys, values = repeat_kv(xk, self.n_rep), repeat_kv(xv, self.n_rep)
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        if self.flash:
            output = F.scaled_dot_product_attention(xq, keys, values, dropout_p=0.0, is_causal=True)
        else:
            scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.head_dim)
            if mask is not None:
                scores = scores + mask
            scores = F.softmax(scores.float(), dim=-1).type_as(xq)
            output = torch.matmul(scores, values)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, multiple_of: int):
        super().__init__()
        hidden_dim = int(2 * hidden_dim / 3)
        hidden_dim = multiple_of * ((hidden_dim + multiple_of - 1) // multiple_of)
        self.w1 = nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden_dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, layer_id: int, args: ModelArgs, rope, flash):
        super().__init__()
        self.attention = Attention(args, rope, flash)
        self.feed_forward = FeedForward(args.dim, 4 * args.dim, args.multiple_of)
        self.layer_id = layer_id
        self.attention_norm = RMSNorm(args.dim, eps=args.norm_eps)
        self.ffn_norm = RMSNorm(args.dim, eps=args.norm_eps)

    def forward(self, x, freqs, mask):
        h = x + self.attention(self.attention_norm(x), freqs, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, params: ModelArgs, is_complex=True, flash=False, buffers=True):
        super().__init__()
        self.params, self.is_complex, self.flash = params, is_complex, flash
        self.tok_embeddings = nn.Embedding(params.vocab_size, params.dim)
        rope = apply_rotary_emb_complex if is_complex else apply_rotary_emb_real
        self.layers = nn.ModuleList(TransformerBlock(i, params, rope, flash) for i in range(params.n_layers))
        self.norm = RMSNorm(params.dim, eps=params.norm_eps)
        self.output = nn.Linear(params.dim, params.vocab_size, bias=False)
        size = params.dim // params.n_heads
        if is_complex:
            self.freqs_cis = precompute_freqs_cis(size, params.max_seq_len * 2, params.rope_theta)
        else:
            cos, sin = precompute_freqs_real(size, params.max_seq_len, params.rope_theta)
            self.register_buffer("freqs_cos", cos, persistent=False)
            self.register_buffer("freqs_sin", sin, persistent=False)

    def forward(self, tokens: torch.Tensor, start_pos: int = 0):
        _bsz, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        if self.is_complex:
            self.freqs_cis = self.freqs_cis.to(h.device)
            freqs = (self.freqs_cis[start_pos : start_pos + seqlen],)
        else:
            freqs = self.freqs_cos[:seqlen], self.freqs_sin[:seqlen]
        mask = None
        if seqlen > 1 and not self.flash:
            mask = torch.full((1, 1, seqlen, seqlen), float("-inf"), device=tokens.device)
            mask = torch.triu(mask, diagonal=start_pos + 1).type_as(h)
        for layer in self.layers:
            h = layer(h, freqs, mask)
        return self.output(self.norm(h)).float()


@ordinary
def llama1_complex():
    return Transformer(ModelArgs())


@ordinary
def llama2_grouped_complex():
    return Transformer(ModelArgs(dim=48, n_heads=6, n_kv_heads=2, norm_eps=1e-6))


@ordinary
def llama2_c_flash():
    return Transformer(ModelArgs(n_kv_heads=2), is_complex=False, flash=True)


@ordinary
def llama2_c_by_hand():
    args = ModelArgs(dim=64, n_heads=8, n_kv_heads=1, vocab_size=64, max_seq_len=64)
    return Transformer(args, is_complex=False)


class HfRotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @torch.no_grad()
    def forward(self, x, position_ids):
        inv_freq_expanded = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        position_ids_expanded = position_ids[:, None, :].float()
        freqs = (inv_freq_expanded.float() @ position_ids_expanded.float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype=x.dtype), emb.sin().to(dtype=x.dtype)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)


class HfNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


class HfAttention(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head_dim, bias, qk_norm):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.groups = heads // kv_heads
        self.q_proj = nn.Linear(hidden, heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=False)
        self.q_norm = HfNorm(head_dim) if qk_norm else nn.Identity()
        self.k_norm = HfNorm(head_dim) if qk_norm else nn.Identity()

    def repeat(self, x):
        batch, heads, slen, head_dim = x.shape
        x = x[:, :, None, :, :].expand(batch, heads, self.groups, slen, head_dim)
        return x.reshape(batch, heads * self.groups, slen, head_dim)

    def forward(self, x, position_embeddings, attention_mask):
        hidden_shape = (*x.shape[:-1], -1, self.head_dim)
        q = self.q_norm(self.q_proj(x).view(hidden_shape)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(hidden_shape)).transpose(1, 2)
        v = self.v_proj(x).view(hidden_shape).transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        k, v = self.repeat(k), self.repeat(v)
        weights = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim)
        weights = weights + attention_mask[:, :, :, : k.shape[-2]]
        weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.o_proj(out.reshape(*x.shape[:-1], -1).contiguous())


class HfMLP(nn.Module):
    def __init__(self, hidden, inner, act=F.silu):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.act_fn = act

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class HfLayer(nn.Module):
    def __init__(self, hidden, *attention):
        super().__init__()
        self.self_attn = HfAttention(hidden, *attention)
        self.mlp = HfMLP(hidden, 3 * hidden)
        self.input_layernorm, self.post_attention_layernorm = HfNorm(hidden), HfNorm(hidden)

    def forward(self, x, *rest):
        residual = x
        x = residual + self.self_attn(self.input_layernorm(x), *rest)
        residual = x
        return residual + self.mlp(self.post_attention_layernorm(x))


class HfModel(nn.Module):
    def __init__(self, vocab, hidden, heads, kv_heads, head_dim, bias=False, qk_norm=False, tied=False):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(
            [HfLayer(hidden, heads, kv_heads, head_dim, bias, qk_norm) for _ in range(2)]
        )
        self.norm, self.rotary_emb = HfNorm(hidden), HfRotary(head_dim)
        self.lm_head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.lm_head.weight = self.embed_tokens.weight

    def causal_mask(self, x, cache_position):
        """The mask of the older releases: minimum above the diagonal, times a comparison."""
        length, min_dtype = x.shape[1], torch.finfo(x.dtype).min
        mask = torch.full((length, length), fill_value=min_dtype, dtype=x.dtype, device=x.device)
        mask = torch.triu(mask, diagonal=1)
        mask = mask * (torch.arange(length) > cache_position.reshape(-1, 1))
        return mask[None, None, :, :].expand(x.shape[0], 1, -1, -1)

    def forward(self, input_ids, attention_mask=None, position_ids=None, labels=None):
        x = self.embed_tokens(input_ids)
        cache_position = torch.arange(0, x.shape[1], device=x.device)
        if position_ids is None:
            position_ids = cache_position.unsqueeze(0)
        mask = self.causal_mask(x, cache_position)
        position_embeddings = self.rotary_emb(x, position_ids)
        for layer in self.layers:
            x = layer(x, position_embeddings, mask)
        return self.lm_head(self.norm(x))


@ordinary
def llama_with_rotate_half():
    return HfModel(85, 32, 4, 2, 8)


@ordinary
def qwen2_like():
    return HfModel(90, 48, 6, 2, 8, bias=True, tied=True)


@ordinary
def qwen3_like():
    return HfModel(64, 32, 4, 2, 16, qk_norm=True)


@ordinary
def llama_heads_are_head_size():
    return HfModel(64, 64, 8, 8, 8)


def build_rope_cache(seq_len, n_elem, base=10000, condense_ratio=1):
    theta = 1.0 / (base ** (torch.arange(0, n_elem, 2).float() / n_elem))
    seq_idx = torch.arange(seq_len) / condense_ratio
    idx_theta = torch.outer(seq_idx, theta).repeat(1, 2)
    return torch.cos(idx_theta), torch.sin(idx_theta)


def apply_rope(x, cos, sin):
    head_size = x.size(-1)
    x1 = x[..., : head_size // 2]
    x2 = x[..., head_size // 2 :]
    rotated = torch.cat((-x2, x1), dim=-1)
    roped = (x * cos) + (rotated * sin)
    return roped.to(dtype=x.dtype)


class LitAttention(nn.Module):
    def __init__(self, n_embd, n_head, groups, head_size, rope_n_elem, bias):
        super().__init__()
        self.n_head, self.groups, self.hs, self.rope_n_elem = n_head, groups, head_size, rope_n_elem
        self.attn = nn.Linear(n_embd, (n_head + 2 * groups) * head_size, bias=bias)
        self.proj = nn.Linear(n_head * head_size, n_embd, bias=bias)

    def forward(self, x, cos, sin, mask=None):
        B, T, C = x.size()
        qkv = self.attn(x)
        q_per_kv = self.n_head // self.groups
        total_qkv = q_per_kv + 2
        qkv = qkv.view(B, T, self.groups, total_qkv, self.hs)
        qkv = qkv.permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((q_per_kv, 1, 1), dim=2)
        if self.groups != self.n_head and self.groups != 1:
            k = k.expand(B, self.groups, q_per_kv, T, self.hs)
            v = v.expand(B, self.groups, q_per_kv, T, self.hs)
        q = q.reshape(B, -1, T, self.hs)
        k = k.reshape(B, -1, T, self.hs)
        v = v.reshape(B, -1, T, self.hs)
        q_roped = apply_rope(q[..., : self.rope_n_elem], cos, sin)
        k_roped = apply_rope(k[..., : self.rope_n_elem], cos, sin)
        q = torch.cat((q_roped, q[..., self.rope_n_elem :]), dim=-1)
        k = torch.cat((k_roped, k[..., self.rope_n_elem :]), dim=-1)
        scale = 1.0 / math.sqrt(self.hs)
        y = F.scaled_dot_product_attention(
            q,
            k.expand_as(q),
            v.expand_as(q),
            attn_mask=mask,
            dropout_p=0.0,
            scale=scale,
            is_causal=mask is None,
        )
        y = y.transpose(1, 2)
        return self.proj(y.reshape(B, T, self.hs * self.n_head))


class LitGPT(nn.Module):
    def __init__(self, vocab, n_embd, n_head, groups, head_size, percent, parallel, norm, mlp, bias=False):
        super().__init__()
        rope_n_elem = int(percent * head_size)
        make_norm = {"rms": lambda: nn.RMSNorm(n_embd, eps=1e-5), "layer": lambda: nn.LayerNorm(n_embd)}[norm]
        self.wte, self.ln_f = nn.Embedding(vocab, n_embd), make_norm()
        self.h = nn.ModuleList()
        for _ in range(2):
            block = nn.ModuleDict(dict(norm_1=make_norm(), norm_2=make_norm()))
            block["attn"] = LitAttention(n_embd, n_head, groups, head_size, rope_n_elem, bias)
            block["fc"] = nn.Linear(n_embd, 2 * n_embd, bias=bias)
            if mlp == "llama":
                block["fc_2"] = nn.Linear(n_embd, 2 * n_embd, bias=bias)
            block["proj"] = nn.Linear(2 * n_embd, n_embd, bias=bias)
            self.h.append(block)
        self.parallel, self.mlp, self.max_seq_length = parallel, mlp, 80
        cos, sin = build_rope_cache(80, rope_n_elem)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.lm_head = nn.Linear(n_embd, vocab, bias=bias)

    def feed(self, block, x):
        if self.mlp == "llama":
            return block["proj"](F.silu(block["fc"](x)) * block["fc_2"](x))
        return block["proj"](F.gelu(block["fc"](x)))

    def forward(self, idx: torch.Tensor, input_pos: Optional[torch.Tensor] = None) -> torch.Tensor:
        T = idx.size(1)
        if self.max_seq_length < T:
            raise ValueError(f"Cannot forward sequence of length {T}")
        cos, sin = self.cos[:T], self.sin[:T]
        x = self.wte(idx)
        for block in self.h:
            x_normed = block["norm_1"](x)
            h = block["attn"](x_normed, cos, sin)
            if self.parallel:
                x = self.feed(block, block["norm_2"](x)) + x + h
            else:
                x = h + x
                x = self.feed(block, block["norm_2"](x)) + x
        return self.lm_head(self.ln_f(x))


@ordinary
def lit_llama():
    return LitGPT(70, 32, 4, 2, 8, 1.0, False, "rms", "llama")


@ordinary
def lit_pythia():
    return LitGPT(96, 48, 3, 3, 16, 0.25, True, "layer", "neox", bias=True)


@ordinary
def lit_multi_query():
    return LitGPT(72, 32, 4, 1, 8, 0.5, False, "rms", "llama")
