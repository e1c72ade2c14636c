// Softmax on the host device: every plan, odd and unaligned shapes, masks, hostile values.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/unit/rows_case.h"

namespace ac::kernels {
namespace {

constexpr SoftmaxOp f16_op{};
constexpr SoftmaxOp bf16_op{.x = Type::bf16, .y = Type::bf16};
constexpr SoftmaxOp f32_op{.x = Type::f32, .y = Type::f32};
constexpr SoftmaxOp mixed_op{.x = Type::f32, .y = Type::bf16};

constexpr SoftmaxPlan online{.threads = 96, .vector = 8, .resident = 96};
constexpr SoftmaxPlan twice{
    .passes = SoftmaxPasses::two, .threads = 64, .vector = 2, .persistent = false};
constexpr SoftmaxPlan registers{
    .keep = Keep::registers, .kept = 4, .threads = 64, .vector = 4, .resident = 64};
constexpr SoftmaxPlan warp_registers{.team = Team::warp,
                                     .passes = SoftmaxPasses::two,
                                     .keep = Keep::registers,
                                     .kept = 3,
                                     .threads = 128,
                                     .vector = 8,
                                     .resident = 128};
constexpr SoftmaxPlan shared{.passes = SoftmaxPasses::two,
                             .keep = Keep::shared,
                             .threads = 128,
                             .vector = 8,
                             .resident = 128};
constexpr SoftmaxPlan warp_shared{
    .team = Team::warp, .keep = Keep::shared, .threads = 64, .vector = 1, .resident = 64};

#define SOFTMAX_TEST_KERNELS(op)                                       \
  AC_SOFTMAX_KERNEL(softmax_##op##_online, op, online)                 \
  AC_SOFTMAX_KERNEL(softmax_##op##_twice, op, twice)                   \
  AC_SOFTMAX_KERNEL(softmax_##op##_registers, op, registers)           \
  AC_SOFTMAX_KERNEL(softmax_##op##_warp_registers, op, warp_registers) \
  AC_SOFTMAX_KERNEL(softmax_##op##_shared, op, shared)                 \
  AC_SOFTMAX_KERNEL(softmax_##op##_warp_shared, op, warp_shared)
SOFTMAX_TEST_KERNELS(f16_op)
SOFTMAX_TEST_KERNELS(bf16_op)
SOFTMAX_TEST_KERNELS(f32_op)
SOFTMAX_TEST_KERNELS(mixed_op)

#define CASE(op, plan) \
  SoftmaxCase { #op "_" #plan, op, plan, softmax_##op##_##plan }
#define CASES(op)                                                                   \
  CASE(op, online), CASE(op, twice), CASE(op, registers), CASE(op, warp_registers), \
      CASE(op, shared), CASE(op, warp_shared)
const std::vector<SoftmaxCase> cases = {CASES(f16_op), CASES(bf16_op), CASES(f32_op),
                                        CASES(mixed_op)};

void check(const SoftmaxCase& c, const RowsShape& shape, std::string* bytes = nullptr) {
  if (c.plan.why_illegal(c.op, shape.columns, 48 * 1024) == nullptr)
    CHECK(run_softmax(c, shape, bytes) == "");
}

TEST_CASE("softmax: shapes, whole and unaligned") {
  for (const SoftmaxCase& c : cases)
    for (int columns : {1, 7, 8, 33, 256, 771, 1024, 3001})
      for (int rows : {1, 5})
        for (std::size_t skip : {0, 3}) check(c, {.rows = rows, .columns = columns, .skip = skip});
}

TEST_CASE("softmax: scales, pitches, in place") {
  for (SoftmaxCase c : cases)
    for (float scale : {0.125f, 30.f, -2.f, 0.f}) {
      c.scale = scale;
      check(c, {.rows = 7, .columns = 251, .pitched = true});
      if (c.op.x == c.op.y) check(c, {.rows = 3, .columns = 264, .in_place = true});
    }
}

TEST_CASE("softmax: masked, huge and tiny elements") {
  using Fill = void (*)(Input&, std::size_t, std::size_t);
  // The mask hides the first elements, the last ones, all but one, or all.
  const Fill masked = [](Input& x, std::size_t row, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) {
      const bool hidden = row == 0   ? i < columns / 2
                          : row == 1 ? i > columns / 2
                          : row == 2 ? i != columns - 1
                                     : row == 3;
      x.set(i, hidden ? -INFINITY : static_cast<float>(i % 11));
    }
  };
  const Fill huge = [](Input& x, std::size_t row, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) x.set(i, (row % 2 ? -1.f : 1.f) * 3e4f);
    x.set(row % columns, row < 2 ? 6e4f : -6e4f);
  };
  const Fill one_bad = [](Input& x, std::size_t row, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) x.set(i, static_cast<float>(i % 5));
    x.set(row * 13 % columns, hostile(row));
  };
  const Fill rising = [](Input& x, std::size_t row, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i)
      x.set(i, static_cast<float>(row % 2 ? columns - i : i) * 0.25f);
  };
  for (const SoftmaxCase& c : cases)
    for (int columns : {9, 250})
      for (Fill fill : {masked, huge, one_bad, rising})
        check(c, {.rows = fill == one_bad ? 16 : 5, .columns = columns, .fill = fill});
}

TEST_CASE("softmax: any thread schedule gives the same bits") {
  for (const SoftmaxCase& c : cases) {
    std::vector<std::string> outputs;
    for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
      outputs.emplace_back();
      check(c, {.rows = 9, .columns = 500, .schedule = schedule}, &outputs.back());
      CHECK(outputs.back() == outputs.front());
    }
  }
}

TEST_CASE("softmax: illegal plans say why") {
  CHECK(online.why_illegal(f16_op, 1 << 20, 48 * 1024) == nullptr);
  CHECK(says(SoftmaxPlan{.threads = 0}.why_illegal(f16_op), "threads"));
  CHECK(says(SoftmaxPlan{.vector = 0}.why_illegal(f16_op), "vector"));
  CHECK(says(SoftmaxPlan{.resident = 16}.why_illegal(f16_op), "resident"));
  CHECK(says(SoftmaxPlan{.keep = Keep::registers, .kept = 0}.why_illegal(f16_op), "1 to 64"));
  CHECK(says(SoftmaxPlan{.keep = Keep::registers, .kept = 9}.why_illegal(f16_op), "1 to 64"));
  CHECK(says(SoftmaxPlan{.kept = 2}.why_illegal(f16_op), "only a row in registers"));
  CHECK(says(online.why_illegal(f16_op, 0, 48 * 1024), "columns"));
  CHECK(says(registers.why_illegal(f16_op, 1025, 48 * 1024), "does not fit in registers"));
  CHECK(registers.why_illegal(f16_op, 1024, 48 * 1024) == nullptr);
  CHECK(says(shared.why_illegal(f16_op, 20000, 48 * 1024), "shared memory"));
}

}  // namespace
}  // namespace ac::kernels
