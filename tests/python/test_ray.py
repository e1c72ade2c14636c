"""Ray Serve before two engines, on the CPU: what they answer, who is asked, and what becomes of it when one dies."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
from compiled import ROOT, program
from long_python import environment, long_python, only_long
from served import Server, compiled_once, free_port
from test_library import write_demo
from test_manual import options, whole_help
from test_python_package import site  # noqa: F401
from test_serve_robust import until

MANUAL = (ROOT / "docs/manual/deploy.md").read_text()
pytestmark = only_long


class App(Server):
    """What deploy/ray.yaml runs, with another model. Requests are those of a Server."""

    def __init__(self, site, package, folder):
        self.port = free_port()
        config = yaml.safe_load((ROOT / "deploy/ray.yaml").read_text())
        config["http_options"] = {"host": "127.0.0.1", "port": self.port}
        (application,) = config["applications"]
        application["args"].update(model=str(package), gpus=0, cpus=0.5, alias="demo", temp=0, waiting=8)
        (folder / "ray.yaml").write_text(yaml.safe_dump(config))
        self.package = package
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen(
            [long_python().with_name("serve"), "run", folder / "ray.yaml"],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=environment(site),
            start_new_session=True,
        )
        until(self.answers, 120)

    def answers(self) -> bool:
        assert self.process.poll() is None, Path(self.log.name).read_text()
        try:
            return self.request("GET", "/health")[0] == 200
        except OSError:
            return False

    def servers(self) -> list:
        """Process ids of the engines' servers."""
        words = f"serve\0{self.package}\0".encode()
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if words in content(path)]

    def workers(self) -> list:
        servers = self.servers()
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return [pid for pid in pids if parent(pid) in servers]

    def metric(self, name) -> dict:
        """By replica."""
        found = re.findall(rf'^agentcompile_{name}{{replica="(\w+)"}} (\S+)$', self.get("/metrics"), re.MULTILINE)
        return {replica: float(value) for replica, value in found}

    def ask(self, question, **fields) -> tuple[str, str]:
        """The replica that has answered, and its answer."""
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": 8, **fields}
        status, headers, text = self.request("POST", "/v1/chat/completions", body)
        assert status == 200, text
        return headers["x-agentcompile-replica"], json.loads(text)["choices"][0]["message"]["content"]

    def begin(self, question) -> http.client.HTTPResponse:
        """A stream that has begun, and ends with its 200 tokens."""
        asked = {"messages": [{"role": "user", "content": question}], "max_tokens": 200, "stream": True}
        end = json.loads((ROOT / "examples/demo_model/generation_config.json").read_text())["eos_token_id"]
        body = {**asked, "logit_bias": {str(token): -100 for token in (end if isinstance(end, list) else [end])}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and response.readline().startswith(b"data: {")
        response.of = connection
        return response

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.log.close()

    def __exit__(self, *_):
        self.end()


def parent(pid) -> int:
    return int((content(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split() or [0, 0])[1])


def content(path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compiled_once(tmp_path_factory, "demo", write_demo, "--max-context", 256, "--chunk", 32)[1]


@pytest.fixture(scope="module")
def app(site, package, tmp_path_factory):  # noqa: F811
    with App(site, package, tmp_path_factory.mktemp("ray")) as app:
        yield app
    until(lambda: not app.servers(), 30)  # they end with Ray


@pytest.fixture(scope="module")
def questions(app):
    """Two that begin alike for different replicas, and their answers."""
    by_replica = {}
    for noun in ("river", "tree", "bed", "house", "dog", "king", "ship", "hill", "bird", "book"):
        question = f"What is a {noun}?"
        replica, answer = app.ask(question)
        by_replica.setdefault(replica, (question, answer))
    assert len(by_replica) == 2
    return by_replica


def test_answers_are_the_programs(app, package):
    truth = json.loads(
        program("generate", package, "--chat", "-p", "What is a river?", "--temp", 0, "-n", 40, "--json", "-q").stdout
    )["text"]
    body = {"messages": [{"role": "user", "content": "What is a river?"}], "max_tokens": 40}
    assert json.loads(app.get("/health")) == {"status": "ok"}
    whole = app.post("/v1/chat/completions", **body)
    events = app.stream("/v1/chat/completions", **body)
    assert whole["choices"][0]["message"]["content"] == truth
    assert events[-1] == "[DONE]"
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1]) == truth
    message = app.post("/v1/messages", model="demo", **body)
    assert message["content"][0]["text"] == truth
    assert json.loads(app.get("/v1/models"))["data"][0]["id"] == "demo"
    assert app.refused("/v1/chat/completions", messages=[])["param"] == "messages"
    assert "8388608" in app.refused("/v1/completions", 413, prompt="a" * (9 << 20))["message"]
    schema = {"type": "object", "properties": {"long": {"type": "boolean"}}, "required": ["long"]}
    strict = {"type": "json_schema", "json_schema": {"name": "river", "schema": schema}}
    said = app.post("/v1/chat/completions", **body, response_format=strict)["choices"][0]["message"]["content"]
    assert set(json.loads(said)) == {"long"}


def test_what_begins_alike_goes_where_its_beginning_is_known(app, questions):
    for replica, (question, _) in questions.items():
        before = app.metric("prefix_hits_total")
        talk = [{"role": "user", "content": question}]
        for turn in range(3):
            status, headers, text = app.request(
                "POST", "/v1/chat/completions", {"messages": talk, "max_tokens": 16, "stop": "."}
            )
            answer = json.loads(text)
            assert status == 200 and headers["x-agentcompile-replica"] == replica
            talk += [answer["choices"][0]["message"], {"role": "user", "content": "And what is a river, or a tree, or a bed?"}]
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        until(lambda: app.metric("prefix_hits_total")[replica] > before.get(replica, 0))


def test_an_answer_that_nobody_reads_ends(app, questions):
    before = sum(app.metric("requests_cancelled_total").values())
    stream = app.begin(next(iter(questions.values()))[0])
    stream.of.sock.shutdown(socket.SHUT_RDWR)
    stream.close()
    until(lambda: sum(app.metric("requests_cancelled_total").values()) > before)


@contextlib.contextmanager
def paused(app, questions=None):
    """The workers, and streams that they have begun to answer these by; they stand still meanwhile, and may be killed."""
    workers = app.workers()
    streams = [app.begin(question) for question, _ in (questions or {}).values()]
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield workers, streams
    finally:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)


def test_more_than_may_wait_are_refused(app, questions):
    """Each engine may have 4 requests, and 8 may wait."""
    answers, refused = [], []
    body = {"messages": [{"role": "user", "content": "What is a river?"}], "max_tokens": 2}

    def ask():
        status, headers, text = app.request("POST", "/v1/chat/completions", body, timeout=120)
        (answers if status == 200 else refused).append((status, headers["retry-after"], text))

    threads = [threading.Thread(target=ask) for _ in range(6 + 8 + 3)]
    with paused(app, questions) as (_, streams):
        for thread in threads[:6]:
            thread.start()
        until(lambda: sum(app.metric("requests_queued").values()) == 6)
        for thread in threads[6:]:
            thread.start()
        until(lambda: len(refused) == 3)
        assert app.request("GET", "/health", timeout=5)[0] == 200
    for thread in threads:
        thread.join(120)
    assert len(answers) == 14 and {status for status, *_ in refused} == {503}
    assert all(after == "1" and json.loads(text)["error"]["message"] == "too many requests wait" for _, after, text in refused)
    for stream in streams:
        assert b"[DONE]" in stream.read()


def test_when_an_engine_is_killed_others_answer_what_was_not_begun(app, questions):
    waiting, threads = [], []
    for question, answer in list(questions.values()) * 3:
        threads.append(threading.Thread(target=lambda q=question, a=answer: waiting.append((app.ask(q)[1], a))))
    with paused(app, questions) as (_, streams):
        for thread in threads:
            thread.start()
        until(lambda: sum(app.metric("requests_queued").values()) == 6)
        killed, other = app.servers()
        os.kill(killed, signal.SIGKILL)
    ends = [stream.read().split(b"data: ")[-2:] for stream in streams]
    assert [end[-1].strip() for end in ends] == [b"[DONE]"] * 2
    errors = [json.loads(end[-2]).get("error") for end in ends]
    (error,) = filter(None, errors)
    assert error["type"] == "server_error" and "agentcompile serve is lost" in error["message"]
    for thread in threads:
        thread.join(120)
    assert len(waiting) == 6 and all(answer == truth for answer, truth in waiting)
    # Ray replaces the replica, and all is as before.
    until(lambda: len(app.servers()) == 2 and len(app.metric("requests_queued")) == 2, 60)
    assert killed not in app.servers() and other in app.servers()
    for question, answer in questions.values():
        assert app.ask(question)[1] == answer


def test_a_request_that_engines_are_lost_with_is_given_up(app, questions):
    """It may be what ends them."""
    until(lambda: len(app.servers()) == len(app.workers()) == 2)
    got, body = [], {"messages": [{"role": "user", "content": "What is a river?"}], "max_tokens": 2}
    thread = threading.Thread(target=lambda: got.append(app.request("POST", "/v1/chat/completions", body, timeout=120)))
    with paused(app):
        thread.start()
        for _ in range(2):
            until(lambda: any(map(has_a_request, app.servers())), 60)
            (killed,) = filter(has_a_request, app.servers())
            os.kill(killed, signal.SIGKILL)
            until(lambda: killed not in app.servers())
    thread.join()
    ((status, _, text),) = got
    assert status == 500 and "2 engines were lost while they had this request" in json.loads(text)["error"]["message"]
    until(lambda: len(app.servers()) == 2 and app.ask("What is a river?"), 60)


def has_a_request(server) -> bool:
    """As the server itself says at its port, which it listens at."""
    sockets = {os.readlink(path) for path in Path(f"/proc/{server}/fd").iterdir() if path.is_symlink()}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            connection = http.client.HTTPConnection("127.0.0.1", int(words[1].partition(":")[2], 16), timeout=10)
            with contextlib.closing(connection), contextlib.suppress(OSError):
                connection.request("GET", "/metrics")
                return "agentcompile_requests_running 1\n" in connection.getresponse().read().decode()
    return False


def test_a_worker_that_dies_is_the_servers_own_matter(app, questions):
    """serve starts another one: the replica stays."""
    until(lambda: len(app.metric("requests_queued")) == 2)  # whoever was killed is forgotten
    replicas, servers = set(app.metric("requests_queued")), set(app.servers())
    with paused(app, questions) as (workers, streams):
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
    ends = [stream.read() for stream in streams]
    assert any(b"SIGKILL" in end for end in ends)  # all, if they are of different engines: replicas may be other ones
    for question, answer in questions.values():
        assert app.ask(question)[1] == answer
    assert set(app.metric("requests_queued")) == replicas and set(app.servers()) == servers


def test_a_replica_that_is_killed_takes_its_server_with_it(app, questions):
    killed = app.servers()[0]
    os.kill(parent(killed), signal.SIGKILL)
    until(lambda: killed not in app.servers() and len(app.servers()) == 2, 60)
    for question, answer in questions.values():
        assert app.ask(question)[1] == answer


def test_arguments(site, package):  # noqa: F811
    """Those of the manual's command are taken; what is wrong is refused before anything is deployed."""
    (shown,) = re.findall(r"^\$ serve run agentcompile\.ray:build_app (.*)$", MANUAL, re.MULTILINE)
    code = """
import json, sys
from agentcompile.ray import FLAGS, VALUES, beginning_of, build_app
def error_of(**args):
    try:
        build_app(args)
    except Exception as error:
        return [type(error).__name__, str(error)]
asked = lambda *texts, **more: beginning_of(json.dumps({"messages": [{"role": role, "content": text} for role, text in zip(("system", "user", "assistant", "user"), texts)], **more}).encode())
one = asked("s", "a")
print(json.dumps([
    error_of(**dict(word.split("=") for word in sys.argv[1].split())), sorted(FLAGS | VALUES),
    [error_of(), error_of(model="m", replicas="0"), error_of(model="m", gpus="some"), error_of(model="m", hots="a"), error_of(model="m", full="1")],
    [one == asked("s", "a", "b", "c"), one == asked("s", "b"), one == asked("t", "a"), one == asked("s", "a", tools=[{}])],
    beginning_of(b"{"), beginning_of(b"[" * 100_000), beginning_of(b"[1]"), beginning_of(b"{}"), beginning_of(b'{"prompt": [1, 2]}') == beginning_of(b'{"prompt": [1, 3]}'),
    beginning_of(json.dumps({"prompt": "a" * 4000}).encode()) == beginning_of(json.dumps({"prompt": "a" * 5000}).encode()),
]))
"""
    result = subprocess.run([long_python(), "-c", code, shown], capture_output=True, text=True, env=environment(site))
    assert result.returncode == 0, result.stderr
    taken, names, refused, same, *rest = json.loads(result.stdout)
    assert taken is None
    known = options(whole_help("serve"))
    assert {f"--{name.replace('_', '-')}" for name in names} <= known
    for error, words in zip(refused, ("model is missing", "replicas is 0", "gpus is some", "hots is no argument", "neither true nor false")):
        assert error[0] == "WrongUsage" and words in error[1]
    assert same == [True, False, False, False]
    assert rest == ["", "", "", "", False, True]
