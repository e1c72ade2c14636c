// Trials of products of several tokens: what they ask besides, and what of them is no trial.
#include <doctest/doctest.h>

#include <algorithm>

#include "admit/judge.h"
#include "expect_error.h"
#include "ir/builder.h"
#include "small_compilation.h"
#include "tests/device/any_layout.h"
#include "tests/device/whole_step.h"

using namespace ac;
using namespace ac::test;

namespace {

// Of any number of tokens, or of one.
StepGraph projection(const Dim& tokens) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::bf16, {tokens, 64}});
  const NodeId to = b.input("to", {DType::bf16, {tokens, 37}});
  const NodeId y = b.linear(x, b.weight("w", {DType::bf16, {37, 64}}));
  step.graph.outputs = {{"y", b.binary(Op::add, to, y)}};
  return step;
}
Request request_of(const Dim& rows, int at_once, std::int64_t tokens) {
  const kernels::GemvPlan plan{
      .threads = 64, .rows = 2, .depth = 2, .resident = 64, .tokens = at_once};
  return admission_of_whole_step<GemvTask>("projection", projection(rows), false, plan, tokens)
      .quick;
}

}  // namespace

TEST_CASE("trials of several tokens: each is computed by itself too, by the kernel for one") {
  const Request several = request_of(Symbol::T, 4, 6);
  const ac::Trial& trial = several.trial;
  REQUIRE(several.sources.size() == 2);
  REQUIRE(trial.launches.size() == 1);
  REQUIRE(trial.alone.size() == 1);
  CHECK(trial.tokens == 6);
  CHECK(trial.launches[0].kernel == several.sources[0].entry);
  CHECK(trial.alone[0].kernel == several.sources[1].entry);
  CHECK(trial.launches[0].grid[1].at(6) == 2);
  CHECK(trial.all_launches().size() == 2);
  // The very kernel that a step of one token has, on the same buffers.
  const Request one = request_of(1, 1, 1);
  CHECK(one.trial.alone.empty());
  REQUIRE(one.sources.size() == 1);
  CHECK(one.sources[0].text == several.sources[1].text);
  CHECK(trial.alone[0].params == one.trial.launches[0].params);
  CHECK(trial.alone[0].pointers.size() == trial.launches[0].pointers.size());
  // Steps around a block's tokens are tried too.
  for (const std::int64_t tokens : {1, 3, 4, 5})
    CHECK(std::ranges::count(trial.other_tokens, tokens) == 1);
}

TEST_CASE("trials of several tokens: as JSON, and what is none") {
  const ac::Trial trial = request_of(Symbol::T, 2, 3).trial;
  const Json json = to_json(trial);
  CHECK(to_json(trial_from_json(json, "trial")) == json);
  CHECK(trial_from_json(json, "trial").alone == trial.alone);
  CHECK(!to_json(request_of(1, 1, 1).trial).contains("alone"));

  Json harmed = json;
  harmed["alone"][0]["threads"] = 0;
  CHECK_BAD_INPUT(trial_from_json(harmed, "trial"), "trial", "impossible block");
  harmed = json;
  harmed["alone"][0]["pointers"][0][1] = 99;
  CHECK_BAD_INPUT(trial_from_json(harmed, "trial"), "trial", "no buffer");
  harmed = json;
  harmed["alone"] = 3;
  CHECK_BAD_INPUT(trial_from_json(harmed, "trial"), "trial");
  // Half of a buffer belongs to no token.
  ac::Trial split = trial;
  split.buffers.push_back({.bytes = Count(64, 4)});
  CHECK_BAD_INPUT(verify(split, "trial"), "trial", "no part of a buffer");
  split.alone.clear();
  verify(split, "trial");
}

namespace {

StepGraph of_codes(const char* name, bool norm) {
  constexpr std::int64_t kInner = 2048, kRows = 6;  // that no trial cuts
  const Format format = find_format(name)->format;
  StepGraph step;
  Builder b(step.graph);
  NodeId x = b.input("x", {DType::bf16, {Dim(Symbol::T), kInner}});
  if (norm) x = b.rms_norm(x, b.weight("norm", {DType::bf16, {kInner}}), 1e-6, 0);
  const NodeId w = b.weight("w", {DType::bf16, {kRows, kInner}}, format, any_layout(format));
  step.graph.outputs = {{"y", b.linear(x, w)}};
  return step;
}

// What the gate says of several tokens by one plan that are to have the bits of one by another.
template <class Task>
validate::Verdict judged(const StepGraph& step, typename Task::Plan several,
                         typename Task::Plan one) {
  several.tokens = one.tokens = 5;
  const auto request = [&](const typename Task::Plan& plan) {
    return admission_of_whole_step<Task>("tokens", step, false, plan, 6).quick;
  };
  Request asked = request(several);
  const Request other = request(one);
  REQUIRE(asked.trial.buffers == other.trial.buffers);
  asked.trial.alone = other.trial.alone;
  asked.sources.push_back(other.sources.at(1));
  FreshBuilder fresh;
  KernelFiles files;
  for (const KernelSource& source : asked.sources) {
    const auto built = fresh.builder.build_all({source}, target_of(device_info("host")));
    REQUIRE(std::holds_alternative<Artifact>(built[0]));
    files[source.entry] = std::get<Artifact>(built[0]).file;
  }
  return judge(asked.trial, files);
}
template <class Task>
bool has_equal_bits(const StepGraph& step, const typename Task::Plan& several,
                    const typename Task::Plan& one) {
  const validate::Verdict verdict = judged<Task>(step, several, one);
  if (verdict.rejection) CHECK(verdict.rejection->stage == validate::Stage::same_bits);
  return verdict.admitted();
}

}  // namespace

TEST_CASE("trials of several tokens: plans of one order of sums have equal bits") {
  using kernels::MmaGemvPlan;
  const MmaGemvPlan tiles{.threads = 64, .depth = 2, .split = 2, .resident = 1};
  const MmaGemvPlan other{.threads = 128, .depth = 3, .split = 2, .resident = 2};
  const MmaGemvPlan halves{.threads = 64, .rows = 8, .depth = 2, .split = 2, .resident = 1};
  const MmaGemvPlan whole{.threads = 64, .depth = 2, .split = 1, .resident = 1};
  for (const char* format : {"u4_g128_bf16", "e2m1_g16_f8e4m3_global"}) {
    CAPTURE(format);
    const StepGraph step = of_codes(format, false);
    CHECK(has_equal_bits<MmaGemvTask>(step, other, tiles));
    CHECK(!has_equal_bits<MmaGemvTask>(step, halves, tiles));
    CHECK(!has_equal_bits<MmaGemvTask>(step, whole, tiles));
  }
  using kernels::GemvPlan, kernels::Ring;
  const GemvPlan registers{.threads = 64, .rows = 2, .depth = 2, .resident = 64};
  const GemvPlan copies{
      .threads = 128, .rows = 4, .depth = 2, .ring = Ring::async_copy, .resident = 128};
  const GemvPlan split{.threads = 64, .rows = 2, .depth = 2, .split = 2, .resident = 64};
  for (const char* format : {"plain", "u4_g128_bf16"}) {
    CAPTURE(format);
    const StepGraph step = of_codes(format, false);
    CHECK(has_equal_bits<GemvTask>(step, copies, registers));
    CHECK(!has_equal_bits<GemvTask>(step, split, registers));
  }
}
