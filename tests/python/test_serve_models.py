"""`serve --models`: several models, of which one is loaded at a time."""

import json
import shutil
import threading

import pytest
import text_model
from compiled import ROOT, program
from served import Server, compiled_once

ASK = dict(prompt="kato mi", max_tokens=6, temperature=0)


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> dict:
    def copy(folder):
        shutil.copytree(ROOT / "examples/demo_draft", folder)

    made = lambda *what: compiled_once(tmp_path_factory, *what)[1]
    return {
        "draft": made("draft", copy, "--max-context", 256, "--chunk", 32),
        "text": made("text", text_model.write, "--max-context", 512, "--chunk", 16),
    }


@pytest.fixture
def folder(packages, tmp_path):
    for name, package in packages.items():
        shutil.copytree(package, tmp_path / "models" / name)
    (tmp_path / "models/notes.txt").write_text("no model")
    (tmp_path / "models/empty").mkdir()
    (tmp_path / "models/broken").mkdir()
    (tmp_path / "models/broken/program.json").write_text("{}")
    return tmp_path / "models"


def answer(server, **fields) -> str:
    return server.post("/v1/completions", **{**ASK, **fields})["choices"][0]["text"]


def test_each_answers_as_it_does_alone(packages, folder):
    alone = {}
    for name, package in packages.items():
        with Server(package) as server:
            alone[name] = answer(server)
    assert alone["draft"] != alone["text"]
    with Server(f"--models={folder}") as server:
        listed = json.loads(server.get("/v1/models"))["data"]
        assert [(each["id"], each["max_model_len"]) for each in listed] == [("draft", 256), ("text", 512)]
        assert json.loads(server.get("/v1/models/text")) == listed[1]
        assert server.request("GET", "/v1/models/broken")[0] == 404
        assert server.workers() == []
        got = []

        def ask(name):
            got.append((name, answer(server, model=name)))

        threads = [threading.Thread(target=ask, args=(("draft", "text")[i // 2 % 2],)) for i in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        assert sorted(got) == sorted(list(alone.items()) * 4)
        assert len(server.workers()) == 1 and server.metric("worker_restarts_total") == 0
        assert server.post("/tokenize", model="text", prompt="kato mi")["tokens"] != server.post("/tokenize", model="draft", prompt="kato mi")["tokens"]
        error = server.refused("/v1/completions", 404, **ASK, model="third")
        assert error["code"] == "model_not_found" and '"draft", "text"' in error["message"]
        error = server.refused("/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
        assert error["param"] == "model" and '"draft", "text"' in error["message"]
        chat = server.post("/v1/chat/completions", model="draft", messages=[{"role": "user", "content": "a"}], max_tokens=3)
        assert chat["model"] == "draft"
    assert any("broken is not served" in line for line in server.lines)


def test_a_model_that_cannot_be_loaded_is_a_500_of_its_own(folder):
    with Server(f"--models={folder}") as server:
        before = answer(server, model="text")
        for kernel in json.loads((folder / "draft/program.json").read_text())["kernels"].values():
            (folder / "draft" / kernel).write_bytes(b"no kernel")
        for _ in range(6):
            assert "is not the file that was compiled" in server.refused("/v1/completions", 500, **ASK, model="draft")["message"]
            assert answer(server, model="text") == before
        for _ in range(6):
            server.refused("/v1/completions", 500, **ASK, model="draft")
        assert answer(server, model="text") == before
        assert server.request("GET", "/health")[0] == 200


def test_what_contradicts_models(packages, folder, tmp_path):
    said = lambda *words, expect=2: program("serve", *words, expect=expect).stderr
    assert "name a MODEL" in said()
    assert "name a MODEL" in said(packages["text"], "--models", folder)
    assert "--alias" in said("--models", folder, "--alias", "x")
    assert "no such folder" in said("--models", tmp_path / "absent", expect=3)
    assert "no model in it" in said("--models", folder / "empty", expect=3)
