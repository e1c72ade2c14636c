"""What a package does that was damaged, whose checkpoint is another one, or whose weights are no numbers:
it says so, and never gives a wrong token."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import damage
import pytest
import tiny_models
import torch
from compiled import ROOT, program
from safetensors.torch import load_file, save_file
from variants import LONG

TOOL = Path(os.environ.get("PACKAGE_TOOL", ROOT / "build/release/package_tool"))
PROMPT, NEW_TOKENS = "5,17,3,99,8,41,7", 6
RUN = ("--ids", PROMPT, "-n", NEW_TOKENS)
LOADED = ("program.json", "constants.bin", "weights.json")
DAMAGES = 500 if LONG else 36


def compiled(folder, case="llama_gqa", *options):
    """As test_package.py compiles it: its kernels are known by then, or are known to it later."""
    tiny_models.write_case(case, folder / "model")
    options = ("--max-context", 64, "--tries", 1, "--unmeasured", "-q", "--chunk", 4, *options)
    program("compile", folder / "model", "-o", folder / "package", "--short-prompt", 1, *options)
    return folder / "package"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def package(whole, tmp_path):
    """A copy, with a checkpoint of its own."""
    shutil.copytree(whole.parent / "model", tmp_path / "model")
    shutil.copytree(whole, tmp_path / "package")
    known = json.loads((whole / "program.json").read_text())
    known["stores"]["checkpoint"] = str(tmp_path / "model")
    (tmp_path / "package/program.json").write_text(json.dumps(known))
    damage.sign(tmp_path / "package")
    return tmp_path / "package"


def tokens(package, *options, expect=0):
    result = program("run", package, *RUN, *options, expect=expect)
    return result.stdout.strip() if expect == 0 else result.stderr


# ---- damaged packages


class Judge:
    """What the commands make of packages, all of them in one process."""

    def __init__(self):
        self.tool = subprocess.Popen(
            [TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __call__(self, package):
        self.tool.stdin.write(f"{package}\n")
        self.tool.stdin.flush()
        line = self.tool.stdout.readline()
        assert line, f"the process ended: {self.tool.wait()}, {self.tool.stderr.read()}"
        return json.loads(line)

    def end(self):
        self.tool.stdin.close()
        assert self.tool.wait(60) == 0


def is_error(answer):
    return isinstance(answer, dict) and answer["error"] and answer["exit"] in (1, 2, 3)


def groups(package):
    """Files by what they are for: each kind is damaged as often as the others."""
    files = damage.files_in(package)
    kinds = {}
    for file in files:
        name = file.relative_to(package).as_posix()
        kind = name if file.suffix == ".json" else file.parent.name + file.suffix
        kinds.setdefault(kind, []).append(file)
    return kinds


def test_damaged_packages_give_the_right_tokens_or_an_error(whole, tmp_path):
    package = tmp_path / "package"
    shutil.copytree(whole, package)
    contents = {file: file.read_bytes() for file in damage.files_in(package)}
    judge = Judge()
    right = judge(package)
    assert right["run"] == right["bench"] == [int(t) for t in tokens(whole).split(",")]
    assert right["verify"] == []
    kinds = groups(package)
    assert {"program.json", "plan.json", "digests.json", "weights.json", "host.so"} <= kinds.keys()
    through_commands = random.Random(1).sample(range(DAMAGES), 6)
    refused = 0
    for seed in range(DAMAGES):
        rng = random.Random(seed)
        # One file of one kind; now and then any two that change places.
        among = rng.choice(list(kinds.values())) if rng.randrange(8) else list(contents)
        what = f"seed {seed}: {damage.damage(package, rng, among)}"
        changed = {
            file for file, content in contents.items() if not file.exists() or file.read_bytes() != content
        }
        assert changed, what
        answers = judge(package)
        for command in ("run", "bench", "inspect"):
            answer = answers[command]
            assert answer == right[command] or is_error(answer), f"{what}: {command}: {answer}"
        refused += is_error(answers["run"])
        # White space in the list of digests is all that may change.
        harmless = all(file.name == "digests.json" for file in changed) and not is_error(answers["run"])
        assert is_error(answers["verify"]) or answers["verify"] or harmless, what
        for file in changed:
            if file.parts[-2] == "host" or file.name in LOADED:
                assert is_error(answers["run"]), what
                if len(changed) == 1:
                    assert file.name in answers["run"]["error"], what
        if seed in through_commands:
            check_commands(package, right, answers, what)
        for file in changed:
            file.write_bytes(contents[file])
    assert judge(package) == right
    judge.end()
    assert refused > DAMAGES // 6


def check_commands(package, right, answers, what):
    """The program's own commands agree with the tool, and end as they should."""
    commands = {
        "run": ("run", package, *RUN),
        "bench": ("bench", package, "--prompt", 7),
        "inspect": ("inspect", package, "--stage", "stats"),
    }
    if is_error(answers["verify"]):  # otherwise it builds all kernels
        commands["verify"] = ("verify", package, "-q")
    for name, command in commands.items():
        expect = answers[name]["exit"] if is_error(answers[name]) else 0
        result = program(*command, expect=expect)
        if expect == 0 and name == "run":
            assert [int(t) for t in result.stdout.split(",")] == right["run"], what
        if expect != 0:
            assert result.stderr.startswith("error: ") and str(package) in result.stderr, what


def test_a_kernel_that_is_cut_short_is_named(package):
    kernel = next((package / "host").glob("*.so"))
    content = kernel.read_bytes()
    kernel.write_bytes(content[:8000])
    assert kernel.name in tokens(package, expect=3)
    kernel.write_bytes(content)
    kernel.chmod(0o000)
    if os.geteuid() != 0:
        assert kernel.name in tokens(package, expect=3)


# ---- another checkpoint


def rewrite(model, edit):
    file = model / "model.safetensors"
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, {"format": "pt"})


def test_another_checkpoint_must_be_named(package, tmp_path):
    right, model = tokens(package), tmp_path / "model"
    rewrite(model, lambda tensors: tensors["model.norm.weight"].mul_(-1))
    for command in (("run", *RUN), ("bench", "--prompt", 4)):
        message = program(command[0], package, *command[1:], expect=3).stderr
        assert '"model.norm.weight" has other values' in message and f"--checkpoint {model}" in message
    result = program("run", package, *RUN, "--checkpoint", model)
    assert result.stdout.strip() != right
    assert result.stderr.count("warning: ") == 1 and "has other values than when" in result.stderr
    program("bench", package, "--prompt", 4, "--checkpoint", model)
    rewrite(model, lambda t: t.update({k: v.to(torch.float16) for k, v in t.items()}))
    assert "is f16, and was f32" in tokens(package, "--checkpoint", model, expect=3)


def test_a_moved_checkpoint_is_found_by_name(package, tmp_path):
    right = tokens(package)
    (tmp_path / "model").rename(tmp_path / "moved")
    message = tokens(package, expect=3)
    assert f"{tmp_path / 'model'} does not exist" in message and "--checkpoint DIR" in message
    result = program("run", package, *RUN, "--checkpoint", tmp_path / "moved")
    assert result.stdout.strip() == right and result.stderr == ""


def test_an_edited_config_is_noticed(package, tmp_path):
    file = tmp_path / "model/config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "transformers_version": "1.0", "eos_token_id": 9}))
    tokens(package)
    file.write_text(json.dumps({**config, "rms_norm_eps": 0.25}))
    message = tokens(package, expect=3)
    assert str(file) in message and "compile the model again" in message


# ---- weights that are no numbers


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_logits_that_are_no_numbers_end_a_run(package, tmp_path, value):
    model, file = tmp_path / "model", tmp_path / "requests.jsonl"

    def edit(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = float(value)

    rewrite(model, edit)
    file.write_text('{"ids": [1, 2, 3]}\n')
    named = ("--checkpoint", model)
    for options in (
        RUN,
        (*RUN, "--json"),
        (*RUN[:2], "-n", 0, "--logits", "--json"),
        (*RUN, "--temperature", 1),
        ("--requests", file),
    ):
        result = program("run", package, *options, *named, expect=1)
        assert "error: the logit of token 0 is nan" in result.stderr and result.stdout == ""
    for what in (("--prompt", 4), ("--context", 4, "--new", 3)):
        result = program("bench", package, *what, *named, "--json", expect=1)
        assert "the logit of token 0 is nan" in result.stderr and result.stdout == ""
    assert "the logit of token 0 is nan" in program("run", model, "--reference", *RUN, expect=1).stderr


def test_an_infinite_logit_is_named_by_its_token(package, tmp_path):
    def edit(tensors):
        tensors["lm_head.weight"][77] = float("inf")

    rewrite(tmp_path / "model", edit)
    message = tokens(package, "--checkpoint", tmp_path / "model", expect=1)
    assert any(f"the logit of token 77 is {value}" in message for value in ("nan", "inf", "-inf"))
