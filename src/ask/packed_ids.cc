#include "ask/packed_ids.h"

#include <cstring>

#include "text/vocabulary.h"

namespace ac {

using text::TokenId;

Json packed(std::span<const std::int64_t> ids) {
  const std::vector<TokenId> shorter(ids.begin(), ids.end());
  const auto* const first = reinterpret_cast<const std::uint8_t*>(shorter.data());
  return Json::binary({first, first + shorter.size() * sizeof(TokenId)});
}

std::vector<std::int64_t> unpacked(const Json& ids) {
  const auto& bytes = ids.get_binary();
  std::vector<TokenId> shorter(bytes.size() / sizeof(TokenId));
  if (!shorter.empty()) std::memcpy(shorter.data(), bytes.data(), shorter.size() * sizeof(TokenId));
  return {shorter.begin(), shorter.end()};
}

}  // namespace ac
