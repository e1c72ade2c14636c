// An implementation for one row, as one for each of several: its kernels get the parameters of many
// rows, and a block finds its own (kernels/each_row.cuh).
#pragma once

#include <optional>
#include <vector>

#include "generate/generate.h"

namespace ac {

// Rows that one launch takes at most: the parameters of a kernel are 4 KB at most.
inline constexpr int kMostRowsAtOnce = 8;

// Nothing if one of its launches cannot take several rows: it is a library's product, or has maps,
// a grid of three axes, blocks that wait for each other, or parameters that are too long.
std::optional<Generated> for_rows(const Generated& one, int rows);
// Only these launches of it.
std::optional<Generated> for_rows(const Generated& one, int rows,
                                  const std::vector<std::size_t>& launches);

}  // namespace ac
