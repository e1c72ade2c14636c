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
    result.add_argument("--debug", action="store_true", help="show Python's own error trace too")
    return result


def capture(source: str, output: str, dtype: str | None = None) -> dict:
    """Captures SOURCE into the file `output` and returns what was written."""
    import torch

    from . import export, golden, weights
    from .document import Document
    from .errors import CaptureError, WrongUsage
    from .source import open_program, resolve

    path = Path(output)
    if path.suffix == ".safetensors":
        raise WrongUsage(f"{output}: the capture is JSON; its weights get the suffix .safetensors")
    prefix = "model."
    if source.endswith(".pt2"):
        if dtype:
            raise WrongUsage("--dtype does not apply to an exported program")
        name = Path(source).stem
        model = export.Model(None, name=name, architecture="ExportedProgram", real_weights=False)
        program, prefix = open_program(source), ""
    else:
        model = resolve(source, dtype)
        program = export.export(model)
    program = export.decompose(program, prefix)
    document = Document(model, program, prefix)
    sidecar = path.with_suffix(".safetensors")
    content = document.build(sidecar.name)
    content["golden"] = []
    if model.module is not None:
        model.vocab_size = model.vocab_size or content["model"]["vocab_size"]
        golden.check_one_token(model, program)
        content["golden"] = golden.golden(model, (5, 37))
    try:
        if document.tensors:
            weights.write_sidecar(sidecar, document.tensors)
        weights.write_atomically(path, lambda temporary: Path(temporary).write_text(dump(content)))
    except OSError as error:
        raise CaptureError(f"cannot write {output}: {error.strerror}") from error
    return content


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
    from .errors import CaptureError

    try:
        content = capture(options.source, options.output, options.dtype)
    except CaptureError as error:
        if options.debug:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"captured {content['model']['architecture']}: {len(content['nodes'])} nodes, "
        f"{len(content['parameters'])} parameters -> {options.output}",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
