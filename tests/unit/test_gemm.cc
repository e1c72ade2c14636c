// The tiled matrix product on the host device: every type and epilogue, at sizes with tails
// everywhere.
#include <vector>

#include "tests/unit/gemm_case.h"

namespace ac::kernels {
namespace {

constexpr GemmOp plain{};
constexpr GemmOp plain_f32{.weight = Type::f32, .x = Type::f32, .y = Type::f32};
constexpr GemmOp mixed{.weight = Type::bf16, .x = Type::f32, .y = Type::f16, .bias = true};
constexpr GemmOp projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true};
constexpr GemmOp qkv{.bias = true, .matrices = 3};
constexpr GemmOp swiglu{.pair = Pair::swiglu, .matrices = 2};
constexpr GemmOp geglu{.weight = Type::f32,
                       .x = Type::f32,
                       .y = Type::f32,
                       .pair = Pair::geglu_tanh,
                       .bias = true,
                       .residual = true,
                       .matrices = 2};

constexpr GemmPlan square{.tile_m = 16, .tile_n = 32, .tile_k = 16, .thread_m = 2, .thread_n = 4};
constexpr GemmPlan single{
    .tile_m = 32, .tile_n = 16, .tile_k = 8, .thread_m = 4, .thread_n = 2, .stages = 1};
constexpr GemmPlan odd{.tile_m = 24, .tile_n = 32, .tile_k = 5, .thread_m = 3, .thread_n = 2};

#define GEMM_TEST_KERNELS(op)                    \
  AC_GEMM_KERNEL(gemm_##op##_square, op, square) \
  AC_GEMM_KERNEL(gemm_##op##_single, op, single) \
  AC_GEMM_KERNEL(gemm_##op##_odd, op, odd)
GEMM_TEST_KERNELS(plain)
GEMM_TEST_KERNELS(plain_f32)
GEMM_TEST_KERNELS(mixed)
GEMM_TEST_KERNELS(projection)
GEMM_TEST_KERNELS(qkv)
GEMM_TEST_KERNELS(swiglu)
GEMM_TEST_KERNELS(geglu)

#define CASE(op, plan) \
  GemmCase { "gemm_" #op "_" #plan, op, gemm_##op##_##plan, launch_of<plan> }
#define CASES(op) {CASE(op, square), CASE(op, single), CASE(op, odd)}

const std::vector<GemmShape> shapes = {
    {1, {1}, 1}, {2, {33}, 7}, {16, {32}, 16}, {37, {50}, 65}, {70, {17}, 33}};
const std::vector<GemmShape> pair_shapes = {
    {1, {1, 1}, 1}, {2, {33, 33}, 7}, {16, {32, 32}, 16}, {37, {50, 50}, 65}};

TEST_CASE("gemm: element types") {
  check_gemm(CASES(plain), shapes);
  check_gemm(CASES(plain_f32), shapes, {.gap = 3});
  check_gemm(CASES(mixed), shapes, {.gap = 1});
}

TEST_CASE("gemm: residual, scale and soft cap") {
  check_gemm(CASES(projection), shapes, {.gap = 2, .scale = 0.22f});
  check_gemm(CASES(projection), shapes, {.in_place = true, .softcap = 2});
}

TEST_CASE("gemm: matrices of one x") {
  check_gemm(CASES(qkv), {{1, {1, 1, 1}, 1}, {37, {32, 8, 8}, 24}, {5, {40, 33, 1}, 19}},
             {.gap = 1});
}

TEST_CASE("gemm: gate and up") {
  check_gemm(CASES(swiglu), pair_shapes);
  check_gemm(CASES(swiglu), pair_shapes, {.interleaved = true, .gap = 4});
  check_gemm(CASES(geglu), pair_shapes, {.in_place = true, .scale = 0.5f});
}

TEST_CASE("gemm: an infinity and a NaN stay in their row and column; large values add up") {
  check_gemm(CASES(plain), shapes, {.hostile = true, .gap = 1});
  check_gemm(CASES(projection), shapes, {.hostile = true});
  check_gemm(CASES(plain_f32), shapes, {.size = 1e18f});
  check_gemm(CASES(plain), shapes, {.size = 1e-6f});
}

TEST_CASE("gemm: illegal plans say why") {
  const auto says = [](const char* reason, const char* word) {
    return reason != nullptr && std::string(reason).find(word) != std::string::npos;
  };
  const GemmShape shape{8, {8, 8}, 8};
  CHECK(GemmPlan{}.why_illegal(plain, shape, 48 * 1024) == nullptr);
  CHECK(says(GemmPlan{}.why_illegal({.matrices = 4}), "1 to 3"));
  CHECK(says(GemmPlan{}.why_illegal({.pair = Pair::swiglu}), "two matrices"));
  CHECK(says(GemmPlan{.tile_m = 512}.why_illegal(plain), "1 to 256"));
  CHECK(says(GemmPlan{.tile_k = 0}.why_illegal(plain), "tile_k"));
  CHECK(says(GemmPlan{.thread_m = 5}.why_illegal(plain), "thread_m"));
  CHECK(says(GemmPlan{.thread_n = 0}.why_illegal(plain), "thread_n"));
  CHECK(says(GemmPlan{.thread_m = 16, .thread_n = 16}.why_illegal(plain), "registers"));
  CHECK(says(GemmPlan{.thread_n = 1}.why_illegal(swiglu), "even"));
  CHECK(says(GemmPlan{.thread_m = 1, .thread_n = 1}.why_illegal(plain), "1024"));
  CHECK(says(GemmPlan{.tile_k = 128, .thread_m = 8, .thread_n = 16}.why_illegal(plain), "hold"));
  CHECK(says(GemmPlan{.stages = 3}.why_illegal(plain), "stages"));
  CHECK(says(GemmPlan{.resident = 0}.why_illegal(plain), "resident"));
  CHECK(says(GemmPlan{}.why_illegal(plain, {0, {8}, 8}, 48 * 1024), "m must"));
  CHECK(says(GemmPlan{}.why_illegal(plain, {8, {8}, 0}, 48 * 1024), "k must"));
  CHECK(says(GemmPlan{}.why_illegal(qkv, {8, {8, 0, 8}, 8}, 48 * 1024), "rows"));
  CHECK(says(GemmPlan{}.why_illegal(swiglu, {8, {8, 9}, 8}, 48 * 1024), "equal"));
  CHECK(says(GemmPlan{}.why_illegal(plain, shape, 1024), "shared"));
}

}  // namespace
}  // namespace ac::kernels
