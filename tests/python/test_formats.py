"""Weights of 8 and 4 bits in the layouts that publishers store them in: the reference and packages against PyTorch on
the weights that the codes mean, and checkpoints that contradict themselves."""

import fnmatch
import json
import re
import shutil
import sys

import pytest
import torch
import transformers
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
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


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_pytorch_on_what_codes_mean(name, tmp_path):
    check_reference(tmp_path / "model", write(tmp_path / "model", **CASES[name]))


def test_words_are_packed_as_compressed_tensors_does():
    """Words of compressed_tensors.compressors.pack_quantized.helpers.pack_to_int32, of version 0.20."""
    codes = (torch.arange(60).reshape(3, 20) * 7 + 3) % 16
    said = [[1299153315, -974714581, 33187], [153832815, -2119973401, 19823], [-974714581, 1299153315, 2347]]
    assert words(codes, 4, 1).tolist() == said
    assert words(codes.T, 4, 0).T.tolist() == said
    said = [[1917659139, 115457175, 20523], [-457205131, 2018717193, 49821]]
    assert words((torch.arange(20).reshape(2, 10) * 37 + 3) % 256, 8, 1).tolist() == said


def test_floats_of_4_bits_are_packed_as_modelopt_does():
    """What NVFP4QTensor.quantize of modelopt 0.47 makes, and dequantize makes of that."""
    i = torch.arange(64, dtype=torch.float32).reshape(2, 32)
    made, meant = modelopt_nvfp4("m", (i * 7 % 23 - 11) / 8 * (1 + i // 16))
    codes = [
        [207, 115, 29, 230, 89, 191, 116, 45, 230, 96, 174, 245, 60, 215, 97, 158],
        [245, 75, 215, 114, 14, 246, 90, 207, 115, 29, 230, 89, 191, 116, 45, 230],
    ]
    assert made["m.weight"].tolist() == codes
    assert made["m.weight_scale"].view(torch.uint8).tolist() == [[110, 118], [122, 126]]
    assert made["m.weight_scale_2"].item() == 0.0020461310632526875
    said = [-1.3750001192092896, -0.4583333730697632, 0.3437500298023224, 1.3750001192092896]
    assert meant[0, :4].tolist() == pytest.approx(said, rel=1e-6)


def test_what_modelopt_says_of_activations_is_left_out_with_a_notice(tmp_path):
    write(tmp_path / "model", **CASES["modelopt's nvfp4"])
    result = program("run", tmp_path / "model", "--reference", "--front-end", "native", "--ids", "1,2", "-n", 1)
    assert "activations" in result.stderr and "not used" in result.stderr


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


@pytest.fixture
def int4(tmp_path):
    return tmp_path / "awq", write(tmp_path / "awq", **CASES["awq"])


def test_columns_that_are_in_order_are_not_looked_up(tmp_path):
    for name, listed in ("gptq in another order", True), ("gptq that says another order", False):
        write(tmp_path / name, **CASES[name])
        graph = program("inspect", tmp_path / name, "--stage", "graph").stdout
        assert "u4_g64_f16" in graph and ("u4_g64_f16_listed" in graph) == listed


@pytest.fixture
def act_order(tmp_path):
    return tmp_path / "act_order", write(tmp_path / "act_order", **CASES["gptq in another order"])


@pytest.fixture
def nvfp4(tmp_path):
    return tmp_path / "nvfp4", write(tmp_path / "nvfp4", **CASES["nvfp4"])


@pytest.fixture
def mxfp4(tmp_path):
    return tmp_path / "mxfp4", write(tmp_path / "mxfp4", **CASES["mxfp4"])


@pytest.mark.parametrize(
    "checkpoint, format, dtypes",
    [
        ("nvfp4", "e2m1_g16_f8e4m3_global", ["u8", "f8e4m3", "f32"]),
        ("mxfp4", "e2m1_g32_f8e8m0", ["u8", "f8e8m0"]),
        ("act_order", "u4_g64_f16_listed", ["u8", "f16", "i32"]),
        ("fp8", "e4m3_128x128", ["f8e4m3", "f32"]),
        ("int4", "u4_g32_f16_zeros", ["u8", "f16", "u8"]),
    ],
)
def test_a_package_gives_the_reference_s_tokens(checkpoint, format, dtypes, request, tmp_path):
    folder, _ = request.getfixturevalue(checkpoint)
    compile_package(folder, tmp_path / "package", tries=2)
    check(tmp_path / "package", folder, IDS, NEW_TOKENS)
    program_json = json.loads((tmp_path / "package" / "program.json").read_text())
    parts = [b for b in program_json["buffers"] if b.get("format") == format]
    assert len(parts) == 2 * 7 * len(dtypes)
    assert {(b["part"], b["dtype"]) for b in parts} == set(enumerate(dtypes))
    families = {
        (part["family"], "linear" in part["ops"]) for part in phase_of(plan_of(tmp_path), "decode")["selections"]
    }
    assert ("gemv", True) in families, verdicts(tmp_path / "package")
    if checkpoint == "fp8":
        program("verify", tmp_path / "package", timeout=900)
        return
    if checkpoint != "int4":
        return
    # The fingerprint is of the checkpoint's own tensors.
    changed = changed_tensors(folder, tmp_path / "changed", other_zeros)
    shutil.copy(changed / "model.safetensors", folder)
    result = program("run", tmp_path / "package", "--ids", "1,2", "-n", 1, expect=3)
    assert "up_proj.qzeros" in result.stderr and "other values" in result.stderr, result.stderr


def plan_of(folder):
    return json.loads((folder / "package" / "plan.json").read_text())


def test_every_op_has_a_fallback(fp8, tmp_path):
    folder, _ = fp8
    compile_package(folder, tmp_path / "package", "--families", "norm")
    check(tmp_path / "package", folder, IDS, NEW_TOKENS)


def test_families_that_read_no_such_weights_say_so(fp8):
    folder, _ = fp8
    made = json.loads(program("inspect", folder, "--stage", "candidates", "--target", "sm_90", "--json").stdout)
    why = "it reads no weights in e4m3_128x128"
    refusing = [{refusal["family"] for refusal in space["refusals"] if refusal["why"] == why} for space in made["spaces"]]
    assert {"mma_gemm", "cublaslt"} in refusing
    assert not any(families & {"gemv", "gemm", "tma_gemm"} for families in refusing)


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


def other_zeros(tensors):
    tensors["model.layers.0.mlp.up_proj.qzeros"][1, 2] ^= 0x30


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
