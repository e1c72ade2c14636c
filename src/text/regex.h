// Regular expressions as tokenizer.json writes them: Oniguruma's syntax (as Ruby has it), run by
// PCRE2. What the two read differently is translated: \s, \d, \w and \h, ^ and $, (?m), properties
// of characters newer than PCRE2's, quantifiers like {1,3}+, sets with && and sets in sets.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ac::text {

class Regex {
 public:
  // `origin` names the pattern in errors: "FILE: pre_tokenizer.pattern".
  Regex(const std::string& pattern, std::string origin);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  struct Match {
    std::size_t begin, end;
  };

  // All matches in a text, from left to right, none within another. One is used by one thread.
  class Search {
   public:
    // Both must outlive it. The text must be valid UTF-8.
    Search(const Regex& regex, std::string_view text);
    bool next(Match& match);

   private:
    const Regex& regex_;
    std::string_view text_;
    std::size_t at_ = 0;
    std::size_t last_end_ = std::string_view::npos;
  };

 private:
  struct Code;
  bool find(std::string_view text, std::size_t from, Match& match) const;

  std::unique_ptr<Code> code_;
  std::string origin_;
};

// The same pattern as PCRE2 reads it; refuses what it cannot say.
std::string pcre2_pattern(std::string_view pattern, const std::string& origin);

}  // namespace ac::text
