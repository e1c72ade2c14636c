#include "tune/tune_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "select/in_context.h"
#include "tuning/kernel_hash.h"

namespace ac {
namespace {

constexpr std::size_t kFinalists = 3;
constexpr int kFinalRounds = 15;
constexpr int kSiteRounds = 5;

// Whose kernels run after so many tokens.
std::size_t variant_at(const Pinned& pinned, std::int64_t context) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < pinned.variants.size(); ++i)
    if (pinned.variants[i].from <= context) at = i;
  return at;
}

tune::StepOptions step_options(const StepTuneOptions& options, const Program& program,
                               const Pinned::Variant& variant) {
  tune::StepOptions step;
  static_cast<tune::WorkshopOptions&>(step) = options;
  step.dtype = program.dtype;
  step.states = program.states;
  step.space = {.plans = options.plans, .max_points = 0};
  step.selected = variant.candidates;
  step.advisor = options.advisor;
  return step;
}

class StepTuner {
 public:
  StepTuner(const Model& model, const Program& program, const Pinned& decode,
            const StepTuneOptions& options, KernelBuilder& builder, Progress& progress)
      : options_(options),
        progress_(progress),
        decode_(decode),
        variant_(variant_at(decode, options.context)),
        database_(options.database),
        headers_(options.sources),
        device_(tuning::fingerprint(options.device, options.device_name)),
        toolkit_(builder.compiler(target_of(options.device))),
        setting_(tuning::setting_of(1, options.context)),
        workshop_(model, step_options(options, program, decode.variants[variant_]), builder,
                  program, progress) {}

  TunedStep run() {
    const search::ProductSpace& space = workshop_.space().points();
    const std::optional<int> own = workshop_.space().find(decode_.variants[variant_].candidates);
    if (!own)
      bad_input("the package's decode step is none that this program plans: compile it again");
    tuned_.signature = workshop_.signature();
    for (const search::Site& site : space.sites()) tuned_.sites += site.choices.size() > 1;
    record_failures();
    const search::Ranking advice = tune::advised_points(workshop_.space(), workshop_.advice());
    tuned_.advised = advice.order.size();
    auto strategy = search::make_strategy(options_.search, space, options_.seed, advice);
    std::optional<AdvisedProposer> proposer;
    if (options_.proposer) {
      proposer.emplace(*options_.proposer,
                       fmt::format("the decode step of {} on {}", workshop_.step().graph.name,
                                   options_.device_name),
                       "step", options_.budget.attempts, options_.takes_requests);
      search::ProposalOptions proposals = options_.proposals;
      proposals.measure = [this](int point) { return site_times(point); };
      strategy = std::make_unique<search::ProposedSearch>(std::move(strategy), space, *proposer,
                                                          proposals);
    }
    const search::PointOutcome first = time_own(*own);
    tuned_.first_us = first.microseconds;
    strategy->hear(*own, first);
    if (tuned_.advised > 0) {
      // Which is to know of it as well, so that it is not timed because it is advised.
      strategy = std::make_unique<search::RankedStrategy>(std::move(strategy), advice);
      strategy->hear(*own, first);
    }
    double best = tuned_.first_us;
    tuned_.trace = run_search(
        *strategy,
        [&](int point) {
          const auto began = std::chrono::steady_clock::now();
          const search::PointOutcome outcome = attempt(point);
          ++tuned_.attempts;
          if (outcome.ok())
            best = std::min(best, outcome.microseconds);
          else
            ++tuned_.failed;
          progress_.step(tuned_.attempts, options_.budget.attempts,
                         fmt::format("best {:.1f} us", best));
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
          return search::AttemptCost{outcome, took.count()};
        },
        options_.budget);
    if (proposer) tuned_.calls = proposer->calls();
    decide(*own);
    progress_.done();
    return std::move(tuned_);
  }

 private:
  tuning::Key key_of(int point) {
    return {workshop_.signature(),
            workshop_.space().points().id(point),
            tuning::kernel_hash(workshop_.sources(point), headers_),
            device_,
            toolkit_,
            setting_};
  }

  // Timed anew each time, but where replies in files are waited for: their questions must stay the
  // same, and hold what was measured.
  search::PointOutcome time_own(int own) {
    if (options_.proposer) {
      const search::PointOutcome known = attempt(own);
      tuned_.known = 0;  // it is none of the attempts
      if (known.ok()) return known;
    }
    const tune::TimedPoint first = workshop_.time(own);
    if (!first.outcome().ok()) job_failed("the package's decode step: {}", first.why);
    return first.outcome();
  }

  search::PointOutcome attempt(int point) {
    tuning::TimedAttempt tried;
    tried.key = key_of(point);
    tune::TimedPoint timed;
    if (const auto known = database_.find(tried.key)) {
      ++tuned_.known;
      timed.verdict = known->verdict, timed.why = known->why, timed.samples = known->samples;
      return timed.outcome();
    }
    timed = workshop_.time(point);
    if (!timed.outcome().ok())
      progress_.note(fmt::format("a schedule could not be timed: {}", timed.why));
    tried.verdict = timed.verdict;
    tried.why = timed.outcome().ok() ? tuning::kUnjudged : timed.why;
    tried.samples = timed.samples;
    tried.predicted = workshop_.space().points().predicted(point);
    tried.model = workshop_.step().graph.name;
    database_.add(tried);
    return timed.outcome();
  }

  // What the database knows is not measured again: questions that tell it must stay the same.
  search::SiteTimes site_times(int point) {
    const search::PointSpace& space = workshop_.space().points();
    const tuning::Key key = key_of(point);
    const auto key_with = [&](const std::string& sites) {
      tuning::Key of = key;
      of.setting = fmt::format("{}, {}", setting_, sites);
      return of;
    };
    const tuning::Key whole = key_with("all sites");
    const auto without = [&](const std::string& site) { return key_with("without " + site); };
    if (!database_.find(whole)) {
      std::vector<tuning::TimedAttempt> timed;
      const auto add = [&](const tuning::Key& of, std::vector<double> samples, double predicted) {
        timed.push_back({of, search::Verdict::measured, tuning::kUnjudged, std::move(samples),
                         predicted, workshop_.step().graph.name});
      };
      if (auto samples = workshop_.time_sites(point, kSiteRounds)) {
        const double all = space.predicted(point);
        const std::vector<double> predicted = space.predicted_parts(point);
        add(whole, std::move(samples->whole), all);
        std::size_t at = 0;
        for (const search::SitePlan& part : space.parts(point)) {
          const double rest = all - predicted.at(at++);
          if (const auto of = samples->without.find(part.site); of != samples->without.end())
            add(without(part.site), std::move(of->second), rest);
        }
      } else {
        add(whole, {}, space.predicted(point));
        timed[0].verdict = search::Verdict::failed;
      }
      database_.add(timed);
    }
    search::SiteTimes times;
    const auto all = database_.find(whole);
    if (!all || all->verdict != search::Verdict::measured) return times;
    for (const search::SitePlan& part : space.parts(point))
      if (const auto rest = database_.find(without(part.site)))
        times[part.site] = median(all->samples) - median(rest->samples);
    return times;
  }

  // Candidates of regions that do not compile, or are not admitted.
  void record_failures() {
    std::vector<tuning::TimedAttempt> attempts;
    for (tune::StepWorkshop::Failure& failure : workshop_.take_failures()) {
      tuning::TimedAttempt& tried = attempts.emplace_back();
      tried.key = {failure.signature, failure.plan, tuning::kernel_hash(failure.sources, headers_),
                   device_,           toolkit_,     setting_};
      tried.verdict = failure.verdict;
      tried.why = failure.why;
      tried.predicted = failure.predicted;
      tried.model = workshop_.step().graph.name;
    }
    database_.add(attempts);
  }

  // The fastest that are admitted, against the package's own.
  void decide(int own) {
    std::vector<search::PointAttempt> faster;
    for (const search::PointAttempt& attempt : tuned_.trace.attempts)
      if (attempt.outcome.ok() && attempt.point != own &&
          attempt.outcome.microseconds <= tuned_.first_us * kWorthwhile)
        faster.push_back(attempt);
    std::ranges::stable_sort(faster, {}, [](const search::PointAttempt& attempt) {
      return attempt.outcome.microseconds;
    });
    std::vector<int> finalists{own};
    for (const search::PointAttempt& attempt : faster) {
      if (finalists.size() > kFinalists) break;
      if (workshop_.why_not(attempt.point).empty()) finalists.push_back(attempt.point);
      record_failures();
    }
    if (finalists.size() == 1) return;
    const auto samples = workshop_.race(finalists, kFinalRounds);
    if (samples.empty()) {
      progress_.note("the last race could not be run: the package stays as it is");
      return;
    }
    std::size_t best = 1;
    for (std::size_t i = 2; i < finalists.size(); ++i)
      if (median(samples[i]) < median(samples[best])) best = i;
    tuned_.before_us = median(samples[0]);
    tuned_.best_us = median(samples[best]);
    if (*tuned_.best_us > *tuned_.before_us * kWorthwhile) return;
    take(finalists[best]);
  }

  void take(int point) {
    tuned_.plan = workshop_.space().points().id(point);
    tuned_.decode = decode_;
    Pinned::Variant& variant = tuned_.decode->variants[variant_];
    variant.candidates.clear();
    for (const tune::Scheduled& scheduled : workshop_.space().schedule(point)) {
      const Space& space =
          workshop_.plans().spaces[static_cast<std::size_t>(scheduled.part->space)];
      variant.candidates[space.signature] =
          scheduled.candidate < 0
              ? ""
              : space.candidates[static_cast<std::size_t>(scheduled.candidate)].id;
    }
    variant.fusions = workshop_.space().fusions(point);
    // What was timed with what it replaces says nothing any more.
    tuned_.decode->cuts.clear();
    std::vector<InContext>& contexts = tuned_.decode->contexts;
    std::erase_if(contexts, [&](const InContext& of) { return of.from == variant.from; });
    contexts.push_back({.context = options_.context,
                        .first_us = *tuned_.before_us,
                        .us = *tuned_.best_us,
                        .timed = static_cast<int>(tuned_.attempts),
                        .changed = true,
                        .from = variant.from});
    std::ranges::sort(contexts, {}, &InContext::context);
  }

  const StepTuneOptions& options_;
  Progress& progress_;
  const Pinned& decode_;
  const std::size_t variant_;
  tuning::Database database_;
  Headers headers_;
  const std::string device_, toolkit_, setting_;
  tune::StepWorkshop workshop_;
  TunedStep tuned_;
};

}  // namespace

TunedStep tune_step(const Model& model, const Program& program, const Pinned& decode,
                    const StepTuneOptions& options, KernelBuilder& builder, Progress& progress) {
  progress.stage("the step's choices");
  StepTuner tuner(model, program, decode, options, builder, progress);
  progress.stage("search");
  return tuner.run();
}

}  // namespace ac
