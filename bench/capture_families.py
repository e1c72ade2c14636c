"""Captures a tiny random model of many transformers families by the Python front end, and compares
the reference executor with transformers in float32: the whole prompt, in chunks, token by token.

  capture_families.py [FAMILY ...] [--json FILE]
  capture_families.py --page FILE DECODERS SECOND > docs/results/captures.md

prints a line a family: the result, and the processor seconds of the capture and of its check. The
comparison here is this script's own; the check of the capture is only timed. The second form writes
the page of the records in FILE, and of those of tests/python/test_ordinary_decoders.py in DECODERS and SECOND.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from agentcompile import capture, check, source  # noqa: E402
from agentcompile.errors import CaptureError  # noqa: E402

FAMILIES = """
Apertus Arcee BioGpt BitNet Bloom CodeGen Cohere Cohere2 Cwm DiffLlama Doge Ernie4_5 Exaone4 Falcon GPT2
GPTBigCode GPTJ GPTNeo GPTNeoX GPTNeoXJapanese Gemma Gemma2 Gemma3 Glm Glm4 Granite Helium HunYuanDenseV1
Jais2 Llama MiniCPM3 Ministral Ministral3 Mistral Mpt NanoChat Nemotron OPT Olmo Olmo2 Olmo3 OpenAIGPT
Persimmon Phi Phi3 Qwen2 Qwen3 SeedOss SmolLM3 StableLm Starcoder2 VaultGemma XGLM
""".split()
SIZES = dict(
    vocab_size=211, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=128, sliding_window=16,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
# What a family calls these sizes, or needs beside them; None leaves one out.
GPT2_NAMES = dict(n_embd=64, n_layer=2, n_head=4, n_positions=128, n_inner=112)
OTHERS = {
    "BioGpt": dict(num_key_value_heads=None), "CodeGen": dict(GPT2_NAMES, n_ctx=128, rotary_dim=8),
    "Falcon": dict(head_dim=None, num_kv_heads=4, new_decoder_architecture=False, multi_query=False),
    "Gemma": dict(num_key_value_heads=1), "GPT2": GPT2_NAMES, "GPTBigCode": GPT2_NAMES,
    "GPTJ": dict(GPT2_NAMES, rotary_dim=8), "Mpt": dict(d_model=64, n_heads=4, n_layers=2, max_seq_len=128),
    "GPTNeo": dict(num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=16),
    "Bloom": dict(n_layer=2, n_head=4), "OpenAIGPT": GPT2_NAMES,
    "MiniCPM3": dict(head_dim=None, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16,
                     qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16),
    "OPT": dict(ffn_dim=112, word_embed_proj_dim=64), "XGLM": dict(d_model=64, ffn_dim=112, num_layers=2,
                                                                  attention_heads=4),
}  # fmt: skip
TOKENS, CHUNK, TOLERANCE = 48, 5, 1e-5
DECODER_OUTCOMES = ("right", "limited", "refused", "wrong", "crashed")  # of test_ordinary_decoders.py


def build(family: str):
    text = "TextConfig" if family == "Gemma3" else "Config"
    config_class = getattr(transformers, family + text)
    head = "LMHeadModel" if family in ("GPT2", "OpenAIGPT") else "ForCausalLM"
    sizes = {**SIZES, **OTHERS.get(family, {})}
    config = config_class(**{name: size for name, size in sizes.items() if size is not None})
    torch.manual_seed(5)
    model = getattr(transformers, family + head)(config).eval().float()
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for weight in model.parameters():
            scale = 0.2 if weight.dim() < 2 else weight.shape[-1] ** -0.5
            weight.add_(scale * torch.randn(weight.shape, generator=generator))
    return model


def seconds() -> float:
    """The processor time of this process and its children so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def worst_error(content: dict, file: Path, folder: str) -> float:
    ids = torch.randint(0, SIZES["vocab_size"], (1, TOKENS), generator=torch.Generator().manual_seed(7))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        wanted = model.eval()(ids, use_cache=False).logits[0].double()
    runs = [(TOKENS, TOKENS), (TOKENS, CHUNK), (TOKENS, 1)]
    vocab = content["model"]["vocab_size"]
    outputs, _ = check._reference(check.find_program(None), file, ids[0].tolist(), runs, vocab)
    span = float(wanted.max() - wanted.min())
    return max(float((got - wanted).abs().max()) / span for got in outputs)


def measure(family: str) -> dict:
    row = {"what": "capture", "family": family}
    with tempfile.TemporaryDirectory() as folder:
        try:
            build(family).save_pretrained(folder)
        except Exception as error:  # transformers raises whatever it likes
            return {**row, "result": "not built", "reason": f"{type(error).__name__}: {error}"[:200]}
        file = Path(folder, "capture.json")
        try:
            start = seconds()
            model = source.resolve(folder, None)
            content = capture.write(model, file)
            row["capture_s"] = round(seconds() - start, 2)
            error = worst_error(content, file, folder)
            row.update(result="right" if error < TOLERANCE else "WRONG", error=float(f"{error:.2g}"))
            start = seconds()
            checked = check.validate(model, content, file, None, "normal")
            row["check_s"] = round(seconds() - start, 2)
            if "worst_error" not in checked:
                row.update(result="unchecked", reason=checked["summary"])
        except (CaptureError, check.Skipped) as error:
            row.update(result="refused", reason=str(error).split("; ")[0])
    return row


def read(file) -> list:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def decoders_text(records: list) -> list:
    """The section about ordinary decoders: a row for each commit that was measured."""
    cells, sizes = {}, {}
    for record in records:
        sizes[record["set"]] = record["decoders"]
        found = [f"{record[kind]} {kind}" for kind in DECODER_OUTCOMES if record[kind]]
        text = ", ".join(found) + f" ({record['right'] / record['decoders']:.0%} right)"
        cells.setdefault(record["commit"], {})[record["set"]] = text
    lines = [
        "## Ordinary decoders",
        "",
        f"`tests/python/ordinary` has {sizes['dev'] + sizes['held']} plain PyTorch decoders as people write them, written without a",
        f"look at the compiler, and {sizes['unsound']} in which a later token leaks into an earlier logit. They are captured without",
        "the check, so that the compiler alone is judged: the reference executor's logits against the live module's.",
        "At first the compiler was mended by the first half alone, taken by a hash of the names, and measured by the",
        "second. Since the third measurement both have been looked at: neither tells how it does on decoders of others.",
        f"`{records[-1]['command']}`",
        "",
        f"| commit | first half ({sizes['dev']}) | second half ({sizes['held']}) | with a leak ({sizes['unsound']}) |",
        "|---|---|---|---|",
    ]
    for commit, found in cells.items():
        leaks = found["unsound"].split(" (")[0]
        lines.append(f"| {commit} | {found['dev']} | {found['held']} | {leaks} |")
    return lines


def second_text(records: list) -> list:
    """Of the second set: what came before anything was mended by it."""
    (ordinary,) = [record for record in records if record["set"] == "second" and "decoders" in record]
    (unsound,) = [record for record in records if record["set"] == "second unsound" and "decoders" in record]
    asked = sum("argument 'is_causal' must be bool" in record.get("detail", "") for record in records)
    share = 100 * ordinary["right"] / ordinary["decoders"]
    return [
        "",
        "`tests/python/ordinary_second` has 100 more, and 30 with a leak, by another author who saw neither the first set",
        "nor the compiler, and who tried no export. Two of the 100 name their type in the forward, so that no copy in float32",
        f"can say what is right: {ordinary['decoders']} are judged, before anything was mended by them",
        "(`bench/results/2026-11-24-ordinary-decoders-second.jsonl`, which has each refusal).",
        "",
        f"| commit | ordinary ({ordinary['decoders']}) | with a leak ({unsound['decoders']}) |",
        "|---|---|---|",
        f"| {ordinary['commit']} | {ordinary['right']} right, {ordinary['refused']} refused ({share:.0f}% right) "
        f"| {unsound['refused']} refused |",
        "",
        f"{asked} of the refused ask for causal attention if there are several tokens (`is_causal=n > 1`), which is known since.",
        "Others have keys beside the tokens' (memory keys, sinks, a zero key), squared scores without a softmax, talking heads,",
        "or shifted tokens.",
    ]


def page(records: list, decoders: list, second: list) -> str:
    """docs/results/captures.md, of the newest record of each family and of the sets of decoders."""
    said, rows = {}, {}
    for record in records:
        if "commit" in record:
            said = record
        else:
            rows[record["family"]] = record
    ran = [row for row in rows.values() if row["result"] == "right"]
    lines = [
        "# Captures of transformers' families",
        "",
        f"Made by `{said['command']}` at commit {said['commit']} with transformers {said['transformers']}",
        f"and PyTorch {said['torch']}: {len(ran)} of {len(rows)} families are right, the others refused in words.",
        "",
        "Each family is a model of two layers with random weights, captured by the Python front end. The error is that of",
        f"the reference executor's logits against transformers in float32, as a share of their range: {TOKENS} tokens at",
        f"once, in chunks of {CHUNK}, and token by token; below {TOLERANCE:g} is right. The times are processor seconds.",
        "",
        "| family | error | capture | check |",
        "|---|---|---|---|",
    ]
    for row in sorted(ran, key=lambda row: row["family"]):
        lines.append(f"| {row['family']} | {row['error']:.1g} | {row['capture_s']:.1f} | {row['check_s']:.1f} |")
    lines += ["", "| family | result | why |", "|---|---|---|"]
    for row in sorted(rows.values(), key=lambda row: row["family"]):
        if row not in ran:
            why = row.get("reason") or f"off by {row['error']:.1g}"
            lines.append(f"| {row['family']} | {row['result']} | {why} |")
    lines += ["", *decoders_text(decoders), *second_text(second)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("family", nargs="*", default=FAMILIES)
    parser.add_argument("--json", metavar="FILE", help="appends a JSON line a family")
    parser.add_argument(
        "--page",
        nargs=3,
        metavar=("FILE", "DECODERS", "SECOND"),
        help="prints the page of these records, and runs nothing",
    )
    options = parser.parse_args()
    if options.page:
        print(page(*map(read, options.page)), end="")
        return 0
    warnings.simplefilter("ignore")
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    def report(row: dict) -> None:
        if options.json:
            with open(options.json, "a") as out:
                out.write(json.dumps(row) + "\n")
        print("\t".join(f"{key}={value}" for key, value in row.items()), flush=True)

    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    report({"commit": commit.stdout.strip(), "command": "bench/capture_families.py", **versions})
    measure("Llama")  # what PyTorch does once is no family's time
    wrong = 0
    for family in options.family:
        row = measure(family)
        wrong += row["result"] == "WRONG"
        report(row)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
