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
// Where several sequences share products: how many candidates that compute a few tokens as one are
// tried, and how many of these are timed in whole steps.
constexpr std::size_t kSharedTries = 20, kSharedLeaders = 12;
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

bool is_for_several(const Candidate& candidate) {
  return computes_few_as_one(family_of(candidate.choice));
}

std::string best_of(const CoverPart& part, const std::string& name, double microseconds) {
  std::string ops;
  for (const std::string& op : op_names(part)) ops += (ops.empty() ? "" : "+") + op;
  return fmt::format("{}: {} {:.1f} us", ops.empty() ? "argmax" : ops, name, microseconds);
}

}  // namespace

Selector::Selector(const PhasePlan& phase, const std::vector<StateSpec>& states,
                   SelectOptions options, Lab& lab, Guide* guide)
    : phase_(phase),
      plans_(phase.plans),
      state_specs_(states),
      setting_{phase.plans.device.multiprocessors, slots_of(states)},
      options_(std::move(options)),
      lab_(lab),
      guide_(guide),
      uses_(phase.regions.step) {
  while (agenda_.size() < plans_.spaces.size()) add_space();
}

// The next of the plans.
void Selector::add_space() {
  Space& space = plans_.spaces[agenda_.size()];
  if (guide_) guide_->add_to(space);
  agenda_.emplace_back().leaders = options_.leaders;
  evidence_.spaces.emplace_back().order = order_of(space);
}

// Where all that is tried is timed, what differs most teaches most.
std::vector<std::size_t> Selector::order_of(const Space& space) const {
  std::vector<std::size_t> order = diverse_order(space);
  if (!lab_.measures()) std::sort(order.begin(), order.end());
  if (const auto found = options_.preferred.find(space.signature);
      found != options_.preferred.end()) {
    const std::vector<std::string>& ids = found->second;
    const auto rank = [&](std::size_t i) {
      return std::find(ids.begin(), ids.end(), space.candidates[i].id) - ids.begin();
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  }
  if (guide_) guide_->interleave(space, order);
  // Where nothing is timed, the first one that is admitted is taken.
  if (phase_.spec.shared && !lab_.measures())
    std::ranges::stable_partition(
        order, [&](std::size_t i) { return is_for_several(space.candidates[i]); });
  const std::vector<std::size_t> whole = order;
  order.resize(std::min(order.size(), options_.tries));
  if (!lab_.measures() || options_.tries == 0) return order;
  // These take no other's turn.
  const auto add = [&](std::size_t further, bool (*is_wanted)(const Candidate&)) {
    for (std::size_t i = options_.tries; i < whole.size() && further > 0; ++i)
      if (is_wanted(space.candidates[whole[i]]) &&
          std::ranges::find(order, whole[i]) == order.end())
        order.push_back(whole[i]), --further;
  };
  add(kLibraryTries, is_of_library);  // its algorithms cost no building
  if (phase_.spec.shared) add(kSharedTries, is_for_several);
  return order;
}

TrialSetting Selector::trial_setting() const {
  const bool on_gpu = lab_.on_gpu();
  // Steps of a phase may have more tokens than its kernels were chosen for.
  return {std::max(phase_.spec.max_tokens, plans_.options.at.T), setting_, on_gpu,
          options_.max_context};
}

// What is known of a space or, of one that is not decided yet, what the best that is left to try
// may come to.
std::optional<double> Selector::hoped_cost(int space) const {
  if (space < 0) return std::nullopt;
  const SpaceEvidence& of = evidence_.spaces[at(space)];
  const std::size_t next = agenda_[at(space)].next;
  if (winner_of(of) >= 0 || is_raced(of) || next >= of.order.size())
    return known_cost(plans_.spaces[at(space)], of, evidence_.scale);
  const std::vector<Candidate>& candidates = plans_.spaces[at(space)].candidates;
  double best = candidates[of.order[next]].cost.microseconds;
  for (std::size_t i = next; i < of.order.size(); ++i)
    best = std::min(best, candidates[of.order[i]].cost.microseconds);
  best *= evidence_.scale;
  if (!lab_.measures() || is_on_host()) return best;
  return best * (plans_.options.at.T > 1 ? kHopeOfMany : kHope);
}

// How many candidates should be tried at once.
std::size_t Selector::missing(int space) const {
  const SpaceEvidence& of = evidence_.spaces[at(space)];
  if (is_raced(of)) return 0;
  const bool takes_first = !lab_.measures() && agenda_[at(space)].fixed.empty();
  if (takes_first) return winner_of(of) < 0 ? 1 : 0;
  const auto admitted = static_cast<std::size_t>(std::ranges::count_if(
      of.trials, [&](const auto& trial) { return is_admitted(of, trial.first); }));
  return agenda_[at(space)].leaders - std::min(agenda_[at(space)].leaders, admitted);
}

// Until there is nothing left to try for these parts; false if there was nothing.
bool Selector::try_all(const std::vector<CoverPart>& parts, Progress& progress) {
  bool tried = lab_.measures() && time_all(parts, progress);
  while (try_next(parts, progress)) tried = true;
  if (!lab_.measures()) return tried;
  return race(parts, progress) || tried;
}

// What the stage's last line says: of all regions.
std::string Selector::so_far() const {
  std::size_t tried = 0, admitted = 0, confirmed = 0;
  for (std::size_t i = 0; i < evidence_.spaces.size(); ++i) {
    const SpaceEvidence& of = evidence_.spaces[i];
    tried += attempts_of(plans_.spaces[i], of).size();
    admitted += static_cast<std::size_t>(
        std::ranges::count_if(of.judged, [&](const SpaceEvidence::Judged& judged) {
          return judged.outcome.admitted() && is_admitted(of, judged.candidate);
        }));
    confirmed += static_cast<std::size_t>(std::ranges::count_if(
        of.confirmed, [&](const auto& entry) { return is_admitted(of, entry.first); }));
  }
  std::string text = fmt::format("{} candidates tried, {} admitted", tried, admitted);
  if (confirmed + evidence_.confirmed_fallbacks.size() > 0)
    text += fmt::format("; {} and {} fallbacks confirmed as they are used", confirmed,
                        evidence_.confirmed_fallbacks.size());
  return text;
}

bool Selector::is_to_be_timed(const CoverPart& part) const {
  const SpaceEvidence& of = evidence_of(part);
  const std::size_t enough = is_on_host() ? 0 : options_.leaders;
  return !agenda_[at(part.space)].timed && of.races.empty() && of.order.size() > enough;
}

std::vector<KernelSource> Selector::sources_of(const CoverPart& part) const {
  std::vector<KernelSource> sources;
  for (const std::size_t i : evidence_of(part).order)
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
  Bindings at = plans_.options.at;
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
Lab::Race Selector::run_race(const std::vector<Contender>& contenders,
                             const MeasureOptions& options) {
  Lab::Race race = lab_.race(step(), contenders, options);
  for (double& microseconds : race.microseconds)
    microseconds *= double(plans_.options.at.T) / double(options.tokens);
  return race;
}

// Timed before they are judged, since judging takes longer: all candidates of spaces that have more
// of them than shall be admitted. False if there were none.
bool Selector::time_all(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<const CoverPart*> due;
  std::vector<KernelSource> sources;
  for (const CoverPart& part : parts) {
    const bool is_due = is_to_be_timed(part);
    agenda_[at(part.space)].timed = true;
    if (!is_due) continue;
    due.push_back(&part);
    for (KernelSource& source : sources_of(part)) sources.push_back(std::move(source));
    if (is_on_host())
      for (KernelSource& source : fallback_for(part).sources) sources.push_back(std::move(source));
  }
  if (due.empty()) return false;
  // A GPU times those of one region while those of the next ones are built.
  if (is_on_host())
    lab_.build(std::move(sources));
  else
    lab_.build_ahead(std::move(sources));
  for (std::size_t i = 0; i < due.size(); ++i) {
    if (!is_on_host()) lab_.build(sources_of(*due[i]));
    time_space(*due[i], progress);
    const SpaceEvidence& of = evidence_of(*due[i]);
    std::string best;
    if (!of.quick.empty()) {
      const auto fastest =
          std::ranges::min_element(of.quick, {}, [](const auto& timed) { return timed.second; });
      best = best_of(*due[i], candidate_of(*due[i], fastest->first).id, fastest->second);
      if (of.quick_fallback && *of.quick_fallback < fastest->second)
        best = best_of(*due[i], "fallback", *of.quick_fallback);
    }
    progress.step("regions timed", i + 1, due.size(), best);
  }
  return true;
}

// Leaves the space's order as fast as it goes; with several contexts, the fastest of each in turn.
void Selector::time_space(const CoverPart& part, Progress& progress) {
  SpaceEvidence& evidence = evidence_.spaces[at(part.space)];
  Agenda& agenda = agenda_[at(part.space)];
  const Space& space = space_of(part);
  std::vector<Contender> contenders;
  std::vector<std::size_t> candidates;
  for (const std::size_t i : evidence.order) {
    const Candidate& candidate = space.candidates[i];
    Contender contender{candidate.id, generate_for(part, candidate)};
    const std::string* failure = nullptr;
    for (const KernelSource& source : contender.made.sources)
      if (!failure) failure = lab_.failure(source.entry);
    if (failure) {
      Outcome outcome;
      outcome.kind = Outcome::Kind::not_compiled;
      outcome.why = *failure;
      log_failure(part, candidate, outcome);
      evidence.judged.push_back({static_cast<int>(i), outcome});
      continue;
    }
    contenders.push_back(std::move(contender));
    candidates.push_back(i);
  }
  evidence.order = candidates;
  if (contenders.empty()) return;
  MeasureOptions options = measure_options(part, plans_.options.at.P);
  if (!is_on_host()) {
    options.rounds = kQuickRounds, options.seconds = kQuickSeconds;
    options.repetitions = kQuickRepetitions;
  }
  const bool attends = std::ranges::any_of(contenders[0].made.buffers, [](const Buffer& buffer) {
    return buffer.role == Buffer::Role::state;
  });
  std::vector<std::int64_t> positions{plans_.options.at.P};
  if (attends && !options_.contexts.empty()) positions = options_.contexts;
  // Each context may have a leader of its own.
  agenda.leaders += 2 * (positions.size() - 1);
  std::vector<std::vector<std::size_t>> orders;  // of the candidates, at each position
  std::vector<double> sums(contenders.size());
  double fallback = 0;  // the sum of
  if (is_on_host()) contenders.push_back({"fallback", fallback_for(part)});
  for (const std::int64_t position : positions) {
    options.position = position;
    const Lab::Race race = run_race(contenders, options);
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
  if (plans_.options.at.T > 1 && agenda.leaders < merged.size()) {
    const auto is_ours = [&](std::size_t i) {
      return !is_of_library(space.candidates[candidates[i]]);
    };
    const auto end_of_leaders = merged.begin() + static_cast<std::ptrdiff_t>(agenda.leaders);
    const auto ours = std::find_if(merged.begin(), merged.end(), is_ours);
    if (ours != merged.end() && ours >= end_of_leaders)
      std::rotate(end_of_leaders - 1, ours, ours + 1);
  }
  if (phase_.spec.shared) {
    // Candidates for several sequences come last, so that they displace none of the others.
    std::ranges::stable_partition(
        merged, [&](std::size_t i) { return !space.candidates[candidates[i]].for_several; });
    const auto is_few = [&](std::size_t i) {
      return is_for_several(space.candidates[candidates[i]]);
    };
    const auto end_of_leaders = [&] {
      return merged.begin() + static_cast<std::ptrdiff_t>(std::min(agenda.leaders, merged.size()));
    };
    auto has = std::count_if(merged.begin(), end_of_leaders(), is_few);
    for (; has < static_cast<std::ptrdiff_t>(kSharedLeaders); ++has, ++agenda.leaders) {
      const auto next = std::find_if(end_of_leaders(), merged.end(), is_few);
      if (next == merged.end()) break;
      std::rotate(end_of_leaders(), next, next + 1);
    }
  }
  for (std::size_t i = 0; i < merged.size(); ++i) {
    evidence.order[i] = candidates[merged[i]];
    if (std::isfinite(sums[merged[i]]))
      evidence.quick[static_cast<int>(candidates[merged[i]])] =
          sums[merged[i]] / static_cast<double>(positions.size());
  }
  if (!is_on_host()) return;
  evidence.quick_fallback = fallback / static_cast<double>(positions.size());
  const auto is_faster = [&](const auto& timed) { return timed.second < *evidence.quick_fallback; };
  agenda.leaders = std::min(
      agenda.leaders, static_cast<std::size_t>(std::ranges::count_if(evidence.quick, is_faster)));
}

// Candidates of each space that misses some; false if there were none.
bool Selector::try_next(const std::vector<CoverPart>& parts, Progress& progress) {
  struct Tried {
    int space;
    std::size_t candidate;
    const CoverPart* part;
  };
  std::vector<Request> requests;
  std::vector<Tried> tried;
  bool is_put_off = false;
  std::set<int> seen;
  for (const CoverPart& part : parts) {
    if (!seen.insert(part.space).second) continue;
    SpaceEvidence& evidence = evidence_.spaces[at(part.space)];
    Agenda& agenda = agenda_[at(part.space)];
    const Space& space = space_of(part);
    if (missing(part.space) > 0) agenda.ops = op_names(part);
    for (std::size_t wanted = missing(part.space);
         wanted > 0 && agenda.next < evidence.order.size(); ++agenda.next) {
      const std::size_t index = evidence.order[agenda.next];
      const Candidate& candidate = space.candidates[index];
      if (std::optional<Request> request =
              trial_of(step(), part.wanted, candidate, trial_setting())) {
        request->trial.thorough = guide_ && guide_->is_thorough(space, candidate);
        --wanted;
        // What could not be timed may not be there, as a library.
        if (judges_late(part.space) && evidence.quick.contains(static_cast<int>(index))) {
          put_off(part.space, index, std::move(*request));
          is_put_off = true;
          continue;
        }
        requests.push_back(std::move(*request));
        tried.push_back({part.space, index, &part});
        continue;
      }
      evidence.judged.push_back({static_cast<int>(index), does_not_fit()});
    }
  }
  if (requests.empty()) return is_put_off;
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = lab_.judge(requests, [&](std::size_t i) {
    progress.step("candidates judged", ++done, requests.size(), requests[i].name);
  });
  std::set<int> failed;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& [space, index, part] = tried[i];
    const auto candidate = static_cast<int>(index);
    SpaceEvidence& evidence = evidence_.spaces[at(space)];
    const Candidate& of = candidate_of(*part, candidate);
    evidence.judged.push_back({candidate, outcomes[i]});
    log_failure(*part, of, outcomes[i]);
    if (outcomes[i].admitted()) {
      evidence.trials.emplace(candidate, std::move(requests[i].trial));
    } else {
      progress.note(
          fmt::format("{}: {} ({})", of.id, to_string(outcomes[i].kind), outcomes[i].why));
      failed.insert(space);
    }
  }
  if (guide_ && !failed.empty()) diagnose(failed, progress);
  return true;
}

void Selector::diagnose(const std::set<int>& failed, Progress& progress) {
  std::vector<Guide::Failure> failures;
  for (const int space : failed) {
    Space& of = plans_.spaces[at(space)];
    SpaceEvidence& evidence = evidence_.spaces[at(space)];
    failures.push_back({&of, attempts_of(of, evidence), &evidence.order, agenda_[at(space)].next});
  }
  guide_->diagnose(failures, progress);
}

// Of those that were timed together before, the fastest.
std::vector<int> Selector::racers_of(const CoverPart& part) const {
  const SpaceEvidence& evidence = evidence_of(part);
  std::vector<int> racers;
  for (const std::size_t i : evidence.order)
    if (const auto candidate = static_cast<int>(i);
        is_admitted(evidence, candidate) &&
        (racers.size() < options_.raced || !evidence.quick.contains(candidate)))
      racers.push_back(candidate);
  std::ranges::sort(racers);
  return racers;
}

// The admitted candidates of each space against each other and the fallback.
bool Selector::race(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<CoverPart> due;
  std::set<int> seen;
  for (const CoverPart& part : parts)
    if (seen.insert(part.space).second && !is_raced(evidence_of(part))) due.push_back(part);
  if (due.empty()) return false;
  if (options_.judges_late)
    build_fallbacks(due);
  else
    admit_fallbacks(due, progress);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < due.size(); ++i) {
    const CoverPart& part = due[i];
    SpaceEvidence& evidence = evidence_.spaces[at(part.space)];
    SpaceEvidence::Race of;
    std::vector<Contender> contenders;
    for (const int candidate : racers_of(part)) {
      const Candidate& racer = candidate_of(part, candidate);
      contenders.push_back({racer.id, generate_for(part, racer)});
      of.candidates.push_back(candidate);
    }
    contenders.push_back({"fallback", fallback_for(part)});
    MeasureOptions options = measure_options(part, plans_.options.at.P);
    if (!is_on_host()) options.seconds = kFinalSeconds;
    // Where none was worth judging, that is known.
    const Lab::Race race = of.candidates.empty() && evidence.quick_fallback
                               ? Lab::Race{{*evidence.quick_fallback}, {}, ""}
                               : run_race(contenders, options);
    of.failed = race.failed;
    if (!race.failed.empty() && judge({part}, progress)) {  // one of them was wrong
      --i;
      continue;
    }
    if (!race.failed.empty()) {
      progress.step("regions raced", i + 1, due.size());
      progress.note(fmt::format("{}: not timed ({})", contenders[0].name, race.failed));
      evidence.races.push_back(std::move(of));
      continue;
    }
    log_race(part, of.candidates, race, options);
    if (of.candidates.empty() && is_on_host())
      for (const auto& [candidate, microseconds] : evidence.quick)
        ratios.push_back(microseconds / candidate_of(part, candidate).cost.microseconds);
    for (std::size_t c = 0; c < of.candidates.size(); ++c)
      ratios.push_back(race.microseconds[c] /
                       candidate_of(part, of.candidates[c]).cost.microseconds);
    of.microseconds.assign(race.microseconds.begin(), race.microseconds.end() - 1);
    of.fallback = race.microseconds.back();
    evidence.races.push_back(std::move(of));
    const auto fastest = std::ranges::min_element(race.microseconds);
    const std::string& first =
        contenders[static_cast<std::size_t>(fastest - race.microseconds.begin())].name;
    progress.step("regions raced", i + 1, due.size(), best_of(part, first, *fastest));
  }
  if (!ratios.empty()) evidence_.scale = median(std::move(ratios));
  return true;
}

// Node by node, as they run. One that the gate does not admit leaves nothing to run with.
void Selector::admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  std::vector<std::string> signatures;
  const TrialSetting at = trial_setting();
  for (const CoverPart& part : parts) {
    if (chooses_token(part) && evidence_.fallback_trials.emplace(kArgmax, Json()).second) {
      requests.push_back(trial_of_argmax(logits().dtype, logits().shape.back().constant()));
      signatures.push_back(kArgmax);
    }
    if (!part.wanted) continue;
    for (const NodeId id : part.wanted->region.nodes) {
      if (!is_compute(step().graph[id])) continue;
      const Region node = std::get<Region>(make_region(uses_, {id}));
      if (!evidence_.fallback_trials.emplace(node.signature, Json()).second) continue;
      requests.push_back(trial_of_fallback(step(), node, at));
      requests.back().name = fmt::format("fallback {}", info(step().graph[id].op).name);
      signatures.push_back(node.signature);
    }
  }
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = lab_.judge(requests, [&](std::size_t i) {
    progress.step("fallbacks judged", ++done, requests.size(), requests[i].name);
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!outcomes[i].admitted())
      job_failed("the {} of {} was not admitted: {}", requests[i].name, signatures[i],
                 outcomes[i].why);
    evidence_.fallback_trials[signatures[i]] = to_json(requests[i].trial);
  }
}

void Selector::build_fallbacks(const std::vector<CoverPart>& parts) {
  std::vector<KernelSource> sources;
  for (const CoverPart& part : parts)
    for (KernelSource& source : fallback_for(part).sources) sources.push_back(std::move(source));
  lab_.build(sources);
  for (const KernelSource& source : sources)
    if (const std::string* log = lab_.failure(source.entry))
      job_failed("the fallback {} does not compile: {}", source.entry, *log);
}

Generated Selector::fallback_for(const CoverPart& part) const {
  if (!part.wanted) return fallback_argmax(step(), step().graph.outputs.at(0).node, setting_);
  return fallback(step(), part.wanted->region, setting_, part.wanted->argmax);
}

// The step as it looks cheapest, with all that could compute its parts.
std::vector<CoverPart> Selector::cut() {
  const SpaceCost cost = [this](int space) { return hoped_cost(space); };
  if (may_take_layers_) return planned(choose_cover(phase_.regions, plans_, cost));
  return planned(
      choose_cover(phase_.regions, plans_, cost, without_layers(phase_.regions, plans_, cost)));
}

std::vector<CoverPart> Selector::layers_together() const {
  std::vector<CoverPart> parts;
  for (const Neighbourhood& around : plans_.neighbourhoods)
    for (const FusionOption& option : around.options)
      if (around.kind == Neighbourhood::Kind::layers)
        for (const Part& part : option.parts) parts.push_back({part.wanted, part.space});
  return parts;
}

// With the spaces of what no other cut has.
std::vector<CoverPart> Selector::planned(std::vector<CoverPart> cover) {
  cover = whole_cover(std::move(cover));
  for (CoverPart& part : cover)
    if (part.space < 0) part.space = find_or_plan(step(), part.wanted, plans_);
  while (agenda_.size() < plans_.spaces.size()) add_space();
  return cover;
}

void Selector::run(Progress& progress) {
  // So that what an advisor would rather fuse, or not, is compared by what was measured.
  if (guide_ && lab_.measures()) try_all(guide_->preferred_parts(), progress);
  while (try_all(cut(), progress)) {
  }
  // Whole steps tell whether layers in one launch are faster. Where nothing is measured, they are
  // taken only if their family was named.
  may_take_layers_ = lab_.measures() || !plans_.options.families.empty();
  if (lab_.measures()) try_all(layers_together(), progress);
  while (may_take_layers_ && try_all(cut(), progress)) {
  }
  parts_ = planned(decide(phase_.regions, plans_, evidence_));
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
