// Decodes an answer as its tokens come, and ends it at a stop string.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace ac {

class AnswerText {
 public:
  // An answer that goes on with a prompt is decoded as a part of the whole: of the prompt, as many
  // of the last tokens are decoded as matter to that. Special tokens have no text, but for those
  // that are `shown`.
  AnswerText(const text::Tokenizer& tokenizer, std::span<const std::int64_t> prompt,
             std::vector<std::string> stop, const std::set<text::TokenId>& shown = {});

  // The text that is certain now.
  std::string push(std::int64_t id);
  std::string finish();
  bool stopped() const { return stop_.found(); }
  const std::string& stopped_by() const { return stop_.which(); }
  const std::string& text() const { return text_; }  // all of it so far

 private:
  bool begin_after(std::span<const std::int64_t> last, bool whole);
  bool has_text(std::int64_t id) const;
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
