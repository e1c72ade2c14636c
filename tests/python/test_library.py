"""The C API and its CMake package, against the program."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from ctypes import byref, c_char_p, c_float, c_int64, c_size_t, c_void_p

import c_library
import pytest
import test_prefix_cache
from c_library import BAD_INPUT, INTERRUPTED, LENGTH, NOT_COMPILED, OK, STOP, WRONG_USAGE, Failed, Model, Sampling, library
from compiled import PROGRAM, ROOT, program
from served import compiled_once

PROMPT = "It was a fine morning, and"
MESSAGES = [{"role": "user", "content": "What is a river?"}]
NEW = 24
HEADER = ROOT / "include/agentcompile.h"


def write_demo(folder):
    shutil.copytree(ROOT / "examples/demo_model", folder)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    _, package = compiled_once(tmp_path_factory, "demo", write_demo, "--max-context", 256, "--chunk", 32)
    return package


@pytest.fixture(scope="module")
def model(package):
    with Model(package) as model:
        yield model


def said(package, *options):
    return json.loads(program("generate", package, "-n", NEW, "--json", "-q", *options).stdout)


def fails(status, words, call, *arguments, **more):
    with pytest.raises(Failed, match=words) as failed:
        call(*arguments, **more)
    assert failed.value.status == status


# --- The header and what the library shows ---


@pytest.mark.parametrize("language", [("gcc", "-std=c99", "-xc"), ("g++", "-std=c++98", "-xc++"), ("g++", "-std=c++20", "-xc++")])
def test_the_header_is_c_and_cpp(language):
    strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    subprocess.run([*language, *strict, HEADER], check=True)
    if "-std=c++20" in language:
        subprocess.run([language[0], "-std=c++17", *strict, "-I", HEADER.parent, "-xc++", HEADER.with_suffix(".hpp")], check=True)


def test_the_library_shows_what_the_header_declares_and_nothing_else():
    listed = subprocess.run(["nm", "-D", "--defined-only", c_library.LIBRARY], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == set(re.findall(r"\b(ac_\w+)\(", declared()))


def declared():
    return "".join(re.findall(r"^AC_API[^;]*;", HEADER.read_text(), re.MULTILINE))


def test_the_version_is_the_programs():
    assert f"agentcompile {library.ac_version().decode()}\n" == program("--version").stdout


# --- What is wrong is said ---


def test_null_pointers_are_errors(model, package):
    handle, number = model.handle, byref(c_int64())
    for call, *arguments in [
        (library.ac_load, None, None, byref(c_void_p())),
        (library.ac_load, c_char_p(bytes(package)), None, None),
        (library.ac_describe, handle, None),
        (library.ac_tokenize, handle, None, c_size_t(0), 0, byref(c_void_p()), byref(c_size_t())),
        (library.ac_tokenize, handle, b"a", c_size_t(1), 0, None, byref(c_size_t())),
        (library.ac_detokenize, handle, None, c_size_t(1), 0, byref(c_void_p()), byref(c_size_t())),
        (library.ac_detokenize, handle, None, c_size_t(0), 0, byref(c_void_p()), None),
        (library.ac_chat_ids, handle, None, byref(c_void_p()), byref(c_size_t())),
        (library.ac_chat_text, handle, b"[]", None, None),
        (library.ac_default_sampling, handle, None),
        (library.ac_generate, handle, None, None, None, byref(c_library.RawAnswer())),
        (library.ac_generate, handle, byref(c_library.Request(stop_count=1)), None, None, byref(c_library.RawAnswer())),
        (library.ac_append, handle, None, c_size_t(1)),
        (library.ac_position, handle, None),
        (library.ac_logits, handle, None, c_size_t(1)),
        (library.ac_choose, handle, None, None),
        (library.ac_save, handle, None, byref(c_size_t())),
        (library.ac_restore, handle, None, c_size_t(8)),
    ]:
        assert call(*arguments) == WRONG_USAGE, call
        assert "null" in c_library.last_error()
    for none in (None, c_void_p(8), c_void_p(1 << 40)):
        assert library.ac_position(none, number) == library.ac_append(none, None, c_size_t(0)) == WRONG_USAGE
        assert library.ac_stop(none) == WRONG_USAGE
    assert library.ac_close(None) == OK
    library.ac_free(None)
    library.ac_free_answer(None)


def test_a_closed_model_is_no_model(package):
    with Model(package) as model:
        handle = c_void_p(model.handle.value)
    with Model(package):
        assert library.ac_append(handle, None, c_size_t(0)) == WRONG_USAGE
        assert library.ac_close(handle) == WRONG_USAGE
        assert c_library.last_error() == "the model is closed, or none"


def test_what_is_no_package_is_not_compiled(tmp_path, package):
    for source in (ROOT / "examples/demo_model", tmp_path / "missing", "org/model"):
        fails(NOT_COMPILED, re.escape(f"`agentcompile package {source}`"), Model, source)
    damaged = tmp_path / "damaged"
    shutil.copytree(package, damaged)
    (damaged / "program.json").write_text("{}")
    fails(BAD_INPUT, "program.json", Model, damaged)
    fails(WRONG_USAGE, "none of host, cuda", Model, package, device="tpu")
    fails(WRONG_USAGE, "exclude", Model, package, checkpoint=ROOT, random_weights=1)
    fails(BAD_INPUT, "no tokenizer", Model, package, tokenizer=tmp_path)


def test_wrong_arguments(model):
    vocabulary, context = model.properties().vocabulary, model.properties().max_context
    fails(BAD_INPUT, "vocabulary", model.append, vocabulary)
    fails(BAD_INPUT, "vocabulary", model.generate, [-1], 4)
    fails(BAD_INPUT, "prompt is empty", model.generate, [], 4)
    fails(BAD_INPUT, "holds 256 tokens", model.generate, [1] * (context + 1), 4)
    fails(WRONG_USAGE, "below 0", model.generate, [1], -1)
    fails(WRONG_USAGE, "stop at is empty", model.generate, [1], 4, stop=("",))
    fails(WRONG_USAGE, "top-p", model.generate, [1], 4, sampling=model.sampling(temperature=1, top_p=0))
    fails(WRONG_USAGE, "repeat penalty", model.generate, [1], 4, sampling=Sampling(temperature=1, top_p=1))
    fails(WRONG_USAGE, "penalties", model.choose, model.sampling(repeat_penalty=2))
    fails(WRONG_USAGE, "flags 8", model.tokenize, "a", 8)
    fails(BAD_INPUT, "token", model.detokenize, [1 << 40])
    fails(BAD_INPUT, "conversation", model.given_ids, library.ac_chat_ids, b"[")
    fails(BAD_INPUT, "messages", model.given_ids, library.ac_chat_ids, b'{"tools": []}')
    logits = (c_float * 1)()
    assert library.ac_logits(model.handle, logits, c_size_t(1)) == WRONG_USAGE
    model.truncate(0)
    fails(WRONG_USAGE, "no logits", model.logits)
    fails(BAD_INPUT, "cannot go back", model.truncate, 5)


def test_each_thread_has_its_own_error(model):
    assert library.ac_append(None, None, c_size_t(0)) == WRONG_USAGE
    seen = []
    thread = threading.Thread(target=lambda: seen.append(c_library.last_error()))
    thread.start()
    thread.join()
    assert seen == [""] and c_library.last_error() == "the model is null"


# --- Text and answers ---


def test_text_is_the_programs(model, package):
    assert model.properties().has_tokenizer and model.properties().has_chat_template
    ids = model.tokenize(PROMPT)
    assert ids == said(package, "-p", PROMPT)["prompt_ids"]
    assert model.detokenize(ids) == PROMPT
    special = model.tokenize("<|end|>", c_library.PARSE_SPECIAL)
    assert len(special) == 1 < len(model.tokenize("<|end|>", 0))
    assert model.detokenize(special) == "" and model.detokenize(special, 1) == "<|end|>"
    chat = model.given_ids(library.ac_chat_ids, json.dumps(MESSAGES).encode())
    assert chat == said(package, "--chat", "-p", MESSAGES[0]["content"])["prompt_ids"]
    text = model.given_bytes(library.ac_chat_text, json.dumps({"messages": MESSAGES}).encode()).decode()
    assert model.tokenize(text, c_library.PARSE_SPECIAL) == chat


@pytest.mark.parametrize("how", [{"temperature": 0}, {"temperature": 0.9, "seed": 7}, {"temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "seed": 3}])
def test_answers_are_the_programs(model, package, how):
    options = [part for name, value in how.items() for part in ("--" + name.replace("_", "-"), value)]
    truth = said(package, "-p", PROMPT, *options)
    pieces, tokens = [], []
    answer = model.generate(
        truth["prompt_ids"], NEW, model.sampling(**how), on_piece=lambda text, token: pieces.append(text) or tokens.append(token)
    )
    assert answer.ids == truth["ids"] == [token for token in tokens if token >= 0]
    assert answer.text == truth["text"] == "".join(pieces)
    assert answer.finish == (STOP if truth["finish_reason"] == "stop" else LENGTH)
    # The same, step by step.
    model.truncate(0)
    model.append(*truth["prompt_ids"])
    steps = []
    for _ in truth["ids"]:
        steps.append(model.choose(model.sampling(**how)))
        model.append(steps[-1])
    assert steps == truth["ids"]
    assert model.position() == len(truth["prompt_ids"]) + len(steps)


def test_a_callback_ends_an_answer(model):
    ids = model.tokenize(PROMPT)
    heard = []
    answer = model.generate(ids, NEW, on_piece=lambda text, token: heard.append(token) or len(heard) == 3)
    assert answer.finish == INTERRUPTED and len(answer.ids) == 3
    whole = model.generate(ids, NEW)
    assert whole.finish == LENGTH and whole.ids[:3] == answer.ids
    assert whole.cached == len(ids) - 1
    word = whole.text.split()[3]
    stopped = model.generate(ids, NEW, stop=(word,))
    assert stopped.finish == STOP and stopped.text == whole.text.partition(word)[0]


def test_tokens_are_chosen_as_the_model_says(model, package):
    sampling, truth = model.sampling(), said(package, "-p", PROMPT)["sampling"]
    del truth["seed"]
    assert truth["temperature"] > 0 and {name: getattr(sampling, name) for name in truth} == truth
    assert sampling.seed != model.sampling().seed
    assert sampling.repeat_penalty == 1 and sampling.presence_penalty == 0


# --- The sequence ---


def test_logits_are_the_programs(model, package):
    ids = model.tokenize(PROMPT)
    arguments = ("--ids", ",".join(map(str, ids)), "-n", 0, "--logits", "--json")
    truth = json.loads(program("run", package, *arguments).stdout)["last_logits"]
    model.truncate(0)
    model.append(*ids)
    assert model.logits() == [ctypes.c_float(logit).value for logit in truth]
    assert model.choose() == max(range(len(truth)), key=truth.__getitem__)


def test_a_sequence_is_forgotten_saved_and_restored(model, package):
    ids = model.tokenize(PROMPT) * 6  # more than a step holds
    model.truncate(0)
    model.append(*ids)
    after = model.logits()
    model.append(1, 2, 3)
    model.truncate(len(ids))
    state = model.save()
    model.append(5)
    five = model.logits()
    with Model(package) as other:
        other.append(9, 9)
        other.restore(state)
        assert other.position() == len(ids)
        fails(WRONG_USAGE, "no logits", other.logits)
        other.append(5)
        assert other.logits() == five
        for wrong in (b"", state[:100], state[:-1], state + b"a", b"x" + state[1:], state[:-1] + bytes([state[-1] ^ 1])):
            fails(BAD_INPUT, "damaged", other.restore, wrong)
    with Model(package, random_weights=1, seed=2) as other:
        fails(BAD_INPUT, "other weights", other.restore, state)
    model.truncate(len(ids) - 1)
    model.append(ids[-1])
    assert model.choose() == max(range(len(after)), key=after.__getitem__)


def test_what_a_window_has_forgotten_cannot_be_saved(tmp_path_factory):
    options = ("--max-context", test_prefix_cache.CONTEXT, "--chunk", test_prefix_cache.CHUNK)
    _, package = compiled_once(tmp_path_factory, "prefix-windowed", test_prefix_cache.write_windowed, *options)
    with Model(package) as model:
        model.append(*range(10, 30))
        state = model.save()
        model.append(*range(100))
        fails(BAD_INPUT, "120 tokens cannot be saved", model.save)
        fails(BAD_INPUT, "cannot go back to 50", model.truncate, 50)
        model.restore(state)
        assert model.position() == 20
        model.append(5)
        after = model.logits()
        model.truncate(0)
        model.append(*range(10, 30))
        model.append(5)
        assert model.logits() == after


def test_answers_and_steps_do_not_disturb_each_other(package):
    with Model(package, cache_memory=64 << 20) as model:
        ids = model.tokenize(PROMPT) * 6
        first = model.generate(ids, 8)
        model.truncate(40)
        model.append(*range(100, 150))
        model.truncate(0)
        model.append(*range(200, 300))
        again = model.generate(ids, 8)
        assert again.ids == first.ids and first.cached == 0
        assert again.cached == len(ids) // 32 * 32  # what the cache took, and not what the steps left
        other = model.generate(list(range(200, 300)), 8)
        assert other.cached == 0


def test_random_weights(package):
    ids = [5, 6, 7]
    answers = []
    for seed in (1, 1, 2):
        with Model(package, random_weights=1, seed=seed) as model:
            answers.append(model.generate(ids, 8).ids)
    truth = json.loads(program("run", package, "--random-weights", 1, "--ids", "5,6,7", "-n", 8, "--json").stdout)
    assert answers[0] == answers[1] == truth["generated"] and answers[2] != answers[0]


# --- Threads ---


def test_threads_take_turns(model):
    ids = model.tokenize(PROMPT)
    truth = model.generate(ids, 8).ids
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(model.generate(ids, 8).ids)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [truth] * 4


def test_an_answer_is_stopped_from_another_thread(model):
    begun = threading.Event()
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(model.generate([1], 250, model.sampling(temperature=2, seed=1), on_piece=lambda *_: begun.set()))
    )
    thread.start()
    begun.wait()
    assert library.ac_stop(model.handle) == OK
    thread.join()
    assert answers[0].finish == INTERRUPTED and len(answers[0].ids) < 250


def test_a_callback_cannot_use_its_own_model(model, package):
    seen = []
    with Model(package) as other:

        def on_piece(text, token):
            if not seen:
                fails(WRONG_USAGE, "callback", model.append, 1)
                assert library.ac_close(model.handle) == WRONG_USAGE
                other.append(1)
                seen.append(other.position())
            return 0

        model.generate([1], 4, on_piece=on_piece)
    assert seen == [1]


# --- The CMake package ---


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What `cmake --install` writes, moved elsewhere."""
    folder = tmp_path_factory.mktemp("installed")
    for component in ("runtime", "development"):
        command = ["cmake", "--install", PROGRAM.parent, "--prefix", folder / "first", "--component", component]
        subprocess.run(command, check=True, capture_output=True)
    (folder / "first").rename(folder / "moved")
    return folder / "moved"


def test_the_example_in_c_runs_against_an_installed_tree(installed, package, tmp_path):
    build = ["cmake", "-S", ROOT / "examples/c", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={installed}"]
    for command in (build, ["cmake", "--build", tmp_path]):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr

    def run(*arguments):
        return subprocess.run([tmp_path / "generate", *map(str, arguments)], capture_output=True, text=True)

    for temperature, seed in ((0, 0), (0.8, 5)):
        result = run(package, PROMPT, NEW, temperature, seed)
        assert result.returncode == 0, result.stderr
        truth = ("generate", package, "-p", PROMPT, "-n", NEW, "-q", "--temp", temperature, "--seed", seed)
        assert result.stdout == program(*truth).stdout
    result = run(ROOT / "examples/demo_model", PROMPT)
    assert result.returncode == NOT_COMPILED and "agentcompile package" in result.stderr


def test_the_manuals_example_in_cpp_runs(installed, package, tmp_path):
    (code,) = re.findall(r"```cpp\n(.*?)```", (ROOT / "docs/manual/embedding.md").read_text(), re.DOTALL)
    (tmp_path / "example.cc").write_text(code)
    link = ["-I", installed / "include", "-L", installed / "lib", f"-Wl,-rpath,{installed}/lib", "-lagentcompile"]
    strict = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run(["g++", *strict, tmp_path / "example.cc", "-o", tmp_path / "example", *link], check=True)
    result = subprocess.run([tmp_path / "example", package], capture_output=True, text=True)
    assert result.stdout + "\n" == program("generate", package, "-p", PROMPT, "-n", 20, "-q", "--temp", 0).stdout
    result = subprocess.run([tmp_path / "example", tmp_path], capture_output=True, text=True)
    assert result.returncode == NOT_COMPILED and result.stderr.startswith("error: ")


def test_the_manual_names_every_function():
    page = (ROOT / "docs/manual/embedding.md").read_text()
    assert set(re.findall(r"\b(ac_\w+)\(", declared())) <= set(re.findall(r"`(ac_\w+)`", page))


def test_what_is_installed_takes_the_kernels_beside_it(installed, package, tmp_path):
    """Random weights are made by a kernel, whose source does not compile here."""
    header = installed / "share/agentcompile/kernels/random.cuh"
    text = header.read_text()
    header.write_text(text + "#error moved\n")
    library = "import sys, c_library; c_library.Model(sys.argv[1], random_weights=1)"
    for command in (
        [installed / "bin/agentcompile", "run", package, "--random-weights", "1", "--ids", "1"],
        [sys.executable, "-c", library, package],
    ):
        paths = {"AGENTCOMPILE_LIBRARY": str(installed / "lib/libagentcompile.so"), "XDG_CACHE_HOME": str(tmp_path)}
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "tests/python", env={**os.environ, **paths})
        assert result.returncode != 0 and "#error moved" in result.stderr, result.stderr
    header.write_text(text)
