"""Packages stand on their own: their sources build with their own script, for a GPU and for the CPU, and
program.json replayed through the C wrappers gives the tokens of `agentcompile run`."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import damage
import pytest
import tiny_models
from compiled import phase_of
from package_program import Package

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
PROMPT, NEW_TOKENS = [5, 17, 3, 99, 8, 41, 7], 6


def program(*arguments, expect=0):
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert result.returncode == expect, result.stdout + result.stderr
    return result


def has_gpu() -> bool:
    return bool(json.loads(program("devices", "--json").stdout)["cuda"])


def build(package, target, **environment):
    return subprocess.run(
        ["./build.sh", target],
        cwd=package,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def compiled(tmp_path_factory, case, *options):
    folder = tmp_path_factory.mktemp("package")
    tiny_models.write_case(case, folder / "model")
    options = ("--max-context", 64, "--tries", 1, "--unmeasured", "-q", *options)
    program("compile", folder / "model", "-o", folder / "package", *options)
    return folder / "package"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    options = ("--chunk", 16, "--short-prompt", 1, "--all-logits", 3)
    return compiled(tmp_path_factory, "llama_gqa", *options)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    return compiled(tmp_path_factory, "llama_float16", "--chunk", 1, "--target", "sm_90")


@pytest.fixture(scope="module")
def alone(host, tmp_path_factory):
    """Somewhere else, without what AgentCompile itself runs, and built by its own script."""
    package = tmp_path_factory.mktemp("alone") / "package"
    shutil.copytree(host, package, ignore=shutil.ignore_patterns("host", "plan.json"))
    result = build(package, "host")
    assert result.returncode == 0, result.stderr
    return package


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def wrappers(package):
    kernels = json.loads((package / "program.json").read_text())["kernels"]
    assert kernels
    return {f"{kernel}{what}" for kernel in kernels for what in ("_launch", "_params_bytes")}


def test_package_alone_gives_the_tokens_of_run(host, alone):
    ids = ",".join(map(str, PROMPT))
    arguments = ("--ids", ids, "-n", NEW_TOKENS, "--logits", "--json")
    known = json.loads(program("run", host, *arguments).stdout)
    package = Package(alone)
    assert package.generate(PROMPT, 1) == known["generated"][:1]
    ours, theirs = package.logits().tolist(), known["last_logits"]
    assert max(abs(a - b) for a, b in zip(ours, theirs)) < 1e-3
    assert Package(alone).generate(PROMPT, NEW_TOKENS) == known["generated"]


def test_logits_of_all_rows_are_those_after_each_token(host, alone):
    def reference(tokens):
        ids = ",".join(map(str, PROMPT[:tokens]))
        options = ("--reference", "--ids", ids, "-n", 1, "--logits", "--json")
        return json.loads(program("run", host.parent / "model", *options).stdout)["last_logits"]

    truth = [reference(tokens) for tokens in range(1, 7)]
    together, apart, ours, theirs = Package(alone), Package(alone), [], []
    for ids in (PROMPT[:3], PROMPT[3:4], PROMPT[4:6]):
        chosen = together.step(ids, "all")
        ours += [together.logits(row) for row in range(len(ids))]
        assert chosen == ours[-1].argmax()
    for token in PROMPT[:6]:
        apart.step([token])
        theirs.append(apart.logits())
    for expected, got in ((truth, ours), (truth, theirs), (theirs, ours)):
        assert max(abs(a - b) for row, of in zip(expected, got, strict=True) for a, b in zip(row, of, strict=True)) < 1e-4
    assert max(abs(a - b) for a, b in zip(truth[0], truth[1])) > 0.01
    # What follows them is what follows a prompt.
    known = json.loads(program("run", host, "--ids", ",".join(map(str, PROMPT[:6])), "-n", 4, "--json").stdout)
    assert [chosen, *(chosen := together.step([chosen]) for _ in range(3))] == known["generated"]


def test_wrappers_report_errors(alone):
    package = Package(alone)
    launch = dict(phase_of(package.program, "decode")["launches"][0], threads=4096)
    with pytest.raises(AssertionError, match="a block of 4096 threads"):
        package.launch(launch, 1)


@pytest.mark.skipif(not Path(NVCC).exists(), reason="no nvcc here")
def test_sources_build_for_a_gpu(gpu):
    result = build(gpu, "sm_90a", NVCC=NVCC)
    assert result.returncode == 0, result.stderr
    (library,) = gpu.glob("*.so")
    assert exported(library) == wrappers(gpu) | {f"{library.stem[3:-8]}_error"}
    library.unlink()


def test_build_script_says_what_is_missing(host):
    none = build(host, "host", CXX="no-such-compiler")
    assert none.returncode == 1 and "no-such-compiler is missing" in none.stderr
    none = build(host, "sm_90a", NVCC="no-such-nvcc")
    assert none.returncode == 1 and "nvcc is missing" in none.stderr
    bare = build(host, "host", CXX="false")
    assert bare.returncode == 1 and "fmt and Boost.Context" in bare.stderr
    assert build(host, "90").returncode == 1


def test_package_holds_only_what_its_kernels_reach(host, gpu):
    for package in (host, gpu):
        present = {p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file()}
        reached, waiting = set(), ["kernels.cu", "wrappers.cc"]
        waiting += [name for name in present if name.startswith("kernels/shim/") and name.endswith(".cc")]
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            for line in (package / name).read_text().splitlines():
                if line.startswith('#include "'):
                    waiting.append(line.split('"')[1])
        sources = {name for name in present if name.endswith((".h", ".cc", ".cu", ".cuh"))}
        assert sources == reached
        assert {"CMakeLists.txt", "README.md", "build.sh", "plan.json"} <= present
        assert str(ROOT) not in (package / "wrappers.h").read_text()


# ---- inspect and verify


@pytest.fixture
def tampered(host, tmp_path):
    """A copy of the package whose plan.json an edit changes."""

    def make(edit):
        package = tmp_path / "tampered"
        shutil.copytree(host, package)
        plan = json.loads((package / "plan.json").read_text())
        edit(plan)
        (package / "plan.json").write_text(json.dumps(plan))
        damage.sign(package)  # what is said of the plan itself is asked here
        return package

    return make


def stage(package, name):
    program("inspect", package, "--stage", name)  # as text
    return json.loads(program("inspect", package, "--stage", name, "--json").stdout)


def test_inspect_shows_how_a_package_came_to_be(host):
    running = json.loads((host / "program.json").read_text())
    regions, candidates = stage(host, "regions"), stage(host, "candidates")
    verdicts, selection, stats = stage(host, "verdicts"), stage(host, "selection"), stage(host, "stats")
    for phase in ("prefill", "decode", "all logits"):
        counts = stats[phase]
        assert sum(r["regions"] for r in regions[phase]["table"]) == counts["regions"]
        assert counts["enumerated"] == counts["legal"] + sum(counts["illegal"].values())
        for space in candidates[phase]["spaces"]:
            costs = list(space["candidates"].values())
            assert costs == sorted(costs) and len(costs) <= 64
        assert counts["tried"] == len(verdicts[phase]["verdicts"])
        assert counts["tried"] == counts["validated"] + sum(counts["failed"].values())
        outcomes = [o for space in candidates[phase]["spaces"] for o in space["outcomes"].items()]
        assert {id for id, outcome in outcomes if outcome == "selected"} == {
            s["candidate"] for s in selection[phase]["selection"] if s["candidate"]
        }
        # What ends a step belongs to no region.
        assert phase_of(running, phase)["notes"][-1] == "advance"
        assert counts["launches"] == len(phase_of(running, phase)["launches"]) - 1
        shares = counts["components"]
        assert shares["generated"]["calls"] + shares["fallback"]["calls"] == counts["launches"]
        for measure in ("calls", "bytes", "flops"):
            assert sum(part[f"{measure}_share"] for part in shares.values()) == pytest.approx(1)
        ranked = {id for space in candidates[phase]["spaces"] for id in space["candidates"]}
        assert {s["candidate"] for s in selection[phase]["selection"]} <= ranked
    stages = [time["stage"] for time in stats["stages"]]
    assert stages[:3] == ["capture", "normalise", "incrementalise"] and stages[-1] == "check"
    assert all(time["seconds"] >= 0 for time in stats["stages"])
    assert stats["kernels"] == stats["launch_signatures"] >= len(running["kernels"])
    # Others compute one token by itself, beside kernels for several, and are judged with them.
    plan = json.loads((host / "plan.json").read_text())
    trials = [trial for phase in plan["phases"] for s in phase["selections"] for trial in s["trials"]]
    alone = {launch["kernel"] for trial in trials for launch in trial.get("alone", [])}
    assert alone and plan["kernels"].keys() == running["kernels"].keys() | alone
    assert len(plan["kernels"]) == stats["kernels"]
    assert stats["emitted_files"] == sum(p.is_file() for p in host.rglob("*"))
    assert (host / "plan.json").stat().st_size < 1 << 20


def test_inspect_refuses_what_a_package_has_not(host, tmp_path):
    assert "is a package" in program("inspect", host, "--stage", "graph", expect=2).stderr
    assert "no package" in program("inspect", tmp_path, "--stage", "stats", expect=2).stderr


def test_verify_admits_a_good_package_again(host):
    result = json.loads(program("verify", host, "--json", "-q").stdout)
    assert result["ok"] and not result["faults"]
    assert {trial["outcome"]["kind"] for trial in result["trials"]} == {"admitted"}
    phases = {"prefill", "prefill to 2", "decode", "all logits", "draw", "mask"}
    assert {trial["phase"] for trial in result["trials"]} == phases


def norm_only(plan):
    """Keeps the selection of the norm alone, so that little must be judged; returns its kernel."""
    chosen = [s for s in phase_of(plan, "prefill")["selections"] if s["family"] == "norm"]
    phase_of(plan, "prefill")["selections"], phase_of(plan, "decode")["selections"] = chosen, []
    plan["phases"] = [phase for phase in plan["phases"] if phase["name"] in ("prefill", "decode")]
    return chosen[0]["kernels"][0]


def test_verify_rejects_a_kernel_with_a_wrong_epsilon(tampered):
    def edit(plan):
        entry = norm_only(plan)
        kernel = plan["kernels"][entry]
        right = f"AC_NORM_KERNEL({entry}, op, plan)"
        assert right in kernel["source"]
        kernel["source"] = kernel["source"].replace(
            right,
            f"AC_KERNEL_ENTRY({entry}, ::ac::kernels::NormParams, (plan).threads, 1,"
            "::ac::kernels::NormParams q = p; q.eps *= 2; ::ac::kernels::norm<op, plan>(q))",
        )

    result = program("verify", tampered(edit), "--json", "-q", expect=1)
    # One of its region, one of each phase's end, that of drawing and that of masks.
    assert "1 of 5 trials were not admitted" in result.stderr
    verdict = json.loads(result.stdout)
    outcome = verdict["trials"][0]["outcome"]
    assert outcome["kind"] == "rejected" and "numerics" in outcome["why"]
    assert any("kernels.cu holds other kernels" in fault for fault in verdict["faults"])
    assert any("which no trial of it has run" in fault for fault in verdict["faults"])


def test_verify_rejects_a_wrong_end_of_a_step(tampered):
    def edit(plan):
        norm_only(plan)
        entry = phase_of(plan, "decode")["ending"]["kernels"][0]
        plan["kernels"][entry]["source"] += f"// {entry}\n"

    package = tampered(edit)
    header = package / "kernels/advance.cuh"
    text = header.read_text()
    assert text.count("+ p.tokens;") == 1
    header.write_text(text.replace("+ p.tokens;", "+ 2 * p.tokens;"))
    verdict = json.loads(program("verify", package, "--json", "-q", expect=1).stdout)
    rejected = [t for t in verdict["trials"] if t["outcome"]["kind"] != "admitted"]
    assert {(t["phase"], t["candidate"]) for t in rejected} == {
        ("prefill", "advance"),
        ("decode", "advance"),
    }


def test_verify_says_where_it_judges(tampered, host):
    package = tampered(norm_only)
    for options in ((), ("--device", "host", "--checkpoint", host.parent / "model")):
        verdict = json.loads(program("verify", package, "--json", "-q", *options, expect=1).stdout)
        assert verdict["judged_on"] == "host"
    other = program("verify", package, "--checkpoint", package / "kernels", "-q", expect=1).stdout
    assert "no weights" in other
    # Never on another device than the package is for.
    program("verify", package, "--device", "cuda", expect=1 if not has_gpu() else 2)


def test_verify_builds_with_the_headers_of_the_package(tampered):
    package = tampered(norm_only)
    header = package / "kernels/norm.cuh"
    text = header.read_text()
    assert "squares / length + p.eps" in text
    header.write_text(text.replace("squares / length + p.eps", "squares / (length + p.eps)"))
    verdict = json.loads(program("verify", package, "--json", "-q", expect=1).stdout)
    assert verdict["trials"][0]["outcome"]["kind"] == "rejected"
    assert '"kernels/norm.cuh" is not the file that was compiled' in verdict["faults"]


def test_verify_sees_files_and_selections_that_do_not_agree(tampered):
    def edit(plan):
        norm_only(plan)
        phase_of(plan, "prefill")["selections"][0]["trials"] = []
        phase_of(plan, "prefill")["ending"]["confirmed"] = []
        phase_of(plan, "decode")["ending"]["confirmed"][0]["outcome"]["kind"] = "rejected"

    package = tampered(edit)
    (package / "constants.bin").write_bytes(bytes(32))
    next((package / "host").glob("gemm_*.so")).unlink()
    faults = json.loads(program("verify", package, "--json", "-q", expect=1).stdout)["faults"]
    assert '"constants.bin" is not the file that was compiled' in faults
    assert any(".so\" is missing" in fault for fault in faults)
    assert any("no admitted trial of it" in fault for fault in faults)
    assert sum("without the final admission of it" in fault for fault in faults) == 2


def hostile(plan, what):
    norm = phase_of(plan, "prefill")["selections"][1]
    trial = norm["trials"][0]
    launch = trial["launches"][0]
    if what == "buffer":
        next(b for b in trial["buffers"] if "node" in b)["node"] = 1 << 30
    elif what == "pointer":
        launch["pointers"][0][1] = 99
    elif what == "parameters":
        launch["params"] = launch["params"][:16]
    elif what == "grid":
        launch["grid"][0] = 1 << 40
    elif what == "tokens":
        trial["tokens"] = -1
    elif what == "step":
        trial["step"] = "step \"x\" {"
    elif what == "source":
        del plan["kernels"][norm["kernels"][0]]
    elif what == "entry":
        plan["kernels"]["../x y"] = {"source": ""}
    elif what == "types":
        plan["phases"][-1] = 7
    elif what == "format":
        plan["format"] += 1


@pytest.mark.parametrize(
    "what",
    "buffer pointer parameters grid tokens step source entry types format".split(),
)
def test_hostile_plans_are_bad_input(tampered, what):
    package = tampered(lambda plan: hostile(plan, what))
    assert "plan.json" in program("verify", package, "-q", expect=3).stderr


def test_truncated_plans_are_bad_input(host, tmp_path):
    package = tmp_path / "truncated"
    shutil.copytree(host, package)
    text = (package / "plan.json").read_text()
    for cut in (0, 1, len(text) // 2, len(text) - 3):
        (package / "plan.json").write_text(text[:cut])
        damage.sign(package)
        assert "plan.json" in program("verify", package, "-q", expect=3).stderr
        assert "plan.json" in program("inspect", package, "--stage", "stats", expect=3).stderr
    (package / "plan.json").write_text('{"format": 1}')
    damage.sign(package)
    assert "plan.json" in program("inspect", package, "--stage", "stats", expect=3).stderr
    (package / "plan.json").unlink()
    assert "plan.json: is missing" in program("verify", package, "-q", expect=3).stderr
    (package / "program.json").unlink()
    assert "program.json: is missing" in program("verify", package, "-q", expect=3).stderr
    (package / "digests.json").unlink()
    assert "no program.json" in program("verify", package, "-q", expect=3).stderr


def test_digests_name_no_file_outside_of_the_package(host, tmp_path):
    package = tmp_path / "package"
    shutil.copytree(host, package)
    for name in ("../../etc/passwd", "/etc/passwd", "host/../program.json", ""):
        digests = {"files": {name: "0" * 64}}
        text = json.dumps(digests["files"], separators=(",", ":"))
        digests["sha256_of_files"] = hashlib.sha256(text.encode()).hexdigest()
        (package / "digests.json").write_text(json.dumps(digests))
        for command in ("verify", "inspect"):
            options = ("-q",) if command == "verify" else ("--stage", "stats")
            assert "digests.json: is damaged" in program(command, package, *options, expect=3).stderr
