"""`study predict`: recorded plans with other predictions, and which spaces are hard for searches from them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import PROGRAM, ROOT, program
from test_study_sampled import CONFIG

BAD_INPUT, WRONG_USAGE = 3, 2
NOTE = ROOT / "docs/notes/2026-11-28-strangers.md"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture(scope="module")
def table(model) -> Path:
    file = model.parent / "table.jsonl"
    program("study", "record", model, "-o", file, "--regions", "silu", "argmax", "--max-candidates", 6, "--context", 20,
            "--rounds", 1, "--seconds", 0.0001, "--admit", "winners", "--database", "none", "--quiet")  # fmt: skip
    return file


def lines(file) -> list:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def points(file) -> dict:
    return {(line["region"], line["plan"]): line for line in lines(file) if "plan" in line}


def test_with_fitted_constants_it_is_the_table_again(model, table, tmp_path):
    out = tmp_path / "again.jsonl"
    names = [line["signature"] for line in lines(table) if "signature" in line]
    said = json.loads(program("study", "predict", model, table, "-o", out, "--constants", "fitted", "--json").stdout)
    assert said == {"file": str(out), "regions": len(names), "points": len(points(table)), "unknown": 0}
    assert lines(out)[0] == lines(table)[0]
    assert points(out) == points(table)
    made = [line["signature"] for line in lines(out) if "signature" in line]
    assert made == [f"{name}; fitted constants" for name in names]


def test_searches_start_from_the_new_predictions(model, table, tmp_path):
    out = tmp_path / "stranger.jsonl"
    program("study", "predict", model, table, "-o", out, "--regions", "silu")
    made = points(out)
    assert 0 < len(made) < len(points(table))
    predicted = [point["predicted_us"] for point in made.values()]
    assert [point["region"] for point in made.values()] == sorted(point["region"] for point in made.values())
    assert predicted != [point["predicted_us"] for point in points(table).values()][: len(predicted)]
    report = json.loads(program("study", "replay", out, "-o", tmp_path / "r", "--strategies", "heuristic", "--json",
                                "--resamples", 2).stdout)  # fmt: skip
    heuristic = report["groups"][0]["arms"][0]
    first = heuristic["by_case"][0]
    times = [sorted(point["samples_us"])[0] for (region, _), point in made.items() if region == 0]
    assert first["share"][0] == pytest.approx(min(times) / times[0], rel=1e-3)
    assert first["attempts_to_5_percent"] == 1 + next(i for i, t in enumerate(times) if t <= min(times) * 1.05)
    # Sessions over it are of another space than those over the recording.
    program("study", "propose", out, "-o", tmp_path / "p", "--by-chance", "--sessions", 1, "--attempts", 4)
    replay = ("study", "replay", table, "-o", tmp_path / "r", "--proposed", tmp_path / "p", "--attempts", 4, "--json")
    assert "proposals" not in json.dumps([group["arms"] for group in json.loads(program(*replay).stdout)["groups"]])


def test_what_cannot_be_predicted_is_refused(model, table, tmp_path):
    predict = ("study", "predict", model, table, "-o", tmp_path / "o")
    assert "no region" in program(*predict, "--regions", "nothing", expect=BAD_INPUT).stderr
    assert "--constants" in program(*predict, "--constants", "guessed", expect=WRONG_USAGE).stderr
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({**CONFIG, "intermediate_size": 256}))
    said = program("study", "predict", other, table, "-o", tmp_path / "o", expect=BAD_INPUT).stderr
    assert "has no such region" in said
    assert not (tmp_path / "o").exists()


def stated(title) -> list:
    """The rows of the note's table below this heading."""
    section = NOTE.read_text().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", section, re.M)][1:]


def test_searches_need_as_many_attempts_as_the_note_says(tmp_path):
    """Of the strategies that chance does not change; and of the spaces that count, which arm is best for them."""
    rows = stated("Attempts")
    assert len(rows) == 8
    hard, folder = {}, tmp_path / "out"
    environment = {**os.environ, "AGENTCOMPILE": str(PROGRAM)}
    subprocess.run([ROOT / "scripts/study-strangers.sh", folder], check=True, env=environment)
    for name, *figures in rows:
        report = json.loads((folder / f"{name.replace(' prompt of ', '-prefill-')}.json").read_text())
        arms = {arm["arm"]: arm for arm in report["groups"][0]["arms"]}
        order = ["heuristic", "diverse", "descent", "surrogate", "tree", "evolutionary", "random"]
        attempts = [next(to["attempts"] for to in arms[arm]["to_within"] if to["within"] == 0.05) for arm in order]
        assert [f"{a:.1f}" for a in attempts] == figures, name
        for case, of in enumerate(report["cases"]):
            needed = {arm: arms[arm]["by_case"][case]["attempts_to_5_percent"] for arm in order}
            best = min(order, key=needed.get)
            if needed[best] >= 20:
                hard.setdefault(name, []).append((best, f"{needed[best]:.1f}", str(of["within_5_percent"])))
    listed = {}
    for name, _, good, best, needed in stated("Spaces that are hard"):
        listed.setdefault(name, []).append((best, needed, good))
    assert listed == hard
    command = [sys.executable, ROOT / "scripts/study_hard_spaces.py", folder]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert len(said.splitlines()) == sum(map(len, hard.values()))
    reports = [(folder / name.replace(" prompt of ", "-prefill-") / "report.md").read_text() for name, *_ in rows]
    assert [int(re.search(r"(\d+) of \d+ spaces need 20 or more", report)[1]) for report in reports] == [
        len(hard.get(name, [])) for name, *_ in rows
    ]
