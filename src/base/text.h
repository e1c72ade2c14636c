// Showing text that came from elsewhere (tensor names, file names) in messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ac {

// In double quotes, control characters escaped, cut when very long: a hostile name can neither
// drive a terminal nor fill a log.
std::string quote(std::string_view text);

// Up to `limit` of `candidates` that look like a misspelling of `wanted`, best first.
std::vector<std::string> close_matches(std::string_view wanted,
                                       const std::vector<std::string>& candidates,
                                       std::size_t limit = 3);

}  // namespace ac
