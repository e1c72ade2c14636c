"""Steps whose schedules are too many to list: recorded in part, resumed, fitted, and replayed."""

import json
import random
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from compiled import program

BAD_INPUT, WRONG_USAGE = 3, 2
FUSED, CHOICES = 2, (2, 3, 4, 5, 3)  # of sites: the first fuses, and leaves the second or the third
HEADER = {"study": 1, "device": "A device", "toolkit": "T", "model": "tiny", "date": "2026-01-01"}


def sites() -> list:
    return [{"site": f"site{i}", "uses": 1.0,
             "choices": [{"plan": f"p{c}", "family": "gemv", "fields": {"split": c}, "predicted_us": 20.0 + c}
                         for c in range(n)]} for i, n in enumerate(CHOICES)]  # fmt: skip


def schedules() -> list:
    every = product(range(2), range(-1, 3), range(-1, 4), range(5), range(3))
    return [list(s) for s in every if (s[1] >= 0) == (s[0] == 0) and (s[2] >= 0) == (s[0] == 1)]


def planted(schedule) -> float:
    rng = np.random.default_rng(5)
    of = [rng.uniform(10, 40, n) for n in CHOICES]
    pair = rng.uniform(-2, 2, (5, 3))
    return 100 + sum(of[i][c] for i, c in enumerate(schedule) if c >= 0) + pair[schedule[3], schedule[4]]


def write(file: Path, microseconds, share=0.9, noise=0.004) -> Path:
    chance = random.Random(1)
    cuts = [{"fusions": [0], "there": [1, 3, 4]}, {"fusions": [1], "there": [2, 3, 4]}]
    lines = [HEADER, {"region": 0, "signature": "s", "description": "a step", "uses": 1},
             {"region": 0, "space": {"fusions": 1, "sites": sites(), "cuts": cuts}}]  # fmt: skip
    for i in range(20):
        lines.append({"region": 0, "reference": "x", "samples_us": [200 * (1 + noise * chance.uniform(-1, 1))]})
    for schedule in schedules():
        if chance.random() < share:
            lines.append({"region": 0, "schedule": schedule, "by": "random", "outcome": "measured",
                          "samples_us": [round(microseconds(schedule), 4)]})  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def replayed(table, report, *options, expect=0):
    return program("study", "replay", table, "-o", report, "--attempts", 20, "--repetitions", 3, "--resamples", 20,
                   "--strategies", "random,tree", "--json", *options, expect=expect)  # fmt: skip


def test_a_planted_space_is_recovered_and_replayed_to_the_same_figures(tmp_path):
    table = write(tmp_path / "t.jsonl", planted)
    first, second = (json.loads(replayed(table, tmp_path / name).stdout) for name in "ab")
    assert first == second
    (case,) = first["cases"]
    model = case["model"]
    assert model["median_error"] < 0.002 < model["noise"] < 0.005 and model["rank_correlation"] > 0.99
    assert "a model answers" in (tmp_path / "a" / "report.md").read_text()
    lines = [json.loads(line) for line in table.read_text().splitlines()]
    best = min(line["samples_us"][0] for line in lines if "schedule" in line)
    assert case["optimum_us"] == pytest.approx(best)
    program("study", "propose", table, "-o", tmp_path / "p.jsonl", "--by-chance", "--sessions", 2, "--attempts", 12)
    for line in (tmp_path / "p.jsonl").read_text().splitlines():
        assert len(set(json.loads(line)["plans"])) == 12


def test_the_fit_is_that_of_an_independent_calculation(tmp_path):
    table = write(tmp_path / "t.jsonl", planted)
    model = json.loads(replayed(table, tmp_path / "r").stdout)["cases"][0]["model"]
    measured = [s["schedule"] for s in map(json.loads, table.read_text().splitlines()) if "schedule" in s]
    times = np.array([round(planted(s), 4) for s in measured])

    def name(schedule):
        return " ".join(f"site{i}=p{c}" for i, c in enumerate(schedule) if c >= 0)

    def half(schedule):
        value = 1469598103934665603
        for byte in name(schedule).encode():
            value = (value ^ byte) * 1099511628211 % 2**64
        return (value ^ (value >> 32)) % 2

    def terms(schedule):
        there = [(i, c) for i, c in enumerate(schedule) if c >= 0]
        return [None, *there, *zip(there, there[1:], strict=False)]

    fitted = [i for i, s in enumerate(measured) if half(s) == 0]
    held = [i for i, s in enumerate(measured) if half(s) == 1]
    assert (len(fitted), len(held)) == (model["fitted"], model["held_out"])
    columns = {t: n for n, t in enumerate({t: 0 for i in fitted for t in terms(measured[i])})}

    def matrix(which):
        rows = np.zeros((len(which), len(columns)))
        for row, i in enumerate(which):
            for term in terms(measured[i]):
                if term in columns:
                    rows[row, columns[term]] = 1
        return rows

    penalty = np.array([1e-6 if t is None else 1e-3 if isinstance(t[0], int) else 2e-2 for t in columns])
    mean = times.mean()
    scaled = matrix(fitted) * (mean / times[fitted])[:, None]
    weights = np.linalg.solve(scaled.T @ scaled + np.diag(penalty), scaled.T @ np.ones(len(fitted)))
    errors = np.abs(matrix(held) @ weights * mean / times[held] - 1)
    assert model["median_error"] == pytest.approx(np.sort(errors)[int(0.5 * (len(errors) - 1) + 0.5)], rel=1e-4)


def test_sessions_over_a_fitted_table_ask_at_once_round_by_round(tmp_path):
    table, asked, output = write(tmp_path / "t.jsonl", planted), tmp_path / "asked", tmp_path / "p.jsonl"
    ask = ("study", "propose", table, "-o", output, "--sessions", 3, "--attempts", 12, "--calls", 3,
           "--advisor", f"ask:{asked}", "--model", "somebody", "--date", "2026-01-31")  # fmt: skip
    waiting = []
    for _ in range(5):
        done = program(*ask, expect=None)
        if done.returncode == 0:
            break
        questions = [f for f in asked.glob("*.prompt.txt") if not f.with_name(reply_of(f.name)).exists()]
        waiting.append(sorted(name.name[: len("t-session-1-round-01")] for name in questions))
        for file in questions:
            text = file.read_text()
            assert len(text) < 24_000 and "measured" in text
            session = int(file.name.split("-")[2])
            site, field, values = re.findall(r"^  (site\d) (split): (.+)$", text, re.M)[session - 1]
            proposal = {"site": site, "field": field, "value": values.split()[-1], "why": ""}
            file.with_name(reply_of(file.name)).write_text(json.dumps({"note": "", "proposals": [proposal]}))
    assert waiting == [[f"t-session-{s}-round-{r:02}" for s in (1, 2, 3)] for r in (1, 2, 3)]
    ours = [json.loads(line)["plans"] for line in output.read_text().splitlines()]
    assert len(ours) == 3 and len({tuple(plans) for plans in ours}) == 3
    replay = ("study", "replay", table, "-o", tmp_path / "r", "--proposed", output, "--repetitions", 3, "--resamples", 20)
    assert "were allowed 12" in program(*replay, "--attempts", 13, expect=WRONG_USAGE).stderr
    (group,) = json.loads(program(*replay, "--attempts", 12, "--json").stdout)["groups"]
    assert {arm["arm"]: arm["searches"] for arm in group["arms"]}["proposals+tree"] == 3


def reply_of(name: str) -> str:
    return name.replace(".prompt.", ".reply.")


def test_a_space_whose_model_errs_is_not_replayed_beyond_what_was_timed(tmp_path):
    table = write(tmp_path / "t.jsonl", lambda s: 100 + hash(tuple(s)) % 97)
    said = replayed(table, tmp_path / "r", expect=BAD_INPUT).stderr
    assert "only the schedules that were timed are known" in said and "--recorded-only" in said
    case = json.loads(replayed(table, tmp_path / "r", "--recorded-only").stdout)["cases"][0]
    assert "model" not in case and case["points"] > 80


@pytest.mark.parametrize(("old", "new", "said"), [
    ('"there": [1, 3, 4]', '"there": [0]', "there is no site 0"),
    ('"fusions": [1]', '"fusions": [2]', "has no choice 2"),
    ('"fusions": [1]', '"fusions": [0]', "one is there twice"),
    ('"plan": "p1"', '"plan": "p0"', "twice"),
    ('"schedule": [0, 0, -1,', '"schedule": [0, 0, 1,', "sites that its fusions do not leave"),
    ('"schedule": [0, 0, -1,', '"schedule": [0, 9, -1,', "has no choice 9"),
    ('"schedule": [0, 0, -1,', '"schedule": [0, 0,', "expected 5 sites"),
    ('"by": "random", ', "", 'no field "by"'),
])  # fmt: skip
def test_contradictory_tables_are_refused(tmp_path, old, new, said):
    table = write(tmp_path / "t.jsonl", planted)
    text = table.read_text()
    assert old in text
    table.write_text(text.replace(old, new, 1))
    assert said in replayed(table, tmp_path / "r", expect=BAD_INPUT).stderr
    table.write_text(text[:-20])
    assert "is cut off" in replayed(table, tmp_path / "r", expect=BAD_INPUT).stderr


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
          "torch_dtype": "float32", "hidden_act": "silu"}  # fmt: skip


def test_a_recording_goes_on_where_it_was_cut_off(tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(CONFIG))
    file = tmp_path / "t.jsonl"
    record = ("study", "record", tmp_path / "tiny", "-o", file, "--space", "step", "--plans", 3, "--rounds", 1,
              "--context", 20, "--database", "none", "--admit", "winners", "--quiet")  # fmt: skip
    program(*record, "--random", 20, "--guided", 10)
    half = file.read_bytes()
    file.write_bytes(half[:-7])
    program(*record, "--random", 40, "--guided", 30)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    every = {tuple(line["schedule"]): line["by"] for line in lines if "schedule" in line}
    counts = Counter(every.values())
    assert counts.pop("random") == 40 and sum(counts.values()) == 30
    assert file.read_bytes().startswith(half[: half.rfind(b"\n", 0, -7) + 1])
    assert lines[0]["choices"] > 10 and lines[0]["choices_seconds"] > 0
    took = [line["attempt_seconds"] for line in lines if "attempt_seconds" in line]
    assert took and all(0 < seconds < 60 for seconds in took)
    assert "seed" in json.dumps(lines[0]) and "space" in lines[2]
    assert "tokens" in program(*record, "--tokens", 4, expect=WRONG_USAGE).stderr
