// What a selector has to say of cuts that whole steps are to compare.
#include <algorithm>
#include <map>

#include "select/select.h"

namespace ac {

std::vector<NearCut> Selector::near_cuts() {
  const auto is_timed = [this](int space) {
    return space >= 0 && is_raced(evidence_.spaces[at(space)]);
  };
  std::vector<NearCut> cuts = ac::near_cuts(phase_.regions, plans_, [&](int space) {
    return is_timed(space) ? hoped_cost(space) : std::nullopt;
  });
  for (NearCut& cut : cuts) cut.parts = planned(std::move(cut.parts));
  std::erase_if(cuts, [&](const NearCut& cut) {
    return !std::ranges::all_of(cut.parts,
                                [&](const CoverPart& part) { return is_timed(part.space); });
  });
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
    made.parts.push_back(implement(*part, winner_of(evidence_of(*part))));
  }
  for (const NearCut& cut : cuts) {
    std::vector<std::size_t>& of = made.cuts.emplace_back();
    for (const CoverPart& part : cut.parts) of.push_back(places.at(parts.at(key_of(part))));
  }
  return made;
}

void Selector::take(NearCut cut, Progress& progress) {
  parts_ = std::move(cut.parts);
  admit_left(progress);
}

}  // namespace ac
