"""AgentCompile behind Ray Serve: replicas that each have a server of their own.

    serve run agentcompile.ray:build_app model=Qwen/Qwen3-0.6B replicas=2

A *gateway* takes requests and gives each to an *engine*, a replica whose child process is `agentcompile serve`: all that
the server has is there, and what ends the server leaves Ray's actor alive. Requests that begin alike go to the same
engine, which knows their beginning already. What an engine has not begun to answer when it is lost is asked of another."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import hashlib
import hmac
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .exceptions import WrongUsage
from .program import PROGRAM, environment

# Options of `agentcompile serve` that build_app() takes, with _ for -: those with a value, and those without.
VALUES = {
    "alias", "api_key_file", "cache_device_memory", "cache_dir", "cache_disk", "cache_memory", "cache_step", "chat_template",
    "checkpoint", "dtype", "kv", "max_context", "max_new_tokens", "min_p", "queue", "random_weights", "seed", "slots", "temp",
    "template_arg", "tokenizer", "tool_format", "top_k", "top_p", "weights",
}  # fmt: skip
FLAGS = {"download", "full"}

HEALTH_PERIOD = 2  # seconds
BEGINNING = 2048  # characters of a conversation's first question, or of a prompt, that choose the engine
MOST_BYTES = 8 << 20  # of a body, as of the server
MOST_LOST = 2  # engines, until a request is not asked of others any more
PASSED_ON = ("content-type", "authorization", "x-api-key", "anthropic-version", "anthropic-beta")
PASSED_BACK = ("content-type", "retry-after", "www-authenticate")


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request on its way to an engine."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    beginning: str  # requests that have the same one are for the same engine; none: for any
    avoid: frozenset[str] = frozenset()  # replicas that have failed it


@dataclasses.dataclass(frozen=True)
class Head:
    """An answer begins."""

    status: int
    headers: dict[str, str]
    replica: str


@dataclasses.dataclass(frozen=True)
class Lost:
    """There will be no answer of this engine, or no more of it."""

    replica: str
    why: str
    with_it: bool = True  # it was lost while it had the request


class Unlucky(Exception):
    """A request that engines were lost with: it may be what ends them."""


def beginning_of(body: bytes) -> str:
    """What conversations that go on have in common, and others do not: tools, the system's text, the first question."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(fields, dict):
        return ""
    said = fields.get("messages", fields.get("input", fields.get("prompt")))
    if said is None:
        return ""
    before, first = [], said
    if isinstance(said, list):
        roles = [item.get("role") if isinstance(item, dict) else None for item in said]
        if "user" in roles:
            before, first = said[: roles.index("user")], said[roles.index("user")]
    whole = [fields.get("model"), fields.get("tools"), fields.get("system"), fields.get("instructions"), before]
    return json.dumps(whole) + json.dumps(first)[:BEGINNING]


class ByBeginning(RequestRouter):
    """Gives a request to the engine that its beginning stands for; while that has as much as it may take at once, to the
    one of the others that has least. An engine that comes or goes changes this for its own share of beginnings only."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # where there is none to choose, before it asks again
        asked = pending_request.args[0] if pending_request.args else None
        if not hasattr(asked, "beginning"):  # no isinstance(): Ray sends this class, and all that it names, by value
            return [candidate_replicas]
        possible = [replica for replica in candidate_replicas if replica.replica_id.unique_id not in asked.avoid]
        if not asked.beginning or not possible:
            return [possible]

        def rank(replica: RunningReplica) -> bytes:
            return hashlib.sha256(f"{replica.replica_id.unique_id} {asked.beginning}".encode()).digest()

        first, *others = sorted(possible, key=rank)
        return [[first], others]


class Board:
    """Which engines are in order, and what their metrics are. They say so when Ray asks for their health, as an engine that
    has all the requests that it may have takes no other call."""

    def __init__(self):
        self._texts: dict[str, tuple[float, str]] = {}

    def put(self, replica: str, text: str) -> None:
        self._texts[replica] = time.monotonic(), text

    def get(self) -> dict[str, str]:
        """By replica, of those that are there."""
        since = time.monotonic() - 5 * HEALTH_PERIOD
        self._texts = {replica: each for replica, each in self._texts.items() if each[0] > since}
        return {replica: text for replica, (_, text) in self._texts.items()}


class Engine:
    """A server that is a child of this process."""

    def __init__(self, options: list[str], board: DeploymentHandle, key: str | None):
        self._board, self._headers = board, {"authorization": f"Bearer {key}"} if key else {}
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._process: subprocess.Popen | None = None
        self._address = ""
        self._last_words = ""
        self._session: aiohttp.ClientSession | None = None
        started = threading.Event()
        # The child ends with the thread that made it, and so with this process, however that ends.
        threading.Thread(target=self._run, args=([PROGRAM, "serve", *options], started), daemon=True).start()
        started.wait()
        if not self._address:
            raise RuntimeError(f"agentcompile serve has not started: {self._last_words}")

    def _run(self, command: list[str], started: threading.Event) -> None:
        libc = ctypes.CDLL(None)
        try:
            self._process = process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
                preexec_fn=lambda: libc.prctl(1, signal.SIGTERM),  # PR_SET_PDEATHSIG
            )
        except OSError as error:
            self._last_words = str(error)
            started.set()
            return

        def copy() -> None:
            for line in process.stderr:
                self._last_words = line.strip()
                sys.stderr.write(line)

        words = threading.Thread(target=copy, daemon=True)
        words.start()
        self._address = process.stdout.readline().strip()
        if not self._address:
            words.join(10)
        started.set()
        process.wait()

    async def check_health(self) -> None:
        """What Ray asks now and then; it replaces a replica that raises."""
        status = self._process.poll()
        if status is not None:
            raise RuntimeError(f"agentcompile serve has ended with status {status}: {self._last_words}")
        async with self._client().get(f"{self._address}/health") as response:
            if response.status != 200:
                raise RuntimeError(await response.text())
        async with self._client().get(f"{self._address}/metrics", headers=self._headers) as response:
            if response.status == 200:
                self._board.put.remote(self._replica, await response.text())

    async def ask(self, asked: Asked) -> AsyncIterator[Head | Lost | bytes]:
        """A Head and the body's pieces, with Lost as the last one if it breaks off; or Lost alone."""
        try:
            async with self._client().request(
                asked.method, self._address + asked.path, headers=asked.headers, data=asked.body
            ) as response:
                if response.status == 503:
                    yield Lost(self._replica, await response.text(), False)
                    return
                kept = {name: response.headers[name] for name in PASSED_BACK if name in response.headers}
                yield Head(response.status, kept, self._replica)
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, OSError) as error:
            with_it = not isinstance(error, aiohttp.ClientConnectorError)
            yield Lost(self._replica, f"agentcompile serve is lost: {error}", with_it)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:  # made where there is an event loop
            no_limit = aiohttp.ClientTimeout(total=None, sock_connect=10)
            self._session = aiohttp.ClientSession(timeout=no_limit, auto_decompress=False)
        return self._session

    def __del__(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)  # it answers what it has taken
            except subprocess.TimeoutExpired:
                self._process.kill()


class Gateway:
    """Takes requests, and gives back what an engine answers."""

    def __init__(self, engines: DeploymentHandle, board: DeploymentHandle, keys: list[str], patience: float):
        self._engines, self._board, self._patience = engines.options(stream=True), board, patience
        self._keys = keys  # of whoever may read metrics; engines look at those of requests

    async def __call__(self, request: Request) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        if request.method == "GET" and path == "/metrics":
            key = headers.get("x-api-key", headers.get("authorization", "").removeprefix("Bearer "))
            if self._keys and not any(hmac.compare_digest(key.encode(), each.encode()) for each in self._keys):
                return refusal(path, 401, "the key is missing or wrong")
            return await self._metrics()
        if request.method == "GET" and path == "/health":  # at once, also while all engines have all that they may have
            if await self._board.get.remote():
                return Response('{"status": "ok"}', media_type="application/json")
            return refusal(path, 503, "no engine is in order")
        body = await request.body()
        if len(body) > MOST_BYTES:
            return refusal(path, 413, f"the body has more than {MOST_BYTES} bytes")
        if request.url.query:
            path += f"?{request.url.query}"
        asked = Asked(request.method, path, headers, body, beginning_of(body))
        try:
            head, pieces = await asyncio.wait_for(self._begun(asked), self._patience)
        except Unlucky as error:
            return refusal(path, 500, str(error))
        except BackPressureError:
            return refusal(path, 503, "too many requests wait")
        except asyncio.TimeoutError:
            return refusal(path, 503, f"no engine has begun to answer for {self._patience:g} s")
        streams = head.headers.get("content-type", "").startswith("text/event-stream")
        given = {**head.headers, "x-agentcompile-replica": head.replica}
        if streams:
            return StreamingResponse(events(path, pieces), head.status, given)
        whole = b""
        async for piece in pieces:
            if isinstance(piece, Lost):
                return refusal(path, 500, piece.why)
            whole += piece
        return Response(whole, head.status, given)

    async def _begun(self, asked: Asked) -> tuple[Head, AsyncIterator[bytes | Lost]]:
        """The answer of the first engine that begins one."""
        lost = 0
        while True:
            pieces = self._engines.ask.remote(asked)
            try:
                first = await anext(pieces)
            except RayActorError as error:  # the actor itself has died, which Ray knows
                first = Lost("", f"the replica is lost: {error}")
            if isinstance(first, Head):
                return first, until_lost(pieces, first.replica)
            lost += first.with_it
            if lost == MOST_LOST:
                raise Unlucky(f"{lost} engines were lost while they had this request, the last one so: {first.why}")
            asked = dataclasses.replace(asked, avoid=asked.avoid | {first.replica})

    async def _metrics(self) -> Response:
        """Those of all engines, each with its replica as a label."""
        lines: dict[str, list[str]] = {}  # by metric, as a metric's lines must stand together
        for replica, text in (await self._board.get.remote()).items():
            metric = ""
            for line in text.splitlines():
                if line.startswith("#"):
                    metric = line.split()[2]
                    if line not in lines.setdefault(metric, []):
                        lines[metric].append(line)
                else:
                    lines[metric].append(with_label(line, replica))
        return Response("".join(f"{line}\n" for of_one in lines.values() for line in of_one), media_type="text/plain")


def with_label(line: str, replica: str) -> str:
    """A line of metrics with one more label."""
    name, _, value = line.rpartition(" ")
    return f'{name[:-1]},replica="{replica}"}} {value}' if name.endswith("}") else f'{name}{{replica="{replica}"}} {value}'


async def until_lost(pieces: AsyncIterator[bytes | Lost], replica: str) -> AsyncIterator[bytes | Lost]:
    try:
        async for piece in pieces:
            yield piece
    except RayActorError as error:
        yield Lost(replica, f"the replica is lost: {error}")


async def events(path: str, pieces: AsyncIterator[bytes | Lost]) -> AsyncIterator[bytes]:
    """A stream, whose end says so if it is not whole."""
    async for piece in pieces:
        if not isinstance(piece, Lost):
            yield piece
            continue
        error = error_of(path, piece.why)
        if path.startswith(("/v1/messages", "/v1/responses")):
            yield f"event: error\ndata: {json.dumps({'type': 'error', **error})}\n\n".encode()
        else:
            yield f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode()


def error_of(path: str, message: str) -> dict[str, Any]:
    """In the form of the API that the path is of."""
    if path.startswith("/v1/messages"):
        return {"type": "error", "error": {"type": "api_error", "message": message}}
    return {"error": {"message": message, "type": "server_error", "param": None, "code": None}}


def refusal(path: str, status: int, message: str) -> Response:
    headers = {"retry-after": "1"} if status == 503 else {}
    return Response(json.dumps(error_of(path, message)), status, headers, media_type="application/json")


def build_app(args: Mapping[str, Any]) -> serve.Application:
    """What `serve run` and a config's `import_path` name. Arguments:

    model: what `agentcompile serve` takes.
    replicas: how many engines; 1 if not given.
    gpus, cpus: what each takes of its machine; 1 GPU and 1 CPU if not given. gpus=0: it runs on the CPU.
    at_once: requests that an engine is given before it has answered, of which it answers as many at a time as it has slots; 4.
    waiting: further requests that may wait for an engine; 64. More are refused.
    patience: seconds after which a request is refused that no engine has begun to answer, or, if it is no stream, has
        answered; 600.
    Others are options of `agentcompile serve`, as alias=NAME, cache_memory=8G, download=true."""
    given = dict(args)
    model = given.pop("model", None)
    if not model:
        raise WrongUsage("model is missing: serve run agentcompile.ray:build_app model=MODEL")
    replicas, at_once, waiting = (_number(given, *of, int, 1) for of in (("replicas", 1), ("at_once", 4), ("waiting", 64)))
    gpus, cpus = _number(given, "gpus", 1, float, 0), _number(given, "cpus", 1, float, 0)
    patience = _number(given, "patience", 600, float, 0)
    options = [str(model)] if gpus else [str(model), "--device", "host"]
    for name, value in given.items():
        if name in VALUES:
            options += [f"--{name.replace('_', '-')}", str(value)]
        elif name in FLAGS and str(value).lower() in ("true", "false"):
            options += [f"--{name}"] if str(value).lower() == "true" else []
        elif name in FLAGS:
            raise WrongUsage(f"{name} is {value}, and neither true nor false")
        else:
            raise WrongUsage(f"{name} is no argument: see the manual's page of deployments")
    keys = Path(given["api_key_file"]).read_text().split() if "api_key_file" in given else []
    board = serve.deployment(Board, name="Board", ray_actor_options={"num_cpus": 0}).bind()
    engines = serve.deployment(
        Engine,
        name="Engine",
        num_replicas=replicas,
        max_ongoing_requests=at_once,
        max_queued_requests=waiting,
        health_check_period_s=HEALTH_PERIOD,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=60,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        request_router_config={"request_router_class": "agentcompile.ray.ByBeginning"},
    ).bind(options, board, keys[0] if keys else None)
    gateway = serve.deployment(
        Gateway,
        name="Gateway",
        max_ongoing_requests=replicas * at_once + waiting + 16,  # with those that it refuses
        ray_actor_options={"num_cpus": 0},
    )
    return gateway.bind(engines, board, keys, patience)


def _number(given: dict[str, Any], name: str, otherwise: float, kind: type, least: float) -> Any:
    said = given.pop(name, otherwise)
    try:
        value = kind(said)
    except ValueError:
        raise WrongUsage(f"{name} is {said}, and no number") from None
    if value < least:
        raise WrongUsage(f"{name} is {said}, and not at least {least}")
    return value
