"""The whole package beside one plain kernel an op: kernels that are wrong where their trials do not look are
refused, by compile before anything is written and by verify."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny_models
from compiled import phase_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
OPTIONS = ("--chunk", 4, "--max-context", 64, "--short-prompt", 1, "--tries", 1, "--unmeasured", "-q")
# Of the decode step's attention, in kernels/attention.cuh: the cached tokens that a new one sees.
RIGHT = "end = position < capacity ? position : capacity;"


def run(program, *arguments, expect=0):
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert result.returncode == expect, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_models.write_case("llama_gqa", folder)
    return folder


@pytest.fixture
def with_fault(tmp_path):
    """The program as it would be installed, with an edit of that line."""

    def make(edited):
        (tmp_path / "bin").mkdir()
        program = Path(shutil.copy(PROGRAM, tmp_path / "bin"))
        headers = tmp_path / "share/agentcompile/kernels"
        shutil.copytree(ROOT / "kernels", headers)
        attention = headers / "attention.cuh"
        text = attention.read_text()
        assert text.count(RIGHT) == 1
        attention.write_text(text.replace(RIGHT, edited))
        return program

    return make


def test_a_package_says_what_it_was_checked_for(model, tmp_path):
    package = tmp_path / "package"
    compiled = json.loads(run(PROGRAM, "compile", model, "-o", package, *OPTIONS, "--json").stdout)
    check = compiled["check"]
    assert check["done"] and not check["fault"] and check["weights"] == "own"
    # The last position that it has room for; a whole chunk.
    assert check["last_position"] == 64 and check["most_tokens"] == 4
    assert check["compared"] > 5 and 0 < check["worst"] < 1
    assert check["left_out"]  # a prompt of all its context, among others
    assert json.loads((package / "plan.json").read_text())["check"] == check
    for stage in ("verdicts", "stats"):
        assert "the whole program against plain kernels" in run(
            PROGRAM, "inspect", package, "--stage", stage
        ).stdout
        shown = run(PROGRAM, "inspect", package, "--stage", stage, "--json").stdout
        assert json.loads(shown)["check"] == check

    # With more time, and against the truth.
    verified = json.loads(run(PROGRAM, "verify", package, "--json", "-q", "--reference").stdout)["whole"]
    assert verified["with_truth"] and verified["compared"] > check["compared"]
    assert 0 < verified["worst"] < 1 and "why_no_truth" not in verified

    # Where its weights are gone, random ones do.
    shutil.rmtree(tmp_path / "package")
    weights = model / "model.safetensors"
    hidden = weights.rename(model / "hidden")
    try:
        compiled = json.loads(run(PROGRAM, "compile", model, "-o", package, *OPTIONS, "--json").stdout)
    finally:
        hidden.rename(weights)
    assert compiled["check"]["weights"] == "random" and compiled["check"]["compared"] > 5


@pytest.mark.parametrize("edited, where, says", [
    # In the package's own cache, trials are at its end alone: one token at its start sees too few.
    (RIGHT.replace("= position", "= position == 4 && capacity == 64 ? 1 : position", 1),
     "a step of 1 token after 4", "by plain kernels"),
    # It ends the process that runs it.
    ("if (position == 4 && capacity == 64) *reinterpret_cast<volatile int*>(8) = 0;\n    " + RIGHT,
     "a prompt of 4 tokens, then 1 of one token", "SIGSEGV"),
])
def test_compile_writes_no_package_that_is_wrong_as_a_whole(model, with_fault, tmp_path, edited, where, says):
    package = tmp_path / "package"
    failed = run(with_fault(edited), "compile", model, "-o", package, *OPTIONS, expect=1).stderr
    assert where in failed and says in failed
    assert "its kernels (" in failed and "decode):" in failed and "attention_" in failed
    assert not package.exists()


@pytest.mark.parametrize("edited, says", [
    # The one token that needs all of the context sees too few.
    (RIGHT.replace("= position", "= position == 63 ? 40 : position", 1), "numerics: out0["),
    # It ends the process that runs it.
    ("if (position == 63) *reinterpret_cast<volatile int*>(8) = 0;\n    " + RIGHT, "SIGSEGV"),
])
def test_what_is_wrong_where_it_is_used_is_replaced(model, with_fault, tmp_path, edited, says):
    package = tmp_path / "package"
    said = run(with_fault(edited), "compile", model, "-o", package, *OPTIONS).stderr
    assert "final admission, as used: " in said and says in said
    assert "the next best takes its place" in said
    replaced = 0
    for selection in phase_of(json.loads((package / "plan.json").read_text()), "decode")["selections"]:
        assert selection["confirmed"]
        for confirmed in selection["confirmed"]:
            assert confirmed["outcome"]["kind"] == "admitted" and confirmed["trial"] in ("as used", "races")
        for attempt in selection["attempts"]:
            if attempt["outcome"]["kind"] in ("rejected", "crashed"):
                replaced += 1
                assert attempt["outcome"]["why"].startswith("final admission, as used: ")
                assert attempt["candidate"] != selection["candidate"]
                assert "attention" not in selection["family"]
    assert replaced == 1


def test_verify_refuses_a_package_that_is_wrong_at_some_positions(model, with_fault, tmp_path):
    # Its own trials do not meet them, nor do the steps that compile has time for.
    program = with_fault(RIGHT.replace("= position", "= position % 16 == 7 ? position - 5 : position", 1))
    package = tmp_path / "package"
    run(program, "compile", model, "-o", package, *OPTIONS)
    result = run(PROGRAM, "verify", package, "--json", "-q", expect=1)
    assert "0 of" in result.stderr and "the whole program is wrong" in result.stderr
    fault = json.loads(result.stdout)["whole"]["fault"]
    assert "a step of 1 token after 39" in fault and "its kernels (decode):" in fault
    assert fault.count("attention_") == 1
    assert "fault: the whole program: " in run(PROGRAM, "verify", package, "-q", expect=1).stdout
