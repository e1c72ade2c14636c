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
    if hasattr(config, "workerinput"):
        return  # a worker has what its parent has
    # Where models are looked for does not follow the cache folders that tests set, nor do sources of others
    # and what the compiler of the program has made of them (compiled.py).
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ["AC_TEST_USER_CACHE"] = str(cache)
    os.environ.setdefault("HF_HOME", str(cache / "huggingface"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    config.made_for_tests = []
    if getattr(config.option, "numprocesses", None):
        config.made_for_tests.append(Path(tempfile.mkdtemp(prefix="cache-of-tests-")))
        os.environ["XDG_CACHE_HOME"] = str(config.made_for_tests[0])
    if os.environ.get("AGENTCOMPILE_PYTHON"):
        return
    folder = Path(tempfile.mkdtemp(prefix="warm-python-"))
    config.made_for_tests.append(folder)
    server = subprocess.Popen([sys.executable, WARM, "serve", folder / "socket"], start_new_session=True)
    client = folder / "client.sh"
    client.write_text(
        "#!/bin/sh\n"
        f"test -S {folder}/socket || exec {sys.executable} \"$@\"\n"  # not yet there
        f'exec {sys.executable} -S -E -s {WARM} ask {folder}/socket "$@"\n'
    )
    client.chmod(0o755)
    os.environ["AGENTCOMPILE_PYTHON"] = str(client)
    config.warm_python = server


def pytest_unconfigure(config):
    if hasattr(config, "warm_python"):
        config.warm_python.kill()
        config.warm_python.wait()
    for folder in getattr(config, "made_for_tests", []):
        shutil.rmtree(folder, ignore_errors=True)
