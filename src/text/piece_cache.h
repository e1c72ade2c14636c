// The tokens of short pieces of text that a model has encoded before.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ac::text {

class PieceCache {
 public:
  static constexpr std::size_t kLongest = 64;  // bytes of a piece that is kept

  // Appends the tokens of `piece`: those that are known, or what encode(piece, out) appends.
  template <class Encode>
  void tokens(std::string_view piece, std::vector<TokenId>& out, Encode&& encode) {
    if (piece.size() > kLongest) return encode(piece, out);
    const std::size_t hash = std::hash<std::string_view>()(piece);
    std::size_t at = hash % kSlots;
    for (; slots_[at].tokens != kFree; at = (at + 1) % kSlots) {
      const Slot& slot = slots_[at];
      if (slot.hash != static_cast<std::uint32_t>(hash) || slot.bytes != piece.size() ||
          std::memcmp(texts_.data() + slot.text, piece.data(), piece.size()) != 0)
        continue;
      const TokenId* const known = tokens_.data() + slot.tokens;
      out.insert(out.end(), known, known + slot.count);
      return;
    }
    const std::size_t before = out.size();
    encode(piece, out);
    if (count_ == kSlots / 2) {  // full: what is common will be back soon
      *this = PieceCache();
      at = hash % kSlots;
    }
    slots_[at] = {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(texts_.size()),
                  static_cast<std::uint32_t>(tokens_.size()),
                  static_cast<std::uint16_t>(piece.size()),
                  static_cast<std::uint16_t>(out.size() - before)};
    texts_ += piece;
    tokens_.insert(tokens_.end(), out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
    ++count_;
  }

 private:
  static constexpr std::size_t kSlots = 1 << 17;
  static constexpr std::uint32_t kFree = ~0u;
  struct Slot {
    std::uint32_t hash = 0, text = 0, tokens = kFree;
    std::uint16_t bytes = 0, count = 0;
  };
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::string texts_;
  std::vector<TokenId> tokens_;
  std::size_t count_ = 0;
};

}  // namespace ac::text
