// How whatever executes a graph gets at its weights, without knowing about files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ir/graph.h"

namespace ac {

// Dense, row-major, unaligned; the dtype is the file's, which may differ from the graph's.
struct WeightView {
  DType dtype;
  std::vector<std::int64_t> shape;
  const std::byte* data;
  // Instead of data, if they are at hand: elements that are exact in the dtype, which is the
  // graph's.
  const double* elements = nullptr;
};

// Finds the bytes of a `weight` node, or throws an error naming its key. The bytes outlive the
// executor.
using WeightLookup = std::function<WeightView(const Node& weight)>;

}  // namespace ac
