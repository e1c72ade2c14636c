"""Compiled packages on the host device: they give the reference's tokens, and no fault of the machine
or of the user leaves a broken one."""

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import compiled
import damage
import once
import pytest
import tiny_models
from compiled import OPTIONS, PROGRAM, ROOT, check, compile_package, generate, phase_of, program, verdicts
from variants import LONG, late

sys.path.insert(0, str(ROOT / "python"))

from agentcompile import capture as command  # noqa: E402

# What differs most: each costs some 25 seconds of compiling on one core. AC_TEST_ALL=1 takes all.
MODELS = [
    "mistral_window",  # a ring that chunks wrap around
    "qwen3_bfloat16_sharded",  # norms of heads
    late("gemma2_softcap"),  # every run compiles it for float16
    "gpt2_tied",  # learned positions, biases, layer norms
]
if os.environ.get("AC_TEST_ALL"):
    MODELS = list(tiny_models.CASES)
NEW_TOKENS = 24
SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache of kernels and verdicts that was empty when the run began: that of all workers (conftest.py),
    or one of these tests alone."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        yield Path(os.environ["XDG_CACHE_HOME"])
        return
    folder = tmp_path_factory.getbasetemp() / "compile-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """name -> SOURCE, each made once a run, and for reading only."""
    return lambda name: once.source(tmp_path_factory, name)


@pytest.fixture(scope="session")
def small(model):
    """What is compiled when it does not matter what."""
    return model("mistral_window")


def check_package(package, source, name):
    ids = tiny_models.prompt(name)
    try:
        check(package, source, ids, NEW_TOKENS)
        check(package, source, ids[:1], NEW_TOKENS)
    except AssertionError:
        print(json.dumps(verdicts(package), indent=1))
        raise


@pytest.mark.parametrize("name", MODELS)
def test_a_package_gives_the_tokens_of_the_reference(name, model, tmp_path):
    source = model(name)
    compile_package(source, tmp_path / "package")
    check_package(tmp_path / "package", source, name)


@pytest.mark.parametrize("name", ["mistral_window_head_dim"])
def test_fallbacks_alone_give_the_tokens_of_the_reference(name, model, tmp_path):
    source, package = model(name), tmp_path / "package"
    report = compile_package(source, package, tries=0)
    for phase in ("prefill", "decode"):
        assert report[phase]["fallbacks"] == report[phase]["regions"]
    check_package(package, source, name)


# Native and captured; to a wider type and to a narrower one.
@pytest.mark.parametrize(
    "name, dtype, own",
    [("qwen3_bfloat16_sharded", "float32", "bfloat16"), ("gemma2_softcap", "float16", "float32")],
)
def test_another_dtype_than_the_checkpoints(name, dtype, own, model, tmp_path):
    source, package = model(name), tmp_path / "package"
    report = compile_package(source, package, "--dtype", dtype)
    assert (report["dtype"], report["own_dtype"]) == (dtype, own)
    assert json.loads((package / "program.json").read_text())["dtype"] == SHORT[dtype]
    ids = tiny_models.prompt(name)
    check(package, source, ids, NEW_TOKENS, "--dtype", dtype)
    # Exact where the checkpoint's values are kept.
    if dtype == "float32":
        check(package, source, ids, NEW_TOKENS)
    message = program("compile", source, "-o", "other", "--dtype", "int8", expect=2).stderr
    assert "int8" in message and "bfloat16" in message
    message = program("run", package, "--ids", 1, "--dtype", dtype, expect=2).stderr
    assert "--dtype" in message


def test_a_folder_that_only_python_reads_is_packaged_by_its_name(tmp_path):
    """Its weights stay where they are; of the capture, which is gone then, the package keeps its own."""
    name, package = "gpt2_tied", tmp_path / "package"
    source = tiny_models.write_case(name, tmp_path / "model")
    compile_package(source, package, tries=0)
    stores = json.loads((package / "program.json").read_text())["stores"]
    assert str(source) in stores.values()
    for store in stores.values():
        assert store == str(source) or (package / store).is_file()
    truth = tiny_models.expected(name, source, tiny_models.prompt(name), 4)
    got = generate(package, truth["ids"], 4)
    assert compiled.distance(got["last_logits"], truth["last_logits"]) < compiled.CLOSE["f32"]
    assert got["generated"] == truth["generated"] and min(truth["gaps"]) > 1e-3


def test_stages_are_shown_as_they_are_done(small, tmp_path):
    options = ("-o", tmp_path / "package", *OPTIONS, "--tries", 1)
    stages = ("capture", "normalise", "incrementalise", "regions", "candidates", "selection")
    stages += ("program", "check")
    shown = program("compile", "--dump", ",".join(stages), small, *options).stdout
    titles = [line[3:] for line in shown.splitlines() if line.startswith("== ")]
    both = ("prefill", "decode")
    phases = [f"{phase}: {stage}" for stage in stages[3:6] for phase in both]
    assert titles == [*stages[:3], *phases, "program", "check"]

    def part(title):
        return shown.split(f"== {title}\n")[1].split("\n== ")[0].rstrip("\n")

    for stage in stages[:3]:
        assert part(stage) == program("inspect", small, "--stage", stage).stdout.rstrip("\n")
    assert "gemv" in part("decode: candidates") and "predicted us" in part("decode: selection")
    assert '"launches"' in part("program")
    refused(small, *options, "--force", "--dump", "regions,wrong", expect=2, says='"wrong" is no stage')
    refused(small, *options, "--force", "--dump", "regions", "--json", expect=2, says="--json")


def test_progress_says_what_was_tried_and_how_long_it_took(small, tmp_path):
    shown = [option for option in OPTIONS if option not in ("--quiet", "--unmeasured")]
    options = ("-o", tmp_path / "package", *shown, "--tries", 1, "--families", "norm")
    said = program("compile", small, *options).stderr
    for phase in ("prefill", "decode"):
        counts = r"[1-9]\d* candidates tried, \d+ admitted; \d+ and \d+ fallbacks confirmed as they are used \("
        assert re.search(rf"^{phase}: selection: {counts}", said, re.M), said
    assert re.search(r"^[\d.]+ s building kernels, [\d.]+ s judging, [\d.]+ s timing$", said, re.M), said


BOUNDARIES = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.up = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 32)
        self.scale = nn.Parameter(torch.ones(32, dtype=torch.float32))

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, 2, 16).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(1, 2).reshape(b, s, 32))
        y.add_(x)  # in place
        wide = y.float() * self.scale.float() + 0.5  # float16, float32 and back
        y = y + torch.tanh(wide).half() * torch.sigmoid(wide - 0.25).half()
        z = self.up(y)
        z.mul_(0.5).clamp_(-3, 3)
        return y + z


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(67, 32), nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(32, 67)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        logits[..., 3].mul_(0.5)  # into a view of what is returned
        return logits.view(1, -1, 67)  # an alias


def factory():
    torch.manual_seed(3)
    model = Model().eval().half()
    return model, 67
"""


def test_boundaries_are_no_obstacle(tmp_path):
    """In-place ops, aliases and chains of several dtypes are computed, by fallbacks where need be."""
    (tmp_path / "model.py").write_text(BOUNDARIES)
    command.capture(str(tmp_path / "model.py"), str(tmp_path / "capture.json"))
    regions = program("inspect", tmp_path / "capture.json", "--stage", "regions").stdout
    assert "mixed dtype" in regions.replace("_", " ")
    assert "state" in regions  # the one op in place that capture leaves: the append to a cache
    package = tmp_path / "package"
    compile_package(tmp_path / "capture.json", package)
    check(package, tmp_path / "capture.json", [5 * i % 67 for i in range(20)], NEW_TOKENS)


def test_the_chunk_does_not_matter(small, tmp_path):
    package = tmp_path / "package"
    compile_package(small, package)
    ids = tiny_models.prompt("mistral_window")
    wanted = generate(package, ids, 4, "--chunk", 1)
    for chunk in (3, 8):
        got = generate(package, ids, 4, "--chunk", chunk)
        assert got["generated"] == wanted["generated"]
        assert compiled.distance(got["last_logits"], wanted["last_logits"]) < 1e-5
    message = program("run", package, "--ids", "1,2", "--chunk", 9, expect=2).stderr
    assert "takes 8 tokens at once" in message


def test_short_steps_of_a_prompt_have_kernels_of_their_own(small, tmp_path):
    package = tmp_path / "package"
    report = compile_package(small, package, "--short-prompt", 2)
    assert report["prefill to 4"]["regions"] == report["prefill"]["regions"]
    phases = json.loads((package / "program.json").read_text())["phases"]
    steps = [(phase["name"], phase["min_tokens"], phase["max_tokens"]) for phase in phases]
    assert steps == [("prefill", 5, 8), ("prefill to 4", 2, 4), ("decode", 1, 1)]
    plan = json.loads((package / "plan.json").read_text())
    assert [phase["tuned_at"] for phase in plan["phases"]] == [8, 2, 1]
    assert "prefill to 4, a step of 2 tokens" in program("inspect", package, "--stage", "selection").stdout
    ids = tiny_models.prompt("mistral_window")
    for tokens in (1, 3, 4, 5, 8, 11, 12, 13):  # shorter, equal and longer, and tails of each kind
        check(package, small, ids[:tokens], 3)
    result = json.loads(program("verify", package, "--json").stdout)
    assert result["ok"] and "prefill to 4" in {trial["phase"] for trial in result["trials"]}
    # A phase that no trial has run is told.
    del plan["phases"][1]
    (package / "plan.json").write_text(json.dumps(plan))
    damage.sign(package)
    assert "prefill to 4 launches" in program("verify", package, expect=1).stdout
    # Where whole chunks are no longer than that, and where none is wanted, there is none.
    for options in (("--short-prompt", 4), ("--short-prompt", 0)):
        report = compile_package(small, package, *options, "--force")
        assert [name for name in report if name.startswith("prefill")] == ["prefill"]
    program("compile", small, "-o", tmp_path / "other", "--short-prompt", -1, expect=2)


def test_a_package_holds_so_many_tokens_and_no_more(small, model, tmp_path):
    package = tmp_path / "package"
    compile_package(small, package)
    assert len(generate(package, range(90), 7)["generated"]) == 7  # 90 + 6 are run
    ids = ",".join(map(str, range(90)))
    message = program("run", package, "--ids", ids, "-n", 8, expect=3).stderr
    assert "96" in message and "--max-context" in message
    # A table of positions is as long as it is.
    message = program(
        "compile", model("gpt2_tied"), "-o", tmp_path / "long", "--max-context", 257, expect=3
    ).stderr
    assert "256" in message
    assert not (tmp_path / "long").exists()
    options = ("--chunk", 8, "--max-context", 256, "--unmeasured", "--tries", 0, "-q")
    program("compile", model("gpt2_tied"), "-o", tmp_path / "learned", *options)
    for run in (("run", tmp_path / "learned"), ("run", model("gpt2_tied"), "--reference")):
        ids = ",".join(["7"] * 250)
        message = program(*run, "--ids", ids, "-n", 20, expect=3).stderr
        assert "256" in message and "--max-context" not in message


# ---- faults of the user


def refused(*arguments, expect, says, output=None):
    message = program("compile", *arguments, expect=expect).stderr
    assert message.splitlines()[-1].startswith("error: "), message
    assert says in message
    assert "Traceback" not in message and "terminate called" not in message
    if output:
        assert not output.exists()


def test_what_cannot_be_compiled(small, tmp_path):
    output = tmp_path / "package"
    refused("no/such-model", "-o", output, expect=3, says="no/such-model", output=output)
    refused(small, "-o", output, "--target", "sm_12", expect=2, says="sm_12", output=output)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    refused(tmp_path, "-o", output, expect=3, says="config.json", output=output)
    (tmp_path / "file").write_text("")
    refused(small, "-o", tmp_path / "file/package", *OPTIONS, "--tries", 0, expect=1, says="file")
    program("compile", small, expect=2)
    program("compile", small, "-o", output, "--chunk", 0, expect=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "file"]


def test_only_packages_are_replaced_and_only_by_force(small, tmp_path):
    package, other = tmp_path / "package", tmp_path / "other"
    compile_package(small, package)
    (package / "mark").write_text("")
    refused(small, "-o", package, *OPTIONS, expect=2, says="--force")
    refused(small, "-o", f"{package}/", *OPTIONS, expect=2, says="--force")
    assert (package / "mark").exists()
    compile_package(small, f"{package}/", "--force")
    assert not (package / "mark").exists()
    assert len(generate(package, [1, 2, 3], 2)["generated"]) == 2
    other.mkdir()
    (other / "precious").write_text("")
    (tmp_path / "file").write_text("")
    for what in (other, tmp_path / "file"):
        refused(small, "-o", what, *OPTIONS, "--force", expect=2, says="no package")
    assert (other / "precious").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other", "package"]


def test_a_damaged_package_is_told(small, tmp_path):
    package = tmp_path / "package"
    compile_package(small, package)
    run = ("run", package, "--ids", "1,2", "-n", 1)
    program(*run)

    def damaged(name, content, says):
        whole = (package / name).read_bytes()
        if content is None:
            (package / name).unlink()
        else:
            (package / name).write_bytes(content)
        result = subprocess.run([PROGRAM, *map(str, run)], capture_output=True, text=True)
        assert result.returncode in (1, 3), result.stderr
        assert result.stderr.startswith("error: ") and says in result.stderr
        (package / name).write_bytes(whole)

    text = (package / "program.json").read_bytes()
    damaged("program.json", text[: len(text) // 2], "program.json")
    damaged("program.json", None, "program.json")
    damaged("program.json", text + b" ", "compile the model again")
    damaged("digests.json", None, "compile the model again")
    damaged("constants.bin", b"", "constants.bin")
    kernel = next((package / "host").iterdir())
    damaged(kernel.relative_to(package), b"", kernel.name)
    damaged(kernel.relative_to(package), None, kernel.name)
    shutil.move(package, tmp_path / "moved")
    assert generate(tmp_path / "moved", [1, 2], 1)["ids"] == [1, 2]


# ---- faults of the machine


def start(*arguments, cache=None, **options):
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    return subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def compile_arguments(source, package, *options):
    return ("compile", source, "-o", package, *OPTIONS, "--tries", 1, *options)


@pytest.fixture
def half_cache(small, cache, tmp_path):
    """A cache of one's own that lacks a few of the small model's kernels and half of the verdicts."""
    compile_package(small, tmp_path / "warm")
    own = {path.read_bytes() for path in (tmp_path / "warm/host").glob("*.so")}
    shutil.rmtree(tmp_path / "warm")
    copy, chance = tmp_path / "cache", random.Random(3)
    # What other compilations have begun there may be gone before it is copied.
    unfinished = shutil.ignore_patterns("*.unfinished-*", "*.json.*", "*.sqlite*")
    shutil.copytree(cache / "agentcompile/kernels", copy / "agentcompile/kernels", ignore=unfinished)
    verdicts = [path for path in copy.rglob("*.json") if path.parent.name == "verdicts"]
    kernels = [path.parent for path in copy.rglob("kernel.so") if path.read_bytes() in own]
    assert len(kernels) > 8 and len(verdicts) > 8
    for path in chance.sample(sorted(kernels), 4):
        shutil.rmtree(path)
    for path in chance.sample(sorted(verdicts), len(verdicts) // 2):
        path.unlink()
    return copy


def test_killed_at_any_moment(small, half_cache, tmp_path):
    chance = random.Random(5)
    package, cache = tmp_path / "out/package", half_cache
    for delay in [0.02, 0.1, 0.3] + [chance.uniform(0.1, 1.5) for _ in range(10 if LONG else 2)]:
        process = start(*compile_arguments(small, package), cache=cache)
        time.sleep(delay)
        process.kill()
        process.communicate()
        assert not package.exists() or generate(package, [1], 1)
        shutil.rmtree(package, ignore_errors=True)
    # Those that the package is written in, too: by then all is cached.
    compile_package(small, package, XDG_CACHE_HOME=str(cache))
    began = time.monotonic()
    compile_package(small, package, "--force", XDG_CACHE_HOME=str(cache))
    warm = time.monotonic() - began
    ids = tiny_models.prompt("mistral_window", 3)
    wanted = generate(package, ids, 2)
    for _ in range(30 if LONG else 6):
        process = start(*compile_arguments(small, package, "--force"), cache=cache)
        time.sleep(chance.uniform(0.5, 1.05) * warm)
        process.kill()
        process.communicate()
        assert generate(package, ids, 2) == wanted  # the old or the new one, never none
    compile_package(small, package, "--force", XDG_CACHE_HOME=str(cache))
    assert os.listdir(package.parent) == ["package"]  # what others left is gone
    check(package, small, ids, 2)


def test_interrupted(small, tmp_path):
    package = tmp_path / "package"
    # Whoever runs the tests in the background may have them ignore it.
    heed = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = start(*compile_arguments(small, package), cache=tmp_path / "cache", **heed)
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == -signal.SIGINT
    assert os.listdir(tmp_path) == ["cache"]


def test_several_at_once(small, half_cache, tmp_path):
    names = ["package", "package", "other"]
    all_of_them = [
        start(*compile_arguments(small, tmp_path / name, "--force"), cache=half_cache)
        for name in names
    ]
    for process in all_of_them:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    wanted = generate(tmp_path / "package", [1, 2, 3], 2)
    assert generate(tmp_path / "other", [1, 2, 3], 2) == wanted
    assert set(os.listdir(tmp_path)) == {"cache", *names}


def limit_files(size):
    """A process whose files cannot grow: each write beyond fails as on a full disk."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and a shell does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return {"preexec_fn": limit, "restore_signals": False}


def test_a_full_disk_leaves_no_half_package(small, half_cache, tmp_path):
    package, cache = tmp_path / "out/package", half_cache
    # While kernels are built: no package, and nothing wrong in the cache.
    for size in (0, 5_000):
        process = start(*compile_arguments(small, package), cache=cache, **limit_files(size))
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 1, errors
        assert "error: " in errors and "terminate called" not in errors
        assert not package.exists()
    report = compile_package(small, package, XDG_CACHE_HOME=str(cache))
    assert report["decode"]["fallbacks"] == 0
    wanted = generate(package, [1, 2, 3], 2)
    # While the package is written: the old one stays.
    sizes = sorted(file.stat().st_size for file in package.rglob("*") if file.is_file())
    # (The largest is the plan, whose length is not always the same: it holds times.)
    for size in (0, sizes[0] - 1, sizes[len(sizes) // 2], sizes[-1] * 9 // 10):
        arguments = compile_arguments(small, package, "--force")
        process = start(*arguments, cache=cache, **limit_files(max(size, 0)))
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 1, (size, errors)
        assert errors.startswith("error: "), errors
        assert generate(package, [1, 2, 3], 2) == wanted
        assert os.listdir(package.parent) == ["package"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_nobody_may_write(small, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    refused(*compile_arguments(small, locked / "package")[1:], expect=1, says="locked")
    assert not os.listdir(locked)


# Everything but our own products of many tokens.
WITH_LIBRARY = (
    "--families",
    "cublaslt,gemv,attention,prefill_attention,norm,softmax,reduction,elementwise,embedding",
)


@pytest.mark.parametrize("name", ["llama_all_biases"])
def test_products_of_the_library_give_the_tokens_of_the_reference(name, model, tmp_path):
    source, package = model(name), tmp_path / "package"
    compile_package(source, package, *WITH_LIBRARY)
    check_package(package, source, name)

    launches = phase_of(json.loads((package / "program.json").read_text()), "prefill")["launches"]
    products = [launch["product"] for launch in launches if "product" in launch]
    assert products and all(not launch["kernel"].startswith("mma_gemm") for launch in launches)
    # Of attention and of the MLP: fused with what is behind them.
    assert any(product["residual"] for product in products)
    assert any(product["bias"] for product in products) == (name == "llama_all_biases")
    components = json.loads(program("inspect", package, "--stage", "stats", "--json").stdout)
    library = components["prefill"]["components"]["library"]
    assert library["calls"] == len(products) and library["flops_share"] > 0.3
    assert components["decode"]["components"]["library"]["calls"] == 0
    # Its own sources hold no library, and say so.
    assert "cuBLASLt" in (package / "README.md").read_text()
    assert not any("cublaslt" in line for line in (package / "wrappers.cc").read_text().split("\n"))
    if name == "llama_all_biases":
        report = json.loads(program("verify", package, "--json").stdout)
        assert report["ok"]


# Norms of heads; a ring that chunks wrap around; biases; one product for all three, and such a ring.
@pytest.mark.parametrize(
    "name, dtype",
    [
        ("qwen3_bfloat16_sharded", "bfloat16"),
        late(("mistral_window", "float16")),
        late(("qwen2_float16", "float16")),
        ("phi3_fused", "bfloat16"),
    ],
)
def test_products_that_turn_and_append_give_the_tokens_of_the_reference(
    name, dtype, model, tmp_path
):
    source, package = model(name), tmp_path / "package"
    options = ("--families", "qkv_attention,gemv,attention,norm,embedding", "--dtype", dtype)
    # So many tokens that they fill a tile.
    sizes = ("--chunk", 64, *OPTIONS[2:], "--tries", 1)
    program("compile", source, "-o", package, *sizes, *options)
    plan = json.loads((package / "plan.json").read_text())
    taken = [s for s in phase_of(plan, "prefill")["selections"] if s["family"] == "qkv_attention"]
    assert sum(selection["uses"] for selection in taken) == 2
    assert all("append_attend" in s["ops"] and "linear" in s["ops"] for s in taken)
    launches = phase_of(json.loads((package / "program.json").read_text()), "prefill")["launches"]
    kernels = [launch["kernel"].rsplit("_", 1)[0] for launch in launches]
    assert kernels.count("qkv_rope") == 2 and "rope_append" not in kernels
    # More than a chunk, and the first token alone.
    ids = tiny_models.prompt(name, 80)
    check(package, source, ids, 12, "--dtype", dtype)
    check(package, source, ids[:1], 12, "--dtype", dtype)
    assert json.loads(program("verify", package, "--json").stdout)["ok"]


@pytest.mark.parametrize("name, weights", [("qwen3_layers", None), ("qwen3_layers_of_codes", "int4:32")])
def test_layers_in_one_launch_give_the_tokens_of_the_reference(model, tmp_path, name, weights):
    source, package = model(name), tmp_path / "package"
    if weights:
        program("quantize", source, "-o", tmp_path / "codes", "--weights", weights)
        source = tmp_path / "codes"
    options = ("--families", "layers,gemv,attention,norm,embedding", "--unmeasured")
    program("compile", source, "-o", package, *OPTIONS, *options)
    decode = phase_of(json.loads((package / "plan.json").read_text()), "decode")
    assert ["2 layers"] in [s["ops"] for s in decode["selections"] if s["family"] == "layers"]
    launches = phase_of(json.loads((package / "program.json").read_text()), "decode")["launches"]
    assert sum(launch.get("at_once", False) for launch in launches) == 1
    check_package(package, source, name)
    assert json.loads(program("verify", package, "--json").stdout)["ok"]
    # The launch says where its time goes, and gives the same tokens afterwards.
    lines = json.loads(program("bench", package, "--context", 20, "--new", 2, "--timeline", "-o", "json").stdout)
    parts = [line for line in lines if line["what"] == "part"]
    (at,) = [line for line in lines if line["what"] == "timeline" and line["kernel"] == parts[0]["kernel"]]
    assert len(parts) == 15 and {part["launch"] for part in parts} == {at["launch"]}
    assert parts[0]["point"] == "q, k and v: its input is there" and parts[-1]["point"] == "down: handed on"
    assert all(0 <= part["least_us"] <= part["us"] and part["rounds"] == 2 for part in parts)
    assert 0 < sum(part["us"] for part in parts)


def test_the_host_has_no_library_unless_it_is_named(small, tmp_path):
    compile_package(small, tmp_path / "package")
    for region in verdicts(tmp_path / "package"):
        assert region["family"] != "cublaslt"
    result = program("compile", small, "-o", tmp_path / "no", "--families", "gemv,cublas", expect=2)
    assert "cublas" in result.stderr and "mma_gemm" in result.stderr
    assert not (tmp_path / "no").exists()


def test_a_package_for_a_gpu_says_what_its_library_was_not_asked(small, tmp_path):
    package = tmp_path / "package"
    compile_package(small, package, "--target", "sm_90", "--families", "cublaslt")
    text = program("inspect", package, "--stage", "verdicts").stdout
    assert "library call: admitted by its interface on the host device" in text
    final = text.split("final admission:")[1]
    assert "as used" in final and "races" in final
    text = program("verify", package).stdout
    assert "to be validated on the GPU" in text


def test_several_targets_get_a_package_each(small, tmp_path):
    packages = tmp_path / "packages"
    result = program(
        "compile", small, "-o", packages, *OPTIONS, "--tries", 0, "--json", "--target", "sm_80,sm_90"
    )
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [report["target"] for report in reports] == ["sm_80", "sm_90"]
    assert [report.get("uncalibrated", False) for report in reports] == [True, False]
    assert sorted(os.listdir(packages)) == ["sm_80", "sm_90"]
    for target in ("sm_80", "sm_90"):
        program("inspect", packages / target, "--stage", "stats")
    # One of them is meant where no device says which.
    for command in (("verify",), ("run", "--device", "host", "--ids", "1", "-n", "1")):
        result = program(command[0], packages, *command[1:], expect=2 if command[0] == "run" else 3)
        assert "sm_80" in result.stderr
    again = ("compile", small, "-o", packages, *OPTIONS, "--tries", 0)
    assert "--force" in program(*again, "--target", "sm_100,sm_80", expect=2).stderr
    assert sorted(os.listdir(packages)) == ["sm_80", "sm_90"]
    assert "twice" in program(*again, "--force", "--target", "sm_80,sm_80", expect=2).stderr
    assert "sm_12" in program(*again, "--target", "sm_12,sm_80", expect=2).stderr
    package = packages / "sm_80"
    assert "several" in program(*again[:3], package, *again[4:], "--target", "sm_80,sm_90", expect=2).stderr
