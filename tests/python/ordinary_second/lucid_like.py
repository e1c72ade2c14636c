"""Decoders in the compact research style with Residual and PreNorm wrappers and einsum."""
import torch
import torch.nn.functional as F
from torch import einsum, nn

from . import ordinary


def exists(val):
    return val is not None


def default(val, d):
    return val if exists(val) else d


def split_heads(t, h):
    b, n, hd = t.shape
    return t.reshape(b, n, h, hd // h).permute(0, 2, 1, 3)


def merge_heads(t):
    b, h, n, d = t.shape
    return t.permute(0, 2, 1, 3).reshape(b, n, h * d)


class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x, **kwargs):
        return self.fn(x, **kwargs) + x


class PreNorm(nn.Module):
    def __init__(self, dim, fn, norm=nn.LayerNorm):
        super().__init__()
        self.fn, self.norm = fn, norm(dim)

    def forward(self, x, **kwargs):
        return self.fn(self.norm(x), **kwargs)


class ScaleNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.scale, self.eps, self.g = dim ** -0.5, eps, nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x / (torch.norm(x, dim=-1, keepdim=True) * self.scale).clamp(min=self.eps) * self.g


class NormalizeRMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale, self.gamma = dim ** 0.5, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.normalize(x, dim=-1) * self.scale * self.gamma


class GEGLU(nn.Module):
    def forward(self, x):
        x, gates = x.chunk(2, dim=-1)
        return F.gelu(gates) * x


def FeedForward(dim, mult=4, glu=True):
    if glu:
        return nn.Sequential(nn.Linear(dim, dim * mult * 2), GEGLU(), nn.Dropout(0.1),
                             nn.Linear(dim * mult, dim))
    return nn.Sequential(nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim))


class RotaryEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        inv_freq = 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq)

    def forward(self, max_seq_len, *, device):
        seq = torch.arange(max_seq_len, device=device, dtype=self.inv_freq.dtype)
        freqs = einsum("i , j -> i j", seq, self.inv_freq)
        return torch.cat((freqs, freqs), dim=-1)


def apply_rotary(pos, t):
    x1, x2 = t.reshape(*t.shape[:-1], 2, -1).unbind(dim=-2)
    return (t * pos.cos()) + (torch.cat((-x2, x1), dim=-1) * pos.sin())


class Attention(nn.Module):
    """mem_kv: learned keys in front. talking: heads mix before and after softmax. cosine: unit q and k."""

    def __init__(self, dim, heads=4, dim_head=16, mem_kv=0, talking=False, cosine=False, rotary=False):
        super().__init__()
        self.heads, self.scale, self.cosine, inner = heads, dim_head ** -0.5, cosine, heads * dim_head
        self.to_q, self.to_kv = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner * 2, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, dim), nn.Dropout(0.1))
        self.mem_k = nn.Parameter(torch.randn(heads, mem_kv, dim_head)) if mem_kv else None
        self.mem_v = nn.Parameter(torch.randn(heads, mem_kv, dim_head)) if mem_kv else None
        self.pre_talk = nn.Conv2d(heads, heads, 1, bias=False) if talking else None
        self.post_talk = nn.Conv2d(heads, heads, 1, bias=False) if talking else None
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1)) if cosine else None
        self.rotary = RotaryEmbedding(dim_head) if rotary else None

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (split_heads(t, self.heads) for t in (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1)))
        if exists(self.rotary):
            pos = self.rotary(n, device=x.device)
            q, k = map(lambda t: apply_rotary(pos, t).type_as(v), (q, k))
        if exists(self.mem_k):
            k = torch.cat((self.mem_k.expand(b, -1, -1, -1), k), dim=-2)
            v = torch.cat((self.mem_v.expand(b, -1, -1, -1), v), dim=-2)
        if self.cosine:
            q, k = map(lambda t: F.normalize(t, p=2, dim=-1), (q, k))
            sim = einsum("b h i d, b h j d -> b h i j", q, k) * self.temperature.exp() * 4
        else:
            sim = einsum("b h i d, b h j d -> b h i j", q * self.scale, k)
        if exists(self.pre_talk):
            sim = self.pre_talk(sim)
        i, j = sim.shape[-2:]
        causal_mask = torch.ones((i, j), dtype=torch.bool, device=x.device).triu(j - i + 1)
        sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim=-1)
        if exists(self.post_talk):
            attn = self.post_talk(attn)
        return self.to_out(merge_heads(einsum("b h i j, b h j d -> b h i d", attn, v)))


class Transformer(nn.Module):
    def __init__(self, num_tokens=64, dim=32, depth=2, norm=nn.LayerNorm, glu=True, max_seq_len=96,
                 memory_tokens=0, shift=False, absolute=True, **attn):
        super().__init__()
        self.token_emb = nn.Embedding(num_tokens, dim)
        self.pos_emb = nn.Embedding(max_seq_len, dim) if absolute else None
        self.memory = nn.Parameter(torch.randn(memory_tokens, dim)) if memory_tokens else None
        self.layers, self.shift = nn.ModuleList([]), shift
        for _ in range(depth):
            self.layers.append(nn.ModuleList([
                Residual(PreNorm(dim, Attention(dim, **attn), norm)),
                Residual(PreNorm(dim, FeedForward(dim, glu=glu), norm))]))
        self.to_logits = nn.Sequential(norm(dim), nn.Linear(dim, num_tokens))

    def forward(self, x):
        b, n = x.shape
        x = self.token_emb(x)
        if exists(self.pos_emb):
            x = x + self.pos_emb(torch.arange(n, device=x.device)).unsqueeze(0)
        m = 0
        if exists(self.memory):
            m = self.memory.shape[0]
            x = torch.cat((self.memory.unsqueeze(0).expand(b, -1, -1), x), dim=1)
        for attn, ff in self.layers:
            if self.shift:
                now, before = x.chunk(2, dim=-1)
                x = torch.cat((now, F.pad(before, (0, 0, 1, -1))), dim=-1)
            x = ff(attn(x))
        return self.to_logits(x[:, m:])


@ordinary
def LucidGegluLearnedPositions():
    return Transformer()


@ordinary
def LucidRotaryScaleNorm():
    return Transformer(norm=ScaleNorm, absolute=False, rotary=True, heads=2)


@ordinary
def LucidMemoryKeysRmsNorm():
    return Transformer(norm=NormalizeRMSNorm, mem_kv=3, num_tokens=81)


@ordinary
def LucidMemoryTokensHalf():
    return Transformer(memory_tokens=4, glu=False, dim=48).half()


@ordinary
def LucidTalkingHeads():
    return Transformer(talking=True, dim=32, heads=8, dim_head=8)


@ordinary
def LucidCosineAttention():
    return Transformer(cosine=True, rotary=True, absolute=False)


@ordinary
def LucidShiftedTokensBfloat16():
    return Transformer(shift=True, glu=False, num_tokens=50).bfloat16()


class PalmBlock(nn.Module):
    """One projection feeds attention with a single key head and a SwiGLU feed forward."""

    def __init__(self, dim, heads=8, dim_head=8, mult=4):
        super().__init__()
        self.norm, inner, ff = nn.LayerNorm(dim, bias=False), heads * dim_head, dim * mult
        self.fused_dims, self.heads, self.scale = (inner, dim_head, dim_head, ff * 2), heads, dim_head ** -0.5
        self.rotary_emb = RotaryEmbedding(dim_head)
        self.fused_attn_ff_proj = nn.Linear(dim, sum(self.fused_dims), bias=False)
        self.attn_out, self.ff_out = nn.Linear(inner, dim, bias=False), nn.Linear(ff, dim, bias=False)
        self.register_buffer("mask", None, persistent=False)
        self.register_buffer("pos_emb", None, persistent=False)

    def get_mask(self, n, device):
        if self.mask is not None and self.mask.shape[-1] >= n:
            return self.mask[:n, :n]
        mask = torch.ones((n, n), device=device, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        return mask

    def get_rotary(self, n, device):
        if self.pos_emb is not None and self.pos_emb.shape[-2] >= n:
            return self.pos_emb[:n]
        pos_emb = self.rotary_emb(n, device=device)
        self.register_buffer("pos_emb", pos_emb, persistent=False)
        return pos_emb

    def forward(self, x):
        n, device = x.shape[1], x.device
        x = self.norm(x)
        q, k, v, ff = self.fused_attn_ff_proj(x).split(self.fused_dims, dim=-1)
        q = split_heads(q, self.heads)
        positions = self.get_rotary(n, device)
        q, k = map(lambda t: apply_rotary(positions, t), (q, k))
        sim = einsum("b h i d, b j d -> b h i j", q * self.scale, k)
        sim = sim.masked_fill(self.get_mask(n, device), -torch.finfo(sim.dtype).max)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        out = merge_heads(einsum("b h i j, b j d -> b h i d", sim.softmax(dim=-1), v))
        x, gate = ff.chunk(2, dim=-1)
        return self.attn_out(out) + self.ff_out(F.silu(gate) * x)


@ordinary
def LucidPalmParallelMultiQuery(num_tokens=64, dim=32, depth=2):
    net = nn.Sequential(nn.Embedding(num_tokens, dim), *[Residual(PalmBlock(dim)) for _ in range(depth)],
                        nn.LayerNorm(dim, bias=False), nn.Linear(dim, num_tokens, bias=False))
    net[-1].weight = net[0].weight
    return net


class GatedAttentionUnit(nn.Module):
    """Squared ReLU scores stand in for softmax; the mask zeroes later keys."""

    def __init__(self, dim, query_key_dim=16, expansion=2):
        super().__init__()
        hidden = int(expansion * dim)
        self.norm, self.to_hidden = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, hidden * 2), nn.SiLU())
        self.to_qk = nn.Sequential(nn.Linear(dim, query_key_dim), nn.SiLU())
        self.gamma = nn.Parameter(torch.ones(2, query_key_dim))
        self.beta = nn.Parameter(torch.zeros(2, query_key_dim))
        self.to_out = nn.Linear(hidden, dim)

    def forward(self, x):
        n = x.shape[-2]
        y = self.norm(x)
        v, gate = self.to_hidden(y).chunk(2, dim=-1)
        q, k = (einsum("... d, h d -> ... h d", self.to_qk(y), self.gamma) + self.beta).unbind(dim=-2)
        attn = F.relu(einsum("b i d, b j d -> b i j", q, k) / k.shape[-1] ** 0.5) ** 2
        causal_mask = torch.ones((n, n), dtype=torch.bool, device=x.device).triu(1)
        attn = attn.masked_fill(causal_mask, 0.0)
        attn = attn / torch.arange(1, n + 1, device=x.device).view(1, n, 1)
        return x + self.to_out(einsum("b i j, b j d -> b i d", attn, v) * gate)


@ordinary
class LucidGatedAttentionUnits(nn.Module):
    def __init__(self, num_tokens=61, dim=40, depth=3):
        super().__init__()
        self.token_emb, self.abs_pos_emb = nn.Embedding(num_tokens, dim), nn.Embedding(128, dim)
        self.layers = nn.ModuleList([GatedAttentionUnit(dim) for _ in range(depth)])
        self.to_logits = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, num_tokens))

    def forward(self, x):
        x = self.token_emb(x) + self.abs_pos_emb(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.to_logits(x)
