"""Checks a capture against the module that it was made of, trusting nothing of the compiler.

The program turns the capture into a step, as it does to compile it, and runs the step with its
reference executor, in double precision: whole prompts, prompts in chunks, and token by token. The
live module computes the same tokens in float32. Where the module is too large for that, the same
architecture is captured and checked with small sizes, all of them different.
"""

import copy
import json
import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import hf, shrink, weights
from .errors import CaptureError, first_line
from .export import Forward, Model, example_ids

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (ROOT / "build/release/agentcompile", ROOT.parent.parent / "bin/agentcompile")

# The module computes in float32, the reference in float64: this is how far apart they may be, in
# parts of the range of the logits, where the module itself does not lose more to rounding.
LEAST_TOLERANCE, MOST_TOLERANCE = 5e-6, 1e-2
NOISE_FACTOR = 8.0
HALF_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 8e-2}

CHUNK = 7
SMALL = 2_000_000  # parameters
LONGEST = 130  # of lengths that no test of the model's own asks for
FLOPS_A_SECOND = 1e9  # what the reference and the module do together, on two cores
SECONDS = {"normal": 4.0, "thorough": 120.0}
LENGTHS = {"normal": 12, "thorough": 64}


class Skipped(Exception):
    """There is nothing to compare with; the text says why."""


@dataclass
class Subject:
    """A module whose capture lies in a file."""

    forward: Forward  # in float32, or in its own dtype where it runs in no other
    vocab_size: int
    parameters: int
    tolerance: float | None = None  # None: from the module's own rounding
    what: str = "the model itself"
    own_weights: bool = True  # not drawn for the check
    content: dict = field(default_factory=dict)
    file: Path | None = None
    folder: tempfile.TemporaryDirectory | None = None  # that the file is in

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.forward(*self.forward.arguments(ids))[0].double()


def find_program(given: str | None) -> str | None:
    """The program whose reference executor runs captures."""
    named = given or os.environ.get("AGENTCOMPILE")
    for program in [Path(named)] if named else PROGRAMS:
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return None


def validate(model: Model, content: dict, file: Path, program: str | None, effort: str) -> dict:
    """What the capture's "checked" says; raises where module and capture disagree."""
    if effort == "none":
        return skipped("the check was switched off")
    program = find_program(program)
    if program is None:
        return skipped("the program 'agentcompile' was not found: name it with --program")
    try:
        with _few_threads(model):
            subject = _subject(model, content, file, effort)
            try:
                return _compare(subject, program, effort)
            except CaptureError:
                if subject.tolerance or content["model"]["dtype"] == "float32":
                    raise
                return _compare_halves(model, subject, program, effort)
    except Skipped as why:
        return skipped(str(why))


def skipped(why: str) -> dict:
    return {"summary": f"not checked against the model: {why}"}


@contextmanager
def _few_threads(model: Model):
    """In a small model threads wait for each other ten times as long as they compute."""
    threads = torch.get_num_threads()
    if sum(p.numel() for p in model.module.parameters()) < SMALL or not model.real_weights:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _compare_halves(model: Model, subject: Subject, program: str, effort: str) -> dict:
    """A half type may round constants of the forward that are finer in float32. Then the capture
    need only come as near as that type allows, and the same model captured in float32 is compared
    as strictly as any."""
    dtype = subject.content["model"]["dtype"]
    subject.tolerance = HALF_TOLERANCE[getattr(torch, dtype)]
    checked = _compare(subject, program, effort)
    single = copy.copy(model)
    single.module, single.checkpoint, single.real_weights = subject.forward.model, None, True
    if model.is_transformers:
        single.module.set_attn_implementation(model.module.config._attn_implementation)
    # What was assumed of scores is the capture's own.
    scores = {key: checked[key] for key in ("scores",) if key in checked}
    return _compare(_recaptured(single, f"the model in float32, not {dtype}"), program, effort) | scores


def _subject(model: Model, content: dict, file: Path, effort: str) -> Subject:
    parameters = sum(p.numel() for p in model.module.parameters())
    affordable = _tokens(parameters, content["model"]["vocab_size"], effort) >= 24
    if model.real_weights:
        if not affordable:
            raise Skipped(f"{parameters} parameters are too many to run here; --thorough tries more")
        return _live(model, content, file, parameters)
    if affordable and not model.quantized and weights.Checkpoint(model.checkpoint).tensors:
        module = _quietly(lambda: hf.load(model.checkpoint, model.module), "load the checkpoint")
        if module is not None:
            loaded = copy.copy(model)
            loaded.module = module
            return _live(loaded, content, file, parameters)
    return _shrunk(model)


def _live(model: Model, content: dict, file: Path, parameters: int) -> Subject:
    subject = Subject(_truth(model), content["model"]["vocab_size"], parameters)
    subject.content, subject.file = content, file
    ids = example_ids(model, 3, seed=1)
    try:
        subject.logits(ids)
    except Exception:  # a forward that names its dtype runs in that one only
        subject.forward = Forward(model)
        subject.forward.ids_alone = True
        subject.tolerance = HALF_TOLERANCE.get(getattr(torch, content["model"]["dtype"]), 1e-4)
        try:
            subject.logits(ids)
        except Exception as error:
            raise Skipped(f"the model itself cannot run: {first_line(error)}") from error
    return subject


def _truth(model: Model) -> Forward:
    """The module in float32, with its own attention and its own positions."""
    module = copy.deepcopy(model.module)
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            tensor.data = tensor.data.float()
    if model.is_transformers:
        module.set_attn_implementation("eager")
    truth = copy.copy(model)
    truth.module = module
    forward = Forward(truth)
    forward.ids_alone = True
    return forward


def _shrunk(model: Model) -> Subject:
    """The same architecture with small sizes and random weights, captured anew."""
    small, sizes = _quietly(lambda: shrink.shrink(model), "build the architecture with small sizes")
    subject = _recaptured(small, f"its architecture with {sizes}")
    subject.own_weights = False
    return subject


def _recaptured(model: Model, what: str) -> Subject:
    from . import capture

    folder = tempfile.TemporaryDirectory(prefix="agentcompile-check-")
    file = Path(folder.name) / "capture.json"
    content = capture.write(model, file)
    subject = _live(model, content, file, sum(p.numel() for p in model.module.parameters()))
    subject.what, subject.folder = what, folder
    return subject


def _quietly(action, what: str):
    try:
        return action()
    except Exception as error:  # transformers raises whatever it likes
        raise Skipped(f"transformers cannot {what}: {first_line(error)}") from error


def _tokens(parameters: int, vocab_size: int, effort: str) -> int:
    return int(SECONDS[effort] * FLOPS_A_SECOND / (2 * parameters + 50 * vocab_size + 100_000))


def _numbers(value):
    """The integers among a node's shape and arguments: heads, head sizes, windows, diagonals."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)) and value == value and abs(value) < 1 << 20:
        yield abs(int(value))
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item)


def lengths(content: dict, budget: int, count: int) -> list:
    """Lengths that coincide with nothing, and with everything: each size and number in the graph
    and its neighbours, powers of two and theirs, and the greatest length that the capture allows."""
    most = content["symbols"]["S"]["max"]
    inner = {n for node in content["nodes"] for n in _numbers([node["shape"], node["args"]])}
    inner |= {n for entry in content["parameters"] for n in _numbers(entry["shape"])}
    rising = sorted(n for n in inner if 2 < n < LONGEST)
    near = [n + step for n in [4, *rising, 8, 16, 32, 64, 128] for step in (0, 1, -1)]
    if most <= 4 * LONGEST:
        near = [most, *near]
    chosen, spent = [], 0
    for n in [1, 2, 3, 37, 5, *near]:
        if len(chosen) == count:
            break
        if 0 < n <= most and n not in chosen and spent + n <= budget:
            chosen.append(n)
            spent += n
    return sorted(chosen)


def _compare(subject: Subject, program: str, effort: str) -> dict:
    # A third for whole prompts, the rest for the longest of them in chunks and token by token.
    budget = _tokens(subject.parameters, subject.vocab_size, effort) // 3
    wanted, spans = {}, lengths(subject.content, max(budget, 8), LENGTHS[effort])
    generator = torch.Generator().manual_seed(20)
    ids = torch.randint(0, subject.vocab_size, (1, max(spans)), generator=generator)
    deadline = time.monotonic() + SECONDS[effort]
    for span in sorted(spans, key=lambda n: (n > 3, -n if n <= 64 else n)):
        if time.monotonic() > deadline and len(wanted) > 3:
            break
        try:
            wanted[span] = subject.logits(ids[:, :span])
        except (IndexError, RuntimeError, ValueError, AssertionError) as error:
            failed = error  # longer than a table of positions, say
    if not wanted:
        raise Skipped(f"the model itself cannot run: {first_line(failed)}")
    longest = max(wanted)
    runs = [(n, n) for n in sorted(wanted)] + [(longest, CHUNK), (longest, 1)]
    outputs, scores = _reference(program, subject.file, ids[0].tolist(), runs, subject.vocab_size)
    tolerance = subject.tolerance or _tolerance(subject, ids[:, : min(longest, 48)])
    worst = 0.0
    for (_, chunk), got in zip(runs, outputs):
        span = len(got)  # fewer tokens than asked for, where the step knows no more
        if span not in wanted:
            wanted[span] = subject.logits(ids[:, :span])
        error, position = _error(got, wanted[span])
        worst = max(worst, error)
        if not error <= tolerance:
            raise CaptureError(_disagreement(subject, span, chunk, position, error, tolerance))
    known = sorted({len(got) for got in outputs})
    measured, summary = {}, ""
    if scores:
        measured = {"scores": {**scores, "own_weights": subject.own_weights}}
        summary = (
            f"; a finite mask hides while attention scores are at most {scores['within']:.6g}, "
            f"and they were at most {scores['largest']:.3g}"
        )
    return {
        "summary": f"checked against {subject.what}: {len(known)} prompts of up to {known[-1]} tokens, "
        f"logits at most {worst:.1g} of their range apart{summary}",
        "against": subject.what,
        "lengths": known,
        "chunks": [CHUNK, 1],
        "worst_error": float(f"{worst:.3g}"),
        "tolerance": float(f"{tolerance:.3g}"),
        **measured,
    }


def _disagreement(subject, span, chunk, position, error, tolerance) -> str:
    way = "at once" if chunk >= span else "token by token" if chunk == 1 else f"in chunks of {chunk}"
    return (
        f"the compiled form of the model does not compute what the model computes ({subject.what}): "
        f"with a prompt of {span} tokens, taken {way}, the logits of token {position} differ by "
        f"{error:.2g} of their range; {tolerance:.1g} can be rounding. Please report this with the "
        "model: either a rule of the compiler is wrong, or the forward does what an incremental "
        "step cannot (it looks ahead, or at the number of tokens). --no-check would capture it all "
        "the same, and give these logits"
    )


def _error(got: torch.Tensor, wanted: torch.Tensor) -> tuple:
    """The worst difference, in parts of the range of the logits, and where it is."""
    finite = torch.isfinite(wanted)
    span = float(wanted[finite].max() - wanted[finite].min()) if bool(finite.any()) else 0.0
    scale = max(span, 1e-3 * float(wanted[finite].abs().max()) if bool(finite.any()) else 0.0, 1e-30)
    apart = torch.where(finite, (got - wanted).abs() / scale, torch.zeros_like(wanted))
    apart[~finite & torch.isfinite(got)] = float("inf")
    apart[apart.isnan()] = float("inf")
    place = int(apart.amax(-1).argmax())
    return float(apart.max()), place


class _Doubles(TorchDispatchMode):
    """Computes in float64 whatever float type the module names."""

    FLOATS = (torch.float32, torch.float16, torch.bfloat16)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if any(value is each for each in self.FLOATS) else value

        kwargs = {key: widen(value) for key, value in (kwargs or {}).items()}
        return function(*(widen(value) for value in args), **kwargs)


def _tolerance(subject: Subject, ids: torch.Tensor) -> float:
    """From what rounding does to the module itself: the same tokens in float32 and in float64."""
    default = torch.get_default_dtype()
    try:
        single = subject.logits(ids)
        forward = copy.deepcopy(subject.forward).double()
        torch.set_default_dtype(torch.float64)
        with torch.no_grad(), _Doubles():
            double = forward(*forward.arguments(ids))[0]
        noise = _error(single, double.double())[0]
    except Exception:  # a module that insists on its types
        noise = LEAST_TOLERANCE
    finally:
        torch.set_default_dtype(default)
    return min(max(LEAST_TOLERANCE, NOISE_FACTOR * noise), MOST_TOLERANCE)


def _reference(program: str, file: Path, ids: list, runs: list, vocab_size: int) -> tuple:
    """The reference's logits of every token, a tensor [tokens, vocabulary] for each run, and what is
    assumed of attention scores beside what they were, if anything is. A step that knows fewer tokens
    than a run asks for computes those it knows."""
    with tempfile.TemporaryDirectory(prefix="agentcompile-check-") as folder:
        work, out = Path(folder, "work.json"), Path(folder, "logits")
        cases = [{"tokens": tokens, "chunk": chunk} for tokens, chunk in runs]
        work.write_text(json.dumps({"ids": ids, "runs": cases}))
        done = subprocess.run(
            [program, "evaluate", str(file), "--work", str(work), "-o", str(out)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            # The compiler says so itself, and better, when it reads the capture.
            reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise Skipped(f"the compiler refuses it: {reason[-1].replace(str(file), 'the capture')}")
        data = torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float64)
    most = int(data[0])
    parts = data[1:].split([min(tokens, most) * vocab_size for tokens, _ in runs])
    scores = json.loads(done.stdout) if done.stdout.strip() else None
    return [part.reshape(-1, vocab_size) for part in parts], scores
