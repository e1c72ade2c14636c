"""Weights of 8 and 4 bits: the reference and packages against PyTorch on the weights that the codes mean."""

import json
import shutil
import sys

import pytest
import torch
from compiled import ROOT, check, compile_package, distance, generate, phase_of, program, verdicts
from quantized_checkpoints import (
    CASES,
    CASES_OF_PYTHON,
    IDS,
    act_order,
    changed_tensors,
    fp8,
    modelopt_nvfp4,
    nvfp4,
    other_zeros,
    words,
    write,
)
from variants import first_of, late

sys.path.insert(0, str(ROOT / "python"))

from agentcompile import capture as command  # noqa: E402

NEW_TOKENS = 12


def check_reference(folder, model, front_end="native", is_checked=True):
    with torch.no_grad():
        truth = model(torch.tensor([IDS]), use_cache=False).logits[0, -1].tolist()
    # What Python captures is checked once at most: that check captures the model anew.
    unchecked = ("--no-check",) if front_end == "python" else ()
    # In float32, nothing but the reference's own arithmetic is between the two.
    first = () if is_checked else unchecked
    got = generate(folder, IDS, 1, "--reference", "--front-end", front_end, "--dtype", "float32", *first)
    assert distance(got["last_logits"], truth) < 1e-6
    got = generate(folder, IDS, 1, "--reference", "--front-end", front_end, *unchecked)
    assert distance(got["last_logits"], truth) < 1e-4


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_pytorch_on_what_codes_mean(name, tmp_path):
    check_reference(tmp_path / "model", write(tmp_path / "model", **CASES[name]))


@pytest.mark.parametrize("name", first_of(CASES_OF_PYTHON, ["fp8, a scale a row", "int4 with zero points"]))
def test_captured_by_python(name, tmp_path):
    # Zero points of any layer are read alike; what the other cases leave alone is of the second layer.
    layers = dict(num_hidden_layers=1) if name == "int4 with zero points" else {}
    check_reference(tmp_path / "model", write(tmp_path / "model", **CASES_OF_PYTHON[name], **layers), "python")


@pytest.mark.parametrize("front_end, name", [("native", "gptq"), ("native", "int4"), ("python", "int4")])
def test_codes_of_a_head_that_the_config_ties(front_end, name, tmp_path):
    """They are read: the embedding is another matrix. What test_captured_by_python checks is not checked again."""
    case = CASES[name]
    everything = dict(ignore=["nothing"]) if name == "int4" else dict(lm_head=True, modules_to_not_convert=["nothing"])
    quantization = case["quantization"] | everything
    model = write(tmp_path / "model", **{**case, "quantization": quantization, "num_hidden_layers": 1})
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    check_reference(tmp_path / "model", model, front_end, is_checked=False)


def test_a_package_of_what_python_captured(tmp_path):
    write(tmp_path / "model", **CASES_OF_PYTHON["fused, and not among the native architectures"])
    # Captured once: what a folder is captured to on the way is the same.
    file = tmp_path / "capture.json"
    command.capture(str(tmp_path / "model"), str(file))
    compile_package(file, tmp_path / "package")
    check(tmp_path / "package", file, IDS, NEW_TOKENS)


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
def mxfp4(tmp_path):
    return tmp_path / "mxfp4", write(tmp_path / "mxfp4", **CASES["mxfp4"])


@pytest.mark.parametrize(
    "checkpoint, format, dtypes",
    [
        ("nvfp4", "e2m1_g16_f8e4m3_global", ["u8", "f8e4m3", "f32"]),
        late(("mxfp4", "e2m1_g32_f8e8m0", ["u8", "f8e8m0"])),
        ("act_order", "u4_g64_f16_listed", ["u8", "f16", "i32"]),
        ("fp8", "e4m3_128x128", ["f8e4m3", "f32"]),
        ("int4", "u4_g32_f16_zeros", ["u8", "f16", "u8"]),
    ],
)
def test_a_package_gives_the_reference_s_tokens(checkpoint, format, dtypes, request, tmp_path):
    folder, _ = request.getfixturevalue(checkpoint)
    compile_package(folder, tmp_path / "package")
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


@pytest.mark.parametrize("name, dtype", [("awq", "float16"), ("nvfp4", "bfloat16"), late(("mxfp4", "bfloat16"))])
def test_layers_in_one_launch_read_codes(name, dtype, tmp_path):
    """All matrices have codes, and their rows whole columns of a warp."""
    sizes = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64)
    write(tmp_path / "model", **CASES[name], **sizes)
    families = ("--families", "layers,gemv,mma_gemv,attention,norm,embedding", "--unmeasured")
    compile_package(tmp_path / "model", tmp_path / "package", *families, "--dtype", dtype)
    decode = phase_of(plan_of(tmp_path), "decode")
    assert ["2 layers"] in [part["ops"] for part in decode["selections"] if part["family"] == "layers"]
    check(tmp_path / "package", tmp_path / "model", IDS, NEW_TOKENS, "--dtype", dtype)


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
