#include "compile/in_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "compile/step_bench.h"

namespace ac {
namespace {

using Options = std::vector<std::size_t>;
using Clock = std::chrono::steady_clock;

constexpr int kQuickRounds = 3, kRounds = 9;
constexpr int kPasses = 3;

struct TimedPart {
  std::size_t site = 0;
  std::vector<Span> options;
  bool by_position = false;
};

// Steps of an engine, with one option of each part.
class StepRace {
 public:
  StepRace(StepBench& bench, std::vector<TimedPart> parts, Span ending)
      : bench_(bench), parts_(std::move(parts)), ending_(ending) {}

  // Microseconds of a step with each of these, in turn; the slower ones less often.
  std::vector<double> run(const std::vector<Options>& choices) {
    std::vector<std::unique_ptr<Device::Recording>> recordings;
    for (const Options& choice : choices) recordings.push_back(bench_.record(step_of(choice)));
    std::vector<std::vector<double>> samples(choices.size());
    std::vector<std::size_t> left(choices.size());
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
    const auto rounds = [&](int count) {
      for (int round = 0; round < count; ++round)
        for (const std::size_t i : left) samples[i].push_back(bench_.sample(*recordings[i]));
    };
    for (const std::size_t i : left) bench_.sample(*recordings[i]);
    rounds(kQuickRounds);
    std::vector<double> medians(choices.size());
    const auto settle = [&] {
      for (const std::size_t i : left) medians[i] = median(samples[i]);
    };
    settle();
    std::ranges::sort(left, {}, [&](std::size_t i) { return medians[i]; });
    left.resize(std::min<std::size_t>(left.size(), std::max<std::size_t>(3, left.size() / 4)));
    // What all are compared with.
    if (std::ranges::find(left, 0u) == left.end()) left.push_back(0);
    rounds(kRounds - kQuickRounds);
    settle();
    return medians;
  }

 private:
  StepBench::Step step_of(const Options& choice) const {
    StepBench::Step step;
    for (const TimedPart& part : parts_) step.push_back(part.options[choice[part.site]]);
    step.push_back(ending_);
    return step;
  }

  StepBench& bench_;
  const std::vector<TimedPart> parts_;
  const Span ending_;
};

// Pairs of sites that follow each other in the step, the last part and the first ones too, since
// layers repeat; a site on its own only if it has no such neighbour. After a first context, only
// what takes longer after more tokens, with its neighbours: of the others nothing has changed.
std::vector<std::pair<std::size_t, std::size_t>> neighbours(const std::vector<TimedPart>& parts,
                                                            bool is_first) {
  std::vector<const TimedPart*> open;  // with a choice, in the order of parts
  for (const TimedPart& part : parts)
    if (part.options.size() > 1) open.push_back(&part);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  const auto add = [&](const TimedPart& a, const TimedPart& b) {
    const std::pair pair(a.site, b.site);
    if (!is_first && !a.by_position && !b.by_position) return;
    if (std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
  };
  for (std::size_t i = 0; i + 1 < open.size(); ++i)
    if (open[i]->site != open[i + 1]->site) add(*open[i], *open[i + 1]);
  if (pairs.empty() && !open.empty()) add(*open[0], *open[0]);
  return pairs;
}

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

Json job_of(const TrialPackage& package, const Trials& trials, const Alternatives& alternatives) {
  Json parts = Json::array();
  for (std::size_t i = 0; i < alternatives.parts.size(); ++i) {
    Json options = Json::array();
    for (std::size_t at = trials.first[i]; at < trials.first[i + 1]; ++at)
      options.push_back(to_json(package.spans()[at]));
    const Alternatives::Part& part = alternatives.parts[i];
    parts.push_back(
        {{"site", part.site}, {"options", std::move(options)}, {"by_position", part.by_position}});
  }
  return {{"job", "step"},
          {"package", package.path().string()},
          {"parts", std::move(parts)},
          {"ending", to_json(package.spans().back())}};
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

std::string race_steps(Device& device, const Json& job) {
  StepBench bench(device, job.at("package").get<std::string>(), job.at("random").get<std::string>(),
                  job.at("context"));
  std::vector<TimedPart> parts;
  std::vector<std::size_t> count;  // options of each site
  for (const Json& entry : job.at("parts")) {
    TimedPart part{entry.at("site"), {}, entry.at("by_position")};
    for (const Json& span : entry.at("options")) part.options.push_back(span_of(span));
    count.resize(std::max(count.size(), part.site + 1));
    count[part.site] = part.options.size();
    parts.push_back(std::move(part));
  }
  const auto pairs = neighbours(parts, job.at("is_first"));
  StepRace race(bench, std::move(parts), span_of(job.at("ending")));

  const auto end = Clock::now() + std::chrono::seconds(job.at("seconds").get<std::int64_t>());
  const Options first = job.at("first").get<Options>();
  Options best = first;
  std::set<Options> timed{first};
  for (int pass = 0; pass < kPasses; ++pass) {
    bool moved = false;
    for (const auto& [a, b] : pairs) {
      if (Clock::now() > end) break;
      std::vector<Options> choices{best};
      for (std::size_t i = 0; i < count[a]; ++i)
        for (std::size_t j = 0; j < count[b]; ++j) {
          Options choice = best;
          choice[a] = i, choice[b] = j;
          if (choice != best && choice[a] == i) choices.push_back(choice);
        }
      timed.insert(choices.begin(), choices.end());
      const std::vector<double> times = race.run(choices);
      const auto fastest = std::ranges::min_element(times) - times.begin();
      if (times[static_cast<std::size_t>(fastest)] > times[0] * kWorthwhile) continue;
      best = choices[static_cast<std::size_t>(fastest)];
      moved = true;
    }
    if (!moved) break;
  }
  // What did not change is not timed against itself, where noise would look like a gain.
  const std::vector<double> last = best == first ? race.run({first}) : race.run({first, best});
  const bool pays = best != first && last[1] <= last[0] * kWorthwhile;
  return Json{{"options", pays ? best : first},
              {"first_us", last[0]},
              {"us", pays ? last[1] : last[0]},
              {"timed", timed.size()}}
      .dump();
}

InContextChoices choose_in_context(const StepGraph& step, const Program& program,
                                   const Alternatives& alternatives, const Implemented& ending,
                                   const InContextOptions& options, Realiser& realiser,
                                   Progress& progress) {
  if (options.contexts.empty()) return {{first_choice(alternatives)}, {}};
  const KernelSource random = random_source();
  realiser.build({random});
  const Trials trials = trials_of(alternatives, ending);
  const TrialPackage package(step, program, trials.all, realiser);
  Json job = job_of(package, trials, alternatives);
  job["random"] = realiser.kernels().at(random.entry).artifact.string();
  job["seconds"] = options.limit.count();
  const auto time = [&](std::int64_t context,
                        const Options& first) -> std::variant<StepTimes, std::string> {
    job["context"] = context, job["first"] = first;
    job["is_first"] = context == options.contexts.front();
    // Loading takes time as well.
    const ChildResult result =
        realiser.run_alone(job, 3 * options.limit + std::chrono::seconds(60));
    if (!result.ok()) return result.ended;
    const Json said = Json::parse(result.text);
    return StepTimes{said.at("options"), said.at("first_us"), said.at("us"), said.at("timed")};
  };
  return choose_by_context(first_choice(alternatives), options.contexts, time, progress);
}

InContextChoices choose_by_context(const ContextChoice& first,
                                   const std::vector<std::int64_t>& contexts, const TimeSteps& time,
                                   Progress& progress) {
  InContextChoices made{{first}, {}};
  std::int64_t before = 0;  // the last context that was timed
  bool stopped = false;
  for (const std::int64_t context : contexts) {
    InContext& of = made.contexts.emplace_back();
    of.context = context;
    ContextChoice& current = made.choices.back();
    if (stopped) {
      of.untimed = "those after fewer tokens could not be";
      continue;
    }
    const auto said = time(context, current.options);
    if (const auto* why = std::get_if<std::string>(&said)) {
      of.untimed = *why;
      stopped = true;
      progress.note(fmt::format("whole steps after {} tokens were not timed: {}", context, *why));
      continue;
    }
    const StepTimes& times = std::get<StepTimes>(said);
    of.first_us = times.first_us, of.us = times.us, of.timed = times.timed;
    of.changed = times.options != current.options;
    progress.note(
        fmt::format("a step after {} tokens: {:.1f} us, {:.1f} with what is fastest {}, "
                    "of {} that were timed",
                    context, of.us, of.first_us, before > 0 ? "before that" : "alone", of.timed));
    if (before == 0)
      current.options = times.options;
    else if (of.changed)
      made.choices.push_back(
          {std::llround(std::sqrt(static_cast<double>(before) * static_cast<double>(context))),
           times.options});
    of.from = made.choices.back().from;
    before = context;
  }
  return made;
}

}  // namespace ac
