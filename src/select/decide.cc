#include "select/decide.h"

#include <algorithm>
#include <limits>

namespace ac {
namespace {

const Candidate& at(const Space& space, int candidate) {
  return space.candidates[static_cast<std::size_t>(candidate)];
}

bool was_judged(const SpaceEvidence& of, std::size_t candidate) {
  return std::ranges::any_of(of.judged, [&](const SpaceEvidence::Judged& judged) {
    return judged.candidate == static_cast<int>(candidate);
  });
}

}  // namespace

Outcome does_not_fit() {
  Outcome outcome;
  outcome.kind = Outcome::Kind::rejected;
  outcome.why = "interface: the plan does not fit the region when it is tried by itself";
  return outcome;
}

bool is_admitted(const SpaceEvidence& of, int candidate) {
  return of.trials.contains(candidate) && !of.refused.contains(candidate);
}

bool is_raced(const SpaceEvidence& of) {
  return !of.races.empty() && std::ranges::none_of(of.races.back().candidates, [&](int candidate) {
    return of.refused.contains(candidate);
  });
}

int winner_of(const SpaceEvidence& of) {
  if (is_raced(of) && of.races.back().failed.empty()) {
    const SpaceEvidence::Race& race = of.races.back();
    if (race.candidates.empty()) return -1;
    const auto fastest = std::ranges::min_element(race.microseconds);
    if (race.fallback && *race.fallback <= *fastest) return -1;
    return race.candidates[static_cast<std::size_t>(fastest - race.microseconds.begin())];
  }
  for (const std::size_t i : of.order)
    if (is_admitted(of, static_cast<int>(i))) return static_cast<int>(i);
  return -1;
}

std::vector<int> leaders_of(const SpaceEvidence& of) {
  std::vector<int> leaders{winner_of(of)};
  if (leaders[0] < 0) return leaders;
  for (const std::size_t i : of.order)
    if (const auto candidate = static_cast<int>(i);
        candidate != leaders[0] && is_admitted(of, candidate))
      leaders.push_back(candidate);
  return leaders;
}

std::optional<double> raced_us(const SpaceEvidence& of, int candidate) {
  std::optional<double> last;
  for (const SpaceEvidence::Race& race : of.races)
    for (std::size_t i = 0; i < race.microseconds.size(); ++i)
      if (race.candidates[i] == candidate) last = race.microseconds[i];
  return last;
}

std::optional<double> fallback_us(const SpaceEvidence& of) {
  std::optional<double> last;
  for (const SpaceEvidence::Race& race : of.races)
    if (race.fallback) last = race.fallback;
  return last;
}

std::optional<double> known_cost(const Space& space, const SpaceEvidence& of, double scale) {
  if (const int winner = winner_of(of); winner >= 0)
    return raced_us(of, winner).value_or(at(space, winner).cost.microseconds * scale);
  if (is_raced(of)) return of.races.back().fallback;
  const bool is_tried =
      std::ranges::all_of(of.order, [&](std::size_t i) { return was_judged(of, i); });
  if (is_tried) return std::nullopt;
  return std::numeric_limits<double>::infinity();
}

std::vector<CoverPart> decide(const Regions& regions, const Plans& plans,
                              const Evidence& evidence) {
  return choose_cover(regions, plans, [&](int space) -> std::optional<double> {
    if (space < 0) return std::nullopt;
    const auto i = static_cast<std::size_t>(space);
    return known_cost(plans.spaces[i], evidence.spaces[i], evidence.scale);
  });
}

std::vector<Attempt> attempts_of(const Space& space, const SpaceEvidence& of) {
  std::vector<Attempt> attempts;
  for (const SpaceEvidence::Judged& judged : of.judged) {
    const Candidate& candidate = at(space, judged.candidate);
    const auto refused = of.refused.find(judged.candidate);
    std::optional<double> us = raced_us(of, judged.candidate);
    // What did not race was behind, and may have been chosen in the step all the same.
    if (const auto quick = of.quick.find(judged.candidate);
        !us && quick != of.quick.end() && is_admitted(of, judged.candidate))
      us = quick->second;
    attempts.push_back({candidate.id, candidate.cost.microseconds, us,
                        refused == of.refused.end() ? judged.outcome : refused->second});
  }
  for (const std::size_t i : of.order)
    if (const auto timed = of.quick.find(static_cast<int>(i));
        timed != of.quick.end() && !was_judged(of, i)) {
      Outcome outcome;
      outcome.kind = Outcome::Kind::unjudged;
      const Candidate& candidate = space.candidates[i];
      attempts.push_back({candidate.id, candidate.cost.microseconds, timed->second, outcome});
    }
  return attempts;
}

}  // namespace ac
