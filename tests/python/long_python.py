"""A Python that has the packages of python/requirements-long.txt beside those of this one, and the wheel."""

import fcntl
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from compiled import ROOT
from variants import LONG

only_long = pytest.mark.skipif(not LONG, reason="installs Ray and Dynamo, half a gigabyte: AC_TEST_LONG=1")
FOLDER = ROOT / "build/long-venv"
FILES = [ROOT / "python" / name for name in ("requirements-long.txt", "requirements-long-alone.txt")]


def long_python() -> Path:
    """Its program; what is missing is installed."""
    program, stamp = FOLDER / "bin/python", FOLDER / "requirements.installed"
    wanted = "".join(file.read_text() for file in FILES)
    with open(ROOT / "build/long-venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
            site = subprocess.check_output([program, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
            (Path(site.strip()) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
            for file, options in zip(FILES, ([], ["--no-deps"])):
                pip = [program, "-m", "pip", "--disable-pip-version-check", "install", "-q", *options, "-r", file]
                result = subprocess.run(pip, capture_output=True, text=True)
                assert result.returncode == 0, result.stderr
            stamp.write_text(wanted)
    return program


def environment(site, **more) -> dict:
    """Of a process that is to have the wheel, and to speak to nobody outside."""
    path = f"{FOLDER / 'bin'}:{os.environ['PATH']}"
    quiet = {"HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    return {**os.environ, **quiet, "PYTHONPATH": str(site), "PATH": path, **more}
