"""From a live module to a small, regular, functional ATen graph over S tokens."""

import ast
import builtins
import inspect
import math
import operator
import re
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from io import StringIO

import sympy
import torch
from torch.export import Dim
from torch.nn.modules import transformer

from . import attention, complex_numbers, narrow_integers, numpy_masks, shifts
from .errors import BadInput, CaptureError, first_line, user_frame
from .module_state import State

aten = torch.ops.aten

MAX_LENGTH = 131072
EXAMPLE_LENGTHS = (37, 41, 43, 47, 53, 59, 61, 29, 23, 19, 13, 11, 7, 5)

# Composite ops that stay whole, because their meaning is lost once they are in pieces.
WHOLE = (
    aten.linear.default,
    aten.matmul.default,
    aten.scaled_dot_product_attention.default,
    aten.rms_norm.default,
    aten.layer_norm.default,
    aten.softmax.int,
    aten.silu.default,
    aten.gelu.default,
    aten.tril.default,
    aten.triu.default,
    aten.stack.default,
)

# Ops that say the same as another one: the right-hand side is what comes out.
SYNONYMS = {
    aten.mm.default: aten.matmul.default,
    aten.bmm.default: aten.matmul.default,
    aten._neg_view.default: aten.neg.default,
    # Without strides a view is a reshape; the copies that some views need are gone.
    aten.view.default: aten.reshape.default,
    aten._unsafe_view.default: aten.reshape.default,
}

# Ops that only copy, in a functional graph with no strides.
COPIES = (
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.contiguous.default,
)

# Run-time checks of what the shapes and dtypes in the file already say.
CHECKS = (
    "_assert_tensor_metadata",
    "_assert_scalar",
    "_assert_async",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)


@dataclass
class Model:
    """What there is to capture, whatever it came from."""

    module: torch.nn.Module
    name: str
    architecture: str
    is_transformers: bool = False
    real_weights: bool = True  # False: the parameters are unset memory of the right shape
    vocab_size: int | None = None
    max_length: int | None = None
    checkpoint: str | None = None  # folder whose safetensors hold the weights
    quantized: bool = False  # its config says that weights of linears are stored in another format
    config_sha256: str | None = None


class Forward(torch.nn.Module):
    """The model behind the one signature that is captured: (ids[, positions]) -> logits."""

    def __init__(self, model: Model):
        super().__init__()
        self.model = model.module
        self.is_transformers = model.is_transformers
        self.ids_alone = False  # called as a user does, without positions and padding mask
        names = inspect.signature(model.module.forward).parameters
        # Positions with a default are the module's own affair: it may count from 2, or leave out
        # padding. transformers' models take 0, 1, 2 ... by default, but some spell that in ways
        # that only a padding mask explains; the check of the capture compares the two.
        wanted = (
            name
            for name in ("position_ids", "positions")
            if name in names
            and (model.is_transformers or names[name].default is inspect.Parameter.empty)
        )
        self.position_argument = next(wanted, None)

    def forward(self, ids, positions=None):
        kwargs = {}
        if positions is not None:
            kwargs[self.position_argument] = positions
        if self.is_transformers:
            # Without a padding mask transformers looks for packed sequences in the positions.
            kwargs["use_cache"] = False
            if not self.ids_alone:
                kwargs["attention_mask"] = torch.ones_like(ids)
        out = self.model(ids, **kwargs)
        if hasattr(out, "logits"):
            out = out.logits
        elif isinstance(out, dict):
            out = out.get("logits")
        elif isinstance(out, (tuple, list)):
            out = out[0]
        if not isinstance(out, torch.Tensor):
            raise CaptureError(f"the model returns {type(out).__name__}, not a tensor of logits")
        return out

    def arguments(self, ids: torch.Tensor) -> tuple:
        if self.position_argument is None or (self.ids_alone and self.is_transformers):
            return (ids,)
        return ids, torch.arange(ids.shape[1])[None, :]


def example_ids(model: Model, length: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + length)
    return torch.randint(0, model.vocab_size or 2, (1, length), generator=generator)


def pick_length(model: Model, forward: Forward) -> int:
    """An example length that no other dimension has (so that S cannot be mistaken for it) and
    that the model takes; a plain model is simply tried."""
    tensors = [*model.module.parameters(), *model.module.buffers()]
    taken = {size for tensor in tensors for size in tensor.shape}
    limit = model.max_length or MAX_LENGTH
    failure = None
    for length in EXAMPLE_LENGTHS:
        if length in taken or length > limit:
            continue
        if not model.real_weights:
            return length
        try:
            arguments = forward.arguments(example_ids(model, length))
            _run_twice(model.module, lambda: forward(*arguments))
            return length
        except CaptureError:
            raise
        except Exception as error:  # whatever the user's model raises
            failure = failure or error
    if failure is None:
        raise CaptureError(f"the model takes at most {limit} tokens: too few to capture it")
    raise BadInput(
        f"the forward of {model.architecture} raises on random tokens{user_frame(failure)}: "
        f"{first_line(failure)}"
    ) from failure


def _run_twice(module: torch.nn.Module, run) -> None:
    """Runs the forward, and refuses one that changes a buffer. The first run may still fill a
    lazy cache, so only the second is watched."""
    with torch.no_grad():
        run()
        before = {name: (buffer, buffer._version) for name, buffer in module.named_buffers()}
        run()
    for name, buffer in module.named_buffers():
        old, version = before.get(name, (None, 0))
        if buffer is not old or buffer._version != version:
            raise CaptureError(
                f"the forward writes to the buffer '{name}': a decoder that changes its own state "
                "(a cache, say) cannot be captured; make the forward pure"
            )


def _indices_of(triangle):
    def indices(row, col, offset=0, **_):
        return triangle(torch.ones(row, col), offset).nonzero().t()

    return indices


_plain_len = len


def _len(x):
    return x.shape[0] if isinstance(x, torch.Tensor) and x.dim() else _plain_len(x)


def _is_several(asks: torch.SymBool) -> bool:
    """Whether a comparison of the number of tokens is false for one and true for all others."""
    expression = asks.node.expr
    if not isinstance(expression, sympy.Rel) or isinstance(expression, sympy.Eq):
        return False
    if len(expression.free_symbols) != 1:
        return False
    (tokens,) = expression.free_symbols
    apart = expression.lhs - expression.rhs
    if not apart.is_polynomial(tokens) or sympy.degree(apart, tokens) != 1:
        return False  # only a line is apart from 0 on one side, or everywhere but once
    return not expression.subs(tokens, 1) and bool(expression.subs(tokens, 2))


def _attend(plain):
    """For one token with one key, "causal if there are several tokens" is causal."""

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **more):
        if isinstance(is_causal, torch.SymBool) and _is_several(is_causal):
            queries, keys = query.shape[-2], key.shape[-2]
            if isinstance(keys, torch.SymInt) and queries.node.expr == keys.node.expr:
                is_causal = True
        return plain(query, key, value, attn_mask, dropout_p, is_causal, **more)

    return attend


@contextmanager
def traceable():
    """Spells some of PyTorch's own code as tracing can follow it, with the same results."""
    fast = torch.backends.mha.get_fastpath_enabled()
    is_causal = transformer._detect_is_causal_mask
    # Fused modules: what they compute is not in the graph.
    torch.backends.mha.set_fastpath_enabled(False)
    # Whether a mask is causal is for the compiler to prove; the mask alone says the same.
    transformer._detect_is_causal_mask = lambda mask, hint=None, size=None: bool(hint)
    # How many indices there are depends on the length; as those of a mask they can be followed.
    triangles = {name: getattr(torch, name) for name in ("tril", "triu")}
    indices = {f"{name}_indices": getattr(torch, f"{name}_indices") for name in triangles}
    for name, triangle in triangles.items():
        setattr(torch, f"{name}_indices", _indices_of(triangle))
    # Where it is switched off, or for another device, tracing would make a region of its own.
    enter, leave = torch.autocast.__enter__, torch.autocast.__exit__

    def acts(context) -> bool:
        return context._enabled and context.device == "cpu"

    torch.autocast.__enter__ = lambda self: enter(self) if acts(self) else self
    torch.autocast.__exit__ = lambda self, *why: leave(self, *why) if acts(self) else None
    # len() gives a plain integer, and tracing would take it for the only number of tokens.
    builtins.len = _len
    functional, attend = torch.nn.functional, torch.nn.functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _attend(attend)
    # tensor.data leaves the trace.
    torch.Tensor.data = property(torch.Tensor.detach, torch._C.TensorBase.data.__set__)
    try:
        with numpy_masks.as_tensors():
            yield
    finally:
        del torch.Tensor.data
        builtins.len = _plain_len
        functional.scaled_dot_product_attention = attend
        torch.autocast.__enter__, torch.autocast.__exit__ = enter, leave
        for name, function in indices.items():
            setattr(torch, name, function)
        transformer._detect_is_causal_mask = is_causal
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def module_trail(module: torch.nn.Module):
    """Yields a list that names the modules being run, innermost last: where a failure happened."""
    trail, handles = [], []

    def leave(*_) -> None:
        trail.pop()

    for name, child in module.named_modules():
        handles.append(child.register_forward_pre_hook(lambda *_, name=name: trail.append(name)))
        handles.append(child.register_forward_hook(leave))
    try:
        yield trail
    finally:
        for handle in handles:
            handle.remove()


class Forgetful(Forward):
    """A forward that leaves no trace in the module: a mask that the first call makes for its own
    length is made by each call."""

    def __init__(self, model: Model, state: State):
        super().__init__(model)
        self.__dict__["state"] = state

    def forward(self, ids, positions=None):
        try:
            return super().forward(ids, positions)
        finally:
            self.state.restore()


def export(model: Model) -> torch.export.ExportedProgram:
    """Traces the model's forward with a symbolic number of tokens. A module that has kept something
    of its first call (a mask, say, or a table as long as that was) is traced as it was before."""
    state, forward = State(model.module), Forward(model).eval()
    length = pick_length(model, forward)
    if not model.is_transformers and state.is_changed():
        after = State(model.module)
        state.restore()
        _repeats(forward, forward.arguments(example_ids(model, length)))
        state.restore()
        try:
            return _trace(model, Forgetful(model, state).eval(), length)
        except CaptureError:
            pass  # what it is after the first call may do
        finally:
            after.restore()
    return _trace(model, forward, length)


def _repeats(forward: Forward, arguments: tuple) -> None:
    """Refuses a module that computes something else from what it has kept."""
    with torch.no_grad():
        first, second = forward(*arguments), forward(*arguments)
    if not torch.allclose(first, second, rtol=1e-4, atol=1e-4, equal_nan=True):
        raise CaptureError(
            "the forward keeps something of its first call and then computes something else from the "
            "same tokens: make the forward pure"
        )


def _trace(model: Model, forward: Forward, length: int) -> torch.export.ExportedProgram:
    arguments = forward.arguments(example_ids(model, length))
    limit = min(model.max_length or MAX_LENGTH, MAX_LENGTH)
    shapes = tuple({1: Dim.DYNAMIC(min=1, max=limit)} for _ in arguments)
    masks = attention.provable_masks() if model.is_transformers else nullcontext()
    with torch.no_grad(), masks, traceable(), module_trail(model.module) as trail:
        try:
            with redirect_stderr(StringIO()):  # torch prints whole graphs when it fails
                return torch.export.export(forward, arguments, dynamic_shapes=shapes, strict=False)
        except CaptureError as error:
            raise type(error)(f"{error}{_inside(trail)}") from error
        except Exception as error:  # torch.export raises whatever it likes
            raise CaptureError(f"{_explain(error)}{_inside(trail)}") from error


LENGTH = re.compile(r"L\['\w+'\]\.size\(\)\[1\]")
# What a guard may consist of to be evaluated.
ARITHMETIC = (
    ast.Expression, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load,
    ast.Call, ast.cmpop, ast.boolop, ast.operator, ast.unaryop,
)  # fmt: skip
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 1e-1}


def agrees(model: Model, program: torch.export.ExportedProgram, length: int) -> bool | None:
    """Whether the traced graph computes at this length what the module computes; None where one of
    them cannot run."""
    if not model.real_weights or length > 4096:
        return None
    state, constants = program.state_dict, program.constants
    fixed = [
        state[spec.target] if spec.target in state else constants[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    ]
    forward = Forward(model)
    arguments = forward.arguments(example_ids(model, length))
    try:
        with torch.no_grad():
            wanted = forward(*arguments)
            (got,) = torch.fx.Interpreter(program.graph_module).run(*fixed, *arguments)
    except Exception:  # whatever an op or the user's model raises
        return None
    limit = TOLERANCE.get(wanted.dtype, 1e-4) * max(1.0, float(wanted.nan_to_num().abs().max()))
    if got.shape != wanted.shape:
        return False
    return torch.allclose(got, wanted, rtol=0, atol=limit, equal_nan=True)


def longest_under(guards: list, most: int, right_at) -> tuple[int, str | None]:
    """The greatest length up to which all guards hold, at most `most`, and the one that holds no
    further, if one does not hold up to `most`. A slice of a whole mask, or
    of a whole table of positions, is a special case of tracing: `right_at` judges that length.

    Tracing takes the branches of one example, and notes the condition of each. Together they must
    come to a bound: a graph that is wrong for some lengths between right ones is refused."""
    broken = None
    for guard in guards:
        condition = LENGTH.sub("S", guard)
        try:
            tree = ast.parse(condition, mode="eval")
            if not all(isinstance(node, ARITHMETIC) for node in ast.walk(tree)):
                raise ValueError(condition)
            code = compile(tree, "guard", "eval")
            names = {"__builtins__": {}, "min": min, "max": max}
            holds = [eval(code, {**names, "S": S}) for S in range(2, most + 1)]
        except Exception:  # it is about something else than the length
            holds = [False]
        right = holds.index(False) if False in holds else len(holds)
        if any(holds[right:]) or right == 0:
            raise CaptureError(
                "the model is only right for some numbers of tokens S: it tests the length, and "
                f"takes another branch unless {condition}"
            )
        if right + 1 == most or (right + 2 == most and right_at(most)):
            continue
        most, broken = right + 1, condition
    return most, broken


def _inside(trail: list) -> str:
    return f" (in module '{trail[-1] or 'the model itself'}')" if trail else ""


def _explain(error: Exception) -> str:
    text, place = str(error), user_frame(error)
    if isinstance(getattr(error, "obj", None), attention.Rule):
        return "the model's code computes with the attention mask itself, which is not supported"
    if "data-dependent" in text or "Could not guard" in text or "DataDependent" in text:
        return (
            f"control flow or a size depends on the values of a tensor{place}: only the number of "
            f"tokens may decide what a decoder computes ({first_line(error)})"
        )
    if "specialized" in text or "Constraints violated" in text or "ConstraintViolation" in text:
        return (
            f"the model is only right for certain numbers of tokens{place}: it tests the length or "
            f"gives it a fixed size ({first_line(error)})"
        )
    if "were assigned during export" in text or "mutated in the forward" in text:
        return f"the forward changes the model's own state{place}: {first_line(error)}"
    return f"torch.export cannot trace the model{place}: {first_line(error)}"


def _split_with_sizes(x, sizes, dim=0):
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [aten.slice.Tensor(x, dim, a, a + n) for a, n in zip(starts, sizes)]


def _split(x, size, dim=0):
    return [
        aten.slice.Tensor(x, dim, start, min(start + size, x.shape[dim]))
        for start in range(0, x.shape[dim], size)
    ]


def _unbind(x, dim=0):
    return [aten.select.int(x, dim, i) for i in range(x.shape[dim])]


def _addmm(bias, a, b, beta=1, alpha=1):
    product = aten.matmul.default(a, b)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # PyTorch then does not even look at the bias
        return product
    return product + (bias if beta == 1 else bias * beta)


def _roll(x, shifts, dims=()):
    if not dims:
        return _roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims):
        size = x.shape[dim]
        cut = size - (shift % size if isinstance(size, int) else shift)
        parts = (aten.slice.Tensor(x, dim, cut, size), aten.slice.Tensor(x, dim, 0, cut))
        x = aten.cat.default(parts, dim)
    return x


def _unset(size, dtype=None, **_):
    """Memory that nobody has written to. Where it stays so the result shows it."""
    dtype = dtype or torch.get_default_dtype()
    return aten.full.default(size, math.nan if dtype.is_floating_point else 0, dtype=dtype)


def _unset_permuted(size, order, dtype=None, **_):
    return _unset(size, dtype)


def _unset_like(x, *_, dtype=None, **__):
    return _unset(x.shape, dtype or x.dtype)


def _full_like(x, value, dtype=None, **_):
    return aten.full.default(x.shape, value, dtype=dtype or x.dtype)


def decompose(
    program: torch.export.ExportedProgram, prefix: str = "model."
) -> torch.export.ExportedProgram:
    """Functionalises the graph and reduces it to the ops listed in docs/capture-format.md.
    `prefix` is what stands before the model's own module paths: the attribute of Forward."""
    table = torch.export.default_decompositions()
    for op in WHOLE:
        table.pop(op, None)
    table[aten.split_with_sizes.default] = _split_with_sizes
    table[aten.split.Tensor] = _split
    table[aten.unbind.int] = _unbind
    table[aten.addmm.default] = _addmm
    table[aten.full_like.default] = _full_like
    table[aten.roll.default] = _roll
    table[aten.empty.memory_format] = _unset
    table[aten.empty_permuted.default] = _unset_permuted
    table[aten.empty_like.default] = _unset_like
    _label(program.graph, prefix)
    _refuse_subgraphs(program.graph)
    with torch.no_grad():
        try:
            program = program.run_decompositions(table)
        except Exception as error:  # torch raises whatever it likes
            raise CaptureError(
                f"torch cannot make the graph functional: {first_line(error)}"
            ) from error
    _refuse_mutation(program, prefix)
    _label(program.graph, prefix)
    complex_numbers.spell_out(program, where)
    narrow_integers.widen(program, where)
    _regularise(program.graph)
    return program


def where(node: torch.fx.Node) -> str:
    path = node.meta.get("module_path")
    return f"op '{node.target}' in module '{path}'" if path else f"op '{node.target}'"


def _label(graph: torch.fx.Graph, prefix: str) -> None:
    """Notes on each node the model's own dotted path of the module that made it."""
    for node in graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        paths = [entry[0] for entry in stack.values() if isinstance(entry[0], str)]
        path = paths[-1] if paths else ""
        path = path.removeprefix("L['self'].").removeprefix("L__self__.")
        if path.startswith("_empty_nn_module_stack"):
            path = ""
        node.meta["module_path"] = (path + ".").removeprefix(prefix).removesuffix(".")


def _refuse_subgraphs(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise CaptureError(
                f"{where(node)} is a higher-order op (control flow, autocast or a checkpoint): "
                "write the forward without it"
            )


def _refuse_mutation(program, prefix: str) -> None:
    signature = program.graph_signature
    for kind in ("buffers_to_mutate", "parameters_to_mutate", "user_inputs_to_mutate"):
        for target in (getattr(signature, kind, None) or {}).values():
            raise CaptureError(
                f"the forward writes to '{target.removeprefix(prefix)}': a decoder that changes "
                "its own state (a cache, say) cannot be captured; make the forward pure"
            )


def _is_no_op(node: torch.fx.Node) -> bool:
    source = node.args[0].meta["val"] if isinstance(node.args[0], torch.fx.Node) else None
    if node.target in COPIES:
        return True
    if node.target is aten._to_copy.default:
        return source.dtype == node.meta["val"].dtype
    if node.target in (aten.reshape.default, aten.expand.default):
        return tuple(source.shape) == tuple(node.meta["val"].shape)
    return False


def _nonzero_of(index) -> tuple:
    """(mask, axis), if these are the indices along one axis of what is not 0 in the mask."""
    if not isinstance(index, torch.fx.Node) or index.target is not aten.select.int:
        return None, None
    source, dim, axis = index.args
    turned = source.target is aten.permute.default
    if turned:
        source = source.args[0]
    if source.target is not aten.nonzero.default or dim != (0 if turned else 1):
        return None, None
    return source.args[0], axis


def _write_by_mask(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """x[..., i, j] = number, where i and j are all indices of a mask, is x[..., mask] = number."""
    indices = list(node.args[1])
    found = [_nonzero_of(index) for index in indices]
    masks = [mask for mask, _ in found if mask is not None]
    if not masks or any(mask is not masks[0] for mask in masks):
        return
    first = next(i for i, (mask, _) in enumerate(found) if mask is not None)
    rank = masks[0].meta["val"].dim()
    if [axis for _, axis in found[first:]] != list(range(rank)) or any(
        index is not None for index in indices[:first]
    ):
        return
    with graph.inserting_before(node):
        mask = graph.call_function(aten.ne.Scalar, (masks[0], 0))
    mask.meta = {**node.meta, "val": masks[0].meta["val"] != 0}
    node.args = (node.args[0], [*indices[:first], mask], *node.args[2:])


def _regularise(graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
        shifts.join(node)
        if node.op != "call_function":
            if node.op in ("call_module", "get_attr") and node.users:
                raise CaptureError(f"the graph uses '{node.target}', which only torch can run")
            if node.op in ("call_module", "get_attr"):
                graph.erase_node(node)
            continue
        if getattr(node.target, "_opname", None) in CHECKS:
            graph.erase_node(node)
            continue
        node.target = SYNONYMS.get(node.target, node.target)
        if _is_no_op(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target is aten.scaled_dot_product_attention.default:
            _keep_causal_attention(node)
        elif node.target is aten.index_put.default:
            _write_by_mask(graph, node)
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if node.op == "call_function":
            _refuse_unknown_kind(node)


def _refuse_unknown_kind(node: torch.fx.Node) -> None:
    target = node.target
    value = node.meta.get("val")
    if target is operator.getitem or not isinstance(value, (torch.Tensor, tuple, list)):
        return  # a result of a node with several, or arithmetic on sizes
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise CaptureError(f"{where(node)} is a higher-order op: write the forward without it")
    if not isinstance(target, torch._ops.OpOverload):
        raise CaptureError(f"{where(node)} is no ATen op")
    if target.namespace not in ("aten", "agentcompile"):
        raise CaptureError(f"{where(node)} is a custom op: write the forward with PyTorch's own")
    is_attention = target is aten.scaled_dot_product_attention.default  # its dropout is 0
    if torch.Tag.nondeterministic_seeded in target.tags and not is_attention:
        raise CaptureError(f"{where(node)} draws random numbers: call .eval(), remove the sampling")
    if target is aten.as_strided.default:
        raise CaptureError(f"{where(node)} depends on the layout of memory: use view and expand")
    if target._schema.is_mutable:
        raise CaptureError(f"{where(node)} writes to one of its inputs: make the forward pure")


def _keep_causal_attention(node: torch.fx.Node) -> None:
    """F.scaled_dot_product_attention(is_causal=True) becomes our attention op; with a mask it
    stays what it is, for the reader to prove the mask."""
    bound = bind(node)
    q, k, v = (bound[name].meta["val"] for name in ("query", "key", "value"))
    if bound["dropout_p"]:
        raise CaptureError(f"{where(node)} has dropout: call .eval() or pass dropout_p=0.0")
    if bound["attn_mask"] is not None:
        return
    if not bound["is_causal"]:
        raise CaptureError(
            f"{where(node)} has no mask and is_causal=False: every token would see later ones"
        )
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        return  # for the reader
    if q.shape[2] != k.shape[2]:
        raise CaptureError(f"{where(node)} has more keys than queries: capture without a cache")
    if q.shape[1] != k.shape[1] != 1 and not bound["enable_gqa"]:
        raise CaptureError(f"{where(node)} repeats heads without enable_gqa=True")
    if k.shape[1] != v.shape[1]:
        raise CaptureError(f"{where(node)} has {k.shape[1]} key heads and {v.shape[1]} value heads")
    scale = bound["scale"] if bound["scale"] is not None else 1.0 / math.sqrt(q.shape[-1])
    if not 0 < scale < math.inf:
        raise CaptureError(f"{where(node)} scales the scores by {scale}: PyTorch's is_causal gives NaN")
    node.target = torch.ops.agentcompile.attention.default
    node.args = (bound["query"], bound["key"], bound["value"], float(scale), True, 0, 0.0)
    node.kwargs = {}


def bind(node: torch.fx.Node) -> dict:
    """Every argument of the op's schema by name, defaults filled in."""
    bound = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            bound[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            bound[argument.name] = node.kwargs[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
        else:
            raise CaptureError(f"{where(node)} has no value for its argument '{argument.name}'")
    return bound
