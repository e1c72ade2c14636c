"""`serve` among clients that vanish, flood, lie and stall: a later good request is answered as before."""

import contextlib
import json
import os
import signal
import socket
import threading
import time

import openai
import pytest
import text_model
from compiled import PROGRAM, program
from served import Server, compiled_once

LONG = dict(prompt="kato mi", max_tokens=400, temperature=1.0, seed=1, stop=["§§"], logit_bias={"1": -100})
GOOD = dict(prompt="kato mi", max_tokens=8)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compiled_once(tmp_path_factory, "text", text_model.write, "--max-context", 512, "--chunk", 16)[1]


@pytest.fixture(scope="module")
def server(package):
    with Server(package, "--alias", "tiny") as server:
        yield server


@pytest.fixture(scope="module")
def good(server):
    text = server.post("/v1/completions", **GOOD)["choices"][0]["text"]
    assert text
    return text


@pytest.fixture(autouse=True)
def answers_as_before(server, good):
    yield
    assert server.post("/v1/completions", **GOOD)["choices"][0]["text"] == good
    assert server.metric("requests_queued") == 0


def http(body, path="/v1/completions", **fields) -> bytes:
    data = json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(data)}"]
    head += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begin_long(server) -> socket.socket:
    """A long answer that is under way."""
    connection = server.socket()
    connection.sendall(http({**LONG, "stream": True}))
    assert connection.recv(15) == b"HTTP/1.1 200 OK"
    return connection


def test_who_leaves_is_not_answered_on(server):
    for streams in (True, False):
        cancelled, made = server.metric("requests_cancelled_total"), server.metric("generated_tokens_total")
        connection = server.socket()
        connection.sendall(http({**LONG, "stream": streams}))
        until(lambda: server.metric("generated_tokens_total") > made + 1)
        connection.close()
        at_close = server.metric("generated_tokens_total")
        until(lambda: server.metric("requests_cancelled_total") == cancelled + 1)
        # As many as came until the server heard of it, and two.
        assert server.metric("generated_tokens_total") - at_close < 100
        assert server.metric("generated_tokens_total") - made < 400


def test_the_client_of_openai_cancels(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    cancelled = server.metric("requests_cancelled_total")
    stream = client.completions.create(model="tiny", stream=True, **LONG)
    next(iter(stream))
    stream.close()
    until(lambda: server.metric("requests_cancelled_total") == cancelled + 1)


def test_clients_that_vanish_while_they_wait(server):
    with contextlib.closing(begin_long(server)), server.paused():
        for _ in range(20):
            with contextlib.closing(server.socket()) as connection:
                connection.sendall(http(LONG))
        until(lambda: server.metric("requests_queued") >= 1)


def test_what_waits_is_bounded(package):
    with Server(package, "--queue", 2) as server:
        with contextlib.closing(begin_long(server)) as running, server.paused():
            waiting = []
            for i in range(2):
                waiting.append(server.socket())
                waiting[-1].sendall(http(GOOD))
                until(lambda: server.metric("requests_queued") == i + 1)
            status, headers, body = server.request("POST", "/v1/completions", GOOD)
            assert status == 503 and int(headers["Retry-After"]) > 0
            assert "try again later" in json.loads(body)["error"]["message"]
            waiting[0].close()  # makes room
            time.sleep(0.3)
            waiting.append(server.socket())
            waiting[-1].sendall(http(GOOD))
            time.sleep(0.3)
            assert server.metric("requests_queued") == 2
            running.close()
        for connection in waiting[1:]:
            assert b'"finish_reason"' in connection.recv(1 << 16)
            connection.close()


def test_a_signal_ends_what_runs_in_order(package):
    server = Server(package)
    with contextlib.closing(begin_long(server)) as running, contextlib.closing(server.socket()) as waiting:
        with server.paused():
            waiting.sendall(http(GOOD))
            until(lambda: server.metric("requests_queued") == 1)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: server.request("GET", "/health")[0] == 503)
            status, headers, body = server.request("POST", "/v1/completions", GOOD)
            assert status == 503 and "ending" in body and "Retry-After" in headers
        rest = b""
        while part := running.recv(1 << 16):
            rest += part
        assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") and b'"finish_reason":"length"' in rest
        assert b'"finish_reason"' in waiting.recv(1 << 16)
    assert server.process.wait(timeout=20) == 0
    # A second one ends it at once.
    server = Server(package)
    with contextlib.closing(begin_long(server)), server.paused():
        server.process.send_signal(signal.SIGINT)
        until(lambda: server.request("GET", "/health")[0] == 503)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=20) == -signal.SIGINT


BAD = [
    b"\r\n\r\n",
    b"hello\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_what_is_no_http_is_refused(server, data):
    got = server.raw(data)
    assert got.startswith(b"HTTP/1.1 4") and b"Connection: close" in got, got
    assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


def test_limits_of_headers_and_bodies(server):
    got = server.raw(b"GET /health HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 431"), got
    ten = "x" * (10 << 20)
    status, _, body = server.request("POST", "/v1/completions", {"prompt": ten})
    assert status == 413 and "8388608 bytes" in body
    chunked = b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    got = server.raw(chunked + (b"100000\r\n" + b"x" * (1 << 20) + b"\r\n") * 9)
    assert got.startswith(b"HTTP/1.1 413"), got[:100]
    # One that is as large as may be is read, and refused for what it asks.
    status, _, body = server.request("POST", "/v1/completions", {"prompt": "ka " * 2_000_000})
    assert status == 400 and "context" in body


@pytest.mark.parametrize(
    "body, says",
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"prompt": "\xff"}', "not valid JSON"),
        (b'{"prompt": "a", "prompt": "b"}', "duplicate key"),
        (b'{"prompt": "a", "temperature": 1e999}', "not valid JSON"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper"),
        (b'{"prompt": [' + b"1," * 1_100_000 + b"1]}", "more than 1000000 values"),
        (b'{"\\u0000\\n\x7f": 1, "prompt": "a"}', "not supported"),
        (b'{"prompt": "a", "seed": 99999999999999999999999}', "seed"),
        (b'{"prompt": "\\ud800"}', "not valid JSON"),
    ],
    ids=range(11),
)
def test_what_is_no_request_is_refused(server, body, says):
    status, _, got = server.request("POST", "/v1/completions", body)
    assert status == 400 and says in json.loads(got)["error"]["message"], got


def test_only_json_is_taken(server):
    """A page of another origin may send plain text without asking."""
    for kind in ("text/plain", "", "application/x-www-form-urlencoded"):
        status, _, got = server.request("POST", "/v1/completions", GOOD, {"Content-Type": kind})
        assert status == 415 and "application/json" in got
    assert server.request("POST", "/v1/completions", GOOD, {"Content-Type": "application/json; charset=utf-8"})[0] == 200
    assert server.request("POST", "/v1/completions", GOOD, {"Content-Type": "Application/JSON ; charset=utf-8"})[0] == 200
    for coding, expected in (("gzip", 415), ("identity", 200)):
        status, _, got = server.request("POST", "/v1/completions", GOOD, {"Content-Encoding": coding})
        assert status == expected and (status == 200 or "gzip" in got), got
    for method, path, allowed in (("OPTIONS", "/v1/completions", "POST"), ("POST", "/v1/models", "GET, HEAD")):
        status, headers, _ = server.request(method, path)
        assert (status, headers["Allow"]) == (405, allowed)


def test_connections_go_on(server):
    request = http(GOOD) + http({"prompt": 1}) + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    got = server.raw(request + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert [got.count(b"HTTP/1.1 200"), got.count(b"HTTP/1.1 400")] == [3, 1]
    old = server.raw(http({**GOOD, "stream": True}).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b"chunked" not in old and old.endswith(b"data: [DONE]\n\n")
    head = server.raw(b"HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")
    waits = http(GOOD, Expect="100-continue", Connection="close")
    at = waits.index(b"\r\n\r\n") + 4
    with contextlib.closing(server.socket()) as connection:
        connection.sendall(waits[:at])
        assert connection.recv(1 << 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(waits[at:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_many_slow_clients(server, good):
    with contextlib.ExitStack() as stack:
        for i in range(200):
            connection = stack.enter_context(contextlib.closing(server.socket()))
            connection.sendall(http(GOOD)[: i % 150])
        assert server.post("/v1/completions", **GOOD)["choices"][0]["text"] == good


def test_more_clients_than_there_may_be_are_told_when_to_come_again(server):
    with contextlib.ExitStack() as stack:
        for _ in range(256):
            stack.enter_context(contextlib.closing(server.socket()))
        refused = server.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 503") and b"\r\nRetry-After: 2\r\n" in refused
    until(lambda: server.request("GET", "/health")[0] == 200)


def test_many_at_once_are_answered_in_turn(server, good):
    got = []

    def ask():
        got.append(server.post("/v1/completions", **GOOD)["choices"][0]["text"])

    threads = [threading.Thread(target=ask) for _ in range(24)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert got == [good] * 24


def test_memory_stays_as_it_is(server):
    def resident():
        return int(open(f"/proc/{server.process.pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def round_of(count):
        for i in range(count):
            data = BAD[i % len(BAD)] if i % 3 == 0 else http({"prompt": [i % 400], "max_tokens": 1}, Connection="close")
            server.raw(data)

    round_of(150)
    before = resident()
    round_of(450)
    assert resident() - before < 4 << 20


def test_keys(package, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first-key\n\n  second-key \n")
    with Server(package, "--api-key-file", keys, "--alias", "a/tiny one") as server:
        assert server.request("GET", "/health")[0] == 200
        for key in ("", "first", "first-key2", "first-kez", "é"):
            status, headers, body = server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}".encode()})
            assert status == 401 and headers["WWW-Authenticate"] == "Bearer", key
            assert json.loads(body)["error"]["code"] == "invalid_api_key"
        assert server.request("GET", "/v1/models")[0] == 401
        assert server.request("GET", "/metrics")[0] == 401
        assert server.request("POST", "/v1/nothing")[0] == 401
        for header in ({"x-api-key": "second-key"}, {"Authorization": "bearer second-key"}):
            assert server.request("GET", "/v1/models/a/tiny%20one", headers=header)[0] == 200
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="second-key", max_retries=0)
        assert client.completions.create(model="a/tiny one", **GOOD).choices[0].text
        assert client.models.retrieve("a/tiny one").id == client.models.list().data[0].id == "a/tiny one"
        with pytest.raises(openai.AuthenticationError, match="wrong"):
            client.with_options(api_key="third-key").models.list()
    assert not any("key" in line for line in server.lines if "api-key-file" not in line)
    keys.write_text("\n")
    assert "there is no key" in program("serve", package, "--api-key-file", keys, expect=3).stderr


def test_what_was_said_is_not_logged(package):
    with Server(package, "--alias", "tiny") as server:
        server.post("/v1/completions", prompt="a secret", max_tokens=3)
        server.request("GET", "/v1/%0asecond line\x1b[2J".replace(" ", "%20").replace("\x1b", "%1b"))
        server.raw(b"GET /\x07bell HTTP/1.1\r\nConnection: close\r\n\r\n")
    log = "".join(server.lines)
    assert "secret" not in log and "\x07" not in log and "\x1b" not in log
    assert any('"POST /v1/completions" 200' in line and "prompt " in line and "answer 3" in line for line in server.lines)
    with Server(package, quiet=True) as silent:
        silent.get("/health")
    assert silent.lines == []


def test_metrics_are_what_prometheus_reads(server):
    before = server.metric("prompt_tokens_total")
    server.post("/v1/completions", **GOOD)
    text = server.get("/metrics")
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            float(value)
            plain = name.partition("{")[0]
            assert any(plain in (each, each + "_bucket", each + "_sum", each + "_count") for each in names), line
    assert server.metric("prompt_tokens_total") > before
    assert server.metric("time_to_first_token_seconds_count") > 0
    assert server.metric("time_between_tokens_seconds_count") > 0
    assert 0 < server.metric("kv_usage_ratio") <= 1 and server.metric("requests_running") == 0
    assert server.metric("kv_in_use_ratio") == 0


def test_what_is_in_use_is_what_the_answer_has_that_is_made(server):
    context = json.loads(server.get("/v1/models"))["data"][0]["max_model_len"]
    prompt = len(server.post("/tokenize", prompt=LONG["prompt"])["tokens"])
    made = server.metric("generated_tokens_total")
    with contextlib.closing(begin_long(server)):
        until(lambda: server.metric("generated_tokens_total") > made + 2)
        with server.paused():
            time.sleep(0.1)
            made = server.metric("generated_tokens_total") - made
            assert server.metric("kv_in_use_ratio") * context == pytest.approx(prompt + made)
    until(lambda: server.metric("requests_running") == 0)
    assert server.metric("kv_in_use_ratio") == 0


def test_what_cannot_be_served_is_said(package, server, tmp_path):
    said = program("serve", package, "--port", server.port, expect=1).stderr
    assert f"cannot listen at 127.0.0.1 port {server.port}" in said and "in use" in said
    assert "no.such.host" in program("serve", package, "--host", "no.such.host.invalid", expect=1).stderr
    assert "--host is empty" in program("serve", package, "--host", "", expect=2).stderr
    assert "absent" in program("serve", tmp_path / "absent", expect=3).stderr
    assert "--port" in program("serve", package, "--port", 70000, expect=2).stderr
    assert PROGRAM.exists()


def test_a_log_that_cannot_be_written(package, good):
    # The disk that has it is full.
    with open("/dev/full", "w") as full:
        with Server(package, "--alias", "tiny", stderr=full) as server:
            for _ in range(3):
                assert server.post("/v1/completions", **GOOD)["choices"][0]["text"] == good
            for worker in server.workers():
                os.kill(worker, signal.SIGKILL)
            until(lambda: server.metric("worker_restarts_total") == 1)
            assert server.post("/v1/completions", **GOOD)["choices"][0]["text"] == good
    assert server.process.returncode == 0
