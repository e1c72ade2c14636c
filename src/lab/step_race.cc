#include "lab/step_race.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "lab/measure.h"
#include "lab/step_bench.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQuickRounds = 3, kRounds = 9;
// Steps that take longer than this, in microseconds, differ less from one to the next.
constexpr double kLong = 5000;
constexpr int kQuickRoundsOfLong = 1, kRoundsOfLong = 3;
constexpr int kPasses = 4;
// A first look: what is so many times slower than the fastest is not looked at again, nor is more
// than a share of many.
constexpr double kBehind = 1.015;
constexpr std::size_t kFew = 6, kShare = 3;
// Of a site's options, those that meet their neighbours': the others are slower in the step
// whatever those are.
constexpr std::size_t kMet = 8;
constexpr int kScanRounds = 5;

// Steps of an engine, with one option of each part.
class StepRace final : public StepTimer {
 public:
  StepRace(StepBench& bench, std::vector<TimedPart> parts, Span ending)
      : bench_(bench), parts_(std::move(parts)), ending_(ending) {}

  // Microseconds of a step with each of these, in turn: the slower ones less often, and infinity
  // for those that a first look showed to be behind.
  std::vector<double> run(const std::vector<Options>& choices) override {
    const std::size_t finalists = std::max<std::size_t>(3, choices.size() / 4);
    std::vector<std::size_t> left = look(choices);
    std::map<std::size_t, std::unique_ptr<Device::Recording>> recordings;
    for (const std::size_t i : left)
      recordings[i] = bench_.record(step_of(choices[i]), bench_.steps());
    std::vector<std::vector<double>> samples(choices.size());
    const auto rounds = [&](int count) {
      for (int round = 0; round < count; ++round)
        for (const std::size_t i : left)
          samples[i].push_back(bench_.sample(*recordings[i], bench_.steps()));
    };
    bool is_long = false;
    for (const std::size_t i : left)
      is_long = bench_.sample(*recordings[i], bench_.steps()) > kLong || is_long;
    const int quick = is_long ? kQuickRoundsOfLong : kQuickRounds;
    rounds(quick);
    std::vector<double> medians(choices.size(), std::numeric_limits<double>::infinity());
    const auto settle = [&] {
      for (const std::size_t i : left) medians[i] = median(samples[i]);
    };
    settle();
    keep_fastest(left, medians, finalists);
    rounds((is_long ? kRoundsOfLong : kRounds) - quick);
    settle();
    return medians;
  }

  // Of each of these, roughly: recordings of single steps take a quarter of the time to make and to
  // replay.
  std::vector<double> glance(const std::vector<Options>& choices, int rounds) override {
    std::vector<std::unique_ptr<Device::Recording>> recordings;
    for (const Options& choice : choices) recordings.push_back(bench_.record(step_of(choice), 1));
    for (const auto& recording : recordings) bench_.sample(*recording, 1);
    std::vector<std::vector<double>> samples(choices.size());
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < choices.size(); ++i)
        samples[i].push_back(bench_.sample(*recordings[i], 1));
    std::vector<double> medians;
    for (std::vector<double>& of : samples) medians.push_back(median(std::move(of)));
    return medians;
  }

  Clock::duration waited() const override { return bench_.waited(); }

 private:
  // Of few, all are worth more than a look.
  std::vector<std::size_t> look(const std::vector<Options>& choices) {
    std::vector<std::size_t> left(choices.size());
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
    if (choices.size() <= kFew) return left;
    const std::vector<double> medians = glance(choices, kQuickRounds);
    const double most = kBehind * std::ranges::min(medians);
    keep_fastest(left, medians, std::max(kFew, choices.size() / kShare));
    std::erase_if(left, [&](std::size_t i) { return i != 0 && medians[i] > most; });
    return left;
  }

  // So many, and the first, which all are compared with.
  static void keep_fastest(std::vector<std::size_t>& left, const std::vector<double>& times,
                           std::size_t count) {
    std::ranges::sort(left, {}, [&](std::size_t i) { return times[i]; });
    left.resize(std::min(left.size(), count));
    if (std::ranges::find(left, 0u) == left.end()) left.push_back(0);
  }

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
SitePairs neighbours(const std::vector<TimedPart>& parts, bool is_first) {
  std::vector<const TimedPart*> open;  // with a choice, in the order of parts
  for (const TimedPart& part : parts)
    if (part.options.size() > 1) open.push_back(&part);
  SitePairs pairs;
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

}  // namespace

namespace {

// The options of a site that are fastest in the step, where the others are those of `best`.
Options fastest_options(StepTimer& timer, std::size_t site, std::size_t count, const Options& best,
                        std::set<Options>& timed) {
  Options options(count);
  for (std::size_t i = 0; i < count; ++i) options[i] = i;
  if (count <= kMet) return options;
  std::vector<Options> choices;
  for (const std::size_t i : options) {
    Options& choice = choices.emplace_back(best);
    choice[site] = i;
  }
  timed.insert(choices.begin(), choices.end());
  const std::vector<double> times = timer.glance(choices, kScanRounds);
  std::ranges::stable_sort(options, {}, [&](std::size_t i) { return times[i]; });
  options.resize(kMet);
  std::ranges::sort(options);
  return options;
}

}  // namespace

StepTimes search_steps(StepTimer& timer, const SitePairs& pairs,
                       const std::vector<std::size_t>& count, const std::vector<Options>& starts,
                       std::chrono::seconds limit) {
  const auto end = Clock::now() - timer.waited() + limit;
  const auto is_over = [&] { return Clock::now() - timer.waited() >= end; };
  const Options& first = starts.at(0);
  Options best = first;
  std::set<Options> timed(starts.begin(), starts.end());
  if (starts.size() > 1 && limit.count() > 0) {
    const std::vector<double> times = timer.run(starts);
    best = starts[static_cast<std::size_t>(std::ranges::min_element(times) - times.begin())];
  }
  // What a site meets: itself, and all that it is in a pair with. A kernel's time depends on those
  // that run beside it, and not on what is far away in the step.
  std::vector<std::set<std::size_t>> near(count.size());
  for (const auto& [a, b] : pairs) near[a].insert({a, b}), near[b].insert({a, b});
  const auto seen_from = [&](const std::set<std::size_t>& sites, const std::set<std::size_t>& but) {
    Options seen(best.size());
    for (const std::size_t site : sites)
      if (!but.contains(site)) seen[site] = best[site];
    return seen;
  };
  // Beside which others a site was looked at last; and a pair raced, and which of its own options.
  std::vector<std::optional<Options>> looked(count.size());
  std::vector<Options> met(count.size());
  std::vector<std::array<Options, 3>> raced(pairs.size());
  bool moved = true;
  for (int pass = 0; pass < kPasses && moved; ++pass) {
    // Again where a neighbour has changed: what was slow beside the ones that came first may be the
    // fastest beside those that are there by now.
    std::set<std::size_t> done;
    for (const auto& [a, b] : pairs)
      for (const std::size_t site : {a, b}) {
        if (!done.insert(site).second || is_over()) continue;
        const Options beside = seen_from(near[site], {site});
        if (std::exchange(looked[site], beside) == beside) continue;
        met[site] = fastest_options(timer, site, count[site], best, timed);
      }
    moved = false;
    for (std::size_t at = 0; at < pairs.size(); ++at) {
      if (is_over()) break;
      const auto [a, b] = pairs[at];
      std::set<std::size_t> around = near[a];
      around.insert(near[b].begin(), near[b].end());
      const std::array race{seen_from(around, {a, b}), met[a], met[b]};
      if (raced[at] == race) continue;  // it would say the same
      raced[at] = race;
      std::vector<Options> choices{best};
      for (const std::size_t i : met[a])
        for (const std::size_t j : met[b]) {
          Options choice = best;
          choice[a] = i, choice[b] = j;
          if (choice != best && choice[a] == i) choices.push_back(choice);
        }
      timed.insert(choices.begin(), choices.end());
      const std::vector<double> times = timer.run(choices);
      const auto fastest = std::ranges::min_element(times) - times.begin();
      if (times[static_cast<std::size_t>(fastest)] > times[0] * kWorthwhile) continue;
      best = choices[static_cast<std::size_t>(fastest)];
      moved = true;
    }
  }
  // What did not change is not timed against itself, where noise would look like a gain.
  const std::vector<double> last = best == first ? timer.run({first}) : timer.run({first, best});
  const bool pays = best != first && last[1] <= last[0] * kWorthwhile;
  return {pays ? best : first, last[0], pays ? last[1] : last[0], static_cast<int>(timed.size())};
}

std::string line_of(const StepsQuestion& question) {
  return Json{{"context", question.context},
              {"starts", question.starts},
              {"is_first", question.is_first},
              {"seconds", question.limit.count()}}
      .dump();
}

StepTimes step_times_of(const std::string& line) {
  const Json json = Json::parse(line);
  return {json.at("options"), json.at("first_us"), json.at("us"), json.at("timed")};
}

Conversation::Answer prepare(std::shared_ptr<Device> device, const StepsJob& job) {
  struct Opened {
    std::shared_ptr<Device> device;
    std::unique_ptr<StepBench> bench;  // which goes before its device
    StepsJob job;
    std::vector<std::size_t> count;  // options of each site
  };
  const auto opened = std::make_shared<Opened>();
  opened->device = device;
  opened->bench = std::make_unique<StepBench>(*device, job.package, job.random, 0);
  opened->job = job;
  for (const TimedPart& part : job.parts) {
    opened->count.resize(std::max(opened->count.size(), part.site + 1));
    opened->count[part.site] = part.options.size();
  }
  return [opened](const std::string& line) {
    const Json asked = Json::parse(line);
    const StepsQuestion question{asked.at("context"), asked.at("starts"), asked.at("is_first"),
                                 std::chrono::seconds(asked.at("seconds").get<std::int64_t>())};
    opened->bench->follow(question.context);
    StepRace race(*opened->bench, opened->job.parts, opened->job.ending);
    const StepTimes said = search_steps(race, neighbours(opened->job.parts, question.is_first),
                                        opened->count, question.starts, question.limit);
    return Json{{"options", said.options},
                {"first_us", said.first_us},
                {"us", said.us},
                {"timed", said.timed}}
        .dump();
  };
}

}  // namespace ac
