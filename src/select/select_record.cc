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
  const Candidate& chosen = space_of(part).candidates[static_cast<std::size_t>(candidate)];
  return {generate_for(part, chosen), chosen.id + where};
}

// What could compute a space's regions: the winner, then what else was admitted, fastest first.
std::vector<int> Selector::leaders(const State& state) const {
  if (!state.fixed.empty()) return state.fixed;
  std::vector<int> leaders{state.winner};
  if (state.winner < 0) return leaders;
  for (const std::size_t i : state.order)
    if (const auto candidate = static_cast<int>(i);
        candidate != state.winner && state.trials.count(candidate) > 0)
      leaders.push_back(candidate);
  return leaders;
}

Alternatives Selector::alternatives() const {
  Alternatives alternatives;
  std::map<int, std::size_t> sites;  // by space
  for (const CoverPart& part : parts_) {
    Alternatives::Part& of = alternatives.parts.emplace_back();
    of.site = sites.emplace(part.space, sites.size()).first->second;
    of.by_position = part.wanted && !part.wanted->region.states.empty();
    for (const int candidate : leaders(state_of(part)))
      of.options.push_back(implement(part, candidate));
  }
  alternatives.sites = sites.size();
  return alternatives;
}

Selection Selector::select(const CoverPart& part, const std::vector<ContextChoice>& chosen,
                           std::size_t site) const {
  const State& state = state_of(part);
  const Space& space = space_of(part);
  Selection selection;
  selection.signature = space.signature;
  selection.ops = op_names(part);
  selection.argmax = chooses_token(part);
  if (part.wanted) {
    const Region& region = part.wanted->region;
    selection.category = region.category;
    selection.work = evaluate(region.work, phase_.plans.options.at);
  }
  selection.fallback_measured = state.fallback_measured;
  selection.why_unmeasured = state.why_unmeasured;
  selection.attempts = attempts_of(static_cast<std::size_t>(part.space));
  selection.enumerated = space.enumerated;
  selection.legal = space.legal;
  selection.illegal = space.illegal;
  selection.refusals = space.refusals;

  const std::vector<int> options = leaders(state);
  std::vector<int> used;  // each once
  for (const ContextChoice& choice : chosen) {
    const int candidate = options[choice.options[site]];
    if (chosen.size() > 1)
      selection.by_context.emplace_back(
          choice.from,
          candidate < 0 ? "" : space.candidates[static_cast<std::size_t>(candidate)].id);
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
    selection.measured = state.fallback_measured;
    return selection;
  }
  const Candidate& winner = space.candidates[static_cast<std::size_t>(used[0])];
  selection.candidate = winner.id;
  selection.family = family_of(winner.choice);
  selection.predicted = winner.cost.microseconds;
  for (const Attempt& attempt : state.attempts)
    if (attempt.candidate == winner.id) selection.measured = attempt.measured;
  return selection;
}

// Those that were judged, then those that were only timed.
std::vector<Attempt> Selector::attempts_of(std::size_t at) const {
  const State& state = states_[at];
  std::vector<Attempt> attempts = state.attempts;
  for (std::size_t i = state.next; i < state.order.size(); ++i)
    if (const auto timed = state.quick.find(static_cast<int>(state.order[i]));
        timed != state.quick.end()) {
      const Candidate& candidate = phase_.plans.spaces[at].candidates[state.order[i]];
      Outcome outcome;
      outcome.kind = Outcome::Kind::unjudged;
      attempts.push_back({candidate.id, candidate.cost.microseconds, timed->second, outcome});
    }
  return attempts;
}

std::vector<Json> Selector::trials_of(const CoverPart& part, int candidate) const {
  if (candidate >= 0) return {to_json(state_of(part).trials.at(candidate))};
  std::vector<Json> trials;
  for (const std::string& signature : fallback_signatures(part))
    trials.push_back(fallback_trials_.at(signature));
  return trials;
}

void Selector::record(const std::vector<ContextChoice>& chosen) {
  const std::size_t before = phase_.selections.size();  // of other cuts
  std::map<int, std::size_t> sites;                     // by space, as alternatives() counts them
  for (const CoverPart& part : parts_) {
    const auto [at, is_new] = sites.emplace(part.space, sites.size());
    if (is_new) phase_.selections.push_back(select(part, chosen, at->second));
    ++phase_.selections[before + at->second].uses;
  }
  record_abandoned();
}

// What was tried for cuts that another one has beaten.
void Selector::record_abandoned() {
  std::set<int> kept;
  for (const CoverPart& part : parts_) kept.insert(part.space);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::vector<Attempt> attempts = attempts_of(i);
    if (!attempts.empty() && kept.count(static_cast<int>(i)) == 0)
      phase_.abandoned.push_back(
          {phase_.plans.spaces[i].signature, states_[i].ops, std::move(attempts)});
  }
}

}  // namespace ac
