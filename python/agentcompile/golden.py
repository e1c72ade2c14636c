"""Checks a capture against the model it came from, and records what the model computes."""

import copy

import torch

from . import hf, weights
from .errors import CaptureError, first_line
from .export import Forward, Model, example_ids

VOCAB_LIMIT = 4096
PARAMETER_LIMIT = 200_000_000
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 1e-1}


def check_one_token(model: Model, program: torch.export.ExportedProgram) -> None:
    """Tracing assumes that S is neither 0 nor 1: shows that the graph is right for S = 1 too."""
    if not model.real_weights:
        return
    forward = Forward(model).eval()
    arguments = forward.arguments(example_ids(model, 1))
    with torch.no_grad():
        wanted = forward(*arguments)
        try:
            (got,) = torch.fx.Interpreter(program.graph_module).run(*_flat(program), *arguments)
        except Exception as error:  # whatever an op raises on a shape
            raise CaptureError(
                f"the captured graph cannot run on a single token: {first_line(error)}"
            ) from error
    limit = TOLERANCE.get(wanted.dtype, 1e-4) * max(1.0, float(wanted.abs().max()))
    if got.shape != wanted.shape or not bool(((got - wanted).abs() <= limit).all()):
        raise CaptureError(
            "the model computes something else for one token than for several: it tests the length"
        )


def _flat(program: torch.export.ExportedProgram) -> list:
    state, constants = program.state_dict, program.constants
    return [
        state[spec.target] if spec.target in state else constants[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    ]


def golden(model: Model, lengths: tuple) -> list:
    """Logits in float32 of the last of some random tokens, where the weights are at hand and the
    model is small."""
    parameters = sum(p.numel() for p in model.module.parameters())
    if (model.vocab_size or 0) > VOCAB_LIMIT or parameters > PARAMETER_LIMIT:
        return []
    if model.real_weights:
        module = copy.deepcopy(model.module)
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.data = tensor.data.float()
        if model.is_transformers:
            module.set_attn_implementation("eager")
    elif weights.Checkpoint(model.checkpoint).tensors:
        module = hf.load_float32(model.checkpoint, model.architecture)
    else:
        return []
    forward = Forward(Model(module, "", "", is_transformers=model.is_transformers)).eval()
    cases = []
    for length in lengths:
        ids = example_ids(model, length, seed=1)
        with torch.no_grad():
            logits = forward(*forward.arguments(ids))[0, -1].float()
        if logits.numel() > VOCAB_LIMIT:
            return []
        last = [weights.number(value) for value in logits]
        cases.append({"ids": ids[0].tolist(), "last_logits": last})
    return cases
