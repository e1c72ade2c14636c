// A compiled grammar: what Compiler makes and Matcher follows.
#pragma once

#include <xgrammar/xgrammar.h>

#include "text/tokenizer.h"

namespace ac::grammar {

struct Compiled {
  xgrammar::CompiledGrammar grammar;
  const text::Tokenizer& tokenizer;
};

}  // namespace ac::grammar
