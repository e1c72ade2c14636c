// Other spellings of what the later passes know: softmax written out, entries selected by constant
// indices, positions read from a buffer that counts.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/normalise/mask.h"
#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

using Result = std::optional<NodeId>;

// The node below reshapes, if they leave one number for each line of x along the axis.
NodeId one_a_line(const Graph& g, NodeId id, NodeId x, std::int64_t axis) {
  Shape shape = g.type(x).shape;
  shape[static_cast<std::size_t>(axis)] = 1;
  if (g.type(id).shape != shape) return -1;
  while (g[id].op == Op::reshape && solid(g.type(g[id].inputs[0]).shape) == solid(shape))
    id = g[id].inputs[0];
  return id;
}

// exp(x), or a softmax, in which every line has a factor of its own.
bool is_power(const Graph& g, NodeId id, std::int64_t axis) {
  return g[id].op == Op::exp || (g[id].op == Op::softmax && g[id].integer("axis") == axis);
}

// Such powers, perhaps with some entries put to 0 by a mask: the scores of a softmax.
Result scores_of(Builder& out, const Graph& g, NodeId id, std::int64_t axis) {
  const Node node = g[id];
  if (node.op == Op::softmax && is_power(g, id, axis)) return node.inputs[0];
  if (node.op == Op::exp) {
    const Node inner = g[node.inputs[0]];
    // What is the same along a whole line goes away in the division.
    if (inner.op == Op::sub && g.type(inner.inputs[0]) == inner.type &&
        one_a_line(g, inner.inputs[1], inner.inputs[0], axis) >= 0)
      return inner.inputs[0];
    return node.inputs[0];
  }
  const NodeId hidden = out.scalar(node.type.dtype, -INFINITY);
  if (node.op == Op::where)
    for (const std::size_t side : {1u, 2u}) {
      const NodeId power = node.inputs[side];
      if (uniform_value(g, node.inputs[3 - side]) != 0.0 || g.type(power) != node.type ||
          !is_power(g, power, axis))
        continue;
      const Result x = scores_of(out, g, power, axis);
      if (!x) return {};
      const NodeId condition = node.inputs[0];
      return out.add(Op::where, {condition, side == 1 ? *x : hidden, side == 1 ? hidden : *x});
    }
  if ((node.op == Op::tril || node.op == Op::triu) && is_power(g, node.inputs[0], axis)) {
    const NodeId ones = out.expand(out.scalar(DType::boolean, 1), node.type.shape);
    const NodeId kept = out.add(node.op, {ones}, node.attrs);
    const Result x = scores_of(out, g, node.inputs[0], axis);
    return x ? Result(out.add(Op::where, {kept, *x, hidden})) : Result();
  }
  if (node.op != Op::mul) return {};
  for (const std::size_t side : {0u, 1u}) {
    const NodeId power = node.inputs[side], mask = node.inputs[1 - side];
    if (!is_power(g, power, axis) || g.type(power) != node.type) continue;
    const auto steps = Prover(g).steps(mask);
    if (!steps) continue;
    for (const Piece& piece : steps->pieces)
      if (piece.slope != 0 || (piece.value != 0 && piece.value != 1)) return {};
    const Result x = scores_of(out, g, power, axis);
    return x ? Result(out.add(Op::where, {out.cast(mask, DType::boolean), *x, hidden})) : Result();
  }
  return {};
}

// e / sum(e) over one axis, where e are powers.
Result softmax_by_hand(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::div || !is_float(node.type.dtype)) return {};
  const NodeId powers = node.inputs[0];
  if (g.type(powers) != node.type || node.type.shape.empty()) return {};
  NodeId total = node.inputs[1];
  while (g[total].op == Op::reshape) total = g[total].inputs[0];
  if (g[total].op != Op::sum || g[total].inputs[0] != powers) return {};
  const std::vector<std::int64_t> axes = g[total].integers("axes");
  if (axes.size() != 1 || one_a_line(g, node.inputs[1], powers, axes[0]) != total) return {};
  const Result x = scores_of(out, g, powers, axes[0]);
  return x && g.type(*x) == node.type ? Result(out.softmax(*x, axes[0])) : Result();
}

bool is_over_tokens(const Shape& shape) {
  return shape.size() >= 2 && shape.back().uses(Symbol::S) &&
         shape[shape.size() - 2].uses(Symbol::S);
}

bool is_one_a_row(const Shape& shape) { return shape.empty() || shape.back() == Dim(1); }

// (e @ v) / sum(e), where e are powers.
Result softmax_divided_late(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::div) return {};
  const Node product = g[node.inputs[0]];
  if (product.op != Op::matmul || product.type != node.type) return {};
  const NodeId powers = product.inputs[0];
  if (!is_over_tokens(g.type(powers).shape)) return {};
  const auto last = static_cast<std::int64_t>(g.type(powers).shape.size()) - 1;
  const NodeId total = one_a_line(g, node.inputs[1], powers, last);
  if (total < 0 || g[total].op != Op::sum || g[total].inputs[0] != powers ||
      g[total].integers("axes") != std::vector<std::int64_t>{last})
    return {};
  const Result x = scores_of(out, g, powers, last);
  if (!x || g.type(*x) != g.type(powers)) return {};
  return out.matmul(out.softmax(*x, last), product.inputs[1]);
}

// Sums and differences of attention weights, and weights with a factor for each head or row: values
// are weighted by each of them first.
Result weigh_apart(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::matmul) return {};
  const NodeId v = node.inputs[1];
  const Node weights = g[without_float_casts(g, node.inputs[0])];
  const DType dtype = g.type(v).dtype;
  if (!is_over_tokens(weights.type.shape) || weights.inputs.size() != 2) return {};
  const NodeId a = weights.inputs[0], b = weights.inputs[1];
  if (g.type(a) != weights.type) return {};
  if (weights.op == Op::add || weights.op == Op::sub) {
    if (g.type(b) != weights.type) return {};
    const NodeId first = out.matmul(out.cast(a, dtype), v);
    return out.binary(weights.op, first, out.matmul(out.cast(b, dtype), v));
  }
  if (weights.op != Op::mul || !is_one_a_row(g.type(b).shape)) return {};
  return out.binary(Op::mul, out.matmul(out.cast(a, dtype), v), out.cast(b, dtype));
}

// The factor second, for the rule above.
Result factor_second(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::mul || !is_over_tokens(node.type.shape)) return {};
  if (!is_one_a_row(g.type(node.inputs[0]).shape) || is_one_a_row(g.type(node.inputs[1]).shape))
    return {};
  return out.binary(Op::mul, node.inputs[1], node.inputs[0]);
}

// x[..., indices] of a value with tokens: the indices are known, so that it is put together of
// slices. Tokens themselves are not selected: a later pass refuses that.
Result select_by_constant(Builder& out, const Graph& g, const Node& node) {
  constexpr std::size_t kMostSlices = 1024;  // which one concat takes
  if (node.op != Op::embedding || !uses_tokens(g.type(node.inputs[0]))) return {};
  const NodeId x = node.inputs[0];
  const Node indices = g[node.inputs[1]];
  const Dim size = g.type(x).shape[0];
  if (indices.op != Op::constant || indices.data().empty() || !size.is_constant()) return {};
  std::vector<std::int64_t> at;
  for (const double item : indices.data()) {
    const auto index = static_cast<std::int64_t>(item) + (item < 0 ? size.constant() : 0);
    if (index < 0 || index >= size.constant())
      bad_input("the index {} is outside the {} entries", item, size.constant());
    at.push_back(index);
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const std::int64_t index : at) {
    if (!runs.empty() && runs.back().second == index)
      ++runs.back().second;
    else
      runs.push_back({index, index + 1});
  }
  if (runs.size() > kMostSlices) return {};
  std::vector<NodeId> parts;
  for (const auto& [begin, end] : runs)
    parts.push_back(begin == 0 && Dim(end) == size ? x : out.slice(x, 0, begin, end));
  const NodeId joined = parts.size() == 1 ? parts[0] : out.concat(parts, 0);
  return out.reshape(joined, node.type.shape);
}

// S entries of a constant that counts are positions.
Result count_positions(Builder& out, const Graph& g, const Node& node) {
  const Dim S(Symbol::S);
  if (node.op != Op::slice || uses_tokens(g.type(node.inputs[0]))) return {};
  if (solid(node.type.shape) != Shape{S} || !node.dim("start").is_constant() ||
      node.integer("step") != 1)
    return {};
  Prover prover(g);
  const Fact& fact = prover.fact(node.inputs[0]);
  const auto* affine = std::get_if<Affine>(&fact);
  if (!affine) return {};
  const auto axis = static_cast<std::size_t>(node.integer("axis"));
  const std::int64_t step = affine->coefficients[axis];
  const std::int64_t first = affine->constant + step * node.dim("start").constant();
  NodeId result = out.positions(S);
  const auto whole = [&](std::int64_t value) {
    return out.scalar(DType::i64, static_cast<double>(value));
  };
  if (step != 1) result = out.binary(Op::mul, result, whole(step));
  if (first != 0) result = out.binary(Op::add, result, whole(first));
  return out.reshape(out.cast(result, node.type.dtype), node.type.shape);
}

}  // namespace

std::vector<Rule> spelling_rules() {
  return {softmax_by_hand, softmax_divided_late, factor_second,
          weigh_apart,     select_by_constant,   count_positions};
}

// Only lengths are considered that no slice runs out of.
Graph limit_tokens(const Graph& graph) {
  Graph result = graph;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph.nodes[i];
    if (node.op != Op::slice) continue;
    const Dim& size =
        graph.type(node.inputs[0]).shape[static_cast<std::size_t>(node.integer("axis"))];
    const Dim rest = node.dim("end") - Dim(Symbol::S);
    if (!size.is_constant() || !rest.is_constant()) continue;
    const std::int64_t tokens = size.constant() - rest.constant();
    if (tokens < 1)
      bad_input("{}: it has no room for the position of a single token", describe(graph, id));
    result.limit.lower(tokens, fmt::format("{} takes them from a table of {}", describe(graph, id),
                                           size.constant()));
  }
  return result;
}

}  // namespace ac
