#!/usr/bin/env python3
"""Tokens a second of several streams at once, as clients on this machine see them: JSON lines on stdout.

  serve_slots.py PROGRAM PACKAGE [--slots 4] [--tokens 200] [--rounds 5] [--prompt-tokens 400] [--serve OPTION...]

The package is served by a server with one slot and by one with several, at the same time. In each round the first has one
stream, and the second 1, 2, 4, ... streams, one set after the other; then one stream while a prompt of so many tokens comes in.
A round's figure is from the first token of any stream to the last of all. `longest_gap_ms` is the longest that one stream
waited for a token, over all rounds.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import threading
import time


class Server:
    def __init__(self, program, package, slots, options):
        command = [program, "serve", package, "--port", "0", "-q", "--slots", str(slots), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def stream(self, tokens, seed, begun=None) -> list:
        """When each token came. The device draws them; an end of the text is as unlikely as its model has it."""
        body = {"prompt": "Once upon a time", "max_tokens": tokens, "temperature": 1.0, "seed": seed, "stream": True}
        return self.times(body, begun)

    def times(self, body, begun=None) -> list:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        times = []
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
                if begun and len(times) == 2:
                    begun.set()
        connection.close()
        return times[:-1]  # the last one has the reason of its end

    def end(self):
        self.process.terminate()
        self.process.wait()


def gaps(streams) -> float:
    return 1e3 * max((b - a for times in streams for a, b in zip(times, times[1:])), default=0)


def at_once(server, tokens, seeds) -> tuple:
    """Tokens a second of all, and the longest gap in ms."""
    streams = []
    threads = [threading.Thread(target=lambda s=s: streams.append(server.stream(tokens, s))) for s in seeds]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    count = sum(map(len, streams)) - len(streams)
    return count / (max(t[-1] for t in streams) - min(t[0] for t in streams)), gaps(streams)


def beside_a_prompt(server, tokens, seed, prompt) -> tuple:
    """The longest gap of a stream while a prompt is read, and how long the prompt took, both in ms."""
    begun, streams = threading.Event(), []
    thread = threading.Thread(target=lambda: streams.append(server.stream(tokens, seed, begun)))
    thread.start()
    begun.wait()
    since = time.perf_counter()
    server.times({"prompt": prompt, "max_tokens": 1, "stream": True})
    until = time.perf_counter()
    thread.join()
    return gaps([[t for t in streams[0] if since <= t <= until]]), 1e3 * (until - since)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("package")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", help="of the streams, such whose texts do not end early")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="options of serve, the last ones")
    a = parser.parse_args()
    seeds = a.seeds or list(range(1, a.slots + 1))
    servers = {slots: Server(a.program, a.package, slots, a.serve) for slots in (1, a.slots)}
    figures = {}
    try:
        for round_ in range(a.rounds):
            for slots, server in servers.items():
                for streams in (1, 2, 4, 8, 16):
                    if streams > slots:
                        break
                    figures.setdefault((slots, streams), []).append(at_once(server, a.tokens, seeds[:streams]))
            prompt = [100 + (7 * i + round_) % 1000 for i in range(a.prompt_tokens)]
            figures.setdefault("prompt", []).append(beside_a_prompt(servers[a.slots], a.tokens, seeds[0], prompt))
    finally:
        [server.end() for server in servers.values()]
    about = {"tokens": a.tokens, "rounds": a.rounds, "cores": os.cpu_count()}
    for key, of in figures.items():
        longest = {"longest_gap_ms": round(max(gap for _, gap in of), 1)}
        if key == "prompt":
            longest = {"longest_gap_ms": round(max(gap for gap, _ in of), 1)}
            taken = round(statistics.median(taken for _, taken in of), 1)
            line = {"what": "a stream beside a prompt", "prompt_tokens": a.prompt_tokens, "prompt_ms": taken}
        else:
            pace = round(statistics.median(pace for pace, _ in of), 1)
            line = {"what": "streams at once", "slots": key[0], "streams": key[1], "tokens_per_second": pace}
            line["most_tokens_per_second"] = round(max(pace for pace, _ in of), 1)
        print(json.dumps({**line, **longest, **about}))


if __name__ == "__main__":
    main()
