#include "tune/step_workshop.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "build/digest.h"
#include "generate/fallback.h"
#include "ir/positions.h"

namespace ac::tune {
namespace {

constexpr std::chrono::seconds kStepLimit{120};
constexpr std::chrono::seconds kLoading{300};  // of the weights, before the first schedule
constexpr const char* kEnding = "advance";

Program program_for(const Model& model, const Workshop& workshop, const WorkshopOptions& options) {
  const StepGraph& step = workshop.step();
  const TensorType& logits = step.graph.type(step.graph.outputs.at(0).node);
  Program program;
  program.model = step.graph.name;
  program.target = options.device.target;
  program.dtype = logits.dtype;
  program.vocab = logits.shape.back().constant();
  program.states = workshop.states();
  program.max_context = options.context + 1;
  for (const StateSpec& state : program.states)
    if (state.window == 0) program.max_context = state.slots;
  for (const auto& [name, path] : model.stores)
    program.stores[name] = std::filesystem::absolute(path).lexically_normal().string();
  return program;
}

std::string signature_of(const Regions& regions) {
  std::string text;
  for (const Region& region : regions.regions) text += region.signature + "\n";
  return fmt::format("step of {} regions, {}", regions.regions.size(), sha256(text).substr(0, 16));
}

// Which part of a step it is, in whatever cut.
std::string key_of(const CoverPart& part) {
  std::string key = chooses_token(part) ? "argmax" : "";
  if (part.wanted)
    for (const NodeId id : part.wanted->region.nodes) key += fmt::format(" {}", id);
  return key;
}

}  // namespace

StepWorkshop::StepWorkshop(const Model& model, const StepOptions& options, KernelBuilder& builder,
                           std::optional<Program> program, Progress& progress)
    : options_(options),
      progress_(progress),
      workshop_(std::in_place, model, options_, builder),
      plans_(workshop_->plans()),
      program_(program ? std::move(*program) : program_for(model, *workshop_, options_)),
      uses_(workshop_->step()),
      signature_(tune::signature_of(workshop_->regions())),
      random_(random_source()) {
  if (options_.advisor) {
    advice_ = ask_about(*options_.advisor, workshop_->regions(), plans_, progress);
    progress.stage("the step's choices");
  }
  complete(workshop_->regions(), plans_);
  prepare();
  space_ = std::make_unique<StepSpace>(
      workshop_->regions(), plans_,
      [this](const CoverPart& part, std::size_t most) { return choices(part, most); },
      options_.space);
  ending_ = {generate_advance(step(), ids_of(step()), program_.max_context + 1), kEnding};
  std::vector<KernelSource> sources = ending_.made.sources;
  sources.push_back(random_);
  workshop_->lab().build(sources);
  for (const KernelSource& source : sources)
    if (const std::string* log = workshop_->lab().failure(source.entry))
      job_failed("{} does not compile: {}", source.entry, *log);
}

Subject StepWorkshop::subject_of(const CoverPart& part) const {
  Subject subject;
  subject.wanted = part.wanted;
  subject.space = &plans_.spaces[static_cast<std::size_t>(part.space)];
  return subject;
}

Implemented StepWorkshop::implement(const CoverPart& part, int candidate) const {
  const Subject subject = subject_of(part);
  if (candidate >= 0) {
    const Candidate& of = subject.space->candidates[static_cast<std::size_t>(candidate)];
    return {workshop_->generate_for(subject, of), of.id};
  }
  if (!part.wanted)
    return {fallback_argmax(step(), step().graph.outputs.at(0).node, workshop_->setting()),
            "fallback"};
  return {fallback(step(), part.wanted->region, workshop_->setting(), part.wanted->argmax),
          "fallback"};
}

// The package's own first, then what was advised in turn with the best of each outline. The
// fallback, where there is nothing else, where it is the package's, and on the host device, where
// it is a rival.
StepWorkshop::Order StepWorkshop::order(const CoverPart& part, std::size_t most) {
  Space& space = plans_.spaces[static_cast<std::size_t>(part.space)];
  Order order;
  const auto add = [&](std::optional<std::size_t> candidate) {
    if (candidate &&
        std::ranges::find(order.candidates, static_cast<int>(*candidate)) == order.candidates.end())
      order.candidates.push_back(static_cast<int>(*candidate));
  };
  const auto candidate_of = [&](const std::string& id) {
    return part.wanted
               ? find_candidate(step(), *part.wanted, plans_.options.at, plans_.device, space, id)
               : index_in(space, id);
  };
  order.with_fallback = options_.device.sm == 0 && most > 1;
  if (const auto own = options_.selected.find(space.signature); own != options_.selected.end()) {
    order.with_fallback |= own->second.empty();
    if (!own->second.empty()) add(candidate_of(own->second));
  }
  std::vector<std::optional<std::size_t>> advised;
  if (const auto ids = advice_.candidates.find(space.signature); ids != advice_.candidates.end())
    for (const std::string& id : ids->second) advised.push_back(candidate_of(id));
  const std::vector<std::size_t> diverse = diverse_order(space);
  for (std::size_t i = 0; i < std::max(advised.size(), diverse.size()); ++i) {
    if (i < advised.size()) add(advised[i]);
    if (i < diverse.size()) add(diverse[i]);
  }
  order.wanted = most - (order.with_fallback ? 1 : 0);
  return order;
}

// Builds and, where all choices are judged, judges what the sites will have if nothing fails: all
// sites together keep all cores busy.
void StepWorkshop::prepare() {
  std::vector<std::pair<CoverPart, int>> foreseen;
  const StepSpace draft(
      workshop_->regions(), plans_,
      [&](const CoverPart& part, std::size_t most) {
        Order of = order(part, most);
        of.candidates.resize(std::min(of.candidates.size(), of.wanted));
        for (const int candidate : of.candidates) foreseen.emplace_back(part, candidate);
        if (of.candidates.empty() || of.with_fallback) of.candidates.push_back(-1);
        return of.candidates;
      },
      options_.space);
  std::vector<KernelSource> sources;
  for (const auto& [part, candidate] : foreseen)
    for (KernelSource& source : implement(part, candidate).made.sources)
      sources.push_back(std::move(source));
  progress_.step(0, 0, fmt::format("building {} candidates", foreseen.size()));
  workshop_->lab().build(std::move(sources));
  if (!options_.admit_all) return;
  progress_.step(0, 0, fmt::format("judging {} candidates", foreseen.size()));
  judge(foreseen);
}

std::vector<int> StepWorkshop::choices(const CoverPart& part, std::size_t most) {
  progress_.step(0, 0, "choices of " + subject_of(part).description());
  const Order of = order(part, most);
  std::vector<int> found;
  for (std::size_t next = 0; found.size() < of.wanted && next < of.candidates.size();) {
    // As many at once as could be taken.
    const std::size_t end = std::min(of.candidates.size(), next + of.wanted - found.size());
    std::vector<KernelSource> sources;
    for (std::size_t i = next; i < end; ++i)
      for (KernelSource& source : implement(part, of.candidates[i]).made.sources)
        sources.push_back(std::move(source));
    workshop_->lab().build(std::move(sources));
    for (; next < end; ++next)
      if (is_usable(part, of.candidates[next])) found.push_back(of.candidates[next]);
  }
  if (found.empty() || of.with_fallback) found.push_back(-1);
  return found;
}

bool StepWorkshop::is_usable(const CoverPart& part, int candidate) {
  const Subject subject = subject_of(part);
  const Candidate& of = subject.space->candidates[static_cast<std::size_t>(candidate)];
  const Generated made = workshop_->generate_for(subject, of);
  for (const KernelSource& source : made.sources)
    if (const std::string* log = workshop_->lab().failure(source.entry)) {
      failures_.push_back({subject.space->signature, of.id, of.cost.microseconds,
                           search::Verdict::uncompilable, *log, made.sources});
      return false;
    }
  // An engine loads a library's products when it starts: one that is not here would end all.
  const bool is_of_library = std::holds_alternative<Implementation<LibraryTask>>(of.choice);
  return (!options_.admit_all && !is_of_library) || verdict(part, candidate).empty();
}

const std::string& StepWorkshop::verdict(const CoverPart& part, int candidate) {
  const auto known = verdicts_.find({part.space, candidate});
  if (known != verdicts_.end()) return known->second;
  if (candidate >= 0) judge({{part, candidate}});
  return verdicts_[{part.space, candidate}];
}

// Judges the candidates that were built and are not judged yet.
void StepWorkshop::judge(const std::vector<std::pair<CoverPart, int>>& candidates) {
  std::vector<std::pair<Subject, const Candidate*>> due;
  std::vector<std::pair<int, int>> keys;
  for (const auto& [part, candidate] : candidates) {
    const std::pair key(part.space, candidate);
    if (verdicts_.count(key) > 0 || std::ranges::find(keys, key) != keys.end()) continue;
    const Subject subject = subject_of(part);
    const Candidate& of = subject.space->candidates[static_cast<std::size_t>(candidate)];
    if (std::ranges::any_of(workshop_->generate_for(subject, of).sources,
                            [&](const KernelSource& source) {
                              return workshop_->lab().failure(source.entry) != nullptr;
                            }))
      continue;
    due.emplace_back(subject, &of);
    keys.push_back(key);
  }
  std::vector<TimedPoint> points(due.size());
  workshop_->judge(due, points);
  for (std::size_t i = 0; i < due.size(); ++i) {
    std::string& why = verdicts_[keys[i]];
    if (points[i].verdict == search::Verdict::measured) continue;
    const auto& [subject, of] = due[i];
    why = points[i].why.empty() ? std::string(to_string(points[i].verdict)) : points[i].why;
    progress_.note(fmt::format("{}: not admitted ({})", of->id, why));
    failures_.push_back({subject.space->signature, of->id, of->cost.microseconds, points[i].verdict,
                         why, workshop_->generate_for(subject, *of).sources});
  }
}

std::string StepWorkshop::why_not(int point) {
  std::vector<std::pair<CoverPart, int>> all;
  for (const Scheduled& scheduled : space_->schedule(point))
    if (scheduled.candidate >= 0) all.emplace_back(*scheduled.part, scheduled.candidate);
  judge(all);
  for (const Scheduled& scheduled : space_->schedule(point))
    if (const std::string& why = verdict(*scheduled.part, scheduled.candidate); !why.empty())
      return why;
  return "";
}

std::vector<KernelSource> StepWorkshop::sources(int point) const {
  std::map<std::string, KernelSource> sources;
  std::set<std::pair<int, int>> seen;
  for (const Scheduled& scheduled : space_->schedule(point))
    if (seen.insert({scheduled.part->space, scheduled.candidate}).second)
      for (KernelSource& source : implement(*scheduled.part, scheduled.candidate).made.sources)
        sources.emplace(source.entry, source);
  std::vector<KernelSource> list;
  for (auto& [entry, source] : sources) list.push_back(std::move(source));
  return list;
}

// Whether the package that is timed lacked something that the point needs; it does not any more.
bool StepWorkshop::hold(int point) {
  std::vector<KernelSource> sources;
  const auto add = [&](const CoverPart& part, int candidate) {
    const auto [at, is_new] = held_.try_emplace({key_of(part), candidate});
    if (!is_new) return false;
    Held& held = at->second;
    held.made = implement(part, candidate);
    held.position = last_position(uses_, part);
    for (const KernelSource& source : held.made.made.sources) sources.push_back(source);
    return true;
  };
  bool is_new = false;
  for (const Scheduled& scheduled : space_->schedule(point))
    is_new |= add(*scheduled.part, scheduled.candidate);
  if (!is_new) return false;
  // To begin anew seldom: what is likely to be asked for next.
  for (const CoverPart* part :
       options_.hold_all ? space_->met_parts() : space_->likely_parts(point))
    for (const int candidate : space_->choices_of(part->space)) add(*part, candidate);
  workshop_->lab().build(std::move(sources));
  return true;
}

// In the order of the step, so that what one launch leaves is there for the next.
void StepWorkshop::write_package() {
  child_.reset();
  std::vector<Held*> order;
  for (auto& [key, held] : held_) {
    held.is_built = std::all_of(
        held.made.made.sources.begin(), held.made.made.sources.end(),
        [&](const KernelSource& source) { return !workshop_->lab().failure(source.entry); });
    if (held.is_built) order.push_back(&held);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Held* a, const Held* b) { return a->position < b->position; });
  std::vector<Implemented> parts;
  for (const Held* held : order) parts.push_back(held->made);
  parts.push_back(ending_);
  package_ = std::make_unique<TrialPackage>(step(), program_, 1, parts, workshop_->lab());
  for (std::size_t i = 0; i < order.size(); ++i) order[i]->span = package_->spans()[i];
}

StepBench::Step StepWorkshop::spans(int point, const std::string& without) const {
  StepBench::Step step;
  for (const Scheduled& scheduled : space_->schedule(point)) {
    if (space_->site_of(*scheduled.part) == without) continue;
    const Held& held = held_.at({key_of(*scheduled.part), scheduled.candidate});
    AC_ASSERT(held.is_built);
    step.push_back(held.span);
  }
  step.push_back(package_->spans().back());
  return step;
}

void StepWorkshop::load(const std::vector<int>& points) {
  bool lacked = !package_;
  for (const int point : points) lacked |= hold(point);
  if (lacked) write_package();
}

ChildResult StepWorkshop::ask_steps(const std::vector<StepBench::Step>& steps, int rounds) {
  const std::chrono::seconds limit = child_ ? kStepLimit : kStepLimit + kLoading;
  if (!child_)
    child_ = workshop_->lab().converse(BenchJob{
        package_->path(), workshop_->lab().kernels().at(random_.entry).artifact, options_.context});
  ChildResult result = child_->ask(line_of({steps, rounds, options_.repeats}), limit);
  if (!result.ok()) child_.reset();
  return result;
}

ChildResult StepWorkshop::ask(const std::vector<int>& points, int rounds) {
  load(points);
  std::vector<StepBench::Step> steps;
  for (const int point : points) steps.push_back(spans(point));
  return ask_steps(steps, rounds);
}

TimedPoint StepWorkshop::time(int point) {
  TimedPoint timed;
  timed.was_admitted = options_.admit_all;
  ChildResult result = ask({point}, options_.rounds);
  // Something else may have ended the process; what hangs would hang again.
  if (!result.ok() && result.seconds < kStepLimit.count()) result = ask({point}, options_.rounds);
  if (result.ok()) {
    timed.samples = samples_of(result.text).at(0);
  } else {
    timed.verdict = search::Verdict::failed;
    timed.why = result.ended;
  }
  return timed;
}

std::vector<std::vector<double>> StepWorkshop::race(const std::vector<int>& points, int rounds) {
  const ChildResult result = ask(points, rounds);
  if (!result.ok()) return {};
  return samples_of(result.text);
}

std::optional<StepWorkshop::SiteSamples> StepWorkshop::time_sites(int point, int rounds) {
  load({point});
  std::set<std::string> sites;
  for (const Scheduled& scheduled : space_->schedule(point))
    sites.insert(space_->site_of(*scheduled.part));
  std::vector<StepBench::Step> steps{spans(point)};
  for (const std::string& site : sites) steps.push_back(spans(point, site));
  const ChildResult result = ask_steps(steps, rounds);
  if (!result.ok()) return std::nullopt;
  std::vector<std::vector<double>> samples = samples_of(result.text);
  SiteSamples of{std::move(samples.at(0)), {}};
  std::size_t next = 1;
  for (const std::string& site : sites) of.without[site] = std::move(samples.at(next++));
  return of;
}

}  // namespace ac::tune
