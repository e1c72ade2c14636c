// The tiled product on weights in formats of codes, on the host device, against a loop in double
// precision that decodes the codes itself.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/gemm.cuh"
#include "tests/unit/coded_weights.h"

namespace ac::kernels {
namespace {

constexpr GemmOp e4m3_op{.weight = Type::bf16,
                         .x = Type::bf16,
                         .y = Type::f32,
                         .format = {Codes::e4m3, ScaleType::f32, false, 16, 16}};
constexpr GemmOp u8_op{.y = Type::f32,
                       .pair = Pair::swiglu,
                       .matrices = 2,
                       .format = {Codes::u8, ScaleType::f32, false, 1, 0}};
constexpr GemmOp u4_op{.y = Type::f32,
                       .bias = true,
                       .matrices = 3,
                       .format = {Codes::u4, ScaleType::f16, true, 1, 32}};
constexpr GemmOp middle_op{.weight = Type::bf16,
                           .x = Type::bf16,
                           .y = Type::f32,
                           .format = {Codes::u4, ScaleType::bf16, false, 1, 16}};

constexpr GemmOp nvfp4_op{
    .y = Type::f32,
    .pair = Pair::swiglu,
    .matrices = 2,
    .format = {.codes = Codes::e2m1, .scale = ScaleType::e4m3, .columns = 16, .global = true}};
constexpr GemmOp mxfp4_op{
    .weight = Type::bf16,
    .x = Type::bf16,
    .y = Type::f32,
    .format = {.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 32}};

constexpr GemmOp minima_op{
    .y = Type::f32,
    .pair = Pair::swiglu,
    .matrices = 2,
    .format = {
        .codes = Codes::u4, .scale = ScaleType::i8, .columns = 32, .outer = 64, .minima = true}};
constexpr GemmOp outer_op{
    .weight = Type::bf16,
    .x = Type::bf16,
    .y = Type::f32,
    .format = {.codes = Codes::u6, .scale = ScaleType::i8, .columns = 16, .outer = 32}};
constexpr GemmOp u5_op{
    .y = Type::f32,
    .bias = true,
    .matrices = 3,
    .format = {.codes = Codes::u5, .scale = ScaleType::f16, .columns = 32, .minima = true}};

constexpr GemmPlan square{.tile_m = 16, .tile_n = 32, .tile_k = 16, .thread_m = 2, .thread_n = 4};
constexpr GemmPlan odd{.tile_m = 24, .tile_n = 32, .tile_k = 5, .thread_m = 3, .thread_n = 2};

#define KERNELS(op)                                    \
  AC_GEMM_KERNEL(coded_gemm_##op##_square, op, square) \
  AC_GEMM_KERNEL(coded_gemm_##op##_odd, op, odd)
KERNELS(e4m3_op)
KERNELS(u8_op)
KERNELS(u4_op)
KERNELS(middle_op)
KERNELS(nvfp4_op)
KERNELS(mxfp4_op)
KERNELS(minima_op)
KERNELS(outer_op)
KERNELS(u5_op)

template <const GemmOp& op, const GemmPlan& plan>
void check(const char* name, void (*kernel)(CodedGemmParams), GemmShape shape, unsigned seed) {
  CAPTURE(name);
  CAPTURE(shape.k);
  REQUIRE(plan.why_illegal(op, shape, 227 * 1024) == nullptr);
  std::mt19937 random(seed);
  const int m = shape.m, k = shape.k;
  Elements x(op.x, static_cast<std::size_t>(m * k));
  x.fill(random, -1, 1);
  std::vector<CodedWeights> weights;
  std::vector<Elements> biases, outputs;
  CodedGemmParams p{};
  for (int i = 0; i < op.matrices; ++i) {
    const int rows = shape.rows[i];
    weights.emplace_back(op.format, rows, k, random);
    biases.emplace_back(op.weight, static_cast<std::size_t>(rows));
    biases.back().fill(random, -1, 1);
    outputs.emplace_back(op.y, static_cast<std::size_t>(m * rows));
    p.matrix[i] = {weights.back().codes.data(),
                   biases.back().at(0),
                   nullptr,
                   outputs.back().at(0),
                   rows,
                   rows};
  }
  for (int i = 0; i < op.matrices; ++i) weights[static_cast<std::size_t>(i)].point(p, i);
  p.m = m, p.k = k, p.pitch = k * bits_of(op.format.codes) / 8;
  p.x = x.at(0), p.x_pitch = k, p.scale = 1;
  const LaunchReport report =
      host_launch({.name = name,
                   .grid = {static_cast<unsigned>(plan.grid(op, shape))},
                   .block = {static_cast<unsigned>(plan.threads())},
                   .shared_bytes = static_cast<std::size_t>(plan.shared_bytes()),
                   .schedule = Schedule::shuffled,
                   .seed = seed},
                  kernel, p);
  REQUIRE(report.error == "");
  const bool pair = op.pair != Pair::none;
  double worst = 0;
  for (int i = 0; i < (pair ? 1 : op.matrices); ++i)
    for (int token = 0; token < m; ++token)
      for (int row = 0; row < shape.rows[i]; ++row) {
        double size = 1;
        const auto sum_of = [&](int matrix) {
          const auto at = static_cast<std::size_t>(matrix);
          double sum = op.bias ? biases[at].get(static_cast<std::size_t>(row)) : 0;
          for (int c = 0; c < k; ++c) {
            const double product =
                weights[at].get(row, c) * x.get(static_cast<std::size_t>(token * k + c));
            sum += product, size += std::fabs(product);
          }
          return sum;
        };
        double want = sum_of(i);
        if (pair) {
          const double up = sum_of(1);
          want = want / (1 + std::exp(-want)) * up;
          size *= 1 + std::fabs(up);
        }
        const double got = outputs[static_cast<std::size_t>(i)].get(
            static_cast<std::size_t>(token * shape.rows[i] + row));
        const double error = std::fabs(got - want) / size;
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
  CHECK(worst < 1e-6);
}

#define CHECK_OP(op, ...)                                                       \
  check<op, square>(#op " square", coded_gemm_##op##_square, {__VA_ARGS__}, 1); \
  check<op, odd>(#op " odd", coded_gemm_##op##_odd, {__VA_ARGS__}, 2)

}  // namespace

TEST_CASE("gemm: weights in formats of codes") {
  CHECK_OP(e4m3_op, 1, {1}, 1);
  CHECK_OP(e4m3_op, 37, {50}, 65);
  CHECK_OP(u8_op, 2, {33, 33}, 7);
  CHECK_OP(u8_op, 37, {50, 50}, 65);
  CHECK_OP(u4_op, 5, {40, 33, 1}, 2);
  CHECK_OP(u4_op, 37, {32, 8, 9}, 102);
  CHECK_OP(middle_op, 16, {35}, 16);
  CHECK_OP(middle_op, 3, {35}, 70);
  CHECK_OP(nvfp4_op, 2, {33, 33}, 18);
  CHECK_OP(nvfp4_op, 37, {50, 50}, 66);
  CHECK_OP(mxfp4_op, 3, {35}, 70);
  CHECK_OP(minima_op, 2, {33, 33}, 64);
  CHECK_OP(minima_op, 37, {50, 50}, 192);
  CHECK_OP(outer_op, 1, {1}, 32);
  CHECK_OP(outer_op, 37, {50}, 96);
  CHECK_OP(u5_op, 5, {40, 33, 1}, 8);
  CHECK_OP(u5_op, 37, {32, 8, 9}, 104);
}

TEST_CASE("gemm: of weights in a format, what crosses the bus is codes and scales") {
  const GemmShape shape{1, {64}, 128};
  const GemmOp op{.format = {Codes::u4, ScaleType::f16, true, 1, 32}};
  CHECK(gemm_bytes(op, shape) == 64 * 64 + 64 * 4 * 3 + 128 * 2 + 64 * 2);
  CHECK(gemm_bytes(minima_op, {1, {64, 64}, 128}) ==
        2 * 64 * (64 + 4 * 2 + 2 * 2 * 2) + 128 * 2 + 64 * 4);
}

}  // namespace ac::kernels
