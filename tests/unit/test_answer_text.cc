// The text of an answer, held against one for which the whole prompt is decoded.
#include "answer/answer_text.h"

#include <doctest/doctest.h>

#include <random>

#include "small_tokenizer.h"

namespace ac::test {
namespace {

using Ids = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

// What each token of an answer gives, and then its end.
Texts by_whole_prompt(const text::Tokenizer& tokenizer, const Ids& prompt, const Ids& answer,
                      const Texts& stop, const std::set<text::TokenId>& shown) {
  text::Detokenizer stream(tokenizer, false), ended(tokenizer, false);
  text::StopStrings stops(stop);
  const auto has_text = [&](std::int64_t id) {
    const auto token = static_cast<text::TokenId>(id);
    return tokenizer.has(token) && (!tokenizer.is_special(token) || shown.contains(token));
  };
  for (const std::int64_t id : prompt)
    if (has_text(id))
      stream.push(static_cast<text::TokenId>(id)), ended.push(static_cast<text::TokenId>(id));
  std::size_t skipped = ended.finish().size();
  const auto own = [&](std::string text) {
    const std::size_t bytes = std::min(skipped, text.size());
    skipped -= bytes;
    return text.substr(bytes);
  };
  Texts texts;
  for (const std::int64_t id : answer) {
    texts.emplace_back();
    if (has_text(id)) texts.back() = stops.push(own(stream.push(static_cast<text::TokenId>(id))));
    if (stops.found()) return texts;
  }
  texts.push_back(stops.push(own(stream.finish())));
  if (!stops.found()) texts.back() += stops.finish();
  return texts;
}

Texts by_last_tokens(const text::Tokenizer& tokenizer, const Ids& prompt, const Ids& answer,
                     const Texts& stop, const std::set<text::TokenId>& shown) {
  AnswerText text(tokenizer, prompt, stop, shown);
  Texts texts;
  for (const std::int64_t id : answer) {
    texts.push_back(text.push(id));
    if (text.stopped()) return texts;
  }
  texts.push_back(text.finish());
  return texts;
}

// The last two are special.
const Texts kTokens = {"a",  "b",      "ab",     "aba",    "▁",      "▁a",    "▁▁",
                       " ",  "##a",    "a</w>",  "</w>",   "|",      "<pad>", "日",
                       "Ġ",  "Ġa",     "æ",      "Ĺ",      "¥",      "Ã",     "©",
                       "ð",  "Ł",      "ĺ",      "<0xF0>", "b▁",     "n't",   ".",
                       "'s", "<0x41>", "<0xE6>", "<0x97>", "<0xA5>", "<0x80>"};
const Texts kSpecial = {"<s>", "<t>"};
constexpr text::TokenId kShown = 35;

// What a decoder gives last depends on all tokens before that, or not.
struct DecoderCase {
  const char* decoder;
  bool settles = true;
};
const DecoderCase kDecoders[] = {
    {"null"},
    {R"({"type": "Fuse"})"},
    {R"({"type": "ByteLevel"})"},
    {R"({"type": "ByteFallback"})"},
    {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})"},
    {R"({"type": "WordPiece", "prefix": "##", "cleanup": true})"},
    {R"({"type": "BPEDecoder", "suffix": "</w>"})"},
    {R"({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true})"},
    {R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})"},
    {R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]})"},
    {R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]})",
     false},
    {R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Replace", "pattern": {"String": "aba"}, "content": "-"},
      {"type": "Strip", "content": "b", "start": 1, "stop": 2}]})"},
    {R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"},
      {"type": "Replace", "pattern": {"String": "aa"}, "content": "日a"}]})"},
    {R"({"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "</w>"},
      {"type": "ByteLevel"}, {"type": "Strip", "content": " ", "start": 2, "stop": 1}]})"}};

// Random ids: of all tokens and of an id that has no token, or of 1 to 4 of these that repeat.
Ids random_ids(std::mt19937& random, std::size_t count) {
  const std::size_t all = kTokens.size() + kSpecial.size() + 1;
  const std::size_t kinds = random() % 3 ? 1 + random() % 4 : all;
  std::vector<std::size_t> some(kinds);
  for (std::size_t& each : some) each = random() % all;
  Ids ids;
  while (ids.size() < count) ids.push_back(static_cast<std::int64_t>(some[random() % kinds]));
  return ids;
}

Texts pushed(text::Detokenizer& stream, const Ids& ids) {
  Texts texts;
  for (const std::int64_t id : ids) texts.push_back(stream.push(static_cast<text::TokenId>(id)));
  return texts;
}

}  // namespace

TEST_CASE("the text of an answer is that which follows the whole prompt") {
  std::mt19937 random(1);
  for (const DecoderCase& of : kDecoders) {
    CAPTURE(of.decoder);
    const auto tokenizer = small_tokenizer(kTokens, kSpecial, Json::parse(of.decoder));
    int texts = 0;
    for (int round = 0; round < 600; ++round) {
      CAPTURE(round);
      const auto shown = round % 2 ? std::set{kShown} : std::set<text::TokenId>{};
      Ids prompt = random_ids(random, random() % 40);
      for (const std::size_t count : {random() % (round % 20 ? 24 : 300), random() % 6})
        for (const std::int64_t id : random_ids(random, count)) prompt.push_back(id);
      const Ids answer = random_ids(random, random() % 12);
      const Texts stop = round % 3 ? Texts{} : Texts{"ab", "b a", "日"};
      const Texts wanted = by_whole_prompt(tokenizer, prompt, answer, stop, shown);
      CHECK(by_last_tokens(tokenizer, prompt, answer, stop, shown) == wanted);
      for (const std::string& text : wanted) texts += !text.empty();
    }
    CHECK(texts > 500);
  }
}

TEST_CASE("a stream that begins in the middle of a text gives the same as soon as it is settled") {
  std::mt19937 random(2);
  for (const DecoderCase& of : kDecoders) {
    CAPTURE(of.decoder);
    const auto tokenizer = small_tokenizer(kTokens, kSpecial, Json::parse(of.decoder));
    int settled = 0;
    for (int round = 0; round < 300; ++round) {
      CAPTURE(round);
      Ids before = random_ids(random, random() % 12), after = random_ids(random, random() % 12);
      for (Ids* const ids : {&before, &after})
        std::erase_if(*ids,
                      [&](auto id) { return !tokenizer.has(static_cast<text::TokenId>(id)); });
      text::Detokenizer whole(tokenizer, round % 2);
      pushed(whole, before);
      Texts wanted = pushed(whole, after);
      wanted.push_back(whole.finish());
      for (std::size_t from = 0; from <= before.size(); ++from) {
        CAPTURE(from);
        text::Detokenizer stream(tokenizer, round % 2, true);
        pushed(stream, {before.begin() + static_cast<std::ptrdiff_t>(from), before.end()});
        if (!stream.is_settled()) continue;
        ++settled;
        Texts texts = pushed(stream, after);
        texts.push_back(stream.finish());
        CHECK(texts == wanted);
      }
    }
    CHECK((settled > 300) == of.settles);
  }
}

TEST_CASE("a stream that begins in the middle of a text is settled when nothing before matters") {
  const std::string bytes = R"({"type": "ByteLevel"})", fallback = R"({"type": "ByteFallback"})";
  const std::string strip = R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
    {"type": "Strip", "content": "b", "start": 1, "stop": 2}]})";
  const std::string replace = R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "日aa"}, "content": "-"}]})";
  const std::string words = R"({"type": "BPEDecoder", "suffix": "</w>"})";
  const auto settles = [](const std::string& decoder, const Texts& tokens) {
    const auto tokenizer = small_tokenizer(kTokens, kSpecial, Json::parse(decoder));
    text::Detokenizer stream(tokenizer, false, true);
    for (const std::string& token : tokens) stream.push(tokenizer.id(token).value());
    return stream.is_settled();
  };
  CHECK(!settles(bytes, {"Ł", "ĺ"}));  // ð may come before, and © after
  CHECK(settles(bytes, {"Ł", "ĺ", "©"}));
  CHECK(settles(bytes, {"aba"}));
  CHECK(!settles(fallback, {"<0x97>", "<0xA5>", "<0x80>", "<0x80>"}));
  CHECK(settles(fallback, {"<0x97>", "a", "<0xE6>"}));
  CHECK(!settles(strip, {"b", "b", "b"}));  // none of them may be the first one
  CHECK(settles(strip, {"b", "a"}));
  CHECK(!settles(replace, {"<0x97>", "<0xA5>", "a"}));  // <0xE6> may come before, and a after
  CHECK(!settles(replace, {"b", "a", "日"}));
  CHECK(settles(replace, {"b", "b"}));
  CHECK(!settles(words, {}));
  CHECK(settles(words, {"a"}));
}

}  // namespace ac::test
