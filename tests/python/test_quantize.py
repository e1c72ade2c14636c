"""`quantize`: what it writes against compressed-tensors' own reading of it, the errors that it prints against PyTorch, its
scales against those of the largest weight, and what it refuses. `--weights` of the commands that compile."""

import json
import resource
import shutil
import subprocess

import pytest
import torch
import transformers
from compiled import PROGRAM, ROOT, cache_with_kernels, distance, generate, program
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from quantized_checkpoints import IDS, SIZES
from safetensors.torch import load_file, save_file
from variants import varied

DEMO = ROOT / "examples/demo_model"
SMALL_DEMO = ROOT / "examples/demo_draft"
FORMATS = ["fp8", "int8", "int4:64", "int4:32"]
# Largest code, and half of the codes' range.
RANGES = {"fp8": (448, 448), "int8": (127, 127.5), "int4": (7, 7.5)}


def quantize(source, to, weights, *options):
    return json.loads(program("quantize", source, "-o", to, "--weights", weights, "--json", "--quiet", *options).stdout)


def tensors_of(folder):
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def meant(folder, module, tensors):
    """The weight in double precision, by compressed-tensors' codes: what they unpack times their scale."""
    said = QuantizationConfig.model_validate(json.loads((folder / "config.json").read_text())["quantization_config"])
    scheme = said.config_groups["group_0"]
    parts = {name: tensors[f"{module}.{name}"] for name in ("weight", "weight_packed", "weight_scale", "weight_shape") if f"{module}.{name}" in tensors}
    # In float64, so that products of codes and scales are exact.
    parts["weight_scale"] = parts["weight_scale"].double()
    return BaseCompressor.get_value_from_registry(said.format).decompress(parts, scheme)["weight"].double()


def plain_error(weight, weights, scale_type):
    """The squared error of each group, with the scale that maps its largest weight to the largest code."""
    kind, _, group = weights.partition(":")
    most, span = RANGES[kind]
    parts = weight.double().reshape(weight.shape[0], -1, int(group) if group else weight.shape[1])
    scale = (parts.abs().amax(2, keepdim=True) / span).to(scale_type).double()
    codes = (parts / scale).nan_to_num()  # of zeros
    if kind == "fp8":
        codes = codes.clamp(-most, most).float().to(torch.float8_e4m3fn).double()
    else:
        codes = codes.round().clamp(-most - 1, most)
    return (codes * scale - parts).square().sum(2), parts


@pytest.fixture(scope="module")
def untied(tmp_path_factory):
    """A model with a head of its own, and rows of zeros and of large and small weights."""
    folder = tmp_path_factory.mktemp("untied") / "qwen3"
    torch.manual_seed(3)
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES)).to(torch.bfloat16)
    with torch.no_grad():
        rows = model.model.layers[0].mlp.up_proj.weight
        rows[0], rows[1], rows[2] = 0, rows[1] * 1e-12, rows[2] * 30
        rows[3, 5] = 30 * rows[3].abs().max()
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("weights", FORMATS)
def test_what_is_written_is_what_compressed_tensors_reads(untied, tmp_path, weights):
    made = quantize(untied, tmp_path / "q", weights)
    before, after = tensors_of(untied), tensors_of(tmp_path / "q")
    assert len(made["layers"]) == 14
    errors, squares = 0, 0
    for layer in made["layers"]:
        weight = before.pop(f"{layer['module']}.weight").double()
        elements = meant(tmp_path / "q", layer["module"], after)
        plain, parts = plain_error(weight, weights, torch.bfloat16)
        error = (elements.reshape(parts.shape) - parts).square().sum(2)
        assert (error <= plain * (1 + 1e-9)).all()
        assert error.sum() < plain.sum()
        assert layer["shape"] == list(weight.shape)
        assert layer["relative_error"] == pytest.approx((error.sum() / weight.square().sum()).sqrt().item(), rel=1e-9)
        errors, squares = errors + error.sum(), squares + weight.square().sum()
    assert made["relative_error"] == pytest.approx((errors / squares).sqrt().item(), rel=1e-9)
    assert "lm_head.weight" in before
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor)
    assert made["bytes"] == sum(tensor.nbytes for tensor in after.values())


@pytest.mark.parametrize("weights", FORMATS)
def test_transformers_and_our_front_end_load_the_same_model(untied, tmp_path, weights):
    folder = tmp_path / "q"
    quantize(untied, folder, weights)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    after = tensors_of(folder)
    # The model in double precision, of the elements that the codes mean.
    model = transformers.AutoModelForCausalLM.from_pretrained(untied, dtype=torch.float64)
    with torch.no_grad():
        for path, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and path != "lm_head":
                module.weight.copy_(meant(folder, path, after))
        truth = model(torch.tensor([IDS]), use_cache=False).logits[0, -1].tolist()
        theirs = loaded(torch.tensor([IDS]), use_cache=False).logits[0, -1].tolist()
    assert distance(theirs, truth) < 4 / 128  # in bfloat16
    ours = generate(folder, IDS, 1, "--reference", "--front-end", "native", "--dtype", "float32")
    assert distance(ours["last_logits"], truth) < 1e-6


def test_the_head_too(untied, tmp_path):
    made = quantize(untied, tmp_path / "q", "int8", "--head-weights", "int8")
    assert "lm_head" in [layer["module"] for layer in made["layers"]]
    assert json.loads((tmp_path / "q/config.json").read_text())["quantization_config"]["ignore"] == []
    generate(tmp_path / "q", IDS, 1, "--reference", "--front-end", "native")


def test_shards_hold_what_one_file_does(untied, tmp_path):
    quantize(untied, tmp_path / "one", "int4:64")
    quantize(untied, tmp_path / "some", "int4:64", "--shard-bytes", 100_000)
    one, some = tensors_of(tmp_path / "one"), tensors_of(tmp_path / "some")
    assert len(list((tmp_path / "some").glob("model-*.safetensors"))) > 3
    assert one.keys() == some.keys() and all(torch.equal(one[name], some[name]) for name in one)
    ours = [generate(tmp_path / name, IDS, 2, "--reference", "--front-end", "native") for name in ("one", "some")]
    assert ours[0]["last_logits"] == ours[1]["last_logits"]
    # What was made in shards can be read, too.
    again = quantize(shards_of(untied, tmp_path / "source"), tmp_path / "again", "int4:64")
    assert again["bytes"] == sum(tensor.nbytes for tensor in one.values())


def shards_of(folder, to):
    transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(to, max_shard_size="300KB")
    return to


def test_the_demo_model_speaks(cache, tmp_path):
    quantize(DEMO, tmp_path / "q", "int8")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (tmp_path / "q" / file).read_bytes() == (DEMO / file).read_bytes()
    said = program("generate", tmp_path / "q", "--chat", "-p", "What is a river?", "--temp", 0, XDG_CACHE_HOME=str(cache))
    assert said.stdout.startswith("A river is a large natural stream of water")


REFUSED = {
    "a text for nothing": (3, ["--weights", "fp8", "--calibrate", "/nowhere"], "/nowhere"),
    "a group before a text": (3, ["--weights", "int4", "--calibrate", "/nowhere"], "which groups of 128 do not divide"),
    "no file of text": (3, ["--weights", "fp8", "--calibrate", "/dev/null"], "not a regular file"),
    "another word": (2, ["--weights", "int3"], "write fp8, int8, int4, or int4:GROUP"),
    "a group of nothing": (2, ["--weights", "int4:0"], "multiple of 8"),
    "a group that does not divide": (3, ["--weights", "int4"], "rows of 448 weights, which groups of 128 do not divide: --weights int4:64 does"),
    "a tied head": (2, ["--weights", "fp8", "--head-weights", "fp8"], "tie_word_embeddings"),
    "two formats": (2, ["--weights", "fp8", "--head-weights", "int8"], "one format"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    code, options, says = REFUSED[case]
    refused = program("quantize", DEMO, "-o", tmp_path / "q", *options, expect=code)
    assert says in refused.stderr
    assert not list(tmp_path.iterdir())


def test_calibration_needs_a_tokenizer(tmp_path):
    shutil.copytree(DEMO, tmp_path / "model", ignore=shutil.ignore_patterns("tokenizer*"))
    arguments = ("-o", tmp_path / "q", "--weights", "fp8", "--calibrate", DEMO / "config.json")
    refused = program("quantize", tmp_path / "model", *arguments, expect=3)
    assert "--calibrate needs a tokenizer" in refused.stderr and "--tokenizer" not in refused.stderr


def test_what_is_quantized_already(tmp_path):
    quantize(DEMO, tmp_path / "q", "int8")
    again = program("quantize", tmp_path / "q", "-o", tmp_path / "r", "--weights", "fp8", expect=3)
    assert "is quantized already" in again.stderr and "compressed-tensors" in again.stderr
    exists = program("quantize", DEMO, "-o", tmp_path / "q", "--weights", "fp8", expect=2)
    assert "exists: choose another name" in exists.stderr


@pytest.mark.parametrize("name", ["model.gguf", "model.py"])
def test_what_is_no_folder(tmp_path, name):
    (tmp_path / name).write_bytes(b"GGUF")
    refused = program("quantize", tmp_path / name, "-o", tmp_path / "q", "--weights", "fp8", expect=2)
    assert "a HuggingFace folder or id is wanted" in refused.stderr


def test_a_file_that_is_cut_off(tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(DEMO, folder)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    refused = program("quantize", folder, "-o", tmp_path / "q", "--weights", "int8", expect=3)
    assert "is the file truncated?" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["damaged"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(tmp_path, value):
    folder = tmp_path / "damaged"
    shutil.copytree(DEMO, folder)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.2.mlp.down_proj.weight"
    tensors[name][5, 7] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    refused = program("quantize", folder, "-o", tmp_path / "q", "--weights", "int8", expect=3)
    assert name in refused.stderr and "NaN or an infinity" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["damaged"]


def test_a_full_disk_leaves_nothing(tmp_path):
    command = [PROGRAM, "quantize", DEMO, "-o", tmp_path / "q", "--weights", "int8"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    full = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    assert full.returncode == 1 and "cannot write" in full.stderr
    assert not list(tmp_path.iterdir())
    quantize(DEMO, tmp_path / "q", "int8")


# --- On the way: --weights of the commands that compile ---

SMALL = ("--device", "host", "--max-context", 64)


@pytest.fixture
def cache(tmp_path):
    return cache_with_kernels(tmp_path / "cache")


def kept(cache):
    return sorted(path for path in (cache / "agentcompile/weights").iterdir() if path.suffix != ".lock")


def test_weights_are_quantized_once(cache, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(SMALL_DEMO, model)
    run = lambda command, *options: program(
        command, model, *SMALL, "--weights", "int4:64", *options, XDG_CACHE_HOME=str(cache)
    )
    first = run("generate", "--chat", "-p", "What is a river?", "--temp", 0, "-n", 8)
    [folder] = kept(cache)
    assert "quantizing the weights" in first.stderr and str(folder) in first.stderr
    second = run("package")
    assert "quantizing" not in second.stderr and "is compiled" in second.stderr
    # What `quantize` writes.
    quantize(model, tmp_path / "q", "int4:64")
    assert {file.name for file in folder.iterdir()} == {file.name for file in (tmp_path / "q").iterdir()}
    for file in (tmp_path / "q").iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    # Another source has other weights.
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    assert "quantizing" in run("package").stderr
    assert len(kept(cache)) == 2


def test_damaged_weights_are_made_anew(cache, tmp_path):
    package = lambda: program(
        "package", SMALL_DEMO, *SMALL, "--weights", "int8", XDG_CACHE_HOME=str(cache)
    )
    package()
    [folder] = kept(cache)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    again = package()
    assert "is the file truncated?" in again.stderr and "its weights are quantized again" in again.stderr
    assert (folder / "model.safetensors").read_bytes() == whole
    assert "quantizing" not in package().stderr


def test_weights_on_the_way_are_refused(cache, tmp_path):
    compiled = tmp_path / "p"
    program(
        *("compile", SMALL_DEMO, "-o", compiled, "--weights", "fp8", "--tries", 0, "--unmeasured"),
        *("--max-context", 64, "--chunk", 16, "--short-prompt", 0),
        XDG_CACHE_HOME=str(cache),
    )
    [folder] = kept(cache)
    assert json.loads((compiled / "program.json").read_text())["stores"] == {"checkpoint": str(folder)}
    cases = [
        ((compiled, "--weights", "int8"), 2, "is a package, which is compiled already"),
        ((DEMO, "--weights", "int3"), 2, "write fp8, int8, int4, or int4:GROUP"),
        ((DEMO, "--weights", "int4"), 3, "--weights int4:64 does"),
        ((DEMO, "--head-weights", "fp8"), 2, "--weights"),
        ((DEMO, "--weights", "fp8", "--head-weights", "fp8"), 2, "tie_word_embeddings"),
        ((DEMO, "--weights", "fp8", "--front-end", "python"), 2, "--front-end"),
    ]
    for arguments, code, says in cases:
        refused = program("generate", *arguments, "-p", "A", expect=code, XDG_CACHE_HOME=str(cache))
        assert says in refused.stderr, arguments
    source = ROOT / "examples/tiny_decoder.py"
    refused = program("compile", source, "-o", tmp_path / "q", "--weights", "fp8", expect=2, XDG_CACHE_HOME=str(cache))
    assert "a HuggingFace folder or id is wanted" in refused.stderr
    assert len(kept(cache)) == 1  # nothing is left of those that failed


def mean_squares(folder, pieces):
    """Of the inputs of each linear, in double precision, over all tokens."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    sums, count = {}, sum(map(len, pieces))
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            add = lambda module, inputs, path=path: sums.update({path: sums.get(path, 0) + inputs[0][0].square().sum(0)})
            module.register_forward_pre_hook(add)
    for piece in pieces:
        with torch.no_grad():
            model(torch.tensor([piece]), use_cache=False)
    return {path: total / count for path, total in sums.items()}


@pytest.mark.parametrize("weights", varied(["int4:64"], ["fp8"]))
def test_calibrated_errors_are_those_of_what_the_text_shows(tmp_path, weights):
    text = "A river is a large natural stream of water. " * 70  # two windows
    (tmp_path / "text.txt").write_text(text)
    plain = quantize(DEMO, tmp_path / "plain", weights)
    made = quantize(DEMO, tmp_path / "q", weights, "--calibrate", tmp_path / "text.txt", "--calibrate-tokens", 600)
    ids = transformers.AutoTokenizer.from_pretrained(DEMO)(text)["input_ids"][:600]
    importance = mean_squares(DEMO, [ids[:512], ids[512:]])
    before, after, other = (tensors_of(folder) for folder in (DEMO, tmp_path / "q", tmp_path / "plain"))
    for layer, uncalibrated in zip(made["layers"], plain["layers"]):
        module = layer["module"]
        weight = before[f"{module}.weight"].double()
        whole = (weight.square() * importance[module]).sum()
        error, other_error = (
            ((meant(folder, module, tensors) - weight).square() * importance[module]).sum()
            for folder, tensors in ((tmp_path / "q", after), (tmp_path / "plain", other))
        )
        assert layer["weighted_error"] == pytest.approx((error / whole).sqrt().item(), rel=1e-6), module
        assert error < other_error
        assert layer["relative_error"] > uncalibrated["relative_error"]
    assert "weighted_error" not in plain and made["weighted_error"] > 0


def test_calibration_on_the_way(cache, tmp_path):
    (tmp_path / "text.txt").write_text("A river is a large natural stream of water.")
    run = lambda: program(
        *("compile", SMALL_DEMO, "-o", tmp_path / "p", "-f", "--weights", "fp8", "--calibrate", tmp_path / "text.txt"),
        *("--tries", 0, "--unmeasured", "--max-context", 64, "--chunk", 16, "--short-prompt", 0),
        XDG_CACHE_HOME=str(cache),
    )
    assert "quantizing" in run().stderr
    (tmp_path / "text.txt").write_text("A dog is an animal that barks.")
    assert "quantizing" in run().stderr
    assert len(kept(cache)) == 2
