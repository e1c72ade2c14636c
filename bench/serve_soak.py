#!/usr/bin/env python3
"""Whether the memory of a server and its worker stays as it is, over many requests: JSON lines on stdout.

  serve_soak.py PROGRAM PACKAGE [--requests 20000] [--warm 5000] [--clients 4] [--serve OPTION...]

Requests are short: answers of a few tokens, whole and streamed, by the device's choice and by the host's, with and without a
grammar; one in ten is refused, one in ten is left by its client in the middle. A line after each tenth of them says what
is resident. The last one says by how much that has grown since --warm requests at most, and that a request is answered as
at first; else the exit code is 1.
"""

import argparse
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
FIRST = dict(prompt=[5, 6, 7, 8], max_tokens=8, temperature=0)
SCHEMAS = [{"type": "object", "properties": {f"p{i}": {"type": "boolean"}}, "required": [f"p{i}"]} for i in range(5)]


class Server:
    def __init__(self, program, package, options):
        command = [program, "serve", package, "--port", "0", "-q", "--cache-memory", "8M", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def processes(self) -> dict:
        found = {"server": self.process.pid}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"serve-worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found["worker"] = int(child)
        return found

    def resident(self) -> dict:
        pages = lambda pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return {f"{name}_mib": round(pages(pid) * PAGE / (1 << 20), 2) for name, pid in self.processes().items()}

    def post(self, body, path="/v1/completions") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        got = response.status, response.read()
        connection.close()
        return got

    def leave(self, body):
        """Reads the beginning of the answer, if any, and goes."""
        data = json.dumps({**body, "stream": True, "max_tokens": 64}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(head.encode() + data)
            if body["seed"] % 2:
                connection.recv(15)


def ask(server, i) -> int:
    """One request; the status that it must have, or 0 for none."""
    draw = random.Random(i)
    body = dict(prompt=[draw.randrange(5, 300) for _ in range(draw.choice((3, 10, 50)))], max_tokens=draw.randint(1, 4), seed=i)
    kind = i % 20
    if kind in (0, 1):
        bad = [b"{", json.dumps({**body, "nothing": 1}).encode(), json.dumps({**body, "prompt": [1] * 100_000}).encode()]
        wanted, got = 400, server.post(bad[i // 20 % 3])[0]
    elif kind in (2, 3):
        server.leave(body)
        return 0
    else:
        more = {
            4: {"stream": True},
            5: {"stream": True, "stop": ["e"]},
            6: {"logprobs": 3},
            7: {"presence_penalty": 1, "logit_bias": {"7": 2}},
            8: {"structured_outputs": {"json": SCHEMAS[i // 20 % len(SCHEMAS)]}},
            9: {"n": 3},
        }.get(kind, {})
        wanted, got = 200, server.post({**body, "temperature": i % 2, **more})[0]
    if got != wanted:
        raise SystemExit(f"request {i}: status {got} instead of {wanted}")
    return got


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("package")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--warm", type=int, default=5_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--most-growth", type=float, default=4.0, metavar="MIB")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="options of serve, the last ones")
    a = parser.parse_args()
    server = Server(a.program, a.package, a.serve)
    first = json.loads(server.post(FIRST)[1])["choices"]
    count, lock, failed, warm, began = 0, threading.Lock(), [], {}, time.monotonic()

    def client():
        nonlocal count, warm
        while not failed:
            with lock:
                i, count = count, count + 1
                if i and i % max(a.requests // 10, 1) == 0:
                    print(json.dumps({"requests": i, **server.resident()}), flush=True)
                if i == a.warm:
                    warm = server.resident()
                if i >= a.requests:
                    return
            try:
                ask(server, i)
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=client) for _ in range(a.clients)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    seconds = time.monotonic() - began
    same = not failed and json.loads(server.post(FIRST)[1])["choices"] == first
    now = server.resident()
    grown = {key.replace("_mib", "_grown_mib"): round(now[key] - warm[key], 2) for key in now if key in warm}
    server.process.terminate()
    ended = server.process.wait(timeout=60)
    about = {"cores": os.cpu_count(), "clients": a.clients, "warm": a.warm}
    print(json.dumps({"what": "resident memory", "requests": a.requests, "seconds": round(seconds, 1), "answered_as_at_first": same,
                      "exit_code": ended, **now, **grown, **about}))  # fmt: skip
    for error in failed:
        print(f"error: {error!r}", file=sys.stderr)
    return 0 if same and ended == 0 and len(grown) == 2 and max(grown.values()) < a.most_growth else 1


if __name__ == "__main__":
    sys.exit(main())
