// Selection on the host device: what is tried and given up, and fallbacks for everything.
#include "compile/select.h"

#include <doctest/doctest.h>

#include <set>

#include "base/files.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

struct Fixture : FreshBuilder {
  Progress quiet{true};

  CompiledPhase select(std::size_t tries) {
    CompiledPhase phase;
    // What chooses the token can be part of the product, or not.
    phase.regions = analyse(norm_and_product(DType::f32, 70));
    phase.plans = plan(phase.regions, device_info("host"),
                       {.max_candidates = 4, .at = {.S = -1, .T = 1, .P = 0}});
    RealiseOptions options;
    options.here = false;
    options.verdicts = folder.path() / "verdicts";
    Realiser realiser(builder, options);
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
