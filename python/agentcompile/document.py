"""Writes an exported program down in the capture format (docs/capture-format.md)."""

import operator
import platform
import re
from pathlib import Path

import sympy
import torch
from torch.export.graph_signature import InputKind

from . import weights
from .errors import CaptureError
from .export import MAX_LENGTH, Model, agrees, bind, longest_under, where
from .weights import dtype_name

aten = torch.ops.aten

# Ops that take the shape of their result, where a -1 stands for what the shape already says.
SIZED = {aten.reshape.default: "shape", aten.expand.default: "size"}

LEFT_OUT = ("device", "layout", "pin_memory", "memory_format")

OPERATORS = {"FloorDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "CleanDiv": "floordiv"}


def versions() -> dict:
    try:
        import transformers

        version = transformers.__version__
    except ImportError:
        version = None
    python = ".".join(platform.python_version_tuple()[:2])
    return {"torch": torch.__version__.split("+")[0], "transformers": version, "python": python}


def source_of(node: torch.fx.Node) -> str:
    """The file and line of the model that made the node, where the export has kept it."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return f"{Path(lines[-1][0]).name}:{lines[-1][1]}" if lines else ""


class Document:
    """Collects the parts of the file; `tensors` gathers what must go to the sidecar."""

    def __init__(
        self,
        model: Model,
        checkpoint: weights.Checkpoint | None,
        program: torch.export.ExportedProgram,
        prefix: str,
        guards: list,
    ):
        """`guards` are the conditions on its inputs that the program was traced under."""
        self.guards = guards
        self.model = model
        self.checkpoint = checkpoint
        self.program = program
        self.prefix = prefix
        self.symbol = None
        self.names: set[str] = set()
        self.refs: dict[torch.fx.Node, dict] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.inputs, self.parameters, self.constants, self.nodes = [], [], [], []

    def build(self, sidecar: str) -> dict:
        self.sidecar = sidecar
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        placeholders = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        self._find_symbol(placeholders, specs)
        for node in placeholders:
            if specs[node.name].kind is InputKind.USER_INPUT:
                self._input(node)
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self.names.add(node.name)
        self.groups = self._parameter_groups()
        for node in placeholders:
            if specs[node.name].kind is not InputKind.USER_INPUT and node.users:
                self._weight(node, specs[node.name])
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self._node(node)
        roots = {"capture": "."}
        if self.model.checkpoint:
            roots["checkpoint"] = str(Path(self.model.checkpoint).resolve())
        outputs = self._outputs()
        return {
            "format": "agentcompile.capture",
            "format_version": 1,
            "producer": versions(),
            "model": {
                "name": self.model.name,
                "architecture": self.model.architecture,
                "dtype": self.dtype,
                "config_sha256": self.model.config_sha256,
                "vocab_size": self.vocab_size,
            },
            "symbols": {"S": self._lengths()},
            "roots": roots,
            "inputs": self.inputs,
            "parameters": self.parameters,
            "constants": self.constants,
            "nodes": self.nodes,
            "outputs": outputs,
        }

    def _find_symbol(self, placeholders: list, specs: dict) -> None:
        users = [n for n in placeholders if specs[n.name].kind is InputKind.USER_INPUT]
        for node in users:
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor) or value.dim() != 2 or value.dtype not in (
                torch.int64,
                torch.int32,
            ):
                raise CaptureError(f"input '{node.name}' must be token ids or positions [1, S]")
            if isinstance(value.shape[1], int):
                raise CaptureError(
                    f"the number of tokens became the constant {value.shape[1]}: the model (or "
                    "the program's export) fixes it; keep it symbolic"
                )
            if not isinstance(value.shape[0], int) or value.shape[0] != 1:
                raise CaptureError(f"input '{node.name}' must have a batch of exactly 1")
        symbols = {str(node.meta["val"].shape[1].node.expr): node for node in users}
        if len(symbols) != 1:
            raise CaptureError(f"the inputs have {len(symbols)} different lengths, not one")
        (self.symbol,) = symbols

    def _lengths(self) -> dict:
        """The numbers of tokens that the graph is right for, and why no more."""
        most, because = MAX_LENGTH, f"captures are made for at most {MAX_LENGTH} tokens"
        if self.model.max_length and self.model.max_length < most:
            most = self.model.max_length
            because = f"the config's max_position_embeddings is {most}"
        for symbol, limits in self.program.range_constraints.items():
            if str(symbol) != self.symbol:
                continue
            if limits.lower > 2:  # tracing starts at 2; the check of the capture covers 1
                raise CaptureError(
                    f"the model is only right for at least {limits.lower} tokens: it tests the "
                    "length"
                )
            if limits.upper.is_finite and int(limits.upper) < most:
                most = int(limits.upper)
                because = f"the model tests the length, or slices what has room for {most} tokens"
        most, broken = longest_under(
            self.guards, most, lambda length: agrees(self.model, self.program, length) is True
        )
        if broken:
            because = f"the model tests the length, and takes another branch unless {broken}"
        if self.prefix:
            self._refuse_another_trace(min(most, 3))
        return {"min": 1, "max": most, "because": because}

    def _refuse_another_trace(self, length: int) -> None:
        """Tracing runs the forward once, and never with a single token."""
        if agrees(self.model, self.program, length) is False:
            raise CaptureError(
                "what PyTorch traced of the model is not what the model computes: the forward keeps "
                "a state between calls, or asks whether it is being traced"
            )
        if agrees(self.model, self.program, 1) is False:
            raise CaptureError(
                "the model is only right for at least 2 tokens: it computes something else for one, "
                "by a test of the length or by squeezing the tokens' axis"
            )

    def _input(self, node: torch.fx.Node) -> None:
        kind = "positions" if "pos" in node.name else "ids"
        if any(entry["kind"] == kind for entry in self.inputs):
            raise CaptureError(f"two inputs look like {kind}: a capture has one input of each kind")
        self.inputs.append({"name": node.name, "kind": kind, **self._meta(node.meta["val"])})
        self.names.add(node.name)
        self.refs[node] = {"ref": node.name}

    def _parameter_groups(self) -> dict:
        if not self.prefix:  # an exported program, which keeps them itself
            return weights.same_storage(self.program.state_dict)
        named = self.model.module.named_parameters(remove_duplicate=False)
        return weights.same_storage(dict(named))

    def _unique(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def _weight(self, node: torch.fx.Node, spec) -> None:
        if spec.kind is InputKind.PARAMETER:
            self._parameter(node, spec.target.removeprefix(self.prefix))
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            self._constant(node, spec.target)
        else:
            raise CaptureError(f"the model has an input '{node.name}' that is no tensor")

    def _parameter(self, node: torch.fx.Node, target: str) -> None:
        path, *aliases = self.groups[target]
        for entry in self.parameters:
            if entry["path"] == path:
                self.refs[node] = {"ref": entry["name"]}
                return
        entry = {"name": self._unique(path), "path": path, "aliases": aliases}
        entry.update(self._meta(node.meta["val"]))
        if self.checkpoint:
            is_linear = self.model.quantized and all(map(self._is_linear, [path, *aliases]))
            if is_linear:
                stored = self.checkpoint.find_module([path, *aliases])
                entry["linear"] = True
            else:
                stored = self.checkpoint.find([path, *aliases], entry["shape"])
            entry.update(
                root="checkpoint",
                file=stored.file if stored else None,
                key=stored.key if stored else path,
            )
        else:
            self.tensors[path] = self.program.state_dict[self.prefix + target]
            entry.update(root="capture", file=self.sidecar, key=path)
        self.parameters.append(entry)
        self.refs[node] = {"ref": entry["name"]}

    def _is_linear(self, path: str) -> bool:
        module, _, name = path.rpartition(".")
        return name == "weight" and isinstance(self.model.module.get_submodule(module), torch.nn.Linear)

    def _constant(self, node: torch.fx.Node, target: str) -> None:
        path = target.removeprefix(self.prefix)
        state, constants = self.program.state_dict, self.program.constants
        tensor = state[target] if target in state else constants[target]
        entry = {"name": self._unique(path), "path": path, **self._meta(node.meta["val"])}
        stored = self.checkpoint.by_name.get(path) if self.checkpoint else None
        if stored:
            stored = self.checkpoint.find([path], entry["shape"])
            entry.update(root="checkpoint", file=stored.file, key=stored.key)
        elif tensor.is_meta:
            raise CaptureError(f"buffer '{path}' has no value: the checkpoint does not hold it")
        else:
            value = weights.constant_value(tensor)
            if value is None:
                self.tensors[path] = tensor
                value = {"root": "capture", "file": self.sidecar, "key": path}
            entry.update(value)
        self.constants.append(entry)
        self.refs[node] = {"ref": entry["name"]}

    def _node(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        if node.target is operator.getitem and isinstance(node.args[1], int):
            self.refs[node] = {**self.refs[node.args[0]], "index": node.args[1]}
            return
        if isinstance(value, (int, float, bool, torch.SymInt)):
            return  # arithmetic on sizes: its users spell it out
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise CaptureError(f"{where(node)} computes a number other than a size from the length")
        bound = {k: v for k, v in bind(node).items() if k not in LEFT_OUT}
        for op, size in SIZED.items():
            if node.target is op:
                bound[size] = list(value.shape)
        entry = {
            "name": node.name,
            "op": str(node.target),
            "args": {name: self._argument(argument, node) for name, argument in bound.items()},
        }
        if isinstance(value, torch.Tensor):
            entry.update(self._meta(value, node))
        elif isinstance(value, (tuple, list)):
            parts = [self._meta(part, node) for part in value]
            entry.update(dtype=[p["dtype"] for p in parts], shape=[p["shape"] for p in parts])
        else:
            raise CaptureError(f"{where(node)} gives no tensor")
        entry["module"] = node.meta.get("module_path", "")
        source = source_of(node)
        if source:
            entry["source"] = source
        self.nodes.append(entry)
        self.refs[node] = {"ref": node.name}

    def _argument(self, value, node: torch.fx.Node):
        if isinstance(value, torch.fx.Node):
            if value in self.refs:
                return self.refs[value]
            return self._argument(value.meta["val"], node)
        if isinstance(value, torch.SymInt):
            return {"dim": self._expression(value.node.expr, node)}
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, (list, tuple)):
            return [self._argument(item, node) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return weights.number(value)
        raise CaptureError(f"{where(node)} has an argument of the type {type(value).__name__}")

    def _meta(self, value: torch.Tensor, node=None) -> dict:
        shape = [
            size if isinstance(size, int) else self._expression(size.node.expr, node)
            for size in value.shape
        ]
        return {"dtype": dtype_name(value.dtype), "shape": shape}

    def _expression(self, expression, node=None):
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol and str(expression) == self.symbol:
            return "S"
        parts = [self._expression(part, node) for part in expression.args]
        if isinstance(expression, (sympy.Add, sympy.Mul)):
            return ["add" if isinstance(expression, sympy.Add) else "mul", *parts]
        name = type(expression).__name__
        if name in OPERATORS and len(parts) == 2:
            return [OPERATORS[name], *parts]
        if name in ("Min", "Max") and len(parts) >= 2:
            folded = parts[0]
            for part in parts[1:]:
                folded = [name.lower(), folded, part]
            return folded
        place = f"{where(node)} has" if node is not None else "an input has"
        raise CaptureError(f"{place} a size '{expression}' that does not follow from the length")

    def _outputs(self) -> list:
        (output,) = (node for node in self.program.graph.nodes if node.op == "output")
        results = output.args[0]
        if len(results) != 1 or not isinstance(results[0], torch.fx.Node):
            raise CaptureError(f"the program has {len(results)} outputs: it must give logits alone")
        value = results[0].meta["val"]
        shape = self._meta(value)["shape"]
        if len(shape) != 3 or shape[:2] != [1, "S"] or not isinstance(shape[2], int):
            raise CaptureError(
                f"the logits have the shape {shape}: they must be [1, S, vocab], for every token"
            )
        floats = [p["dtype"] for p in self.parameters if "float" in p["dtype"]]
        self.dtype, self.vocab_size = (floats or [dtype_name(value.dtype)])[0], shape[2]
        return [{"name": "logits", "ref": self.refs[results[0]]["ref"]}]
