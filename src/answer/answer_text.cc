#include "answer/answer_text.h"

#include <algorithm>

namespace ac {

AnswerText::AnswerText(const text::Tokenizer& tokenizer, const std::vector<std::int64_t>& prompt,
                       std::vector<std::string> stop, const std::set<text::TokenId>& shown)
    : tokenizer_(tokenizer), shown_(shown), detokenizer_(tokenizer, false), stop_(std::move(stop)) {
  if (prompt.empty()) return;
  std::size_t given = 0;
  std::vector<text::TokenId> known;
  for (const std::int64_t id : prompt)
    if (tokenizer.has(static_cast<text::TokenId>(id))) {
      known.push_back(static_cast<text::TokenId>(id));
      given += decoded(known.back()).size();
    }
  of_prompt_ = tokenizer.decode(known, true).size() - given;
}

std::string AnswerText::push(std::int64_t id) {
  // Some models have more rows than tokens.
  if (!tokenizer_.has(static_cast<text::TokenId>(id))) return {};
  return keep(stop_.push(own(decoded(static_cast<text::TokenId>(id)))));
}

std::string AnswerText::finish() {
  if (stop_.found()) return {};
  std::string last = stop_.push(own(detokenizer_.finish()));
  if (!stop_.found()) last += stop_.finish();
  return keep(std::move(last));
}

std::string AnswerText::decoded(text::TokenId id) {
  if (tokenizer_.is_special(id) && !shown_.contains(id)) return {};
  return detokenizer_.push(id);
}

// Without what was held back of the prompt.
std::string AnswerText::own(std::string text) {
  const std::size_t skipped = std::min(of_prompt_, text.size());
  of_prompt_ -= skipped;
  return text.substr(skipped);
}

std::string AnswerText::keep(std::string text) {
  text_ += text;
  return text;
}

}  // namespace ac
