// Symbolic sizes as the capture format writes them: `["mul", 2, "S"]` -> Dim. A Dim has no
// division, so what does not fold exactly is an error.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "ir/dim.h"

namespace ac {

// The values that S may take in the runs of one model.
struct SymbolRange {
  std::int64_t min = 1;
  std::int64_t max = 1;
};

Dim read_size(const Json& expression, const SymbolRange& range);

// Whether a <= b is proven for every S in the range.
bool at_most(const Dim& a, const Dim& b, const SymbolRange& range);

}  // namespace ac
