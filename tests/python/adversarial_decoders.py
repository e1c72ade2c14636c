"""Small decoders that were written to be captured and computed wrong, and ordinary ones that look
as suspicious. DECODERS lists (name, factory, expectation): RIGHT, or a part of the reason for
which it is refused."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, HEADS, SIZE, LONGEST = 31, 4, 4, 64  # heads and their size coincide
HIDDEN = HEADS * SIZE
HIDES_ALL = float("-inf")
RIGHT = "right"
NO_FUNCTION = "not a function of the distance"


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


def additive(length, fill=HIDES_ALL):
    return torch.zeros(length, length).masked_fill(~causal(length), fill)


def split(x):
    return x.view(x.shape[0], x.shape[1], HEADS, SIZE).transpose(1, 2)


class Decoder(nn.Module):
    """One block. Decoders of the list change one of its methods."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, HIDDEN)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.head = nn.Linear(HIDDEN, VOCAB)

    def embed(self, ids):
        return self.tokens(ids)

    def heads(self, x):
        return x

    def scores(self, q, k):
        return q @ k.transpose(-1, -2) / math.sqrt(SIZE)

    def mask(self, scores):
        return scores.masked_fill(~causal(scores.shape[-1]), HIDES_ALL)

    def attention(self, q, k, v):
        return F.softmax(self.mask(self.scores(q, k)), dim=-1) @ v

    def after(self, x):
        return x

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = (split(layer(x)) for layer in (self.q, self.k, self.v))
        y = self.attention(self.heads(q), self.heads(k), v)
        y = y.transpose(1, 2).reshape(ids.shape[0], ids.shape[1], HIDDEN)
        return self.head(self.after(x + self.o(y)))


def part(method, function, **buffers):
    """A decoder with another method; the buffers become its attributes."""

    def make():
        model = type("Changed", (Decoder,), {method: function})()
        for name, value in buffers.items():
            model.register_buffer(name, value)
        return model

    return make


def masks(condition, fill=HIDES_ALL):
    """Fills scores where the condition of rows' and columns' positions does not hold."""

    def mask(self, scores):
        position = torch.arange(scores.shape[-1])
        return scores.masked_fill(~condition(position[:, None], position[None, :]), fill)

    return part("mask", mask)


def adds(make, **buffers):
    """Adds what `make` gives for this many tokens to the scores."""
    return part("mask", lambda self, scores: scores + make(self, scores.shape[-1]), **buffers)


def several(*factories):
    """The sum of several decoders, for those that are all right."""

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(factory() for factory in factories)

        def forward(self, ids):
            return sum(model(ids) for model in self.parts)

    return Sum


# ---- attention ----


def by_hand(self, q, k, v):
    scores = self.mask(self.scores(q, k))
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)) @ v


def by_product(self, q, k, v):
    scores = self.scores(q, k)
    powers = torch.exp(scores) * causal(scores.shape[-1]).float()
    return (powers / powers.sum(-1, keepdim=True)) @ v


def by_einsum(self, q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(SIZE)
    return torch.einsum("bhij,bhjd->bhid", F.softmax(self.mask(scores), dim=-1), v)


def scaled_after(self, q, k, v):
    return F.softmax(self.mask(q @ k.transpose(-1, -2)) * SIZE**-0.5, dim=-1) @ v


def scaled_below_zero(self, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=causal(q.shape[-2]), scale=-0.3)


def negated(self, q, k, v):
    return F.softmax(-1.0 * self.mask(self.scores(q, k)), dim=-1) @ v


def large_scores(self, scores):
    return (1e5 * scores).masked_fill(~causal(scores.shape[-1]), -1e4)


def far_below(self, scores):
    """Seen scores are less than what hides the others."""
    return (scores - 1024).masked_fill(~causal(scores.shape[-1]), -1000.0)


def hidden_by_the_maximum(self, scores):
    hidden = ~causal(scores.shape[-1])
    raised = scores.masked_fill(hidden, 1e9)
    return (raised - raised.amax(-1, keepdim=True)).masked_fill(hidden, -1e8)


def whole_scores(self, scores):
    filled = scores.masked_fill(~causal(scores.shape[-1]), -1e9)
    return filled.long().float()


def capped(self, scores):
    return (20 * torch.tanh(scores / 20)).masked_fill(~causal(scores.shape[-1]), -1e4)


def replaced(self, scores):
    """Far tokens count with a score of 0, which is another than their own."""
    position = torch.arange(scores.shape[-1])
    far = position[:, None] - position[None, :] >= 4
    return scores.masked_fill(far, 0.0).masked_fill(~causal(scores.shape[-1]), HIDES_ALL)


def kept_above(lowest):
    def mask(self, scores):
        hidden = scores + additive(scores.shape[-1])
        return torch.max(hidden, torch.full((), lowest))

    return part("mask", mask)


def hidden_and_restored(self, scores):
    """What is left of a score after + 1e9 - 1e9 is its rounding."""
    position = torch.arange(scores.shape[-1])
    far = 1e9 * (position[:, None] - position[None, :] >= 4).float()
    return (scores - far + far).masked_fill(~causal(scores.shape[-1]), HIDES_ALL)


def constant_scores(self, scores):
    same = torch.full((1, 1, 1, 1), 0.5).expand(1, HEADS, *scores.shape[-2:])
    return 5 * torch.tanh(same)


def triangle(scores):
    return torch.ones(scores.shape[-2:]).tril()


def times_mask(self, scores):
    return scores * triangle(scores) - 1e10 * (1 - triangle(scores))


def written(self, scores):
    hidden = torch.ones(scores.shape[-2:])
    hidden = hidden.triu(1)
    hidden[hidden == 1] = HIDES_ALL
    return scores + hidden


def less_the_most(self, scores):
    hidden = scores.masked_fill(triangle(scores) == 0, HIDES_ALL)
    return hidden - hidden.max(dim=-1, keepdim=True).values


def heads_and_rows_in_one(self, scores):
    length = scores.shape[-1]
    seen = torch.arange(1, length + 1).repeat(HEADS)
    rows = scores.reshape(-1, length)
    rows = torch.where(torch.arange(length)[None] < seen[:, None], rows, torch.full_like(rows, -1e9))
    return rows.reshape(scores.shape)


def rows_of_a_table(by):
    table = torch.ones(LONGEST, LONGEST).tril().bool()

    def mask(self, scores):
        position = torch.arange(scores.shape[-1])
        return scores.masked_fill(~self.seen[position + by][:, : scores.shape[-1]], HIDES_ALL)

    return part("mask", mask, seen=table)


def divided_late(self, q, k, v):
    powers = torch.exp(self.scores(q, k)).tril()
    return (powers @ v) / powers.sum(-1, keepdim=True)


def masked_probabilities(self, q, k, v):
    weights = F.softmax(self.scores(q, k), dim=-1).masked_fill(~causal(q.shape[-2]), 0)
    return (weights / weights.sum(-1, keepdim=True)) @ v


def difference(self, q, k, v):
    weights = F.softmax(self.mask(self.scores(q, k)), dim=-1).unflatten(1, (2, 2))
    return ((weights[:, 0] - 0.3 * weights[:, 1]) @ v[:, :2]).repeat(1, 2, 1, 1)


def heads_in_a_loop(self, q, k, v):
    each = [F.softmax(self.mask(self.scores(q[:, i], k[:, i])), -1) @ v[:, i] for i in range(HEADS)]
    return torch.stack(each, dim=1)


def shared_head(self, q, k, v):
    return F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], is_causal=True)


def shared_head_masked(self, q, k, v):
    return F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], attn_mask=causal(q.shape[2]))


def without_batch(self, q, k, v):
    return F.scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True)[None]


class HeadWeights(Decoder):
    """A temperature and a bias for each head."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(1, HEADS, 1, 1))
        self.bias = nn.Parameter(torch.ones(HEADS, 1, 1))

    def scores(self, q, k):
        return super().scores(q, k) * self.temperature + self.bias


class HeadWeightsLate(HeadWeights):
    def scores(self, q, k):
        return Decoder.scores(self, q, k)

    def mask(self, scores):
        return super().mask(scores) * self.temperature


class HeadBiasCapped(HeadWeights):
    def scores(self, q, k):
        return 5 * torch.tanh((Decoder.scores(self, q, k) + self.bias) / 5)


def alibi(self, length):
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    slopes = 2.0 ** -torch.arange(1, HEADS + 1)
    return slopes[:, None, None] * distance + additive(length)


# ---- norms and RoPE ----


def norm_of_another_axis(self, x):
    """The mean over the features of each head is the factor of each feature."""
    x = x.transpose(1, 2)
    root = torch.rsqrt(x.pow(2).mean(-1) + 1e-6)
    return (x * root[:, :, None, :]).transpose(1, 2)


def norm_of_heads(self, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotate(x, angles):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * angles.cos() + turned * angles.sin()


def angles_of(length):
    inverse = 10.0 ** (-torch.arange(0, SIZE, 2) / SIZE)
    angles = torch.arange(length).float()[:, None] * inverse
    return torch.cat((angles, angles), dim=-1)


def rope(self, x):
    return rotate(x, angles_of(x.shape[2]))


def complex_rope(self, x):
    angles = angles_of(x.shape[2])[:, : SIZE // 2]
    waves = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * waves).flatten(3).type_as(x)


def conjugate_rope(self, x):
    halves = torch.complex(x[..., : SIZE // 2], x[..., SIZE // 2 :])
    turned = halves[:, :, :, None] * self.waves[: x.shape[2], None].conj() * (1 - 2j)
    return torch.cat((turned.real, turned.imag), dim=-1).squeeze(-2)


def rope_of_heads(self, x):
    """A frequency for each head, from a table as long as a head is wide."""
    rows = x.transpose(1, 2)
    return rotate(rows, angles_of(x.shape[2])[None, :, :, None]).transpose(1, 2)


class NormOfHalves(Decoder):
    """Embeddings so small that the eps of the norm decides, in bfloat16."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN)
        self.to(torch.bfloat16)

    def embed(self, ids):
        return self.norm(self.tokens(ids) * 0.02)


def norm_of_one_feature(self, x):
    return x + F.rms_norm(x[..., :1], (1,), eps=0.1) * torch.linspace(0.5, 2, HIDDEN)


def heads_of_one_feature(self, q, k, v):
    scores = q[..., :1] @ k[..., :1].transpose(-1, -2)
    return F.softmax(self.mask(scores), dim=-1) @ v


class BatchNorm(Decoder):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.norm.running_mean.copy_(torch.linspace(-1, 1, HIDDEN))

    def after(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


# ---- indices and activations ----

TABLE = torch.linspace(-1, 1, LONGEST * HIDDEN).view(LONGEST, HIDDEN)


def counted_by_buffer(self, ids):
    return self.tokens(ids) + self.table[self.counted[: ids.shape[1]]]


def counted_from_end(self, ids):
    return self.tokens(ids) + self.table[torch.arange(ids.shape[1]) - 3]


def wrapping(self, ids):
    """Integers of 32 bits that overflow."""
    return self.tokens(ids) + 1e-9 * (ids.int() * 123456789).float()[..., None]


def by_rounded_entries(self, ids):
    """0.1 * 3 is 0.3 in float32, and not in float64."""
    return self.tokens(ids) + (self.numbers[ids] * 0.1 == 0.3).float()[..., None]


def placed(count, positions=lambda self, ids: torch.arange(ids.shape[1])):
    """A row of a long table by a position that is counted in another type."""

    def embed(self, ids):
        return self.tokens(ids) + self.places[count(positions(self, ids)).long()]

    places = torch.linspace(-1, 1, 600)[:, None].expand(-1, HIDDEN).sin()
    return part("embed", embed, places=places, counted=torch.arange(600))


def far_number(self, ids):
    position = torch.arange(ids.shape[1]) + 2**24 - 300
    return self.tokens(ids) + 0.01 * (position.float() - (2**24 - 300))[:, None]


def row_of_the_length(self, ids):
    return self.tokens(ids) + self.table[ids.shape[1]]


# The longest context in which positions are what they are without rounding: bfloat16 has no 257,
# and float32 no 2^24 + 1. 0: no position is changed.
ROUNDED = {
    "float32": (placed(lambda position: position + (2.0**24 - 300) - (2.0**24 - 300)), 301),
    "buffer": (placed(torch.Tensor.bfloat16, lambda self, ids: self.counted[: ids.shape[1]]), 257),
    "entries": (
        placed(torch.Tensor.bfloat16, lambda self, ids: self.counted[torch.arange(ids.shape[1])]),
        257,
    ),
    "number": (part("embed", far_number), 301),
    "hundreds": (placed(lambda position: (position / 100).floor()), 0),
}


def selections(self, x):
    x = x[..., torch.arange(HIDDEN - 1, -1, -1)]
    return x + x[..., torch.tensor([-1, 0, 3])].sum(-1, keepdim=True)


def swap_heads(self, x):
    return x[:, torch.tensor([2, 0, 3, 1])]


def activations(self, x):
    x = F.leaky_relu(x) + F.elu(x) + F.selu(x) + F.softplus(x) + F.mish(x)
    x = x + (3 * x).ceil() - (2 * x).trunc() + x.sign() / 4 + F.hardtanh(x, -0.5, 1)
    return F.normalize(x - (4 * x).floor() / 4, dim=-1) + x / x.norm(dim=-1, keepdim=True)


def minus_mask(self, scores):
    length = scores.shape[-1]
    return scores - 1e9 * torch.ones(length, length).triu(1)


def band(i, j):
    ones = torch.ones(i.shape[0], j.shape[1])
    return ones.tril() - ones.tril(-4) > 0


HIDDEN_BUFFER = torch.full((LONGEST, LONGEST), HIDES_ALL).triu(1)

DECODERS = [
    # sizes of 1 that broadcast
    ("first_row_only", masks(lambda i, j: i >= (i - i)[:1]), "nothing masks"),
    ("less_the_first", masks(lambda i, j: (i - i[:1] < 4) & (j <= i)), NO_FUNCTION),
    ("one_row", adds(lambda self, n: additive(n)[:1]), NO_FUNCTION),
    ("one_column", adds(lambda self, n: additive(n)[:, :1]), NO_FUNCTION),
    ("column", adds(lambda self, n: -1e9 * (1 - torch.ones(n, 1).tril())), NO_FUNCTION),
    # bands that are empty, turned or everything
    ("strictly_below", masks(lambda i, j: j < i, -1e9), "does not see itself"),
    ("hides_all", masks(lambda i, j: (j <= i) & (j > i), -1e9), "hides everything"),
    ("two_halves", masks(lambda i, j: (j <= i) | (j > i)), "nothing masks"),
    # the types' arithmetic
    ("far_positions", masks(lambda i, j: j + 2.0**24 <= i + 2.0**24), "for position 1"),
    ("half_distances", masks(lambda i, j: (j <= i) & ((i - j).half() <= 2048)), NO_FUNCTION),
    ("absorbed", masks(lambda i, j: 1 + 1e-8 * (j > i).float() <= 1), "nothing masks"),
    ("cut_off", masks(lambda i, j: (0.9 * (j > i)).long() == 0), "nothing masks"),
    ("whole_scores", part("mask", whole_scores), "the scores are converted to"),
    ("norm_of_halves", NormOfHalves, RIGHT),
    # what hides
    ("weak_fill", masks(lambda i, j: j <= i, -1e4), RIGHT),
    ("weaker_fill", masks(lambda i, j: j <= i, -999), "which scores can outweigh"),
    ("weak_fill_of_large_scores", part("mask", large_scores), "an attention score of magnitude"),
    ("weak_fill_far_below", part("mask", far_below), "which scores can outweigh"),
    ("hidden_by_the_maximum", part("mask", hidden_by_the_maximum), "that a mask has raised"),
    ("temperature_of_masked", HeadWeightsLate, "after they were masked"),
    ("bias_that_is_capped", HeadBiasCapped, "shifted, cut off or capped"),
    ("times_halves", part("mask", lambda self, x: x * (1 + triangle(x)) / 2), "scaled by a tensor"),
    ("times_mask_alone", part("mask", lambda self, x: x * triangle(x)), "neither hides nor keeps"),
    ("next_row_of_a_table", rows_of_a_table(1), "a token sees tokens that come later"),
    ("bias", adds(lambda self, n: additive(n, -2.0)), "neither hides nor keeps"),
    ("negated", part("attention", negated), "a negative factor"),
    ("alibi", adds(alibi), "ALiBi"),
    ("replaced", part("mask", replaced), "neither hides nor keeps"),
    ("kept_above", kept_above(-5.0), "kept above -5"),
    ("hidden_and_restored", part("mask", hidden_and_restored), "neither hides nor keeps"),
    ("row_of_the_length", part("embed", row_of_the_length, table=TABLE), "the number of tokens"),
    # integers that overflow, and fractions that decide
    ("wrapping", part("embed", wrapping), "may overflow"),
    (
        "by_rounded_entries",
        part("embed", by_rounded_entries, numbers=torch.arange(VOCAB).float()),
        "rounding decides what this is for token id 3",
    ),
    ("constant_scores", part("mask", constant_scores), "tanh of the scores"),
    # ordinary ones
    (
        "masks",
        several(
            masks(lambda i, j: ((i - j).abs() < 5) & (j <= i), -1e9),
            adds(lambda self, n: (1 - causal(n).float()) * -1e9),
            adds(lambda self, n: self.hidden[:n, :n], hidden=HIDDEN_BUFFER),
            part("mask", times_mask),
            part("mask", capped),
        ),
        RIGHT,
    ),
    (
        "attentions",
        several(
            *(part("attention", f) for f in (by_hand, by_einsum, scaled_after, shared_head)),
            HeadWeights,
        ),
        RIGHT,
    ),
    (
        "rows",
        several(
            *(part("heads", f) for f in (norm_of_heads, rope, complex_rope)),
            part("after", activations),
            part("embed", counted_by_buffer, counted=torch.arange(LONGEST), table=TABLE),
        ),
        RIGHT,
    ),
    # ordinary ones that few write
    (
        "rare_masks",
        several(
            masks(lambda i, j: (j <= i).float() ** (j > i).float() > 0.5),
            masks(band),
            adds(lambda self, n: torch.ones(n, n).tril().log()),
            part("mask", minus_mask),
            *(part("mask", f) for f in (written, less_the_most, heads_and_rows_in_one)),
            rows_of_a_table(0),
            masks(lambda i, j: (j <= i).type(torch.uint8).bool()),
            adds(lambda self, n: -1e9 * (1 - self.seen[:n, :n].float()), seen=causal(LONGEST).byte()),
            kept_above(torch.finfo(torch.float32).min),
        ),
        RIGHT,
    ),
    (
        "rare_attentions",
        several(
            part("attention", by_product),
            part("attention", heads_of_one_feature),
            *(part("attention", f) for f in (divided_late, masked_probabilities, difference)),
            part("attention", heads_in_a_loop),
            *(part("attention", f) for f in (shared_head_masked, without_batch)),
            part("attention", scaled_below_zero),
        ),
        RIGHT,
    ),
    (
        "rare_rows",
        several(
            *(part("heads", f) for f in (norm_of_another_axis, rope_of_heads)),
            part("heads", conjugate_rope, waves=torch.exp(1j * angles_of(LONGEST)[:, : SIZE // 2])),
            part("heads", swap_heads),
            part("after", norm_of_one_feature),
            part("after", selections),
            part("embed", counted_from_end, table=TABLE),
            BatchNorm,
        ),
        RIGHT,
    ),
]


# Decoders that the same code refuses, or reads, as it does another one of the list.
RARE = [
    "one_row", "one_column", "column", "two_halves", "cut_off", "times_mask_alone", "replaced",
    "weak_fill_far_below", "rare_masks", "rare_attentions", "rare_rows",
]  # fmt: skip


def build(name):
    (factory,) = (factory for key, factory, _ in DECODERS if key == name)
    return make(factory, name)


def make(factory, name):
    torch.manual_seed(len(name))
    model = factory().eval()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            weight.normal_(1.0 if "norm" in path else 0.0, 0.5 if weight.dim() > 1 else 0.2)
    return model


def _factory(name):
    return lambda: build(name)


# FILE.py:build_NAME captures one.
globals().update({f"build_{name}": _factory(name) for name, _, _ in DECODERS})
