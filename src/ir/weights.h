// How whatever executes a graph gets at its weights, without knowing about files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/weight_layout.h"
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
  // What holds the data, if no file does.
  std::shared_ptr<const std::vector<std::byte>> made = nullptr;
};

WeightFormat format_of(const Node& weight);
// The tensors that a weight is made of, as weights of their own; of a plain one, itself.
std::vector<Node> parts_of(const Node& weight);
// How the checkpoint stores one of them. Nothing: as it is.
std::optional<PartInFile> in_file(const Node& part);
std::int64_t stored_bytes(const Node& weight);
// Why it cannot be what its attributes say, or nothing.
std::string why_no_weight(const Node& weight);

// Finds the bytes of a plain `weight` node, or throws an error naming its key. The bytes outlive
// the executor.
using WeightLookup = std::function<WeightView(const Node& weight)>;

}  // namespace ac
