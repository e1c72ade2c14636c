"""Requests of `run`: drawn tokens, files of ids and of requests, and prompts that begin alike."""

import json
import subprocess

import pytest
import tiny_models
from compiled import PROGRAM, compile_package, program

# Layers that see 16 tokens beside one that sees all (chunks of 8: rings of 23 slots), and plain ones.
MODELS = ["qwen2_layer_types", "llama_gqa"]
DRAWS = {
    "temperature": ["--temperature", 0.8],
    "top_k": ["--temperature", 1.5, "--top-k", 5, "--seed", 3],
    "top_p": ["--temperature", 2, "--top-p", 0.6, "--seed", 4],
    "min_p": ["--temperature", 1.2, "--min-p", 0.2, "--seed", 5],
    "all": ["--temperature", 0.9, "--top-k", 40, "--top-p", 0.9, "--min-p", 0.01, "--seed", 2**63],
}
NEW_TOKENS = 20


@pytest.fixture(scope="module", params=MODELS)
def pair(request, tmp_path_factory):
    """A model and its package."""
    folder = tmp_path_factory.mktemp(request.param)
    source = tiny_models.write_case(request.param, folder / "model")
    compile_package(source, folder / "package", tries=0)
    return source, folder / "package"


def run(source, *options) -> list:
    lines = program("run", source, "--json", "-n", NEW_TOKENS, *options).stdout.splitlines()
    return [json.loads(line) for line in lines]


def text(ids) -> str:
    return ",".join(map(str, ids))


@pytest.mark.parametrize("draw", DRAWS)
def test_a_package_draws_what_the_reference_draws(pair, draw):
    source, package = pair
    ids = tiny_models.prompt(MODELS[0])
    options = ["--ids", text(ids), *DRAWS[draw]]
    (truth,) = run(source, "--reference", *options)
    (got,) = run(package, *options)
    assert got["generated"] == truth["generated"]
    assert got["sampling"] == truth["sampling"]
    # However the prompt is cut, and however often.
    assert run(package, *options, "--chunk", 3)[0]["generated"] == got["generated"]
    # Its own numbers, from the first token on.
    (greedy,) = run(package, "--ids", text(ids))
    assert greedy["sampling"]["temperature"] == 0
    assert greedy["generated"] != got["generated"]


def test_limits_that_leave_one_token_are_greedy(pair):
    _, package = pair
    ids = ["--ids", "1,2,3"]
    greedy = run(package, *ids)[0]["generated"]
    for options in (["--top-k", 1], ["--top-p", 1e-6], ["--min-p", 1]):
        assert run(package, *ids, "--temperature", 1, *options)[0]["generated"] == greedy
    assert run(package, *ids, "--temperature", 1e-6)[0]["generated"] == greedy
    assert run(package, *ids, "--temperature", 0, "--top-k", 9)[0]["generated"] == greedy


def test_requests_that_begin_alike(pair, tmp_path):
    source, package = pair
    made = json.loads((package / "program.json").read_text())
    system = tiny_models.prompt(MODELS[0])[:9]
    requests = [
        {"ids": system + [5, 6, 7]},
        {"ids": system + [8], "temperature": 1.1, "top_k": 30, "seed": 9, "max_new_tokens": 7},
        {"ids": system + [8]},
        {"ids": system + [8], "stop_ids": list(range(0, made["vocab"], 2))},
        {"ids": [system[0]]},
        {"ids": list(range(1, 40)), "max_new_tokens": 30},
        {"ids": list(range(1, 30)) + [7]},
        {"ids": list(range(1, 30)) + [7], "max_new_tokens": 0},
        {"ids": [4]},
    ]
    # A turn: all that was said, and more.
    first = run(package, "--ids", text(system))[0]
    requests += [{"ids": system}, {"ids": system + first["generated"] + [3, 3]}]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n\n".join(map(json.dumps, requests)) + "\n")
    got = run(package, "--requests", file)
    assert [line["ids"] for line in got] == [request["ids"] for request in requests]
    windowed = any(cache["window"] > 0 for cache in made["states"])
    cached = [line["cached"] for line in got]
    # A ring has forgotten the beginning of what is longer than it is.
    assert cached[:5] == ([0, 0, 9, 0, 0] if windowed else [0, 9, 9, 9, 0])
    assert cached[-1] == len(system) + NEW_TOKENS - 1
    assert cached[6] == (0 if windowed else 29)
    assert cached[7] == (0 if windowed else 29)
    for line, request in zip(got, requests):
        alone = tmp_path / "one.jsonl"
        alone.write_text(json.dumps(request))
        (fresh,) = run(package, "--requests", alone)
        assert fresh["cached"] == 0
        assert line["generated"] == fresh["generated"], request
        (truth,) = run(source, "--reference", "--requests", alone)
        assert line["generated"] == truth["generated"], request
    stopped = got[3]["generated"]
    assert all(token % 2 for token in stopped[:-1])
    assert len(stopped) == NEW_TOKENS or stopped[-1] % 2 == 0


def test_files_of_ids(pair, tmp_path):
    _, package = pair
    file = tmp_path / "ids"
    file.write_text(" 3, 14\n15,\t9\n")
    (got,) = run(package, "--ids-file", file)
    assert got["ids"] == [3, 14, 15, 9]
    assert got["generated"] == run(package, "--ids", "3,14,15,9")[0]["generated"]


@pytest.mark.parametrize("pair", MODELS[1:], indirect=True)
def test_ids_and_requests_come_through_pipes(pair, tmp_path):
    _, package = pair
    wanted = run(package, "--ids", "3,14,15,9")[0]["generated"]
    for option, text in (("--ids-file", "3 14,15 9"), ("--requests", '{"ids": [3, 14, 15, 9]}\n')):
        command = f'"{PROGRAM}" run "{package}" --json -n {NEW_TOKENS} {option}'
        for shell in (f"printf '%s' '{text}' | {command} -", f"{command} <(printf '%s' '{text}')"):
            result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
            assert result.returncode == 0, result.stderr
            assert json.loads(result.stdout)["generated"] == wanted
    result = subprocess.run([PROGRAM, "run", package, "--requests", "-"], input="{", capture_output=True, text=True)
    assert result.returncode == 3 and "stdin: line 1" in result.stderr
    refused(pair, "--ids-file", tmp_path, says="cannot read", expect=3)


@pytest.mark.parametrize("pair", MODELS[1:], indirect=True)
def test_nothing_is_run_before_all_requests_are_checked(pair, tmp_path):
    source, package = pair
    file = tmp_path / "requests.jsonl"
    vocab = json.loads((package / "program.json").read_text())["vocab"]
    for line, says in (
        ({"ids": [1, vocab]}, f"line 3: the token id {vocab} is outside the vocabulary of {vocab}"),
        ({"ids": [-1]}, "line 3: the token id -1"),
        ({"ids": [1], "stop_ids": [vocab]}, f"line 3: the stop id {vocab}"),
        ({"ids": [1] * 96, "max_new_tokens": 2}, "line 3: the package holds 96 tokens"),
    ):
        file.write_text('{"ids": [1]}\n\n' + json.dumps(line) + '\n{"ids": [2]}\n')
        result = program("run", package, "--requests", file, expect=3)
        assert f"{file}: {says}" in result.stderr and result.stdout == ""
        if "holds" not in says:
            result = program("run", source, "--reference", "--requests", file, expect=3)
            assert f"{file}: {says}" in result.stderr and result.stdout == ""
    file.write_text(json.dumps({"ids": [1] * 96, "max_new_tokens": 1}))
    run(package, "--requests", file)


@pytest.mark.parametrize("pair", MODELS[1:], indirect=True)
def test_options_that_would_not_count_are_refused(pair):
    source, package = pair
    ids = ("--ids", "1")
    for options, says in (
        (("--seed", -1), "a seed is not below 0"),
        (("--stop-ids", ""), "is not a token id"),
        (("--threads", 2), "--threads: only the reference"),
        (("--download",), "--download: a package is captured"),
        (("--front-end", "native"), "--front-end: a package is captured"),
    ):
        refused(pair, *ids, *options, says=says)
    refused(pair, *ids, "--stop-ids", 999999, says="the stop id 999999 is outside", expect=3)
    for option in (("--device", "host"), ("--checkpoint", source), ("--random-weights", 1)):
        message = program("run", source, "--reference", *ids, *option, expect=2).stderr
        assert f"{option[0]}: the reference executor" in message


@pytest.mark.parametrize("pair", MODELS[1:], indirect=True)
def test_sources_that_are_something_else_are_named(pair, tmp_path):
    _, package = pair
    for command in (("run", package, "--reference", "--ids", 1), ("compile", package, "-o", tmp_path / "x")):
        assert f"{package} is a package" in program(*command, expect=2).stderr
    for name in ("gpt2", "meta-llama/Llama-3.2-1B", tmp_path / "absent", "nope.py:f"):
        message = program("run", name, "--ids", 1, expect=3).stderr
        assert f"{name} does not exist" in message and f"agentcompile compile {name}" in message
    message = program("run", "nope.py:f", "--reference", "--ids", 1, expect=3).stderr
    assert "nope.py: there is no such file" in message


def refused(pair, *options, says, expect=2):
    error = program("run", pair[1], *options, expect=expect).stderr
    for part in [says] if isinstance(says, str) else says:
        assert part in error, error


def test_what_makes_no_sense_is_refused(pair, tmp_path):
    file = tmp_path / "file"
    refused(pair, "--ids", "1", "--temperature", -1, says="temperature -1")
    refused(pair, "--ids", "1", "--temperature", "nan", says="temperature nan")
    refused(pair, "--ids", "1", "--temperature", 1, "--top-p", 0, says="top-p 0")
    refused(pair, "--ids", "1", "--temperature", 1, "--min-p", 2, says="min-p 2")
    refused(pair, "--ids", "1", "--temperature", 1, "--top-k", -3, says="top-k -3")
    refused(pair, "--ids", "1", "--top-k", 3, says="--temperature")
    refused(pair, "--ids", "1", "--ids-file", file, says="Exactly 1 option from")
    refused(pair, says="--requests")
    refused(pair, "--ids-file", file, says=str(file), expect=3)
    for content, says in (("1 x", "x"), ("-1", "-1"), ("", "no token ids")):
        file.write_text(content)
        refused(pair, "--ids-file", file, says=says, expect=3)
    for content, says in (
        ("", "no requests"),
        ('{"ids": [1]}\n[]', ["line 2", "object"]),
        ("{", "line 1"),
        ('{"ids": []}', '"ids" is missing or empty'),
        ('{"max_new_tokens": 3}', '"ids" is missing or empty'),
        ('{"ids": [1], "top-k": 3}', '"top-k" is no part'),
        ('{"ids": [1.5]}', '"ids" is not an integer'),
        ('{"ids": 1}', '"ids" is not a list'),
        ('{"ids": [1], "max_new_tokens": -1}', "out of range"),
        ('{"ids": [1], "seed": -1}', '"seed" is not an integer in range'),
        ('{"ids": [1], "temperature": "hot"}', '"temperature" is not a number'),
        ('{"ids": [1], "temperature": 1, "top_p": 7}', ["line 1", "top-p 7"]),
    ):
        file.write_text(content)
        refused(pair, "--requests", file, says=says, expect=3)
