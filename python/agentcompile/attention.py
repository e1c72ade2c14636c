"""Keeps attention whole: one opaque op in the captured graph instead of repeat, mask and softmax.

HuggingFace models reach it through transformers' own registries, where a name selects an attention
function and the function that makes its mask. Ours makes no mask at all: it works out which rule
the model asked for, and hands that rule to the attention function under the guise of a mask.
"""

import math
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from .errors import CaptureError

IMPLEMENTATION = "agentcompile"


@torch.library.custom_op("agentcompile::attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    causal: bool,
    window: int,
    softcap: float,
) -> torch.Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = torch.matmul(q, k.transpose(2, 3)).float() * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    age = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None, :]
    visible = age >= 0 if causal else torch.ones_like(age, dtype=torch.bool)
    if window:
        visible &= age < window
    scores = scores.masked_fill(~visible, -math.inf)
    return torch.matmul(torch.softmax(scores, dim=-1).to(v.dtype), v)


@attention.register_fake
def _(q, k, v, scale, causal, window, softcap):
    return q.new_empty(q.shape[0], q.shape[1], q.shape[2], v.shape[3])


@dataclass(frozen=True)
class Rule:
    """What passes through a model in place of its attention mask: causal, with this window."""

    window: int


def classify_mask(mask_function) -> int:
    """The window of a causal mask rule (0: none); refuses a rule that is not of that kind.

    The rule is a function of indices, so a few of its rows tell it apart from every other rule
    that transformers builds (bidirectional, chunked, block-wise, packed).
    """
    zero = torch.zeros(1, dtype=torch.int64)

    def row(i: int) -> torch.Tensor:
        query, keys = torch.tensor([i])[:, None], torch.arange(i + 9)[None, :]
        return mask_function(zero[:, None], zero[:, None], query, keys).expand(1, i + 9)[0]

    far = 1 << 20
    seen = int(row(far).sum())
    window = 0 if seen == far + 1 else seen
    for i in (0, 1, 5, 37, max(window - 1, 0), window, window + 1, 3 * window + 5, far, far + 77):
        keys = torch.arange(i + 9)
        wanted = (keys <= i) & (keys > i - window if window else keys >= 0)
        if not torch.equal(row(i), wanted):
            raise CaptureError(
                "the attention mask is neither causal nor causal with a sliding window: only "
                "those can become an incremental step"
            )
    return window


def _outside_export(function, *args):
    """Runs on real tensors: export's tracing modes belong to its thread, so use another."""
    outcome = {}

    def body():
        try:
            outcome["value"] = function(*args)
        except Exception as error:  # handed to the caller's thread
            outcome["error"] = error

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def mask_rule(*_, mask_function=None, **__):
    """The mask function that transformers calls once for each kind of layer."""
    if mask_function is None:
        raise CaptureError("this version of transformers does not say which mask it wants")
    return Rule(_outside_export(classify_mask, mask_function))


def eager_mask(*, q_length, kv_length, dtype=torch.float32, **arguments) -> torch.Tensor:
    """The mask of transformers' eager attention, from comparisons of positions alone: no padding."""
    window = mask_rule(**arguments).window
    age = torch.arange(q_length)[:, None] - torch.arange(kv_length)[None, :]
    visible = age >= 0
    if window:
        visible = visible & (age < window)
    hidden = torch.full((), torch.finfo(dtype).min, dtype=dtype)
    return torch.where(visible, torch.zeros((), dtype=dtype), hidden)[None, None]


def implementation_for(model_class) -> str:
    """Our attention, where the model's code asks transformers' registry for one; else its own."""
    code = vars(sys.modules[model_class.__module__])
    return IMPLEMENTATION if "ALL_ATTENTION_FUNCTIONS" in code else "eager"


@contextmanager
def provable_masks():
    """While a model is traced, the masks of its own attention are such as the compiler can prove."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as registry

    before = registry["eager"]
    registry["eager"] = eager_mask
    try:
        yield
    finally:
        registry["eager"] = before


def attention_forward(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, **kwargs
):
    """The attention function that transformers calls in each layer."""
    name = type(module).__name__
    for extra in ("s_aux", "sinks", "position_bias", "head_mask", "alibi"):
        if kwargs.get(extra) is not None:
            raise CaptureError(f"{name} passes '{extra}' to attention: not supported")
    if dropout:
        raise CaptureError(f"{name} applies dropout to attention: call .eval() on the model")
    causal = kwargs.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise CaptureError(f"{name} is not causal: only causal decoders can be captured")
    if isinstance(attention_mask, Rule):
        window = attention_mask.window
    elif attention_mask is None:
        window = kwargs.get("sliding_window") or 0
    else:
        raise CaptureError(f"{name} builds an attention mask of its own: not supported")
    if query.shape[1] % key.shape[1]:
        raise CaptureError(f"{name}: {query.shape[1]} heads are no multiple of {key.shape[1]}")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    out = attention(query, key, value, scale, True, int(window), float(softcap or 0.0))
    return out.transpose(1, 2), None


def register() -> None:
    """Makes IMPLEMENTATION known to transformers."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, attention_forward)
    AttentionMaskInterface.register(IMPLEMENTATION, mask_rule)
