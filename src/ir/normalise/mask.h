// Proves what tensors are that depend only on where their elements are: positions, and attention
// masks. They are followed symbolically from positions, comparisons and triangles to the use, for
// every length up to the graph's limit at once; nothing is sampled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "ir/normalise/steps.h"

namespace ac {

// sum of coefficient * coordinate over the axes, plus a constant.
struct Affine {
  std::vector<std::int64_t> coefficients;  // one an axis
  std::int64_t constant = 0;
};

// A function of the difference of two coordinates, row < column; both are -1 where it is uniform.
struct AxisSteps {
  int row = -1, column = -1;
  Steps steps;
};

// What is known of one tensor. No fact mentions an axis of size 1: its coordinate is 0, and so it
// stays right when that axis is broadcast.
using Fact = std::variant<std::monostate, Affine, AxisSteps>;

// Facts of a graph's nodes, each made once. The graph may grow meanwhile.
class Prover {
 public:
  explicit Prover(const Graph& graph) : graph_(graph) {}

  const Fact& fact(NodeId id);

  // The tensor as a function of the difference of its last two axes.
  std::optional<Steps> steps(NodeId id);
  // The least and the most value that an affine tensor has; nothing of others.
  struct Bounds {
    std::int64_t least, most;
  };
  std::optional<Bounds> bounds(NodeId id);
  // Whether no element can be below 0. Token ids are not.
  bool never_negative(NodeId id, int depth = 0);

 private:
  friend struct FactRules;
  const Shape& shape(NodeId id) const { return graph_.type(id).shape; }
  // The largest coordinate of an axis.
  std::int64_t last(const Dim& size) const;
  std::int64_t far(const Shape& shape) const;  // of all axes
  Fact checked(Fact fact, const TensorType& type) const;
  Bounds bounds(const Affine& affine, const Shape& shape) const;

  const Graph& graph_;
  std::unordered_map<NodeId, Fact> facts_;
};

// How facts pass through an op, and why that is right. Of the result of an op that is not listed,
// nothing is known. docs/architecture.md explains the table.
struct FactRule {
  Op op;
  Fact (*apply)(Prover& prover, const Node& node);
  std::string_view why;
};
std::span<const FactRule> fact_rules();

}  // namespace ac
