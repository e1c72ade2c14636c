#include "ir/normalise/mask.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/normalise/numbers.h"

namespace ac {

// What the rules in the table do. Each takes the facts of the inputs, which are there already.
struct FactRules {
  static constexpr std::int64_t kFar = std::int64_t{1} << 40;

  static Fact uniform(double value) { return AxisSteps{-1, -1, Steps::uniform(value)}; }

  static std::optional<double> uniform_value(const Fact& fact) {
    const auto* steps = std::get_if<AxisSteps>(&fact);
    return steps ? steps->steps.uniform_value() : std::nullopt;
  }

  // A uniform whole number is affine as well.
  static std::optional<Affine> as_affine(const Fact& fact, std::size_t rank) {
    if (const auto* affine = std::get_if<Affine>(&fact)) return *affine;
    const auto value = uniform_value(fact);
    if (!value || *value != std::trunc(*value) || !(std::fabs(*value) < 0x1p40))
      return std::nullopt;
    return Affine{std::vector<std::int64_t>(rank, 0), static_cast<std::int64_t>(*value)};
  }

  // c * (one coordinate - another) + constant is a line.
  static std::optional<AxisSteps> as_steps(const Fact& fact) {
    if (const auto* steps = std::get_if<AxisSteps>(&fact)) return *steps;
    const auto* affine = std::get_if<Affine>(&fact);
    if (!affine) return std::nullopt;
    AxisSteps result;
    for (std::size_t i = 0; i < affine->coefficients.size(); ++i) {
      if (affine->coefficients[i] == 0) continue;
      if (result.column >= 0) return std::nullopt;
      (result.row < 0 ? result.row : result.column) = static_cast<int>(i);
    }
    if (result.row >= 0 && result.column < 0) return std::nullopt;
    std::int64_t slope = 0;
    if (result.row >= 0) {
      slope = affine->coefficients[static_cast<std::size_t>(result.row)];
      if (slope != -affine->coefficients[static_cast<std::size_t>(result.column)])
        return std::nullopt;
    }
    result.steps = Steps::line(slope, affine->constant);
    return result;
  }

  // Axis i of the fact becomes to[i]; an axis that disappears (-1) had size 1, so that no fact
  // mentions it.
  static Fact renamed(const Fact& fact, const std::vector<int>& to, std::size_t rank) {
    if (const auto* affine = std::get_if<Affine>(&fact)) {
      Affine result{std::vector<std::int64_t>(rank, 0), affine->constant};
      for (std::size_t i = 0; i < to.size(); ++i)
        if (to[i] >= 0)
          result.coefficients[static_cast<std::size_t>(to[i])] = affine->coefficients[i];
      return result;
    }
    const auto* steps = std::get_if<AxisSteps>(&fact);
    if (!steps || steps->row < 0) return fact;
    AxisSteps result{to[static_cast<std::size_t>(steps->row)],
                     to[static_cast<std::size_t>(steps->column)], steps->steps};
    if (result.row < 0 || result.column < 0) return {};
    if (result.row > result.column) result = {result.column, result.row, result.steps.mirrored()};
    return result;
  }

  // The fact of an input by the axes of the result, to which broadcasting aligns the last ones.
  static Fact aligned(Prover& prover, const Node& node, NodeId input) {
    const std::size_t own = prover.shape(input).size(), wanted = node.type.shape.size();
    std::vector<int> to;
    for (std::size_t i = 0; i < own; ++i) to.push_back(static_cast<int>(wanted - own + i));
    return renamed(prover.fact(input), to, wanted);
  }

  // ---- leaves ----

  static Fact positions(Prover&, const Node&) { return Affine{{1}, 0}; }

  // A number of the model's source is a double here. PyTorch rounds it to float32, or, in half
  // types, to float32 or to the type as the op has it: then only numbers are known that the type
  // has, and those so large that all are alike to a mask.
  static bool round_constant(DType dtype, double& value) {
    constexpr double kHuge = 0x1p25;
    const double rounded = round_to(dtype, value);
    const bool known = !is_float(dtype) || dtype == DType::f32 || std::isnan(value) ||
                       rounded == value || std::fabs(value) >= kHuge;
    value = rounded;
    return known;
  }

  static Fact constant(Prover&, const Node& node) {
    std::vector<double> data = node.data();
    for (double& value : data)
      if (!round_constant(node.type.dtype, value)) return {};
    if (data.empty()) return {};
    const auto equal = [](double a, double b) {
      return a == b || (std::isnan(a) && std::isnan(b));
    };
    if (std::all_of(data.begin(), data.end(), [&](double x) { return equal(x, data[0]); }))
      return uniform(data[0]);
    std::vector<std::int64_t> sizes;
    for (const Dim& size : node.type.shape) sizes.push_back(size.constant());
    std::vector<std::size_t> axes;  // that are larger than 1, and how far apart their entries are
    std::vector<std::int64_t> strides(sizes.size(), 1);
    for (std::size_t i = sizes.size(); i-- > 0;) {
      if (i + 1 < sizes.size()) strides[i] = strides[i + 1] * sizes[i + 1];
      if (sizes[i] > 1) axes.insert(axes.begin(), i);
    }
    if (auto affine = fitted(data, sizes, strides, axes)) return std::move(*affine);
    if (axes.size() != 2) return {};
    const std::int64_t rows = sizes[axes[0]], columns = sizes[axes[1]];
    const auto at = [&](std::int64_t row, std::int64_t column) {
      return data[static_cast<std::size_t>(row * columns + column)];
    };
    for (std::int64_t row = 1; row < rows; ++row)
      for (std::int64_t column = 1; column < columns; ++column)
        if (!equal(at(row, column), at(row - 1, column - 1))) return {};
    Steps steps;
    for (std::int64_t d = 1 - columns; d < rows; ++d) {
      const double value = d < 0 ? at(0, -d) : at(d, 0);
      if (!steps.pieces.empty() && equal(steps.pieces.back().value, value)) continue;
      steps.pieces.push_back({steps.pieces.empty() ? Steps::kFirst : d, 0, value});
      if (steps.pieces.size() > 64) return {};
    }
    return AxisSteps{static_cast<int>(axes[0]), static_cast<int>(axes[1]), std::move(steps)};
  }

  static std::optional<Affine> fitted(const std::vector<double>& data,
                                      const std::vector<std::int64_t>& sizes,
                                      const std::vector<std::int64_t>& strides,
                                      const std::vector<std::size_t>& axes) {
    const auto whole = [](double x) { return x == std::trunc(x) && std::fabs(x) < 0x1p40; };
    if (!whole(data[0])) return std::nullopt;
    Affine affine{std::vector<std::int64_t>(sizes.size(), 0), static_cast<std::int64_t>(data[0])};
    for (const std::size_t axis : axes) {
      const double step = data[static_cast<std::size_t>(strides[axis])] - data[0];
      if (!whole(step)) return std::nullopt;
      affine.coefficients[axis] = static_cast<std::int64_t>(step);
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      double value = data[0];
      for (const std::size_t axis : axes)
        value += static_cast<double>(affine.coefficients[axis] *
                                     (static_cast<std::int64_t>(i) / strides[axis] % sizes[axis]));
      if (value != data[i]) return std::nullopt;
    }
    return affine;
  }

  // ---- views ----

  static Fact reshape(Prover& prover, const Node& node) {
    const Fact& inner = prover.fact(node.inputs[0]);
    if (uniform_value(inner)) return inner;
    const Shape &from = prover.shape(node.inputs[0]), &into = node.type.shape;
    std::vector<int> to(from.size(), -1);
    std::size_t next = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i] == Dim(1)) continue;
      while (next < into.size() && into[next] == Dim(1)) ++next;
      if (next == into.size() || into[next] != from[i]) return {};
      to[i] = static_cast<int>(next++);
    }
    return renamed(inner, to, into.size());
  }

  static Fact expand(Prover& prover, const Node& node) {
    return aligned(prover, node, node.inputs[0]);
  }

  static Fact permute(Prover& prover, const Node& node) {
    const auto& axes = node.integers("axes");
    std::vector<int> to(axes.size());
    for (std::size_t i = 0; i < axes.size(); ++i)
      to[static_cast<std::size_t>(axes[i])] = static_cast<int>(i);
    return renamed(prover.fact(node.inputs[0]), to, axes.size());
  }

  static Fact slice(Prover& prover, const Node& node) {
    Fact fact = prover.fact(node.inputs[0]);
    if (!node.dim("start").is_constant()) return uniform_value(fact) ? fact : Fact{};
    const std::int64_t start = node.dim("start").constant(), step = node.integer("step");
    const auto axis = static_cast<std::size_t>(node.integer("axis"));
    if (start >= kFar || step >= kFar) return {};
    if (auto* affine = std::get_if<Affine>(&fact)) {
      std::int64_t& coefficient = affine->coefficients[axis];
      if (__builtin_mul_overflow(coefficient, start, &affine->constant) ||
          __builtin_mul_overflow(coefficient, step, &coefficient))
        return {};
      const auto* old = std::get_if<Affine>(&prover.fact(node.inputs[0]));
      if (__builtin_add_overflow(affine->constant, old->constant, &affine->constant)) return {};
    }
    if (auto* steps = std::get_if<AxisSteps>(&fact)) {
      const int at = static_cast<int>(axis);
      if (at != steps->row && at != steps->column) return fact;
      if (step != 1 || start > (std::int64_t{1} << 24)) return {};
      steps->steps = steps->steps.shifted(at == steps->row ? start : -start);
    }
    return fact;
  }

  static Fact concat(Prover& prover, const Node& node) {
    const Fact& first = prover.fact(node.inputs[0]);
    const auto value = uniform_value(first);
    if (!value) return {};
    for (const NodeId part : node.inputs)
      if (uniform_value(prover.fact(part)) != value) return {};
    return first;
  }

  // Rows of a table that are named by their coordinates.
  static Fact embedding(Prover& prover, const Node& node) {
    const Fact& table = prover.fact(node.inputs[0]);
    if (uniform_value(table)) return table;
    const std::size_t named = prover.shape(node.inputs[1]).size(), rank = node.type.shape.size();
    const auto row = as_affine(prover.fact(node.inputs[1]), named);
    if (!row || prover.bounds(*row, prover.shape(node.inputs[1])).least < 0) return {};
    std::vector<int> to{-1};  // the axes behind the rows
    for (std::size_t i = named; i < rank; ++i) to.push_back(static_cast<int>(i));
    if (const auto* affine = std::get_if<Affine>(&table)) {
      Affine wide{std::vector<std::int64_t>(rank, 0), row->constant};
      std::copy(row->coefficients.begin(), row->coefficients.end(), wide.coefficients.begin());
      const auto rows = scaled(wide, affine->coefficients[0]);
      const Fact rest = renamed(table, to, rank);
      const auto result = rows ? sum(*rows, 1, std::get<Affine>(rest)) : std::nullopt;
      return result ? Fact{*result} : Fact{};
    }
    const auto* steps = std::get_if<AxisSteps>(&table);
    if (!steps) return {};
    if (steps->row != 0) return renamed(table, to, rank);
    int axis = -1;  // whose coordinate, and no multiple of it, names the row
    for (std::size_t i = 0; i < named; ++i) {
      if (row->coefficients[i] == 0) continue;
      if (axis >= 0 || row->coefficients[i] != 1) return {};
      axis = static_cast<int>(i);
    }
    if (axis < 0 || row->constant > (std::int64_t{1} << 24)) return {};
    return AxisSteps{axis, to[static_cast<std::size_t>(steps->column)],
                     steps->steps.shifted(row->constant)};
  }

  // ---- elementwise ----

  static Fact cast(Prover& prover, const Node& node) {
    const Fact& inner = prover.fact(node.inputs[0]);
    const DType from = prover.graph_.type(node.inputs[0]).dtype, to = node.type.dtype;
    if (std::holds_alternative<Affine>(inner) && to != DType::boolean) return inner;
    const auto steps = as_steps(inner);
    if (!steps) return {};
    auto result = convert_steps(from, to, steps->steps, prover.far(node.type.shape));
    return result ? Fact{AxisSteps{steps->row, steps->column, std::move(*result)}} : Fact{};
  }

  // a + sign * b
  static std::optional<Affine> sum(const Affine& a, std::int64_t sign, const Affine& b) {
    Affine result = a;
    for (std::size_t i = 0; i < a.coefficients.size(); ++i)
      result.coefficients[i] += sign * b.coefficients[i];
    result.constant += sign * b.constant;
    bool small = std::abs(result.constant) < kFar;
    for (const std::int64_t c : result.coefficients) small = small && std::abs(c) < kFar;
    return small ? std::optional(result) : std::nullopt;
  }

  static std::optional<Affine> scaled(const Affine& a, std::int64_t factor) {
    Affine result = a;
    bool fits = !__builtin_mul_overflow(a.constant, factor, &result.constant) &&
                std::abs(result.constant) < kFar;
    for (std::int64_t& c : result.coefficients)
      fits = fits && !__builtin_mul_overflow(c, factor, &c) && std::abs(c) < kFar;
    return fits ? std::optional(result) : std::nullopt;
  }

  // Sums and whole multiples of affine tensors are affine, whatever axes they mention.
  static std::optional<Affine> affine_result(Op op, const std::vector<Fact>& in, std::size_t rank) {
    std::vector<Affine> terms;
    for (const Fact& fact : in) {
      auto affine = as_affine(fact, rank);
      if (!affine) return std::nullopt;
      terms.push_back(std::move(*affine));
    }
    const auto is_uniform = [](const Affine& a) {
      return std::all_of(a.coefficients.begin(), a.coefficients.end(),
                         [](std::int64_t c) { return c == 0; });
    };
    switch (op) {
      case Op::neg:
        return scaled(terms[0], -1);
      case Op::add:
        return sum(terms[0], 1, terms[1]);
      case Op::sub:
        return sum(terms[0], -1, terms[1]);
      case Op::mul:
        if (is_uniform(terms[1])) return scaled(terms[0], terms[1].constant);
        if (is_uniform(terms[0])) return scaled(terms[1], terms[0].constant);
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  // Compares two affine tensors by their difference: exact, as both are.
  static Fact compared(Prover& prover, const Node& node, const std::vector<Fact>& in) {
    const std::size_t rank = node.type.shape.size();
    // A fraction stays on its side.
    std::array<Affine, 2> terms{Affine{std::vector<std::int64_t>(rank, 0), 0},
                                Affine{std::vector<std::int64_t>(rank, 0), 0}};
    std::array<double, 2> rests{0, 0};
    for (std::size_t i = 0; i < 2; ++i) {
      if (const auto affine = as_affine(in[i], rank))
        terms[i] = *affine;
      else if (const auto value = uniform_value(in[i]))
        rests[i] = *value;
      else
        return {};
    }
    if (rests[0] != 0 && rests[1] != 0) return {};
    const auto difference = sum(terms[0], -1, terms[1]);
    if (!difference) return {};
    const double rest = rests[1] - rests[0];  // difference against rest
    if (std::isnan(rest)) return {};
    if (const auto line = as_steps(*difference)) {
      auto result = compute_steps(node.op, DType::f32, {line->steps, Steps::uniform(rest)},
                                  prover.far(node.type.shape));
      if (!result) return {};
      const bool any = !result->uniform_value();
      return AxisSteps{any ? line->row : -1, any ? line->column : -1, std::move(*result)};
    }
    // Its sign may be the same everywhere.
    const Prover::Bounds bounds = prover.bounds(*difference, node.type.shape);
    const auto least = static_cast<double>(bounds.least), most = static_cast<double>(bounds.most);
    if (least > rest) return uniform(*compute(node.op, DType::f32, 1, 0));
    if (most < rest) return uniform(*compute(node.op, DType::f32, 0, 1));
    if (least == rest && (node.op == Op::greater_equal || node.op == Op::less))
      return uniform(node.op == Op::greater_equal);
    if (most == rest && (node.op == Op::less_equal || node.op == Op::greater))
      return uniform(node.op == Op::less_equal);
    return {};
  }

  static Fact elementwise(Prover& prover, const Node& node) {
    std::vector<Fact> in;
    for (const NodeId input : node.inputs) {
      in.push_back(aligned(prover, node, input));
      if (std::holds_alternative<std::monostate>(in.back()) && node.op != Op::where) return {};
    }
    // Of numbers alone it is computed below, in the type's own arithmetic.
    if (std::any_of(in.begin(), in.end(),
                    [](const Fact& fact) { return std::holds_alternative<Affine>(fact); }))
      if (auto affine = affine_result(node.op, in, node.type.shape.size()))
        return std::move(*affine);
    if (node.op == Op::where)
      if (const auto chosen = uniform_value(in[0])) return in[*chosen != 0 ? 1 : 2];
    const ShapeRule rule = info(node.op).rule;
    if (rule == ShapeRule::compare)
      if (Fact result = compared(prover, node, in); result.index() != 0) return result;
    int row = -1, column = -1;
    std::vector<Steps> steps;
    for (const Fact& fact : in) {
      const auto known = as_steps(fact);
      if (!known) return {};
      if (known->row >= 0) {
        if (row >= 0 && (known->row != row || known->column != column)) return {};
        row = known->row;
        column = known->column;
      }
      steps.push_back(known->steps);
    }
    // What the inputs hold decides how they are compared; a branch of `where` has the result's
    // type.
    const DType dtype = prover.graph_.type(node.inputs.back()).dtype;
    auto result = compute_steps(node.op, dtype, steps, prover.far(node.type.shape));
    if (!result) return {};
    return AxisSteps{row, column, std::move(*result)};
  }

  static Fact triangle(Prover& prover, const Node& node) {
    const auto inner = as_steps(prover.fact(node.inputs[0]));
    const std::int64_t diagonal = node.integer("diagonal");
    const Shape& shape = node.type.shape;
    const int rank = static_cast<int>(shape.size());
    const bool square = shape[shape.size() - 2] != Dim(1) && shape.back() != Dim(1);
    if (!inner || !square || diagonal >= kFar || diagonal <= -kFar) return {};
    if (inner->row >= 0 && (inner->row != rank - 2 || inner->column != rank - 1)) return {};
    // column - row <= diagonal is kept by tril, >= by triu; the other side is 0.
    const bool lower = node.op == Op::tril;
    const Steps kept = Steps::from(lower ? -diagonal : 1 - diagonal), zero = Steps::uniform(0);
    auto result = compute_steps(Op::where, node.type.dtype,
                                {kept, lower ? inner->steps : zero, lower ? zero : inner->steps},
                                prover.far(shape));
    return result ? Fact{AxisSteps{rank - 2, rank - 1, std::move(*result)}} : Fact{};
  }
};

std::span<const FactRule> fact_rules() {
  using R = FactRules;
  constexpr std::string_view kNumbers =
      "elements are combined one by one, and those at one distance are equal: numbers are computed "
      "as the type does, lines only while they are exact in it";
  static const std::array rules{
      FactRule{Op::positions, R::positions, "entry i is i"},
      FactRule{Op::constant, R::constant, "every element is compared with the function"},
      FactRule{Op::reshape, R::reshape,
               "only axes of size 1 come and go, so every other coordinate stays what it was"},
      FactRule{Op::expand, R::expand, "an axis that grows had size 1, and no fact mentions it"},
      FactRule{Op::permute, R::permute, "each axis keeps its coordinate under another name"},
      FactRule{Op::slice, R::slice,
               "the coordinate is step * the new one + start, which is put in its place"},
      FactRule{
          Op::embedding, R::embedding,
          "the coordinate of the rows is the index, which is put in its place and wraps nowhere"},
      FactRule{Op::concat, R::concat, "parts that all have one value make a whole that has it"},
      FactRule{Op::cast, R::cast,
               "numbers are converted as the type does; lines stay if they are exact in it"},
      FactRule{Op::tril, R::triangle,
               "what is kept depends on row - column alone, if both axes are longer than 1"},
      FactRule{Op::triu, R::triangle,
               "what is kept depends on row - column alone, if both axes are longer than 1"},
      FactRule{Op::neg, R::elementwise, kNumbers},
      FactRule{Op::abs, R::elementwise, kNumbers},
      FactRule{Op::relu, R::elementwise, kNumbers},
      FactRule{Op::exp, R::elementwise,
               "known where exp is the same everywhere: of 0 and infinity"},
      FactRule{Op::log, R::elementwise,
               "known where log is the same everywhere: of 0, 1, infinity"},
      FactRule{Op::sqrt, R::elementwise, "rounded correctly by IEEE arithmetic"},
      FactRule{Op::reciprocal, R::elementwise, "rounded correctly by IEEE arithmetic"},
      FactRule{Op::logical_not, R::elementwise, kNumbers},
      FactRule{Op::add, R::elementwise, kNumbers},
      FactRule{Op::sub, R::elementwise, kNumbers},
      FactRule{Op::mul, R::elementwise, kNumbers},
      FactRule{Op::div, R::elementwise, kNumbers},
      FactRule{Op::pow, R::elementwise,
               "known where pow is the same everywhere: squares, x^1, x^0"},
      FactRule{Op::maximum, R::elementwise, kNumbers},
      FactRule{Op::minimum, R::elementwise, kNumbers},
      FactRule{Op::equal, R::elementwise, kNumbers},
      FactRule{Op::not_equal, R::elementwise, kNumbers},
      FactRule{Op::less, R::elementwise, kNumbers},
      FactRule{Op::less_equal, R::elementwise, kNumbers},
      FactRule{Op::greater, R::elementwise, kNumbers},
      FactRule{Op::greater_equal, R::elementwise, kNumbers},
      FactRule{Op::logical_and, R::elementwise, kNumbers},
      FactRule{Op::logical_or, R::elementwise, kNumbers},
      FactRule{Op::where, R::elementwise,
               "where all elements take one branch, it is that branch; else as other ops"},
  };
  return rules;
}

namespace {

const FactRule* rule_of(Op op) {
  static const auto by_op = [] {
    std::unordered_map<int, const FactRule*> table;
    for (const FactRule& rule : fact_rules()) table[static_cast<int>(rule.op)] = &rule;
    return table;
  }();
  const auto found = by_op.find(static_cast<int>(op));
  return found == by_op.end() ? nullptr : found->second;
}

}  // namespace

const Fact& Prover::fact(NodeId id) {
  if (const auto found = facts_.find(id); found != facts_.end()) return found->second;
  // Inputs first, by a stack of our own: a captured graph may be deep.
  std::vector<NodeId> open{id};
  while (!open.empty()) {
    const NodeId next = open.back();
    const FactRule* rule = rule_of(graph_[next].op);
    bool ready = true;
    if (rule)
      for (const NodeId input : graph_[next].inputs)
        if (!facts_.contains(input)) {
          open.push_back(input);
          ready = false;
        }
    if (!ready) continue;
    open.pop_back();
    if (!facts_.contains(next))
      facts_.emplace(next,
                     rule ? checked(rule->apply(*this, graph_[next]), graph_.type(next)) : Fact{});
  }
  return facts_.at(id);
}

std::int64_t Prover::last(const Dim& size) const {
  if (size == Dim(Symbol::S)) return graph_.limit.tokens - 1;
  return size.is_constant() && size.constant() < FactRules::kFar ? size.constant() - 1
                                                                 : FactRules::kFar;
}

std::int64_t Prover::far(const Shape& shape) const {
  std::int64_t most = 0;
  for (const Dim& size : shape) most = std::max(most, last(size));
  return most;
}

Prover::Bounds Prover::bounds(const Affine& affine, const Shape& shape) const {
  // Saturates: what is that far is too far for any use.
  const auto limited = [](double x) {
    return static_cast<std::int64_t>(std::clamp(x, -0x1p62, 0x1p62));
  };
  double least = static_cast<double>(affine.constant), most = least;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const double reach = static_cast<double>(affine.coefficients[i]) *
                         static_cast<double>(std::max<std::int64_t>(last(shape[i]), 0));
    (reach < 0 ? least : most) += reach;
  }
  return {limited(least), limited(most)};
}

// What must hold of every fact, whatever rule made it.
Fact Prover::checked(Fact fact, const TensorType& type) const {
  const Shape& shape = type.shape;
  if (auto* affine = std::get_if<Affine>(&fact)) {
    bool varies = false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == Dim(1)) affine->coefficients[i] = 0;
      varies = varies || affine->coefficients[i] != 0;
    }
    const Bounds reached = bounds(*affine, shape);
    const double most = most_exact(type.dtype);
    if (!varies) {
      const auto value = convert(type.dtype, static_cast<double>(affine->constant));
      return value ? FactRules::uniform(*value) : Fact{};
    }
    const bool exact =
        static_cast<double>(reached.least) >= -most && static_cast<double>(reached.most) <= most;
    return exact ? fact : Fact{};
  }
  if (auto* steps = std::get_if<AxisSteps>(&fact)) {
    if (const auto value = steps->steps.uniform_value()) return FactRules::uniform(*value);
    const auto is_one = [&](int axis) { return shape[static_cast<std::size_t>(axis)] == Dim(1); };
    // On a row or column of its own, d is a coordinate and no difference any more.
    if (is_one(steps->row) || is_one(steps->column)) return {};
  }
  return fact;
}

std::optional<Steps> Prover::steps(NodeId id) {
  const auto known = FactRules::as_steps(fact(id));
  const int rank = static_cast<int>(shape(id).size());
  if (!known || (known->row >= 0 && (known->row != rank - 2 || known->column != rank - 1)))
    return std::nullopt;
  return known->steps;
}

std::optional<Prover::Bounds> Prover::bounds(NodeId id) {
  const auto affine = FactRules::as_affine(fact(id), shape(id).size());
  return affine ? std::optional(bounds(*affine, shape(id))) : std::nullopt;
}

bool Prover::never_negative(NodeId id, int depth) {
  constexpr int kDeepest = 32;
  if (depth > kDeepest) return false;
  if (const auto known = bounds(id)) return known->least >= 0;
  const Node& node = graph_[id];
  if (node.type.dtype == DType::boolean || node.op == Op::input) return true;
  const auto of = [&](std::size_t input) { return never_negative(node.inputs[input], depth + 1); };
  switch (node.op) {
    case Op::constant:
      return std::all_of(node.data().begin(), node.data().end(), [](double x) { return x >= 0; });
    case Op::cast:
    case Op::reshape:
    case Op::expand:
    case Op::permute:
    case Op::slice:
    case Op::embedding:  // the values of a table
      // int32 may be what is left of a larger number.
      return node.type.dtype != DType::i32 && of(0);
    case Op::abs:
    case Op::relu:
      return true;
    case Op::maximum:
      return of(0) || of(1);
    case Op::minimum:
    case Op::add:
    case Op::mul:
    case Op::div:
      return node.type.dtype == DType::i64 && of(0) && of(1);
    case Op::where:
      return of(1) && of(2);
    default:
      return false;
  }
}

}  // namespace ac
