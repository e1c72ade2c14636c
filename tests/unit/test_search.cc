// Search strategies on spaces whose every outcome is known.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "expect_error.h"
#include "search/orders.h"
#include "search_spaces.h"

using namespace ac;
using namespace ac::search;
using ac::search::test::Known;
using ac::search::test::Step;

namespace {

Try look_up(const std::vector<PointOutcome>& outcomes) {
  return [&outcomes](int point) { return AttemptCost{outcomes[static_cast<std::size_t>(point)]}; };
}

std::vector<int> points_of(const Trace& trace) {
  std::vector<int> points;
  for (const search::PointAttempt& attempt : trace.attempts) points.push_back(attempt.point);
  return points;
}

std::vector<int> run(std::string_view name, const ListedSpace& space, const Known& known,
                     std::uint64_t seed, std::size_t attempts = SIZE_MAX) {
  const auto strategy = make_strategy(name, space, seed);
  return points_of(run_search(*strategy, look_up(known.outcomes), {.attempts = attempts}));
}

// Attempts until the first that is measured at no more than this.
std::size_t attempts_to(Strategy& strategy, const Known& known, double microseconds) {
  const Trace trace = run_search(strategy, look_up(known.outcomes), {});
  for (std::size_t i = 0; i < trace.attempts.size(); ++i)
    if (const PointOutcome& outcome = trace.attempts[i].outcome;
        outcome.ok() && outcome.microseconds <= microseconds)
      return i + 1;
  return SIZE_MAX;
}

double best_of(const Known& known) {
  double best = INFINITY;
  for (const PointOutcome& outcome : known.outcomes)
    if (outcome.ok()) best = std::min(best, outcome.microseconds);
  return best;
}

}  // namespace

TEST_CASE("search: every strategy tries every point of a listed space once") {
  const Known known = search::test::structured(3);
  const ListedSpace space(known.points);
  for (const StrategyInfo& info : strategies()) {
    CAPTURE(info.name);
    const std::vector<int> points = run(info.name, space, known, 7);
    CHECK(points.size() == known.points.size());
    CHECK(std::set<int>(points.begin(), points.end()).size() == points.size());
  }
}

TEST_CASE("search: a seed means one search, and strategies that take one differ by it") {
  const Known known = search::test::structured(4);
  const ListedSpace space(known.points);
  for (const StrategyInfo& info : strategies()) {
    CAPTURE(info.name);
    CHECK(run(info.name, space, known, 5, 60) == run(info.name, space, known, 5, 60));
    std::set<std::vector<int>> searches;
    for (std::uint64_t seed = 0; seed < 5; ++seed)
      searches.insert(run(info.name, space, known, seed, 60));
    if (info.uses_seed)
      CHECK(searches.size() > 1);
    else
      CHECK(searches.size() == 1);
  }
}

TEST_CASE("search: orders are what they say") {
  const Known known = search::test::structured(5);
  const ListedSpace space(known.points);
  const std::vector<int> all = run("exhaustive", space, known, 0);
  CHECK(std::is_sorted(all.begin(), all.end()));
  const std::vector<int> ranked = run("heuristic", space, known, 0);
  CHECK(std::is_sorted(ranked.begin(), ranked.end(),
                       [&](int a, int b) { return space.predicted(a) < space.predicted(b); }));
  // What knows nothing yet begins with what is predicted.
  for (const char* name : {"surrogate", "tree", "evolutionary"})
    CHECK(run(name, space, known, 3, 1)[0] == ranked[0]);
  CHECK_THROWS_AS(make_strategy("magic", space, 0), Error);
  CHECK(ac::test::error_of(Fault::wrong_usage, [&] {
          make_strategy("magic", space, 0);
        }).find("tree") != std::string::npos);
}

TEST_CASE("search: random finds the best as often as it must") {
  constexpr std::size_t kPoints = 40;
  const Known known = search::test::unstructured(kPoints, 10, 1);
  const ListedSpace space(known.points);
  double attempts = 0;
  constexpr int kRuns = 4000;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    const auto strategy = make_strategy("random", space, seed);
    attempts += static_cast<double>(attempts_to(*strategy, known, 1));
  }
  // One point of N without replacement: (N + 1) / 2, with a deviation of N / sqrt(12).
  const double deviation = kPoints / std::sqrt(12.0 * kRuns);
  CHECK(std::abs(attempts / kRuns - (kPoints + 1) / 2.0) < 4 * deviation);
}

TEST_CASE("search: what learns beats random on structured spaces, and copes with none") {
  constexpr std::size_t kBudget = 16;
  std::map<std::string_view, std::vector<double>> shares;  // of the optimum, by space
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Known known = search::test::structured(100 + seed);
    const ListedSpace space(known.points);
    for (const StrategyInfo& info : strategies()) {
      double sum = 0;
      for (std::uint64_t repeat = 0; repeat < 10; ++repeat) {
        const auto strategy = make_strategy(info.name, space, repeat);
        const Trace trace = run_search(*strategy, look_up(known.outcomes), {.attempts = kBudget});
        CHECK(trace.attempts.size() == kBudget);
        if (const auto best = trace.best()) sum += best_of(known) / best->outcome.microseconds;
      }
      shares[info.name].push_back(sum / 10);
    }
  }
  const auto lead = [&](std::string_view name) {  // in deviations of the mean
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < 12; ++i) {
      const double ahead = shares[name][i] - shares["random"][i];
      sum += ahead, squares += ahead * ahead;
    }
    const double mean = sum / 12;
    return mean / std::sqrt((squares / 12 - mean * mean) / 11);
  };
  CHECK(lead("tree") > 4);
  CHECK(lead("surrogate") > 4);
  CHECK(lead("heuristic") > 2);

  Known flat = search::test::unstructured(50, 45, 3);  // five of fifty work
  const ListedSpace space(flat.points);
  for (const StrategyInfo& info : strategies()) CHECK(run(info.name, space, flat, 1).size() == 50);
  for (PointOutcome& outcome : flat.outcomes) outcome = {search::Verdict::illegal, 0};
  for (const StrategyInfo& info : strategies()) {
    const auto strategy = make_strategy(info.name, space, 1);
    CHECK_FALSE(run_search(*strategy, look_up(flat.outcomes), {}).best());
  }
}

TEST_CASE("search: the schedules of a step, with fusing and splitting") {
  constexpr std::size_t kBudget = 48;
  std::vector<double> lead;  // of the tree over random, in logarithms, by step and seed
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    for (std::uint64_t repeat = 0; repeat < 5; ++repeat) {
      std::map<std::string_view, double> best;
      for (const char* name : {"tree", "random", "evolutionary", "heuristic", "surrogate"}) {
        const Step step(5, seed);
        const auto strategy = make_strategy(name, step.space, repeat);
        std::set<std::string> seen;
        const Trace trace = run_search(*strategy,
                                       [&](int point) {
                                         CHECK(seen.insert(step.space.id(point)).second);
                                         CHECK(step.space.find(step.space.id(point)) == point);
                                         return AttemptCost{step.outcome(point)};
                                       },
                                       {.attempts = kBudget});
        CHECK(trace.attempts.size() == kBudget);
        best[name] = trace.best()->outcome.microseconds;
      }
      MESSAGE("tree ", best["tree"], ", random ", best["random"], ", evolutionary ",
              best["evolutionary"], ", heuristic ", best["heuristic"], ", surrogate ",
              best["surrogate"]);
      lead.push_back(std::log(best["random"] / best["tree"]));
    }
  double sum = 0, squares = 0;
  for (const double l : lead) sum += l, squares += l * l;
  const double count = static_cast<double>(lead.size()), mean = sum / count;
  const double deviation = std::sqrt((squares / count - mean * mean) / (count - 1));
  MESSAGE("the tree is ahead of random by ", mean, " +- ", 1.96 * deviation);
  CHECK(mean - 1.96 * deviation > 0.02);
}

TEST_CASE("search: sites that are not there make no schedule of their own") {
  const Step step(2, 1);
  const ProductSpace& space = step.space;
  const int fused = space.point({0, 3, 4}), same = space.point({0, 5, 6});
  CHECK(fused == same);
  CHECK(space.id(fused) == "fuse=fused");
  CHECK(space.point({1, 3, 4}) != space.point({1, 3, 5}));
  // Splitting is one transformation.
  bool splits = false;
  for (const int next : space.neighbours(fused)) splits |= space.choices(next)[0] == 1;
  CHECK(splits);
  CHECK_FALSE(space.find("fuse=fused s0=nothing"));
  CHECK_FALSE(space.find("fuse=split"));  // of which two choices are missing
  CHECK_FALSE(space.find("nonsense"));
}

TEST_CASE("search: transformations change one trait where the space has that point") {
  const Known known = search::test::structured(6);
  const ListedSpace space(known.points);
  const int from = *space.find("registers/256x1x4/1");
  std::set<std::string> ids;
  for (const int next : space.neighbours(from)) {
    CHECK(next != from);
    ids.insert(space.id(next));
  }
  for (const char* id : {"registers/128x1x4/1", "registers/256x2x4/1", "registers/256x1x16/1",
                         "registers/256x1x4/2", "bulk/256x1x4/1"})
    CHECK(ids.count(id) == 1);
  CHECK(ids.count("registers/128x2x4/1") == 0);
}

TEST_CASE("search: advice that is good is taken at once, and bad advice at most doubles attempts") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Known known = search::test::structured(200 + seed);
    const ListedSpace space(known.points);
    const double best = best_of(known);
    std::vector<int> order;
    for (std::size_t i = 0; i < known.points.size(); ++i) order.push_back(static_cast<int>(i));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const PointOutcome &left = known.outcomes[static_cast<std::size_t>(a)],
                         &right = known.outcomes[static_cast<std::size_t>(b)];
      return std::pair(!left.ok(), left.microseconds) < std::pair(!right.ok(), right.microseconds);
    });
    const Ranking good{order, {}};
    const Ranking bad{{order.rbegin(), order.rend()}, {}};
    for (const StrategyInfo& info : strategies()) {
      CAPTURE(info.name);
      for (const double goal : {1.0, 1.05, 1.3}) {
        const auto alone = make_strategy(info.name, space, seed);
        const std::size_t needed = attempts_to(*alone, known, best * goal);
        RankedStrategy advised(make_strategy(info.name, space, seed), bad);
        CHECK(attempts_to(advised, known, best * goal) <= 2 * needed);
      }
      RankedStrategy advised(make_strategy(info.name, space, seed), good);
      CHECK(attempts_to(advised, known, best) == 1);
    }
    // As a prior, good advice comes early, and bad advice is got over.
    for (const char* name : {"tree", "surrogate"}) {
      CHECK(attempts_to(*make_strategy(name, space, seed, good), known, best) <= 16);
      CHECK(attempts_to(*make_strategy(name, space, seed, bad), known, best * 1.05) <= 64);
    }
  }
}

TEST_CASE("search: advice names points, and what is none is left out") {
  const Known known = search::test::structured(7);
  const ListedSpace space(known.points);
  const Ranking advice =
      Ranking::of(space, {"registers/128x1x4/1", "no such", "registers/128x1x4/1", "bulk/64x1x2/1"},
                  {0.5, 1, 1, 0.25});
  REQUIRE(advice.order.size() == 2);
  CHECK(space.id(advice.order[1]) == "bulk/64x1x2/1");
  CHECK(advice.weight(1) == 0.25);
  CHECK(Ranking::of(space, {"bulk/64x1x2/1", "bulk/64x1x2/2"}).weight(1) == 0.5);
}

TEST_CASE("search: budgets end a search, and what was spent before counts") {
  const Known known = search::test::structured(8);
  const ListedSpace space(known.points);
  const auto attempts = [&](const Budget& budget, Spent spent = {}) {
    const auto strategy = make_strategy("random", space, 1);
    return run_search(
               *strategy,
               [&](int point) {
                 return AttemptCost{known.outcomes[static_cast<std::size_t>(point)], 2.0, 10};
               },
               budget, spent)
        .attempts.size();
  };
  CHECK(attempts({.attempts = 5}) == 5);
  CHECK(attempts({.attempts = 5}, {.attempts = 3}) == 2);
  CHECK(attempts({.seconds = 9}) == 5);  // the fifth begins at 8
  CHECK(attempts({.tokens = 30}) == 4);
  CHECK(attempts({.tokens = 30}, {.tokens = 31}) == 0);
}

TEST_CASE("search: spaces that are none are refused") {
  CHECK_BAD_INPUT(ListedSpace({}), "no point");
  CHECK_BAD_INPUT(ListedSpace({{"a", {}, 1}, {"a", {}, 2}}), "two points", "\"a\"");
  CHECK_BAD_INPUT(ProductSpace({}), "no site");
  CHECK_BAD_INPUT(ProductSpace({{"x", 1, {}, {}}}), "\"x\"", "no choice");
  // One point is a space.
  const ListedSpace one({{"a", {{"", "f", {}}}, 0}});
  for (const StrategyInfo& info : strategies()) {
    const auto strategy = make_strategy(info.name, one, 1);
    CHECK(run_search(*strategy, [](int) { return AttemptCost{}; }, {}).attempts.size() == 1);
  }
}
