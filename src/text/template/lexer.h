// From a template's text to tokens, with Jinja's rules for white space: trim_blocks and
// lstrip_blocks are on, and one newline at the end is dropped, as transformers has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/syntax.h"

namespace ac::jinja {

struct Token {
  enum class Kind {
    text,  // between tags
    block_begin,
    block_end,
    variable_begin,
    variable_end,
    name,
    string,
    integer,
    real,
    sign,  // an operator or bracket
    end,
  };
  Kind kind;
  Position at;
  std::string text;  // a string's content, a sign, a name
  Value number;
};

// Throws a SyntaxError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace ac::jinja
