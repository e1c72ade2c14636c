#include "answer/answer_text.h"

#include <algorithm>

namespace ac {

AnswerText::AnswerText(const text::Tokenizer& tokenizer, std::span<const std::int64_t> prompt,
                       std::vector<std::string> stop, const std::set<text::TokenId>& shown)
    : tokenizer_(tokenizer), shown_(shown), detokenizer_(tokenizer, false), stop_(std::move(stop)) {
  std::size_t count = 16;
  while (!begin_after(prompt.last(std::min(count, prompt.size())), count >= prompt.size()))
    count *= 8;
}

// After the last tokens of the prompt, or the whole of it. False: what stands before them matters.
bool AnswerText::begin_after(std::span<const std::int64_t> last, bool whole) {
  detokenizer_ = text::Detokenizer(tokenizer_, false, !whole);
  text::Detokenizer ended(tokenizer_, false, !whole);
  for (const std::int64_t id : last)
    if (has_text(id))
      for (text::Detokenizer* const each : {&detokenizer_, &ended})
        each->push(static_cast<text::TokenId>(id));
  of_prompt_ = ended.finish().size();
  return detokenizer_.is_settled();
}

std::string AnswerText::push(std::int64_t id) {
  if (!has_text(id)) return {};
  return keep(stop_.push(own(detokenizer_.push(static_cast<text::TokenId>(id)))));
}

std::string AnswerText::finish() {
  if (stop_.found()) return {};
  std::string last = stop_.push(own(detokenizer_.finish()));
  if (!stop_.found()) last += stop_.finish();
  return keep(std::move(last));
}

// Some models have more rows than tokens.
bool AnswerText::has_text(std::int64_t id) const {
  const auto token = static_cast<text::TokenId>(id);
  return tokenizer_.has(token) && (!tokenizer_.is_special(token) || shown_.contains(token));
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
