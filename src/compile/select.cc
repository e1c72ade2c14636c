#include "compile/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "generate/fallback.h"

namespace ac {
namespace {

constexpr std::size_t kSamplers = 3;

// And does nothing else.
bool chooses_token(const Space& space) {
  return !space.candidates.empty() &&
         std::holds_alternative<Implementation<SamplingTask>>(space.candidates[0].choice);
}

}  // namespace

Selector::Selector(CompiledPhase& phase, Setting setting, std::size_t tries, Realiser& realiser)
    : phase_(phase),
      setting_(std::move(setting)),
      tries_(tries),
      realiser_(realiser),
      uses_(phase.regions.step),
      states_(phase.plans.spaces.size()) {}

// Of the candidate that has won, or else is to be tried next.
std::optional<double> Selector::cost(int space) const {
  if (space < 0) return std::nullopt;
  const auto at = static_cast<std::size_t>(space);
  const State& state = states_[at];
  const std::vector<Candidate>& candidates = phase_.plans.spaces[at].candidates;
  if (state.winner >= 0)
    return candidates[static_cast<std::size_t>(state.winner)].cost.microseconds;
  if (state.next >= std::min(tries_, candidates.size())) return std::nullopt;
  return candidates[state.next].cost.microseconds;
}

void Selector::plan_missing(std::vector<CoverPart>& parts) {
  Plans& plans = phase_.plans;
  for (CoverPart& part : parts) {
    if (part.space >= 0) continue;
    const std::string signature = part.wanted ? signature_of(*part.wanted) : "";
    for (std::size_t i = 0; i < plans.spaces.size(); ++i)
      if (part.wanted ? plans.spaces[i].signature == signature : chooses_token(plans.spaces[i]))
        part.space = static_cast<int>(i);
    if (part.space >= 0) continue;
    if (part.wanted) {
      plans.spaces.push_back(plan_space(step(), *part.wanted, plans.options.at, plans.device,
                                        plans.options.max_candidates));
    } else {
      const TensorType& logits = step().graph.type(step().graph.outputs.at(0).node);
      plans.spaces.push_back(plan_sampling(logits.dtype, logits.shape.back().constant(),
                                           plans.device, plans.options.max_candidates));
    }
    part.space = static_cast<int>(plans.spaces.size()) - 1;
    states_.emplace_back();
  }
}

bool Selector::is_fallback(const CoverPart& part) const {
  return states_[static_cast<std::size_t>(part.space)].winner < 0;
}

// Tries one more candidate of each space of the cover that has no winner; false if there was none.
bool Selector::try_next(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  std::vector<int> spaces;
  std::set<int> seen;
  const TrialSetting at{phase_.plans.options.at.T, setting_};
  for (const CoverPart& part : parts) {
    if (!seen.insert(part.space).second) continue;
    State& state = states_[static_cast<std::size_t>(part.space)];
    if (state.winner >= 0) continue;
    const Space& space = space_of(part);
    // What chooses the token has no fallback.
    const std::size_t tries = part.wanted ? tries_ : std::max<std::size_t>(tries_, kSamplers);
    while (state.next < std::min(tries, space.candidates.size())) {
      const Candidate& candidate = space.candidates[state.next];
      std::optional<Request> request;
      if (part.wanted) {
        request = trial_of(step(), *part.wanted, candidate, at);
      } else {
        const TensorType& logits = step().graph.type(step().graph.outputs.at(0).node);
        request = trial_of_sampling(logits.dtype, logits.shape.back().constant(), candidate);
      }
      if (request) {
        requests.push_back(std::move(*request));
        spaces.push_back(part.space);
        break;
      }
      Outcome outcome;
      outcome.kind = Outcome::Kind::rejected;
      outcome.why = "interface: the plan does not fit the region when it is tried by itself";
      state.attempts.push_back({candidate.id, candidate.cost.microseconds, outcome});
      ++state.next;
    }
  }
  if (requests.empty()) return false;
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = realiser_.realise(
      requests, [&](std::size_t i) { progress.step(++done, requests.size(), requests[i].name); });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    State& state = states_[static_cast<std::size_t>(spaces[i])];
    const Candidate& tried =
        phase_.plans.spaces[static_cast<std::size_t>(spaces[i])].candidates[state.next];
    state.attempts.push_back({tried.id, tried.cost.microseconds, outcomes[i]});
    if (outcomes[i].admitted()) {
      state.winner = static_cast<int>(state.next);
      state.trial = std::move(requests[i].trial);
    }
    ++state.next;
  }
  return true;
}

// Node by node, as they run. One that the gate does not admit leaves nothing to run with.
void Selector::admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  std::vector<std::string> signatures;
  const TrialSetting at{phase_.plans.options.at.T, setting_};
  for (const CoverPart& part : parts) {
    if (!is_fallback(part)) continue;
    if (!part.wanted) job_failed("no kernel that chooses the token was admitted");
    for (const NodeId id : part.wanted->region.nodes) {
      if (!is_compute(step().graph[id])) continue;
      const Region node = std::get<Region>(make_region(uses_, {id}));
      if (!fallback_trials_.emplace(node.signature, Json()).second) continue;
      requests.push_back(trial_of_fallback(step(), node, at));
      requests.back().name = fmt::format("fallback {}", info(step().graph[id].op).name);
      signatures.push_back(node.signature);
    }
  }
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = realiser_.realise(
      requests, [&](std::size_t i) { progress.step(++done, requests.size(), requests[i].name); });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!outcomes[i].admitted())
      job_failed("the {} of {} was not admitted: {}", requests[i].name, signatures[i],
                 outcomes[i].why);
    fallback_trials_[signatures[i]] = to_json(requests[i].trial);
  }
}

Implemented Selector::implement(const CoverPart& part) const {
  const std::string where =
      part.wanted && !part.wanted->region.module.empty() ? " at " + part.wanted->region.module : "";
  const State& state = states_[static_cast<std::size_t>(part.space)];
  if (state.winner < 0)
    return {fallback(step(), part.wanted->region, setting_), "fallback" + where};
  const Candidate& candidate = phase_.plans.spaces[static_cast<std::size_t>(part.space)]
                                   .candidates[static_cast<std::size_t>(state.winner)];
  if (!part.wanted) {
    const NodeId logits = step().graph.outputs.at(0).node;
    return {generate_sampling(step(), std::get<Implementation<SamplingTask>>(candidate.choice),
                              logits, setting_),
            candidate.id};
  }
  for (const FamilyMatch& found : match_families(step(), *part.wanted, phase_.plans.options.at))
    if (const auto* matched = std::get_if<Matched>(&found.match))
      if (found.family == family_of(candidate.choice))
        return {generate(step(), candidate.choice, matched->operands, setting_),
                candidate.id + where};
  AC_UNREACHABLE();  // equal regions match alike
}

void Selector::record(const std::vector<CoverPart>& parts) {
  std::map<int, std::size_t> known;
  for (const CoverPart& part : parts) {
    const auto [at, is_new] = known.emplace(part.space, phase_.selections.size());
    if (!is_new) {
      ++phase_.selections[at->second].uses;
      continue;
    }
    const State& state = states_[static_cast<std::size_t>(part.space)];
    const Space& space = space_of(part);
    Selection selection;
    selection.signature = space.signature;
    selection.uses = 1;
    if (part.wanted) {
      const Region& region = part.wanted->region;
      for (const Op op : region.ops) selection.ops.emplace_back(info(op).name);
      selection.category = region.category;
      selection.argmax = part.wanted->argmax;
      selection.work = evaluate(region.work, phase_.plans.options.at);
    } else {
      selection.argmax = true;
    }
    selection.family = "fallback";
    selection.attempts = state.attempts;
    selection.enumerated = space.enumerated;
    selection.legal = space.legal;
    selection.illegal = space.illegal;
    selection.refusals = space.refusals;
    if (state.winner >= 0) {
      const Candidate& winner = space.candidates[static_cast<std::size_t>(state.winner)];
      selection.candidate = winner.id;
      selection.family = family_of(winner.choice);
      selection.predicted = winner.cost.microseconds;
      selection.trials.push_back(to_json(*state.trial));
    } else {
      for (const NodeId id : part.wanted->region.nodes)
        if (is_compute(step().graph[id]))
          selection.trials.push_back(
              fallback_trials_.at(std::get<Region>(make_region(uses_, {id})).signature));
    }
    for (const KernelSource& source : implement(part).made.sources)
      selection.kernels.push_back(source.entry);
    phase_.selections.push_back(std::move(selection));
  }
}

std::vector<Implemented> Selector::run(Progress& progress) {
  std::vector<CoverPart> parts;
  do {
    parts = choose_cover(phase_.regions, phase_.plans, [this](int space) { return cost(space); });
    // What chooses the token is no node of the graph.
    const bool chooses = std::any_of(parts.begin(), parts.end(), [](const CoverPart& part) {
      return !part.wanted || part.wanted->argmax;
    });
    if (!chooses) parts.push_back({});
    plan_missing(parts);
  } while (try_next(parts, progress));
  // A product that should have chosen the token as well, and is left to its fallback.
  for (CoverPart& part : parts)
    if (part.wanted && part.wanted->argmax && is_fallback(part)) {
      parts.push_back({});
      plan_missing(parts);
      while (try_next(parts, progress)) {
      }
      break;
    }
  admit_fallbacks(parts, progress);
  record(parts);
  std::vector<Implemented> implemented;
  for (const CoverPart& part : parts) implemented.push_back(implement(part));
  return implemented;
}

}  // namespace ac
