"""An independent reading of the capture format for the tests: checks a capture's structure, and
runs it with nothing but the file and the weights that it names."""

import json
import math
from pathlib import Path

import torch
from safetensors import safe_open

KEYS = [
    "format",
    "format_version",
    "producer",
    "model",
    "symbols",
    "roots",
    "inputs",
    "parameters",
    "constants",
    "nodes",
    "outputs",
    "checked",
]
BINARY = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _no_duplicates(pairs: list) -> dict:
    assert len({key for key, _ in pairs}) == len(pairs), "duplicate key"
    return dict(pairs)


def _no_literal(text: str):
    raise AssertionError(f"{text} is no JSON")


def read(path) -> dict:
    text = Path(path).read_text(encoding="utf-8")
    return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_literal)


def size(expression, length: int) -> int:
    if isinstance(expression, list):
        kind, *parts = expression
        parts = [size(part, length) for part in parts]
        if kind == "add":
            return sum(parts)
        if kind == "mul":
            return math.prod(parts)
        assert len(parts) == 2
        return BINARY[kind](*parts)
    if expression == "S":
        return length
    assert type(expression) is int, expression
    return expression


def _references(value):
    if isinstance(value, dict) and "ref" in value:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _op(name: str):
    namespace, op, overload = name.split(".")
    assert namespace == "aten", name
    return getattr(getattr(torch.ops.aten, op), overload)


def validate(capture: dict, folder: Path) -> None:
    """Everything that docs/capture-format.md promises and a reader can check without running."""
    assert list(capture) == KEYS
    assert capture["format"] == "agentcompile.capture" and capture["format_version"] == 1
    assert list(capture["symbols"]) == ["S"] and capture["symbols"]["S"]["min"] == 1
    kinds = [entry["kind"] for entry in capture["inputs"]]
    assert kinds.count("ids") == 1 and kinds.count("positions") <= 1 and len(kinds) <= 2
    known = {}
    for entry in capture["inputs"]:
        known[entry["name"]] = entry
        assert entry["shape"] == [1, "S"] and entry["dtype"] == "int64"
    paths = set()
    for entry in capture["parameters"]:
        assert entry["name"] not in known
        known[entry["name"]] = entry
        for path in (entry["path"], *entry["aliases"]):
            assert path not in paths
            paths.add(path)
        assert entry["root"] in capture["roots"] and all(type(n) is int for n in entry["shape"])
        if entry["file"] is not None:
            assert _stored(capture, entry, folder)[1] == entry["shape"]
    for entry in capture["constants"]:
        assert entry["name"] not in known
        known[entry["name"]] = entry
        assert sum(key in entry for key in ("data", "fill", "tril", "range", "triangle", "file")) == 1
        if "data" in entry:
            assert len(entry["data"]) == math.prod(entry["shape"])
    for node in capture["nodes"]:
        assert set(node) - {"source"} == {"name", "op", "args", "dtype", "shape", "module"}
        assert node["name"] not in known, "names are unique"
        for reference in _references(list(node["args"].values())):
            assert reference["ref"] in known, f"{node['name']} comes before its operand"
        if node["op"] == "agentcompile.attention.default":
            assert list(node["args"]) == ["q", "k", "v", "scale", "causal", "window", "softcap"]
        else:
            arguments = [a.name for a in _op(node["op"])._schema.arguments]
            left_out = set(arguments) - set(node["args"])
            assert left_out <= {"device", "layout", "pin_memory", "memory_format"}
        known[node["name"]] = node
    (output,) = capture["outputs"]
    shape = known[output["ref"]]["shape"]
    assert output["name"] == "logits" and shape == [1, "S", capture["model"]["vocab_size"]]


def _file(capture: dict, entry: dict, folder: Path) -> Path:
    return folder / capture["roots"][entry["root"]] / entry["file"]


def _stored(capture: dict, entry: dict, folder: Path):
    with safe_open(_file(capture, entry, folder), framework="pt") as archive:
        tensor = archive.get_tensor(entry["key"])
    return tensor, list(tensor.shape)


def _constant(capture: dict, entry: dict, folder: Path) -> torch.Tensor:
    dtype, shape = getattr(torch, entry["dtype"]), entry["shape"]
    if "fill" in entry:
        return torch.full(shape, SPECIAL.get(entry["fill"], entry["fill"]), dtype=dtype)
    if "tril" in entry:
        return torch.ones(shape, dtype=dtype).tril(entry["tril"])
    if "range" in entry:
        start, step = entry["range"]
        return (torch.arange(math.prod(shape)) * step + start).to(dtype).reshape(shape)
    if "triangle" in entry:
        keep = torch.ones(shape[-2:], dtype=torch.bool).tril(entry["triangle"]["diagonal"])
        below, above = (
            torch.tensor(SPECIAL.get(value, value), dtype=dtype)
            for value in (entry["triangle"]["below"], entry["triangle"]["above"])
        )
        return torch.where(keep, below, above).expand(shape)
    if "data" in entry:
        values = [SPECIAL.get(value, value) for value in entry["data"]]
        return torch.tensor(values, dtype=dtype).reshape(shape)
    return _stored(capture, entry, folder)[0].to(dtype)


def _attend(q, k, v, scale, causal, window, softcap):
    """Attention row by row, straight from the words in docs/capture-format.md."""
    assert causal
    heads, length, group = q.shape[1], q.shape[2], q.shape[1] // k.shape[1]
    out = q.new_zeros(1, heads, length, v.shape[3])
    for h in range(heads):
        for i in range(length):
            first = max(0, i - window + 1) if window else 0
            keys, values = k[0, h // group, first : i + 1], v[0, h // group, first : i + 1]
            scores = keys.float() @ q[0, h, i].float() * scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            out[0, h, i] = (torch.softmax(scores, 0) @ values.float()).to(out.dtype)
    return out


class Runner:
    def __init__(self, path):
        self.folder = Path(path).parent
        self.capture = read(path)
        validate(self.capture, self.folder)
        self.fixed = {}
        for entry in self.capture["parameters"]:
            value, _ = _stored(self.capture, entry, self.folder)
            self.fixed[entry["name"]] = value.to(getattr(torch, entry["dtype"]))
        for entry in self.capture["constants"]:
            self.fixed[entry["name"]] = _constant(self.capture, entry, self.folder)

    def logits(self, ids: list) -> torch.Tensor:
        """Logits [S, vocab]; every value must have the dtype and shape that the file states."""
        values = dict(self.fixed)
        for entry in self.capture["inputs"]:
            data = ids if entry["kind"] == "ids" else list(range(len(ids)))
            values[entry["name"]] = torch.tensor([data])
        for node in self.capture["nodes"]:
            values[node["name"]] = result = self._run(node, values, len(ids))
            assert str(result.dtype) == f"torch.{node['dtype']}", node
            assert list(result.shape) == [size(e, len(ids)) for e in node["shape"]], node
        return values[self.capture["outputs"][0]["ref"]][0]

    def _run(self, node: dict, values: dict, length: int) -> torch.Tensor:
        arguments = {k: self._value(v, values, length) for k, v in node["args"].items()}
        if node["op"] == "agentcompile.attention.default":
            return _attend(**arguments)
        op = _op(node["op"])
        positional, named = [], {}
        for argument in op._schema.arguments:
            if argument.name in arguments and argument.kwarg_only:
                named[argument.name] = arguments[argument.name]
            elif argument.name in arguments:
                positional.append(arguments[argument.name])
        return op(*positional, **named)

    def _value(self, value, values: dict, length: int):
        if isinstance(value, list):
            return [self._value(item, values, length) for item in value]
        if isinstance(value, dict):
            (kind,) = value.keys() - {"index"}
            if kind == "dim":
                return size(value["dim"], length)
            if kind == "dtype":
                return getattr(torch, value["dtype"])
            found = values[value["ref"]]
            return found[value["index"]] if "index" in value else found
        return SPECIAL.get(value, value) if isinstance(value, str) else value
