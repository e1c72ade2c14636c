// Spelled-out norms, RoPE, activations and projections become one op each. A spelling that no rule
// knows stays as it is: slower to run, and just as right.
#include <cmath>

#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

using Result = std::optional<NodeId>;

bool near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

// The node below reshapes that only add or drop axes of size 1.
NodeId without_unit_axes(const Graph& g, NodeId id) {
  const auto solid = [&](NodeId node) {
    Shape shape;
    for (const Dim& dim : g.type(node).shape)
      if (dim != Dim(1)) shape.push_back(dim);
    return shape;
  };
  while (g[id].op == Op::reshape && solid(id) == solid(g[id].inputs[0])) id = g[id].inputs[0];
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
    if (!norm || norm->inputs.size() != 1) continue;
    if (g.type(weight).shape != Shape{node.type.shape.back()}) continue;
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
  if (node.op != Op::cast) return {};
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

// A tensor [S, n] whose column i is position * factors[i]; n = 1 for [S].
struct Angles {
  NodeId positions;
  std::vector<double> factors;
};

std::optional<Angles> match_angles(const Graph& g, NodeId id) {
  const Node& node = g[id];
  switch (node.op) {
    case Op::positions:
      return Angles{id, {1}};
    case Op::cast:
    case Op::expand:
      return match_angles(g, node.inputs[0]);
    case Op::reshape: {
      const NodeId inner = without_unit_axes(g, id);
      return inner == id ? std::nullopt : match_angles(g, inner);
    }
    case Op::mul:
    case Op::div: {
      for (const int side : {0, 1}) {
        if (node.op == Op::div && side == 1) break;
        const Node* constant =
            match(g, node.inputs[static_cast<std::size_t>(1 - side)], Op::constant);
        if (!constant) continue;
        auto angles = match_angles(g, node.inputs[static_cast<std::size_t>(side)]);
        if (!angles) continue;
        const std::vector<double>& data = constant->data();
        if (angles->factors.size() == 1) angles->factors.resize(data.size(), angles->factors[0]);
        if (data.size() != 1 && data.size() != angles->factors.size()) return std::nullopt;
        for (std::size_t i = 0; i < angles->factors.size(); ++i) {
          const double item = data[data.size() == 1 ? 0 : i];
          angles->factors[i] =
              node.op == Op::mul ? angles->factors[i] * item : angles->factors[i] / item;
        }
        return angles;
      }
      return std::nullopt;
    }
    case Op::concat: {
      if (node.integer("axis") != static_cast<std::int64_t>(node.type.shape.size()) - 1)
        return std::nullopt;
      std::optional<Angles> all;
      for (const NodeId input : node.inputs) {
        const auto part = match_angles(g, input);
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

std::optional<Waves> match_waves(const Graph& g, NodeId id) {
  const Node& node = g[id];
  switch (node.op) {
    case Op::cos:
    case Op::sin: {
      auto angles = match_angles(g, node.inputs[0]);
      return angles ? std::optional(Waves{node.op, *angles, 1}) : std::nullopt;
    }
    case Op::cast:
    case Op::expand:
      return match_waves(g, node.inputs[0]);
    case Op::reshape: {
      const NodeId inner = without_unit_axes(g, id);
      return inner == id ? std::nullopt : match_waves(g, inner);
    }
    case Op::mul: {
      const auto scaled = match_scalar(g, id, Op::mul);
      auto waves = scaled ? match_waves(g, scaled->x) : std::nullopt;
      if (waves) waves->scale *= scaled->scalar;
      return waves;
    }
    case Op::concat: {
      if (node.integer("axis") != static_cast<std::int64_t>(node.type.shape.size()) - 1)
        return std::nullopt;
      std::optional<Waves> all;
      for (const NodeId input : node.inputs) {
        const auto part = match_waves(g, input);
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
  if (!is_rotated_half(g, turned->inputs[0], x)) return {};
  const auto cosine = match_waves(g, straight->inputs[1]);
  const auto sine = match_waves(g, turned->inputs[1]);
  if (!cosine || !sine || cosine->function != Op::cos || sine->function != Op::sin) return {};
  const std::vector<double>& factors = cosine->angles.factors;
  const std::size_t half = factors.size() / 2;
  const bool fits = factors == sine->angles.factors && cosine->scale == sine->scale &&
                    cosine->angles.positions == sine->angles.positions &&
                    Dim(static_cast<std::int64_t>(factors.size())) == node.type.shape.back() &&
                    std::equal(factors.begin(), factors.begin() + static_cast<long>(half),
                               factors.begin() + static_cast<long>(half), factors.end());
  if (!fits || node.type.shape.size() < 2) return {};
  const NodeId inv_freq =
      out.constant(DType::f32, {static_cast<std::int64_t>(half)},
                   {factors.begin(), factors.begin() + static_cast<long>(half)});
  return out.rope(x, cosine->angles.positions, inv_freq, cosine->scale, false);
}

// concat(rope(x[:r]), x[r:]) rotates a part of the features.
Result partial_rope(Builder& out, const Graph& g, const Node& node) {
  if (node.op != Op::concat || node.inputs.size() != 2) return {};
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
  if (g[id].op == Op::reshape) id = g[id].inputs[0];
  const Node* expand = match(g, id, Op::expand);
  if (!expand) return {};
  const NodeId narrow = expand->inputs[0];
  const Shape from = g.type(narrow).shape, to = expand->type.shape;
  const std::size_t rank = to.size();
  // The repeated axis must be the one just before the features, and the only one expanded.
  if (from.size() != rank || rank < 3 || from.back() != heads.back()) return {};
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
