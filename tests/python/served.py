"""A server over a model for tests: started once, spoken to through HTTP, ended in order."""

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from compiled import PROGRAM, program

OPTIONS = ("--tries", 0, "--unmeasured", "--short-prompt", 0, "-q")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def compiled_once(tmp_path_factory, name, write, *options) -> tuple[Path, Path]:
    """The model's folder and its package: those that another worker has made, too."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / f"served-{name}"
    shared.mkdir(exist_ok=True)
    source, package = shared / "model", shared / "package"
    with open(shared / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not package.exists():
            write(source)
            program("compile", source, "-o", package, *OPTIONS, *options)
    return source, package


class Server:
    def __init__(self, model, *options, quiet=False, environment={}, stderr=subprocess.PIPE):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", str(model), "--port", "0", *map(str, options), *(["-q"] if quiet else [])],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
            preexec_fn=lambda: [signal.signal(which, signal.SIG_DFL) for which in (signal.SIGINT, signal.SIGTERM)],
        )
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://127.0.0.1:"), self.process.communicate()
        self.port = int(self.url.rpartition(":")[2])
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr or []), daemon=True)
        self.reader.start()

    def workers(self) -> list:
        """The processes that run a model: one, but for a moment after it has ended."""
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    if b"serve-worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(int(child))
        return found

    def processor_seconds(self) -> float:
        """What the server and its worker have used, in all threads."""
        used = 0
        for process in (self.process.pid, *self.workers()):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
            used += int(fields[11]) + int(fields[12])  # user and system
        return used / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def paused(self):
        """What the worker does is not done meanwhile. It may be killed."""
        (worker,) = self.workers()
        os.kill(worker, signal.SIGSTOP)
        # Its threads go on until the one that takes the signal has its turn.
        threads = list(Path(f"/proc/{worker}/task").iterdir())
        while any((each / "stat").read_text().rpartition(") ")[2][0] not in "Tt" for each in threads):
            time.sleep(0.001)
        try:
            yield worker
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)

    def request(self, method, path, body=None, headers=None, timeout=60):
        """Status, headers and body; a body that is no text is sent as JSON."""
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()

    def get(self, path) -> str:
        status, _, body = self.request("GET", path)
        assert status == 200, body
        return body

    def post(self, path, **fields) -> dict:
        status, _, body = self.request("POST", path, fields)
        assert status == 200, body
        return json.loads(body)

    def refused(self, path, status=400, **fields) -> dict:
        got, _, body = self.request("POST", path, fields)
        assert got == status, body
        return json.loads(body)["error"]

    def stream(self, path, **fields) -> list:
        """The events: objects, and the names of those that have one."""
        status, headers, body = self.request("POST", path, {**fields, "stream": True})
        assert status == 200 and headers["Content-Type"] == "text/event-stream", body
        events = []
        for event in body.split("\n\n")[:-1]:
            name, _, data = event.rpartition("data: ")
            if data == "[DONE]":
                events.append(data)
                continue
            events.append(json.loads(data))
            if name:
                assert name.strip() == f"event: {events[-1]['type']}"
        return events

    def metric(self, name) -> float:
        """By its name, with its labels if it has any."""
        for line in self.get("/metrics").splitlines():
            if line.startswith(f"agentcompile_{name} "):
                return float(line.split()[1])
        raise AssertionError(f"there is no {name}")

    def socket(self, timeout=60) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def raw(self, data: bytes, timeout=60) -> bytes:
        """What comes back until the server closes the connection."""
        with self.socket(timeout) as connection:
            connection.sendall(data)
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
            return b"".join(parts)

    def end(self, which=signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(which)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.reader.join(timeout=10)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.end() == 0, self.lines
