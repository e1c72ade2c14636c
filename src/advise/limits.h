// How much of a reply is read. The prompt tells these to the advisor.
#pragma once

#include <cstddef>

namespace ac {

inline constexpr std::size_t kMaxOrder = 16, kMaxHints = 8, kMaxRisks = 8, kMaxFusions = 4;
inline constexpr std::size_t kMaxRequests = 4;
inline constexpr std::size_t kMaxReplyBytes = 1u << 20;
inline constexpr std::size_t kMaxNoteBytes = 240;  // of a text that is kept

}  // namespace ac
