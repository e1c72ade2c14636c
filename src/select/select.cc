#include "select/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "generate/fallback.h"
#include "lab/measure.h"

namespace ac {
namespace {

// Of what is timed to be thinned. On a GPU, making a graph of many launches takes longer than they
// do, and a millisecond is a thousand times what its clock resolves.
constexpr int kQuickRounds = 3, kQuickRepetitions = 250;
constexpr double kQuickSeconds = 0.001, kFinalSeconds = 0.01;
// The host device's clock counts its own work alone.
constexpr int kRoundsOnHost = 3;
constexpr double kSecondsOnHost = 0.004, kPatienceOnHost = 0.02;
// A step of fewer tokens is timed there in place of one that is more work than that.
constexpr double kMostFlopsOnHost = 1e8;
constexpr std::int64_t kFewestTokens = 16;
constexpr std::size_t kLibraryTries = 3;
// Of a predicted latency, what it may come to once it is measured: what could then be better than
// what was measured is tried. The cost model is worse at products of many tokens than at one's.
constexpr double kHope = 0.9, kHopeOfMany = 0.7;

std::vector<std::int64_t> slots_of(const std::vector<StateSpec>& states) {
  std::vector<std::int64_t> slots;
  for (const StateSpec& state : states) slots.push_back(state.slots);
  return slots;
}

bool is_of_library(const Candidate& candidate) {
  return std::holds_alternative<Implementation<LibraryTask>>(candidate.choice);
}

// And does nothing else.
bool only_chooses_token(const Space& space) {
  return !space.candidates.empty() &&
         std::holds_alternative<Implementation<SamplingTask>>(space.candidates[0].choice);
}

std::string best_of(const CoverPart& part, const std::string& name, double microseconds) {
  std::string ops;
  for (const std::string& op : op_names(part)) ops += (ops.empty() ? "" : "+") + op;
  return fmt::format("{}: {} {:.1f} us", ops.empty() ? "argmax" : ops, name, microseconds);
}

}  // namespace

Selector::Selector(CompiledPhase& phase, const std::vector<StateSpec>& states,
                   SelectOptions options, Realiser& realiser, Guide* guide)
    : phase_(phase),
      state_specs_(states),
      setting_{phase.plans.device.multiprocessors, slots_of(states)},
      options_(std::move(options)),
      realiser_(realiser),
      guide_(guide),
      uses_(phase.regions.step) {
  for (const Space& space : phase.plans.spaces) states_.push_back(state_for(space));
}

// Where all that is tried is timed, what differs most teaches most.
Selector::State Selector::state_for(const Space& space) const {
  State state;
  state.leaders = options_.leaders;
  state.order = diverse_order(space);
  if (!realiser_.measures()) std::sort(state.order.begin(), state.order.end());
  if (const auto found = options_.preferred.find(space.signature);
      found != options_.preferred.end()) {
    const std::vector<std::string>& ids = found->second;
    const auto rank = [&](std::size_t i) {
      return std::find(ids.begin(), ids.end(), space.candidates[i].id) - ids.begin();
    };
    std::stable_sort(state.order.begin(), state.order.end(),
                     [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  }
  if (guide_) guide_->interleave(space, state.order);
  const std::vector<std::size_t> whole = state.order;
  state.order.resize(std::min(state.order.size(), options_.tries));
  // A library's algorithms cost no building: some more of them take no other's turn.
  std::size_t further = realiser_.measures() && options_.tries > 0 ? kLibraryTries : 0;
  for (std::size_t i = state.order.size(); i < whole.size() && further > 0; ++i)
    if (is_of_library(space.candidates[whole[i]])) state.order.push_back(whole[i]), --further;
  return state;
}

TrialSetting Selector::trial_setting() const {
  const bool on_gpu = realiser_.measures() && phase_.plans.device.sm > 0;
  // Steps of a phase may have more tokens than its kernels were chosen for.
  return {std::max(phase_.spec.max_tokens, phase_.plans.options.at.T), setting_, on_gpu,
          options_.max_context};
}

// What was measured of the winner, or is predicted of the best that is left to try.
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
  double best = candidates[state.order[state.next]].cost.microseconds;
  for (std::size_t i = state.next; i < state.order.size(); ++i)
    best = std::min(best, candidates[state.order[i]].cost.microseconds);
  if (!realiser_.measures() || phase_.plans.device.sm == 0) return best * scale_;
  return best * scale_ * (phase_.plans.options.at.T > 1 ? kHopeOfMany : kHope);
}

void Selector::plan_missing(std::vector<CoverPart>& parts) {
  Plans& plans = phase_.plans;
  for (CoverPart& part : parts) {
    if (part.space >= 0) continue;
    const std::string signature = part.wanted ? signature_of(*part.wanted) : "";
    for (std::size_t i = 0; i < plans.spaces.size(); ++i)
      if (part.wanted ? plans.spaces[i].signature == signature
                      : only_chooses_token(plans.spaces[i]))
        part.space = static_cast<int>(i);
    if (part.space >= 0) continue;
    if (part.wanted) {
      plans.spaces.push_back(plan_space(step(), *part.wanted, plans.options.at, plans.device,
                                        plans.options.max_candidates, plans.options.families));
    } else {
      plans.spaces.push_back(plan_sampling(logits().dtype, logits().shape.back().constant(),
                                           plans.device, plans.options.max_candidates));
    }
    part.space = static_cast<int>(plans.spaces.size()) - 1;
    states_.push_back(state_for(plans.spaces.back()));
  }
}

// How many candidates should be tried at once.
std::size_t Selector::missing(const State& state) const {
  if (state.raced) return 0;
  if (!realiser_.measures()) return state.winner < 0 ? 1 : 0;
  return state.leaders - std::min(state.leaders, state.trials.size());
}

// Until there is nothing left to try for these parts; false if there was nothing.
bool Selector::decide(const std::vector<CoverPart>& parts, Progress& progress) {
  bool tried = realiser_.measures() && time_all(parts, progress);
  while (try_next(parts, progress)) tried = true;
  if (!realiser_.measures()) return tried;
  return race(parts, progress) || tried;
}

// What the stage's last line says: of all regions.
std::string Selector::so_far() const {
  std::size_t tried = 0, admitted = 0, confirmed = 0;
  for (std::size_t i = 0; i < states_.size(); ++i)
    tried += attempts_of(i).size(), admitted += states_[i].trials.size(),
        confirmed += states_[i].confirmed.size();
  std::string text = fmt::format("{} candidates tried, {} admitted", tried, admitted);
  if (confirmed + confirmed_fallbacks_.size() > 0)
    text += fmt::format("; {} and {} fallbacks confirmed as they are used", confirmed,
                        confirmed_fallbacks_.size());
  return text;
}

bool Selector::is_to_be_timed(const CoverPart& part) const {
  const State& state = state_of(part);
  const std::size_t enough = is_on_host() ? 0 : options_.leaders;
  return !state.timed && !state.raced && state.order.size() > enough;
}

std::vector<KernelSource> Selector::sources_of(const CoverPart& part) const {
  std::vector<KernelSource> sources;
  for (const std::size_t i : state_of(part).order)
    for (KernelSource& source : generate_for(part, space_of(part).candidates[i]).sources)
      sources.push_back(std::move(source));
  return sources;
}

std::vector<KernelSource> Selector::first_sources() {
  std::vector<KernelSource> sources;
  for (const CoverPart& part : cut())
    if (is_to_be_timed(part))
      for (KernelSource& source : sources_of(part)) sources.push_back(std::move(source));
  return sources;
}

// Of the step's. The host device's latency is what a region's work makes it.
std::int64_t Selector::timed_tokens(const CoverPart& part) const {
  Bindings at = phase_.plans.options.at;
  if (!is_on_host() || !part.wanted) return at.T;
  while (at.T > kFewestTokens && evaluate(part.wanted->region.work, at).flops > kMostFlopsOnHost)
    at.T = std::max(at.T / 2, kFewestTokens);
  return at.T;
}

MeasureOptions Selector::measure_options(const CoverPart& part, std::int64_t position) const {
  MeasureOptions options;
  options.tokens = timed_tokens(part);
  options.position = position;
  options.states = state_specs_;
  if (is_on_host())
    options.rounds = kRoundsOnHost, options.seconds = kSecondsOnHost,
    options.patience = kPatienceOnHost;
  return options;
}

// Microseconds of the step's tokens, samples of those that were timed.
Realiser::Race Selector::run_race(const std::vector<Contender>& contenders,
                                  const MeasureOptions& options) {
  Realiser::Race race = realiser_.race(step(), contenders, options);
  for (double& microseconds : race.microseconds)
    microseconds *= double(phase_.plans.options.at.T) / double(options.tokens);
  return race;
}

// Timed before they are judged, since judging takes longer: all candidates of spaces that have more
// of them than shall be admitted. False if there were none.
bool Selector::time_all(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<const CoverPart*> due;
  std::vector<KernelSource> sources;
  for (const CoverPart& part : parts) {
    const bool is_due = is_to_be_timed(part);
    states_[static_cast<std::size_t>(part.space)].timed = true;
    if (!is_due) continue;
    due.push_back(&part);
    for (KernelSource& source : sources_of(part)) sources.push_back(std::move(source));
    if (is_on_host())
      for (KernelSource& source : fallback_for(part).sources) sources.push_back(std::move(source));
  }
  if (due.empty()) return false;
  realiser_.build(std::move(sources));
  for (std::size_t i = 0; i < due.size(); ++i) {
    time_space(*due[i], progress);
    const State& state = state_of(*due[i]);
    std::string best;
    if (!state.quick.empty()) {
      const auto fastest =
          std::ranges::min_element(state.quick, {}, [](const auto& timed) { return timed.second; });
      best = best_of(*due[i],
                     space_of(*due[i]).candidates[static_cast<std::size_t>(fastest->first)].id,
                     fastest->second);
      if (state.quick_fallback && *state.quick_fallback < fastest->second)
        best = best_of(*due[i], "fallback", *state.quick_fallback);
    }
    progress.step("regions timed", i + 1, due.size(), best);
  }
  return true;
}

// Leaves the space's order as fast as it goes; with several contexts, the fastest of each in turn.
void Selector::time_space(const CoverPart& part, Progress& progress) {
  State& state = states_[static_cast<std::size_t>(part.space)];
  const Space& space = space_of(part);
  std::vector<Contender> contenders;
  std::vector<std::size_t> candidates;
  for (const std::size_t i : state.order) {
    const Candidate& candidate = space.candidates[i];
    Contender contender{candidate.id, generate_for(part, candidate)};
    const std::string* failure = nullptr;
    for (const KernelSource& source : contender.made.sources)
      if (!failure) failure = realiser_.failure(source.entry);
    if (failure) {
      Outcome outcome;
      outcome.kind = Outcome::Kind::not_compiled;
      outcome.why = *failure;
      log_failure(part, candidate, outcome);
      state.attempts.push_back({candidate.id, candidate.cost.microseconds, {}, outcome});
      continue;
    }
    contenders.push_back(std::move(contender));
    candidates.push_back(i);
  }
  state.order = candidates;
  if (contenders.empty()) return;
  MeasureOptions options = measure_options(part, phase_.plans.options.at.P);
  if (!is_on_host()) {
    options.rounds = kQuickRounds, options.seconds = kQuickSeconds;
    options.repetitions = kQuickRepetitions;
  }
  const bool attends = std::ranges::any_of(contenders[0].made.buffers, [](const Buffer& buffer) {
    return buffer.role == Buffer::Role::state;
  });
  std::vector<std::int64_t> positions{phase_.plans.options.at.P};
  if (attends && !options_.contexts.empty()) positions = options_.contexts;
  // Each context may have a leader of its own.
  state.leaders += 2 * (positions.size() - 1);
  std::vector<std::vector<std::size_t>> orders;  // of the candidates, at each position
  std::vector<double> sums(contenders.size());
  double fallback = 0;  // the sum of
  if (is_on_host()) contenders.push_back({"fallback", fallback_for(part)});
  for (const std::int64_t position : positions) {
    options.position = position;
    const Realiser::Race race = run_race(contenders, options);
    if (!race.failed.empty()) {  // one of them crashed: they are judged in the order of before
      progress.note(fmt::format("{}: not timed together ({})", contenders[0].name, race.failed));
      return;
    }
    log_quick(part, candidates, race, options);
    if (is_on_host()) fallback += race.microseconds.back();
    std::vector<std::size_t>& order = orders.emplace_back(candidates.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i, sums[i] += race.microseconds[i];
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return race.microseconds[i]; });
  }
  std::vector<std::size_t> merged;
  for (std::size_t rank = 0; rank < candidates.size(); ++rank)
    for (const std::vector<std::size_t>& order : orders)
      if (std::ranges::find(merged, order[rank]) == merged.end()) merged.push_back(order[rank]);
  // Nothing overlaps with a library's products: one of ours may be faster between its neighbours.
  if (phase_.plans.options.at.T > 1 && state.leaders < merged.size()) {
    const auto is_ours = [&](std::size_t i) {
      return !is_of_library(space.candidates[candidates[i]]);
    };
    const auto end_of_leaders = merged.begin() + static_cast<std::ptrdiff_t>(state.leaders);
    const auto ours = std::find_if(merged.begin(), merged.end(), is_ours);
    if (ours != merged.end() && ours >= end_of_leaders)
      std::rotate(end_of_leaders - 1, ours, ours + 1);
  }
  for (std::size_t i = 0; i < merged.size(); ++i) {
    state.order[i] = candidates[merged[i]];
    if (std::isfinite(sums[merged[i]]))
      state.quick[static_cast<int>(candidates[merged[i]])] =
          sums[merged[i]] / static_cast<double>(positions.size());
  }
  if (!is_on_host()) return;
  state.quick_fallback = fallback / static_cast<double>(positions.size());
  const auto is_faster = [&](const auto& timed) { return timed.second < *state.quick_fallback; };
  state.leaders = std::min(state.leaders,
                           static_cast<std::size_t>(std::ranges::count_if(state.quick, is_faster)));
}

// Candidates of each space that misses some; false if there were none.
bool Selector::try_next(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  struct Tried {
    std::size_t space, candidate;
    const CoverPart* part;
  };
  std::vector<Tried> tried;
  std::set<int> seen;
  const TrialSetting at = trial_setting();
  for (const CoverPart& part : parts) {
    if (!seen.insert(part.space).second) continue;
    State& state = states_[static_cast<std::size_t>(part.space)];
    const Space& space = space_of(part);
    if (missing(state) > 0) state.ops = op_names(part);
    for (std::size_t wanted = missing(state); wanted > 0 && state.next < state.order.size();
         ++state.next) {
      const std::size_t index = state.order[state.next];
      const Candidate& candidate = space.candidates[index];
      if (std::optional<Request> request = trial_of(step(), part.wanted, candidate, at)) {
        request->trial.thorough = guide_ && guide_->is_thorough(space, candidate);
        requests.push_back(std::move(*request));
        tried.push_back({static_cast<std::size_t>(part.space), index, &part});
        --wanted;
        continue;
      }
      Outcome outcome;
      outcome.kind = Outcome::Kind::rejected;
      outcome.why = "interface: the plan does not fit the region when it is tried by itself";
      state.attempts.push_back({candidate.id, candidate.cost.microseconds, {}, outcome});
    }
  }
  if (requests.empty()) return false;
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = realiser_.realise(requests, [&](std::size_t i) {
    progress.step("candidates judged", ++done, requests.size(), requests[i].name);
  });
  std::set<int> failed;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto [space, index, part] = tried[i];
    State& state = states_[space];
    const Candidate& of = phase_.plans.spaces[space].candidates[index];
    state.attempts.push_back({of.id, of.cost.microseconds, {}, outcomes[i]});
    log_failure(*part, of, outcomes[i]);
    if (outcomes[i].admitted()) {
      const auto candidate = static_cast<int>(index);
      state.trials.emplace(candidate, std::move(requests[i].trial));
      if (state.winner < 0) state.winner = candidate;
    } else {
      progress.note(
          fmt::format("{}: {} ({})", of.id, to_string(outcomes[i].kind), outcomes[i].why));
      failed.insert(static_cast<int>(space));
    }
  }
  if (guide_ && !failed.empty()) diagnose(failed, progress);
  return true;
}

void Selector::diagnose(const std::set<int>& failed, Progress& progress) {
  std::vector<Guide::Failure> failures;
  for (const int space : failed) {
    const auto at = static_cast<std::size_t>(space);
    State& state = states_[at];
    failures.push_back({&phase_.plans.spaces[at], &state.attempts, &state.order, state.next});
  }
  guide_->diagnose(failures, progress);
}

// All admitted candidates of each space against each other and the fallback.
bool Selector::race(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<CoverPart> due;
  std::set<int> seen;
  for (const CoverPart& part : parts)
    if (seen.insert(part.space).second && !state_of(part).raced) due.push_back(part);
  if (due.empty()) return false;
  admit_fallbacks(due, progress);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < due.size(); ++i) {
    const CoverPart& part = due[i];
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
    contenders.push_back({"fallback", fallback_for(part)});
    MeasureOptions options = measure_options(part, phase_.plans.options.at.P);
    if (!is_on_host()) options.seconds = kFinalSeconds;
    // Where none was worth judging, that is known.
    const Realiser::Race race = candidates.empty() && state.quick_fallback
                                    ? Realiser::Race{{*state.quick_fallback}, {}, ""}
                                    : run_race(contenders, options);
    if (!race.failed.empty()) {
      progress.step("regions raced", i + 1, due.size());
      state.why_unmeasured = race.failed;
      progress.note(fmt::format("{}: not timed ({})", contenders[0].name, race.failed));
      continue;
    }
    log_race(part, candidates, race, options);
    if (candidates.empty() && is_on_host())
      for (const auto& [candidate, microseconds] : state.quick)
        ratios.push_back(microseconds /
                         space.candidates[static_cast<std::size_t>(candidate)].cost.microseconds);
    std::size_t best = 0;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      const Candidate& racer = space.candidates[static_cast<std::size_t>(candidates[c])];
      for (Attempt& attempt : state.attempts)
        if (attempt.candidate == racer.id) attempt.measured = race.microseconds[c];
      ratios.push_back(race.microseconds[c] / racer.cost.microseconds);
      if (race.microseconds[c] < race.microseconds[best]) best = c;
    }
    if (!candidates.empty()) state.winner = candidates[best];
    state.fallback_measured = race.microseconds.back();
    if (!candidates.empty() && *state.fallback_measured <= race.microseconds[best])
      state.winner = -1;
    const auto fastest = std::ranges::min_element(race.microseconds);
    const std::string& first =
        contenders[static_cast<std::size_t>(fastest - race.microseconds.begin())].name;
    progress.step("regions raced", i + 1, due.size(), best_of(part, first, *fastest));
  }
  if (!ratios.empty()) scale_ = median(std::move(ratios));
  return true;
}

// Node by node, as they run. One that the gate does not admit leaves nothing to run with.
void Selector::admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  std::vector<std::string> signatures;
  const TrialSetting at = trial_setting();
  for (const CoverPart& part : parts) {
    if (chooses_token(part) && fallback_trials_.emplace(kArgmax, Json()).second) {
      requests.push_back(trial_of_argmax(logits().dtype, logits().shape.back().constant()));
      signatures.push_back(kArgmax);
    }
    if (!part.wanted) continue;
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
  const std::vector<Outcome> outcomes = realiser_.realise(requests, [&](std::size_t i) {
    progress.step("fallbacks judged", ++done, requests.size(), requests[i].name);
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!outcomes[i].admitted())
      job_failed("the {} of {} was not admitted: {}", requests[i].name, signatures[i],
                 outcomes[i].why);
    fallback_trials_[signatures[i]] = to_json(requests[i].trial);
  }
}

Generated Selector::fallback_for(const CoverPart& part) const {
  if (!part.wanted) return fallback_argmax(step(), step().graph.outputs.at(0).node, setting_);
  return fallback(step(), part.wanted->region, setting_, part.wanted->argmax);
}

// The step as it looks cheapest, with all that could compute its parts.
std::vector<CoverPart> Selector::cut() {
  return planned(
      choose_cover(phase_.regions, phase_.plans, [this](int space) { return cost(space); }));
}

std::vector<CoverPart> Selector::planned(std::vector<CoverPart> cover) {
  // What chooses the token is no node of the graph.
  if (std::ranges::none_of(cover, [](const CoverPart& part) { return chooses_token(part); }))
    cover.push_back({});
  plan_missing(cover);
  return cover;
}

void Selector::run(Progress& progress) {
  std::vector<CoverPart>& parts = parts_;
  // So that what an advisor would rather fuse, or not, is compared by what was measured.
  if (guide_ && realiser_.measures()) decide(guide_->preferred_parts(), progress);
  do parts = cut();
  while (decide(parts, progress));
  admit_left(progress);
  progress.summary(so_far());
}

void Selector::admit_left(Progress& progress) {
  std::vector<CoverPart> left;
  for (const CoverPart& part : parts_)
    if (is_fallback(part)) left.push_back(part);
  admit_fallbacks(left, progress);
}

}  // namespace ac
