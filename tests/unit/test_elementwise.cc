// Elementwise chains on the host device: broadcasts, strides, types, odd and unaligned shapes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "kernels/elementwise.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {
namespace {

struct Silu {
  AC_DEVICE float operator()(float x) const { return math::silu(x); }
};
struct GatedGelu {
  AC_DEVICE float operator()(float gate, float up) const { return math::gelu_tanh(gate) * up; }
};
struct Affine {
  AC_DEVICE float operator()(float x, float scale, float shift) const {
    return math::add(math::mul(x, scale), shift);
  }
};
struct Mixture {
  AC_DEVICE float operator()(float a, float b, float c, float d) const {
    return math::where(math::less(a, b), math::sub(c, d), math::maximum(c, d));
  }
};
double truth(int inputs, const double* v) {
  if (inputs == 1) return v[0] / (1 + std::exp(-v[0]));
  if (inputs == 2)
    return 0.5 * v[0] *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (v[0] + 0.044715 * std::pow(v[0], 3)))) * v[1];
  if (inputs == 3) return v[0] * v[1] + v[2];
  if (v[0] < v[1]) return v[2] - v[3];
  return std::isnan(v[2]) || v[2] > v[3] ? v[2] : v[3];
}

constexpr ElementwiseOp one_f16{};
constexpr ElementwiseOp one_f32{.out = Type::f32, .in = {Type::f32}};
constexpr ElementwiseOp two{.out = Type::bf16, .inputs = 2, .in = {Type::bf16, Type::bf16}};
constexpr ElementwiseOp three{
    .out = Type::f16, .inputs = 3, .in = {Type::f32, Type::bf16, Type::f16}};
constexpr ElementwiseOp four{
    .out = Type::f32, .inputs = 4, .in = {Type::f32, Type::f32, Type::f16, Type::bf16}};

constexpr ElementwisePlan wide{.threads = 64, .vector = 8, .resident = 64};
constexpr ElementwisePlan deep{.threads = 32, .vector = 4, .unroll = 3, .resident = 32};
constexpr ElementwisePlan pairs{.threads = 96, .vector = 2, .unroll = 2, .persistent = false};
constexpr ElementwisePlan single{.threads = 64, .vector = 1, .unroll = 4, .resident = 64};

#define ELEMENTWISE_TEST_KERNELS(op, Chain)                   \
  AC_ELEMENTWISE_KERNEL(chain_##op##_wide, op, wide, Chain)   \
  AC_ELEMENTWISE_KERNEL(chain_##op##_deep, op, deep, Chain)   \
  AC_ELEMENTWISE_KERNEL(chain_##op##_pairs, op, pairs, Chain) \
  AC_ELEMENTWISE_KERNEL(chain_##op##_single, op, single, Chain)
ELEMENTWISE_TEST_KERNELS(one_f16, Silu)
ELEMENTWISE_TEST_KERNELS(one_f32, Silu)
ELEMENTWISE_TEST_KERNELS(two, GatedGelu)
ELEMENTWISE_TEST_KERNELS(three, Affine)
ELEMENTWISE_TEST_KERNELS(four, Mixture)

struct Case {
  const char* name;
  ElementwiseOp op;
  ElementwisePlan plan;
  void (*kernel)(ElementwiseParams);
};
#define CASE(op, plan) \
  Case { #op "_" #plan, op, plan, chain_##op##_##plan }
#define CASES(op) CASE(op, wide), CASE(op, deep), CASE(op, pairs), CASE(op, single)
const std::vector<Case> cases = {CASES(one_f16), CASES(one_f32), CASES(two), CASES(three),
                                 CASES(four)};

// How an input lies: broadcast along nothing, rows, columns or both; transposed; with a pitch.
enum class Layout { full, per_column, per_row, scalar, transposed, pitched };

std::string run(const Case& c, int rows, int columns, const std::vector<Layout>& layouts,
                std::size_t skip, bool nasty = false) {
  std::mt19937 random(7);
  const auto r = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(columns);
  std::vector<Input> inputs;
  ElementwiseParams p{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.op.inputs); ++i) {
    const Layout layout = layouts[i % layouts.size()];
    std::size_t row_stride = n, column_stride = 1;
    if (layout == Layout::per_column || layout == Layout::scalar) row_stride = 0;
    if (layout == Layout::per_row) row_stride = 1;
    if (layout == Layout::per_row || layout == Layout::scalar) column_stride = 0;
    if (layout == Layout::transposed) row_stride = 1, column_stride = r;
    if (layout == Layout::pitched) row_stride = n + 3;
    const std::size_t count = r * n == 0 ? 0 : (r - 1) * row_stride + (n - 1) * column_stride + 1;
    inputs.emplace_back(c.op.in[i], count, skip, random, -3.f, 3.f);
    if (nasty)
      for (std::size_t e = 0; e < count; ++e) inputs.back().set(e, hostile(e * (i + 1) + i));
    inputs.back().remember();
    p.in[i] = {nullptr, static_cast<long long>(row_stride), static_cast<long long>(column_stride)};
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) p.in[i].data = inputs[i].data();
  const std::size_t pitch = n + (skip == 0 ? 0 : 5);
  Output out(c.op.out, r * pitch, skip);
  p.out = out.data(), p.out_pitch = static_cast<long long>(pitch), p.rows = rows,
  p.columns = columns;
  const LaunchReport report =
      host_launch({.name = c.name,
                   .grid = {static_cast<unsigned>(c.plan.grid(rows, columns, 2))},
                   .block = {static_cast<unsigned>(c.plan.threads)},
                   .schedule = Schedule::shuffled},
                  c.kernel, p);
  if (!report.ok()) return report.error;
  for (std::size_t row = 0; row < r; ++row)
    for (std::size_t column = 0; column < pitch; ++column) {
      const double got = out.get(row * pitch + column);
      if (column >= n) {
        if (!std::isnan(got)) return fmt::format("{}: wrote between the rows", c.name);
        continue;
      }
      double v[4] = {}, largest = 0;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto at = row * static_cast<std::size_t>(p.in[i].row_stride) +
                        column * static_cast<std::size_t>(p.in[i].column_stride);
        v[i] = inputs[i].get(at), largest = std::fmax(largest, std::fabs(v[i]));
      }
      const double want = truth(c.op.inputs, v);
      const double error = nasty ? 1e-6 * std::fabs(want) + 1e-37 : 2e-6 * largest * largest;
      if (!is_close(c.op.out, got, want, error))
        return fmt::format("{} [{}, {}]: ({}, {}) is {} instead of {}", c.name, rows, columns, row,
                           column, got, want);
    }
  for (const Input& input : inputs)
    if (!input.unchanged()) return fmt::format("{}: an input changed", c.name);
  return out.intact() ? "" : fmt::format("{}: wrote outside its output", c.name);
}

const std::vector<std::pair<int, int>> shapes = {{1, 1},  {1, 64},  {3, 7},   {5, 8},  {1, 2049},
                                                 {37, 3}, {11, 72}, {2, 513}, {70, 1}, {4, 256}};

TEST_CASE("elementwise: shapes, whole and unaligned") {
  for (const Case& c : cases)
    for (const auto& [rows, columns] : shapes)
      for (std::size_t skip : {0, 1, 4}) CHECK(run(c, rows, columns, {Layout::full}, skip) == "");
}

TEST_CASE("elementwise: broadcasts and strides") {
  using enum Layout;
  const std::vector<std::vector<Layout>> layouts = {{full, per_column, per_row, scalar},
                                                    {scalar, full, per_column, per_row},
                                                    {per_row, scalar, full, transposed},
                                                    {transposed, pitched, scalar, full},
                                                    {pitched, per_row, transposed, per_column}};
  for (const Case& c : cases)
    for (const auto& l : layouts)
      for (const auto& [rows, columns] : shapes)
        for (std::size_t skip : {0, 3}) CHECK(run(c, rows, columns, l, skip) == "");
}

TEST_CASE("elementwise: hostile values") {
  for (const Case& c : cases)
    if (c.op.inputs != 2)  // its truth would need the float32 overflow of x^3
      CHECK(run(c, 3, 129, {Layout::full}, 0, true) == "");
}

TEST_CASE("elementwise: nothing to do") {
  for (const Case& c : cases) {
    CHECK(run(c, 0, 5, {Layout::full}, 0) == "");
    CHECK(run(c, 5, 0, {Layout::full}, 0) == "");
  }
}

TEST_CASE("elementwise: in place") {
  std::mt19937 random(3);
  Input x(Type::f16, 501, 1, random, -2, 2);
  std::vector<double> before;
  for (std::size_t i = 0; i < 501; ++i) before.push_back(x.get(i));
  ElementwiseParams p{
      .in = {{x.data(), 0, 1}}, .out = x.data(), .out_pitch = 501, .rows = 1, .columns = 501};
  CHECK(host_launch({.grid = {2}, .block = {64}}, chain_one_f16_wide, p).ok());
  for (std::size_t i = 0; i < 501; ++i)
    CHECK(is_close(Type::f16, x.get(i), truth(1, &before[i]), 1e-6));
}

TEST_CASE("elementwise: illegal plans say why") {
  CHECK(wide.why_illegal(four) == nullptr);
  CHECK(wide.why_illegal(four, 1 << 15, 1 << 15) == nullptr);
  CHECK(says(wide.why_illegal(ElementwiseOp{.inputs = 0}), "inputs"));
  CHECK(says(wide.why_illegal(ElementwiseOp{.inputs = 5}), "inputs"));
  CHECK(says(ElementwisePlan{.threads = 48}.why_illegal(two), "threads"));
  CHECK(says(ElementwisePlan{.threads = 2048}.why_illegal(two), "threads"));
  CHECK(says(ElementwisePlan{.vector = 3}.why_illegal(two), "vector"));
  CHECK(says(ElementwisePlan{.resident = 0}.why_illegal(two), "resident"));
  CHECK(says(ElementwisePlan{.unroll = 0}.why_illegal(two), "unroll"));
  CHECK(says(ElementwisePlan{.unroll = 4}.why_illegal(four), "registers"));
  CHECK(says(wide.why_illegal(four, -1, 5), "negative"));
  CHECK(says(single.why_illegal(four, 1 << 16, 1 << 15), "too many"));
}

}  // namespace
}  // namespace ac::kernels
