#!/usr/bin/env python3
"""Planted failures, for the sub-study "Sessions with planted failures" of docs/study/protocol.md.

study_failures.py plant SPACE TABLE OUT [--withheld]   A recorded table, with failures by the rules of SPACE
study_failures.py count KEY=TABLE... -- NAME=FILE...   Attempts and failures of recorded searches, as JSON
"""

import hashlib
import json
import random
import statistics
import sys
from collections import Counter
from pathlib import Path

WITHIN = 0.10  # of the best plan that works
ATTEMPTS = 24
RESAMPLES = 2000
SHARED_LIMIT = 0xC000


def too_much_shared(fields: dict) -> str | None:
    """Of bulk copies, by what a rule counts as in flight: 16 bytes for each thread, row, step and chunk."""
    used = fields["threads"] * 16 * fields["rows"] * fields["depth"] * fields["chunks"]
    if fields["ring"] != "bulk_copy" or used <= SHARED_LIMIT:
        return None
    return f"ptxas error   : Entry function 'kernel' uses too much shared data (0x{used:x} bytes, 0x{SHARED_LIMIT:x} max)"


def further(chance: random.Random, share: float, scenario: str) -> str:
    """As the gate says that a number is wrong, here about such a share of the true one."""
    wanted = chance.uniform(0.5, 3)
    return (f"numerics: out0[{chance.randrange(2048)}] is further from the truth than the bound: got "
            f'{wanted * share * chance.uniform(0.98, 1.02):.6f}, wanted {wanted:.6f}, bound 0.0121 (scenario "{scenario}", '
            "seed 3)")  # fmt: skip


def left(element: int) -> str:
    return f'memory: out0[{element}] was left as it was: got 1745775929, wanted 0.40625, bound 0 (scenario "one-hot", seed 3)'


def planted(space: str, line: dict) -> tuple[str, str] | None:
    """The outcome and the reason that the rules give this plan; nothing where it works."""
    fields = line["fields"]
    chance = random.Random(hashlib.sha256(line["plan"].encode()).hexdigest())
    if reason := too_much_shared(fields):
        return "uncompilable", reason
    if space == "llama-3.2-1b-qkv":
        if fields["rows"] == 1:  # as if results were written two at a time
            return "wrong", left(2 * chance.randrange(1024) + 1) + "; so was each odd element"
        if fields["rows"] == 4:  # as if two of four were written
            return "wrong", left(4 * chance.randrange(512) + 2) + "; so were elements 2 and 3 of each four"
        if fields["depth"] == 8:  # as if one of eight loads were lost
            return "wrong", further(chance, 7 / 8, "ones")
    elif fields["cache"] == "evict_first":
        return "uncompilable", "ptxas kernel.ptx, line 412; error   : Unknown modifier '.L1::evict_first'"
    elif fields["cache"] == "streaming":  # as if ld.cs read the weights of the run before
        return "wrong", further(chance, -0.4, "weights changed") + "; right where weights stay as they were"
    return None


def plant(space: str, source: str, target: str, withheld: bool) -> None:
    lines = [json.loads(line) for line in Path(source).read_text().splitlines()]
    for line in lines:
        if "study" in line:
            line["planted"] = "failures were planted by scripts/study_failures.py, by the rules of " + space
            if withheld:
                line["planted"] += "; reasons are withheld"
        elif "plan" in line and (failure := planted(space, line)):
            line.pop("samples_us")
            line["outcome"], line["why"] = ("failed", "failed") if withheld else failure
    Path(target).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def plans_of(table: str) -> tuple[dict, dict]:
    """The region, and lines by plan."""
    lines = [json.loads(line) for line in Path(table).read_text().splitlines()]
    (region,) = [line for line in lines if "signature" in line]
    return region, {line["plan"]: line for line in lines if "plan" in line}


def counted(lines: dict, plans: list[str]) -> dict:
    """Attempts to the first plan that works and is near the best one that does; attempts that failed."""
    times = {plan: statistics.median(line["samples_us"]) for plan, line in lines.items() if "samples_us" in line}
    goal = (1 + WITHIN) * min(times.values())
    near = [number for number, plan in enumerate(plans, 1) if times.get(plan, goal + 1) <= goal]
    return {"attempts": near[0] if near else ATTEMPTS + 1, "failed": sum(plan not in times for plan in plans),
            "failed_before": sum(plan not in times for plan in plans[: near[0] if near else None])}  # fmt: skip


def proposals_of(lines: dict, search: dict) -> tuple[int, int]:
    """Proposals that were taken, and of these those that fail."""
    taken = [item["reason"] for call in search["calls"] for item in call["audit"] if item["accepted"]]
    return len(taken), sum(lines[plan]["outcome"] != "measured" for plan in taken)


def requests_of(searches: list[dict]) -> dict:
    """What people were asked for: how often, how often although the space has it, and which values how often."""
    made = [request for search in searches for call in search["calls"] for request in call.get("requests", [])]
    values = Counter(f"{request['field']}={request['value']}" for request in made)
    return {"made": len(made), "known": sum(request["known"] for request in made), "values": dict(values.most_common())}


def difference(pairs: dict[str, list[float]]) -> list[float]:
    """Mean and 95 % interval of a bootstrap that draws spaces' orders; spaces weigh alike."""
    chance = random.Random(1)

    def mean(drawn):
        return statistics.mean(statistics.mean(values) for values in drawn)

    means = sorted(mean([chance.choices(values, k=len(values)) for values in pairs.values()]) for _ in range(RESAMPLES))
    return [mean(pairs.values()), means[RESAMPLES // 40], means[-RESAMPLES // 40 - 1]]


def count(arguments: list[str]) -> None:
    at = arguments.index("--")
    tables = {}
    for table in arguments[:at]:
        name, file = table.split("=", 1)
        region, lines = plans_of(file)
        tables[region["signature"]] = (name, lines)
    arms: dict[str, dict[str, list[dict]]] = {}
    sessions: dict[str, list[dict]] = {}
    for given in arguments[at + 1 :]:
        arm, file = given.split("=", 1)
        for line in Path(file).read_text().splitlines():
            search = json.loads(line)
            name, lines = tables[search["signature"]]
            of = counted(lines, search["plans"])
            if search["calls"]:
                sessions.setdefault(arm, []).append(search)
                of["taken"], of["taken_failed"] = proposals_of(lines, search)
            arms.setdefault(arm, {}).setdefault(name, []).append(of)
    report = {"arms": {}, "differences": {}, "requests": {arm: requests_of(of) for arm, of in sessions.items()}}
    for arm, of_tables in arms.items():
        report["arms"][arm] = {name: {key: statistics.mean(of[key] for of in searches) for key in searches[0]}
                               for name, searches in sorted(of_tables.items())}  # fmt: skip
    for against in report["arms"]:
        if against == "reasons" or "reasons" not in report["arms"]:
            continue
        for key in ("attempts", "failed", "failed_before"):
            pairs: dict[str, list[float]] = {}
            for name, ours in report["arms"]["reasons"].items():
                if name in report["arms"][against]:
                    pairs.setdefault(name.split("-order-")[0], []).append(ours[key] - report["arms"][against][name][key])
            for space, chosen in [("both", pairs), *((space, {space: pairs[space]}) for space in sorted(pairs))]:
                report["differences"].setdefault(against, {}).setdefault(key, {})[space] = difference(chosen)
    print(json.dumps(report, indent=1))


def main() -> None:
    mode, *rest = sys.argv[1:]
    if mode == "plant":
        plant(*rest[:3], withheld="--withheld" in rest)
    elif mode == "count":
        count(rest)
    else:
        sys.exit(f"{mode}: plant or count")


if __name__ == "__main__":
    main()
