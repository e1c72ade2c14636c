"""Plain decoders that dff0fcd refused for no reason, or for an op that it did not know: one for each
spelling that was reported. All are one decoder, with one method written in another way."""

import math

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, HEADS, SIZE, VOCABULARY, LONGEST = 32, 4, 8, 40, 128

REFUSED_BEFORE = {}
STILL_REFUSED = {}  # attention of another kind: keys that are no token's, scores that depend on the head


def now_right(decoder):
    REFUSED_BEFORE[decoder.__name__] = decoder
    return decoder


def still_refused(decoder):
    STILL_REFUSED[decoder.__name__] = decoder
    return decoder


class Plain(nn.Module):
    def __init__(self, key_heads=HEADS, value_heads=None):
        super().__init__()
        self.key_heads, self.value_heads = key_heads, value_heads or key_heads
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.table = nn.Embedding(LONGEST, HIDDEN)
        self.q = nn.Linear(HIDDEN, HEADS * SIZE)
        self.k = nn.Linear(HIDDEN, self.key_heads * SIZE)
        self.v = nn.Linear(HIDDEN, self.value_heads * SIZE)
        self.o = nn.Linear(HEADS * SIZE, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 2 * HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY)
        self.prepare()

    def prepare(self):
        pass

    def positions(self, ids):
        return torch.arange(ids.shape[1])

    def mask(self, scores):
        tokens = scores.shape[-1]
        return scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), float("-inf"))

    def scores(self, q, k):
        return q @ k.transpose(-1, -2) / math.sqrt(SIZE)

    def weights(self, scores):
        return F.softmax(scores, -1)

    def mix(self, weights, v):
        return weights @ v

    def attend(self, q, k, v):
        return self.mix(self.weights(self.mask(self.scores(q, k))), v)

    def activation(self, x):
        return F.gelu(x)

    def norm(self, x):
        return self.norm2(x)

    def body(self, ids):
        def heads(x, count):
            return x.view(x.shape[0], x.shape[1], count, SIZE).transpose(1, 2)

        x = self.embedding(ids) + self.table(self.positions(ids))
        y = self.norm1(x)
        q, k, v = heads(self.q(y), HEADS), heads(self.k(y), self.key_heads), heads(self.v(y), self.value_heads)
        x = x + self.o(self.attend(q, k, v).transpose(1, 2).reshape(x.shape[0], x.shape[1], HEADS * SIZE))
        return x + self.down(self.activation(self.up(self.norm(x))))

    def forward(self, ids):
        return self.head(self.body(ids))


@now_right
class MaskTimesNumber(Plain):
    def mask(self, scores):
        mask = torch.tril(torch.ones(scores.shape[-1], scores.shape[-1]))
        return scores * mask - 1e10 * (1 - mask)


@now_right
class OneMinusMask(Plain):
    def mask(self, scores):
        return scores + (1 - torch.tril(torch.ones(scores.shape[-1], scores.shape[-1]))) * -1e9


@now_right
class NumberMinusTensor(Plain):
    def activation(self, x):
        return 3 - F.relu(x)


@now_right
class NumberMinusPositions(Plain):
    def prepare(self):
        self.wave = nn.Parameter(torch.randn(HIDDEN) * 0.1)

    def body(self, ids):
        return super().body(ids) + torch.cos((-1 - torch.arange(ids.shape[1])).float() * 0.1)[:, None] * self.wave


@now_right
class Linspace(Plain):
    def body(self, ids):
        return super().body(ids) + torch.linspace(0, 1, HIDDEN)


@now_right
class OneMinusSigmoid(Plain):
    def activation(self, x):
        return x * (1 - torch.sigmoid(x))


@now_right
class Einsum(Plain):
    def attend(self, q, k, v):
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(SIZE)
        return torch.einsum("bhij,bhjd->bhid", F.softmax(self.mask(scores), -1), v)


@now_right
class WeightsTransposed(Plain):
    def mix(self, weights, v):
        return (v.transpose(-1, -2) @ weights.transpose(-1, -2)).transpose(-1, -2)


@now_right
class ScoresTransposed(Plain):
    def attend(self, q, k, v):
        scores = k @ q.transpose(-1, -2) / math.sqrt(SIZE)
        later = torch.ones(scores.shape[-1], scores.shape[-1], dtype=torch.bool).tril(-1)
        return F.softmax(scores.masked_fill(later, float("-inf")), -2).transpose(-1, -2) @ v


@now_right
class SoftmaxByHand(Plain):
    def weights(self, scores):
        powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
        return powers / powers.sum(-1, keepdim=True)


@now_right
class SoftmaxWithoutMaximum(Plain):
    def weights(self, scores):
        powers = scores.exp()
        return powers / powers.sum(-1, keepdim=True)


@now_right
class FeaturesByIndex(Plain):
    def prepare(self):
        self.register_buffer("order", torch.randperm(HIDDEN))

    def norm(self, x):
        return self.norm2(x)[..., self.order]


@now_right
class HeadsByIndex(Plain):
    def prepare(self):
        self.register_buffer("order", torch.randperm(HEADS))

    def attend(self, q, k, v):
        return super().attend(q, k, v)[:, self.order]


@now_right
class KeysReshaped(Plain):
    def scores(self, q, k):
        return q @ k.transpose(-1, -2).reshape(1, HEADS, SIZE, k.shape[2]) / math.sqrt(SIZE)


@now_right
class BufferOfInfinity(Plain):
    def prepare(self):
        self.register_buffer("hidden", torch.full((LONGEST, LONGEST), float("-inf")).triu(1))

    def mask(self, scores):
        return scores + self.hidden[: scores.shape[-1], : scores.shape[-1]]


@now_right
class BufferOfPositions(Plain):
    def prepare(self):
        self.register_buffer("places", torch.arange(LONGEST)[None])

    def positions(self, ids):
        return self.places[:, : ids.shape[1]]


@now_right
class OverItsLength(Plain):
    def norm(self, x):
        return x / x.norm(dim=-1, keepdim=True)


@now_right
class Normalised(Plain):
    def norm(self, x):
        return F.normalize(x, dim=-1) * self.norm2.weight


@now_right
class BatchNorm(Plain):
    def prepare(self):
        self.batch = nn.BatchNorm1d(HIDDEN)
        self.batch.running_mean.normal_(0, 0.2)
        self.batch.running_var.uniform_(0.5, 1.5)

    def norm(self, x):
        return self.batch(x.transpose(1, 2)).transpose(1, 2)


@now_right
class GroupNorm(Plain):
    def prepare(self):
        self.groups = nn.GroupNorm(4, HIDDEN)

    def norm(self, x):
        return self.groups(x.reshape(-1, HIDDEN)).view(x.shape)


@now_right
class UnusedArguments(Plain):
    def forward(self, ids, positions=None, attention_mask=None):
        return super().forward(ids)


@now_right
class ScaledAfterTheMask(Plain):
    def attend(self, q, k, v):
        return self.mix(self.weights(self.mask(q @ k.transpose(-1, -2)) / math.sqrt(SIZE)), v)


@now_right
class OneValueHead(Plain):
    def __init__(self):
        super().__init__(HEADS, 1)


@now_right
class OneKeyHead(Plain):
    def __init__(self):
        super().__init__(1)


@now_right
class FlooredPositions(Plain):
    def body(self, ids):
        steps = torch.floor(torch.arange(ids.shape[1]) / 16)
        return super().body(ids) * (1 + 0.1 * torch.log(1 + steps))[:, None]


def with_activation(name, function):
    now_right(type(name, (Plain,), {"activation": lambda self, x: function(x)}))


with_activation("LeakyRelu", lambda x: F.leaky_relu(x, 0.1))
with_activation("Softplus", F.softplus)
with_activation("Mish", F.mish)
with_activation("Elu", F.elu)
with_activation("Selu", F.selu)


@still_refused
class Sinks(Plain):
    def prepare(self):
        self.sinks = nn.Parameter(torch.randn(HEADS))

    def weights(self, scores):
        sinks = self.sinks.view(1, HEADS, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
        return F.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]


@still_refused
class Alibi(Plain):
    def mask(self, scores):
        places = torch.arange(scores.shape[-1])
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625]).view(1, HEADS, 1, 1)
        apart = (places[None, :] - places[:, None]).float()
        return (scores + slopes * apart).masked_fill(apart > 0, float("-inf"))
