#!/usr/bin/env python3
"""Writes docs/results.md from the records in bench/results/*.jsonl, or compares the two.

    scripts/results.py            writes the page
    scripts/results.py --check    exit code 1 if the page is not what the records give

The newest record of each model, device, type and number of tokens counts: that of the latest file (names
begin with a date; those of one day in the order of the alphabet), and the last line in it. A file may say once, in a line of its own, which commit and
command its next lines are from.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDS, PAGE = ROOT / "bench/results", ROOT / "docs/results.md"

# Records that are no results of the program as it was: (file, commit) and why.
LEFT_OUT = {
    ("2026-11-23-h200-trust.jsonl", "9b3abda"): "an older program, timed again for comparison",
    ("2026-11-24-h200-judging.jsonl", "9b3abda"): "an older program, timed again for comparison",
    ("2026-11-24-h200-lab.jsonl", "d86b094"): "the program before, timed for comparison",
    ("2026-11-25-h100-house.jsonl", "d86b094"): "an older program, timed again for comparison",
    ("2026-11-25-h100-weights.jsonl", "abcb353"): "with a family of kernels that was not finished",
    ("2026-11-26-h100-few-tokens.jsonl", "56a111a"): "steps of 4 and 8 tokens, chosen in little time",
    ("2026-11-27-h100-serve.jsonl", "56846fb"): "a few tokens, timed beside a server",
    ("2026-11-27-h100-together.jsonl", "63fbfc7"): "a package with `--slots 8` and `--step-seconds 20`, at two contexts: decode takes 2.796 and 2.966 ms",
    ("2026-11-27-h100-together_again.jsonl", "7a70d53"): "a package with `--slots 8` and `--step-seconds 20`, at two contexts: decode takes 2.795 and 2.970 ms",
    ("2026-11-27-h100-together_ends.jsonl", "d3edd11"): "a package with `--slots 8`, at two contexts: decode takes 2.785 and 2.971 ms",
    ("2026-11-27-h100-together_share.jsonl", "c1e9b0e"): "a package with `--slots 8`, at two contexts: decode takes 2.758 and 2.901 ms",
    ("2026-11-27-h100-gemv_of_several.jsonl", "eb6b9b3"): "kernels that were tried, beside those before",
    ("2026-11-28-h100-fewer_splits.jsonl", "97bb4a4"): "attention in fewer splits, beside the known choices",
    ("2026-11-28-h100-shared_decode.jsonl", "36ed90a"): "a package with `--slots 8` beside one without, at three contexts: decode takes 2.748 and 2.868 ms",
    ("2026-11-28-h100-shared_decode.jsonl", "97bb4a4"): "another attention up to 192 tokens, timed beside the known one",
    ("2026-11-27-h100-slots.jsonl", "56846fb"): "a package with `--slots 8`, at two contexts: decode takes 2.789 and 2.882 ms",
    ("2026-11-23-h200-trust.jsonl", "f26babc"): "compiled with `--tries 6` and without short prompts",
}
CONTEXTS = (128, 2048, 8192, 20480, 36000)  # numbers of cached tokens that the page shows
LEAST_CHUNK = 512  # packages of smaller chunks were compiled to time decode
DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
NAMES = {"llama-3.2-1b": "Llama-3.2-1B", "llama-3.2-3b": "Llama-3.2-3B"} | {
    f"qwen3-{size}": f"Qwen3-{size.upper()}" for size in ("1.7b", "4b")
}
INTRODUCTION = """# Results

This page is made of the records in `bench/results/` by `scripts/results.py`: do not edit it. Each row names the
commit that was measured, and the file. The newest record of a model, GPU, type and number of tokens counts. One
request runs at a time, with kernels that the compiler chose on that GPU. [method.md](method.md) says how each
figure is measured; [notes/](notes/README.md) tells how it came about.
"""


def records(folder):
    """All lines of all files, oldest first, each with its file and commit."""
    for path in sorted(Path(folder).glob("*.jsonl")):
        said = {}
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "commit" in record and "model" not in record:
                said = record
            yield {**{key: said[key] for key in ("commit", "device") if key in said}, **record, "file": path.name}


def model_of(record):
    name = record["model"].split(" ")[0].lower()
    return NAMES.get(name, record["model"])


def dtype_of(record):
    return DTYPES.get(record["dtype"], record["dtype"])


def kept(record):
    """Not one with a technique left out, nor of the packages that bench/start.py makes on the way."""
    return "of" not in record and (record["file"], record.get("commit")) not in LEFT_OUT and "left_out" not in record


def newest(found, tokens):
    """The last record of each model, device, type and number of tokens."""
    last = {}
    for record in found:
        last[(record["device"], model_of(record), dtype_of(record), record[tokens])] = record
    return last


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def by_tokens(last, what, cell, extra=lambda record: ()):
    """A row for each model, type, commit and file; a column for each number of tokens."""
    columns = sorted({key[3] for key in last})
    rows = {}
    for (device, model, dtype, tokens), record in last.items():
        name = (device, model, dtype, *extra(record), record["commit"], record["file"])
        rows.setdefault(name, {})[tokens] = cell(record)
    head = [*what, *map(str, columns), "commit", "file"]
    return table(
        head,
        [
            [*name[:-2], *(cells.get(column, "") for column in columns), name[-2], f"`{name[-1]}`"]
            for name, cells in sorted(rows.items())
        ],
    )


def milliseconds(value):
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def decode(found):
    shown = (r for r in found if r.get("what") == "decode" and kept(r) and r["context"] in CONTEXTS)
    last = newest(shown, "context")
    return (
        "\n## Decode\n\nMilliseconds a token; columns say how many tokens are cached. In brackets: the rate at which weights and"
        " caches are read, as a\nshare of what streaming reads reached in the same run.\n\n"
        + by_tokens(
            last,
            ("GPU", "model", "type"),
            lambda r: f"{milliseconds(r['ms'])} ({100 * r['share']:.0f} %)",
        )
    )


def prefill(found):
    measured = (r for r in found if r.get("what") == "prefill" and kept(r) and r["chunk"] >= LEAST_CHUNK)
    last = newest(measured, "tokens")
    floors = {}  # of the same run: the same commit, in the same file
    for record in found:
        if record.get("what") == "library floor":
            key = (record["file"], record["commit"], model_of(record), dtype_of(record), record["tokens"])
            floors.setdefault(key, record["ms"])

    def cell(record):
        key = (record["file"], record["commit"], model_of(record), dtype_of(record), record["tokens"])
        floor = floors.get(key)
        return milliseconds(record["ms"]) + (f" ({record['ms'] / floor:.2f} x)" if floor else "")

    return (
        "\n## Prefill\n\nMilliseconds for a prompt; columns say its length. Steps are at most a chunk long. In brackets: the"
        " time as a\nmultiple of what PyTorch's libraries need for the products and the attention alone, where the"
        " same run measured that.\n\n"
        + by_tokens(last, ("GPU", "model", "type", "chunk"), cell, lambda r: (str(r["chunk"]),))
    )


def techniques(found):
    last = {}
    for record in found:
        if record.get("what") == "decode" and "left_out" in record:
            last[(record["file"], record["commit"], record["device"], record["left_out"], record["context"])] = record
    columns = sorted({key[4] for key in last})
    rows = []
    for name in dict.fromkeys(key[:4] for key in last):
        file, commit, device, left_out = name
        cells = [last.get((*name, column)) for column in columns]
        rows.append(
            [device, left_out, *(milliseconds(c["ms"]) if c else "" for c in cells), commit, f"`{file}`"]
        )
    return (
        "\n## What each technique of decode is worth\n\nMilliseconds a token of Qwen3-1.7B, bfloat16, with one"
        " technique left out; columns say how many tokens are cached.\n\n"
        + table(["GPU", "left out", *map(str, columns), "commit", "file"], rows)
    )


def accuracy(found):
    last = newest((r for r in found if r.get("what") == "against transformers" and kept(r)), "prompt")
    return (
        "\n## Against transformers\n\nThe error of the last logits against transformers in float32 on the same"
        " weights, as a multiple of the\nerror that transformers makes in the package's own type; columns say how long"
        " the prompt is. In brackets: how many of the\ngenerated tokens are wrong.\n\n"
        + by_tokens(
            last, ("GPU", "model", "type"), lambda r: f"{r['ratio']:.2f} ({r['wrong_tokens']} of {r['tokens']})"
        )
    )


def beside_others(found):
    last = {}
    for record in found:
        if record.get("what") == "workload" and "left_out" not in record:
            last[(record["device"], model_of(record), record["workload"], record["system"])] = record
    if not last:
        return ""

    def row(key, record):
        eager = last.get((*key[:3], "eager"))
        token = milliseconds(record["ms_token"]) if "ms_token" in record else ""
        times = f"{eager['ms'] / record['ms']:.1f}" if eager else ""
        return [*key, milliseconds(record["ms"]), token, times, record["commit"], f"`{record['file']}`"]

    head = ("GPU", "model", "workload", "system", "ms a request", "ms a token", "times as fast as eager", "commit", "file")
    return (
        "\n## Beside other systems\n\nWhole requests with random weights of the same geometry, in one run of"
        " `bench/compare/compare.py`. i128/o128 is a prompt of\n128 tokens and 128 new ones; milliseconds a token are of"
        " those after the first.\n\n" + table(head, [row(*item) for item in sorted(last.items())])
    )


def together(found):
    """Beside one sequence alone, by the same package in the same file."""
    alone, last = {}, {}
    for record in found:
        key = (record["file"], record.get("commit"), record.get("device"), record.get("model"), record.get("context"))
        if record.get("what") == "decode":
            alone[key] = record
        if record.get("what") == "together" and key in alone and "left_out" not in record:
            times = record["tokens_per_second"] * alone[key]["ms"] / 1000
            cell = f"{record['tokens_per_second']:.0f} ({times:.2f})"
            row = (record["device"], model_of(record), dtype_of(record), record["sequences"])
            last[*row, record["context"]] = {"cell": cell, "commit": record["commit"], "file": record["file"]}
    if not last:
        return ""
    contexts = sorted({key[-1] for key in last})
    rows = {}
    for (*row, context), record in last.items():
        rows.setdefault((*row, record["commit"], record["file"]), {})[context] = record["cell"]
    head = ("GPU", "model", "type", "sequences", *map(str, contexts), "commit", "file")
    lines = [
        [*row[:3], str(row[3]), *(cells.get(context, "") for context in contexts), row[4], f"`{row[5]}`"]
        for row, cells in sorted(rows.items())
    ]
    return (
        "\n## Several sequences at once\n\nA step runs one token of each sequence. A column names how many tokens each sequence has"
        " cached. A cell has the tokens a second\nof all sequences together, and how many times one sequence's with the same package"
        " that is.\n\n" + table(head, lines)
    )


def tokenizers(found):
    last = {r["tokenizer"]: r for r in found if r.get("what") == "tokenize"}
    return (
        "\n## Tokenizers\n\nA text on one thread, beside HuggingFace's `tokenizers` in the same run.\n\n"
        + table(
            ("vocabulary", "tokens", "bytes", "load, ms", "encode, s", "times as fast", "machine", "commit", "file"),
            [
                [
                    name,
                    str(r["tokens"]),
                    str(r["bytes"]),
                    f"{r['load_ms']:.0f} (library: {r['library_load_ms']:.0f})",
                    f"{r['encode_s']:.2f} (library: {r['library_encode_s']:.2f})",
                    f"{r['times_faster']:.1f}",
                    r["machine"],
                    r["commit"],
                    f"`{r['file']}`",
                ]
                for name, r in sorted(last.items())
            ],
        )
    )


def left_out():
    return "\nNot counted above:\n\n" + "".join(
        f"- {commit} in `{file}`: {why}\n" for (file, commit), why in sorted(LEFT_OUT.items())
    )


def page(folder=RECORDS):
    found = list(records(folder))
    parts = (decode, prefill, together, techniques, accuracy, beside_others, tokenizers)
    return INTRODUCTION + "".join(part(found) for part in parts) + left_out()


def main():
    made = page()
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() != made:
            sys.exit("docs/results.md is not what bench/results gives: run scripts/results.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(made)


if __name__ == "__main__":
    main()
