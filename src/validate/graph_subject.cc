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
    add_caches();
    add_outputs();
  }

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  bool has_caches() const { return !step_.caches.empty(); }

  Elements evaluate(const Elements& in, Arithmetic arithmetic) const {
    return evaluate(in, arithmetic, {0, options_.tokens});
  }

  // Of the outputs, these rows alone; of all, where that is not possible (rows()).
  Elements evaluate(const Elements& in, Arithmetic arithmetic, const Rows& rows) const {
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
    const Values outputs = executor.step(rows.count, inputs);
    Elements result(tensors_.size());
    for (const auto& [name, value] : outputs) {
      const auto in_place = options_.in_place.find(name);
      result[at(in_place == options_.in_place.end() ? name : in_place->second)] = value.data;
    }
    for (std::size_t i = 0; i < step_.caches.size(); ++i) {
      const Cache& cache = step_.caches[i];
      const KvState& state = executor.cache(i);
      append(in, result, keys(i), state.keys, cache.heads, cache.key_size, position);
      append(in, result, values(i), state.values, cache.heads, cache.value_size, position);
    }
    return result;
  }

  // Tokens, where all outputs have a row for each that depends on no other: incrementalise has
  // proven that of all ops but attention.
  std::int64_t rows() const {
    const auto has_rows = [&](const Node& node) {
      return !node.type.shape.empty() && node.type.shape[0] == Dim(Symbol::T);
    };
    if (has_caches() || !overwritten_.empty()) return 0;
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
    for (std::size_t i = 0; i < step_.caches.size(); ++i)
      for (const std::size_t t : {keys(i), values(i)}) {
        const std::int64_t capacity = options_.capacity, size = tensors_[t].shape[2];
        for (std::int64_t head = 0; head < step_.caches[i].heads; ++head)
          for (std::int64_t slot = std::min(position, capacity); slot < capacity; ++slot)
            std::fill_n(elements[t].begin() + (head * capacity + slot) * size, size, kEmpty);
      }
  }

 private:
  std::size_t at(const std::string& name) const {
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      if (tensors_[t].name == name) return t;
    AC_UNREACHABLE();
  }
  std::size_t keys(std::size_t cache) const { return first_cache_ + 2 * cache; }
  std::size_t values(std::size_t cache) const { return first_cache_ + 2 * cache + 1; }

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
      if (overwritten_.contains(name)) spec.role = Role::state;
      if (!is_float(spec.dtype)) {
        const auto limit = options_.limits.find(name);
        if (spec.dtype == DType::boolean)
          spec.high = 1;
        else if (limit == options_.limits.end())
          bad_input("admission: the input \"{}\" holds integers, and nothing says how large", name);
        else
          spec.high = limit->second - 1;
      }
      spec.may_be_huge = !makes_scores(node);
      tensors_.push_back(std::move(spec));
    }
  }

  void add_weights() {
    for (const Node& node : step_.graph.nodes) {
      if (node.op != Op::weight) continue;
      const std::string& key = node.text("key");
      const auto same = [&](const TensorSpec& spec) { return spec.name == key; };
      if (std::ranges::any_of(tensors_, same)) continue;
      tensors_.push_back({.name = key,
                          .dtype = node.type.dtype,
                          .shape = sizes_of(node),
                          .role = Role::weight,
                          .may_be_huge = !makes_scores(node)});
    }
  }

  bool depends_on_position() const {
    return has_caches() || std::ranges::any_of(step_.graph.nodes, [](const Node& node) {
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
    for (const Cache& cache : step_.caches) {
      const bool fits = high + options_.tokens <= options_.capacity ||
                        (cache.window > 0 && cache.window <= options_.capacity);
      if (!fits)
        bad_input("admission: a cache of {} slots cannot hold what the token at {} sees",
                  options_.capacity, high);
    }
    spec.low = low, spec.high = high;
    position_ = tensors_.size();
    tensors_.push_back(std::move(spec));
  }

  void add_caches() {
    first_cache_ = tensors_.size();
    for (std::size_t i = 0; i < step_.caches.size(); ++i) {
      const Cache& cache = step_.caches[i];
      const auto add = [&](const char* what, std::int64_t size, bool may_be_huge) {
        tensors_.push_back({.name = fmt::format("cache{}.{}", i, what),
                            .dtype = cache.dtype,
                            .shape = {cache.heads, options_.capacity, size},
                            .role = Role::state,
                            .may_be_huge = may_be_huge});
      };
      add("keys", cache.key_size, false);
      add("values", cache.value_size, true);
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
                          .role = Role::output});
    }
  }

  std::int64_t position_of(const Elements& in) const {
    return position_ == kNone ? 0 : static_cast<std::int64_t>(in[position_][0]);
  }

  // From [heads, slots, size] to [tokens, heads, size]. Tokens that have left the cache are zeros,
  // which nobody sees.
  std::vector<KvState> cached(const Elements& in, std::int64_t position) const {
    std::vector<KvState> states(step_.caches.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto gather = [&](std::size_t t, std::int64_t size) {
        const std::int64_t heads = step_.caches[i].heads, capacity = options_.capacity;
        std::vector<double> out(static_cast<std::size_t>(position * heads * size));
        for (std::int64_t token = std::max<std::int64_t>(0, position - capacity); token < position;
             ++token)
          for (std::int64_t head = 0; head < heads; ++head)
            std::copy_n(in[t].begin() + (head * capacity + token % capacity) * size, size,
                        out.begin() + (token * heads + head) * size);
        return out;
      };
      states[i].keys = gather(keys(i), step_.caches[i].key_size);
      states[i].values = gather(values(i), step_.caches[i].value_size);
    }
    return states;
  }

  void append(const Elements& in, Elements& result, std::size_t t,
              const std::vector<double>& tokens, std::int64_t heads, std::int64_t size,
              std::int64_t position) const {
    result[t] = in[t];
    const std::int64_t capacity = options_.capacity;
    for (std::int64_t token = position; token < position + options_.tokens; ++token)
      for (std::int64_t head = 0; head < heads; ++head)
        std::copy_n(tokens.begin() + (token * heads + head) * size, size,
                    result[t].begin() + (head * capacity + token % capacity) * size);
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  StepGraph step_;
  GraphSubjectOptions options_;
  std::map<std::string, std::string> overwritten_;  // input, by output
  std::vector<TensorSpec> tensors_;
  std::vector<bool> makes_scores_;  // by node
  std::size_t position_ = kNone, first_cache_ = 0;
};

}  // namespace

Subject subject_of(const StepGraph& step, const GraphSubjectOptions& options) {
  const auto graph = std::make_shared<const GraphSubject>(step, options);
  Subject subject;
  subject.tensors = graph->tensors();
  subject.truth = [graph](const Elements& in) { return graph->evaluate(in, Arithmetic::exact); };
  subject.plain = [graph](const Elements& in) { return graph->evaluate(in, Arithmetic::plain); };
  subject.linear = graph->is_linear();
  subject.rows = graph->rows();
  subject.truth_of_rows = [graph](const Elements& in, const Rows& rows) {
    return graph->evaluate(in, Arithmetic::exact, rows);
  };
  subject.plain_of_rows = [graph](const Elements& in, const Rows& rows) {
    return graph->evaluate(in, Arithmetic::plain, rows);
  };
  if (graph->has_caches()) subject.constrain = [graph](Elements& e) { graph->constrain(e); };
  return subject;
}

std::size_t index_of(const Subject& subject, const std::string& name) {
  for (std::size_t t = 0; t < subject.tensors.size(); ++t)
    if (subject.tensors[t].name == name) return t;
  AC_UNREACHABLE();
}

}  // namespace ac::validate
