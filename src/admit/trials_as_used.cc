// Trials of what was chosen, as it is used: the quick ones (trials.cc) are small.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "admit/trial_step.h"
#include "admit/trials.h"
#include "analyze/fragment.h"
#include "base/error.h"
#include "generate/fallback.h"
#include "ir/positions.h"

namespace ac {
namespace {

// What a launch may cost: its operations; those of the truth, of which the gate computes the rows
// of kJudgedRows tokens where tokens do not depend on each other; and elements of weights and
// caches. The host device takes some 3 ns for an operation. A GPU leaves only the truth to the CPU.
struct Most {
  std::int64_t work, truth, elements;
};
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr Most kMostOnHost{120'000'000, 48'000'000, 12'000'000},
    kMostOnGpu{kNoLimit, 500'000'000, 16'000'000};
// Rows of weights whose truth is computed where there are too many elements; the others repeat
// them. A prime, so that a kernel that reads another block's rows reads other numbers.
constexpr std::int64_t kDistinctRows = 509;
// Operations of a launch on the host device, or of the truth, above which a trial has random inputs
// alone.
constexpr std::int64_t kMuchForAllScenarios = 20'000'000;
// Operations of a launch that is looked at for races: one takes up to 70 ns then.
constexpr std::int64_t kMostRaced = 50'000'000;
// Extents that are cut no further: the quick trials' are not smaller.
constexpr std::int64_t kManyTiles = 4, kFewKeys = 512, kRaceKeys = 300;

struct Extents {
  std::int64_t tokens = 1, heads = 0, rows = 0, ids = 0;
  std::int64_t context = 0;  // tokens of the whole sequence
};

Extents extents_of(const StepGraph& fragment, const TrialSetting& at) {
  Extents all;
  if (depends_on_tokens(fragment)) all.tokens = at.max_tokens;
  if (fragment.states.size() == 1 && fragment.states[0].kind == StateKind::kv)
    all.heads = kv_sizes(fragment.states[0]).heads;
  const Graph& graph = fragment.graph;
  for (const Node& node : graph.nodes) {
    std::int64_t* const size = node.op == Op::linear      ? &all.rows
                               : node.op == Op::embedding ? &all.ids
                                                          : nullptr;
    if (size == nullptr) continue;
    const Dim& rows = graph.type(node.inputs[node.op == Op::linear ? 1 : 0]).shape[0];
    if (rows.is_constant()) *size = std::max(*size, rows.constant());
  }
  AC_ASSERT(at.max_context > 0);
  all.context = std::min(at.max_context, token_limit(fragment).tokens);
  all.tokens = std::min(all.tokens, all.context);
  return all;
}

StepGraph cut_to(const StepGraph& whole, const Extents& real, const Extents& to,
                 const Extent& extent) {
  StepGraph cut = whole;
  if (to.ids < real.ids) cut = with_short_tables(cut, to.ids);
  if (to.heads < real.heads) cut = with_fewer_heads(cut, to.heads);
  if (to.rows < real.rows)
    cut = with_fewer_rows(cut, [&](std::int64_t n) {
      return n <= to.rows ? n : to.rows / extent.block * extent.block + n % extent.block;
    });
  return cut;
}

// The next smaller ones; false where all are as small as they may be.
bool cut_more(Extents& at, const Extent& extent) {
  const auto halve = [](std::int64_t& size, std::int64_t least) {
    if (size <= least) return false;
    size = std::max(size / 2, least);
    return true;
  };
  const std::int64_t tile = extent.tokens > 0 ? extent.tokens : kFewTokens;
  return halve(at.tokens, kManyTiles * tile + kTailTokens) || halve(at.heads, extent.kv_heads) ||
         halve(at.tokens, tile + kTailTokens) ||
         halve(at.rows, extent.block * (extent.at_once + 2)) || halve(at.ids, kFewIds) ||
         halve(at.context, std::max(kFewKeys, at.tokens));
}

std::string left_open(const Extents& real, const Extents& cut) {
  std::vector<std::string> less;
  const auto compare = [&](std::int64_t now, std::int64_t of, const char* what) {
    if (now < of) less.push_back(fmt::format("{} of {} {}", now, of, what));
  };
  compare(cut.tokens, real.tokens, "tokens");
  compare(cut.heads, real.heads, "KV heads");
  compare(cut.rows, real.rows, "rows of weights");
  compare(cut.ids, real.ids, "rows of tables");
  compare(cut.context, real.context, "tokens of context");
  if (less.empty()) return "";
  return fmt::format("tried with {}", fmt::join(less, ", "));
}

class TrialAsUsed : public TrialStep {
 public:
  // `slots`: of the package's state, where the fragment has one.
  TrialAsUsed(StepGraph fragment, const Extents& extents, const Extent& extent, std::int64_t slots,
              int processors)
      : TrialStep(std::move(fragment), processors), judged_(fragment_) {
    trial_.purpose = Purpose::as_used;
    trial_.tokens = extents.tokens;
    const bool is_ring = !fragment_.states.empty() && fragment_.states[0].window > 0;
    trial_.capacity = is_ring ? slots : extents.context;
    // The last step that the package has room for, and those whose last token ends a tile of keys
    // or the ring.
    const std::int64_t last = extents.context - trial_.tokens, tile = extent.key_tile;
    trial_.positions = {last};
    if (tile > 0) trial_.positions.push_back(extents.context / tile * tile - trial_.tokens);
    if (is_ring) trial_.positions.push_back(slots - trial_.tokens);
    trial_.positions = within(std::move(trial_.positions), 0, last);
    set_limits();
  }

  // Rows that repeat others, if there are too many.
  bool fits(const Most& most) {
    if (flops() > most.work) return false;
    if (truth_fits(most)) return true;
    std::optional<StepGraph> few = with_distinct_rows(trial_, kDistinctRows);
    if (!few) return false;
    judged_ = *std::move(few);
    trial_.distinct_rows = kDistinctRows;
    return truth_fits(most);
  }

  // Inputs of all kinds where that takes a moment, else random ones alone. Equal scores of all keys
  // of a context are sums of thousands of equal numbers, whose rounding depends on their order: the
  // quick trial has fewer.
  void choose_scenarios(const Most& most) {
    const bool on_host = most.work < kNoLimit;
    trial_.vast = !fragment_.states.empty() ||
                  std::max(truth(), on_host ? flops() : 0) > kMuchForAllScenarios;
  }

 private:
  std::int64_t flops() const { return TrialStep::flops(bindings()); }
  // Operations of the truth.
  std::int64_t truth() const {
    const std::int64_t work = TrialStep::flops(judged_, bindings());
    const bool by_rows = judged_.states.empty() && trial_.tokens > kJudgedRows;
    return by_rows ? work / trial_.tokens * kJudgedRows : work;
  }
  bool truth_fits(const Most& most) const {
    return elements(judged_) <= most.elements && truth() <= most.truth;
  }

  StepGraph judged_;  // what the truth is computed of
};

// Layers are tried with all their weights: what these take comes on top.
Most with_whole_layers(Most most, const StepGraph& whole) {
  for (const Node& node : whole.graph.nodes) {
    if (node.op != Op::weight) continue;
    const std::int64_t elements = product(node.type.shape).constant();
    most.elements += elements, most.truth += 2 * elements;
    if (most.work < kNoLimit) most.work += 2 * elements;
  }
  return most;
}

// As large as it may be.
std::optional<Request> as_used(
    const std::string& name, const StepGraph& whole, const Extent& extent, const TrialSetting& at,
    std::int64_t slots, const std::function<std::optional<Generated>(const TrialStep&)>& generate) {
  Most most = at.judges_library ? kMostOnGpu : kMostOnHost;
  if (extent.layers > 0) most = with_whole_layers(most, whole);
  const Extents real = extents_of(whole, at);
  Extents cut = real;
  for (;;) {
    TrialAsUsed trial(cut_to(whole, real, cut, extent), cut, extent, slots,
                      at.setting.multiprocessors);
    const bool fits = trial.fits(most);
    Extents smaller = cut;
    const bool is_least = !cut_more(smaller, extent);
    if (fits || is_least)
      if (std::optional<Generated> made = generate(trial)) {
        trial.choose_scenarios(most);
        Request request = trial.finish(name, std::move(*made));
        request.left_open = left_open(real, cut);
        request.trial.spreads = extent.spreads;
        request.trial.rounds_weights = extent.rounds_weights;
        return request;
      }
    if (is_least) return std::nullopt;
    cut = smaller;
  }
}

std::int64_t slots_of(const Region& region, const TrialSetting& at) {
  for (const Parameter& state : region.states)
    return at.setting.slots.at(static_cast<std::size_t>(state.state));
  return 0;
}

// In the build that looks for races. The quick trial's rows and tokens are enough, as every block
// does what the others do, and so are a few hundred keys: the checker makes real ones take minutes.
Request races_of(Request quick) {
  quick.trial.purpose = Purpose::races;
  quick.trial.other_tokens.clear();
  std::int64_t position = quick.trial.positions.empty() ? 0 : quick.trial.positions.front();
  for (const std::int64_t other : quick.trial.positions)
    if (other <= kRaceKeys) position = other;
  if (!quick.trial.positions.empty()) quick.trial.positions = {position};
  return quick;
}

// Blocks compute whole tiles of tokens.
bool is_much_to_race(const Request& quick, const Extent& extent) {
  const std::int64_t tokens = quick.trial.tokens, tile = std::max(extent.tokens, std::int64_t{1});
  return quick.work / tokens * ((tokens + tile - 1) / tile * tile) > kMostRaced;
}

}  // namespace

std::optional<std::vector<Request>> confirmation_of(const StepGraph& step,
                                                    const std::optional<Wanted>& wanted,
                                                    const Candidate& candidate,
                                                    const TrialSetting& at) {
  std::vector<Request> requests;
  const Extent extent = extent_of(candidate.choice);
  if (wanted) {
    std::optional<Request> request =
        as_used(candidate.id, tried_fragment(step, *wanted, extent), extent, at,
                slots_of(wanted->region, at), [&](const TrialStep& trial) {
                  return regenerate(trial, *wanted, candidate, at.setting.rows);
                });
    if (!request) return std::nullopt;
    requests.push_back(std::move(*request));
  } else {
    const TensorType& logits = step.graph.type(step.graph.outputs.at(0).node);
    const auto generate = [&](const StepGraph& trial, NodeId node, const Setting& setting) {
      const auto& made = std::get<Implementation<SamplingTask>>(candidate.choice);
      return made.task.lower({trial, setting}, made.plan, {node});
    };
    requests.push_back(trial_of_choice(candidate.id, logits.dtype, logits.shape.back().constant(),
                                       at.setting.multiprocessors, generate));
    requests.back().trial.purpose = Purpose::as_used;
  }
  if (requests[0].sources.empty()) return requests;  // a library's
  std::optional<Request> quick = trial_of(step, wanted, candidate, at);
  if (!quick) return std::nullopt;
  if (is_much_to_race(*quick, extent)) {
    std::string& open = requests[0].left_open;
    open += open.empty() ? "" : "; ";
    open += "races are not looked for, as that takes long";
  } else {
    requests.push_back(races_of(std::move(*quick)));
  }
  return requests;
}

std::vector<Request> confirmation_of_fallback(const StepGraph& step, const Region& region,
                                              const TrialSetting& at) {
  constexpr Extent extent{.block = 256};
  std::optional<Request> request =
      as_used("fallback", fragment_of(step, region), extent, at, slots_of(region, at),
              [&](const TrialStep& trial) {
                return fallback(trial.fragment(), trial.region(), trial.setting());
              });
  return {std::move(*request), races_of(trial_of_fallback(step, region, at))};
}

std::vector<Request> confirmation_of_argmax(DType logits, std::int64_t vocab,
                                            const TrialSetting& at) {
  Request request = trial_of_choice("fallback argmax", logits, vocab, at.setting.multiprocessors,
                                    fallback_argmax);
  request.trial.purpose = Purpose::as_used;
  return {std::move(request), races_of(trial_of_argmax(logits, vocab))};
}

std::vector<Request> confirmation_of_advance(DType ids, std::int64_t max_tokens,
                                             std::int64_t max_context) {
  Request request = trial_of_ending(ids, max_tokens, max_context + 1);
  request.trial.purpose = Purpose::as_used;
  return {std::move(request), races_of(trial_of_advance(ids, max_tokens))};
}

std::vector<Request> confirmation_of_draw(DType logits, std::int64_t vocab) {
  Request request = trial_of_drawing(logits, vocab);
  request.trial.purpose = Purpose::as_used;
  return {std::move(request), races_of(trial_of_draw(logits, vocab))};
}

std::vector<Request> confirmation_of_mask(DType logits, std::int64_t vocab) {
  Request request = trial_of_masking(logits, vocab);
  request.trial.purpose = Purpose::as_used;
  return {std::move(request), races_of(trial_of_mask(logits, vocab))};
}

}  // namespace ac
