// What a compiled kernel says of itself, for messages about one that the driver refuses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ac::cuda {

struct CubinFacts {
  int sm = 0;           // 90
  std::string toolkit;  // "13.0"; empty if it does not say
};

// Nothing if the bytes are no cubin, or not the whole of one.
std::optional<CubinFacts> cubin_facts(std::string_view bytes);

}  // namespace ac::cuda
