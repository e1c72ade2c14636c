"""Speed of `agentcompile tokenize` against the library `tokenizers`, on one thread.

    .venv/bin/python bench/tokenizer_speed.py FOLDER... [--text FILE] [--bytes N]

Prints a JSON line for each folder (with a tokenizer.json): seconds of processor time to load and to encode
the text, and how many times faster the program is. Its own time is that of a run with the text less that of
a run without, the best of three; the library's is the best of two.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(os.environ.get("AGENTCOMPILE", ROOT / "build/release/agentcompile"))


def documents(size: int) -> str:
    """Text that Debian and Python bring: licences, documents, programs."""
    text = b""
    for root, pattern in (("/usr/share/doc", "*/copyright"), (Path(os.__file__).parent, "*.py")):
        for file in sorted(Path(root).glob(pattern)):
            text += file.read_bytes()
            if len(text) >= size:
                break
    text *= size // len(text) + 1
    return text[:size].decode(errors="ignore")


def seconds(action) -> float:
    before = os.times()
    action()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def measure(folder: Path, text: str) -> dict:
    def run(data: str):
        subprocess.run([PROGRAM, "tokenize", folder], input=data.encode(), stdout=subprocess.DEVNULL, check=True)

    started = seconds(lambda: subprocess.run([PROGRAM, "tokenize", "--help"], stdout=subprocess.DEVNULL, check=True))
    load = min(seconds(lambda: run("")) for _ in range(3))
    encode = min(seconds(lambda: run(text)) for _ in range(3)) - load
    file = str(folder / "tokenizer.json")
    library_load = min(seconds(lambda: Tokenizer.from_file(file)) for _ in range(2))
    tokenizer = Tokenizer.from_file(file)
    library = min(seconds(lambda: tokenizer.encode(text, add_special_tokens=False)) for _ in range(2))
    size = len(text.encode())
    return {
        "what": "tokenize",
        "tokenizer": folder.name,
        "tokens": tokenizer.get_vocab_size(),
        "bytes": size,
        "load_ms": 1e3 * (load - started),
        "library_load_ms": 1e3 * library_load,
        "encode_s": encode,
        "library_encode_s": library,
        "mb_s": size * 1e-6 / encode,
        "times_faster": library / encode,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--bytes", type=int, default=10_000_000)
    arguments = parser.parse_args()
    text = arguments.text.read_text() if arguments.text else documents(arguments.bytes)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    machine = next((x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "")
    about = {
        "machine": machine or platform.machine(),
        "commit": commit.stdout.strip(),
        "command": f"bench/tokenizer_speed.py {' '.join(f.name for f in arguments.folders)} --bytes {arguments.bytes}",
    }
    for folder in arguments.folders:
        print(json.dumps({**measure(folder, text), **about}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
