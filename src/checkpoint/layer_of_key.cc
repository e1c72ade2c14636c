#include "checkpoint/layer_of_key.h"

#include <charconv>

namespace ac {

std::optional<int> layer_of_key(const std::string& key) {
  for (std::size_t at = 0; (at = key.find('.', at)) != std::string::npos;) {
    const char* const begin = key.data() + ++at;
    int layer = 0;
    const auto [end, error] = std::from_chars(begin, key.data() + key.size(), layer);
    if (error == std::errc() && *end == '.') return layer;
  }
  return std::nullopt;
}

}  // namespace ac
