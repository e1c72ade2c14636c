#include "study/record_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>

#include "base/error.h"
#include "lab/measure.h"
#include "study/table_file.h"
#include "tune/step_workshop.h"

namespace ac::study {
namespace {

// One reference that cannot be timed may be bad luck.
constexpr int kTurns = 3;
// Of a sample: steps of one recording take less time to capture and to replay, and are alike.
constexpr int kRepeats = 2;
constexpr std::size_t kBlock = 250;         // of drawn schedules, then of guided ones
constexpr std::size_t kSession = 64;        // attempts of one guided search
constexpr std::size_t kVainDraws = 10'000;  // in a row, of what is known
constexpr std::size_t kVainSessions = 50;   // in a row, without a new schedule
constexpr std::array<const char*, 3> kGuides = {"tree", "surrogate", "evolutionary"};
constexpr const char* kDrawn = "random";

bool is_sampled(const StepRecordOptions& options) {
  return options.drawn > 0 || options.guided > 0;
}

tune::StepOptions step_options(const StepRecordOptions& options) {
  tune::StepOptions step;
  static_cast<tune::WorkshopOptions&>(step) = options;
  step.space = {.plans = options.plans, .max_points = is_sampled(options) ? 0 : options.max_points};
  if (is_sampled(options)) step.repeats = kRepeats, step.hold_all = true;
  step.admit_all = options.admit_all;
  step.rounds = options.rounds;
  return step;
}

class StepRecorder {
 public:
  StepRecorder(const Model& model, const StepRecordOptions& options, KernelBuilder& builder,
               const std::filesystem::path& to, Progress& progress)
      : options_(options),
        progress_(progress),
        workshop_(model, step_options(options), builder, std::nullopt, progress),
        file_(to, header(builder)) {}

  Recorded run() {
    progress_.stage("schedules");
    std::size_t sites = 0;
    for (const search::Site& site : space().sites()) sites += site.choices.size() > 1;
    region_ = file_.region(workshop_.signature(), fmt::format("step of {} sites", sites), 1);
    log_failures();
    if (is_sampled(options_))
      run_sampled();
    else
      run_listed();
    progress_.done();
    Recorded recorded{.regions = 1, .new_points = timed_};
    recorded.points = table().points.size();
    for (const tune::TimedPoint& point : table().points) recorded.measured += point.outcome().ok();
    return recorded;
  }

 private:
  Json header(KernelBuilder& builder) const {
    Json json = common_header(options_, builder, workshop_.step().graph.name);
    json["space"] = "step";
    json["plans"] = options_.plans;
    // What planning them, building and judging took; little where caches had them.
    std::size_t choices = 0;
    for (std::size_t i = workshop_.space().fusion_sites(); i < space().sites().size(); ++i)
      choices += space().sites()[i].choices.size();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began_;
    json["choices"] = choices, json["choices_seconds"] = std::round(took.count() * 1e3) / 1e3;
    if (is_sampled(options_))
      json["seed"] = options_.seed, json["repeats"] = kRepeats;
    else
      json["max_points"] = options_.max_points;
    return json;
  }

  const search::ProductSpace& space() const { return workshop_.space().points(); }
  const TimedTable& table() const { return file_.table(region_); }

  void run_listed() {
    const auto points = space().all(options_.max_points);
    AC_ASSERT(points);  // the space is bounded
    std::vector<int> todo = *points;
    search::Random(options_.seed).shuffle(todo);
    std::erase_if(todo, [&](int point) { return find(point); });
    for (const int point : todo) {
      if (is_over()) break;
      time(point, {}, todo.size());
    }
    if (timed_ > 0) time_reference();
    if (!options_.admit_all) admit_fastest(*points);
  }

  void run_sampled() {
    file_.set_sites(region_, sites_of(workshop_.space()));
    std::vector<int> drawn = draw();
    std::size_t guided = 0;
    for (const TimedTable::Sampled& sampled : table().sampled) guided += sampled.by != kDrawn;
    const std::size_t known = table().points.size();
    const std::size_t total = drawn.size() + options_.guided - std::min(known, drawn.size());
    for (std::size_t next = 0; !is_over();) {
      const std::size_t end = std::min(drawn.size(), next + kBlock);
      for (; next < end && !is_over(); ++next)
        if (!find(drawn[next])) time(drawn[next], kDrawn, total);
      // As many as were drawn so far, if not more are asked for.
      const std::size_t due =
          next == drawn.size() ? options_.guided : std::min(options_.guided, next);
      while (guided < due && !is_over() && guide(total)) ++guided;
      if (next == drawn.size()) break;
    }
    if (timed_ > 0) time_reference();
    if (options_.admit_all) return;
    std::vector<int> points;
    for (const TimedTable::Sampled& sampled : table().sampled)
      points.push_back(space().point(sampled.schedule));
    admit_fastest(points);
  }

  // Different ones, always the same for a seed.
  std::vector<int> draw() const {
    std::vector<int> drawn;
    std::set<int> seen;
    search::Random random(search::derived_seed(options_.seed, 0));
    for (std::size_t vain = 0; drawn.size() < options_.drawn && vain < kVainDraws;) {
      const int point = space().draw(random);
      if (seen.insert(point).second)
        drawn.push_back(point), vain = 0;
      else
        ++vain;
    }
    return drawn;
  }

  // Goes on with the searches until one has come by a schedule that was not timed before. What they
  // ask for and the file has, it answers: a resumed recording comes to where it was. False if they
  // find nothing new.
  bool guide(std::size_t total) {
    for (std::size_t begun = 0; begun < kVainSessions;) {
      if (!search_ || attempts_ == kSession) begin_search(), ++begun;
      ++attempts_;
      const std::optional<int> point = start_ ? std::exchange(start_, {}) : search_->propose();
      if (!point) {
        search_.reset();
        continue;
      }
      const bool is_new = !find(*point);
      if (is_new) time(*point, guide_, total);
      search_->hear(*point, find(*point)->outcome());
      if (is_new) return true;
      if (is_over()) return false;
    }
    return false;
  }

  void begin_search() {
    guide_ = kGuides[sessions_ % kGuides.size()];
    const std::uint64_t seed = search::derived_seed(options_.seed, ++sessions_);
    search_ = search::make_strategy(guide_, space(), seed);
    attempts_ = 0;
    search::Random random(seed);
    if (sessions_ > 1) start_ = space().draw(random);
  }

  bool is_over() const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began_;
    return options_.stop_after > 0 && passed.count() > options_.stop_after;
  }

  // `by`: of a space that is too large to list.
  void time(int point, const std::string& by, std::size_t total) {
    if (timed_++ % options_.reference_every == 0) time_reference();
    const auto began = std::chrono::steady_clock::now();
    tune::TimedPoint timed = workshop_.time(point);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    attempts_took_.push_back(took.count());
    timed.samples = rounded(std::move(timed.samples));
    record(point, std::move(timed), by);
    if (const search::PointOutcome outcome = find(point)->outcome(); outcome.ok())
      best_ = std::min(best_.value_or(outcome.microseconds), outcome.microseconds);
    progress_.step(timed_, total, best_ ? fmt::format("best {:.1f} us", *best_) : "");
  }

  const tune::TimedPoint* find(int point) const { return table().find(space().id(point)); }

  // The best by what is predicted, whose time is the same whenever it is taken but for what drifts.
  void time_reference() {
    const int reference = workshop_.space().points().start();
    for (int turn = 0; turn < kTurns; ++turn) {
      const tune::TimedPoint timed = workshop_.time(reference);
      if (!timed.outcome().ok()) continue;
      file_.append_reference(region_, workshop_.space().points().id(reference), timed.samples,
                             attempts_took_.empty() ? 0 : median(attempts_took_));
      attempts_took_.clear();
      return;
    }
    progress_.note("the reference could not be timed");
  }

  void record(int point, tune::TimedPoint timed, const std::string& by) {
    if (is_sampled(options_)) {
      timed.point.id = space().id(point);
      timed.point.predicted = space().predicted(point);
    } else {
      timed.point = workshop_.space().listed(point);
    }
    if (timed.verdict == search::Verdict::failed)
      progress_.note(fmt::format("{}: failed ({})", timed.point.id, timed.why));
    if (options_.log) {
      tuning::TimedAttempt tried;
      tried.key.region = workshop_.signature();
      tried.key.plan = timed.point.id;
      tried.key.setting = tuning::setting_of(1, options_.context);
      tried.verdict = timed.verdict;
      const bool is_judged = timed.was_admitted || !timed.outcome().ok();
      tried.why = is_judged ? timed.why : tuning::kUnjudged;
      tried.samples = timed.samples;
      tried.predicted = timed.point.predicted;
      options_.log->add(std::move(tried), workshop_.sources(point));
    }
    if (is_sampled(options_))
      file_.append(region_, std::move(timed), {space().choices(point), by});
    else
      file_.append(region_, std::move(timed));
  }

  void log_failures() {
    for (tune::StepWorkshop::Failure& failure : workshop_.take_failures()) {
      if (!options_.log) continue;
      tuning::TimedAttempt tried;
      tried.key.region = failure.signature;
      tried.key.plan = failure.plan;
      tried.key.setting = tuning::setting_of(1, options_.context);
      tried.verdict = failure.verdict;
      tried.why = failure.why;
      tried.predicted = failure.predicted;
      options_.log->add(std::move(tried), failure.sources);
    }
  }

  // So that the best that a table has is one that computes what it should.
  void admit_fastest(std::vector<int> points) {
    progress_.stage("admit the fastest");
    std::erase_if(points, [&](int point) { return !find(point) || !find(point)->outcome().ok(); });
    std::ranges::stable_sort(points, {},
                             [&](int point) { return find(point)->outcome().microseconds; });
    for (const int point : points) {
      tune::TimedPoint timed = *find(point);
      if (timed.was_admitted) return;
      timed.why = workshop_.why_not(point);
      log_failures();
      timed.was_admitted = true;
      if (!timed.why.empty()) timed.verdict = search::Verdict::wrong;
      const bool is_admitted = timed.why.empty();
      const std::string by = by_of(timed.point.id);
      record(point, std::move(timed), by);
      if (is_admitted) return;
    }
  }

  // Who chose a schedule that is in the file.
  std::string by_of(const std::string& id) const {
    for (std::size_t i = 0; i < table().sampled.size(); ++i)
      if (table().points[i].point.id == id) return table().sampled[i].by;
    return {};
  }

  const StepRecordOptions& options_;
  Progress& progress_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  tune::StepWorkshop workshop_;
  TableFile file_;
  int region_ = 0;
  std::size_t timed_ = 0;
  std::optional<double> best_;
  std::vector<double> attempts_took_;  // since the last reference
  // The guided search that is under way.
  std::unique_ptr<search::Strategy> search_;
  std::string guide_;
  std::uint64_t sessions_ = 0;
  std::size_t attempts_ = 0;
  std::optional<int> start_;
};

}  // namespace

Recorded record_step(const Model& model, const StepRecordOptions& options, KernelBuilder& builder,
                     const std::filesystem::path& to, Progress& progress) {
  progress.stage("the step's choices");
  StepRecorder recorder(model, options, builder, to, progress);
  return recorder.run();
}

}  // namespace ac::study
