#include "tune/workshop.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "admit/trials.h"
#include "advise/question.h"
#include "base/error.h"
#include "base/timing_turn.h"
#include "compile/states.h"
#include "generate/fallback.h"
#include "ir/assumptions.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "plan/cover.h"

namespace ac::tune {
namespace {

constexpr std::int64_t kMaxContext = 4096;

Graph normal_form(const Graph& captured, std::optional<DType> dtype) {
  const Graph normal = normalise(captured);
  return dtype ? compute_in(normal, *dtype) : normal;
}

StepGraph instance(const StepGraph& step, std::int64_t tokens) {
  return tokens == 1 ? decode_instance(step) : prefill_instance(step);
}

LabOptions lab_options(const WorkshopOptions& options) {
  LabOptions made;
  made.turns = turns_file(options.cache, options.device.sm > 0);
  made.target = target_of(options.device);
  made.jobs = options.jobs;
  made.verdicts = options.cache / "verdicts";
  return made;
}

}  // namespace

std::string Subject::description() const {
  if (!wanted) return "argmax";
  return ops_text(*wanted);
}

Workshop::Workshop(const Model& model, const WorkshopOptions& options, KernelBuilder& builder)
    : options_(options),
      lab_(builder, lab_options(options)),
      step_(without_assumptions(instance(
          incrementalise(normal_form(model.graph, options.dtype), options.kv), options.tokens))),
      regions_(analyse(step_)),
      plans_(plan(regions_, options.device,
                  {.max_candidates = options.max_candidates,
                   .at = {.S = -1, .T = options.tokens, .P = options.context}})) {
  states_ = options.states;
  if (states_.empty())
    states_ = sized_states(step_, std::max(kMaxContext, options.context + options.tokens),
                           std::max(default_chunk(options.device), options.tokens));
  AC_ASSERT(states_.size() == step_.states.size());
  for (const StateSpec& state : states_) setting_.slots.push_back(state.slots);
  setting_.multiprocessors = options.device.multiprocessors;
}

std::vector<Subject> Workshop::subjects() const {
  std::map<int, Subject> found;  // by space
  const auto add = [&](int space, const std::optional<Wanted>& wanted) {
    if (space < 0) return;
    Subject& subject = found[space];
    ++subject.uses;
    subject.wanted = wanted;
    subject.space = &plans_.spaces[static_cast<std::size_t>(space)];
  };
  if (options_.cover_only) {
    const auto cheapest = [&](int space) -> std::optional<double> {
      if (space < 0 || plans_.spaces[static_cast<std::size_t>(space)].candidates.empty())
        return std::nullopt;
      return plans_.spaces[static_cast<std::size_t>(space)].candidates[0].cost.microseconds;
    };
    for (const CoverPart& part : choose_cover(regions_, plans_, cheapest))
      add(part.space, part.wanted);
  } else {
    for (const CoverPart& part : parts_of_all_cuts(regions_, plans_)) add(part.space, part.wanted);
  }
  std::vector<Subject> subjects;
  for (const auto& [space, subject] : found) {
    const auto has = [&, &subject = subject](const std::string& text) {
      return subject.space->signature.find(text) != std::string::npos ||
             subject.description().find(text) != std::string::npos;
    };
    const std::vector<std::string>& wanted = options_.regions;
    if (subject.space->candidates.size() > 1 &&
        (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), has)))
      subjects.push_back(subject);
  }
  if (subjects.empty()) wrong_usage("--regions: no region of {} has that", step_.graph.name);
  return subjects;
}

Workshop::Batch Workshop::attempt(const Subject& subject,
                                  const std::vector<const Candidate*>& candidates, bool admit) {
  Batch batch;
  std::vector<Generated> made;
  std::vector<KernelSource> sources;
  for (const Candidate* candidate : candidates) {
    TimedPoint& timed = batch.points.emplace_back();
    timed.point = point_of(*candidate);
    timed.was_admitted = admit;
    made.push_back(generate_for(subject, *candidate));
    sources.insert(sources.end(), made.back().sources.begin(), made.back().sources.end());
  }
  std::optional<Generated> fallback_made;
  if (subject.wanted && !subject.wanted->argmax) {
    fallback_made = fallback(step_, subject.wanted->region, setting_);
    sources.insert(sources.end(), fallback_made->sources.begin(), fallback_made->sources.end());
  }
  if (admit) judge(subject, candidates, batch.points);
  lab_.build(sources);
  std::vector<std::size_t> racers;
  for (std::size_t i = 0; i < batch.points.size(); ++i) {
    if (batch.points[i].verdict != search::Verdict::measured) continue;
    if (const std::string* log = log_of_failure(made[i])) {
      batch.points[i].verdict = search::Verdict::uncompilable;
      batch.points[i].why = error_line(*log);
    } else {
      racers.push_back(i);
    }
  }
  const bool with_fallback = fallback_made && !log_of_failure(*fallback_made);
  race(batch, made, racers, with_fallback ? &*fallback_made : nullptr);
  for (TimedPoint& point : batch.points)
    if (point.verdict != search::Verdict::measured) point.was_admitted = true;
  return batch;
}

const std::string* Workshop::log_of_failure(const Generated& made) const {
  for (const KernelSource& source : made.sources)
    if (const std::string* log = lab_.failure(source.entry)) return log;
  return nullptr;
}

void Workshop::judge(const Subject& subject, const std::vector<const Candidate*>& batch,
                     std::vector<TimedPoint>& points) {
  std::vector<std::pair<Subject, const Candidate*>> all;
  for (const Candidate* candidate : batch) all.emplace_back(subject, candidate);
  judge(all, points);
}

void Workshop::judge(const std::vector<std::pair<Subject, const Candidate*>>& batch,
                     std::vector<TimedPoint>& points) {
  std::vector<Request> requests;
  std::vector<std::size_t> of;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& [subject, candidate] = batch[i];
    std::optional<Request> request =
        trial_of(step_, subject.wanted, *candidate,
                 {.max_tokens = options_.tokens,
                  .setting = setting_,
                  .judges_library = options_.tokens > 1 && lab_.on_gpu(),
                  .max_context = options_.context + options_.tokens});
    if (request) {
      requests.push_back(std::move(*request));
      of.push_back(i);
    } else {
      points[i].verdict = search::Verdict::wrong;
      points[i].why = "interface: the plan does not fit the region when it is tried by itself";
    }
  }
  const std::vector<Outcome> outcomes = lab_.judge(requests);
  for (std::size_t r = 0; r < requests.size(); ++r) {
    points[of[r]].verdict = verdict_of(outcomes[r].kind);
    points[of[r]].why = outcomes[r].why;
    points[of[r]].was_admitted = true;
  }
}

// One that breaks the race is found by halves.
void Workshop::race(Batch& batch, const std::vector<Generated>& made,
                    const std::vector<std::size_t>& racers, const Generated* fallback_made) {
  std::vector<TimedPoint>& points = batch.points;
  if (racers.empty()) return;
  std::vector<Contender> contenders;
  for (const std::size_t i : racers) contenders.push_back({points[i].point.id, made[i]});
  if (fallback_made) contenders.push_back({"fallback", *fallback_made});
  MeasureOptions measuring;
  measuring.tokens = options_.tokens;
  measuring.position = options_.context;
  measuring.states = states_;
  measuring.rounds = options_.rounds;
  measuring.seconds = options_.seconds;
  const Lab::Race result = lab_.race(step_, contenders, measuring);
  if (result.failed.empty()) {
    for (std::size_t r = 0; r < racers.size(); ++r) {
      points[racers[r]].samples = result.samples[r];
      if (!result.samples[r].empty()) continue;
      points[racers[r]].verdict = search::Verdict::failed;
      points[racers[r]].why = "it calls a library that is not here, or that has no such algorithm";
    }
    if (fallback_made) batch.fallbacks.push_back(result.samples.back());
  } else if (racers.size() == 1) {
    // Perhaps it is the fallback that cannot be timed.
    if (fallback_made) return race(batch, made, racers, nullptr);
    points[racers[0]].verdict = search::Verdict::failed;
    points[racers[0]].why = result.failed;
  } else {
    const auto middle = racers.begin() + static_cast<std::ptrdiff_t>(racers.size() / 2);
    race(batch, made, {racers.begin(), middle}, fallback_made);
    race(batch, made, {middle, racers.end()}, fallback_made);
  }
}

search::Point point_of(const Candidate& candidate) {
  return {candidate.id,
          {{"", std::string(family_of(candidate.choice)), fields_of(candidate.choice)}},
          candidate.cost.microseconds};
}

std::vector<search::Field> fields_of(const Choice& choice) {
  std::vector<search::Field> fields;
  for (PlanField& field : plan_fields(choice)) {
    const std::string& value = field.value;
    std::int64_t number = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == value.data() + value.size())
      fields.push_back({std::move(field.name), number});
    else if (value == "true" || value == "false")
      fields.push_back({std::move(field.name), std::int64_t{value == "true"}});
    else
      fields.push_back({std::move(field.name), std::move(field.value)});
  }
  return fields;
}

}  // namespace ac::tune
