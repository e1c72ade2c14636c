"""Structured output of `serve`: answers of a tiny model at temperature 1 are what they must be, as jsonschema and
Python's `re` see it."""

import contextlib
import json
import re
import select
import shutil
import time

import anthropic
import jsonschema
import openai
import pydantic
import pytest
import schemas
import scripted_model
from compiled import ROOT
from served import Server, compiled_once
from test_serve_robust import http
from variants import LONG

CHAT = "/v1/chat/completions"
SAY = [{"role": "user", "content": "Tell me."}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    def write(folder):
        shutil.copytree(ROOT / "examples/demo_draft", folder)

    _, package = compiled_once(tmp_path_factory, "draft", write, "--max-context", 256, "--chunk", 32)
    with Server(package, "--alias", "demo") as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def answered(server, seed=1, **fields) -> tuple:
    """Text and finish reason of a chat."""
    fields = {"messages": SAY, "temperature": 1, "seed": seed, "max_tokens": 48, **fields}
    (choice,) = server.post(CHAT, **fields)["choices"]
    return choice["message"]["content"], choice["finish_reason"]


def completed(server, seed=1, **form) -> tuple:
    fields = {"prompt": "Tell me", "temperature": 1, "seed": seed, "max_tokens": 60, "structured_outputs": form}
    (choice,) = server.post("/v1/completions", **fields)["choices"]
    return choice["text"], choice["finish_reason"]


def form_of(schema, **more) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, **more}}


def is_valid(text, schema) -> bool:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(json.loads(text))


def test_answers_fit_their_schemas(server):
    whole, forms = 0, schemas.some_schemas()
    for i, schema in enumerate(forms):
        text, finish = answered(server, seed=i, response_format=form_of(schema, strict=True))
        assert finish in ("stop", "length")
        if finish == "stop":
            assert is_valid(text, schema), (schema, text)
            whole += 1
    assert whole > 0.6 * len(forms)


def test_tokens_that_are_chosen_one_by_one_fit_as_well(server):
    """logprobs want the logits of each token: none is taken without them."""
    for i, schema in enumerate(schemas.WRITTEN[::3]):
        fields = {"messages": SAY, "temperature": 1, "seed": i, "max_tokens": 48, "logprobs": True}
        (choice,) = server.post(CHAT, **fields, response_format=form_of(schema))["choices"]
        text = choice["message"]["content"]
        assert len(choice["logprobs"]["content"]) > 0
        assert choice["finish_reason"] == "length" or is_valid(text, schema), (schema, text)


def test_the_device_chooses_under_masks_what_the_host_does(server):
    """A bias, of nothing, has the host choose from all logits."""
    forms = schemas.some_schemas()[:: 1 if LONG else 2]
    answers = set()
    for i, schema in enumerate(forms):
        fields = {"seed": i, "temperature": (0, 1, 1.5)[i % 3], "top_p": (1, 0.9)[i % 2], "response_format": form_of(schema)}
        if i % 5 == 0:
            fields["top_k"] = 20
        by_device = answered(server, **fields)
        assert by_device == answered(server, **fields, logit_bias={"1": 0}), schema
        answers.add(by_device[0])
    assert len(answers) > len(forms) / 3


def test_any_json_object(server):
    for seed in range(6):
        text, finish = answered(server, seed, response_format={"type": "json_object"})
        assert text.startswith("{") and "\n" not in text
        assert finish == "length" or isinstance(json.loads(text), dict)


REGEXES = [
    "a", "", "(yes|no)", "[0-9]{3}-[0-9]{4}", "x*y", "[^a-z]{2,5}", r"\d+(\.\d{1,2})?", "(?:ab|cd){3}", "é{2}", r"\w{1,8}",
    r"[\w.]+@(foo|bar)\.com", "[a-zA-Z ]{0,9}!", "日本|[а-я]{3}", r"\(\[\{\}\]\)", "(a(b(c(d)?)?)?)?", "a{0}b", ".{4}", r"[.\]]{3}\.", r"(a|.)\\.",
]  # fmt: skip


@pytest.mark.parametrize("regex", REGEXES)
def test_answers_match_their_regex(server, regex):
    for seed in range(2):
        text, finish = completed(server, seed, regex=regex)
        assert finish == "length" or re.fullmatch(regex, text), text


def test_choices_and_grammars(server):
    choices = ["first", "second one", "fir", "日本", 'with "quotes"\n']
    assert {completed(server, seed, choice=choices)[0] for seed in range(40)} <= set(choices)
    sums = 'root ::= term ("+" term)*\nterm ::= [1-9] | "(" root ")"'
    for seed in range(5):
        text, finish = completed(server, seed, grammar=sums)
        assert re.fullmatch(r"[1-9+()]*", text) and (finish == "length" or eval(text) > 0)
    text, finish = completed(server, 1, json='{"type": "boolean"}')
    assert text in ("true", "false") and finish == "stop"


def test_the_answer_is_the_same_for_the_same_seed(server):
    schema = {"type": "object", "properties": {"name": schemas.SHORT, "count": {"type": "integer"}}, "required": ["name"]}
    fields = {"messages": SAY, "temperature": 1, "max_tokens": 60, "response_format": form_of(schema)}
    first = server.post(CHAT, **fields, seed=5, n=2)["choices"]
    again = server.post(CHAT, **fields, seed=5, n=2)["choices"]
    assert first == again
    events = server.stream(CHAT, **fields, seed=5)
    pieces = [choice["delta"].get("content") or "" for event in events[:-1] for choice in event["choices"]]
    assert "".join(pieces) == first[0]["message"]["content"]


class Answer(pydantic.BaseModel):
    sure: bool
    count: int = pydantic.Field(ge=0, le=99)


def test_openai_parses(client):
    chat = client.chat.completions.parse(model="demo", messages=SAY, response_format=Answer, temperature=1, seed=3)
    assert isinstance(chat.choices[0].message.parsed, Answer)
    response = client.responses.parse(model="demo", input="Tell me.", text_format=Answer)
    assert isinstance(response.output_parsed, Answer)


def test_anthropic_parses(server):
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    form = {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}}}
    message = claude.messages.create(model="demo", max_tokens=50, messages=SAY, output_config=form)
    assert isinstance(json.loads(message.content[0].text)["sure"], bool) and message.stop_reason == "end_turn"


SCHEMA = "response_format.json_schema.schema"
OBJECT = {"type": "object", "properties": {"a": {}}}


@pytest.mark.parametrize(
    "schema, says",
    [
        ({"not": {}}, "not is not supported"),
        ({"type": "object", "properties": {"a": {"items": {"if": {}}}}}, "at /properties/a/items: if is not supported"),
        ({**OBJECT, "dependentRequired": {}}, "dependentRequired is not supported"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems is not supported"),
        ({"type": "array", "items": [{}]}, "prefixItems"),
        ({"type": "text"}, '"text" is no type'),
        ({"type": []}, "empty list"),
        ({"properties": []}, "properties is no object"),
        ({"enum": []}, "enum is no list of values"),
        ({"type": "string", "enum": ["a", 1]}, "not of the type beside it"),
        ({"$ref": "#/$defs/a"}, "leads nowhere"),
        ({"$ref": "https://example.com/a"}, "only #/... is"),
        ({"$ref": "#", "type": "object"}, "type beside $ref"),
        ({"anyOf": [{}], "properties": {}}, "properties beside anyOf"),
        ({"allOf": [{}, {}]}, "allOf of several"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"type": "number", "multipleOf": 0.1}, "multipleOf"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum greater than maximum"),
        ({"type": "string", "pattern": "a", "minLength": 3}, "minLength"),
        ({"type": "string", "pattern": "("}, ""),
        ({"type": "string", "pattern": "(?=a)b"}, ""),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, 'required names "a"'),
        (False, "nothing fits false"),
        (7, "neither an object nor a boolean"),
    ],
)
def test_a_schema_that_is_not_supported_is_refused(server, schema, says):
    error = server.refused(CHAT, messages=SAY, response_format=form_of(schema))
    assert error["param"] == SCHEMA and says in error["message"], error


TOOL = {"type": "function", "function": {"name": "f", "parameters": OBJECT}}


@pytest.mark.parametrize(
    "fields, param, says",
    [
        ({"response_format": {}}, "response_format.type", "missing"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "xml"),
        ({"response_format": {"type": "json_schema"}}, "response_format.schema", "missing"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, SCHEMA, "missing"),
        ({"structured_outputs": {}}, "structured_outputs", "give one of"),
        ({"structured_outputs": {"regex": "a", "grammar": 'root ::= "a"'}}, "structured_outputs", "give one of"),
        ({"structured_outputs": {"regex": "[a"}}, "structured_outputs.regex", ""),
        ({"structured_outputs": {"regex": r"(a)\1"}}, "structured_outputs.regex", ""),
        ({"structured_outputs": {"regex": "a(?!b)"}}, "structured_outputs.regex", ""),
        ({"structured_outputs": {"grammar": "root ::= other"}}, "structured_outputs.grammar", "other"),
        ({"structured_outputs": {"grammar": 'start ::= "a"'}}, "structured_outputs.grammar", "root"),
        ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs.grammar", ""),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "none"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice[1]", "no text"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "JSON"),
        ({"structured_outputs": {"lark": "start: "}}, "structured_outputs.lark", ""),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "response_format", "structured_outputs.regex says"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tools", "no form for calls"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(server, fields, param, says):
    error = server.refused(CHAT, messages=SAY, **fields)
    assert error["param"] == param and says in error["message"], error


def nested(depth) -> dict:
    return {} if depth == 0 else {"type": "object", "properties": {"a": nested(depth - 1)}, "required": ["a"]}


HOSTILE = {
    "deep": {"json": nested(25)},
    "wide": {"json": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2000)}}},
    "large": {"json": {"enum": ["x" * 200_000, "y" * 200_000]}},
    "many properties": {"json": {"properties": {f"{i}": {} for i in range(20_000)}, "required": [f"x{i}" for i in range(2000)]}},
    "brackets in a string": {"json": "[" * 100_000},
    "many values": {"json": {"enum": [f"value {i}" for i in range(10_000)]}},
    "a loop of references": {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}},
    "a reference to itself": {"json": {"$ref": "#"}},
    "no end": {"json": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}},
    "a long string": {"json": {"type": "string", "minLength": 2_000_000_000}},
    "many items": {"json": {"type": "array", "items": {"type": "object", "properties": {"a": {}}}, "minItems": 1_000_000}},
    "nested repetitions": {"regex": "((((a{1,100}){1,100}){1,100}){1,100}){1,100}"},
    "an exponential automaton": {"regex": "(a|b)*a(a|b){200}"},
    "many brackets": {"regex": "(" * 20_000 + "a" + ")" * 20_000},
    "many brackets of a grammar": {"grammar": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000},
    "left recursion": {"grammar": 'root ::= root "a" | "a"'},
    "an ambiguous grammar": {"grammar": 'root ::= root root | "a" | ""'},
    "a grammar without end": {"grammar": "root ::= root"},
    "a forced string without end": {"grammar": 'root ::= "ab" root'},
    "a chain of rules": {"grammar": "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(5000)) + 'r5000 ::= "a"'},
    "no character": {"grammar": "root ::= [b-a]"},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_answered_or_refused(server, name):
    before = server.processor_seconds()
    fields = {"prompt": "Tell me", "max_tokens": 30, "structured_outputs": HOSTILE[name]}
    status, _, body = server.request("POST", "/v1/completions", fields)
    assert status in (200, 400), body
    if status == 400:
        error = json.loads(body)["error"]
        # Only while it is answered, one may turn out to be too ambiguous.
        assert (error["param"] or "structured_outputs").startswith("structured_outputs") and len(error["message"]) < 500 and "\n" not in error["message"]
    assert server.processor_seconds() - before < 10  # not by the clock, as other tests run meanwhile
    status = dict(line.split(":", 1) for line in open(f"/proc/{server.process.pid}/status"))
    assert int(status["VmHWM"].split()[0]) < 2 << 20  # KiB
    assert answered(server, response_format=form_of({"const": 1}))[0] == "1"


def test_slow_grammars_hold_nobody_else_up(server):
    """Eight at once, of two seconds of work each: who asks for something else is answered meanwhile. Clients that leave
    make no more work."""
    with contextlib.ExitStack() as stack:
        slow = []
        for i in range(8):
            names = {f"p{j}": {"type": "string"} for j in range(2500 + i)}
            fields = {"prompt": "Tell me", "structured_outputs": {"json": {"type": "object", "properties": names}}}
            slow.append(stack.enter_context(contextlib.closing(server.socket())))
            slow[-1].sendall(http(fields))
        for _ in range(3):
            assert server.request("GET", "/health")[0] == 200
            assert server.request("POST", "/v1/completions", {"prompt": "Tell me", "max_tokens": 3})[0] == 200
        answered, _, _ = select.select(slow, [], [], 0)
        assert len(answered) <= 4
        got = slow[0].recv(1 << 16)
        assert got.startswith(b"HTTP/1.1 400") and b"too much time" in got
    begin = time.monotonic()
    assert completed(server, regex="ab?c") and time.monotonic() - begin < 10


# Tools, with a model that has the form `hermes`. At temperature 1, it says anything.

SCRIPTS = {
    "think": ["<think>", "\nLet me", " see", ".\n", "</think>", "\n\nIt is", " 4."],
    "opened": ["One", " two", "</think>\n", "Three"],
    "call": ["<tool_call>", "\nno", " JSON"],
    "tag": ["</tool_call>"],
}
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
}
TIME = {"type": "object", "properties": {"utc": {"type": "boolean"}}, "required": ["utc"]}
SCHEMAS = {"get_weather": WEATHER, "get_time": TIME}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]


def named(name) -> dict:
    return {"type": "function", "function": {"name": name}}


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    def write(folder):
        scripted_model.write(folder, SCRIPTS)

    _, package = compiled_once(tmp_path_factory, "caller", write, "--max-context", 1024, "--chunk", 64)
    with Server(package, "--alias", "caller") as server:
        yield server


def say(script):
    return [{"role": "user", "content": f"say {script}"}]


def called(server, **fields) -> list:
    fields = {"messages": say("call"), "tools": TOOLS, "temperature": 1, "max_tokens": 200, **fields}
    (choice,) = server.post(CHAT, **fields)["choices"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
    calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in choice["message"]["tool_calls"]]
    for name, arguments in calls:
        jsonschema.validate(arguments, SCHEMAS[name])
    return calls


def test_a_call_is_demanded(caller):
    names = {name for seed in range(10) for name, _ in called(caller, tool_choice="required", seed=seed, parallel_tool_calls=False)}
    assert names == set(SCHEMAS)
    for seed in range(3):
        ((name, _),) = called(caller, tool_choice=named("get_time"), seed=seed, parallel_tool_calls=False)
        assert name == "get_time"
    assert len(called(caller, tool_choice="required", seed=1)) >= 1
    error = caller.refused(CHAT, messages=say("call"), tools=TOOLS, tool_choice=named("f"))
    assert error["param"] == "tool_choice" and 'no tool "f"' in error["message"]
    error = caller.refused(CHAT, messages=say("call"), tool_choice="required")
    assert error["param"] == "tool_choice" and "no tools" in error["message"]
    error = caller.refused(CHAT, messages=say("call"), tools=TOOLS, response_format={"type": "json_object"})
    assert error["param"] == "response_format" and "contradicts tools" in error["message"]


def test_clients_demand_calls(caller):
    client = openai.OpenAI(base_url=caller.url + "/v1", api_key="none", max_retries=0)
    flat = [{"type": "function", "name": name, "parameters": schema, "strict": True} for name, schema in SCHEMAS.items()]
    response = client.responses.create(model="caller", input="call", tools=flat, tool_choice="required", parallel_tool_calls=False)
    (item,) = response.output
    jsonschema.validate(json.loads(item.arguments), SCHEMAS[item.name])
    response = client.responses.create(model="caller", input="call", tools=flat, tool_choice={"type": "function", "name": "get_time"})
    assert {item.name for item in response.output} == {"get_time"}
    claude = anthropic.Anthropic(base_url=caller.url, api_key="none", max_retries=0)
    tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        choice["disable_parallel_tool_use"] = True
        message = claude.messages.create(model="caller", max_tokens=200, messages=say("call"), tools=tools, tool_choice=choice)
        (use,) = message.content
        jsonschema.validate(use.input, SCHEMAS[use.name])
        assert message.stop_reason == "tool_use" and use.name == choice.get("name", use.name)


def test_strict_tools_bind_what_the_model_calls_by_itself(caller):
    strict = [{"type": "function", "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    free = caller.post(CHAT, messages=say("call"), tools=TOOLS, max_tokens=100)["choices"][0]["message"]
    assert free["content"] == "".join(SCRIPTS["call"]) and "tool_calls" not in free
    fields = {"messages": say("call"), "tools": strict, "max_tokens": 100, "temperature": 0}
    message = caller.post(CHAT, **fields, parallel_tool_calls=False)["choices"][0]["message"]
    (call,) = message["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])
    # It need not call any.
    plain = caller.post(CHAT, messages=say("opened"), tools=strict, max_tokens=100)["choices"][0]["message"]
    assert plain["content"] == "".join(SCRIPTS["opened"]) and "tool_calls" not in plain


def test_reasoning_is_free(caller):
    form = form_of({"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]})
    fields = {"max_tokens": 100, "response_format": form}
    (choice,) = caller.post(CHAT, messages=say("think"), **fields)["choices"]
    assert choice["message"]["reasoning_content"] == "Let me see." and choice["finish_reason"] == "stop"
    assert isinstance(json.loads(choice["message"]["content"])["sure"], bool)
    (choice,) = caller.post(CHAT, messages=say("tag"), **fields)["choices"]
    assert "reasoning_content" not in choice["message"] and isinstance(json.loads(choice["message"]["content"])["sure"], bool)
    fields = {**fields, "tools": TOOLS, "tool_choice": "required", "response_format": None}
    (choice,) = caller.post(CHAT, messages=say("think"), **fields)["choices"]
    assert choice["message"]["reasoning_content"] == "Let me see." and choice["message"]["tool_calls"]
