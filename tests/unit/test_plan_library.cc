// The library's products as candidates: which regions they can compute, at what price, and what the
// launches are.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "expect_error.h"
#include "families/list.h"
#include "fusion_option.h"
#include "plan/cover.h"
#include "plan/planner.h"
#include "regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

Plans planned_for(const Regions& regions, std::int64_t tokens, const std::string& target = "sm_90",
                  std::vector<std::string> families = {}) {
  return plan(regions, device_info(target),
              {.families = std::move(families), .at = {.S = -1, .T = tokens, .P = 1024}});
}

const Candidate* of_library(const Space& space) {
  for (const Candidate& candidate : space.candidates)
    if (family_of(candidate.choice) == LibraryTask::family) return &candidate;
  return nullptr;
}

double seconds(int m, int n, int k) {
  kernels::GemmOp op;
  const LibraryTask task{op, {m, {n}, k}};
  return predict(Implementation<LibraryTask>{task, {0, task.shape}}, device_info("sm_90"))
             .microseconds *
         1e-6;
}

}  // namespace

TEST_CASE("products of many tokens have the library among their candidates") {
  const Regions regions = analyse(published("qwen3-1.7b", false));
  const Plans plans = planned_for(regions, 2048);
  const auto space = [&](const std::string& text, std::size_t part) -> const Space& {
    return plans.spaces[static_cast<std::size_t>(option(plans, text).parts[part].space)];
  };
  // Where there is much to multiply it is behind what the copy engine feeds alone, with several
  // algorithms, and leaves room for others.
  for (const auto& [text, part] :
       {std::pair{"linear+add", 0}, std::pair{"rms_norm | linear+linear+linear", 1},
        std::pair{"rms_norm | linear+linear | silu+mul", 1}}) {
    CAPTURE(text);
    const Space& found = space(text, static_cast<std::size_t>(part));
    const auto other = std::ranges::find_if(found.candidates, [](const Candidate& candidate) {
      return family_of(candidate.choice) != TmaGemmTask::family;
    });
    REQUIRE(other != found.candidates.end());
    CHECK(family_of(other->choice) == LibraryTask::family);
    std::set<std::string> families, ids;
    for (const Candidate& candidate : found.candidates) {
      families.emplace(family_of(candidate.choice));
      if (of_library(found) && candidate.kind == of_library(found)->kind) ids.insert(candidate.id);
    }
    CHECK(families.count("mma_gemm") == 1);
    CHECK(ids.size() >= 4);
    // Few attempts are of more than one family.
    const std::vector<std::size_t> order = diverse_order(found);
    std::set<std::string_view> first;
    for (std::size_t i = 0; i < 5; ++i) first.insert(family_of(found.candidates[order[i]].choice));
    CHECK(first == std::set<std::string_view>{"cublaslt", "mma_gemm", "tma_gemm"});
  }
  // It has no pair, and no norm before a product; and one row is no business of its.
  CHECK(of_library(space("rms_norm | linear+linear+silu+mul", 1)) == nullptr);
  for (const Space& found : plans.spaces)
    for (const Candidate& candidate : found.candidates)
      if (const auto* made = std::get_if<Implementation<LibraryTask>>(&candidate.choice)) {
        CHECK(made->task.op.pair == kernels::Pair::none);
        CHECK(made->task.shape.m == 2048);
        CHECK(made->plan.chosen_for.m == 2048);
      }
  for (const Space& found : planned_for(analyse(published("qwen3-1.7b", true)), 1).spaces)
    CHECK(of_library(found) == nullptr);
}

TEST_CASE("the library's prices are near what was measured on an H100") {
  // 700 to 765 TFLOP/s of large products, 30 to 210 of 128 tokens.
  for (const auto& [n, k] : {std::pair{2048, 2048}, std::pair{6144, 2048}, std::pair{2048, 6144}}) {
    CAPTURE(n);
    CAPTURE(k);
    const double large = 2.0 * 8192 * n * k / seconds(8192, n, k) * 1e-12;
    CHECK(large > 550);
    CHECK(large < 765);
    const double small = 2.0 * 128 * n * k / seconds(128, n, k) * 1e-12;
    CHECK(small > 30);
    CHECK(small < 250);
    // Never faster than its weights can be read.
    CHECK(seconds(16, n, k) > 2.0 * n * k / device_info("sm_90").bandwidth);
  }
}

TEST_CASE("families are those that are named; on the host, the library must be") {
  const Regions regions = analyse(published("llama-3.2-1b", false));
  for (const Space& space : planned_for(regions, 64, "host").spaces)
    CHECK(of_library(space) == nullptr);
  const std::vector<std::string> some = {"cublaslt", "norm"};
  bool found = false;
  for (const Space& space : planned_for(regions, 64, "host", some).spaces) {
    for (const Candidate& candidate : space.candidates)
      if (space.signature.find("argmax") == std::string::npos)
        CHECK(std::ranges::find(some, family_of(candidate.choice)) != some.end());
    found |= of_library(space) != nullptr;
    for (const Refusal& refusal : space.refusals)
      if (refusal.family == "mma_gemm" && space.signature.find("linear") != std::string::npos)
        CHECK(!refusal.why.empty());
  }
  CHECK(found);
  CHECK_NOTHROW(check_families({"gemv", "cublaslt"}));
  const std::string text = error_of(Fault::wrong_usage, [] { check_families({"gemv", "cublas"}); });
  CHECK(text.find("cublas") != std::string::npos);
  CHECK(text.find("mma_gemm") != std::string::npos);
}

TEST_CASE("a region of several products is as many launches") {
  const Regions regions = analyse(published("qwen3-1.7b", false));
  const Plans plans = planned_for(regions, 512);
  const Part& part = option(plans, "rms_norm | linear+linear+linear").parts[1];
  const Candidate& candidate = *of_library(plans.spaces[static_cast<std::size_t>(part.space)]);
  const Generated made =
      generate_for(regions.step, part.wanted, candidate.choice, plans.options.at, {132, {}});
  CHECK(made.sources.empty());
  REQUIRE(made.launches.size() == 3);
  for (const Launch& launch : made.launches) {
    REQUIRE(launch.product);
    CHECK(why_impossible(*launch.product) == nullptr);
    CHECK(why_no_product(launch).empty());
    CHECK(launch.product->k == 2048);
    CHECK(launch.product->tuned_m == 512);
    CHECK(launch.numbers[0].value == Count(0, 1));
  }
  CHECK(made.launches[0].product->n == 2048);
  CHECK(made.launches[2].product->n == 1024);
}

TEST_CASE("a sum and a norm that products leave alone go together") {
  const Regions regions = analyse(published("llama-3.2-1b", false));
  const Plans plans = planned_for(regions, 64);
  // Products by themselves, and what is fused with them at no price that one would pay.
  const auto parts = choose_cover(regions, plans, [&](int space) -> std::optional<double> {
    if (space < 0) return std::nullopt;
    const std::string& text = plans.spaces[static_cast<std::size_t>(space)].signature;
    const bool more =
        text.find(" add(") != std::string::npos || text.find(" rms_norm(") != std::string::npos;
    return text.find(" linear(") != std::string::npos && more ? 1000.0 : 1.0;
  });
  const auto together = std::ranges::count_if(parts, [](const CoverPart& part) {
    return part.wanted && part.wanted->region.ops == std::vector<Op>{Op::add, Op::rms_norm};
  });
  CHECK(together >= 15);
}
