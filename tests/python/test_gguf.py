"""GGUF files: the model, its tokenizer and template are what transformers computes from the same weights, which
llama.cpp's package dequantises."""

import json
import random
import re
import subprocess

import gguf
import gguf_files
import pytest
import text_model
import tiny_models
import torch
import transformers
from compiled import PROGRAM, compile_package, generate, program, verdicts
from gguf import GGMLQuantizationType as Type

CASES = {
    "llama_mqa_head_dim": "llama",
    "llama_mha_tied": "llama",
    "llama_all_biases": "llama",
    "llama_llama3": "llama",
    "llama_linear": "llama",
    "llama_yarn": "llama",
    "qwen2_gqa": "qwen2",
    "qwen3_gqa": "qwen3",
    "gemma3_text": "gemma3",
    "smollm3_no_rope": "smollm3",
}
IDS = tiny_models.prompt("llama_gqa")


def truth(model) -> torch.Tensor:
    return tiny_models.logits_of(model.float(), IDS)[-1]


def distance(got, wanted: torch.Tensor) -> float:
    return float((torch.tensor(got) - wanted).abs().max() / (wanted.max() - wanted.min()))


def small_model(name="llama_gqa") -> torch.nn.Module:
    return tiny_models.build(name)


def wide_model() -> torch.nn.Module:
    """Rows of 256, which K-quants need."""
    torch.manual_seed(3)
    config = {**tiny_models.BASE, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).eval()


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name, tmp_path, monkeypatch):
    # What no file says: the activation, and that Gemma's scores are scaled by the size of a head.
    unsaid = {"llama_all_biases": ("hidden_act", "silu"), "gemma3_text": ("query_pre_attn_scalar", 16)}
    if name in unsaid:
        monkeypatch.setitem(tiny_models.CASES[name].config, *unsaid[name])
    model = small_model(name)
    gguf_files.write(tmp_path / "model.gguf", model, CASES[name])
    got = generate(tmp_path / "model.gguf", IDS, 1, "--reference")
    assert distance(got["last_logits"], truth(model)) < 2e-5


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_are_those_of_llama_cpp(kind, tmp_path):
    model = wide_model() if kind.endswith("_K") else small_model("llama_mha_tied")
    gguf_files.write(tmp_path / "model.gguf", model, "llama", Type[kind])
    got = generate(tmp_path / "model.gguf", IDS, 1, "--reference", "--dtype", "float32")
    assert distance(got["last_logits"], truth(model)) < 2e-5


def medium(name: str) -> Type:
    """As files that are called Q4_K_M mix their types."""
    return Type.Q6_K if any(part in name for part in ("v_proj", "down_proj", "embed_tokens")) else Type.Q4_K


def mixed(name: str) -> Type:
    kinds = {"q_proj": Type.Q4_0, "k_proj": Type.Q4_0, "v_proj": Type.Q5_1, "o_proj": Type.Q8_0, "gate_proj": Type.Q5_K}
    kinds |= {"up_proj": Type.Q5_K, "down_proj": Type.Q5_0, "embed_tokens": Type.Q4_1, "lm_head": Type.Q3_K}
    return kinds.get(name.split(".")[-2], Type.F32)


FORMATS = {
    medium: {"u4_g32_i8_in256_minima", "u6_g16_i8_in256"},
    mixed: {"u4_g32_f16", "u5_g32_f16_minima", "u8_g32_f16", "u5_g32_i8_in256_minima", "u5_g32_f16", "u4_g16_i8_in256"},
}


@pytest.mark.parametrize("kind", FORMATS)
def test_tensors_of_many_types_stay_packed_on_the_device(kind, tmp_path):
    model, file = wide_model(), tmp_path / "model.gguf"
    gguf_files.write(file, model, "llama", kind)
    graph = program("inspect", file, "--stage", "graph").stdout
    assert set(re.findall(r'format="(\w+)"', graph)) == FORMATS[kind], graph
    options = ("--dtype", "float32")
    wanted = generate(file, IDS, 6, "--reference", *options)
    assert distance(wanted["last_logits"], truth(model)) < 2e-5
    compile_package(file, tmp_path / "package", *options, tries=2)
    plan = json.loads((tmp_path / "package/plan.json").read_text())
    families = {(s["family"], "linear" in s["ops"]) for phase in plan["phases"] for s in phase["selections"]}
    assert ("gemv", True) in families, verdicts(tmp_path / "package")
    said = program("compile", file, "-o", tmp_path / "quick", "--quick", "--chunk", 8, "--max-context", 96, *options).stderr
    packed, held = (next(line for line in said.splitlines() if words in line) for words in ("that stay packed:", "that are held as"))
    assert ("6 of Q4_K, 2 of Q6_K" in packed) if kind == medium else ("2 of Q4_0" in packed and "1 of Q3_K" in packed), said
    assert f"1 of {kind('model.embed_tokens.weight').name};" in held, said
    got = generate(tmp_path / "package", IDS, 6)
    assert got["generated"] == wanted["generated"]
    assert distance(got["last_logits"], torch.tensor(wanted["last_logits"])) < 1e-4


def test_a_tied_head_reads_the_blocks_of_the_embedding(tmp_path):
    model, file = small_model("llama_mha_tied"), tmp_path / "model.gguf"
    gguf_files.write(file, model, "llama", Type.Q8_0)
    graph = program("inspect", file, "--stage", "graph").stdout
    assert 'key="model.embed_tokens.weight"' in graph and 'key="model.embed_tokens.weight.codes"' in graph, graph


def test_a_package_of_other_blocks_is_refused(tmp_path):
    file = tmp_path / "model.gguf"
    gguf_files.write(file, small_model(), "llama", Type.Q8_0)
    program("compile", file, "-o", tmp_path / "package", "--quick", "--chunk", 8, "--max-context", 96)
    gguf_files.write(file, small_model(), "llama", Type.Q4_0)
    error = program("run", tmp_path / "package", "--ids", "1,2", "-n", 1, expect=3).stderr
    assert "model.gguf" in error and "is Q4_0, and was Q8_0" in error, error


def byte_tokenizer(folder):
    document = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    return lambda writer: gguf_files.add_byte_tokenizer(
        writer, document, "gpt-2", text_model.TEMPLATE, bos=config["bos_token"], eos=config["eos_token"]
    )


def texts() -> list:
    draw = random.Random(3)
    lines = text_model.corpus()
    odd = ["", " ", "  a  b ", "don't I'LL 1234567 3.14", "a\r\n\n b\t", "<|im_end|> <|end|>x", "\u00c5 A\u030a é", "👍🙂 日本語"]
    return odd + [line[draw.randrange(9) : draw.randrange(40, 80)] for line in lines[:40]]


def tokens(source, *options) -> list:
    lines = "".join(json.dumps(text) + "\n" for text in texts())
    result = subprocess.run([PROGRAM, "tokenize", source, "--lines", *options], input=lines, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    """A folder, and a GGUF file of the same model, tokenizer and template."""
    folder = tmp_path_factory.mktemp("gguf")
    text_model.write(folder / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    gguf_files.write(folder / "model.gguf", model, "llama", Type.Q8_0, byte_tokenizer(folder / "model"))
    return folder


def test_a_package_of_a_file_generates_and_has_its_texts(chat_model, tmp_path):
    file = chat_model / "model.gguf"
    options = ("--quick", "--chunk", 8, "--max-context", 96, "--dtype", "float32")
    result = program("compile", file, "-o", tmp_path / "package", *options)
    assert "tensors that stay packed: " in result.stderr and "Q8_0" in result.stderr, result.stderr
    got = generate(tmp_path / "package", IDS, 4)
    wanted = generate(file, IDS, 4, "--reference", "--dtype", "float32")
    assert distance(got["last_logits"], torch.tensor(wanted["last_logits"])) < 1e-4
    ask = ("generate", tmp_path / "package", "--chat", "-p", "ka to", "-n", 4, "--temp", 0, "--quiet")
    said = [program(*ask, *options).stdout for options in ((), ("--tokenizer", file), ("--tokenizer", chat_model / "model"))]
    assert said[0] and said[0] == said[1] == said[2], said


@pytest.mark.parametrize("options", [(), ("--special",), ("--add-special",)])
def test_a_byte_level_tokenizer_is_that_of_the_folder(chat_model, options):
    assert tokens(chat_model / "model.gguf", *options) == tokens(chat_model / "model", *options)


def test_the_template_is_that_of_the_folder(chat_model, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps({"messages": [{"role": "user", "content": "Hé"}], "add_generation_prompt": True}))
    prompts = [program("apply-template", chat_model / source, "--input", tmp_path / "chat.json").stdout for source in ("model", "model.gguf")]
    assert prompts[0] == prompts[1] and "Hé" in prompts[0]


def test_a_tokenizer_with_scores_is_that_of_the_folder(tmp_path):
    text_model.write_spaced_tokenizer(tmp_path / "folder")
    document = json.loads((tmp_path / "folder/tokenizer.json").read_text())
    gguf_files.write(tmp_path / "model.gguf", small_model(), "llama", tokenizer=lambda writer: gguf_files.add_scored_tokenizer(writer, document))
    assert tokens(tmp_path / "model.gguf") == tokens(tmp_path / "folder")


REFUSED = {
    "another architecture": ("mamba", lambda w: None, ["general.architecture", '"mamba"']),
    "an unknown key": ("llama", lambda w: w.add_logit_scale(2.0), ["llama.logit_scale", "not known"]),
    "experts": ("llama", lambda w: w.add_expert_count(8), ["llama.expert_count", "experts"]),
    "one of several files": ("llama", lambda w: w.add_uint16("split.count", 3), ["split.count", "llama-gguf-split"]),
    "a part of heads that rotates": ("llama", lambda w: w.add_rope_dimension_count(8), ["llama.rope.dimension_count"]),
    "another rope": ("llama", lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), ["rope.scaling.type", "longrope"]),
    "another tensor": ("llama", lambda w: w.add_tensor("blk.0.attn_sinks.weight", torch.ones(4).numpy()), ["blk.0.attn_sinks.weight"]),
    "a tensor too much": ("llama", lambda w: w.add_tensor("blk.7.attn_norm.weight", torch.ones(64).numpy()), ["blk.7.attn_norm.weight"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_unknown_is_refused_by_name(name, tmp_path):
    arch, change, words = REFUSED[name]
    gguf_files.write(tmp_path / "model.gguf", small_model(), arch, change=change)
    error = program("inspect", tmp_path / "model.gguf", expect=3).stderr
    assert "model.gguf" in error and all(word in error for word in words), error


def test_a_tokenizer_that_is_unknown_is_refused_by_name(chat_model, tmp_path):
    document = json.loads((chat_model / "model/tokenizer.json").read_text())
    for key, add in {
        "tokenizer.ggml.pre": lambda writer: gguf_files.add_byte_tokenizer(writer, document, "poro-chat"),
        "tokenizer.ggml.model": lambda writer: (writer.add_tokenizer_model("t5"), writer.add_token_list(["a"])),
    }.items():
        gguf_files.write(tmp_path / "model.gguf", small_model(), "llama", tokenizer=add)
        error = program("tokenize", tmp_path / "model.gguf", expect=3).stderr
        assert key in error and ("poro-chat" in error or "t5" in error), error


def test_damaged_files_are_errors(tmp_path):
    file = tmp_path / "model.gguf"
    gguf_files.write(file, small_model(), "llama")
    whole = file.read_bytes()
    draw = random.Random(1)
    cut = [whole[:size] for size in (0, 3, 4, 8, 20, 24, 31, 100, 900, len(whole) - 1)]
    begin = whole[:24]
    absurd = [
        begin[:4] + (1).to_bytes(4, "little") + whole[8:],
        begin[:4] + (3).to_bytes(4, "big") + whole[8:],
        begin[:8] + b"\xff" * 8 + whole[16:],
        begin[:16] + b"\xff" * 8 + whole[24:],
        begin + b"\xff" * 8 + whole[32:],
    ]
    for data in cut + absurd:
        file.write_bytes(data)
        error = program("inspect", file, expect=3).stderr
        assert "model.gguf" in error, error
    for _ in range(60):  # anything but a crash
        data = bytearray(whole)
        data[draw.randrange(2000)] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
        assert subprocess.run([PROGRAM, "inspect", file], capture_output=True).returncode in (0, 3)
