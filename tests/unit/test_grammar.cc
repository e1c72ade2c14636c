// Grammars: which tokens may follow, against what the texts of a finite language allow.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"
#include "tests/unit/small_tokenizer.h"

namespace ac::grammar {
namespace {

const char* const kEnd = "<|end|>";
text::Tokenizer tokenizer_of(const std::string& decoder, const std::vector<std::string>& tokens) {
  return test::small_tokenizer(tokens, {kEnd, "<|call|>"}, Json::parse(decoder));
}

const std::vector<std::string> kTokens{"a",  "b",  "c",   "d",     "e",  "ab", "abc", "bc",
                                       "cd", "de", "cde", "abcde", "\"", "{",  "}",   ":",
                                       ",",  "1",  "2",   "é",     "x",  "ea"};
const text::Tokenizer& letters() {
  static const text::Tokenizer tokenizer = tokenizer_of(R"({"type": "Fuse"})", kTokens);
  return tokenizer;
}
std::int64_t id_of(const std::string& token) { return *letters().id(token); }

Compiler& compiler() {
  static Compiler compiler(letters(), 64);
  return compiler;
}
std::shared_ptr<const Compiled> lark(const std::string& text) {
  return compiler().compile({{Form::Kind::lark, text, "here"}});
}

std::set<std::int64_t> allowed(Matcher& matcher) {
  std::vector<double> logits(64, 0.0);
  matcher.restrict(logits);
  std::set<std::int64_t> ids;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isinf(logits[i])) ids.insert(static_cast<std::int64_t>(i));
  // The same as bits, for a vocabulary that ends before or behind the grammar's, or within a word.
  for (const std::int64_t vocabulary : {1, 20, 32, 63, 64, 100, 128, 129}) {
    const std::vector<std::uint32_t> words = matcher.allowed(vocabulary);
    CHECK(std::ssize(words) == (vocabulary + 31) / 32);
    for (std::int64_t i = 0; i < std::ssize(words) * 32; ++i)
      CHECK((words[static_cast<std::size_t>(i / 32)] >> i % 32 & 1) ==
            (i < vocabulary && ids.contains(i)));
  }
  return ids;
}

std::string why_not(const Source& source) {
  try {
    compiler().compile(source);
  } catch (const Refused& refused) {
    CHECK(refused.where() == "here");
    CHECK(std::string(refused.what()).find('\n') == std::string::npos);
    return refused.what();
  }
  return "";
}
std::string why_not(Form::Kind kind, const std::string& text) {
  return why_not({{kind, text, "here"}});
}

}  // namespace

TEST_CASE("grammar: the tokens that may follow are those that texts of the language go on with") {
  const std::vector<std::string> language{"abc", "abcde", "bcé", "e", "ea", "abd", "cdcdcd", "x"};
  std::string choices;
  for (const std::string& text : language)
    choices += (choices.empty() ? "" : " | ") + Json(text).dump();
  const auto grammar = lark("start: " + choices + "\n");
  std::mt19937 random(1);
  std::set<std::string> met;
  for (int round = 0; round < 200; ++round) {
    Matcher matcher({.grammar = grammar});
    std::string text;
    for (;;) {
      std::set<std::int64_t> truth;
      const auto goes_on = [&](const std::string& with) {
        return std::ranges::any_of(language,
                                   [&](const auto& each) { return each.starts_with(with); });
      };
      for (const std::string& token : kTokens)
        if (goes_on(text + token)) truth.insert(id_of(token));
      const bool whole = std::ranges::find(language, text) != language.end();
      CHECK(matcher.ended() == (whole && truth.empty()));
      if (whole) truth.insert(*letters().id(kEnd));
      CHECK(allowed(matcher) == truth);
      if (matcher.ended()) break;
      auto next = truth.begin();
      std::advance(next, static_cast<std::ptrdiff_t>(random() % truth.size()));
      if (*next == *letters().id(kEnd)) break;
      matcher.take(*next);
      text += letters().token(static_cast<text::TokenId>(*next));
    }
    met.insert(text);
  }
  CHECK(met == std::set<std::string>(language.begin(), language.end()));
}

TEST_CASE("grammar: what is forced") {
  const auto texts = [](const std::vector<std::int64_t>& ids) {
    std::vector<std::string> all;
    for (const std::int64_t id : ids)
      all.emplace_back(letters().token(static_cast<text::TokenId>(id)));
    return all;
  };
  using Texts = std::vector<std::string>;
  {
    // Without merges, the tokenizer knows a text by its letters.
    Matcher matcher({.grammar = lark("start: \"abcde\" (\"x\" | \"a\") \"bc\"\n")});
    CHECK(texts(matcher.forced(3)) == Texts{"abcde"});  // where its letters do not fit in
    CHECK(allowed(matcher) == std::set{id_of("x"), id_of("a"), id_of("ab"), id_of("abc")});
    matcher.take(id_of("x"));
    CHECK(texts(matcher.forced(9)) == Texts{"b", "c"});
    CHECK(matcher.ended());
    CHECK(matcher.forced(9).empty());
  }
  {
    // Never more than asked for, though there is no end.
    Matcher matcher(
        {.grammar = compiler().compile({{Form::Kind::ebnf, "root ::= \"d\" root", ""}})});
    CHECK(texts(matcher.forced(4)) == Texts{"d", "d", "d", "d"});
    CHECK(!matcher.ended());
  }
  {
    // A token, which no text stands for.
    const auto call = *letters().id("<|call|>");
    Matcher matcher({.grammar = lark("start: <[" + std::to_string(call) + "]> \"1\" /[b-z]/\n")});
    CHECK(texts(matcher.forced(9)) == Texts{"<|call|>", "1"});
    CHECK(!allowed(matcher).contains(call));
  }
}

TEST_CASE("grammar: reasoning and text are free") {
  const auto grammar = lark("start: \"ab\"\n");
  const auto opens = static_cast<text::TokenId>(id_of("{"));
  const auto closes = static_cast<text::TokenId>(id_of("}"));
  const std::int64_t end = *letters().id(kEnd);
  Rules rules{.grammar = grammar,
              .reasoning = Rules::Reasoning::may_open,
              .opens = opens,
              .closes = closes};
  Matcher at_once(rules);
  CHECK(allowed(at_once) == std::set<std::int64_t>{id_of("a"), id_of("ab"), opens});
  CHECK(at_once.forced(9).empty());
  at_once.take(id_of("a"));
  CHECK(allowed(at_once) == std::set{id_of("b")});

  rules.reasoning = Rules::Reasoning::opened;
  Matcher reasons(rules);
  CHECK(allowed(reasons).size() == 63);
  CHECK(!allowed(reasons).contains(end));
  for (const char* token : {"c", "{", "x", "}"}) reasons.take(id_of(token));
  CHECK(reasons.forced(9) == std::vector<std::int64_t>{id_of("a"), id_of("b")});
  CHECK(reasons.ended());

  rules.reasoning = Rules::Reasoning::may_open;
  rules.trigger = static_cast<text::TokenId>(id_of(":"));
  Matcher triggered(rules);
  for (int round = 0; round < 2; ++round) {
    CHECK(allowed(triggered).size() == 64);
    for (const char* token : {"c", "{", ":", "}", "e", ":"}) triggered.take(id_of(token));
    CHECK(triggered.forced(9) == std::vector<std::int64_t>{id_of("ab")});
    CHECK(!triggered.ended());
  }
}

TEST_CASE("grammar: parts go together") {
  Source source{
      {Form::Kind::lark, "start: \"x\" @p0 \"x\" @p1 \"x\"\n", "here"},
      {{Form::Kind::schema, R"({"const": 12})", "here"}, {Form::Kind::regex, "[ab]", "here"}}};
  Matcher matcher({.grammar = compiler().compile(source)});
  const auto x = id_of("x"), one = id_of("1"), two = id_of("2");
  CHECK(matcher.forced(9) == std::vector<std::int64_t>{x, one, two, x});
  CHECK(allowed(matcher) == std::set{id_of("a"), id_of("b")});
  CHECK(compiler().compile(source) == compiler().compile(source));
  source.parts[1].text = "[";
  CHECK(!why_not(source).empty());
}

TEST_CASE("grammar: what is wrong or takes too long is refused") {
  for (const char* text : {"(", "[b-a]", "a{2,1}", "(?=a)b", "a\\b"})
    CHECK_MESSAGE(!why_not(Form::Kind::regex, text).empty(), text);
  for (const char* text : {"", "root ::= other", "root ::= (", "start ::= \"a\"", "root ::= root"})
    CHECK_MESSAGE(!why_not(Form::Kind::ebnf, text).empty(), text);
  CHECK(why_not(Form::Kind::regex, std::string(300'000, 'a')).find("more than 262144") !=
        std::string::npos);
  // Any of them may be left out: the larger, the longer by its square.
  Json wide{{"type", "object"}, {"properties", Json::object()}};
  for (int p = 0; p < 3000; ++p) wide["properties"]["p" + std::to_string(p)] = true;
  CHECK(why_not(Form::Kind::schema, wide.dump()).find("too much time or memory") !=
        std::string::npos);
  // What no token of the model spells.
  CHECK(!why_not(Form::Kind::regex, "Z").empty());
}

TEST_CASE("grammar: schemas are in the library's form") {
  const auto normal = [](const char* schema) {
    return Json::parse(normal_schema(Json::parse(schema), "here"));
  };
  CHECK(normal(R"({"type": "object"})")["additionalProperties"] == true);
  CHECK(normal(R"({"type": "array"})")["items"] == true);
  CHECK(normal(R"({"maxLength": 3})")["type"] == "string");
  CHECK(normal(R"({"maxLength": 3, "minimum": 1})")["type"] == Json{"string", "number"});
  CHECK(normal(R"({"required": ["a"]})")["properties"] == Json{{"a", true}});
  CHECK(normal(R"({"enum": ["a"], "type": "string"})") == Json{{"enum", {"a"}}});
  const auto why = [&](const char* schema) -> std::string {
    try {
      normal(schema);
    } catch (const Refused& refused) {
      CHECK(refused.where() == "here");
      return refused.what();
    }
    return "";
  };
  CHECK(why(R"({"items": {"not": {}}})") == "at /items: not is not supported");
  // What is behind a reference, even a recursive one.
  CHECK(
      why(R"({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "if": 1}}})") ==
      "at /$defs/a: if is not supported");
  CHECK(why(R"({"$ref": "#/a~1b", "a/b": {}})").find("escapes") != std::string::npos);
}

TEST_CASE("grammar: a tokenizer tells the bytes of its tokens") {
  const std::vector<std::string> pieces{"▁a", "▁", "b", "<0xC3>", "<0xA9>", "▁b▁", "é"};
  const char* const decoders[] = {
      R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"},
          "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})"};
  std::mt19937 random(1);
  for (const char* const decoder : decoders) {
    const text::Tokenizer tokenizer = tokenizer_of(decoder, pieces);
    const bool fallback = std::string(decoder).find("ByteFallback") != std::string::npos;
    for (int round = 0; round < 500; ++round) {
      std::vector<text::TokenId> ids{*tokenizer.id("b")};  // so that none is at the beginning
      std::string bytes = "b";
      for (int i = 0; i < 6; ++i) {
        const std::string& piece = pieces[random() % pieces.size()];
        const bool half = piece.starts_with("<0x");
        if (half && !fallback) continue;
        for (const std::string& each :
             half ? std::vector<std::string>{"<0xC3>", "<0xA9>"} : std::vector{piece}) {
          ids.push_back(*tokenizer.id(each));
          bytes += *tokenizer.bytes(ids.back());
        }
      }
      CHECK(tokenizer.decode(ids, false) == bytes);
    }
  }
  const text::Tokenizer words =
      tokenizer_of(R"({"type": "WordPiece", "prefix": "##", "cleanup": false})", pieces);
  CHECK(!words.bytes(0));
  CHECK_THROWS_AS(Compiler(words, 16).compile({{Form::Kind::regex, "a", "here"}}), Refused);
}

}  // namespace ac::grammar
