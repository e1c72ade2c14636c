#include <doctest/doctest.h>

#include "expect_error.h"
#include "text/chat_template.h"

using namespace ac;

namespace {

std::string render(std::string_view source, const Json& input = Json::object(),
                   const jinja::Limits& limits = {}) {
  return ChatTemplate(source, "t.jinja").render(input, limits);
}

std::string refused(std::string_view source, const Json& input = Json::object(),
                    const jinja::Limits& limits = {}) {
  return test::error_of(Fault::job_failed, [&] { render(source, input, limits); });
}

bool has(const std::string& text, std::string_view part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

// What Jinja says of all this is held against jinja2 by tests/python/test_chat_template.py; here
// are the limits, the places of errors, and what a template cannot do.
TEST_CASE("templates: values look as Python prints them") {
  CHECK(render("{{ [1, 2.0, 'a', \"it's\", none, true, {'k': (1,)}] }}") ==
        "[1, 2.0, 'a', \"it's\", None, True, {'k': (1,)}]");
  CHECK(render("{{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e-5 }}") ==
        "1e+16 1000000000000000.0 0.30000000000000004 1e-05");
  CHECK(render("{{ x|tojson }}", {{"x", {{"b", {1, 2.5, nullptr}}, {"a", "\"é\n"}}}}) ==
        "{\"b\": [1, 2.5, null], \"a\": \"\\\"é\\n\"}");
  CHECK(render("{{ 'äöü€'[1:3] }}{{ 'äöü€'|length }}{{ 'äöü€'[::-1] }}") == "öü4€üöä");
}

TEST_CASE("templates: white space around tags") {
  CHECK(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n") == "a\n  b\nc");
  CHECK(render("a\n  {{- 1 -}}  \n b") == "a1b");
  CHECK(render("a  {%+ if true +%}\nb{% endif %}") == "a  \nb");
}

TEST_CASE("templates: a name belongs to the scope that sets it") {
  CHECK(
      render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}") ==
      "231");
  CHECK(render("{% if false %}{% set n = 1 %}{% endif %}{{ n }}", {{"n", 7}}) == "7");
  CHECK(render("{% for i in [1] %}{{ n is defined }}{% endfor %}{% set n = 1 %}", {{"n", 7}}) ==
        "False");
}

TEST_CASE("templates: errors have a place and one line") {
  CHECK(refused("\n {{ raise_exception('one\ntwo') }}") == "t.jinja:2:5: one\\ntwo");
  CHECK(refused("{{ a.b }}") == "t.jinja:1:5: 'a' is undefined");
  CHECK(refused("{{ m.x.y }}", {{"m", Json::object()}}) ==
        "t.jinja:1:7: 'dict object' has no attribute 'x'");
  CHECK(refused("{{ 'é' ~ (1 / 0) }}") == "t.jinja:1:11: division by zero");
  CHECK_BAD_INPUT(render("a\n{% for x in %}"), "t.jinja:2:13: Expected an expression");
  CHECK_BAD_INPUT(render("{% if x %}"), "'elif' or 'else' or 'endif'");
  CHECK_BAD_INPUT(render("{{ 99999999999999999999 }}"), "does not fit into 64 bits");
}

TEST_CASE("templates: the sandbox lets nothing be changed or reached") {
  for (const char* source :
       {"{{ x.append(1) }}", "{{ x.pop() }}", "{{ x.__class__.__mro__ }}", "{{ d.update({}) }}",
        "{{ d.clear() }}", "{{ ''.__class__.x }}", "{{ '{0.__class__.x}'.format(1) }}"}) {
    INFO(source);
    CHECK(has(refused(source, {{"x", {1}}, {"d", Json::object()}}), "is unsafe"));
  }
  CHECK(render("{{ x.append }}|{{ x.append is defined }}", {{"x", {1}}}) == "|False");
}

TEST_CASE("templates: what does not end is ended") {
  jinja::Limits limits;
  limits.steps = 200'000;
  limits.bytes = std::size_t{4} << 20;
  const auto ends = [&](std::string_view source, std::string_view why) {
    INFO(source);
    const std::string message = refused(source, Json::object(), limits);
    CHECK(has(message, why));
  };
  ends("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", "steps");
  ends(
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "memory");
  ends(
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "memory");
  ends("{{ 'x' * 99999999999 }}", "");
  ends("{{ [1] * 99999999999 }}", "too long");
  ends("{{ 'x'.center(99999999999) }}", "");
  ends("{{ '%999999999999d' % 1 }}", "too large");
  ends("{{ '{:999999999999}'.format(1) }}", "too large");
  ends("{{ '%.99999f' % 1.5 }}", "too large");
  ends("{{ 'a'|indent(999999999) }}", "");
  ends("{{ [1]|batch(99999999999, 0)|list }}", "steps");
  ends("{{ [1]|slice(99999999999)|list }}", "more than");
  ends("{{ range(99999999) }}", "Range too big");
  ends("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "deep");
  ends("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "deep");
  ends("{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
       "nested more than");
  ends(
      "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x|map('string') %}"
      "{% endfor %}",
      "nested more than");
  // 2^100 leaves of one list, seen without end.
  ends(
      "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}"
      "{{ ns.x }}",
      "");
  ends(
      "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = (ns.x, ns.x) %}{% "
      "endfor %}"
      "{{ {ns.x: 1} }}",
      "steps");
  ends("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}", "deep");
  ends("{{ 'ab'.replace('', 'x' * 9999)|replace('x', 'y' * 9999) }}", "memory");
}

TEST_CASE("templates: what refers to itself is freed") {
  CHECK(
      render("{% set ns = namespace() %}{% set ns.l = [ns] %}{% macro f() %}{{ ns }}{% endmacro %}"
             "{% set ns.f = f %}{% for x in [1, 2] %}{% set ns.loop = loop %}{% endfor %}"
             "{{ ns.loop.index }}{% set ns.m = [1]|map('default', ns) %}") == "2");
}

TEST_CASE("templates: deep text is refused before the stack ends") {
  const auto repeat = [](std::string_view text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  constexpr int kMany = 20000;
  for (const std::string& source :
       {"{{ " + repeat("(", kMany), "{{ " + repeat("[", kMany), "{{ " + repeat("{1:", kMany),
        "{{ " + repeat("not ", kMany) + "1 }}", "{{ " + repeat("-", kMany) + "1 }}",
        "{{ 1" + repeat("+1", kMany) + " }}", "{{ a" + repeat(".a", kMany) + " }}",
        "{{ a" + repeat("|e", kMany) + " }}", "{{ a" + repeat("[0]", kMany) + " }}",
        repeat("{% if 1 %}", kMany), repeat("{% for x in y %}", kMany),
        "{{ " + repeat("1 if 1 else ", kMany) + "1 }}",
        "{% if 1 %}" + repeat("{% elif 1 %}", kMany) + "{% endif %}",
        "{% set " + repeat("(", kMany), "{{ a" + repeat("(a", kMany),
        "{{ " + repeat("1 is ", kMany)})
    CHECK_BAD_INPUT(render(source), "t.jinja:1:");
}

TEST_CASE("templates: large texts are read in time that grows with their size") {
  std::string line, names;
  for (int i = 0; i < 20000; ++i) {
    line += "{{ 1 }}";
    names += fmt::format("{{% if a %}}{{% set x{} = 1 %}}{{% endif %}}", i % 500);
  }
  CHECK(render(line).size() == 20000);
  CHECK_BAD_INPUT(render(names), "too many names and branches");
}

TEST_CASE("templates: input that is not a conversation is refused") {
  CHECK_BAD_INPUT(render("x", Json::array()), "JSON object");
  CHECK_BAD_INPUT(render("x", {{"messages", 1}}), "must be a list");
  CHECK_BAD_INPUT(render("x", {{"messages", {1}}}), "must be objects");
  CHECK(has(refused("x", {{"n", 18446744073709551615u}}), "does not fit into 64 bits"));
}

TEST_CASE("templates: messages lose null keys and have their reasoning under each name") {
  const Json input = {
      {"messages", {{{"role", "a"}, {"content", nullptr}, {"reasoning", "r"}}, {{"role", "b"}}}}};
  CHECK(render("{{ messages }}", input) ==
        "[{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}, {'role': "
        "'b'}]");
  CHECK(render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}") ==
        "TrueTrueFalse");
}
