#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace ac::text {

void Vocabulary::reserve(std::size_t tokens) {
  std::size_t slots = 16;
  while (slots < 2 * tokens) slots *= 2;
  if (slots <= slots_.size()) return;
  places_.reserve(tokens);
  texts_.reserve(8 * tokens);
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    std::size_t at = slot.hash & (slots - 1);
    while (slots_[at].id >= 0) at = (at + 1) & (slots - 1);
    slots_[at] = slot;
  }
}

Vocabulary::Added Vocabulary::add(std::string_view text, TokenId id) {
  if (2 * (count_ + 1) > slots_.size()) reserve(slots_.empty() ? 8 : slots_.size());
  if (has(id)) return Added::id_known;
  const std::uint32_t of = hash(text);
  Slot& slot = slots_[slot_of(text, of)];
  if (slot.id >= 0) return Added::text_known;
  slot = {of, id};
  if (places_.size() <= static_cast<std::size_t>(id))
    places_.resize(static_cast<std::size_t>(id) + 1);
  places_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(texts_.size()),
                                           static_cast<std::uint32_t>(text.size())};
  texts_ += text;
  ++count_;
  return Added::yes;
}

void Vocabulary::find_all(std::span<const std::string_view> texts,
                          std::vector<TokenId>& ids) const {
  ids.assign(texts.size(), -1);
  if (slots_.empty()) return;
  const std::size_t mask = slots_.size() - 1;
  std::array<std::uint32_t, 64> hashes{};
  for (std::size_t begin = 0; begin < texts.size(); begin += hashes.size()) {
    const std::size_t count = std::min(hashes.size(), texts.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      hashes[i] = hash(texts[begin + i]);
      __builtin_prefetch(&slots_[hashes[i] & mask]);
    }
    for (std::size_t i = 0; i < count; ++i)
      if (const TokenId id = slots_[hashes[i] & mask].id; id >= 0)
        __builtin_prefetch(&places_[static_cast<std::size_t>(id)]);
    for (std::size_t i = 0; i < count; ++i)
      if (const TokenId id = slots_[hashes[i] & mask].id; id >= 0)
        __builtin_prefetch(texts_.data() + places_[static_cast<std::size_t>(id)].start);
    for (std::size_t i = 0; i < count; ++i)
      ids[begin + i] = slots_[slot_of(texts[begin + i], hashes[i])].id;
  }
}

std::uint32_t Vocabulary::hash(std::string_view text) {
  const std::size_t full = std::hash<std::string_view>()(text);
  return static_cast<std::uint32_t>(full ^ full >> 32);
}

std::uint32_t Vocabulary::slot_of(std::string_view sought, std::uint32_t of) const {
  const auto mask = static_cast<std::uint32_t>(slots_.size() - 1);
  std::uint32_t at = of & mask;
  while (slots_[at].id >= 0 && (slots_[at].hash != of || text(slots_[at].id) != sought))
    at = (at + 1) & mask;
  return at;
}

}  // namespace ac::text
