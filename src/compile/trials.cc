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

// Blocks that share the work in a trial: few, so that each has several turns, and more than one.
constexpr int kTrialProcessors = 2;
constexpr std::int64_t kFewTokens = 32, kTailTokens = 5, kFewHeads = 2;
// Cached tokens at least, of which one new token sees more than many do: the work is the same.
constexpr std::int64_t kTrialContext = 260, kShortContext = 70;
// Elements of a trial's caches at most: more keys than they hold are not judged.
constexpr std::int64_t kMostCached = 2'500'000;
// Operations of one launch, or elements, above which the gate computes the truth of some rows and
// repeats less; and operations of a launch with more tiles of tokens than a group has.
constexpr std::int64_t kMuchWork = 2'000'000, kMuchMemory = 500'000, kMostOfGroup = 60'000'000;
// Operations of one launch above which fewer scenarios must do: the host takes half a second for
// them.
constexpr std::int64_t kVastWork = 50'000'000;
constexpr std::int64_t kFewIds = 1000, kFewLogits = 20'000, kLogged = 50;
// Of a draw: several blocks, of which the last has the real tail.
constexpr std::int64_t kDrawBlocks = 3, kDrawTokens = 3;

// What of a plan says how large a trial must be for everything in it to happen. Every family says
// all of it.
struct Extent {
  // Outputs of one block, and blocks that run at once: a trial has more rows than these, with the
  // real tail.
  std::int64_t block = 64, at_once = 1;
  std::int64_t tokens = 0;  // of one block; 0: each by itself
  std::int64_t group = 1;   // blocks of tokens that go together through the rows
  // Cached keys that a warp or block takes at once, and those after which all places have been
  // used, splits, warps and the ring's slots: some are used again. 0: there are none.
  std::int64_t key_tile = 0, round = 0;
  std::int64_t kv_heads = std::numeric_limits<std::int64_t>::max();  // that are enough
};

Extent extent_of(const Implementation<GemvTask>& made) {
  const auto& [task, plan] = made;
  return {.block = std::int64_t{plan.groups_per_block()} * plan.outputs_per_group(task.op),
          .at_once = std::int64_t{plan.blocks_per_sm()} * kTrialProcessors};
}
Extent extent_of(const Implementation<GemmTask>& made) {
  return {.block = made.plan.tile_n, .tokens = made.plan.tile_m};
}
Extent extent_of(const Implementation<MmaGemmTask>& made) {
  return {.block = made.plan.tile_n, .tokens = made.plan.tile_m, .group = made.plan.group_m};
}
Extent extent_of(const Implementation<TmaGemmTask>& made) {
  const kernels::TmaGemmPlan& plan = made.plan;
  return {.block = plan.tile_n,
          .tokens = plan.tile_m,
          .group = std::int64_t{plan.group_m} * plan.cluster_m};
}
Extent extent_of(const Implementation<LibraryTask>&) { return {.block = 32}; }
Extent extent_of(const Implementation<AttentionTask>& made) {
  const auto& [task, plan] = made;
  const std::int64_t tile = plan.tile_tokens(task.op);
  const std::int64_t round = tile * plan.splits * plan.warps() * plan.min_tiles;
  const bool is_long = 2 * round * 2 * task.op.head_dim * kFewHeads > kMostCached;
  return {.key_tile = tile, .round = round, .kv_heads = is_long ? 1 : kFewHeads};
}
Extent extent_of(const kernels::PrefillAttentionPlan& plan) {
  return {.tokens = plan.query_tile,
          .key_tile = plan.key_tile,
          .round = std::int64_t{plan.stages} * plan.key_tile,
          .kv_heads = kFewHeads};
}
Extent extent_of(const Implementation<PrefillAttentionTask>& made) { return extent_of(made.plan); }
Extent extent_of(const Implementation<QkvAttentionTask>& made) {
  Extent extent = extent_of(made.plan.attention());
  extent.tokens = std::max<std::int64_t>(made.plan.tile_m, extent.tokens);
  extent.group = std::int64_t{made.plan.group_m} * made.plan.cluster_m;
  // A tile's and one more.
  extent.kv_heads = made.plan.tile_n / made.task.op.append.head_dim + 1;
  return extent;
}
// One row or element at a time, each by itself.
Extent extent_of(const Implementation<NormTask>&) { return {}; }
Extent extent_of(const Implementation<SoftmaxTask>&) { return {}; }
Extent extent_of(const Implementation<ReductionTask>&) { return {}; }
Extent extent_of(const Implementation<ElementwiseTask>&) { return {}; }
Extent extent_of(const Implementation<EmbeddingTask>&) { return {}; }
Extent extent_of(const Implementation<SamplingTask>&) { return {}; }

// No more than n, past a boundary of blocks, and as far past it as n is.
std::int64_t fewer(std::int64_t n, const Extent& extent) {
  return std::min(n, extent.block * (extent.at_once + 1) + n % extent.block);
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

// Sorted, each once, of those that are in [low, high].
std::vector<std::int64_t> within(std::vector<std::int64_t> values, std::int64_t low,
                                 std::int64_t high) {
  std::erase_if(values, [&](std::int64_t value) { return value < low || value > high; });
  std::ranges::sort(values);
  values.erase(std::ranges::unique(values).begin(), values.end());
  return values;
}

// Tokens before a step of so many, where tiles of keys begin and end: so that the last one of the
// step's is the last of a tile, or the first of one.
void add_tile_edges(std::vector<std::int64_t>& positions, std::int64_t edge, std::int64_t tokens) {
  for (const std::int64_t near : {-1, 0, 1}) {
    positions.push_back(edge + near);
    positions.push_back(edge + near - tokens);
  }
}

class Trials {
 public:
  // `most_keys`: that the package's caches hold; 0: any number.
  Trials(StepGraph fragment, std::int64_t tokens, const Extent& extent, std::int64_t max_tokens,
         std::int64_t most_keys = 0)
      : fragment_(std::move(fragment)) {
    const bool has_tokens = depends_on_tokens(fragment_);
    trial_.tokens = has_tokens ? tokens : 1;
    if (has_tokens) add_other_tokens(extent, max_tokens);
    const std::int64_t most_tokens = trial_.other_tokens.empty()
                                         ? trial_.tokens
                                         : std::max(trial_.tokens, trial_.other_tokens.back());
    const std::int64_t window = fragment_.caches.empty() ? 0 : fragment_.caches[0].window;
    if (window > 0)
      meet_ring(window, most_tokens, extent.key_tile);
    else
      meet_tiles(extent, most_tokens, most_keys);
    finish_limits();
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
    const std::int64_t work = flops(bindings());
    trial_.expensive = work > kMuchWork || elements() > kMuchMemory;
    trial_.vast = work > kVastWork;
    trial_.storages = std::move(made.storages);
    trial_.launches = std::move(made.launches);
    return {std::move(name), std::move(made.sources), std::move(trial_)};
  }

 private:
  // Around a block's, and more blocks than go together.
  void add_other_tokens(const Extent& extent, std::int64_t max_tokens) {
    const std::int64_t block = extent.tokens, most = block * (extent.group + 1) + kTailTokens;
    std::vector<std::int64_t> others{1};
    if (block > 0) others.insert(others.end(), {block - 1, block, block + 1});
    if (block > 0 && flops({.T = most, .P = kShortContext}) < kMostOfGroup) others.push_back(most);
    trial_.other_tokens = within(std::move(others), 1, max_tokens);
    std::erase(trial_.other_tokens, trial_.tokens);
  }

  std::int64_t flops(const Bindings& at) const {
    std::int64_t all = 0;
    for (std::size_t i = 0; i < fragment_.graph.nodes.size(); ++i)
      if (is_compute(fragment_.graph.nodes[i]))
        all += evaluate(work_of(fragment_.graph, static_cast<NodeId>(i)), at).flops;
    return all;
  }

  // A ring that is just large enough, met before it is full, when it is, and long after.
  void meet_ring(std::int64_t window, std::int64_t most_tokens, std::int64_t tile) {
    const std::int64_t ring = window + most_tokens - 1;
    trial_.capacity = ring;
    trial_.positions = {0,        window / 2, window - 1, window,      window + 1,
                        ring - 1, ring,       ring + 1,   3 * ring + 5};
    if (tile > 0) add_tile_edges(trial_.positions, (window / tile + 1) * tile, trial_.tokens);
    if (tile > 0) add_tile_edges(trial_.positions, (ring / tile + 2) * tile, trial_.tokens);
    trial_.positions =
        within(std::move(trial_.positions), 0, std::numeric_limits<std::int64_t>::max());
  }

  void meet_tiles(const Extent& extent, std::int64_t most_tokens, std::int64_t most_keys) {
    const std::int64_t tile = extent.key_tile;
    const std::int64_t few = most_tokens > 1 ? kShortContext : kTrialContext;
    std::int64_t context = few;
    if (!fragment_.caches.empty()) {
      const Cache& cache = fragment_.caches[0];
      const std::int64_t of_token = cache.heads * (cache.key_size + cache.value_size);
      context = std::max(few, 2 * extent.round + tile + few % std::max<std::int64_t>(tile, 1));
      context = std::min(context, std::max(few, kMostCached / of_token));
      if (most_keys > 0) context = std::min(context, std::max(most_keys - trial_.tokens, few));
    }
    context = std::min(context, most_positions(fragment_) - most_tokens);
    trial_.capacity = context + most_tokens;
    trial_.positions = {0, 3, context / 2, context};
    if (tile > 0) {
      add_tile_edges(trial_.positions, tile, trial_.tokens);
      add_tile_edges(trial_.positions, (trial_.tokens + tile - 1) / tile * tile, trial_.tokens);
      add_tile_edges(trial_.positions, extent.round, trial_.tokens);
      trial_.positions.push_back(extent.round + tile);
    }
    trial_.positions = within(std::move(trial_.positions), 0, context);
  }

  void finish_limits() {
    for (const Node& node : fragment_.graph.nodes)
      if (node.op == Op::embedding) {
        const Node& ids = fragment_.graph[storage_of(fragment_.graph, node.inputs[1])];
        if (ids.op == Op::input)
          trial_.limits[ids.text("name")] =
              fragment_.graph.type(node.inputs[0]).shape[0].constant();
      }
    trial_.step = print(fragment_);
  }

  // Of caches and weights.
  std::int64_t elements() const {
    std::int64_t all = 0;
    for (const Cache& cache : fragment_.caches)
      all += cache.heads * (cache.key_size + cache.value_size) * trial_.capacity;
    for (const Node& node : fragment_.graph.nodes)
      if (node.op == Op::weight) all += product(node.type.shape).evaluate(bindings());
    return all;
  }

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
  Extent extent = std::visit([](const auto& made) { return extent_of(made); }, candidate.choice);
  const StepGraph whole =
      with_fewer_heads(with_short_tables(fragment_of(step, wanted->region)), extent.kv_heads);
  std::int64_t block = extent.tokens > 0 ? extent.tokens : kFewTokens;
  // As few as make it take the algorithm that is wanted.
  if (const auto* made = std::get_if<Implementation<LibraryTask>>(&candidate.choice);
      made && at.judges_library)
    block = made->plan.chosen_for.m / 2 + 1;
  const std::int64_t tokens = std::min(at.max_tokens, block + kTailTokens);
  const std::int64_t keys = at.setting.slots.empty() ? 0 : std::ranges::max(at.setting.slots);
  const StepGraph small = with_fewer_rows(whole, [&](std::int64_t n) { return fewer(n, extent); });
  for (const StepGraph* fragment : {&small, &whole}) {
    Trials trials(*fragment, tokens, extent, at.max_tokens, keys);
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
  // One output a thread, of blocks of 256.
  constexpr Extent extent{.block = 256};
  const StepGraph whole = with_short_tables(fragment_of(step, region));
  const StepGraph small = with_fewer_rows(whole, [&](std::int64_t n) { return fewer(n, extent); });
  Trials trials(small, std::min(at.max_tokens, std::int64_t{7}), extent, at.max_tokens);
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
