// An implementation for one row, as one for each of several: its kernels get the parameters of many
// rows, and a block finds its own (kernels/each_row.cuh).
#pragma once

#include <optional>

#include "generate/generate.h"

namespace ac {

// Rows that one launch takes at most: the parameters of a kernel are 4 KB at most.
inline constexpr int kMostRowsAtOnce = 8;

// Nothing where a launch cannot: a library's product, one with maps, one whose grid has three axes,
// and one whose parameters are too long.
std::optional<Generated> for_rows(const Generated& one, int rows);

}  // namespace ac
