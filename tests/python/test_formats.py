"""Weights in FP8 with a scale for each block of 128 x 128, as the official Qwen3 and DeepSeek checkpoints have them: the
reference and packages against PyTorch on weights that are code * scale, and checkpoints that contradict themselves."""

import json
import shutil
import sys

import pytest
import torch
import transformers
from compiled import ROOT, check, compile_package, distance, generate, phase_of, program, verdicts
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(ROOT / "python"))

BLOCK, LARGEST = 128, 448.0
NEW_TOKENS = 12
# Blocks are ragged along both axes of all matrices but k_proj and v_proj.
SIZES = dict(
    vocab_size=211,
    hidden_size=192,
    intermediate_size=320,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=256,
    tie_word_embeddings=False,
)
QUANTIZATION = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[BLOCK, BLOCK])
IDS = [5, 190, 3, 77, 12, 140, 9, 201, 33, 64, 2]


def expanded(scale, shape):
    """The scale of each element."""
    return scale.repeat_interleave(BLOCK, 0)[: shape[0]].repeat_interleave(BLOCK, 1)[:, : shape[1]]


def quantise(weight, scale_type):
    """Codes, and scales that map the largest element of each block to the largest code, but for a few that are halved:
    then some elements are cut off, which a checkpoint may hold as well."""
    rows, columns = (-(-size // BLOCK) for size in weight.shape)
    scale = torch.zeros(rows, columns)
    for row in range(rows):
        for column in range(columns):
            block = weight[row * BLOCK : (row + 1) * BLOCK, column * BLOCK : (column + 1) * BLOCK]
            scale[row, column] = block.abs().max().float() / LARGEST * (0.5 if (row + column) % 3 == 2 else 1)
    scale = scale.to(scale_type)
    codes = (weight.float() / expanded(scale.float(), weight.shape)).clamp(-LARGEST, LARGEST)
    return codes.to(torch.float8_e4m3fn), scale


def write(folder, family="Qwen3", scale_type=torch.float32, quantization=None, **extra):
    """A quantised checkpoint, and the model in double precision that it means."""
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **extra})
    torch.manual_seed(7)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    quantization = quantization or QUANTIZATION
    plain = quantization.get("modules_to_not_convert") or ["lm_head"]
    tensors = {}
    with torch.no_grad():
        for path, weight in model.named_parameters():
            neutral = 1.0 if weight.dim() == 1 else 0.0
            size = 0.5 if "embed" in path else 0.2 if weight.dim() == 1 else 1.5 * weight.shape[-1] ** -0.5
            weight.copy_(torch.normal(neutral, size, weight.shape).to(torch.bfloat16))
    model = model.double()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            module = path.removesuffix(".weight")
            linear = path.endswith("proj.weight") or path == "lm_head.weight"
            if not linear or any(module.startswith(name) or module.endswith(name) for name in plain):
                tensors[path] = weight.to(torch.bfloat16).contiguous()
                continue
            codes, scale = quantise(weight, scale_type)
            tensors[path], tensors[f"{path}_scale_inv"] = codes, scale
            weight.copy_(codes.double() * expanded(scale.double(), weight.shape))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated = json.loads(config.to_json_string())
    stated |= dict(quantization_config=quantization, torch_dtype="bfloat16", architectures=[f"{family}ForCausalLM"])
    stated.pop("dtype", None)
    (folder / "config.json").write_text(json.dumps(stated))
    return model


@pytest.fixture(scope="module")
def fp8(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fp8") / "qwen3"
    return folder, write(folder)


def check_reference(folder, model):
    with torch.no_grad():
        truth = model(torch.tensor([IDS]), use_cache=False).logits[0, -1].tolist()
    # In float32, nothing but the reference's own arithmetic is between the two.
    got = generate(folder, IDS, 1, "--reference", "--front-end", "native", "--dtype", "float32")
    assert distance(got["last_logits"], truth) < 1e-6
    got = generate(folder, IDS, 1, "--reference", "--front-end", "native")
    assert distance(got["last_logits"], truth) < 1e-4


@pytest.mark.parametrize(
    "name, options",
    {
        "qwen3": {},
        "scales of bfloat16": dict(scale_type=torch.bfloat16),
        "llama": dict(family="Llama"),
        "a head in fp8": dict(quantization={**QUANTIZATION, "modules_to_not_convert": ["model.layers.1.mlp"]}),
    }.items(),
)
def test_the_reference_is_pytorch_on_code_times_scale(name, options, tmp_path):
    check_reference(tmp_path / "model", write(tmp_path / "model", **options))


def test_a_model_means_something_else_without_its_scales(fp8):
    """What the other tests could not see if scales were ignored on both sides."""
    folder, model = fp8
    with torch.no_grad():
        before = model(torch.tensor([IDS]), use_cache=False).logits[0, -1]
        weight = model.model.layers[0].mlp.down_proj.weight
        kept = weight.clone()
        weight[128:, 256:] *= 2
        after = model(torch.tensor([IDS]), use_cache=False).logits[0, -1]
        weight.copy_(kept)
    assert distance(after.tolist(), before.tolist()) > 1e-3


def test_a_package_gives_the_reference_s_tokens(fp8, tmp_path):
    folder, _ = fp8
    plan = compile_package(folder, tmp_path / "package", tries=2)
    check(tmp_path / "package", folder, IDS, NEW_TOKENS)
    program_json = json.loads((tmp_path / "package" / "program.json").read_text())
    parts = [b for b in program_json["buffers"] if b.get("format") == "fp8_block"]
    assert len(parts) == 2 * 7 * 2
    assert {(b["part"], b["dtype"]) for b in parts} == {(0, "f8e4m3"), (1, "f32")}
    families = {
        (part["family"], "linear" in part["ops"]) for part in phase_of(plan_of(tmp_path), "decode")["selections"]
    }
    assert ("gemv", True) in families, verdicts(tmp_path / "package")
    program("verify", tmp_path / "package", timeout=900)
    del plan


def plan_of(folder):
    return json.loads((folder / "package" / "plan.json").read_text())


def test_every_op_has_a_fallback(fp8, tmp_path):
    folder, _ = fp8
    compile_package(folder, tmp_path / "package", "--families", "norm")
    check(tmp_path / "package", folder, IDS, NEW_TOKENS)


def test_families_that_read_no_such_weights_say_so(fp8):
    folder, _ = fp8
    text = program("inspect", folder, "--stage", "candidates", "--target", "sm_90").stdout
    assert "it reads no weights in fp8_block" in text
    assert "gemv" in text


# ---- checkpoints that contradict themselves


def changed_tensors(folder, to, change):
    shutil.copytree(folder, to)
    tensors = load_file(to / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, to / "model.safetensors")
    return to


K_PROJ = "model.layers.0.self_attn.k_proj.weight"


def drop(tensors):
    del tensors[K_PROJ + "_scale_inv"]


def transpose(tensors):
    key = "model.layers.0.mlp.up_proj.weight_scale_inv"
    tensors[key] = tensors[key].T


def plain(tensors):
    tensors[K_PROJ] = tensors[K_PROJ].to(torch.bfloat16)


def quantised(tensors):
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.float8_e4m3fn)


def other_codes(tensors):
    tensors[K_PROJ] = tensors[K_PROJ].view(torch.uint8).view(torch.float8_e5m2)


def whole_scales(tensors):
    tensors[K_PROJ + "_scale_inv"] = tensors[K_PROJ + "_scale_inv"].to(torch.int32)


TENSORS = {
    "a scale is missing": (drop, ["k_proj.weight_scale_inv"]),
    "scales lie the other way": (transpose, ["up_proj.weight_scale_inv", "[2, 3]", "[3, 2]"]),
    "a matrix is not quantised": (plain, ["k_proj.weight", "bfloat16", "float8_e4m3fn"]),
    "the head is quantised": (quantised, ["lm_head.weight", "float8_e4m3fn", "not quantized"]),
    "codes are E5M2": (other_codes, ["k_proj.weight", "F8_E5M2"]),
    "scales are integers": (whole_scales, ["k_proj.weight_scale_inv", "int32"]),
}


@pytest.mark.parametrize("name", TENSORS)
def test_contradicting_checkpoints(name, fp8, tmp_path):
    change, words = TENSORS[name]
    folder = changed_tensors(fp8[0], tmp_path / "model", change)
    result = program("run", folder, "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1, expect=3)
    for word in words:
        assert word in result.stderr, result.stderr


CONFIGS = {
    "another method": (dict(quant_method="gptq"), ["quant_method", "gptq", "use the checkpoint in"]),
    "no method": (dict(quant_method=None), ["quant_method"]),
    "another block": (dict(weight_block_size=[64, 128]), ["weight_block_size", "[128, 128]"]),
    "one scale a matrix": (dict(weight_block_size=None), ["weight_block_size", "[128, 128]"]),
    "scales of activations": (dict(activation_scheme="static"), ["activation_scheme", "dynamic"]),
    "other codes": (dict(fmt="e5m2"), ["fmt", "e4m3"]),
    "powers of two": (dict(scale_fmt="ue8m0"), ["scale_fmt"]),
    "a pattern": (dict(modules_to_not_convert=["model.layers.*"]), ["modules_to_not_convert", "patterns"]),
    "no list": (dict(modules_to_not_convert="lm_head"), ["modules_to_not_convert", "list"]),
    "embeddings too": (dict(modules_to_convert=["embed_tokens"]), ["modules_to_convert"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_that_are_refused(name, fp8, tmp_path):
    change, words = CONFIGS[name]
    folder = tmp_path / "model"
    shutil.copytree(fp8[0], folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= change
    (folder / "config.json").write_text(json.dumps(config))
    result = program("run", folder, "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1, expect=3)
    for word in words:
        assert word in result.stderr, result.stderr
