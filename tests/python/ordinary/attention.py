"""Ways to write attention: each decoder has the same plain surroundings and its own attention."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary


class Plain(nn.Module):
    """A decoder of pre-norm layers and learned positions, whose `attend` is a subclass's."""

    vocab, dim, heads, depth, longest = 70, 32, 4, 2, 64
    qkv_width = 3

    def __init__(self):
        super().__init__()
        d = self.dim
        self.head_dim = d // self.heads
        self.tok, self.pos = nn.Embedding(self.vocab, d), nn.Embedding(self.longest, d)
        self.qkv = nn.ModuleList([nn.Linear(d, self.qkv_width * d) for _ in range(self.depth)])
        self.out = nn.ModuleList([nn.Linear(d, d) for _ in range(self.depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2 * self.depth)])
        self.ffs = nn.ModuleList([self.feed_forward(d) for _ in range(self.depth)])
        self.head = nn.Linear(d, self.vocab, bias=False)
        self.extra()

    def extra(self):
        pass

    def feed_forward(self, d):
        return nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def split(self, x, i):
        """q, k and v as (batch, heads, tokens, size)."""
        b, t, _ = x.shape
        x = self.qkv[i](x).reshape(b, t, self.qkv_width, self.heads, self.head_dim)
        return x.permute(2, 0, 3, 1, 4)

    def merge(self, x):
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def attend(self, x, i):
        raise NotImplementedError

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for i in range(self.depth):
            x = x + self.out[i](self.attend(self.norms[2 * i](x), i))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x)


def causal(t, device=None):
    return torch.ones(t, t, dtype=torch.bool, device=device).tril()


@ordinary
class EinsumAttention(Plain):
    """Tokens stay before heads: einsum does the rest."""

    def attend(self, x, i):
        b, t, d = x.shape
        q, k, v = self.qkv[i](x).view(b, t, 3, self.heads, -1).unbind(dim=2)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / self.head_dim**0.5
        scores = scores.masked_fill(~causal(t, x.device), float("-inf"))
        return torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v).reshape(b, t, d)


@ordinary
class EinsumAttentionWithHeadWeights(Plain):
    """The projections are parameters with an axis for the heads, as in TransformerLens."""

    def extra(self):
        shape = (self.depth, self.heads, self.dim, self.head_dim)
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(shape) * 0.2) for _ in range(3))
        self.b_Q, self.b_K, self.b_V = (
            nn.Parameter(torch.zeros(self.depth, self.heads, self.head_dim)) for _ in "qkv"
        )
        self.W_O = nn.Parameter(torch.randn(self.depth, self.heads, self.head_dim, self.dim) * 0.2)
        self.register_buffer("IGNORE", torch.tensor(-1e5))

    def attend(self, x, i):
        q = torch.einsum("bpd,hde->bphe", x, self.W_Q[i]) + self.b_Q[i]
        k = torch.einsum("bpd,hde->bphe", x, self.W_K[i]) + self.b_K[i]
        v = torch.einsum("bpd,hde->bphe", x, self.W_V[i]) + self.b_V[i]
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / math.sqrt(self.head_dim)
        mask = torch.triu(torch.ones(scores.size(-2), scores.size(-1)), diagonal=1).bool()
        scores.masked_fill_(mask, self.IGNORE)
        z = torch.einsum("bkhe,bhqk->bqhe", v, scores.softmax(dim=-1))
        return torch.einsum("bqhe,hed->bqd", z, self.W_O[i])


@ordinary
class SoftmaxByHand(Plain):
    """exp, less the greatest, over the sum."""

    def softmax(self, x):
        x = x - x.max(dim=-1, keepdim=True).values
        e = torch.exp(x)
        return e / e.sum(dim=-1, keepdim=True)

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        scores = torch.where(causal(x.shape[1]), scores, torch.tensor(float("-inf")))
        return self.merge(self.softmax(scores) @ v)


@ordinary
class ExponentsTimesMask(Plain):
    """Exponents are multiplied by a mask of ones and zeros, and then normalised."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        t = x.shape[1]
        weights = torch.exp(q @ k.transpose(-1, -2) / self.head_dim**0.5) * torch.ones(t, t).tril()
        return self.merge(weights @ v / weights.sum(-1, keepdim=True))


@ordinary
class ProbabilitiesRenormalised(Plain):
    """A softmax of all scores, whose later part is struck out, with what is left divided by its sum."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        p = torch.softmax(torch.matmul(q, k.mT) * self.head_dim**-0.5, dim=-1)
        p = torch.tril(p)
        p = p / p.sum(dim=-1, keepdim=True)
        return self.merge(torch.matmul(p, v))


@ordinary
class ScaledQueries(Plain):
    """F.normalize of q and k, and a learned temperature of each head."""

    def extra(self):
        self.temperature = nn.Parameter(torch.full((self.depth, 1, self.heads, 1, 1), 8.0))

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        s = q @ k.transpose(2, 3) * self.temperature[i]
        s = s.masked_fill(causal(x.shape[1]).logical_not(), -torch.finfo(s.dtype).max)
        return self.merge(F.softmax(s, dim=-1) @ v)


@ordinary
class QkNormThenSdpa(Plain):
    """Norms of q and k with a weight for each feature of a head; the scale is fixed."""

    def extra(self):
        self.qn = nn.ModuleList(nn.LayerNorm(self.head_dim) for _ in range(self.depth))
        self.kn = nn.ModuleList(nn.LayerNorm(self.head_dim) for _ in range(self.depth))

    def attend(self, x, i):
        q, k, v = self.split(x, i).unbind(0)
        return self.merge(
            F.scaled_dot_product_attention(self.qn[i](q), self.kn[i](k), v, is_causal=True, scale=0.3)
        )


@ordinary
class BatchOfHeads(Plain):
    """Heads are folded into the batch by split and cat, as in older code."""

    def attend(self, x, i):
        q, k, v = torch.chunk(self.qkv[i](x), 3, dim=-1)
        q_, k_, v_ = (torch.cat(torch.split(y, self.head_dim, dim=2), dim=0) for y in (q, k, v))
        scores = torch.bmm(q_, k_.transpose(1, 2)) / (self.head_dim**0.5)
        lower = torch.tril(torch.ones_like(scores[0]))
        padding = torch.ones_like(scores) * (-(2**32) + 1)
        scores = torch.where(lower.unsqueeze(0) == 0, padding, scores)
        out = torch.bmm(F.softmax(scores, dim=-1), v_)
        return torch.cat(torch.split(out, x.shape[0], dim=0), dim=2)


@ordinary
class LoopOverHeads(Plain):
    def attend(self, x, i):
        q, k, v = self.qkv[i](x).split(self.dim, dim=-1)
        outs = []
        for h in range(self.heads):
            s = slice(h * self.head_dim, (h + 1) * self.head_dim)
            w = q[:, :, s] @ k[:, :, s].transpose(1, 2) / math.sqrt(self.head_dim)
            w = w + torch.full_like(w, float("-inf")).triu(1)
            outs.append(w.softmax(2) @ v[:, :, s])
        return torch.cat(outs, 2)


@ordinary
class OneSequence(Plain):
    """The batch axis is dropped at once and comes back at the end."""

    def forward(self, ids):
        tokens = ids.squeeze(0)
        n = tokens.shape[0]
        x = self.tok.weight[tokens] + self.pos.weight[:n]
        for i in range(self.depth):
            q, k, v = self.qkv[i](self.norms[2 * i](x)).view(n, 3, self.heads, self.head_dim).unbind(1)
            a = torch.einsum("ihd,jhd->hij", q, k).div(self.head_dim**0.5)
            a = a.masked_fill(torch.arange(n)[None, :] > torch.arange(n)[:, None], float("-inf")).softmax(-1)
            x = x + self.out[i](torch.einsum("hij,jhd->ihd", a, v).flatten(1))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x).unsqueeze(0)


@ordinary
class TokensFirst(Plain):
    """(tokens, batch, features) throughout, as in fairseq."""

    def forward(self, ids):
        x = self.tok(ids).transpose(0, 1)
        t, b, d = x.size()
        x = x + self.pos.weight[:t].unsqueeze(1)
        future = torch.triu(torch.full([t, t], float("-inf")), 1)
        for i in range(self.depth):
            q, k, v = self.qkv[i](self.norms[2 * i](x)).chunk(3, dim=-1)
            q = (q * self.head_dim**-0.5).contiguous().view(t, b * self.heads, self.head_dim).transpose(0, 1)
            k = k.contiguous().view(-1, b * self.heads, self.head_dim).transpose(0, 1)
            v = v.contiguous().view(-1, b * self.heads, self.head_dim).transpose(0, 1)
            w = torch.bmm(q, k.transpose(1, 2)) + future.unsqueeze(0)
            a = torch.bmm(F.softmax(w, dim=-1, dtype=torch.float32).type_as(w), v)
            x = x + self.out[i](a.transpose(0, 1).contiguous().view(t, b, d))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x).transpose(0, 1).contiguous()


@ordinary
class KeysTransposed(Plain):
    """Keys are laid out (heads, size, tokens) from the start."""

    def attend(self, x, i):
        b, t, d = x.shape
        qkv = self.qkv[i](x)
        q = qkv[..., :d].view(b, t, self.heads, -1).permute(0, 2, 1, 3)
        kt = qkv[..., d : 2 * d].view(b, t, self.heads, -1).permute(0, 2, 3, 1).contiguous()
        v = qkv[..., 2 * d :].view(b, t, self.heads, -1).permute(0, 2, 1, 3)
        s = (q @ kt).mul_(1 / self.head_dim**0.5)
        s = s.masked_fill_(causal(t) == False, -1e30)  # noqa: E712
        return (s.softmax(dim=3) @ v).permute(0, 2, 1, 3).contiguous().flatten(2)


@ordinary
class ScoresKeysFirst(Plain):
    """Scores lie (keys, queries): the softmax and the mask go along the other axis."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = torch.einsum("bhkd,bhqd->bhkq", k, q) * self.head_dim**-0.5
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).tril(-1), float("-inf"))
        return self.merge(torch.einsum("bhkq,bhkd->bhqd", s.softmax(dim=-2), v))


@ordinary
class MultiQuery(Plain):
    """One head of keys and values, broadcast by matmul."""

    def extra(self):
        self.kv = nn.ModuleList(nn.Linear(self.dim, 2 * self.head_dim, bias=False) for _ in range(self.depth))

    qkv_width = 1

    def attend(self, x, i):
        (q,) = self.split(x, i)
        k, v = self.kv[i](x).chunk(2, dim=-1)
        s = torch.matmul(q, k[:, None].transpose(-1, -2)) / math.sqrt(self.head_dim)
        s = s.masked_fill(~causal(x.size(1)), torch.finfo(s.dtype).min)
        return self.merge(torch.matmul(s.softmax(-1), v[:, None]))


@ordinary
class MultiQueryEinsum(MultiQuery):
    def attend(self, x, i):
        b, t, d = x.shape
        q = self.qkv[i](x).view(b, t, self.heads, self.head_dim)
        k, v = self.kv[i](x).split(self.head_dim, dim=-1)
        sim = torch.einsum("b i h d, b j d -> b h i j", q * self.head_dim**-0.5, k)
        causal_mask = torch.ones((t, t), dtype=torch.bool, device=x.device).triu(t - t + 1)
        sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)
        return torch.einsum("b h i j, b j d -> b i h d", sim.softmax(dim=-1), v).reshape(b, t, d)


@ordinary
class GroupedEinsum(Plain):
    """Queries have axes for groups and for heads within a group."""

    groups = 2

    def extra(self):
        kv = self.groups * self.head_dim
        self.kproj = nn.ModuleList(nn.Linear(self.dim, kv) for _ in range(self.depth))
        self.vproj = nn.ModuleList(nn.Linear(self.dim, kv) for _ in range(self.depth))

    qkv_width = 1

    def attend(self, x, i):
        b, t, d = x.shape
        q = self.qkv[i](x).view(b, t, self.groups, self.heads // self.groups, self.head_dim)
        k = self.kproj[i](x).view(b, t, self.groups, self.head_dim)
        v = self.vproj[i](x).view(b, t, self.groups, self.head_dim)
        s = torch.einsum("btgrd,bsgd->bgrts", q, k) / math.sqrt(self.head_dim)
        s = s + torch.zeros(t, t).masked_fill(causal(t).logical_not(), float("-inf"))
        return torch.einsum("bgrts,bsgd->btgrd", s.softmax(-1), v).reshape(b, t, d)


@ordinary
class GroupedByTile(GroupedEinsum):
    """Query heads h and h + groups share keys: the keys are tiled, not repeated one by one."""

    def attend(self, x, i):
        b, t, d = x.shape
        q = self.qkv[i](x).view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = self.kproj[i](x).view(b, t, self.groups, self.head_dim).transpose(1, 2).repeat(1, 2, 1, 1)
        v = self.vproj[i](x).view(b, t, self.groups, self.head_dim).transpose(1, 2).repeat(1, 2, 1, 1)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@ordinary
class SoftcappedAttention(Plain):
    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        s = 20.0 * torch.tanh(s / 20.0)
        s = s.masked_fill(~causal(s.size(-1)), -2.3819763e38)
        return self.merge(s.float().softmax(-1).type_as(v) @ v)


@ordinary
class ValueResidual(Plain):
    """Later layers mix the first layer's values into their own."""

    def extra(self):
        self.mix = nn.Parameter(torch.full((self.depth,), 0.5))

    depth = 3

    def forward(self, ids):
        x, v1 = self.tok(ids) + self.pos(torch.arange(ids.shape[1])), None
        for i in range(self.depth):
            q, k, v = self.split(self.norms[2 * i](x), i)
            if v1 is None:
                v1 = v
            v = (1 - self.mix[i]) * v + self.mix[i] * v1
            x = x + self.out[i](self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x)


@ordinary
class SharedLayers(Plain):
    """One layer's weights are used three times over."""

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for i in [0, 1, 0, 1, 0]:
            q, k, v = self.split(self.norms[2 * i](x), i)
            x = x + self.out[i](self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x)


@ordinary
class SharedKeysAcrossLayers(Plain):
    """The second layer attends to the first layer's keys and values."""

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        kept = None
        for i in range(self.depth):
            q, k, v = self.split(self.norms[2 * i](x), i)
            kept = kept or (k, v)
            x = x + self.out[i](self.merge(F.scaled_dot_product_attention(q, *kept, is_causal=True)))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x)


@ordinary
class HeadScale(Plain):
    """Each head's output has a learned factor, and the outputs have a norm of their own."""

    def extra(self):
        self.factor = nn.Parameter(torch.ones(self.depth, self.heads, 1, 1))
        self.inner = nn.ModuleList(nn.LayerNorm(self.dim) for _ in range(self.depth))

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True) * self.factor[i]
        return self.inner[i](self.merge(o))


@ordinary
class DifferentialAttention(Plain):
    """Two softmaxes of half the heads each, one less a share of the other."""

    def extra(self):
        self.lam = nn.Parameter(torch.tensor([0.2, 0.5]))
        self.sub = nn.ModuleList(nn.RMSNorm(2 * self.head_dim, eps=1e-5) for _ in range(self.depth))

    def attend(self, x, i):
        b, t, d = x.shape
        q, k, v = self.qkv[i](x).chunk(3, dim=-1)
        q = q.view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = k.view(b, t, self.heads, self.head_dim).transpose(1, 2)
        v = v.view(b, t, self.heads // 2, 2 * self.head_dim).transpose(1, 2)
        w = torch.matmul(q * self.head_dim**-0.5, k.transpose(-1, -2))
        w = w + torch.triu(torch.zeros([t, t]).fill_(float("-inf")).type_as(w), 1)
        w = F.softmax(w, dim=-1, dtype=torch.float32).type_as(w)
        w = w.view(b, self.heads // 2, 2, t, t)
        w = w[:, :, 0] - self.lam[i] * w[:, :, 1]
        o = self.sub[i](torch.matmul(w, v)) * (1 - 0.2)
        return o.transpose(1, 2).reshape(b, t, d)
