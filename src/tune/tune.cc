#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "base/error.h"
#include "tune/step_advice.h"
#include "tuning/kernel_hash.h"

namespace ac {
namespace {

constexpr std::size_t kKept = 3;  // plans of a region that the compiler tries again

class Tuner {
 public:
  Tuner(const Model& model, const TuneOptions& options, KernelBuilder& builder, Progress& progress)
      : options_(options),
        progress_(progress),
        workshop_(model, options, builder),
        database_(options.database),
        headers_(options.sources),
        device_(tuning::fingerprint(options.device, options.device_name)),
        toolkit_(builder.compiler(target_of(options.device))) {}

  Tuned run() {
    const std::vector<tune::Subject> subjects = workshop_.subjects();
    if (options_.advisor)
      advised_ =
          tune::ask_about(*options_.advisor, workshop_.regions(), workshop_.plans(), progress_)
              .candidates;
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      progress_.stage(
          fmt::format("region {} of {}: {}", i + 1, subjects.size(), subjects[i].description()));
      run(subjects[i]);
    }
    progress_.done();
    return std::move(tuned_);
  }

 private:
  // With advice, in turn with it, so that bad advice costs no more than twice the attempts.
  std::unique_ptr<search::Strategy> strategy_for(const search::PointSpace& space,
                                                 TunedRegion& region) const {
    const auto known = advised_.find(region.signature);
    if (known == advised_.end())
      return search::make_strategy(options_.search, space, options_.seed);
    search::Ranking advice = search::Ranking::of(space, known->second);
    region.advised = advice.order.size();
    auto strategy = search::make_strategy(options_.search, space, options_.seed, advice);
    return std::make_unique<search::RankedStrategy>(std::move(strategy), std::move(advice));
  }

  void run(const tune::Subject& subject) {
    std::vector<search::Point> points;
    for (const Candidate& candidate : subject.space->candidates)
      points.push_back(tune::point_of(candidate));
    const search::ListedSpace space(std::move(points));
    TunedRegion region;
    region.signature = subject.space->signature;
    region.description = subject.description();
    region.uses = subject.uses;
    const auto strategy = strategy_for(space, region);
    const search::Trace trace = run_search(
        *strategy,
        [&](int point) {
          const auto began = std::chrono::steady_clock::now();
          const search::PointOutcome outcome =
              attempt(subject, subject.space->candidates[static_cast<std::size_t>(point)], region);
          if (outcome.ok()) {
            if (!region.first) region.first = outcome.microseconds;
            region.best =
                std::min(region.best.value_or(outcome.microseconds), outcome.microseconds);
          }
          progress_.step(++region.attempts,
                         std::min<std::size_t>(options_.budget.attempts, space.size()),
                         region.best ? fmt::format("best {:.2f} us", *region.best) : "");
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
          return search::AttemptCost{outcome, took.count()};
        },
        options_.budget);
    if (const auto best = trace.best()) region.plan = space.id(best->point);
    keep_best(region.signature, space, trace);
    tuned_.regions.push_back(std::move(region));
  }

  search::PointOutcome attempt(const tune::Subject& subject, const Candidate& candidate,
                               TunedRegion& region) {
    tuning::TimedAttempt tried;
    tried.key = {subject.space->signature,
                 candidate.id,
                 tuning::kernel_hash(workshop_.generate_for(subject, candidate).sources, headers_),
                 device_,
                 toolkit_,
                 tuning::setting_of(1, options_.context)};
    if (const auto known = database_.find(tried.key); known && known->why != tuning::kUnjudged) {
      ++region.known;
      return outcome_of(*known);
    }
    const tune::Workshop::Batch batch = workshop_.attempt(subject, {&candidate}, true);
    const tune::TimedPoint& point = batch.points.at(0);
    tried.verdict = point.verdict;
    tried.why = point.why;
    tried.samples = point.samples;
    tried.predicted = candidate.cost.microseconds;
    tried.model = workshop_.step().graph.name;
    database_.add(tried);
    return outcome_of(tried);
  }

  static search::PointOutcome outcome_of(const tuning::TimedAttempt& attempt) {
    tune::TimedPoint point;
    point.verdict = attempt.verdict, point.why = attempt.why, point.samples = attempt.samples;
    return point.outcome();
  }

  void keep_best(const std::string& signature, const search::ListedSpace& space,
                 const search::Trace& trace) {
    std::vector<search::PointAttempt> measured;
    for (const search::PointAttempt& attempt : trace.attempts)
      if (attempt.outcome.ok()) measured.push_back(attempt);
    std::stable_sort(measured.begin(), measured.end(),
                     [](const search::PointAttempt& a, const search::PointAttempt& b) {
                       return a.outcome.microseconds < b.outcome.microseconds;
                     });
    measured.resize(std::min(measured.size(), kKept));
    for (const search::PointAttempt& attempt : measured)
      tuned_.preferred[signature].push_back(space.id(attempt.point));
  }

  const TuneOptions& options_;
  Progress& progress_;
  tune::Workshop workshop_;
  tuning::Database database_;
  Headers headers_;
  const std::string device_, toolkit_;
  std::map<std::string, std::vector<std::string>> advised_;  // candidates, by signature
  Tuned tuned_;
};

}  // namespace

Tuned tune_regions(const Model& model, const TuneOptions& options, KernelBuilder& builder,
                   Progress& progress) {
  return Tuner(model, options, builder, progress).run();
}

}  // namespace ac
