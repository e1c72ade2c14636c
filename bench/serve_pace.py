#!/usr/bin/env python3
"""Time from one token to the next of a streamed answer, as a client on this machine sees it: JSON lines on stdout.

  serve_pace.py PACKAGE PROGRAM... [--tokens 200] [--rounds 20] [--serve OPTION...]

Each PROGRAM is a build of agentcompile. All serve the package at once; each round asks each of them in turn for the same answer,
and takes the mean from its first token to its last. `least_us` is the fastest round's, which other programs disturb least.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import time


class Server:
    def __init__(self, program, package, options):
        command = [program, "serve", package, "--port", "0", "-q", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rpartition(":")[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)

    def pace(self, tokens) -> float:
        """Mean microseconds from one event to the next. Greedy, by the device's own choice."""
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
        return 1e6 * (times[-1] - times[0]) / (len(times) - 1)

    def end(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="options of serve, the last ones")
    a = parser.parse_args()
    servers = [Server(program, a.package, a.serve) for program in a.programs]
    paces = [[] for _ in servers]
    try:
        for _ in range(a.rounds):
            for server, of in zip(servers, paces):
                of.append(server.pace(a.tokens))
    finally:
        [server.end() for server in servers]
    for i, of in enumerate(paces):
        figures = {"median_us": statistics.median(of), "least_us": min(of)}
        about = {"program": i, "tokens": a.tokens, "rounds": a.rounds, "cores": os.cpu_count()}
        print(json.dumps({"what": "time between tokens", **{key: round(value, 1) for key, value in figures.items()}, **about}))


if __name__ == "__main__":
    main()
