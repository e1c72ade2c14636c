// What a text becomes before it is cut: the normalizers of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer_fields.h"

namespace ac::text {

struct NormalizedText {
  std::string text;
  // Its first character stands for the first one of the whole input.
  bool at_start = false;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;
};

// In order; a Sequence is what is in it.
using Normalizers = std::vector<std::unique_ptr<const Normalizer>>;
void read_normalizers(const TokenizerFields& fields, Normalizers& normalizers);
std::unique_ptr<const Normalizer> read_precompiled(const TokenizerFields& fields);

}  // namespace ac::text
