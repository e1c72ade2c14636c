"""A backend of NVIDIA Dynamo: python -m agentcompile.nvidia_dynamo MODEL

Dynamo's frontend makes tokens of requests and texts of tokens; it finds this worker by its discovery, and gives it token ids.
One request is answered at a time, and what a request asks for and this engine has not is refused by its name.
(agentcompile.dynamo is another one: the backend of torch.compile.)"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.run import run
from dynamo.common.utils.token_ids import normalize_request_token_ids
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

from .exceptions import DeviceLost, WrongUsage
from .llm import LLM, Stream

# Options of a request by their names in Dynamo, and in LLM.generate().
CHOOSING = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "seed": "seed",
    "repetition_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
STOP_TOKENS = ("stop_token_ids", "stop_token_ids_visible", "stop_token_ids_hidden")
STOPPING = {"max_tokens", "stop", *STOP_TOKENS}
# Other options, with values that ask for nothing.
NOTHING = {
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1, 0),
    "include_stop_str_in_output": (False,),
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "skip_special_tokens": (True, False),  # of the text, which is the frontend's
    "return_tokens_as_token_ids": (True, False),
    "formatted_prompt": (False,),
}
ELSEWHERE = ("prefill_result", "bootstrap_info", "multi_modal_data", "encoder_result")  # which other workers are for


class Engine(LLMEngine):
    """One model, which `LLM` loads."""

    def __init__(self, model: str, tokenizer: str, name: str | None, **options: Any):
        self._model, self._tokenizer, self._name, self._options = model, tokenizer, name, options
        self._llm: LLM | None = None
        self._turn = asyncio.Lock()
        self._streams: dict[str, Stream] = {}

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[Engine, WorkerConfig]:
        args = _parser().parse_args(argv)
        tokenizer = args.tokenizer or args.model
        if not args.tokenizer and os.path.isdir(args.model) and not os.path.exists(os.path.join(args.model, "config.json")):
            raise WrongUsage(f"{args.model} has no config.json: name the model's HuggingFace folder or id with --tokenizer")
        options = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
        engine = cls(args.model, tokenizer, args.served_model_name, **options)
        config = WorkerConfig(
            namespace=args.namespace,
            component=args.component,
            endpoint=args.endpoint,
            model_name=tokenizer,
            served_model_name=args.served_model_name,
            endpoint_types=args.endpoint_types,
            discovery_backend=args.discovery_backend,
            request_plane=args.request_plane,
            event_plane=args.event_plane,
            tool_call_parser=args.dyn_tool_call_parser,
            reasoning_parser=args.dyn_reasoning_parser,
            enable_kv_routing=False,  # what is kept of prompts is not told
        )
        return engine, config

    async def start(self, worker_id: int) -> EngineConfig:
        self._llm = await asyncio.to_thread(LLM, self._model, **self._options)
        registration = LlmRegistration(context_length=self._llm.max_context, max_num_seqs=1)
        return EngineConfig(model=self._tokenizer, served_model_name=self._name, llm=registration)

    async def generate(self, request: Mapping[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        normalize_request_token_ids(request)
        ids, how, ends = request["token_ids"], _how(request), _ends(request)
        async with self._turn:
            if context.is_stopped():
                yield _last("cancelled", len(ids), 0)
                return
            loop = asyncio.get_running_loop()
            heard: asyncio.Queue[int | None] = asyncio.Queue()
            made = 0

            def hear(_: str, token: int) -> bool:
                if token >= 0:
                    loop.call_soon_threadsafe(heard.put_nowait, token)
                return token not in ends and not context.is_stopped()

            def whole() -> Any:
                try:
                    return stream.answer
                finally:
                    loop.call_soon_threadsafe(heard.put_nowait, None)

            try:
                stream = self._llm.generate(ids, stream=True, hear=hear, **how)
            except ValueError as error:
                raise InvalidArgument(str(error)) from None
            self._streams[context.id()] = stream
            answer = asyncio.ensure_future(asyncio.to_thread(whole))
            try:
                while (token := await heard.get()) is not None:
                    made += 1
                    yield {"token_ids": [token], "index": 0}
                try:
                    reason = (await answer).finish_reason
                except ValueError as error:  # WrongUsage and BadInput
                    if not context.is_stopped():
                        raise InvalidArgument(str(error)) from None
                    reason = "interrupted"  # abort() has closed it
                except DeviceLost as error:
                    os.kill(os.getpid(), signal.SIGTERM)  # nothing will be answered here any more
                    raise EngineShutdown(str(error)) from None
                if reason == "interrupted":
                    reason = "cancelled" if context.is_stopped() else "stop"  # a token of `ends`
                yield _last(reason, len(ids), made)
            finally:
                del self._streams[context.id()]
                await asyncio.to_thread(stream.close)

    async def abort(self, context: Any) -> None:
        stream = self._streams.get(context.id())
        if stream is not None:
            await asyncio.to_thread(stream.close)

    async def cleanup(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:
            await asyncio.to_thread(llm.close)


def _last(reason: str, prompt: int, made: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
    return {"token_ids": [], "index": 0, "finish_reason": reason, "completion_usage": usage}


def _ends(request: Mapping[str, Any]) -> set[int]:
    """Tokens that end an answer, beside the model's own."""
    stopping = request.get("stop_conditions") or {}
    return {token for name in STOP_TOKENS for token in stopping.get(name) or ()}


def _how(request: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of LLM.generate()."""
    sampling, stopping = request.get("sampling_options") or {}, request.get("stop_conditions") or {}
    for name in ELSEWHERE:
        if request.get(name):
            raise InvalidArgument(f"{name} is not supported: this worker reads a prompt of tokens and answers it, alone")
    for name, value in {**sampling, **stopping, **(request.get("output_options") or {})}.items():
        if name not in CHOOSING and name not in STOPPING and value is not None and value not in NOTHING.get(name, ()):
            raise InvalidArgument(f"{name} is not supported")
    how = {ours: sampling[theirs] for theirs, ours in CHOOSING.items() if sampling.get(theirs) is not None}
    if how.get("top_k") == -1:
        how["top_k"] = 0
    if "seed" in how:
        how["seed"] %= 1 << 64
    if how.get("temperature") == 0:  # the likeliest token, from whatever it would be drawn
        how = {name: value for name, value in how.items() if name not in ("top_k", "top_p", "min_p")}
    stop: Sequence[str] = stopping.get("stop") or ()
    return {**how, "max_new_tokens": stopping.get("max_tokens"), "stop": stop}


OPTIONS = ("device", "max_context", "dtype", "weights", "kv", "checkpoint", "cache_memory", "cache_folder", "cache_disk")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agentcompile.nvidia_dynamo", description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="what agentcompile.LLM takes: a package, a HuggingFace folder or id, ...")
    parser.add_argument("--tokenizer", help="the model's HuggingFace folder or id, for the frontend; needed for a package")
    parser.add_argument("--served-model-name", help="the model's name for clients")
    for name in OPTIONS:
        number = name in ("max_context", "cache_memory", "cache_disk")
        parser.add_argument(f"--{name.replace('_', '-')}", type=int if number else str, help="as of agentcompile.LLM")
    of_dynamo = parser.add_argument_group("of Dynamo, as its other backends have them")
    for name, value in (
        ("namespace", os.environ.get("DYN_NAMESPACE", "dynamo")),
        ("component", "backend"),
        ("endpoint", "generate"),
        ("endpoint-types", "chat,completions"),
        ("discovery-backend", os.environ.get("DYN_DISCOVERY_BACKEND", "etcd")),
        ("request-plane", os.environ.get("DYN_REQUEST_PLANE", "tcp")),
        ("event-plane", os.environ.get("DYN_EVENT_PLANE")),
        ("dyn-tool-call-parser", None),
        ("dyn-reasoning-parser", None),
    ):
        of_dynamo.add_argument(f"--{name}", default=value)
    return parser


if __name__ == "__main__":
    run(Engine)
