"""scripts/study_gains.py: what recorded tables have that `compile` would not choose, and the figures of its note."""

import json
import os
import subprocess
import sys

import pytest
from compiled import PROGRAM, ROOT

NOTE = (ROOT / "docs/notes/2026-11-30-what-compile-misses.md").read_text()


@pytest.fixture(scope="module")
def gains():
    tables = sorted((ROOT / "bench/results").glob("*-study-h?00-*.jsonl.gz"))
    tables = [table for table in tables if table.name < "2026-11-30"]  # of the note's day
    command = [sys.executable, ROOT / "scripts/study_gains.py", *tables]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, "AGENTCOMPILE": str(PROGRAM)}, check=True, capture_output=True)
    return {of["table"]: of for of in map(json.loads, ran.stdout.splitlines())}


def percent(share) -> str:
    return f"{100 * share:.1f} %"


def test_tables_have_what_the_note_says(gains):
    rows = [line.strip("| ").split(" | ") for line in NOTE.splitlines() if line.startswith("| `")]
    assert {row[0].strip("`") for row in rows} == set(gains)
    for name, *cells in rows:
        of = gains[name.strip("`")]
        if "whole" in of:
            assert cells == [str(of["tries"]), *(percent(of["whole"][arm]) for arm in ("diverse", "compile", "tree", "surrogate"))]
        else:
            figures = [f"{of['reference_us']:.1f}", f"{of['best_us']:.1f}", percent(of["gain"]), f"{100 * of['noise']:.2f} %"]
            assert cells[:4] == figures


def test_the_best_norms_of_prompts_are_tried(gains):
    for tokens, lost in ((128, "8.2 %"), (2048, "24.2 %"), (8192, "7.7 %")):
        regions = gains[f"2026-11-28-study-h100-qwen3-1.7b-prefill-{tokens}.jsonl.gz"]["regions"]
        (norm,) = (region for region in regions if region["region"] == "rms_norm")
        assert percent(norm["diverse"]) == lost and lost in NOTE
        assert norm["compile"] < norm["noise"] < norm["diverse"]
