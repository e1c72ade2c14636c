// Where rounding decides. No executor rounds each result as PyTorch does: sums of products are none
// the worse for it, but an integer that wraps around is another integer, and a comparison or a
// conversion to an integer turns the last bit of a fraction into another answer. Features may lie
// on either side of such an edge by luck, as every numeric contract allows. What depends on the
// position or the id of a token alone does not: it must be exact.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

constexpr double kIntegers = 0x1p53;  // what the reference, which computes in doubles, has exactly
constexpr double kMostIds = 0x1p20;   // more than any vocabulary
// From a position to a comparison, and more than anybody writes.
constexpr std::size_t kMostSteps = 256;

// What a value depends on, beside constants. Weights make features of anything.
enum class Source : std::uint8_t { nothing, position, id, both, features };

Source join(Source a, Source b) {
  if (a == b || b == Source::nothing) return a;
  if (a == Source::nothing) return b;
  return a == Source::features || b == Source::features ? Source::features : Source::both;
}

// All elements are whole numbers from least to most, and exact in their type.
struct Whole {
  double least, most;
};

// One value, as PyTorch computes it and unrounded.
struct Value {
  double rounded, plain;
};

std::optional<double> compute_plain(Op op, double a) {
  switch (op) {
    case Op::neg:
      return -a;
    case Op::abs:
      return std::fabs(a);
    case Op::relu:
      return a < 0 ? 0 : a;
    case Op::sqrt:
      return std::sqrt(a);
    case Op::reciprocal:
      return 1 / a;
    case Op::logical_not:
      return a == 0;
    default:
      return std::nullopt;
  }
}

std::optional<double> compute_plain(Op op, DType dtype, double a, double b) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return is_float(dtype) ? a / b : std::trunc(a / b);
    case Op::pow:
      return std::pow(a, b);
    default:  // nothing that rounds
      return compute(op, DType::i64, a, b);
  }
}

// The elements of a constant along its one axis, perhaps seen through views of it.
const std::vector<double>* line_of(const Graph& graph, NodeId id) {
  if (solid(graph.type(id).shape).size() > 1) return nullptr;
  while (graph[id].op == Op::reshape) id = graph[id].inputs[0];
  return graph[id].op == Op::constant ? &graph[id].data() : nullptr;
}

// Computes a node for one position or id after the other, if it is a function of that alone.
class RoundingTrial {
 public:
  explicit RoundingTrial(const Graph& graph) : graph_(graph) {}

  // Whether the node can be tried.
  bool follow(NodeId id) {
    std::map<NodeId, std::vector<NodeId>> reads;  // inputs before their users, as in the graph
    std::vector<NodeId> open{id};
    while (!open.empty()) {
      const NodeId next = open.back();
      open.pop_back();
      if (reads.contains(next)) continue;
      auto inputs = inputs_of(next);
      if (!inputs || reads.size() == kMostSteps) return false;
      open.insert(open.end(), inputs->begin(), inputs->end());
      reads.emplace(next, std::move(*inputs));
    }
    std::map<NodeId, std::size_t> places;
    for (const auto& [next, inputs] : reads) {
      Step step{&graph_[next], {}, uniform_value(graph_, next), nullptr};
      for (const NodeId input : inputs) step.inputs.push_back(places.at(input));
      if (!step.uniform && (step.node->op == Op::slice || step.node->op == Op::embedding))
        step.line = line_of(graph_, step.node->inputs[0]);
      places[next] = steps_.size();
      steps_.push_back(std::move(step));
    }
    values_.resize(steps_.size());
    return true;
  }

  // The node's value for the position or id i; nothing where it is not known what PyTorch computes.
  std::optional<Value> at(std::int64_t i) {
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      const auto value = compute_step(steps_[k], i);
      if (!value) return std::nullopt;
      values_[k] = *value;
    }
    return values_.back();
  }

 private:
  struct Step {
    const Node* node;
    std::vector<std::size_t> inputs;  // the steps that it reads
    std::optional<double> uniform;
    const std::vector<double>* line;  // from which it takes an element
  };

  // What must be computed first; nothing where the node depends on more than one position or id.
  std::optional<std::vector<NodeId>> inputs_of(NodeId id) const {
    using Inputs = std::vector<NodeId>;
    const Node& node = graph_[id];
    if (const auto value = uniform_value(graph_, id)) {
      // In half types an op may take the number as it is, or as the type has it.
      const DType dtype = node.type.dtype;
      const bool known = dtype == DType::f32 || round_to(dtype, *value) == *value;
      return known ? std::optional(Inputs{}) : std::nullopt;
    }
    if (solid(node.type.shape) != Shape{Dim(Symbol::S)}) return std::nullopt;
    if (node.op == Op::positions || node.op == Op::input) return Inputs{};
    if (node.op == Op::slice || node.op == Op::embedding) {
      if (!line_of(graph_, node.inputs[0])) return std::nullopt;
      if (node.op == Op::embedding) return Inputs{node.inputs[1]};
      return node.dim("start").is_constant() ? std::optional(Inputs{}) : std::nullopt;
    }
    return node.inputs;
  }

  std::optional<Value> compute_step(const Step& step, std::int64_t i) const {
    const Node& node = *step.node;
    const auto in = [&](std::size_t input) { return values_[step.inputs[input]]; };
    const auto element = [&](double index) -> std::optional<Value> {
      if (!(index >= 0 && index < static_cast<double>(step.line->size()))) return std::nullopt;
      const double value = (*step.line)[static_cast<std::size_t>(index)];
      return Value{round_to(node.type.dtype, value), value};
    };
    if (step.uniform) return Value{round_to(node.type.dtype, *step.uniform), *step.uniform};
    switch (node.op) {
      case Op::positions:
      case Op::input:
        return Value{static_cast<double>(i), static_cast<double>(i)};
      case Op::reshape:
      case Op::expand:
      case Op::permute:
        return in(0);
      case Op::slice:
        return element(
            static_cast<double>(node.dim("start").constant() + i * node.integer("step")));
      case Op::embedding:
        return in(0).rounded == in(0).plain ? element(in(0).plain) : std::nullopt;
      case Op::where:
        return Value{in(in(0).rounded != 0 ? 1 : 2).rounded, in(in(0).plain != 0 ? 1 : 2).plain};
      case Op::cast: {
        const DType to = node.type.dtype;
        const double plain = in(0).plain;
        const auto rounded = convert(to, in(0).rounded);
        if (!rounded) return std::nullopt;
        if (is_float(to)) return Value{*rounded, plain};
        return Value{*rounded, to == DType::boolean ? plain != 0 : std::trunc(plain)};
      }
      default:
        break;
    }
    const DType dtype = graph_.type(node.inputs[0]).dtype;
    std::optional<double> rounded, plain;
    if (step.inputs.size() == 1) {
      rounded = compute_exactly(node.op, dtype, in(0).rounded);
      plain = compute_plain(node.op, in(0).plain);
    } else if (step.inputs.size() == 2) {
      rounded = compute_exactly(node.op, dtype, in(0).rounded, in(1).rounded);
      plain = compute_plain(node.op, dtype, in(0).plain, in(1).plain);
    }
    return rounded && plain ? std::optional(Value{*rounded, *plain}) : std::nullopt;
  }

  const Graph& graph_;
  std::vector<Step> steps_;
  std::vector<Value> values_;
};

class Exactness {
 public:
  explicit Exactness(Graph& graph) : graph_(graph), ids_(count_ids()) {}

  void check() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      sources_.push_back(source(graph_[id]));
      wholes_.push_back(whole(id));
      if (is_edge(id)) check_edge(id);
      if (graph_[id].op == Op::embedding) check_lookup(id);
    }
  }

 private:
  const TensorType& type(NodeId id) const { return graph_.type(id); }
  Source source_of(NodeId id) const { return sources_[static_cast<std::size_t>(id)]; }
  const std::optional<Whole>& whole_of(NodeId id) const {
    return wholes_[static_cast<std::size_t>(id)];
  }

  // Ids are below the rows of every table that they are looked up in.
  double count_ids() const {
    double count = kMostIds;
    for (const Node& node : graph_.nodes) {
      if (node.op != Op::embedding || !type(node.inputs[0]).shape[0].is_constant()) continue;
      NodeId index = node.inputs[1];
      while (graph_[index].op == Op::reshape || graph_[index].op == Op::cast)
        index = graph_[index].inputs[0];
      if (graph_[index].op == Op::input)
        count = std::min(count, static_cast<double>(type(node.inputs[0]).shape[0].constant()));
    }
    return count;
  }

  Source source(const Node& node) const {
    if (node.op == Op::positions) return Source::position;
    if (node.op == Op::input) return Source::id;
    if (node.op == Op::weight) return Source::features;
    Source result = Source::nothing;
    for (const NodeId input : node.inputs) result = join(result, source_of(input));
    // S entries of a constant: which one it is depends on the position.
    if (node.op == Op::slice && result == Source::nothing && uses_tokens(node.type))
      return Source::position;
    if (node.op == Op::embedding && source_of(node.inputs[0]) == Source::nothing) return result;
    const bool each_for_itself = info(node.op).over == Over::each ||
                                 info(node.op).memory == Memory::view || node.op == Op::concat ||
                                 info(node.op).rule == ShapeRule::triangle;
    return result == Source::nothing || each_for_itself ? result : Source::features;
  }

  // ---- integers ----

  std::optional<Whole> whole(NodeId id) {
    const Node& node = graph_[id];
    if (node.type.dtype == DType::boolean) return Whole{0, 1};
    const std::optional<Whole> made = combined(node);
    if (!made) return std::nullopt;
    if (is_float(node.type.dtype)) {
      const double most = most_exact(node.type.dtype);
      return made->least >= -most && made->most <= most ? made : std::nullopt;
    }
    const double most = node.type.dtype == DType::i32 ? 0x1p31 - 1 : kIntegers;
    if (!(made->least >= -most - 1 && made->most <= most))
      bad_input("{}: integers of {} may overflow here: they reach {:.3g}", describe(graph_, id),
                torch_name(node.type.dtype), std::max(-made->least, made->most));
    return made;
  }

  std::optional<Whole> combined(const Node& node) const {
    if (node.op == Op::positions) return Whole{0, static_cast<double>(graph_.limit.tokens - 1)};
    if (node.op == Op::input) return Whole{0, ids_ - 1};
    if (node.op == Op::constant) {
      const auto& data = node.data();
      const auto is_whole = [](double x) { return x == std::trunc(x) && std::fabs(x) < kIntegers; };
      if (data.empty() || !std::all_of(data.begin(), data.end(), is_whole)) return std::nullopt;
      const auto [least, most] = std::minmax_element(data.begin(), data.end());
      return Whole{*least, *most};
    }
    std::vector<Whole> in;
    for (const NodeId input : node.inputs) {
      if (!whole_of(input)) return std::nullopt;
      in.push_back(*whole_of(input));
    }
    if (in.empty()) return std::nullopt;
    const auto hull = [](std::initializer_list<double> ends) {
      return Whole{std::min(ends), std::max(ends)};
    };
    const Whole &a = in[0], &b = in.back();
    switch (node.op) {
      case Op::neg:
        return Whole{-a.most, -a.least};
      case Op::abs:
      case Op::relu:
      case Op::tril:
      case Op::triu:
        return hull({0, a.least, a.most, std::fabs(a.least), std::fabs(a.most)});
      case Op::add:
        return Whole{a.least + b.least, a.most + b.most};
      case Op::sub:
        return Whole{a.least - b.most, a.most - b.least};
      case Op::mul:
        return hull({a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most});
      case Op::div:  // cut towards 0, which keeps the order
        if (is_float(node.type.dtype) || b.least != b.most || b.least == 0) return std::nullopt;
        return hull({std::trunc(a.least / b.least), std::trunc(a.most / b.least)});
      case Op::pow: {
        if (b.least < 0 || is_float(node.type.dtype)) return std::nullopt;
        const double size = std::pow(std::max(std::fabs(a.least), std::fabs(a.most)), b.most);
        return hull({0, 1, -size, size});
      }
      case Op::minimum:
        return Whole{std::min(a.least, b.least), std::min(a.most, b.most)};
      case Op::maximum:
        return Whole{std::max(a.least, b.least), std::max(a.most, b.most)};
      case Op::where:
        return hull({in[1].least, in[1].most, b.least, b.most});
      case Op::amax:
        return a;
      case Op::concat: {
        Whole all = a;
        for (const Whole& part : in) all = hull({all.least, all.most, part.least, part.most});
        return all;
      }
      case Op::cast:
      case Op::embedding:
        return a;
      default:
        return info(node.op).memory == Memory::view ? std::optional(a) : std::nullopt;
    }
  }

  // ---- comparisons, and integers made of fractions ----

  bool is_edge(NodeId id) const {
    const Node& node = graph_[id];
    if (source_of(id) == Source::nothing || source_of(id) == Source::features) return false;
    const bool is_fraction = is_float(node.type.dtype);
    const bool compares = info(node.op).rule == ShapeRule::compare;
    const bool cuts = node.op == Op::cast && !is_fraction && is_float(type(node.inputs[0]).dtype);
    // Whole numbers that a type of fractions has no room for: neighbours become one.
    const bool merges = is_fraction && !whole_of(id) && combined(node);
    if (!compares && !cuts && !merges) return false;
    // A table over two token axes is of use in a mask alone, which must be proven as a whole.
    const auto& shape = node.type.shape;
    return std::count_if(shape.begin(), shape.end(),
                         [](const Dim& size) { return size.uses(Symbol::S); }) == 1;
  }

  bool is_exact(NodeId id) const {
    if (whole_of(id)) return true;
    while (info(graph_[id].op).memory == Memory::view) id = graph_[id].inputs[0];
    const Node& node = graph_[id];
    if (node.op != Op::constant) return false;
    return std::all_of(node.data().begin(), node.data().end(), [&](double item) {
      return std::isinf(item) || round_to(node.type.dtype, item) == item;
    });
  }

  // Positions that run out of a table, at either end.
  void check_lookup(NodeId id) {
    const Node& node = graph_[id];
    const NodeId index = node.inputs[1];
    const Dim& rows = type(node.inputs[0]).shape[0];
    if (source_of(index) != Source::position || !rows.is_constant()) return;
    RoundingTrial trial(graph_);
    if (!trial.follow(index)) return;
    const auto last = static_cast<double>(rows.constant() - 1);
    for (std::int64_t i = 0; i < graph_.limit.tokens; ++i) {
      const auto row = trial.at(i);
      if (!row) return;
      if (row->plain >= 0 && row->plain <= last) continue;
      if (i == 0)
        bad_input("{}: it has no room for the position of a single token", describe(graph_, index));
      graph_.limit.lower(i, fmt::format("{}: its table of {} has no row for position {}",
                                        describe(graph_, id), rows.constant(), i));
    }
  }

  void check_edge(NodeId id) {
    const Node& node = graph_[id];
    const bool exact =
        !is_float(node.type.dtype) && std::all_of(node.inputs.begin(), node.inputs.end(),
                                                  [&](NodeId input) { return is_exact(input); });
    if (exact) return;
    const bool of_positions = source_of(id) == Source::position;
    const auto refuse = [&] {
      bad_input("{}: rounding may decide this {}, which is made of {}", describe(graph_, id),
                info(node.op).rule == ShapeRule::compare ? "comparison" : "number",
                of_positions ? "positions" : "token ids");
    };
    RoundingTrial trial(graph_);
    if (source_of(id) == Source::both || !trial.follow(id)) refuse();
    Whole all{INFINITY, -INFINITY};
    const std::int64_t count = of_positions ? graph_.limit.tokens : static_cast<std::int64_t>(ids_);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = trial.at(i);
      if (!value) refuse();
      if (value->rounded == value->plain) {
        all = {std::min(all.least, value->plain), std::max(all.most, value->plain)};
        continue;
      }
      if (!of_positions || i < 2)  // one token is no context
        bad_input("{}: rounding decides what this is for {} {}", describe(graph_, id),
                  of_positions ? "position" : "token id", i);
      graph_.limit.lower(i, fmt::format("{}: rounding changes what this is for position {}",
                                        describe(graph_, id), i));
      break;
    }
    if (node.op == Op::cast && !is_float(node.type.dtype)) wholes_.back() = all;
  }

  Graph& graph_;
  const double ids_;
  std::vector<Source> sources_;
  std::vector<std::optional<Whole>> wholes_;
};

}  // namespace

Graph limit_to_exact(const Graph& graph) {
  Graph result = graph;
  Exactness(result).check();
  return result;
}

}  // namespace ac
