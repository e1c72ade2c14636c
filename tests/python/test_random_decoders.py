"""Random decoders, right or refused: legitimate ones nearly all right, unsound ones never accepted
and wrong. AC_TEST_LONG=1 tries 300 of each; AC_TEST_HOLES=FILE names a file for those that
only the check of the capture refuses, and the compiler alone would compute wrong."""

import os
import sys
from pathlib import Path

import pytest
import random_decoders
import torch
from variants import LONG

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from agentcompile import capture, check  # noqa: E402
from agentcompile.errors import CaptureError  # noqa: E402
from agentcompile.source import _live  # noqa: E402

COUNT = 300 if LONG else 5
LENGTHS = (1, 2, 6, 12, 31, 49, 56)
TOLERANCE = 1e-4


def outcome(model, file: Path) -> tuple:
    """What the compiler alone makes of a module: ("refused", why), ("right", error) or ("wrong",
    error); and what the check of the capture says about it: None, or why it refuses."""
    made = _live(model, "random", None, None)
    try:
        content = capture.write(made, file)
    except CaptureError as error:
        return ("refused", str(error)), None
    longest = content["symbols"]["S"]["max"]
    spans = [n for n in LENGTHS if n <= longest]
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, model.spec.vocab, (1, max(spans)), generator=generator)
    runs = [(n, n) for n in spans] + [(max(spans), 1), (max(spans), 5)]
    try:
        outputs, _ = check._reference(
            check.find_program(None), file, ids[0].tolist(), runs, model.spec.vocab
        )
    except check.Skipped as why:
        return ("refused", str(why)), None
    worst = 0.0
    with torch.no_grad():
        for got in outputs:
            wanted = model(ids[:, : len(got)])[0].double()
            assert bool(torch.isfinite(wanted).all()), "the generator made a decoder of NaNs"
            error = float((got - wanted).abs().max() / (wanted.max() - wanted.min()))
            worst = max(worst, error if error == error else float("inf"))
    verdict = ("right" if worst < TOLERANCE else "wrong", worst)
    try:
        checked = check.validate(made, content, file, None, "normal")
    except CaptureError as error:
        return verdict, str(error)
    assert "worst_error" in checked, checked["summary"]
    return verdict, None


def judge(make, file: Path) -> list:
    results = []
    for seed in range(COUNT):
        spec, model = make(seed)
        results.append((seed, spec, *outcome(model, file)))
    return results


def report_holes(kind: str, results: list) -> None:
    file = os.environ.get("AC_TEST_HOLES")
    if file:
        with open(file, "a") as holes:
            for seed, spec, (verdict, error), _ in results:
                if verdict == "wrong":
                    holes.write(f"- {kind}({seed}), off by {error:.2g}: {spec.text()}\n")


@pytest.mark.skipif(check.find_program(None) is None, reason="the program is not built")
def test_legitimate_decoders_are_right(tmp_path):
    results = judge(random_decoders.legitimate, tmp_path / "capture.json")
    report_holes("legitimate", results)
    wrong = [r for r in results if r[2][0] == "wrong" and r[3] is None]
    assert not wrong, "\n".join(map(str, wrong))
    kept = [r for r in results if r[2][0] == "right" and r[3] is None]
    lost = [result for result in results if result[2][0] != "right" or result[3]]
    assert len(kept) >= 0.95 * len(results), "\n".join(map(str, lost))


@pytest.mark.skipif(check.find_program(None) is None, reason="the program is not built")
def test_unsound_decoders_are_refused_or_right(tmp_path):
    results = judge(random_decoders.unsound, tmp_path / "capture.json")
    report_holes("unsound", results)
    wrong = [r for r in results if r[2][0] == "wrong" and r[3] is None]
    assert not wrong, "\n".join(map(str, wrong))
    # A generator whose breaks broke nothing would prove nothing.
    stopped = [r for r in results if r[2][0] == "refused" or r[3] is not None]
    assert len(stopped) >= 0.7 * len(results)
