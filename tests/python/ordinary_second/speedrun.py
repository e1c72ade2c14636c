"""Decoders after training-speed contests and a parallel model with interleaved rotary pairs."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from . import ordinary


def norm(x):
    return F.rms_norm(x, (x.size(-1),))


class CastedLinear(nn.Linear):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features, bias=False)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class Rotary(nn.Module):
    def __init__(self, dim, base=1024):
        super().__init__()
        self.inv_freq = (1 / base) ** torch.linspace(0, 1, steps=dim // 2, dtype=torch.float32)
        self.seq_len_cached = None

    def forward(self, x):
        n = x.shape[1]
        if n != self.seq_len_cached:
            self.seq_len_cached = n
            freqs = torch.outer(torch.arange(n).type_as(self.inv_freq), self.inv_freq)
            self.cos_cached, self.sin_cached = freqs.cos(), freqs.sin()
        cos, sin = self.cos_cached[None, :, None, :], self.sin_cached[None, :, None, :]
        x1, x2 = x.float().chunk(2, dim=3)
        return torch.cat((x1 * cos + x2 * sin, x1 * (-sin) + x2 * cos), 3).type_as(x)


class SpeedBlock(nn.Module):
    def __init__(self, dim, heads, zero):
        super().__init__()
        self.c_q, self.c_k, self.c_v = CastedLinear(dim, dim), CastedLinear(dim, dim), CastedLinear(dim, dim)
        self.c_proj, self.c_fc = CastedLinear(dim, dim), CastedLinear(dim, 4 * dim)
        self.c_out = CastedLinear(4 * dim, dim)
        self.lambdas = nn.Parameter(torch.tensor([1.0, 0.0]))
        self.v_lambdas = nn.Parameter(torch.tensor([0.5, 0.5]))
        self.rotary, self.heads = Rotary(dim // heads), heads
        if zero:
            self.c_proj.weight.data.zero_()

    def attn(self, x, v1):
        B, T, C = x.size()
        q = self.c_q(x).view(B, T, self.heads, -1)
        k = self.c_k(x).view(B, T, self.heads, -1)
        v = self.c_v(x).view(B, T, self.heads, -1)
        v1 = v if v1 is None else v1
        v = self.v_lambdas[0] * v + self.v_lambdas[1] * v1.view_as(v)
        q, k = self.rotary(norm(q)), self.rotary(norm(k))
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                           is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)), v1

    def forward(self, x, v1, x0):
        x = self.lambdas[0] * x + self.lambdas[1] * x0
        y, v1 = self.attn(norm(x), v1)
        x = x + y
        return x + self.c_out(F.relu(self.c_fc(norm(x))).square()), v1


@ordinary
class SpeedrunValueResidualSkips(nn.Module):
    """Squared ReLU, normed queries and keys, first-layer values everywhere, U-shaped skips, a cap of 30."""

    def __init__(self, vocab=64, dim=48, heads=6, layers=4):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.h = nn.ModuleList([SpeedBlock(dim, heads, zero=True) for _ in range(layers)])
        self.encoder_layers = layers // 2
        self.skip_weights = nn.Parameter(torch.ones(layers - layers // 2))
        self.lm_head = CastedLinear(dim, vocab)

    def forward(self, idx):
        x = norm(self.wte(idx))
        x0, v1, skips = x, None, []
        for i, block in enumerate(self.h):
            if i >= self.encoder_layers:
                x = x + self.skip_weights[i - self.encoder_layers] * skips.pop()
            x, v1 = block(x, v1, x0)
            if i < self.encoder_layers:
                skips.append(x)
        return 30 * torch.tanh(self.lm_head(norm(x)) / 30).float()


@ordinary
class CohereParallelInterleavedLogitScale(nn.Module):
    """One norm without bias feeds attention and MLP; cos and sin repeat for each pair of channels."""

    def __init__(self, vocab=70, d=48, heads=4, kv=2, ffn=96, logit_scale=0.0625):
        super().__init__()
        self.embed_tokens, self.heads, self.kv, self.hd = nn.Embedding(vocab, d), heads, kv, d // heads
        self.logit_scale = logit_scale
        self.layers = nn.ModuleList(nn.ModuleDict({
            "scale": nn.ParameterDict({"weight": nn.Parameter(torch.ones(d))}),
            "q_proj": nn.Linear(d, d, bias=False), "k_proj": nn.Linear(d, kv * self.hd, bias=False),
            "v_proj": nn.Linear(d, kv * self.hd, bias=False), "o_proj": nn.Linear(d, d, bias=False),
            "gate": nn.Linear(d, ffn, bias=False), "up": nn.Linear(d, ffn, bias=False),
            "down": nn.Linear(ffn, d, bias=False)}) for _ in range(2))
        self.final = nn.Parameter(torch.ones(d))

    @staticmethod
    def layer_norm(x, weight):
        dtype, x = x.dtype, x.to(torch.float32)
        x = x - x.mean(-1, keepdim=True)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (weight.to(torch.float32) * x).to(dtype)

    def rotate(self, x, cos, sin):
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
        return x * cos + turned * sin

    def forward(self, ids):
        b, n = ids.shape
        inv_freq = 1.0 / (10000 ** (torch.arange(0, self.hd, 2).float() / self.hd))
        emb = torch.repeat_interleave(torch.arange(n)[:, None].float() * inv_freq, 2, dim=-1)
        cos, sin = emb.cos()[None, None], emb.sin()[None, None]
        keep = torch.arange(n)[None, :] <= torch.arange(n)[:, None]
        x = self.embed_tokens(ids)
        for p in self.layers:
            y = self.layer_norm(x, p["scale"]["weight"])
            q = self.rotate(p["q_proj"](y).view(b, n, -1, self.hd).transpose(1, 2), cos, sin)
            k = self.rotate(p["k_proj"](y).view(b, n, -1, self.hd).transpose(1, 2), cos, sin)
            v = p["v_proj"](y).view(b, n, -1, self.hd).transpose(1, 2)
            k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
            att = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[None, None])
            att = p["o_proj"](att.transpose(1, 2).reshape(b, n, -1))
            x = x + att + p["down"](F.silu(p["gate"](y)) * p["up"](y))
        return F.linear(self.layer_norm(x, self.final), self.embed_tokens.weight) * self.logit_scale


@ordinary
class GraniteMultipliersScaledInit(nn.Module):
    """Fixed multipliers scale embeddings, scores, residuals and logits; a bool mask grows in a cache."""

    def __init__(self, vocab=64, d=64, heads=4, layers=2, inter=128):
        super().__init__()
        self.embed_tokens, self.heads, self.hd = nn.Embedding(vocab, d), heads, d // heads
        self.embedding_multiplier, self.attention_multiplier = 12.0, 1.0 / self.hd
        self.residual_multiplier, self.logits_scaling = 1.4 / layers ** 0.5, d / 16
        self.rms1 = nn.ParameterList(nn.Parameter(torch.ones(d)) for _ in range(layers))
        self.rms2 = nn.ParameterList(nn.Parameter(torch.ones(d)) for _ in range(layers))
        self.W_pack = nn.ModuleList(nn.Linear(d, 3 * d, bias=False) for _ in range(layers))
        self.o_proj = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(layers))
        self.input_linear = nn.ModuleList(nn.Linear(d, 2 * inter, bias=False) for _ in range(layers))
        self.output_linear = nn.ModuleList(nn.Linear(inter, d, bias=False) for _ in range(layers))
        self.norm, self.mask = nn.RMSNorm(d, eps=1e-5), None
        angle = torch.outer(torch.arange(128).float(), 1.0 / 10000 ** (torch.arange(0, self.hd, 2) / self.hd))
        self.register_buffer("table", torch.stack((angle.cos(), angle.sin())), persistent=False)

    def rotate(self, x):
        cos, sin = self.table[:, : x.size(2)]
        left, right = x[..., : self.hd // 2], x[..., self.hd // 2:]
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)

    def causal(self, n):
        if self.mask is None or self.mask.size(0) < n:
            self.mask = torch.ones(n, n, dtype=torch.bool).tril()
        return self.mask[:n, :n]

    def rms(self, x, gain):
        return x / torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5) * gain

    def forward(self, ids):
        b, n = ids.shape
        x = self.embed_tokens(ids) * self.embedding_multiplier
        for i, gain in enumerate(self.rms1):
            proj = self.W_pack[i](self.rms(x, gain)).unflatten(-1, (3, -1))
            proj = proj.unsqueeze(0).transpose(0, -2).squeeze(-2)
            q, k, v = (t.view(b, n, self.heads, self.hd).transpose(1, 2) for t in proj)
            scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) * self.attention_multiplier
            scores = torch.where(self.causal(n), scores, scores.new_tensor(-1e9))
            att = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1)
            x = x + self.o_proj[i](att) * self.residual_multiplier
            gate, up = self.input_linear[i](self.rms(x, self.rms2[i])).chunk(2, dim=-1)
            x = x + self.output_linear[i](F.silu(gate) * up) * self.residual_multiplier
        return F.linear(self.norm(x), self.embed_tokens.weight) / self.logits_scaling
