"""`serve`: calls of tools, reasoning and the APIs that have them, with a model that says what it was told to."""

import json

import anthropic
import openai
import pytest
import scripted_model
from served import Server, compiled_once

SCRIPTS = {
    "plain": ["Good", " day", ", all", "."],
    "weather": ["<tool_call>", '\n{"name": "get_', 'weather", "argu', 'ments": {"city', '": "Par', "is \\u00e9", '"}}', "\n", "</tool_call>"],
    "two": [
        *("I look", " it up.\n\n", "<tool_call>\n", '{"arguments": {"city": "Rome"}, "name"', ': "get_weather"}\n', "</tool_call>\n"),
        *("<tool_call> ", '{"name": "get_time", "arguments": {}', "} ", "</tool_call> "),
    ],
    "think": ["<think>", "\nLet me", " see", ".\n", "</think>", "\n\nIt is", " 4."],
    "opened": ["One", " two", "</think>\n", "Three"],
    "both": ["<think>\n", "Which city", "?\n</think>\n\n", "<tool_call>\t", '{"name": "get_weather", "arguments": {"city": "Oslo"}}', "</tool_call>\t"],
    "broken": ["<tool_call>\r", "no JSON", " at all", "</tool_call>\r"],
    "deep": ["<tool_call> \n", '{"name": "get_time", "arguments": {"a": ', "[" * 20_000, "]" * 20_000, "}} ", "</tool_call>"],
}  # fmt: skip
OPENAI_TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    for name in ("get_weather", "get_time")
]
CLAUDE_TOOLS = [
    {"name": tool["function"]["name"], "description": "d", "input_schema": tool["function"]["parameters"]} for tool in OPENAI_TOOLS
]
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in OPENAI_TOOLS]


def write(folder):
    return scripted_model.write(folder, SCRIPTS)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    _, package = compiled_once(tmp_path_factory, "scripted", write, "--max-context", 2048, "--chunk", 64)
    with Server(package, "--alias", "scripted") as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def say(script):
    return [{"role": "user", "content": f"say {script}"}]


def asked(server, script, **fields):
    """The choice, after a stream has given the same."""
    fields = {"messages": say(script), "tools": OPENAI_TOOLS, **fields}
    (choice,) = server.post("/v1/chat/completions", **fields)["choices"]
    streamed = {"content": "", "reasoning_content": "", "tool_calls": []}
    finish = None
    for event in server.stream("/v1/chat/completions", **fields)[:-1]:
        for part in event["choices"]:
            delta, finish = part["delta"], part["finish_reason"]
            for key in ("content", "reasoning_content"):
                streamed[key] += delta.get(key) or ""
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(streamed["tool_calls"]) and call["type"] == "function"
                    streamed["tool_calls"].append(call["function"])
                else:
                    streamed["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    message = choice["message"]
    assert streamed["content"] == (message["content"] or "")
    assert streamed["reasoning_content"] == message.get("reasoning_content", "")
    assert streamed["tool_calls"] == [call["function"] for call in message.get("tool_calls", [])]
    assert finish == choice["finish_reason"]
    return choice


def calls_of(choice) -> list:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in choice["message"]["tool_calls"]]


def test_a_call(server):
    choice = asked(server, "weather")
    assert calls_of(choice) == [("get_weather", {"city": "Paris é"})]
    assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["id"].startswith("call_")


def test_two_calls_behind_a_text(server):
    choice = asked(server, "two")
    assert calls_of(choice) == [("get_weather", {"city": "Rome"}), ("get_time", {})]
    assert choice["message"]["content"] == "I look it up."
    assert len({call["id"] for call in choice["message"]["tool_calls"]}) == 2
    one = asked(server, "two", parallel_tool_calls=False)
    assert calls_of(one) == [("get_weather", {"city": "Rome"})] and one["finish_reason"] == "tool_calls"


def test_what_is_no_call_is_text(server):
    choice = asked(server, "broken")
    assert choice["message"]["content"] == "".join(SCRIPTS["broken"])
    assert choice["finish_reason"] == "stop"
    # Without tools, or where none is to be called, nothing is a call.
    for fields in ({"tools": None}, {"tool_choice": "none"}):
        choice = asked(server, "weather", **fields)
        assert choice["message"]["content"] == "".join(SCRIPTS["weather"]) and "tool_calls" not in choice["message"]


def test_reasoning_is_apart(server):
    choice = asked(server, "think")
    assert choice["message"]["reasoning_content"] == "Let me see." and choice["message"]["content"] == "It is 4."
    choice = asked(server, "opened", chat_template_kwargs={"think": True})
    assert choice["message"]["reasoning_content"] == "One two" and choice["message"]["content"] == "Three"
    choice = asked(server, "both")
    assert choice["message"]["reasoning_content"] == "Which city?" and calls_of(choice) == [("get_weather", {"city": "Oslo"})]
    cut = asked(server, "think", max_tokens=3)
    assert cut["message"]["reasoning_content"] == "Let me see" and cut["message"]["content"] == ""
    assert cut["finish_reason"] == "length"
    for script, tokens in ("plain", 0), ("think", 4), ("both", 3):
        usage = server.post("/v1/chat/completions", messages=say(script), tools=OPENAI_TOOLS)["usage"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] == tokens, script
        usage = server.post("/v1/responses", input=say(script), tools=FLAT_TOOLS)["usage"]
        assert usage["output_tokens_details"]["reasoning_tokens"] == tokens, script


def test_a_conversation_with_tools(client, server):
    messages = say("weather")
    first = client.chat.completions.create(model="scripted", messages=messages, tools=OPENAI_TOOLS)
    (call,) = first.choices[0].message.tool_calls
    messages += [first.choices[0].message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny; now plain"}]
    second = client.chat.completions.create(model="scripted", messages=messages, tools=OPENAI_TOOLS)
    assert second.choices[0].message.content == "Good day, all."
    ids = server.post("/tokenize", messages=messages)["tokens"]
    prompt = server.post("/detokenize", tokens=ids)["prompt"]
    assert '{"name": "get_weather", "arguments": {"city": "Paris é"}}' in prompt
    with client.chat.completions.stream(model="scripted", messages=say("two"), tools=OPENAI_TOOLS) as stream:
        final = stream.get_final_completion()
    assert [call.function.name for call in final.choices[0].message.tool_calls] == ["get_weather", "get_time"]


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, 'tool_choice: there is no tool "f"'),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name: it is missing"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id: it is missing"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": [1]}}]}]},
            "messages[0].tool_calls[0].function.arguments: a list is no JSON object",
        ),
    ],
)
def test_what_is_wrong_with_tools_is_named(server, fields, says):
    error = server.refused("/v1/chat/completions", **{"messages": say("plain"), "tools": OPENAI_TOOLS, **fields})
    assert says in error["message"], error


def test_arguments_of_many_levels(server, claude):
    """What copies them takes room on the stack for each level."""
    for depth in (100, 1_000_000):
        arguments = '{"a": ' + "[" * depth + "]" * depth + "}"
        call = {"id": "1", "type": "function", "function": {"name": "get_time", "arguments": arguments}}
        talk = [*say("plain"), {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": "x"}]
        item = {"type": "function_call", "call_id": "1", "name": "get_time", "arguments": arguments}
        assert server.post("/v1/chat/completions", messages=talk, max_tokens=1)["choices"]
        assert server.post("/v1/responses", input=[*say("plain"), item], max_output_tokens=16)["output"]
    (use,) = claude.messages.create(model="scripted", max_tokens=50, messages=say("deep"), tools=CLAUDE_TOOLS).content
    assert use.name == "get_time" and use.input == {"invalid_json": "".join(SCRIPTS["deep"][1:4])[len('{"name": "get_time", "arguments": ') :] + "}"}


def test_a_client_sends_back_what_is_no_json(server):
    """Else a conversation could not go on after a model has once written such a call."""
    for arguments in "{", "[1]", '{"city": Paris}':
        call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        talk = [*say("plain"), {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": "wrong"}]
        ids = server.post("/tokenize", messages=talk)["tokens"]
        prompt = server.post("/detokenize", tokens=ids)["prompt"]
        assert json.dumps({"invalid_json": arguments}) in prompt
        assert server.post("/v1/chat/completions", messages=talk, max_tokens=2)["choices"][0]["message"]["content"]


def prompt_of(server, messages) -> int:
    return server.post("/tokenize", messages=messages)["count"]


def test_what_claude_code_sends(server):
    cache = {"cache_control": {"type": "ephemeral"}}
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}
    keeps = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    body = {
        "model": "scripted",
        "system": [{"type": "text", "text": "You are", **cache}, {"type": "text", "text": "brief.", **cache}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "say", **cache}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "First", "signature": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "thinking", "thinking": "Second", "signature": "y"},
                    {**use, **cache},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sunny", **cache}], **cache},
                    {"type": "text", "text": "now plain"},
                ],
            },
        ],
        "tools": [{**CLAUDE_TOOLS[0], "eager_input_streaming": True, **cache}],
        "thinking": {"type": "adaptive"},
        "context_management": keeps,
        "output_config": {"effort": "high"},
    }
    counted = server.post("/v1/messages/count_tokens?beta=true", **body)["input_tokens"]
    got = server.post("/v1/messages?beta=true", max_tokens=50, metadata={"user_id": "x"}, **body)
    assert got["content"] == [{"type": "text", "text": "Good day, all."}]
    assert got["usage"]["input_tokens"] + got["usage"]["cache_read_input_tokens"] == counted
    same = [
        {"role": "system", "content": "You are\nbrief."},
        {"role": "user", "content": "say"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "First\nSecond",
            "tool_calls": [{"id": "1", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
        {"role": "user", "content": "now plain"},
    ]
    del body["tools"]
    assert server.post("/v1/messages/count_tokens", **body)["input_tokens"] == prompt_of(server, same)
    for edit, says in (
        ({"type": "clear_tool_uses_20250919"}, "clear_tool_uses_20250919"),
        ({"type": "clear_thinking_20251015"}, "keep: it is missing"),
        ({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}, "nothing is ever cut off"),
    ):
        status, _, text = server.request("POST", "/v1/messages", {**body, "max_tokens": 5, "context_management": {"edits": [edit]}})
        assert status == 400 and says in text, text


def test_claude_messages(claude, server):
    got = claude.messages.create(model="scripted", max_tokens=50, messages=say("plain"), system="Be brief.")
    assert [block.text for block in got.content] == ["Good day, all."]
    assert (got.stop_reason, got.role, got.type) == ("end_turn", "assistant", "message")
    assert got.usage.output_tokens == len(SCRIPTS["plain"]) + 1 and got.usage.input_tokens > 10
    with claude.messages.stream(model="scripted", max_tokens=50, messages=say("plain")) as stream:
        assert "".join(stream.text_stream) == "Good day, all."
    assert claude.messages.create(model="scripted", max_tokens=2, messages=say("plain")).stop_reason == "max_tokens"
    stopped = claude.messages.create(model="scripted", max_tokens=50, messages=say("plain"), stop_sequences=[", al"])
    assert (stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text) == ("stop_sequence", ", al", "Good day")
    counted = claude.messages.count_tokens(model="scripted", messages=say("plain"), system="Be brief.")
    assert counted.input_tokens == got.usage.input_tokens + got.usage.cache_read_input_tokens


def test_claude_tools_and_reasoning(claude):
    messages = say("two")
    whole = claude.messages.create(model="scripted", max_tokens=200, messages=messages, tools=CLAUDE_TOOLS)
    assert [block.type for block in whole.content] == ["text", "tool_use", "tool_use"]
    assert whole.stop_reason == "tool_use"
    assert [(block.name, block.input) for block in whole.content[1:]] == [("get_weather", {"city": "Rome"}), ("get_time", {})]
    with claude.messages.stream(model="scripted", max_tokens=200, messages=messages, tools=CLAUDE_TOOLS) as stream:
        names = [event.type for event in stream]
        final = stream.get_final_message()
    assert names[0] == "message_start" and names[-1] == "message_stop"
    assert [block.model_dump(exclude={"id", "parsed_output"}) for block in final.content] == [
        block.model_dump(exclude={"id", "parsed_output"}) for block in whole.content
    ]
    assert final.usage.output_tokens == whole.usage.output_tokens
    messages += [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in whole.content]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": whole.content[1].id, "content": "sunny"},
                {"type": "tool_result", "tool_use_id": whole.content[2].id, "content": [{"type": "text", "text": "noon"}]},
                {"type": "text", "text": "now think"},
            ],
        },
    ]
    thought = claude.messages.create(model="scripted", max_tokens=200, messages=messages, tools=CLAUDE_TOOLS)
    assert [block.type for block in thought.content] == ["thinking", "text"]
    assert (thought.content[0].thinking, thought.content[1].text) == ("Let me see.", "It is 4.")
    with pytest.raises(anthropic.BadRequestError, match="there is no tool"):
        choice = {"type": "tool", "name": "f"}
        claude.messages.create(model="scripted", max_tokens=9, messages=say("plain"), tools=CLAUDE_TOOLS, tool_choice=choice)
    with pytest.raises(anthropic.NotFoundError, match="there is no model"):
        claude.messages.create(model="other", max_tokens=9, messages=say("plain"))


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"max_tokens": None}, "max_tokens: it is missing"),
        ({"messages": []}, "messages: there is none"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
        ({"temperature": 1.5}, "temperature"),
        ({"betas": []}, "betas: this parameter is not supported"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    ],
)
def test_what_is_wrong_with_claude_messages_is_named(server, fields, says):
    fields = {"max_tokens": 5, "messages": say("plain"), **fields}
    status, _, body = server.request("POST", "/v1/messages", fields)
    error = json.loads(body)
    assert status == 400 and error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert says in error["error"]["message"], error


def test_responses(client):
    got = client.responses.create(model="scripted", input="say plain", instructions="Be brief.")
    assert got.output_text == "Good day, all." and got.status == got.output[0].status == "completed"
    assert got.usage.output_tokens == len(SCRIPTS["plain"]) + 1
    with client.responses.stream(model="scripted", input=say("plain")) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "Good day, all."
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    cut = client.responses.create(model="scripted", input="say plain", max_output_tokens=2)
    assert cut.status == cut.output[0].status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"
    with client.responses.stream(model="scripted", input="say plain", max_output_tokens=2) as stream:
        (ended,) = [event.item.status for event in stream if event.type == "response.output_item.done"]
    assert ended == "incomplete"
    thought = client.responses.create(model="scripted", input="say think")
    assert [item.type for item in thought.output] == ["reasoning", "message"]
    assert thought.output[0].content[0].text == "Let me see." and thought.output_text == "It is 4."


def test_each_item_of_a_response_is_in_the_prompt(server):
    """Also where reasoning stands between two messages of the assistant, or behind the last one."""
    thought = [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]} for text in ("One", "Two", "Three")]
    call = {"type": "function_call", "call_id": "1", "name": "get_time", "arguments": "{}"}
    items = [
        *say("first"), thought[0], {"role": "assistant", "content": "I look."}, thought[1], {"role": "assistant", "content": "It is:"}, call,
        {"type": "function_call_output", "call_id": "1", "output": "noon"}, thought[2], *say("plain"), {"role": "assistant", "content": "Yes."},
        *say("plain"),
    ]  # fmt: skip
    same = [
        *say("first"),
        {"role": "assistant", "reasoning_content": "One", "content": "I look."},
        {
            "role": "assistant",
            "reasoning_content": "Two",
            "content": "It is:",
            "tool_calls": [{"id": "1", "function": {"name": "get_time", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
        {"role": "assistant", "reasoning_content": "Three", "content": ""},
        *say("plain"),
        {"role": "assistant", "content": "Yes."},
        *say("plain"),
    ]
    assert server.post("/v1/responses", input=items)["usage"]["input_tokens"] == prompt_of(server, same)
    nothing = server.post("/v1/responses", input="say plain", tools=None, tool_choice=None, metadata=None)
    assert (nothing["tools"], nothing["tool_choice"], nothing["metadata"]) == ([], "auto", {})
    assert "has none" in server.refused("/v1/responses", input="x", include=["message.output_text.logprobs"])["message"]


def test_responses_with_tools(client):
    talk = say("two")
    whole = client.responses.create(model="scripted", input=talk, tools=FLAT_TOOLS)
    assert [item.type for item in whole.output] == ["message", "function_call", "function_call"]
    assert [(call.name, json.loads(call.arguments)) for call in whole.output[1:]] == [("get_weather", {"city": "Rome"}), ("get_time", {})]
    with client.responses.stream(model="scripted", input=talk, tools=FLAT_TOOLS) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    shape = [(item.type, getattr(item, "arguments", None)) for item in whole.output]
    assert [(item.type, getattr(item, "arguments", None)) for item in final.output] == shape
    assert final.output_text == whole.output_text == "I look it up."
    talk += [item.model_dump(exclude_none=True) for item in whole.output]
    talk += [
        {"type": "function_call_output", "call_id": whole.output[1].call_id, "output": "sunny"},
        {"type": "function_call_output", "call_id": whole.output[2].call_id, "output": "now plain"},
    ]
    assert client.responses.create(model="scripted", input=talk, tools=FLAT_TOOLS).output_text == "Good day, all."
    for fields, says in (
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "keeps no answers"),
        ({"tool_choice": {"type": "function", "name": "f"}, "tools": FLAT_TOOLS}, "there is no tool"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
    ):
        with pytest.raises(openai.BadRequestError, match=says):
            client.responses.create(**{"model": "scripted", "input": "say plain", **fields})
