// Small questions that rules ask about a graph.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "ir/normalise/numbers.h"

namespace ac {

// The node, if it is such an op; else null.
inline const Node* match(const Graph& graph, NodeId id, Op op) {
  const Node& node = graph[id];
  return node.op == op ? &node : nullptr;
}

inline bool uses_tokens(const TensorType& type) {
  for (const Dim& dim : type.shape)
    if (dim.uses(Symbol::S)) return true;
  return false;
}

// The one value that every element has, when it is known. Casts are computed.
inline std::optional<double> uniform_value(const Graph& graph, NodeId id) {
  const Node* node = &graph[id];
  std::vector<DType> casts;
  while (node->op == Op::expand || node->op == Op::reshape || node->op == Op::cast) {
    if (node->op == Op::cast) casts.push_back(node->type.dtype);
    node = &graph[node->inputs[0]];
  }
  if (node->op != Op::constant || node->data().empty()) return std::nullopt;
  for (const double item : node->data())
    if (item != node->data()[0]) return std::nullopt;
  std::optional<double> value = node->data()[0];
  while (value && !casts.empty()) {
    value = convert(casts.back(), *value);
    casts.pop_back();
  }
  return value;
}

// A binary op with a uniform constant on one side (either side when the op commutes).
struct WithScalar {
  NodeId x;
  double scalar;
};
inline std::optional<WithScalar> match_scalar(const Graph& graph, const Node& node, Op op) {
  if (node.op != op || node.inputs.size() != 2) return std::nullopt;
  const int sides = op == Op::add || op == Op::mul || op == Op::maximum ? 2 : 1;
  for (int side = 0; side < sides; ++side) {
    const NodeId x = node.inputs[side == 0 ? 0 : 1], other = node.inputs[side == 0 ? 1 : 0];
    const auto value = uniform_value(graph, other);
    if (value && graph.type(x) == node.type) return WithScalar{x, *value};
  }
  return std::nullopt;
}
inline std::optional<WithScalar> match_scalar(const Graph& graph, NodeId id, Op op) {
  return match_scalar(graph, graph[id], op);
}

// A value before casts from float to float. They round, which every numeric contract of floats
// allows; a cast to an integer or a bool makes another number of it.
inline NodeId without_float_casts(const Graph& graph, NodeId id) {
  while (graph[id].op == Op::cast && is_float(graph[id].type.dtype) &&
         is_float(graph.type(graph[id].inputs[0]).dtype))
    id = graph[id].inputs[0];
  return id;
}

// The sizes of the axes that are longer than 1.
inline Shape solid(const Shape& shape) {
  Shape result;
  for (const Dim& size : shape)
    if (size != Dim(1)) result.push_back(size);
  return result;
}

// Whether a reshape or permute leaves the last two axes as they are, and the order of the elements
// in front of them too: one row stays one row.
inline bool keeps_rows(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const Shape &from = graph.type(node.inputs[0]).shape, &to = node.type.shape;
  if (from.size() < 2 || to.size() < 2) return false;
  if (node.op == Op::reshape)
    return from.back() == to.back() && from[from.size() - 2] == to[to.size() - 2];
  const auto& axes = node.integers("axes");
  const auto rank = static_cast<std::int64_t>(axes.size());
  std::int64_t before = -1;  // the axis that is longer than 1 and came last
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (i + 2 >= axes.size() && axes[i] != static_cast<std::int64_t>(i)) return false;
    if (from[static_cast<std::size_t>(axes[i])] == Dim(1)) continue;
    if (axes[i] < before) return false;
    before = axes[i];
  }
  return rank >= 2;
}

}  // namespace ac
