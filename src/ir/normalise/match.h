// Small questions that rules ask about a graph.
#pragma once

#include <optional>

#include "ir/graph.h"

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

// The one value that every element has, when it is known.
inline std::optional<double> uniform_value(const Graph& graph, NodeId id) {
  const Node* node = &graph[id];
  while (node->op == Op::expand || node->op == Op::reshape || node->op == Op::cast)
    node = &graph[node->inputs[0]];
  if (node->op != Op::constant || node->data().empty()) return std::nullopt;
  for (const double item : node->data())
    if (item != node->data()[0]) return std::nullopt;
  return node->data()[0];
}

// A binary op with a uniform constant on one side (either side when the op commutes).
struct WithScalar {
  NodeId x;
  double scalar;
};
inline std::optional<WithScalar> match_scalar(const Graph& graph, const Node& node, Op op) {
  if (node.op != op) return std::nullopt;
  const int sides = op == Op::add || op == Op::mul ? 2 : 1;
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

// A value before the casts that were applied to it.
inline NodeId without_casts(const Graph& graph, NodeId id) {
  while (graph[id].op == Op::cast) id = graph[id].inputs[0];
  return id;
}

}  // namespace ac
