"""What the program says: errors in one style, help that teaches, progress that fits the terminal, and
warnings that --quiet does not hide."""

import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import termios

import pytest
import tiny_models
from compiled import PROGRAM, cache_with_kernels, program

OPTIONS = ("--chunk", 4, "--short-prompt", 0, "--tries", 0, "--unmeasured", "-f")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_case("llama_gqa", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return cache_with_kernels(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("foo",), '"foo" is not a command; did you mean'),
        (("complie", "x"), "did you mean compile?"),
        ((), "subcommand is required"),
        (("inspect", "x", "--stage", "foo"), '--stage: "foo" is not one of capture, graph, normalise'),
        (("compile", "x", "-o", "y", "--dtype", "int8"), '"int8" is not one of float32, float16, bfloat16'),
        (("compile", "x", "-o", "y", "--front-end", "rust"), '"rust" is not one of auto, native, python'),
        (("compile", "x"), "--output is required (agentcompile compile --help lists the options)"),
        (("compile", "x", "-o", "y", "--chunk", "no"), "--chunk"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(arguments, says):
    result = program(*arguments, expect=2)
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ") and says in result.stderr


def test_help_teaches_and_is_short():
    short, whole = program("--help").stdout, program("--help-all").stdout
    for part in ("Examples:", "agentcompile compile MODEL -o PKG"):
        assert part in short
    for part in ("Environment:", "HF_TOKEN", "Exit codes:"):
        assert part in whole and part not in short
    assert "worker" not in whole
    for command in ("compile", "inspect", "tune"):
        text = program(command, "--help").stdout
        assert "Examples:" in text and f"agentcompile {command} " in text
        assert "Environment:" not in text and "Exit codes" not in text


def test_an_output_that_cannot_be_written_is_an_error_before_the_work(tmp_path):
    """Before the model is even looked for."""
    (tmp_path / "file").write_text("")
    for output in ("/proc/package", tmp_path / "file/package"):
        said = program("compile", "no/such-model", "-o", output, expect=1).stderr
        assert said.startswith("error: ") and "package" in said and "such-model" not in said


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("help", "compile"), ("completions", "bash")])
def test_a_result_that_cannot_be_written_is_an_error(arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1 and result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1


def test_what_the_model_was_not_made_for_is_warned_of(model, cache, tmp_path):
    def compile_it(*options, source=model):
        kept = OPTIONS[2:] if "--chunk" in options else OPTIONS
        arguments = ("compile", source, "-o", tmp_path / "package", *kept, *options, "-q")
        said = program(*arguments, XDG_CACHE_HOME=str(cache)).stderr.splitlines()
        assert all(line.startswith("warning: ") for line in said)
        return said, json.loads((tmp_path / "package/program.json").read_text())["max_context"]

    assert compile_it() == ([], 256)  # and not 4096
    said, holds = compile_it("--max-context", 300)
    assert holds == 300 and len(said) == 1 and "made for 256 positions" in said[0]
    said, holds = compile_it("--max-context", 8, "--chunk", 9)
    assert holds == 8 and len(said) == 1 and "--chunk 9" in said[0]
    shutil.copytree(model, tmp_path / "lowered")
    config = json.loads((tmp_path / "lowered/config.json").read_text())
    layers = config["num_hidden_layers"]
    config["num_hidden_layers"] = layers - 1
    (tmp_path / "lowered/config.json").write_text(json.dumps(config))
    said, _ = compile_it(source=tmp_path / "lowered")
    assert len(said) == 1 and f"has {layers} layers, and the model uses {layers - 1}" in said[0]


def test_the_result_says_what_to_do_next(model, cache, tmp_path):
    """By commands that a shell takes."""
    package = tmp_path / "somebody's package"
    said = program("compile", model, "-o", package, *OPTIONS, "-q", XDG_CACHE_HOME=str(cache)).stdout
    assert f"{package} is ready: a program for the CPU with" in said
    assert re.search(r"decode: (\d+) regions, 0 computed by generated kernels, \1 by the plain fallback", said)
    command = next(line for line in said.splitlines() if line.startswith("Generate with it:"))
    words = shlex.split(command.split("agentcompile ")[1])
    assert program(*words).returncode == 0


def test_progress_fits_the_terminal(model, tmp_path):
    columns = 50
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = ("compile", model, "-o", tmp_path / "package", *OPTIONS)
    process = subprocess.Popen(
        [PROGRAM, *map(str, command)],
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the terminal is closed
        pass
    assert process.wait() == 0
    rewritten = [line for line in shown.decode().split("\r\x1b[K") if "\n" not in line]
    assert rewritten and all(len(line) < columns for line in rewritten)
    counts = {}
    for counted, done, total in re.findall(r": ([a-z ]+) (\d+)/(\d+)", shown.decode()):
        assert int(done) <= int(total)
        counts[counted] = counts.get(counted, 0) + 1
    assert counts["kernels built"] > 1  # something moves meanwhile
