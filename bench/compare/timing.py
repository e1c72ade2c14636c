"""What the scripts here share: the workloads, how often each is run, and the line of JSON that it becomes. The lines
are those of `agentcompile bench --workload`, with the system's name."""

import argparse
import json
import random
import re
import statistics
import time

WORKLOADS = "i128/o128,i2048/o512,i8192/o4096,i12288/o8192,i20480/o16384"


def workload(text: str) -> tuple:
    match = re.fullmatch(r"i(\d+)/o(\d+)", text)
    if not match or 0 in (sizes := tuple(map(int, match.groups()))):
        raise argparse.ArgumentTypeError(f"{text} is not iPROMPT/oGENERATED, as i128/o128")
    return sizes


def parser(description: str) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--workload", default=WORKLOADS, help="iPROMPT/oGENERATED,... (default: the paper's five)")
    result.add_argument("--repeat", type=int, default=10, help="how often each is timed (10)")
    result.add_argument("--warm-up", type=int, default=2, help="how often it runs before that (2)")
    result.add_argument("--quick", action="store_true", help="three times after one warm-up")
    return result


def parse(arguments: argparse.ArgumentParser, given=None) -> argparse.Namespace:
    result = arguments.parse_args(given)
    try:
        result.workloads = [workload(part) for part in result.workload.split(",")]
    except argparse.ArgumentTypeError as error:
        arguments.error(f"--workload: {error}")
    if result.quick:
        result.repeat, result.warm_up = 3, 1
    if result.repeat < 1 or result.warm_up < 0:
        arguments.error("--repeat must be at least 1, and --warm-up at least 0")
    return result


def record(system: str, tokens: tuple, arguments, seconds: list, first: list, **fields) -> dict:
    whole = statistics.median(seconds) * 1e3
    line = {
        "what": "workload",
        "system": system,
        "workload": f"i{tokens[0]}/o{tokens[1]}",
        "input": tokens[0],
        "output": tokens[1],
        "ms": whole,
        "ms_min": min(seconds) * 1e3,
        "ms_max": max(seconds) * 1e3,
    }
    if first:
        line["ms_first"] = statistics.median(first) * 1e3
        if tokens[1] > 1:
            line["ms_token"] = (whole - line["ms_first"]) / (tokens[1] - 1)
    line |= {"tokens_per_second": tokens[1] / whole * 1e3, "repeats": arguments.repeat, "warm_ups": arguments.warm_up}
    return line | fields


def time_all(system: str, arguments, vocabulary: int, generate, **fields) -> None:
    """`generate(ids, tokens)` makes that many tokens, and returns when the first one was there; None if it does not
    know: then a request for one token says how long that takes."""

    def run(ids, tokens):
        """Seconds until the first token, if known, and until the last."""
        start = time.perf_counter()
        first_at = generate(ids, tokens)
        return first_at and first_at - start, time.perf_counter() - start

    for tokens in arguments.workloads:
        ids = random.Random(1).choices(range(vocabulary), k=tokens[0])
        for _ in range(arguments.warm_up):
            generate(ids, tokens[1])
        first, seconds = zip(*(run(ids, tokens[1]) for _ in range(arguments.repeat)))
        if None in first:
            first = [run(ids, 1)[1] for _ in range(arguments.repeat)]
        print(json.dumps(record(system, tokens, arguments, seconds, first, **fields)), flush=True)
