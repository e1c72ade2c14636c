#!/usr/bin/env python3
"""Time to the first token of a conversation that goes on, by where its beginning is known from: JSON lines on stdout.

  prefix_cache.py PROGRAM PACKAGE [--tokens 1000] [--more 50] [--step TOKENS] [--rounds N] [--pause SECONDS]
                  [--only WHAT,...] [--serve OPTION...]

A prompt of --tokens was asked before. Each round asks for one token after the same prompt and --more tokens, which differ
from round to round, and takes the time of that as its client sees it:

  here    nothing else was asked: the engine still has the prompt
  device  another prompt, of one token, came between; the server keeps prompts in the device's memory
  memory  the same, and it keeps them in the host's memory alone
  disk    it was started anew, over the folder that the last one left
  cold    it keeps nothing

Before each request nothing is asked for --pause seconds (disk: not at all). `known` is how many of its tokens were not run.
`bare_s` is the time of a prompt of one token: what every request takes.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path


class Server:
    def __init__(self, program, package, *options):
        command = [program, "serve", package, "--port", "0", "-q", *map(str, options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def ask(self, prompt, pause) -> tuple[float, int]:
        time.sleep(pause)
        body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0}).encode()
        request = urllib.request.Request(f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
        begin = time.monotonic()
        with urllib.request.urlopen(request) as response:
            answer = json.load(response)
        return time.monotonic() - begin, answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("package")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--more", type=int, default=50)
    parser.add_argument("--step", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=1)
    parser.add_argument("--only", default="here,device,memory,cold,disk")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="options of serve, the last ones")
    a = parser.parse_args()
    program = json.loads((Path(a.package) / "program.json").read_text())
    begun = [7 + i * i % 300 for i in range(a.tokens)]
    other = [5]
    step = (*(("--cache-step", a.step) if a.step else ()), *a.serve)

    def prompt(turn):
        return begun + [11 + turn + 3 * i % 300 for i in range(a.more)]

    def say(what, seconds, known, bare):
        figures = {"first_token_s": round(statistics.median(seconds), 4), "least_s": round(min(seconds), 4)}
        figures |= {"bare_s": round(statistics.median(bare), 4)} if bare else {}
        figures |= {"most_s": round(max(seconds), 4), "rounds": len(seconds), "known": known}
        about = {"model": program["model"], "target": program["target"], "tokens": a.tokens, "more": a.more}
        about |= {"step": a.step, "pause_s": a.pause}
        print(json.dumps({"what": what, **figures, **about}), flush=True)

    only = a.only.split(",")
    alone = ("--cache-device-memory", 0)
    for what, options in (("here", ()), ("device", ()), ("memory", alone), ("cold", (*alone, "--cache-memory", 0))):
        if what not in only:
            continue
        seconds, bare = [], []
        with Server(a.program, a.package, *step, *options) as server:
            if what != "cold":
                server.ask(begun, 0)
            for turn in range(a.rounds):
                if what != "here":
                    bare.append(server.ask(other, a.pause)[0])
                took, known = server.ask(prompt(turn), a.pause)
                seconds.append(took)
        say(what, seconds, known, bare)
    if "disk" not in only:
        return
    seconds, bare = [], []
    with tempfile.TemporaryDirectory() as folder:
        options = (*step, "--cache-dir", os.path.join(folder, "states"))
        with Server(a.program, a.package, *options) as server:
            server.ask(begun, 0)
        for turn in range(a.rounds):
            with Server(a.program, a.package, *options) as server:
                bare.append(server.ask(other, 0)[0])
                took, known = server.ask(prompt(turn), 0)
                seconds.append(took)
    say("disk", seconds, known, bare)


if __name__ == "__main__":
    main()
