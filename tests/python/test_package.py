"""Packages stand on their own: their sources build with their own script, for a GPU and for the CPU, and
program.json replayed through the C wrappers gives the tokens of `agentcompile run`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny_models
from package_program import Package

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
PROMPT, NEW_TOKENS = [5, 17, 3, 99, 8, 41, 7], 6


def program(*arguments, expect=0):
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert result.returncode == expect, result.stdout + result.stderr
    return result


def build(package, target, **environment):
    return subprocess.run(
        ["./build.sh", target],
        cwd=package,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def compiled(tmp_path_factory, case, *options):
    folder = tmp_path_factory.mktemp("package")
    tiny_models.write_case(case, folder / "model")
    options = ("--max-context", 64, "--tries", 1, "-q", *options)
    program("compile", folder / "model", "-o", folder / "package", *options)
    return folder / "package"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return compiled(tmp_path_factory, "llama_gqa", "--chunk", 4)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    return compiled(tmp_path_factory, "llama_float16", "--chunk", 1, "--target", "sm_90")


@pytest.fixture(scope="module")
def alone(host, tmp_path_factory):
    """Somewhere else, without what AgentCompile itself runs, and built by its own script."""
    package = tmp_path_factory.mktemp("alone") / "package"
    shutil.copytree(host, package, ignore=shutil.ignore_patterns("host", "plan.json"))
    result = build(package, "host")
    assert result.returncode == 0, result.stderr
    return package


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def wrappers(package):
    kernels = json.loads((package / "program.json").read_text())["kernels"]
    assert kernels
    return {f"{kernel}{what}" for kernel in kernels for what in ("_launch", "_params_bytes")}


def test_package_alone_gives_the_tokens_of_run(host, alone):
    ids = ",".join(map(str, PROMPT))
    arguments = ("--ids", ids, "-n", NEW_TOKENS, "--logits", "--json")
    known = json.loads(program("run", host, *arguments).stdout)
    package = Package(alone)
    assert package.generate(PROMPT, 1) == known["generated"][:1]
    ours, theirs = package.logits("prefill").tolist(), known["last_logits"]
    assert max(abs(a - b) for a, b in zip(ours, theirs)) < 1e-3
    assert Package(alone).generate(PROMPT, NEW_TOKENS) == known["generated"]


def test_wrappers_report_errors(alone):
    package = Package(alone)
    launch = dict(package.program["decode"]["launches"][0], threads=4096)
    with pytest.raises(AssertionError, match="a block of 4096 threads"):
        package.launch(launch, 1)


@pytest.mark.skipif(not Path(NVCC).exists(), reason="no nvcc here")
def test_sources_build_for_a_gpu(gpu):
    result = build(gpu, "sm_90a", NVCC=NVCC)
    assert result.returncode == 0, result.stderr
    (library,) = gpu.glob("*.so")
    assert exported(library) == wrappers(gpu) | {f"{library.stem[3:-8]}_error"}
    library.unlink()


def test_build_script_says_what_is_missing(host):
    none = build(host, "host", CXX="no-such-compiler")
    assert none.returncode == 1 and "no-such-compiler is missing" in none.stderr
    none = build(host, "sm_90a", NVCC="no-such-nvcc")
    assert none.returncode == 1 and "nvcc is missing" in none.stderr
    bare = build(host, "host", CXX="false")
    assert bare.returncode == 1 and "fmt and Boost.Context" in bare.stderr
    assert build(host, "90").returncode == 1


def test_package_holds_only_what_its_kernels_reach(host, gpu):
    for package in (host, gpu):
        present = {p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file()}
        reached, waiting = set(), ["kernels.cu", "wrappers.cc"]
        waiting += [name for name in present if name.startswith("kernels/shim/") and name.endswith(".cc")]
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            for line in (package / name).read_text().splitlines():
                if line.startswith('#include "'):
                    waiting.append(line.split('"')[1])
        sources = {name for name in present if name.endswith((".h", ".cc", ".cu", ".cuh"))}
        assert sources == reached
        assert {"CMakeLists.txt", "README.md", "build.sh", "plan.json"} <= present
        assert str(ROOT) not in (package / "wrappers.h").read_text()
