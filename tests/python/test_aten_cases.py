"""Holds tests/data/aten_cases.json to PyTorch: each case has every argument of the op's schema, and
the result type that PyTorch itself gives."""

import json
from pathlib import Path

import pytest
import torch

LENGTH = 37
LEFT_OUT = ("device", "layout", "pin_memory", "memory_format")
FILE = Path(__file__).parent.parent / "data" / "aten_cases.json"
CASES = json.loads(FILE.read_text())


def dtype_of(name: str) -> torch.dtype:
    return getattr(torch, name)


def size(expression) -> int:
    if expression == "S":
        return LENGTH
    if isinstance(expression, int):
        return expression
    op, first, *rest = expression
    result = size(first)
    for part in rest:
        result = result + size(part) if op == "add" else result * size(part)
    return result


def stored_tensors(document: dict) -> dict:
    """The inputs, parameters and constants that the cases name, with values of their own."""
    generator = torch.Generator().manual_seed(1)
    tensors = {"ids": torch.randint(0, 50, (1, LENGTH), generator=generator)}
    for entry in document["parameters"]:
        value = torch.rand(entry["shape"], generator=generator) + 0.5
        tensors[entry["name"]] = value.to(dtype_of(entry["dtype"]))
    for entry in document["constants"]:
        dtype, shape = dtype_of(entry["dtype"]), entry["shape"]
        if "data" in entry:
            value = torch.tensor(entry["data"]).reshape(shape)
        elif "fill" in entry:
            value = torch.full(shape, entry["fill"])
        else:
            value = torch.ones(shape).tril(entry["tril"])
        tensors[entry["name"]] = value.to(dtype)
    return tensors


def argument(value, tensors: dict):
    if isinstance(value, list):
        return [argument(item, tensors) for item in value]
    if value in ("-inf", "inf", "nan"):
        return float(value)
    if not isinstance(value, dict):
        return value
    if "ref" in value:
        return tensors[value["ref"]]
    return dtype_of(value["dtype"]) if "dtype" in value else size(value["dim"])


def attention(q, k, v, scale, causal, window, softcap):
    heads, kv_heads, length = q.shape[1], k.shape[1], q.shape[2]
    k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    hidden = (distance < 0) | (distance >= (window or length))
    assert causal
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def call(op: str, args: dict, tensors: dict):
    """What PyTorch computes for one case."""
    values = {name: argument(value, tensors) for name, value in args.items()}
    namespace, name, overload = op.split(".")
    if namespace == "agentcompile":
        return attention(**values)
    function = getattr(getattr(torch.ops.aten, name), overload)
    expected = [a.name for a in function._schema.arguments if a.name not in LEFT_OUT]
    assert sorted(values) == sorted(expected)
    if op == "aten.to.device":
        values["device"] = "cpu"
    return function(**values)


@pytest.fixture(scope="module")
def tensors():
    made = stored_tensors(CASES)
    for node in CASES["prelude"]:
        made[node["name"]] = call(node["op"], node["args"], made)
    return made


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["op"])
def test_result_type(case, tensors):
    result = call(case["op"], case["args"], tensors)
    several = isinstance(case["dtype"], list)
    results = result if several else [result]
    dtypes = case["dtype"] if several else [case["dtype"]]
    shapes = case["shape"] if several else [case["shape"]]
    assert [str(x.dtype).removeprefix("torch.") for x in results] == dtypes
    assert [list(x.shape) for x in results] == [[size(s) for s in shape] for shape in shapes]
