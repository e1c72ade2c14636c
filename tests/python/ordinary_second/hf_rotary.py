"""Decoders after newer modelling files: rotate_half, grouped keys, RMSNorm, gated MLPs."""
import math
from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn

from . import ordinary


@dataclass
class CausalLMOutputWithPast:
    logits: torch.Tensor
    loss: Optional[torch.Tensor] = None
    past_key_values: Optional[tuple] = None


@dataclass
class Config:
    vocab_size: int = 64
    hidden_size: int = 48
    intermediate_size: int = 80
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 12
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Optional[dict] = None
    qkv_bias: bool = False
    qk_norm: bool = False
    sliding_window: Optional[int] = None
    attn_implementation: str = "eager"
    no_rope_layers: tuple = ()
    tie: bool = False


class LlamaRMSNorm(nn.Module):
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


def frequencies(config):
    dim, base, scaling = config.head_dim, config.rope_theta, config.rope_scaling or {"type": "default"}
    steps = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
    if scaling["type"] == "ntk":
        base = base * scaling["factor"] ** (dim / (dim - 2))
    inv_freq = 1.0 / (base ** steps)
    if scaling["type"] == "linear":
        inv_freq = inv_freq / scaling["factor"]
    if scaling["type"] == "llama3":
        low, high, old = scaling["low"], scaling["high"], scaling["original"]
        wavelen = 2 * math.pi / inv_freq
        inv_llama = torch.where(wavelen > old / low, inv_freq / scaling["factor"], inv_freq)
        smooth = (old / wavelen - low) / (high - low)
        smoothed = (1 - smooth) * inv_llama / scaling["factor"] + smooth * inv_llama
        medium = ~(wavelen < old / high) * ~(wavelen > old / low)
        inv_freq = torch.where(medium, smoothed, inv_llama)
    return inv_freq


class LlamaRotaryEmbedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.register_buffer("inv_freq", frequencies(config), persistent=False)

    @torch.no_grad()
    def forward(self, x, position_ids):
        inv = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        pos = position_ids[:, None, :].float()
        freqs = (inv.float() @ pos.float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype=x.dtype), emb.sin().to(dtype=x.dtype)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)


def repeat_kv(hidden_states, n_rep):
    batch, num_key_value_heads, slen, head_dim = hidden_states.shape
    if n_rep == 1:
        return hidden_states
    hidden_states = hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)
    return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)


class LlamaAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.head_dim, self.scaling = config, config.head_dim, config.head_dim ** -0.5
        self.groups = config.num_attention_heads // config.num_key_value_heads
        self.use_rope = layer_idx not in config.no_rope_layers
        size, q_size = config.hidden_size, config.num_attention_heads * self.head_dim
        kv_size = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(size, q_size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(size, kv_size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(size, kv_size, bias=config.qkv_bias)
        self.o_proj = nn.Linear(q_size, size, bias=False)
        if config.qk_norm:
            self.q_norm = LlamaRMSNorm(self.head_dim, config.rms_norm_eps)
            self.k_norm = LlamaRMSNorm(self.head_dim, config.rms_norm_eps)

    def forward(self, hidden_states, position_embeddings, attention_mask):
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        q, k = self.q_proj(hidden_states).view(hidden_shape), self.k_proj(hidden_states).view(hidden_shape)
        if self.config.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        v = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        if self.use_rope:
            q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        k, v = repeat_kv(k, self.groups), repeat_kv(v, self.groups)
        if self.config.attn_implementation == "sdpa":
            is_causal = attention_mask is None and q.shape[2] > 1
            out = nn.functional.scaled_dot_product_attention(
                q.contiguous(), k.contiguous(), v.contiguous(), attn_mask=attention_mask, dropout_p=0.0,
                scale=self.scaling, is_causal=is_causal)
        else:
            weights = torch.matmul(q, k.transpose(2, 3)) * self.scaling
            weights = weights + attention_mask[:, :, :, : k.shape[-2]]
            weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
            weights = nn.functional.dropout(weights, p=0.1, training=self.training)
            out = torch.matmul(weights, v)
        return self.o_proj(out.transpose(1, 2).reshape(*input_shape, -1).contiguous())


class LlamaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(config, layer_idx), LlamaMLP(config)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, hidden_states, position_embeddings, attention_mask):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = residual + self.self_attn(hidden_states, position_embeddings, attention_mask)
        residual = hidden_states
        hidden_states = self.mlp(self.post_attention_layernorm(hidden_states))
        return residual + hidden_states


class LlamaForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, i) for i in range(config.num_hidden_layers)])
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie:
            self.lm_head.weight = self.embed_tokens.weight

    def make_mask(self, embeds, cache_position):
        length, dtype = embeds.shape[1], embeds.dtype
        window = self.config.sliding_window
        if self.config.attn_implementation == "sdpa":
            if window is None:
                return None
            q_idx, kv_idx = cache_position[:, None], torch.arange(length)[None, :]
            return ((kv_idx <= q_idx) & (kv_idx > q_idx - window))[None, None]
        min_dtype = torch.finfo(dtype).min
        causal_mask = torch.full((length, length), fill_value=min_dtype, dtype=dtype, device=embeds.device)
        diagonal = torch.arange(length) > cache_position.reshape(-1, 1)
        if window is not None:
            diagonal.bitwise_or_(torch.arange(length) <= (cache_position.reshape(-1, 1) - window))
        causal_mask *= diagonal
        return causal_mask[None, None, :, :].expand(embeds.shape[0], 1, -1, -1)

    def forward(self, input_ids, attention_mask=None, position_ids=None, logits_to_keep=0):
        inputs_embeds = self.embed_tokens(input_ids)
        cache_position = torch.arange(0, inputs_embeds.shape[1], device=inputs_embeds.device)
        if position_ids is None:
            position_ids = cache_position.unsqueeze(0)
        causal_mask = self.make_mask(inputs_embeds, cache_position)
        position_embeddings = self.rotary_emb(inputs_embeds, position_ids)
        hidden_states = inputs_embeds
        for layer in self.layers[: self.config.num_hidden_layers]:
            hidden_states = layer(hidden_states, position_embeddings, causal_mask)
        hidden_states = self.norm(hidden_states)
        indices = slice(-logits_to_keep, None) if logits_to_keep else slice(None)
        logits = self.lm_head(hidden_states[:, indices, :])
        return CausalLMOutputWithPast(logits=logits)


@ordinary
def HfLlamaEagerFinfoMin():
    return LlamaForCausalLM(Config())


@ordinary
def HfLlamaSdpaIsCausal():
    return LlamaForCausalLM(Config(attn_implementation="sdpa", vocab_size=99, num_key_value_heads=4))


@ordinary
def HfLlamaSdpaBfloat16():
    config = Config(attn_implementation="sdpa", hidden_size=64, head_dim=16)
    return LlamaForCausalLM(config).to(torch.bfloat16)


@ordinary
def HfLlamaEagerHalfNtkRope():
    return LlamaForCausalLM(Config(rope_scaling={"type": "ntk", "factor": 4.0})).half()


@ordinary
def HfLlamaLinearScaledRope():
    return LlamaForCausalLM(Config(rope_scaling={"type": "linear", "factor": 2.0}, tie=True))


@ordinary
def HfLlama3ScaledRopeSdpa():
    scaling = {"type": "llama3", "factor": 8.0, "low": 1.0, "high": 4.0, "original": 32}
    return LlamaForCausalLM(Config(rope_scaling=scaling, rope_theta=500000.0, attn_implementation="sdpa"))


@ordinary
def HfMistralEagerWindow():
    return LlamaForCausalLM(Config(sliding_window=16, intermediate_size=120))


@ordinary
def HfMistralSdpaWindowBfloat16():
    return LlamaForCausalLM(Config(sliding_window=8, attn_implementation="sdpa", head_dim=8)).bfloat16()


@ordinary
def HfQwen2BiasTied():
    return LlamaForCausalLM(Config(qkv_bias=True, tie=True, rope_theta=1000000.0, num_key_value_heads=1))


@ordinary
def HfQwen3HeadNormSdpa():
    return LlamaForCausalLM(Config(qk_norm=True, attn_implementation="sdpa", head_dim=16))


@ordinary
def HfQwen3HeadNormEagerBfloat16():
    return LlamaForCausalLM(Config(qk_norm=True, num_attention_heads=8, head_dim=8)).bfloat16()


@ordinary
def HfSmolLmNopeEverySecondLayer():
    return LlamaForCausalLM(Config(no_rope_layers=(1,), tie=True, num_hidden_layers=3))
