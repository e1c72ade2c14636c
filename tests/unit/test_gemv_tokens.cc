// Products of several tokens by the kernels of gemv: a token's bits are those that it has by
// itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/gemv.cuh"
#include "tests/unit/elements.h"

namespace ac::kernels {
namespace {

// Results in float32, so that no rounding hides a difference.
constexpr GemvOp pair{.y = Type::f32, .norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvOp projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::f32, .bias = true, .residual = true};

constexpr GemvPlan registers{.threads = 64, .rows = 2, .depth = 3, .resident = 64};
constexpr GemvPlan copies{.threads = 64,
                          .rows = 4,
                          .depth = 2,
                          .ring = Ring::async_copy,
                          .resident = 128,
                          .persistent = false};
constexpr GemvPlan bulk{
    .threads = 64, .rows = 2, .depth = 2, .chunks = 2, .ring = Ring::bulk_copy, .resident = 64};
constexpr GemvPlan slow{
    .threads = 64, .rows = 2, .depth = 1, .ring = Ring::none, .split = 2, .resident = 64};
constexpr GemvPlan halves{.threads = 128, .rows = 2, .depth = 2, .split = 2, .resident = 128};
// More threads than vectors of x: some have no squares to sum up.
constexpr GemvPlan more{.threads = 128, .rows = 2, .depth = 3, .resident = 128};
constexpr GemvPlan most{.threads = 256, .rows = 2, .depth = 3, .resident = 256};
constexpr GemvPlan of(GemvPlan plan, int tokens) {
  plan.tokens = tokens;
  return plan;
}

// Inputs of as many tokens as any test takes.
struct Inputs {
  static constexpr int n = 37, k = 520, most = 11;

  const GemvOp& op;
  Elements x, norm_weight, bias, residual;
  std::vector<Elements> weights;

  explicit Inputs(const GemvOp& op)
      : op(op),
        x(op.x, most * k),
        norm_weight(op.weight, k),
        bias(op.weight, n),
        residual(op.y, most * n) {
    std::mt19937 random(7);
    x.fill(random, -2, 2);
    norm_weight.fill(random, 0.5f, 1.5f);
    bias.fill(random, -1, 1);
    residual.fill(random, -1, 1);
    for (int m = 0; m < op.matrices; ++m)
      weights.emplace_back(op.weight, std::size_t{n} * k), weights.back().fill(random, -1, 1);
  }

  // Of some tokens, from `first` on.
  template <class Params>
  Elements run(const GemvPlan& plan, void (*kernel)(Params), int first, int tokens) {
    Elements y(op.y, static_cast<std::size_t>(tokens) * n);
    Params p{};
    for (int m = 0; m < op.matrices; ++m) {
      const auto at = static_cast<std::size_t>(m);
      p.matrix[m] = {weights[at].at(0), op.bias ? bias.at(0) : nullptr, y.at(0), n};
    }
    p.k = p.pitch = k;
    p.x = x.at(static_cast<std::size_t>(first) * k);
    p.norm_weight = norm_weight.at(0);
    p.norm_eps = 1e-5f;
    p.scale = 1;
    p.residual = op.residual ? residual.at(static_cast<std::size_t>(first) * n) : nullptr;
    if constexpr (requires { p.tokens; }) p.tokens = tokens;
    const HostLaunch launch{.name = "tokens",
                            .grid = {static_cast<unsigned>(plan.grid(op, n, 2)),
                                     static_cast<unsigned>(divide_up(tokens, plan.tokens))},
                            .block = {static_cast<unsigned>(plan.threads)},
                            .shared_bytes = static_cast<std::size_t>(plan.shared_bytes(op, k)),
                            .schedule = Schedule::shuffled,
                            .seed = static_cast<unsigned>(tokens)};
    const LaunchReport report = host_launch(launch, kernel, p);
    REQUIRE_MESSAGE(report.ok(), report.error);
    return y;
  }
  std::string alone(const GemvPlan& plan, void (*kernel)(GemvParams), int tokens) {
    std::string bytes;
    for (int t = 0; t < tokens; ++t) bytes += run(plan, kernel, t, 1).bytes();
    return bytes;
  }
};

#define AC_ALONE(op, plan) AC_GEMV_KERNEL(op##_##plan, op, plan)
#define AC_TOKENS(op, plan, tokens) AC_GEMV_KERNEL(op##_##plan##_##tokens, op, of(plan, tokens))
#define AC_KERNELS(op, plan) \
  AC_ALONE(op, plan)         \
  AC_TOKENS(op, plan, 2)     \
  AC_TOKENS(op, plan, 3)     \
  AC_TOKENS(op, plan, 8)
AC_KERNELS(pair, registers)
AC_KERNELS(pair, bulk)
AC_KERNELS(pair, slow)
AC_KERNELS(pair, halves)
AC_KERNELS(projection, registers)
AC_KERNELS(projection, bulk)
AC_KERNELS(projection, copies)
AC_KERNELS(projection, slow)
AC_KERNELS(projection, halves)
AC_ALONE(pair, more)
AC_TOKENS(pair, most, 8)

template <GemvOp op, class Several>
void check(const GemvPlan& plan, void (*one)(GemvParams), Several two, Several three,
           Several eight) {
  Inputs inputs(op);
  const std::string alone = inputs.alone(plan, one, Inputs::most);
  for (int tokens = 1; tokens <= Inputs::most; ++tokens) {
    const std::string wanted = alone.substr(0, static_cast<std::size_t>(tokens) * Inputs::n * 4);
    CAPTURE(tokens);
    CHECK(inputs.run(of(plan, 2), two, 0, tokens).bytes() == wanted);
    CHECK(inputs.run(of(plan, 3), three, 0, tokens).bytes() == wanted);
    CHECK(inputs.run(of(plan, 8), eight, 0, tokens).bytes() == wanted);
  }
}
#define AC_CHECK(op, plan) \
  check<op>(plan, op##_##plan, op##_##plan##_2, op##_##plan##_3, op##_##plan##_8)

}  // namespace

TEST_CASE("gemv of several tokens: each has the bits that it has alone") {
  AC_CHECK(pair, registers);
  AC_CHECK(pair, bulk);
  AC_CHECK(pair, slow);
  AC_CHECK(pair, halves);
  AC_CHECK(projection, registers);
  AC_CHECK(projection, bulk);
  AC_CHECK(projection, copies);
  AC_CHECK(projection, slow);
  AC_CHECK(projection, halves);
}

TEST_CASE("gemv of several tokens: plans of one order give equal bits, others do not") {
  Inputs inputs(pair);
  const auto order = [](const GemvPlan& plan) {
    const GemvPlan::Order of = plan.order(pair, Inputs::k);
    return std::vector<int>{of.by_element, of.split, of.of_part, of.threads};
  };
  const std::string by_registers = inputs.run(registers, pair_registers, 0, 1).bytes();
  REQUIRE(order(registers) == order(bulk));
  CHECK(order(of(bulk, 8)) == order(bulk));
  CHECK(inputs.run(bulk, pair_bulk, 0, 1).bytes() == by_registers);
  REQUIRE(order(of(most, 8)) == order(more));
  REQUIRE(order(more) != order(registers));
  CHECK(inputs.run(of(most, 8), pair_most_8, 0, 8).bytes() == inputs.alone(more, pair_more, 8));
  REQUIRE(order(registers) != order(slow));
  CHECK(inputs.run(slow, pair_slow, 0, 1).bytes() != by_registers);
  REQUIRE(order(registers) != order(halves));
  CHECK(inputs.run(halves, pair_halves, 0, 1).bytes() != by_registers);
}

TEST_CASE("gemv of several tokens: what no plan can be is refused") {
  const auto why = [](const GemvPlan& plan, const GemvOp& op) {
    const char* reason = plan.why_illegal(op, Inputs::k, 232448);
    return std::string(reason ? reason : "");
  };
  CHECK(why(of(registers, 8), pair).empty());
  CHECK(why(of(registers, 9), pair) == "tokens must be 1 to 8");
  CHECK(why(of(registers, 0), pair) == "tokens must be 1 to 8");
  CHECK(why(of({.rows = 8, .depth = 4}, 5), projection) ==
        "a lane has the sum of one row and token");
  GemvOp head{.y = Type::f32, .argmax = true};
  CHECK(why(of(registers, 2), head) == "argmax is of one token");
  CHECK(std::string(
            of({.rows = 4, .ring = Ring::bulk_copy}, 8).why_illegal(projection, 12288, 232448)) ==
        "too much shared memory");
}

}  // namespace ac::kernels
