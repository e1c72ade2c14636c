"""Decoders with a mistake: a later token can change an earlier logit."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import unsound
from .attention import Plain, causal
from .details import Usual
from .gpt import GPT, GPTConfig
from .llama import HfModel, LitGPT, ModelArgs, Transformer
from .masks import Masked


@unsound
class NoMask(Masked):
    def masked(self, scores, i):
        return scores


@unsound
class MaskOneTooFar(Masked):
    def masked(self, scores, i):
        n = scores.size(-1)
        return scores.masked_fill(torch.ones(n, n).triu(2) == 1, float("-inf"))


@unsound
class MaskTransposed(Masked):
    def masked(self, scores, i):
        n = scores.size(-1)
        return scores.masked_fill(torch.ones(n, n).tril().T == 0, float("-inf"))


@unsound
class MaskInverted(Masked):
    """PyTorch's modules hide where a boolean mask is true, its function hides where it is false."""

    def masked(self, scores, i):
        n = scores.size(-1)
        return scores.masked_fill(causal(n).tril(-1), float("-inf"))


@unsound
class MaskAfterSoftmax(Plain):
    """Probabilities are masked, and not divided by their new sum: the old sum holds later keys."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        p = F.softmax(q @ k.transpose(-1, -2) / math.sqrt(self.head_dim), dim=-1)
        return self.merge(p.tril() @ v)


@unsound
class MaskByZero(Masked):
    """Hidden scores become 0, not minus infinity."""

    def masked(self, scores, i):
        return scores.tril()


@unsound
class MaskTooSmall(Masked):
    """A hidden score loses 3: it is seen a little."""

    def masked(self, scores, i):
        n = scores.size(-1)
        return scores + (1.0 - torch.ones(n, n).tril()) * -3.0


@unsound
class MaskOnlyOfOneLayer(Masked):
    def masked(self, scores, i):
        if i == 1:
            return scores
        return scores.masked_fill(~causal(scores.size(-1)), float("-inf"))


@unsound
class MaskOfOneHead(Masked):
    """The mask's first axis meets the heads: one head of four is masked."""

    def masked(self, scores, i):
        n = scores.size(-1)
        masked_heads = torch.arange(self.heads).view(-1, 1, 1) < 1
        return scores.masked_fill(~causal(n) & masked_heads, float("-inf"))


@unsound
class SoftmaxOverQueries(Plain):
    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = (q @ k.transpose(-1, -2)).masked_fill(~causal(x.shape[1]), -1e9)
        return self.merge(F.softmax(s / math.sqrt(self.head_dim), dim=-2) @ v)


@unsound
class SoftmaxOverHeads(Plain):
    """The wrong axis: hidden scores are the same in all heads, and so are no longer hidden."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = (q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)).masked_fill(~causal(x.shape[1]), -1e9)
        return self.merge(F.softmax(s, dim=1) @ v)


@unsound
class KeysAndQueriesSwapped(Plain):
    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = torch.einsum("bhjd,bhid->bhij", q, k) / math.sqrt(self.head_dim)
        p = s.masked_fill(~causal(x.shape[1]), float("-inf")).softmax(-1)
        return self.merge(torch.einsum("bhij,bhid->bhjd", p, v))


@unsound
class WindowWithWrongSign(Masked):
    def masked(self, scores, i):
        pos = torch.arange(scores.size(-1))
        distance = pos[None, :] - pos[:, None]
        return scores.masked_fill(~((distance >= 0) & (distance < 8)), float("-inf"))


@unsound
class WindowOnBothSides(Masked):
    def masked(self, scores, i):
        pos = torch.arange(scores.size(-1))
        return scores.masked_fill((pos[None, :] - pos[:, None]).abs() > 5, float("-inf"))


@unsound
class WindowOfBlocks(Masked):
    """Tokens see their whole block of four, the later ones of it too."""

    def masked(self, scores, i):
        block = (torch.arange(scores.size(-1)) / 4).floor()
        return scores.masked_fill(block[None, :] > block[:, None], float("-inf"))


@unsound
class PrefixIsSeen(Masked):
    """The first six tokens are a prefix that all see."""

    def masked(self, scores, i):
        n = scores.size(-1)
        seen = causal(n) | (torch.arange(n)[None, :] < 6)
        return scores.masked_fill(~seen, float("-inf"))


@unsound
class BidirectionalSdpa(Plain):
    def attend(self, x, i):
        q, k, v = self.split(x, i)
        return self.merge(F.scaled_dot_product_attention(q, k, v))


@unsound
class BidirectionalMultihead(nn.Module):
    def __init__(self, vocab=50, d=32):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, d), nn.Embedding(80, d)
        layer = nn.TransformerEncoderLayer(d, 4, 64, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        return self.head(self.body(self.emb(ids) + self.pos(torch.arange(ids.size(1)))))


@unsound
class HeadsAndTokensSwapped(Plain):
    """The outputs are folded without the transposition: features of later tokens land in earlier ones."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(self.head_dim)
        p = s.masked_fill(~causal(x.shape[1]), float("-inf")).softmax(-1)
        return torch.einsum("bhij,bhjd->bhid", p, v).reshape(x.shape)


@unsound
class ViewedAcrossTokens(Plain):
    """q, k and v are viewed as heads before tokens, without the transposition."""

    def attend(self, x, i):
        b, t, d = x.shape
        q, k, v = (y.reshape(b, self.heads, t, self.head_dim) for y in self.qkv[i](x).split(d, dim=-1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)


class Then(Usual):
    """A causal decoder, and something between its layers."""

    def between(self, x):
        raise NotImplementedError

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for i in range(self.depth):
            x = x + self.out[i](self.attend(self.norms[2 * i](x), i))
            x = self.between(x + self.ffs[i](self.norms[2 * i + 1](x)))
        return self.head(x)


@unsound
class LessMeanOfTokens(Then):
    def between(self, x):
        return x - x.mean(dim=1, keepdim=True)


@unsound
class NormOverTokens(Then):
    def between(self, x):
        return F.normalize(x, dim=1) * 3


@unsound
class NormOverTokensAndFeatures(Then):
    def between(self, x):
        return F.layer_norm(x, x.shape[1:])


@unsound
class BatchStatistics(Then):
    """BatchNorm left in training mode."""

    def between(self, x):
        mean = x.mean(dim=(0, 1))
        var = x.var(dim=(0, 1), unbiased=False)
        return (x - mean) / torch.sqrt(var + 1e-5)


@unsound
class GatedByGreatest(Then):
    """A gate of the greatest value of each feature over the tokens, as squeeze-and-excite has it."""

    def between(self, x):
        return x * torch.sigmoid(x.amax(dim=1, keepdim=True))


@unsound
class ScaledByAllTokens(Then):
    """The scale of an 8-bit activation is taken over the whole tensor."""

    def between(self, x):
        scale = x.abs().amax() / 127.0
        return torch.clamp(x / scale, -100.0, 100.0) * scale


@unsound
class NextTokenMixed(Then):
    """A shift of tokens in the wrong direction."""

    def between(self, x):
        return x + 0.5 * torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)[:, 1:]


@unsound
class RolledByOne(Then):
    """torch.roll brings the last token to the first place."""

    def between(self, x):
        return x + 0.5 * torch.roll(x, shifts=1, dims=1)


@unsound
class Flipped(Then):
    """A backward layer: tokens are flipped, and flipped back."""

    def attend(self, x, i):
        if i == 0:
            return super().attend(x, i)
        return super().attend(x.flip(1), i).flip(1)

    def between(self, x):
        return x


@unsound
class ReverseCumulativeSum(Then):
    """A running sum as a product with a triangle of ones: the wrong triangle."""

    def between(self, x):
        n = x.shape[1]
        return x + 0.1 * (torch.ones(n, n).triu() @ x)


@unsound
class PooledQuery(Usual):
    """Queries get the mean of all tokens."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        q = q + q.mean(dim=2, keepdim=True)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@unsound
class LastTokenAsSummary(Then):
    """The last token's state is added to all."""

    def between(self, x):
        return x + x[:, -1:, :]


@unsound
class PositionsFromTheEnd(Usual):
    """Learned positions count down to the last token."""

    def forward(self, ids):
        x = self.tok(ids) + self.pos(ids.shape[1] - 1 - torch.arange(ids.shape[1]))
        for i in range(self.depth):
            x = x + self.out[i](self.attend(self.norms[2 * i](x), i))
            x = x + self.ffs[i](self.norms[2 * i + 1](x))
        return self.head(x)


@unsound
class ScaleByLength(Plain):
    """Scores grow with the logarithm of the prompt's length, not with the query's position."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = q @ k.transpose(-1, -2) * (math.log(40.0) / self.head_dim**0.5)
        s = s * (torch.ones(x.shape[1]).sum().log() + 0.5)
        return self.merge(s.masked_fill(~causal(x.shape[1]), float("-inf")).softmax(-1) @ v)


@unsound
class RenormalisedByColumns(Plain):
    """Masked exponents are divided by the sums of the wrong axis."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        w = torch.exp(q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)).tril()
        return self.merge(w / w.sum(dim=-2, keepdim=True) @ v)


@unsound
class GreatestOfTheTensor(Plain):
    """A softmax by hand: the greatest is taken over hidden scores too, which changes nothing but rounding."""

    def attend(self, x, i):
        q, k, v = self.split(x, i)
        s = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        e = torch.exp(s - s.amax(dim=(-1, -2), keepdim=True)) * causal(x.shape[1])
        return self.merge(e / e.sum(-1, keepdim=True) @ v)


@unsound
def nano_gpt_with_a_buffer_of_ones():
    """The mask's buffer lost its triangle, as after a bad load of a checkpoint."""
    model = GPT(GPTConfig(), flash=False)
    for block in model.transformer.h:
        block.attn.bias.fill_(1.0)
    return model


@unsound
def llama_with_a_mask_past_the_start():
    class Offset(Transformer):
        def forward(self, tokens):
            return super().forward(tokens, start_pos=2)

    return Offset(ModelArgs(n_kv_heads=2), is_complex=False)


@unsound
def rotate_half_with_a_mask_of_rows():
    class Rows(HfModel):
        def causal_mask(self, x, cache_position):
            return super().causal_mask(x, cache_position).transpose(-1, -2)

    return Rows(85, 32, 4, 2, 8)


@unsound
def lit_with_a_full_mask():
    class Full(LitGPT):
        def feed(self, block, x):
            attended = block["attn"](
                x, self.cos[: x.size(1)], self.sin[: x.size(1)], torch.ones(1, 1, 1, x.size(1)).bool()
            )
            return super().feed(block, attended)

    return Full(70, 32, 4, 4, 8, 1.0, False, "rms", "llama")
