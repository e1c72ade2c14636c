"""Guidance from the command line: tables are recorded and replayed, packages are tuned, and what was
tried is in the database."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from statistics import median

import damage
import pytest
import tiny_models
from compiled import cache_with_kernels, phase_of
from llm_server import advice, candidates

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
SMALL = ("--cover", "--regions", "linear+add", "embedding", "--max-candidates", 6, "--context", 20)
QUICK = ("--rounds", 2, "--seconds", 0.0005, "-q")


def program(*arguments, expect=0, **environment):
    environment = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    result = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=600, env=environment
    )
    assert expect is None or result.returncode == expect, result.stdout + result.stderr
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
    # In front of what was done again is a header of its own; the rest is as it was.
    again = table.read_text().splitlines()
    assert again[: len(lines) - 2] == lines[:-2]
    added = [json.loads(line) for line in again[len(lines) - 2 :]]
    assert "--json" in added[0]["command"] and all("plan" in line or "fallback" in line for line in added[1:])
    program("study", "record", model, "-o", table, *SMALL, *QUICK)
    assert table.read_text().splitlines() == again  # nothing was left to do
    other = program("study", "record", model, "-o", table, "--context", 30, "-q", expect=2)
    assert "context" in other.stderr
    other = program("study", "record", model, "-o", table, "--dtype", "bfloat16", *SMALL, *QUICK, expect=2)
    assert "another dtype" in other.stderr


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


def test_recording_and_tuning_compute_in_the_wanted_type(model, tmp_path):
    table, package = tmp_path / "t.jsonl", tmp_path / "package"
    program("study", "record", model, "-o", table, "--dtype", "bfloat16", *SMALL, *QUICK)
    lines = [json.loads(line) for line in table.read_text().splitlines()]
    signatures = [line["signature"] for line in lines if "signature" in line]
    assert lines[0]["dtype"] == "bfloat16" and signatures
    assert all("bf16[" in signature and "f32[" not in signature.replace("bf16", "") for signature in signatures)
    # A package's type is its own, whatever the model says.
    options = ("--max-context", 64, "--chunk", 4, "--unmeasured", "-q")
    program("compile", model, "-o", package, "--dtype", "bfloat16", *options)
    compiled = json.loads((package / "program.json").read_text())
    tune = ("tune", package, model, "--budget", 1, "--max-candidates", 2, "--db", tmp_path / "d.sqlite", "-q")
    assert "--dtype float32" in program(*tune, "--dtype", "float32", expect=2).stderr
    tuned = json.loads(program(*tune, "--json").stdout)
    assert any("bf16[" in region["signature"] for region in tuned["regions"])
    after = json.loads((package / "program.json").read_text())
    assert after["dtype"] == compiled["dtype"] == "bf16"


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

def test_an_advisor_guides_the_search_of_regions(model, tmp_path):
    package, asked = tmp_path / "package", tmp_path / "asked"
    program("compile", model, "-o", package, "--max-context", 64, "--chunk", 4, "--unmeasured", "-q")
    tune = ("tune", package, model, "--budget", 1, "--max-candidates", 6, "--db", tmp_path / "t.sqlite",
            "--advisor", f"ask:{asked}", "-q")  # fmt: skip
    assert "replies are missing" in program(*tune, expect=5).stderr
    prompts = {file: file.read_text() for file in asked.glob("*.prompt.txt")}
    assert len(prompts) >= 4
    for file, prompt in prompts.items():
        reply = advice(prompt, lambda ids: ids[-1:])  # what heuristics would try last
        Path(str(file).replace(".prompt.", ".reply.")).write_text(json.dumps(reply))
    wanted = {candidates(prompt)[-1] for prompt in prompts.values()}
    regions = json.loads(program(*tune, "--json").stdout)["regions"]
    advised = [region for region in regions if region["advised"]]
    assert len(advised) == len(prompts) and {region["plan"] for region in advised} == wanted
    assert "magic" in program(*tune[:-2], "magic", expect=2).stderr


def test_a_step_is_recorded_and_replayed(model, tmp_path):
    table, database = tmp_path / "step.jsonl", tmp_path / "tuning.sqlite"
    record = ("study", "record", model, "-o", table, "--space", "step", "--max-points", 24, "--plans", 3,
              "--context", 20, "--rounds", 2, "--admit", "winners", "--reference-every", 10)  # fmt: skip
    first = json.loads(program(*record, "--database", database, "-q", "--json").stdout)
    assert 12 <= first["points"] <= 24 and first["new"] == first["measured"] == first["points"]
    lines = [json.loads(line) for line in table.read_text().splitlines()]
    points = [line for line in lines if "plan" in line]
    sites = {tuple(part["site"] for part in point["parts"]) for point in points}
    assert len(sites) == 1 and lines[0]["space"] == "step"
    assert sum("reference" in line for line in lines) == (first["points"] + 9) // 10 + 1
    # Only what is fastest is judged; its line comes last and replaces the one before it.
    judged = [point for point in points if "admission" not in point]
    assert judged and judged[-1]["outcome"] == "measured"
    tried = stats(database)
    assert tried["plans"] == first["points"] and tried["verdicts"]["measured"] >= first["points"]
    # Cut off under way: what is lost is timed again, and nothing else.
    text = table.read_text().splitlines(keepends=True)
    lost = [i for i, line in enumerate(text) if '"plan":"' in line][-4:]
    table.write_text("".join(line for i, line in enumerate(text) if i not in lost)[:-7])
    again = json.loads(program(*record, "--database", "none", "-q", "--json").stdout)
    assert again["points"] == first["points"] and 1 <= again["new"] <= 6
    other = [12 if option == 24 else option for option in record]
    refused = program(*other, "--database", "none", "-q", expect=2)
    assert "max_points" in refused.stderr

    replay = ("study", "replay", table, "-o", tmp_path / "r", "--repetitions", 20, "--resamples", 100)
    result = program(*replay, "--attempts", 16)
    assert "step of" in result.stdout
    report = json.loads((tmp_path / "r/report.json").read_text())
    (group,) = report["groups"]
    arms = {arm["arm"]: arm["share"] for arm in group["arms"]}
    assert {"random", "heuristic", "descent", "evolutionary", "surrogate", "tree", "oracle"} <= arms.keys()
    tree = next(c for c in group["comparisons"] if (c["arm"], c["against"]) == ("tree", "random"))
    for i in range(16):
        mean, low, high = tree["difference"][i]
        assert low <= mean <= high
        assert mean == pytest.approx(arms["tree"][i][0] - arms["random"][i][0], abs=1e-6)
    text = (tmp_path / "r/report.md").read_text()
    assert "Tree search against random order" in text and "drift" in text


def test_compilations_tell_the_database(model, tmp_path):
    database, package = tmp_path / "tuning.sqlite", tmp_path / "package"
    compile_it = ("compile", model, "-o", package, "--max-context", 64, "--chunk", 4, "--tries", 2, "-f")
    program(*compile_it, "--database", database, "-q")
    program("db", "export", "--db", database, tmp_path / "attempts.jsonl")
    told = {}
    for line in map(json.loads, (tmp_path / "attempts.jsonl").read_text().splitlines()[1:]):
        assert line["model"] and len(line["kernels"]) == 64 and line["device"] and line["toolkit"]
        told.setdefault((line["region"], line["plan"]), []).append(line)
    plan = json.loads((package / "plan.json").read_text())
    measured = 0
    for phase in ("prefill", "decode"):
        for region in phase_of(plan, phase)["selections"] + phase_of(plan, phase)["abandoned"]:
            for attempt in region["attempts"]:
                lines = told[region["signature"], attempt["candidate"]]
                # What is slower than the fallback is not judged.
                timed = attempt["outcome"]["kind"] in ("admitted", "unjudged")
                assert timed == any(line["verdict"] == "measured" for line in lines)
                if timed:
                    measured += 1
                    assert any(median(line["samples_us"]) == pytest.approx(attempt["measured_us"]) for line in lines)
    assert measured > 10
    assert plan["measured"] and all(phase_of(plan, phase)["measured"] for phase in ("prefill", "decode"))
    # What is not timed is not told; and nobody is told where that is wanted.
    program(*compile_it, "--unmeasured", "--database", tmp_path / "other.sqlite", "-q")
    plan = json.loads((package / "plan.json").read_text())
    assert not any(of["measured"] for of in (plan, phase_of(plan, "prefill"), phase_of(plan, "decode")))
    program(*compile_it, "--database", "none", "-q", XDG_CACHE_HOME=cache_with_kernels(tmp_path / "cache"))
    assert not (tmp_path / "other.sqlite").exists() and not list((tmp_path / "cache").rglob("*.sqlite"))


def test_no_database_fails_a_compilation(model, tmp_path):
    compile_it = ("compile", model, "-o", tmp_path / "package", "--max-context", 64, "--chunk", 4, "--tries", 1, "-f")
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"no database" * 1000)
    result = program(*compile_it, "--database", damaged)
    assert result.stderr.count("left alone") == 1 and "damaged" in result.stderr
    assert damaged.read_bytes() == b"no database" * 1000
    result = program(*compile_it, "--database", tmp_path / "damaged.sqlite" / "beneath")
    assert result.stderr.count("left alone") == 1
    locked = tmp_path / "locked.sqlite"
    program("db", "import", "--db", locked, write(tmp_path / "empty.jsonl", '{"tuning":1}\n'))
    with sqlite3.connect(locked, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        result = program(*compile_it, "--database", locked)
        other.execute("ROLLBACK")
    assert result.stderr.count("left alone") == 1 and "locked" in result.stderr
    assert stats(locked)["attempts"] == 0


def write(path, text):
    path.write_text(text)
    return path


STEP = ("--space", "step", "--plans", 2, "--context", 20, "--search", "random")


@pytest.fixture(scope="module")
def compiled(model, tmp_path_factory):
    """A package with a phase for short prompts. Tests take copies."""
    package = tmp_path_factory.mktemp("compiled") / "package"
    options = ("--max-context", 64, "--chunk", 4, "--short-prompt", 1, "--unmeasured", "-q")
    program("compile", model, "-o", package, *options)
    return package


@pytest.fixture()
def package(compiled, tmp_path):
    return shutil.copytree(compiled, tmp_path / "package")


def test_a_context_that_the_package_has_no_room_for(model, package):
    refused = program("tune", package, model, "--context", 64, "-q", expect=2).stderr
    assert "--context 64" in refused and "room for 64 tokens" in refused


def test_the_schedule_of_a_step_is_tuned(model, package, tmp_path):
    ids = ("--ids", "5,17,3,99", "-n", 4, "--json")
    before = json.loads(program("run", package, *ids).stdout)
    files = contents(package)
    copy = shutil.copytree(package, tmp_path / "copy")
    tune = ("tune", package, model, *STEP, "--db", tmp_path / "tuning.sqlite")
    # The host runs fallbacks several times as fast as the kernels that the package has.
    tuned = json.loads(program(*tune, "--budget", 12, "-q", "--json").stdout)
    assert (tuned["attempts"], tuned["known"], tuned["failed"]) == (12, 0, 0)
    assert tuned["improved"] and tuned["best_us"] < tuned["before_us"]
    plan = json.loads((package / "plan.json").read_text())
    (timed,) = phase_of(plan, "decode")["in_context"]
    assert (timed["context"], timed["timed"], timed["us"]) == (20, 12, tuned["best_us"])
    for selection in phase_of(plan, "decode")["selections"]:
        plans = {attempt["candidate"]: attempt["outcome"]["kind"] for attempt in selection["attempts"]}
        assert selection["candidate"] == "" or plans[selection["candidate"]] == "admitted"
        assert selection["trials"]
    # What was selected is what the plan says: no more parts, and no others.
    chosen = {selection["candidate"] or "fallback" for selection in phase_of(plan, "decode")["selections"]}
    assert chosen == {item.split("=")[1] for item in tuned["plan"].split()} - fusions(tuned["plan"])
    old = json.loads(files["plan.json"])
    assert phase_of(plan, "prefill")["selections"] == phase_of(old, "prefill")["selections"]
    short, old_short = phase_of(plan, "prefill to 2"), phase_of(old, "prefill to 2")
    assert (short["max_tokens"], short["tuned_at"]) == (2, 1)
    assert short["selections"] == old_short["selections"]
    assert [phase["contexts"] for phase in plan["phases"]] == [phase["contexts"] for phase in old["phases"]]
    program("verify", package)
    after = json.loads(program("run", package, *ids).stdout)
    assert after["generated"] == before["generated"]
    # Were none of them faster, the package would stay as it was, to the byte.
    program("db", "export", "--db", tmp_path / "tuning.sqlite", tmp_path / "attempts.jsonl")
    head, *attempts = (tmp_path / "attempts.jsonl").read_text().splitlines()
    failed = [json.dumps(json.loads(line) | {"verdict": "failed", "samples_us": []}) for line in attempts]
    (tmp_path / "attempts.jsonl").write_text("\n".join([head, *failed]) + "\n")
    program("db", "import", "--db", tmp_path / "failed.sqlite", tmp_path / "attempts.jsonl")
    tune_copy = ("tune", copy, model, *STEP, "--budget", 12, "--db", tmp_path / "failed.sqlite", "-q", "--json")
    none = json.loads(program(*tune_copy).stdout)
    assert (none["attempts"], none["known"], none["failed"], none["improved"]) == (12, 12, 12, False)
    assert contents(copy) == files
    # From the package that it has made, it goes on.
    again = json.loads(program(*tune, "--budget", 2, "-q", "--json").stdout)
    assert again["signature"] == tuned["signature"] and again["first_us"] < tuned["before_us"]


def test_an_advisor_guides_the_search_of_steps(model, package, tmp_path):
    asked, database = tmp_path / "asked", tmp_path / "tuning.sqlite"

    def tune(name, folder, *options, expect=0):  # each time the package as it was compiled
        copy = shutil.copytree(package, tmp_path / name)
        fixed = ("--space", "step", "--plans", 3, "--context", 20, "--db", database, "-q")
        return program("tune", copy, model, *fixed, "--advisor", f"ask:{folder}", *options, expect=expect)

    assert "replies are missing" in tune("a", asked, expect=5).stderr
    wanted = set()
    for file in asked.glob("*.prompt.txt"):
        prompt = file.read_text()
        reply = advice(prompt, lambda ids: ids[-2:][::-1])  # what heuristics would try last
        wanted.add(reply["order"][0])
        Path(str(file).replace(".prompt.", ".reply.")).write_text(json.dumps(reply))
    assert len(wanted) >= 3
    tuned = json.loads(tune("b", asked, "--budget", 1, "--json").stdout)
    assert (tuned["attempts"], tuned["known"], tuned["failed"]) == (1, 0, 0) and tuned["advised"] >= 1
    (first,) = schedules(database)
    assert wanted <= {item.split("=")[1] for item in first.split()}
    # Known by now, it is not timed again; the strategy has its turn.
    again = tune("c", asked, "--budget", 3, "--search", "random").stdout
    assert "3 schedules were tried (1 known)" in again and f"{tuned['advised']} schedules were advised" in again
    assert schedules(database)[0] == first and len(schedules(database)) == 3
    # Nobody has an opinion: as without an advisor.
    silent = tune("d", tmp_path / "silent", "--advisor-wait", 0, "--budget", 1, "--json")
    assert json.loads(silent.stdout)["advised"] == 0


def test_an_advisor_proposes_changes_of_a_step(model, package, tmp_path):
    asked, database = tmp_path / "asked", tmp_path / "tuning.sqlite"
    tune = (model, "--space", "step", "--plans", 3, "--context", 20, "--db", database, "--advisor", f"ask:{asked}",
            "--proposals", 2, "--requests", "--budget", 4, "-q")  # fmt: skip
    wish = {"site": "nowhere", "field": "threads", "value": "96", "why": "three\nwarps"}
    for rounds in range(8):
        copy = shutil.copytree(package, tmp_path / f"round-{rounds}")
        result = program("tune", copy, *tune, expect=None)
        if result.returncode == 0:
            break
        assert result.returncode == 5, result.stderr
        for prompt in asked.glob("*.prompt.txt"):
            text = prompt.read_text()
            assert "the decode step of" in text
            told = re.findall(r"^  (\S+): .*; predicted [\d.]+ us, measured (-?[\d.]+) us$", text, re.M)
            known = measured_sites(database)
            assert len(told) > 5 and dict(told) in known
            # A step takes longer with its largest site than without it.
            assert all(max(map(float, sites.values())) > 0 for sites in known)
            site, field, values = re.search(r"^  (\S+) (\w+): (.+)$", text.split("## Legal")[1], re.M).groups()
            proposal = {"site": site, "field": field, "value": values.split()[0], "why": "it is the first"}
            prompt.with_name(prompt.name.replace(".prompt.", ".reply.")).write_text(
                json.dumps({"note": "", "proposals": [proposal], "requests": [wish, proposal]})
            )
    told = [line for line in result.stdout.splitlines() if line.startswith("people are asked for")]
    assert told[0] == "people are asked for nowhere: threads=96, which was not run: three warps"
    assert told[1].endswith("which was not run (known: the space has it): it is the first")
    copy = shutil.copytree(package, tmp_path / "again")
    tuned = json.loads(program("tune", copy, *tune, "--json").stdout)
    assert all(call["requests"][0] == {**wish, "why": "three warps", "known": False} for call in tuned["calls"])
    assert rounds > 0 and tuned["attempts"] == 4 and len(tuned["calls"]) >= 2
    proposed = [item["reason"] for call in tuned["calls"] for item in call["audit"] if item["accepted"]]
    # Long ids are cut.
    assert any(plan.startswith(proposed[0].removesuffix("...")) for plan in schedules(database))
    assert "--space step" in program("tune", package, model, "--proposals", 2, expect=2).stderr
    assert "needs --proposals" in program("tune", package, model, "--requests", expect=2).stderr


def test_a_compilation_ends_with_a_search_that_an_advisor_is_asked_in(model, tmp_path):
    asked, package = tmp_path / "asked", tmp_path / "package"
    compile_ = ("compile", model, "-o", package, "--max-context", 64, "--chunk", 4, "--short-prompt", 0, "--tries", 1,
                "--advisor", f"ask:{asked}", "--proposals", 2, "--attempts", 3, "--database", tmp_path / "d.sqlite")  # fmt: skip
    assert "replies are missing" in program(*compile_, "-q", expect=5).stderr
    (question,) = asked.glob("*.prompt.txt")
    before = contents(package)  # which is whole
    program("verify", package)
    assert "replies are missing" in program(*compile_, "-q", expect=5).stderr
    assert [question] == list(asked.glob("*.prompt.txt"))  # the same question, as nothing was compiled again
    for _ in range(4):
        for prompt in asked.glob("*.prompt.txt"):
            site, field, values = re.search(r"^  (\S+) (\w+): (.+)$", prompt.read_text().split("## Legal")[1], re.M).groups()
            reply = {"note": "", "proposals": [{"site": site, "field": field, "value": values.split()[0], "why": ""}]}
            prompt.with_name(prompt.name.replace(".prompt.", ".reply.")).write_text(json.dumps(reply))
        result = program(*compile_, "--json", "-q", expect=None)
        if result.returncode == 0:
            break
        assert result.returncode == 5, result.stderr
    step = json.loads(result.stdout)["step"]
    assert step["attempts"] == 3 and step["calls"] and step["calls"][0]["audit"][0]["accepted"]
    assert step["improved"] == (contents(package) != before)
    program("verify", package)
    asks = ("--advisor", f"ask:{asked}")
    for options, why in (
        ((), "--proposals needs an --advisor"),
        ((*asks, "--target", "sm_90"), "the device that is here"),
        ((*asks, "--quick"), "the device that is here"),
        ((*asks, "--once"), "--proposals and --once"),
        ((*asks, "--database", "none"), "leave out --database none"),
    ):
        assert why in program("compile", model, "-o", tmp_path / "none", "--proposals", 2, *options, expect=2).stderr


def test_a_search_over_steps_resumes_and_survives_its_timer(model, package, tmp_path):
    database = tmp_path / "tuning.sqlite"
    tune = ("tune", package, model, *STEP, "--budget", 30, "--db", database)
    files = contents(package)

    def run_until(attempts, then):
        with subprocess.Popen([PROGRAM, *map(str, tune), "-q", "--json"], stdout=subprocess.PIPE) as child:
            deadline = time.time() + 120
            while time.time() < deadline and child.poll() is None:
                if rows(database) >= attempts:
                    then(child)
                    break
                time.sleep(0.02)
            return child.communicate()[0]

    run_until(2, lambda child: child.send_signal(signal.SIGKILL))
    assert contents(package) == files
    tried = stats(database)["attempts"]
    assert 2 <= tried < 30

    def kill_the_timer(child):
        while not killed and child.poll() is None:
            found = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout
            for pid in found.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it has ended by itself
                killed.append(pid)

    killed = []
    tuned = json.loads(run_until(tried + 1, kill_the_timer))
    assert killed and (tuned["attempts"], tuned["known"], tuned["failed"]) == (30, tried, 0)
    assert stats(database)["attempts"] == 30


def test_what_cannot_be_tuned_by_steps_is_said(model, package, tmp_path):
    plan = json.loads((package / "plan.json").read_text())
    phase_of(plan, "decode")["selections"][0]["signature"] = "another"
    (package / "plan.json").write_text(json.dumps(plan))
    damage.sign(package)
    tune = ("tune", package, model, *STEP, "--budget", 1, "--db", tmp_path / "t.sqlite", "-q")
    assert "compile it again" in program(*tune, expect=3).stderr
    phase_of(plan, "decode")["selections"][0]["by_context"] = [{"from": "x"}]
    (package / "plan.json").write_text(json.dumps(plan))
    damage.sign(package)
    assert "plan.json" in program(*tune, expect=3).stderr
    assert "magic" in program("tune", package, model, "--space", "magic", expect=2).stderr


# That were tried, in this order.
def schedules(database):
    with sqlite3.connect(database) as connection:
        found = connection.execute("SELECT plan FROM attempts WHERE region LIKE 'step of %' ORDER BY rowid")
        return [plan for (plan,) in found]


# For each schedule whose sites were measured: how much longer a step takes with a site than without it.
def measured_sites(database):
    with sqlite3.connect(database) as connection:
        found = connection.execute("SELECT plan, setting, samples FROM attempts WHERE region LIKE 'step of %'").fetchall()
    medians = {(plan, setting): median(json.loads(samples)) for plan, setting, samples in found}
    whole = {plan: us for (plan, setting), us in medians.items() if setting.endswith(", all sites")}
    without = ", without "
    return [
        {
            setting.split(without)[1]: f"{us - rest:.2f}"
            for (other, setting), rest in medians.items()
            if other == plan and without in setting
        }
        for plan, us in whole.items()
    ]


# Read at once: what is watched goes on meanwhile.
def rows(database):
    if not database.exists():
        return 0
    with sqlite3.connect(database) as connection:
        try:
            return connection.execute("SELECT count(*) FROM attempts").fetchone()[0]
        except sqlite3.OperationalError:  # it is just being made
            return 0


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# Those of a schedule's choices that say how something is fused.
def fusions(plan):
    kinds = ("head", "attention", "products", "residual_norm")
    return {i.split("=")[1] for i in plan.split() if i.split("=")[0].split(".")[0] in kinds}


def stats(database):
    return json.loads(program("db", "stats", "--db", database, "--json").stdout)


def test_damaged_and_missing_databases(tmp_path):
    assert "no tuning database" in program("db", "stats", "--db", tmp_path / "none", expect=3).stderr
    (tmp_path / "bad").write_bytes(b"x" * 5000)
    assert "damaged" in program("db", "stats", "--db", tmp_path / "bad", expect=3).stderr
    (tmp_path / "bad.jsonl").write_text('{"tuning":1}\n{}\n')
    refused = program("db", "import", "--db", tmp_path / "new", tmp_path / "bad.jsonl", expect=3).stderr
    assert "line 2" in refused and "region" in refused
