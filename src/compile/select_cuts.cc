// Cuts of a step that come so near each other by what was measured of their parts that only whole
// steps can tell which is faster: one race of parts differs more than that from the next, since a
// card slows down as it gets warm.
#include <algorithm>
#include <map>
#include <utility>

#include "compile/select.h"

namespace ac {
namespace {

// Of what the cheapest option costs; and the least part of a step for which whole steps would tell.
constexpr double kNear = 1.1, kTold = 0.02;

// What tells neighbourhoods of one kind from those of others.
std::vector<std::vector<int>> spaces_of(const Neighbourhood& around) {
  std::vector<std::vector<int>> spaces;
  for (const FusionOption& option : around.options) {
    std::vector<int>& of = spaces.emplace_back();
    for (const Part& part : option.parts) of.push_back(part.space);
  }
  return spaces;
}

}  // namespace

bool Selector::is_raced(int space) const {
  return space >= 0 && states_[static_cast<std::size_t>(space)].raced;
}

std::vector<NearCut> Selector::near_cuts() {
  const Regions& regions = phase_.regions;
  const SpaceCost cost = [this](int space) { return this->cost(space); };
  std::vector<NearCut> cuts{{"", parts_}};
  double step_cost = 0;
  for (const CoverPart& part : parts_) step_cost += cost(part.space).value_or(0);
  std::map<std::vector<std::vector<int>>, int> counts;
  for (const Neighbourhood& around : phase_.plans.neighbourhoods) ++counts[spaces_of(around)];
  const std::size_t count = phase_.plans.neighbourhoods.size();
  for (std::size_t n = 0; n < count; ++n) {
    const Neighbourhood& around = phase_.plans.neighbourhoods[n];
    const auto kind = spaces_of(around);
    const auto best = cheapest_option(regions, phase_.plans, around, cost);
    const int of_kind = std::exchange(counts[kind], 0);
    if (!best || of_kind == 0) continue;
    const double least = option_cost(regions, phase_.plans, around.options[*best], cost);
    if (least * of_kind < kTold * step_cost) continue;
    for (std::size_t i = 0; i < around.options.size(); ++i) {
      const FusionOption& option = around.options[i];
      if (i == *best || option.refused ||
          !std::ranges::all_of(option.parts, [&](const Part& p) { return is_raced(p.space); }) ||
          option_cost(regions, phase_.plans, option, cost) > kNear * least)
        continue;
      std::vector<CoverPart> parts =
          planned(choose_cover(regions, phase_.plans, cost, [&](const Neighbourhood& other) {
            return spaces_of(other) == kind ? std::optional(i)
                                            : cheapest_option(regions, phase_.plans, other, cost);
          }));
      const auto is_same = [](const CoverPart& a, const CoverPart& b) {
        return a.space == b.space;  // in the same order: the same regions
      };
      if (std::ranges::all_of(parts, [&](const CoverPart& p) { return is_raced(p.space); }) &&
          std::ranges::none_of(cuts, [&](const NearCut& cut) {
            return std::ranges::equal(cut.parts, parts, is_same);
          }))
        cuts.push_back({option.text, std::move(parts)});
    }
  }
  return cuts;
}

Cuts Selector::as_implemented(const std::vector<NearCut>& cuts) const {
  std::map<std::pair<int, std::vector<NodeId>>, const CoverPart*> parts;  // by what they are
  const auto key_of = [](const CoverPart& part) {
    return std::pair(part.space, part.wanted ? part.wanted->region.nodes : std::vector<NodeId>());
  };
  for (const NearCut& cut : cuts)
    for (const CoverPart& part : cut.parts) parts.emplace(key_of(part), &part);
  std::vector<const CoverPart*> order;
  for (const auto& [key, part] : parts) order.push_back(part);
  std::ranges::stable_sort(order, {},
                           [&](const CoverPart* part) { return last_position(uses_, *part); });
  Cuts made;
  std::map<const CoverPart*, std::size_t> places;
  for (const CoverPart* part : order) {
    places[part] = made.parts.size();
    made.parts.push_back(implement(*part, state_of(*part).winner));
  }
  for (const NearCut& cut : cuts) {
    std::vector<std::size_t>& of = made.cuts.emplace_back();
    for (const CoverPart& part : cut.parts) of.push_back(places.at(parts.at(key_of(part))));
  }
  return made;
}

void Selector::take(NearCut cut) { parts_ = std::move(cut.parts); }

}  // namespace ac
