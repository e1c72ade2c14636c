// Cuts of a step that come so near each other by what was measured of their parts that only whole
// steps can tell which is faster: one race of parts differs more than that from the next, since a
// card slows down as it gets warm.
#include <algorithm>
#include <map>
#include <utility>

#include "plan/cover.h"

namespace ac {
namespace {

// Of what the cheapest option costs; and the least part of a step for which whole steps would tell.
constexpr double kNear = 1.1, kTold = 0.02;

// What tells neighbourhoods of one kind from those of others.
using OptionSpaces = std::vector<std::vector<int>>;
OptionSpaces spaces_of(const Neighbourhood& around) {
  OptionSpaces spaces;
  for (const FusionOption& option : around.options) {
    std::vector<int>& of = spaces.emplace_back();
    for (const Part& part : option.parts) of.push_back(part.space);
  }
  return spaces;
}

bool are_equal(const std::vector<CoverPart>& a, const std::vector<CoverPart>& b) {
  // In the same order: the same regions.
  return std::ranges::equal(
      a, b, [](const CoverPart& x, const CoverPart& y) { return x.space == y.space; });
}

}  // namespace

std::vector<NearCut> near_cuts(const Regions& regions, const Plans& plans, const SpaceCost& cost) {
  std::vector<NearCut> cuts{{"", choose_cover(regions, plans, cost)}};
  double of_step = 0;
  for (const CoverPart& part : cuts[0].parts) of_step += cost(part.space).value_or(0);
  std::map<OptionSpaces, int> counts;
  for (const Neighbourhood& around : plans.neighbourhoods) ++counts[spaces_of(around)];
  for (const Neighbourhood& around : plans.neighbourhoods) {
    const OptionSpaces kind = spaces_of(around);
    const int count = std::exchange(counts[kind], 0);  // each kind once
    const auto best = cheapest_option(regions, plans, around, cost);
    if (count == 0 || !best) continue;
    const double least = option_cost(regions, plans, around, around.options[*best], cost);
    if (least * count < kTold * of_step) continue;
    // Kernels of parts overlap in a step, and one launch of layers does not: whole steps tell.
    const bool is_always_near = around.kind == Neighbourhood::Kind::layers;
    for (std::size_t i = 0; i < around.options.size(); ++i) {
      const FusionOption& option = around.options[i];
      const auto is_known = [&](const Part& part) { return cost(part.space).has_value(); };
      if (i == *best || option.refused || !std::ranges::all_of(option.parts, is_known)) continue;
      if (!is_always_near && option_cost(regions, plans, around, option, cost) > kNear * least)
        continue;
      std::vector<CoverPart> parts =
          choose_cover(regions, plans, cost, [&](std::size_t neighbourhood) {
            const Neighbourhood& other = plans.neighbourhoods[neighbourhood];
            return spaces_of(other) == kind ? std::optional(i)
                                            : cheapest_option(regions, plans, other, cost);
          });
      if (std::ranges::none_of(cuts,
                               [&](const NearCut& cut) { return are_equal(cut.parts, parts); }))
        cuts.push_back({option.text, std::move(parts)});
    }
  }
  return cuts;
}

}  // namespace ac
