#!/usr/bin/env python3
"""Time from one token to the next of a streamed answer, as a client on this machine sees it: JSON lines on stdout.

  serve_pace.py PACKAGE PROGRAM... [--tokens 200] [--rounds 20]

Each PROGRAM is a build of agentcompile. All serve the package at once; each round asks each of them in turn for the same answer.
The median of a round's times says little where other programs run: `least_us` is that of the fastest round.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import time


class Server:
    def __init__(self, program, package):
        command = [program, "serve", package, "--port", "0", "-q"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rpartition(":")[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)

    def pace(self, tokens) -> tuple[float, float]:
        """Median and mean microseconds from one event to the next. Greedy, on the device's own choice."""
        body = {"prompt": "Once", "max_tokens": tokens, "temperature": 0, "stream": True}
        self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response, times = self.connection.getresponse(), []
        while line := response.fp.readline():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
            elif line.startswith(b"data: [DONE]"):
                break
        while response.fp.readline().strip() != b"0":
            pass
        response.fp.readline(), response.close()
        gaps = [1e6 * (after - before) for before, after in zip(times[1:], times[2:])]
        return statistics.median(gaps), statistics.mean(gaps)

    def end(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    a = parser.parse_args()
    servers = [Server(program, a.package) for program in a.programs]
    paces = [[] for _ in servers]
    try:
        for _ in range(a.rounds):
            for server, of in zip(servers, paces):
                of.append(server.pace(a.tokens))
    finally:
        [server.end() for server in servers]
    for i, of in enumerate(paces):
        medians, means = zip(*of)
        figures = {"median_us": statistics.median(medians), "least_us": min(medians), "mean_us": statistics.median(means)}
        about = {"program": i, "tokens": a.tokens, "rounds": a.rounds, "cores": os.cpu_count()}
        print(json.dumps({"what": "time between tokens", **{key: round(value, 1) for key, value in figures.items()}, **about}))


if __name__ == "__main__":
    main()
