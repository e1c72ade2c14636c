// A text as token ids, cut into pieces that a model runs by themselves.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ac {

struct TextIds {
  using Ids = std::vector<std::int64_t>;

  TextIds(const text::Tokenizer& tokenizer, std::string_view text);
  bool operator==(const TextIds&) const = default;
  // Of the first `most` tokens. Each piece has `begin` and what is left of `window` tokens.
  std::vector<Ids> pieces(std::int64_t window, std::int64_t most) const;

  Ids begin;  // what the tokenizer puts before a text
  Ids ids;
};

}  // namespace ac
