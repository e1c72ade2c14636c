"""What `bench` says about a package, on the host device: whole phases, and their launches one by one."""

import json
import os
from collections import Counter

import pytest
import tiny_models
from compiled import compile_package, program

WRONG_USAGE, BAD_INPUT = 2, 3

CHUNK = 8  # as compile_package has it


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    source = tiny_models.write_case("llama_gqa", folder / "model")
    compile_package(source, folder / "package", tries=0)
    return folder / "package"


def bench(package, *options):
    new = ("--new", 3) if "--context" in options else ()
    result = program("bench", package, "--ids-random", *new, "--json", *options)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_prefill_and_decode_are_timed(package):
    lines = bench(package, "--prompt", "5,19", "--context", "4,40")
    assert [line["what"] for line in lines] == ["prefill", "prefill", "decode", "decode"]
    assert [line["tokens"] for line in lines[:2]] == [5, 19]
    assert [line["context"] for line in lines[2:]] == [4, 40]
    assert all(line["ms"] > 0 and line["device"] for line in lines)
    # Keys and values of what is cached are read as well, and weights once whatever is.
    few, many = lines[2:]
    assert few["weight_bytes"] == many["weight_bytes"] > 0
    assert many["cache_bytes"] > few["cache_bytes"] > 0
    assert many["share"] == pytest.approx(
        (many["weight_bytes"] + many["cache_bytes"]) / many["ms"] * 1e-6 / many["limit_gb_s"]
    )


def test_lines_say_what_was_left_out(package):
    lines = bench(package, "--prompt", 5, "--context", 4, "--without", "graph,overlap")
    assert [line["what"] for line in lines] == ["prefill", "decode"]
    assert all(line["without"] == ["graph", "overlap"] and line["ms"] > 0 for line in lines)
    program("bench", package, "--ids-random", "--without", "kernels", expect=WRONG_USAGE)


def test_every_launch_of_a_phase_is_timed(package):
    lines = bench(package, "--prompt", 19, "--context", 30, "--kernels")
    phases = json.loads((package / "program.json").read_text())
    for phase, tokens, context in (("prefill", CHUNK, 11), ("decode", 1, 30)):
        launches = [line for line in lines if line.get("phase") == phase]
        assert all(line["tokens"] == tokens for line in launches)
        assert all(line["context"] == context for line in launches)
        timed = Counter()
        for line in launches:
            timed[line["kernel"]] += line["launches"]
            assert line["us"] > 0 and line["bytes"] > 0
        assert timed == Counter(launch["kernel"] for launch in phases[phase]["launches"])


def test_what_cannot_be_timed(package, tmp_path):
    result = program("bench", package, "--prompt", 4, expect=WRONG_USAGE)
    assert "--ids-random" in result.stderr
    result = program("bench", package, "--ids-random", expect=WRONG_USAGE)
    assert "--prompt or --context" in result.stderr
    result = program("bench", package, "--ids-random", "--prompt", 4, "--new", 3, expect=WRONG_USAGE)
    assert "--context" in result.stderr
    for phase in ("--context", "--prompt"):
        result = program("bench", package, "--ids-random", phase, 1000, expect=BAD_INPUT)
        assert "96" in result.stderr and "--max-context" in result.stderr
    os.mkdir(tmp_path / "empty")
    result = program("bench", tmp_path / "empty", "--ids-random", "--prompt", 4, expect=BAD_INPUT)
    assert "program.json" in result.stderr
