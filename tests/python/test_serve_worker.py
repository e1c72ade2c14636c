"""The process that runs the model of `serve` dies, and the server goes on: who was answered hears of it, who waits does
not, and the next answer is as before."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import text_model
from compiled import PROGRAM, ROOT
from served import Server, compiled_once
from test_serve_robust import GOOD, LONG, begin_long, http as raw_request, until


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compiled_once(tmp_path_factory, "text", text_model.write, "--max-context", 512, "--chunk", 16)[1]


@pytest.fixture
def server(package):
    with Server(package, "--alias", "tiny") as server:
        yield server


def good(server, **fields) -> str:
    return server.post("/v1/completions", **{**GOOD, **fields})["choices"][0]["text"]


def kill(server, which=signal.SIGKILL) -> int:
    (worker,) = server.workers()
    os.kill(worker, which)
    return worker


def rest_of(connection) -> bytes:
    """What comes until the response ends."""
    got = b""
    while not got.endswith(b"0\r\n\r\n") and (part := connection.recv(1 << 16)):
        got += part
    return got


@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGSEGV])
def test_a_stream_ends_with_an_error_and_who_waits_is_answered(server, which):
    before = good(server)
    waiting = []
    with contextlib.closing(begin_long(server)) as stream:
        with server.paused() as worker:
            threads = [threading.Thread(target=lambda: waiting.append(good(server))) for _ in range(3)]
            [thread.start() for thread in threads]
            until(lambda: server.metric("requests_queued") == 3)
            kill(server, which)
        events = rest_of(stream).split(b"data: ")[1:]
    assert events[-1].startswith(b"[DONE]")
    error = json.loads(events[-2].partition(b"\n")[0])["error"]
    assert error["type"] == "server_error" and which.name in error["message"], error
    assert b'"finish_reason":"length"' not in b"".join(events)
    [thread.join() for thread in threads]
    assert waiting == [before] * 3
    assert good(server) == before
    assert server.metric("worker_restarts_total") == 1 and server.metric("requests_running") == 0
    assert server.workers() != [worker] and server.request("GET", "/health")[0] == 200


def test_an_answer_that_is_no_stream_is_a_500(server):
    with contextlib.closing(server.socket()) as connection:
        connection.sendall(raw_request(LONG))
        until(lambda: server.metric("generated_tokens_total") > 1)
        with server.paused():
            kill(server)
        got = connection.recv(1 << 16)
    assert got.startswith(b"HTTP/1.1 500") and b"SIGKILL" in got and b"this request is lost" in got


def test_a_request_that_the_worker_has_not_heard_of_is_not_lost(server):
    before, got = good(server), []
    with server.paused():
        thread = threading.Thread(target=lambda: got.append(good(server)))
        thread.start()
        until(lambda: server.metric("requests_running") == 1)
        kill(server)
    thread.join()
    assert got == [before]


def test_a_worker_that_dies_while_nobody_asks(server):
    before = good(server)
    worker = kill(server)
    until(lambda: server.workers() not in ([], [worker]))
    assert good(server) == before
    assert server.metric("worker_restarts_total") == 1


def test_what_is_kept_of_prompts_on_the_disk_outlives_a_worker(package, tmp_path):
    prompt = [5 + 3 * i % 300 for i in range(40)]
    for options, known in ((), 0), (("--cache-dir", tmp_path / "states"), 32):
        with Server(package, *options) as server:

            def cached() -> int:
                answer = server.post("/v1/completions", prompt=prompt, max_tokens=1)
                return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

            assert cached() == 0 and cached() == 32
            if options:
                until(lambda: server.metric('prefix_cache_bytes{place="disk"}') > 0)
            worker = kill(server)
            until(lambda: server.workers() not in ([], [worker]))
            assert cached() == known and cached() == 32


def test_a_worker_that_dies_while_it_loads(server):
    before = good(server)
    worker = kill(server)
    until(lambda: server.workers() not in ([], [worker]))
    kill(server)
    assert server.request("GET", "/health")[0] == 200
    assert good(server) == before
    assert server.metric("worker_restarts_total") == 2


def test_signals_to_all_processes_let_answers_end(server):
    """As systemd sends them."""
    with contextlib.closing(begin_long(server)) as stream:
        with server.paused() as worker:
            for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(worker, which)
            server.process.send_signal(signal.SIGTERM)
        assert b'"finish_reason":"length"' in rest_of(stream)
    assert server.process.wait(timeout=20) == 0
    assert not Path(f"/proc/{worker}").exists()


def test_the_worker_ends_with_the_server(package):
    server = Server(package)
    (worker,) = server.workers()
    server.process.kill()
    server.process.wait(timeout=20)
    until(lambda: not Path(f"/proc/{worker}").exists())


def test_twenty_deaths_under_load(package):
    with Server(package, "--alias", "tiny") as server:
        before = good(server)
        seen, over, statuses = set(), threading.Event(), []

        def ask(number):
            for i in itertools.count(number):
                if over.is_set():
                    return
                fields = {**(LONG if i % 3 else GOOD), "stream": i % 2 == 0}
                status, _, body = server.request("POST", "/v1/completions", fields)
                statuses.append(status)
                assert status in (200, 500, 503), body

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        [thread.start() for thread in threads]
        for turn in range(20):
            until(lambda: set(server.workers()) - seen)
            (worker,) = set(server.workers()) - seen
            seen.add(worker)
            if turn % 5:  # else while it loads
                made = server.metric("generated_tokens_total")
                until(lambda: server.metric("generated_tokens_total") > made)
            os.kill(worker, signal.SIGKILL)
        over.set()
        [thread.join() for thread in threads]
        until(lambda: server.request("GET", "/health")[0] == 200)
        assert good(server) == before
        assert server.metric("worker_restarts_total") == 20
        assert server.metric("requests_queued") == server.metric("requests_running") == 0
        assert len(server.workers()) == 1
        assert not [pid for pid in seen if Path(f"/proc/{pid}").exists()]
        assert 200 in statuses


def test_memory_stays_as_it_is(package):
    """Of server and worker, while requests come and go. The whole of it is bench/serve_soak.py with 20,000."""
    command = [ROOT / "bench/serve_soak.py", PROGRAM, package, "--requests", "600", "--warm", "300"]
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_model_that_cannot_be_loaded_again(package, tmp_path):
    """Requests are refused after some attempts, and answered as soon as one succeeds."""
    moved = tmp_path / "package"
    subprocess.run(["cp", "-r", str(package), str(moved)], check=True)
    with Server(moved, "--alias", "tiny") as server:
        before = good(server)
        moved.rename(tmp_path / "away")
        with contextlib.closing(server.socket()) as waiting:
            worker = kill(server)
            until(lambda: worker not in server.workers())
            waiting.sendall(raw_request(GOOD))
            until(lambda: server.request("GET", "/health")[0] == 503)
            got = waiting.recv(1 << 16)
        assert got.startswith(b"HTTP/1.1 500") and b"no such directory" in got, got
        status, headers, body = server.request("POST", "/v1/completions", GOOD)
        assert status == 503 and "no such directory" in body and "Retry-After" in headers
        assert "no such directory" in server.request("GET", "/health")[2]
        (tmp_path / "away").rename(moved)
        until(lambda: server.request("GET", "/health")[0] == 200)
        assert good(server) == before
    assert sum("started anew" in line for line in server.lines) >= 5


def test_what_the_worker_says_at_first_is_the_servers_error(package, tmp_path):
    moved = tmp_path / "package"
    subprocess.run(["cp", "-r", str(package), str(moved)], check=True)
    for kernel in json.loads((moved / "program.json").read_text())["kernels"].values():
        (moved / kernel).write_bytes(b"no kernel")
    result = subprocess.run([PROGRAM, "serve", moved, "--port", "0"], capture_output=True, text=True)
    assert result.returncode == 3 and "is not the file that was compiled" in result.stderr, result


def test_nothing_of_clients_is_open_in_the_worker(server):
    """Else a connection would not end where the server closes it."""
    with contextlib.closing(begin_long(server)):
        kill(server)
        until(lambda: server.workers() and server.metric("worker_restarts_total") == 1)
        good(server)
        (worker,) = server.workers()
        links = [os.readlink(link) for link in Path(f"/proc/{worker}/fd").iterdir() if link.exists()]
        assert sum(link.startswith("socket:") for link in links) == 1, links
