// What plan.json says, as `inspect` shows it, and that a plan.json of another program is refused.
#include <doctest/doctest.h>

#include "emit/package.h"
#include "emit/package_stages.h"
#include "emit/plan_file.h"
#include "expect_error.h"

using namespace ac;
using namespace ac::test;

namespace {

constexpr const char* kAgain = "compile the model again";

// A plan of nothing, but for what was timed.
Json plan_of_contexts() {
  Compiled compiled;
  compiled.phases.resize(3);
  CompiledPhase &prefill = compiled.phases[0], &decode = compiled.phases[2];
  prefill.spec = {"prefill", 257, 2048, 2048};
  compiled.phases[1].spec = {"prefill to 256", 2, 256, 128};
  decode.spec = {"decode", 1, 1, 1, {192, 2048, 8192, 20480}};
  decode.in_context = {
      {.context = 192, .first_us = 30.5, .us = 28.25, .timed = 17, .changed = true},
      {.context = 2048, .first_us = 41, .us = 41, .timed = 9},
      {.context = 8192, .first_us = 60, .us = 52, .timed = 11, .changed = true, .from = 4096},
      {.context = 20480, .untimed = "took longer than 180 s"}};
  prefill.cuts = {{.what = "", .us = 54.5}, {"linear | rope", 52.75, true}};
  Json plan = plan_json(compiled);
  plan["emitted"] = {{"files", 9}, {"sources", 5}};
  return plan;
}

}  // namespace

TEST_CASE("plan.json: every context of the whole step is shown, timed or not") {
  const Json plan = plan_of_contexts();
  const Json shown = stage_json(plan, PackageStage::selection, "plan.json");
  CHECK(shown.at("prefill").at("in_context") == Json::array());
  CHECK(shown.at("decode").at("cuts") == Json::array());
  CHECK(shown.at("prefill").at("cuts").at(1) ==
        Json{{"other", "linear | rope"}, {"us", 52.75}, {"taken", true}});
  const Json& contexts = shown.at("decode").at("in_context");
  REQUIRE(contexts.size() == 4);
  CHECK(contexts[0] == Json{{"context", 192},
                            {"first_us", 30.5},
                            {"us", 28.25},
                            {"timed", 17},
                            {"changed", true},
                            {"from", 0}});
  CHECK(contexts[1].at("changed") == false);
  CHECK(contexts[3] == Json{{"context", 20480}, {"untimed", "took longer than 180 s"}});

  const std::string text = stage_text(plan, PackageStage::selection, "plan.json");
  for (const char* part :
       {"what costs least by its parts", "54.50", "linear | rope", "30.50", "28.25", "the same",
        "another, from 4,096 tokens on", "20,480", "not timed: took longer than 180 s"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("plan.json: a phase is measured if all of its regions are, a package if all phases are") {
  Compiled compiled;
  compiled.phases.resize(2);
  compiled.phases[0].spec.name = "prefill", compiled.phases[1].spec.name = "decode";
  const auto measured = [&](const char* phase) {
    const Json plan = plan_json(compiled);
    return (phase ? phase_in(plan, phase) : plan).at("measured").get<bool>();
  };
  CHECK(!measured("prefill"));  // as nothing was
  Selection timed, untimed;
  timed.measured = 3.5;
  compiled.phases[0].selections = {timed, timed};
  compiled.phases[1].selections = {timed, untimed};
  CHECK(measured("prefill"));
  CHECK(!measured("decode"));
  CHECK(!measured(nullptr));
  compiled.phases[1].selections = {timed};
  CHECK(measured(nullptr));
  compiled.phases.emplace_back().selections = {untimed};
  CHECK(!measured(nullptr));
  compiled.phases[2].selections = {timed};
  CHECK(measured(nullptr));
}

TEST_CASE("plan.json: short steps of a prompt are a phase of their own in all that is shown") {
  const Json plan = plan_of_contexts();
  for (const PackageStage stage : {PackageStage::regions, PackageStage::selection,
                                   PackageStage::candidates, PackageStage::verdicts}) {
    CHECK(stage_json(plan, stage, "plan.json").contains("prefill to 256"));
    CHECK(stage_text(plan, stage, "plan.json").find("prefill to 256, a step of") !=
          std::string::npos);
  }
  CHECK(stage_json(plan, PackageStage::stats, "plan.json").contains("prefill to 256"));
  CHECK(stage_text(plan, PackageStage::stats, "plan.json")
            .starts_with("prefill  prefill to 256  decode"));
  CHECK(pinned_as(plan, "prefill to 256", "plan.json").variants.size() == 1);
  CHECK_BAD_INPUT(pinned_as(plan, "prefill to 255", "plan.json"), "no phase \"prefill to 255\"");
}

TEST_CASE("plan.json: one that lacks what this program writes is to be compiled again") {
  const Json plan = plan_of_contexts();
  const auto refused = [&](const std::string& pointer, PackageStage stage) {
    Json harmed = plan;
    const Json::json_pointer at(pointer);
    harmed.at(at.parent_pointer()).erase(at.back());
    CAPTURE(pointer);
    CHECK_BAD_INPUT(stage_json(harmed, stage, "old/plan.json"), "old/plan.json", kAgain);
    CHECK_BAD_INPUT(stage_text(harmed, stage, "old/plan.json"), "old/plan.json", kAgain);
  };
  refused("/phases", PackageStage::selection);
  refused("/phases/1/name", PackageStage::selection);
  refused("/phases/1/selections", PackageStage::stats);
  refused("/phases/0/selections", PackageStage::selection);
  refused("/phases/2/in_context", PackageStage::selection);
  refused("/phases/2/cuts", PackageStage::selection);
  for (const char* key : {"other", "us", "taken"})
    refused("/phases/0/cuts/1/" + std::string(key), PackageStage::selection);
  for (const char* key : {"context", "first_us", "us", "timed", "changed", "from"})
    refused("/phases/2/in_context/1/" + std::string(key), PackageStage::selection);
  refused("/phases/2/region_table", PackageStage::regions);
  refused("/phases/2/space_table", PackageStage::candidates);
  refused("/phases/0/ending", PackageStage::verdicts);
  refused("/phases/2/ending", PackageStage::stats);
  for (const PackageStage stage : {PackageStage::verdicts, PackageStage::stats})
    refused("/check", stage);

  CHECK_NOTHROW(plan_file(plan, "plan.json"));
  for (const char* key : {"target", "kernels", "phases", "draw", "mask", "step"}) {
    Json harmed = plan;
    harmed.erase(key);
    CAPTURE(key);
    CHECK_BAD_INPUT(plan_file(harmed, "old/plan.json"), "old/plan.json", kAgain, key);
  }
}

TEST_CASE("plan.json: a package's phases are compiled again as they were, or it is refused") {
  const Json plan = plan_of_contexts();
  Program program;
  program.max_context = 32768;
  program.phases = {
      {"prefill", 257, 2048}, {"prefill to 256", 2, 256}, {"decode"}, {"decode", 1, 1, 4096}};
  const std::vector<PhaseSpec> specs = specs_of(program, plan, "plan.json");
  CHECK(specs == std::vector<PhaseSpec>{{"prefill", 257, 2048, 2048},
                                        {"prefill to 256", 2, 256, 128},
                                        {"decode", 1, 1, 1, {192, 2048, 8192, 20480}}});
  const auto refused = [&](const char* pointer, const Json& value, const char* part) {
    Json harmed = plan;
    harmed.at(Json::json_pointer(pointer)) = value;
    CAPTURE(pointer);
    CHECK_BAD_INPUT(specs_of(program, harmed, "odd/plan.json"), "plan.json", part);
  };
  refused("/phases/0/tuned_at", 0, "steps of 0 tokens");
  refused("/phases/1/tuned_at", 257, "steps of 257 tokens");
  refused("/phases/1/tuned_at", "many", kAgain);
  refused("/phases/2/contexts", Json{5, 5}, "do not rise");
  refused("/phases/2/contexts", Json{-1}, "do not rise");
  refused("/phases/2/contexts", Json{32769}, "do not rise");
  refused("/phases/2/name", "other", "no phase \"decode\"");
}
