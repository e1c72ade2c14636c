#include "lab/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <future>
#include <limits>
#include <numeric>
#include <set>

#include "admit/judge.h"
#include "base/child.h"
#include "base/error.h"
#include "base/files.h"
#include "base/warning.h"
#include "build/digest.h"
#include "lab/verdicts.h"
#include "lab/worker.h"

namespace ac {
namespace {

constexpr unsigned kMostJudges = 16;  // that stay: each holds a part of the GPU's memory
// A judge takes no more of the GPU's memory: CUDA's own part, and a copy of a vocabulary's table.
constexpr std::int64_t kBytesOfJudge = std::int64_t{2} << 30;
constexpr std::size_t kMaxProgram = std::size_t{1} << 30;

constexpr std::array<std::string_view, 6> kKinds = {"admitted", "not_compiled", "rejected",
                                                    "crashed",  "unjudged",     "unavailable"};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string error_line(const std::string& log) {
  const std::size_t at = log.find("error");
  if (at == std::string::npos) return first_line(log);
  const std::size_t begin = log.rfind('\n', at);
  return first_line(log.substr(begin == std::string::npos ? 0 : begin + 1));
}

Outcome outcome_of(const validate::Verdict& verdict) {
  Outcome outcome;
  outcome.scenarios = verdict.scenarios, outcome.launches = verdict.launches;
  const validate::Figure worst = verdict.worst();
  outcome.worst_error = worst.error;
  outcome.worst_case = fmt::format("{}, {}", worst.scenario, worst.tensor);
  if (!verdict.admitted()) {
    const validate::Rejection& rejection = *verdict.rejection;
    outcome.kind = Outcome::Kind::rejected;
    outcome.why = fmt::format("{}: {}{}{}", to_string(rejection.stage), rejection.reason,
                              rejection.scenario.empty() ? "" : "; in ", rejection.scenario);
  }
  return outcome;
}

bool calls_library(const Trial& trial) {
  return std::ranges::any_of(trial.launches,
                             [](const Launch& launch) { return launch.product.has_value(); });
}

Outcome unavailable(const std::string& why) {
  Outcome outcome;
  outcome.kind = Outcome::Kind::unavailable;
  outcome.why = why;
  return outcome;
}

search::Verdict verdict_of(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::admitted:
      return search::Verdict::measured;
    case Outcome::Kind::not_compiled:
      return search::Verdict::uncompilable;
    case Outcome::Kind::rejected:
      return search::Verdict::wrong;
    case Outcome::Kind::crashed:
    case Outcome::Kind::unavailable:
      return search::Verdict::failed;
    case Outcome::Kind::unjudged:
      break;  // the gate has its say on all that it is asked about
  }
  AC_UNREACHABLE();
}

Outcome outcome_from_json(const Json& json, const std::string& origin) {
  try {
    Outcome outcome;
    const auto kind = std::ranges::find(kKinds, json.at("kind").get<std::string>());
    if (kind == kKinds.end())
      bad_input("{}: no verdict is called {}", origin, json.at("kind").dump());
    outcome.kind = static_cast<Outcome::Kind>(kind - kKinds.begin());
    outcome.why = json.value("why", "");
    outcome.note = json.value("note", "");
    outcome.worst_error = json.value("worst_error", 0.0);
    outcome.worst_case = json.value("worst_case", "");
    outcome.scenarios = json.value("scenarios", 0);
    outcome.launches = json.value("launches", 0);
    outcome.seconds = json.value("seconds", 0.0);
    return outcome;
  } catch (const Json::exception& error) {
    bad_input("{}: no verdict ({})", origin, error.what());
  }
}

std::string_view to_string(Outcome::Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

Json to_json(const Outcome& outcome) {
  Json json{{"kind", to_string(outcome.kind)}};
  if (!outcome.why.empty()) json["why"] = outcome.why;
  if (!outcome.note.empty()) json["note"] = outcome.note;
  if (outcome.launches > 0) {
    json["worst_error"] = outcome.worst_error;
    json["worst_case"] = outcome.worst_case;
    json["scenarios"] = outcome.scenarios;
    json["launches"] = outcome.launches;
  }
  json["seconds"] = outcome.seconds;
  return json;
}

Target target_of(const DeviceInfo& device) {
  if (device.sm == 0) return {};
  return {Target::cuda, device.target + (device.sm >= 90 ? "a" : "")};
}

class Lab::Timer {
 public:
  // `count`: of what is done.
  Timer(double& seconds, Timeline* timeline, const char* what, std::size_t count)
      : seconds_(seconds),
        timeline_(timeline),
        what_(what),
        count_(count),
        began_(Timeline::Clock::now()) {}
  ~Timer() {
    seconds_ += std::chrono::duration<double>(Timeline::Clock::now() - began_).count();
    if (timeline_) timeline_->add("lab", what_, began_, count_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& seconds_;
  Timeline* const timeline_;
  const char* const what_;
  const std::size_t count_;
  const Timeline::Clock::time_point began_;
};

Lab::Lab(KernelBuilder& builder, LabOptions options)
    : builder_(builder),
      options_(std::move(options)),
      verdicts_(std::make_unique<Verdicts>(options_.verdicts,
                                           sha256(read_file("/proc/self/exe", kMaxProgram)))),
      judges_([this] { return start_worker(ServeJob{}); }, std::min(options_.jobs, kMostJudges)),
      race_judges_([this] { return start_worker(ServeJob{}, false); }, options_.jobs),
      racer_([this] { return start_worker(ServeJob{}); }, 1),
      ahead_(builder, options_.target, options_.jobs, options_.timeline) {}

Lab::~Lab() = default;

bool Lab::has_admitted(const Json& trial) const {
  return admitted_.count(sha256(trial.dump())) > 0;
}

void Lab::build(std::vector<KernelSource> sources) {
  std::set<std::string> seen;
  std::erase_if(sources, [&](const KernelSource& source) {
    return kernels_.count(source.entry) > 0 || failures_.count(source.entry) > 0 ||
           !seen.insert(source.entry).second;
  });
  if (sources.empty()) return;
  const Timer timer(spent_.building, options_.timeline, "build", sources.size());
  ahead_.finish(sources);
  std::size_t done = 0;
  const std::size_t total = sources.size() * (options_.here ? 1 : 2);
  const auto on_done = [&](std::size_t, const BuildResult&) {
    if (options_.on_built) options_.on_built(++done, total);
  };
  const std::vector<BuildResult> built = builder_.build_all(sources, options_.target, on_done);
  const std::vector<BuildResult> judged =
      options_.here ? built : builder_.build_all(sources, {}, on_done);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto *artifact = std::get_if<Artifact>(&built[i]),
               *to_judge = std::get_if<Artifact>(&judged[i]);
    if (artifact && to_judge) {
      kernels_[sources[i].entry] = {sources[i], artifact->file, artifact->registers,
                                    artifact->spill_bytes};
      judged_[sources[i].entry] = *to_judge;
    } else {
      failures_[sources[i].entry] = std::get<CompileFailure>(artifact ? judged[i] : built[i]).log;
    }
  }
}

void Lab::build_ahead(std::vector<KernelSource> sources) { ahead_.add(std::move(sources)); }

std::vector<Request> Lab::rehearse(const std::function<void()>& selection) {
  rehearsed_.emplace();
  try {
    selection();
  } catch (...) {
    rehearsed_.reset();
    throw;
  }
  return *std::exchange(rehearsed_, std::nullopt);
}

std::vector<Outcome> Lab::judge(const std::vector<Request>& requests,
                                const std::function<void(std::size_t)>& on_done) {
  std::vector<Outcome> outcomes(requests.size());
  if (rehearsed_) {
    rehearsed_->insert(rehearsed_->end(), requests.begin(), requests.end());
    return outcomes;
  }
  std::vector<KernelSource> sources;
  for (const Request& request : requests)
    sources.insert(sources.end(), request.sources.begin(), request.sources.end());
  build(std::move(sources));
  const auto is_of_races = [](Purpose purpose) { return purpose == Purpose::races; };
  const struct Judging {
    explicit Judging(std::atomic<bool>& of) : is_judging(of) { is_judging = true; }
    ~Judging() { is_judging = false; }
    std::atomic<bool>& is_judging;
  } judging(is_judging_);
  if (on_gpu()) {
    // Who looks for races, and the compilers for that, fill the cores that the GPU's judges leave.
    std::future<void> races = std::async(std::launch::async, [&] {
      build_for_races(requests);
      decide(requests, is_of_races, outcomes, on_done);
    });
    decide(requests, std::not_fn(is_of_races), outcomes, on_done);
    const Timer timer(spent_.judging, options_.timeline, "wait for races", 1);
    races.get();
  } else {
    build_for_races(requests);
    decide(requests, [](Purpose) { return true; }, outcomes, on_done);
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!outcomes[i].admitted()) continue;
    if (!requests[i].left_open.empty())
      outcomes[i].note += (outcomes[i].note.empty() ? "" : "; ") + requests[i].left_open;
    admitted_.insert(sha256(to_json(requests[i].trial).dump()));
    for (const KernelSource& source : requests[i].sources)
      admitted_kernels_.emplace(source.entry, requests[i].trial.purpose);
  }
  return outcomes;
}

// Those of such a purpose; their kernels are built, as far as they can be. Two threads may do this
// for two purposes.
void Lab::decide(const std::vector<Request>& requests, const std::function<bool(Purpose)>& of,
                 std::vector<Outcome>& outcomes, const std::function<void(std::size_t)>& on_done) {
  std::vector<std::size_t> undecided;
  std::vector<std::string> keys;            // of those
  std::map<std::string, std::size_t> same;  // requests that are judged alike, by key
  std::vector<std::pair<std::size_t, std::size_t>> copies;
  std::unique_lock lock(deciding_);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    if (!of(request.trial.purpose)) continue;
    if (const std::string* failed = failure(request)) {
      outcomes[i].kind = Outcome::Kind::not_compiled;
      outcomes[i].why = error_line(*failed);
      if (on_done) on_done(i);
      continue;
    }
    if (const std::string why = why_not_raced(request); !why.empty()) {
      outcomes[i].note = why;
      if (on_done) on_done(i);
      continue;
    }
    std::vector<std::string> digests;
    for (const KernelSource& source : request.sources)
      digests.push_back(judged(request.trial.purpose).at(source.entry).digest);
    const std::string key = verdicts_->key(request.trial, digests);
    const auto [known, is_new] = same.emplace(key, i);
    if (!is_new) {
      copies.emplace_back(i, known->second);
      continue;
    }
    std::optional<Outcome> before;
    if (const auto now = decided_.find(key); now != decided_.end()) before = now->second;
    // What a library does now is not what was known of it.
    else if (!(on_gpu() && calls_library(request.trial)))
      before = verdicts_->find(key);
    if (before) {
      outcomes[i] = *std::move(before);
      if (on_done) on_done(i);
      continue;
    }
    undecided.push_back(i);
    keys.push_back(key);
  }
  lock.unlock();
  judge_all(requests, undecided, [&](std::size_t j, const ChildResult& result) {
    const std::lock_guard deciding(deciding_);
    Outcome& outcome = outcomes[undecided[j]];
    outcome = outcome_of(result);
    if (options_.timeline)
      options_.timeline->add_ended("judging", requests[undecided[j]].name, result.seconds);
    if (outcome.kind != Outcome::Kind::crashed) verdicts_->keep(keys[j], outcome);
    decided_.emplace(keys[j], outcome);
    if (on_done) on_done(undecided[j]);
  });
  lock.lock();
  if (options_.target.kind == Target::cuda && !on_gpu())
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (of(requests[i].trial.purpose) && outcomes[i].admitted() &&
          calls_library(requests[i].trial))
        outcomes[i].note = kLibraryStoodIn;
  for (const auto& [copy, original] : copies) {
    outcomes[copy] = outcomes[original];
    if (on_done) on_done(copy);
  }
}

// What a child that a kernel ran in says, if it can still say anything.
Outcome Lab::outcome_of(const ChildResult& result) const {
  Outcome outcome;
  outcome.kind = Outcome::Kind::crashed;
  outcome.why = result.ended;
  if (!result.ok()) return outcome;
  try {
    outcome =
        outcome_from_json(parse_json(result.text, "the judge's answer"), "the judge's answer");
    outcome.seconds = result.seconds;
  } catch (const Error& error) {
    outcome.why = error.what();
  }
  return outcome;
}

const std::string* Lab::failure(const Request& request) const {
  for (const KernelSource& source : request.sources)
    if (const std::string* log = failure(source.entry)) return log;
  return nullptr;
}

KernelFiles Lab::judged_files(const Request& request) const {
  KernelFiles files;
  for (const KernelSource& source : request.sources)
    files[source.entry] = judged(request.trial.purpose).at(source.entry).file;
  return files;
}

// On the host device no kernel runs beside the one before it, and the threads of a block meet in
// shared memory alone, which the shim gives out. A GPU's kernels may also write too early.
bool Lab::may_race(const Request& request) const {
  if (request.trial.purpose != Purpose::races) return false;
  if (options_.target.kind == Target::cuda) return true;
  return std::ranges::any_of(request.sources, [&](const KernelSource& source) {
    return read_file(judged_.at(source.entry).file, kMaxProgram).find("_shared_memory") !=
           std::string::npos;
  });
}

std::string Lab::why_not_raced(const Request& request) const {
  if (request.trial.purpose != Purpose::races) return "";
  if (!may_race(request)) return "threads share no memory";
  return races_ ? "" : "races are not looked for: no compiler for the host device is here";
}

void Lab::build_for_races(const std::vector<Request>& requests) {
  std::vector<KernelSource> sources;
  for (const Request& request : requests)
    if (!failure(request) && may_race(request))
      for (const KernelSource& source : request.sources)
        if (judged_for_races_.try_emplace(source.entry).second) sources.push_back(source);
  if (sources.empty()) return;
  double beside = 0;  // on a GPU, this goes on beside judging
  const Timer timer(on_gpu() ? beside : spent_.building, options_.timeline, "build for races",
                    sources.size());
  if (!race_builder_) {
    BuilderOptions options = builder_.options();
    options.checks = HostChecks::races;
    race_builder_ = std::make_unique<KernelBuilder>(std::move(options));
    try {
      race_builder_->compiler({});
    } catch (const Error& error) {
      if (!on_gpu()) throw;
      warn("races in kernels are not looked for: {}",
           error.what());  // a GPU needs it for nothing else
      races_ = false;
    }
  }
  if (!races_) return;
  const std::vector<BuildResult> built = race_builder_->build_all(sources, {});
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto* artifact = std::get_if<Artifact>(&built[i]);
    if (!artifact)
      job_failed("{}: does not compile for the host device with a check of races: {}",
                 sources[i].entry, error_line(std::get<CompileFailure>(built[i]).log));
    judged_for_races_[sources[i].entry] = *artifact;
  }
}

// These of the requests, all of races or none; `on_done` counts them.
void Lab::judge_all(const std::vector<Request>& requests, const std::vector<std::size_t>& which,
                    const Done& on_done) {
  if (which.empty()) return;
  const auto request = [&](std::size_t j) -> const Request& { return requests[which[j]]; };
  const bool of_races = request(0).trial.purpose == Purpose::races;
  double beside = 0;
  const Timer timer(on_gpu() && of_races ? beside : spent_.judging, options_.timeline,
                    of_races ? "judge races" : "judge", which.size());
  // The longest first: the others fill what they leave of the time.
  std::vector<std::size_t> order(which.size());  // in `which`
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t j) { return request(j).work; });
  const auto done = [&](std::size_t i, const ChildResult& result) { on_done(order[i], result); };
  if (on_gpu()) {
    std::vector<std::string> questions;
    for (const std::size_t j : order)
      questions.push_back(line_of(JudgeQuestion{request(j).trial, judged_files(request(j))}));
    (of_races ? race_judges_ : judges_).ask(questions, options_.limit, done);
    return;
  }
  const AheadBuilds::Rest rest(ahead_);  // nothing else may run where children are forked
  // What a kernel breaks here, it breaks in the process that runs it.
  std::vector<ChildTask> judgements;
  for (const std::size_t j : order)
    judgements.emplace_back([&trial = request(j).trial, files = judged_files(request(j))] {
      keep_freed_memory();
      return to_json(ac::outcome_of(ac::judge(trial, files))).dump();
    });
  run_in_children(judgements, options_.jobs, options_.limit, done);
}

std::unique_ptr<Conversation> Lab::start_worker(Job job, bool on_gpu) {
  const std::filesystem::path file = jobs_.path() / fmt::format("{}.json", next_job_++);
  write_file(file, line_of(Assignment{on_gpu, std::move(job), options_.turns}));
  return std::make_unique<Conversation>(
      std::vector<std::string>{"/proc/self/exe", "worker", file.string()});
}

Lab::Race Lab::race(const StepGraph& step, const std::vector<Contender>& contenders,
                    const MeasureOptions& options) {
  AC_ASSERT(measures() && !rehearsed_);
  KernelFiles files;
  for (const Contender& contender : contenders)
    for (const KernelSource& source : contender.made.sources)
      files[source.entry] = kernels_.at(source.entry).artifact;
  const RaceQuestion question{step, contenders, files, options};
  const Timer timer(spent_.timing, options_.timeline, "time", contenders.size());
  const ChildResult result =
      on_gpu() ? racer_.ask({line_of(question)}, options_.limit)[0]
               : converse_here(ServeJob{})->ask(line_of(question), options_.limit);
  if (!result.ok()) return {{}, {}, result.ended};
  Race race;
  race.samples = samples_of(result.text);
  for (const std::vector<double>& samples : race.samples)
    race.microseconds.push_back(samples.empty() ? std::numeric_limits<double>::infinity()
                                                : median(samples));
  return race;
}

std::int64_t Lab::bytes_of_judges() const {
  return kBytesOfJudge * std::min(options_.jobs, kMostJudges);
}

std::unique_ptr<Conversation> Lab::converse(Job job) {
  if (!is_judging_) judges_.dismiss(), race_judges_.dismiss(), racer_.dismiss();
  return on_gpu() ? start_worker(std::move(job)) : converse_here(std::move(job));
}

std::unique_ptr<Conversation> Lab::converse_here(Job job) const {
  return std::make_unique<Conversation>(
      [assignment = Assignment{false, std::move(job), options_.turns}] {
        return prepare(assignment);
      });
}

ChildResult Lab::ask(Conversation& conversation, const std::string& question,
                     std::chrono::seconds limit) {
  const Timer timer(spent_.timing, options_.timeline, "time steps", 1);
  return conversation.ask(question, limit);
}

const std::string* Lab::failure(const std::string& entry) const {
  const auto found = failures_.find(entry);
  return found == failures_.end() ? nullptr : &found->second;
}

}  // namespace ac
