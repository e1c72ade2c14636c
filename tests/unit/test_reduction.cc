// Reductions of rows on the host device: teams, types, odd and unaligned shapes, hostile values.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/unit/rows_case.h"

namespace ac::kernels {
namespace {

struct Square {
  AC_DEVICE float operator()(float x) const { return x * x; }
};

constexpr ReductionOp sum_f16{.y = Type::f32};
constexpr ReductionOp mean_bf16{.x = Type::bf16, .y = Type::bf16, .fold = Fold::mean};
constexpr ReductionOp max_f32{.x = Type::f32, .y = Type::f16, .fold = Fold::max};
constexpr ReductionOp squares_f16{.y = Type::f32, .fold = Fold::mean};
constexpr ReductionOp max_squares{.x = Type::bf16, .y = Type::f32, .fold = Fold::max};

constexpr ReductionPlan block8{.threads = 96, .vector = 8, .resident = 96};
constexpr ReductionPlan block1{.threads = 64, .vector = 1, .persistent = false};
constexpr ReductionPlan warp4{.team = Team::warp, .threads = 128, .vector = 4, .resident = 128};
constexpr ReductionPlan warp2{.team = Team::warp, .threads = 32, .vector = 2, .persistent = false};

#define REDUCTION_TEST_KERNELS(op, Map)                      \
  AC_REDUCTION_KERNEL(reduce_##op##_block8, op, block8, Map) \
  AC_REDUCTION_KERNEL(reduce_##op##_block1, op, block1, Map) \
  AC_REDUCTION_KERNEL(reduce_##op##_warp4, op, warp4, Map)   \
  AC_REDUCTION_KERNEL(reduce_##op##_warp2, op, warp2, Map)
REDUCTION_TEST_KERNELS(sum_f16, Identity)
REDUCTION_TEST_KERNELS(mean_bf16, Identity)
REDUCTION_TEST_KERNELS(max_f32, Identity)
REDUCTION_TEST_KERNELS(squares_f16, Square)
REDUCTION_TEST_KERNELS(max_squares, Square)

#define CASE(op, plan, squares) \
  ReductionCase { #op "_" #plan, op, plan, reduce_##op##_##plan, squares }
#define CASES(op, squares)                                                        \
  CASE(op, block8, squares), CASE(op, block1, squares), CASE(op, warp4, squares), \
      CASE(op, warp2, squares)
const std::vector<ReductionCase> cases = {CASES(sum_f16, false), CASES(mean_bf16, false),
                                          CASES(max_f32, false), CASES(squares_f16, true),
                                          CASES(max_squares, true)};

TEST_CASE("reduction: shapes, whole and unaligned") {
  for (const ReductionCase& c : cases)
    for (int columns : {1, 7, 8, 33, 256, 1001, 3000})
      for (int rows : {1, 5, 9})
        for (std::size_t skip : {0, 3})
          CHECK(run_reduction(c, {.rows = rows, .columns = columns, .skip = skip}) == "");
}

TEST_CASE("reduction: pitched rows, in every schedule") {
  for (const ReductionCase& c : cases)
    for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled})
      CHECK(run_reduction(c, {.rows = 7, .columns = 251, .pitched = true, .schedule = schedule}) ==
            "");
}

TEST_CASE("reduction: hostile values, and all of one sign") {
  using Fill = void (*)(Input&, std::size_t, std::size_t);
  const Fill one_bad = [](Input& x, std::size_t row, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) x.set(i, -2.f);
    x.set((row * 37) % columns, hostile(row));
  };
  const Fill negative = [](Input& x, std::size_t, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) x.set(i, -1.f - static_cast<float>(i % 3));
  };
  const Fill nothing = [](Input& x, std::size_t, std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) x.set(i, -INFINITY);
  };
  for (const ReductionCase& c : cases)
    for (Fill fill : {one_bad, negative, nothing})
      CHECK(run_reduction(c, {.rows = 16, .columns = 133, .fill = fill}) == "");
}

TEST_CASE("reduction: no columns, no rows") {
  for (const ReductionCase& c : cases) {
    CHECK(run_reduction(c, {.rows = 3, .columns = 0}) == "");
    CHECK(run_reduction(c, {.rows = 0, .columns = 5}) == "");
  }
}

TEST_CASE("reduction: illegal plans say why") {
  CHECK(block8.why_illegal(sum_f16) == nullptr);
  CHECK(says(ReductionPlan{.threads = 33}.why_illegal(sum_f16), "threads"));
  CHECK(says(ReductionPlan{.vector = 16}.why_illegal(sum_f16), "vector"));
  CHECK(says(ReductionPlan{.resident = 4096}.why_illegal(sum_f16), "resident"));
}

}  // namespace
}  // namespace ac::kernels
