// Products of tokens by tokens, in whatever layout they were written (einsum makes many), in the
// one that attention is recognised in: scores are [heads..., queries, keys], and so is all that is
// computed of them up to their softmax, which is over the last axis. Each rule only names axes
// anew and computes the same numbers: axes are followed, never found by their size.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

using Result = std::optional<NodeId>;
using Order = std::vector<std::int64_t>;  // of axes, as `permute` takes it

const Dim kPairAxis(Symbol::S);

// More ops than stand between scores and their softmax: bounds what a file can cause.
constexpr int kMostCarried = 64;

std::int64_t rank_of(const Graph& g, NodeId id) {
  return static_cast<std::int64_t>(g.type(id).shape.size());
}

bool is_pairs_of_tokens(const Graph& g, NodeId id) {
  const Shape& shape = g.type(id).shape;
  return std::ranges::count_if(shape, [](const Dim& size) { return size == kPairAxis; }) == 2;
}

Order unchanged(std::int64_t rank) {
  Order order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order swapped(std::int64_t rank) {
  Order order = unchanged(rank);
  std::swap(order[order.size() - 2], order.back());
  return order;
}

Order inverse(const Order& order) {
  Order result(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    result[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return result;
}

template <class Items>
Items arranged(const Items& items, const Order& order) {
  Items result;
  for (const std::int64_t axis : order) result.push_back(items[static_cast<std::size_t>(axis)]);
  return result;
}

bool keeps_last_two(const Order& order) {
  const auto rank = static_cast<std::int64_t>(order.size());
  return rank >= 2 && order[order.size() - 2] == rank - 2 && order.back() == rank - 1;
}

bool keeps_or_swaps_last_two(const Order& order) {
  const auto rank = static_cast<std::int64_t>(order.size());
  return rank >= 2 && std::min(order[order.size() - 2], order.back()) == rank - 2;
}

Order solid_axes(const Shape& shape) {
  Order axes;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != Dim(1)) axes.push_back(static_cast<std::int64_t>(i));
  return axes;
}

// With axes of size 1 in front.
NodeId padded(Builder& out, NodeId x, std::size_t rank) {
  Shape shape = out.type(x).shape;
  if (shape.size() < rank) shape.insert(shape.begin(), rank - shape.size(), Dim(1));
  return out.reshape(x, shape);
}

// A permute that is carried towards the leaves, through all that is computed of pairs of tokens.
class Carrier {
 public:
  Carrier(Builder& out, const Graph& g) : out_(out), g_(g) {}

  // Whether it came to its end everywhere.
  bool is_complete() const { return !is_cut_; }

  NodeId permuted(NodeId x, const Order& order, int depth = 0) {
    if (order == unchanged(rank_of(g_, x))) return x;
    const auto found = made_.find({x, order});
    if (found != made_.end()) return found->second;
    return made_[{x, order}] = make(x, order, depth);
  }

 private:
  NodeId make(NodeId x, const Order& order, int depth) {
    const Node node = g_[x];
    is_cut_ = is_cut_ || depth >= kMostCarried;
    const auto below = [&](NodeId input, const Order& by) {
      return permuted(input, by, depth + 1);
    };
    if (node.op == Op::permute && depth < kMostCarried)
      return below(node.inputs[0], arranged(node.integers("axes"), order));
    const bool reduces = (node.op == Op::sum || node.op == Op::amax) && node.flag("keep");
    const NodeId pairs = reduces ? node.inputs[0] : x;
    if (!is_pairs_of_tokens(g_, pairs) || depth >= kMostCarried) return out_.permute(x, order);
    const Shape shape = arranged(node.type.shape, order);
    if (info(node.op).over == Over::each) {
      std::vector<NodeId> inputs;
      for (const NodeId input : node.inputs) {
        const bool is_number = product(g_.type(input).shape) == Dim(1);
        inputs.push_back(is_number ? input : below(padded(out_, input, order.size()), order));
      }
      return out_.add(node.op, inputs, node.attrs);
    }
    switch (node.op) {
      case Op::reshape:
        if (solid(g_.type(node.inputs[0]).shape) != solid(node.type.shape)) break;
        return out_.reshape(below(node.inputs[0], without_units(node, order)), shape);
      case Op::expand:
        return out_.expand(below(padded(out_, node.inputs[0], order.size()), order), shape);
      case Op::sum:
      case Op::amax: {
        if (!reduces) break;
        Order axes;
        for (const std::int64_t axis : node.integers("axes"))
          axes.push_back(inverse(order)[static_cast<std::size_t>(axis)]);
        return out_.reduce(node.op, below(node.inputs[0], order), axes, true);
      }
      case Op::tril:
      case Op::triu:
        if (!keeps_last_two(order)) break;
        return out_.add(node.op, {below(node.inputs[0], order)}, node.attrs);
      case Op::matmul:
        if (!keeps_or_swaps_last_two(order)) break;
        return matmul(node, order);
      default:
        break;
    }
    return out_.permute(x, order);
  }

  // The order of what a reshape was made of, where it only adds and drops axes of size 1.
  Order without_units(const Node& node, const Order& order) const {
    const Shape& from = g_.type(node.inputs[0]).shape;
    const Order mine = solid_axes(node.type.shape), theirs = solid_axes(from);
    Order result;
    for (std::size_t i = 0; i < from.size(); ++i)
      if (from[i] == Dim(1)) result.push_back(static_cast<std::int64_t>(i));
    for (const std::int64_t axis : order)
      if (const auto at = std::ranges::find(mine, axis); at != mine.end())
        result.push_back(theirs[static_cast<std::size_t>(at - mine.begin())]);
    return result;
  }

  // Each of a stack of products is one of its own; (a b)^T = b^T a^T.
  NodeId matmul(const Node& node, const Order& order) {
    Order stack = order;
    const bool turned = stack.back() < stack[stack.size() - 2];
    if (turned) std::swap(stack[stack.size() - 2], stack.back());
    NodeId a = out_.permute(padded(out_, node.inputs[0], order.size()), stack);
    NodeId b = out_.permute(padded(out_, node.inputs[1], order.size()), stack);
    if (!turned) return out_.matmul(a, b);
    const Order turn = swapped(static_cast<std::int64_t>(order.size()));
    return out_.matmul(out_.permute(b, turn), out_.permute(a, turn));
  }

  Builder& out_;
  const Graph& g_;
  std::map<std::pair<NodeId, Order>, NodeId> made_;
  bool is_cut_ = false;
};

// A softmax along one of two token axes: that one comes last, the other one before it.
Result keys_last(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::softmax || !is_pairs_of_tokens(g, node.inputs[0])) return {};
  const Shape shape = node.type.shape;
  const NodeId x = node.inputs[0];
  const std::int64_t rank = rank_of(g, x), keys = node.integer("axis");
  if (shape[static_cast<std::size_t>(keys)] != kPairAxis) return {};
  Order order;
  std::int64_t queries = -1;
  for (std::int64_t i = 0; i < rank; ++i)
    if (i != keys && shape[static_cast<std::size_t>(i)] == kPairAxis)
      queries = i;
    else if (i != keys)
      order.push_back(i);
  order.push_back(queries);
  order.push_back(keys);
  if (order == unchanged(rank)) return {};
  return out.permute(out.softmax(Carrier(out, g).permuted(x, order), rank - 1), inverse(order));
}

// A view that moves axes of scores moves them in what the scores are computed of: in the end in q
// and k.
Result carried_down(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::permute || !is_pairs_of_tokens(g, node.inputs[0])) return {};
  const NodeId x = node.inputs[0];
  Carrier carrier(out, g);
  const NodeId result = carrier.permuted(x, node.integers("axes"));
  const Node& made = out.graph()[result];
  const bool is_same = made.op == Op::permute && made.inputs[0] == x;
  return is_same || !carrier.is_complete() ? Result() : Result(result);
}

// Attention weights whose heads were moved: the heads of the result are moved instead.
Result heads_of_weights(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::matmul || is_pairs_of_tokens(g, node.inputs[1])) return {};
  const Shape shape = g.type(node.inputs[0]).shape;
  NodeId below = node.inputs[0];
  while (g[below].op == Op::reshape && solid(shape) == solid(g.type(g[below].inputs[0]).shape))
    below = g[below].inputs[0];
  const Node weights = g[below];
  if (weights.op != Op::permute || !is_pairs_of_tokens(g, below)) return {};
  if (node.type.shape.size() != shape.size()) return {};  // v has more heads
  // The same permute of axes of size 1 where the product has them.
  const Order here = solid_axes(shape), there = solid_axes(weights.type.shape),
              from = solid_axes(g.type(weights.inputs[0]).shape);
  Order order = unchanged(std::ssize(shape));
  for (std::size_t i = 0; i < here.size(); ++i) {
    const std::int64_t axis = weights.integers("axes")[static_cast<std::size_t>(there[i])];
    order[static_cast<std::size_t>(here[i])] =
        here[static_cast<std::size_t>(std::ranges::find(from, axis) - from.begin())];
  }
  if (order == unchanged(std::ssize(shape)) || !keeps_last_two(order)) return {};
  const NodeId plain = out.reshape(weights.inputs[0], arranged(shape, inverse(order)));
  const NodeId v = out.permute(padded(out, node.inputs[1], order.size()), inverse(order));
  return out.permute(out.matmul(plain, v), order);
}

// v^T p^T is (p v)^T.
Result weights_first(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::matmul) return {};
  const NodeId v = node.inputs[0], weights = node.inputs[1];
  const Shape& shape = g.type(weights).shape;
  if (!is_pairs_of_tokens(g, weights) || is_pairs_of_tokens(g, v) || shape.back() != kPairAxis ||
      shape[shape.size() - 2] != kPairAxis)
    return {};
  const auto turn = [&](NodeId x) { return out.permute(x, swapped(rank_of(out.graph(), x))); };
  return turn(out.matmul(turn(weights), turn(v)));
}

// The sizes of the axes that both shapes are merged from, without axes of size 1, and how many of
// them each axis of `whole` is merged from. Nothing where the axes of one cut across the other's.
struct Refined {
  std::vector<Shape> parts;  // of each axis of `whole`
  Shape all() const {
    Shape shape;
    for (const Shape& part : parts) shape.insert(shape.end(), part.begin(), part.end());
    return shape;
  }
};
std::optional<Refined> refined(const Shape& whole, const Shape& other) {
  const Shape fine = solid(other);
  Refined result;
  std::size_t next = 0;
  Dim left = fine.empty() ? Dim(1) : fine[0];  // of the axis fine[next]
  for (Dim size : whole) {
    Shape& part = result.parts.emplace_back();
    while (size != Dim(1)) {
      if (next == fine.size()) return std::nullopt;
      const auto more = size.divided_by(left), rest = left.divided_by(size);
      if (!more && !rest) return std::nullopt;
      part.push_back(more ? left : size);
      left = more ? Dim(1) : *rest;
      size = more ? *more : Dim(1);
      if (left == Dim(1) && ++next < fine.size()) left = fine[next];
    }
  }
  return next == fine.size() ? std::optional(result) : std::nullopt;
}

bool mixes_tokens(const Dim& size) { return size.uses(Symbol::S) && size != kPairAxis; }

// A product whose rows are tokens and something else, merged by a view: that comes apart, and goes
// with the heads. Each row of a product is one of its own.
Result rows_apart(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::matmul) return {};
  const NodeId a = node.inputs[0], b = node.inputs[1];
  const Shape rows = g.type(a).shape, columns = g.type(b).shape, whole = node.type.shape;
  if (rows.size() < 2 || columns.size() < 2 || g[a].op != Op::reshape) return {};
  if (!mixes_tokens(rows[rows.size() - 2])) return {};
  const auto apart = refined(rows, g.type(g[a].inputs[0]).shape);
  if (!apart) return {};
  const Shape& part = apart->parts[rows.size() - 2];
  const auto tokens = std::ranges::find(part, kPairAxis);
  if (tokens == part.end() || std::ranges::any_of(part, mixes_tokens)) return {};

  const auto stack = static_cast<std::int64_t>(rows.size()) - 2,
             count = static_cast<std::int64_t>(part.size()),
             token = stack + (tokens - part.begin());
  Shape split(rows.begin(), rows.end() - 2);
  split.insert(split.end(), part.begin(), part.end());
  split.push_back(rows.back());
  Order order = unchanged(stack + count + 1);  // tokens to the end of their part
  order.erase(order.begin() + token);
  order.insert(order.end() - 1, token);
  Shape units(columns.begin(), columns.end() - 2);
  units.insert(units.end(), part.size() - 1, Dim(1));
  units.insert(units.end(), columns.end() - 2, columns.end());
  const NodeId product =
      out.matmul(out.permute(out.reshape(a, split), order), out.reshape(b, units));
  // The stack of b may be deeper than that of a.
  const auto more = static_cast<std::int64_t>(out.type(product).shape.size()) -
                    static_cast<std::int64_t>(order.size());
  Order back = unchanged(more);
  for (const std::int64_t axis : inverse(order)) back.push_back(axis + more);
  return out.reshape(out.permute(product, back), whole);
}

// A product below views that add and drop axes of size 1 and a number that it is multiplied by.
struct ScaledProduct {
  Node product;
  double factor;
};
std::optional<ScaledProduct> scaled_product(const Graph& g, NodeId id) {
  double factor = 1;
  const auto of_tokens = [](const Shape& shape) {
    return shape.back() == kPairAxis && shape[shape.size() - 2] == kPairAxis;
  };
  for (int depth = 0; depth < kMostCarried; ++depth) {
    const Node& node = g[id];
    if (node.op == Op::matmul)
      return of_tokens(node.type.shape) ? std::optional(ScaledProduct{node, factor}) : std::nullopt;
    if (const auto times = match_scalar(g, id, Op::mul)) {
      factor *= times->scalar;
      id = times->x;
    } else if (const auto by = match_scalar(g, id, Op::div)) {
      factor /= by->scalar;
      id = by->x;
    } else if (node.op == Op::reshape &&
               solid(node.type.shape) == solid(g.type(node.inputs[0]).shape)) {
      id = node.inputs[0];
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// q1 k1^T + q2 k2^T is [q1, q2] [k1, k2]^T, the features of one after those of the other.
Result sum_of_products(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::add && node.op != Op::sub) return {};
  const Shape shape = node.type.shape;
  if (solid(shape).size() < 2 || shape.size() < 2 || shape.back() != kPairAxis ||
      shape[shape.size() - 2] != kPairAxis)
    return {};
  std::vector<NodeId> left, right;
  std::vector<bool> one_head;
  for (const std::size_t side : {0u, 1u}) {
    if (g.type(node.inputs[side]) != node.type) return {};
    const auto found = scaled_product(g, node.inputs[side]);
    if (!found || !std::isfinite(found->factor)) return {};
    const double factor = side == 1 && node.op == Op::sub ? -found->factor : found->factor;
    const Shape stack(found->product.type.shape.begin(), found->product.type.shape.end() - 2);
    // An operand with all heads of the sum, or with one for all.
    const auto with_heads = [&](NodeId x, bool one) {
      Shape own = out.type(x).shape, wanted(shape.begin(), shape.end() - 2);
      Shape wide = stack;
      if (one)
        std::ranges::fill(wanted, Dim(1));
      else {
        wide.insert(wide.end(), own.end() - 2, own.end());
        x = out.expand(x, wide);
      }
      wanted.insert(wanted.end(), own.end() - 2, own.end());
      return out.reshape(x, wanted);
    };
    NodeId q = found->product.inputs[0];
    if (factor != 1) q = out.binary(Op::mul, q, out.scalar(node.type.dtype, factor));
    left.push_back(with_heads(q, false));
    const NodeId k = found->product.inputs[1];
    const Shape& heads = g.type(k).shape;
    one_head.push_back(product(Shape(heads.begin(), heads.end() - 2)) == Dim(1));
    right.push_back(with_heads(k, one_head.back()));
  }
  for (const std::size_t side : {0u, 1u}) {
    if (one_head[0] == one_head[1] || !one_head[side]) continue;
    Shape wide = shape;
    const Shape& own = out.type(right[side]).shape;
    std::copy(own.end() - 2, own.end(), wide.end() - 2);
    right[side] = out.expand(right[side], wide);
  }
  const std::int64_t rank = std::ssize(shape);
  return out.matmul(out.concat(left, rank - 1), out.concat(right, rank - 2));
}

// A view that takes tokens and heads apart, of what was computed while they were one axis: it is
// computed apart.
Result split_first(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::reshape) return {};
  const Node whole = g[node.inputs[0]];
  if (std::ranges::none_of(whole.type.shape, mixes_tokens)) return {};
  const OpInfo& op = info(whole.op);
  const bool by_rows = op.rule == ShapeRule::linear || op.rule == ShapeRule::norm;
  if (op.over != Over::each && !by_rows) return {};
  const auto apart = refined(whole.type.shape, node.type.shape);
  if (!apart || std::ranges::any_of(apart->all(), mixes_tokens)) return {};
  std::vector<NodeId> inputs;
  for (const NodeId input : whole.inputs) {
    const Shape shape = g.type(input).shape;
    if (by_rows && !inputs.empty()) {  // a weight
      inputs.push_back(input);
      continue;
    }
    const std::size_t missing = whole.type.shape.size() - shape.size();
    Shape sizes;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const Shape& part = apart->parts[missing + i];
      if (by_rows && i + 1 == shape.size())
        sizes.push_back(shape[i]);
      else if (shape[i] == whole.type.shape[missing + i])
        sizes.insert(sizes.end(), part.begin(), part.end());
      else
        sizes.insert(sizes.end(), part.size(), Dim(1));
    }
    inputs.push_back(out.reshape(input, sizes));
  }
  return out.reshape(out.add(whole.op, inputs, whole.attrs), node.type.shape);
}

// A permute that moves axes of size 1 only.
Result reshape_units(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::permute) return {};
  const Shape& from = g.type(node.inputs[0]).shape;
  std::int64_t before = -1;  // the last axis that is longer than 1
  for (const std::int64_t axis : node.integers("axes")) {
    if (from[static_cast<std::size_t>(axis)] == Dim(1)) continue;
    if (axis < before) return {};
    before = axis;
  }
  return out.reshape(node.inputs[0], node.type.shape);
}

}  // namespace

std::vector<Rule> layout_rules() {
  return {reshape_units, carried_down,  rows_apart,      split_first,
          keys_last,     weights_first, sum_of_products, heads_of_weights};
}

}  // namespace ac
