"""What all tests share: PyTorch works in one thread, as several processes run tests side by side and its
idle threads spin; captures start from a Python that has imported PyTorch already (warm_python.py); the
garbage collector looks seldom."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

# PyTorch makes millions of objects that stay. The collector's walks through them take a tenth of a trace.
gc.set_threshold(100_000, 20, 50)

WARM = Path(__file__).with_name("warm_python.py")


def pytest_configure(config):
    if hasattr(config, "workerinput") or os.environ.get("AGENTCOMPILE_PYTHON"):
        return  # a worker has what its parent has
    # Where models are looked for does not follow the cache folders that tests set.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("HF_HOME", str(cache / "huggingface"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    folder = Path(tempfile.mkdtemp(prefix="warm-python-"))
    server = subprocess.Popen([sys.executable, WARM, "serve", folder / "socket"], start_new_session=True)
    client = folder / "client.sh"
    client.write_text(
        "#!/bin/sh\n"
        f"test -S {folder}/socket || exec {sys.executable} \"$@\"\n"  # not yet there
        f'exec {sys.executable} -S -E -s {WARM} ask {folder}/socket "$@"\n'
    )
    client.chmod(0o755)
    os.environ["AGENTCOMPILE_PYTHON"] = str(client)
    config.warm_python = server, folder


def pytest_unconfigure(config):
    if hasattr(config, "warm_python"):
        server, folder = config.warm_python
        server.kill()
        server.wait()
        shutil.rmtree(folder)
