"""The demo model: what it says is what transformers says, and both models share one vocabulary."""

import json
from pathlib import Path

import pytest
import torch
from compiled import program
from transformers import AutoModelForCausalLM, AutoTokenizer
from variants import varied

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL, DRAFT = EXAMPLES / "demo_model", EXAMPLES / "demo_draft"
OPTIONS = ("--tries", 0, "--unmeasured", "--max-context", 128, "--chunk", 16, "--short-prompt", 0, "-q")


def said_by_transformers(folder, question, count):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(ids, do_sample=False, max_new_tokens=count)[0][ids.shape[1] :]
    return tokenizer.decode(out, skip_special_tokens=True)


@pytest.mark.parametrize("folder", varied([DRAFT], [MODEL]), ids=lambda folder: folder.name)
def test_it_says_what_it_says_in_transformers(folder, tmp_path):
    package, question = tmp_path / "package", "What is a river?"
    program("compile", folder, "-o", package, "--dtype", "float32", *OPTIONS)
    result = program(
        "generate", package, "--chat", "-p", question, "--temp", 0, "--max-new-tokens", 40, "--json"
    )
    answer = json.loads(result.stdout)
    assert answer["text"] == said_by_transformers(folder, question, 40)
    assert answer["finish_reason"] == "stop"


def test_they_are_small_and_of_one_vocabulary():
    size = {f: sum(file.stat().st_size for file in f.iterdir()) for f in (MODEL, DRAFT)}
    assert size[MODEL] <= 8 << 20 and size[DRAFT] <= 2 << 20
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (MODEL / name).read_bytes() == (DRAFT / name).read_bytes()
