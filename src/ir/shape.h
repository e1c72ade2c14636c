// Shape and dtype inference: one rule per ShapeRule of the op table.
#pragma once

#include <string>

#include "ir/graph.h"

namespace ac {

struct Inferred {
  TensorType type;
  std::string problem;  // empty when the node is well-formed
};

// The type of a node, from its inputs (already typed) and attributes. Checks arity, attribute names
// and attribute types first, so it may be called on a node that nothing has checked.
Inferred infer_type(const Graph& graph, NodeId id);

// The axes of its first input that an op reduces.
std::vector<std::int64_t> reduced_axes(const Graph& graph, const Node& node);

// NumPy broadcasting of two shapes, or nothing.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

}  // namespace ac
