// Kernels that read weights in a format, of every kind that planning knows, through the gate.
#include <doctest/doctest.h>

#include <set>

#include "admit/judge.h"
#include "small_compilation.h"
#include "tests/device/admission.h"
#include "tests/device/any_layout.h"
#include "tests/device/family_trials.h"
#include "tests/unit/long_run.h"

using namespace ac;
using namespace ac::test;

namespace {

// One token through products whose blocks are ragged both ways.
StepGraph ragged(const std::string& format, std::int64_t inner) {
  constexpr std::int64_t kRows = 300;
  StepGraph step;
  step.graph.name = "ragged";
  Builder b(step.graph);
  const TensorType matrix{DType::bf16, {kRows, inner}};
  const NodeId x = b.input("x", {DType::bf16, {Dim(1), Dim(inner)}});
  const NodeId normed = b.rms_norm(x, b.weight("norm", {DType::bf16, {Dim(inner)}}), 1e-5, 0);
  const auto weight = [&](const char* name) {
    const Format stored = find_format(format)->format;
    return b.weight(name, matrix, stored, any_layout(stored));
  };
  const NodeId gate = b.linear(normed, weight("gate"));
  const NodeId up = b.linear(normed, weight("up"));
  step.graph.outputs = {{"y", b.binary(Op::mul, b.unary(Op::silu, gate), up)}};
  return step;
}

// The family, and the ring or the rows of a tile.
std::string kind_of_text(const std::string& family, const std::string& text) {
  const std::size_t at =
      text.find(family == "gemv" ? "ring = Ring::" : "rows = ", text.find("Plan plan"));
  return family + " " + text.substr(at, text.find(',', at) - at);
}

void check_kinds(const std::string& format) {
  INFO(format);
  FreshBuilder fresh;
  // The host runs them all, but plans none that gain it nothing.
  Chooser chooser(device_info("sm_90"), Breadth::kinds);
  const int outer = find_format(format)->format.outer;
  chooser.add({"ragged", ragged(format, outer > 0 ? outer : 224), 1});
  chooser.add({"in whole pieces", ragged(format, 768), 1});
  std::set<std::string> kinds;
  for (const FamilyTrial& one : chooser.trials()) {
    INFO(one.what);
    if (one.family != "gemv" && one.family != "mma_gemv") continue;
    const std::string& text = one.request.sources[0].text;
    REQUIRE(text.find("codes = Codes::") != std::string::npos);
    if (!kinds.insert(kind_of_text(one.family, text)).second) continue;
    KernelFiles files;
    for (const KernelSource& source : one.request.sources) {
      const std::vector<BuildResult> built =
          fresh.builder.build_all({source}, target_of(device_info("host")));
      REQUIRE(std::holds_alternative<Artifact>(built[0]));
      files[source.entry] = std::get<Artifact>(built[0]).file;
    }
    const validate::Verdict verdict = judge(one.request.trial, files);
    CHECK_MESSAGE(verdict.admitted(), (verdict.rejection ? verdict.rejection->reason : ""));
  }
  // Tiles of 4 rows have no columns for two scales of a vector.
  const kernels::Format of = find_format(format)->format;
  CHECK(kinds.size() == (of.scales_of(128 / bits_of(of.codes)) == 1 ? 7 : 6));
}

}  // namespace

TEST_CASE("weight formats: each kind of gemv that reads codes is admitted") {
  for (const char* format :
       {"e4m3_128x128", "u8_row", "u4_g128_bf16", "u4_g32_f16_zeros", "e2m1_g16_f8e4m3_global",
        "e2m1_g32_f8e8m0", "u4_g32_i8_in256_minima", "u6_g16_i8_in256", "u5_g32_i8_in256_minima"})
    check_kinds(format);
}

// Their codes, scales and zeros are those of the formats above, in groups of other sizes.
TEST_CASE("weight formats: each kind of gemv that reads codes is admitted, of rarer formats" *
          doctest::skip(!is_long_run())) {
  for (const char* format :
       {"u4_g16_bf16", "u4_g16_i8_in256_minima", "u4_g32_f16_minima", "u5_g32_f16"})
    check_kinds(format);
}
