// Decodes an answer as its tokens come, and ends it at a stop string.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace ac {

class AnswerText {
 public:
  // An answer that goes on with a prompt is decoded as a part of the whole. Special tokens have no
  // text, but for those that are `shown`.
  AnswerText(const text::Tokenizer& tokenizer, const std::vector<std::int64_t>& prompt,
             std::vector<std::string> stop, const std::set<text::TokenId>& shown = {});

  // The text that is certain now.
  std::string push(std::int64_t id);
  std::string finish();
  bool stopped() const { return stop_.found(); }
  const std::string& stopped_by() const { return stop_.which(); }
  const std::string& text() const { return text_; }  // all of it so far

 private:
  std::string decoded(text::TokenId id);
  std::string own(std::string text);
  std::string keep(std::string text);

  const text::Tokenizer& tokenizer_;
  const std::set<text::TokenId> shown_;
  text::Detokenizer detokenizer_;
  text::StopStrings stop_;
  std::size_t of_prompt_ = 0;  // bytes
  std::string text_;
};

}  // namespace ac
