// Selection on the host device: what is tried and given up, and fallbacks for everything.
#include "compile/select.h"

#include <doctest/doctest.h>

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "emit/plan_file.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

struct Fixture : FreshBuilder {
  Progress quiet{true};

  // What chooses the token can be part of the product, or not.
  static CompiledPhase planned() {
    CompiledPhase phase;
    phase.regions = analyse(norm_and_product(DType::f32, 70));
    phase.plans = plan(phase.regions, device_info("host"),
                       {.max_candidates = 4, .at = {.S = -1, .T = 1, .P = 0}});
    return phase;
  }

  CompiledPhase select(std::size_t tries) {
    CompiledPhase phase = planned();
    Realiser realiser(builder, unmeasured());
    const std::vector<CacheSpec> caches;
    Selector selector(phase, caches, {.tries = tries}, realiser);
    selector.run(quiet);
    const Alternatives alternatives = selector.alternatives();
    selector.record({first_choice(alternatives)});
    parts = implemented(alternatives, first_choice(alternatives));
    return phase;
  }

  // As if the gate had rejected all that it has admitted so far.
  void reject_all() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "verdicts"))
      write_file(entry.path(), Json{{"kind", "rejected"}, {"why", "planted"}}.dump());
  }

  std::vector<Implemented> parts;
};

std::set<std::string> tried(const CompiledPhase& phase) {
  std::set<std::string> ids;
  for (const Selection& selection : phase.selections)
    for (const Attempt& attempt : selection.attempts) ids.insert(attempt.candidate);
  for (const Abandoned& given_up : phase.abandoned)
    for (const Attempt& attempt : given_up.attempts) ids.insert(attempt.candidate);
  return ids;
}

}  // namespace

TEST_CASE("selection: what was tried for a cut that is given up stays on record") {
  Fixture f;
  const CompiledPhase first = f.select(1);
  CHECK(first.abandoned.empty());
  REQUIRE(!tried(first).empty());
  f.reject_all();
  const CompiledPhase second = f.select(1);
  REQUIRE(!second.abandoned.empty());
  for (const Abandoned& given_up : second.abandoned) {
    CHECK(!given_up.ops.empty());
    REQUIRE(given_up.attempts.size() == 1);
    CHECK(given_up.attempts[0].outcome.why == "planted");
    for (const Selection& selection : second.selections)
      CHECK(selection.signature != given_up.signature);
  }
  for (const std::string& id : tried(first)) CHECK(tried(second).count(id) == 1);
}

TEST_CASE("selection: with no candidates, fallbacks compute everything, the token too") {
  Fixture f;
  const CompiledPhase phase = f.select(0);
  bool chooses = false;
  for (const Selection& selection : phase.selections) {
    CHECK(selection.family == "fallback");
    CHECK(!selection.trials.empty());
    chooses = chooses || selection.argmax;
  }
  CHECK(chooses);
  const Storage token{.kind = Storage::Kind::token};
  int writers = 0;
  for (const Implemented& part : f.parts)
    writers += std::ranges::find(part.made.storages, token) != part.made.storages.end();
  CHECK(writers == 1);
}

TEST_CASE("selection: what is pinned is taken, each variant with its own cut") {
  Fixture f;
  CompiledPhase phase = f.planned();
  Realiser realiser(f.builder, f.unmeasured());
  // The first cut is the whole in one kernel, the other one is in as many as there can be.
  const auto of_option = [&](const FusionOption& option, std::size_t rank) {
    std::map<std::string, std::string> candidates;
    for (const Part& part : option.parts) {
      const Space& space = phase.plans.spaces[static_cast<std::size_t>(part.space)];
      candidates[space.signature] = rank < space.candidates.size() ? space.candidates[rank].id : "";
    }
    return candidates;
  };
  const std::vector<FusionOption>& head = phase.plans.neighbourhoods.at(0).options;
  REQUIRE(head.front().parts.size() == 1);
  REQUIRE(head.back().parts.size() == 3);
  Pinned pinned;
  pinned.variants = {{.from = 0, .candidates = of_option(head.front(), 1)},
                     {.from = 70, .candidates = of_option(head.back(), 0)}};
  pinned.variants[1].candidates.begin()->second = "";  // to the fallback
  pinned.contexts = {{.context = 80, .first_us = 2, .us = 1, .from = 70}};
  const auto variants = choose_pinned(phase, {}, {}, pinned, realiser, f.quiet);
  REQUIRE(variants.size() == 2);
  CHECK(variants[0].parts.size() == 1);
  CHECK(variants[1].parts.size() == 3);
  CHECK(variants[1].from == 70);
  REQUIRE(phase.selections.size() == 4);
  REQUIRE(phase.in_context.size() == 1);
  CHECK(phase.in_context[0].context == 80);
  int fallbacks = 0;
  for (const Selection& selection : phase.selections) {
    CHECK(!selection.trials.empty());
    REQUIRE(selection.by_context.size() == 1);
    const auto [from, candidate] = selection.by_context[0];
    const auto& wanted = pinned.variants[from == 0 ? 0 : 1].candidates;
    CHECK(wanted.at(selection.signature) == candidate);
    CHECK(selection.candidate == candidate);
    fallbacks += candidate.empty();
    for (const Attempt& attempt : selection.attempts) CHECK(attempt.outcome.admitted());
  }
  CHECK(fallbacks == 1);

  const auto fails = [&](const Pinned& with) {
    CompiledPhase again;
    again.regions = phase.regions, again.plans = phase.plans;
    CHECK_THROWS_AS(choose_pinned(again, {}, {}, with, realiser, f.quiet), Error);
  };
  Pinned bad = pinned;
  bad.variants[0].candidates.begin()->second = "gemv/none";
  fails(bad);
  bad = pinned;
  bad.variants[0].candidates = {{"another region", ""}};
  fails(bad);
  f.reject_all();
  fails(pinned);
}

TEST_CASE("selection: a schedule is read from a plan, with what runs at each context") {
  const Json plan = Json::parse(R"({"prefill": {}, "prefill_short": [], "decode": {
    "in_context": [{"from": 50, "context": 60, "first_us": 3, "us": 2, "timed": 4, "changed": true},
                   {"context": 90, "untimed": "no time"}],
    "selections": [{"signature": "a", "candidate": "p"},
                   {"signature": "b", "candidate": "q",
                    "by_context": [{"from": 0, "candidate": "q"}, {"from": 50, "candidate": ""}]},
                   {"signature": "c", "candidate": "r",
                    "by_context": [{"from": 50, "candidate": "r"}]}]}})");
  const Pinned pinned = pinned_as(plan, "decode", "plan");
  using Candidates = std::map<std::string, std::string>;
  REQUIRE(pinned.variants.size() == 2);
  CHECK(pinned.variants[0].candidates == Candidates{{"a", "p"}, {"b", "q"}});
  CHECK(pinned.variants[1].candidates == Candidates{{"a", "p"}, {"b", ""}, {"c", "r"}});
  CHECK(pinned.variants[1].from == 50);
  REQUIRE(pinned.contexts.size() == 2);
  CHECK(pinned.contexts[0].us == 2);
  CHECK(pinned.contexts[0].changed);
  CHECK(pinned.contexts[1].untimed == "no time");
  CHECK_THROWS_AS(pinned_as(plan, "prefill", "plan"), Error);
}
