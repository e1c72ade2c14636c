"""Quantised checkpoints that contradict themselves, and configs that say what is not supported."""

import json
import shutil

import pytest
import torch
from compiled import program
from quantized_checkpoints import (
    CASES,
    QUANTIZATION,
    act_order,
    awq_config,
    changed_tensors,
    compressed_config,
    fp4_config,
    fp8,
    gptq_config,
    modelopt_config,
    nvfp4,
    other_zeros,
    words,
    write,
)
from variants import late

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


@pytest.mark.parametrize(
    "front_end, name",
    [
        *(("native", name) for name in TENSORS),
        ("python", "a scale is missing"),
        late(("python", "the head is quantised")),
    ],
)
def test_contradicting_checkpoints(front_end, name, fp8, tmp_path):
    change, words = TENSORS[name]
    folder = changed_tensors(fp8[0], tmp_path / "model", change)
    # (The check of a capture has weights of its own.)
    unchecked = ("--no-check",) if front_end == "python" else ()
    result = program("run", folder, "--reference", "--front-end", front_end, "--ids", "1,2", "-n", 1, *unchecked, expect=3)
    for word in words:
        assert word in result.stderr, result.stderr


CONFIGS = {
    "another method": (
        dict(quant_method="hqq"),
        ["quant_method", "hqq", "gptq and modelopt are known", "use the checkpoint in"],
    ),
    "MXFP4": (dict(quant_method="mxfp4"), ["quant_method", "gpt-oss", "experts"]),
    "ModelOpt without an algorithm": (dict(quant_method="modelopt"), ["quant_algo"]),
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


def refused(folder, to, quantization, words):
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    config["quantization_config"] = quantization
    (to / "config.json").write_text(json.dumps(config))
    result = program("run", to, "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1, expect=3)
    for word in words:
        assert word in result.stderr, result.stderr


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_that_are_refused(name, fp8, tmp_path):
    change, words = CONFIGS[name]
    refused(fp8[0], tmp_path / "model", QUANTIZATION | change, words)


def compressed_group(**changed):
    config = compressed_config("pack-quantized", 4, strategy="group", group_size=32)
    config["config_groups"]["group_0"] |= changed
    return config


OTHER_CONFIGS = {
    "MXFP8": (compressed_config("mxfp8-quantized", 8, "float"), ["format", "MXFP8", "nvfp4-pack-quantized"]),
    "NVFP4 in groups of 32": (fp4_config("NVFP4A16", group_size=32), ["weights.group_size", "32", "16"]),
    "NVFP4 of whole numbers": (fp4_config("NVFP4A16", type="int"), ["weights.type", "float"]),
    "NVFP4 without a scale for all": (fp4_config("NVFP4A16", strategy="group"), ["strategy", "tensor_group"]),
    "MXFP4 with zero points": (fp4_config("MXFP4A16", symmetric=False), ["weights.symmetric"]),
    "MXFP4 with other scales": (fp4_config("MXFP4A16", scale_dtype="torch.bfloat16"), ["scale_dtype", "uint8"]),
    "NVFP4 with scales of inputs": (modelopt_config("NVFP4_AWQ"), ["quant_algo", "NVFP4_AWQ", "inputs"]),
    "ModelOpt's NVFP4 in groups of 32": (
        modelopt_config("NVFP4", config_groups=dict(group_0=dict(weights=dict(group_size=32)))),
        ["config_groups.group_0.weights.group_size", "16"],
    ),
    "ModelOpt with a large pattern": (modelopt_config("FP8", ignore=["*a*b*c*d"]), ["ignore", "*a*b*c*d"]),
    "another form": (compressed_config("nibbles", 4), ["format", "nibbles", "pack-quantized"]),
    "3 bits": (compressed_config("pack-quantized", 3), ["weights.num_bits", "3", "4 or 8"]),
    "4 bits, an int8 each": (compressed_config("int-quantized", 4), ["num_bits", "8 with int-quantized"]),
    "whole numbers as floats": (compressed_config("float-quantized", 8), ["type", "float-quantized"]),
    "act-order of rows": (compressed_config("pack-quantized", 4, actorder="group"), ["actorder", "groups"]),
    "another act-order": (
        compressed_config("pack-quantized", 4, strategy="group", group_size=32, actorder="dynamic"),
        ["actorder", "static"],
    ),
    "scales by token": (compressed_config("pack-quantized", 4, strategy="token"), ["strategy", "channel"]),
    "activations of the checkpoint": (
        compressed_group(input_activations=dict(num_bits=8, dynamic=False)),
        ["input_activations.dynamic", "static"],
    ),
    "other modules": (compressed_group(targets=["Linear", "Embedding"]), ["targets", "Linear"]),
    "two groups": (
        compressed_config("pack-quantized", 4) | dict(config_groups=dict(a={}, b={})),
        ["config_groups", "2 groups"],
    ),
    "a cache in 8 bits": (
        compressed_config("pack-quantized", 4) | dict(kv_cache_scheme=dict(bits=8)),
        ["kv_cache_scheme"],
    ),
    "a large pattern": (compressed_config("pack-quantized", 4, ignore=["re:(a|b)_proj"]), ["ignore", "(a|b)_proj"]),
    "another kernel's order": (awq_config(version="marlin"), ["version", "gemm"]),
    "awq without zero points": (awq_config(zero_point=False), ["zero_point"]),
    "gptq of 3 bits": (gptq_config(bits=3), ["bits", "4 or 8"]),
    "gptq with exceptions": (gptq_config(dynamic={"lm_head": {}}), ["dynamic", "several formats"]),
    "gptq of 8 bits with zero points": (gptq_config(bits=8, sym=False), ["sym", "version 1"]),
    "gptq of no size": (gptq_config(group_size=0), ["group_size"]),
}


@pytest.mark.parametrize("name", OTHER_CONFIGS)
def test_other_configs_that_are_refused(name, fp8, tmp_path):
    quantization, words = OTHER_CONFIGS[name]
    refused(fp8[0], tmp_path / "model", quantization, words)


# ---- the same of codes in words


def other_order(tensors):
    tensors["model.layers.0.mlp.up_proj.g_idx"] = tensors["model.layers.0.mlp.up_proj.g_idx"].flip(0)


def one_scale_less(tensors):
    tensors["model.layers.0.mlp.up_proj.scales"] = tensors["model.layers.0.mlp.up_proj.scales"][1:]


def other_scales(tensors):
    key = "model.layers.1.mlp.up_proj.scales"
    tensors[key] = tensors[key].to(torch.bfloat16)


def codes_of_bytes(tensors):
    key = "model.layers.0.mlp.up_proj.qweight"
    tensors[key] = tensors[key].view(torch.uint8)[:, : tensors[key].shape[1]]


GPTQ_TENSORS = {
    "columns in another order": (other_order, ["up_proj.g_idx", "act-order"]),
    "zero points that are said not to be": (other_zeros, ["up_proj.qzeros", "symmetric"]),
    "a scale is missing": (one_scale_less, ["up_proj.scales", "[2, 320]", "[3, 320]"]),
    "scales of another type": (other_scales, ["up_proj.scales", "bfloat16", "float16"]),
    "codes are bytes": (codes_of_bytes, ["up_proj.qweight", "uint8", "int32"]),
}


@pytest.fixture(scope="module")
def symmetric_gptq(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gptq") / "qwen3"
    write(folder, **CASES["gptq"])
    return folder


@pytest.mark.parametrize("name", GPTQ_TENSORS)
def test_contradicting_checkpoints_of_words(name, symmetric_gptq, tmp_path):
    change, words = GPTQ_TENSORS[name]
    folder = changed_tensors(symmetric_gptq, tmp_path / "model", change)
    result = program("run", folder, "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1, expect=3)
    for word in words:
        assert word in result.stderr, result.stderr


def test_groups_that_are_not_there(act_order, tmp_path):
    key = "model.layers.0.mlp.up_proj.g_idx"

    def beyond(tensors):
        tensors[key][5] = 3

    def missing(tensors):
        del tensors[key]

    for change, words in (beyond, ["the group 3", "there are 3"]), (missing, []):
        folder = changed_tensors(act_order[0], tmp_path / change.__name__, change)
        result = program("run", folder, "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1, expect=3)
        for word in [key, *words]:
            assert word in result.stderr, result.stderr


def test_a_packed_weight_of_another_shape(tmp_path):
    write(tmp_path / "said", **CASES["int4"])
    key = "model.layers.1.mlp.down_proj.weight_shape"

    for said, word in ([192, 319], "[192, 319]"), ([192.0, 320.0], "float32"):
        folder = tmp_path / word

        def change(tensors):
            tensors[key] = torch.tensor(said)

        changed_tensors(tmp_path / "said", folder, change)
        result = program("run", folder, "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1, expect=3)
        assert key in result.stderr and word in result.stderr, result.stderr


# ---- the same of floats of 4 bits

UP_PROJ = "model.layers.0.mlp.up_proj."


def no_scale_for_all(tensors):
    tensors[UP_PROJ + "weight_global_scale"].zero_()


def narrow_scale_for_all(tensors):
    tensors[UP_PROJ + "weight_global_scale"] = tensors[UP_PROJ + "weight_global_scale"].to(torch.bfloat16)


def two_scales_for_all(tensors):
    tensors[UP_PROJ + "weight_global_scale"] = tensors[UP_PROJ + "weight_global_scale"].repeat(2)


def wide_scales(tensors):
    tensors[UP_PROJ + "weight_scale"] = tensors[UP_PROJ + "weight_scale"].to(torch.bfloat16)


def codes_of_words(tensors):
    tensors[UP_PROJ + "weight_packed"] = tensors[UP_PROJ + "weight_packed"].to(torch.int32)


def half_of_the_codes(tensors):
    tensors[UP_PROJ + "weight_packed"] = tensors[UP_PROJ + "weight_packed"][:, ::2]


FP4_TENSORS = {
    "a scale for all of 0": (no_scale_for_all, ["up_proj.weight_global_scale", "is 0", "positive"]),
    "a scale for all of another type": (narrow_scale_for_all, ["up_proj.weight_global_scale", "bfloat16", "float32"]),
    "two scales for all": (two_scales_for_all, ["up_proj.weight_global_scale", "[2]", "[1, 1]"]),
    "scales of another type": (wide_scales, ["up_proj.weight_scale", "bfloat16", "float8_e4m3fn"]),
    "codes of words": (codes_of_words, ["up_proj.weight_packed", "int32", "uint8"]),
    "codes are missing": (half_of_the_codes, ["up_proj.weight_packed", "[320, 48]", "[320, 96]"]),
}


@pytest.mark.parametrize("name", FP4_TENSORS)
def test_contradicting_checkpoints_of_fp4(name, nvfp4, tmp_path):
    change, words = FP4_TENSORS[name]
    folder = changed_tensors(nvfp4[0], tmp_path / "model", change)
    result = program("run", folder, "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1, expect=3)
    for word in words:
        assert word in result.stderr, result.stderr
