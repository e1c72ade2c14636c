#!/usr/bin/env python3
"""Times one request with AgentCompile and with others, on the same geometry with random weights:

    compare.py CONFIG -o OUT.jsonl [--gguf FILE]     CONFIG: a config.json
    compare.py CONFIG -o OUT.jsonl --ablate          AgentCompile alone, with each of its mechanisms left out;
                                                     --context 128,2048: a token after so many, not a request
    compare.py --tables OUT.jsonl                    what was recorded, as tables in Markdown

Others are transformers with PyTorch eager, transformers with torch.compile, vLLM, and llama.cpp with a GGUF file of
the same geometry. Those that are not installed are left out, and the tables say so. Each one runs in a process of its
own, one after another. OUT.jsonl is appended to."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import timing

HERE = pathlib.Path(__file__).resolve().parent
SYSTEMS = ("agentcompile", "eager", "torch.compile", "vllm", "llama.cpp")
NEW_TOKENS = 128  # after each context
FAMILIES = "cublaslt,gemm,mma_gemm,attention,prefill_attention,norm,softmax,reduction,elementwise,embedding"
# What is left out when the package is compiled, and by which options; each has less than the one before it.
PACKAGES = (
    ("whole_step", ["--step-seconds", "0"]),
    ("whole_step, fusion", ["--step-seconds", "0", "--no-fusion"]),
    ("whole_step, fusion, gemv", ["--step-seconds", "0", "--no-fusion", "--families", FAMILIES]),
)


def find_program() -> str:
    for file in (HERE.parents[1] / "bin/agentcompile", HERE.parents[1] / "build/release/agentcompile"):
        if file.exists():
            return str(file)
    return "agentcompile"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Comparison:
    def __init__(self, given, work: pathlib.Path):
        self.given, self.work, self.failed = given, work, False
        self.model = work / "model"
        workload = ["--workload", given.workload]
        self.times = [*workload, "--repeat", str(given.repeat), "--warm-up", str(given.warm_up)]

    def write(self, line: dict) -> None:
        with open(self.given.output, "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    def left_out(self, system: str, reason: str) -> None:
        say(f"{system}: left out: {reason}")
        self.write({"what": "left out", "system": system, "reason": reason})

    def measure(self, system: str, command: list, **fields) -> None:
        """Runs it, and keeps its lines as they come."""
        say(f"{system}: {' '.join(map(str, command))}")
        with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as process:
            for text in process.stdout:
                # What each one calls the model differs.
                model = pathlib.Path(self.given.config).stem
                self.write({"system": system, **json.loads(text), "model": model, **fields})
        if process.returncode != 0:
            self.failed = True
            self.left_out(system, f"it ended with exit code {process.returncode}")

    def make_model(self) -> None:
        """With random weights, for those that need some."""
        if self.model.exists():
            return
        command = [sys.executable, HERE.parent / "compare_transformers.py", "make", self.given.config, self.model]
        subprocess.run([*command, "--dtype", self.given.dtype], check=True, stdout=sys.stderr)

    def compile(self, package: pathlib.Path, options: list) -> bool:
        most = max(sum(tokens) for tokens in self.given.workloads)
        if self.given.context:
            most = max(map(int, self.given.context.split(","))) + 2 * NEW_TOKENS
        geometry = self.work / "geometry"  # without weights: the package gets random ones
        geometry.mkdir(exist_ok=True)
        shutil.copy(self.given.config, geometry / "config.json")
        command = [self.given.program, "compile", geometry, "-o", package, "--device", self.given.device]
        command += ["--dtype", self.given.dtype, "--max-context", most, *self.given.compile_options.split(), *options]
        say(" ".join(map(str, command)))
        return subprocess.run([*map(str, command)], stdout=sys.stderr).returncode == 0

    def agentcompile(self, name: str, options: list, bench: list, **fields) -> None:
        package = self.work / name
        if self.compile(package, options):
            times = ["--context", self.given.context, "--new", NEW_TOKENS] if self.given.context else self.times
            command = [self.given.program, "bench", package, "--random-weights", "1", *times, *bench]
            command += ["-o", "jsonl"]
            self.measure("agentcompile", command, **fields)
        else:
            self.failed = True
            self.left_out("agentcompile", "it does not compile")

    def ablate(self) -> None:
        self.agentcompile("whole", [], ["--ablate"])
        for left_out, options in PACKAGES:
            self.agentcompile(left_out.replace(", ", "-"), options, [], left_out=left_out)

    def has(self, module: str) -> bool:
        found = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
        return found.returncode == 0

    def compare(self) -> None:
        python = [sys.executable]
        for system in self.given.systems:
            if system == "agentcompile":
                self.agentcompile("package", [], [])
            elif system in ("eager", "torch.compile"):
                self.make_model()
                script = [*python, HERE / "time_transformers.py", self.model, *self.times]
                self.measure(system, script + ["--compile"] * (system == "torch.compile"))
            elif system == "vllm" and not self.has("vllm"):
                self.left_out(system, "it is not installed")
            elif system == "vllm":
                self.make_model()
                self.measure(system, [*python, HERE / "time_vllm.py", self.model, *self.times])
            elif not shutil.which("llama-bench"):
                self.left_out(system, "llama-bench is not on the PATH")
            elif not self.given.gguf:
                self.left_out(system, "it needs a GGUF file: --gguf FILE")
            else:
                self.measure(system, [*python, HERE / "time_llama_cpp.py", self.given.gguf, *self.times])


def table(head: list, rows: list) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows])


def tables(lines: list) -> str:
    """Latency, speed beside PyTorch eager, and what each mechanism is worth: the newest record of each."""
    whole, parts, reasons = {}, {}, {}
    for line in lines:
        if line["what"] == "left out":
            reasons[line["system"]] = line["reason"]
        elif "left_out" in line:
            parts[line["left_out"], line["workload"]] = line
        else:
            whole[line["system"], line["workload"]] = line
    out = ""
    workloads = list(dict.fromkeys(workload for _, workload in whole))
    systems = [system for system in SYSTEMS if any(key[0] == system for key in whole)]

    def cells(of, name, columns, text):
        return [text(of[name, column]) if (name, column) in of else "" for column in columns]

    if whole:
        latency = [[system, *cells(whole, system, workloads, lambda r: f"{r['ms']:.1f}")] for system in systems]
        out += "## Milliseconds of a request\n\n" + table(["system", *workloads], latency)
        token = [
            [system, *cells(whole, system, workloads, lambda r: f"{r['ms_token']:.3f}" if "ms_token" in r else "")]
            for system in systems
        ]
        out += "\n## Milliseconds a token, after the first\n\n" + table(["system", *workloads], token)
    if any(key[0] == "eager" for key in whole):

        def speed(line):
            eager = whole.get(("eager", line["workload"]))
            return f"{eager['ms'] / line['ms']:.2f}" if eager else ""

        rows = [[system, *cells(whole, system, workloads, speed)] for system in systems]
        out += "\n## Times as fast as PyTorch eager\n\n" + table(["system", *workloads], rows)
    if parts:
        names = list(dict.fromkeys(name for name, _ in parts))
        columns = list(dict.fromkeys(workload for _, workload in parts))
        rows = [[name, *cells(parts, name, columns, lambda r: f"{r['ms']:.1f}")] for name in names]
        out += ("\n" if out else "") + "## Milliseconds of a request, with mechanisms left out\n\n"
        out += table(["left out", *columns], rows)
    missing = {system: reason for system, reason in reasons.items() if system not in systems}
    if missing:
        out += "\n" + "".join(f"- {system} is left out: {reason}\n" for system, reason in missing.items())
    return out


def read(file: str) -> list:
    lines = []
    for number, text in enumerate(pathlib.Path(file).read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            if line["what"] not in ("workload", "left out"):
                continue
            lines.append(line)
        except (ValueError, KeyError, TypeError):
            sys.exit(f"{file}: line {number} is no record of a measurement")
    return lines


def main() -> int:
    arguments = timing.parser(__doc__)
    arguments.add_argument("config", nargs="?")
    arguments.add_argument("--output", "-o", help="a file of JSON lines, which is appended to")
    arguments.add_argument("--systems", default=",".join(SYSTEMS), help=",".join(SYSTEMS))
    arguments.add_argument("--ablate", action="store_true", help="AgentCompile alone, and less of it each time")
    arguments.add_argument("--context", help="with --ablate: numbers of cached tokens to decode after")
    arguments.add_argument("--dtype", default="bfloat16", help="float32, float16 or bfloat16 (bfloat16)")
    arguments.add_argument("--device", default="cuda", help="what AgentCompile compiles for: cuda or host")
    arguments.add_argument("--compile-options", default="", help="further options of `agentcompile compile`")
    arguments.add_argument("--gguf", help="the file for llama.cpp")
    arguments.add_argument("--program", default=find_program(), help="agentcompile")
    arguments.add_argument("--tables", metavar="FILE", help="print tables of what a file recorded")
    given = timing.parse(arguments)
    if given.tables:
        print(tables(read(given.tables)), end="")
        return 0
    if not given.config or not given.output:
        arguments.error("CONFIG and -o OUT.jsonl are needed")
    if given.context and not (given.ablate and re.fullmatch(r"\d+(,\d+)*", given.context)):
        arguments.error("--context is a list of numbers, and goes with --ablate")
    given.systems = given.systems.split(",")
    if unknown := set(given.systems) - set(SYSTEMS):
        arguments.error(f"--systems: {', '.join(unknown)} is none of {', '.join(SYSTEMS)}")
    with tempfile.TemporaryDirectory(prefix="agentcompile-compare-") as work:
        comparison = Comparison(given, pathlib.Path(work))
        comparison.ablate() if given.ablate else comparison.compare()
    print(tables(read(given.output)), end="")
    return 1 if comparison.failed else 0


if __name__ == "__main__":
    sys.exit(main())
