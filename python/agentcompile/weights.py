"""Says where the value of each parameter and buffer is found, and writes those found nowhere."""

import functools
import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save_file

from .errors import BadInput, CaptureError

INLINE_LIMIT = 65536
INDEX = "model.safetensors.index.json"
CODES = (".weight_packed", ".qweight")  # behind the path of a module


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def same_storage(tensors: dict) -> dict:
    """Maps each name to all names of the very same tensor, the first of them first."""
    groups = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()._cdata
        place = (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        groups.setdefault(place, []).append(name)
    return {name: group for group in groups.values() for name in group}


@dataclass(frozen=True)
class Stored:
    file: str
    key: str
    shape: tuple
    dtype: str  # safetensors' spelling


class Checkpoint:
    """The safetensors files of a folder, one or sharded; there may be none at all."""

    def __init__(self, folder: str, model=None):
        self.folder = Path(folder)
        self.tensors: dict[str, Stored] = {}
        for file in self._files():
            self._read_header(file)
        self.by_name: dict[str, list[Stored]] = {}
        for key, stored in self.tensors.items():
            self.by_name.setdefault(_parameter_of(key, model), []).append(stored)
        self.model = model

    def _files(self) -> list:
        """As the program chooses them when it loads them, and transformers: one whole file goes before an index that
        names others."""
        index = self.folder / INDEX
        single = "model.safetensors"
        has_single = (self.folder / single).exists()
        if index.exists():
            try:
                files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise BadInput(f"{index} is no index of safetensors files: {error}") from error
            if not has_single or single in files:
                return self._checked(index, files)
        if has_single:
            return [single]
        others = sorted(file.name for file in self.folder.glob("*.safetensors"))
        if len(others) > 1:
            raise BadInput(f"{self.folder} has {len(others)} safetensors files and no {INDEX} that says which holds what")
        if not others and any(self.folder.glob("*.bin")):
            raise BadInput(
                f"{self.folder} has its weights in .bin files: load the model with transformers "
                "and save_pretrained() it, which writes safetensors"
            )
        return others

    def _checked(self, index: Path, files: list) -> list:
        for file in files:
            if not isinstance(file, str) or file != os.path.basename(file):
                raise BadInput(f"{index} names a file outside its folder: {file!r}")
            if not (self.folder / file).exists():
                raise BadInput(f"{index} names {file}, which is missing: fetch it again")
        return files

    def _read_header(self, file: str) -> None:
        try:
            with safetensors.safe_open(self.folder / file, framework="pt") as archive:
                for key in archive.keys():
                    part = archive.get_slice(key)
                    if key in self.tensors:
                        raise BadInput(f"{self.folder}: '{key}' is in two files")
                    self.tensors[key] = Stored(file, key, tuple(part.get_shape()), part.get_dtype())
        except safetensors.SafetensorError as error:
            raise BadInput(f"{self.folder / file} is no safetensors file: {error}") from error

    def read(self, stored: Stored) -> torch.Tensor:
        with safetensors.safe_open(self.folder / stored.file, framework="pt") as archive:
            return archive.get_tensor(stored.key)

    def find(self, names: list, shape: tuple) -> Stored | None:
        """The one tensor that holds a weight with these names; None where there are no files."""
        if not self.tensors:
            return None
        found = [stored for name in names for stored in self.by_name.get(name, [])]
        if not found:
            raise self._nothing(names)
        for stored in found:
            if stored.shape != tuple(shape):
                raise BadInput(
                    f"'{stored.key}' in {self.folder / stored.file} has the shape "
                    f"{list(stored.shape)}, but the model wants {list(shape)}"
                )
        return found[0]

    def find_module(self, names: list) -> Stored | None:
        """The weight of a linear as it would be named, whatever tensors of its module hold it; None where there are no
        files."""
        if not self.tensors:
            return None
        for name in names:
            if name in self._modules:
                return self._modules[name]
        raise self._nothing(names)

    @functools.cached_property
    def _modules(self) -> dict:
        files = {key.rpartition(".")[0]: stored.file for key, stored in self.tensors.items()}
        weights = {f"{module}.weight": file for module, file in files.items()}
        return {_parameter_of(key, self.model): Stored(file, key, (), "") for key, file in weights.items()}

    def _nothing(self, names: list) -> CaptureError:
        return CaptureError(
            f"the checkpoint in {self.folder} has no tensor for parameter '{names[0]}' (under "
            f"{', '.join(names)}): its weights are fused or renamed in a way that is not known"
        )

    def differ(self, name: str, other: str, dtype: torch.dtype) -> bool:
        """Whether both weights are stored, with different values in the dtype to compute in. Codes have names of their
        own, and what they are tied to is plain."""
        if any(name.removesuffix(".weight") + suffix in self.tensors for suffix in CODES):
            return True
        stored = [self.by_name.get(each) for each in (name, other)]
        if not all(stored):
            return False
        first, second = (self.read(found[0]) for found in stored)
        return first.shape != second.shape or not torch.equal(first.to(dtype), second.to(dtype))


def _parameter_of(key: str, model) -> str:
    """The name in the model of a checkpoint's key: its own, or what transformers renames it to."""
    if model is None:
        return key
    names = model.state_dict().keys()
    prefix = getattr(model, "base_model_prefix", "") + "."
    for name in (key, key.removeprefix(prefix), prefix + key):
        if name in names:
            return name
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming, rename_source_key
    except ImportError:
        return key
    rules = [r for r in get_model_conversion_mapping(model) or [] if isinstance(r, WeightRenaming)]
    return rename_source_key(key, rules, [])[0] if rules else key


def constant_value(tensor: torch.Tensor) -> dict | None:
    """A constant as it stands in the file, or None where it is too big for that."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() > 1 and bool((flat == flat[0]).all()):
        return {"fill": number(flat[0])}
    if flat.numel() > 1 and tensor.dim() >= 2:
        rows, columns = tensor.shape[-2:]
        last = int((tensor.reshape(-1, columns)[0] != 0).sum()) - 1
        if torch.equal(tensor, torch.ones_like(tensor).tril(last)):
            return {"tril": last}
        below, above = tensor.reshape(-1, columns)[0, 0], tensor.reshape(-1, columns)[0, -1]
        diagonal = int((tensor.reshape(-1, columns)[0] == below).sum()) - 1
        keep = torch.ones(rows, columns, dtype=torch.bool).tril(diagonal)
        if torch.equal(tensor, torch.where(keep, below, above).expand_as(tensor)):
            return {
                "triangle": {
                    "diagonal": diagonal,
                    "below": number(below),
                    "above": number(above),
                }
            }
    if flat.numel() > INLINE_LIMIT and flat.numel() == max(tensor.shape):
        start, step = float(flat[0]), float(flat[1]) - float(flat[0])
        if start.is_integer() and step.is_integer():
            counted = torch.arange(flat.numel(), dtype=torch.float64) * step + start
            if torch.equal(flat.double(), counted):
                return {"range": [int(start), int(step)]}
    if flat.numel() > INLINE_LIMIT:
        return None
    return {"data": [number(value) for value in flat]}


def number(value):
    """A JSON number, or the name of one that JSON lacks."""
    if isinstance(value, torch.Tensor):
        value = int(value) if value.dtype == torch.bool else value.item()
    if isinstance(value, complex):
        raise CaptureError("complex numbers are not supported")
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def write_atomically(path: Path, write) -> None:
    """write(temporary path), then a rename: readers see the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        write(temporary)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write_sidecar(path: Path, tensors: dict) -> None:
    copies = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(copies, temporary))
