"""Each adversarial decoder is refused for the right reason, or computed right: whole and token by
token."""

import json
import os
import subprocess
import sys
from pathlib import Path

import adversarial_decoders
import pytest
import torch
from compiled import program
from variants import first_of, late

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
sys.path.insert(0, str(ROOT / "python"))

from agentcompile import capture as command  # noqa: E402
from agentcompile import check  # noqa: E402
from agentcompile.source import _live  # noqa: E402

IDS = [(7 * i + 3) % adversarial_decoders.VOCAB for i in range(12)]


def last_logits(capture: Path, ids: list, chunk: int):
    """The logits after these tokens, or why there are none."""
    result = subprocess.run(
        [PROGRAM, "run", capture, "--reference", "--ids", ",".join(map(str, ids))]
        + ["-n", "0", "--chunk", str(chunk), "--logits", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if result.returncode == 0:
        return torch.tensor(json.loads(result.stdout)["last_logits"]), ""
    assert result.returncode == 3, result.stderr
    return None, result.stderr


@pytest.mark.parametrize(
    "name, expectation",
    [
        late((name, wanted)) if name in adversarial_decoders.RARE else (name, wanted)
        for name, _, wanted in adversarial_decoders.DECODERS
    ],
)
def test_refused_or_right(name, expectation, tmp_path):
    model = adversarial_decoders.build(name)
    path = tmp_path / "capture.json"
    command.capture(f"{adversarial_decoders.__file__}:build_{name}", str(path))
    got, why = last_logits(path, IDS, 5)
    if expectation != adversarial_decoders.RIGHT:
        assert got is None, "accepted"
        assert expectation in why
        assert "adversarial_decoders.py:" in why, "the line of the model"
        return
    assert got is not None, why
    for ids, chunk in ((IDS, 5), (IDS, 1), (IDS[:1], 1)):
        got, _ = last_logits(path, ids, chunk)
        with torch.no_grad():
            wanted = model(torch.tensor([ids]))[0, -1]
        tolerance = 2e-2 if wanted.dtype == torch.bfloat16 else 1e-5
        wanted = wanted.float()
        assert float((got - wanted).abs().max()) <= tolerance * float(wanted.max() - wanted.min())


def test_a_mask_that_hides_small_scores_only_needs_a_measurement(tmp_path):
    path = tmp_path / "capture.json"
    content = command.capture(f"{adversarial_decoders.__file__}:build_weak_fill", str(path))
    scores = content["checked"]["scores"]
    assert scores["within"] == 2500 and 0.01 < scores["largest"] < 100 and scores["own_weights"]
    shown = program("inspect", path)
    assert "scores_within=2500.0}" in shown.stdout and "at most 2500, and they were" in shown.stderr

    def compiled_if(checked: dict) -> str:
        command.store(path, {**content, "checked": checked})
        # What comes after the question ends it, too.
        return program("compile", path, "-o", tmp_path / "p", "--max-context", 1 << 20, expect=3).stderr

    drawn = {**content["checked"], "scores": {**scores, "own_weights": False}}
    for checked, says in (
        (content["checked"], None),
        (drawn, "small sizes and random weights alone: checked against"),
        (check.skipped("it was late"), "nobody has measured them (not checked against the model: it was"),
    ):
        text = compiled_if(checked)
        assert ("the mask's -10000 is sure to hide" in text) == (says is not None), text
        assert ("warning" in text) == (checked is drawn) and (says or "") in text, text
        assert ("at most 131072 tokens" in text) == ("scores" in checked), text


@pytest.mark.parametrize("name", first_of(adversarial_decoders.ROUNDED, ["float32", "entries", "hundreds"]))
def test_a_context_ends_where_rounding_decides(name, tmp_path, monkeypatch):
    factory, longest = adversarial_decoders.ROUNDED[name]
    model = adversarial_decoders.make(factory, name)
    monkeypatch.chdir(tmp_path)
    path = Path("capture.json")  # its weights are beside it, in a folder without a name
    content = command.write(_live(model, name, None, None), path)
    runs = [(400, 400)]
    ids = [i % adversarial_decoders.VOCAB for i in range(400)]
    (got,), _ = check._reference(str(PROGRAM), path, ids, runs, adversarial_decoders.VOCAB)
    assert len(got) == (longest or 400) and content["symbols"]["S"]["max"] > 400
    with torch.no_grad():
        wanted = model(torch.tensor([ids[: len(got)]]))[0]
    assert float((got - wanted).abs().max()) < 1e-4
    if longest:
        longer = program("compile", path, "-o", "package", "--max-context", longest + 1, expect=3).stderr
        assert f"at most {longest} tokens (" in longer and f"for position {longest})" in longer
        assert "rounding changes" in longer and "adversarial_decoders.py:" in longer
