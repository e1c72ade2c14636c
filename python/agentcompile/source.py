"""Finds out what SOURCE is, and makes a Model (or an exported program) of it."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import torch

from . import hf
from .errors import BadInput, CaptureError, WrongUsage, first_line, user_frame
from .export import Model

FACTORY_NAMES = ("factory", "model", "build_model")
PROJECT_FILES = ("model.py", "capture.py", "__init__.py")


def resolve(source: str, dtype: str | None) -> Model:
    """The model that SOURCE names. A program from a .pt2 is left to open_program()."""
    file, _, factory = source.rpartition(".py:")
    if source.endswith(".py") or (file and "/" not in factory):
        path = Path(source if source.endswith(".py") else file + ".py")
        if not path.is_file():
            raise BadInput(f"{path}: no such file")
        return _from_module(_import_file(path), factory if file else "", path, dtype)
    path = Path(source)
    if path.is_dir():
        if (path / "config.json").is_file():
            return hf.open_directory(str(path), path.resolve().name, dtype)
        return _from_project(path, "", "", dtype)
    folder, _, rest = source.partition(":")
    if rest and Path(folder).is_dir():
        module, _, factory = rest.partition(":")
        return _from_project(Path(folder), module, factory, dtype)
    if path.exists():
        raise WrongUsage(f"{source}: not a .py file, a .pt2 file or a folder (see --help)")
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source):
        cached = hf.from_cache(source)
        if cached:
            return hf.open_directory(cached, source, dtype)
        raise BadInput(
            f"{source}: no such file or folder, and no model of that id in the local HuggingFace "
            f"cache; fetch it first: agentcompile pull {source}"
        )
    raise BadInput(f"{source}: no such file or folder")


def open_program(path: str) -> torch.export.ExportedProgram:
    if not Path(path).is_file():
        raise BadInput(f"{path}: no such file")
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises whatever the file provokes
        raise BadInput(f"{path} is no exported program: {first_line(error)}") from error


def _import_file(path: Path):
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem if path.stem.isidentifier() else "captured_source"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    return _run(lambda: spec.loader.exec_module(module) or module, path)


def _run(call, path: Path):
    """Runs the user's code; what it raises is a fault of the source."""
    try:
        return call()
    except (KeyboardInterrupt, CaptureError):
        raise
    except BaseException as error:
        place = user_frame(error)
        raise BadInput(f"{path} raises {first_line(error)}{place}") from error


def _from_project(folder: Path, module_name: str, factory: str, dtype: str | None) -> Model:
    if module_name:
        sys.path.insert(0, str(folder.resolve()))
        module = _run(lambda: importlib.import_module(module_name), folder)
        return _from_module(module, factory, folder, dtype)
    files = [folder / name for name in PROJECT_FILES if (folder / name).is_file()]
    seen = []
    for file in files:
        module = _import_package(folder) if file.name == "__init__.py" else _import_file(file)
        if _factories(module):
            return _from_module(module, "", file, dtype)
        seen.append(f"{file.name} ({_public(module)})")
    raise BadInput(
        f"{folder} has no config.json and no factory: looked for {' / '.join(FACTORY_NAMES)} in "
        f"{', '.join(PROJECT_FILES)} and found {'; '.join(seen) or 'none of these files'}. "
        "Name one: DIR:module.path:factory"
    )


def _import_package(folder: Path):
    """A folder that is itself a package: imported by its name, for relative imports to work."""
    folder = folder.resolve()
    sys.path.insert(0, str(folder.parent))
    sys.path.insert(0, str(folder))
    return _run(lambda: importlib.import_module(folder.name), folder)


def _factories(module) -> list:
    return [name for name in FACTORY_NAMES if callable(getattr(module, name, None))]


def _public(module) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    return "it has " + (", ".join(own) or "no function or class of its own")


def _from_module(module, factory: str, path: Path, dtype: str | None) -> Model:
    if factory and not callable(getattr(module, factory, None)):
        raise BadInput(f"{path} has no factory '{factory}': {_public(module)}")
    names = [factory] if factory else _factories(module)
    if not names:
        raise BadInput(
            f"{path} has no factory named {' / '.join(FACTORY_NAMES)}: {_public(module)}. "
            "Name one: FILE.py:factory"
        )
    torch.manual_seed(0)
    made = getattr(module, names[0])
    if not isinstance(made, torch.nn.Module):
        made = _run(made, path)
    vocab_size = None
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], int):
        made, vocab_size = made
    if not isinstance(made, torch.nn.Module):
        raise BadInput(
            f"{path}: {names[0]}() gave {type(made).__name__}, not an nn.Module or "
            "(module, vocab_size)"
        )
    return _live(made.eval(), path.stem, vocab_size, dtype)


def _live(module: torch.nn.Module, name: str, vocab_size: int | None, dtype: str | None) -> Model:
    """A model that exists in memory with its weights."""
    is_transformers = hf.is_transformers_model(module)
    if dtype and is_transformers:
        # .to() would round RoPE's float32 frequencies, which transformers keeps.
        for parameter in module.parameters():
            parameter.data = parameter.data.to(getattr(torch, dtype))
    elif dtype:
        module = module.to(getattr(torch, dtype))
    max_length = None
    if is_transformers:
        hf.adopt(module)
        vocab_size = module.config.vocab_size
        max_length = getattr(module.config, "max_position_embeddings", None)
    if vocab_size is None:
        tables = (m.num_embeddings for m in module.modules() if isinstance(m, torch.nn.Embedding))
        vocab_size = next(tables, None)
    return Model(
        module=module,
        name=name,
        architecture=type(module).__name__,
        is_transformers=is_transformers,
        vocab_size=vocab_size,
        max_length=max_length,
    )
