// Which steps a whole package is checked by, and two programs side by side.
#include <doctest/doctest.h>

#include <set>

#include "base/environment.h"
#include "base/temporary_folder.h"
#include "device/device.h"
#include "lab/package_check.h"
#include "lab/program_pair.h"
#include "tests/unit/toy_package.h"

using namespace ac;
using namespace ac::test;

namespace {

constexpr double kNoLimit = 1e30;

double work_of_step(const CheckStep& step) { return static_cast<double>(step.tokens + step.more); }

Program with_window() {
  Program program;
  program.max_context = 300;
  program.states = {kv_state(DType::f32, 1, 8, 8, 0, "", 300),
                    kv_state(DType::f32, 1, 8, 8, 40, "", 47)};
  program.phases = {{"prefill", 9, 32}, {"prefill to 8", 2, 8}, {"decode"}, {"decode", 1, 1, 200}};
  return program;
}

std::filesystem::path built_random() {
  KernelBuilder builder(builder_options(read_environment()));
  return std::get<Artifact>(builder.build(random_source(), {})).file;
}

}  // namespace

TEST_CASE("package check: steps end at the edges of tiles, windows, rings and phases") {
  const Program program = with_window();
  const CheckSteps chosen = check_steps(program, work_of_step, kNoLimit);
  CHECK(chosen.left_out.empty());
  std::set<std::int64_t> decoded, prompts, several;
  for (const CheckStep& step : chosen.steps) {
    CAPTURE(describe(step));
    REQUIRE(step.cached >= 0);
    REQUIRE(step.end() <= program.max_context);
    if (step.kind == CheckStep::Kind::prompt) prompts.insert(step.tokens);
    if (step.kind != CheckStep::Kind::after) continue;
    if (step.tokens > 1) several.insert(step.tokens);
    for (std::int64_t i = step.tokens == 1 ? 0 : 1; i <= step.more; ++i)
      decoded.insert(step.cached + step.tokens - 1 + i);
  }
  // One before a tile's end, at it and behind it; the window, its ring, another turn of that; where
  // other kernels begin; the last one.
  for (const std::int64_t at : {14, 15, 16, 254, 255, 256, 39, 40, 46, 47, 93, 94, 199, 200, 299}) {
    CAPTURE(at);
    CHECK(decoded.count(at) == 1);
  }
  std::set<std::int64_t> residues;
  for (const std::int64_t at : decoded)
    if (at >= 200) residues.insert(at % 16);
  CHECK(residues.size() == 16);
  for (const std::int64_t tokens : {2, 8, 9, 15, 16, 17, 31, 32}) CHECK(several.count(tokens) == 1);
  for (const std::int64_t tokens : {32, 33, 41, 48, 67, 298}) CHECK(prompts.count(tokens) == 1);
}

TEST_CASE("package check: what is too much work is left out, and the largest context is not") {
  const Program program = with_window();
  const CheckSteps all = check_steps(program, work_of_step, kNoLimit),
                   few = check_steps(program, work_of_step, 40),
                   none = check_steps(program, work_of_step, 0.5);
  CHECK(few.steps.size() + few.left_out.size() == all.steps.size());
  double work = 0;
  for (const CheckStep& step : few.steps) work += work_of_step(step);
  CHECK(work <= 40);
  CHECK(std::ranges::find(few.steps, CheckStep{CheckStep::Kind::after, 299, 1, 0}) !=
        few.steps.end());
  CHECK(none.steps.empty());
}

TEST_CASE("package check: packages that hold few tokens have steps too") {
  for (const std::int64_t room : {1, 2, 3, 5}) {
    CAPTURE(room);
    Program program;
    program.max_context = room, program.phases = {{"all", 1, room}};
    const CheckSteps chosen = check_steps(program, work_of_step, kNoLimit);
    REQUIRE(!chosen.steps.empty());
    for (const CheckStep& step : chosen.steps) CHECK(step.end() <= room);
  }
}

TEST_CASE("package check: the bound follows the type, the length of the step and the logits") {
  const std::vector<double> logits{-1, 0, 1, 2}, twice{-2, 0, 2, 4};
  const LogitBound bound = rounding_bound(DType::bf16, 100, logits);
  CHECK(rounding_bound(DType::bf16, 100, twice).mean_square ==
        doctest::Approx(2 * bound.mean_square));
  CHECK(rounding_bound(DType::f16, 100, logits).mean_square ==
        doctest::Approx(bound.mean_square / 4));
  CHECK(rounding_bound(DType::f32, 100, logits).mean_square < 1e-3 * bound.mean_square);
  CHECK(rounding_bound(DType::bf16, 400, logits).mean_square > bound.mean_square);
  // Less than a tenth of the spread for a small model, so that a wrong step is no rounding.
  CHECK(rounding_bound(DType::bf16, 30, logits).mean_square < 0.1);

  const LogitError error = error_of({-1, 0, 1.5, 2}, logits);
  CHECK(error.where == 2);
  CHECK(error.largest == 0.5);
  CHECK(error.mean_square == doctest::Approx(0.25));
  CHECK(error.over({1, 0.25}) == doctest::Approx(2));
  CHECK(error.over({0.125, 10}) == doctest::Approx(2));
}

TEST_CASE("package check: two programs agree, or the step and the logit are named") {
  const std::unique_ptr<Device> device = open_host_device();
  const TemporaryFolder folder;
  const Toy right{.window = 6, .all_logits = 4};
  // It sees one token too few, in a ring of as many slots.
  const Toy wrong{
      .chunk = right.chunk + 1, .window = right.window - 1, .all_logits = right.all_logits};
  REQUIRE(wrong.slots() == right.slots());
  right.write(folder.path() / "right"), wrong.write(folder.path() / "wrong");
  const auto pair_of = [&](const char* chosen) {
    return ProgramPair(*device, {.chosen = folder.path() / chosen,
                                 .plain = folder.path() / "right",
                                 .random = built_random(),
                                 .checkpoint = {},
                                 .roundings = 2,
                                 .step = std::nullopt});
  };
  ProgramPair same = pair_of("right"), other = pair_of("wrong");
  CHECK(same.why_not().empty());
  CHECK(same.why_random().empty());
  for (const CheckStep& step : check_steps(right.program(), work_of_step, kNoLimit).steps) {
    CAPTURE(describe(step));
    const ProgramPair::Result result = same.run(step);
    CHECK(result.fault == "");
    CHECK(result.compared >= step.more);
    CHECK(result.worst == 0);
  }
  const ProgramPair::Result result = other.run({CheckStep::Kind::after, 30, 3, 0});
  CHECK(result.fault.find("a step of 3 tokens after 30: the logit of token ") == 0);
  CHECK(result.phases == std::vector<std::string>{"prefill"});
  CHECK(result.worst > 1);
  const ProgramPair::Result rows = other.run({CheckStep::Kind::rows, 30, 3, 0});
  CHECK(rows.fault.find("row 0 of all logits of a step of 3 tokens after 30: the logit of") == 0);
  CHECK(rows.phases == std::vector<std::string>{"all logits"});
}
