"""What `bench` says about a package, on the host device: whole phases, and their launches one by one."""

import csv
import io
import json
import os
from collections import Counter

import pytest
import tiny_models
from compiled import compile_package, phase_of, program

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
    result = program("bench", package, *new, "--json", *options)
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


def test_workloads_run_end_to_end(package):
    lines = bench(package, "--workload", "i5/o4,i19/o1", "--repeat", 3, "--warm-up", 0)
    assert [(line["workload"], line["input"], line["output"]) for line in lines] == [("i5/o4", 5, 4), ("i19/o1", 19, 1)]
    several, one = lines
    for line in lines:
        assert line["ms_min"] <= line["ms"] <= line["ms_max"] and line["repeats"] == 3
        assert line["tokens_per_second"] == pytest.approx(line["output"] / line["ms"] * 1e3)
    assert several["ms"] == pytest.approx(several["ms_first"] + 3 * several["ms_token"])
    assert "ms_token" not in one and one["ms_first"] == pytest.approx(one["ms"], rel=0.5)


def test_the_papers_workloads_are_timed_if_there_is_room(package, tmp_path):
    result = program("bench", package, expect=WRONG_USAGE)
    assert "i20480/o16384 is left out" in result.stderr and "--max-context 36864" in result.stderr
    assert "--workload i48/o48" in result.stderr
    model = tiny_models.write_case("llama_gqa", tmp_path / "model")
    program("compile", model, "-o", tmp_path / "roomy", "--tries", 0, "--chunk", 16, "--max-context", 256)
    lines = bench(tmp_path / "roomy", "--quick")
    assert [(line["workload"], line["repeats"], line["warm_ups"]) for line in lines] == [("i128/o128", 3, 1)]


def test_every_format_has_the_same_figures(package):
    def said(form):
        return program("bench", package, "--workload", "i4/o2", "--prompt", 4, "--quick", "-o", form).stdout

    fields = set(bench(package, "--workload", "i4/o2", "--quick")[0])
    array = json.loads(said("json"))
    assert [line["what"] for line in array] == ["workload", "prefill"] and set(array[0]) == fields
    table = list(csv.DictReader(io.StringIO(said("csv"))))
    assert [row["what"] for row in table] == ["workload", "prefill"]
    assert table[0]["workload"] == "i4/o2" and float(table[0]["ms"]) > 0 and table[1]["ms_first"] == ""
    lines = said("md").splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("|---")]
    assert [lines[i - 3] for i in heads] == ["## workload", "## prefill"]
    for i in heads:
        assert lines[i - 1].count("|") == lines[i].count("|") == lines[i + 1].count("|")
    assert "i4/o2: " in said("text")


def test_mechanisms_are_left_out(package):
    lines = bench(package, "--prompt", 5, "--context", 4, "--without", "graph,overlap")
    assert [line["what"] for line in lines] == ["prefill", "decode"]
    assert all(line["left_out"] == "graph, overlap" and line["ms"] > 0 for line in lines)
    lines = bench(package, "--prompt", 5, "--ablate")
    assert [line["left_out"] for line in lines] == ["nothing", "overlap", "graph", "graph, overlap"]
    assert "left_out" not in bench(package, "--prompt", 5)[0]
    program("bench", package, "--without", "kernels", expect=WRONG_USAGE)
    program("bench", package, "--ablate", "--without", "graph", expect=WRONG_USAGE)


def test_every_launch_of_a_phase_is_timed(package):
    lines = bench(package, "--prompt", 19, "--context", 30, "--kernels", "--timeline")
    of = json.loads((package / "program.json").read_text())
    for phase, tokens, context in (("prefill", CHUNK, 11), ("decode", 1, 30)):
        launches = [line for line in lines if line.get("phase") == phase]
        assert all(line["tokens"] == tokens for line in launches)
        assert all(line["context"] == context for line in launches)
        timed = Counter()
        for line in launches:
            timed[line["kernel"]] += line["launches"]
            assert line["us"] > 0 and line["bytes"] > 0
        assert timed == Counter(launch["kernel"] for launch in phase_of(of, phase)["launches"])
    timeline, end = [line for line in lines if line["what"] == "timeline"], 0
    assert [line["kernel"] for line in timeline] == [launch["kernel"] for launch in phase_of(of, "decode")["launches"]]
    for line in timeline:
        assert line["us"] > 0 and line["start_us"] == pytest.approx(end)
        end = line["start_us"] + line["us"]
    kinds = [line for line in lines if line["what"] == "launch" and line["phase"] == "decode"]
    assert sum(line["launches"] * line["bytes"] for line in kinds) == sum(line["bytes"] for line in timeline)
    program("bench", package, "--prompt", 19, "--timeline", expect=WRONG_USAGE)


def test_steps_of_several_sequences_are_timed(package, tmp_path):
    source = tiny_models.write_case("llama_gqa", tmp_path / "model")
    several = tmp_path / "several"
    program("compile", source, "-o", several, "--tries", 1, "--unmeasured", "--chunk", 8, "--short-prompt", 0, "--slots", 3, "-q")
    lines = bench(several, "--context", "4,40", "--slots", 3)
    assert [line["what"] for line in lines] == ["decode", "together"] * 2
    assert all(line["sequences"] == 3 and line["ms"] > 0 for line in lines if line["what"] == "together")
    result = program("bench", several, "--context", 4, "--slots", 4, expect=WRONG_USAGE)
    assert "steps of up to 3 sequences: compile with --slots 4" in result.stderr
    result = program("bench", package, "--context", 4, "--slots", 2, expect=WRONG_USAGE)
    assert "compile with --slots 2" in result.stderr
    program("bench", several, "--slots", 3, expect=WRONG_USAGE)


def test_what_cannot_be_timed(package, tmp_path):
    for workload in ("128/128", "i128", "i0/o4", "i4/o4x", "o4/i4", "i4/o99999999999999999999"):
        result = program("bench", package, "--workload", workload, expect=WRONG_USAGE)
        assert workload in result.stderr and "i128/o128" in result.stderr
    result = program("bench", package, "--prompt", 4, "--new", 3, expect=WRONG_USAGE)
    assert "--context" in result.stderr
    for what in (("--context", 1000), ("--prompt", 1000), ("--workload", "i90/o90")):
        result = program("bench", package, *what, expect=BAD_INPUT)
        assert "96" in result.stderr and "--max-context" in result.stderr
    os.mkdir(tmp_path / "empty")
    result = program("bench", tmp_path / "empty", "--prompt", 4, expect=BAD_INPUT)
    assert "program.json" in result.stderr
