"""What all processes of a run of tests share: the first that asks for it makes it."""

import fcntl
import json
import os
import sys
from pathlib import Path

import tiny_models
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from agentcompile import capture as command  # noqa: E402


def once_a_run(tmp_path_factory, name: str, make) -> Path:
    """The folder that make(folder) has filled. Whoever comes meanwhile waits; what failed is made again."""
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "once"
    root.mkdir(exist_ok=True)
    folder, done = root / name, root / f"{name}.done"
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder


def case(tmp_path_factory, name: str) -> tuple:
    """(SOURCE, folder) of a tiny model, for reading only."""
    folder = once_a_run(tmp_path_factory, name, lambda folder: tiny_models.write_case(name, folder))
    return (folder if tiny_models.CASES[name].family else folder / "model.py"), folder


def source(tmp_path_factory, name: str) -> Path:
    """What compile takes of a tiny model without capturing it anew."""
    if tiny_models.is_native(name):
        return case(tmp_path_factory, name)[0]
    return capture(tmp_path_factory, name)


def is_float32(name: str) -> bool:
    return tiny_models.CASES[name].dtype == torch.float32


def capture(tmp_path_factory, name: str) -> Path:
    """The file of what Python captures of a tiny model in its own type."""
    source, _ = case(tmp_path_factory, name)

    def make(folder):
        folder.mkdir(exist_ok=True)
        content = command.capture(str(source), str(folder / "capture.json"))
        assert json.loads((folder / "capture.json").read_text()) == json.loads(json.dumps(content))

    return once_a_run(tmp_path_factory, f"{name}-captured", make) / "capture.json"
