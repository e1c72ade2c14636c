// The parts of answers in the forms that models were trained on, however the text comes in pieces.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "api/tool_format.h"

namespace ac::api::test {
namespace {

using Kind = Part::Kind;

const Json& tools() {
  static const Json tools = Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
        "street": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "code": {"type": ["null", "string"]},
        "floor": {"enum": ["1", "2"]}, "level": {"type": ["string", "integer"]}}}}},
    {"type": "function", "function": {"name": "get_time", "parameters": {}}}])");
  return tools;
}

// Parts that follow one another and are of one kind are one.
std::vector<Part> joined(const std::vector<Part>& parts) {
  std::vector<Part> all;
  for (const Part& part : parts)
    if (all.empty() || all.back().kind != part.kind || part.kind == Kind::call)
      all.push_back(part);
    else
      all.back().text += part.text;
  return all;
}

std::vector<Part> parse(const AnswerParts::Options& options, const std::string& text,
                        std::mt19937* random) {
  AnswerParts parser(options);
  std::vector<Part> parts;
  const auto take = [&](std::vector<Part> more) {
    parts.insert(parts.end(), more.begin(), more.end());
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = random ? (*random)() % 9 : text.size();
    take(parser.push(text.substr(at, bytes)));
    at += bytes;
  }
  take(parser.finish());
  return joined(parts);
}

void check_parts(AnswerParts::Options options, const std::string& text,
                 const std::vector<Part>& wanted) {
  CAPTURE(text);
  std::mt19937 random(1);
  CHECK(parse(options, text, nullptr) == wanted);
  for (int round = 0; round < 60; ++round) {
    const std::vector<Part> got = parse(options, text, &random);
    REQUIRE(got == wanted);
  }
}

void check_parts(ToolFormat format, const std::string& text, const std::vector<Part>& wanted) {
  check_parts({.format = format, .tools = tools()}, text, wanted);
}

Part text(const char* of) { return {Kind::text, of}; }
Part call(const char* of) { return {Kind::call, of}; }
Part arguments(const char* of) { return {Kind::arguments, of}; }
Part reasoning(const char* of) { return {Kind::reasoning, of}; }

}  // namespace

TEST_CASE("calls: hermes") {
  const auto format = ToolFormat::hermes;
  check_parts(format, "Hello.\n", {text("Hello.\n")});
  check_parts(
      format,
      "I look.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
      "\"P}\\\"a\", \"days\": [1, {}]}}\n</tool_call>\n",
      {text("I look."), call("get_weather"), arguments(R"({"city": "P}\"a", "days": [1, {}]})")});
  // The arguments first, several, none, in a string, without the tag's end, a brace too many.
  check_parts(format,
              R"(<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>)"
              "\n"
              R"(<tool_call>{"name": "g"}</tool_call>)"
              R"(<tool_call>{"name": "h", "arguments": "{\"b\": 2}"}</tool_call>)"
              R"(<tool_call>{"name": "i", "arguments": {}}}</tool_call>)"
              R"(<tool_call>{"name": "j", "arguments": {}}<tool_call>{"name": "k"})",
              {call("f"), arguments(R"({"a": 1})"), call("g"), arguments("{}"), call("h"),
               arguments(R"({"b": 2})"), call("i"), arguments("{}"), call("j"), arguments("{}"),
               call("k"), arguments("{}")});
  check_parts(format, "<tool_call>{\"id\": 3, \"type\": \"function\", \"name\": \"f\"}",
              {call("f"), arguments("{}")});
  // Text that looks like a call.
  for (const char* const other : {"<tool_call>", "<tool_call", "a < b <tool_call>[1]</tool_call>",
                                  "<tool_call>{\"names\": \"f\"}</tool_call> x",
                                  "<tool_call>{\"name\": 3}", "<tool_call>{\"name\": \"f"})
    check_parts(format, other, {text(other)});
  // What was cut off: as far as it came.
  check_parts(format, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b",
              {call("f"), arguments("{\"a\": \"b")});
  // Without tools, all is text.
  check_parts({.format = format}, "<tool_call>{\"name\": \"f\"}</tool_call>",
              {text("<tool_call>{\"name\": \"f\"}</tool_call>")});
}

TEST_CASE("calls: llama") {
  const auto format = ToolFormat::llama;
  check_parts(format, R"({"name": "get_weather", "parameters": {"city": "Paris"}})",
              {call("get_weather"), arguments(R"({"city": "Paris"})")});
  check_parts(format,
              "\n<|python_tag|>{\"type\": \"function\", \"name\": \"get_time\", \"parameters\": "
              "{}}; {\"name\": \"get_weather\", \"parameters\": {\"days\": 1}}",
              {call("get_time"), arguments("{}"), call("get_weather"), arguments("{\"days\": 1}")});
  // Only functions that there are can be called, and only an answer's beginning is a call.
  for (const char* const other :
       {R"({"name": "Anna", "parameters": {}})", R"({"city": "Paris", "n": [1, 2]} and more)",
        R"(It is {"name": "get_time", "parameters": {}})", "  Hello. ", "{", ""})
    check_parts(format, other, *other ? std::vector{text(other)} : std::vector<Part>{});
}

TEST_CASE("calls: mistral and granite") {
  const std::string list = R"([{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments":)"
                           R"( {}, "id": "abcdefghi"}])";
  const std::vector<Part> calls = {call("f"), arguments(R"({"a": 1})"), call("g"), arguments("{}")};
  check_parts(ToolFormat::mistral, "[TOOL_CALLS]" + list, calls);
  check_parts(ToolFormat::mistral, "[TOOL_CALLS] " + list + "\n", calls);
  check_parts(ToolFormat::granite, "<|tool_call|>" + list, calls);
  check_parts(ToolFormat::mistral,
              "Hm. [TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}",
              {text("Hm."), call("f"), arguments(R"({"a": 1})"), call("g"), arguments("{}")});
  check_parts(ToolFormat::mistral, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}} x",
              {call("f"), arguments("{}"), text(" x")});
  for (const char* const other : {"[TOOL_CALLS]", "[TOOL_CALLS][3]", "[TOOL_CAL", "[TOOL_CALLS]f"})
    check_parts(ToolFormat::mistral, other, {text(other)});
}

TEST_CASE("calls: deepseek") {
  const auto format = ToolFormat::deepseek;
  check_parts(format,
              "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
              "{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n"
              "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
              {text("So."), call("f"), arguments("{\"a\": 1}"), call("g"), arguments("{}")});
  check_parts(format,
              "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": {\"b\": "
              "2}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
              {call("f"), arguments("{\"a\": {\"b\": 2}}")});
  check_parts(format, "a <｜b", {text("a <｜b")});
}

TEST_CASE("calls: xml") {
  const auto format = ToolFormat::xml;
  check_parts(
      format,
      "Yes.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12 \"x\"\ny\n"
      "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n"
      "<tool_call><function=get_time></function></tool_call>",
      {text("Yes."), call("get_weather"), arguments(R"({"city": "12 \"x\"\ny", "days": 3})"),
       call("get_time"), arguments("{}")});
  // A number is a string where the tool wants one, and what is no JSON is one anywhere.
  check_parts(format,
              "<tool_call>\n<function=get_weather>\n<parameter=city>\n75\n</parameter>\n"
              "<parameter=days>\nsoon\n</parameter>\n</function>",
              {call("get_weather"), arguments(R"({"city": "75", "days": "soon"})")});
  // Also where it takes something else, too.
  std::string call_of_many = "<tool_call>\n<function=get_weather>\n";
  for (const auto& [name, value] :
       {std::pair{"street", "75"}, std::pair{"code", "null"}, std::pair{"code", "true"},
        std::pair{"floor", "1"}, std::pair{"level", "7"}, std::pair{"level", "7.5"}})
    call_of_many += fmt::format("<parameter={}>\n{}\n</parameter>\n", name, value);
  check_parts(format, call_of_many + "</function>",
              {call("get_weather"),
               arguments(R"({"street": "75", "code": null, "code": "true", "floor": "1", )"
                         R"("level": 7, "level": "7.5"})")});
  // Nothing is copied that has more levels than there is room for on the stack.
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  CHECK(parse({.format = format, .tools = tools()},
              "<tool_call><function=f><parameter=a>" + deep + "</parameter></function>", nullptr) ==
        std::vector{call("f"), Part{Kind::arguments, "{\"a\": \"" + deep + "\"}"}});
  // Arguments are JSON, whatever bytes come.
  check_parts(format, "<tool_call><function=f><parameter=a\x83>\x83</parameter></function>",
              {call("f"), arguments("{\"a\uFFFD\": \"\uFFFD\"}")});
  check_parts(format, "<tool_call>{}", {text("<tool_call>{}")});
  check_parts(format, "<tool_call><func", {text("<tool_call><func")});
}

TEST_CASE("calls: harmony") {
  const auto format = ToolFormat::harmony;
  const std::string answer =
      "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>";
  check_parts(format, answer,
              {reasoning("Let me see."), call("get_weather"), arguments("{\"city\": \"Oslo\"}")});
  check_parts({.format = format},
              "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final"
              "<|message|>It is < 4.<|return|>",
              {reasoning("Hm"), text("It is < 4.")});
  check_parts({.format = format}, answer, {reasoning("Let me see.{\"city\": \"Oslo\"}")});
  check_parts({.format = format}, "Plain.", {text("Plain.")});
}

TEST_CASE("reasoning is told from text and calls") {
  AnswerParts::Options options{.format = ToolFormat::hermes, .tools = tools(), .thinks = true};
  check_parts(options, "<think>\nA b.\n\n</think>\n\nC.\n", {reasoning("A b."), text("C.\n")});
  check_parts(options,
              "<think>\n<tool_call>{\"name\": \"f\"}\n</think>\n<tool_call>{\"name\": \"g\"}",
              {reasoning("<tool_call>{\"name\": \"f\"}"), call("g"), arguments("{}")});
  check_parts(options, "<think>\n\n</think>\n\nC", {text("C")});
  options.thinking = true;
  check_parts(options, "A\n</think>\n\nB", {reasoning("A"), text("B")});
  check_parts(options, "A \n", {reasoning("A")});
  options.thinks = false;
  check_parts(options, "A</think>", {text("A</think>")});
}

TEST_CASE("the form of calls follows from the chat template") {
  CHECK(format_of("... <tool_call>\n{\"name\": ...") == ToolFormat::hermes);
  CHECK(format_of("<tool_call>\n<function=...") == ToolFormat::xml);
  CHECK(format_of("[AVAILABLE_TOOLS] [TOOL_CALLS]") == ToolFormat::mistral);
  CHECK(format_of("'<｜tool▁calls▁begin｜>'") == ToolFormat::deepseek);
  CHECK(format_of("{\"name\": function name, \"parameters\": dictionary} '\"parameters\": '") ==
        ToolFormat::llama);
  CHECK(format_of("<|start|>assistant<|channel|>") == ToolFormat::harmony);
  CHECK(format_of("{{ message.content }}") == ToolFormat::none);
}

}  // namespace ac::api::test
