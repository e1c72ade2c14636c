// What stands between tokens and an answer: stop strings, reasoning, penalties,
// generation_config.json.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "expect_error.h"
#include "program/penalties.h"
#include "text/generation_config.h"
#include "text/stop_strings.h"
#include "text/think_tags.h"

using namespace ac::text;

namespace ac::test {
namespace {

// The text in pieces of random length, some of them empty.
std::vector<std::string> pieces_of(const std::string& text, std::mt19937& random) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    pieces.push_back(text.substr(at, random() % 4));
    at += pieces.back().size();
  }
  return pieces;
}

std::string random_text(std::mt19937& random, std::size_t length) {
  std::string text;
  while (text.size() < length) text += "ab<"[random() % 3];
  return text;
}

}  // namespace

TEST_CASE("a text ends before the first stop string, however it comes in pieces") {
  std::mt19937 random(1);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(random, random() % 20);
    const std::vector<std::string> stops = {random_text(random, 1 + random() % 5),
                                            random_text(random, 1 + random() % 5)};
    // Of two that end together the longer one.
    std::pair<std::size_t, std::size_t> first{text.npos, text.npos};
    for (const std::string& string : stops)
      if (const std::size_t at = text.find(string); at != text.npos)
        first = std::min(first, {at + string.size(), at});
    const std::size_t end = first.second;
    StopStrings stop(stops);
    std::string shown;
    for (const std::string& piece : pieces_of(text, random)) {
      shown += stop.push(piece);
      // Nothing that is part of a stop string was shown.
      CHECK(text.substr(0, end).starts_with(shown));
      if (stop.found()) break;
    }
    CHECK(stop.found() == (end != std::string::npos));
    if (stop.found()) CHECK(stop.which() == text.substr(end, first.first - end));
    if (!stop.found()) shown += stop.finish();
    CHECK(shown == text.substr(0, end));
    found += stop.found();
  }
  CHECK(found > 500);
}

TEST_CASE("a text without a stop string comes as soon as it can") {
  StopStrings stop({"abc"});
  CHECK(stop.push("xyz") == "xyz");
  CHECK(stop.push("ab") == "");
  CHECK(stop.push("ab") == "ab");
  CHECK(stop.push("d") == "abd");
  CHECK(stop.push("a") == "");
  CHECK(stop.finish() == "a");
  StopStrings none({});
  CHECK(none.push("all") == "all");
}

TEST_CASE("reasoning is told from the answer, however it comes in pieces") {
  const std::string text = "a <think>b<c</think>d</thin<think><think>e</think></think>";
  const std::vector<std::pair<std::string, bool>> wanted = {
      {"a ", false}, {"b<c", true}, {"d</thin", false}, {"<think>e", true}, {"</think>", false}};
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    ThinkTags tags(false);
    std::vector<std::pair<std::string, bool>> got;
    const auto take = [&](const std::vector<ThinkTags::Part>& parts) {
      for (const ThinkTags::Part& part : parts) {
        CHECK(!part.text.empty());
        if (got.empty() || got.back().second != part.thinking) got.push_back({"", part.thinking});
        got.back().first += part.text;
      }
    };
    for (const std::string& piece : pieces_of(text, random)) take(tags.push(piece));
    take(tags.finish());
    CHECK(got == wanted);
  }
  ThinkTags opened(true);
  CHECK(opened.push("b</think>c") ==
        std::vector<ThinkTags::Part>{{.text = "b", .thinking = true}, {.text = "c"}});
  CHECK(opens_thinking("<|assistant|>\n<think>\n"));
  CHECK(!opens_thinking("<think>\n</think>\n\n"));
  CHECK(!opens_thinking(""));
}

TEST_CASE("penalties") {
  std::vector<double> logits = {2, -2, 2, -2, 0, 3};
  const std::vector<std::int64_t> seen = {0, 1, 0, 2, 3, 3, 4};
  penalise(logits, {.repeat = 2, .presence = 0.5}, seen, 3);
  CHECK(logits == std::vector<double>{1, -4, 0.5, -4.5, -0.5, 3});
  logits = {2, -2, 2, -2, 0, 3};
  penalise(logits, {.presence = 0.5, .frequency = 0.25}, seen, 3);
  CHECK(logits == std::vector<double>{2, -2, 1.25, -3, -0.75, 3});
  check(Penalties{});
  CHECK(Penalties{}.none());
  const auto refused = [](const Penalties& penalties) {
    return error_of(Fault::wrong_usage, [&] { check(penalties); });
  };
  CHECK(refused({.repeat = 0}).starts_with("the repeat penalty 0 is not"));
  CHECK(!Penalties{.frequency = 1}.none());
  CHECK(refused({.frequency = 101}).starts_with("the frequency penalty 101 is not"));
  CHECK(refused({.presence = std::nan("")}).starts_with("the presence penalty nan is not"));
}

TEST_CASE("generation_config.json") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "generation_config.json";
  CHECK(!read_generation_config(folder.path()).draws);
  write_file(file, R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": null,
                       "repetition_penalty": 1, "num_beams": 1, "typical_p": 1.0,
                       "suppress_tokens": [], "forced_eos_token_id": 3, "some_other": {}})");
  const GenerationConfig config = read_generation_config(folder.path());
  CHECK(config.draws);
  CHECK(config.temperature == 0.6);
  CHECK(config.top_k == 20);
  CHECK(!config.top_p);
  CHECK(config.repetition_penalty == 1.0);
  CHECK(!config.max_new_tokens);
  CHECK(config.unknown == std::vector<std::string>{"forced_eos_token_id"});
  for (const char* text : {"[]", "{", R"({"do_sample": 1})", R"({"temperature": "1"})",
                           R"({"top_k": 1.5})", R"({"max_new_tokens": [3]})"}) {
    write_file(file, text);
    CHECK_BAD_INPUT(read_generation_config(folder.path()), "generation_config.json");
  }
}

}  // namespace ac::test
