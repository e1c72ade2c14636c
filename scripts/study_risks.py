#!/usr/bin/env python3
"""Whether an advisor's risk notes tell which plans fail: counts of what was recorded, as JSON.

study_risks.py REPLIES FILE...

REPLIES are recorded replies of `study advise`. A FILE that ends in .jsonl.gz is a table of `study record`: plans of regions
with their outcomes. Another FILE is JSON lines of measurements, of which compilations with a count of rejected plans are read.
"Failed" is a plan that did not build, was refused by the gate or did not run. "Judged" is one that the gate looked at; tables
that judged the fastest alone say so of the others. Tables with planted failures, and of whole steps, are left out.
"""

import gzip
import json
import sys
from pathlib import Path

ALL = "*"
KEYS = {"label", "order", "hints", "risks", "fusions"}  # of a reply, as the program knows it


def answer_in(reply: str) -> dict:
    """The last object of ours in the text."""
    found, decoder, at = {}, json.JSONDecoder(), reply.find("{")
    while at >= 0:
        try:
            value, size = decoder.raw_decode(reply[at:])
            if KEYS & set(value):
                found = value
        except ValueError:
            size = 1
        at = reply.find("{", at + size)
    return found


def risks_of(replies: str) -> tuple[int, list[tuple[str, str, bool]]]:
    """How many replies there are, and of each note the region, the plan, and whether the gate is asked to look closer."""
    lines = [json.loads(line) for line in Path(replies).read_text().splitlines()]
    return len(lines), [(line["region"], risk["candidate"], risk.get("validate_more") is True)
                        for line in lines for risk in answer_in(line["reply"]).get("risks", [])]  # fmt: skip


def plans_of(table: str) -> list[tuple[str, dict]]:
    """Region and line of each plan, as the last line of it has it."""
    with gzip.open(table, "rt") as file:
        lines = [json.loads(line) for line in file]
    if "planted" in lines[0] or lines[0].get("space") == "step":
        return []
    signatures = {line["region"]: line["signature"] for line in lines if "signature" in line}
    plans = {(line["region"], line["plan"]): line for line in lines if "plan" in line}
    return [(signatures[region], line) for (region, _), line in plans.items()]


def tally(lines: list[dict]) -> dict:
    judged = [line for line in lines if line.get("admission") != "skipped"]
    return {"plans": len(lines), "failed": sum(line["outcome"] != "measured" for line in lines),
            "judged": len(judged), "judged_failed": sum(line["outcome"] != "measured" for line in judged)}  # fmt: skip


def count(replies: str, files: list[str]) -> dict:
    answered, risks = risks_of(replies)
    named = {(region, plan) for region, plan, _ in risks if plan != ALL}
    tables = [plan for file in files if file.endswith(".gz") for plan in plans_of(file)]
    in_tables = {(region, line["plan"]) for region, line in tables}
    regions = {region for region, *_ in risks}
    asked = [(region, line) for region, line in tables if region in regions]
    rejected = []
    for file in files:
        if file.endswith(".gz"):
            continue
        for line in map(json.loads, Path(file).read_text().splitlines()):
            if line.get("what") == "compile" and "rejected" in line:
                rejected.append(line["rejected"])
    return {
        "replies": answered,
        "notes": len(risks),
        "notes_of_all": sum(plan == ALL for _, plan, _ in risks),
        "notes_to_look_closer": sum(closer for *_, closer in risks),
        "notes_of_one_to_look_closer": sum(closer for _, plan, closer in risks if plan != ALL),
        "named": len(named),
        "named_in_tables": len(named & in_tables),
        "all": tally([line for _, line in tables]),
        "risky": tally([line for region, line in asked if (region, line["plan"]) in named]),
        "others": tally([line for region, line in asked if (region, line["plan"]) not in named]),
        "compilations": len(rejected),
        "compilations_with_rejections": sum(one > 0 for one in rejected),
        "rejected": sum(rejected),
    }


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(json.dumps(count(sys.argv[1], sys.argv[2:]), indent=1))


if __name__ == "__main__":
    main()
