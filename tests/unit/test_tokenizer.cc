#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "expect_error.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

using namespace ac;
using text::Detokenizer;
using text::TokenId;
using text::Tokenizer;

namespace {

// A small byte-level tokenizer: é is two tokens, 日 three.
Json small() {
  return Json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 9, "content": "<|x|>", "special": true, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|x|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<|x|>": {"id": "<|x|>", "ids": [9], "tokens": ["<|x|>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "merges": ["a b"],
      "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ã": 4, "©": 5, "æ": 6, "Ĺ": 7, "¥": 8}}})");
}

Tokenizer made(const Json& json) { return Tokenizer::parse(json.dump(), "t.json"); }

// The small one with the value at a place replaced.
Json with(const std::string& pointer, Json value) {
  Json json = small();
  json[Json::json_pointer(pointer)] = std::move(value);
  return json;
}

}  // namespace

TEST_CASE("tokenizer: the tokens around a text come where asked for only") {
  const Tokenizer tokenizer = made(small());
  CHECK(tokenizer.encode("ab a") == std::vector<TokenId>{2, 3, 0});
  CHECK(tokenizer.encode("ab", {.add_special = true}) == std::vector<TokenId>{9, 2});
}

TEST_CASE("tokenizer: a special token in the text") {
  const Tokenizer tokenizer = made(small());
  CHECK(tokenizer.encode("a<|x|>b", {.parse_special = true}) == std::vector<TokenId>{0, 9, 1});
  CHECK(tokenizer.encode("a<|x|>b") == std::vector<TokenId>{0, 1});  // no bytes for the others
  const std::vector<TokenId> ids{0, 9, 1};
  CHECK(tokenizer.decode(ids, true) == "ab");
  CHECK(tokenizer.decode(ids, false) == "a<|x|>b");
  CHECK(tokenizer.is_special(9));
  CHECK(!tokenizer.is_special(0));
  CHECK(tokenizer.size() == 10);
}

TEST_CASE("tokenizer: a stream gives whole characters, at once where they are certain") {
  const Tokenizer tokenizer = made(small());
  Detokenizer stream(tokenizer, true);
  CHECK(stream.push(0) == "a");
  CHECK(stream.push(6).empty());
  CHECK(stream.push(7).empty());
  CHECK(stream.push(8) == "\u65e5" + std::string());
  CHECK(stream.push(4).empty());
  CHECK(stream.push(1) ==
        "\uFFFD"
        "b");
  CHECK(stream.push(6).empty());
  CHECK(stream.finish() == "\uFFFD");
}

TEST_CASE("tokenizer: a stream of parts is what all together is") {
  Json json = small();
  json["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [
    {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "aba"}, "content": "-"},
    {"type": "Strip", "content": "b", "start": 1, "stop": 2}]})");
  const Tokenizer tokenizer = made(json);
  const std::vector<TokenId> ids{1, 1, 0, 1, 0, 1, 1, 1};  // bbababbb: b-bbb, without b-, -bb
  CHECK(tokenizer.decode(ids, true) == "b-b");
}

TEST_CASE("tokenizer: contradictory files are refused by file and field") {
  CHECK_BAD_INPUT(made(with("/model/vocab/c", 2)), "t.json: model.vocab", "\"ab\"", "same id, 2");
  CHECK_BAD_INPUT(made(with("/model/vocab/c", -1)), "t.json: model.vocab", "\"c\"");
  CHECK_BAD_INPUT(made(with("/model/vocab/c", 1u << 31)), "t.json: model.vocab", "\"c\"");
  CHECK_BAD_INPUT(made(with("/model/vocab/c", "x")), "t.json: model.vocab");
  CHECK_BAD_INPUT(made(with("/model/merges/1", "a q")), "t.json: model.merges[1]", "\"q\"");
  CHECK_BAD_INPUT(made(with("/model/merges/1", "b a")), "t.json: model.merges[1]", "\"ba\"");
  CHECK_BAD_INPUT(made(with("/model/merges/1", "a")), "t.json: model.merges[1]");
  CHECK_BAD_INPUT(made(with("/model/merges/1", Json::array({"a"}))), "t.json: model.merges[1]");
  CHECK_BAD_INPUT(made(with("/model/type", "Other")), "t.json: model", "\"Other\"");
  CHECK_BAD_INPUT(made(with("/model/dropout", 0.1)), "t.json: model.dropout");
  CHECK_BAD_INPUT(made(with("/added_tokens/0/id", 12)), "t.json: added_tokens[0].id", "which is 9");
  CHECK_BAD_INPUT(made(with("/added_tokens/0/id", -12)), "t.json: added_tokens[0].id");
  CHECK_BAD_INPUT(made(with("/pre_tokenizer/type", "Other")), "t.json: pre_tokenizer", "\"Other\"");
  CHECK_BAD_INPUT(made(with("/decoder/type", "Other")), "t.json: decoder", "\"Other\"");
  CHECK_BAD_INPUT(made(with("/normalizer", Json{{"type", "Other"}})), "t.json: normalizer");
  CHECK_BAD_INPUT(made(with("/post_processor/special_tokens/<|x|>/ids/0", 77)), "post_processor",
                  "77 is no token's id");
  CHECK_BAD_INPUT(made(with("/post_processor/single/0/SpecialToken/id", "y")), "single[0]",
                  "\"y\"");
  CHECK_BAD_INPUT(made(with("/version", "2.0")), "t.json: version");
  CHECK_BAD_INPUT(made(with("/model", nullptr)), "t.json: model");
}

TEST_CASE("tokenizer: an unknown token that the vocabulary lacks") {
  Json json = small();
  json.erase("pre_tokenizer");
  json["model"]["unk_token"] = "<unk>";
  const Tokenizer tokenizer = made(json);
  CHECK(tokenizer.encode("ab") == std::vector<TokenId>{2});
  CHECK_BAD_INPUT(tokenizer.encode("q"), "t.json: model.unk_token", "\"<unk>\"");
}

TEST_CASE("tokenizer: files that are cut short, or no JSON, or deep") {
  const std::string text = small().dump();
  for (std::size_t bytes = 0; bytes < text.size(); bytes += 7)
    CHECK_BAD_INPUT(Tokenizer::parse(text.substr(0, bytes), "t.json"), "t.json: not valid JSON");
  CHECK_BAD_INPUT(Tokenizer::parse(std::string(100'000, '['), "t.json"), "t.json");
  CHECK_BAD_INPUT(Tokenizer::parse(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})", "t.json"),
                  "t.json: model.vocab", "twice");
  CHECK_BAD_INPUT(Tokenizer::parse(R"({"model":{}, "model":{}})", "t.json"), "duplicate key");
}

TEST_CASE("tokenizer: a broken table of SentencePiece") {
  for (const char* table : {"", "AA==", "BAAAAA==", "/////w==", "CAAAAP8BAAD/AQAAAA==", "!"}) {
    const Json json =
        with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", table}});
    CHECK_BAD_INPUT(made(json).encode("ab \u00e9\ufb01"),
                    "t.json: normalizer.precompiled_charsmap");
  }
}

TEST_CASE("tokenizer: ids that no token has") {
  const Tokenizer tokenizer = made(small());
  for (const TokenId id : {-1, 10, 1 << 30})
    CHECK_BAD_INPUT(tokenizer.decode(std::vector<TokenId>{id}, true), "t.json", std::to_string(id));
}

TEST_CASE("tokenizer: bytes that are not UTF-8 become U+FFFD, a cut character one") {
  CHECK(text::repaired_utf8("a\xff\xfe z") == "a\uFFFD\uFFFD z");
  CHECK(text::repaired_utf8("\xe6\x97") == "\uFFFD");
  CHECK(text::repaired_utf8("\xf0\x9f\x98z") == "\uFFFDz");
  CHECK(text::repaired_utf8("\xed\xa0\x80") == "\uFFFD\uFFFD\uFFFD");
  CHECK(text::repaired_utf8("\xc0\xaf") == "\uFFFD\uFFFD");
  CHECK(text::repaired_utf8("\u65e5\U0001F600") == "\u65e5\U0001F600");
}

TEST_CASE("tokenizer: regular expressions that cannot be, or have no end") {
  for (const char* pattern :
       {"(", "[a", "\\p{Nope}", "\\q", "(?~a)", "a{2}?", "\\x{110000}", "[[:alpha:]]"})
    CHECK_BAD_INPUT(text::Regex(pattern, "t.json: p"), "t.json: p: the regular expression");
  const text::Regex slow("(a+)+(a+)+$b", "t.json: p");
  const std::string text(60, 'a');
  text::Regex::Search search(slow, text);
  text::Regex::Match match{};
  try {
    CHECK(!search.next(match));
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("cannot be matched") != std::string::npos);
  }
}
