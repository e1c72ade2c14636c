// The product by the copy engine's tiles on weights in formats of codes, on the host device: the
// elements are the codes' values, rounded to 16 bits.
#include <string>
#include <vector>

#include "kernels/tma_gemm.cuh"
#include "tests/unit/gemm_case.h"
#include "tests/unit/matrix_map.h"

namespace ac::kernels {
namespace {

constexpr GemmOp of_bf16(const Format& format) {
  return {.weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .format = format};
}
constexpr GemmOp e4m3_block = of_bf16({Codes::e4m3, ScaleType::f32, false, 128, 128});
constexpr GemmOp e4m3_row{.residual = true, .format = {Codes::e4m3, ScaleType::f16}};
constexpr GemmOp e4m3_all = of_bf16({Codes::e4m3, ScaleType::bf16, false, 0, 0});
constexpr GemmOp u8_row{.pair = Pair::swiglu, .matrices = 2, .format = {Codes::u8}};
constexpr GemmOp u8_zeros = of_bf16({Codes::u8, ScaleType::f32, true, 1, 32});
constexpr GemmOp u4_g128 = of_bf16({Codes::u4, ScaleType::bf16, false, 1, 128});
constexpr GemmOp u4_zeros{
    .bias = true, .matrices = 3, .format = {Codes::u4, ScaleType::f16, true, 1, 32}};
constexpr GemmOp u4_row = of_bf16({Codes::u4, ScaleType::f32, true, 1, 0});
constexpr GemmOp u4_pair{.weight = Type::bf16,
                         .x = Type::bf16,
                         .y = Type::bf16,
                         .pair = Pair::swiglu,
                         .matrices = 2,
                         .format = {Codes::u4, ScaleType::bf16, false, 1, 64}};

constexpr Format nvfp4{
    .codes = Codes::e2m1, .scale = ScaleType::e4m3, .columns = 16, .global = true};
constexpr GemmOp nvfp4_pair{.pair = Pair::swiglu, .matrices = 2, .format = nvfp4};
constexpr GemmOp nvfp4_bf16 = of_bf16(nvfp4);
constexpr GemmOp mxfp4_bf16 =
    of_bf16({.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 32});
constexpr GemmOp mxfp4_f16{
    .bias = true,
    .matrices = 3,
    .format = {.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 32}};
constexpr GemmOp u4_g16 = of_bf16({Codes::u4, ScaleType::bf16, true, 1, 16});

constexpr GemmOp u4_minima{
    .weight = Type::bf16,
    .x = Type::bf16,
    .y = Type::bf16,
    .pair = Pair::swiglu,
    .matrices = 2,
    .format = {
        .codes = Codes::u4, .scale = ScaleType::i8, .columns = 32, .outer = 64, .minima = true}};
constexpr GemmOp u6_outer{
    .bias = true,
    .matrices = 3,
    .format = {.codes = Codes::u6, .scale = ScaleType::i8, .columns = 16, .outer = 32}};
constexpr GemmOp u4_f16_minima =
    of_bf16({.codes = Codes::u4, .scale = ScaleType::f16, .columns = 16, .minima = true});
constexpr GemmOp u5_f16{.format = {.codes = Codes::u5, .scale = ScaleType::f16, .columns = 32}};
constexpr GemmOp u5_minima = of_bf16(
    {.codes = Codes::u5, .scale = ScaleType::i8, .columns = 32, .outer = 64, .minima = true});

// Tiles of which a thread has one vector and many; clusters that share tokens; rings that go round;
// parts of K.
constexpr TmaGemmPlan small{
    .tile_m = 64, .tile_n = 64, .stages = 2, .cluster_m = 1, .cluster_n = 1, .group_m = 1};
constexpr TmaGemmPlan tokens{
    .tile_m = 64, .tile_n = 128, .stages = 4, .cluster_m = 1, .cluster_n = 2, .group_m = 2};
constexpr TmaGemmPlan large{.tile_n = 256, .stages = 3, .cluster_m = 1, .group_m = 2};
constexpr TmaGemmPlan halves{
    .tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 1, .cluster_k = 2};
constexpr TmaGemmPlan thirds{
    .tile_m = 64, .tile_n = 128, .stages = 2, .cluster_m = 1, .cluster_n = 2, .cluster_k = 3};

// Nobody binds the map here.
template <GemmOp op, TmaGemmPlan plan>
void launched(CodedGemmParams p) {
  CodedTmaGemmParams all{};
  all.gemm = p;
  all.x = matrix_map(op.x, p.x, p.m, p.k, p.x_pitch, plan.box_m());
  tma_gemm<op, plan>(all);
}

template <TmaGemmPlan plan>
GemmCase::Launch launch_tma(const GemmOp& op, const GemmShape& shape) {
  return {.illegal = plan.why_illegal(op, shape, 227 * 1024),
          .grid = static_cast<int>(plan.grid(op, shape, 5)),
          .threads = plan.threads(),
          .shared_bytes = plan.shared_bytes(op),
          .cluster = plan.cluster()};
}

#define CASE(codes, plan)                                                     \
  GemmCase {                                                                  \
    .name = "tma_" #codes "_" #plan, .op = codes, .launch = launch_tma<plan>, \
    .coded = launched<codes, plan>                                            \
  }
#define CASES(codes) {CASE(codes, small), CASE(codes, tokens), CASE(codes, large)}

TEST_CASE("tma_gemm: e4m3 with scales of blocks, rows and one") {
  check_gemm(CASES(e4m3_block), {{1, {1}, 16}, {66, {137}, 400}});
  check_gemm({CASE(e4m3_row, small), CASE(e4m3_row, tokens)}, {{70, {136}, 208}}, {.gap = 8});
  check_gemm({CASE(e4m3_all, small), CASE(e4m3_all, large)}, {{130, {72}, 144}});
}

TEST_CASE("tma_gemm: 8 bits of rows and of groups with zero points") {
  check_gemm(CASES(u8_row), {{3, {34, 34}, 16}, {66, {70, 70}, 208}}, {.size = 0.1f});
  check_gemm(CASES(u8_zeros), {{66, {137}, 336}});
}

TEST_CASE("tma_gemm: 4 bits in groups, with a tail, and of rows") {
  check_gemm(CASES(u4_g128), {{1, {1}, 32}, {70, {264}, 416}, {300, {132}, 64}});
  check_gemm(CASES(u4_zeros), {{37, {32, 8, 8}, 96}, {66, {40, 133, 1}, 352}}, {.gap = 8});
  check_gemm({CASE(u4_row, small), CASE(u4_row, tokens)}, {{5, {72}, 224}});
  check_gemm(CASES(u4_pair), {{64, {64, 64}, 128}, {66, {68, 68}, 352}}, {.scale = 0.5f});
}

TEST_CASE("tma_gemm: floats of 4 bits, and groups of half a vector") {
  check_gemm(CASES(nvfp4_pair), {{3, {34, 34}, 32}, {66, {70, 70}, 352}});
  check_gemm(CASES(nvfp4_bf16), {{70, {137}, 416}});
  check_gemm(CASES(mxfp4_bf16), {{1, {1}, 32}, {70, {264}, 416}});
  check_gemm(CASES(mxfp4_f16), {{66, {40, 133, 1}, 352}});
  check_gemm(CASES(u4_g16), {{66, {137}, 352}});
}

TEST_CASE("tma_gemm: scales that are multiples of outer ones, and minima") {
  check_gemm(CASES(u4_minima), {{3, {34, 34}, 64}, {66, {70, 70}, 448}}, {.size = 0.1f});
  check_gemm(CASES(u6_outer), {{66, {40, 133, 1}, 352}});
  check_gemm(CASES(u5_f16), {{66, {137}, 352}});
  check_gemm(CASES(u5_minima), {{70, {264}, 448}});
  check_gemm(CASES(u4_f16_minima), {{70, {137}, 416}});
}

TEST_CASE("tma_gemm: parts of K of codes") {
  check_gemm({CASE(u4_g128, halves), CASE(u4_g128, thirds), CASE(u8_zeros, halves)},
             {{64, {64}, 384}, {70, {137}, 480}});
  check_gemm({CASE(u4_pair, halves), CASE(u8_row, thirds)}, {{3, {34, 34}, 224}}, {.size = 0.1f});
}

TEST_CASE("tma_gemm: of codes too, any order of threads gives the same bits") {
  check_order({CASE(u4_zeros, tokens), CASE(u4_zeros, halves)}, {70, {72, 9, 40}, 352});
  check_order({CASE(e4m3_block, large)}, {150, {137}, 144});
}

TEST_CASE("tma_gemm: illegal plans for codes say why") {
  const auto says = [](const char* reason, const char* word) {
    return reason != nullptr && std::string(reason).find(word) != std::string::npos;
  };
  const int most = 227 * 1024;
  CHECK(large.why_illegal(u4_g128, {8, {8}, 32}, most) == nullptr);
  CHECK(says(TmaGemmPlan{}.why_illegal(u4_g128), "each block"));
  CHECK(says(small.why_illegal(of_bf16({Codes::u4, ScaleType::bf16, false, 1, 4})), "words"));
  CHECK(says(small.why_illegal(of_bf16({Codes::u4, ScaleType::bf16, false, 1, 40})), "words"));
  CHECK(says(small.why_illegal(u4_g128, {8, {8}, 48}, most), "16 bytes"));
  CHECK(small.why_illegal(e4m3_block, {8, {8}, 48}, most) == nullptr);
  CHECK(says(small.why_illegal(e4m3_block, {8, {8}, 40}, most), "16 bytes"));
  // Codes take room beside the ring.
  const TmaGemmPlan four{.stages = 4, .cluster_m = 1};
  CHECK(four.why_illegal({}, {8, {8}, 32}, most) == nullptr);
  CHECK(says(four.why_illegal(u4_g128, {8, {8}, 32}, most), "shared"));
}

}  // namespace
}  // namespace ac::kernels
