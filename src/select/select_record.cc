// What a selector leaves behind: all that could compute the step, and how that was chosen.
#include <algorithm>
#include <map>
#include <set>

#include "select/select.h"

namespace ac {

Implemented Selector::implement(const CoverPart& part, int candidate) const {
  const bool has_module = part.wanted && !part.wanted->region.module.empty();
  const std::string where = has_module ? " at " + part.wanted->region.module : "";
  if (candidate < 0) return {fallback_for(part), "fallback" + where};
  const Candidate& chosen = candidate_of(part, candidate);
  return {generate_for(part, chosen), chosen.id + where};
}

std::vector<int> Selector::options_of(const CoverPart& part) const {
  const std::vector<int>& fixed = agenda_[at(part.space)].fixed;
  return fixed.empty() ? leaders_of(evidence_of(part)) : fixed;
}

Alternatives Selector::alternatives() const {
  Alternatives alternatives;
  std::map<int, std::size_t> sites;  // by space
  for (const CoverPart& part : parts_) {
    Alternatives::Part& of = alternatives.parts.emplace_back();
    of.site = sites.emplace(part.space, sites.size()).first->second;
    of.by_position = part.wanted && !part.wanted->region.states.empty();
    for (const int candidate : options_of(part)) {
      of.options.push_back(implement(part, candidate));
      of.for_several.push_back(candidate >= 0 && candidate_of(part, candidate).for_several);
    }
  }
  alternatives.sites = sites.size();
  return alternatives;
}

std::vector<PartChoice> Selector::choices(const ContextChoice& chosen) const {
  std::vector<PartChoice> choices;
  std::map<int, std::size_t> sites;  // by space, as alternatives() counts them
  for (const CoverPart& part : parts_) {
    const std::size_t site = sites.emplace(part.space, sites.size()).first->second;
    const int candidate = options_of(part)[chosen.options[site]];
    choices.push_back({part.wanted, {}});
    if (candidate >= 0) choices.back().choice = candidate_of(part, candidate).choice;
  }
  return choices;
}

Selection Selector::select(const CoverPart& part, const std::vector<ContextChoice>& chosen,
                           std::size_t site) const {
  const SpaceEvidence& evidence = evidence_of(part);
  const Space& space = space_of(part);
  Selection selection;
  selection.signature = space.signature;
  selection.ops = op_names(part);
  selection.argmax = chooses_token(part);
  if (part.wanted) {
    const Region& region = part.wanted->region;
    selection.category = region.category;
    selection.work = evaluate(region.work, plans_.options.at);
  }
  selection.fallback_measured = fallback_us(evidence);
  if (!evidence.races.empty()) selection.why_unmeasured = evidence.races.back().failed;
  selection.attempts = attempts_of(space, evidence);
  selection.enumerated = space.enumerated;
  selection.legal = space.legal;
  selection.illegal = space.illegal;
  selection.refusals = space.refusals;

  const std::vector<int> options = options_of(part);
  std::vector<int> used;  // each once
  for (const ContextChoice& choice : chosen) {
    const int candidate = options[choice.options[site]];
    if (chosen.size() > 1)
      selection.by_context.emplace_back(choice.from,
                                        candidate < 0 ? "" : candidate_of(part, candidate).id);
    if (std::ranges::find(used, candidate) != used.end()) continue;
    used.push_back(candidate);
    for (const KernelSource& source : implement(part, candidate).made.sources)
      selection.kernels.push_back(source.entry);
    for (Json& trial : trials_of(part, candidate)) selection.trials.push_back(std::move(trial));
    for (Confirmed& of : confirmed_of(part, candidate))
      selection.confirmed.push_back(std::move(of));
  }
  if (used[0] < 0) {
    selection.family = "fallback";
    selection.measured = selection.fallback_measured;
    return selection;
  }
  const Candidate& winner = candidate_of(part, used[0]);
  selection.candidate = winner.id;
  selection.family = family_of(winner.choice);
  selection.predicted = winner.cost.microseconds;
  for (const Attempt& attempt : selection.attempts)
    if (attempt.candidate == winner.id) selection.measured = attempt.measured;
  return selection;
}

std::vector<Json> Selector::trials_of(const CoverPart& part, int candidate) const {
  if (candidate >= 0) return {to_json(evidence_of(part).trials.at(candidate))};
  std::vector<Json> trials;
  for (const std::string& signature : fallback_signatures(part))
    trials.push_back(evidence_.fallback_trials.at(signature));
  return trials;
}

std::vector<Selection> Selector::selections(const std::vector<ContextChoice>& chosen) const {
  std::vector<Selection> selections;
  std::map<int, std::size_t> sites;  // by space, as alternatives() counts them
  for (const CoverPart& part : parts_) {
    const auto [site, is_new] = sites.emplace(part.space, sites.size());
    if (is_new) selections.push_back(select(part, chosen, site->second));
    ++selections[site->second].uses;
  }
  return selections;
}

std::vector<Abandoned> Selector::abandoned() const {
  std::set<int> kept;
  for (const CoverPart& part : parts_) kept.insert(part.space);
  std::vector<Abandoned> abandoned;
  for (std::size_t i = 0; i < plans_.spaces.size(); ++i) {
    const Space& space = plans_.spaces[i];
    std::vector<Attempt> attempts = attempts_of(space, evidence_.spaces[i]);
    if (!attempts.empty() && kept.count(static_cast<int>(i)) == 0)
      abandoned.push_back({space.signature, agenda_[i].ops, std::move(attempts)});
  }
  return abandoned;
}

}  // namespace ac
