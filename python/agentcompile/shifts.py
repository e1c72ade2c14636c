"""Integers to which sizes are added: those that cancel out are taken away, as no graph has a size as
a value."""

import torch

aten = torch.ops.aten


def _shifted(node: torch.fx.Node) -> tuple:
    """(x, number), if the node adds that to integers: a whole number, or arithmetic on sizes."""
    sign = {aten.add.Tensor: 1, aten.add.Scalar: 1, aten.sub.Tensor: -1, aten.sub.Scalar: -1}
    if node.target not in sign or len(node.args) != 2 or node.kwargs:
        return None, None
    x, number = node.args
    if isinstance(number, torch.fx.Node):
        number = number.meta.get("val")
    tensor = x.meta.get("val") if isinstance(x, torch.fx.Node) else None
    integers = isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64
    if not integers or type(number) not in (int, torch.SymInt):
        return None, None
    return x, sign[node.target] * number


def join(node: torch.fx.Node) -> None:
    """x - keys + queries is x, where there are as many keys as queries."""
    middle, second = _shifted(node)
    if middle is None:
        return
    x, first = _shifted(middle)
    if x is None or (type(first) is int and type(second) is int):
        return
    total = first + second
    known = total if type(total) is int else total.node.expr
    if not (type(known) is int or known.is_Integer):
        return
    node.target, node.args = aten.add.Scalar, (x, int(known))
