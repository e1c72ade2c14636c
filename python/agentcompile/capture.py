"""Captures a PyTorch or HuggingFace decoder as a graph that AgentCompile can compile."""

import argparse
import json
import sys
import traceback
import warnings
from pathlib import Path

HELP = """
SOURCE is one of

  FILE.py[:factory]             a Python file with a function that returns an nn.Module, or
                                (module, vocab_size); without a name: factory, model, build_model
  DIR                           a project folder (no config.json) with such a function in model.py,
                                capture.py or __init__.py; the folder goes on sys.path
  DIR:module.path[:factory]     a project folder and where in it the function is
  DIR                           a HuggingFace folder: config.json, with or without safetensors
  NAME                          the id of a HuggingFace model in the local cache (never fetched)
  FILE.pt2                      a program saved by torch.export.save, one token-id input [1, S]

A .py file, a project folder and a .pt2 file run as code: only give it files that you trust.

Weights that are in no checkpoint are written beside FILE, with the suffix .safetensors.
exit codes: 0 captured, 1 cannot be captured, 2 wrong usage, 3 bad input
"""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m agentcompile.capture",
        description=__doc__,
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("source", metavar="SOURCE")
    result.add_argument("-o", "--output", metavar="FILE", required=True, help="the capture (JSON)")
    result.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        help="the dtype to compute in (default: the model's own)",
    )
    effort = result.add_mutually_exclusive_group()
    effort.add_argument(
        "--thorough",
        action="store_true",
        help="check the capture against the model at many lengths, and larger models (minutes)",
    )
    effort.add_argument(
        "--no-check", action="store_true", help="do not check the capture against the model"
    )
    result.add_argument(
        "--program",
        metavar="FILE",
        help="the program whose reference executor checks the capture (default: this build's)",
    )
    result.add_argument("--quiet", action="store_true", help="say nothing but errors")
    result.add_argument("--debug", action="store_true", help="show Python's own error trace too")
    return result


def capture(
    source: str,
    output: str,
    dtype: str | None = None,
    effort: str = "normal",
    program: str | None = None,
) -> dict:
    """Captures SOURCE into the file `output` and returns what was written. `effort` is that of the
    check against the model ("none", "normal", "thorough"), `program` the one that runs it."""
    from . import check, export
    from .errors import WrongUsage
    from .source import open_program, resolve

    path = Path(output)
    if path.suffix == ".safetensors":
        raise WrongUsage(f"{output}: the capture is JSON; its weights get the suffix .safetensors")
    if source.endswith(".pt2"):
        if dtype:
            raise WrongUsage("--dtype does not apply to an exported program")
        exported = open_program(source)
        model = export.Model(exported.module(), Path(source).stem, "ExportedProgram")
    else:
        model = resolve(source, dtype)
        exported = None
    content = write(model, path, exported)
    try:
        content["checked"] = check.validate(model, content, path, program, effort)
    except BaseException:
        for file in (path, path.with_suffix(".safetensors")):
            file.unlink(missing_ok=True)
        raise
    store(path, content)
    return content


def write(model, path: Path, exported=None) -> dict:
    """Captures a model into a file, unchecked. `exported` is its program where it has been traced
    already."""
    from . import check, export, weights
    from .document import Document
    from .errors import CaptureError

    # First of all, as a trace takes long: a checkpoint that cannot be read is told at once.
    checkpoint = weights.Checkpoint(model.checkpoint, model.module) if model.checkpoint else None
    prefix = "model." if exported is None else ""
    exported = exported or export.export(model)
    guards = getattr(exported, "_guards_code", None) or []
    document = Document(model, checkpoint, export.decompose(exported, prefix), prefix, guards)
    sidecar = path.with_suffix(".safetensors")
    content = document.build(sidecar.name)
    content["checked"] = check.skipped("the check did not end")
    model.vocab_size = model.vocab_size or content["model"]["vocab_size"]
    try:
        if document.tensors:
            weights.write_sidecar(sidecar, document.tensors)
    except OSError as error:
        raise CaptureError(f"cannot write {sidecar}: {error.strerror}") from error
    store(path, content)
    return content


def store(path: Path, content: dict) -> None:
    from . import weights
    from .errors import CaptureError

    try:
        weights.write_atomically(path, lambda temporary: Path(temporary).write_text(dump(content)))
    except OSError as error:
        raise CaptureError(f"cannot write {path}: {error.strerror}") from error


def dump(content: dict) -> str:
    """JSON with one list entry a line, so that two captures can be compared with diff."""

    def compact(value) -> str:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))

    parts = []
    for key, value in content.items():
        if isinstance(value, list) and value:
            value = "[\n  " + ",\n  ".join(compact(item) for item in value) + "\n ]"
        else:
            value = compact(value)
        parts.append(f" {compact(key)}: {value}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list | None = None) -> int:
    options = parser().parse_args(arguments)
    if not options.debug:
        warnings.simplefilter("ignore")
    try:
        import torch  # noqa: F401
    except ImportError:
        print("error: the capture needs PyTorch: pip install torch safetensors", file=sys.stderr)
        return 1
    from .errors import CaptureError, first_line, innermost_frame

    effort = "thorough" if options.thorough else "none" if options.no_check else "normal"
    try:
        content = capture(options.source, options.output, options.dtype, effort, options.program)
    except CaptureError as error:
        if options.debug:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:  # a fault of ours, or of a library: never a bare trace
        if options.debug:
            traceback.print_exc()
        print(
            f"error: the capture failed unexpectedly{innermost_frame(error)}: {first_line(error)} "
            "(python -m agentcompile.capture --debug shows the trace)",
            file=sys.stderr,
        )
        return 1
    if not options.quiet:
        print(
            f"captured {content['model']['architecture']}: {len(content['nodes'])} nodes, "
            f"{len(content['parameters'])} parameters; {content['checked']['summary']}",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
