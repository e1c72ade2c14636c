// How tokens' texts become a text again: the decoders of tokenizer.json. They work as a stream:
// what is certain comes at once, what later tokens may change is held back.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_fields.h"

namespace ac::text {

// One step at work: takes tokens and gives tokens.
class DecodeStep {
 public:
  using Give = std::function<void(std::string_view)>;
  virtual ~DecodeStep() = default;
  virtual void push(std::string_view token, const Give& give) = 0;
  virtual void finish(const Give&) {}
  // Whether it would be the same now if it had taken any other tokens before those that it took.
  virtual bool is_settled() const = 0;
};

// Makes a step for one text. `parts`: what it takes are not tokens but the parts of a single one.
using MakeDecodeStep = std::function<std::unique_ptr<DecodeStep>(bool parts)>;
// What a token adds to a text in whose middle it stands. False: that depends on its neighbours.
using TokenBytes = std::function<bool(std::string& token, bool parts)>;
struct Decoder {
  MakeDecodeStep make;
  bool fuses = false;     // what it gives are parts of a single token
  TokenBytes bytes = {};  // empty: it always depends on neighbours
};
using Decoders = std::vector<Decoder>;

// In order; a Sequence is what is in it.
void read_decoders(const TokenizerFields& fields, Decoders& decoders);
// Without a decoder, there is a space between tokens.
Decoder spaces_between();

// The steps of one text, one after another. `in_middle`: tokens stand before the first one that it
// is given. Then a step takes nothing before the one ahead of it is settled, and once all of them
// are, the chain is what it would be if it had been given the whole text.
class DecodeChain {
 public:
  explicit DecodeChain(const Decoders& decoders, bool in_middle = false);
  bool is_settled() const;
  void push(std::string_view token, std::string& out) { push(0, token, out); }
  void finish(std::string& out);

 private:
  void push(std::size_t step, std::string_view token, std::string& out);

  std::vector<std::unique_ptr<DecodeStep>> steps_;
  bool in_middle_;
};

}  // namespace ac::text
