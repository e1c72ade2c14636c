// Which texts a model may write that has to follow a JSON schema: reads lines of JSON, {"schema":
// ..., "texts": [...]}, and answers each with {"allowed": [...]}, a boolean for each text, or
// {"refused": ...}.
//   grammar_tool FOLDER    with a tokenizer.json
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"

namespace {

using namespace ac;
using namespace ac::grammar;

// Whether each of its tokens may follow those before it, and the end the last one.
bool allows(const std::shared_ptr<const Compiled>& grammar, const text::Tokenizer& tokenizer,
            std::int64_t vocabulary, const std::string& text) {
  Matcher matcher({.grammar = grammar});
  const auto may_be_next = [&](text::TokenId id) {
    std::vector<double> logits(static_cast<std::size_t>(vocabulary), 0.0);
    matcher.restrict(logits);
    return std::isfinite(logits[static_cast<std::size_t>(id)]);
  };
  for (const text::TokenId id : tokenizer.encode(text)) {
    if (!may_be_next(id)) return false;
    matcher.take(id);
  }
  return may_be_next(tokenizer.end_of_text().front());
}

}  // namespace

int main(int, char** arguments) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(arguments[1]);
  const std::int64_t vocabulary = static_cast<std::int64_t>(tokenizer.size());
  Compiler compiler(tokenizer, vocabulary);
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      const Json request = parse_json(line, "request");
      const Form form{Form::Kind::schema, normal_schema(request["schema"], "schema"), "schema"};
      const auto grammar = compiler.compile({.whole = form});
      answer["allowed"] = Json::array();
      for (const Json& text : request["texts"])
        answer["allowed"].push_back(
            allows(grammar, tokenizer, vocabulary, text.get<std::string>()));
    } catch (const Error& error) {
      answer = {{"refused", error.what()}};
    }
    fmt::print("{}\n", answer.dump());
  }
}
