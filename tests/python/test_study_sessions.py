"""scripts/study-sessions.sh: sessions over two spaces in five orders, answered by who does not know the arm."""

import json
import os
import re
import subprocess

import pytest
from compiled import PROGRAM, ROOT

WAITS = 5
SPACES = {"llama-3.2-1b-qkv": "rms_norm+linear+linear+linear", "qwen3-1.7b-last-o": "linear+add"}


def run(mode, out, *arguments) -> subprocess.CompletedProcess:
    environment = {**os.environ, "AGENTCOMPILE": str(PROGRAM), "MODEL": "nobody", "DATE": "2026-11-29"}
    command = [ROOT / "scripts/study-sessions.sh", mode, out, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def sessions(mode, out, *arguments) -> str:
    ran = run(mode, out, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def first_changes(question) -> str:
    """A reply that proposes the first value of each of the first four fields."""
    legal = question.split("## Legal changes that were not tried")[1].split("## Budget")[0]
    changes = [line.split(":") for line in legal.strip().splitlines()][:4]
    proposals = [{"site": "", "field": field.strip(), "value": values.split()[0]} for field, values in changes]
    return json.dumps({"note": "", "proposals": proposals})


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    sessions("tables", folder)
    return folder


def key(out) -> dict:
    rows = [line.split() for line in (out / "sessions.txt").read_text().splitlines()]
    return {number: (arm, space, order) for number, arm, space, order in rows}


def test_five_orders_of_two_spaces(out):
    signatures = set()
    for space, ops in SPACES.items():
        orders = []
        for order in range(1, 6):
            text = (out / f"tables/{space}-order-{order}.jsonl").read_text()
            lines = [json.loads(line) for line in text.splitlines()]
            (region,) = [line for line in lines if "signature" in line]
            assert region["description"] == f"{ops}, unfitted constants"
            assert region["signature"].endswith(f"; unfitted constants, order {order}")
            signatures.add(region["signature"])
            orders.append([line["plan"] for line in lines if "plan" in line])
        assert len({tuple(order) for order in orders}) == 5
        assert len({frozenset(order) for order in orders}) == 1
    assert len(signatures) == 10
    assert len(set(key(out).values())) == 40


@pytest.mark.parametrize("arm", ["none", "other"])
def test_a_session_is_played_to_its_end(out, arm):
    number = next(number for number, of in key(out).items() if of[0] == arm)
    folder = out / "play" / number
    asked = []
    while (ran := run("play", out, number)).returncode == WAITS:
        asked.append(f"question-{len(asked) + 1:02}.txt")
        assert asked[-1] in ran.stdout
        assert sorted(file.name for file in folder.glob("question-*")) == asked  # names do not say the arm
        answer = folder / asked[-1].replace("question", "answer")
        assert run("play", out, number).returncode == WAITS
        answer.write_text(first_changes((folder / asked[-1]).read_text()))
    assert re.fullmatch(r"finished: 64 attempts, \d+ calls\n", ran.stdout), ran.stdout + ran.stderr
    assert sessions("play", out, number) == ran.stdout  # nothing is recorded twice
    (recorded,) = map(json.loads, (out / f"recorded/{number}.jsonl").read_text().splitlines())
    assert recorded["arm"] == "proposals+tree (" + {"none": "no", "other": "another program's"}[arm] + " feedback)"
    assert len(recorded["calls"]) == len(asked) == len((out / f"replies/{number}.jsonl").read_text().splitlines())


def test_tables_of_a_space_are_of_one_kind(out):
    sessions("chance", out)
    sessions("replay", out)
    report = json.loads((out / "report/report.json").read_text())
    assert [case["kind"] for case in report["cases"]] == [0] * 5 + [1] * 5
    (arm,) = [arm for arm in report["groups"][0]["arms"] if arm["arm"].endswith("(by chance)")]
    assert arm["searches"] == 50
