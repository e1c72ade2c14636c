// How a text is cut before the model sees it: the pre-tokenizers of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer_fields.h"
#include "text/tokenizer_pattern.h"

namespace ac::text {

struct PreToken {
  std::size_t begin, end;
  bool at_start;  // it begins where the whole input does
};

// A text cut into pre-tokens, in order and none empty.
struct Pieces {
  std::string text;
  std::vector<PreToken> list;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// In order; a Sequence is what is in it, and a ByteLevel is up to three steps.
struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  // The last step puts a character of the byte-level alphabet for each byte: a model may do that
  // itself.
  bool ends_in_bytes = false;
};
void read_pre_tokenizers(const TokenizerFields& fields, PreTokenizers& steps);

}  // namespace ac::text
