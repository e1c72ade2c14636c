#include "admit/trials.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "admit/trial_step.h"
#include "analyze/fragment.h"
#include "analyze/use_def.h"
#include "base/error.h"
#include "generate/each_row.h"
#include "generate/fallback.h"
#include "ir/graph_text.h"
#include "ir/positions.h"
#include "kernels/draw_plan.h"

namespace ac {
namespace {

// Cached tokens at least, of which one new token sees more than many do: the work is the same.
constexpr std::int64_t kTrialContext = 260, kShortContext = 70;
// Operations of one launch, or elements, above which the gate computes the truth of some rows and
// repeats less; and operations of a launch with more tiles of tokens than a group has.
constexpr std::int64_t kMuchWork = 2'000'000, kMuchMemory = 500'000, kMostOfGroup = 60'000'000;
// Operations of one launch above which fewer scenarios must do: the host takes half a second for
// them.
constexpr std::int64_t kVastWork = 50'000'000;
constexpr std::int64_t kFewLogits = 20'000, kLogged = 50;
// Of a draw: several blocks, of which the last has the real tail.
constexpr std::int64_t kDrawBlocks = 3;

// No more than n, past a boundary of blocks, and as far past it as n is.
std::int64_t fewer(std::int64_t n, const Extent& extent) {
  return std::min(n, extent.block * (extent.at_once + 1) + n % extent.block);
}

// Tokens before a step of so many, where tiles of keys begin and end: so that the last one of the
// step's is the last of a tile, or the first of one.
void add_tile_edges(std::vector<std::int64_t>& positions, std::int64_t edge, std::int64_t tokens) {
  for (const std::int64_t near : {-1, 0, 1}) {
    positions.push_back(edge + near);
    positions.push_back(edge + near - tokens);
  }
}

class QuickTrial : public TrialStep {
 public:
  // `most_keys`: that the package's states hold; 0: any number.
  QuickTrial(StepGraph fragment, std::int64_t tokens, const Extent& extent, std::int64_t max_tokens,
             std::int64_t most_keys = 0)
      : TrialStep(std::move(fragment), kTrialProcessors) {
    const bool has_tokens = depends_on_tokens(fragment_);
    trial_.tokens = has_tokens ? tokens : 1;
    if (has_tokens) add_other_tokens(extent, max_tokens);
    const std::int64_t most_tokens = trial_.other_tokens.empty()
                                         ? trial_.tokens
                                         : std::max(trial_.tokens, trial_.other_tokens.back());
    const std::int64_t window = fragment_.states.empty() ? 0 : fragment_.states[0].window;
    if (window > 0)
      meet_ring(window, most_tokens, extent.key_tile);
    else
      meet_tiles(extent, most_tokens, most_keys);
    set_limits();
  }

  Request finish(std::string name, Generated made, std::vector<Launch> alone = {}) {
    const std::int64_t work = flops(bindings());
    trial_.expensive = work > kMuchWork || elements() > kMuchMemory;
    trial_.vast = work > kVastWork;
    return TrialStep::finish(std::move(name), std::move(made), std::move(alone));
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
    if (!fragment_.states.empty()) {
      const std::int64_t of_token = elements_of_token(fragment_.states[0]);
      context = std::max(few, 2 * extent.round + tile + few % std::max<std::int64_t>(tile, 1));
      context = std::min(context, std::max(few, kMostCached / of_token));
      if (most_keys > 0) context = std::min(context, std::max(most_keys - trial_.tokens, few));
    }
    context = std::min(context, token_limit(fragment_).tokens - most_tokens);
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
};

int few_logits(std::int64_t vocab) {
  return static_cast<int>(std::min(vocab, kFewLogits + vocab % 8192));
}

Request trial_of_sampling(const StepGraph& step, const Candidate& candidate) {
  const TensorType& logits = step.graph.type(step.graph.outputs.at(0).node);
  auto made = std::get<Implementation<SamplingTask>>(candidate.choice);
  made.task.vocab = few_logits(logits.shape.back().constant());
  const auto generate = [&](const StepGraph& trial, NodeId node, const Setting& setting) {
    return made.task.lower({trial, setting}, made.plan, {node});
  };
  return trial_of_choice(candidate.id, logits.dtype, made.task.vocab, kTrialProcessors, generate);
}

}  // namespace

std::optional<Request> trial_of(const StepGraph& step, const std::optional<Wanted>& wanted,
                                const Candidate& candidate, const TrialSetting& at) {
  if (!wanted) return trial_of_sampling(step, candidate);
  const Extent extent = extent_of(candidate.choice);
  const StepGraph whole = with_fewer_heads(
      with_short_tables(tried_fragment(step, *wanted, extent), kFewIds), extent.kv_heads);
  std::int64_t block = extent.tokens > 0 ? extent.tokens : kFewTokens;
  if (extent.library_tokens > 0 && at.judges_library) block = extent.library_tokens;
  const std::int64_t tokens = std::min(at.max_tokens, block + kTailTokens);
  const std::int64_t keys = at.setting.slots.empty() ? 0 : std::ranges::max(at.setting.slots);
  const StepGraph small = with_fewer_rows(whole, [&](std::int64_t n) { return fewer(n, extent); });
  for (const StepGraph* fragment : {&small, &whole}) {
    QuickTrial trials(*fragment, tokens, extent, at.max_tokens, keys);
    auto made = regenerate(trials, *wanted, candidate, at.setting.rows);
    if (!made) continue;
    std::vector<Launch> alone = alone_launches(trials, *wanted, candidate, *made);
    Request request = trials.finish(candidate.id, std::move(*made), std::move(alone));
    request.trial.spreads = extent.spreads;
    request.trial.rounds_weights = extent.rounds_weights;
    return request;
  }
  return std::nullopt;
}

std::optional<Request> trial_of_rows(Request one) {
  constexpr std::int64_t kFewRows = 3;
  Trial& trial = one.trial;
  std::optional<Generated> made =
      for_rows({std::move(one.sources), std::move(trial.buffers), std::move(trial.launches)},
               kMostRowsAtOnce);
  if (!made) return std::nullopt;
  one.name += " of rows";
  one.sources = std::move(made->sources);
  trial.buffers = std::move(made->buffers), trial.launches = std::move(made->launches);
  // As it is used, states are long.
  trial.rows = trial.purpose == Purpose::quick ? kFewRows : kFewRows - 1;
  return one;
}

Request trial_of_fallback(const StepGraph& step, const Region& region, const TrialSetting& at) {
  // One output a thread, of blocks of 256.
  constexpr Extent extent{.block = 256};
  const StepGraph whole = with_short_tables(fragment_of(step, region), kFewIds);
  const StepGraph small = with_fewer_rows(whole, [&](std::int64_t n) { return fewer(n, extent); });
  QuickTrial trials(small, std::min(at.max_tokens, std::int64_t{7}), extent, at.max_tokens);
  Generated made = fallback(trials.fragment(), trials.region(), trials.setting());
  return trials.finish("fallback", std::move(made));
}

Request trial_of_argmax(DType logits, std::int64_t vocab) {
  return trial_of_choice("fallback argmax", logits, few_logits(vocab), kTrialProcessors,
                         fallback_argmax);
}

Request trial_of_advance(DType ids, std::int64_t max_tokens) {
  return trial_of_ending(ids, std::min<std::int64_t>(max_tokens, 7), kLogged);
}

Request trial_of_draw(DType logits, std::int64_t vocab) {
  constexpr std::int64_t kBlock = kernels::draw_block;
  return trial_of_drawing(logits, std::min(vocab, kDrawBlocks * kBlock + vocab % kBlock));
}

Request trial_of_mask(DType logits, std::int64_t vocab) {
  return trial_of_masking(logits, few_logits(vocab));
}

}  // namespace ac
