// Greedy sampling on the host device: ties, NaN, infinities, odd vocabularies.
#include <doctest/doctest.h>

#include "tests/unit/sampling_case.h"

#include <cmath>

namespace ac::kernels {
namespace {

constexpr SamplingOp f32_logits{};
constexpr SamplingOp f16_logits{.logits = Type::f16};
constexpr SamplingOp bf16_logits{.logits = Type::bf16};

constexpr SamplingPlan blocks{.threads = 64, .vector = 4, .resident = 64};
constexpr SamplingPlan single{.threads = 96, .vector = 1, .persistent = false};
constexpr SamplingPlan wide{.threads = 32, .vector = 8, .resident = 96};

#define SAMPLING_TEST_KERNELS(op)                      \
  AC_SAMPLING_KERNEL(sample_##op##_blocks, op, blocks) \
  AC_SAMPLING_KERNEL(sample_##op##_single, op, single) \
  AC_SAMPLING_KERNEL(sample_##op##_wide, op, wide)
SAMPLING_TEST_KERNELS(f32_logits)
SAMPLING_TEST_KERNELS(f16_logits)
SAMPLING_TEST_KERNELS(bf16_logits)

#define CASE(op, plan) \
  SamplingCase { #op "_" #plan, op, plan, sample_##op##_##plan }
#define CASES(op) CASE(op, blocks), CASE(op, single), CASE(op, wide)
const std::vector<SamplingCase> cases = {CASES(f32_logits), CASES(f16_logits), CASES(bf16_logits)};

TEST_CASE("sampling: vocabularies, whole and unaligned") {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> value(-8, 8);
  for (SamplingCase c : cases)
    for (std::size_t vocab : {1, 2, 31, 257, 1000, 3001})
      for (std::size_t skip : {0, 3}) {
        std::vector<float> logits(vocab);
        for (float& logit : logits) logit = value(random);
        c.skip = skip, ++c.seed;
        CHECK(run_sampling(c, logits) == "");
        // The largest at either end.
        logits.front() = 9;
        CHECK(run_sampling(c, logits) == "");
        logits.back() = 10;
        CHECK(run_sampling(c, logits) == "");
      }
}

TEST_CASE("sampling: ties go to the lowest index") {
  for (const SamplingCase& c : cases) {
    CHECK(run_sampling(c, std::vector<float>(1003, 0.f)) == "");
    std::vector<float> logits(1003, -5.f);
    logits[999] = logits[700] = logits[301] = 2;
    CHECK(run_sampling(c, logits) == "");
    // Zero equals minus zero.
    for (float zero : {0.f, -0.f}) {
      logits.assign(1003, -1.f);
      logits[5] = zero, logits[600] = -zero;
      CHECK(run_sampling(c, logits) == "");
    }
    CHECK(run_sampling(c, std::vector<float>(77, -INFINITY)) == "");
  }
}

TEST_CASE("sampling: the first logit that is not finite is named instead of a token") {
  const float minus_nan = __uint_as_float(0xffc00000u);
  for (const SamplingCase& c : cases) {
    for (const float bad : {NAN, minus_nan, INFINITY, -INFINITY})
      for (const std::size_t at : {0, 1, 400, 1002}) {
        std::vector<float> logits(1003, 1.f);
        logits[500] = 2;
        logits[at] = bad;
        CHECK(run_sampling(c, logits) == "");
        logits[1001] = logits[600] = -INFINITY, logits[601] = NAN, logits[602] = INFINITY;
        CHECK(run_sampling(c, logits) == "");
      }
    CHECK(run_sampling(c, std::vector<float>(1003, NAN)) == "");
  }
}

TEST_CASE("sampling: what a bad token says") {
  for (const int row : {0, 1, 77, most_logits - 1})
    for (const BadLogit what : {BadLogit::nan, BadLogit::infinity, BadLogit::minus_infinity}) {
      const int token = bad_token(row, what);
      CHECK(token < 0);
      CHECK(bad_row(token) == row);
      CHECK(bad_logit(token) == what);
    }
}

TEST_CASE("sampling: illegal plans say why") {
  CHECK(blocks.why_illegal(f32_logits) == nullptr);
  CHECK(says(SamplingPlan{.threads = 40}.why_illegal(f32_logits), "threads"));
  CHECK(says(SamplingPlan{.vector = 6}.why_illegal(f32_logits), "vector"));
  CHECK(says(SamplingPlan{.resident = -1}.why_illegal(f32_logits), "resident"));
}

}  // namespace
}  // namespace ac::kernels
