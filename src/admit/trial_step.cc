#include "admit/trial_step.h"

#include <algorithm>

#include "analyze/fragment.h"
#include "analyze/layers.h"
#include "analyze/use_def.h"
#include "base/error.h"
#include "ir/graph_text.h"

namespace ac {

StepGraph with_short_tables(const StepGraph& step, std::int64_t most) {
  StepGraph out{{step.graph.name, {}, step.graph.outputs}, step.states};
  std::vector<bool> is_table(step.graph.nodes.size());
  for (const Node& node : step.graph.nodes)
    if (node.op == Op::embedding) is_table[static_cast<std::size_t>(node.inputs[0])] = true;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    Node node = step.graph.nodes[i];
    if (is_table[i] && node.op == Op::weight && node.type.shape[0].is_constant()) {
      node.type.shape[0] = std::min(node.type.shape[0].constant(), most);
      out.graph.add_leaf(node.op, node.attrs, node.type, node.module);
    } else {
      out.graph.nodes.push_back(std::move(node));
    }
  }
  return out;
}

bool depends_on_tokens(const StepGraph& step) {
  return std::any_of(step.graph.nodes.begin(), step.graph.nodes.end(), [](const Node& node) {
    return std::any_of(node.type.shape.begin(), node.type.shape.end(),
                       [](const Dim& dim) { return dim.uses(Symbol::T); });
  });
}

std::vector<std::int64_t> within(std::vector<std::int64_t> values, std::int64_t low,
                                 std::int64_t high) {
  std::erase_if(values, [&](std::int64_t value) { return value < low || value > high; });
  std::ranges::sort(values);
  values.erase(std::ranges::unique(values).begin(), values.end());
  return values;
}

Region TrialStep::region() const {
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < fragment_.graph.nodes.size(); ++i)
    if (is_compute(fragment_.graph.nodes[i])) nodes.push_back(static_cast<NodeId>(i));
  const Behind states = fragment_.states.size() > 1 ? Behind::whatever : Behind::nothing;
  auto made = make_region(fragment_, nodes, states);
  if (const auto* boundary = std::get_if<Boundary>(&made))
    job_failed("a region is none by itself: {}", boundary->text);
  return std::get<Region>(std::move(made));
}

std::int64_t TrialStep::flops(const StepGraph& step, const Bindings& at) {
  std::int64_t all = 0;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (is_compute(step.graph.nodes[i]))
      all += evaluate(work_of(step.graph, static_cast<NodeId>(i)), at).flops;
  return all;
}

std::int64_t TrialStep::elements(const StepGraph& step) const {
  std::int64_t all = 0;
  for (const StateSpec& state : step.states) all += elements_of_token(state) * trial_.capacity;
  for (const Node& node : step.graph.nodes)
    if (node.op == Op::weight) all += product(node.type.shape).evaluate(bindings());
  return all;
}

Request TrialStep::finish(std::string name, Generated made, std::vector<Launch> alone) {
  trial_.alone = std::move(alone);
  trial_.buffers = std::move(made.buffers);
  trial_.launches = std::move(made.launches);
  const std::int64_t work = flops(bindings());
  return {.name = std::move(name),
          .sources = std::move(made.sources),
          .trial = std::move(trial_),
          .work = work};
}

void TrialStep::set_limits() {
  for (const Node& node : fragment_.graph.nodes)
    if (node.op == Op::embedding) {
      const Node& ids = fragment_.graph[storage_of(fragment_.graph, node.inputs[1])];
      if (ids.op == Op::input)
        trial_.limits[ids.text("name")] = fragment_.graph.type(node.inputs[0]).shape[0].constant();
    }
  trial_.step = print(fragment_);
}

namespace {

// Legal for its own device is a candidate already; whether a shape has such a plan is asked here.
const DeviceInfo& most_capable() {
  static const DeviceInfo device = [] {
    DeviceInfo info = device_info("sm_100");
    info.warpgroups = true;
    info.multiprocessors = kAnyMultiprocessors;
    return info;
  }();
  return device;
}

}  // namespace

StepGraph tried_fragment(const StepGraph& step, const Wanted& wanted, const Extent& extent) {
  const Region& region = wanted.region;
  if (extent.layers == 0 || extent.layers >= region.layers) return fragment_of(step, region);
  return fragment_of(step, first_layers(step, region, extent.layers));
}

std::optional<Generated> regenerate(const TrialStep& trial, const Wanted& wanted,
                                    const Candidate& candidate, int rows) {
  Setting setting = trial.setting();
  setting.rows = rows;
  const StepGraph& fragment = trial.fragment();
  const Wanted part{trial.region(), wanted.argmax};
  const auto matched = match_again(candidate.choice, fragment, part, trial.bindings());
  if (!matched) return std::nullopt;
  const Choice choice = with_plan_of(candidate.choice, *matched);
  if (op_text(choice) != op_text(candidate.choice)) return std::nullopt;
  if (why_illegal(choice, most_capable())) return std::nullopt;
  return generate(fragment, choice, *matched, setting);
}

std::vector<Launch> alone_launches(const TrialStep& trial, const Wanted& wanted,
                                   const Candidate& candidate, Generated& made) {
  const auto alone = alone_of(candidate.choice);
  const StepGraph& fragment = trial.fragment();
  if (!alone || !depends_on_tokens(fragment)) return {};
  const Wanted part{trial.region(), wanted.argmax};
  const auto matched = match_again(*alone, fragment, part, trial.bindings());
  Generated one = generate(fragment, with_plan_of(*alone, *matched), *matched, trial.setting());
  for (KernelSource& source : one.sources) made.sources.push_back(std::move(source));
  for (Launch& launch : one.launches) {
    const auto refer = [&](std::int32_t& buffer) {
      buffer = made.refer(one.buffers[static_cast<std::size_t>(buffer)]);
    };
    for (Launch::Pointer& pointer : launch.pointers) refer(pointer.buffer);
    for (Launch::Map& map : launch.maps) refer(map.buffer);
  }
  return std::move(one.launches);
}

Request trial_of_choice(const std::string& name, DType logits, std::int64_t vocab, int processors,
                        const GenerateChoice& generate) {
  StepGraph step;
  const NodeId node =
      step.graph.add_leaf(Op::input, {{"name", "logits"}}, {logits, {Dim(vocab)}}, "");
  Generated generated = generate(step, node, {processors, {}});
  Trial trial;
  trial.vocab = vocab;
  trial.logits = logits;
  trial.buffers = std::move(generated.buffers);
  trial.launches = std::move(generated.launches);
  return {.name = name,
          .sources = std::move(generated.sources),
          .trial = std::move(trial),
          .work = vocab};
}

Request trial_of_ending(DType ids, std::int64_t tokens, std::int64_t logged) {
  StepGraph step;
  const NodeId node =
      step.graph.add_leaf(Op::input, {{"name", "ids"}}, {ids, {Dim(Symbol::T)}}, "");
  step.graph.outputs = {{"ids", node}};
  Generated generated = generate_advance(step, node, logged);
  Trial trial;
  trial.step = print(step);
  trial.tokens = tokens;
  trial.log = logged;
  // The last position that the log has, and those just beyond it and far beyond.
  const std::int64_t last = logged - 1 - tokens;
  trial.positions = {0, 1, logged / 2, last, last + 1, 4 * logged};
  trial.buffers = std::move(generated.buffers);
  trial.launches = std::move(generated.launches);
  return {"advance", std::move(generated.sources), std::move(trial)};
}

Request trial_of_drawing(DType logits, std::int64_t vocab) {
  constexpr std::int64_t kDrawTokens = 3;
  StepGraph step;
  const NodeId ids =
      step.graph.add_leaf(Op::input, {{"name", "ids"}}, {DType::i64, {Dim(Symbol::T)}}, "");
  const NodeId node =
      step.graph.add_leaf(Op::input, {{"name", "logits"}}, {logits, {Dim(vocab)}}, "");
  Generated generated = generate_draw(step, ids, node);
  Trial trial;
  trial.tokens = kDrawTokens;
  trial.vocab = vocab;
  trial.logits = logits;
  trial.draws = true;
  trial.buffers = std::move(generated.buffers);
  trial.launches = std::move(generated.launches);
  // Many requests are tried (gate_for), by 64-bit sums: it takes as long as products of this size.
  constexpr std::int64_t kWork = 100'000'000;
  return {.name = "draw",
          .sources = std::move(generated.sources),
          .trial = std::move(trial),
          .work = kWork};
}

Request trial_of_masking(DType logits, std::int64_t vocab) {
  StepGraph step;
  const auto leaf = [&](const char* name) {
    return step.graph.add_leaf(Op::input, {{"name", name}}, {logits, {Dim(vocab)}}, "");
  };
  const NodeId node = leaf("logits"), masked = leaf("masked");
  Generated generated = generate_mask(step, node, buffer_of(step, masked));
  Trial trial;
  trial.vocab = vocab;
  trial.logits = logits;
  trial.masks = true;
  trial.buffers = std::move(generated.buffers);
  trial.launches = std::move(generated.launches);
  return {.name = "mask",
          .sources = std::move(generated.sources),
          .trial = std::move(trial),
          .work = vocab};
}

}  // namespace ac
