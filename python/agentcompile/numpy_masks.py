"""Triangles that a forward makes with NumPy, which knows no symbolic sizes: while it is traced, those of
ones and zeros are tensors."""

from contextlib import contextmanager

import numpy
import torch

FILLS = {"ones": torch.ones, "zeros": torch.zeros}
TRIANGLES = {"triu": torch.triu, "tril": torch.tril}


def _is_symbolic(shape) -> bool:
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _torch_type(dtype) -> torch.dtype:
    return torch.from_numpy(numpy.empty(0, dtype)).dtype


def _filled(plain, fill):
    def make(shape, dtype=None, **more):
        if not _is_symbolic(shape):
            return plain(shape, dtype, **more) if dtype is not None else plain(shape, **more)
        # NumPy's float64 is no type of graphs; these numbers are the same in float32.
        return fill(shape, dtype=torch.float32 if dtype in (None, float) else _torch_type(dtype))

    return make


def _triangle(plain, triangle):
    return lambda m, k=0: triangle(m, k) if isinstance(m, torch.Tensor) else plain(m, k)


@contextmanager
def as_tensors():
    names = (*FILLS, *TRIANGLES)
    plain, from_numpy = {name: getattr(numpy, name) for name in names}, torch.from_numpy
    for name, fill in FILLS.items():
        setattr(numpy, name, _filled(plain[name], fill))
    for name, triangle in TRIANGLES.items():
        setattr(numpy, name, _triangle(plain[name], triangle))
    torch.from_numpy = lambda x: x if isinstance(x, torch.Tensor) else from_numpy(x)
    torch.Tensor.astype = lambda self, dtype: self.to(_torch_type(dtype))
    try:
        yield
    finally:
        del torch.Tensor.astype
        torch.from_numpy = from_numpy
        for name in names:
            setattr(numpy, name, plain[name])
