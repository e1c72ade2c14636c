"""Rewrites a graph so that it has real numbers only. A complex tensor becomes one with a last axis of
two, the real and the imaginary part, as torch.view_as_real gives it: RoPE is often written so."""

import torch

from .errors import CaptureError

aten = torch.ops.aten

COPIES = (
    aten.view_as_real.default,
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
)
RESHAPES = (aten.reshape.default, aten.view.default, aten._unsafe_view.default, aten.expand.default)
# Ops along one axis that they name; the parts lie on an axis behind all of them.
ALONG_ONE = (aten.slice.Tensor, aten.select.int, aten.index_select.default)


class Rewriter:
    def __init__(self, graph: torch.fx.Graph, where):
        self.graph, self.where = graph, where
        self.ranks = {  # of the complex values
            node: node.meta["val"].dim()
            for node in graph.nodes
            if isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].is_complex()
        }
        self.real: dict[torch.fx.Node, torch.fx.Node] = {}  # what stands for a complex node
        self.node = None  # that is being rewritten

    def emit(self, op, *args) -> torch.fx.Node:
        """A new node before the present one, which comes from the same line of the model."""
        with self.graph.inserting_before(self.node):
            made = self.graph.call_function(op, args)
        made.meta = dict(self.node.meta)
        made.meta["val"] = op(*torch.fx.map_arg(args, lambda node: node.meta["val"]))
        return made

    def parts(self, node) -> tuple:
        return tuple(self.emit(aten.select.int, self.real[node], self.ranks[node], i) for i in (0, 1))

    def joined(self, re, im) -> torch.fx.Node:
        axis = re.meta["val"].dim()
        halves = [self.emit(aten.unsqueeze.default, part, axis) for part in (re, im)]
        return self.emit(aten.cat.default, halves, axis)

    def times(self, a, b) -> torch.fx.Node:
        return self.emit(aten.mul.Tensor, a, b)

    def product(self, a, b) -> torch.fx.Node:
        if a not in self.ranks and not isinstance(a, complex):
            a, b = b, a
        if isinstance(a, complex):
            a, b = b, a
        if isinstance(b, complex):
            if a not in self.ranks:  # a real tensor
                return self.joined(self.times(a, b.real), self.times(a, b.imag))
            other = (b.real, b.imag)
        elif b in self.ranks:
            other = self.parts(b)
        elif isinstance(b, torch.fx.Node):
            wide = self.emit(aten.unsqueeze.default, b, b.meta["val"].dim())
            return self.times(self.real[a], wide)
        else:
            return self.times(self.real[a], b)
        re, im = self.parts(a)
        return self.joined(
            self.emit(aten.sub.Tensor, self.times(re, other[0]), self.times(im, other[1])),
            self.emit(aten.add.Tensor, self.times(re, other[1]), self.times(im, other[0])),
        )

    def turned(self, size, angle) -> torch.fx.Node:
        """size * (cos(angle) + i sin(angle))"""
        waves = (self.emit(op.default, angle) for op in (aten.cos, aten.sin))
        return self.joined(*(self.times(size, wave) for wave in waves))

    def rewritten(self) -> torch.fx.Node:
        """What stands for the present node, which makes complex numbers or reads them."""
        op, args = self.node.target, self.node.args
        first = args[0] if args else None
        rank = self.ranks.get(first, 0) if isinstance(first, torch.fx.Node) else 0
        operands = [x for x in args if isinstance(x, (torch.fx.Node, complex))]
        all_complex = all(x in self.ranks for x in operands if isinstance(x, torch.fx.Node))
        if self.node.kwargs:
            self.refuse()
        if op is aten.view_as_complex.default:
            return first
        if op in COPIES:
            return self.real[first]
        if op is aten.polar.default:
            return self.turned(*args)
        if op is aten.complex.default:
            return self.joined(*args)
        if op is aten.mul.Tensor:
            return self.product(*args)
        if op in (aten.add.Tensor, aten.sub.Tensor) and len(operands) == 2 and all_complex:
            return self.emit(op, self.real[first], self.real[args[1]])
        if op is aten.exp.default:
            re, im = self.parts(first)
            return self.turned(self.emit(op, re), im)
        if op is aten._conj.default:
            re, im = self.parts(first)
            return self.joined(re, self.emit(aten.neg.default, im))
        if op is aten.abs.default:
            re, im = self.parts(first)
            squares = self.emit(aten.add.Tensor, self.times(re, re), self.times(im, im))
            return self.emit(aten.sqrt.default, squares)
        if op in RESHAPES:
            return self.emit(op, self.real[first], [*self.node.meta["val"].shape, 2])
        if op in ALONG_ONE:
            return self.emit(op, self.real[first], args[1] % rank if len(args) > 1 else 0, *args[2:])
        if op is aten.unsqueeze.default:
            return self.emit(op, self.real[first], args[1] % (rank + 1))
        if op is aten.squeeze.dims:
            return self.emit(op, self.real[first], [axis % rank for axis in args[1]])
        if op is aten.permute.default:
            return self.emit(op, self.real[first], [*(axis % rank for axis in args[1]), rank])
        if op is aten.index.Tensor:
            return self.emit(op, self.real[first], *args[1:])
        if op is aten.cat.default:
            axis = args[1] if len(args) > 1 else 0
            return self.emit(op, [self.real[x] for x in first], axis % self.ranks[self.node])
        self.refuse()

    def refuse(self):
        raise CaptureError(
            f"{self.where(self.node)} computes with complex numbers in a way that is not supported"
        )


def spell_out(program: torch.export.ExportedProgram, where) -> None:
    """Leaves real numbers alone in the program's graph, and in the tensors that it holds. `where`
    names a node for messages."""
    graph = program.graph
    rewriter = Rewriter(graph, where)
    if not rewriter.ranks:
        return
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    gone = []
    for node in list(graph.nodes):
        rewriter.node = node
        if node.op == "placeholder" and node in rewriter.ranks:
            target = targets[node.name]
            held = next((d for d in (program.state_dict, program.constants) if target in d), {})
            if target not in held or isinstance(held[target], torch.nn.Parameter):
                raise CaptureError(f"'{target or node.name}' holds complex numbers: only buffers may")
            held[target] = torch.view_as_real(held[target].resolve_conj()).contiguous()
            node.meta["val"] = torch.view_as_real(node.meta["val"])
            rewriter.real[node] = node
        elif node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
            if node not in rewriter.ranks and rewriter.ranks.keys().isdisjoint(node.all_input_nodes):
                continue
            made = rewriter.real[node] = rewriter.rewritten()
            if node not in rewriter.ranks:
                node.replace_all_uses_with(made)
            gone.append(node)
    for node in reversed(gone):
        if node.users:  # the model returns complex numbers, say
            raise CaptureError(f"{where(node)} makes complex numbers, which stay complex to the end")
        graph.erase_node(node)
