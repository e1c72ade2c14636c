#include "ir/normalise/fold.h"
#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"
#include "ir/shape.h"

namespace ac {
namespace {

using Result = std::optional<NodeId>;

Result drop_cast(Builder&, const Graph& g, const Node& node) {
  if (node.op != Op::cast) return {};
  const NodeId x = node.inputs[0];
  if (g.type(x).dtype == node.type.dtype) return x;
  // There and back through a wider type: nothing was lost on the way.
  if (g[x].op == Op::cast && g.type(x).dtype == DType::f32) {
    const NodeId origin = g[x].inputs[0];
    if (g.type(origin).dtype == node.type.dtype && is_float(node.type.dtype)) return origin;
  }
  return {};
}

Result merge_views(Builder& out, const Graph& g, const Node& node) {
  if (info(node.op).memory != Memory::view) return {};
  const NodeId x = node.inputs[0];
  const Node& inner = g[x];
  switch (node.op) {
    case Op::reshape:
      if (inner.type.shape == node.type.shape) return x;
      if (inner.op == Op::reshape) return out.reshape(inner.inputs[0], node.type.shape);
      return {};
    case Op::expand:
      if (inner.type.shape == node.type.shape) return x;
      if (inner.op == Op::expand) return out.expand(inner.inputs[0], node.type.shape);
      return {};
    case Op::permute: {
      std::vector<std::int64_t> axes = node.integers("axes");
      if (inner.op == Op::permute) {
        for (std::int64_t& axis : axes)
          axis = inner.integers("axes")[static_cast<std::size_t>(axis)];
        return out.permute(inner.inputs[0], axes);
      }
      const NodeId same = out.permute(x, axes);  // x, if the axes stay where they are
      return same == x ? Result(x) : Result();
    }
    case Op::slice:
      return inner.type.shape == node.type.shape ? Result(x) : Result();
    default:
      return {};
  }
}

Result drop_neutral(Builder&, const Graph& g, const Node& node) {
  const auto neutral = [&](Op op, double value) -> Result {
    const auto found = match_scalar(g, node, op);
    return found && found->scalar == value ? Result(found->x) : Result();
  };
  for (const auto& [op, value] :
       {std::pair{Op::add, 0.0}, {Op::sub, 0.0}, {Op::mul, 1.0}, {Op::div, 1.0}, {Op::pow, 1.0}})
    if (node.op == op) return neutral(op, value);
  if (node.op == Op::concat && node.inputs.size() == 1) return node.inputs[0];
  return {};
}

Result drop_empty_parts(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::concat) return {};
  const auto axis = static_cast<std::size_t>(node.integer("axis"));
  std::vector<NodeId> parts;
  for (const NodeId part : node.inputs)
    if (g.type(part).shape[axis] != Dim(0)) parts.push_back(part);
  if (parts.empty() || parts.size() == node.inputs.size()) return {};
  return out.concat(parts, node.integer("axis"));
}

// c * x is written x * c, so that later rules look for scalars in one place.
Result scalar_second(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::add && node.op != Op::mul) return {};
  if (!uniform_value(g, node.inputs[0]) || uniform_value(g, node.inputs[1])) return {};
  return out.binary(node.op, node.inputs[1], node.inputs[0]);
}

// Where both sides have tokens it may be the scores of heads with one feature.
Result outer_product(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::matmul || g.type(node.inputs[0]).shape.back() != Dim(1)) return {};
  if (uses_tokens(g.type(node.inputs[0])) && uses_tokens(g.type(node.inputs[1]))) return {};
  return out.binary(Op::mul, node.inputs[0], node.inputs[1]);
}

// An elementwise op broadcasts by itself.
Result drop_expand(Builder& out, const Graph& g, const Node& node) {
  if (info(node.op).over != Over::each || node.inputs.size() < 2) return {};
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (g[node.inputs[i]].op != Op::expand) continue;
    std::vector<NodeId> inputs = node.inputs;
    inputs[i] = g[inputs[i]].inputs[0];
    std::optional<Shape> shape = g.type(inputs[0]).shape;
    for (std::size_t k = 1; k < inputs.size() && shape; ++k)
      shape = broadcast(*shape, g.type(inputs[k]).shape);
    if (shape == node.type.shape) return out.add(node.op, inputs, node.attrs);
  }
  return {};
}

Result fold(Builder& out, const Graph& g, const Node& node) {
  // A uniform expand stays one scalar.
  if (node.op == Op::expand) return {};
  auto data = fold_constant(g, node);
  if (!data) return {};
  std::vector<std::int64_t> shape;
  for (const Dim& dim : node.type.shape) shape.push_back(dim.constant());
  return out.constant(node.type.dtype, shape, std::move(*data));
}

}  // namespace

std::vector<Rule> cleanup_rules() {
  return {drop_cast,        merge_views,   fold,          drop_neutral,
          drop_empty_parts, scalar_second, outer_product, drop_expand};
}

}  // namespace ac
