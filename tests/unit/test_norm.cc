// RMSNorm and LayerNorm on the host device: every plan, odd and unaligned shapes, hostile values.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/unit/rows_case.h"

namespace ac::kernels {
namespace {

constexpr NormOp rms{};
constexpr NormOp rms_plain{.x = Type::f32, .weight = Type::f32, .y = Type::f32, .weighted = false};
constexpr NormOp rms_residual{
    .x = Type::bf16, .weight = Type::bf16, .y = Type::bf16, .residual = true};
constexpr NormOp layer{.norm = Norm::layer, .x = Type::f32, .weight = Type::f16, .y = Type::f16};
constexpr NormOp layer_bias{.norm = Norm::layer, .bias = true, .residual = true};
constexpr NormOp layer_f32{.norm = Norm::layer,
                           .x = Type::f32,
                           .weight = Type::f32,
                           .y = Type::f32,
                           .weighted = false,
                           .residual = true};

constexpr NormPlan registers{.kept = 2, .threads = 64, .vector = 8, .resident = 64};
constexpr NormPlan reread{
    .keep = Keep::reread, .kept = 1, .threads = 96, .vector = 4, .resident = 96};
constexpr NormPlan shared{
    .keep = Keep::shared, .kept = 1, .threads = 128, .vector = 8, .persistent = false};
constexpr NormPlan warp_registers{
    .team = Team::warp, .kept = 5, .threads = 64, .vector = 2, .resident = 64};
constexpr NormPlan warp_shared{.team = Team::warp,
                               .keep = Keep::shared,
                               .kept = 1,
                               .threads = 96,
                               .vector = 1,
                               .resident = 96};
constexpr NormPlan warp_reread{.team = Team::warp,
                               .keep = Keep::reread,
                               .kept = 1,
                               .threads = 32,
                               .vector = 8,
                               .resident = 32};
constexpr NormPlan welford_registers{
    .kept = 3, .variance = Variance::welford, .threads = 64, .vector = 4, .resident = 64};
constexpr NormPlan welford_warp{.team = Team::warp,
                                .keep = Keep::reread,
                                .kept = 1,
                                .variance = Variance::welford,
                                .threads = 64,
                                .vector = 8,
                                .resident = 64};

#define NORM_TEST_KERNELS(op)                                    \
  AC_NORM_KERNEL(norm_##op##_registers, op, registers)           \
  AC_NORM_KERNEL(norm_##op##_reread, op, reread)                 \
  AC_NORM_KERNEL(norm_##op##_shared, op, shared)                 \
  AC_NORM_KERNEL(norm_##op##_warp_registers, op, warp_registers) \
  AC_NORM_KERNEL(norm_##op##_warp_shared, op, warp_shared)       \
  AC_NORM_KERNEL(norm_##op##_warp_reread, op, warp_reread)
#define LAYER_NORM_TEST_KERNELS(op)                                    \
  NORM_TEST_KERNELS(op)                                                \
  AC_NORM_KERNEL(norm_##op##_welford_registers, op, welford_registers) \
  AC_NORM_KERNEL(norm_##op##_welford_warp, op, welford_warp)
NORM_TEST_KERNELS(rms)
NORM_TEST_KERNELS(rms_plain)
NORM_TEST_KERNELS(rms_residual)
LAYER_NORM_TEST_KERNELS(layer)
LAYER_NORM_TEST_KERNELS(layer_bias)
LAYER_NORM_TEST_KERNELS(layer_f32)

#define CASE(op, plan) \
  NormCase { #op "_" #plan, op, plan, norm_##op##_##plan }
#define CASES(op)                                                                    \
  CASE(op, registers), CASE(op, reread), CASE(op, shared), CASE(op, warp_registers), \
      CASE(op, warp_shared), CASE(op, warp_reread)
#define LAYER_CASES(op) CASES(op), CASE(op, welford_registers), CASE(op, welford_warp)
const std::vector<NormCase> cases = {
    CASES(rms),         CASES(rms_plain),        CASES(rms_residual),
    LAYER_CASES(layer), LAYER_CASES(layer_bias), LAYER_CASES(layer_f32)};

void check(const NormCase& c, const RowsShape& shape, std::string* bytes = nullptr) {
  if (c.plan.why_illegal(c.op, shape.columns, 48 * 1024) == nullptr)
    CHECK(run_norm(c, shape, bytes) == "");
}

TEST_CASE("norm: shapes, whole and unaligned") {
  for (const NormCase& c : cases)
    for (int columns : {1, 7, 8, 64, 317, 768, 1024, 2051})
      for (int rows : {1, 5})
        for (std::size_t skip : {0, 3}) check(c, {.rows = rows, .columns = columns, .skip = skip});
}

TEST_CASE("norm: weights of 1 + w, pitches, in place") {
  for (NormCase c : cases) {
    c.weight_offset = 1, c.eps = 1e-2f;
    check(c, {.rows = 7, .columns = 251, .pitched = true});
    if (c.op.x == c.op.y) check(c, {.rows = 3, .columns = 264, .in_place = true});
  }
}

TEST_CASE("norm: a mean far from zero, equal elements, zeros") {
  using Fill = void (*)(Input&, std::size_t, std::size_t);
  const Fill equal = [](Input& x, std::size_t row, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) x.set(i, static_cast<float>(row) * 0.5f);
  };
  for (NormCase c : cases) {
    check(c, {.rows = 3, .columns = 250, .fill = equal});
    c.low = 1000, c.high = 1010;
    check(c, {.rows = 3, .columns = 250});
  }
}

TEST_CASE("norm: infinities, NaN, denormal and large elements") {
  using Fill = void (*)(Input&, std::size_t, std::size_t);
  // As far as squares stay within float32.
  const Fill one_bad = [](Input& x, std::size_t row, std::size_t columns) {
    const float bad[] = {NAN, INFINITY, -INFINITY, 1e-40f, 1e15f, -6e4f};
    for (std::size_t i = 0; i < columns; ++i) x.set(i, static_cast<float>(i % 5));
    x.set(row * 29 % columns, bad[row % 6]);
  };
  for (const NormCase& c : cases) check(c, {.rows = 6, .columns = 250, .fill = one_bad});
}

TEST_CASE("norm: any thread schedule gives the same bits") {
  for (const NormCase& c : cases) {
    std::vector<std::string> outputs;
    for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
      outputs.emplace_back();
      check(c, {.rows = 9, .columns = 300, .schedule = schedule}, &outputs.back());
      CHECK(outputs.back() == outputs.front());
    }
  }
}

TEST_CASE("norm: illegal plans say why") {
  CHECK(registers.why_illegal(rms, 1024, 48 * 1024) == nullptr);
  CHECK(says(registers.why_illegal(rms, 1025, 48 * 1024), "does not fit in registers"));
  CHECK(says(registers.why_illegal(NormOp{.bias = true}), "no bias"));
  CHECK(says(welford_warp.why_illegal(rms), "no variance"));
  CHECK(says(NormPlan{.threads = 1056}.why_illegal(rms), "threads"));
  CHECK(says(NormPlan{.vector = 5}.why_illegal(rms), "vector"));
  CHECK(says(NormPlan{.resident = 1}.why_illegal(rms), "resident"));
  CHECK(says(NormPlan{.kept = 9}.why_illegal(rms), "1 to 64"));
  CHECK(says(NormPlan{.keep = Keep::shared}.why_illegal(rms), "only a row in registers"));
  CHECK(says(reread.why_illegal(rms, 0, 48 * 1024), "columns"));
  CHECK(says(shared.why_illegal(rms, 1 << 20, 48 * 1024), "shared memory"));
}

}  // namespace
}  // namespace ac::kernels
