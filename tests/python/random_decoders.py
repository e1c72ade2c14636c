"""Random small decoders in plain PyTorch. `legitimate(seed)` makes one that a step can compute;
`unsound(seed)` makes one with a single rule broken, which a step cannot compute, or can only where
the break happens to have no effect. The same seed makes the same decoder."""

import math
import random
from dataclasses import asdict, dataclass, replace

import torch
import torch.nn as nn
import torch.nn.functional as F

LONGEST = 80

BREAKS = (
    "looks_ahead",
    "sees_all",
    "mask_transposed",
    "mask_of_first_row",
    "mask_of_first_column",
    "soft_mask",
    "window_from_the_end",
    "window_to_the_first",
    "softmax_over_queries",
    "mean_over_tokens",
    "centred_over_tokens",
    "norm_over_tokens",
    "cumulative",
    "shifted",
    "flipped",
    "adds_last_token",
    "scaled_by_length",
    "scaled_by_max",
    "branch_on_length",
    "even_length",
    "positions_from_the_end",
    "positions_scaled_by_length",
    "key_of_next_token",
    "values_flipped",
    "norm_over_heads",
    "tokens_and_features_mixed",
)


@dataclass(frozen=True)
class Spec:
    heads: int
    head_size: int
    kv_heads: int
    inner: int
    vocab: int
    layers: int
    position: str  # learned, sinusoidal, rope, interleaved, complex, none
    norm: str  # layer, rms, hand, hand_f32, plain
    post_norm: bool
    mask: str  # sdpa, bool, float, fill_{buffer,arange,tril}, add_{min,inf}, where, times, written
    window: int
    scale: str  # root, constant, query
    softcap: float
    fused: bool
    groups: str  # repeat, expand, sdpa
    mlp: str  # gelu, tanh, silu, gated, squared
    qk_norm: bool
    tied: bool
    bias: bool
    embed_scale: bool
    final_cap: bool
    broken: str = ""

    def text(self) -> str:
        return " ".join(f"{key}={value}" for key, value in asdict(self).items())


def draw(rng: random.Random) -> Spec:
    heads = rng.choice((1, 2, 3, 4, 4, 8))
    head_size = rng.choice((4, 4, 8, 8, 16, 6))
    sdpa = rng.random() < 0.25
    mask = "sdpa" if sdpa else rng.choice(
        ("bool", "float", "fill_buffer", "fill_arange", "fill_tril", "add_min", "add_inf", "where")
        + ("times", "written")
    )
    return Spec(
        heads=heads,
        head_size=head_size,
        kv_heads=rng.choice([n for n in range(1, heads + 1) if heads % n == 0]),
        inner=rng.choice((heads * head_size, 24, 40)),
        vocab=rng.choice((37, 40, heads * head_size + 8)),
        layers=rng.choice((1, 1, 2)),
        position=rng.choice(("learned", "sinusoidal", "rope", "rope", "interleaved", "complex", "none")),
        norm=rng.choice(("layer", "rms", "hand", "hand_f32", "plain")),
        post_norm=rng.random() < 0.25,
        mask=mask,
        window=0 if mask in ("sdpa", "fill_buffer", "fill_tril") else rng.choice((0, 0, 1, 5, 8)),
        scale=rng.choice(("root", "root", "constant", "query")),
        softcap=0.0 if mask in ("sdpa", "bool", "float") else rng.choice((0.0, 0.0, 4.0)),
        fused=rng.random() < 0.5,
        groups=rng.choice(("repeat", "expand", "sdpa" if mask == "sdpa" else "repeat")),
        mlp=rng.choice(("gelu", "tanh", "silu", "gated", "squared")),
        qk_norm=rng.random() < 0.3,
        tied=rng.random() < 0.3,
        bias=rng.random() < 0.5,
        embed_scale=rng.random() < 0.3,
        final_cap=rng.random() < 0.2,
    )


class Norm(nn.Module):
    def __init__(self, size: int, kind: str):
        super().__init__()
        self.kind, self.weight = kind, nn.Parameter(torch.ones(size))

    def forward(self, x):
        if self.kind == "layer":
            return F.layer_norm(x, (x.shape[-1],), self.weight, None, 1e-5)
        if self.kind == "rms":
            return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)
        if self.kind == "hand":
            return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
        if self.kind == "hand_f32":
            y = x.float()
            y = y * torch.rsqrt((y * y).sum(-1, keepdim=True) / y.shape[-1] + 1e-6)
            return self.weight * y.to(x.dtype)
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) * (variance + 1e-5).rsqrt() * self.weight


class Attention(nn.Module):
    def __init__(self, spec: Spec):
        super().__init__()
        self.spec = spec
        width, keys = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
        if spec.fused:
            self.qkv = nn.Linear(width, width + 2 * keys, bias=spec.bias)
        else:
            self.q = nn.Linear(width, width, bias=spec.bias)
            self.k = nn.Linear(width, keys, bias=spec.bias)
            self.v = nn.Linear(width, keys, bias=spec.bias)
        self.out = nn.Linear(width, width, bias=spec.bias)
        if spec.qk_norm:
            self.q_norm, self.k_norm = Norm(spec.head_size, "rms"), Norm(spec.head_size, "rms")
        if spec.mask == "fill_buffer":
            self.register_buffer("visible", torch.tril(torch.ones(LONGEST, LONGEST)))

    def split(self, x):
        s = self.spec
        keys = s.kv_heads * s.head_size
        if s.fused:
            q, k, v = self.qkv(x).split([s.heads * s.head_size, keys, keys], dim=-1)
        else:
            q, k, v = self.q(x), self.k(x), self.v(x)
        batch, length, _ = x.shape
        q = q.view(batch, length, s.heads, s.head_size)
        k, v = (t.view(batch, length, s.kv_heads, s.head_size) for t in (k, v))
        if s.broken == "norm_over_heads":
            q = q * torch.rsqrt(q.pow(2).mean(1, keepdim=True) + 1e-5)
        if s.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return (t.transpose(1, 2) for t in (q, k, v))

    def rotate(self, x):
        s = self.spec
        half, length = s.head_size // 2, x.shape[2]
        inverse = 100.0 ** (-torch.arange(half, dtype=torch.float32) / half)
        position = torch.arange(length, dtype=torch.float32)
        if s.broken == "positions_from_the_end":
            position = length - 1 - position
            position = position * position  # differences alone would not show it
        if s.broken == "positions_scaled_by_length":
            position = position / length
        angles = torch.outer(position, inverse)
        if s.position == "rope":
            angles = torch.cat((angles, angles), -1)
            turned = torch.cat((-x[..., half:], x[..., :half]), -1)
            return x * angles.cos() + turned * angles.sin()
        if s.position == "complex":
            waves = torch.polar(torch.ones_like(angles), angles)
            turned = torch.view_as_complex(x.reshape(*x.shape[:-1], half, 2)) * waves
            return torch.view_as_real(turned).flatten(-2)
        even, odd, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    def visible_tokens(self, length):
        s = self.spec
        i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
        if s.broken == "looks_ahead":
            seen = j <= i + 1
        elif s.broken == "sees_all":
            seen = j <= i + 10 * LONGEST
        elif s.broken == "mask_transposed":
            seen = j >= i
        elif s.mask == "fill_tril":
            seen = torch.tril(torch.ones(length, length)) == 1
        elif s.mask == "fill_buffer":
            seen = self.visible[:length, :length] == 1
        else:
            seen = i >= j
        if s.window:
            seen = seen & (i - j < s.window)
        if s.broken == "window_from_the_end":
            seen = seen & (length - 1 - j < 9)
            seen = seen | (i == j)
        if s.broken == "window_to_the_first":
            seen = seen & (i - i[:1] < 6) | (i == j)
        if s.broken == "mask_of_first_row":
            seen = seen[:1]
        if s.broken == "mask_of_first_column":
            seen = seen[:, :1]
        return seen

    def forward(self, x):
        s = self.spec
        q, k, v = self.split(x)
        if s.position in ("rope", "interleaved", "complex"):
            q, k = self.rotate(q), self.rotate(k)
        if s.broken == "key_of_next_token":
            k = torch.cat((k[:, :, 1:], k[:, :, :1]), 2)
        if s.broken == "values_flipped":
            v = v.flip(2)
        scale = 0.3 if s.scale == "constant" else s.head_size**-0.5
        if s.scale == "query":
            q, scale = q * scale, 1.0
        groups, length = s.heads // s.kv_heads, x.shape[1]
        grouped = groups > 1 and s.groups == "sdpa"
        if groups > 1 and s.groups == "repeat":
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        elif groups > 1 and s.groups == "expand":
            k, v = (
                t[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2) for t in (k, v)
            )
        if s.mask == "sdpa":
            y = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=grouped
            )
        else:
            if grouped:
                k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
            y = self.attend(q, k, v, scale, self.visible_tokens(length))
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def attend(self, q, k, v, scale, seen):
        s = self.spec
        if s.mask == "bool":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
        if s.mask == "float":
            mask = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        scores = q @ k.transpose(-1, -2) * scale
        if s.softcap:
            scores = s.softcap * torch.tanh(scores / s.softcap)
        if s.broken == "soft_mask":
            scores = scores + torch.where(seen, 0.0, -3.0)
        elif s.mask == "add_min":
            scores = scores + torch.where(seen, 0.0, torch.finfo(scores.dtype).min)
        elif s.mask == "add_inf":
            scores = scores + torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
        elif s.mask == "times":
            scores = scores * seen.float() - 1e10 * (1 - seen.float())
        elif s.mask == "written":
            hidden = torch.zeros(scores.shape[-2:])
            hidden[~seen.expand_as(hidden)] = -math.inf
            scores = scores + hidden
            scores = scores - scores.max(dim=-1, keepdim=True).values
        elif s.mask == "where":
            scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
        else:
            scores = scores.masked_fill(~seen, -math.inf)
        return torch.softmax(scores, -2 if s.broken == "softmax_over_queries" else -1) @ v


# Breaks of the mask need attention by hand; the others break what is around it.
MASK_BREAKS = (
    "looks_ahead",
    "sees_all",
    "mask_transposed",
    "mask_of_first_row",
    "mask_of_first_column",
    "soft_mask",
    "window_from_the_end",
    "window_to_the_first",
    "softmax_over_queries",
)
BY_HAND = ("soft_mask", "softmax_over_queries")
TOKEN_BREAKS = {
    "mean_over_tokens": lambda x: x + x.mean(1, keepdim=True),
    "centred_over_tokens": lambda x: x - x.mean(1, keepdim=True),
    "norm_over_tokens": lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5),
    "cumulative": lambda x: x + 0.1 * x.cumsum(1),
    "shifted": lambda x: x + torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1),
    "flipped": lambda x: x + x.flip(1),
    "adds_last_token": lambda x: x + x[:, -1:],
    "scaled_by_length": lambda x: x * (x.shape[1] / 10),
    "scaled_by_max": lambda x: x / (1 + x.abs().amax(1, keepdim=True)),
    "branch_on_length": lambda x: x * 2 if x.shape[1] > 48 else x,
    "even_length": lambda x: x * 2 if x.shape[1] % 2 == 0 else x,
    "tokens_and_features_mixed": lambda x: x + x.transpose(1, 2).reshape(x.shape),
}


class Block(nn.Module):
    def __init__(self, spec: Spec):
        super().__init__()
        self.spec, width = spec, spec.heads * spec.head_size
        self.attention = Attention(spec)
        self.norm1, self.norm2 = Norm(width, spec.norm), Norm(width, spec.norm)
        self.up = nn.Linear(width, spec.inner, bias=spec.bias)
        self.gate = nn.Linear(width, spec.inner, bias=False) if spec.mlp == "gated" else None
        self.down = nn.Linear(spec.inner, width, bias=spec.bias)

    def mlp(self, x):
        kind, up = self.spec.mlp, self.up(x)
        if kind == "gated":
            return self.down(F.silu(self.gate(x)) * up)
        if kind == "squared":
            return self.down(F.relu(up) ** 2)
        act = {"gelu": F.gelu, "tanh": lambda t: F.gelu(t, approximate="tanh"), "silu": F.silu}
        return self.down(act[kind](up))

    def forward(self, x):
        if self.spec.post_norm:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, spec: Spec):
        super().__init__()
        self.spec, width = spec, spec.heads * spec.head_size
        self.tokens = nn.Embedding(spec.vocab, width)
        if spec.position == "learned":
            self.places = nn.Embedding(LONGEST, width)
        elif spec.position == "sinusoidal":
            angles = torch.arange(LONGEST)[:, None] / 50.0 ** (torch.arange(width) / width)
            self.register_buffer("places", angles.sin())
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.layers))
        self.norm = Norm(width, spec.norm)
        self.head = nn.Linear(width, spec.vocab, bias=False)
        if spec.tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        s, x = self.spec, self.tokens(ids)
        if s.embed_scale:
            x = x * x.shape[-1] ** 0.5
        if s.position == "learned":
            x = x + self.places(torch.arange(ids.shape[1]))
        elif s.position == "sinusoidal":
            x = x + self.places[: ids.shape[1]]
        for index, block in enumerate(self.blocks):
            if index == 0 and s.broken in TOKEN_BREAKS:
                x = TOKEN_BREAKS[s.broken](x)
            x = block(x)
        logits = self.head(self.norm(x))
        return 5.0 * torch.tanh(logits / 5.0) if s.final_cap else logits


def build(spec: Spec, seed: int) -> Decoder:
    model = Decoder(spec).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
            else:
                weight.copy_(
                    1.2 * weight.shape[1] ** -0.5 * torch.randn(weight.shape, generator=generator)
                )
    return model


def legitimate(seed: int) -> tuple:
    spec = draw(random.Random(seed))
    return spec, build(spec, seed)


def unsound(seed: int) -> tuple:
    """Each kind of break in turn, in a random decoder in which it can be."""
    rng = random.Random(10_000 + seed)
    broken = BREAKS[seed % len(BREAKS)]
    spec = draw(rng)
    if broken in BY_HAND and spec.mask in ("sdpa", "bool", "float"):
        spec = replace(spec, mask="where")
    if broken in MASK_BREAKS and spec.mask == "sdpa":
        spec = replace(spec, mask="fill_arange")
    if broken.startswith("positions_"):
        spec = replace(spec, position="rope")
    spec = replace(spec, broken=broken)
    return spec, build(spec, seed)
