"""The capture of every tiny model: complete (what the file says, run on its own, gives the model's
logits), well formed, and for what cannot be captured an error that names it."""

import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import captured
import once
import pytest
import tiny_models
import torch
import transformers
from compiled import module_of, program
from safetensors.torch import load_file, save_file
from variants import LONG, first_of, varied

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
sys.path.insert(0, str(PYTHON))

from agentcompile import attention, check, export  # noqa: E402
from agentcompile import capture as command  # noqa: E402
from agentcompile.weights import constant_value  # noqa: E402

LENGTHS = (1, 5, 37)


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Writes a case once: name -> (SOURCE, folder)."""
    return lambda name: once.case(tmp_path_factory, name)


@pytest.fixture(scope="session")
def capture_of(written, tmp_path_factory):
    """Captures a case once, in float32: name -> (content, file)."""
    root, done = tmp_path_factory.mktemp("captures"), {}

    def capture(name: str):
        if name not in done:
            if once.is_float32(name):
                path = once.capture(tmp_path_factory, name)
                done[name] = json.loads(path.read_text()), path
            else:
                path = root / f"{name}.json"
                done[name] = command.capture(str(written(name)[0]), str(path), "float32"), path
        return done[name]

    return capture


def close(got: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> None:
    limit = tolerance * max(1.0, float(wanted.abs().max()))
    assert float((got - wanted).abs().max()) <= limit


def compare(path, model, name: str) -> dict:
    runner = captured.Runner(path)
    for length in LENGTHS:
        ids = tiny_models.prompt(name, length)
        close(runner.logits(ids), tiny_models.logits_of(model, ids))
    return runner.capture


@pytest.mark.parametrize("name", first_of(tiny_models.TO_CAPTURE, tiny_models.CAPTURED_OFTEN))
def test_a_capture_says_everything(name, written, capture_of):
    content, path = capture_of(name)
    model = tiny_models.load_float32(name, written(name)[1])
    assert compare(path, model, name) == json.loads(json.dumps(content))
    checked = content["checked"]
    assert checked["against"] == "the model itself" and checked["lengths"][0] == 1
    assert len(checked["lengths"]) >= 4 and checked["chunks"] == [7, 1]
    assert checked["worst_error"] <= checked["tolerance"] <= 1e-3


@pytest.mark.parametrize("name", varied(["llama_bfloat16_sharded"], ["qwen3_float16", "gemma2_bfloat16"]))
def test_a_model_keeps_its_own_dtype(name, written, tmp_path_factory):
    _, folder = written(name)
    file = once.capture(tmp_path_factory, name)
    assert json.loads(file.read_text())["model"]["dtype"] == name.split("_")[1]
    ids = tiny_models.prompt(name, 37)
    wanted = tiny_models.logits_of(tiny_models.load_float32(name, folder), ids)
    got = captured.Runner(file).logits(ids).float()
    close(got, wanted, 0.05)


def attentions(content: dict) -> list:
    return [n for n in content["nodes"] if n["op"] == "agentcompile.attention.default"]


def test_attention_stays_one_op_with_its_window(capture_of):
    windows = {
        "mistral_window": [16, 16],
        "qwen2_window": [0, 16, 16],
        "qwen3_layer_types": [0, 16, 0],
        "gemma3_text": [16, 16, 16],
        "gemma2_softcap": [16, 0],
        "llama_gqa": [0, 0],
        "plain_handnorm_rope_gqa": [0, 0],
        "gemma3_old_rope": [16, 0, 16],
    }
    for name, wanted in windows.items():
        if not LONG and name not in tiny_models.CAPTURED_OFTEN:
            continue
        content, _ = capture_of(name)
        nodes = attentions(content)
        assert [node["args"]["window"] for node in nodes] == wanted
        shapes = {node["name"]: node["shape"] for node in content["nodes"]}
        assert {shapes[node["args"]["k"]["ref"]][1] for node in nodes} == {2}, "unrepeated"
        assert all(node["module"].endswith(("self_attn", "attention")) for node in nodes)
    content, _ = capture_of("gemma2_softcap")
    assert {(n["args"]["softcap"], n["args"]["scale"]) for n in attentions(content)} == {
        (50.0, 24**-0.5)
    }


def test_tied_weights_are_one_parameter(capture_of):
    for name in ("gpt2_tied", "plain_nanogpt", *(("llama_mha_tied",) if LONG else ())):
        content, _ = capture_of(name)
        heads = [p for p in content["parameters"] if p["aliases"]]
        assert len(heads) == 1 and heads[0]["shape"][0] in (199, 211)
        assert not any(p["path"].endswith("head.weight") for p in content["parameters"])


def test_a_mask_buffer_is_a_triangle(capture_of):
    content, _ = capture_of("plain_nanogpt")
    assert [c["tril"] for c in content["constants"]] == [0, 0]
    assert content["symbols"]["S"]["max"] == 96
    assert constant_value(torch.ones(3, 5).tril(1)) == {"tril": 1}
    assert constant_value(torch.full((2, 2), 7)) == {"fill": 7}
    assert constant_value(torch.tensor([[1.0, 0.5], [2.0, 1.0]])) == {"data": [1.0, 0.5, 2.0, 1.0]}
    hidden = {"triangle": {"diagonal": 0, "below": 0.0, "above": "-inf"}}
    assert constant_value(torch.full((2, 3, 3), -math.inf).triu(1)) == hidden
    assert constant_value(torch.tensor(float("-inf"))) == {"data": ["-inf"]}
    assert constant_value(torch.arange(70000)) == {"range": [0, 1]}
    assert constant_value(torch.arange(70000).float() * 2 + 5) == {"range": [5, 2]}
    assert constant_value(torch.arange(70000).flip(0) % 7) is None


def test_config_alone_is_enough(written, capture_of, tmp_path):
    _, folder = written("llama_old_llama3")
    (tmp_path / "model").mkdir()
    shutil.copy(folder / "config.json", tmp_path / "model")
    content = command.capture(str(tmp_path / "model"), str(tmp_path / "out.json"))
    captured.validate(captured.read(tmp_path / "out.json"), tmp_path)
    assert {p["file"] for p in content["parameters"]} == {None}
    assert content["checked"]["against"].startswith("its architecture with num_hidden_layers=2")
    assert all(p["key"] == p["path"] for p in content["parameters"])
    assert not (tmp_path / "out.safetensors").exists()
    whole, _ = capture_of("llama_old_llama3")
    assert content["nodes"] == whole["nodes"] and content["constants"] == whole["constants"]


def test_keys_without_the_base_models_prefix(written, tmp_path):
    """As in the GPT-2 checkpoints on the Hub."""
    _, folder = written("gpt2_tied")
    shutil.copytree(folder, tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    save_file(
        {k.removeprefix("transformer."): v for k, v in tensors.items()}, file, {"format": "pt"}
    )
    command.capture(str(tmp_path / "model"), str(tmp_path / "out.json"))
    compare(tmp_path / "out.json", tiny_models.load_float32("gpt2_tied", folder), "gpt2_tied")


def test_an_exported_program(tmp_path):
    name = "plain_rmsnorm_rope"
    model = tiny_models.build(name)
    example = torch.zeros(1, 21, dtype=torch.int64)
    dynamic = ({1: torch.export.Dim("length", min=2, max=96)},)
    program = torch.export.export(model, (example,), dynamic_shapes=dynamic)
    torch.export.save(program, tmp_path / "model.pt2")
    content = command.capture(str(tmp_path / "model.pt2"), str(tmp_path / "out.json"))
    compare(tmp_path / "out.json", model, name)
    assert attentions(content)[1]["module"] == "blocks.1.attention"
    static = torch.export.export(model, (example,))
    torch.export.save(static, tmp_path / "static.pt2")
    expect_error(tmp_path, tmp_path / "static.pt2", 1, "constant 21")


def test_a_transformers_model_from_a_file(tmp_path):
    text = """
        import sys
        sys.path.insert(0, {folder!r})
        import tiny_models
        def small():
            return tiny_models.build("qwen3_window")
    """
    (tmp_path / "small.py").write_text(
        textwrap.dedent(text).format(folder=str(Path(__file__).parent))
    )
    content = command.capture(f"{tmp_path}/small.py:small", str(tmp_path / "out.json"))
    compare(tmp_path / "out.json", tiny_models.build("qwen3_window"), "qwen3_window")
    assert [n["args"]["window"] for n in attentions(content)] == [0, 0, 16]


def test_a_project_folder(tmp_path):
    project = tmp_path / "project"
    (project / "nets").mkdir(parents=True)
    (project / "nets" / "small.py").write_text(FORWARD.replace("{body}", ""))
    (project / "model.py").write_text("from nets.small import factory as build_model\n")
    for spelling in (str(project), f"{project}:nets.small", f"{project}:nets.small:factory"):
        command.capture(spelling, str(tmp_path / "out.json"))
        runner = captured.Runner(tmp_path / "out.json")
        x = runner.fixed["embed.weight"][[3, 4]]
        close(runner.logits([3, 4]), x @ runner.fixed["head.weight"].T + runner.fixed["head.bias"])


def test_a_cached_id(written, tmp_path):
    _, folder = written("llama_one_layer")
    repository = tmp_path / "hub" / "models--tiny--llama"
    shutil.copytree(folder, repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    done = subprocess.run(
        [sys.executable, "-m", "agentcompile.capture", "tiny/llama", "-o", tmp_path / "out.json"],
        env={**os.environ, "HF_HOME": str(tmp_path), "PYTHONPATH": str(PYTHON)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    model = tiny_models.load_float32("llama_one_layer", folder)
    content = compare(tmp_path / "out.json", model, "llama_one_layer")
    assert content["model"]["name"] == "tiny/llama"


# What cannot be captured.


def run_command(tmp_path, source, *options) -> tuple:
    """The command on a SOURCE: its exit code, and what it says."""
    errors = tmp_path / "stderr"
    stderr = sys.stderr
    with open(errors, "w") as sys.stderr:
        try:
            got = command.main([str(source), "-o", str(tmp_path / "bad.json"), *options])
        finally:
            sys.stderr = stderr
    return got, errors.read_text()


def expect_error(tmp_path, source, code: int, *words: str) -> None:
    """Runs the command on a bad SOURCE: the exit code, the words, and no file left behind."""
    got, text = run_command(tmp_path, source)
    assert got == code, text
    assert "Traceback" not in text
    assert text.startswith("error: ")
    for word in words:
        assert word in text, text
    out = tmp_path / "bad.json"
    assert not out.exists() and not out.with_suffix(".safetensors").exists()


FORWARD = """
import torch, torch.nn as nn, torch.nn.functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50)
        self.register_buffer("count", torch.zeros(1))
    def forward(self, ids):
        x = self.embed(ids)
        {body}
        return self.head(x)
def factory():
    return Net()
"""

UNSUPPORTED = {
    "writes_buffer": ("self.count.add_(1); x = x + self.count", ["count", "state"]),
    "replaces_buffer": ("self.count = self.count + 1; x = x + self.count", ["count"]),
    "data_dependent": ("x = x if x.sum() > 0 else -x", ["values of a tensor", "source.py:11"]),
    "item": ("x = x * x.max().item()", ["'"]),
    "not_causal": (
        "y = x[:, None]; x = F.scaled_dot_product_attention(y, y, y)[:, 0]",
        ["scaled_dot_product_attention", "is_causal=False"],
    ),
    "negative_scale": (
        "y = x[:, None]; x = F.scaled_dot_product_attention(y, y, y, is_causal=True, scale=-0.5)[:, 0]",
        ["scaled_dot_product_attention", "scales the scores by -0.5"],
    ),
    "causal_from_three": (
        "y = x[:, None]; x = F.scaled_dot_product_attention(y, y, y, is_causal=x.shape[1] > 2)[:, 0]",
        ["is_causal", "SymBool"],
    ),
    "causal_but_for_more_keys": (
        "y = x[:, None]; k = F.pad(y, (0, 0, 1, 0)); n = x.shape[1]\n"
        "        x = F.scaled_dot_product_attention(y, k, k, is_causal=n > 1)[:, 0]",
        ["is_causal", "SymBool"],
    ),
    "dropout": ("x = F.dropout(x, 0.5, True)", ["random", "dropout"]),
    "noise": ("x = x + torch.randn_like(x)", ["random", "randn_like"]),
    "last_token_only": ("x = x[:, -1:]", ["logits", "[1, 1, 50]"]),
    "fixed_length": ("x = x + torch.zeros(37, 16)[None]", ["length"]),
    "folded_length": ("x = x.view(1, -1, 37, 16)[:, 0]", ["[1, S, vocab]"]),
    "short_branch": ("x = x * 2 if x.shape[1] < 10 else x", ["at least 10 tokens"]),
    "one_token": ("x = x * 2 if x.shape[1] == 1 else x", ["at least 2 tokens"]),
    "traced": ("x = x * 2 if torch.compiler.is_exporting() else x", ["asks whether it is being traced"]),
    "even": ("x = x * 2 if x.shape[1] % 2 == 0 else x", ["only right for some", "S % 2"]),
    "all_but_one": ("x = x * 2 if x.shape[1] == 40 else x", ["only right for some", "S != 40"]),
    "multiples": ("x = x * 2 if x.shape[1] % 8 == 0 else x", ["only right for some", "S % 8"]),
    "strides": ("x = torch.as_strided(x, (1, x.shape[1], 16), (16, 16, 1))", ["as_strided"]),
}


def test_attention_that_is_causal_if_there_are_several_tokens(tmp_path):
    attend = "F.scaled_dot_product_attention(y, y, y, is_causal=x.shape[1] > 1)"
    (tmp_path / "source.py").write_text(FORWARD.replace("{body}", f"y = x[:, None]; x = {attend}[:, 0]"))
    code, text = run_command(tmp_path, f"{tmp_path}/source.py:Net")
    assert code == 0 and "checked against the model itself" in text, text


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_forwards(name, tmp_path):
    body, words = UNSUPPORTED[name]
    (tmp_path / "source.py").write_text(FORWARD.replace("{body}", body))
    expect_error(tmp_path, tmp_path / "source.py", 1, *words)


def test_a_forward_that_fails_on_one_token_is_an_error_in_words(tmp_path):
    norm = "F.instance_norm(x.transpose(1, 2)).transpose(1, 2)"
    (tmp_path / "source.py").write_text(FORWARD.replace("{body}", f"x = x + {norm}"))
    code, text = run_command(tmp_path, tmp_path / "source.py")
    assert code <= 1 and "Traceback" not in text and "unexpectedly" not in text


def test_a_check_that_fails_unexpectedly_is_an_error_in_words(tmp_path, monkeypatch):
    (tmp_path / "source.py").write_text(FORWARD.replace("{body}", ""))
    monkeypatch.setattr(check, "lengths", lambda *_: 1 / 0)
    expect_error(tmp_path, tmp_path / "source.py", 1, "test_capture.py:", "ZeroDivisionError", "--debug")


def test_the_page_of_captures_is_what_the_records_give():
    families = module_of("bench/capture_families.py")
    kinds = ("captures", "ordinary-decoders", "ordinary-decoders-second")
    newest = (max((ROOT / "bench/results").glob(f"*-{kind}.jsonl")) for kind in kinds)
    assert families.page(*map(families.read, newest)) == (ROOT / "docs/results/captures.md").read_text()


def test_code_that_computes_with_the_mask_itself_is_refused_in_words():
    with pytest.raises(AttributeError) as caught:
        attention.Rule(0).dtype
    assert "computes with the attention mask itself" in export._explain(caught.value)


KEEPS = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(23, 8), nn.Embedding(64, 8)
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 23)
        self.mask, self.table, self.calls = None, {{}}, []

    def sines(self, n):
        if self.table.get("n", 0) < n:
            self.table.update(n=n, sines=torch.outer(torch.arange(n) * 0.1, torch.ones(8)).sin())
        return self.table["sines"][:n]

    def forward(self, ids):
        queries = keys = len(ids[0])
        if self.mask is None or self.mask.shape[0] != queries:
            rows, columns = torch.arange(queries)[:, None], torch.arange(keys)
            self.mask = rows >= columns - keys + queries
        x = self.tok(ids) + self.pos(torch.arange(queries))
        with torch.autocast("cpu", enabled=False):
            x = x + self.sines(queries)
        {more}
        later = np.triu(np.ones((1, queries, queries)), k=1).astype("uint8")
        self.mask = self.mask & (torch.from_numpy(later)[0] == 0)
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.head(F.softmax((q @ k.mT).masked_fill(~self.mask, float("-inf")), -1) @ v)
"""


def test_what_the_first_call_leaves_is_no_part_of_the_model(tmp_path):
    (tmp_path / "source.py").write_text(KEEPS.format(more=""))
    code, text = run_command(tmp_path, f"{tmp_path}/source.py:Keeps")
    assert code == 0 and "checked against the model itself" in text, text
    assert json.loads((tmp_path / "bad.json").read_text())["symbols"]["S"]["max"] > 64
    more = "self.calls.append(x); x = x * len(self.calls)"
    (tmp_path / "source.py").write_text(KEEPS.format(more=more))
    code, text = run_command(tmp_path, f"{tmp_path}/source.py:Keeps", "--no-check")
    assert code == 1 and "then computes something else from the same tokens" in text, text


def test_no_check_says_so(tmp_path):
    (tmp_path / "source.py").write_text(FORWARD.replace("{body}", ""))
    code, text = run_command(tmp_path, tmp_path / "source.py", "--no-check")
    assert code == 0 and "not checked against the model: the check was switched off" in text
    checked = json.loads((tmp_path / "bad.json").read_text())["checked"]
    assert list(checked) == ["summary"]
    assert run_command(tmp_path, tmp_path / "source.py", "--no-check", "--quiet") == (0, "")
    code, text = run_command(
        tmp_path, tmp_path / "source.py", "--no-check", "--program", str(tmp_path / "none")
    )
    assert code == 0


def test_a_thorough_check_tries_more(tmp_path):
    (tmp_path / "source.py").write_text(FORWARD.replace("{body}", ""))
    code, text = run_command(tmp_path, tmp_path / "source.py", "--thorough")
    checked = json.loads((tmp_path / "bad.json").read_text())["checked"]
    assert code == 0 and len(checked["lengths"]) > check.LENGTHS["normal"], checked
    assert checked["summary"] in text


def test_positions_are_those_of_the_module(tmp_path):
    """A module that counts from 2, and one that is told where tokens stand."""
    text = FORWARD.replace("def forward(self, ids):", "def forward(self, ids, positions{default}):")
    body = "{own}; x = x + torch.sin(positions)[..., None]"
    own = "positions = torch.arange(ids.shape[1])[None] + 2 if positions is None else positions"
    for default, body in (("=None", body.replace("{own}", own)), ("", body.replace("{own}", "pass"))):
        source = tmp_path / "source.py"
        source.write_text(text.replace("{default}", default).replace("{body}", body))
        content = command.capture(str(source), str(tmp_path / "out.json"))
        kinds = [entry["kind"] for entry in content["inputs"]]
        assert kinds == (["ids"] if default else ["ids", "positions"])
        runner = captured.Runner(tmp_path / "out.json")
        x = runner.fixed["embed.weight"][[3, 4]] + torch.sin(
            torch.arange(2.0) + (2 if default else 0)
        )[:, None]
        close(runner.logits([3, 4]), x @ runner.fixed["head.weight"].T + runner.fixed["head.bias"])


def test_what_the_check_sees_alone(tmp_path, monkeypatch):
    """With a compiler that computes something else, for one length or for one way of taking it."""
    (tmp_path / "source.py").write_text(FORWARD.replace("{body}", ""))
    reference = check._reference

    def damaged(program, file, ids, runs, vocab_size):
        outputs, scores = reference(program, file, ids, runs, vocab_size)
        for (span, chunk), output in zip(runs, outputs):
            if hit(span, chunk):
                output[11, 3] += 0.01
        return outputs, scores

    monkeypatch.setattr(check, "_reference", damaged)
    for hit, words in ((lambda span, chunk: span == chunk == 17, "17 tokens, taken at once"),
                       (lambda span, chunk: chunk == 7, "taken in chunks of 7"),
                       (lambda span, chunk: chunk == 1 < span, "taken token by token")):
        expect_error(tmp_path, tmp_path / "source.py", 1, "logits of token 11", words, "0.0")


def test_a_bound_on_the_length_is_recorded(tmp_path):
    text = FORWARD.replace("{body}", "x = x * 2 if x.shape[1] > 40 else x")
    (tmp_path / "source.py").write_text(text)
    content = command.capture(str(tmp_path / "source.py"), str(tmp_path / "out.json"))
    because = "the model tests the length, or slices what has room for 40 tokens"
    assert content["symbols"] == {"S": {"min": 1, "max": 40, "because": because}}
    ids = ",".join(["1"] * 41)
    longer = program("run", tmp_path / "out.json", "--reference", "--ids", ids, "-n", 0, expect=3)
    assert f"right for 40 tokens ({because})" in longer.stderr


def test_bad_python_sources(tmp_path):
    def source(text: str) -> Path:
        (tmp_path / "source.py").write_text(text)
        return tmp_path / "source.py"

    expect_error(tmp_path, source("def make(): pass"), 3, "no factory", "make")
    expect_error(tmp_path, str(source("def make(): pass")) + ":other", 3, "'other'", "make")
    expect_error(tmp_path, source("x = 1\nraise ValueError('sad')"), 3, "sad", "source.py:2")
    expect_error(tmp_path, source("def factory(:"), 3, "SyntaxError")
    expect_error(tmp_path, source("import no_such_thing"), 3, "no_such_thing")
    expect_error(tmp_path, source("def factory(): raise SystemExit(0)"), 3, "SystemExit")
    expect_error(tmp_path, source("def factory(): return 7"), 3, "int")
    text = FORWARD.replace("{body}", "x = x @ x")
    expect_error(tmp_path, source(text), 3, "forward of Net", "source.py:11")
    expect_error(tmp_path, tmp_path / "none.py", 3, "none.py")
    expect_error(tmp_path, tmp_path / "none.pt2", 3, "none.pt2")
    expect_error(tmp_path, "no/such-model", 3, "no/such-model", "agentcompile pull")
    expect_error(tmp_path, "a//b", 3, "a//b")
    (tmp_path / "broken.pt2").write_bytes(b"PK nothing")
    expect_error(tmp_path, tmp_path / "broken.pt2", 3, "broken.pt2")
    (tmp_path / "project").mkdir()
    expect_error(tmp_path, tmp_path / "project", 3, "no config.json", "model.py")
    expect_error(tmp_path, f"{tmp_path}/project:nowhere", 3, "nowhere")
    expect_error(tmp_path, tmp_path / "stderr", 2, "--help")


def test_wrong_usage(capsys):
    for arguments in ([], ["x"], ["x", "-o", "y", "--dtype", "int4"]):
        with pytest.raises(SystemExit) as stop:
            command.main(arguments)
        assert stop.value.code == 2
    assert command.main(["x", "-o", "y.safetensors"]) == 2


SMALL = dict(vocab_size=211, bos_token_id=1, eos_token_id=2, pad_token_id=0, hidden_size=64)
MOE = dict(SMALL, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
KINDS = {
    "Bloom": (dict(SMALL, n_layer=2, n_head=4), ["ALiBi", "bloom"]),
    "Mpt": (dict(SMALL, n_layers=2, n_heads=4), ["ALiBi", "mpt"]),
    "Mixtral": (dict(MOE, num_local_experts=4), ["mixture of experts", "num_local_experts=4"]),
    "Qwen3Moe": (dict(MOE, num_experts=6), ["mixture of experts", "=6", "layers.0.mlp.experts"]),
    "Mamba2": (dict(SMALL, num_hidden_layers=2, num_heads=8, head_dim=16), ["recurrent", "mamba2"]),
    "Lfm2": (dict(MOE, layer_types=["conv", "full_attention"]), ["layers of type 'conv'"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_models_that_are_refused(name, tmp_path):
    fields, words = KINDS[name]
    getattr(transformers, f"{name}Config")(**fields).save_pretrained(tmp_path / "model")
    expect_error(tmp_path, tmp_path / "model", 1, *words)


CONFIGS = {
    "longrope": (
        "phi3_fused",
        dict(
            original_max_position_embeddings=128,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
                "original_max_position_embeddings": 128,
            },
        ),
        1,
        ["longrope"],
    ),
    "dynamic": (
        "llama_gqa",
        dict(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        1,
        ["dynamic"],
    ),
    "bidirectional": ("gemma3_text", dict(use_bidirectional_attention=True), 1, ["causal"]),
    "not_causal": ("llama_gqa", dict(is_causal=False), 1, ["causal"]),
    "wrong_shape": ("llama_one_layer", dict(intermediate_size=128), 3, ["mlp", "[112, 64]", "[128, 64]"]),
    "more_layers": ("llama_one_layer", dict(num_hidden_layers=2), 1, ["model.layers.1."]),
    "no_type": ("llama_gqa", dict(model_type=None), 3, ["model_type"]),
    "new_type": ("llama_gqa", dict(model_type="llama99"), 3, ["llama99"]),
    "encoder": ("llama_gqa", dict(model_type="clip", architectures=["CLIPModel"]), 1, ["clip"]),
    "classifier": (
        "llama_gqa",
        dict(architectures=["LlamaForSequenceClassification"]),
        1,
        ["LlamaForSequenceClassification", "no language model"],
    ),
    "images": (
        "gemma3_text",
        dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"]),
        1,
        ["Gemma3ForConditionalGeneration", "images", "text_config"],
    ),
    "bad_heads": ("llama_gqa", dict(num_attention_heads=0), 3, ["config.json"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_bad_configs(name, written, tmp_path):
    case, change, code, words = CONFIGS[name]
    shutil.copytree(written(case)[1], tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = {**json.loads(file.read_text()), **change}
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    expect_error(tmp_path, tmp_path / "model", code, *words)


def test_bad_checkpoints(written, tmp_path):
    def fresh(**sharding) -> Path:
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        if sharding:
            tiny_models.build("llama_one_layer").save_pretrained(tmp_path / "model", **sharding)
        else:
            shutil.copytree(written("llama_one_layer")[1], tmp_path / "model")
        return tmp_path / "model"

    model = fresh()
    (model / "config.json").write_text("{")
    expect_error(tmp_path, model, 3, "config.json")
    model = fresh()
    whole = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    expect_error(tmp_path, model, 3, "model.safetensors")
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(b"")
    expect_error(tmp_path, model, 3, ".bin")
    model = fresh(max_shard_size="60KB")
    second = sorted(model.glob("model-*.safetensors"))[1]
    second.unlink()
    expect_error(tmp_path, model, 3, second.name, "missing")
    index = model / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "../evil.safetensors"}}')
    expect_error(tmp_path, model, 3, "../evil.safetensors")
    index.write_text('{"weight_map": 7}')
    expect_error(tmp_path, model, 3, "index")
    index.write_text('{"weight_map": {"a": "gone.safetensors"}}')
    for file in ("model.safetensors", "of_another_name.safetensors"):  # before an index that names others
        shutil.copy(written("llama_one_layer")[1] / "model.safetensors", model / file)
        assert command.main([str(model), "-o", str(tmp_path / "whole.json"), "--no-check"]) == 0
        (model / file).unlink()
        index.unlink(missing_ok=True)
        for shard in model.glob("model-*.safetensors"):
            shard.unlink()
    model = fresh()
    tensors = load_file(model / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    expect_error(tmp_path, model, 1, "model.norm.weight")
