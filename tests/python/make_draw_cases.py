"""Writes tests/data/draw_cases.json: which tokens transformers' own filters keep.

Run by hand when a case is added: .venv/bin/python tests/python/make_draw_cases.py
"""

import json
from pathlib import Path

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

SETTINGS = [
    dict(temperature=1.0, top_k=5, top_p=1.0, min_p=0.0),
    dict(temperature=0.7, top_k=0, top_p=0.9, min_p=0.0),
    dict(temperature=1.5, top_k=0, top_p=1.0, min_p=0.1),
    dict(temperature=0.8, top_k=12, top_p=0.85, min_p=0.0),
    dict(temperature=2.0, top_k=30, top_p=0.5, min_p=0.05),
    dict(temperature=1.0, top_k=1, top_p=0.3, min_p=0.0),
    dict(temperature=3.0, top_k=0, top_p=0.99, min_p=0.3),
]


def kept(logits, settings) -> list:
    """As GenerationMixin builds its list."""
    steps = LogitsProcessorList()
    if settings["temperature"] != 1:
        steps.append(TemperatureLogitsWarper(settings["temperature"]))
    if settings["top_k"] > 0:
        steps.append(TopKLogitsWarper(settings["top_k"]))
    if settings["top_p"] < 1:
        steps.append(TopPLogitsWarper(settings["top_p"]))
    if settings["min_p"] > 0:
        steps.append(MinPLogitsWarper(settings["min_p"]))
    scores = steps(torch.zeros(1, 1, dtype=torch.long), logits[None].double())[0]
    return torch.isfinite(scores).nonzero()[:, 0].tolist()


def main():
    torch.manual_seed(4)
    cases = []
    for settings in SETTINGS:
        for spread in (1.0, 3.0, 6.0):
            logits = (torch.randn(48) * spread).mul(65536).round().div(65536)
            assert logits.unique().numel() == logits.numel()  # ties are in no order there
            cases.append({**settings, "logits": logits.tolist(), "kept": kept(logits, settings)})
    path = Path(__file__).resolve().parents[1] / "data/draw_cases.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()
