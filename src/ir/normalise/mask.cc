#include "ir/normalise/mask.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

#include "ir/normalise/match.h"

namespace ac {
namespace {

// Coordinates beyond this are not real lengths; keeps the arithmetic below from overflowing.
constexpr std::int64_t kLimit = std::int64_t{1} << 40;

// sum of coefficient * coordinate over the axes, plus a constant.
struct Affine {
  std::vector<std::int64_t> coefficients;  // one an axis
  std::int64_t constant = 0;
};

// A Band between two named axes; row < column, both -1 when uniform.
struct AxisBand {
  int row = -1, column = -1;
  Band band;
};

// What is known of one tensor; a uniform integer is both.
struct Fact {
  std::optional<Affine> affine;
  std::optional<AxisBand> band;
  bool known() const { return affine || band; }
};

bool same_value(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

Fact uniform(double value, std::size_t rank) {
  Fact fact{{}, AxisBand{-1, -1, {{}, {}, value, value}}};
  if (value == std::trunc(value) && std::fabs(value) < static_cast<double>(kLimit))
    fact.affine = Affine{std::vector<std::int64_t>(rank, 0), static_cast<std::int64_t>(value)};
  return fact;
}

class Prover {
 public:
  explicit Prover(const Graph& graph) : graph_(graph) {}

  Fact fact(NodeId id) {
    if (const auto found = facts_.find(id); found != facts_.end()) return found->second;
    return facts_[id] = derive(graph_[id]);
  }

 private:
  std::size_t rank(NodeId id) const { return graph_.type(id).shape.size(); }

  // Renames the axes of a fact; axis i becomes to[i], or disappears (-1: its coordinate is 0).
  static Fact rename(const Fact& fact, const std::vector<int>& to, std::size_t new_rank) {
    Fact result;
    if (fact.affine) {
      Affine affine{std::vector<std::int64_t>(new_rank, 0), fact.affine->constant};
      for (std::size_t i = 0; i < to.size(); ++i)
        if (to[i] >= 0)
          affine.coefficients[static_cast<std::size_t>(to[i])] += fact.affine->coefficients[i];
      result.affine = std::move(affine);
    }
    if (fact.band) {
      AxisBand band = *fact.band;
      if (!band.band.uniform()) {
        band.row = to[static_cast<std::size_t>(band.row)];
        band.column = to[static_cast<std::size_t>(band.column)];
        if (band.row < 0 || band.column < 0) return result;
        if (band.row > band.column) {  // row - column changes its sign
          std::swap(band.row, band.column);
          std::swap(band.band.low, band.band.high);
          if (band.band.low) band.band.low = -*band.band.low;
          if (band.band.high) band.band.high = -*band.band.high;
        }
      }
      result.band = band;
    }
    return result;
  }

  Fact reshape(const Node& node) {
    const Fact inner = fact(node.inputs[0]);
    const Shape &from = graph_.type(node.inputs[0]).shape, &into = node.type.shape;
    if (inner.band && inner.band->band.uniform())
      return uniform(inner.band->band.inside, into.size());
    std::vector<int> to(from.size(), -1);
    std::size_t next = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i] == Dim(1)) continue;
      while (next < into.size() && into[next] == Dim(1)) ++next;
      if (next == into.size() || into[next] != from[i]) return {};
      to[i] = static_cast<int>(next++);
    }
    return rename(inner, to, into.size());
  }

  Fact expand(const Node& node) {
    const std::size_t own = rank(node.inputs[0]), wanted = node.type.shape.size();
    std::vector<int> to;
    for (std::size_t i = 0; i < own; ++i) to.push_back(static_cast<int>(wanted - own + i));
    return rename(fact(node.inputs[0]), to, wanted);
  }

  Fact permute(const Node& node) {
    const auto& axes = node.integers("axes");
    std::vector<int> to(axes.size());
    for (std::size_t i = 0; i < axes.size(); ++i)
      to[static_cast<std::size_t>(axes[i])] = static_cast<int>(i);
    return rename(fact(node.inputs[0]), to, axes.size());
  }

  Fact slice(const Node& node) {
    const bool from_start = node.dim("start") == Dim(0) && node.integer("step") == 1;
    return from_start ? fact(node.inputs[0]) : Fact{};
  }

  // low <= x[row] - x[column] + constant, as a mask.
  static Fact at_least(const Affine& difference, std::int64_t low) {
    AxisBand result{-1, -1, {{}, {}, 1, 0}};
    int plus = -1, minus = -1;
    for (std::size_t i = 0; i < difference.coefficients.size(); ++i) {
      const std::int64_t c = difference.coefficients[i];
      if (c == 0) continue;
      if (c == 1 && plus < 0)
        plus = static_cast<int>(i);
      else if (c == -1 && minus < 0)
        minus = static_cast<int>(i);
      else
        return {};
    }
    const std::int64_t bound = low - difference.constant;
    if (plus < 0 && minus < 0) return uniform(bound <= 0, difference.coefficients.size());
    // A coordinate is never negative.
    if (minus < 0) return bound <= 0 ? uniform(1, difference.coefficients.size()) : Fact{};
    if (plus < 0) return {};
    result.row = std::min(plus, minus);
    result.column = std::max(plus, minus);
    if (plus < minus)
      result.band.low = bound;
    else
      result.band.high = -bound;
    return {{}, result};
  }

  static std::optional<Affine> combine(const Fact& a, const Fact& b, std::int64_t sign,
                                       std::size_t rank) {
    if (!a.affine || !b.affine) return std::nullopt;
    Affine sum{std::vector<std::int64_t>(rank, 0), a.affine->constant + sign * b.affine->constant};
    const auto add = [&](const Affine& part, std::int64_t factor) {
      const std::size_t shift = rank - part.coefficients.size();
      for (std::size_t i = 0; i < part.coefficients.size(); ++i)
        sum.coefficients[shift + i] += factor * part.coefficients[i];
    };
    add(*a.affine, 1);
    add(*b.affine, sign);
    if (std::abs(sum.constant) > kLimit) return std::nullopt;
    for (const std::int64_t c : sum.coefficients)
      if (std::abs(c) > kLimit) return std::nullopt;
    return sum;
  }

  Fact compare(const Node& node, const Fact& a, const Fact& b) {
    const std::size_t r = node.type.shape.size();
    const auto a_minus_b = combine(a, b, -1, r), b_minus_a = combine(b, a, -1, r);
    if (!a_minus_b) return {};
    switch (node.op) {
      case Op::greater:
        return at_least(*a_minus_b, 1);
      case Op::greater_equal:
        return at_least(*a_minus_b, 0);
      case Op::less:
        return at_least(*b_minus_a, 1);
      case Op::less_equal:
        return at_least(*b_minus_a, 0);
      default:
        return {};
    }
  }

  // A function of two masks is a mask when only "both inside" differs from the rest, perhaps after
  // exchanging the inside and outside of either.
  static Fact merge(const AxisBand& a, const AxisBand& b,
                    const std::function<double(double, double)>& f) {
    if (a.band.uniform() || b.band.uniform()) {
      AxisBand result = a.band.uniform() ? b : a;
      result.band.inside = f(a.band.inside, b.band.inside);
      result.band.outside = f(a.band.outside, b.band.outside);
      if (same_value(result.band.inside, result.band.outside))
        result = {-1, -1, {{}, {}, result.band.inside, result.band.inside}};
      return {{}, result};
    }
    if (a.row != b.row || a.column != b.column) return {};
    for (const auto& left : {std::optional(a.band), complement(a.band)})
      for (const auto& right : {std::optional(b.band), complement(b.band)}) {
        if (!left || !right) continue;
        const double rest = f(left->outside, right->outside);
        if (same_value(f(left->inside, right->outside), rest) &&
            same_value(f(left->outside, right->inside), rest))
          return {{},
                  AxisBand{a.row, a.column,
                           intersect(*left, *right, f(left->inside, right->inside), rest)}};
      }
    return {};
  }

  Fact elementwise(const Node& node) {
    const std::size_t r = node.type.shape.size();
    std::vector<Fact> in;
    for (const NodeId input : node.inputs) {
      // Align to the axes of the result, as broadcasting does.
      std::vector<int> to;
      for (std::size_t i = 0; i < rank(input); ++i)
        to.push_back(static_cast<int>(r - rank(input) + i));
      in.push_back(rename(fact(input), to, r));
      if (!in.back().known()) return {};
    }
    const ShapeRule rule = info(node.op).rule;
    if (rule == ShapeRule::compare)
      if (const Fact result = compare(node, in[0], in[1]); result.known()) return result;
    if (node.op == Op::add || node.op == Op::sub)
      if (auto affine = combine(in[0], in[1], node.op == Op::add ? 1 : -1, r))
        if (!in[0].band || !in[1].band) return {std::move(affine), {}};
    for (const Fact& input : in)
      if (!input.band) return {};
    if (node.inputs.size() == 1) {
      const double sign = node.op == Op::neg ? -1 : 1;
      AxisBand result = *in[0].band;
      for (double* value : {&result.band.inside, &result.band.outside})
        *value = node.op == Op::logical_not ? *value == 0 : sign * *value;
      return {{}, result};
    }
    if (node.op == Op::where) {
      // Two of the three are merged at a time; one branch must be uniform for that to be exact.
      const auto &condition = *in[0].band, &yes = *in[1].band, &no = *in[2].band;
      if (no.band.uniform())
        return merge(condition, yes,
                     [&](double c, double v) { return c != 0 ? v : no.band.inside; });
      if (yes.band.uniform())
        return merge(condition, no,
                     [&](double c, double v) { return c != 0 ? yes.band.inside : v; });
      return {};
    }
    return merge(*in[0].band, *in[1].band, [&](double a, double b) -> double {
      switch (node.op) {
        case Op::add:
          return a + b;
        case Op::sub:
          return a - b;
        case Op::mul:
          return a * b;
        case Op::div:
          return a / b;
        case Op::minimum:
          return std::fmin(a, b);
        case Op::maximum:
          return std::fmax(a, b);
        case Op::logical_and:
          return a != 0 && b != 0;
        case Op::logical_or:
          return a != 0 || b != 0;
        case Op::equal:
          return a == b;
        case Op::not_equal:
          return a != b;
        case Op::less:
          return a < b;
        case Op::less_equal:
          return a <= b;
        case Op::greater:
          return a > b;
        case Op::greater_equal:
          return a >= b;
        default:
          return NAN;
      }
    });
  }

  Fact triangle(const Node& node) {
    const Fact inner = fact(node.inputs[0]);
    if (!inner.band) return {};
    const int r = static_cast<int>(node.type.shape.size());
    const std::int64_t diagonal = node.integer("diagonal");
    if (std::abs(diagonal) > kLimit) return {};
    AxisBand kept{r - 2, r - 1, {{}, {}, 1, 0}};  // column - row <= diagonal, or >= for triu
    (node.op == Op::tril ? kept.band.low : kept.band.high) = -diagonal;
    return merge(kept, *inner.band, [](double keep, double v) { return keep != 0 ? v : 0.0; });
  }

  Fact derive(const Node& node) {
    switch (node.op) {
      case Op::positions:
        return {Affine{{1}, 0}, {}};
      case Op::constant: {
        const auto value = node.data().empty() ? std::nullopt : std::optional(node.data()[0]);
        for (const double item : node.data())
          if (!value || !same_value(item, *value)) return {};
        return value ? uniform(*value, node.type.shape.size()) : Fact{};
      }
      case Op::cast: {
        Fact inner = fact(node.inputs[0]);
        if (!is_float(node.type.dtype))
          return node.type.dtype == DType::boolean ? truth(inner) : inner;
        return inner;
      }
      case Op::reshape:
        return reshape(node);
      case Op::expand:
        return expand(node);
      case Op::permute:
        return permute(node);
      case Op::slice:
        return slice(node);
      case Op::tril:
      case Op::triu:
        return triangle(node);
      case Op::neg:
      case Op::logical_not:
        return elementwise(node);
      default:
        break;
    }
    switch (info(node.op).rule) {
      case ShapeRule::binary:
      case ShapeRule::compare:
      case ShapeRule::logical:
      case ShapeRule::where:
        return elementwise(node);
      default:
        return {};
    }
  }

  static Fact truth(Fact fact) {
    fact.affine.reset();
    if (fact.band)
      for (double* value : {&fact.band->band.inside, &fact.band->band.outside})
        *value = *value != 0;
    return fact;
  }

  const Graph& graph_;
  std::unordered_map<NodeId, Fact> facts_;
};

}  // namespace

std::optional<Band> prove_band(const Graph& graph, NodeId id) {
  const auto fact = Prover(graph).fact(id);
  if (!fact.band) return std::nullopt;
  const int rank = static_cast<int>(graph.type(id).shape.size());
  const bool last_two = fact.band->row == rank - 2 && fact.band->column == rank - 1;
  if (!fact.band->band.uniform() && !last_two) return std::nullopt;
  return fact.band->band;
}

Band intersect(const Band& a, const Band& b, double inside, double outside) {
  Band result = a;
  if (b.low) result.low = result.low ? std::max(*result.low, *b.low) : *b.low;
  if (b.high) result.high = result.high ? std::min(*result.high, *b.high) : *b.high;
  result.inside = inside;
  result.outside = outside;
  return result;
}

std::optional<Band> complement(const Band& band) {
  if (band.low.has_value() == band.high.has_value()) return std::nullopt;
  Band result{{}, {}, band.outside, band.inside};
  if (band.low)
    result.high = *band.low - 1;
  else
    result.low = *band.high + 1;
  return result;
}

}  // namespace ac
