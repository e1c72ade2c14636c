#!/usr/bin/env python3
"""Times llama.cpp with one request, as lines of JSON:
    time_llama_cpp.py FILE.gguf
It runs `llama-bench`, which must be on the PATH, and warms up by itself. Of the first token it says nothing."""

import json
import subprocess

import timing


def main():
    arguments = timing.parser(__doc__)
    arguments.add_argument("file")
    arguments.add_argument("--program", default="llama-bench")
    given = timing.parse(arguments)
    for tokens in given.workloads:
        pair = f"{tokens[0]},{tokens[1]}"
        command = [given.program, "-m", given.file, "-p", "0", "-n", "0", "-pg", pair, "-ngl", "999"]
        command += ["-r", str(given.repeat), "-o", "json"]
        (result,) = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        seconds = [nanoseconds * 1e-9 for nanoseconds in result["samples_ns"]]
        assert (result["n_prompt"], result["n_gen"], len(seconds)) == (*tokens, given.repeat), result
        line = timing.record(
            "llama.cpp",
            tokens,
            given,
            seconds,
            [],
            model=result["model_type"],
            device=result["gpu_info"] or result["cpu_info"],
            versions={"llama.cpp": result["build_commit"]},
        )
        print(json.dumps(line), flush=True)


main()
