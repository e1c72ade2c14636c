"""The examples of docs/manual/serve.md, with the demo model."""

import contextlib
import io
import json
import re
import shutil
import subprocess

import pytest
from compiled import ROOT, program
from served import Server, compiled_once

MANUAL = (ROOT / "docs/manual/serve.md").read_text()
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    def write(folder):
        shutil.copytree(ROOT / "examples/demo_model", folder)

    _, package = compiled_once(tmp_path_factory, "demo", write, "--max-context", 256, "--chunk", 32)
    with Server(package, "--alias", "demo_model") as server:
        chat = ("generate", package, "--chat", "-p", "What is a river?", "--temp", 0, "--json", "-q")
        server.answer = json.loads(program(*chat).stdout)["text"]
        yield server


def test_curl(demo):
    (command,) = re.findall(r"^\$ (curl .*)$", MANUAL, re.MULTILINE)
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    result = subprocess.run(command.replace(ADDRESS, demo.url), shell=True, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["choices"][0]["message"]["content"] == demo.answer != ""


def code_of(what):
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL) if what in block)
    return code


def test_structured_output(demo):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code_of("BaseModel").replace(ADDRESS, demo.url), {})
    river = json.loads(printed.getvalue())
    assert set(river) == {"name", "long"} and isinstance(river["name"], str) and isinstance(river["long"], bool)


@pytest.mark.parametrize("client, times", [("stream=True", 3), ("from anthropic ", 1)])
def test_clients(demo, client, times):
    code = code_of(client)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace(ADDRESS, demo.url), {})
    assert printed.getvalue().replace("\n", "") == demo.answer.replace("\n", "") * times


def test_routes_and_parameters_are_those_that_there_are(demo):
    for method, path in re.findall(r"`(GET|POST) (/[\w/]*)`", MANUAL):
        status = demo.request(method, path, {} if method == "POST" else None)[0]
        assert status in (200, 400), path
    rows = MANUAL.partition("| parameter | |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in rows.splitlines()[2:]))
    assert len(named) > 15
    for name in named:
        prompt = {"prompt": "a"} if name == "echo" else {"messages": [{"role": "user", "content": "a"}]}
        path = "/v1/completions" if name == "echo" else "/v1/chat/completions"
        status, _, body = demo.request("POST", path, {**prompt, name: {"x": []}})
        if status != 200:
            param = json.loads(body)["error"]["param"]
            assert param.split(".")[0] == name and (param != name or "not supported" not in body), body
