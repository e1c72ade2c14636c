"""`perplexity`: what it prints of a text against transformers in double precision, with and without a token that begins
each piece, and what it refuses."""

import json
import shutil

import pytest
import torch
import transformers
from compiled import ROOT, program
from test_quantize import meant, quantize, tensors_of

DEMO = ROOT / "examples/demo_model"
TEXT = "A river is a large natural stream of water. A dog is an animal that barks, and a cat is one that does not."
OPTIONS = ("--device", "host", "--dtype", "float32", "--max-context", 64, "--tries", 0, "--json", "--quiet")
BEGIN = "<|endoftext|>"


def truth(folder, begin, window, count, quantized=None):
    """Of each predicted token: the logarithms of all probabilities, and the token."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    if quantized:
        after = tensors_of(quantized)
        with torch.no_grad():
            for path, module in model.named_modules():
                if isinstance(module, torch.nn.Linear) and path != "lm_head":
                    module.weight.copy_(meant(quantized, path, after))
    ids = transformers.AutoTokenizer.from_pretrained(folder)(TEXT, add_special_tokens=False)["input_ids"][:count]
    piece = window - len(begin)
    logs, tokens = [], []
    for at in range(0, len(ids), piece):
        whole = begin + ids[at : at + piece]
        with torch.no_grad():
            out = model(torch.tensor([whole]), use_cache=False).logits[0].log_softmax(-1)
        first = max(len(begin), 1)
        logs.append(out[first - 1 : -1])
        tokens += whole[first:]
    return torch.cat(logs), torch.tensor(tokens)


def loss(logs, tokens):
    return -logs.gather(1, tokens[:, None]).mean()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT)
    return file


@pytest.mark.parametrize("begins", [False, True])
def test_quantized_weights_against_those_in_16_bits(tmp_path, text, begins):
    window, count = 8, 22  # the last piece is a short one
    options, begin = (), []
    if begins:
        # A tokenizer that puts a token before each text.
        shutil.copytree(DEMO, tmp_path / "tokenizer")
        said = json.loads((DEMO / "tokenizer.json").read_text())
        begin = [next(token["id"] for token in said["added_tokens"] if token["content"] == BEGIN)]
        said["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": begin, "tokens": [BEGIN]}},
        }
        (tmp_path / "tokenizer/tokenizer.json").write_text(json.dumps(said))
        options = ("--tokenizer", tmp_path / "tokenizer")
    quantize(DEMO, tmp_path / "q", "int4:64")
    told = json.loads(
        program(
            *("perplexity", DEMO, "--weights", "int4:64", "--against", DEMO, "--text", text, *OPTIONS),
            *("--window", window, "--tokens", count, *options),
        ).stdout
    )
    p, tokens = truth(DEMO, begin, window, count)
    q, _ = truth(DEMO, begin, window, count, tmp_path / "q")
    assert told["tokens"] == len(tokens) == (22 if begins else 19)
    assert told["window"] == window
    other = told["against"]
    assert told["perplexity"] == pytest.approx(loss(q, tokens).exp().item(), rel=1e-4)
    assert other["perplexity"] == pytest.approx(loss(p, tokens).exp().item(), rel=1e-4)
    kl = (p.exp() * (p - q)).sum(1)
    assert other["mean_kl"] == pytest.approx(kl.mean().item(), rel=1e-3)
    assert other["largest_kl"] == pytest.approx(kl.max().item(), rel=1e-3)
    assert other["same_likeliest_token"] == pytest.approx((p.argmax(1) == q.argmax(1)).double().mean().item(), abs=1e-9)


def test_for_people(text):
    told = program("perplexity", DEMO, "--against", DEMO, "--text", "-", *OPTIONS[:-2], "-q", stdin=TEXT).stdout
    assert told.count(str(DEMO)) == 3
    assert f"KL divergence from {DEMO}: 0.00000 nats a token" in told
    assert "the same for 100.0 % of the tokens" in told


def test_refused(tmp_path, text):
    (tmp_path / "short.txt").write_text("A")
    shutil.copytree(DEMO, tmp_path / "other")
    said = json.loads((DEMO / "tokenizer.json").read_text())
    said["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "other/tokenizer.json").write_text(json.dumps(said))
    for arguments, code, says in [
        (("--text", tmp_path / "none.txt"), 3, "none.txt"),
        (("--text", tmp_path / "short.txt"), 2, "there is no token to predict"),
        (("--text", text, "--window", 1), 2, "--window"),
        (("--text", text, "--against", tmp_path / "other"), 3, "different tokenizers"),
    ]:
        refused = program("perplexity", DEMO, *arguments, *OPTIONS, expect=code)
        assert says in refused.stderr, arguments
