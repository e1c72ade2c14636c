"""The program against transformers and PyTorch: logits and greedy tokens of every tiny model, through
the native front end and through the Python capture, in chunks and whole."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import once
import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from variants import first_of, varied

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
sys.path.insert(0, str(ROOT / "python"))

from agentcompile import capture as command  # noqa: E402

NATIVE = [name for name in tiny_models.CASES if tiny_models.is_native(name)]
NEW_TOKENS = 24


def program(*arguments, expect=0, **environment):
    result = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
    )
    assert result.returncode == expect, result.stderr
    return result


def generate(source, ids, *options) -> dict:
    ids = ",".join(map(str, ids))
    arguments = ("--reference", "--ids", ids, "-n", NEW_TOKENS, "--logits", "--json", *options)
    return json.loads(program("run", source, *arguments).stdout)


@pytest.fixture(scope="session")
def case(tmp_path_factory):
    """name -> (SOURCE, folder, truth), each made once."""
    done = {}

    def make(name: str):
        if name not in done:
            source, folder = once.case(tmp_path_factory, name)
            truth = tiny_models.expected(name, folder, tiny_models.prompt(name), NEW_TOKENS)
            done[name] = source, folder, truth
        return done[name]

    return make


def check(got: dict, truth: dict) -> None:
    assert got["ids"] == truth["ids"]
    wanted = truth["last_logits"]
    assert len(got["last_logits"]) == len(wanted)
    span = max(wanted) - min(wanted)
    error = max(abs(a - b) for a, b in zip(got["last_logits"], wanted)) / span
    assert error < 1e-4
    assert len(got["generated"]) == NEW_TOKENS
    for ours, theirs, gap in zip(got["generated"], truth["generated"], truth["gaps"]):
        if ours != theirs:
            # A tie may fall either way, and then the sequences part.
            assert gap < 1e-4 * span
            break


@pytest.mark.parametrize("name", NATIVE)
def test_native_front_end(name, case):
    source, _, truth = case(name)
    whole = generate(source, truth["ids"], "--front-end", "native", "--chunk", 1000)
    check(whole, truth)
    for chunk in (1, 7):
        check(generate(source, truth["ids"], "--front-end", "native", "--chunk", chunk), truth)


@pytest.mark.parametrize("name", first_of(tiny_models.TO_CAPTURE, tiny_models.CAPTURED_OFTEN))
def test_python_capture(name, case, tmp_path_factory):
    _, folder, truth = case(name)
    file = once.capture(tmp_path_factory, name)
    check(generate(file, truth["ids"], "--chunk", 7), truth)
    check(generate(file, truth["ids"], "--chunk", 1000), truth)
    if tiny_models.is_native(name):
        for stage in ("graph", "step"):
            same = program("inspect", file, "--stage", stage, "--against", folder)
            assert same.stdout == "equal\n"


@pytest.mark.parametrize("stored", varied(["different"], ["equal", "head alone"]))
def test_a_tied_head_that_the_checkpoint_holds(stored, case, tmp_path):
    """transformers ties by value, whatever the config says; so do both front ends."""
    _, folder, _ = case("llama_gqa")
    shutil.copytree(folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    tensors = load_file(folder / "model.safetensors")
    if stored == "equal":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    if stored == "head alone":
        del tensors["model.embed_tokens.weight"]
    save_file(tensors, tmp_path / "model/model.safetensors", {"format": "pt"})
    prompt = tiny_models.prompt("llama_gqa")
    truth = tiny_models.expected("llama_gqa", tmp_path / "model", prompt, NEW_TOKENS)
    check(generate(tmp_path / "model", prompt, "--front-end", "native"), truth)
    content = command.capture(str(tmp_path / "model"), str(tmp_path / "capture.json"))
    assert "worst_error" in content["checked"]
    check(generate(tmp_path / "capture.json", prompt), truth)
    same = program("inspect", tmp_path / "capture.json", "--against", tmp_path / "model")
    assert same.stdout == "equal\n"
    parts = program("inspect", tmp_path / "model", "--json").stdout
    assert ("lm_head.weight" in parts) == (stored != "equal")
    assert ("model.embed_tokens.weight" in parts) == (stored != "head alone")


def test_what_was_checked_is_shown(case, tmp_path, tmp_path_factory):
    source, _, _ = case("plain_nanogpt")
    shown = program("inspect", once.capture(tmp_path_factory, "plain_nanogpt")).stderr
    assert "checked against the model itself" in shown and "of their range apart" in shown
    command.capture(str(source), str(tmp_path / "capture.json"), effort="none")
    assert "not checked against the model" in program("inspect", tmp_path / "capture.json").stderr


KINDS = {
    "mixtral": ({"num_local_experts": 8}, "mixture of experts", "num_local_experts is 8"),
    "qwen3_moe": ({"num_experts": 64}, "mixture of experts", "num_experts is 64"),
    "bamba": ({"mamba_n_heads": 8}, "recurrent layers", "mamba_n_heads"),
    "qwen3_5": (
        {"text_config": {"layer_types": ["linear_attention", "full_attention"]}},
        "layers of type \"linear_attention\"",
    ),
    "rwkv": ({}, "recurrent layers", "rwkv"),
}


@pytest.mark.parametrize("model_type", KINDS)
def test_the_kind_of_model_is_said_at_once(model_type, tmp_path):
    fields, *words = KINDS[model_type]
    config = {"model_type": model_type, "architectures": ["SomeForCausalLM"], **fields}
    (tmp_path / "config.json").write_text(json.dumps(config))
    bad_input(tmp_path, "config.json", *words)
    bad_input(tmp_path, *words, arguments=("inspect", "--front-end", "native"))


def test_what_has_its_own_op_is_recognised(tmp_path_factory):
    """Raising is for speed only, so wrong logits would not show that it failed."""
    wanted = {
        "gemma2_softcap": {"rms_norm", "rope", "append_attend", "gelu"},
        "phi3_partial": {"rms_norm", "rope", "append_attend", "silu"},
        "olmo2_tied": {"rms_norm", "rope", "append_attend", "silu"},
        "gpt2_tied": {"layer_norm", "append_attend", "gelu"},
        "plain_nanogpt": {"layer_norm", "append_attend"},
    }
    spelled_out = {"matmul", "softmax", "cos", "sin", "rsqrt", "mean", "tanh", "sigmoid", "tril"}
    for name, ops in wanted.items():
        file = once.capture(tmp_path_factory, name)
        step = program("inspect", file, "--stage", "step", "--json").stdout
        present = {node["op"] for node in json.loads(step)["nodes"]}
        assert ops <= present
        allowed = {"tanh"} if name == "gemma2_softcap" else set()  # the cap of the final logits
        assert not (present & spelled_out) - allowed


def test_source_is_captured_on_the_fly(case):
    _, folder, truth = case("gpt2_tied")
    python = {"AGENTCOMPILE_PYTHON": sys.executable}
    ids = ",".join(map(str, truth["ids"]))
    arguments = ("run", folder, "--reference", "--ids", ids, "-n", 24, "--logits", "--json")
    result = program(*arguments, **python)
    assert "GPT2LMHeadModel" in result.stderr
    check(json.loads(result.stdout), truth)
    source, _, truth = case("plain_nanogpt")
    text = program("inspect", source, "--stage", "step").stdout
    assert text.startswith("step ") and "append_attend" in text


def test_without_python_the_error_says_what_to_install(case, tmp_path):
    _, folder, _ = case("gemma2_softcap")
    nothing = {"AGENTCOMPILE_PYTHON": str(tmp_path / "no-python")}
    message = program("inspect", folder, expect=1, **nothing).stderr
    assert "Gemma2ForCausalLM" in message and "torch" in message and "pip install" in message


@pytest.mark.parametrize("config", sorted((ROOT / "tests/data/configs").glob("*.json")), ids=lambda p: p.stem)
def test_real_geometries_are_captured_in_under_a_second(config, tmp_path):
    shutil.copy(config, tmp_path / "config.json")
    best = 60.0
    for _ in range(3):  # a busy machine is not a slow program
        started = time.monotonic()
        step = program("inspect", tmp_path, "--stage", "step").stdout
        best = min(best, time.monotonic() - started)
    assert "append_attend" in step
    assert best < 1.0


# ---- bad input, as a user meets it


def bad_input(source, *fragments, arguments=("inspect",)):
    message = program(*arguments, source, expect=3).stderr
    assert message.startswith("error: ")
    for fragment in fragments:
        assert fragment in message


def test_bad_sources(tmp_path, case):
    bad_input("no/such-model", "no/such-model")
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "vocab_size": 0}')
    bad_input(tmp_path, "vocab_size is 0", "config.json")
    (tmp_path / "config.json").write_text("[" * 100000)
    bad_input(tmp_path, "nested")
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("config.json")
    bad_input(tmp_path, "config.json")
    (tmp_path / "capture.json").write_text('{"format": "agentcompile.capture", "format_version": 2}')
    bad_input(tmp_path / "capture.json", "version", "2")


def test_damaged_weights(tmp_path, case):
    _, folder, _ = case("llama_gqa")
    run = ("run", "--reference", "--ids", "1,2", "-n", "1")
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    bad_input(model, "model.safetensors", arguments=run)
    (model / "model.safetensors").unlink()
    bad_input(model, "safetensors", arguments=run)
    program("inspect", model)  # capture needs no weights
    config = json.loads((model / "config.json").read_text())
    config["intermediate_size"] *= 2
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").write_bytes(weights)
    bad_input(model, "mlp.gate_proj.weight", "shape", arguments=run)


def changed(case, to, change) -> Path:
    _, folder, _ = case("llama_gqa")
    shutil.copytree(folder, to)
    tensors = load_file(to / "model.safetensors")
    change(tensors)
    save_file(tensors, to / "model.safetensors", {"format": "pt"})
    return to


UP = "model.layers.1.mlp.up_proj.weight"
WRONG_WEIGHTS = {
    "another shape": (lambda t: t.update({UP: t[UP][1:].clone()}), "has shape [111, 64]"),
    "missing": (lambda t: t.pop(UP), "there is no tensor"),
    "codes": (lambda t: t.update({UP: t[UP].to(torch.float8_e4m3fn)}), "has no quantization_config"),
    "whole numbers": (lambda t: t.update({UP: t[UP].to(torch.int32)}), "stored as int32"),
}


@pytest.mark.parametrize("name", WRONG_WEIGHTS)
def test_wrong_weights_are_told_before_anything_is_compiled(name, case, tmp_path):
    change, says = WRONG_WEIGHTS[name]
    model = changed(case, tmp_path / "model", change)
    bad_input(model, UP, says, "model.safetensors", arguments=("compile", "-q", "-o", tmp_path / "package"))
    assert not (tmp_path / "package").exists()


def test_wrong_weights_of_a_capture_are_told_before_anything_is_compiled(case, tmp_path):
    model = changed(case, tmp_path / "model", lambda tensors: None)
    command.capture(str(model), str(tmp_path / "capture.json"), effort="none")
    shutil.rmtree(model)
    changed(case, model, WRONG_WEIGHTS["codes"][0])
    bad_input(tmp_path / "capture.json", UP, "float8_e4m3fn", arguments=("compile", "-q", "-o", tmp_path / "package"))


def test_weights_that_the_model_has_no_place_for_are_a_warning(case, tmp_path):
    bias, key = "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.v_proj.bias"

    def zeros(tensors):  # as GPTQ's checkpoints have them
        tensors[bias] = torch.zeros(64)

    def more(tensors):
        tensors.update({bias: torch.ones(64), key: torch.ones(64)})

    assert program("inspect", changed(case, tmp_path / "zeros", zeros)).stderr == ""
    said = program("inspect", changed(case, tmp_path / "more", more)).stderr
    assert said.count("\n") == 1 and bias in said and "1 others" in said and "not used" in said


def test_weights_say_the_type_where_the_config_does_not(case, tmp_path):
    def halve(tensors):
        tensors.update({key: tensor.to(torch.bfloat16) for key, tensor in tensors.items()})

    model = changed(case, tmp_path / "model", halve)
    config = json.loads((model / "config.json").read_text())
    config.pop("dtype", None)
    (model / "config.json").write_text(json.dumps({**config, "torch_dtype": None}))
    assert ": bf16[211, 64]" in program("inspect", model, "--stage", "graph").stdout
    command.capture(str(model), str(tmp_path / "capture.json"), effort="none")
    assert program("inspect", tmp_path / "capture.json", "--against", model).stdout == "equal\n"
    (model / "model.safetensors").unlink()
    assert ": f32[211, 64]" in program("inspect", model, "--stage", "graph").stdout


def test_wrong_usage(case):
    _, folder, _ = case("llama_gqa")
    program(expect=2)
    program("run", folder, expect=2)
    program("run", folder, "--reference", "--ids", "1,x", expect=2)
    program("run", folder, "--reference", "--ids", "", expect=2)
    program("inspect", folder, "--stage", "nonsense", expect=2)
    program("run", folder, "--reference", "--ids", "1", "--chunk", "0", expect=2)
    quantize = program("quantize", folder, "-o", folder / "q", "--weights", "int8", "--shard-bytes", "0", expect=2)
    assert "--shard-bytes: 0 is not above 0" in quantize.stderr
    outside = program("run", folder, "--reference", "--ids", "100000", expect=3).stderr
    assert "100000" in outside
    assert program("--version").stdout.startswith("agentcompile ")
    assert "host" in json.loads(program("devices", "--json").stdout)
