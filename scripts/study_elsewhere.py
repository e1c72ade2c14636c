#!/usr/bin/env python3
"""What the cost model would choose on GPUs that nobody here has: by prediction alone, nothing is timed.

    study_elsewhere.py NAME=CONFIG=TABLE... [--advice FILE]

TABLE is a recording of regions of one token, by sm_90. Its plans that are legal on sm_80 and sm_100 get what the cost model predicts
there: with the constants that this program has, which were fitted to an H100, and with none (`study predict`). Times in the tables say
nothing of these GPUs and are not read. Prints a line of JSON for each region and GPU: how many of the plans are legal there, the first
plan by either constants, how many of the first 24 are among the first 24 of sm_90, and of the replies in FILE where the first plan
stands that each names. The last line says which GPUs the compiler calls uncalibrated."""

import argparse
import gzip
import json
import os
import subprocess
import tempfile
from pathlib import Path

PROGRAM = os.environ.get("AGENTCOMPILE", "build/release/agentcompile")
HERE, ELSEWHERE = "sm_90", ["sm_80", "sm_100"]
FIRST = 24


def run(*arguments) -> str:
    return subprocess.run([PROGRAM, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def order(model: Path, table: Path, target: str, constants: str) -> dict[str, list[str]]:
    """By region, the table's plans that are legal on the GPU, as the cost model ranks them."""
    lines = gzip.decompress(table.read_bytes()).decode().replace(f'"target":"{HERE}"', f'"target":"{target}"')
    with tempfile.TemporaryDirectory() as work:
        moved, made = Path(work) / "moved.jsonl", Path(work) / "made.jsonl"
        moved.write_text(lines)
        run("study", "predict", model, moved, "--constants", constants, "-o", made)
        found = list(map(json.loads, made.read_text().splitlines()))
    names = {line["region"]: line["signature"].split("; " + constants)[0] for line in found if "signature" in line}
    plans = {}
    for line in found:
        if "plan" in line:
            plans.setdefault(names[line["region"]], []).append(line["plan"])
    return plans


def compare(name: str, config: Path, table: Path, advised: dict[str, list[str]]):
    with tempfile.TemporaryDirectory() as work:
        model = Path(work)
        (model / "config.json").write_text(config.read_text())
        ranked = {(target, constants): order(model, table, target, constants)
                  for target in [HERE, *ELSEWHERE] for constants in ("fitted", "unfitted")}  # fmt: skip
    heads = {line["signature"]: line for line in map(json.loads, gzip.decompress(table.read_bytes()).splitlines())
             if "signature" in line}  # fmt: skip
    for region, home in ranked[HERE, "fitted"].items():
        for target in ELSEWHERE:
            fitted, unfitted = (ranked[target, constants].get(region, []) for constants in ("fitted", "unfitted"))
            yield {"table": name, "region": heads[region]["description"], "target": target, "plans": len(home),
                   "legal": len(fitted), "first_sm_90": home[0], "first": fitted[0] if fitted else None,
                   "first_unfitted": unfitted[0] if unfitted else None,
                   "common": len(set(home[:FIRST]) & set(fitted[:FIRST])),
                   "common_unfitted": len(set(home[:FIRST]) & set(unfitted[:FIRST])),
                   "advised": [fitted.index(plan) + 1 if plan in fitted else None for plan in advised.get(region, [])]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--advice", type=Path)
    options = parser.parse_args()
    advised: dict[str, list[str]] = {}
    if options.advice:
        for line in map(json.loads, options.advice.read_text().splitlines()):
            if line.get("order"):
                advised.setdefault(line["region"], []).append(line["order"][0])
    models = [(name, Path(config), Path(table)) for name, config, table in (each.split("=") for each in options.models)]
    for model in models:
        for line in compare(*model, advised):
            print(json.dumps(line))
    says = {}
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "config.json").write_text(models[0][1].read_text())
        for target in [HERE, *ELSEWHERE]:
            made = json.loads(run("inspect", work, "--stage", "candidates", "--target", target, "--json"))
            says[target] = made.get("uncalibrated", False)
    print(json.dumps({"uncalibrated": says}))


if __name__ == "__main__":
    main()
