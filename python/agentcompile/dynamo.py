"""torch.compile(model, backend="agentcompile"): the forward of a model of transformers, by AgentCompile's step.

It gives what `model(input_ids, use_cache=False).logits` gives. The first call, and the first one after the weights have
changed, compiles the model and compares the logits with PyTorch's. Tokens that a call shares with the one before it are
not run again. What cannot be run is an error; nothing is left to PyTorch."""

from __future__ import annotations

import gc
import subprocess
import tempfile
import weakref

import numpy as np
import torch

from .exceptions import BY_STATUS, JobFailed, WrongUsage
from .llm import LLM
from .program import PROGRAM, environment

# How far logits may be from PyTorch's, in their range: rounding only.
CLOSE = {torch.float32: 1e-3, torch.float16: 8 / 1024, torch.bfloat16: 8 / 128}


def backend(graph: torch.fx.GraphModule, inputs, *, options: dict | None = None, **_):
    """Dynamo's entry. `options`: "device", as of LLM, and "max_context"."""
    forward = Forward(graph, inputs)
    runner = of = None

    def run(*given):
        nonlocal runner, of
        if torch.is_grad_enabled():
            raise _cannot("gradients are wanted")
        weights = [value for value in given if isinstance(value, torch.nn.Parameter)]
        now = options or {}, [_state(each) for each in weights]
        if of != now:
            runner = of = None  # there may be no room for two
            runner, of = _runner_of(forward, given, weights, *now), now
        return (forward.result(given, runner),)

    return run


def _cannot(why: str) -> WrongUsage:
    return WrongUsage(
        f"{why}: backend='agentcompile' runs a decoder of transformers, called as model(input_ids, use_cache=False) under torch.no_grad()"
    )


class Forward:
    """A graph of Dynamo's that makes logits of one sequence of token ids, and of what the module has."""

    def __init__(self, graph: torch.fx.GraphModule, inputs):
        self.graph = graph
        self.ids = None  # which input
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        for at, (node, value) in enumerate(zip(nodes, inputs)):
            if not isinstance(value, torch.Tensor) or "_modules_" in node.name:
                continue  # the number of tokens, or what the module has
            if self.ids is not None or value.ndim != 2 or value.dtype not in (torch.int64, torch.int32):
                raise _cannot(f"{node.name} is not the one input of token ids")
            if value.shape[0] != 1:
                raise _cannot(f"there are {value.shape[0]} sequences")
            self.ids = at
        if self.ids is None:
            raise _cannot("there is no input of token ids")
        results = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        logits = results[0].meta["example_value"] if len(results) == 1 else None
        if logits is None or logits.ndim != 3:
            raise _cannot(f"the forward gives {len(results)} tensors, and not logits alone")
        self.rows = logits.shape[1] if isinstance(logits.shape[1], int) else None  # the last so many; None: all
        self.dtype = logits.dtype

    def result(self, given, runner: Runner) -> torch.Tensor:
        ids = given[self.ids]
        logits = runner.logits(ids[0].tolist())[-self.rows if self.rows else 0 :]
        return torch.from_numpy(logits.copy()).to(ids.device, self.dtype)[None]


class Runner:
    """A model that is compiled, and the logits of the tokens that it was last asked about."""

    def __init__(self, model: torch.nn.Module, device: str | None = None, max_context: int | None = None):
        with tempfile.TemporaryDirectory(prefix="agentcompile-") as folder:
            source, package = f"{folder}/model", f"{folder}/package"
            model.save_pretrained(source)
            options = [f"--dtype={str(model.dtype).removeprefix('torch.')}"]
            options += [f"--device={device}"] if device else []
            options += [f"--max-context={max_context}"] if max_context else []
            command = [PROGRAM, "compile", source, "-o", package, "--quick", "-q", *options]
            result = subprocess.run(command, capture_output=True, text=True, env=environment())
            if result.returncode != 0:
                raise BY_STATUS.get(result.returncode, JobFailed)(result.stderr.removeprefix("error: ").strip())
            self._llm = LLM(package, device=device)
        self._ids: list[int] = []
        self._rows = np.empty((0, self._llm.vocabulary), np.float32)

    def logits(self, ids: list[int]) -> np.ndarray:
        known = 0
        while known < min(len(ids), len(self._ids)) and ids[known] == self._ids[known]:
            known += 1
        self._ids, rows = self._ids[:known], self._rows[:known]
        self._llm.truncate(known)
        for token in ids[known:]:
            self._llm.append([token])
            rows = np.concatenate([rows, self._llm.next_logits()[None]])
        self._ids, self._rows = ids, rows
        return rows


def _state(weight: torch.Tensor) -> tuple:
    """Another one after the weight has changed."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


# By model: what for, and the runner.
_runners: weakref.WeakKeyDictionary[torch.nn.Module, tuple] = weakref.WeakKeyDictionary()


def _runner_of(forward: Forward, given, weights: list, options: dict, states: list) -> Runner:
    model = _owner(weights)
    wanted = options, dict(zip(map(id, weights), states))
    known, runner = _runners.get(model, (None, None))
    if known != wanted:
        del runner
        _runners.pop(model, None)
        runner = Runner(model, **options)
        ours, theirs = forward.result(given, runner), forward.graph(*given)[0]
        error = ((ours - theirs).abs().max() / (theirs.max() - theirs.min())).item()
        if not error < CLOSE[forward.dtype]:
            raise JobFailed(f"the logits are {error:.2g} of their range away from PyTorch's")
        _runners[model] = wanted, runner
    return runner


def _owner(weights: list) -> torch.nn.Module:
    """The model that has these weights and no others: Dynamo's graph does not name it."""
    from transformers import PreTrainedModel

    wanted = set(map(id, weights))
    for model in gc.get_objects():
        if issubclass(type(model), PreTrainedModel) and model.get_output_embeddings() is not None:
            if wanted == set(map(id, model.parameters())):
                return model
    raise _cannot("no model of transformers has these weights")
