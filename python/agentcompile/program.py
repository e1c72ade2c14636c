"""The program `agentcompile`, which the wheel carries."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from .exceptions import BY_STATUS, JobFailed

PROGRAM = Path(__file__).parent / "bin" / "agentcompile"


def environment() -> dict:
    """What it captures models by is this Python, where that has PyTorch."""
    changed = dict(os.environ)
    if "AGENTCOMPILE_PYTHON" not in changed and importlib.util.find_spec("torch") is not None:
        changed["AGENTCOMPILE_PYTHON"] = sys.executable
    return changed


def package_of(model: str, *options: str) -> str:
    """The folder of a model's package: the model is compiled if that is needed. Progress goes to stderr."""
    with subprocess.Popen(
        [PROGRAM, "package", *options, "--", model],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        errors = []
        for line in process.stderr:
            if line.startswith("error: "):
                errors.append(line.removeprefix("error: ").strip())
            else:
                sys.stderr.write(line)
        folder = process.stdout.read().removesuffix("\n")
    if process.returncode != 0:  # what went wrong is said first
        raise BY_STATUS.get(process.returncode, JobFailed)(next(iter(errors), f"{model} was not compiled"))
    return folder


def main() -> None:
    """The command line, as if the program itself had been called."""
    os.execve(PROGRAM, ["agentcompile", *sys.argv[1:]], environment())
