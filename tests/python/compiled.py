"""Packages for the host device against the reference executor."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
# Small on purpose: prompts are longer than a chunk, and windows longer than neither.
OPTIONS = ("--chunk", 8, "--max-context", 96, "--unmeasured", "--quiet")
# How far logits may be from the truth, in their range, by element type: rounding only.
CLOSE = {"f32": 1e-4, "f16": 4 / 1024, "bf16": 4 / 128}


def module_of(path):
    """A script of the repository, without running it."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(*arguments, expect=0, timeout=300, stdin=None, **environment):
    result = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        input=stdin,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
    )
    assert expect is None or result.returncode == expect, result.stdout + result.stderr
    return result


def users_environment() -> dict:
    """For what fetches or compiles sources: the cache of whoever runs the tests has them already."""
    return {**os.environ, "XDG_CACHE_HOME": os.environ["AC_TEST_USER_CACHE"]}


def cache_with_kernels(folder) -> Path:
    """A cache folder of one's own, whose kernels are those that the tests have built already."""
    kernels = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentcompile/kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (folder / "agentcompile").mkdir(parents=True)
    (folder / "agentcompile/kernels").symlink_to(kernels)
    return folder


def compile_package(source, package, *options, tries=1, **environment) -> dict:
    arguments = ("-o", package, *OPTIONS, "--tries", tries, "--json", *options)
    return json.loads(program("compile", source, *arguments, **environment).stdout)


def generate(source, ids, new_tokens, *options) -> dict:
    ids = ",".join(map(str, ids))
    arguments = ("--ids", ids, "-n", new_tokens, "--logits", "--json", *options)
    result = json.loads(program("run", source, *arguments).stdout)
    result.pop("load", None)  # how long that took
    return result


def phase_of(document, name) -> dict:
    """What plan.json or program.json says of the phase of this name."""
    return next(phase for phase in document["phases"] if phase["name"] == name)


def verdicts(package) -> list:
    """What became of each region: for whoever reads a failed test."""
    plan = json.loads((Path(package) / "plan.json").read_text())
    return [
        {
            "phase": phase,
            "ops": " ".join(selection["ops"]),
            "family": selection["family"],
            "candidate": selection["candidate"],
            "rejected": [
                f"{attempt['candidate']}: {attempt['outcome'].get('why', '')}"
                for attempt in selection["attempts"]
                if attempt["outcome"]["kind"] != "admitted"
            ],
            "refusals": selection["refusals"],
        }
        for phase in ("prefill", "decode")
        for selection in phase_of(plan, phase)["selections"]
    ]


def check(package, source, ids, new_tokens, *options) -> float:
    """The package's greedy tokens and last logits are the reference's, which takes the options.
    Returns the logits' error in their range."""
    dtype = json.loads((Path(package) / "program.json").read_text())["dtype"]
    truth = generate(source, ids, new_tokens, "--reference", *options)
    got = generate(package, ids, new_tokens)
    assert got["ids"] == truth["ids"]
    error = distance(got["last_logits"], truth["last_logits"])
    assert error < CLOSE[dtype], f"logits are {error:.3g} of their range away"
    assert len(got["generated"]) == new_tokens
    for i, (ours, theirs) in enumerate(zip(got["generated"], truth["generated"])):
        if ours == theirs:
            continue
        # A tie within rounding may fall either way, and then the sequences part.
        before = list(ids) + truth["generated"][:i]
        logits = generate(source, before, 0, "--reference", *options)["last_logits"]
        gap = (logits[theirs] - logits[ours]) / (max(logits) - min(logits))
        assert gap < 2 * CLOSE[dtype], f"token {i} is {ours}, not {theirs}, and {gap:.3g} behind"
        ours = generate(package, before, 0)["last_logits"]
        assert distance(ours, logits) < CLOSE[dtype]
        break
    return error


def distance(ours: list, theirs: list) -> float:
    assert len(ours) == len(theirs)
    return max(abs(a - b) for a, b in zip(ours, theirs)) / (max(theirs) - min(theirs))
