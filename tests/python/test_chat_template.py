"""Chat templates: our interpreter against jinja2, configured as transformers does it."""

import copy
import datetime
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from compiled import PROGRAM, program
from template_cases import EXPRESSIONS, FAILING, FAILING_STATEMENTS, INPUT, STATEMENTS, Grammar
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template
from variants import LONG

TOOL = PROGRAM.parent / "template_tool"
TEMPLATES = Path(__file__).parent / "chat_templates"


def ours(cases) -> list:
    """What our engine makes of [(template, input)]: {"prompt"} or {"error"}."""
    lines = "".join(json.dumps({"template": t, "input": i}) + "\n" for t, i in cases)
    result = subprocess.run([TOOL], input=lines.encode(), capture_output=True, timeout=300)
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.decode().splitlines()]
    assert len(answers) == len(cases)
    return answers


def theirs(template, values) -> dict:
    defaults = {"tools": None, "documents": None, "add_generation_prompt": False}
    try:
        # A copy: jinja2's `indent` changes a list that it is given.
        return {"prompt": _compile_jinja_template(template).render(**{**defaults, **copy.deepcopy(values)})}
    except RecursionError:
        return {"error": "recursion", "kind": "RecursionError"}
    except Exception as error:  # whatever Python says: a template ran into it
        return {"error": str(error), "kind": type(error).__name__}


# What prints an address, or needs integers beyond 64 bits.
UNEQUAL = re.compile(r" object at 0x| of .* object|<built-in|<bound|<function|<class")


def differences(cases) -> list:
    found = []
    for (template, values), got in zip(cases, ours(cases)):
        want = theirs(template, values)
        if "prompt" in want and UNEQUAL.search(want["prompt"]):
            continue
        if "does not fit into 64 bits" in got.get("error", ""):
            continue
        same = want.get("prompt") == got.get("prompt") and ("error" in want) == ("error" in got)
        if want.get("kind") == "UndefinedError" and same:
            same = want["error"] in got["error"]
        if not same:
            found.append(f"{template!r}\n  jinja2: {want}\n  ours:   {got}")
    return found


def check(cases):
    found = differences(cases)
    assert not found, f"{len(found)} of {len(cases)}:\n" + "\n".join(found[:20])




def test_expressions():
    check([(f"{{{{ {expression} }}}}", INPUT) for expression in EXPRESSIONS])


def test_expressions_that_fail():
    cases = [(f"{{{{ {expression} }}}}", INPUT) for expression in FAILING]
    assert all("error" in theirs(*case) for case in cases)
    check(cases)


def test_statements():
    check([(statement, INPUT) for statement in STATEMENTS])


def test_statements_that_fail():
    cases = [(statement, INPUT) for statement in FAILING_STATEMENTS]
    assert all("error" in theirs(*case) for case in cases)
    check(cases)


@pytest.mark.parametrize("seed", range(10) if LONG else range(1))
def test_random_templates(seed):
    grammar = Grammar(seed)
    check([(grammar.template(), INPUT) for _ in range(200)])


CONVERSATIONS = {
    "user": {"messages": [{"role": "user", "content": "Hi there"}]},
    "prompt": {"messages": [{"role": "user", "content": " Hi <b>'\"\n"}], "add_generation_prompt": True},
    "turns": {
        "messages": [
            {"role": "system", "content": "Be brief. /no_think"},
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nTwo."},
            {"role": "user", "content": "Drei? 你好"},
        ],
        "add_generation_prompt": True,
        "enable_thinking": False,
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
    "tools": {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": None,
                "reasoning": "I must look.",
                "tool_calls": [
                    {"type": "function", "id": "abc123def", "function": {"name": "f", "arguments": {"a": [1, 2.5, None, "é"]}}},
                    {"type": "function", "id": "abc123deg", "function": {"name": "g", "arguments": {}}},
                ],
            },
            {"role": "tool", "name": "f", "content": "sun\nny", "tool_call_id": "abc123def"},
            {"role": "tool", "name": "g", "content": {"deep": [True]}, "tool_call_id": "abc123deg"},
            {"role": "assistant", "content": "Sunny."},
        ],
        "tools": INPUT["tools"] * 2,
        "documents": [{"title": "T", "text": "D"}],
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image"}]}]},
    "assistant first": {"messages": [{"role": "assistant", "content": "?", "thinking": "t"}], "date_string": "1 Jan"},
    "unknown role": {"messages": [{"role": "wizard", "content": "abra"}]},
}


def transformers_render(template, values) -> dict:
    """What apply_chat_template does: keys whose value is null are dropped, then render."""
    values = dict(values)
    messages = [{k: v for k, v in m.items() if v is not None} for m in values.pop("messages")]
    try:
        return {"prompt": render_jinja_template(conversations=[messages], chat_template=template, **values)[0][0]}
    except Exception as error:
        return {"error": str(error), "kind": type(error).__name__}


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_whole_templates(path):
    """Templates with the idioms of the models' own."""
    text = path.read_text()
    rendered = 0
    for got, (name, values) in zip(ours([(text, v) for v in CONVERSATIONS.values()]), CONVERSATIONS.items()):
        want = transformers_render(text, values)
        rendered += "prompt" in want
        assert want.get("prompt") == got.get("prompt"), f"{name}\n{want}\n{got}"
        if want.get("kind") in ("TemplateError", "UndefinedError"):
            assert want["error"] in got["error"], name
    assert rendered >= 2, "a template must render some conversations"


def test_real_templates():
    """Those of AC_CHAT_TEMPLATES: NAME.jinja and golden/NAME.json, cases of input, output and error."""
    if "AC_CHAT_TEMPLATES" not in os.environ:
        pytest.skip("AC_CHAT_TEMPLATES names no folder")
    folder = Path(os.environ["AC_CHAT_TEMPLATES"])
    checked, found = 0, []
    for golden in sorted(folder.glob("golden/*.json")):
        template = (folder / f"{golden.stem}.jinja").read_text()
        cases = json.loads(golden.read_text())
        for case, got in zip(cases, ours([(template, case["input"]) for case in cases])):
            want = case["output"]
            for form, then in (case.get("dates") or {}).items():
                want = want and want.replace(then, datetime.datetime.now().strftime(form))
            same = got.get("prompt") == want
            if case["error"] is not None:
                same = "error" in got or case.get("either", False)
                if case["error_kind"] == "raise_exception":
                    same = case["error"] in got.get("error", "")
            if not same:
                found.append(f"{golden.stem}: {case['name']}\n  want: {want or case['error']!r}\n  got:  {got!r}")
            checked += 1
    assert checked > 0 and not found, f"{len(found)} of {checked}:\n" + "\n".join(found[:5])


# --- the command


@pytest.fixture
def chat(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi\n"}], "add_generation_prompt": True}))
    return file


def test_prints_the_prompt_to_the_byte(tmp_path, chat):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ bos_token }}|")
    assert program("apply-template", template, "--input", chat).stdout == "<user>Hi\n|"
    assert json.loads(program("apply-template", template, "--input", chat, "--json").stdout) == {"prompt": "<user>Hi\n|"}
    assert program("apply-template", template, "--input", "-", stdin=chat.read_text()).stdout == "<user>Hi\n|"
    assert "stdin: not valid JSON" in program("apply-template", template, "--input", "-", stdin="{", expect=3).stderr


def test_where_templates_come_from(tmp_path, chat):
    """tokenizer_config.json, then chat_template.jinja before it; several by name; special tokens."""
    folder = tmp_path / "model"
    folder.mkdir()

    def prompt(*options):
        return program("apply-template", folder, "--input", chat, *options).stdout

    error = program("apply-template", folder, "--input", chat, expect=3).stderr
    assert "no chat template" in error and error.count("\n") == 1
    config = {"chat_template": "config {{ bos_token }} {{ eos_token }}", "bos_token": "<s>", "eos_token": {"content": "</s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert prompt() == "config <s> </s>"
    assert program("apply-template", folder / "tokenizer_config.json", "--input", chat).stdout == "config <s> </s>"
    config["chat_template"] = [
        {"name": "default", "template": "default"},
        {"name": "tool_use", "template": "with tools"},
        {"name": "rag", "template": "rag"},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert prompt() == "default"
    assert prompt("--name", "rag") == "rag"
    error = program("apply-template", folder, "--input", chat, "--name", "other", expect=3).stderr
    assert '"default", "rag", "tool_use"' in error
    values = json.loads(chat.read_text())
    chat.write_text(json.dumps(values | {"tools": []}))
    assert prompt() == "with tools"
    (folder / "chat_template.jinja").write_text("file {{ bos_token }}\n")
    assert prompt() == "file <s>"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/rag.jinja").write_text("rag file")
    assert prompt("--name", "rag") == "rag file"
    assert "tool_use" not in program("apply-template", folder, "--input", chat, "--name", "tool_use", expect=3).stderr.split("there is")[1]


@pytest.mark.parametrize(
    "template, expected, code",
    [
        ("a\n{{ raise_exception('roles must\nalternate') }}", r"t.jinja:2:4: roles must\nalternate", 1),
        ("{{ messages[0].nope.x }}", "t.jinja:1:20: 'dict object' has no attribute 'nope'", 1),
        ("{% for m in messages %}{{ m.x.y }}{% endfor %}", "has no attribute 'x'", 1),
        ("\n\n{% if x %}", "t.jinja:3:11: Unexpected end of template.", 3),
        ("{% include 'other' %}", "the tag 'include' is not supported", 3),
        ("{{ 'x'|pprint }}", "the filter 'pprint' is not supported", 1),
        ("{{ range(99999)|map('string')|join * 99999 }}", "memory", 1),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps", 1),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "deep", 1),
    ],
)
def test_errors_are_one_line_with_a_place(tmp_path, chat, template, expected, code):
    file = tmp_path / "t.jinja"
    file.write_text(template)
    result = program("apply-template", file, "--input", chat, expect=code)
    assert expected in result.stderr and result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_bad_files(tmp_path, chat):
    assert "no-such" in program("apply-template", tmp_path / "no-such", "--input", chat, expect=3).stderr
    template = tmp_path / "t.jinja"
    template.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in program("apply-template", template, "--input", chat, expect=3).stderr
    template.write_text("x")
    chat.write_text("[]")
    assert "JSON object" in program("apply-template", template, "--input", chat, expect=3).stderr
    chat.write_text('{"messages": [1]}')
    assert "must be objects" in program("apply-template", template, "--input", chat, expect=3).stderr
    chat.write_text('{"messages"')
    assert "not valid JSON" in program("apply-template", template, "--input", chat, expect=3).stderr
    assert "--input" in program("apply-template", template, expect=2).stderr


def test_the_example_of_the_help(tmp_path):
    help_text = program("apply-template", "--help").stdout
    example = next(line for line in help_text.splitlines() if "echo" in line).strip()
    subprocess.run(example, shell=True, check=True, cwd=tmp_path)
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    assert program("apply-template", tmp_path / "t.jinja", "--input", tmp_path / "chat.json").stdout == "Hello"
