"""Every command line that README, the manual and the help texts show does what it says: it runs here, on a tiny
model. Those that take minutes run with AC_TEST_LONG=1; without it, their options are compared with the help."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
import text_model
from compiled import PROGRAM, ROOT, program
from test_manual import commands, options, whole_help
from variants import LONG

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/manual").glob("*.md"))]
CHEAP = "--tries 0 --unmeasured --chunk 16 --short-prompt 0 --max-context 512 -q -f"

# What an example needs, so that it takes a moment: of the first that fits, a pattern and its replacement.
SMALLER = [
    (r"compile (\S+) -o (\S+) --target sm_90 --advisor", rf"compile \1 -o \2 --target sm_90 {CHEAP} --advisor"),
    (r"compile model\.py:factory -o PKG --max-context 8192", r"compile model.py:factory -o PKG_OF_PYTHON -f --tries 0"),
    (r"compile (\S+) -o PKG --weights int4\b", rf"compile \1 -o PKG_OF_OTHERS {CHEAP} --weights int4:16"),
    (r"chat MODEL --weights int4$", "chat MODEL --weights int4:16 --max-context 512 --tries 0 --max-new-tokens 8"),
    (r"chat MODEL --kv fp8$", "chat MODEL --kv fp8 --max-context 512 --tries 0 --max-new-tokens 8"),
    (r"(perplexity MODEL) --weights int4 (.*)", r"\1 --weights int4:16 --max-context 512 --tries 0 \2"),
    (r"perplexity MODEL", "perplexity MODEL --max-context 512 --tries 0"),
    (r"compile (\S+) -o PKG( .*)", rf"compile \1 -o PKG_OF_OTHERS {CHEAP}\2"),
    (r"compile (\S+) -o PKG", rf"compile \1 -o PKG {CHEAP}"),
    (r"(generate|chat) (MODEL|QUANTIZED|PKG|build/demo\.package|Qwen/\S+)", r"\1 PKG --max-new-tokens 8"),  # test_generate.py has sources
    (r"--weights int4$", "--weights int4:16"),
    (r"package MODEL", "package PKG"),
    (r"--prompt 128,2048", "--prompt 8,16"),
    (r"--context 128,2048", "--context 16,64"),
    (r"--context 2048 --new 256", "--context 64 --new 4"),
    (r"--workload i128/o128", "--workload i8/o4"),
    (r"bench PKG --quick", "bench PKG --quick --workload i8/o4"),
    (r"--prompt 128 --new 256 --context 2048", "--prompt 16 --new 4 --context 64"),
    (r"15496,995", "15,9"),  # GPT-2's
    (r"agentcompile db (\w+)", r"agentcompile db \1 --db attempts.sqlite"),
    (r"\| man -l -", "| cat"),
]
NEEDS_HUB = "agentcompile pull"  # test_download.py has a hub of its own
SERVES = "agentcompile serve"  # test_serve_manual.py asks servers
ASKS = "http://127.0.0.1:8080"
# deploy.md: test_ray.py, test_nvidia_dynamo.py and test_deploy.py try what they can of these.
ELSEWHERE = ("pip install", "serve run ", "python -m agentcompile.nvidia_dynamo", "python -m dynamo.", "python -m sglang_router.", "podman ", "kubectl ")
TAKES_MINUTES = ("agentcompile tune", "agentcompile study", "--advisor ask:", "ls questions", "model.py", "build.sh")
NEEDS_GPU = "--device cuda"
EXIT_CODES = {"ask:questions": 5}  # replies are awaited


def shown_in(path) -> list:
    """The command lines of a page: those with a $ in a block of code, with their further lines."""
    lines = []
    for block in re.findall(r"^```.*?\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        lines += re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
    return lines


def shown_in_help() -> list:
    lines = []
    for words in commands():
        section = whole_help(*words).partition("\nExamples:\n")[2]
        lines += re.findall(r"^  ((?:.*\\\n)*.*)$", section.partition("\n\n")[0], re.MULTILINE)
    return lines


def all_examples() -> list:
    lines = [line for page in PAGES for line in shown_in(page)] + shown_in_help()
    return list(dict.fromkeys(re.sub(r"  +#.*$", "", line.replace("\\\n", "")).strip() for line in lines))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that has everything that examples name."""
    place = tmp_path_factory.mktemp("examples")
    text_model.write(place / "MODEL")
    for name in ("OTHER", "DIR", "Qwen3-0.6B"):
        (place / name).symlink_to("MODEL")
    shutil.copy(ROOT / "examples/tiny_decoder.py", place / "model.py")
    (place / "requests.jsonl").write_text('{"ids": [1, 2, 3], "max_new_tokens": 4}\n')
    (place / "text.txt").write_text("A river is a large natural stream of water.\n")
    (place / "chat.json").write_text('{"messages": [{"role": "user", "content": "Hello"}]}')
    (place / "bin").mkdir()
    (place / "bin/agentcompile").symlink_to(PROGRAM)
    for folder in (".zfunc", ".config/fish/completions"):
        (place / folder).mkdir(parents=True)
    measured = CHEAP.replace(" --unmeasured", "").split()  # which leaves a database
    program("compile", place / "MODEL", "-o", place / "PKG", "--database", place / "attempts.sqlite", *measured)
    return place


def run(place, line):
    environment = {
        **os.environ,
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "HOME": str(place),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
        "HF_HUB_OFFLINE": "1",
    }
    return subprocess.run(
        ["bash", "-c", line], cwd=place, env=environment, input="1,2,3\n", capture_output=True, text=True, timeout=600
    )


def has_gpu():
    return '"cuda": []' not in program("devices", "--json").stdout


def check_options(line):
    """The command and its options exist."""
    words = shlex.split(line)
    at = words.index("agentcompile") + 1
    command = words[at : at + (2 if words[at] in ("study", "db", "help") else 1)]
    known = options(whole_help(*command))
    assert {word for word in words if word.startswith("--")} <= known, line


def test_there_are_examples():
    lines = all_examples()
    assert len(lines) > 40
    for part in ("compile MODEL -o PKG", "chat MODEL", "study replay step.jsonl", "--advisor ask:questions"):
        assert any(part in line for line in lines), part


def test_examples_run(place):
    gpu = has_gpu()
    for shown in all_examples():
        line = shown
        for pattern, replacement in SMALLER:
            line, found = re.subn(pattern, replacement, line)
            if found:
                break
        if NEEDS_HUB in shown or SERVES in shown:
            check_options(shown)
            continue
        if ASKS in shown or shown.startswith(ELSEWHERE):
            continue
        if any(part in shown for part in TAKES_MINUTES) and not LONG:
            if "agentcompile" in shown:
                check_options(shown)
            continue
        result = run(place, line)
        expected = next((code for part, code in EXIT_CODES.items() if part in shown), 0)
        if NEEDS_GPU in shown and not gpu:
            assert result.returncode == 1 and "NVIDIA" in result.stderr, (line, result.stderr)
            continue
        assert result.returncode == expected, (line, result.stdout, result.stderr)
