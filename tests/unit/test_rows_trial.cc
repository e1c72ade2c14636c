// Trials of kernels that take several rows at once.
#include <doctest/doctest.h>

#include "admit/judge.h"
#include "admit/trials.h"
#include "court.h"
#include "expect_error.h"
#include "generate/each_row.h"
#include "ir/builder.h"
#include "small_compilation.h"
#include "tests/device/whole_step.h"

using namespace ac;
using namespace ac::test;

namespace {

// The trial of an RMS norm in a step of one token.
Request norm_of_one() {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::bf16, {Dim(1), Dim(64)}});
  step.graph.outputs = {{"y", b.rms_norm(x, b.weight("norm", {DType::bf16, {Dim(64)}}), 1e-5, 0)}};
  return admission_of_whole_step<NormTask>("norm", step, false, {.threads = 64}, 1).quick;
}

}  // namespace

TEST_CASE("trials of rows: the judged row is one of several") {
  const Request one = norm_of_one();
  const Request rows = trial_of_rows(one).value();
  CHECK(rows.trial.rows == 3);
  CHECK(rows.trial.launches[0].rows == kMostRowsAtOnce);
  CHECK(rows.trial.launches[0].kernel != one.trial.launches[0].kernel);
  CHECK(rows.trial.launches[0].params == one.trial.launches[0].params);
  Court court("kernels/each_row.cuh");
  CHECK(court.judge(rows) == "");
  const std::string row = "p.row[blockIdx.z]";
  CHECK(!court.admits(rows, 0, row, "p.row[0]"));
  CHECK(!court.admits(rows, 0, row, "p.row[blockIdx.z % 2]"));
  CHECK(!court.admits(rows, 0, row, "p.row[blockIdx.z ^ 1]"));
}

TEST_CASE("trials of rows: what chooses under a mask and what ends a step, too") {
  const Request mask = trial_of_rows(trial_of_mask(DType::bf16, 3001)).value();
  const Request advance = trial_of_rows(trial_of_advance(DType::i64, 1)).value();
  Court court("kernels/each_row.cuh");
  for (const Request* rows : {&mask, &advance}) {
    CAPTURE(rows->name);
    CHECK(court.judge(*rows) == "");
    CHECK(!court.admits(*rows, 0, "p.row[blockIdx.z]", "p.row[0]"));
    CHECK(!court.admits(*rows, 0, "p.row[blockIdx.z]", "p.row[blockIdx.z ^ 1]"));
    const Json json = to_json(rows->trial);
    CHECK(to_json(trial_from_json(json, "trial")) == json);
  }
}

TEST_CASE("trials of rows: JSON gives the same trial, and impossible rows are refused") {
  const Trial trial = trial_of_rows(norm_of_one()).value().trial;
  const Json json = to_json(trial);
  CHECK(to_json(trial_from_json(json, "trial")) == json);
  for (const auto& [field, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"rows", 0}, {"rows", 9}, {"tokens", 2}, {"other_tokens", {3}}}) {
    CAPTURE(field);
    Json harmed = json;
    harmed[field] = value;
    CHECK_BAD_INPUT(trial_from_json(harmed, "trial"), "trial");
  }
  Json harmed = json;
  harmed["launches"][0]["grid"][2] = 2;
  CHECK_BAD_INPUT(trial_from_json(harmed, "trial"), "trial");
}
