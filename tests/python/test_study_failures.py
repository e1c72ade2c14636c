"""scripts/study-failures.sh: sessions over two spaces with planted failures, with reasons and without."""

import json
import os
import re
import subprocess
import sys

import pytest
from compiled import PROGRAM, ROOT

WAITS = 5
PROTOCOL = (ROOT / "docs/study/protocol.md").read_text().split("## Sessions with planted failures")[1]
SPACES = {"llama-3.2-1b-qkv": "rms_norm+linear+linear+linear", "qwen3-1.7b-gate-up": "rms_norm+linear+silu+linear+mul"}
ATTEMPTS = 24


def run(mode, out, *arguments) -> subprocess.CompletedProcess:
    environment = {**os.environ, "AGENTCOMPILE": str(PROGRAM), "PYTHON": sys.executable, "MODEL": "nobody",
                   "DATE": "2026-11-29"}  # fmt: skip
    command = [ROOT / "scripts/study-failures.sh", mode, out, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def done(mode, out, *arguments) -> str:
    ran = run(mode, out, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def first_changes(question) -> str:
    """A reply that proposes the first value of each of the first four fields."""
    legal = question.split("## Legal changes that were not tried")[1].split("## Budget")[0]
    changes = [line.split(":") for line in legal.strip().splitlines()][:4]
    proposals = [{"site": "", "field": field.strip(), "value": values.split()[0]} for field, values in changes]
    return json.dumps({"note": "", "proposals": proposals})


def said_in(question) -> str:
    return question.split("## What was said of each failure")[1].split("##")[0]


def finish(out, number) -> list[str]:
    """The questions of a session that is played to its end."""
    folder, questions = out / "play" / number, []
    while (ran := run("play", out, number)).returncode == WAITS:
        name = f"question-{len(questions) + 1:02}.txt"
        assert name in ran.stdout
        questions.append((folder / name).read_text())
        (folder / name.replace("question", "answer")).write_text(first_changes(questions[-1]))
    assert re.fullmatch(rf"finished: {ATTEMPTS} attempts, {len(questions)} calls\n", ran.stdout), ran.stdout + ran.stderr
    assert done("play", out, number) == ran.stdout  # nothing is recorded twice
    kept = map(json.loads, (out / f"questions/{number}.jsonl").read_text().splitlines())
    assert [line["question"] for line in kept] == questions
    return questions


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    done("tables", folder)
    return folder


def key(out) -> dict:
    rows = [line.split() for line in (out / "sessions.txt").read_text().splitlines()]
    return {tuple(of): number for number, *of in rows}


def lines_of(out, arm, space, order) -> list[dict]:
    return [json.loads(line) for line in (out / f"tables/{arm}-{space}-order-{order}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("space", SPACES)
def test_tables_are_planted_and_say_so(out, space):
    for order in range(1, 6):
        reasons, withheld = (lines_of(out, arm, space, order) for arm in ("reasons", "withheld"))
        assert all("failures were planted" in lines[0]["planted"] for lines in (reasons, withheld))
        assert reasons[1] == withheld[1] and reasons[1]["description"] == f"{SPACES[space]}, unfitted constants"
        failed = 0
        for told, not_told in zip(reasons, withheld, strict=True):
            if told.get("outcome") in ("uncompilable", "wrong"):
                failed += 1
                assert len(told["why"]) > 40 and "samples_us" not in told
                assert not_told == {**told, "outcome": "failed", "why": "failed"}
            elif "plan" in told:
                assert told == not_told and told["outcome"] == "measured"
        works = len([line for line in reasons if "plan" in line]) - failed
        assert f"{works} plans of the first space work" in PROTOCOL or f"Of the second {works} work" in PROTOCOL
        rows = PROTOCOL.split("| gate and up")[list(SPACES).index(space)]
        assert failed == sum(map(int, re.findall(r"\| (\d+)(?: of 400)? \| (?:wrong|uncompilable)", rows)))
    assert len(set(key(out).values())) == len(key(out)) == 20


def test_sessions_are_told_reasons_or_none(out):
    space = "qwen3-1.7b-gate-up"
    told, not_told = (finish(out, key(out)[arm, space, "1"]) for arm in ("reasons", "withheld"))
    for question in (*told, *not_told):
        assert "planted" not in question
    assert "0xc000 max" in said_in(told[-1]) and "Unknown modifier" in said_in(told[-1])
    for question in not_told:
        assert set(re.findall(r'".*"', said_in(question))) == {'"failed"'}
        assert not re.search("uncompilable|wrong|ptxas|numerics", question)
    # Who proposes alike is led alike: the search reads no reason. The list is of what was tried until then.
    recorded = [out / f"recorded/{key(out)[arm, space, '1']}.jsonl" for arm in ("reasons", "withheld")]
    ours, others = (json.loads(file.read_text()) for file in recorded)
    assert ours["plans"] == others["plans"] and ours["arm"] == "proposals+tree"
    outcomes = {line["plan"]: line for line in lines_of(out, "reasons", space, 1) if "plan" in line}
    for question in told:
        left = int(re.search(rf"(\d+) of {ATTEMPTS} attempts are left", question)[1])
        why = [outcomes[plan]["why"] for plan in ours["plans"][: ATTEMPTS - left] if "why" in outcomes[plan]]
        assert re.findall(r'^    (".*")$', said_in(question), re.M) == [json.dumps(reason) for reason in why]


def test_counts_are_those_of_the_replay_and_of_the_protocol(out):
    done("chance", out)
    done("replay", out)
    counted = json.loads((out / "count.json").read_text())
    arms = counted["arms"]
    for arm in ("reasons", "withheld"):
        report = json.loads((out / f"report-{arm}/report.json").read_text())
        assert [case["kind"] for case in report["cases"]] == [0] * 5 + [1] * 5
        replayed = {one["arm"]: one for one in report["groups"][0]["arms"]}
        assert replayed["proposals+tree (by chance)"]["searches"] == 50
        for name, ours in (("tree", "tree"), ("surrogate", "surrogate"), ("proposals+tree (by chance)", "chance")):
            (to,) = [to for to in replayed[name]["to_within"] if to["within"] == 0.1]
            mean = sum(of["attempts"] for of in arms[ours].values()) / 10
            assert to["attempts"] == pytest.approx(mean, abs=1e-6), name
    text = " ".join(PROTOCOL.split())
    for space in SPACES:
        for strategy in ("tree", "surrogate"):
            needed = [f"{arms[strategy][f'{space}-order-{order}']['attempts']:.0f}" for order in range(1, 6)]
            assert f"{', '.join(needed[:4])} and {needed[4]} with `{strategy}`" in text
            assert sum(map(int, needed)) >= 50
    # Of the two sessions that were played.
    pair = counted["differences"]["withheld"]["attempts"]
    assert pair["both"] == pair["qwen3-1.7b-gate-up"] == [0, 0, 0]
    session = arms["reasons"]["qwen3-1.7b-gate-up-order-1"]
    assert 0 < session["failed_before"] <= session["failed"] <= ATTEMPTS
    assert 0 <= session["taken_failed"] <= session["taken"] <= ATTEMPTS
