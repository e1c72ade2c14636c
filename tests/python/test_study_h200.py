"""Regions recorded on an H200, replayed to the figures that their note states."""

import gzip
import json
import statistics
import subprocess
import sys

import pytest
from compiled import ROOT, program

NOTE = (ROOT / "docs/notes/2026-11-29-an-h200-itself.md").read_text()
RESULTS = ROOT / "bench/results"
TABLES = [RESULTS / f"2026-11-29-study-h200-{name}.jsonl.gz"
          for name in ("llama-3.2-1b-qkv", "qwen3-1.7b-gate-up", "qwen3-1.7b-prefill-128-o")]  # fmt: skip
H100 = [("llama-3.2-1b", "2026-11-21-study-h100-llama-3.2-1b", ["rms_norm+linear+linear+linear"]),
        ("qwen3-1.7b", "2026-11-21-study-h100-qwen3-1.7b", ["rms_norm+linear+silu+linear+mul"]),
        ("qwen3-1.7b", "2026-11-28-study-h100-qwen3-1.7b-prefill-128",
         ["in1: activation bf16[T, 2048]; in2: weight bf16[2048, 2048]", "offset 2048*T - 2048; in2"])]  # fmt: skip
# All 400 plans of q, k and v: those of the first table, and the 144 that it lacks.
WHOLE = RESULTS / "2026-11-30-study-h200-llama-3.2-1b-qkv.jsonl.gz"
WHOLE_NOTE = ROOT / "docs/notes/2026-11-30-an-h200-whole.md"
ARMS = ["heuristic", "diverse", "descent", "surrogate", "tree", "evolutionary", "random"]
ORDERS = range(1, 11)
HARD = 20


def replay(tables, out) -> list[dict]:
    """Of each region: plans, how many are near the best, rank correlation, the first plan's share, attempts by arm."""
    report = json.loads(program("study", "replay", *tables, "-o", out, "--repetitions", 20, "--resamples", 1, "--json").stdout)
    arms = {arm["arm"]: arm["by_case"] for arm in report["groups"][0]["arms"]}
    return [{"plans": case["points"], "near": case["within_5_percent"], "correlation": case["predicted_rank_correlation"],
             "first": arms["heuristic"][i]["share"][0],
             "attempts": {arm: arms[arm][i]["attempts_to_5_percent"] for arm in ARMS}}
            for i, case in enumerate(report["cases"])]  # fmt: skip


def plans_of(file) -> dict[str, dict[str, tuple[float, float]]]:
    """By region, what was predicted and measured of each plan."""
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
    lines = list(map(json.loads, text.splitlines()))
    names = {line["region"]: line["signature"].split("; fitted")[0] for line in lines if "signature" in line}
    plans = {}
    for line in lines:
        if "plan" in line:
            times = line["predicted_us"], statistics.median(line["samples_us"])
            plans.setdefault(names[line["region"]], {})[line["plan"]] = times
    return plans


def rows(title, note=NOTE) -> list[list[str]]:
    """Cells of the rows of the note's table under this heading."""
    lines = [line for line in note.split(f"## {title}\n", 1)[1].split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ")[1:] for line in lines[1:]]


def best_of(needed) -> str:
    return min(needed, key=needed.get)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return replay(TABLES, tmp_path_factory.mktemp("recorded"))


def test_searches_need_as_many_attempts_as_the_note_says(recorded):
    stated = rows("Attempts")
    assert len(stated) == len(recorded)
    for of, cells in zip(recorded, stated, strict=True):
        assert [str(of["plans"]), str(of["near"]), *(f"{of['attempts'][arm]:.1f}" for arm in ARMS)] == cells


def in_orders(recordings, tmp_path) -> list[list[str]]:
    """Of each region: the arm that is best by its mean over orders of chance, its attempts, and in how many orders none needs few."""
    runs = []
    for order in ORDERS:
        tables = [tmp_path / f"{number}-{order}.jsonl" for number in range(len(recordings))]
        for table, out in zip(recordings, tables, strict=True):
            subprocess.run([sys.executable, ROOT / "scripts/study_orders.py", table, out, str(order)], check=True)
            assert len(out.read_text().splitlines()) == len(gzip.decompress(table.read_bytes()).splitlines())
        runs.append(replay(tables, tmp_path / f"report-{order}"))
    found = []
    for number in range(len(runs[0])):
        needed = {arm: statistics.mean(run[number]["attempts"][arm] for run in runs) for arm in ARMS}
        hard = sum(min(run[number]["attempts"].values()) >= HARD for run in runs)
        found.append([best_of(needed), f"{needed[best_of(needed)]:.1f}", f"{hard} of {len(ORDERS)}"])
    return found


def test_orders_of_equal_predictions_need_as_many(tmp_path):
    assert in_orders(TABLES, tmp_path) == rows("Is that luck?")


def test_predictions_are_worth_what_the_note_says(recorded, tmp_path):
    ours = [plans for table in TABLES for plans in plans_of(table).items()]
    seen = {"fitted": [], "unfitted": []}
    theirs = {}
    for model, table, regions in H100:
        folder = tmp_path / model
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text((ROOT / f"tests/data/configs/{model}.json").read_text())
        for constants, reports in seen.items():
            out = tmp_path / f"{table}-{constants}.jsonl"
            program("study", "predict", folder, RESULTS / f"{table}.jsonl.gz", "-o", out, "--constants", constants,
                    "--regions", *regions)  # fmt: skip
            reports += replay([out], tmp_path / "report")
            if constants == "fitted":
                theirs.update(plans_of(out))
    stated = rows("Is the cost model a stranger?")
    assert len(stated) == len(ours)
    for number, ((region, plans), cells) in enumerate(zip(ours, stated, strict=True)):
        of = [recorded[number], seen["fitted"][number], seen["unfitted"][number]]
        assert [f"{100 * one['first']:.1f} %" for one in of] + [f"{one['correlation']:.2f}" for one in of[:2]] == cells[:5]
        common = set(plans) & set(theirs[region])
        levels = [statistics.median(measured / predicted for predicted, measured in (of[plan] for plan in common))
                  for of in (plans, theirs[region])]  # fmt: skip
        assert [f"{level:.2f}" for level in levels] == cells[5:7]
        fastest = min(theirs[region], key=lambda plan: theirs[region][plan][1])
        assert f"{100 * min(of for _, of in plans.values()) / plans[fastest][1]:.1f} %" == cells[7]


def test_every_plan_was_judged():
    lines = [json.loads(line) for table in TABLES for line in gzip.decompress(table.read_bytes()).splitlines()]
    plans = [line for line in lines if "plan" in line]
    assert {(line["outcome"], line.get("admission")) for line in plans} == {("measured", None)}
    assert f"{len(plans):,} plans" in NOTE
    assert all(line["device"] == "NVIDIA H200" and "--admit all" in line["command"] for line in lines if "study" in line)


def test_the_whole_table_has_the_figures_of_its_note(tmp_path):
    """Where it says other figures than the note has, those that it says are right."""
    note = WHOLE_NOTE.read_text()
    (first,), (whole,) = plans_of(TABLES[0]).values(), plans_of(WHOLE).values()
    # It goes on with the first recording: what was timed then was not timed again.
    assert len(whole) == 400 and first.items() <= whole.items()
    (of,) = replay([WHOLE], tmp_path / "report")
    needed = [f"{of['attempts'][arm]:.1f}" for arm in ARMS]
    assert rows("Attempts", note) == [[str(of["plans"]), str(of["near"]), *needed, f"{100 * of['first']:.1f} %"]]
    assert rows("Is that luck?", note) == in_orders([WHOLE], tmp_path)
    fastest = min(whole, key=lambda plan: whole[plan][1])
    assert f"`{fastest}`" in note and f"{whole[fastest][1]:.2f} us" in note
