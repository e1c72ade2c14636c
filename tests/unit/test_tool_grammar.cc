// Grammars of calls: what they give is what the parser of the same form reads as calls.
#include "api/tool_grammar.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "grammar/matcher.h"
#include "tests/unit/small_tokenizer.h"

namespace ac::api {
namespace {

// A token for each character of ASCII that is printed, the line feed, and special tokens.
text::Tokenizer tokenizer_with(const std::vector<std::string>& markers) {
  std::vector<std::string> tokens;
  for (char c = ' '; c <= '~'; ++c) tokens.emplace_back(1, c);
  tokens.emplace_back("\n");
  return ac::test::small_tokenizer(tokens, markers);
}

struct Form {
  ToolFormat format;
  std::vector<std::string> markers;
  std::string chat_template;
  bool beside_text = true;  // it has a trigger
};

}  // namespace

TEST_CASE("tool grammars: what they give are calls") {
  const std::vector<std::string> deepseek{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                                          "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
                                          "<｜tool▁sep｜>"};
  const Form forms[] = {{ToolFormat::hermes, {"<tool_call>", "</tool_call>"}, ""},
                        {ToolFormat::hermes, {}, "", false},
                        {ToolFormat::llama, {}, "", false},
                        {ToolFormat::mistral, {"[TOOL_CALLS]"}, ""},
                        {ToolFormat::mistral, {"[TOOL_CALLS]", "[ARGS]"}, ""},
                        {ToolFormat::granite, {"<|tool_call|>"}, ""},
                        {ToolFormat::deepseek, deepseek, "```json"},
                        {ToolFormat::deepseek, deepseek, ""}};
  const std::vector<std::string> names{"get_time", "f"};
  Json tools = Json::array();
  for (const std::string& name : names)
    tools.push_back({{"type", "function"}, {"function", {{"name", name}}}});
  std::mt19937 random(1);
  for (const Form& form : forms) {
    CAPTURE(static_cast<int>(form.format));
    std::vector<std::string> markers{"<|end|>"};
    markers.insert(markers.end(), form.markers.begin(), form.markers.end());
    const text::Tokenizer tokenizer = tokenizer_with(markers);
    const auto vocabulary = static_cast<std::int64_t>(tokenizer.size());
    grammar::Compiler compiler(tokenizer, vocabulary);
    std::size_t most = 0;
    for (const bool beside_text : {false, true}) {
      const auto make = [&](bool one_call) {
        return call_grammar(form.format, names, one_call, beside_text, form.chat_template,
                            tokenizer);
      };
      if (beside_text && !form.beside_text) {
        CHECK_THROWS_AS(make(false), Error);
        continue;
      }
      for (int round = 0; round < 30; ++round) {
        const bool one_call = round % 3 == 0;
        const CallGrammar calls = make(one_call);
        CHECK((calls.trigger >= 0) == beside_text);
        grammar::Source source{{grammar::Form::Kind::lark, calls.lark, ""}};
        for (const char* const schema :
             {R"({"const": {"utc": true}})", R"({"enum": [{}, {"a": 1}]})"})
          source.parts.push_back({grammar::Form::Kind::schema, schema, ""});
        grammar::Matcher matcher({.grammar = compiler.compile(source), .trigger = calls.trigger});
        std::string text;
        const auto take = [&](std::int64_t id) {
          text += tokenizer.token(static_cast<text::TokenId>(id));
        };
        if (beside_text) matcher.take(calls.trigger), take(calls.trigger);
        const auto end = static_cast<std::size_t>(*tokenizer.id("<|end|>"));
        while (!matcher.ended()) {
          for (const std::int64_t id : matcher.forced(1000)) take(id);
          if (matcher.ended()) break;
          std::vector<double> logits(static_cast<std::size_t>(vocabulary));
          for (double& logit : logits) logit = static_cast<double>(random());
          matcher.restrict(logits);
          const auto best = std::ranges::max_element(logits) - logits.begin();
          if (static_cast<std::size_t>(best) == end || text.size() > 2000) break;
          // The text behind the calls is free.
          if (beside_text && std::ranges::none_of(logits, [](double x) { return std::isinf(x); }))
            break;
          matcher.take(best);
          take(best);
        }
        CAPTURE(text);
        std::vector<Part> parts;
        const auto parser = call_parser(form.format, tools);
        parser->push(text, parts);
        parser->finish(parts);
        std::size_t count = 0;
        std::string name, arguments;
        const auto check_call = [&] {
          if (count == 0) return;
          const Json read = Json::parse(arguments, nullptr, false);
          const bool fits = name == "get_time" ? read == Json{{"utc", true}}
                                               : read == Json::object() || read == Json{{"a", 1}};
          CHECK(fits);
        };
        for (const Part& part : parts) {
          CHECK((part.kind == Part::Kind::call || part.kind == Part::Kind::arguments));
          if (part.kind == Part::Kind::call) {
            check_call();
            ++count;
            name = part.text;
            arguments.clear();
          } else {
            arguments += part.text;
          }
        }
        check_call();
        CHECK(count >= 1);
        if (one_call) CHECK(count == 1);
        most = std::max(most, count);
      }
    }
    CHECK((most > 1) == (form.format != ToolFormat::llama));
  }
  for (const ToolFormat format : {ToolFormat::none, ToolFormat::xml, ToolFormat::harmony})
    CHECK_THROWS_AS(call_grammar(format, names, false, false, "", tokenizer_with({"<|end|>"})),
                    Error);
}

}  // namespace ac::api
