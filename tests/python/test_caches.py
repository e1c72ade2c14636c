"""The caches of built kernels, of verdicts and of attempts: whatever happens to their files, a
compilation gives the same tokens or says what is wrong, and never believes what it did not write."""

import json
import os
import random
import shutil
import subprocess

import pytest
import tiny_models
from compiled import PROGRAM, generate, phase_of, program
from damage import damage, files_in
from once import once_a_run
from variants import LONG, varied

NAME = "llama_mha_tied"
# Fallbacks alone: a few kernels, which are built and judged in seconds.
OPTIONS = ("--max-context", 32, "--chunk", 4, "--short-prompt", 0, "--tries", 0, "--unmeasured", "-f", "-q")
IDS = [5, 17, 3, 60, 2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_case(NAME, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """A full cache, and the tokens of what is compiled with it."""
    make = lambda folder: compile_with(folder / "cache", model, folder / "package")
    folder = once_a_run(tmp_path_factory, "whole-cache", make)
    return folder / "cache", generate(folder / "package", IDS, 8)


def compile_with(cache, model, package, *options, expect=0):
    return program("compile", model, "-o", package, *OPTIONS, *options, expect=expect, XDG_CACHE_HOME=str(cache))


def verdicts_in(cache):
    return sorted((cache / "agentcompile/kernels/verdicts").iterdir())



@pytest.fixture
def copy(whole, tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(whole[0], cache)
    return cache


def test_a_cache_that_was_moved_is_as_good(model, whole, copy, tmp_path):
    before = {path.name: path.stat().st_mtime_ns for path in verdicts_in(copy)}
    said = compile_with(copy, model, tmp_path / "package").stderr
    assert said == ""
    assert {path.name: path.stat().st_mtime_ns for path in verdicts_in(copy)} == before
    assert generate(tmp_path / "package", IDS, 8) == whole[1]


@pytest.mark.parametrize("what", varied(["forged", "another's"], ["one letter", "no JSON"]))
def test_a_verdict_is_believed_only_as_it_was_written(what, model, whole, copy, tmp_path):
    files = verdicts_in(copy)
    texts = [path.read_bytes() for path in files]
    for i, path in enumerate(files):
        path.write_bytes(
            {
                "forged": b'{"kind":"admitted","worst_error":0.5,"launches":3,"scenarios":1,"seconds":0.1}',
                "another's": texts[i - 1],
                "one letter": texts[i].replace(b'"admitted"', b'"aemitted"'),
                "no JSON": b"\0\xff{",
            }[what]
        )
    said = compile_with(copy, model, tmp_path / "package").stderr.splitlines()
    # Each is named once, although progress is not wanted, and judged anew.
    assert len(said) == len(files)
    for path in files:
        assert sum(str(path) in line for line in said) == 1
    assert all(line.startswith("warning: ") and "judged again" in line for line in said)
    plan = json.loads((tmp_path / "package/plan.json").read_text())
    assert phase_of(plan, "decode")["ending"]["attempts"][0]["outcome"].get("worst_error") != 0.5
    # It is mended.
    assert compile_with(copy, model, tmp_path / "package").stderr == ""
    assert generate(tmp_path / "package", IDS, 8) == whole[1]


def test_a_damaged_kernel_is_named_and_built_anew(model, whole, copy, tmp_path):
    kernels = sorted(copy.rglob("kernel.so"))
    kernels[0].write_bytes(kernels[0].read_bytes()[:100])
    (kernels[1].parent / "record").write_bytes(b"x")
    said = compile_with(copy, model, tmp_path / "package").stderr.splitlines()
    assert len(said) == 2 and str(kernels[0]) in "".join(said)
    assert all(line.startswith("warning: ") and "built anew" in line for line in said)
    assert compile_with(copy, model, tmp_path / "package").stderr == ""


def read_only(cache, *arguments):
    """In a file system of its own, where the cache may only be read."""
    script = 'mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, cache, PROGRAM, *map(str, arguments)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="needs a mount of its own",
)
def test_a_cache_that_may_only_be_read_is_read(model, whole, copy, tmp_path):
    compile_it = ("compile", model, "-o", tmp_path / "package", *OPTIONS, "--database", "none")
    result = read_only(copy, *compile_it)
    assert (result.returncode, result.stderr) == (0, "")
    # What it lacks is built and judged for this run alone.
    missing = sorted(copy.rglob("kernel.so"))[0].parent
    shutil.rmtree(missing)
    for path in verdicts_in(copy)[:3]:
        path.unlink()
    before = files_in(copy)
    result = read_only(copy, *compile_it)
    assert result.returncode == 0, result.stderr
    assert "cannot be written" in result.stderr and "not kept" in result.stderr
    assert files_in(copy) == before
    assert generate(tmp_path / "package", IDS, 8) == whole[1]


def test_no_damage_changes_a_token(model, whole, tmp_path):
    """A compilation on a damaged cache goes on, or says what is wrong; what it makes is right."""
    chance = random.Random(20261123)
    cache, package = tmp_path / "cache", tmp_path / "package"
    shutil.copytree(whole[0], cache)
    failed = 0
    for i in range(500 if LONG else 8):
        # Several at once where few are tried; what earlier ones did to the cache stays, mended or not.
        done = [damage(cache, chance, among_caches(cache)) for _ in range(1 if LONG else 3)]
        result = subprocess.run(
            [PROGRAM, *map(str, ("compile", model, "-o", package, *OPTIONS))],
            capture_output=True,
            text=True,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        )
        said = f"{i}: {done}: {result.stderr}"
        assert result.returncode in (0, 1, 3), said
        assert "internal error" not in result.stderr and "terminate" not in result.stderr, said
        if result.returncode != 0:
            failed += 1
            assert result.stderr.splitlines()[-1].startswith("error: "), said
            continue
        assert generate(package, IDS, 8) == whole[1], said
    assert failed == 0


def among_caches(cache):
    """Few of the many small files; every kind as often."""
    kinds = {}
    for path in files_in(cache):
        if path.name != ".lock":
            kinds.setdefault(path.parent.name if path.suffix == ".json" else path.suffix or path.name, []).append(path)
    return [path for files in kinds.values() for path in files[:10]]
