// What a tokenizer searches a text for ({"String": ...} or {"Regex": ...}), and what becomes of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/tokenizer_fields.h"

namespace ac::text {

// A text cut into what matches and what lies between, in order and without a gap.
struct PatternSpan {
  std::size_t begin, end;
  bool match;
};

class Pattern {
 public:
  Pattern(const TokenizerFields& fields, std::string_view name);
  static Pattern regex(const std::string& pattern, const std::string& origin);

  // Calls visit(begin, end) for every match.
  template <class Visit>
  void each(std::string_view text, Visit&& visit) const {
    if (regex_) {
      Regex::Search search(*regex_, text);
      for (Regex::Match match; search.next(match);) visit(match.begin, match.end);
    } else {
      for (std::size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos;
           at += literal_.size())
        visit(at, at + literal_.size());
    }
  }
  void spans(std::string_view text, std::vector<PatternSpan>& spans) const;
  std::string replaced(std::string_view text, std::string_view content) const;
  // The text that it looks for, empty for a regular expression.
  const std::string& literal() const { return literal_; }

 private:
  Pattern() = default;
  std::string literal_;
  std::shared_ptr<const Regex> regex_;
};

}  // namespace ac::text
