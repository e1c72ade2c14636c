// The matrix product by the copy engine's tiles on the host device, at sizes with tails everywhere.
#include "kernels/tma_gemm.cuh"

#include <algorithm>
#include <vector>

#include "tests/unit/gemm_case.h"
#include "tests/unit/matrix_map.h"

namespace ac::kernels {
namespace {

constexpr GemmOp plain{};
constexpr GemmOp projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true};
constexpr GemmOp qkv{.bias = true, .matrices = 3};
constexpr GemmOp swiglu{.pair = Pair::swiglu, .matrices = 2};
constexpr GemmOp geglu{.pair = Pair::geglu_erf, .bias = true, .residual = true, .matrices = 2};

// One group of four warps and two; clusters that share weights, tokens and both; rings that are
// longer and shorter than K; boxes of a whole tile and of parts.
constexpr TmaGemmPlan small{
    .tile_m = 64, .tile_n = 64, .stages = 2, .cluster_m = 1, .cluster_n = 1, .group_m = 1};
constexpr TmaGemmPlan tokens{
    .tile_m = 64, .tile_n = 128, .stages = 5, .cluster_m = 1, .cluster_n = 2, .group_m = 2};
constexpr TmaGemmPlan weights{.tile_n = 256, .stages = 3, .cluster_m = 2, .group_m = 2};
constexpr TmaGemmPlan both{
    .tile_m = 64, .tile_n = 128, .stages = 3, .cluster_m = 2, .cluster_n = 2};
// Parts of K: shares of 32, 16 and, of a pair, 16 outputs; parts that go around their ring.
constexpr TmaGemmPlan halves{
    .tile_m = 64, .tile_n = 64, .stages = 2, .cluster_m = 1, .cluster_k = 2};
constexpr TmaGemmPlan quarters{.tile_n = 64, .stages = 3, .cluster_m = 1, .cluster_k = 4};
constexpr TmaGemmPlan of_both{
    .tile_m = 64, .tile_n = 64, .stages = 2, .cluster_m = 2, .cluster_n = 2, .cluster_k = 2};
constexpr TmaGemmPlan wide{
    .tile_m = 64, .tile_n = 128, .stages = 3, .cluster_m = 1, .cluster_k = 4, .group_m = 1};
// The last parts have nothing to write: of 128 outputs two blocks write 64, of 64 four write 16.
constexpr TmaGemmPlan thirds{
    .tile_m = 64, .tile_n = 128, .stages = 2, .cluster_m = 2, .cluster_k = 3};
constexpr TmaGemmPlan sixths{.tile_n = 64, .stages = 3, .cluster_m = 1, .cluster_k = 6};

// Nobody binds the maps here.
template <GemmOp op, TmaGemmPlan plan>
void launched(GemmParams p) {
  TmaGemmParams all{};
  all.gemm = p;
  all.x = matrix_map(op.x, p.x, p.m, p.k, p.x_pitch, plan.box_m());
  for (int i = 0; i < op.matrices; ++i)
    all.weight[i] =
        matrix_map(op.x, p.matrix[i].weight, p.matrix[i].rows, p.k, p.pitch, plan.box_n(op));
  tma_gemm<op, plan>(all);
}

template <TmaGemmPlan plan>
GemmCase::Launch launch_tma(const GemmOp& op, const GemmShape& shape) {
  // As on a GPU of five multiprocessors, so that blocks take several tiles.
  const long long blocks = plan.grid(op, shape, 5);
  return {.illegal = plan.why_illegal(op, shape, 227 * 1024),
          .grid = static_cast<int>(blocks),
          .threads = plan.threads(),
          .shared_bytes = plan.shared_bytes(op),
          .cluster = plan.cluster()};
}

#define CASE(op, plan) \
  GemmCase { "tma_" #op "_" #plan, op, launched<op, plan>, launch_tma<plan> }
#define CASES(op) {CASE(op, small), CASE(op, tokens), CASE(op, weights), CASE(op, both)}

const std::vector<GemmShape> shapes = {
    {1, {1}, 8}, {64, {64}, 192}, {70, {72}, 328}, {300, {132}, 72}};

TEST_CASE("tma_gemm: tails of tokens, rows and K") {
  check_gemm(CASES(plain), shapes);
  check_gemm(CASES(plain), {{130, {129}, 72}}, {.gap = 8});
}

TEST_CASE("tma_gemm: residual, scale and soft cap") {
  check_gemm(CASES(projection), shapes, {.gap = 8, .scale = 0.22f});
  check_gemm(CASES(projection), {{80, {264}, 72}}, {.gap = 8});  // whole lines of many panels
  check_gemm(CASES(projection), {{70, {72}, 328}, {66, {33}, 64}},
             {.in_place = true, .softcap = 2});
}

TEST_CASE("tma_gemm: matrices of one x") {
  check_gemm(CASES(qkv), {{37, {32, 8, 8}, 72}, {66, {40, 33, 1}, 168}, {130, {300, 8, 70}, 64}},
             {.gap = 8});
}

TEST_CASE("tma_gemm: gate and up") {
  const std::vector<GemmShape> pairs = {
      {3, {34, 34}, 24}, {64, {64, 64}, 128}, {66, {68, 68}, 264}, {80, {264, 264}, 64}};
  check_gemm(CASES(swiglu), pairs);
  check_gemm(CASES(swiglu), {{66, {68, 68}, 264}}, {.interleaved = true, .gap = 8});
  check_gemm(CASES(geglu), {{66, {68, 68}, 264}}, {.in_place = true, .scale = 0.5f});
}

TEST_CASE("tma_gemm: an infinity and a NaN stay in their row and column; small values count") {
  check_gemm(CASES(plain), {{3, {34}, 24}, {70, {72}, 200}}, {.hostile = true, .gap = 8});
  check_gemm(CASES(plain), {{70, {72}, 328}}, {.size = 1e-6f});
}

TEST_CASE("tma_gemm: any thread schedule and order of blocks gives the same bits") {
  check_order(CASES(projection), {150, {137}, 136});
  check_order({CASE(projection, halves), CASE(projection, quarters), CASE(projection, wide)},
              {70, {72}, 328});
}

TEST_CASE("tma_gemm: parts of K, equal and not") {
  const std::vector<GemmCase> of_plain = {CASE(plain, halves), CASE(plain, quarters),
                                          CASE(plain, wide),   CASE(plain, of_both),
                                          CASE(plain, thirds), CASE(plain, sixths)};
  check_gemm(of_plain, {{1, {1}, 328}, {64, {64}, 384}, {70, {137}, 456}});
  check_gemm({CASE(plain, halves)}, {{70, {130}, 72}}, {.gap = 8});  // a step each
  check_gemm({CASE(plain, quarters), CASE(plain, of_both)}, {{3, {34}, 200}},
             {.hostile = true, .gap = 8});
  check_gemm({CASE(projection, halves), CASE(projection, quarters), CASE(projection, wide),
              CASE(projection, thirds), CASE(projection, sixths)},
             {{64, {128}, 456}}, {.gap = 8, .scale = 0.22f});
  check_gemm({CASE(projection, quarters)}, {{66, {40}, 328}}, {.in_place = true, .softcap = 2});
}

TEST_CASE("tma_gemm: parts of K, of several matrices and of gate and up") {
  check_gemm({CASE(qkv, halves), CASE(qkv, quarters), CASE(qkv, wide)},
             {{66, {40, 33, 1}, 264}, {3, {136, 8, 70}, 200}}, {.gap = 8});
  const std::vector<GemmShape> pairs = {{3, {34, 34}, 200}, {64, {64, 64}, 256}};
  check_gemm({CASE(swiglu, halves), CASE(swiglu, wide), CASE(swiglu, of_both),
              CASE(swiglu, quarters), CASE(swiglu, thirds)},
             pairs);
  check_gemm({CASE(swiglu, wide)}, {{66, {68, 68}, 264}}, {.interleaved = true, .gap = 8});
  check_gemm({CASE(geglu, halves), CASE(geglu, wide)}, {{66, {68, 68}, 264}},
             {.in_place = true, .scale = 0.5f});
}

TEST_CASE("tma_gemm: illegal plans say why") {
  const auto says = [](const char* reason, const char* word) {
    return reason != nullptr && std::string(reason).find(word) != std::string::npos;
  };
  const int most = 227 * 1024;
  CHECK(TmaGemmPlan{}.why_illegal(plain, {8, {8}, 8}, most) == nullptr);
  CHECK(says(TmaGemmPlan{}.why_illegal({.x = Type::f32}), "16-bit"));
  CHECK(says(TmaGemmPlan{}.why_illegal({.y = Type::f32}), "type of x"));
  CHECK(says(TmaGemmPlan{.tile_m = 96}.why_illegal(plain), "tile_m"));
  CHECK(says(TmaGemmPlan{.tile_n = 192}.why_illegal(plain), "tile_n"));
  CHECK(says(TmaGemmPlan{.stages = 1}.why_illegal(plain), "stages"));
  CHECK(says(TmaGemmPlan{.cluster_m = 3}.why_illegal(plain), "share"));
  CHECK(says(TmaGemmPlan{.cluster_m = 4, .cluster_n = 4}.why_illegal(plain), "cluster"));
  CHECK(says(TmaGemmPlan{.tile_n = 64, .cluster_m = 2, .cluster_k = 5}.why_illegal(plain),
             "cluster"));
  CHECK(says(TmaGemmPlan{.cluster_k = 0}.why_illegal(plain), "cluster"));
  CHECK(says(TmaGemmPlan{.tile_n = 64, .cluster_n = 4, .cluster_k = 2}.why_illegal(plain),
             "cluster"));
  CHECK(says(TmaGemmPlan{.cluster_m = 1, .cluster_k = 2}.why_illegal(plain), "256 columns"));
  const TmaGemmPlan eighths{.tile_n = 128, .stages = 3, .cluster_m = 1, .cluster_k = 8};
  CHECK(eighths.why_illegal(plain) == nullptr);
  CHECK(says(
      TmaGemmPlan{.tile_n = 128, .stages = 2, .cluster_m = 1, .cluster_k = 6}.why_illegal(plain),
      "send each other"));
  CHECK(quarters.why_illegal(plain) == nullptr);
  CHECK(quarters.why_illegal(plain, {8, {8}, 200}, most) == nullptr);
  CHECK(says(quarters.why_illegal(plain, {8, {8}, 192}, most), "no part"));
  CHECK(says(TmaGemmPlan{.group_m = 0}.why_illegal(plain), "group_m"));
  CHECK(says(TmaGemmPlan{}.why_illegal(plain, {8, {8}, 12}, most), "16 bytes"));
  CHECK(says(TmaGemmPlan{.stages = 5}.why_illegal(plain, {8, {8}, 8}, most), "shared"));
}

}  // namespace
}  // namespace ac::kernels
