// Choices from made-up evidence: no kernel is built, judged or timed.
#include "select/decide.h"

#include <doctest/doctest.h>

#include <cmath>

#include "regions_models.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

Outcome rejected() {
  Outcome outcome;
  outcome.kind = Outcome::Kind::rejected;
  outcome.why = "planted";
  return outcome;
}

// Candidates 0, 1 and 2, tried in this order; those named are admitted.
SpaceEvidence admitted(std::vector<int> which) {
  SpaceEvidence of;
  of.order = {2, 0, 1};
  for (const std::size_t i : of.order) {
    const auto candidate = static_cast<int>(i);
    const bool is_admitted = std::ranges::find(which, candidate) != which.end();
    of.judged.push_back({candidate, is_admitted ? Outcome{} : rejected()});
    if (is_admitted) of.trials.emplace(candidate, Trial{});
  }
  return of;
}

Space space_of_three() {
  Space space;
  for (const char* id : {"a", "b", "c"}) {
    Candidate& candidate = space.candidates.emplace_back();
    candidate.id = id;
    candidate.cost.microseconds = 10;
  }
  return space;
}

}  // namespace

TEST_CASE("decide: without a race the first in the order that is admitted wins") {
  CHECK(winner_of(admitted({0, 1, 2})) == 2);
  CHECK(winner_of(admitted({0, 1})) == 0);
  CHECK(winner_of(admitted({})) == -1);
  CHECK(leaders_of(admitted({1, 2})) == std::vector<int>{2, 1});
  CHECK(leaders_of(admitted({})) == std::vector<int>{-1});
}

TEST_CASE("decide: the fastest of a race wins, unless the fallback is as fast") {
  SpaceEvidence of = admitted({0, 1, 2});
  of.races.push_back({{0, 1, 2}, {5, 3, 4}, 6, ""});
  CHECK(winner_of(of) == 1);
  CHECK(leaders_of(of) == std::vector<int>{1, 2, 0});
  of.races.back().fallback = 3;
  CHECK(winner_of(of) == -1);
  CHECK(known_cost(space_of_three(), of, 1) == 3.0);
  of.races.push_back({{}, {}, {}, "the device was lost"});
  CHECK(is_raced(of));  // it would fail again
  CHECK(winner_of(of) == 2);
}

TEST_CASE("decide: what the final admission refused has lost, and what is left races anew") {
  SpaceEvidence of = admitted({0, 1});
  of.races.push_back({{0, 1}, {5, 3}, 6, ""});
  of.refused.emplace(1, rejected());
  CHECK(!is_raced(of));
  CHECK(winner_of(of) == 0);
  of.races.push_back({{0}, {5}, 6, ""});
  CHECK(is_raced(of));
  CHECK(winner_of(of) == 0);
  of.refused.emplace(0, rejected());
  CHECK(winner_of(of) == -1);
}

TEST_CASE("decide: a cost is measured, or predicted and corrected, or not known yet") {
  const Space space = space_of_three();
  SpaceEvidence of = admitted({0, 1});
  CHECK(known_cost(space, of, 1.5) == 15.0);
  of.races.push_back({{0, 1}, {5, 3}, 6, ""});
  CHECK(known_cost(space, of, 1.5) == 3.0);
  CHECK(!known_cost(space, admitted({}), 1));  // all were tried: there is only the fallback
  SpaceEvidence untried;
  untried.order = {0, 1, 2};
  CHECK(std::isinf(known_cost(space, untried, 1).value()));
}

TEST_CASE(
    "decide: the record has what was judged, with what the last race gave, then what was timed") {
  SpaceEvidence of = admitted({0, 1});
  of.judged.pop_back();  // of candidate 1
  of.trials.erase(1);
  of.quick = {{0, 7}, {1, 8}, {2, 9}};
  of.races.push_back({{0}, {5}, 6, ""});
  of.races.push_back({{0}, {4}, 6, ""});
  const std::vector<Attempt> attempts = attempts_of(space_of_three(), of);
  REQUIRE(attempts.size() == 3);
  CHECK(attempts[0].candidate == "c");
  CHECK(attempts[0].outcome.why == "planted");
  CHECK(!attempts[0].measured);
  CHECK(attempts[1].candidate == "a");
  CHECK(attempts[1].measured == 4.0);
  CHECK(attempts[2].candidate == "b");
  CHECK(attempts[2].outcome.kind == Outcome::Kind::unjudged);
  CHECK(attempts[2].measured == 8.0);
}

TEST_CASE("decide: the cut that costs least by what is known, whoever is predicted to be faster") {
  const Regions regions = analyse(norm_and_product(DType::f32, 70));
  const Plans plans =
      plan(regions, device_info("host"), {.max_candidates = 2, .at = {.S = -1, .T = 1, .P = 0}});
  const std::vector<FusionOption>& head = plans.neighbourhoods.at(0).options;
  REQUIRE(head.size() > 1);
  for (std::size_t wanted = 0; wanted < head.size(); ++wanted) {
    if (head[wanted].refused) continue;
    Evidence evidence;
    evidence.spaces.resize(plans.spaces.size());
    // A race was slow for all but the parts of the wanted option.
    for (SpaceEvidence& of : evidence.spaces) of.races.push_back({{}, {}, 1000, ""});
    for (const Part& part : head[wanted].parts)
      evidence.spaces[static_cast<std::size_t>(part.space)].races[0].fallback = 1;
    std::vector<int> spaces, of_cut;
    for (const Part& part : head[wanted].parts) spaces.push_back(part.space);
    for (const CoverPart& part : decide(regions, plans, evidence)) of_cut.push_back(part.space);
    CHECK(of_cut == spaces);
  }
}
