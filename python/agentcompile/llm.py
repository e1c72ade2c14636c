"""A model that gives text and tokens."""

from __future__ import annotations

import json
import operator
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _engine
from .exceptions import NotCompiled, WrongUsage
from .program import package_of

if TYPE_CHECKING:
    import numpy as np

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
PENALTIES = ("repeat_penalty", "presence_penalty", "frequency_penalty")
Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Answer:
    """What a model has written. As a string, it is the text."""

    text: str
    ids: list[int]  # with the token that ended it
    finish_reason: Literal["stop", "length", "interrupted"]
    prompt_tokens: int
    cached_tokens: int  # of the prompt, those that were known from one before
    first_token_seconds: float
    token_seconds: float  # of each later one; 0: there are too few to tell

    def __str__(self) -> str:
        return self.text


class Stream(Iterator[str]):
    """The text of an answer, in pieces of whole characters as they come. The answer is made in a thread of
    its own; it ends early with `close()`, with the end of a `with` block, or when nobody refers to this."""

    def __init__(self, make, stop):
        self._said: queue.SimpleQueue = queue.SimpleQueue()
        self._stop = stop
        self._begun, self._wanted = threading.Event(), threading.Event()
        self._wanted.set()
        self._answer: Answer | None = None
        self._ended = False
        # Which knows nothing of this object, so that it can be seen when nobody wants it any more.
        self._thread = threading.Thread(target=_speak, args=(make, self._said, self._begun, self._wanted))
        self._thread.start()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        while not self._ended:
            kind, what = self._wait()
            if kind == "piece":
                return what
            self._ended = True
            self._thread.join()
            if kind == "error":
                raise what
            self._answer = what
        raise StopIteration

    def _wait(self):
        try:
            return self._said.get()
        except BaseException:  # KeyboardInterrupt
            self.close()
            raise

    @property
    def answer(self) -> Answer:
        """All of it; what has not come yet is waited for."""
        for _ in self:
            pass
        if self._answer is None:
            raise WrongUsage("the answer was closed before its end")
        return self._answer

    def close(self) -> None:
        """Ends the answer."""
        self._ended = True
        self._wanted.clear()
        if self._begun.is_set() and self._thread.is_alive():  # else another answer is made, or none
            self._stop()
            self._thread.join()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self) -> None:
        # Not more: an answer ends by itself soon.
        if hasattr(self, "_wanted"):
            self._wanted.clear()


def _speak(make, said: queue.SimpleQueue, begun: threading.Event, wanted: threading.Event) -> None:
    main = threading.main_thread()

    def goes_on() -> bool:
        return wanted.is_set() and main.is_alive()  # else the program waits for its end

    def begins() -> bool:
        begun.set()
        return goes_on()

    def on_piece(text: str, token: int) -> bool:
        if text:
            said.put(("piece", text))
        return goes_on()

    try:
        said.put(("answer", make(begins, on_piece)))
    except BaseException as error:
        said.put(("error", error))


class LLM:
    """A model in memory.

    `model` is a package, or what `agentcompile compile` takes: a HuggingFace folder or id, FILE.py, ... That is
    compiled when it is first used, and kept, as the commands do it. With `quiet`, nothing is told of that.

    device: "host", "cuda" or "cuda:1"; else a GPU if there is one, or what the package is compiled for.
    max_context, dtype, weights, kv, full, download: options of `agentcompile package`, for a model that is compiled.
    checkpoint: where a package's checkpoint is now. random_weights: a seed of random weights instead.
    tokenizer, chat_template: a folder and a file to take instead of the model's own.
    cache_memory, cache_folder, cache_disk: bytes in memory for what was read of earlier prompts, a folder that
    keeps it for the next time, and bytes that this may hold.

    Several threads may use it; their calls wait for one another."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: str | None = None,
        max_context: int | None = None,
        dtype: str | None = None,
        weights: str | None = None,
        kv: str | None = None,
        full: bool = False,
        download: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        random_weights: int | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        chat_template: str | os.PathLike[str] | None = None,
        cache_memory: int = 0,
        cache_folder: str | os.PathLike[str] | None = None,
        cache_disk: int = 0,
        quiet: bool = False,
    ):
        name = os.fspath(model)
        given = {"--device": device, "--max-context": max_context, "--dtype": dtype, "--weights": weights, "--kv": kv}
        options = [part for option, value in given.items() if value is not None for part in (option, str(value))]
        options += [option for option, on in (("--full", full), ("--download", download)) if on]

        def load(package: str) -> _engine.Model:
            return _engine.Model(
                package,
                device or "",
                _path(checkpoint),
                random_weights,
                _path(tokenizer),
                _path(chat_template),
                cache_memory,
                _path(cache_folder),
                cache_disk,
            )

        self._lock = threading.Lock()
        self._model: _engine.Model | None = None
        try:
            self._model = load(name)
        except NotCompiled:
            pass
        else:
            of_compiler = [option for option in options if option.startswith("--") and option != "--device"]
            if of_compiler:
                self.close()
                raise WrongUsage(f"{of_compiler[0][2:]}: {name} is a package, which is compiled already")
        if self._model is None:
            self._model = load(package_of(name, *options, *(["--quiet"] if quiet else [])))

    # --- Life ---

    def close(self) -> None:
        """Ends an answer that is being made, and frees the device's memory."""
        model, self._model = self._model, None
        if model is not None:
            model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def _open(self) -> _engine.Model:
        if self._model is None:
            raise WrongUsage("the LLM is closed")
        return self._model

    @property
    def vocabulary(self) -> int:
        """Token ids are 0 up to this."""
        return self._open.vocabulary

    @property
    def max_context(self) -> int:
        """How many tokens a sequence can have."""
        return self._open.max_context

    @property
    def device(self) -> str:
        """The name of the device that the model runs on."""
        return self._open.device

    # --- Text ---

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text. `add_special`: with the special tokens that belong around it. `parse_special`:
        "<|im_end|>" is that token, and no text."""
        return self._open.tokenize(text, add_special, parse_special)

    def detokenize(self, ids: Iterable[int], *, with_special: bool = False) -> str:
        """The text of tokens. Special ones have none, unless `with_special`."""
        return self._open.detokenize(_ids(ids), with_special)

    def chat_ids(self, messages: Messages, *, tools: Tools | None = None, **variables: Any) -> list[int]:
        """The prompt of a conversation, by the model's chat template. `variables` are the template's."""
        return self._open.chat_ids(_conversation(messages, tools, variables))

    def chat_text(self, messages: Messages, *, tools: Tools | None = None, **variables: Any) -> str:
        """The same as text."""
        return self._open.chat_text(_conversation(messages, tools, variables))

    # --- Answers ---

    @overload
    def generate(self, prompt: str | Iterable[int], *, stream: Literal[False] = False, **how: Any) -> Answer: ...
    @overload
    def generate(self, prompt: str | Iterable[int], *, stream: Literal[True], **how: Any) -> Stream: ...

    def generate(
        self,
        prompt: str | Iterable[int],
        *,
        max_new_tokens: int | None = 256,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        repeat_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
        hear: Callable[[str, int], bool] | None = None,
    ) -> Answer | Stream:
        """Goes on with a text, or with token ids.

        What is None is as the model's generation_config.json says; without one, the likeliest token is taken, as
        with temperature 0. max_new_tokens None: what that file says, else as many as there is room for. stop: texts
        before which the answer ends. stream: gives the text in pieces, as it comes. hear: is called with each token and
        the text that came with it, in the thread that makes the answer, and with -1 for text that was held back until the
        end; False ends the answer."""
        ids = self.tokenize(prompt) if isinstance(prompt, str) else _ids(prompt)
        return self._answer(
            ids,
            False,
            max_new_tokens,
            stop,
            stream,
            hear,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            repeat_penalty=repeat_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
        )

    @overload
    def chat(self, messages: Messages, *, stream: Literal[False] = False, **how: Any) -> Answer: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], **how: Any) -> Stream: ...

    def chat(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        max_new_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
        **choosing: float | None,
    ) -> Answer | Stream:
        """Answers a conversation: a list of {"role": ..., "content": ...}.

        tools and variables are given to the chat template. Calls of tools are in the text, in the model's own form.
        All else is as for generate()."""
        ids = self.chat_ids(messages, tools=tools, **(variables or {}))
        return self._answer(ids, True, max_new_tokens, stop, stream, None, **choosing)

    def _answer(self, ids, is_conversation, max_new_tokens, stop, stream, hear, **choosing) -> Answer | Stream:
        sampling = _sampling(self._open, choosing)
        if max_new_tokens is not None and max_new_tokens < 1:
            raise WrongUsage(f"max_new_tokens is {max_new_tokens}, and not at least 1")
        stops = [stop] if isinstance(stop, str) else list(stop or [])
        if not all(isinstance(each, str) for each in stops):
            raise TypeError(f"stop is {stop!r}, and neither a text nor a list of texts")

        def make(begins, on_piece) -> Answer | None:
            with self._lock:
                if not begins():
                    return None
                each = on_piece if hear is None else lambda text, token: on_piece(text, token) and bool(hear(text, token))
                return Answer(*self._open.generate(ids, max_new_tokens or 0, sampling, stops, is_conversation, each))

        spoken = Stream(make, self._open.stop)
        return spoken if stream else spoken.answer

    # --- Token by token ---

    def logits(self, ids: Iterable[int], *, all: bool = False) -> np.ndarray:
        """What the model makes of these tokens: the logits after the last one, or with `all` a row for each, for
        which they are run one by one."""
        given = _ids(ids)
        with self._lock:
            self._open.truncate(0)
            if not all:
                self._open.append(given)
                return self._open.logits()
            import numpy as np

            rows = np.empty((len(given), self.vocabulary), np.float32)
            for row, token in zip(rows, given):
                self._open.append([token])
                row[:] = self._open.logits()
            return rows

    def append(self, ids: Iterable[int]) -> None:
        """Runs tokens after those of the sequence, which generate(), chat() and logits() begin anew."""
        self._open.append(_ids(ids))

    @property
    def position(self) -> int:
        """How many tokens the sequence has."""
        return self._open.position

    def truncate(self, tokens: int) -> None:
        """Forgets all tokens of the sequence but the first so many. There are no logits then, until some are appended."""
        self._open.truncate(tokens)

    def next_logits(self) -> np.ndarray:
        """After the sequence's last token."""
        return self._open.logits()

    def choose(self, **choosing: float | None) -> int:
        """The token that follows the sequence: the likeliest, or by temperature, top_k, top_p, min_p and seed."""
        without = {"repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
        return self._open.choose(_sampling(self._open, {"temperature": 0, **without, **choosing}))

    def save(self) -> bytes:
        """What was computed of the sequence, for restore()."""
        return self._open.save()

    def restore(self, state: bytes) -> None:
        """Goes on from there: with the same package and weights, on the same kind of device. There are no logits until
        tokens are appended."""
        self._open.restore(state)


def _path(path: str | os.PathLike[str] | None) -> str:
    return "" if path is None else os.fspath(path)


def _ids(ids: Iterable[int]) -> list[int]:
    if isinstance(ids, (str, bytes)):
        raise TypeError("token ids are integers, and not a text")
    return [operator.index(token) for token in ids]


def _conversation(messages: Messages, tools: Tools | None, variables: Mapping[str, Any]) -> str:
    conversation = {**variables, "messages": list(messages)}
    if tools is not None:
        conversation["tools"] = list(tools)
    return json.dumps(conversation)


def _sampling(model: _engine.Model, choosing: Mapping[str, float | None]) -> _engine.Sampling:
    """The model's own, where nothing is said."""
    said = {name: value for name, value in choosing.items() if value is not None}
    sampling = model.default_sampling()
    for name, value in said.items():
        if name not in (*SAMPLING, *PENALTIES):
            raise TypeError(f"{name} is not among {', '.join((*SAMPLING, *PENALTIES))}")
        try:
            setattr(sampling, name, value)
        except TypeError:
            raise TypeError(f"{name} cannot be {value!r}") from None
    useless = {"top_k", "top_p", "min_p"} & set(said) if sampling.temperature == 0 else ()
    for name in sorted(useless):
        raise WrongUsage(f"{name} has no effect at temperature 0, which takes the likeliest token")
    return sampling
