#include "reference/executor.h"

#include <new>
#include <optional>

#include "base/error.h"
#include "base/half.h"
#include "base/text.h"
#include "ir/verify.h"
#include "reference/ops.h"

namespace ac {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;  // 16 GiB of doubles

// The other attributes with sizes repeat the node's own shape.
bool uses(const Node& node, Symbol symbol) {
  for (const Dim& dim : node.type.shape)
    if (dim.uses(symbol)) return true;
  return node.op == Op::slice && (node.dim("start").uses(symbol) || node.dim("end").uses(symbol));
}

std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }

Sizes constant_sizes(const Shape& shape) {
  Sizes sizes;
  for (const Dim& dim : shape) sizes.push_back(dim.constant());
  return sizes;
}

// One graph, made ready to run many times.
class Runner {
 public:
  Runner(const Graph& graph, const WeightLookup& weights, int threads, Arithmetic arithmetic)
      : graph_(graph), threads_(threads), arithmetic_(arithmetic), nodes_(graph.nodes.size()) {
    AC_ASSERT(threads >= 1);
    mark_live();
    mark_fixed();
    count_uses();
    load_weights(weights);
    evaluate_fixed();
  }

  Values run(const Bindings& bindings, const Values& inputs, std::vector<StateData>& states,
             const std::vector<StateData>* appended, ScoresSeen& scores) const {
    check_symbols(bindings);
    if (const std::int64_t tokens = std::max(bindings.S, bindings.P + bindings.T);
        tokens > graph_.limit.tokens)
      bad_input("\"{}\" is right for at most {} tokens{}: {} are too many", graph_.name,
                graph_.limit.tokens, graph_.limit.reason(), tokens);
    std::vector<std::optional<Value>> values(nodes_.size());
    bind_inputs(bindings, inputs, values);
    std::vector<int> uses = remaining_uses_;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].live || nodes_[i].fixed) continue;
      const auto id = static_cast<NodeId>(i);
      if (!values[i]) values[i] = evaluate_node(id, bindings, values, &states, appended, &scores);
      release_inputs(id, uses, values);
    }
    Values outputs;
    for (const Output& output : graph_.outputs)
      outputs[output.name] = value_of(output.node, values);
    return outputs;
  }

 private:
  struct NodeInfo {
    bool live = false;   // an output depends on it, or it writes a state
    bool fixed = false;  // depends on no input, no position and no symbol
    std::optional<StoredWeight> stored;
  };
  using Slots = std::vector<std::optional<Value>>;

  void mark_live() {
    for (const Output& output : graph_.outputs) nodes_[index(output.node)].live = true;
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (info(node.op).memory == Memory::state) nodes_[i].live = true;
      if (!nodes_[i].live) continue;
      for (const NodeId input : node.inputs) nodes_[index(input)].live = true;
    }
  }

  void mark_fixed() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = graph_.nodes[i];
      nodes_[i].fixed =
          node.op != Op::input && node.op != Op::positions && info(node.op).memory != Memory::state;
      for (std::size_t symbol = 0; symbol < kSymbols; ++symbol)
        if (uses(node, static_cast<Symbol>(symbol))) nodes_[i].fixed = false;
      for (const NodeId input : node.inputs)
        if (!nodes_[index(input)].fixed) nodes_[i].fixed = false;
    }
  }

  // Whether that input is read from the weight's own bytes.
  bool reads_stored(const Node& node, std::size_t input) const {
    return takes_stored(node.op, input) && graph_[node.inputs[input]].op == Op::weight;
  }

  // How often each node's value (not: its stored bytes) is used; an output is used at the end.
  void count_uses() {
    remaining_uses_.assign(nodes_.size(), 0);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!nodes_[i].live) continue;
      for (std::size_t input = 0; input < node.inputs.size(); ++input)
        if (!reads_stored(node, input)) ++remaining_uses_[index(node.inputs[input])];
    }
    for (const Output& output : graph_.outputs) ++remaining_uses_[index(output.node)];
  }

  void load_weights(const WeightLookup& weights) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != Op::weight || !nodes_[i].live) continue;
      AC_ASSERT(weights);
      const WeightFormat format = format_of(node);
      std::vector<WeightView> views;
      for (const Node& part : parts_of(node)) {
        const WeightView& view = views.emplace_back(weights(part));
        const bool convertible =
            view.dtype == part.type.dtype || (is_float(view.dtype) && is_float(part.type.dtype));
        if (view.shape != constant_sizes(part.type.shape) || !convertible)
          bad_input("{}: {}is stored as {}, but the graph needs {}",
                    describe(graph_, static_cast<NodeId>(i)),
                    format.is_plain() ? "" : quote(part.text("key")) + " ",
                    to_string(view.dtype, view.shape), to_string(part.type));
        AC_ASSERT(view.data || (view.elements && view.dtype == part.type.dtype));
      }
      if (format.is_plain())
        nodes_[i].stored.emplace(std::move(views[0]), node.type.dtype, node.text("key"));
      else
        nodes_[i].stored.emplace(format, std::move(views), constant_sizes(node.type.shape),
                                 node.type.dtype, node.text("key"));
    }
  }

  // Afterwards the fixed values that are left are those that a run needs.
  void evaluate_fixed() {
    fixed_.resize(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].live || !nodes_[i].fixed) continue;
      const auto id = static_cast<NodeId>(i);
      if (remaining_uses_[i] > 0)
        fixed_[i] = evaluate_node(id, {}, fixed_, nullptr, nullptr, nullptr);
      release_inputs(id, remaining_uses_, fixed_);
    }
  }

  void release_inputs(NodeId id, std::vector<int>& uses, Slots& values) const {
    const Node& node = graph_[id];
    for (std::size_t input = 0; input < node.inputs.size(); ++input) {
      const std::size_t from = index(node.inputs[input]);
      if (!reads_stored(node, input) && --uses[from] == 0) values[from].reset();
    }
    if (uses[index(id)] == 0) values[index(id)].reset();
  }

  const Value& value_of(NodeId id, const Slots& values) const {
    const std::optional<Value>& value = values[index(id)] ? values[index(id)] : fixed_[index(id)];
    AC_ASSERT(value.has_value());
    return *value;
  }

  void check_symbols(const Bindings& bindings) const {
    const std::int64_t values[kSymbols] = {bindings.S, bindings.T, bindings.P};
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      for (std::size_t symbol = 0; symbol < kSymbols; ++symbol)
        if (values[symbol] < 0 && uses(graph_.nodes[i], static_cast<Symbol>(symbol)))
          bad_input("{}: depends on {}, which has no value",
                    describe(graph_, static_cast<NodeId>(i)),
                    Dim(static_cast<Symbol>(symbol)).str());
  }

  Sizes sizes_of(NodeId id, const Bindings& bindings) const {
    Sizes shape;
    std::int64_t elements = 1;
    for (const Dim& dim : graph_.type(id).shape) {
      shape.push_back(dim.evaluate(bindings));
      if (shape.back() < 0)
        bad_input("{}: the size {} is negative here", describe(graph_, id), dim.str());
      if (__builtin_mul_overflow(elements, shape.back(), &elements) || elements > kMaxElements)
        bad_input("{}: {} is too large for the reference", describe(graph_, id),
                  to_string(graph_.type(id)));
    }
    return shape;
  }

  void bind_inputs(const Bindings& bindings, const Values& inputs, Slots& values) const {
    std::map<std::string, bool> known;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != Op::input) continue;
      const std::string& name = node.text("name");
      known[name] = true;
      const auto found = inputs.find(name);
      if (found == inputs.end()) bad_input("the graph's input \"{}\" was not given", name);
      const Value& value = found->second;
      const Sizes expected = sizes_of(static_cast<NodeId>(i), bindings);
      if (value.dtype != node.type.dtype || value.shape != expected ||
          value.data.size() != static_cast<std::size_t>(element_count(expected)))
        bad_input("input \"{}\" is {} with {} elements, but the graph needs {}", name,
                  to_string(value.dtype, value.shape), value.data.size(),
                  to_string(node.type.dtype, expected));
      if (const std::string why = why_not_elements(value.dtype, value.data); !why.empty())
        bad_input("input \"{}\": {}", name, why);
      values[i] = value;
    }
    for (const auto& [name, value] : inputs)
      if (!known.contains(name)) bad_input("the graph has no input \"{}\"", name);
  }

  Value evaluate_node(NodeId id, const Bindings& bindings, const Slots& values,
                      std::vector<StateData>* states, const std::vector<StateData>* appended,
                      ScoresSeen* scores) const try {
    const Node& node = graph_[id];
    Call call{graph_, id, {}, sizes_of(id, bindings), bindings};
    call.threads = threads_;
    call.arithmetic = arithmetic_;
    call.scores = scores;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (reads_stored(node, i))
        call.inputs.emplace_back(*nodes_[index(node.inputs[i])].stored);
      else
        call.inputs.emplace_back(value_of(node.inputs[i], values));
    }
    if (info(node.op).memory == Memory::state) {
      const std::int64_t index = node.integer("state");
      if (index < 0 || index >= static_cast<std::int64_t>(states->size()))
        bad_input("{}: there is no state {}", describe(graph_, id), index);
      call.state = &(*states)[static_cast<std::size_t>(index)];
      if (appended) call.appended = &appended->at(static_cast<std::size_t>(index));
    }
    Value value = node.op == Op::weight ? nodes_[index(id)].stored->whole() : evaluate_op(call);
    AC_ASSERT(value.data.size() == static_cast<std::size_t>(element_count(call.shape)));
    if (arithmetic_ != Arithmetic::exact)
      for (double& element : value.data) element = round_by_float(value.dtype, element);
    if (const std::string why = why_not_elements(value.dtype, value.data); !why.empty())
      bad_input("{}: {}", describe(graph_, id), why);
    return value;
  } catch (const std::bad_alloc&) {
    job_failed("{}: not enough memory for its value", describe(graph_, id));
  }

  const Graph& graph_;
  const int threads_;
  const Arithmetic arithmetic_;
  std::vector<NodeInfo> nodes_;
  std::vector<int> remaining_uses_;  // by the nodes of a run: what is not fixed, and the outputs
  Slots fixed_;
};

}  // namespace

Values evaluate(const Graph& graph, const Bindings& bindings, const Values& inputs,
                const WeightLookup& weights, int threads, Arithmetic arithmetic) {
  verify(graph, "reference");
  std::vector<StateData> no_states;
  ScoresSeen scores;
  return Runner(graph, weights, threads, arithmetic)
      .run(bindings, inputs, no_states, nullptr, scores);
}

struct StepExecutor::State {
  State(StepGraph graph, const WeightLookup& weights, int threads, Arithmetic arithmetic)
      : step(std::move(graph)),
        runner((verify(step, "reference"), step.graph), weights, threads, arithmetic),
        states(step.states.size()) {
    for (std::size_t i = 0; i < states.size(); ++i) states[i].resize(step.states[i].tensors.size());
  }

  StepGraph step;
  Runner runner;
  std::vector<StateData> states;
  ScoresSeen scores;
  std::int64_t position = 0;
};

StepExecutor::StepExecutor(StepGraph step, const WeightLookup& weights, int threads,
                           Arithmetic arithmetic)
    : state_(std::make_unique<State>(std::move(step), weights, threads, arithmetic)) {}
StepExecutor::~StepExecutor() = default;
StepExecutor::StepExecutor(StepExecutor&&) noexcept = default;
StepExecutor& StepExecutor::operator=(StepExecutor&&) noexcept = default;

Values StepExecutor::step(std::int64_t tokens, const Values& inputs,
                          const std::vector<StateData>* appended) {
  if (tokens < 1) bad_input("a step needs at least one token");
  try {
    Values outputs = state_->runner.run({.T = tokens, .P = state_->position}, inputs,
                                        state_->states, appended, state_->scores);
    state_->position += tokens;
    return outputs;
  } catch (...) {
    truncate(state_->position);  // some states may have been appended to
    throw;
  }
}

Values StepExecutor::step(const std::vector<std::int64_t>& ids) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  return step(tokens, {{"ids", Value{DType::i64, {tokens}, {ids.begin(), ids.end()}}}});
}

std::int64_t StepExecutor::position() const { return state_->position; }

void StepExecutor::prime(std::int64_t position, std::vector<StateData> states) {
  AC_ASSERT(position >= 0 && states.size() == state_->states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    const std::vector<StateTensor>& tensors = state_->step.states[i].tensors;
    AC_ASSERT(states[i].size() == tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t)
      AC_ASSERT(states[i][t].size() ==
                static_cast<std::size_t>(position * tensors[t].rows * tensors[t].size));
  }
  state_->states = std::move(states);
  state_->position = position;
}

const StateData& StepExecutor::state(std::size_t index) const {
  AC_ASSERT(index < state_->states.size());
  return state_->states[index];
}

const ScoresSeen& StepExecutor::scores_seen() const { return state_->scores; }

void StepExecutor::truncate(std::int64_t tokens) {
  AC_ASSERT(tokens >= 0 && tokens <= state_->position);
  state_->position = tokens;
  for (std::size_t i = 0; i < state_->states.size(); ++i) {
    const std::vector<StateTensor>& tensors = state_->step.states[i].tensors;
    for (std::size_t t = 0; t < tensors.size(); ++t)
      state_->states[i][t].resize(
          static_cast<std::size_t>(tokens * tensors[t].rows * tensors[t].size));
  }
}

}  // namespace ac
