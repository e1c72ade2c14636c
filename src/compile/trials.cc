#include "compile/trials.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "analyze/fragment.h"
#include "analyze/use_def.h"
#include "base/error.h"
#include "compile/positions.h"
#include "generate/fallback.h"
#include "ir/text.h"
#include "kernels/draw_plan.h"
#include "plan/plans.h"

namespace ac {
namespace {

// Blocks that share the work in a trial: few, so that each has several turns.
constexpr int kTrialProcessors = 1;
constexpr std::int64_t kFewTokens = 37, kFewHeads = 2;
// Cached tokens, of which one new token sees more than many do: the work is the same.
constexpr std::int64_t kTrialContext = 260, kShortContext = 70, kMostKeys = 4500;
// Operations of one launch above which the gate leaves out what only varies the inputs' scale.
constexpr std::int64_t kMuchWork = 2'000'000;
constexpr std::int64_t kFewIds = 1000, kFewLogits = 20'000, kLogged = 50;
// Of a draw: several blocks, of which the last has the real tail.
constexpr std::int64_t kDrawBlocks = 3, kDrawTokens = 3;

// Outputs of one block, and blocks that run at once: a trial has more rows than these, with the
// real tail.
struct Rows {
  std::int64_t block = 64, at_once = 1;
};
template <class T>
Rows rows_of(const Implementation<T>&) {
  return {};
}
Rows rows_of(const Implementation<GemvTask>& made) {
  const auto& [task, plan] = made;
  return {std::int64_t{plan.groups_per_block()} * plan.outputs_per_group(task.op),
          std::int64_t{plan.blocks_per_sm()} * kTrialProcessors};
}
Rows rows_of(const Implementation<GemmTask>& made) { return {made.plan.tile_n, 1}; }
Rows rows_of(const Implementation<MmaGemmTask>& made) { return {made.plan.tile_n, 1}; }
Rows rows_of(const Implementation<TmaGemmTask>& made) { return {made.plan.tile_n, 1}; }
Rows rows_of(const Implementation<LibraryTask>&) { return {32, 1}; }

// Tokens of one block.
template <class T>
std::int64_t tokens_of(const Implementation<T>&) {
  return kFewTokens - 5;
}
std::int64_t tokens_of(const Implementation<GemmTask>& made) { return made.plan.tile_m; }
std::int64_t tokens_of(const Implementation<MmaGemmTask>& made) { return made.plan.tile_m; }
std::int64_t tokens_of(const Implementation<TmaGemmTask>& made) { return made.plan.tile_m; }
std::int64_t tokens_of(const Implementation<PrefillAttentionTask>& made) {
  return made.plan.query_tile;
}

std::int64_t tokens_of(const Implementation<QkvAttentionTask>& made) {
  return std::max(made.plan.tile_m, made.plan.query_tile);
}

// Cached keys of which some come to each place, register or shared memory, where others were.
template <class T>
std::int64_t keys_of(const Implementation<T>&) {
  return 0;
}
std::int64_t keys_of(const kernels::PrefillAttentionPlan& plan) {
  return std::int64_t{plan.stages} * plan.key_tile + kShortContext % plan.key_tile;
}
std::int64_t keys_of(const Implementation<PrefillAttentionTask>& made) {
  return keys_of(made.plan);
}
std::int64_t keys_of(const Implementation<QkvAttentionTask>& made) {
  return keys_of(made.plan.attention());
}
std::int64_t keys_of(const Implementation<AttentionTask>& made) {
  const auto& [task, plan] = made;
  return std::int64_t{plan.splits} * plan.warps() * plan.tile_tokens(task.op) + kTrialContext;
}

// KV heads that are enough for a trial.
template <class T>
std::int64_t heads_of(const Implementation<T>&) {
  return std::numeric_limits<std::int64_t>::max();
}
std::int64_t heads_of(const Implementation<AttentionTask>&) { return kFewHeads; }
std::int64_t heads_of(const Implementation<PrefillAttentionTask>&) { return kFewHeads; }
// A tile's and one more.
std::int64_t heads_of(const Implementation<QkvAttentionTask>& made) {
  return made.plan.tile_n / made.task.op.append.head_dim + 1;
}

// No more than n, past a boundary of blocks, and as far past it as n is.
std::int64_t fewer(std::int64_t n, const Rows& rows) {
  return std::min(n, rows.block * (rows.at_once + 1) + n % rows.block);
}

// The table of an embedding needs no more rows than make ids interesting.
StepGraph with_short_tables(StepGraph step) {
  StepGraph out{{step.graph.name, {}, step.graph.outputs}, step.caches};
  std::vector<bool> is_table(step.graph.nodes.size());
  for (const Node& node : step.graph.nodes)
    if (node.op == Op::embedding) is_table[static_cast<std::size_t>(node.inputs[0])] = true;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    Node node = step.graph.nodes[i];
    if (is_table[i] && node.op == Op::weight && node.type.shape[0].is_constant()) {
      node.type.shape[0] = std::min(node.type.shape[0].constant(), kFewIds);
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

class Trials {
 public:
  Trials(StepGraph fragment, std::int64_t tokens, std::int64_t keys = 0)
      : fragment_(std::move(fragment)) {
    trial_.tokens = depends_on_tokens(fragment_) ? tokens : 1;
    const std::int64_t context =
        std::min(std::max(keys, trial_.tokens > 1 ? kShortContext : kTrialContext),
                 most_positions(fragment_) - trial_.tokens);
    trial_.capacity = context + trial_.tokens;
    trial_.positions = {0, std::min<std::int64_t>(3, context), context / 2, context};
    if (!fragment_.caches.empty() && fragment_.caches[0].window > 0) {
      // A ring that is just large enough, met before it is full, when it is, and long after.
      const std::int64_t window = fragment_.caches[0].window;
      trial_.capacity = window + trial_.tokens - 1;
      trial_.positions = {0, window / 2, window - 1, window, 3 * trial_.capacity + 5};
    }
    for (const Node& node : fragment_.graph.nodes)
      if (node.op == Op::embedding) {
        const Node& ids = fragment_.graph[storage_of(fragment_.graph, node.inputs[1])];
        if (ids.op == Op::input)
          trial_.limits[ids.text("name")] =
              fragment_.graph.type(node.inputs[0]).shape[0].constant();
      }
    trial_.step = print(fragment_);
  }

  Setting setting() const {
    return {kTrialProcessors, std::vector<std::int64_t>(fragment_.caches.size(), trial_.capacity)};
  }
  const StepGraph& fragment() const { return fragment_; }
  Region region() const {
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < fragment_.graph.nodes.size(); ++i)
      if (is_compute(fragment_.graph.nodes[i])) nodes.push_back(static_cast<NodeId>(i));
    auto made = make_region(fragment_, nodes);
    if (const auto* boundary = std::get_if<Boundary>(&made))
      job_failed("a region is none by itself: {}", boundary->text);
    return std::get<Region>(std::move(made));
  }
  Bindings bindings() const { return {.T = trial_.tokens, .P = trial_.positions.back()}; }

  Request finish(std::string name, Generated made) {
    std::int64_t flops = 0;
    for (std::size_t i = 0; i < fragment_.graph.nodes.size(); ++i)
      if (is_compute(fragment_.graph.nodes[i]))
        flops += evaluate(work_of(fragment_.graph, static_cast<NodeId>(i)), bindings()).flops;
    trial_.light = flops > kMuchWork;
    trial_.storages = std::move(made.storages);
    trial_.launches = std::move(made.launches);
    return {std::move(name), std::move(made.sources), std::move(trial_)};
  }

 private:
  StepGraph fragment_;
  Trial trial_;
};

// Legal for its own device is a candidate already; whether a shape has such a plan is asked here.
const DeviceInfo& most_capable() {
  static const DeviceInfo device = [] {
    DeviceInfo info = device_info("sm_100");
    info.warpgroups = true;
    return info;
  }();
  return device;
}

// The candidate's plan for the fragment, if the family computes that and the plan fits.
std::optional<Generated> regenerate(const Trials& trials, const Wanted& wanted,
                                    const Candidate& candidate) {
  const StepGraph& fragment = trials.fragment();
  const Wanted part{trials.region(), wanted.argmax};
  for (const FamilyMatch& found : match_families(fragment, part, trials.bindings())) {
    const auto* matched = std::get_if<Matched>(&found.match);
    if (!matched || found.family != family_of(candidate.choice)) continue;
    const std::optional<Choice> choice = std::visit(
        [&](const auto& made) -> std::optional<Choice> {
          using T = std::decay_t<decltype(made.task)>;
          const T* task = std::get_if<T>(&matched->task);
          if (!task) return std::nullopt;
          return Implementation<T>{*task, made.plan};
        },
        candidate.choice);
    if (!choice || op_text(*choice) != op_text(candidate.choice)) return std::nullopt;
    if (why_illegal(*choice, most_capable())) return std::nullopt;
    return generate(fragment, *choice, matched->operands, trials.setting());
  }
  return std::nullopt;
}

int few_logits(std::int64_t vocab) {
  return static_cast<int>(std::min(vocab, kFewLogits + vocab % 8192));
}

using GenerateChoice =
    std::function<Generated(const StepGraph& step, NodeId logits, const Setting& setting)>;

// Of a kernel that chooses one of so many logits.
Request trial_of_choice(const std::string& name, DType logits, int vocab,
                        const GenerateChoice& generate) {
  StepGraph step;
  const NodeId node =
      step.graph.add_leaf(Op::input, {{"name", "logits"}}, {logits, {Dim(vocab)}}, "");
  Generated generated = generate(step, node, {kTrialProcessors, {}});
  Trial trial;
  trial.vocab = vocab;
  trial.logits = logits;
  trial.storages = std::move(generated.storages);
  trial.launches = std::move(generated.launches);
  return {name, std::move(generated.sources), std::move(trial)};
}

Request trial_of_sampling(const StepGraph& step, const Candidate& candidate) {
  const TensorType& logits = step.graph.type(step.graph.outputs.at(0).node);
  auto made = std::get<Implementation<SamplingTask>>(candidate.choice);
  made.task.vocab = few_logits(logits.shape.back().constant());
  const auto generate = [&](const StepGraph& trial, NodeId node, const Setting& setting) {
    return generate_sampling(trial, made, node, setting);
  };
  return trial_of_choice(candidate.id, logits.dtype, made.task.vocab, generate);
}

}  // namespace

std::optional<Request> trial_of(const StepGraph& step, const std::optional<Wanted>& wanted,
                                const Candidate& candidate, const TrialSetting& at) {
  if (!wanted) return trial_of_sampling(step, candidate);
  const StepGraph whole = with_fewer_heads(
      with_short_tables(fragment_of(step, wanted->region)),
      std::visit([](const auto& made) { return heads_of(made); }, candidate.choice));
  std::int64_t block =
      std::visit([](const auto& made) { return tokens_of(made); }, candidate.choice);
  // As few as make it take the algorithm that is wanted.
  if (const auto* made = std::get_if<Implementation<LibraryTask>>(&candidate.choice);
      made && at.judges_library)
    block = made->plan.chosen_for.m / 2 + 1;
  const std::int64_t tokens = std::min(at.max_tokens, block + 5);
  const Rows rows = std::visit([](const auto& made) { return rows_of(made); }, candidate.choice);
  std::int64_t keys = std::visit([](const auto& made) { return keys_of(made); }, candidate.choice);
  if (keys > kMostKeys) keys = 0;  // judging would take too long
  if (!at.setting.slots.empty()) keys = std::min(keys, std::ranges::max(at.setting.slots));
  const StepGraph small = with_fewer_rows(whole, [&](std::int64_t n) { return fewer(n, rows); });
  for (const StepGraph* fragment : {&small, &whole}) {
    Trials trials(*fragment, tokens, keys);
    auto made = regenerate(trials, *wanted, candidate);
    if (!made) continue;
    Request request = trials.finish(candidate.id, std::move(*made));
    request.trial.spreads =
        std::holds_alternative<Implementation<PrefillAttentionTask>>(candidate.choice) ||
        std::holds_alternative<Implementation<QkvAttentionTask>>(candidate.choice);
    return request;
  }
  return std::nullopt;
}

Request trial_of_fallback(const StepGraph& step, const Region& region, const TrialSetting& at) {
  const StepGraph whole = with_short_tables(fragment_of(step, region));
  const StepGraph small =
      with_fewer_rows(whole, [](std::int64_t n) { return fewer(n, Rows{256, 1}); });
  Trials trials(small, std::min(at.max_tokens, std::int64_t{7}));
  Generated made = fallback(trials.fragment(), trials.region(), trials.setting());
  return trials.finish("fallback", std::move(made));
}

Request trial_of_argmax(DType logits, std::int64_t vocab) {
  return trial_of_choice("fallback argmax", logits, few_logits(vocab), fallback_argmax);
}

Request trial_of_advance(DType ids, std::int64_t max_tokens) {
  StepGraph step;
  const NodeId node =
      step.graph.add_leaf(Op::input, {{"name", "ids"}}, {ids, {Dim(Symbol::T)}}, "");
  step.graph.outputs = {{"ids", node}};
  Generated generated = generate_advance(step, node, kLogged);
  Trial trial;
  trial.step = print(step);
  trial.tokens = std::min<std::int64_t>(max_tokens, 7);
  trial.log = kLogged;
  // The last position that the log has, and those just beyond it and far beyond.
  const std::int64_t last = kLogged - 1 - trial.tokens;
  trial.positions = {0, 1, kLogged / 2, last, last + 1, 4 * kLogged};
  trial.storages = std::move(generated.storages);
  trial.launches = std::move(generated.launches);
  return {"advance", std::move(generated.sources), std::move(trial)};
}

Request trial_of_draw(DType logits, std::int64_t vocab) {
  constexpr std::int64_t kBlock = kernels::draw_block;
  const std::int64_t few = std::min(vocab, kDrawBlocks * kBlock + vocab % kBlock);
  StepGraph step;
  const NodeId ids =
      step.graph.add_leaf(Op::input, {{"name", "ids"}}, {DType::i64, {Dim(Symbol::T)}}, "");
  const NodeId node =
      step.graph.add_leaf(Op::input, {{"name", "logits"}}, {logits, {Dim(few)}}, "");
  Generated generated = generate_draw(step, ids, node);
  Trial trial;
  trial.tokens = kDrawTokens;
  trial.vocab = few;
  trial.logits = logits;
  trial.draws = true;
  trial.storages = std::move(generated.storages);
  trial.launches = std::move(generated.launches);
  return {"draw", std::move(generated.sources), std::move(trial)};
}

}  // namespace ac
