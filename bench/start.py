#!/usr/bin/env python3
"""How fast a name becomes an answer, on this machine's GPU: JSON lines on stdout, what happens on stderr.

  start.py PROGRAM CONFIG TOKENIZER [--max-context N] [--parts PARTS] [--trace FOLDER]

CONFIG is a config.json, whose geometry is run with random weights; TOKENIZER a folder with a tokenizer.json. Each part
begins with an empty cache but the last two:

  start   chat: the first answer by quick kernels, and when the full package has come and is taken up
  full    compile alone, with a timeline
  known   compile again with an empty cache, with what `full` chose as known choices; then as `start` does
  warm    generate, with the cache of `start`
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path


class Bench:
    def __init__(self, arguments, work):
        self.program = str(Path(arguments.program).resolve())
        self.work = work
        self.model = work / arguments.config.stem
        self.model.mkdir()
        shutil.copy(arguments.config, self.model / "config.json")
        for file in arguments.tokenizer.iterdir():
            if file.is_file() and file.name != "config.json":
                shutil.copy(file, self.model)
        (self.model / "chat_template.jinja").write_text(
            "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"
        )
        self.context = arguments.max_context
        self.trace, self.device = arguments.trace, arguments.device
        self.common = {"model": f"{arguments.config.stem} (config alone)", "cores": os.cpu_count()}

    def say(self, **figures):
        print(json.dumps({**self.common, **figures}), flush=True)

    def cache(self, name):
        folder = self.work / f"cache-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        return self.environment(folder)

    @staticmethod
    def environment(folder):
        return {**os.environ, "XDG_CACHE_HOME": str(folder), "HF_HUB_OFFLINE": "1"}

    def options(self):
        return ["--device", self.device, "--random-weights", "1", "--max-context", str(self.context), "--temp", "0"]

    def chat(self, environment, what):
        """Until the full package has answered once."""
        began = time.monotonic()
        since = lambda: round(time.monotonic() - began, 2)
        process = subprocess.Popen(
            [self.program, "chat", str(self.model), "--json", *self.options(), "-n", "64"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        said = []

        def listen():
            for line in process.stderr:
                said.append((since(), line.rstrip()))
                print(f"{since():8.2f} {line.rstrip()}", file=sys.stderr)

        threading.Thread(target=listen, daemon=True).start()

        def ask():
            asked = since()
            process.stdin.write("Once upon a time there was a compiler.\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"chat ended: {said[-3:]}")
            timings = json.loads(line)["timings"]
            return asked, timings

        _, quick = ask()
        first = since()
        packages = Path(environment["XDG_CACHE_HOME"]) / "agentcompile/packages"
        package = next(path for path in packages.iterdir() if path.is_dir() and path.name[0] != ".")
        is_quick = lambda: json.loads((package / "program.json").read_text())["quick"]
        while is_quick() and since() < 550 and process.poll() is None:
            time.sleep(0.2)
        full = since()
        time.sleep(0.5)
        asked, timings = ask()
        self.say(
            what=what,
            first_answer_seconds=first - quick.get("ms_per_token", 0) * 63e-3,
            first_answer_with_64_tokens_seconds=first,
            full_package_seconds=None if is_quick() else full,
            taken_up_seconds=since() - asked,
            quick_ms_per_token=quick.get("ms_per_token"),
            full_ms_per_token=timings.get("ms_per_token"),
        )
        process.stdin.close()
        process.wait(timeout=60)

    def compile(self, environment, package, *options):
        began = time.monotonic()
        command = [self.program, "compile", str(self.model), "-o", str(package), "--device", self.device,
                   "--max-context", str(self.context), "--json", *options]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        if result.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {result.returncode}")
        return time.monotonic() - began, json.loads(result.stdout)

    def say_compiled(self, what, seconds, made, timeline, package):
        """With what the timeline says: seconds of each stage, and of the lab by what it did."""
        stages, lab, lanes = {}, defaultdict(float), defaultdict(float)
        for event in json.loads(timeline.read_text())["traceEvents"]:
            if event["ph"] != "X":
                continue
            length = event["dur"] / 1e6
            if event["cat"] == "stages":
                stages[event["name"]] = round(length, 2)
            elif event["cat"] == "lab":
                lab[event["name"]] += length
            else:
                lanes[event["cat"]] += length  # one after the other
        plan = json.loads((package / "plan.json").read_text())
        if self.trace:
            self.trace.mkdir(parents=True, exist_ok=True)
            shutil.copy(timeline, self.trace / f"{self.model.name}-{what}.trace.json")
        self.say(
            what=what, seconds=round(seconds, 2), quick=made["quick"], stages=stages,
            lab={name: round(value, 2) for name, value in lab.items()},
            cores_busy={name: round(value, 2) for name, value in lanes.items()},
            judged=sum(a["outcome"]["kind"] != "unjudged" for p in plan["phases"] for s in p["selections"] for a in s["attempts"]),
            tried=sum(len(s["attempts"]) for p in plan["phases"] for s in p["selections"]),
            device=plan["device"], toolkit=plan["toolkit"],
        )

    def measure(self, what, package):
        result = subprocess.run(
            [self.program, "bench", str(package), "--random-weights", "1", "--json", "--new", "128",
             "--context", "128,2048", "--prompt", "128,2048"],
            stdout=subprocess.PIPE, text=True,
        )
        for line in result.stdout.splitlines():
            self.say(of=what, **json.loads(line))

    def full(self, quick):
        for what, options in (("quick", ["--quick", "--no-tuned"]), ("full", ["--no-tuned"])):
            if what == "quick" and not quick:
                continue
            package, timeline = self.work / what, self.work / f"{what}.trace.json"
            seconds, made = self.compile(self.cache(what), package, *options, "--timeline", str(timeline))
            self.say_compiled(what, seconds, made, timeline, package)
            self.measure(what, package)

    def known(self):
        tuned = self.work / "tuned"
        tuned.mkdir(exist_ok=True)
        file = tuned / f"{self.model.name}.json"
        subprocess.run([self.program, "tuned", "export", str(self.work / "full"), "-o", str(file)], check=True, stdout=sys.stderr)
        if self.trace:
            self.trace.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, self.trace)
        package, timeline = self.work / "known", self.work / "known.trace.json"
        seconds, made = self.compile(self.cache("known"), package, "--tuned", str(tuned), "--timeline", str(timeline))
        self.say_compiled("known", seconds, made, timeline, package)
        self.measure("known", package)

    def warm(self):
        environment = self.environment(self.work / "cache-start")
        for attempt in range(3):
            began = time.monotonic()
            process = subprocess.Popen(
                [self.program, "generate", str(self.model), "-p", "Once", "-n", "64", *self.options()],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            )
            process.stdout.read(1)
            first = time.monotonic() - began
            process.stdout.read()
            process.wait()
            self.say(what="warm", attempt=attempt, first_character_seconds=round(first, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("config", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--max-context", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", default="start,warm,quick,full,known")
    parser.add_argument("--trace", type=Path)
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, Path(folder))
        if "start" in parts:
            bench.chat(bench.cache("start"), "start")
        if "warm" in parts:
            bench.warm()
        if "quick" in parts or "full" in parts or "known" in parts:
            bench.full("quick" in parts)
        if "known" in parts:
            bench.known()


if __name__ == "__main__":
    main()
