// Tokens' texts and ids, both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ac::text {

using TokenId = std::int32_t;
inline constexpr TokenId kMostTokens = 1 << 24;  // ids are below; a table of all of them is small

class Vocabulary {
 public:
  void reserve(std::size_t tokens);

  enum class Added { yes, text_known, id_known };
  Added add(std::string_view text, TokenId id);

  std::optional<TokenId> find(std::string_view text) const {
    if (slots_.empty()) return {};
    const TokenId id = slots_[slot_of(text, hash(text))].id;
    return id < 0 ? std::nullopt : std::optional(id);
  }
  // The ids of many texts, -1 where there is none: faster than one by one, as memory is asked
  // ahead.
  void find_all(std::span<const std::string_view> texts, std::vector<TokenId>& ids) const;
  bool has(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < places_.size() &&
           places_[static_cast<std::size_t>(id)].bytes != kNone;
  }
  std::string_view text(TokenId id) const {  // of a token that is there
    const Place& place = places_[static_cast<std::size_t>(id)];
    return std::string_view(texts_).substr(place.start, place.bytes);
  }
  std::size_t size() const { return count_; }
  // One more than the largest id.
  TokenId end() const { return static_cast<TokenId>(places_.size()); }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  struct Place {
    std::uint32_t start = 0, bytes = kNone;
  };
  struct Slot {
    std::uint32_t hash = 0;
    TokenId id = -1;
  };
  static std::uint32_t hash(std::string_view text);
  // Where the text is, or where it would go.
  std::uint32_t slot_of(std::string_view text, std::uint32_t hash) const;

  std::string texts_;
  std::vector<Place> places_;  // by id
  std::vector<Slot> slots_;    // a power of two of them, at most half of them taken
  std::size_t count_ = 0;
};

}  // namespace ac::text
