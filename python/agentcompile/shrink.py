"""The architecture of a transformers model with small sizes, no two of them equal."""

import copy
import math

import torch

from .errors import CaptureError
from .export import Model

HEAD_SIZE, VOCABULARY, WINDOW = 16, 211, 11
MOST_LAYERS = 8


def shrink(model: Model) -> tuple:
    """(Model, the sizes in words). What is not a size stays: kinds of layers, RoPE, activations,
    biases, whether heads share keys."""
    config = copy.deepcopy(model.module.config)
    sizes = _sizes(config)
    layers = sizes["num_hidden_layers"]
    width = config.hidden_size
    for name, value in list(config.to_dict().items()):
        if type(value) is int and value == width and name not in sizes:
            sizes[name] = sizes["hidden_size"]  # the same size under another name
        elif name.endswith("token_id") and type(value) is int:
            setattr(config, name, value % VOCABULARY)
    for name, value in sizes.items():
        setattr(config, name, value)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    config.dtype = torch.float32
    module = type(model.module)._from_config(
        config, dtype=torch.float32, attn_implementation=model.module.config._attn_implementation
    ).eval()
    _randomise(module)
    small = Model(
        module=module,
        name=model.name,
        architecture=model.architecture,
        is_transformers=True,
        vocab_size=VOCABULARY,
        max_length=model.max_length,
    )
    return small, ", ".join(f"{name}={value}" for name, value in sizes.items())


def _sizes(config) -> dict:
    heads = config.num_attention_heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    if heads % shared:
        raise CaptureError("the number of heads is no multiple of that of key heads")
    small_heads, small_shared = {1: (3, 3), heads: (4, 1)}.get(heads // shared, (6, 2))
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    divides = head_size * heads == config.hidden_size
    sizes = {
        "num_hidden_layers": _layers(config),
        "hidden_size": small_heads * HEAD_SIZE + (0 if divides else 8),
        "num_attention_heads": small_heads,
        "vocab_size": VOCABULARY,
    }
    if getattr(config, "num_key_value_heads", None) is not None:
        sizes["num_key_value_heads"] = small_shared
    if getattr(config, "head_dim", None) is not None:
        sizes["head_dim"] = HEAD_SIZE
    for name in ("intermediate_size", "ffn_dim"):
        if type(getattr(config, name, None)) is int:
            sizes[name] = 136
    if type(getattr(config, "sliding_window", None)) is int:
        sizes["sliding_window"] = WINDOW
    return sizes


def _layers(config) -> int:
    """The fewest that have every kind of layer, in the order of the model; at least two."""
    kinds = getattr(config, "layer_types", None) or []
    first = {kind: index for index, kind in reversed(list(enumerate(kinds)))}
    return min(max([1, *first.values()]) + 1, MOST_LAYERS, config.num_hidden_layers)


def _randomise(module: torch.nn.Module) -> None:
    """Weights that leave nothing without effect: norms off their neutral value, biases in use,
    logits some units apart."""
    generator = torch.Generator().manual_seed(7)
    tables = {id(m.weight) for m in module.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() < 2:
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
            else:
                scale = 0.3 if id(weight) in tables else 1.5 / math.sqrt(weight.shape[-1])
                weight.copy_(scale * torch.randn(weight.shape, generator=generator))
