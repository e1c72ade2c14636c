// Proves what an attention mask lets through. A mask depends only on where its elements are, so it
// is followed symbolically from positions, comparisons and triangles to the use, for every length
// at once; nothing is sampled.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace ac {

// Elements with low <= row - column <= high are `inside`, all others `outside`; rows and columns
// are the last two axes. An absent bound is infinite.
struct Band {
  std::optional<std::int64_t> low, high;
  double inside = 0, outside = 0;

  bool uniform() const { return !low && !high; }
};

// Nothing when the tensor is not such a mask, or cannot be proven to be.
std::optional<Band> prove_band(const Graph& graph, NodeId id);

// Where both are inside.
Band intersect(const Band& a, const Band& b, double inside, double outside);
// The same mask with inside and outside exchanged; only a band with exactly one bound has one.
std::optional<Band> complement(const Band& band);

}  // namespace ac
