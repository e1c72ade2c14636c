"""The wheel: built, put into a folder, and tried out by Pythons that know no other AgentCompile."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from compiled import PROGRAM, ROOT, program, users_environment
from served import compiled_once
from test_library import NEW, PROMPT, said, write_demo

MANUAL = ROOT / "docs/manual/python.md"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    _, package = compiled_once(tmp_path_factory, "demo", write_demo, "--max-context", 256, "--chunk", 32)
    return package


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of modules with the wheel's content."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "wheel"
    shared.mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    with open(shared / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site").exists():
            # As the program was built, so that the compiler's cache has it.
            built = (PROGRAM.parent / "CMakeCache.txt").read_text()
            built = dict(re.findall(r"^(\w+):\w+=(.*)$", built, re.MULTILINE))
            values = {name: built[name] for name in ("AC_WERROR", "CMAKE_CXX_COMPILER")}
            units = ("CMAKE_UNITY_BUILD", "CMAKE_UNITY_BUILD_BATCH_SIZE")
            values |= {name: built.get(name, "0") for name in units}
            same = ["-Cbuild-dir=build/wheel-test", *(f"-Ccmake.define.{name}={value}" for name, value in values.items())]
            build = [*pip, "wheel", ROOT, "--no-build-isolation", "--no-deps", "-w", shared, *same]
            for command in (build, [*pip, "install", "--no-deps", "--no-index", "--target", shared / "new", "-f", shared, "agentcompile"]):
                result = subprocess.run(command, capture_output=True, text=True, env=users_environment())
                assert result.returncode == 0, result.stdout + result.stderr
            (shared / "new").rename(shared / "site")
    return shared / "site"


def python(site, code, *arguments, expect=0, **environment):
    """What the code prints, as JSON."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1", **environment},
        timeout=300,
    )
    assert result.returncode == expect, result.stderr
    return json.loads(result.stdout) if expect == 0 else result.stderr


def python_blocks():
    return re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)


def with_llm(site, package, code, **environment):
    begin = "import agentcompile, json, sys\nfrom agentcompile import *\nllm = LLM(sys.argv[1])\n"
    return python(site, begin + textwrap.dedent(code), package, **environment)


def test_the_wheel_has_all_that_it_needs(site):
    there = {str(path.relative_to(site / "agentcompile")) for path in site.glob("agentcompile/**/*") if path.is_file()}
    shared = {"kernels/gemv.cuh", "kernels/shim/scheduler.h", "python/agentcompile/capture.py"}
    needed = {"py.typed", "llm.py", "capture.py", "bin/agentcompile", "lib/libagentcompile_host.so", *(f"share/agentcompile/{name}" for name in shared)}
    assert needed <= there and any(name.startswith("share/agentcompile/tuned/") for name in there)
    assert sum(path.endswith((".so", ".so.0.1")) for path in there) == 3  # each once
    version = program("--version").stdout
    assert python(site, "import agentcompile, json; print(json.dumps(agentcompile.__version__))") == version.split()[1]
    command = [sys.executable, site / "bin/agentcompile", "--version"]
    paths = {**os.environ, "PYTHONPATH": str(site)}
    assert subprocess.run(command, capture_output=True, text=True, env=paths).stdout == version


def test_importing_it_is_cheap(site):
    code = "import json, sys, agentcompile; print(json.dumps(sorted(sys.modules)))"
    names = python(site, code)
    assert not {"torch", "numpy", "agentcompile._engine"} & set(names)
    code = "import json, sys, agentcompile; agentcompile.LLM; print(json.dumps(sorted(sys.modules)))"
    assert "torch" not in python(site, code)


def test_answers_are_the_programs(site, package):
    got = with_llm(
        site,
        package,
        f"""
        ids = llm.tokenize({PROMPT!r})
        how = dict(max_new_tokens={NEW}, temperature=0.8, top_k=50, top_p=0.95, min_p=0.01, seed=5)
        stream = llm.generate(ids, stream=True, **how)
        pieces = list(stream)
        chat = [{{"role": "user", "content": "What is a river?"}}]
        answers = dict(
            greedy=llm.generate({PROMPT!r}, max_new_tokens={NEW}, temperature=0), seeded=llm.generate({PROMPT!r}, **how),
            chat=llm.chat(chat, max_new_tokens={NEW}, temperature=0), of_stream=stream.answer,
            chat_stream=llm.chat(chat, stream=True, max_new_tokens={NEW}, temperature=0).answer,
        )
        print(json.dumps(dict(
            answers={{name: [answer.text, answer.ids, answer.finish_reason, answer.prompt_tokens] for name, answer in answers.items()}},
            ids=ids, pieces=pieces, chat_ids=llm.chat_ids(chat), text=llm.detokenize(ids), same=str(answers["chat"]) == answers["chat"].text,
            parsed=llm.tokenize(llm.chat_text(chat), add_special=False, parse_special=True),
            about=[llm.vocabulary, llm.max_context, llm.device],
        )))
        """,
    )
    flags = ("--temp", 0.8, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.01, "--seed", 5)
    truth = {
        "greedy": said(package, "-p", PROMPT, "--temp", 0),
        "seeded": said(package, "-p", PROMPT, *flags),
        "chat": said(package, "--chat", "-p", "What is a river?", "--temp", 0),
    }
    truth.update(of_stream=truth["seeded"], chat_stream=truth["chat"])
    for name, answer in truth.items():
        assert got["answers"][name] == [answer["text"], answer["ids"], answer["finish_reason"], answer["prompt_tokens"]], name
    assert "".join(got["pieces"]) == truth["seeded"]["text"] and len(got["pieces"]) > NEW / 2
    assert got["ids"] == truth["greedy"]["prompt_ids"] and got["text"] == PROMPT
    assert got["chat_ids"] == got["parsed"] == truth["chat"]["prompt_ids"] and got["same"]
    assert got["about"][1] == 256 and got["about"][2]


def test_tokens_are_heard(site, package):
    heard, ids, text, cut, reason = with_llm(
        site,
        package,
        """
        heard, how = [], dict(max_new_tokens=12, temperature=0)
        answer = llm.generate([1, 2, 3], hear=lambda text, token: heard.append((text, token)) or True, **how)
        cut = llm.generate([1, 2, 3], hear=lambda text, token: token != answer.ids[4], **how)
        print(json.dumps([heard, answer.ids, answer.text, cut.ids, cut.finish_reason]))
        """,
    )
    assert [token for _, token in heard if token >= 0] == ids and "".join(text for text, _ in heard) == text
    assert cut == ids[: ids.index(ids[4]) + 1] and len(cut) < len(ids) and reason == "interrupted"


def test_logits_are_those_of_transformers(site, tmp_path_factory):
    import torch
    from transformers import AutoModelForCausalLM

    source, package = compiled_once(tmp_path_factory, "demo", write_demo, "--max-context", 256, "--chunk", 32)
    got = with_llm(
        site,
        package,
        f"""
        ids = llm.tokenize({PROMPT!r})
        last, rows = llm.logits(ids), llm.logits(ids, all=True)
        assert str(last.dtype) == str(rows.dtype) == "float32" and rows.shape == (len(ids), llm.vocabulary)
        llm.append([7])
        print(json.dumps([ids, last.tolist(), rows.tolist(), llm.next_logits().tolist()]))
        """,
    )
    ids, last, rows, next_row = got
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        truth = model(torch.tensor([[*ids, 7]])).logits[0]
    span = (truth.max() - truth.min()).item()
    close = 4 / 128 * span  # of bfloat16
    for ours, theirs in ((last, truth[-2]), (rows, truth[:-1]), (next_row, truth[-1])):
        assert (torch.tensor(ours) - theirs).abs().max().item() < close


def test_errors(site, package, tmp_path):
    got = with_llm(
        site,
        package,
        """
        def error_of(call):
            try:
                call()
            except Exception as error:
                return [type(error).__name__, str(error)]
        open_llm = LLM(sys.argv[1])
        open_llm.close()
        open_llm.close()
        stream = llm.generate("a", stream=True, max_new_tokens=200)
        next(stream)
        stream.close()
        def bad_callback():
            import agentcompile._engine
            llm._model.generate([1], 4, llm._model.default_sampling(), [], False, lambda text, token: 1 / 0)
        tried = [
            lambda: LLM(sys.argv[1] + "/missing"), lambda: LLM(sys.argv[1], device="tpu"), lambda: LLM(sys.argv[1], max_context=8),
            lambda: llm.generate("a", temperature=-1), lambda: llm.generate("a", top_k=4, temperature=0), lambda: llm.generate("a", max_new_tokens=0),
            lambda: llm.generate([10**6]), lambda: llm.generate([1] * 257), lambda: llm.generate("a", stop=""), lambda: llm.chat([{"rule": 1}]),
            lambda: llm.chat([], warmth=1), lambda: llm.generate("a", temperature="hot"), lambda: llm.generate([1.5]), lambda: llm.logits("abc"),
            lambda: llm.generate("a", temperature=1, seed=-1), lambda: llm.generate("a", stop=[1]),
            lambda: open_llm.generate("a"), lambda: stream.answer, bad_callback, lambda: llm.restore(b"no state"), lambda: llm.truncate(10**6),
        ]
        print(json.dumps([[error_of(call) for call in tried], isinstance(BadInput("a"), (Error, ValueError)), llm.generate([1], max_new_tokens=1).ids]))
        """,
    )
    expected = [
        ("BadInput", "missing"),
        ("WrongUsage", "none of host, cuda"),
        ("WrongUsage", "max-context: .* is a package"),
        ("WrongUsage", "temperature -1"),
        ("WrongUsage", "top_k has no effect"),
        ("WrongUsage", "max_new_tokens is 0"),
        ("BadInput", "outside the vocabulary"),
        ("BadInput", "holds 256 tokens"),
        ("WrongUsage", "stop at is empty"),
        ("JobFailed|BadInput", ""),
        ("TypeError", "warmth is not among temperature"),
        ("TypeError", "temperature cannot be 'hot'"),
        ("TypeError", "integer"),
        ("TypeError", "not a text"),
        ("TypeError", "seed cannot be -1"),
        ("TypeError", r"stop is \[1\], and neither"),
        ("WrongUsage", "the LLM is closed"),
        ("WrongUsage", "closed before its end"),
        ("ZeroDivisionError", ""),
        ("BadInput", "no saved one"),
        ("BadInput", "cannot go back"),
    ]
    errors, is_error, ids = got
    assert is_error and len(ids) == 1 and len(errors) == len(expected)
    for (kind, words), error in zip(expected, errors):
        assert error and re.fullmatch(kind, error[0]) and re.search(words, error[1]), (kind, words, error)


def test_what_is_no_package_is_compiled(site, package, tmp_path):
    """By the program that the wheel carries; it is kept, and found by both."""
    cache = {"XDG_CACHE_HOME": str(tmp_path), "HF_HOME": str(tmp_path)}
    # Kernels are known already: all but packages and weights is shared.
    known = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentcompile"
    (tmp_path / "agentcompile").mkdir()
    for folder in known.iterdir():
        if folder.name not in ("packages", "weights"):
            (tmp_path / "agentcompile" / folder.name).symlink_to(folder)
    model = tmp_path / "demo"
    shutil.copytree(ROOT / "examples/demo_draft", model)
    code = """
        import agentcompile, json, sys
        with agentcompile.LLM(sys.argv[1], device="host", max_context=64, weights="int8") as llm:
            print(json.dumps([llm.max_context, llm.generate("a", max_new_tokens=4, temperature=0).ids]))
        """
    context, ids = python(site, code, model, **cache)
    assert context == 64 and python(site, code, model, **cache) == [64, ids]
    assert len(list((tmp_path / "agentcompile/packages").glob("demo-*/program.json"))) == 1
    assert len(list((tmp_path / "agentcompile/weights").glob("demo-int8-*/config.json"))) == 1
    (model / "config.json").write_text("{}")
    error = python(site, code, model, expect=1, **cache)
    assert "agentcompile.exceptions.BadInput: " in error.splitlines()[-1] and "config.json" in error.splitlines()[-1], error


def test_ctrl_c_stops_an_answer(site, package):
    code = """
        import agentcompile, sys, time
        llm = agentcompile.LLM(sys.argv[1])
        stream = sys.argv[2] == "stream"
        begin = time.monotonic()
        try:
            while time.monotonic() < begin + 60:  # an answer may end before it is stopped
                print("answers", flush=True)
                answer = llm.generate([1], max_new_tokens=250, temperature=2.0, seed=1, stream=stream)
                if stream:
                    for text in answer:
                        pass
        except KeyboardInterrupt:
            print("stopped", len(llm.generate("It was", max_new_tokens=3, temperature=0).ids), flush=True)
        """
    for kind in ("whole", "stream"):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), package, kind],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(site)},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert process.stdout.readline() == "answers\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0]
        assert rest.splitlines()[-1] == "stopped 3" and process.returncode == 0, rest


def test_threads_share_a_model_and_python_runs_meanwhile(site, package):
    got = with_llm(
        site,
        package,
        """
        import threading, time
        answers, seen = [], []
        def ask():
            answers.append(llm.generate([1, 2, 3], max_new_tokens=60, temperature=0).ids)
        truth = llm.generate([1, 2, 3], max_new_tokens=60, temperature=0).ids
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads: thread.start()
        while any(thread.is_alive() for thread in threads):
            seen.append(time.monotonic())
            time.sleep(0.001)
        # Who ends a stream that waits for another one leaves that alone.
        first, second = (llm.generate([1, 2, 3], max_new_tokens=60, temperature=0, stream=True) for _ in range(2))
        next(first)
        second.close()
        answers.append(first.answer.ids)
        # A stream that nobody reads any more does not keep the program, nor one whose model is closed.
        left = llm.generate("It was", max_new_tokens=250, temperature=1.5, seed=1, stream=True)
        next(left)
        del left
        outer = llm.generate("It was", max_new_tokens=3, temperature=0, stream=True)
        inner = [len(llm.generate("It was", max_new_tokens=2, temperature=0).ids) for _ in outer]
        last = llm.generate("It was", max_new_tokens=250, temperature=1.5, seed=1, stream=True)
        next(last)
        llm.close()
        print(json.dumps([answers == [truth] * 4, len(seen), inner]))
        """,
    )
    same, seen, inner = got
    assert same and seen > 3 and set(inner) == {2}


def test_the_program_ends_while_an_answer_is_made(site, package):
    begin = time.monotonic()
    with_llm(site, package, "stream = llm.generate('It was', max_new_tokens=250, temperature=1.5, seed=1, stream=True); print(len(next(stream)))")
    assert time.monotonic() - begin < 60


def test_torch_compile(site):
    """The logits are PyTorch's, also of what goes on and after the weights have changed; what cannot be run is refused."""
    code = """
        import json, sys, transformers
        errors = [((logits - (theirs := model(ids).logits)).abs().max() / (theirs.max() - theirs.min())).item()]
        with torch.no_grad():
            for ids in ([5, 6, 7, 8], [5, 6, 7, 8, 9, 10], [5, 6, 1], [3], "other weights"):
                if ids == "other weights":
                    ids = [3]
                    model.get_input_embeddings().weight.mul_(torch.linspace(0.5, 2, model.config.hidden_size))
                ids = torch.tensor([ids])
                ours, theirs = compiled(ids, use_cache=False).logits, model(ids).logits
                assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
                errors.append(((ours - theirs).abs().max() / (theirs.max() - theirs.min())).item())

        def refused(model, *arguments, **more):
            torch._dynamo.reset()
            try:
                torch.compile(model, backend="agentcompile", options={"device": "host", **more.pop("options", {})})(*arguments, **more)
            except Exception as error:
                inner = getattr(error, "inner_exception", error)
                return [type(inner).__name__, str(inner)]

        small = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
        small = transformers.LlamaForCausalLM(small).eval()
        own = torch.nn.Sequential(torch.nn.Embedding(8, 8), torch.nn.Linear(8, 8))
        ids = torch.tensor([[1, 2, 3]])
        refusals = [refused(small, ids, use_cache=False)]
        with torch.no_grad():
            refusals += [
                refused(small, ids.repeat(2, 1), use_cache=False), refused(small, ids), refused(own, ids),
                refused(small, ids, attention_mask=torch.ones(1, 3, dtype=torch.int64), use_cache=False),
                refused(small, ids, use_cache=False, options={"max_context": -1}),
            ]
        print(json.dumps([errors, refusals]))
        """
    example = python_blocks()[-1].replace("Qwen/Qwen3-0.6B", str(ROOT / "examples/demo_draft"))
    example = example.replace('"max_context": 256', '"device": "host", "max_context": 32').replace(")\nids", ", dtype=torch.float32)\nids")
    errors, refusals = python(site, example + textwrap.dedent(code))
    assert len(errors) == 6 and max(errors) < 1e-4
    words = ["gradients", "2 sequences", "and not logits alone", "no model of transformers", "one input of token ids", "max-context"]
    assert len(refusals) == len(words)
    for refusal, word in zip(refusals, words):
        assert refusal and refusal[0] == "WrongUsage" and word in refusal[1], (word, refusal)


def test_the_manuals_examples_run(site, package):
    *blocks, of_torch = python_blocks()  # which test_torch_compile() runs
    assert len(blocks) == 3 and "torch.compile" in of_torch
    printed = []
    for code in blocks:
        code = code.replace("Qwen/Qwen3-0.6B", str(package)).replace('river?"}]', 'river?"}], temperature=0')
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(site)})
        assert result.returncode == 0, result.stderr
        printed.append(result.stdout)
    river = json.loads(program("generate", package, "--chat", "-p", "What is a river?", "--temp", 0, "--json", "-q").stdout)["text"]
    assert printed[0].strip() == river.strip()
    assert river.strip() in printed[1]
    assert printed[2].endswith("True\n")
