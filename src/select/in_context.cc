#include "select/in_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "lab/step_bench.h"
#include "lab/trial_package.h"

namespace ac {
namespace {

constexpr int kRoundsOfCuts = 9;  // each way to cut a step is timed

// All options of each part, and which launches are whose.
struct Trials {
  std::vector<Implemented> all;
  std::vector<std::size_t> first;  // of each part's options, in `all`; the ending's at last
};

Trials trials_of(const Alternatives& alternatives, const Implemented& ending) {
  Trials trials;
  for (const Alternatives::Part& part : alternatives.parts) {
    trials.first.push_back(trials.all.size());
    trials.all.insert(trials.all.end(), part.options.begin(), part.options.end());
  }
  trials.first.push_back(trials.all.size());
  trials.all.push_back(ending);
  return trials;
}

StepsJob job_of(const TrialPackage& package, const Trials& trials, const Alternatives& alternatives,
                const std::filesystem::path& random) {
  StepsJob job{package.path(), random, {}, package.spans().back()};
  for (std::size_t i = 0; i < alternatives.parts.size(); ++i) {
    const Alternatives::Part& of = alternatives.parts[i];
    TimedPart& part = job.parts.emplace_back(TimedPart{of.site, {}, of.by_position});
    for (std::size_t at = trials.first[i]; at < trials.first[i + 1]; ++at)
      part.options.push_back(package.spans()[at]);
  }
  return job;
}

// Where choices change between two contexts that were timed.
std::int64_t between(std::int64_t before, std::int64_t after) {
  return std::llround(std::sqrt(static_cast<double>(before) * static_cast<double>(after)));
}

const Options& options_at(const InContextChoices& of, std::int64_t context) {
  const auto behind = std::ranges::upper_bound(of.choices, context, {}, &ContextChoice::from);
  return std::prev(behind)->options;
}

}  // namespace

ContextChoice first_choice(const Alternatives& alternatives) {
  return {.from = 0, .options = Options(alternatives.sites)};
}

std::vector<Implemented> implemented(const Alternatives& alternatives,
                                     const ContextChoice& choice) {
  std::vector<Implemented> parts;
  for (const Alternatives::Part& part : alternatives.parts)
    parts.push_back(part.options[choice.options[part.site]]);
  return parts;
}

ContextChoice FewerAlternatives::whole(const ContextChoice& choice) const {
  ContextChoice of_all{.from = choice.from, .options = {}};
  for (std::size_t site = 0; site < options.size(); ++site)
    of_all.options.push_back(options[site][choice.options[site]]);
  return of_all;
}

FewerAlternatives fewer_of(const Alternatives& all, std::vector<Options> kept) {
  FewerAlternatives fewer{.left = all, .options = std::move(kept)};
  for (Alternatives::Part& part : fewer.left.parts) {
    std::vector<Implemented> options;
    for (const std::size_t i : fewer.options[part.site])
      options.push_back(std::move(part.options[i]));
    part.options = std::move(options);
    part.for_several.clear();
  }
  return fewer;
}

InContextChoices choose_in_context(const StepGraph& step, const Program& program,
                                   const Alternatives& alternatives, const Implemented& ending,
                                   const InContextOptions& options, Lab& lab, Progress& progress) {
  if (options.contexts.empty()) return {{first_choice(alternatives)}, {}};
  const KernelSource random = random_source();
  lab.build({random});
  const Trials trials = trials_of(alternatives, ending);
  const TrialPackage package(step, program, options.tokens, trials.all, lab);
  const std::unique_ptr<Conversation> steps =
      lab.converse(job_of(package, trials, alternatives, lab.kernels().at(random.entry).artifact));
  const auto time =
      [&](std::int64_t context,
          const std::vector<Options>& starts) -> std::variant<StepTimes, std::string> {
    const StepsQuestion question{context, starts, context == options.contexts.front(),
                                 options.limit};
    // Loading takes time as well.
    const ChildResult result =
        lab.ask(*steps, line_of(question), 3 * options.limit + std::chrono::seconds(60));
    if (!result.ok()) return result.ended;
    return step_times_of(result.text);
  };
  return choose_by_context(first_choice(alternatives), options, time, progress);
}

InContextChoices choose_by_context(const ContextChoice& first, const InContextOptions& options,
                                   const TimeSteps& time, Progress& progress) {
  InContextChoices made{{first}, {}};
  const std::string a_step =
      options.tokens > 1 ? fmt::format("a step of {} tokens", options.tokens) : "a step";
  std::optional<std::int64_t> before;  // the last context that was timed
  bool stopped = false;
  for (const std::int64_t context : options.contexts) {
    InContext& of = made.contexts.emplace_back();
    of.context = context;
    ContextChoice& current = made.choices.back();
    if (stopped) {
      of.untimed = "those after fewer tokens could not be";
      continue;
    }
    std::vector<Options> starts{current.options};
    for (const ContextChoice& choice : made.choices)
      if (std::ranges::find(starts, choice.options) == starts.end())
        starts.push_back(choice.options);
    const auto said = time(context, starts);
    if (const auto* why = std::get_if<std::string>(&said)) {
      of.untimed = *why;
      stopped = true;
      progress.note(fmt::format("whole steps after {} tokens were not timed: {}", context, *why));
      continue;
    }
    const StepTimes& times = std::get<StepTimes>(said);
    of.first_us = times.first_us, of.us = times.us, of.timed = times.timed;
    of.changed = times.options != current.options;
    progress.note(fmt::format(
        "{} after {} tokens: {:.1f} us, {:.1f} with what is fastest {}, "
        "of {} that were timed",
        a_step, context, of.us, of.first_us, before ? "before that" : "alone", of.timed));
    if (!before)
      current.options = times.options;
    else if (of.changed)
      made.choices.push_back({between(*before, context), times.options});
    of.from = made.choices.back().from;
    before = context;
  }
  return made;
}

bool costs_little(const InContext& one, const InContext& several, double slowdown) {
  return one.untimed.empty() && several.untimed.empty() && several.us <= one.us * slowdown;
}

InContextChoices merged(const InContextChoices& one, const InContextChoices& several,
                        double slowdown) {
  InContextChoices made;
  for (std::size_t i = 0; i < one.contexts.size(); ++i) {
    const InContext &of_one = one.contexts[i], &of_several = several.contexts[i];
    AC_ASSERT(of_one.context == of_several.context);
    const bool takes = costs_little(of_one, of_several, slowdown);
    InContext& of = made.contexts.emplace_back(takes ? of_several : of_one);
    const Options& options = options_at(takes ? several : one, of.context);
    of.changed = !made.choices.empty() && made.choices.back().options != options;
    if (made.choices.empty())
      made.choices.push_back({0, options});
    else if (of.changed)
      made.choices.push_back({between(one.contexts[i - 1].context, of.context), options});
    of.from = made.choices.back().from;
  }
  return made;
}

std::vector<double> time_cuts(const StepGraph& step, const Program& program, const Cuts& cuts,
                              const Implemented& ending, const InContextOptions& options, Lab& lab,
                              Progress& progress) {
  const KernelSource random = random_source();
  lab.build({random});
  std::vector<Implemented> parts = cuts.parts;
  parts.push_back(ending);
  const TrialPackage package(step, program, options.tokens, parts, lab);
  const std::unique_ptr<Conversation> bench = lab.converse(
      BenchJob{package.path(), lab.kernels().at(random.entry).artifact, options.contexts.front()});
  BenchQuestion question{{}, kRoundsOfCuts};
  for (const std::vector<std::size_t>& cut : cuts.cuts) {
    StepBench::Step& of = question.steps.emplace_back();
    for (const std::size_t part : cut) of.push_back(package.spans()[part]);
    of.push_back(package.spans().back());
  }
  const ChildResult result = lab.ask(*bench, line_of(question), std::chrono::seconds(60));
  if (!result.ok()) {
    progress.note(fmt::format("ways to cut a step were not timed: {}", result.ended));
    return {};
  }
  std::vector<double> medians;
  for (std::vector<double>& samples : samples_of(result.text))
    medians.push_back(median(std::move(samples)));
  return medians;
}

}  // namespace ac
