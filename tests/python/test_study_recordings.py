"""Recordings of prompts' regions, replayed to the figures that their note states."""

import json
import re
from pathlib import Path

from compiled import program

ROOT = Path(__file__).resolve().parents[2]
NOTE = (ROOT / "docs/notes/2026-11-28-prompt-regions.md").read_text()
ARMS = ["heuristic", "diverse", "descent", "surrogate", "tree"]  # those that chance does not change


def test_searches_need_as_many_attempts_as_the_note_says(tmp_path):
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", NOTE, re.M)
    assert [int(tokens) for tokens, _ in rows] == [128, 2048, 8192]
    for tokens, stated in rows:
        table = ROOT / f"bench/results/2026-11-28-study-h100-qwen3-1.7b-prefill-{tokens}.jsonl.gz"
        report = json.loads(program("study", "replay", table, "-o", tmp_path / tokens, "--strategies", ",".join(ARMS),
                                    "--repetitions", 1, "--resamples", 1, "--json").stdout)  # fmt: skip
        arms = {arm["arm"]: arm for arm in report["groups"][0]["arms"]}
        attempts = [next(to["attempts"] for to in arms[arm]["to_within"] if to["within"] == 0.05) for arm in ARMS]
        assert [f"{a:.1f}" for a in attempts] == stated.split(" | ")[: len(ARMS)]
