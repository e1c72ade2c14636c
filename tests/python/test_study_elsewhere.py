"""scripts/study_elsewhere.py: choices for GPUs that are not here, by prediction alone, and the figures of their note."""

import json
import os
import subprocess
import sys

import pytest
from compiled import PROGRAM, ROOT

NOTE = (ROOT / "docs/notes/2026-11-30-elsewhere.md").read_text()
MODELS = ("qwen3-1.7b", "llama-3.2-1b", "qwen3-4b")


def stated(title) -> dict[str, list[str]]:
    lines = [line for line in NOTE.split(f"## {title}\n", 1)[1].split("\n## ")[0].splitlines() if line.startswith("| sm_")]
    return {target: cells for target, *cells in (line.strip("| ").split(" | ") for line in lines)}


@pytest.fixture(scope="module")
def said():
    models = [f"{name}=tests/data/configs/{name}.json=bench/results/2026-11-21-study-h100-{name}.jsonl.gz" for name in MODELS]
    command = [sys.executable, "scripts/study_elsewhere.py", *models, "--advice", "bench/results/2026-11-21-advice-claude.jsonl"]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, "AGENTCOMPILE": str(PROGRAM)}, check=True, capture_output=True)
    return list(map(json.loads, ran.stdout.splitlines()))


def test_only_the_gpu_with_constants_is_calibrated(said):
    assert said[-1] == {"uncalibrated": {"sm_90": False, "sm_80": True, "sm_100": True}}


def test_choices_are_those_of_the_note(said):
    for target, cells in stated("Choices").items():
        of = [line for line in said[:-1] if line["target"] == target]
        same = [sum(line["first"] == line["first_sm_90"] for line in of),
                sum(line["first_unfitted"] == line["first_sm_90"] for line in of),
                sum(line["first_unfitted"] == line["first"] for line in of)]  # fmt: skip
        common = [sum(line[key] for line in of) / len(of) for key in ("common", "common_unfitted")]
        legal = f"{sum(line['legal'] for line in of)} of {sum(line['plans'] for line in of)}"
        assert [str(len(of)), legal, *map(str, same), *(f"{each:.1f}" for each in common)] == cells
        agree = {line["region"] for line in of if line["first_sm_90"] == line["first"] == line["first_unfitted"]}
        assert agree == {"embedding"}


def test_advice_stands_where_the_note_says(said):
    for target, cells in stated("Advice once").items():
        places = [place for line in said[:-1] if line["target"] == target for place in line["advised"]]
        there = [place for place in places if place is not None]
        assert [len(places), len(there), there.count(1), sum(place <= 24 for place in there)] == list(map(int, cells))
