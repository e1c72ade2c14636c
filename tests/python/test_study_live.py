"""scripts/study-live.sh: searches on the device at hand that stop where a reply is missing, and go on elsewhere."""

import json
import os
import re
import sqlite3
import subprocess

import pytest
import tiny_models
from compiled import PROGRAM, ROOT, cache_with_kernels

ARMS = ("surrogate", "tree", "proposals")
WAITS = 5
SMALL = dict(DEVICE="host", ROOM="64", CHUNK="4", BUDGET="6", PROPOSALS="2", PLANS="2", CONTEXT="20",
             CONTEXTS="8,20", NEW="2", MODEL="tiny", WHO="nobody", DATE="2026-11-30")  # fmt: skip


def contents(folder) -> dict:
    return {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def lines(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def timed(folder) -> int:
    with sqlite3.connect(folder / "tuning.sqlite") as database:
        return database.execute("SELECT count(*) FROM attempts WHERE plan LIKE '%=%'").fetchone()[0]


def answer(asked):
    for prompt in asked.glob("*.prompt.txt"):
        legal = prompt.read_text().split("## Legal changes")[1].split("## Budget")[0]
        fields = re.findall(r"^  (\S+) (\w+): (\S+)", legal, re.M)
        proposals = [{"site": site, "field": field, "value": value, "why": ""} for site, field, value in fields[::7]]
        reply = prompt.with_name(prompt.name.replace(".prompt.", ".reply."))
        reply.write_text(json.dumps({"note": "", "proposals": proposals[:2]}))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The folder of a session that is over, and of each round how many schedules were timed when it ended."""
    root = tmp_path_factory.mktemp("live")
    configs = root / "configs"
    tiny_models.write_case("llama_gqa", root / "model")
    configs.mkdir()
    (configs / "tiny.json").write_text((root / "model/config.json").read_text())
    rounds = []
    for number in range(8):
        folder = root / f"machine-{number}/live"
        folder.parent.mkdir()
        if number == 0:
            folder.mkdir()
            cache_with_kernels(folder / "cache")
        else:  # as if it was carried to another machine
            (root / f"machine-{number - 1}/live").rename(folder)
            answer(folder / "asked")
        environment = {**os.environ, **SMALL, "AGENTCOMPILE": str(PROGRAM), "CONFIGS": str(configs)}
        ran = subprocess.run([ROOT / "scripts/study-live.sh", folder, "abc"], env=environment, capture_output=True, text=True,
                             timeout=600)  # fmt: skip
        assert ran.returncode in (0, WAITS), ran.stderr
        rounds.append(timed(folder))
        if ran.returncode == 0:
            return folder, rounds
        # What waits for a reply has changed nothing but the database.
        assert "replies are missing" in ran.stderr and not (folder / "results.jsonl").exists()
        assert contents(folder / "proposals") == contents(folder / "package")
    pytest.fail("the session does not end")


def test_rounds_go_on_and_time_nothing_twice(session):
    folder, rounds = session
    assert len(rounds) >= 3 and rounds == sorted(rounds)
    calls = [line["of"] for line in lines(folder / "calls.jsonl")]
    assert calls[:3] == ["compile", "surrogate", "tree"]
    assert calls[3 : 3 + len(rounds)] == ["proposals"] * len(rounds) and all("bench" in of for of in calls[3 + len(rounds) :])
    last = json.loads((folder / "proposals.json").read_text())
    assert last["attempts"] == 6 and last["known"] == 6 - (rounds[-1] - rounds[-2])
    assert len(last["calls"]) == len(rounds) - 1 == len(list((folder / "asked").glob("*.prompt.txt")))


def test_results_hold_all_arms(session):
    folder, _ = session
    results = lines(folder / "results.jsonl")
    assert results[0] == {"what": "live session", "commit": "abc", "model": "tiny", "who": "nobody", "date": "2026-11-30"}
    tuned = {line["arm"]: line for line in results if line["what"] == "tune"}
    assert tuple(tuned) == ARMS
    for arm in tuned.values():
        assert len(arm["tried_us"]) == arm["attempts"] == 6 and arm["failed"] == 0
    changed = {arm for arm in ARMS if contents(folder / arm) != contents(folder / "package")}
    assert changed == {arm for arm in ARMS if tuned[arm]["improved"]}
    measured = [(line["arm"], line["context"]) for line in results if line["what"] == "decode"]
    order = [arm for arm in ("package", *ARMS) if arm in changed | {"package"}]
    assert measured == [(arm, context) for arm in order + order[::-1] for context in (8, 20)]


def test_replies_are_kept_once(session):
    folder, rounds = session
    replies = lines(folder / "replies.jsonl")
    assert [reply["prompt_hash"] for reply in replies] == [
        call["prompt_hash"] for call in json.loads((folder / "proposals.json").read_text())["calls"]
    ]
    assert all(json.loads(reply["reply"])["proposals"] for reply in replies)


def test_it_says_how_it_is_used(tmp_path):
    ran = subprocess.run([ROOT / "scripts/study-live.sh", tmp_path], capture_output=True, text=True)
    assert ran.returncode == 2 and "study-live.sh FOLDER COMMIT" in ran.stderr
