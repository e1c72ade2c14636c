// Kernels that read weights in a format, of every kind that planning knows, through the gate.
#include <doctest/doctest.h>

#include <set>

#include "admit/judge.h"
#include "small_compilation.h"
#include "tests/device/admission.h"
#include "tests/device/family_trials.h"

using namespace ac;
using namespace ac::test;

namespace {

// One token through products whose blocks are ragged both ways.
StepGraph ragged() {
  constexpr std::int64_t kInner = 208, kRows = 300;
  StepGraph step;
  step.graph.name = "ragged";
  Builder b(step.graph);
  const TensorType matrix{DType::bf16, {kRows, kInner}};
  const NodeId x = b.input("x", {DType::bf16, {Dim(1), Dim(kInner)}});
  const NodeId normed = b.rms_norm(x, b.weight("norm", {DType::bf16, {Dim(kInner)}}), 1e-5, 0);
  const NodeId gate = b.linear(normed, b.weight("gate", matrix, Format::fp8_block));
  const NodeId up = b.linear(normed, b.weight("up", matrix, Format::fp8_block));
  step.graph.outputs = {{"y", b.binary(Op::mul, b.unary(Op::silu, gate), up)}};
  return step;
}

}  // namespace

TEST_CASE("weight formats: each kind of gemv that reads FP8 is admitted") {
  FreshBuilder fresh;
  // The host runs them all, but plans none that gain it nothing.
  Chooser chooser(device_info("sm_90"), Breadth::kinds);
  chooser.add({"ragged", ragged(), 1});
  std::set<std::string> rings;
  for (const FamilyTrial& one : chooser.trials()) {
    INFO(one.what);
    if (one.family != "gemv") continue;
    REQUIRE(one.what.find("Format::fp8_block") != std::string::npos);
    KernelFiles files;
    for (const KernelSource& source : one.request.sources) {
      const std::vector<BuildResult> built =
          fresh.builder.build_all({source}, target_of(device_info("host")));
      REQUIRE(std::holds_alternative<Artifact>(built[0]));
      files[source.entry] = std::get<Artifact>(built[0]).file;
      for (const char* ring : {"none", "registers", "async_copy", "bulk_copy"})
        if (source.text.find(std::string("Ring::") + ring) != std::string::npos) rings.insert(ring);
    }
    const validate::Verdict verdict = judge(one.request.trial, files);
    CHECK_MESSAGE(verdict.admitted(), (verdict.rejection ? verdict.rejection->reason : ""));
  }
  CHECK(rings.size() == 4);
}
