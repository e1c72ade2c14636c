"""Masks are sometimes kept in integers of 8 or 16 bits. Where such a graph only makes, stores and moves
them, in numbers that fit, they may as well have 64: arithmetic on them, which may wrap around, is refused."""

import torch

from .errors import CaptureError

aten = torch.ops.aten

NARROW = (torch.uint8, torch.int8, torch.int16)
MOST = 127  # that all of them have

MAKING = (aten.full.default, aten.scalar_tensor.default, aten.arange.start_step)
MOVING = {
    aten.reshape.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.permute.default,
    aten.unsqueeze.default,
    aten.squeeze.dims,
    aten.slice.Tensor,
    aten.select.int,
    aten.cat.default,
    aten.stack.default,
    aten.tril.default,
    aten.triu.default,
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
}


def is_narrow(node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in NARROW


def fits(node: torch.fx.Node, narrow: dict) -> bool:
    """Whether all elements are whole numbers from 0 to MOST."""
    if node in narrow or node.meta["val"].dtype is torch.bool:
        return True
    if node.target in MAKING:
        numbers = node.args[1:] if node.target is aten.full.default else node.args
        return all(isinstance(n, (int, float)) and 0 <= n <= MOST and n == int(n) for n in numbers)
    if node.target in (*MOVING, aten._to_copy.default):
        sources = (x for x in node.all_input_nodes if isinstance(x.meta.get("val"), torch.Tensor))
        return all(fits(source, narrow) for source in sources)
    return False


def widen(program: torch.export.ExportedProgram, where) -> None:
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    narrow: dict[torch.fx.Node, torch.dtype] = {}
    for node in program.graph.nodes:
        if not is_narrow(node):
            continue
        if node.op == "placeholder":
            target = targets[node.name]
            for held in (program.state_dict, program.constants):
                if target in held:
                    held[target] = held[target].to(torch.int64)
        elif node.target in MAKING and fits(node, narrow):
            node.kwargs = {**node.kwargs, "dtype": torch.int64}
        elif node.target is aten._to_copy.default and fits(node.args[0], narrow):
            node.kwargs = {**node.kwargs, "dtype": torch.int64}
        elif node.target not in MOVING:
            raise CaptureError(
                f"{where(node)} computes with integers of 8 or 16 bits, which may wrap around: use int64"
            )
        narrow[node] = node.meta["val"].dtype
        node.meta["val"] = node.meta["val"].to(torch.int64)
