#!/usr/bin/env python3
"""What recorded tables have that `compile` would not choose.

    study_gains.py TABLE...

Of regions: `compile` tries 24 plans of each region of one token, and 20 of a prompt's, in the order `compile`; until outlines of
rows said more, in the order `diverse`. What it would choose by regions is the fastest of these, as the table has it; so is what `tree` and
`surrogate` would choose with as many. The figures say by which share what is best is faster. `noise` is how
far the timings of one plan are apart, the median over the region's plans. Of whole steps: the reference is what the cost model
names first, and noise the 95th percentile of how far its timings are from their median. Prints JSON, a table a line."""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = os.environ.get("AGENTCOMPILE", "build/release/agentcompile")
TRIES = {"decode": 24, "prompt": 20}
ARMS = ["diverse", "compile", "tree", "surrogate"]


def lines_of(table: Path) -> list[dict]:
    text = gzip.decompress(table.read_bytes()).decode() if table.suffix == ".gz" else table.read_text()
    return list(map(json.loads, text.splitlines()))


def step_gain(lines: list[dict]) -> dict:
    references = [statistics.median(line["samples_us"]) for line in lines if "reference" in line]
    times = [statistics.median(line["samples_us"]) for line in lines
             if line.get("outcome") == "measured" and ("plan" in line or "schedule" in line)]  # fmt: skip
    middle = statistics.median(references)
    apart = sorted(abs(of / middle - 1) for of in references)
    return {"reference_us": middle, "best_us": min(times), "gain": 1 - min(times) / middle,
            "noise": apart[int(0.95 * (len(apart) - 1))]}  # fmt: skip


def region_gains(table: Path, lines: list[dict]) -> dict:
    tries = TRIES["decode" if lines[0]["tokens"] == 1 else "prompt"]
    with tempfile.TemporaryDirectory() as out:
        command = [PROGRAM, "study", "replay", table, "-o", out, "--strategies", *ARMS, "--attempts", str(tries),
                   "--repetitions", "1", "--resamples", "1", "--json"]  # fmt: skip
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = {arm["arm"]: arm["by_case"] for arm in report["groups"][0]["arms"]}
    heads = {line["signature"]: line for line in lines if "signature" in line}
    regions = []
    for index, case in enumerate(report["cases"]):
        head = heads[case["signature"]]
        apart = [(max(line["samples_us"]) - min(line["samples_us"])) / statistics.median(line["samples_us"])
                 for line in lines if line.get("region") == head["region"] and line.get("outcome") == "measured"]  # fmt: skip
        regions.append({"region": head["description"], "uses": head["uses"], "best_us": case["optimum_us"],
                        "noise": statistics.median(apart), **{arm: 1 - found[arm][index]["share_at_end"] for arm in ARMS}})  # fmt: skip
    best = sum(of["uses"] * of["best_us"] for of in regions)
    whole = {arm: 1 - best / sum(of["uses"] * of["best_us"] / (1 - of[arm]) for of in regions) for arm in ARMS}
    return {"tries": tries, "whole": whole, "regions": regions}


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        lines = lines_of(Path(name))
        gains = step_gain(lines) if lines[0].get("space") == "step" else region_gains(Path(name), lines)
        print(json.dumps({"table": Path(name).name, **gains}))


if __name__ == "__main__":
    main()
