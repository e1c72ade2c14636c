#include "study/record_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "study/table_file.h"
#include "tune/step_workshop.h"

namespace ac::study {
namespace {

// One reference that cannot be timed may be bad luck.
constexpr int kTurns = 3;

tune::StepOptions step_options(const StepRecordOptions& options) {
  tune::StepOptions step;
  static_cast<tune::WorkshopOptions&>(step) = options;
  step.space = {.plans = options.plans, .max_points = options.max_points};
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
    const auto points = workshop_.space().points().all(options_.max_points);
    AC_ASSERT(points);  // the space is bounded
    std::size_t sites = 0;
    for (const search::Site& site : workshop_.space().points().sites())
      sites += site.choices.size() > 1;
    region_ = file_.region(workshop_.signature(), fmt::format("step of {} sites", sites), 1);
    log_failures();
    std::vector<int> todo = *points;
    search::Random(options_.seed).shuffle(todo);
    std::erase_if(todo, [&](int point) { return find(point); });
    for (std::size_t i = 0; i < todo.size(); ++i) {
      if (i % options_.reference_every == 0) time_reference();
      record(todo[i], workshop_.time(todo[i]));
      const std::optional<double> best = file_.table(region_).optimum();
      progress_.step(i + 1, todo.size(), best ? fmt::format("best {:.1f} us", *best) : "");
    }
    if (!todo.empty()) time_reference();
    if (!options_.admit_all) admit_fastest(*points);
    progress_.done();
    Recorded recorded{.regions = 1, .new_points = todo.size()};
    const TimedTable& table = file_.table(region_);
    recorded.points = table.points.size();
    for (const tune::TimedPoint& point : table.points) recorded.measured += point.outcome().ok();
    return recorded;
  }

 private:
  Json header(KernelBuilder& builder) const {
    Json json = common_header(options_, builder, workshop_.step().graph.name);
    json["space"] = "step";
    json["max_points"] = options_.max_points;
    json["plans"] = options_.plans;
    return json;
  }

  const tune::TimedPoint* find(int point) const {
    return file_.table(region_).find(workshop_.space().points().id(point));
  }

  // The best by what is predicted, whose time is the same whenever it is taken but for what drifts.
  void time_reference() {
    const int reference = workshop_.space().points().start();
    for (int turn = 0; turn < kTurns; ++turn) {
      const tune::TimedPoint timed = workshop_.time(reference);
      if (!timed.outcome().ok()) continue;
      file_.append_reference(region_, workshop_.space().points().id(reference), timed.samples);
      return;
    }
    progress_.note("the reference could not be timed");
  }

  void record(int point, tune::TimedPoint timed) {
    timed.point = workshop_.space().listed(point);
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
      record(point, std::move(timed));
      if (is_admitted) return;
    }
  }

  const StepRecordOptions& options_;
  Progress& progress_;
  tune::StepWorkshop workshop_;
  TableFile file_;
  int region_ = 0;
};

}  // namespace

Recorded record_step(const Model& model, const StepRecordOptions& options, KernelBuilder& builder,
                     const std::filesystem::path& to, Progress& progress) {
  progress.stage("the step's choices");
  StepRecorder recorder(model, options, builder, to, progress);
  return recorder.run();
}

}  // namespace ac::study
