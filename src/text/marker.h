// Markers in a text that comes in pieces.
#pragma once

#include <algorithm>
#include <string_view>

namespace ac::text {

// The length of the longest end of the text that the marker begins with, and goes on.
inline std::size_t beginning_of(std::string_view marker, std::string_view text) {
  std::size_t length = std::min(marker.size() - 1, text.size());
  while (!text.ends_with(marker.substr(0, length))) --length;
  return length;
}

}  // namespace ac::text
