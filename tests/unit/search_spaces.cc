#include "search_spaces.h"

#include <fmt/format.h>

#include <cmath>

namespace ac::search::test {
namespace {

double noise(Random& random) {  // about normal
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return sum - 6;
}

// Smallest at `best`, by `weight` a factor of two.
double bowl(double value, double best, double weight) {
  const double apart = std::log2(value / best);
  return weight * apart * apart;
}

}  // namespace

Known structured(std::uint64_t seed, double spread) {
  Random random(seed);
  const double best_threads = 128 << random.below(3), best_depth = 4 << random.below(2);
  const double best_rows = 1 << random.below(2), trend = 0.1 * noise(random);
  Known known;
  for (const char* ring : {"registers", "bulk"})
    for (const int threads : {64, 128, 256, 512, 1024})
      for (const int depth : {2, 4, 8, 16})
        for (const int rows : {1, 2, 4})
          for (const int split : {1, 2}) {
            if (threads * depth * rows > 16384) continue;
            const bool bulk = ring[0] == 'b';
            double log_us = 2.5 + bowl(threads, best_threads, 0.05) +
                            bowl(depth, best_depth, 0.06) + bowl(rows, best_rows, 0.08) +
                            (split == 2 ? 0.1 + trend : 0) +
                            (bulk ? 0.12 - 0.04 * std::log2(depth) : 0) +
                            0.03 * std::log2(threads / 128.0) * std::log2(rows);
            log_us += 0.02 * noise(random);
            PointOutcome outcome{Verdict::measured, std::exp(log_us)};
            if (bulk && threads == 1024 && depth > 4) outcome = {Verdict::uncompilable, 0};
            known.points.push_back(
                {fmt::format("{}/{}x{}x{}/{}", ring, threads, rows, depth, split),
                 {{"",
                   bulk ? "bulk" : "plain",
                   {{"threads", std::int64_t{threads}},
                    {"depth", std::int64_t{depth}},
                    {"rows", std::int64_t{rows}},
                    {"split", split == 2 ? "two" : "one"}}}},
                 std::exp(log_us + spread * noise(random))});
            known.outcomes.push_back(outcome);
          }
  return known;
}

Known unstructured(std::size_t size, std::size_t failures, std::uint64_t seed) {
  Known known;
  std::vector<std::size_t> ranks(size);
  for (std::size_t i = 0; i < size; ++i) ranks[i] = i;
  Random random(seed);
  random.shuffle(ranks);
  for (std::size_t i = 0; i < size; ++i) {
    known.points.push_back(
        {fmt::format("p{}", i), {{"", "f", {{"i", static_cast<std::int64_t>(i)}}}}, 1});
    if (ranks[i] >= size - failures)
      known.outcomes.push_back({Verdict::wrong, 0});
    else
      known.outcomes.push_back({Verdict::measured, static_cast<double>(ranks[i] + 1)});
  }
  return known;
}

namespace {

std::vector<Site> sites(const std::vector<Known>& known) {
  // What the first two can be fused to; they are there if they are not.
  std::vector<Site> made{{"fuse", 1, {}, {}}};
  made[0].choices = {{"fused", {{"", "fused", {}}}, 30}, {"split", {{"", "split", {}}}, 0}};
  for (std::size_t i = 0; i < known.size(); ++i)
    made.push_back({fmt::format("s{}", i), 1.0 + static_cast<double>(i % 3), known[i].points, {}});
  made[1].only_if =
      made[2].only_if = [](const std::vector<int>& choices) { return choices[0] == 1; };
  return made;
}

std::vector<Known> known_of(std::size_t count, std::uint64_t seed) {
  std::vector<Known> known;
  for (std::size_t i = 0; i < count; ++i) known.push_back(structured(seed * 100 + i));
  return known;
}

}  // namespace

Step::Step(std::size_t count, std::uint64_t seed)
    : space(sites(known_of(count, seed))), known(known_of(count, seed)) {}

PointOutcome Step::outcome(int point) const {
  const std::vector<int>& choices = space.choices(point);
  double sum = choices[0] == 0 ? 45 : 0;
  std::string before;
  for (std::size_t i = 1; i < choices.size(); ++i) {
    if (choices[i] < 0) continue;
    const auto choice = static_cast<std::size_t>(choices[i]);
    const PointOutcome& outcome = known[i - 1].outcomes[choice];
    if (!outcome.ok()) return outcome;
    sum += space.sites()[i].uses * outcome.microseconds;
    const std::string& family = known[i - 1].points[choice].parts[0].family;
    if (!before.empty() && family != before) sum += 1;
    before = family;
  }
  return {Verdict::measured, sum};
}

}  // namespace ac::search::test
