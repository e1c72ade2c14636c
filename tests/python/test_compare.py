"""bench/compare times this program and others on one geometry, and makes tables of it."""

import json
import os
import subprocess
import sys

import pytest
import tiny_models
from compiled import PROGRAM, ROOT

COMPARE = ROOT / "bench/compare/compare.py"
# A stand-in that prints in the form of llama-bench, for a request of 4 and 3 tokens.
LLAMA_BENCH = """#!/bin/sh
test "$*" = "-m model.gguf -p 0 -n 0 -pg 4,3 -ngl 999 -r 3 -o json" || exit 9
echo '[{"build_commit": "1a2b3c", "cpu_info": "a CPU", "gpu_info": "", "model_type": "llama 1B F16", "n_prompt": 4,
  "n_gen": 3, "avg_ns": 2100000, "samples_ns": [2000000, 2300000, 2100000]}]'
"""


def compare(*arguments, expect=0, path=None):
    result = subprocess.run(
        [sys.executable, COMPARE, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]},
    )
    assert result.returncode == expect, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return tiny_models.write_case("llama_gqa", tmp_path_factory.mktemp("compare") / "model") / "config.json"


def ours(config, out, *options):
    compile_options = "--tries 0 --unmeasured --chunk 8"
    return compare(
        *(config, "-o", out, "--program", PROGRAM, "--device", "host", "--dtype", "float32", "--workload", "i4/o3"),
        *("--quick", "--compile-options", compile_options, *options),
    )


def test_systems_are_compared(config, tmp_path):
    out = tmp_path / "out.jsonl"
    result = ours(config, out, "--systems", "agentcompile,eager,vllm,llama.cpp")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    times = {line["system"]: line for line in lines if line["what"] == "workload"}
    assert list(times) == ["agentcompile", "eager"]
    for line in times.values():
        assert (line["input"], line["output"], line["repeats"], line["warm_ups"]) == (4, 3, 3, 1)
        assert line["dtype"] in ("f32", "float32") and line["device"] == "host device"
        assert line["ms"] == pytest.approx(line["ms_first"] + 2 * line["ms_token"])
        assert f"| {line['system']} | {line['ms']:.1f} |" in result.stdout
    faster = times["eager"]["ms"] / times["agentcompile"]["ms"]
    assert f"| agentcompile | {faster:.2f} |" in result.stdout
    reasons = {line["system"]: line["reason"] for line in lines if line["what"] == "left out"}
    assert reasons["vllm"] == "it is not installed" and "llama-bench" in reasons["llama.cpp"]
    assert "- vllm is left out: it is not installed" in result.stdout
    assert compare("--tables", out).stdout == result.stdout


def test_mechanisms_are_left_out(config, tmp_path):
    out = tmp_path / "out.jsonl"
    table = ours(config, out, "--ablate").stdout
    names = [json.loads(line)["left_out"] for line in out.read_text().splitlines()]
    assert names == ["nothing", "overlap", "graph", "graph, overlap"] + [
        "whole_step", "whole_step, fusion", "whole_step, fusion, gemv"
    ]  # fmt: skip
    assert all(f"| {name} | " in table for name in names)


def test_llama_cpp_is_read(tmp_path):
    program = tmp_path / "llama-bench"
    program.write_text(LLAMA_BENCH)
    program.chmod(0o755)
    script = [sys.executable, COMPARE.with_name("time_llama_cpp.py"), "model.gguf", "--workload", "i4/o3", "--quick"]
    line = json.loads(subprocess.run([*script, "--program", program], check=True, capture_output=True).stdout)
    assert (line["system"], line["ms"], line["ms_min"], line["ms_max"]) == ("llama.cpp", *map(pytest.approx, (2.1, 2, 2.3)))
    assert line["device"] == "a CPU" and "ms_first" not in line


def test_what_cannot_be_compared(config, tmp_path):
    assert "--workload: i4 is not" in compare(config, "-o", "x", "--workload", "i4", expect=2).stderr
    assert "are needed" in compare(config, expect=2).stderr
    assert "none of agentcompile" in compare(config, "-o", "x", "--systems", "tgi", expect=2).stderr
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"what": "workload", "system": "eager"')
    assert f"{broken}: line 1" in compare("--tables", broken, expect=1).stderr
    out = tmp_path / "out.jsonl"
    failed = ["-o", out, "--systems", "agentcompile", "--program", "/bin/false", "--dtype", "float32"]
    assert "- agentcompile is left out: it does not compile" in compare(config, *failed, expect=1).stdout
