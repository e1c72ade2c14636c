// Spelled-out norms, RoPE, activations and projections become one op each. A spelling that no rule
// knows stays as it is: slower to run, and just as right.
#include <cmath>

#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

using Result = std::optional<NodeId>;

bool near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

// The node below reshapes that only add or drop axes of size 1. Where those axes were is forgotten:
// who asks compares the shapes at both ends.
NodeId without_unit_axes(const Graph& g, NodeId id) {
  while (g[id].op == Op::reshape && solid(g.type(id).shape) == solid(g.type(g[id].inputs[0]).shape))
    id = g[id].inputs[0];
  return id;
}

// ---- projections ----

Result matmul_to_linear(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::matmul) return {};
  const NodeId b = node.inputs[1];
  if (uses_tokens(g.type(b)) || g.type(b).shape.size() != 2) return {};
  return out.linear(node.inputs[0], out.permute(b, {1, 0}));
}

Result attach_bias(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::add) return {};
  for (const int side : {0, 1}) {
    const NodeId x = node.inputs[static_cast<std::size_t>(side)];
    const NodeId bias = node.inputs[static_cast<std::size_t>(1 - side)];
    const Node* linear = match(g, x, Op::linear);
    if (!linear || linear->inputs.size() != 2) continue;
    if (uses_tokens(g.type(bias)) || g.type(bias).shape != Shape{g.type(x).shape.back()}) continue;
    return out.linear(linear->inputs[0], linear->inputs[1], bias);
  }
  return {};
}

// ---- RMSNorm ----

bool is_square_of(const Graph& g, NodeId id, NodeId x) {
  if (const auto power = match_scalar(g, id, Op::pow)) return power->x == x && power->scalar == 2;
  const Node* product = match(g, id, Op::mul);
  return product && product->inputs[0] == x && product->inputs[1] == x;
}

// eps, if id is f(mean(x^2 over the last axis) + eps).
std::optional<double> match_root_mean_square(const Graph& g, NodeId id, Op root, NodeId x) {
  id = without_unit_axes(g, id);
  if (root == Op::rsqrt && g[id].op == Op::reciprocal)
    return match_root_mean_square(g, g[id].inputs[0], Op::sqrt, x);
  if (g[id].op != root) return std::nullopt;
  const auto sum = match_scalar(g, g[id].inputs[0], Op::add);
  if (!sum) return std::nullopt;
  const Node* mean = match(g, without_unit_axes(g, sum->x), Op::mean);
  const auto last = static_cast<std::int64_t>(g.type(x).shape.size()) - 1;
  if (!mean || mean->integers("axes") != std::vector<std::int64_t>{last}) return std::nullopt;
  if (!is_square_of(g, mean->inputs[0], x)) return std::nullopt;
  return sum->scalar;
}

Attrs norm_attrs(double eps, double weight_offset) {
  return {{"eps", eps}, {"weight_offset", weight_offset}};
}

Result rms_norm(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::mul && node.op != Op::div) return {};
  for (const int side : {0, 1}) {
    if (node.op == Op::div && side == 1) break;
    const NodeId x = node.inputs[static_cast<std::size_t>(side)];
    const NodeId other = node.inputs[static_cast<std::size_t>(1 - side)];
    // One number a row, which is broadcast along the features and along nothing else.
    Shape one_a_row = g.type(x).shape;
    if (one_a_row.empty() || node.type.shape != one_a_row) continue;
    one_a_row.back() = 1;
    if (g.type(other).shape != one_a_row) continue;
    const auto eps = match_root_mean_square(g, other, node.op == Op::mul ? Op::rsqrt : Op::sqrt, x);
    if (eps && *eps >= 0) return out.add(Op::rms_norm, {x}, norm_attrs(*eps, 0));
  }
  return {};
}

Result attach_norm_weight(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::mul) return {};
  for (const int side : {0, 1}) {
    const Node* norm = match(g, node.inputs[static_cast<std::size_t>(side)], Op::rms_norm);
    NodeId weight = node.inputs[static_cast<std::size_t>(1 - side)];
    if (!norm || norm->inputs.size() != 1 || norm->type.shape != node.type.shape) continue;
    if (node.type.shape.empty() || g.type(weight).shape != Shape{node.type.shape.back()}) continue;
    double offset = 0;
    if (const auto shifted = match_scalar(g, weight, Op::add)) {
      weight = shifted->x;
      offset = shifted->scalar;
    }
    return out.add(Op::rms_norm, {norm->inputs[0], weight},
                   norm_attrs(norm->number("eps"), offset));
  }
  return {};
}

// The norms compute in float32 and round once: casts around them say nothing more.
Result absorb_norm_casts(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::cast || !is_float(node.type.dtype)) return {};
  const Node norm = g[node.inputs[0]];
  if (info(norm.op).rule != ShapeRule::norm || norm.type.dtype != DType::f32) return {};
  std::vector<NodeId> inputs;
  for (const NodeId input : norm.inputs) {
    const Node* cast = match(g, input, Op::cast);
    if (!cast || g.type(cast->inputs[0]).dtype != node.type.dtype) return {};
    inputs.push_back(cast->inputs[0]);
  }
  return out.add(norm.op, inputs, norm.attrs);
}

// ---- activations ----

Result silu(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::mul) return {};
  for (const int side : {0, 1}) {
    const NodeId x = node.inputs[static_cast<std::size_t>(side)];
    const Node* gate = match(g, node.inputs[static_cast<std::size_t>(1 - side)], Op::sigmoid);
    if (gate && gate->inputs[0] == x) return out.unary(Op::silu, x);
  }
  return {};
}

// sqrt(2 / pi) * (x + 0.044715 * x^3)
bool is_gelu_argument(const Graph& g, NodeId id, NodeId x) {
  const auto scaled = match_scalar(g, id, Op::mul);
  if (!scaled || !near(scaled->scalar, std::sqrt(2 / M_PI))) return false;
  const Node* sum = match(g, scaled->x, Op::add);
  if (!sum || sum->inputs[0] != x) return false;
  const auto cubic = match_scalar(g, sum->inputs[1], Op::mul);
  if (!cubic || !near(cubic->scalar, 0.044715)) return false;
  const auto power = match_scalar(g, cubic->x, Op::pow);
  return power && power->x == x && power->scalar == 3;
}

// x / sqrt(2)
bool is_erf_argument(const Graph& g, NodeId id, NodeId x) {
  if (const auto divided = match_scalar(g, id, Op::div))
    return divided->x == x && near(divided->scalar, std::sqrt(2));
  const auto scaled = match_scalar(g, id, Op::mul);
  return scaled && scaled->x == x && near(scaled->scalar, std::sqrt(0.5));
}

// (x * 0.5) * (1 + tanh(...)) or with erf
Result gelu(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::mul) return {};
  for (const int side : {0, 1}) {
    const auto half = match_scalar(g, node.inputs[static_cast<std::size_t>(side)], Op::mul);
    const auto shifted = match_scalar(g, node.inputs[static_cast<std::size_t>(1 - side)], Op::add);
    if (!half || half->scalar != 0.5 || !shifted || shifted->scalar != 1) continue;
    const Node& inner = g[shifted->x];
    if (inner.op == Op::tanh && is_gelu_argument(g, inner.inputs[0], half->x))
      return out.gelu(half->x, true);
    if (inner.op == Op::erf && is_erf_argument(g, inner.inputs[0], half->x))
      return out.gelu(half->x, false);
  }
  return {};
}

// ---- RoPE ----

// The number n of features, if the shape is [S, 1, ..., 1, n]: then the last axis, and no other,
// says which frequency an element belongs to. [S] is one feature.
std::optional<std::size_t> features(const Shape& shape) {
  if (shape.empty() || shape[0] != Dim(Symbol::S)) return std::nullopt;
  if (shape.size() == 1) return 1;
  for (std::size_t i = 1; i + 1 < shape.size(); ++i)
    if (shape[i] != Dim(1)) return std::nullopt;
  if (!shape.back().is_constant() || shape.back().constant() < 1) return std::nullopt;
  return static_cast<std::size_t>(shape.back().constant());
}

// A tensor of such a shape whose feature i is position * factors[i].
struct Angles {
  NodeId positions;
  std::vector<double> factors;
};

constexpr int kDeepestWave = 64;  // ops between positions and a wave; more than anybody writes

// Follows a view or an expansion of such a tensor; n features stay n, or one becomes n.
template <class Match, class Factors>
auto through_view(const Graph& g, const Node& node, Match match_inner, Factors factors_of)
    -> decltype(match_inner(NodeId{})) {
  const auto from = features(g.type(node.inputs[0]).shape), to = features(node.type.shape);
  if (!from || !to || (*from != *to && (node.op != Op::expand || *from != 1))) return std::nullopt;
  auto inner = match_inner(node.inputs[0]);
  if (!inner) return std::nullopt;
  std::vector<double>& factors = factors_of(*inner);
  if (factors.size() == 1) factors.resize(*to, factors[0]);
  return inner;
}

bool joins_features(const Node& node) {
  return node.type.shape.size() >= 2 &&
         node.integer("axis") == static_cast<std::int64_t>(node.type.shape.size()) - 1;
}

std::optional<Angles> match_angles(const Graph& g, NodeId id, int depth) {
  const Node& node = g[id];
  const auto count = features(node.type.shape);
  if (!count || depth > kDeepestWave) return std::nullopt;
  const auto inner = [&](NodeId input) { return match_angles(g, input, depth + 1); };
  switch (node.op) {
    case Op::positions:
      return Angles{id, {1}};
    case Op::cast: {
      // Angles are wide numbers: only casts that lose nothing of them are looked through.
      const DType from = g.type(node.inputs[0]).dtype, to = node.type.dtype;
      const bool exact =
          is_float(from) ? to == DType::f32 : static_cast<double>(g.limit.tokens) <= most_exact(to);
      return exact ? inner(node.inputs[0]) : std::nullopt;
    }
    case Op::expand:
    case Op::reshape:
      return through_view(g, node, inner, [](Angles& angles) -> auto& { return angles.factors; });
    case Op::mul:
    case Op::div: {
      if (!is_float(node.type.dtype)) return std::nullopt;
      for (const int side : {0, 1}) {
        if (node.op == Op::div && side == 1) break;
        const NodeId other = node.inputs[static_cast<std::size_t>(1 - side)];
        const NodeId varying = node.inputs[static_cast<std::size_t>(side)];
        const Node* constant = match(g, other, Op::constant);
        if (!constant) continue;
        // Broadcasting must leave the tokens first, and the constant one number a feature.
        const Shape &shape = g.type(varying).shape, &factor = constant->type.shape;
        const bool fits = shape.size() == node.type.shape.size() &&
                          (constant->data().size() == 1 ||
                           (!factor.empty() && factor.back() == node.type.shape.back() &&
                            shape.size() >= 2 && solid(factor) == Shape{factor.back()}));
        if (!fits) continue;
        auto angles = inner(varying);
        if (!angles) continue;
        const std::vector<double>& data = constant->data();
        if (angles->factors.size() == 1) angles->factors.resize(*count, angles->factors[0]);
        if (angles->factors.size() != *count || (data.size() != 1 && data.size() != *count))
          return std::nullopt;
        for (std::size_t i = 0; i < *count; ++i) {
          const double item = data[data.size() == 1 ? 0 : i];
          angles->factors[i] =
              node.op == Op::mul ? angles->factors[i] * item : angles->factors[i] / item;
        }
        return angles;
      }
      return std::nullopt;
    }
    case Op::concat: {
      if (!joins_features(node)) return std::nullopt;
      std::optional<Angles> all;
      for (const NodeId input : node.inputs) {
        const auto part = inner(input);
        if (!part || (all && part->positions != all->positions)) return std::nullopt;
        if (!all)
          all = part;
        else
          all->factors.insert(all->factors.end(), part->factors.begin(), part->factors.end());
      }
      return all;
    }
    default:
      return std::nullopt;
  }
}

// scale * cos or sin of angles.
struct Waves {
  Op function;
  Angles angles;
  double scale;
};

std::optional<Waves> match_waves(const Graph& g, NodeId id, int depth = 0) {
  const Node& node = g[id];
  if (!features(node.type.shape) || depth > kDeepestWave) return std::nullopt;
  const auto inner = [&](NodeId input) { return match_waves(g, input, depth + 1); };
  switch (node.op) {
    case Op::cos:
    case Op::sin: {
      auto angles = match_angles(g, node.inputs[0], depth + 1);
      return angles ? std::optional(Waves{node.op, *angles, 1}) : std::nullopt;
    }
    case Op::cast:  // waves are at most 1, so that floats of any size hold them well
      if (!is_float(node.type.dtype)) return std::nullopt;
      return inner(node.inputs[0]);
    case Op::expand:
    case Op::reshape:
      return through_view(g, node, inner,
                          [](Waves& waves) -> auto& { return waves.angles.factors; });
    case Op::mul: {
      const auto scaled = match_scalar(g, id, Op::mul);
      auto waves = scaled ? inner(scaled->x) : std::nullopt;
      if (waves) waves->scale *= scaled->scalar;
      return waves;
    }
    case Op::concat: {
      if (!joins_features(node)) return std::nullopt;
      std::optional<Waves> all;
      for (const NodeId input : node.inputs) {
        const auto part = inner(input);
        if (!part) return std::nullopt;
        if (!all) {
          all = part;
          continue;
        }
        if (part->function != all->function || part->scale != all->scale ||
            part->angles.positions != all->angles.positions)
          return std::nullopt;
        all->angles.factors.insert(all->angles.factors.end(), part->angles.factors.begin(),
                                   part->angles.factors.end());
      }
      return all;
    }
    default:
      return std::nullopt;
  }
}

bool is_slice_of(const Graph& g, NodeId id, NodeId x, std::int64_t start, std::int64_t end) {
  const Node* slice = match(g, id, Op::slice);
  return slice && slice->inputs[0] == x && slice->integer("step") == 1 &&
         slice->integer("axis") == static_cast<std::int64_t>(g.type(x).shape.size()) - 1 &&
         slice->dim("start") == Dim(start) && slice->dim("end") == Dim(end);
}

// [-x2, x1] of x = [x1, x2]
bool is_rotated_half(const Graph& g, NodeId id, NodeId x) {
  const Node* joined = match(g, id, Op::concat);
  if (!joined || joined->inputs.size() != 2 || !g.type(x).shape.back().is_constant()) return false;
  const std::int64_t size = g.type(x).shape.back().constant();
  const Node* negated = match(g, joined->inputs[0], Op::neg);
  return negated &&
         joined->integer("axis") == static_cast<std::int64_t>(joined->type.shape.size()) - 1 &&
         is_slice_of(g, negated->inputs[0], x, size / 2, size) &&
         is_slice_of(g, joined->inputs[1], x, 0, size / 2);
}

// x * cos + rotate_half(x) * sin, where both halves turn by the same angles.
Result rope(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::add) return {};
  const Node *straight = match(g, node.inputs[0], Op::mul),
             *turned = match(g, node.inputs[1], Op::mul);
  if (!straight || !turned) return {};
  const NodeId x = straight->inputs[0];
  // The waves are broadcast over heads only if their axes are those of x.
  const std::size_t rank = node.type.shape.size();
  if (rank < 2 || g.type(x) != node.type || turned->type != node.type ||
      g.type(straight->inputs[1]).shape.size() != rank ||
      g.type(turned->inputs[1]).shape.size() != rank)
    return {};
  if (!is_rotated_half(g, turned->inputs[0], x)) return {};
  const auto cosine = match_waves(g, straight->inputs[1]);
  const auto sine = match_waves(g, turned->inputs[1]);
  if (!cosine || !sine || cosine->function != Op::cos || sine->function != Op::sin) return {};
  const std::vector<double>& factors = cosine->angles.factors;
  if (factors.size() % 2 != 0) return {};
  const std::size_t half = factors.size() / 2;
  const bool fits = factors == sine->angles.factors && cosine->scale == sine->scale &&
                    cosine->angles.positions == sine->angles.positions &&
                    Dim(static_cast<std::int64_t>(factors.size())) == node.type.shape.back() &&
                    std::equal(factors.begin(), factors.begin() + static_cast<long>(half),
                               factors.begin() + static_cast<long>(half), factors.end());
  if (!fits) return {};
  const NodeId inv_freq =
      out.constant(DType::f32, {static_cast<std::int64_t>(half)},
                   {factors.begin(), factors.begin() + static_cast<long>(half)});
  return out.rope(x, cosine->angles.positions, inv_freq, cosine->scale, false);
}

// concat(rope(x[:r]), x[r:]) rotates a part of the features.
Result partial_rope(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::concat || node.inputs.size() != 2 || !joins_features(node)) return {};
  const Node* turned = match(g, node.inputs[0], Op::rope);
  const Node* rest = match(g, node.inputs[1], Op::slice);
  if (!turned || !rest) return {};
  const NodeId x = rest->inputs[0];
  const Dim part = turned->type.shape.back(), whole = g.type(x).shape.back();
  if (!part.is_constant() || !whole.is_constant() || g.type(x) != node.type) return {};
  if (!is_slice_of(g, turned->inputs[0], x, 0, part.constant()) ||
      !is_slice_of(g, node.inputs[1], x, part.constant(), whole.constant()))
    return {};
  return out.rope(x, turned->inputs[1], turned->inputs[2], turned->number("scale"),
                  turned->flag("interleaved"));
}

// ---- grouped heads ----

// The key or value heads before each was repeated for a group of query heads.
Result unrepeated(Builder& out, const Graph& g, NodeId id) {
  const Shape heads = g.type(id).shape;  // [S, heads, d]
  if (heads.size() != 3) return {};
  if (g[id].op == Op::reshape) id = g[id].inputs[0];
  const Node* expand = match(g, id, Op::expand);
  if (!expand) return {};
  const NodeId narrow = expand->inputs[0];
  const Shape from = g.type(narrow).shape, to = expand->type.shape;
  const std::size_t rank = to.size();
  // The repeated axis must be the one just before the features, and the only one expanded.
  if (from.size() != rank || rank < 3 || to[0] != heads[0] || from.back() != heads.back())
    return {};
  for (std::size_t i = 0; i < rank; ++i)
    if ((from[i] != to[i]) != (i == rank - 2)) return {};
  if (from[rank - 2] != Dim(1)) return {};
  return out.reshape(narrow,
                     {heads[0], product(Shape(from.begin() + 1, from.end() - 1)), heads.back()});
}

Result group_heads(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::attention) return {};
  const Result k = unrepeated(out, g, node.inputs[1]), v = unrepeated(out, g, node.inputs[2]);
  if (!k || !v || g.type(*k).shape[1] != g.type(*v).shape[1]) return {};
  return out.add(Op::attention, {node.inputs[0], *k, *v}, node.attrs);
}

}  // namespace

std::vector<Rule> recognition_rules() {
  return {matmul_to_linear,  attach_bias, rms_norm, attach_norm_weight,
          absorb_norm_casts, silu,        gelu,     rope,
          partial_rope,      group_heads};
}

}  // namespace ac
