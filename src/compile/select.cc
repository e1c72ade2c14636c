#include "compile/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "generate/fallback.h"

namespace ac {
namespace {

constexpr std::size_t kSamplers = 3;

std::vector<std::int64_t> slots_of(const std::vector<CacheSpec>& caches) {
  std::vector<std::int64_t> slots;
  for (const CacheSpec& cache : caches) slots.push_back(cache.slots);
  return slots;
}

// And does nothing else.
bool chooses_token(const Space& space) {
  return !space.candidates.empty() &&
         std::holds_alternative<Implementation<SamplingTask>>(space.candidates[0].choice);
}

}  // namespace

Selector::Selector(CompiledPhase& phase, const std::vector<CacheSpec>& caches, std::size_t tries,
                   const Preferred& preferred, Realiser& realiser)
    : phase_(phase),
      caches_(caches),
      setting_{phase.plans.device.multiprocessors, slots_of(caches)},
      tries_(tries),
      preferred_(preferred),
      realiser_(realiser),
      uses_(phase.regions.step) {
  for (const Space& space : phase.plans.spaces) states_.push_back(state_for(space));
}

// Where all that is tried is timed, what differs most teaches most.
Selector::State Selector::state_for(const Space& space) const {
  State state;
  state.order = diverse_order(space);
  if (!realiser_.measures()) std::sort(state.order.begin(), state.order.end());
  if (const auto found = preferred_.find(space.signature); found != preferred_.end()) {
    const std::vector<std::string>& ids = found->second;
    const auto rank = [&](std::size_t i) {
      return std::find(ids.begin(), ids.end(), space.candidates[i].id) - ids.begin();
    };
    std::stable_sort(state.order.begin(), state.order.end(),
                     [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  }
  // What chooses the token has no fallback.
  state.order.resize(
      std::min(state.order.size(), std::max(tries_, chooses_token(space) ? kSamplers : 0)));
  return state;
}

// What was measured of the winner, or is predicted of the candidate that is next.
std::optional<double> Selector::cost(int space) const {
  if (space < 0) return std::nullopt;
  const auto at = static_cast<std::size_t>(space);
  const State& state = states_[at];
  const std::vector<Candidate>& candidates = phase_.plans.spaces[at].candidates;
  if (state.winner >= 0) {
    const Candidate& winner = candidates[static_cast<std::size_t>(state.winner)];
    for (const Attempt& attempt : state.attempts)
      if (attempt.candidate == winner.id && attempt.measured) return attempt.measured;
    return winner.cost.microseconds * scale_;
  }
  if (state.raced) return state.fallback_measured;
  if (state.next >= state.order.size()) return std::nullopt;
  return candidates[state.order[state.next]].cost.microseconds * scale_;
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
    states_.push_back(state_for(plans.spaces.back()));
  }
}

// Whether there is a candidate that should be tried.
bool Selector::is_open(const State& state) const {
  if (state.raced || state.next >= state.order.size()) return false;
  return realiser_.measures() || state.winner < 0;
}

// Until there is nothing left to try for these parts; false if there was nothing.
bool Selector::decide(const std::vector<CoverPart>& parts, Progress& progress) {
  bool tried = false;
  while (try_next(parts, progress)) tried = true;
  if (!realiser_.measures()) return tried;
  return race(parts, progress) || tried;
}

// One more candidate of each space that is open; false if there was none.
bool Selector::try_next(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  std::vector<int> spaces;
  std::set<int> seen;
  const TrialSetting at{phase_.plans.options.at.T, setting_};
  for (const CoverPart& part : parts) {
    if (!seen.insert(part.space).second) continue;
    State& state = states_[static_cast<std::size_t>(part.space)];
    const Space& space = space_of(part);
    while (is_open(state)) {
      const Candidate& candidate = next_of(state, space);
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
      state.attempts.push_back({candidate.id, candidate.cost.microseconds, {}, outcome});
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
        next_of(state, phase_.plans.spaces[static_cast<std::size_t>(spaces[i])]);
    state.attempts.push_back({tried.id, tried.cost.microseconds, {}, outcomes[i]});
    if (outcomes[i].admitted()) {
      const auto candidate = static_cast<int>(state.order[state.next]);
      state.trials.emplace(candidate, std::move(requests[i].trial));
      if (state.winner < 0) state.winner = candidate;
    } else {
      progress.note(
          fmt::format("{}: {} ({})", tried.id, to_string(outcomes[i].kind), outcomes[i].why));
    }
    ++state.next;
  }
  return true;
}

// All admitted candidates of each space against each other and the fallback.
bool Selector::race(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<const CoverPart*> due;
  std::vector<CoverPart> fallbacks;  // parts that have one
  std::set<int> seen;
  for (const CoverPart& part : parts) {
    if (!seen.insert(part.space).second || state_of(part).raced) continue;
    if (!part.wanted && is_fallback(part)) continue;
    due.push_back(&part);
    if (part.wanted) fallbacks.push_back(part);
  }
  if (due.empty()) return false;
  admit_fallbacks(fallbacks, progress);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < due.size(); ++i) {
    const CoverPart& part = *due[i];
    State& state = states_[static_cast<std::size_t>(part.space)];
    state.raced = true;
    const Space& space = space_of(part);
    std::vector<Contender> contenders;
    std::vector<int> candidates;
    for (const auto& [candidate, trial] : state.trials) {
      const Candidate& racer = space.candidates[static_cast<std::size_t>(candidate)];
      contenders.push_back({racer.id, generate_for(part, racer)});
      candidates.push_back(candidate);
    }
    // What also chooses the token does more than the fallback of its region.
    const bool against_fallback = part.wanted && !part.wanted->argmax;
    if (!against_fallback && contenders.empty()) continue;
    if (against_fallback)
      contenders.push_back({"fallback", fallback(step(), part.wanted->region, setting_)});
    MeasureOptions options;
    options.tokens = phase_.plans.options.at.T;
    options.position = phase_.plans.options.at.P;
    options.caches = caches_;
    if (phase_.plans.device.sm == 0) options.rounds = 3;
    const Realiser::Race race = realiser_.race(step(), contenders, options);
    progress.step(i + 1, due.size(), "timed " + contenders[0].name);
    if (!race.failed.empty()) {
      state.why_unmeasured = race.failed;
      progress.note(fmt::format("{}: not timed ({})", contenders[0].name, race.failed));
      continue;
    }
    std::size_t best = 0;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      const Candidate& racer = space.candidates[static_cast<std::size_t>(candidates[c])];
      for (Attempt& attempt : state.attempts)
        if (attempt.candidate == racer.id) attempt.measured = race.microseconds[c];
      ratios.push_back(race.microseconds[c] / racer.cost.microseconds);
      if (race.microseconds[c] < race.microseconds[best]) best = c;
    }
    if (!candidates.empty()) state.winner = candidates[best];
    if (!against_fallback) continue;
    state.fallback_measured = race.microseconds.back();
    if (!candidates.empty() && *state.fallback_measured <= race.microseconds[best])
      state.winner = -1;
  }
  if (!ratios.empty()) {
    std::nth_element(ratios.begin(), ratios.begin() + static_cast<long>(ratios.size() / 2),
                     ratios.end());
    scale_ = ratios[ratios.size() / 2];
  }
  return true;
}

// Node by node, as they run. One that the gate does not admit leaves nothing to run with.
void Selector::admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  std::vector<std::string> signatures;
  const TrialSetting at{phase_.plans.options.at.T, setting_};
  for (const CoverPart& part : parts) {
    if (!part.wanted) {
      const std::vector<Attempt>& attempts = state_of(part).attempts;
      job_failed("no kernel that chooses the token was admitted: {}",
                 attempts.empty() ? "none was tried (--tries 0)" : attempts[0].outcome.why);
    }
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

Generated Selector::generate_for(const CoverPart& part, const Candidate& candidate) const {
  if (!part.wanted)
    return generate_sampling(step(), std::get<Implementation<SamplingTask>>(candidate.choice),
                             step().graph.outputs.at(0).node, setting_);
  for (const FamilyMatch& found : match_families(step(), *part.wanted, phase_.plans.options.at))
    if (const auto* matched = std::get_if<Matched>(&found.match))
      if (found.family == family_of(candidate.choice))
        return generate(step(), candidate.choice, matched->operands, setting_);
  AC_UNREACHABLE();  // equal regions match alike
}

Implemented Selector::implement(const CoverPart& part) const {
  const bool has_module = part.wanted && !part.wanted->region.module.empty();
  const std::string where = has_module ? " at " + part.wanted->region.module : "";
  if (is_fallback(part))
    return {fallback(step(), part.wanted->region, setting_), "fallback" + where};
  const Candidate& winner =
      space_of(part).candidates[static_cast<std::size_t>(state_of(part).winner)];
  return {generate_for(part, winner), winner.id + where};
}

void Selector::record(const std::vector<CoverPart>& parts) {
  std::map<int, std::size_t> known;
  for (const CoverPart& part : parts) {
    const auto [at, is_new] = known.emplace(part.space, phase_.selections.size());
    if (!is_new) {
      ++phase_.selections[at->second].uses;
      continue;
    }
    const State& state = state_of(part);
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
    selection.fallback_measured = state.fallback_measured;
    if (state.winner < 0) selection.measured = state.fallback_measured;
    selection.why_unmeasured = state.why_unmeasured;
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
      for (const Attempt& attempt : state.attempts)
        if (attempt.candidate == winner.id) selection.measured = attempt.measured;
      selection.trials.push_back(to_json(state.trials.at(state.winner)));
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
  } while (decide(parts, progress));
  // A product that should have chosen the token as well, and is left to its fallback.
  for (CoverPart& part : parts)
    if (part.wanted && part.wanted->argmax && is_fallback(part)) {
      parts.push_back({});
      plan_missing(parts);
      decide(parts, progress);
      break;
    }
  std::vector<CoverPart> left;
  for (const CoverPart& part : parts)
    if (is_fallback(part)) left.push_back(part);
  admit_fallbacks(left, progress);
  record(parts);
  std::vector<Implemented> implemented;
  for (const CoverPart& part : parts) implemented.push_back(implement(part));
  return implemented;
}

}  // namespace ac
