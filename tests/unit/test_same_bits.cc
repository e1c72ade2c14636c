// The gate on subjects of several rows, of which each must have the bits that it has by itself.
#include <doctest/doctest.h>

#include <functional>

#include "base/half.h"
#include "gate_case.h"
#include "validate/buffers.h"
#include "validate/gate.h"

using namespace ac;
using namespace ac::validate;
using namespace ac::test;

namespace {

constexpr std::int64_t kTokens = 3, kRows = 12, kInner = 40;
enum Place : std::size_t { kX, kW, kY };

// One row of y = W x, added up from the front or from the back.
void add_up(const Buffers& buffers, std::size_t row, bool from_back, std::size_t x_row) {
  for (std::size_t n = 0; n < kRows; ++n) {
    float sum = 0;
    for (std::size_t j = 0; j < kInner; ++j) {
      const std::size_t i = from_back ? kInner - 1 - j : j;
      sum += static_cast<float>(get(buffers[kW], DType::f32, n * kInner + i)) *
             static_cast<float>(get(buffers[kX], DType::f32, x_row * kInner + i));
    }
    set(buffers[kY], DType::bf16, row * kRows + n, sum);
  }
}

// Several rows, of which each must have the bits that it has by itself.
Subject rows_of(const std::function<void(const Buffers&, std::size_t row)>& together) {
  Subject subject;
  subject.tensors = {
      {.name = "x", .shape = {kTokens, kInner}},
      {.name = "w", .shape = {kRows, kInner}, .role = TensorRole::weight},
      {.name = "y", .dtype = DType::bf16, .shape = {kTokens, kRows}, .role = TensorRole::output}};
  const auto evaluate = [](const Elements& in, bool plain) {
    Elements out(3);
    for (std::size_t t = 0; t < kTokens; ++t)
      for (std::size_t n = 0; n < kRows; ++n) {
        double sum = 0;
        for (std::size_t i = 0; i < kInner; ++i)
          sum += in[kX][t * kInner + i] * in[kW][n * kInner + i];
        out[kY].push_back(plain ? round_by_float(DType::bf16, sum) : sum);
      }
    return out;
  };
  subject.truth = [evaluate](const Elements& in) { return evaluate(in, false); };
  subject.plain = [evaluate](const Elements& in) { return evaluate(in, true); };
  subject.rows = kTokens;
  subject.run = [together](const Buffers& buffers, unsigned) -> std::string {
    for (std::size_t t = 0; t < kTokens; ++t) together(buffers, t);
    return "";
  };
  subject.run_alone = [](const Buffers& buffers, std::int64_t row, unsigned) -> std::string {
    add_up(buffers, static_cast<std::size_t>(row), false, static_cast<std::size_t>(row));
    return "";
  };
  return subject;
}

TEST_CASE("gate: a row has the bits that it has by itself") {
  const Subject same = rows_of([](const Buffers& b, std::size_t t) { add_up(b, t, false, t); });
  CHECK(admit(same).admitted());
  // As exact, and seen although results have 8 bits.
  Subject other = rows_of([](const Buffers& b, std::size_t t) { add_up(b, t, t == 2, t); });
  const Rejection rejection = rejected(other);
  CHECK(rejection.stage == Stage::same_bits);
  CHECK(rejection.tensor == "y");
  CHECK(rejection.index >= 2 * kRows);
  CHECK(says(rejection, "by itself"));
  CHECK(to_string(rejection.stage) == "same bits");
  // Whoever promises nothing may do that.
  other.run_alone = nullptr;
  CHECK(admit(other).admitted());

  const Subject swapped = rows_of([](const Buffers& b, std::size_t t) {
    add_up(b, t, false, t == 0 ? 1 : t == 1 ? 0 : t);
  });
  CHECK(rejected(swapped).stage == Stage::same_bits);
  Subject failing = same;
  failing.run_alone = [](const Buffers&, std::int64_t, unsigned) { return "it is broken"; };
  CHECK(rejected(failing).stage == Stage::launch);
  Subject unwritten = same;
  unwritten.run_alone = [](const Buffers&, std::int64_t, unsigned) { return std::string(); };
  CHECK(rejected(unwritten).stage == Stage::same_bits);
  Subject writing = same;
  writing.run_alone = [](const Buffers& b, std::int64_t row, unsigned) -> std::string {
    add_up(b, static_cast<std::size_t>(row), false, static_cast<std::size_t>(row));
    set(b[kW], DType::f32, 0, 3);
    return "";
  };
  CHECK(rejected(writing).stage == Stage::memory);
}

}  // namespace
