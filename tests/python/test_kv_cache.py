"""Keys and values as FP8 (`--kv fp8`) against models of transformers whose cache is rounded by the same rule: logits of the
reference and of packages, greedy tokens, windows, perplexity, and what is refused."""

import json

import pytest
import tiny_models
import torch
import transformers
from compiled import ROOT, check, compile_package, distance, generate, phase_of, program

DEMO = ROOT / "examples/demo_model"
KV = ("--kv", "fp8")
# A number next to a border between two codes may become either, which moves an element by up to an eighth.
CLOSE = 3e-3


def coded(x):
    """Rows of codes, as numbers: the largest magnitude of a head and token is the code 448."""
    scale = (x.abs().amax(-1, keepdim=True) / 448).clamp(min=2.0**-100)
    return (x / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale


class CodedCache(transformers.DynamicCache):
    """Which attention reads, of the token that is appended as well."""

    def update(self, keys, values, *layer):
        return super().update(coded(keys), coded(values), *layer)


def truth(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), past_key_values=CodedCache()).logits[0, -1].tolist()


@pytest.fixture(scope="module", params=["demo", "qwen3_layer_types"])
def case(request, tmp_path_factory):
    """A source, its model in float64 and a prompt, which is longer than a chunk and than a window."""
    if request.param == "demo":
        model = transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float64)
        return DEMO, model, [(7 * i * i + 3 * i + 1) % 900 for i in range(25)]
    folder = tmp_path_factory.mktemp(request.param)
    source = tiny_models.write_case(request.param, folder)
    model = tiny_models.load_float32(request.param, folder).double()
    return source, model, tiny_models.prompt(request.param, 40)


def test_the_reference(case):
    source, model, ids = case
    got = generate(source, ids, 0, "--reference", "--dtype", "float32", *KV)["last_logits"]
    wanted = truth(model, ids)
    assert distance(got, wanted) < 1e-5
    # Which nothing else passes for.
    plain = generate(source, ids, 0, "--reference", "--dtype", "float32")["last_logits"]
    assert distance(plain, wanted) > CLOSE


@pytest.mark.parametrize("tries", [0, 1])
def test_packages(case, tries, tmp_path):
    source, model, ids = case
    options = ("--dtype", "float32", *KV)
    compile_package(source, tmp_path / "package", *options, tries=tries)
    program_json = json.loads((tmp_path / "package/program.json").read_text())
    assert {t["dtype"] for state in program_json["states"] for t in state["tensors"] if "dtype" in t} == {"f8e4m3"}
    got = generate(tmp_path / "package", ids, 6)
    assert distance(generate(tmp_path / "package", ids, 0)["last_logits"], truth(model, ids)) < CLOSE
    reference = generate(source, ids, 6, "--reference", *options)
    assert got["generated"] == reference["generated"]
    assert distance(got["last_logits"], reference["last_logits"]) < CLOSE
    if tries > 0:
        plan = json.loads((tmp_path / "package/plan.json").read_text())
        families = {s["family"] for phase in plan["phases"] for s in phase["selections"] if "append_attend" in s["ops"]}
        assert families == {"attention", "prefill_attention"}


def test_all_layers_in_one_launch(tmp_path):
    source = tiny_models.write_case("qwen3_layers", tmp_path / "model")
    package = tmp_path / "package"
    families = ("--families", "layers,gemv,attention,prefill_attention,norm,embedding", "--unmeasured")
    program("compile", source, "-o", package, "--max-context", 64, "--chunk", 16, "-q", *families, *KV)
    decode = phase_of(json.loads((package / "plan.json").read_text()), "decode")
    assert [s["ops"] for s in decode["selections"] if s["family"] == "layers"] == [["2 layers"]]
    for ids in (tiny_models.prompt("qwen3_layers", 40), [3]):
        check(package, source, ids, 8, *KV)


def test_perplexity(tmp_path):
    (tmp_path / "text.txt").write_text((ROOT / "LICENSE").read_text()[:400])
    told = json.loads(
        program(
            *("perplexity", DEMO, *KV, "--against", DEMO, "--text", tmp_path / "text.txt", "--window", 32),
            *("--device", "host", "--max-context", 64, "--tries", 0, "--json", "--quiet"),
        ).stdout
    )
    assert 0 < told["against"]["mean_kl"] < 0.05  # the one is coded, the other is not


def test_refused(tmp_path):
    compile_package(DEMO, tmp_path / "package", tries=0)
    for arguments, code, says in [
        (("compile", DEMO, "-o", tmp_path / "other", "--kv", "fp9"), 2, "auto, fp8"),
        (("generate", DEMO, "-p", "A", "--kv", "int8"), 2, "--kv"),
        (("generate", tmp_path / "package", "-p", "A", *KV), 2, "--kv: "),
        (("generate", tmp_path / "package", "-p", "A", *KV), 2, "is a package, which is compiled already"),
    ]:
        refused = program(*arguments, expect=code)
        assert says in refused.stderr, (arguments, refused.stderr)
