"""Checkpoints with weights of 8 and 4 bits, in the layouts that publishers store them in, and the models that they mean."""

import fnmatch
import json
import re
import shutil

import pytest
import torch
import transformers
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
from safetensors.torch import load_file, save_file

BLOCK, LARGEST = 128, 448.0
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


# ---- how codes and scales are made, and how each publisher stores them


def e4m3(weight, block_rows, block_columns, scale_type):
    """Codes, and scales that map the largest element of each block to the largest code, but for a few that are halved:
    then some elements are cut off, which a checkpoint may hold as well."""
    rows, columns = -(-weight.shape[0] // block_rows), -(-weight.shape[1] // block_columns)
    scale = torch.zeros(rows, columns)
    for row in range(rows):
        for column in range(columns):
            block = weight[row * block_rows :, column * block_columns :][:block_rows, :block_columns]
            scale[row, column] = block.abs().max().float() / LARGEST * (0.5 if (row + column) % 3 == 2 else 1)
    scale = scale.to(scale_type)
    wide = scale.float().repeat_interleave(block_rows, 0)[: weight.shape[0]]
    wide = wide.repeat_interleave(block_columns, 1)[:, : weight.shape[1]]
    codes = (weight.float() / wide).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return codes, scale, codes.double() * wide.double()


def whole(weight, bits, group, symmetric, scale_type):
    """Whole codes from 0 on, scales and zero points of groups of a row, and what they mean."""
    rows, most = weight.shape[0], 2**bits - 1
    parts = weight.double().reshape(rows, -1, group)
    if symmetric:
        scale = parts.abs().amax(2) / (most / 2)
        zero = torch.full_like(scale, (most + 1) // 2)
    else:
        low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
        scale = (high - low) / most
        zero = (-low / scale).round().clamp(1, most)
    scale = scale.to(scale_type)
    wide = scale.double().unsqueeze(2)
    codes = ((parts / wide).round() + zero.unsqueeze(2)).clamp(0, most)
    meant = ((codes - zero.unsqueeze(2)) * wide).reshape(weight.shape)
    return codes.reshape(weight.shape).long(), scale, zero.long(), meant


def words(codes, bits, axis, order=None):
    """Codes in words of 32 bits along an axis, the first in the lowest bits; `order`: of which neighbour each is."""
    count = 32 // bits
    codes = codes.movedim(axis, -1)
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % count))
    codes = codes.reshape(*codes.shape[:-1], -1, count)[..., order or list(range(count))]
    word = (codes << torch.arange(0, 32, bits)).sum(-1)
    return (word - (word >> 31 << 32)).to(torch.int32).movedim(-1, axis)


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def fine_grained(module, weight, scale_type=torch.float32):
    codes, scale, meant = e4m3(weight, BLOCK, BLOCK, scale_type)
    return {f"{module}.weight": codes, f"{module}.weight_scale_inv": scale}, meant


def compressed_e4m3(module, weight, blocks="row", scale_type=torch.bfloat16):
    rows, columns = {"row": (1, weight.shape[1]), "all": weight.shape, "block": (BLOCK, BLOCK)}[blocks]
    codes, scale, meant = e4m3(weight, rows, columns, scale_type)
    return {f"{module}.weight": codes, f"{module}.weight_scale": scale.reshape(-1) if blocks == "all" else scale}, meant


def compressed_int8(module, weight, symmetric=True):
    codes, scale, zero, meant = whole(weight, 8, weight.shape[1], symmetric, torch.bfloat16)
    tensors = {f"{module}.weight": (codes - 128).to(torch.int8), f"{module}.weight_scale": scale}
    if not symmetric:
        tensors[f"{module}.weight_zero_point"] = (zero - 128).to(torch.int8)
    return tensors, meant


def ordered(weight, *arguments):
    """What `whole` gives, where groups are of columns of a random order; and each column's group."""
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(weight.numel()))
    codes, scale, zero, meant = whole(weight[:, order], *arguments)
    place = order.argsort()
    return codes[:, place], scale, zero, meant[:, place], (place // arguments[1]).to(torch.int32)


def packed(module, weight, bits=4, group=64, symmetric=True, scale_type=torch.bfloat16, order=False):
    arguments = weight, bits, group or weight.shape[1], symmetric, scale_type
    codes, scale, zero, meant = whole(*arguments)
    if order:
        codes, scale, zero, meant, listed = ordered(*arguments)
    tensors = {
        f"{module}.weight_packed": words(codes, bits, 1),
        f"{module}.weight_scale": scale,
        f"{module}.weight_shape": torch.tensor(weight.shape),
    }
    if not symmetric:
        tensors[f"{module}.weight_zero_point"] = words(zero, bits, 0)
    if order:
        tensors[f"{module}.weight_g_idx"] = listed
    return tensors, meant


def awq(module, weight, group=32):
    codes, scale, zero, meant = whole(weight, 4, group, False, torch.float16)
    return {
        f"{module}.qweight": words(codes.T, 4, 1, AWQ_ORDER),
        f"{module}.qzeros": words(zero.T, 4, 1, AWQ_ORDER),
        f"{module}.scales": scale.T,
    }, meant


def gptq(module, weight, bits=4, group=64, symmetric=True, stored_minus=1, order=True):
    arguments = weight, bits, group or weight.shape[1], symmetric, torch.float16
    codes, scale, zero, meant = whole(*arguments)
    listed = (torch.arange(weight.shape[1]) // (group or weight.shape[1])).to(torch.int32)
    if order == "another":
        codes, scale, zero, meant, listed = ordered(*arguments)
    tensors = {
        f"{module}.qweight": words(codes.T, bits, 0),
        f"{module}.qzeros": words(zero.T - stored_minus, bits, 1),
        f"{module}.scales": scale.T,
    }
    if order:
        tensors[f"{module}.g_idx"] = listed
    return tensors, meant


def compressed_fp4(module, weight, preset, scale_type=None):
    """By compressed-tensors' own code, which must mean the same, rounded to bfloat16."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    group = scheme.weights.group_size
    weight = weight.float()
    state, compressor, whole = dict(weight=weight), MXFP4PackedCompressor, 1.0
    if scheme.weights.strategy == "tensor_group":
        compressor = NVFP4PackedCompressor
        state["weight_global_scale"] = generate_gparam(weight.min().reshape(1), weight.max().reshape(1))
        whole = 1 / state["weight_global_scale"].double()
    groups = weight.reshape(weight.shape[0], -1, group)
    state["weight_scale"], _ = calculate_qparams(
        groups.amin(2), groups.amax(2), scheme.weights, global_scale=state.get("weight_global_scale")
    )
    state = compressor.compress(state, scheme)
    codes = unpack_fp4_from_uint8(state["weight_packed"], *weight.shape, dtype=torch.float64)
    stored = state["weight_scale"]
    scale = stored.double() if stored.dtype == torch.float8_e4m3fn else 2.0 ** (stored.double() - 127)
    meant = codes * (scale * whole).repeat_interleave(group, 1)
    torch.testing.assert_close(compressor.decompress(state, scheme)["weight"].double(), meant, rtol=2**-7, atol=0)
    if scale_type:
        state["weight_scale"] = stored.view(scale_type)
    return {f"{module}.{name}": tensor for name, tensor in state.items()}, meant


def fp4_config(preset, **weights):
    scheme = preset_name_to_scheme(preset, ["Linear"])
    form = "nvfp4-pack-quantized" if preset.startswith("NV") else "mxfp4-pack-quantized"
    config = compressed_config(form, **(dict(num_bits=4) | json.loads(scheme.weights.model_dump_json()) | weights))
    config["config_groups"]["group_0"]["input_activations"] = (
        json.loads(scheme.input_activations.model_dump_json()) if scheme.input_activations else None
    )
    return config


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def modelopt_nvfp4(module, weight):
    weight = weight.float()
    whole = weight.abs().max() / (6.0 * 448.0)
    groups = weight.reshape(weight.shape[0], -1, 16)
    scale = (groups.abs().amax(2) / (6.0 * whole)).clamp(2**-9, 448).to(torch.float8_e4m3fn)
    wide = (scale.float() * whole).unsqueeze(2)
    # The smaller code where two are as near, unless the larger one is even.
    bounds = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    size = (groups / wide).abs()
    codes = torch.searchsorted(bounds, size) + (size.unsqueeze(-1) == bounds[[1, 3, 5]]).any(-1)
    codes = (codes + 8 * (groups < 0)).reshape(weight.shape)
    meant = E2M1[codes] * (scale.double() * whole.double()).repeat_interleave(16, 1)
    packed = (codes[:, 1::2] << 4 | codes[:, ::2]).to(torch.uint8)
    return {
        f"{module}.weight": packed,
        f"{module}.weight_scale": scale,
        f"{module}.weight_scale_2": whole,
        f"{module}.input_scale": torch.tensor(0.01),
    }, meant


def modelopt_fp8(module, weight):
    codes, scale, meant = e4m3(weight, *weight.shape, torch.float32)
    return {
        f"{module}.weight": codes,
        f"{module}.weight_scale": scale.reshape(()),
        f"{module}.input_scale": torch.tensor(0.01),
        f"{module}.k_scale": torch.tensor(1.0),
    }, meant


def modelopt_config(algorithm, **changed):
    """As config.json has it; the file beside it is `modelopt_file`."""
    weights = dict(dynamic=False, num_bits=8, type="float")
    if "NVFP4" in algorithm:
        weights |= dict(num_bits=4, group_size=16)
    groups = dict(group_0=dict(input_activations=weights, weights=weights, targets=["Linear"]))
    said = dict(quant_method="modelopt", quant_algo=algorithm, config_groups=groups, ignore=["lm_head"])
    return said | dict(producer=dict(name="modelopt", version="0.47.0")) | changed


def modelopt_file(algorithm, **changed):
    said = dict(quant_algo=algorithm, kv_cache_quant_algo="FP8", group_size=16, exclude_modules=["lm_head"])
    return dict(producer=dict(name="modelopt", version="0.29.0"), quantization=said | changed)


def compressed_config(form, num_bits, type="int", strategy="channel", ignore=("lm_head",), **weights):
    weights = dict(num_bits=num_bits, type=type, strategy=strategy, symmetric=True, dynamic=False) | weights
    group = dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None)
    return dict(
        quant_method="compressed-tensors",
        format=form,
        quantization_status="compressed",
        config_groups=dict(group_0=group),
        ignore=list(ignore),
        kv_cache_scheme=None,
    )


def awq_config(**changed):
    said = dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm")
    return said | dict(modules_to_not_convert=None) | changed


def gptq_config(**changed):
    said = dict(quant_method="gptq", bits=4, group_size=64, desc_act=False, sym=True, lm_head=False)
    return said | dict(checkpoint_format="gptq", damp_percent=0.01, true_sequential=True) | changed


def ignored(module, quantization):
    """By what the configs of these tests say: ends of paths, and one pattern."""
    quantization = quantization.get("quantization", quantization)
    lists = [quantization.get(field) for field in ("ignore", "modules_to_not_convert", "exclude_modules")]
    names = next(filter(None, lists), ["lm_head"])
    if any(fnmatch.fnmatchcase(module, name) for name in names if "*" in name and not name.startswith("re:")):
        return True
    plain = [re.compile(n[3:]).match(module) if n.startswith("re:") else module.startswith(n) for n in names]
    return any(plain) or any(module.endswith(name) for name in names)


def write(folder, quantise=fine_grained, quantization=None, family="Qwen3", options=None, **extra):
    """A quantised checkpoint, and the model in double precision that it means."""
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **extra})
    torch.manual_seed(7)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    quantization = quantization or QUANTIZATION
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
            if not linear or ignored(module, quantization):
                tensors[path] = weight.to(torch.bfloat16)
                continue
            stored, meant = quantise(module, weight, **(options or {}))
            tensors |= stored
            weight.copy_(meant)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated = json.loads(config.to_json_string())
    stated |= dict(torch_dtype="bfloat16", architectures=[f"{family}ForCausalLM"])
    if "quantization" in quantization:
        (folder / "hf_quant_config.json").write_text(json.dumps(quantization))
    else:
        stated["quantization_config"] = quantization
    stated.pop("dtype", None)
    (folder / "config.json").write_text(json.dumps(stated))
    return model


CASES = {
    "qwen3": {},
    "scales of bfloat16": dict(options=dict(scale_type=torch.bfloat16)),
    "llama": dict(family="Llama"),
    "a head in fp8": dict(quantization={**QUANTIZATION, "modules_to_not_convert": ["model.layers.1.mlp"]}),
    "fp8, a scale a row": dict(
        quantise=compressed_e4m3,
        quantization=compressed_config(
            "float-quantized", 8, "float", ignore=["re:.*lm_head", "re:.*1.mlp.*down_proj$"]
        ),
    ),
    "fp8, a scale a matrix": dict(
        quantise=compressed_e4m3,
        options=dict(blocks="all", scale_type=torch.float32),
        quantization=compressed_config("naive-quantized", 8, "float", "tensor"),
    ),
    "fp8 in blocks, of compressed-tensors": dict(
        quantise=compressed_e4m3,
        options=dict(blocks="block"),
        quantization=compressed_config("float-quantized", 8, "float", "block", block_structure=[128, 128]),
    ),
    "int8": dict(quantise=compressed_int8, quantization=compressed_config("int-quantized", 8)),
    "int8 with zero points": dict(
        quantise=compressed_int8,
        options=dict(symmetric=False),
        quantization=compressed_config("int-quantized", 8, symmetric=False),
    ),
    "int8 in words": dict(
        quantise=packed,
        options=dict(bits=8, group=0),
        quantization=compressed_config("pack-quantized", 8, ignore=["lm_head", "model.layers.0.mlp.up_proj"]),
    ),
    "int4": dict(
        quantise=packed, quantization=compressed_config("pack-quantized", 4, strategy="group", group_size=64)
    ),
    "int4 with zero points": dict(
        quantise=packed,
        options=dict(group=32, symmetric=False, scale_type=torch.float16),
        quantization=compressed_config(
            "pack-quantized", 4, strategy="group", group_size=32, symmetric=False, actorder="static"
        ),
    ),
    "awq": dict(quantise=awq, quantization=awq_config()),
    "awq, some left alone": dict(quantise=awq, quantization=awq_config(modules_to_not_convert=["o_proj", "lm_head"])),
    "gptq": dict(quantise=gptq, quantization=gptq_config()),
    # Checkpoints say version 1 and are version 2. Where codes are symmetric, that is seen.
    "gptq that says another version": dict(
        quantise=gptq, options=dict(stored_minus=0, order=False), quantization=gptq_config()
    ),
    "gptq with zero points": dict(
        quantise=gptq, options=dict(symmetric=False), quantization=gptq_config(sym=False)
    ),
    "gptq version 2": dict(
        quantise=gptq,
        options=dict(symmetric=False, stored_minus=0, group=32),
        quantization=gptq_config(sym=False, checkpoint_format="gptq_v2", group_size=32),
    ),
    "gptq of 8 bits": dict(
        quantise=gptq, options=dict(bits=8, group=0), quantization=gptq_config(bits=8, group_size=-1)
    ),
    "gptq in another order": dict(
        quantise=gptq, options=dict(order="another"), quantization=gptq_config(desc_act=True)
    ),
    "gptq in another order with zero points": dict(
        quantise=gptq,
        options=dict(order="another", symmetric=False, bits=8, stored_minus=0),
        quantization=gptq_config(desc_act=True, sym=False, bits=8, checkpoint_format="gptq_v2"),
    ),
    "gptq that says another order": dict(quantise=gptq, quantization=gptq_config(desc_act=True)),
    "int4 in another order": dict(
        quantise=packed,
        options=dict(group=32, symmetric=False, order=True),
        quantization=compressed_config(
            "pack-quantized", 4, strategy="group", group_size=32, symmetric=False, actorder="group"
        ),
    ),
    "nvfp4": dict(quantise=compressed_fp4, options=dict(preset="NVFP4A16"), quantization=fp4_config("NVFP4A16")),
    "nvfp4 with activations": dict(
        quantise=compressed_fp4, options=dict(preset="NVFP4"), quantization=fp4_config("NVFP4")
    ),
    "mxfp4": dict(quantise=compressed_fp4, options=dict(preset="MXFP4A16"), quantization=fp4_config("MXFP4")),
    "mxfp4 with scales that say what they are": dict(
        quantise=compressed_fp4,
        options=dict(preset="MXFP4A16", scale_type=torch.float8_e8m0fnu),
        quantization=fp4_config("MXFP4A16"),
    ),
    "modelopt's nvfp4": dict(quantise=modelopt_nvfp4, quantization=modelopt_config("NVFP4")),
    "modelopt's nvfp4, some left alone": dict(
        quantise=modelopt_nvfp4,
        quantization=modelopt_file("NVFP4", exclude_modules=["lm_head", "model.layers.1.self_attn*"]),
    ),
    "modelopt's fp8": dict(quantise=modelopt_fp8, quantization=modelopt_config("FP8")),
    "modelopt's fp8, in a file of its own": dict(quantise=modelopt_fp8, quantization=modelopt_file("FP8")),
}


# What differs where Python captures: modules that no native architecture has, and what each publisher's names say.
CASES_OF_PYTHON = {
    "fused, and not among the native architectures": dict(family="Phi3", pad_token_id=0),
    "a tied head": dict(tie_word_embeddings=True, quantise=awq, quantization=awq_config()),
    **{
        name: CASES[name]
        for name in (
            "fp8, a scale a row",
            "int4 with zero points",
            "gptq in another order with zero points",
            "modelopt's nvfp4, some left alone",
        )
    },
}


def changed_tensors(folder, to, change):
    shutil.copytree(folder, to)
    tensors = load_file(to / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, to / "model.safetensors")
    return to


def other_zeros(tensors):
    tensors["model.layers.0.mlp.up_proj.qzeros"][1, 2] ^= 0x30


@pytest.fixture(scope="module")
def fp8(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fp8") / "qwen3"
    return folder, write(folder)


@pytest.fixture
def act_order(tmp_path):
    return tmp_path / "act_order", write(tmp_path / "act_order", **CASES["gptq in another order"])


@pytest.fixture
def nvfp4(tmp_path):
    return tmp_path / "nvfp4", write(tmp_path / "nvfp4", **CASES["nvfp4"])
