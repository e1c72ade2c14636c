// The wrapper that every stage of the compiler runs through, and the checks of what they make.
#include "compile/stages.h"

#include <doctest/doctest.h>

#include "plan/planner.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/regions_models.h"

namespace ac::test {
namespace {

struct Made {
  int value = 0;
};
void verify(const Made& made, const std::string& origin) {
  if (made.value < 0) bad_input("{}: less than nothing", origin);
}
std::string print(const Made& made) { return fmt::format("{}\n", made.value); }

int run(Stages& stages, const std::string& stage, int value, const std::string& phase = {}) {
  return stages
      .run(
          stage, [&] { return Made{value}; }, [](const Made& made) { return print(made); }, phase)
      .value;
}

}  // namespace

TEST_CASE("stages: each is timed, verified, and shown if it was asked for") {
  Progress quiet(true);
  std::string shown;
  Stages stages(
      quiet, {"regions", "program"},
      [&](const std::string& name, const std::string& text) { shown += name + " " + text; });
  CHECK(run(stages, "normalise", 1) == 1);
  CHECK(run(stages, "regions", 2, "decode") == 2);
  CHECK(run(stages, "program", 3) == 3);
  CHECK(shown == "decode: regions 2\nprogram 3\n");
  REQUIRE(stages.times().size() == 3);
  CHECK(stages.times()[1].stage == "decode: regions");
  CHECK(stages.times()[1].seconds >= 0);
  CHECK_BAD_INPUT(run(stages, "program", -1, "prefill"), "prefill: program: less than nothing");
}

TEST_CASE("stages: only those that there are can be shown") {
  Progress quiet(true);
  const std::string message =
      error_of(Fault::wrong_usage, [&] { Stages(quiet, {"regions", "assembly"}); });
  CHECK(message.find("\"assembly\"") != std::string::npos);
  CHECK(message.find("incrementalise") != std::string::npos);
}

TEST_CASE("plans are checked: legal, ranked, within the bound, and complete") {
  const Regions regions = analyse(one_layer_qwen3());
  const Plans good = plan(regions, device_info("sm_90"), {.max_candidates = 8});
  CHECK_NOTHROW(verify(good, "plan"));
  const auto refuse = [&](auto change, const std::string& part) {
    Plans bad = good;
    change(bad);
    CHECK_BAD_INPUT(verify(bad, "plan"), "plan: ", part);
  };
  std::size_t large = 0;
  while (good.spaces[large].candidates.size() < 8) ++large;
  refuse([&](Plans& p) { p.options.max_candidates = 7; }, "7 are the most");
  refuse([&](Plans& p) { p.spaces[large].candidates[7].cost.microseconds = 0; },
         "is not where its rank is");
  refuse([&](Plans& p) { p.spaces[large].candidates[1] = p.spaces[large].candidates[0]; },
         "is in it twice");
  refuse([&](Plans& p) { p.device.max_shared_bytes = p.device.registers = 1; }, "is illegal");
  refuse([&](Plans& p) { p.space_of_region[0] = -1; }, "a region has no space");
  refuse([&](Plans& p) { p.neighbourhoods[0].options[0].parts[0].space = 1000; }, "has no space");
}

}  // namespace ac::test
