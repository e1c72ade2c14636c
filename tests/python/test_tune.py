"""Guidance from the command line: tables are recorded and replayed, packages are tuned, and what was
tried is in the database."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import tiny_models

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
SMALL = ("--cover", "--regions", "linear+add", "embedding", "--max-candidates", 6, "--context", 20)
QUICK = ("--rounds", 2, "--seconds", 0.0005, "-q")


def program(*arguments, expect=0):
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert result.returncode == expect, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    tiny_models.write_case("llama_gqa", folder)
    return folder


@pytest.fixture(scope="module")
def table(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("table") / "t.jsonl"
    program("study", "record", model, "-o", file, *SMALL, *QUICK)
    return file


def test_recording_resumes(model, table):
    lines = table.read_text().splitlines()
    header = json.loads(lines[0])
    assert header["study"] == 1 and header["device"] and header["commit"] and "record" in header["command"]
    points = [line for line in map(json.loads, lines) if "plan" in line]
    assert len(points) == 18 and all(point["outcome"] == "measured" for point in points)
    # Cut off in the middle of a line, as by an interruption: what is lost is done again.
    table.write_text("\n".join(lines[:-2]) + "\n" + lines[-2][:30])
    result = json.loads(program("study", "record", model, "-o", table, *SMALL, *QUICK, "--json").stdout)
    assert (result["points"], result["new"], result["regions"]) == (18, 2, 3)
    other = program("study", "record", model, "-o", table, "--context", 30, "-q", expect=2)
    assert "context" in other.stderr


def test_replay_reports_what_the_table_holds(table, tmp_path):
    result = program("study", "replay", table, "-o", tmp_path / "r", "--repetitions", 5, "--resamples", 50)
    assert "its arm is empty" in result.stdout
    report = json.loads((tmp_path / "r/report.json").read_text())
    arms = {arm["arm"]: arm for arm in report["groups"][0]["arms"]}
    assert arms["oracle"]["share"][0][0] == 1
    assert arms["tree"]["share"][5][0] == pytest.approx(1)  # all six were tried
    replies = tmp_path / "replies.jsonl"
    signature = report["cases"][0]["signature"]
    plans = [json.loads(line)["plan"] for line in table.read_text().splitlines() if '"plan"' in line]
    replies.write_text(
        json.dumps({"region": signature, "order": plans[:3], "model": "test", "date": "2026-01-01"}) + "\n"
    )
    options = ("--repetitions", 5, "--resamples", 50, "--advice", replies, "--json")
    advised = json.loads(program("study", "replay", table, "-o", tmp_path / "r", *options).stdout)
    assert "advice+tree (reversed)" in {arm["arm"] for arm in advised["groups"][0]["arms"]}
    assert "magic" in program(
        "study", "replay", table, "-o", tmp_path / "r", "--strategies", "magic", expect=2
    ).stderr
    table_text = table.read_text().replace('"samples_us":[', '"samples_us":[-1,', 1)
    (tmp_path / "bad.jsonl").write_text(table_text)
    refused = program("study", "replay", tmp_path / "bad.jsonl", "-o", tmp_path / "r", expect=3).stderr
    assert "line 3" in refused and "samples_us" in refused


def test_tuning_resumes_and_leaves_a_package_that_runs(model, tmp_path):
    package, database = tmp_path / "package", tmp_path / "tuning.sqlite"
    program("compile", model, "-o", package, "--max-context", 64, "--chunk", 4, "--unmeasured", "-q")
    ids = ("--ids", "5,17,3,99", "-n", 4, "--json")
    before = json.loads(program("run", package, *ids).stdout)
    tune = ("tune", package, model, "--budget", 2, "--max-candidates", 4, "--db", database)
    # Killed under way: the package is the old one, and what was tried is known.
    plan = (package / "plan.json").read_bytes()
    with subprocess.Popen([PROGRAM, *map(str, tune), "-q"]) as child:
        deadline = time.time() + 120
        while time.time() < deadline and child.poll() is None:
            if database.exists() and stats(database)["attempts"] >= 3:
                break
            time.sleep(0.1)
        child.send_signal(signal.SIGKILL)
    assert (package / "plan.json").read_bytes() == plan
    tried = stats(database)["attempts"]
    assert tried >= 3
    tuned = json.loads(program(*tune, "-q", "--json").stdout)
    known = sum(region["known"] for region in tuned["regions"])
    assert known == tried
    assert stats(database)["attempts"] == sum(region["attempts"] for region in tuned["regions"])
    after = json.loads(program("run", package, *ids).stdout)
    assert after["generated"] == before["generated"]
    copy = tmp_path / "copy.sqlite"
    program("db", "export", "--db", database, tmp_path / "attempts.jsonl")
    program("db", "import", "--db", copy, tmp_path / "attempts.jsonl")
    assert stats(copy)["verdicts"] == stats(database)["verdicts"]
    assert "needs" in program("db", "prune", "--db", copy, expect=2).stderr

def stats(database):
    return json.loads(program("db", "stats", "--db", database, "--json").stdout)


def test_damaged_and_missing_databases(tmp_path):
    assert "no tuning database" in program("db", "stats", "--db", tmp_path / "none", expect=3).stderr
    (tmp_path / "bad").write_bytes(b"x" * 5000)
    assert "damaged" in program("db", "stats", "--db", tmp_path / "bad", expect=3).stderr
    (tmp_path / "bad.jsonl").write_text('{"tuning":1}\n{}\n')
    refused = program("db", "import", "--db", tmp_path / "new", tmp_path / "bad.jsonl", expect=3).stderr
    assert "line 2" in refused and "region" in refused
