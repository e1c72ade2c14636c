"""Signals: the program ends soon, with all that it has started, and leaves nothing behind; what kill -9
leaves, the next start removes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import tiny_models
from compiled import PROGRAM, ROOT, generate, program
from variants import LONG, varied

OPTIONS = ("--max-context", 32, "--chunk", 4, "--short-prompt", 0, "--unmeasured", "-f")
SOON = 5.0  # seconds; one, on a machine that does nothing else

SLOW = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("capturing", file=sys.stderr, flush=True)
time.sleep(60)
def factory():
    return None, 1
"""


def heed_signals():
    """Whoever runs the tests in the background, or by nohup, may have them ignore some."""
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, signal.SIG_DFL)


class Run:
    """The program with a folder for temporary files and a mark that all its processes carry."""

    def __init__(self, folder, *arguments, cache=None):
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heed_signals,
            env={
                **os.environ,
                "TMPDIR": str(self.temporary),
                "XDG_CACHE_HOME": str(cache or folder / "cache"),
                "AC_TEST_MARK": self.mark,
                # A child of the program's, as its signals must reach it.
                "AGENTCOMPILE_PYTHON": sys.executable,
            },
        )

    def wait_for_line(self, line):
        while line not in self.process.stderr.readline():
            assert self.process.poll() is None

    def alive(self):
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in environ.read_bytes():
                    found.append(int(environ.parent.name))
            except OSError:
                pass
        return found

    def check_ended(self, which, began):
        """By the signal, soon, in one line, without processes or files."""
        output, errors = self.process.communicate(timeout=60)
        assert time.monotonic() - began < SOON
        assert self.process.returncode == -which, errors
        assert output == "" and errors.splitlines()[-1:] == ["interrupted"], errors
        assert "Traceback" not in errors and "error" not in errors
        deadline = time.monotonic() + 2
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.02)  # killed, and not yet gone
        assert not self.alive()
        assert os.listdir(self.temporary) == []


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_case("llama_mha_tied", tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    "which, to",
    varied(
        [(signal.SIGINT, "group"), (signal.SIGTERM, "program")],
        [(signal.SIGINT, "program"), (signal.SIGTERM, "group")],
    ),
)
def test_while_python_captures(which, to, tmp_path):
    """As `kill` sends it, and as a terminal does for Ctrl-C."""
    (tmp_path / "model.py").write_text(SLOW)
    package = tmp_path / "out/package"
    run = Run(tmp_path, "compile", tmp_path / "model.py", "-o", package, *OPTIONS)
    run.wait_for_line("capturing")
    deadline = time.monotonic() + 10
    while len(run.alive()) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)  # one that begins may not show its environment yet
    assert len(run.alive()) >= 3
    began = time.monotonic()
    if to == "program":
        run.process.send_signal(which)
    else:
        os.killpg(run.process.pid, which)
    run.check_ended(which, began)
    assert os.listdir(package.parent) == []


@pytest.mark.parametrize("which", varied([signal.SIGINT, signal.SIGTERM], [signal.SIGHUP]))
def test_while_kernels_are_built_and_judged(which, model, tmp_path):
    package = tmp_path / "out/package"
    for delay in (0.3, 1.5):
        run = Run(tmp_path, "compile", model, "-o", package, "--tries", 2, *OPTIONS, cache=tmp_path / str(delay))
        time.sleep(delay)
        began = time.monotonic()
        os.killpg(run.process.pid, which)
        run.check_ended(which, began)
        assert os.listdir(package.parent) == []


def test_an_ignored_signal_is_ignored(model, tmp_path):
    """As nohup has it."""
    process = subprocess.Popen(
        [PROGRAM, "inspect", model, "--stage", "step"],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] and process.returncode == 0


def test_kills_at_any_moment_leave_nothing(model, tmp_path):
    chance = random.Random(7)
    package, cache = tmp_path / "out/package", tmp_path / "cache"
    compile_it = ("compile", model, "-o", package, "--tries", 0, *OPTIONS)
    began = time.monotonic()
    program(*compile_it, XDG_CACHE_HOME=str(cache))
    cold = time.monotonic() - began
    wanted = generate(package, [5, 17, 3], 4)
    ended = {}
    for i in range(100 if LONG else 6):
        which = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT][i % 3]
        # Now and then there is all to do: moments are then those of building and judging.
        if i % 2 == 0:
            forget(cache, chance)
        run = Run(tmp_path, *compile_it, cache=cache)
        time.sleep(chance.uniform(0, 0.5 * cold if i % 2 == 0 else 0.2 * cold))
        os.killpg(run.process.pid, which)
        _, errors = run.process.communicate(timeout=60)
        ended[run.process.returncode] = ended.get(run.process.returncode, 0) + 1
        assert run.process.returncode in (0, -which), errors
        assert "internal error" not in errors and "Traceback" not in errors
        deadline = time.monotonic() + 5
        while run.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not run.alive()
        assert generate(package, [5, 17, 3], 4) == wanted  # the old one or the new one, whole
    assert len(ended) >= 2, ended
    run = Run(tmp_path, *compile_it, cache=cache)
    _, errors = run.process.communicate(timeout=300)
    assert run.process.returncode == 0, errors
    assert os.listdir(run.temporary) == [] and os.listdir(package.parent) == ["package"]
    assert not [name for name in os.listdir(cache / "agentcompile/kernels") if name.startswith(".unfinished")]
    assert generate(package, [5, 17, 3], 4) == wanted


def forget(cache, chance):
    """Some kernels and verdicts."""
    kernels = cache / "agentcompile/kernels"
    records = sorted(kernels.glob("*/record"))
    for path in chance.sample(records, min(3, len(records))):
        path.unlink()
    verdicts = sorted((kernels / "verdicts").iterdir())
    for path in chance.sample(verdicts, len(verdicts) // 2):
        path.unlink()


def test_a_write_beyond_the_limit_of_files_is_an_error(model, tmp_path):
    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    result = subprocess.run(
        [PROGRAM, *map(str, ("compile", model, "-o", tmp_path / "package", "--tries", 0, "-q", *OPTIONS))],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert result.returncode == 1, result.stderr
    assert "error: " in result.stderr and "File too large" in result.stderr
    assert not (tmp_path / "package").exists()
