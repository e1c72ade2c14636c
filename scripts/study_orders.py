#!/usr/bin/env python3
"""A recorded table of regions, with plans of equal predictions in an order of chance: study_orders.py TABLE OUT SEED

Predictions and timings stay, and the plans of a region are in the order of their predictions."""

import gzip
import json
import random
import sys
from pathlib import Path


def main(table, out, seed):
    with gzip.open(table, "rt") as file:
        lines = [json.loads(line) for line in file]
    plans = [line for line in lines if "plan" in line]
    random.Random(int(seed)).shuffle(plans)
    plans.sort(key=lambda line: (line["region"], line["predicted_us"]))
    lines = [line for line in lines if "plan" not in line] + plans
    Path(out).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
