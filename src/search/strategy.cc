#include "search/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "search/evolutionary.h"
#include "search/orders.h"
#include "search/surrogate.h"
#include "search/tree_search.h"

namespace ac::search {
namespace {

constexpr std::array<std::string_view, 5> kVerdicts = {"measured", "illegal", "uncompilable",
                                                       "wrong", "failed"};

constexpr StrategyInfo kStrategies[] = {
    {"exhaustive", "every point, in the order of the space"},
    {"heuristic", "by predicted cost; over many sites, descent from the best predicted"},
    {"descent", "from the best predicted, one transformation at a time, from what is better on"},
    {"random", "uniformly, none twice", true},
    {"evolutionary", "crossing and mutating the best so far", true},
    {"surrogate", "where a Gaussian process of what was measured expects most", false, true},
    {"tree", "tree of transformations (PUCT), latency backed up, with that surrogate", false, true},
};

}  // namespace

std::string_view to_string(Verdict verdict) { return kVerdicts[static_cast<std::size_t>(verdict)]; }

std::optional<Verdict> verdict_from(std::string_view name) {
  const auto found = std::find(kVerdicts.begin(), kVerdicts.end(), name);
  if (found == kVerdicts.end()) return std::nullopt;
  return static_cast<Verdict>(found - kVerdicts.begin());
}

std::span<const StrategyInfo> strategies() { return kStrategies; }

std::unique_ptr<Strategy> make_strategy(std::string_view name, const PointSpace& space,
                                        std::uint64_t seed, const Ranking& prior) {
  if (name == "exhaustive") return std::make_unique<Exhaustive>(space);
  if (name == "heuristic" && space.is_listed()) return std::make_unique<ByPrediction>(space);
  if (name == "heuristic" || name == "descent") return std::make_unique<Descent>(space);
  if (name == "random") return std::make_unique<RandomOrder>(space, seed);
  if (name == "evolutionary") return std::make_unique<Evolutionary>(space, seed);
  if (name == "surrogate") return std::make_unique<SurrogateSearch>(space, prior);
  if (name == "tree") return std::make_unique<TreeSearch>(space, prior);
  std::string names;
  for (const StrategyInfo& known : kStrategies)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  wrong_usage("there is no search strategy \"{}\": choose one of {}", name, names);
}

Ranking Ranking::of(const PointSpace& space, const std::vector<std::string>& ids,
                    const std::vector<double>& weights) {
  AC_ASSERT(weights.empty() || weights.size() == ids.size());
  Ranking advice;
  std::set<int> seen;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::optional<int> point = space.find(ids[i]);
    if (!point || !seen.insert(*point).second) continue;
    advice.order.push_back(*point);
    if (!weights.empty()) advice.weights.push_back(weights[i]);
  }
  return advice;
}

double Ranking::weight(std::size_t rank) const {
  return weights.empty() ? 1.0 / static_cast<double>(rank + 1) : weights[rank];
}

RankedStrategy::RankedStrategy(std::unique_ptr<Strategy> strategy, Ranking advice)
    : strategy_(std::move(strategy)), advice_(std::move(advice)) {}

std::optional<int> RankedStrategy::propose() {
  const bool advice_first = advice_is_due_;
  advice_is_due_ = !advice_is_due_;
  std::optional<int> point = advice_first ? from_advice() : from_strategy();
  if (!point) point = advice_first ? from_strategy() : from_advice();
  return point;
}

std::optional<int> RankedStrategy::from_advice() {
  while (next_ < advice_.order.size()) {
    const int point = advice_.order[next_++];
    if (known_.count(point) == 0 && point != asked_) return point;
  }
  return std::nullopt;
}

std::optional<int> RankedStrategy::from_strategy() {
  for (;;) {
    if (!asked_) asked_ = strategy_->propose();
    if (!asked_) return std::nullopt;
    const auto known = known_.find(*asked_);
    if (known == known_.end()) return asked_;
    strategy_->hear(*asked_, known->second);
    asked_.reset();
  }
}

void RankedStrategy::hear(int point, const PointOutcome& outcome) {
  known_[point] = outcome;
  if (point != asked_) return;
  strategy_->hear(point, outcome);
  asked_.reset();
}

}  // namespace ac::search
