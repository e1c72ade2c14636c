#include "study/arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "plan/space.h"

namespace ac::study {
namespace {

using search::Ranking;
using search::Strategy;

// Advice as far as it goes, then the strategy, which hears of everything.
class AdviceFirst : public Strategy {
 public:
  AdviceFirst(std::unique_ptr<Strategy> strategy, Ranking advice)
      : strategy_(std::move(strategy)), advice_(std::move(advice)) {}
  std::optional<int> propose() override {
    if (next_ < advice_.order.size()) return advice_.order[next_++];
    return strategy_->propose();
  }
  void hear(int point, const search::PointOutcome& outcome) override {
    strategy_->hear(point, outcome);
  }

 private:
  std::unique_ptr<Strategy> strategy_;
  const Ranking advice_;
  std::size_t next_ = 0;
};

Ranking spoil(Ranking advice, Spoilt how, const search::PointSpace& space,
              const std::vector<const OrderReply*>& others, search::Random& random) {
  const std::size_t count = advice.order.size();
  advice.weights.clear();  // they are of the points, which change
  switch (how) {
    case Spoilt::no:
      break;
    case Spoilt::shuffled:
      random.shuffle(advice.order);
      break;
    case Spoilt::reversed:
      std::reverse(advice.order.begin(), advice.order.end());
      break;
    case Spoilt::other_region:
      // As far as this space has the other's plans.
      advice.order.clear();
      if (!others.empty()) advice = Ranking::of(space, others[random.index(others.size())]->order);
      break;
    case Spoilt::random_points:
      advice.order.clear();
      if (!space.is_listed()) {
        for (std::size_t i = 0; i < count; ++i) advice.order.push_back(space.draw(random));
        break;
      }
      for (std::uint64_t i = 0; i < space.size(); ++i) advice.order.push_back(space.at(i));
      random.shuffle(advice.order);
      advice.order.resize(std::min(count, advice.order.size()));
      break;
  }
  return advice;
}

// The first two parts of an id, as outlines were when searches were first recorded.
std::string_view early_outline(std::string_view id) {
  return id.substr(0, id.find('/', id.find('/') + 1));
}

std::vector<int> diverse_order(const search::PointSpace& space,
                               std::string_view outline(std::string_view id)) {
  std::vector<int> ranked;
  for (std::uint64_t i = 0; i < space.size(); ++i) ranked.push_back(space.at(i));
  std::ranges::stable_sort(ranked, {}, [&](int point) { return space.predicted(point); });
  std::map<std::string, int> seen;
  std::vector<std::pair<int, int>> order;  // turn, point
  for (const int point : ranked)
    order.emplace_back(seen[std::string(outline(space.id(point)))]++, point);
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  for (std::size_t i = 0; i < order.size(); ++i) ranked[i] = order[i].second;
  return ranked;
}

std::unique_ptr<Strategy> strategy_of(const std::string& name, const search::PointSpace& space,
                                      std::uint64_t seed, const Ranking& prior = {}) {
  if (!is_of_regions(name)) return search::make_strategy(name, space, seed, prior);
  Ranking order{diverse_order(space, name == kDiverse ? early_outline : outline_of), {}};
  return std::make_unique<AdviceFirst>(search::make_strategy("exhaustive", space, seed),
                                       std::move(order));
}

bool takes_prior(const std::string& strategy) {
  for (const search::StrategyInfo& info : search::strategies())
    if (info.name == strategy) return info.uses_prior;
  return false;
}

bool takes_seed(const std::string& strategy) {
  for (const search::StrategyInfo& info : search::strategies())
    if (info.name == strategy) return info.uses_seed;
  return false;
}

}  // namespace

std::string_view to_string(Spoilt spoilt) {
  constexpr std::array<std::string_view, 5> names = {"", "shuffled", "reversed", "other region's",
                                                     "random points"};
  return names[static_cast<std::size_t>(spoilt)];
}

std::vector<Arm> arms_of(const std::vector<std::string>& strategies, bool with_advice) {
  std::vector<Arm> arms;
  for (const std::string& name : strategies)
    arms.push_back({name, name, Arm::Use::none, Spoilt::no, takes_seed(name)});
  if (!with_advice) return arms;
  const auto add = [&](const std::string& name, const std::string& strategy, Arm::Use use) {
    for (const Spoilt spoilt : {Spoilt::no, Spoilt::shuffled, Spoilt::reversed,
                                Spoilt::other_region, Spoilt::random_points}) {
      const bool by_chance = spoilt != Spoilt::no && spoilt != Spoilt::reversed;
      arms.push_back({spoilt == Spoilt::no ? name : fmt::format("{} ({})", name, to_string(spoilt)),
                      strategy, use, spoilt, by_chance || takes_seed(strategy)});
    }
  };
  add("advice", "heuristic", Arm::Use::first);
  for (const std::string& strategy : strategies)
    if (takes_prior(strategy))
      add("advice+" + strategy, strategy, Arm::Use::as_prior);
    else if (strategy == "heuristic" || strategy == kDiverse)
      add("advice+" + strategy, strategy, Arm::Use::in_turn);
  return arms;
}

std::unique_ptr<Strategy> start(const Arm& arm, const search::PointSpace& space,
                                const OrderReply* reply,
                                const std::vector<const OrderReply*>& others, std::uint64_t seed) {
  if (arm.use == Arm::Use::none) return strategy_of(arm.strategy, space, seed);
  AC_ASSERT(reply);
  search::Random random(search::derived_seed(seed, 1));
  Ranking advice = Ranking::of(space, reply->order, reply->weights);
  if (arm.spoilt != Spoilt::no)
    advice = spoil(std::move(advice), arm.spoilt, space, others, random);
  switch (arm.use) {
    case Arm::Use::first:
      return std::make_unique<AdviceFirst>(strategy_of(arm.strategy, space, seed),
                                           std::move(advice));
    case Arm::Use::as_prior:
      return std::make_unique<search::RankedStrategy>(
          strategy_of(arm.strategy, space, seed, advice), std::move(advice));
    default:
      return std::make_unique<search::RankedStrategy>(strategy_of(arm.strategy, space, seed),
                                                      std::move(advice));
  }
}

}  // namespace ac::study
