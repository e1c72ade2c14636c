// Follows a grammar while an answer comes, and says which tokens may be next.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/grammar.h"

namespace ac::grammar {

// What an answer must be.
struct Rules {
  std::shared_ptr<const Compiled> grammar;  // null: who answers compiles the source
  std::shared_ptr<const Source> source = {};
  // The answer is free, and follows the grammar after each of these tokens; -1: it does from its
  // beginning.
  text::TokenId trigger = -1;
  // What comes up to the token `closes` is free: reasoning.
  enum class Reasoning {
    none,
    may_open,  // the answer may begin with the token `opens`, or follow the grammar at once
    opened,    // by the prompt
  };
  Reasoning reasoning = Reasoning::none;
  text::TokenId opens = -1, closes = -1;
};

class Matcher {
 public:
  explicit Matcher(const Rules& rules);
  ~Matcher();

  // Takes up, and gives, the next tokens, at most so many, where nothing is left to choose.
  std::vector<std::int64_t> forced(std::int64_t most);
  // The answer is whole, and nothing can follow.
  bool ended();
  // A bit for each token of a vocabulary of this size that may be next: bit token % 32 of the word
  // token / 32.
  std::vector<std::uint32_t> allowed(std::int64_t vocabulary);
  // The logits of tokens that must not be next become -infinity.
  void restrict(std::vector<double>& logits);
  void take(std::int64_t token);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ac::grammar
