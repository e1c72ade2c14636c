"""A worker of NVIDIA Dynamo with its own frontend, which find each other by files: what it answers, refuses and stops."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from compiled import ROOT, program
from long_python import environment, long_python, only_long
from served import Server, compiled_once, free_port
from test_library import write_demo
from test_python_package import site  # noqa: F401
from test_serve_robust import until

MANUAL = (ROOT / "docs/manual/deploy.md").read_text()
QUESTION = [{"role": "user", "content": "What is a river?"}]
pytestmark = only_long


class Dynamo(Server):
    """The manual's commands. Requests are those of a Server."""

    def __init__(self, site, package, folder):
        self.port = free_port()
        (folder / "kv").mkdir()
        self.environment = environment(site, DYN_FILE_KV=str(folder / "kv"), TMPDIR=str(folder), HOME=str(folder))
        self.folder, self.processes = folder, []
        shown = re.findall(r"^\$ python (-m (?:agentcompile\.nvidia_dynamo|dynamo\.frontend) .*)$", MANUAL, re.MULTILINE)
        worker, frontend = (line.removesuffix(" &") for line in shown)
        worker = worker.replace("Qwen/Qwen3-0.6B", f"{package} --tokenizer {ROOT / 'examples/demo_model'} --served-model-name demo")
        frontend = re.sub(r"--http-port \d+", f"--http-port {self.port}", frontend)
        self.process = self.start("worker", worker)
        self.start("frontend", frontend)
        until(self.has_the_model, 120)

    def start(self, name, arguments) -> subprocess.Popen:
        with open(self.folder / name, "w") as log:
            command = [long_python(), *arguments.split()]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self.environment)
        self.processes.append(process)
        return process

    def has_the_model(self) -> bool:
        assert all(process.poll() is None for process in self.processes), self.said("worker") + self.said("frontend")
        with contextlib.suppress(OSError):
            return '"demo"' in self.request("GET", "/v1/models")[2]
        return False

    def said(self, name) -> str:
        return Path(self.folder / name).read_text()

    def ask(self, **fields) -> dict:
        return self.post("/v1/chat/completions", **{"model": "demo", "messages": QUESTION, "temperature": 0, **fields})

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        ends = [process.wait(60) for process in self.processes]
        assert ends == [0, 0], self.said("worker")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compiled_once(tmp_path_factory, "demo", write_demo, "--max-context", 256, "--chunk", 32)[1]


@pytest.fixture(scope="module")
def dynamo(site, package, tmp_path_factory):  # noqa: F811
    with Dynamo(site, package, tmp_path_factory.mktemp("dynamo")) as dynamo:
        yield dynamo


def said_by_the_program(package, *options) -> dict:
    return json.loads(program("generate", package, "--chat", "-p", "What is a river?", "--json", "-q", *options).stdout)


def text_of(answer) -> str:
    return answer["choices"][0]["message"]["content"]


def test_answers_are_the_programs(dynamo, package):
    truth = said_by_the_program(package, "--temp", 0)
    whole = dynamo.ask()
    assert text_of(whole) == truth["text"] and whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["prompt_tokens"] == truth["prompt_tokens"]
    events = dynamo.stream("/v1/chat/completions", model="demo", messages=QUESTION, temperature=0)
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in events[:-1] if each["choices"]) == truth["text"]
    cut = dynamo.ask(max_tokens=5)
    assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["completion_tokens"] == 5
    assert truth["text"].startswith(text_of(cut))
    stopped = dynamo.ask(stop=["natural"])
    assert text_of(stopped) == truth["text"].partition("natural")[0] and stopped["choices"][0]["finish_reason"] == "stop"
    drawn = said_by_the_program(package, "--temp", 0.8, "--top-p", 0.9, "--top-k", 20, "--seed", 5, "-n", 12)
    asked = dynamo.ask(temperature=0.8, top_p=0.9, seed=5, max_tokens=12, top_k=20)
    assert text_of(asked) == drawn["text"] != truth["text"]
    assert text_of(dynamo.ask(temperature=0.8, seed=-1, max_tokens=3))


@pytest.mark.parametrize(
    "fields, name",
    [
        ({"logprobs": True}, "logprobs is"),
        ({"n": 2, "temperature": 1}, "n is"),
        ({"min_tokens": 3}, "min_tokens is"),
        ({"ignore_eos": True}, "ignore_eos is"),
        ({"response_format": {"type": "json_object"}}, "guided_decoding is"),
    ],
)
def test_what_it_has_not_is_refused_by_name(dynamo, fields, name):
    asked = {"model": "demo", "messages": QUESTION, "temperature": 0, **fields}
    status, _, body = dynamo.request("POST", "/v1/chat/completions", asked)
    assert status == 400 and name in body, body


def test_an_answer_that_nobody_reads_ends_and_others_wait_for_it(dynamo):
    truth = text_of(dynamo.ask(max_tokens=4))
    began = time.monotonic()
    long = {"model": "demo", "prompt": "It was", "temperature": 2.0, "seed": 3, "max_tokens": 240, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", dynamo.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(long), {"Content-Type": "application/json"})
    assert connection.getresponse().readline().startswith(b"data: ")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(text_of(dynamo.ask(max_tokens=4)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    connection.sock.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(60)
    assert answers == [truth] * 3 and time.monotonic() - began < 30


def test_a_worker_that_ends_is_known_to_be_gone(dynamo, package):
    """SIGTERM: what it has taken is answered. Its place is another's."""
    first = dynamo.process
    line = " ".join(map(str, first.args[1:]))
    dynamo.process = dynamo.start("worker", line)
    dynamo.processes.remove(first)
    until(lambda: "dynamo_backend_common::worker" in dynamo.said("worker") or dynamo.process.poll() is not None, 60)
    time.sleep(3)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(text_of(dynamo.ask(max_tokens=30))))
    thread.start()
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    thread.join(60)
    assert answers == [text_of(dynamo.ask(max_tokens=30))] and answers[0]


def test_a_package_needs_a_tokenizer(site, package):  # noqa: F811
    command = [long_python(), "-m", "agentcompile.nvidia_dynamo", package]
    result = subprocess.run(command, capture_output=True, text=True, env=environment(site))
    assert result.returncode != 0 and "name the model's HuggingFace folder or id with --tokenizer" in result.stderr
