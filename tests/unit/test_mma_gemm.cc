// The tensor-core matrix product on the host device: rings, splits and epilogues, at sizes with
// tails everywhere.
#include <functional>
#include <vector>

#include "tests/unit/gemm_case.h"

namespace ac::kernels {
namespace {

constexpr GemmOp plain{};
constexpr GemmOp bf16_to_f32{.weight = Type::bf16, .x = Type::bf16, .y = Type::f32, .bias = true};
constexpr GemmOp projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true};
constexpr GemmOp qkv{.bias = true, .matrices = 3};
constexpr GemmOp swiglu{.pair = Pair::swiglu, .matrices = 2};
constexpr GemmOp geglu{.weight = Type::bf16,
                       .x = Type::bf16,
                       .y = Type::f32,
                       .pair = Pair::geglu_erf,
                       .bias = true,
                       .residual = true,
                       .matrices = 2};

// Rows of 16 to 128 elements in shared memory; rings that are longer and shorter than K.
constexpr MmaGemmPlan k16{.tile_m = 32, .tile_n = 16, .tile_k = 16, .warp_m = 16, .warp_n = 16};
constexpr MmaGemmPlan k32{.tile_m = 32,
                          .tile_n = 64,
                          .tile_k = 32,
                          .warp_m = 32,
                          .warp_n = 32,
                          .stages = 4,
                          .group_m = 2};
constexpr MmaGemmPlan k64{.tile_m = 16,
                          .tile_n = 32,
                          .tile_k = 64,
                          .warp_m = 16,
                          .warp_n = 32,
                          .stages = 2,
                          .group_m = 1};
constexpr MmaGemmPlan split{
    .tile_m = 48, .tile_n = 32, .tile_k = 32, .warp_m = 48, .warp_n = 16, .stages = 3, .split = 3};
constexpr MmaGemmPlan k128{
    .tile_m = 32, .tile_n = 32, .tile_k = 128, .warp_m = 16, .warp_n = 16, .stages = 2};

// Products of four warps: one group, and two by two of them; rings as short as can be, and longer.
constexpr MmaGemmPlan group{.tile_m = 64,
                            .tile_n = 64,
                            .tile_k = 64,
                            .warp_m = 16,
                            .warp_n = 64,
                            .stages = 3,
                            .tile = Tile::wgmma};
constexpr MmaGemmPlan groups{.tile_m = 128,
                             .tile_n = 128,
                             .tile_k = 64,
                             .warp_m = 16,
                             .warp_n = 64,
                             .stages = 5,
                             .split = 2,
                             .group_m = 2,
                             .tile = Tile::wgmma};
constexpr MmaGemmPlan wide{.tile_m = 64,
                           .tile_n = 128,
                           .tile_k = 64,
                           .warp_m = 16,
                           .warp_n = 128,
                           .stages = 4,
                           .tile = Tile::wgmma};

#define MMA_TEST_KERNELS(op)                  \
  AC_MMA_GEMM_KERNEL(mma_##op##_k16, op, k16) \
  AC_MMA_GEMM_KERNEL(mma_##op##_k32, op, k32) \
  AC_MMA_GEMM_KERNEL(mma_##op##_k64, op, k64) \
  AC_MMA_GEMM_KERNEL(mma_##op##_split, op, split)
MMA_TEST_KERNELS(plain)
AC_MMA_GEMM_KERNEL(mma_plain_k128, plain, k128)
MMA_TEST_KERNELS(bf16_to_f32)
MMA_TEST_KERNELS(projection)
MMA_TEST_KERNELS(qkv)
MMA_TEST_KERNELS(swiglu)
MMA_TEST_KERNELS(geglu)
#define GROUP_TEST_KERNELS(op)                    \
  AC_MMA_GEMM_KERNEL(mma_##op##_group, op, group) \
  AC_MMA_GEMM_KERNEL(mma_##op##_groups, op, groups)
GROUP_TEST_KERNELS(plain)
AC_MMA_GEMM_KERNEL(mma_plain_wide, plain, wide)
GROUP_TEST_KERNELS(projection)
GROUP_TEST_KERNELS(qkv)
GROUP_TEST_KERNELS(geglu)

#define CASE(op, plan) \
  GemmCase { "mma_" #op "_" #plan, op, mma_##op##_##plan, launch_of<plan> }
#define CASES(op) {CASE(op, k16), CASE(op, k32), CASE(op, k64), CASE(op, split)}

#define GROUP_CASES(op) {CASE(op, group), CASE(op, groups)}

// One vector of K, part of a slot, whole slots, more slots than any ring; odd numbers of rows.
const std::vector<GemmShape> shapes = {
    {1, {1}, 8}, {3, {34}, 24}, {32, {64}, 128}, {50, {37}, 136}, {97, {20}, 328}};
const std::vector<GemmShape> pair_shapes = {
    {1, {1, 1}, 8}, {3, {34, 34}, 24}, {32, {64, 64}, 128}, {50, {37, 37}, 136}};

TEST_CASE("mma_gemm: element types") {
  check_gemm(CASES(plain), shapes);
  check_gemm({CASE(plain, k128)}, shapes, {.gap = 8});
  check_gemm(CASES(bf16_to_f32), shapes, {.gap = 8});
}

TEST_CASE("mma_gemm: residual, scale and soft cap") {
  check_gemm(CASES(projection), shapes, {.gap = 8, .scale = 0.22f});
  check_gemm(CASES(projection), shapes, {.in_place = true, .softcap = 2});
}

TEST_CASE("mma_gemm: matrices of one x") {
  check_gemm(CASES(qkv), {{1, {1, 1, 1}, 8}, {37, {32, 8, 8}, 72}, {5, {40, 33, 1}, 168}},
             {.gap = 8});
}

TEST_CASE("mma_gemm: gate and up") {
  check_gemm(CASES(swiglu), pair_shapes);
  check_gemm(CASES(swiglu), pair_shapes, {.interleaved = true, .gap = 8});
  check_gemm(CASES(geglu), pair_shapes, {.in_place = true, .scale = 0.5f});
}

TEST_CASE("mma_gemm: an infinity and a NaN stay in their row and column; small values count") {
  check_gemm(CASES(plain), shapes, {.hostile = true, .gap = 8});
  check_gemm(CASES(projection), shapes, {.hostile = true});
  check_gemm(CASES(bf16_to_f32), shapes, {.size = 1e18f});
  check_gemm(CASES(plain), shapes, {.size = 1e-6f});
}

TEST_CASE("mma_gemm: products of four warps") {
  // Less than the ring, just as much, more; tails of tokens, rows and K.
  const std::vector<GemmShape> shapes = {
      {1, {1}, 8}, {3, {34}, 24}, {64, {64}, 192}, {70, {72}, 328}, {130, {132}, 456}};
  check_gemm(GROUP_CASES(plain), shapes);
  check_gemm({CASE(plain, wide)}, shapes, {.gap = 8});
  check_gemm(GROUP_CASES(projection), shapes, {.gap = 8, .scale = 0.22f});
  check_gemm(GROUP_CASES(projection), {{70, {72}, 328}}, {.in_place = true, .softcap = 2});
  check_gemm(GROUP_CASES(qkv), {{37, {32, 8, 8}, 72}, {66, {40, 33, 1}, 168}}, {.gap = 8});
  check_gemm(GROUP_CASES(geglu), {{3, {34, 34}, 24}, {64, {64, 64}, 128}, {66, {68, 68}, 264}},
             {.in_place = true, .scale = 0.5f});
  check_gemm(GROUP_CASES(plain), shapes, {.hostile = true, .gap = 8});
}

TEST_CASE("mma_gemm: any thread schedule and order of blocks gives the same bits") {
  std::vector<GemmCase> cases CASES(projection);
  for (const GemmCase& c : std::vector<GemmCase> GROUP_CASES(projection)) cases.push_back(c);
  check_order(cases, {50, {37}, 136});
}

TEST_CASE("mma_gemm: illegal plans say why") {
  const auto says = [](const char* reason, const char* word) {
    return reason != nullptr && std::string(reason).find(word) != std::string::npos;
  };
  const GemmShape shape{8, {8}, 8};
  const int most = 227 * 1024;
  CHECK(MmaGemmPlan{}.why_illegal(plain, shape, most) == nullptr);
  CHECK(says(MmaGemmPlan{}.why_illegal({.matrices = 0}), "1 to 3"));
  CHECK(says(MmaGemmPlan{}.why_illegal({.x = Type::f32}), "16-bit"));
  CHECK(says(MmaGemmPlan{}.why_illegal({.x = Type::bf16}), "one 16-bit"));
  CHECK(says(MmaGemmPlan{.tile_k = 48}.why_illegal(plain), "tile_k"));
  CHECK(says(MmaGemmPlan{.warp_n = 24}.why_illegal(plain), "whole 16"));
  CHECK(says(MmaGemmPlan{.warp_m = 48}.why_illegal(plain), "divide"));
  CHECK(says(MmaGemmPlan{.tile_m = 512}.why_illegal(plain), "256"));
  CHECK(says(MmaGemmPlan{.tile_m = 256, .tile_n = 256, .warp_m = 16}.why_illegal(plain), "1024"));
  CHECK(says(MmaGemmPlan{.warp_m = 128}.why_illegal(plain), "registers"));
  CHECK(says(MmaGemmPlan{.stages = 1}.why_illegal(plain), "stages"));
  CHECK(says(MmaGemmPlan{.split = 0}.why_illegal(plain), "split"));
  CHECK(says(MmaGemmPlan{.group_m = 0}.why_illegal(plain), "group_m"));
  CHECK(says(MmaGemmPlan{.resident = 20}.why_illegal(plain), "resident"));
  CHECK(says(MmaGemmPlan{.tile = Tile::scalar}.why_illegal(plain), "tensor cores"));
  CHECK(wide.why_illegal(plain, {8, {8}, 64}, most) == nullptr);
  const auto altered = [&](const std::function<void(MmaGemmPlan&)>& alter) {
    MmaGemmPlan plan = wide;
    alter(plan);
    return plan.why_illegal(plain);
  };
  CHECK(says(altered([](MmaGemmPlan& p) { p.tile_k = 128; }), "128 bytes"));
  CHECK(says(altered([](MmaGemmPlan& p) { p.warp_m = 32; }), "four warps"));
  CHECK(says(altered([](MmaGemmPlan& p) { p.tile_m = 32; }), "four warps"));
  CHECK(says(altered([](MmaGemmPlan& p) { p.warp_n = 32; }), "64 or 128"));
  CHECK(says(altered([](MmaGemmPlan& p) { p.stages = 2; }), "three stages"));
  CHECK(says(altered([](MmaGemmPlan& p) { p.tile_m = 256, p.resident = 2; }), "registers"));
  CHECK(says(MmaGemmPlan{}.why_illegal(plain, {8, {0}, 8}, most), "rows"));
  CHECK(says(MmaGemmPlan{}.why_illegal(plain, {8, {8}, 12}, most), "vectors"));
  CHECK(says(MmaGemmPlan{.split = 2}.why_illegal(plain, shape, most), "parts"));
  CHECK(says(MmaGemmPlan{.stages = 8}.why_illegal(plain, shape, most), "shared"));
}

}  // namespace
}  // namespace ac::kernels
