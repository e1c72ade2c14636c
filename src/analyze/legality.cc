#include "analyze/legality.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ir/shape.h"

namespace ac {
namespace {

Boundary at_node(Reason reason, NodeId id, std::string text) {
  return {reason, id, id, std::move(text)};
}

bool fits_rows(const Shape& shape) {
  int symbolic = 0;
  for (const Dim& dim : shape) {
    if (dim.is_constant()) continue;
    if (dim != Dim(Symbol::T)) return false;
    ++symbolic;
  }
  return symbolic <= 1;
}

// Operands that are integers by nature: ids and positions.
bool holds_integers(Op op, std::size_t operand) {
  return operand == 1 && (op == Op::embedding || op == Op::rope);
}

std::optional<Boundary> dtype_boundary(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const auto unsupported = [&](const TensorType& type) {
    return at_node(Reason::unsupported_dtype, id,
                   fmt::format("{}: no kernels for {}", describe(graph, id), to_string(type)));
  };
  if (!is_float(node.type.dtype)) return unsupported(node.type);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const TensorType& type = graph.type(node.inputs[i]);
    if (holds_integers(node.op, i)) continue;
    if (!is_float(type.dtype)) return unsupported(type);
    const bool frequencies = node.op == Op::rope && i == 2;
    if (type.dtype != node.type.dtype && !frequencies)
      return at_node(Reason::mixed_dtype, id,
                     fmt::format("{}: from {} to {}", describe(graph, id), short_name(type.dtype),
                                 short_name(node.type.dtype)));
  }
  return std::nullopt;
}

std::optional<Boundary> shape_boundary(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const auto dynamic = [&](const char* what, const Shape& shape) {
    return at_node(Reason::dynamic_shape, id,
                   fmt::format("{}: {} {}", describe(graph, id), what, to_string(shape)));
  };
  for (const std::int64_t axis : reduced_axes(graph, node)) {
    const Shape& shape = graph.type(node.inputs[0]).shape;
    if (!shape[static_cast<std::size_t>(axis)].is_constant())
      return dynamic("a reduction over a symbolic axis of", shape);
  }
  if (!fits_rows(node.type.shape)) return dynamic("an ambiguous result", node.type.shape);
  for (const NodeId input : node.inputs)
    if (!fits_rows(graph.type(input).shape))
      return dynamic("an ambiguous operand", graph.type(input).shape);
  return std::nullopt;
}

class Sets {
 public:
  explicit Sets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t find(std::size_t item) {
    while (parent_[item] != item) item = parent_[item] = parent_[parent_[item]];
    return item;
  }
  void join(std::size_t a, std::size_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<std::size_t> parent_;
};

bool contains(const std::vector<NodeId>& sorted, NodeId id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

std::optional<Boundary> why_not_connected(const UseDef& uses, const std::vector<NodeId>& sorted) {
  Sets sets(sorted.size());
  const auto index = [&](NodeId id) {
    return static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), id) -
                                    sorted.begin());
  };
  for (const NodeId id : sorted) {
    for (const NodeId operand : uses.operands(id)) {
      const Node& node = uses.graph()[operand];
      if (contains(sorted, operand)) {
        sets.join(index(id), index(operand));
      } else if (is_compute(node) || node.op == Op::input) {
        for (const NodeId user : uses.users(operand))
          if (contains(sorted, user)) sets.join(index(id), index(user));
      }
    }
  }
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sets.find(i) != sets.find(0))
      return Boundary{
          Reason::not_connected, sorted[0], sorted[i],
          fmt::format("{} and {} share no activation", describe(uses.graph(), sorted[0]),
                      describe(uses.graph(), sorted[i]))};
  return std::nullopt;
}

// Follows what leaves the set; it must not come back.
std::optional<Boundary> why_not_convex(const UseDef& uses, const std::vector<NodeId>& sorted) {
  int last = 0;
  for (const NodeId id : sorted) last = std::max(last, uses.position(id));
  std::vector<NodeId> pending;
  std::vector<bool> seen(uses.graph().nodes.size());
  const auto leave = [&](NodeId id) {
    for (const NodeId user : uses.users(id)) {
      if (contains(sorted, user) || seen[static_cast<std::size_t>(user)] ||
          uses.position(user) > last)
        continue;
      seen[static_cast<std::size_t>(user)] = true;
      pending.push_back(user);
    }
  };
  for (const NodeId id : sorted) leave(id);
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    for (const NodeId user : uses.users(id))
      if (contains(sorted, user))
        return Boundary{Reason::not_convex, id, user,
                        fmt::format("{} needs {}, which needs the region",
                                    describe(uses.graph(), user), describe(uses.graph(), id))};
    leave(id);
  }
  return std::nullopt;
}

}  // namespace

bool is_pointwise(Op op) {
  const ShapeRule rule = info(op).rule;
  return rule == ShapeRule::unary || rule == ShapeRule::binary;
}

bool is_matrix(Op op) { return op == Op::matmul || op == Op::linear; }

std::optional<Boundary> hard_boundary(const Graph& graph, NodeId id) {
  if (auto boundary = dtype_boundary(graph, id)) return boundary;
  return shape_boundary(graph, id);
}

std::optional<Boundary> hard_edge(const UseDef& uses, NodeId from, NodeId to) {
  const Graph& graph = uses.graph();
  for (const NodeId id : {from, to})
    if (auto boundary = hard_boundary(graph, id))
      return Boundary{boundary->reason, from, to, boundary->text};
  if (info(graph[from].op).memory == Memory::state)
    return Boundary{Reason::state, from, to,
                    fmt::format("{} writes a state", describe(graph, from))};
  if (uses.is_aliased(from))
    return Boundary{Reason::aliasing, from, to,
                    fmt::format("a view of {} is an output of the step", describe(graph, from))};
  return std::nullopt;
}

std::optional<Boundary> why_illegal(const UseDef& uses, const std::vector<NodeId>& nodes,
                                    Behind states) {
  if (nodes.size() == 1) return std::nullopt;
  const Graph& graph = uses.graph();
  std::vector<NodeId> sorted = nodes;
  std::sort(sorted.begin(), sorted.end());
  NodeId writer = -1;
  for (const NodeId id : sorted) {
    if (auto boundary = hard_boundary(graph, id)) return boundary;
    if (graph.type(id).dtype != graph.type(sorted[0]).dtype)
      return Boundary{Reason::mixed_dtype, sorted[0], id,
                      fmt::format("{} is {}, {} is {}", describe(graph, sorted[0]),
                                  short_name(graph.type(sorted[0]).dtype), describe(graph, id),
                                  short_name(graph.type(id).dtype))};
    if (states == Behind::nothing && info(graph[id].op).memory == Memory::state) {
      if (writer >= 0)
        return Boundary{Reason::state, writer, id,
                        fmt::format("{} and {} both write states", describe(graph, writer),
                                    describe(graph, id))};
      writer = id;
    }
    for (const NodeId operand : uses.operands(id))
      if (contains(sorted, operand))
        if (auto boundary = hard_edge(uses, operand, id);
            boundary && (states == Behind::nothing || boundary->reason != Reason::state))
          return boundary;
  }
  if (auto boundary = why_not_connected(uses, sorted)) return boundary;
  return why_not_convex(uses, sorted);
}

}  // namespace ac
