"""From a name to an answer: quick kernels answer first, those that are selected by measurement take
their place, known choices spare the measurement."""

import json
import os
import re
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import text_model
from compiled import PROGRAM, cache_with_kernels, program
from served import Server
from test_generate import TrueChat, same
from variants import LONG

PROMPT = "kato mi 日本 ren"
OPTIONS = ("--device", "host", "--max-context", 128)
SMALL = ("--max-context", 128, "--chunk", 16, "--short-prompt", 0)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return text_model.write(tmp_path_factory.mktemp("text") / "model")


class Cache:
    """A cache folder of one's own, with the kernels that the tests have built already."""

    def __init__(self, folder):
        cache_with_kernels(folder)
        self.packages = folder / "agentcompile/packages"
        self.environment = {"XDG_CACHE_HOME": str(folder), "HF_HUB_OFFLINE": "1"}

    def package(self):
        (found,) = [path for path in self.packages.iterdir() if path.name[0] != "." and path.is_dir()]
        return found

    def is_quick(self):
        return json.loads((self.package() / "program.json").read_text())["quick"]

    def left(self):
        """What should not be there once all is done."""
        return [path.name for path in self.packages.iterdir() if path.name[0] == "." or path.suffix == ".lock"]

    def generate(self, source, *options, expect=0):
        return program("generate", source, "-p", PROMPT, "-n", 5, *OPTIONS, *options, expect=expect, **self.environment)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def until(what, seconds=300):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(process):
    return Path(f"/proc/{process}").exists()


def has_ended(process):
    """Whether whoever waits for it hears so: all of its threads are gone."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().split()[2]
        return state == "Z" and len(os.listdir(f"/proc/{process}/task")) == 1
    except FileNotFoundError:
        return True


class Chat:
    """One that is asked line by line."""

    def __init__(self, cache, source, *options, **environment):
        self.process = subprocess.Popen(
            [PROGRAM, "chat", str(source), "--json", *map(str, (*OPTIONS, "-n", 6, "--temp", 0, *options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **cache.environment, **environment},
        )
        self.said = ""
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def listen(self):
        for line in self.process.stderr:
            self.said += line

    def hears(self, text):
        until(lambda: text in self.said or self.process.poll() is not None)
        assert text in self.said, self.said

    def selector(self):
        """The process that selects by measurement."""
        self.hears("quick kernels answer for now")
        return int(re.search(r"process (\d+) selects faster ones", self.said)[1])

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(timeout=60) == 0, self.said
        self.listener.join()


def true_chat(source):
    return TrueChat(SimpleNamespace(truth=text_model.Truth(source)))


def test_a_chat_goes_on_with_the_kernels_that_were_selected_meanwhile(source, cache):
    chat = Chat(cache, source)
    truth = true_chat(source)
    selector = chat.selector()
    assert same(chat.ask("kato"), truth.ask("kato", 6))
    until(lambda: has_ended(selector))
    assert not cache.is_quick()
    answer = chat.ask("ren mi")
    chat.hears("the kernels that were selected by measurement answer from here on")
    assert same(answer, truth.ask("ren mi", 6))
    assert answer["cached_tokens"] == 0  # the conversation was run again
    again = chat.ask("al")
    assert same(again, truth.ask("al", 6)) and again["cached_tokens"] > 0
    assert not lives(selector)  # nor a zombie
    chat.end()
    assert cache.left() == []
    # Whoever comes later begins with them.
    other = Chat(cache, source)
    assert same(other.ask("kato"), true_chat(source).ask("kato", 6))
    other.end()
    assert "quick kernels" not in other.said


def test_a_server_goes_on_with_the_kernels_that_were_selected_meanwhile(source, cache):
    with Server(source, "--device", "host", "--max-context", 128, environment=cache.environment) as server:
        hears = lambda text: until(lambda: any(text in line for line in server.lines))
        answer = lambda: server.post("/v1/completions", prompt=PROMPT, max_tokens=5, temperature=0)
        ask = lambda: answer()["choices"][0]["text"]
        fingerprint = lambda: {answer()["system_fingerprint"], json.loads(server.get("/v1/models"))["data"][0]["system_fingerprint"]}
        hears("quick kernels answer for now")
        selector = int(re.search(r"process (\d+) selects faster ones", "".join(server.lines))[1])
        before, (of_quick,) = ask(), fingerprint()
        (quick,) = server.workers()
        os.kill(quick, signal.SIGKILL)  # which is not the end of the selection
        until(lambda: server.workers() not in ([], [quick]))
        assert ask() == before and (lives(selector) or not cache.is_quick())
        (quick,) = server.workers()
        hears("the kernels that were selected by measurement answer from here on")
        assert not cache.is_quick()
        until(lambda: server.workers() not in ([], [quick]))
        assert ask() == before and server.metric("worker_restarts_total") == 1
        (of_faster,) = fingerprint()
        assert of_faster != of_quick
    assert cache.left() == []


def test_the_selection_ends_with_its_chat_and_leaves_nothing(source, cache):
    ends = [Chat.end, lambda chat: chat.process.kill(), lambda chat: chat.process.terminate()]
    for end in ends if LONG else ends[:2]:
        chat = Chat(cache, source)
        selector = chat.selector()
        until(lambda: list(cache.packages.glob("*.lock")) != [])
        end(chat)
        chat.process.wait(timeout=30)
        until(lambda: not lives(selector), 20)
        if not cache.is_quick():
            pytest.skip("the selection was faster than its end")
    # A process that was killed may leave a draft and a lock, which the next one takes over.
    assert cache.generate(source, "--full").stdout
    assert not cache.is_quick() and cache.left() == []


def test_generate_answers_quickly_and_selects_only_if_asked(source, cache):
    first = cache.generate(source)
    assert "quick kernels: --tune-after has faster ones selected after the answer, --full before it" in first.stderr
    assert cache.is_quick() and cache.left() == []
    again = cache.generate(source)
    assert "is compiled: " in again.stderr and again.stdout == first.stdout and cache.is_quick()
    after = cache.generate(source, "--tune-after")
    process = int(re.search(r"process (\d+) selects faster ones: (\S+)", after.stderr)[1])
    assert after.stdout == first.stdout
    until(lambda: not cache.is_quick())
    until(lambda: cache.left() == [])
    until(lambda: has_ended(process))
    full = cache.generate(source, "--tune-after")  # nothing is left to select
    assert full.stdout == first.stdout and "quick kernels" not in full.stderr


def test_full_waits_for_the_selection(source, cache):
    said = cache.generate(source, "--full").stderr
    assert "quick" not in said and not cache.is_quick()


def test_two_at_once_compile_once(source, cache):
    command = [PROGRAM, "generate", str(source), "-p", PROMPT, "-n", "5", *map(str, OPTIONS)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **cache.environment})
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""
    said = [errors for _, errors in answers]
    compiled = [errors for errors in said if "decode: selection" in errors]
    assert len(compiled) == 1, said
    (other,) = [errors for errors in said if errors not in compiled]
    assert re.search(r"process \d+ compiles it: waiting for that", other) and "is there" in other
    assert cache.left() == []


def test_a_compilation_that_was_killed_is_taken_over(source, cache):
    command = [PROGRAM, "generate", str(source), "-p", PROMPT, "-n", "5", *map(str, OPTIONS)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **cache.environment}, start_new_session=True)
    until(lambda: cache.packages.exists() and list(cache.packages.glob("*.lock")))
    owner = int(next(cache.packages.glob("*.lock")).read_text() or 0)
    os.kill(owner or process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    assert "waiting" not in cache.generate(source).stderr
    assert cache.left() == []


def test_a_selection_that_fails_is_said_and_quick_kernels_go_on(source, cache):
    first = cache.generate(source)
    chat = Chat(cache, source, AGENTCOMPILE_CXX="/bin/false")
    selector = chat.selector()
    until(lambda: has_ended(selector))
    answer = chat.ask("kato")
    chat.hears("warning: no faster kernels were selected, and quick ones go on: ")
    log = Path(re.search(r"quick ones go on: (\S+\.log)", chat.said)[1])
    assert "error: " in log.read_text()
    assert answer["text"] == chat.ask("/reset\nkato")["text"]
    chat.end()
    assert cache.is_quick() and cache.generate(source).stdout == first.stdout


def test_a_full_disk_is_one_error_and_leaves_nothing(source, cache, tmp_path):
    result = subprocess.run(
        [PROGRAM, "generate", str(source), "-p", PROMPT, *map(str, OPTIONS), "-q"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        env={**os.environ, **cache.environment},
    )
    assert result.returncode == 1 and result.stdout == ""
    assert "File too large" in result.stderr or "error: " in result.stderr
    assert cache.left() == [] and list(cache.packages.iterdir()) == []


# ---- known choices


def compile_as_json(source, package, *options, expect=0):
    result = program("compile", source, "-o", package, *SMALL, "--json", *options, expect=expect)
    return (json.loads(result.stdout) if expect == 0 else None), result.stderr


@pytest.fixture(scope="module")
def timed(source, tmp_path_factory):
    """A package whose kernels were timed, and the file of its choices."""
    folder = tmp_path_factory.mktemp("timed")
    made, _ = compile_as_json(source, folder / "package", "--no-tuned")
    assert made["measured"] and not made["quick"]
    (folder / "tuned").mkdir()
    said = program("tuned", "export", folder / "package", "-o", folder / "tuned/known.json").stdout
    assert "known.json: the choices of " in said
    return folder


def chosen(package):
    plan = json.loads((Path(package) / "plan.json").read_text())
    return {
        (phase["name"], selection["signature"]): selection["candidate"]
        for phase in plan["phases"]
        for selection in phase["selections"]
    }


def changed(timed, folder, change):
    """The folder with choices that were changed."""
    known = json.loads((timed / "tuned/known.json").read_text())
    change(known)
    folder.mkdir()
    (folder / "known.json").write_text(json.dumps(known))
    return folder


def test_what_is_known_whole_is_taken_and_not_timed(source, timed, tmp_path):
    made, said = compile_as_json(source, tmp_path / "package", "--tuned", timed / "tuned")
    file = str(timed / "tuned/known.json")
    assert made["prefill"]["known"] == made["decode"]["known"] == file
    assert "known choices, which are built, judged and checked, and not timed: prefill by" in said
    assert chosen(tmp_path / "package") == chosen(timed / "package")
    plan = json.loads((tmp_path / "package/plan.json").read_text())
    assert all(selection["confirmed"] for phase in plan["phases"] for selection in phase["selections"])
    assert plan["check"]["done"]
    program("verify", tmp_path / "package")
    # A quick compilation is the whole one then.
    made, _ = compile_as_json(source, tmp_path / "quick", "--quick", "--tuned", timed / "tuned")
    assert not made["quick"] and made["decode"]["known"] == file
    # What knows nothing of its own is no evidence for others.
    refused = program("tuned", "export", tmp_path / "package", "-o", tmp_path / "again.json", expect=2)
    assert "were not timed" in refused.stderr and not (tmp_path / "again.json").exists()


def test_phases_that_were_not_timed_are_left_out_of_what_is_exported(source, timed, tmp_path):
    def prefill_alone(known):
        known["phases"] = [phase for phase in known["phases"] if phase["name"] != "decode"]

    partly = changed(timed, tmp_path / "tuned", prefill_alone)
    made, _ = compile_as_json(source, tmp_path / "package", "--tuned", partly)
    assert made["prefill"]["known"] and made["decode"]["known"] == ""
    said = program("tuned", "export", tmp_path / "package", "-o", tmp_path / "decode.json").stdout
    assert "left out, as it was not timed where the package was compiled: prefill" in said
    known = json.loads((tmp_path / "decode.json").read_text())
    assert [phase["name"] for phase in known["phases"]] == ["decode"]
    # A change of a kernel that prompts alone use leaves the file as good as it was.
    whole = json.loads((timed / "tuned/known.json").read_text())["headers"]
    assert known["headers"].items() < whole.items()


def test_known_choices_can_be_left_out(source, timed, tmp_path):
    made, said = compile_as_json(source, tmp_path / "package", "--tuned", timed / "tuned", "--no-tuned")
    assert made["decode"]["known"] == "" and made["measured"] and "known choices" not in said
    # Whoever says how much is tried wants it tried.
    made, _ = compile_as_json(source, tmp_path / "tries", "--tuned", timed / "tuned", "--tries", 0)
    assert made["decode"]["known"] == ""


def test_stale_choices_are_said_and_tried_first(source, timed, tmp_path):
    def other_kernels(known):
        known["headers"][sorted(known["headers"])[0]] = "0" * 64

    folder = changed(timed, tmp_path / "tuned", other_kernels)
    made, said = compile_as_json(source, tmp_path / "package", "--tuned", folder)
    assert made["decode"]["known"] == "" and made["measured"]
    assert re.search(r"known.json: kernels/\S+ is another one since: its choices are tried first, and timed", said)
    listed = program("tuned", "list", "--tuned", folder)
    assert "is another one since" in listed.stdout
    assert json.loads(program("tuned", "list", "--tuned", timed / "tuned", "--json").stdout)[0]["changed"] == ""


def test_choices_of_another_device_are_none(source, timed, tmp_path):
    folder = changed(timed, tmp_path / "tuned", lambda known: known.update(device="a toaster"))
    made, said = compile_as_json(source, tmp_path / "package", "--quick", "--tuned", folder)
    assert made["decode"]["known"] == "" and "known.json" not in said


def test_one_phase_may_be_known(source, timed, tmp_path):
    folder = changed(timed, tmp_path / "tuned", lambda known: known["phases"].pop(0))
    made, said = compile_as_json(source, tmp_path / "package", "--tuned", folder)
    assert made["prefill"]["known"] == "" and made["decode"]["known"] != ""
    assert "not timed: decode by" in said


def test_a_known_choice_that_is_none_here_is_selected_anew(source, timed, tmp_path):
    def another(known):
        for variant in known["phases"][-1]["variants"]:
            for signature in variant["candidates"]:
                variant["candidates"][signature] = "gemv/R7x7x7/7"

    folder = changed(timed, tmp_path / "tuned", another)
    made, said = compile_as_json(source, tmp_path / "package", "--tuned", folder)
    assert made["prefill"]["known"] != "" and made["decode"]["known"] == ""
    assert re.search(r"warning: .*known.json: its choice for decode is not taken \(.*\); it is selected anew", said)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', '{"format": 99}', "\x00" * 20])
def test_a_damaged_file_of_choices_is_an_error_that_names_it(damage, source, tmp_path):
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned/broken.json").write_text(damage)
    _, said = compile_as_json(source, tmp_path / "package", "--tuned", tmp_path / "tuned", "-q", expect=3)
    assert len(said.splitlines()) == 1 and "broken.json" in said
    assert "broken.json" in program("tuned", "list", "--tuned", tmp_path / "tuned", expect=3).stderr
    assert not (tmp_path / "package").exists()
    program("compile", source, "-o", tmp_path / "package", *SMALL, "--quick", "--no-tuned", "-q")


def test_no_folder_of_choices_is_wrong_usage(source, tmp_path):
    _, said = compile_as_json(source, tmp_path / "package", "--tuned", tmp_path / "none", "-q", expect=2)
    assert "there is no such folder" in said


def test_a_timeline_says_where_the_time_went(source, tmp_path):
    compile_as_json(source, tmp_path / "package", "--quick", "--no-tuned", "--timeline", tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["name"] for event in events}
    assert {"decode: selection", "check"} <= names
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
