#include "validate/graph_subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "base/error.h"
#include "reference/executor.h"
#include "validate/buffers.h"

namespace ac::validate {
namespace {

// Of one truth, where several are computed at once: a share of a machine with many processors.
const int kThreads = static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 4, 1u, 4u));

constexpr double kEmpty = std::numeric_limits<double>::quiet_NaN();

class GraphSubject {
 public:
  GraphSubject(StepGraph step, const GraphSubjectOptions& options)
      : step_(std::move(step)), options_(options) {
    verify(step_, "admission");
    for (const auto& [output, input] : options_.in_place) overwritten_[input] = output;
    find_scores();
    add_inputs();
    add_weights();
    add_position();
    add_states();
    add_outputs();
  }

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  bool has_states() const { return !step_.states.empty(); }
  bool has_codes() const { return std::ranges::any_of(step_.states, ac::has_codes); }
  Rows all_rows() const { return {0, options_.tokens}; }

  Elements evaluate(const Elements& in, Arithmetic arithmetic) const {
    return evaluate(in, arithmetic, all_rows());
  }

  // Of the outputs, these rows alone; of all, where that is not possible (rows()). `written`: the
  // states after a launch, whose codes count; or null.
  Elements evaluate(const Elements& in, Arithmetic arithmetic, const Rows& rows,
                    const Elements* written = nullptr) const {
    StepExecutor executor(
        step_,
        [&](const Node& weight) {
          const std::size_t t = at(weight.text("key"));
          return WeightView{tensors_[t].dtype, tensors_[t].shape, nullptr, in[t].data()};
        },
        kThreads, arithmetic);
    const std::int64_t position = position_of(in) + rows.first;
    executor.prime(position, cached(in, position));
    Values inputs;
    for (const Node& node : step_.graph.nodes)
      if (node.op == Op::input) {
        const std::size_t t = at(node.text("name"));
        if (node.type.shape.empty() || !node.type.shape[0].uses(Symbol::T)) {
          inputs[node.text("name")] = {tensors_[t].dtype, tensors_[t].shape, in[t]};
          continue;
        }
        Sizes shape = tensors_[t].shape;
        const std::int64_t row = tensors_[t].count() / shape[0];
        shape[0] = rows.count;
        inputs[node.text("name")] = {
            tensors_[t].dtype,
            shape,
            {in[t].begin() + rows.first * row, in[t].begin() + (rows.first + rows.count) * row}};
      }
    const std::vector<std::int64_t> outside = take_outside(inputs);
    const std::vector<StateData> appended =
        written ? pieces(*written, position, position + options_.tokens) : std::vector<StateData>();
    Values outputs = executor.step(rows.count, inputs, written ? &appended : nullptr);
    for (auto& [name, value] : outputs)
      for (const std::int64_t row : outside) {
        const auto size = static_cast<std::int64_t>(value.data.size()) / rows.count;
        std::fill_n(value.data.begin() + row * size, size, kEmpty);
      }
    Elements result(tensors_.size());
    for (const auto& [name, value] : outputs) {
      const auto in_place = options_.in_place.find(name);
      result[at(in_place == options_.in_place.end() ? name : in_place->second)] = value.data;
    }
    for (std::size_t i = 0; i < step_.states.size(); ++i)
      for (std::size_t t = 0; t < step_.states[i].tensors.size(); ++t)
        append(in, result, states_[i] + t, executor.state(i)[t], step_.states[i].tensors[t],
               position);
    return result;
  }

  // Tokens, where all outputs have a row for each that depends on no other: incrementalise has
  // proven that of all ops but attention.
  std::int64_t rows() const {
    const auto has_rows = [&](const Node& node) {
      return !node.type.shape.empty() && node.type.shape[0] == Dim(Symbol::T);
    };
    if (has_states() || !overwritten_.empty()) return 0;
    for (const Output& output : step_.graph.outputs)
      if (!has_rows(step_.graph[output.node])) return 0;
    for (const Node& node : step_.graph.nodes) {
      const bool uses_tokens =
          std::ranges::any_of(node.type.shape, [](const Dim& dim) { return dim.uses(Symbol::T); });
      if (uses_tokens && !has_rows(node)) return 0;
    }
    return options_.tokens;
  }

  // Sums of products and of values, which small integers leave exact.
  bool is_linear() const {
    return std::ranges::all_of(step_.graph.nodes, [](const Node& node) {
      switch (node.op) {
        case Op::input:
        case Op::weight:
        case Op::linear:
        case Op::matmul:
        case Op::add:
        case Op::sub:
        case Op::sum:
          return true;
        default:
          return info(node.op).memory == Memory::view;
      }
    });
  }

  // Slots that hold no token are empty.
  void constrain(Elements& elements) const {
    const std::int64_t position = position_of(elements);
    const std::int64_t capacity = options_.capacity;
    for (std::size_t i = 0; i < step_.states.size(); ++i)
      for (std::size_t t = 0; t < step_.states[i].tensors.size(); ++t) {
        const StateTensor& tensor = step_.states[i].tensors[t];
        for (std::int64_t row = 0; row < tensor.rows; ++row)
          for (std::int64_t slot = std::min(position, capacity); slot < capacity; ++slot)
            std::fill_n(elements[states_[i] + t].begin() + element_at(tensor, capacity, row, slot),
                        tensor.size, kEmpty);
      }
  }

 private:
  std::size_t at(const std::string& name) const {
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      if (tensors_[t].name == name) return t;
    AC_UNREACHABLE();
  }

  Sizes sizes_of(const Node& node) const {
    Sizes sizes;
    for (const Dim& dim : node.type.shape) {
      if (dim.uses(Symbol::P))
        bad_input(
            "admission: \"{}\": the sizes of a kernel's tensors cannot depend on the position",
            node.module);
      sizes.push_back(dim.evaluate({.T = options_.tokens, .P = 0}));
    }
    return sizes;
  }

  // Ids that their table does not have become 0; the rows that have such.
  std::vector<std::int64_t> take_outside(Values& inputs) const {
    std::vector<std::int64_t> rows;
    for (const TensorSpec& spec : tensors_) {
      if (!spec.may_be_outside) continue;
      std::vector<double>& ids = inputs.at(spec.name).data;
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] < 0 || ids[i] > static_cast<double>(spec.high))
          ids[i] = 0, rows.push_back(static_cast<std::int64_t>(i));
    }
    return rows;
  }

  // Whether row i of all that comes out is of id i alone.
  bool goes_by_rows(const Node& ids) const {
    if (ids.type.shape.size() != 1 || has_states()) return false;
    const auto has_its_rows = [&](const Output& output) {
      const Shape& shape = step_.graph[output.node].type.shape;
      return !shape.empty() && shape[0] == ids.type.shape[0];
    };
    return std::ranges::all_of(step_.graph.outputs, has_its_rows) &&
           std::ranges::all_of(step_.graph.nodes, [](const Node& node) {
             const OpInfo& op = info(node.op);
             return op.max_inputs == 0 || node.op == Op::embedding || op.over == Over::each;
           });
  }

  bool has_maximum() const {
    return std::ranges::any_of(step_.graph.nodes, [](const Node& node) {
      return node.op == Op::softmax || node.op == Op::amax;
    });
  }

  // Which values queries or keys are made of.
  void find_scores() {
    const Graph& graph = step_.graph;
    makes_scores_.resize(graph.nodes.size());
    for (std::size_t i = graph.nodes.size(); i-- > 0;) {
      const Node& node = graph.nodes[i];
      const bool attends = node.op == Op::append_attend || node.op == Op::attention;
      for (std::size_t of = 0; of < node.inputs.size(); ++of)
        if (makes_scores_[i] || (attends && of < 2))
          makes_scores_[static_cast<std::size_t>(node.inputs[of])] = true;
    }
  }
  bool makes_scores(const Node& node) const {
    return makes_scores_[static_cast<std::size_t>(&node - step_.graph.nodes.data())];
  }

  void add_inputs() {
    for (const Node& node : step_.graph.nodes) {
      if (node.op != Op::input) continue;
      const std::string& name = node.text("name");
      TensorSpec spec{.name = name, .dtype = node.type.dtype, .shape = sizes_of(node)};
      if (overwritten_.contains(name)) spec.role = TensorRole::state;
      if (!is_float(spec.dtype)) {
        const auto limit = options_.limits.find(name);
        if (spec.dtype == DType::boolean)
          spec.high = 1;
        else if (limit == options_.limits.end())
          bad_input("admission: the input \"{}\" holds integers, and nothing says how large", name);
        else
          spec.high = limit->second - 1, spec.may_be_outside = goes_by_rows(node);
      }
      spec.may_be_huge = !makes_scores(node);
      spec.may_be_masked = is_float(spec.dtype) && has_maximum();
      tensors_.push_back(std::move(spec));
    }
  }

  void add_weights() {
    for (const Node& node : step_.graph.nodes) {
      if (node.op != Op::weight) continue;
      const WeightFormat format = format_of(node);
      const std::vector<Node> parts = parts_of(node);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string& key = parts[i].text("key");
        const auto same = [&](const TensorSpec& spec) { return spec.name == key; };
        if (std::ranges::any_of(tensors_, same)) continue;
        TensorSpec spec{.name = key,
                        .dtype = parts[i].type.dtype,
                        .shape = sizes_of(parts[i]),
                        .role = TensorRole::weight,
                        .may_be_huge = !makes_scores(node)};
        if (!format.is_plain()) {
          spec.may_be_huge = false;  // a code of 0 times an infinite scale would be NaN
          spec.part = format.parts[i].kind;
          spec.typical = format.typical(format.parts[i], node.type.shape[1].constant());
          if (const int middle = middle_of(format.format.codes); middle > 0)
            spec.exact = 1.0 / middle;
          if (parts[i].type.dtype == DType::i8) spec.exact = 1;
          if (is_small_float(format.format.codes) && spec.part == WeightPart::Kind::scales)
            spec.exact = 0.125;
          if (spec.part == WeightPart::Kind::groups)
            spec.high = format.parts[1].shape(sizes_of(node)).back() - 1;
          if (format.parts[i].is_whole())
            spec.high = static_cast<std::int64_t>(format.parts[i].most);
        }
        tensors_.push_back(std::move(spec));
      }
    }
  }

  bool depends_on_position() const {
    return has_states() || std::ranges::any_of(step_.graph.nodes, [](const Node& node) {
             return node.op == Op::positions;
           });
  }

  void add_position() {
    if (!depends_on_position()) return;
    TensorSpec spec{.name = "position", .dtype = DType::i32, .shape = {1}};
    spec.edges = options_.positions;
    if (spec.edges.empty()) spec.edges = {0, 1, options_.capacity - options_.tokens};
    const auto [low, high] = std::ranges::minmax(spec.edges);
    if (low < 0) bad_input("admission: the position {} is negative", low);
    for (const StateSpec& state : step_.states)
      if (!can_hold(state, options_.capacity, high, options_.tokens))
        bad_input("admission: a state of {} slots cannot hold what the token at {} sees",
                  options_.capacity, high);
    spec.low = low, spec.high = high;
    position_ = tensors_.size();
    tensors_.push_back(std::move(spec));
  }

  void add_states() {
    for (std::size_t i = 0; i < step_.states.size(); ++i) {
      const StateSpec& state = step_.states[i];
      states_.push_back(tensors_.size());
      for (std::size_t t = 0; t < state.tensors.size(); ++t)
        tensors_.push_back(
            {.name = name_of_state(static_cast<std::int64_t>(i), state.tensors[t]),
             .dtype = state.tensors[t].dtype,
             .shape = {state.tensors[t].rows, options_.capacity, state.tensors[t].size},
             .role = TensorRole::state,
             .may_be_huge = may_be_huge(state, t),
             .part = part_of(state, t),
             .typical = typical_of(state, t),
             .exact = typical_of(state, t)});
      if (ac::has_codes(state))
        for (std::size_t t = states_.back(); t < tensors_.size(); ++t)
          tensors_[t].made_of = state.dtype;
    }
  }

  void add_outputs() {
    for (const Output& output : step_.graph.outputs) {
      const Node& node = step_.graph[output.node];
      const auto in_place = options_.in_place.find(output.name);
      if (in_place != options_.in_place.end()) {
        const TensorSpec& input = tensors_[at(in_place->second)];
        if (input.dtype != node.type.dtype || input.shape != sizes_of(node))
          bad_input(
              "admission: the output \"{}\" is not of the type of \"{}\", which it overwrites",
              output.name, input.name);
        continue;
      }
      tensors_.push_back({.name = output.name,
                          .dtype = node.type.dtype,
                          .shape = sizes_of(node),
                          .role = TensorRole::output});
    }
  }

  static double typical_of(const StateSpec& state, std::size_t tensor) {
    const auto [offset, scale] = random_of(state, tensor);
    return offset > 0 ? offset : scale;
  }

  std::int64_t position_of(const Elements& in) const {
    return position_ == kNone ? 0 : static_cast<std::int64_t>(in[position_][0]);
  }

  // Of the tokens before `position`.
  std::vector<StateData> cached(const Elements& in, std::int64_t position) const {
    return pieces(in, 0, position);
  }

  // Of some tokens, from [rows, slots, size] to [tokens, rows, size]. Those that have left the
  // state are zeros, which nobody sees.
  std::vector<StateData> pieces(const Elements& in, std::int64_t begin, std::int64_t end) const {
    std::vector<StateData> states(step_.states.size());
    const std::int64_t capacity = options_.capacity;
    for (std::size_t i = 0; i < states.size(); ++i)
      for (std::size_t t = 0; t < step_.states[i].tensors.size(); ++t) {
        const StateTensor& tensor = step_.states[i].tensors[t];
        const std::vector<double>& from = in[states_[i] + t];
        std::vector<double>& to = states[i].emplace_back(
            static_cast<std::size_t>((end - begin) * tensor.rows * tensor.size));
        for (std::int64_t token = std::max(begin, end - capacity); token < end; ++token)
          for (std::int64_t row = 0; row < tensor.rows; ++row)
            std::copy_n(from.begin() + element_at(tensor, capacity, row, token), tensor.size,
                        to.begin() + ((token - begin) * tensor.rows + row) * tensor.size);
      }
    return states;
  }

  void append(const Elements& in, Elements& result, std::size_t t,
              const std::vector<double>& tokens, const StateTensor& tensor,
              std::int64_t position) const {
    result[t] = in[t];
    for (std::int64_t token = position; token < position + options_.tokens; ++token)
      for (std::int64_t row = 0; row < tensor.rows; ++row)
        std::copy_n(tokens.begin() + (token * tensor.rows + row) * tensor.size, tensor.size,
                    result[t].begin() + element_at(tensor, options_.capacity, row, token));
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  StepGraph step_;
  GraphSubjectOptions options_;
  std::map<std::string, std::string> overwritten_;  // input, by output
  std::vector<TensorSpec> tensors_;
  std::vector<bool> makes_scores_;  // by node
  std::size_t position_ = kNone;
  std::vector<std::size_t> states_;  // the first tensor of each
};

}  // namespace

Subject subject_of(const StepGraph& step, const GraphSubjectOptions& options) {
  const auto graph = std::make_shared<const GraphSubject>(step, options);
  Subject subject;
  subject.tensors = graph->tensors();
  subject.truth = [graph](const Elements& in) { return graph->evaluate(in, Arithmetic::exact); };
  const Arithmetic plain = options.rounds_weights ? Arithmetic::elements : Arithmetic::plain;
  subject.plain = [graph, plain](const Elements& in) { return graph->evaluate(in, plain); };
  subject.linear = graph->is_linear();
  subject.rows = graph->rows();
  subject.truth_of_rows = [graph](const Elements& in, const Rows& rows) {
    return graph->evaluate(in, Arithmetic::exact, rows);
  };
  subject.plain_of_rows = [graph, plain](const Elements& in, const Rows& rows) {
    return graph->evaluate(in, plain, rows);
  };
  if (graph->has_codes()) {
    const auto after = [&](Arithmetic arithmetic) -> EvaluateAfter {
      return [=](const Elements& in, const Elements& written) {
        return graph->evaluate(in, arithmetic, graph->all_rows(), &written);
      };
    };
    subject.truth_after = after(Arithmetic::exact), subject.plain_after = after(plain);
  }
  if (graph->has_states()) subject.constrain = [graph](Elements& e) { graph->constrain(e); };
  return subject;
}

std::string name_of_state(std::int64_t index, const StateTensor& tensor) {
  return fmt::format("state{}.{}", index, tensor.name);
}

std::size_t index_of(const Subject& subject, const std::string& name) {
  for (std::size_t t = 0; t < subject.tensors.size(); ++t)
    if (subject.tensors[t].name == name) return t;
  AC_UNREACHABLE();
}

}  // namespace ac::validate
