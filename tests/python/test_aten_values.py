"""Ops that the capture takes to pieces compute what PyTorch computes, also of numbers at the edges: one
decoder gives the results of all of them as its logits."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from agentcompile import capture, check  # noqa: E402
from agentcompile.source import _live  # noqa: E402

inf, nan = float("inf"), float("nan")
ROWS = torch.tensor([
    [0.0, -0.0, 0.5, -0.5, 1.5, 2.5],
    [-1.5, -2.5, 3.0, -3.0, 0.49999997, -7.25],
    [8388607.5, -8388608.0, 2.0**24 + 2, -(2.0**31), 1e30, -1e-30],
    [0.125, 0.375, -0.625, 12345.678, -0.05, 0.15],
    [inf, 1.0, -2.0, 3.0, 0.25, -1.0],
    [nan, 1.0, -2.0, 3.0, -inf, 0.5],
    [4.0, 4.0, 4.0, -4.0, 4.0, 0.0],
])  # fmt: skip
WIDTH = ROWS.shape[1]
KERNEL = torch.linspace(-1, 1, 18).view(6, 3, 1)


def setting(x):
    y = torch.zeros_like(x)
    y[..., 0::2] = x[..., 1::2]
    y[..., 4] = 7.0
    y[..., 1:4:2] = -x[..., 0:3:2]
    return y


def setting_by_mask(x):
    y = x.clone()
    y[y < 0] = 0.5
    y[..., [1, -1]] = 2.0
    return y


def setting_unset(x):
    y = torch.empty_like(x)
    y[..., :3], y[..., 3:] = x[..., 3:], x[..., :3]
    return y


def positions_of(x):
    return torch.arange(x.shape[1])[None, :, None].expand(1, -1, WIDTH)


# With infinities and NaN too.
EVERYWHERE = [
    torch.floor, torch.ceil, torch.trunc, torch.round, torch.sign,
    lambda x: torch.round(x * 0.97, decimals=1), lambda x: torch.isnan(x).float(), lambda x: torch.isinf(x).float(),
    lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0), torch.log2, torch.log10, torch.exp2, torch.cosh,
    lambda x: x.flip(-1), lambda x: x.roll(2, -1), lambda x: x.roll(-1, -1), lambda x: F.pad(x, (2, -2), value=3.0),
    lambda x: x.amin(-1, keepdim=True).expand_as(x), lambda x: x.max(-1, keepdim=True).values.expand_as(x),
    lambda x: (x > 2).any(-1, keepdim=True).float().expand_as(x), lambda x: (x < 9).all(-1, keepdim=True).float().expand_as(x),
    lambda x: ((x > 0) ^ (x > 1)).float(), lambda x: x.cumsum(-1),
    setting, setting_by_mask, setting_unset,
    lambda x: x.gather(-1, torch.tensor([5, 0, 0, 2, 1, 3]).expand(1, x.shape[1], 6)),
    lambda x: x.gather(-1, (positions_of(x) + 2) % 6), torch.relu,
]  # fmt: skip
# Of integers, and of finite numbers.
WHOLE = [
    lambda i: i // 3, lambda i: i % 3, lambda i: i // -4, lambda i: i % -4, lambda i: torch.fmod(i, 4),
    lambda i: torch.div(i, 3, rounding_mode="trunc"), lambda i: i.cumsum(-1), lambda i: i.min(-1, keepdim=True).values.expand_as(i),
    lambda i: i.argmax(-1, keepdim=True).expand_as(i), lambda i: i.flip(-1).prod(-1, keepdim=True).expand_as(i),
]  # fmt: skip
FINITE = [
    torch.tan, torch.sinh, torch.erfc, lambda x: x.cumprod(-1), lambda x: x.prod(-1, keepdim=True).expand_as(x), lambda x: F.log_softmax(x, -1),
    lambda x: F.group_norm(x[0], 2)[None], lambda x: F.conv1d(x.mT, KERNEL, torch.arange(6.0), groups=2).mT,
    lambda x: x.argmax(-1, keepdim=True).float().expand_as(x),
    lambda x: torch.addmm(torch.full((6,), nan), x[0], torch.eye(6), beta=0)[None],
]  # fmt: skip


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding.from_pretrained(ROWS)
        # Of weights nothing is known.
        self.whole = nn.Parameter(torch.arange(-21, 21).view(7, 6), requires_grad=False)
        self.finite = nn.Parameter((7.0 * torch.arange(42)).sin().view(7, 6))

    def forward(self, ids):
        x, i, y = self.rows(ids), self.whole[ids], self.finite[ids]
        results = [f(x) for f in EVERYWHERE] + [f(i).float() for f in WHOLE] + [f(y) for f in FINITE]
        position = positions_of(x)
        counted = torch.ones_like(ids).cumsum(-1)[..., None].expand_as(x)
        results += [position // 3, position % 4, position // -3, position % -4, (position - 3) % 4, (position - 3.0) // 2, counted]
        return torch.cat([r.float() for r in results], -1)


@pytest.mark.skipif(check.find_program(None) is None, reason="the program is not built")
def test_values_are_pytorchs(tmp_path):
    model = Values().eval()
    file = tmp_path / "capture.json"
    capture.write(_live(model, "values", None, None), file)
    count = len(ROWS)
    with torch.no_grad():
        wanted = model(torch.arange(count)[None])[0].double()
    (got,), _ = check._reference(
        check.find_program(None), file, list(range(count)), [(count, count)], wanted.shape[1]
    )
    for place in range(wanted.shape[1] // WIDTH):
        columns = slice(place * WIDTH, (place + 1) * WIDTH)
        same = torch.allclose(got[:, columns], wanted[:, columns], 2e-6, 1e-6, equal_nan=True)
        assert same, (place, got[:, columns], wanted[:, columns])
