#include "cli/text_ids.h"

#include <algorithm>

namespace ac {

TextIds::TextIds(const text::Tokenizer& tokenizer, std::string_view text) {
  const auto plain = tokenizer.encode(text);
  const auto whole = tokenizer.encode(text, {.add_special = true});
  ids.assign(plain.begin(), plain.end());
  const auto at = std::ranges::search(whole, plain).begin();
  if (at != whole.end()) begin.assign(whole.begin(), at);
}

std::vector<TextIds::Ids> TextIds::pieces(std::int64_t window, std::int64_t most) const {
  std::vector<Ids> all;
  const std::int64_t size = std::min(std::ssize(ids), most), each = window - std::ssize(begin);
  for (std::int64_t at = 0; each > 0 && at < size; at += each) {
    Ids& piece = all.emplace_back(begin);
    piece.insert(piece.end(), ids.begin() + at, ids.begin() + std::min(at + each, size));
  }
  return all;
}

}  // namespace ac
