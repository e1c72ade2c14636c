// A header as tokens: enough to find operators, calls and statements in code of one format.
#pragma once

#include <string_view>
#include <vector>

namespace ac::mutants {

struct Token {
  enum class Kind { name, number, text, sign } kind = Kind::sign;
  std::string_view text;
  std::size_t at = 0;
  int line = 1;
  bool space_before = false, space_after = false;
  std::size_t end() const { return at + text.size(); }
};

// Without comments, preprocessor lines, and code under #if.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace ac::mutants
