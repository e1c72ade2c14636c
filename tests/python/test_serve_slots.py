"""`serve --slots`: answers that are written at once are those that each request has alone; who leaves, fails or comes with
a long prompt costs the others nothing but time."""

import contextlib
import json
import os
import signal
import threading
import time

import pytest
import text_model
from compiled import cache_with_kernels, program
from served import Server, compiled_once
from test_serve_robust import http as raw_request, until

STREAM = "/v1/completions"
SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["x", "yy"]}}}, "required": ["a"]}
# A way to choose tokens for each kind of step: the likeliest, drawn, under a grammar, by the host.
REQUESTS = [
    dict(prompt="kato mi", max_tokens=40, temperature=0),
    dict(prompt="ren al sho", max_tokens=60, temperature=1.3, seed=5),
    dict(prompt="ing", max_tokens=50, temperature=1, seed=6, response_format={
        "type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}),
    dict(prompt="en ble ing " * 20, max_tokens=30, temperature=0.9, seed=7, presence_penalty=0.5, logprobs=3),
    dict(prompt="kato mi", max_tokens=40, temperature=1, seed=8, n=3),
]  # fmt: skip
LONG = dict(prompt="kato mi", max_tokens=400, temperature=1.0, seed=1, stop=["§§"], logit_bias={"1": -100})
FREE = dict(prompt="kato mi", max_tokens=400, temperature=1.0, seed=12)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    options = ("--max-context", 512, "--chunk", 16, "--slots", 4)
    return compiled_once(tmp_path_factory, "slots", text_model.write, *options)[1]


@pytest.fixture(scope="module")
def server(package):
    with Server(package, "--alias", "tiny", "--slots", 4) as server:
        yield server


def choices(server, request) -> list:
    return server.post(STREAM, **request)["choices"]


def at_once(server, requests) -> list:
    got = [None] * len(requests)

    def ask(i):
        got[i] = choices(server, requests[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(requests))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return got


def begin(server, **fields):
    """A stream that has begun."""
    connection = server.socket()
    connection.sendall(raw_request({**fields, "stream": True}))
    assert connection.recv(15) == b"HTTP/1.1 200 OK"
    return connection


def test_answers_are_what_each_is_alone(server):
    alone = [choices(server, request) for request in REQUESTS]
    assert len({json.dumps(each) for each in alone}) == len(REQUESTS)
    assert set(json.loads(alone[2][0]["text"])) == {"a"} or alone[2][0]["finish_reason"] == "length"
    for order in (range(5), (4, 2, 0, 3, 1), (1, 1, 3, 3, 2)):
        assert at_once(server, [REQUESTS[i] for i in order]) == [alone[i] for i in order]
    assert server.metric("slots") == 4 and server.metric("slots_in_use") == 0
    assert server.metric("requests_running") == 0 and server.metric("kv_in_use_ratio") == 0


def test_they_are_written_at_once(server):
    with contextlib.ExitStack() as streams:
        for seed in range(4):
            streams.enter_context(contextlib.closing(begin(server, **{**LONG, "seed": seed})))
        until(lambda: server.metric("slots_in_use") == 4)
        with contextlib.closing(server.socket()) as fifth:
            fifth.sendall(raw_request(REQUESTS[0]))
            until(lambda: server.metric("requests_queued") == 1)
            assert server.metric("requests_running") == 4
    until(lambda: server.metric("slots_in_use") == 0)


def test_one_slot_gives_the_same_tokens(server, package):
    """Where pieces of prompts have the same length."""
    alone = [choices(server, request) for request in REQUESTS]
    with Server(package, "--cache-step", 16) as one:
        assert one.metric("slots") == 1
        assert [choices(one, request) for request in REQUESTS] == alone


def test_a_stream_goes_on_while_a_long_prompt_is_read(server):
    long = dict(prompt=[5 + 7 * i % 300 for i in range(470)], max_tokens=1)
    times, begun = [], threading.Event()

    def listen():
        connection = begin(server, **LONG)
        with contextlib.closing(connection):
            while part := connection.recv(1 << 12):
                times.extend([time.monotonic()] * part.count(b"data: {"))
                begun.set()
                if b"[DONE]" in part:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    begun.wait()
    since = time.monotonic()
    usage = server.post(STREAM, **long)["usage"]
    until_then = time.monotonic()
    thread.join()
    assert usage["prompt_tokens"] == 470 and usage["prompt_tokens_details"]["cached_tokens"] == 0
    # A token between two pieces of 16, as long as the stream went on.
    assert sum(since < each < until_then for each in times) >= 20


def test_who_leaves_ends_and_others_go_on(server):
    (alone,) = choices(server, FREE)
    cancelled, got = server.metric("requests_cancelled_total"), []
    streams = [begin(server, **{**LONG, "seed": seed}) for seed in range(3)]
    thread = threading.Thread(target=lambda: got.extend(choices(server, FREE)))
    thread.start()
    until(lambda: server.metric("slots_in_use") == 4)
    [stream.close() for stream in streams]
    until(lambda: server.metric("requests_cancelled_total") == cancelled + 3)
    until(lambda: server.metric("slots_in_use") <= 1)
    thread.join()
    assert got == [alone]


def test_what_is_refused_disturbs_nobody(server):
    (alone,) = choices(server, REQUESTS[0])
    with contextlib.closing(begin(server, **LONG)):
        assert "the context has 512 tokens" in server.refused(STREAM, prompt=[7] * 500, max_tokens=500)["message"]
        assert choices(server, REQUESTS[0]) == [alone]


def test_a_worker_that_is_killed_loses_those_under_way(package):
    with Server(package, "--slots", 4) as server:
        (before,) = choices(server, REQUESTS[0])
        streams = [begin(server, **{**LONG, "seed": seed}) for seed in range(3)]
        until(lambda: server.metric("slots_in_use") == 3)
        got = []
        with server.paused() as worker:
            thread = threading.Thread(target=lambda: got.extend(choices(server, REQUESTS[0])))
            thread.start()
            until(lambda: server.metric("requests_running") == 4)
            os.kill(worker, signal.SIGKILL)
        for stream in streams:
            with contextlib.closing(stream):
                text = b""
                while not text.endswith(b"0\r\n\r\n") and (part := stream.recv(1 << 16)):
                    text += part
                assert b"SIGKILL" in text and b"this request is lost" in text
        thread.join()
        assert got == [before]
        assert server.metric("worker_restarts_total") == 1 and server.metric("slots_in_use") == 0


def test_what_one_sequence_has_read_another_one_knows(server):
    prompt = [9 + 11 * i % 300 for i in range(100)]
    server.post(STREAM, prompt=prompt, max_tokens=1)
    with contextlib.closing(begin(server, **LONG)):
        usage = [server.post(STREAM, prompt=prompt, max_tokens=2)["usage"] for _ in range(2)]
    assert [each["prompt_tokens_details"]["cached_tokens"] for each in usage] == [96, 96]


def test_a_package_without_such_steps_is_refused(tmp_path_factory, package, tmp_path):
    said = program("serve", package, "--port", 0, "--slots", 5, expect=2).stderr
    assert "has steps of up to 4 sequences: compile with --slots 5" in said
    plain = compiled_once(tmp_path_factory, "text", text_model.write, "--max-context", 512, "--chunk", 16)[1]
    said = program("serve", plain, "--port", 0, "--slots", 2, expect=2).stderr
    assert "has no steps of several sequences: compile with --slots 2" in said
    assert "--slots" in program("serve", plain, "--slots", 0, expect=None).stderr


def test_a_model_is_compiled_with_them(tmp_path):
    source = tmp_path / "model"
    text_model.write(source)
    cache = {"XDG_CACHE_HOME": str(cache_with_kernels(tmp_path / "cache"))}
    with Server(source, "--max-context", 64, "--tries", 0, "--slots", 2, environment=cache) as server:
        assert len(at_once(server, REQUESTS[:2])) == 2 and server.metric("slots") == 2
    with Server(source, "--max-context", 64, "--tries", 0, environment=cache) as server:
        choices(server, REQUESTS[0])
    kept = [each for each in (tmp_path / "cache/agentcompile/packages").iterdir() if each.is_dir()]
    assert len(kept) == 2
