// The admission gate against kernels written here: honest ones of every dtype pass, and each way to
// cheat or to be wrong is refused, at the stage that it belongs to.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "base/child.h"
#include "base/half.h"
#include "gate_case.h"
#include "validate/buffers.h"
#include "validate/gate.h"
#include "validate/scenario.h"

using namespace ac;
using namespace ac::validate;
using namespace ac::test;

namespace {

constexpr std::int64_t kRows = 12, kInner = 40;
enum Place : std::size_t { kX, kW, kB, kScratch, kY };

// y = relu(W x) + b, as a plain C++ loop would have it.
Elements expected(const Elements& in, DType dtype, bool plain) {
  Elements out(5);
  for (std::size_t row = 0; row < kRows; ++row) {
    double sum = 0;
    float single = 0;
    for (std::size_t i = 0; i < kInner; ++i) {
      sum += in[kW][row * kInner + i] * in[kX][i];
      single += static_cast<float>(in[kW][row * kInner + i]) * static_cast<float>(in[kX][i]);
    }
    if (plain) sum = round_by_float(dtype, single);
    sum = (sum < 0 ? 0 : sum) + in[kB][row];
    out[kY].push_back(plain ? round_by_float(dtype, sum) : sum);
  }
  return out;
}

void honest(const Buffers& buffers, DType dtype) {
  for (std::size_t row = 0; row < kRows; ++row) {
    float sum = 0;
    for (std::size_t i = kInner; i-- > 0;)
      sum += static_cast<float>(get(buffers[kW], dtype, row * kInner + i)) *
             static_cast<float>(get(buffers[kX], dtype, i));
    set(buffers[kScratch], DType::f32, row, sum);
    set(buffers[kY], dtype, row, (sum < 0 ? 0 : sum) + get(buffers[kB], dtype, row));
  }
}

// An honest kernel; with `fault`, what it does besides, before or after.
Subject layer(DType dtype, std::function<void(const Buffers&, unsigned)> fault = nullptr) {
  Subject subject;
  subject.tensors = {
      {.name = "x", .dtype = dtype, .shape = {1, kInner}},
      {.name = "w", .dtype = dtype, .shape = {kRows, kInner}, .role = TensorRole::weight},
      {.name = "b", .dtype = dtype, .shape = {kRows}, .role = TensorRole::weight},
      {.name = "scratch", .shape = {kRows}, .role = TensorRole::workspace},
      {.name = "y", .dtype = dtype, .shape = {1, kRows}, .role = TensorRole::output}};
  subject.truth = [dtype](const Elements& in) { return expected(in, dtype, false); };
  subject.plain = [dtype](const Elements& in) { return expected(in, dtype, true); };
  subject.run = [dtype, fault](const Buffers& buffers, unsigned launch) -> std::string {
    honest(buffers, dtype);
    if (fault) fault(buffers, launch);
    return "";
  };
  return subject;
}

Rejection rejected_with(std::function<void(const Buffers&, unsigned)> fault) {
  return rejected(layer(DType::f16, std::move(fault)));
}

void scale_output(const Buffers& b, double factor) {
  for (std::size_t i = 0; i < kRows; ++i)
    set(b[kY], DType::f16, i, get(b[kY], DType::f16, i) * factor);
}

TEST_CASE("gate: an honest kernel passes in every dtype, whatever the seed") {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (unsigned seed : {1u, 77u, 5000u, 123456u}) {
      const Verdict verdict = admit(layer(dtype), {.first_seed = seed});
      INFO(verdict.rejection.value_or(Rejection{}).reason);
      CHECK(verdict.admitted());
      CHECK(verdict.scenarios >= 30);
      CHECK(verdict.launches > verdict.scenarios);
      CHECK(verdict.worst().error > 0);
      CHECK(verdict.worst().error <= 1);
    }
}

TEST_CASE("gate: fewer runs for less time") {
  const Verdict verdict =
      admit(layer(DType::f16),
            {.seeds = 1, .scales = {1}, .structured = false, .hostile = false, .repeats = 0});
  CHECK(verdict.admitted());
  CHECK(verdict.scenarios == 1);
}

TEST_CASE("gate: the interface must be one that can be judged") {
  Subject twice = layer(DType::f16);
  twice.tensors[kB].name = twice.tensors[kW].name;
  CHECK(says(rejected(twice), "this name"));

  Subject no_output = layer(DType::f16);
  no_output.tensors[kY].role = TensorRole::workspace;
  CHECK(says(rejected(no_output), "nothing that this kernel writes"));

  Subject empty = layer(DType::f16);
  empty.tensors[kScratch].shape = {0};
  CHECK(says(rejected(empty), "a size of 0"));

  Subject other_size = layer(DType::f16);
  other_size.tensors[kY].shape = {kRows + 1};
  CHECK(says(rejected(other_size), "elements"));

  Subject edge = layer(DType::f16);
  edge.tensors.push_back({.name = "n", .dtype = DType::i32, .shape = {1}, .high = 3, .edges = {4}});
  CHECK(says(rejected(edge), "outside its range"));

  // Nobody could tell whether the kernel reads it.
  Subject unused = layer(DType::f16);
  unused.tensors.push_back({.name = "unused", .dtype = DType::f16, .shape = {4}});
  const Rejection rejection = rejected(unused);
  CHECK(rejection.stage == Stage::interface);
  CHECK(rejection.tensor == "unused");

  Subject constant = layer(DType::f16, [](const Buffers& b, unsigned) {
    for (std::size_t i = 0; i < 4; ++i) set(b[5], DType::f16, i, 1);
  });
  constant.tensors.push_back(
      {.name = "ones", .dtype = DType::f16, .shape = {4}, .role = TensorRole::output});
  for (Evaluate* evaluate : {&constant.truth, &constant.plain})
    *evaluate = [inner = *evaluate](const Elements& in) {
      Elements out = inner(in);
      out.push_back({1, 1, 1, 1});
      return out;
    };
  CHECK(says(rejected(constant), "depends on nothing"));
}

TEST_CASE("gate: a launch that fails") {
  Subject subject = layer(DType::f16);
  subject.run = [run = layer(DType::f16).run](const Buffers& b, unsigned launch) -> std::string {
    run(b, launch);
    return launch == 5 ? "race: threads 1 and 2" : "";
  };
  const Rejection rejection = rejected(subject);
  CHECK(rejection.stage == Stage::launch);
  CHECK(says(rejection, "race"));
}

TEST_CASE("gate: memory that is not the kernel's") {
  for (std::size_t tensor : {kX, kW, kB, kScratch, kY}) {
    const Rejection past = rejected_with([&](const Buffers& b, unsigned) {
      std::byte* end = b[tensor].data() + b[tensor].size();
      *end = std::byte{0xff};  // also what one of the poisons would have there
    });
    CHECK(past.stage == Stage::memory);
    CHECK(says(past, "past the end"));
    const Rejection before =
        rejected_with([&](const Buffers& b, unsigned) { *(b[tensor].data() - 1) = std::byte{1}; });
    CHECK(before.stage == Stage::memory);
    CHECK(says(before, "before the start"));
  }
  for (std::size_t tensor : {kX, kW, kB}) {
    const Rejection input =
        rejected_with([&](const Buffers& b, unsigned) { b[tensor].back() ^= std::byte{1}; });
    CHECK(input.stage == Stage::memory);
    CHECK(says(input, "may only read"));
    CHECK(input.index == (tensor == kX ? kInner : tensor == kW ? kRows * kInner : kRows) - 1);
  }
}

TEST_CASE("gate: what is read behind a tensor, or before it, ends the process") {
  const auto reads = [](bool behind) {
    return run_in_children(
        {ChildTask([behind] {
          std::signal(SIGSEGV, SIG_DFL);  // the tests' own would tell of a failure
          return std::string(admit(layer(DType::f16,
                                         [behind](const Buffers& b, unsigned) {
                                           const std::size_t words = (b[kX].size() + 15) / 16 * 16;
                                           const volatile std::byte* at = b[kX].data();
                                           (void)(behind ? at[words] : at[-1]);
                                         }))
                                     .admitted()
                                 ? "admitted"
                                 : "rejected");
        })},
        1, std::chrono::seconds(60))[0];
  };
  for (const bool behind : {false, true}) CHECK(reads(behind).ended.find("crashed") == 0);
}

TEST_CASE("gate: of many rows, each run computes the truth of others") {
  constexpr std::int64_t kCount = 23;
  const auto doubled = [](std::int64_t wrong, std::int64_t left_out = -1) {
    Subject subject;
    subject.tensors = {
        {.name = "x", .dtype = DType::f16, .shape = {kCount, 3}},
        {.name = "y", .dtype = DType::f16, .shape = {kCount, 3}, .role = TensorRole::output}};
    subject.truth_of_rows = subject.plain_of_rows = [](const Elements& in, const Rows& rows) {
      CHECK(rows.count <= 4);
      Elements out(2);
      for (std::int64_t i = 3 * rows.first; i < 3 * (rows.first + rows.count); ++i)
        out[1].push_back(2 * in[0][static_cast<std::size_t>(i)]);
      return out;
    };
    subject.truth = subject.plain = [](const Elements&) -> Elements {
      FAIL("not of all rows");
      return {};
    };
    subject.rows = kCount;
    subject.run = [=](const Buffers& b, unsigned) -> std::string {
      for (std::int64_t row = 0; row < kCount; ++row)
        for (std::size_t i = 0; i < 3; ++i) {
          const std::size_t at = 3 * static_cast<std::size_t>(row) + i;
          if (row != left_out)
            set(b[1], DType::f16, at, (row == wrong ? 2.1 : 2) * get(b[0], DType::f16, at));
        }
      return "";
    };
    return subject;
  };
  const GateOptions few{.seeds = 2, .repeated = 1, .rows_at_once = 4};
  const Verdict honest = admit(doubled(-1), few);
  INFO(honest.rejection.value_or(Rejection{}).reason);
  CHECK(honest.admitted());
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{9}, kCount - 1}) {
    const Rejection rejection = rejected(doubled(wrong), few);
    CHECK(rejection.stage == Stage::numerics);
    CHECK(rejection.index / 3 == wrong);
  }

  // By one launch: rows from the first to the last, and that none was left out.
  const GateOptions once{.seeds = 1,
                         .scales = {1},
                         .structured = false,
                         .hostile = false,
                         .asks_influence = false,
                         .repeated = 0,
                         .rows_at_once = 4,
                         .samples = 3};
  CHECK(admit(doubled(-1), once).admitted());
  CHECK(admit(doubled(-1), once).launches == 1);
  for (const std::int64_t wrong : {std::int64_t{0}, kCount / 2, kCount - 1})
    CHECK(rejected(doubled(wrong), once).index / 3 == wrong);
  const Rejection rejection = rejected(doubled(-1, 5), once);
  CHECK(rejection.stage == Stage::memory);
  CHECK(rejection.index / 3 == 5);

  // A result may be the very NaN that was there before.
  Subject no_number = doubled(-1);
  no_number.truth_of_rows = no_number.plain_of_rows = [](const Elements&, const Rows& rows) {
    return Elements{{}, std::vector<double>(static_cast<std::size_t>(3 * rows.count), NAN)};
  };
  no_number.run = [](const Buffers& b, unsigned) -> std::string {
    std::ranges::fill(b[1], std::byte{kPoisons[0][0]});
    return "";
  };
  const Verdict same = admit(no_number, once);
  INFO(same.rejection.value_or(Rejection{}).reason);
  CHECK(same.admitted());
  CHECK(same.launches == 2);
}

TEST_CASE("gate: an error that rounding makes on neighbouring inputs is bad luck") {
  // A plain implementation whose error is 0.01 on the inputs of the trial, and 0.02 on others.
  const auto with_error = [](double error) {
    const auto last = std::make_shared<std::vector<double>>(4);
    Subject subject;
    subject.tensors = {
        {.name = "x", .dtype = DType::f16, .shape = {4}},
        {.name = "y", .dtype = DType::f16, .shape = {4}, .role = TensorRole::output}};
    const auto moved = [](const Elements& in, double by) {
      Elements out(2);
      for (const double x : in[0]) out[1].push_back(x + by);
      return out;
    };
    subject.truth = [=](const Elements& in) { return moved(in, 0); };
    subject.plain = [=](const Elements& in) { return moved(in, in[0] == *last ? 0.01 : 0.02); };
    subject.run = [=](const Buffers& b, unsigned) -> std::string {
      for (std::size_t i = 0; i < 4; ++i) {
        (*last)[i] = get(b[0], DType::f16, i);
        set(b[1], DType::f16, i, (*last)[i] + error);
      }
      return "";
    };
    return subject;
  };
  const GateOptions once{.seeds = 1,
                         .scales = {1},
                         .structured = false,
                         .hostile = false,
                         .asks_influence = false,
                         .repeated = 0};
  CHECK(admit(with_error(0.02), once).admitted());
  CHECK(admit(with_error(0.05), once).admitted());
  CHECK(rejected(with_error(0.08), once).stage == Stage::numerics);
}

TEST_CASE("gate: small elements have bounds of their own") {
  // Rows of very different size, the small ones wrong by half of a percent.
  Subject subject;
  constexpr std::int64_t kCount = 8, kColumns = 160;
  subject.tensors = {
      {.name = "x", .dtype = DType::bf16, .shape = {kCount, kColumns}},
      {.name = "y", .dtype = DType::f32, .shape = {kCount, kColumns}, .role = TensorRole::output}};
  const auto root = [](const Elements& in, double rounding) {
    Elements out(2);
    for (const double x : in[0]) out[1].push_back(x * 1.1 * (1 + rounding));
    return out;
  };
  subject.truth = [=](const Elements& in) { return root(in, 0); };
  subject.plain = [=](const Elements& in) { return root(in, 0x1p-9); };
  subject.run = [](const Buffers& b, unsigned) -> std::string {
    for (std::size_t i = 0; i < kCount * kColumns; ++i) {
      const double x = get(b[0], DType::bf16, i);
      set(b[1], DType::f32, i, x * 1.1 * (std::fabs(x) < 0x1p-7 ? 1.05 : 1));
    }
    return "";
  };
  const Rejection rejection = rejected(subject);
  CHECK(rejection.stage == Stage::numerics);
  CHECK(std::fabs(rejection.wanted) < 0x1p-6);
}

TEST_CASE("gate: the scale of a whole matrix behind a norm shows by its NaN") {
  constexpr std::size_t kColumns = 64;
  const auto normed = [](const Elements& in, double rounding) {
    const double scale = in[1][0] * in[2][0];
    double squares = 0;
    for (const double x : in[0]) squares += x * scale * x * scale;
    const double size = std::sqrt(squares / kColumns);
    Elements out(4);
    for (const double x : in[0])
      out[3].push_back(size == 0 ? 0 : x * scale / size * (1 + rounding));
    return out;
  };
  const auto kernel = [=](bool ignores) {
    Subject subject;
    subject.tensors = {
        {.name = "x", .dtype = DType::f32, .shape = {1, kColumns}},
        {.name = "another",
         .dtype = DType::f32,
         .shape = {1, 1},
         .role = TensorRole::weight,
         .part = WeightPart::Kind::global,
         .typical = 1},
        {.name = "scale",
         .dtype = DType::f32,
         .shape = {1, 1},
         .role = TensorRole::weight,
         .part = WeightPart::Kind::global,
         .typical = 1},
        {.name = "y", .dtype = DType::f32, .shape = {1, kColumns}, .role = TensorRole::output}};
    subject.truth = [=](const Elements& in) { return normed(in, 0); };
    subject.plain = [=](const Elements& in) { return normed(in, 0x1p-20); };
    subject.run = [=](const Buffers& b, unsigned) -> std::string {
      Elements in(3);
      for (std::size_t i = 0; i < kColumns; ++i) in[0].push_back(get(b[0], DType::f32, i));
      in[1] = {get(b[1], DType::f32, 0)};
      in[2] = {ignores ? 1 : get(b[2], DType::f32, 0)};
      const Elements out = normed(in, 0);
      for (std::size_t i = 0; i < kColumns; ++i) set(b[3], DType::f32, i, out[3][i]);
      return "";
    };
    return subject;
  };
  // Also where one weight of a shape is hostile for all others.
  for (const bool one : {false, true}) {
    CHECK(admit(kernel(false), {.one_of_a_shape = one}).admitted());
    CHECK(rejected(kernel(true), {.one_of_a_shape = one}).scenario == "a NaN in scale");
  }
  // And where a NaN of one token may reach others.
  CHECK(admit(kernel(false), {.hostile = false}).admitted());
  CHECK(rejected(kernel(true), {.hostile = false}).scenario == "a NaN in scale");
}

TEST_CASE("gate: outputs that nobody wrote") {
  // Keeps what was there for one element.
  Subject subject = layer(DType::f16);
  subject.run = [](const Buffers& b, unsigned) -> std::string {
    const std::byte low = b[kY][14], high = b[kY][15];
    honest(b, DType::f16);
    b[kY][14] = low, b[kY][15] = high;
    return "";
  };
  const Rejection rejection = rejected(subject);
  CHECK(rejection.stage == Stage::memory);
  CHECK(rejection.index == 7);
  CHECK(says(rejection, "left as it was"));
}

TEST_CASE("gate: a counter that is not given back at 0") {
  const auto with_counter = [](int left) {
    Subject subject =
        layer(DType::f16, [left](const Buffers& b, unsigned) { set(b[5], DType::i32, 0, left); });
    subject.tensors.push_back(
        {.name = "done", .dtype = DType::i32, .shape = {1}, .role = TensorRole::counter});
    return subject;
  };
  CHECK(admit(with_counter(0)).admitted());
  const Rejection rejection = rejected(with_counter(1));
  CHECK(rejection.stage == Stage::memory);
  CHECK(rejection.tensor == "done");
}

TEST_CASE("gate: wrong numbers") {
  const Rejection off = rejected_with([](const Buffers& b, unsigned) {
    set(b[kY], DType::f16, 3, get(b[kY], DType::f16, 3) + 0.1);
  });
  CHECK(off.stage == Stage::numerics);
  CHECK(off.tensor == "y");
  CHECK(off.index == 3);
  CHECK(std::fabs(off.got - off.wanted) > off.bound);

  // Returns its input.
  CHECK(rejected_with([](const Buffers& b, unsigned) {
          std::memcpy(b[kY].data(), b[kX].data(), b[kY].size());
        }).stage == Stage::numerics);
  // A slightly wrong factor, within no single bound's reach but all to one side.
  CHECK(rejected_with([](const Buffers& b, unsigned) { scale_output(b, 1.0011); }).stage ==
        Stage::numerics);
  // The bias, left out; the rectifier, left out.
  CHECK(rejected_with([](const Buffers& b, unsigned) {
          for (std::size_t i = 0; i < kRows; ++i)
            set(b[kY], DType::f16, i, std::max(0.0, get(b[kScratch], DType::f32, i)));
        }).stage == Stage::numerics);
  CHECK(rejected_with([](const Buffers& b, unsigned) {
          for (std::size_t i = 0; i < kRows; ++i)
            set(b[kY], DType::f16, i, get(b[kScratch], DType::f32, i) + get(b[kB], DType::f16, i));
        }).stage == Stage::numerics);
}

TEST_CASE("gate: right at one scale only") {
  const auto at = [](auto is_wrong) {
    return rejected_with([is_wrong](const Buffers& b, unsigned) {
      double squares = 0;
      for (std::size_t i = 0; i < kInner; ++i) squares += std::pow(get(b[kX], DType::f16, i), 2);
      if (is_wrong(std::sqrt(squares / kInner))) scale_output(b, 0.5);
    });
  };
  CHECK(says(at([](double size) { return size > 2; }), "x3"));
  CHECK(says(at([](double size) { return size < 0.1; }), "x0.01"));
  // Right for the sign that was tried first.
  const Rejection sign = rejected_with([](const Buffers& b, unsigned) {
    if (get(b[kX], DType::f16, 0) + get(b[kX], DType::f16, 1) < 0) scale_output(b, 0.5);
  });
  CHECK(sign.stage == Stage::numerics);
}

TEST_CASE("gate: a weight may be hostile for all of its shape") {
  Subject two = layer(DType::f16);
  two.tensors.push_back(two.tensors[kW]);
  two.tensors.back().name = "another";
  const auto hostile = [&](bool one_of_a_shape) {
    const auto all = scenarios_for(two, {.one_of_a_shape = one_of_a_shape});
    return std::ranges::count_if(all, [&](const Scenario& scenario) {
      return scenario.pattern == Pattern::a_nan &&
             two.tensors[scenario.hostile].shape == two.tensors[kW].shape;
    });
  };
  CHECK(hostile(false) == 2);
  CHECK(hostile(true) == 1);
}

TEST_CASE("gate: right for the first seed only") {
  const Subject known = layer(DType::f16);
  const Elements first = elements_of(known, scenarios_for(known, {})[0]);
  const Rejection rejection = rejected_with([&](const Buffers& b, unsigned) {
    const double ratio = get(b[kX], DType::f16, 0) / get(b[kX], DType::f16, 1);
    if (std::fabs(ratio / (first[kX][0] / first[kX][1]) - 1) > 0.1) scale_output(b, 0.5);
  });
  CHECK(rejection.stage == Stage::numerics);
  CHECK(rejection.scenario != "random x1");
}

TEST_CASE("gate: fewer bits than the dtype has") {
  const auto rounded = [](DType stored, auto round) {
    return rejected(layer(stored, [=](const Buffers& b, unsigned) {
      for (std::size_t i = 0; i < kRows; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < kInner; ++k)
          sum = round(sum + get(b[kW], stored, i * kInner + k) * get(b[kX], stored, k));
        set(b[kY], stored, i, (sum < 0 ? 0 : sum) + get(b[kB], stored, i));
      }
    }));
  };
  const auto to_bf16 = [](double x) { return round_to(DType::bf16, x); };
  const auto to_f16 = [](double x) { return round_to(DType::f16, x); };
  CHECK(rounded(DType::f32, to_f16).stage == Stage::numerics);
  CHECK(rounded(DType::f32, to_bf16).stage == Stage::numerics);
  CHECK(rounded(DType::f16, to_bf16).stage == Stage::numerics);
  CHECK(rounded(DType::f16, to_f16).stage == Stage::numerics);
  CHECK(rounded(DType::bf16, to_bf16).stage == Stage::numerics);
}

TEST_CASE("gate: rounded towards zero") {
  Subject subject = layer(DType::bf16);
  subject.run = [](const Buffers& b, unsigned) -> std::string {
    honest(b, DType::bf16);
    for (std::size_t i = 0; i < kRows; ++i) {
      const double bias = get(b[kB], DType::bf16, i), sum = get(b[kScratch], DType::f32, i);
      const double value = (sum < 0 ? 0 : sum) + bias;
      const double rounded = round_to(DType::bf16, value);
      const double step = std::exp2(std::floor(std::log2(std::fabs(value))) - 7);
      const bool outwards = std::fabs(rounded) > std::fabs(value);
      set(b[kY], DType::bf16, i, outwards ? rounded - std::copysign(step, value) : rounded);
    }
    return "";
  };
  const Rejection rejection = rejected(subject);
  CHECK(rejection.stage == Stage::numerics);
  CHECK(says(rejection, "leans"));
}

TEST_CASE("gate: infinities and NaN are not hidden") {
  const Rejection rejection = rejected_with([](const Buffers& b, unsigned) {
    for (std::size_t i = 0; i < kRows; ++i)
      if (!std::isfinite(get(b[kY], DType::f16, i))) set(b[kY], DType::f16, i, 0);
  });
  CHECK(rejection.stage == Stage::numerics);
  CHECK(says(rejection, "finite"));
}

// The largest of each row, by a loop that begins with `least`.
Subject maxima(std::int64_t rows, double least) {
  constexpr std::int64_t kLong = 40;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto of = [](const std::vector<double>& x, double first) {
    std::vector<double> all(x.size() / kLong, first);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!(all[i / kLong] >= x[i])) all[i / kLong] = x[i];
    return all;
  };
  Subject subject;
  const TensorSpec x{.name = "x", .shape = {rows, kLong}, .may_be_masked = true};
  subject.tensors = {x, {.name = "y", .shape = {rows}, .role = TensorRole::output}};
  subject.truth =
      subject.plain = [of](const Elements& in) { return Elements{{}, of(in[0], -kInfinity)}; };
  subject.run = [=](const Buffers& buffers, unsigned) -> std::string {
    const auto all = of(load_elements(x, buffers[0]), least);
    for (std::size_t row = 0; row < all.size(); ++row) set(buffers[1], DType::f32, row, all[row]);
    return "";
  };
  return subject;
}

TEST_CASE("gate: maxima of what is negative, hidden or nothing") {
  GateOptions options;
  CHECK(admit(maxima(12, -std::numeric_limits<double>::infinity())).admitted());
  CHECK(rejected(maxima(1, 0)).scenario == "negative");
  options.structured = false;
  CHECK(rejected(maxima(12, -1e30), options).scenario == "masked rows");
}

TEST_CASE("gate: ids that a table does not have give NaN") {
  constexpr std::int64_t kEntries = 9;
  for (const std::int64_t known : {kEntries, kEntries + 1, std::int64_t{1} << 60}) {
    Subject subject;
    subject.tensors = {{.name = "ids",
                        .dtype = DType::i64,
                        .shape = {kRows},
                        .high = kEntries - 1,
                        .may_be_outside = true},
                       {.name = "y", .shape = {kRows}, .role = TensorRole::output}};
    const auto look_up = [](double id, std::int64_t entries) {
      const bool has = id >= 0 && id < static_cast<double>(entries);
      return has ? 1 + id : std::numeric_limits<double>::quiet_NaN();
    };
    subject.truth = subject.plain = [look_up](const Elements& in) {
      Elements out(2);
      for (const double id : in[0]) out[1].push_back(look_up(id, kEntries));
      return out;
    };
    subject.run = [&](const Buffers& buffers, unsigned) -> std::string {
      for (std::size_t i = 0; i < kRows; ++i)
        set(buffers[1], DType::f32, i, look_up(get(buffers[0], DType::i64, i), known));
      return "";
    };
    if (known == kEntries)
      CHECK(admit(subject, {}).admitted());
    else
      CHECK(rejected(subject).scenario == "ids outside");
  }
}

TEST_CASE("gate: linear subjects are exact on zeros and ones") {
  const auto sum = [](double error) {
    Subject subject = layer(DType::f32);
    subject.linear = true;
    subject.truth = [](const Elements& in) {
      Elements out(5);
      for (std::size_t row = 0; row < kRows; ++row) {
        out[kY].push_back(in[kB][row]);
        for (std::size_t i = 0; i < kInner; ++i)
          out[kY][row] += in[kW][row * kInner + i] * in[kX][i];
      }
      return out;
    };
    subject.plain = subject.truth;
    subject.run = [=](const Buffers& b, unsigned) -> std::string {
      honest(b, DType::f32);
      for (std::size_t i = 0; i < kRows; ++i) {
        const double y = get(b[kScratch], DType::f32, i) + get(b[kB], DType::f32, i);
        set(b[kY], DType::f32, i, y * (1 + error));
      }
      return "";
    };
    return subject;
  };
  CHECK(admit(sum(0)).admitted());
  CHECK(says(rejected(sum(0x1p-22)), "not exact"));
}

TEST_CASE("gate: what was in memory before must not matter") {
  // Adds to the output instead of writing it where that is no NaN.
  const Rejection poison = rejected_with([](const Buffers& b, unsigned) {
    const auto* canary = b[kScratch].data() + b[kScratch].size();
    if (*canary == std::byte{0xbf}) scale_output(b, 1.01);
  });
  CHECK((poison.stage == Stage::repeatability || poison.stage == Stage::numerics));
  // So little that it is within the bound.
  const Rejection bits = rejected_with([](const Buffers& b, unsigned) {
    const auto* canary = b[kScratch].data() + b[kScratch].size();
    if (*canary == std::byte{0xbf}) b[kY][0] ^= std::byte{1};
  });
  CHECK(bits.stage == Stage::repeatability);
}

TEST_CASE("gate: nondeterminism") {
  const auto flaky = [](const Buffers& b, unsigned launch) {
    if (launch % 3 == 0) b[kY][0] ^= std::byte{1};
  };
  const Rejection rejection = rejected_with(flaky);
  CHECK(rejection.stage == Stage::repeatability);
}

TEST_CASE("gate: memoised by address, and stale scratch") {
  auto known = std::make_shared<std::map<const void*, std::vector<std::byte>>>();
  const Rejection memoised = rejected_with([known](const Buffers& b, unsigned) {
    const auto [entry, first] = known->try_emplace(b[kX].data(), b[kY].begin(), b[kY].end());
    if (!first) std::copy(entry->second.begin(), entry->second.end(), b[kY].begin());
  });
  CHECK((memoised.stage == Stage::repeatability || memoised.stage == Stage::numerics));

  Subject stale = layer(DType::f16);
  stale.run = [](const Buffers& b, unsigned) -> std::string {
    const double left = get(b[kScratch], DType::f32, 0);
    honest(b, DType::f16);
    if (!std::isnan(left)) set(b[kY], DType::f16, 0, get(b[kY], DType::f16, 0) + left);
    return "";
  };
  const Rejection rejection = rejected(stale);
  CHECK(rejection.stage == Stage::repeatability);
  CHECK(says(rejection, "another"));
}

TEST_CASE("gate: an input that is read only now and then") {
  // Ignores the bias where it is small, as a kernel with a special case would.
  const Rejection rejection = rejected_with([](const Buffers& b, unsigned) {
    const double sum = std::max(0.0, get(b[kScratch], DType::f32, 5));
    if (std::fabs(get(b[kB], DType::f16, 5)) < 0.8) set(b[kY], DType::f16, 5, sum);
  });
  CHECK(rejection.stage == Stage::numerics);
  CHECK(rejection.index == 5);
}

TEST_CASE("gate: the same options give the same verdict") {
  const Verdict a = admit(layer(DType::f16)), b = admit(layer(DType::f16));
  REQUIRE(a.figures.size() == b.figures.size());
  for (std::size_t i = 0; i < a.figures.size(); ++i)
    CHECK(a.figures[i].error == b.figures[i].error);
}

TEST_CASE("gate: elements survive their bytes") {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (double value : {0.0, -0.0, 1.0, -3.5, 65504.0, 0x1p-14, 0x1p-24, -0x1.8p-20, 1e9,
                         std::numeric_limits<double>::infinity()}) {
      std::byte bytes[4];
      store_element(dtype, value, bytes);
      CHECK(load_element(dtype, bytes) == round_to(dtype, value));
      CHECK(std::signbit(load_element(dtype, bytes)) == std::signbit(value));
    }
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (int poison : {0, 1}) {
      std::byte bytes[4];
      fill_poison(bytes, poison);
      CHECK(std::isnan(load_element(dtype, bytes)));
    }
}

}  // namespace
