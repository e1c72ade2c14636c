// Text from outside (replies, servers, names in checkpoints) for files, terminals and prompts:
// valid UTF-8, no control characters, nothing that turns the direction of writing, and not long.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ac {

// What is unfit becomes "?"; line ends become spaces. "..." stands for what is cut off.
std::string plain_text(std::string_view text, std::size_t max_bytes);

}  // namespace ac
