#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "ir/builder.h"
#include "ir/normalise/mask.h"
#include "tests/unit/symbols.h"

using namespace ac;
using namespace ac::test;

namespace {

constexpr std::int64_t kFirst = Steps::kFirst;

struct MaskGraph {
  Graph graph{"mask", {}, {}, {4096, ""}};
  Builder b{graph};
  NodeId rows = b.reshape(b.positions(S), {S, 1});
  NodeId columns = b.reshape(b.positions(S), {1, S});

  NodeId compare(Op op) { return b.binary(op, columns, rows); }
  NodeId ones() { return b.expand(b.scalar(DType::f32, 1), {S, S}); }
  NodeId triangle(Op op, NodeId x, std::int64_t diagonal) {
    return b.add(op, {x}, {{"diagonal", diagonal}});
  }
  NodeId integer(double value) { return b.scalar(DType::i64, value); }
  NodeId real(double value) { return b.scalar(DType::f32, value); }
  std::optional<Steps> prove(NodeId id) { return Prover(graph).steps(id); }
};

// Of d = row - column: `before` up to the first start, then what each pair says from there on.
Steps steps(double before, std::vector<std::pair<std::int64_t, double>> later) {
  Steps result{{{kFirst, 0, before}}};
  for (const auto& [start, value] : later) result.pieces.push_back({start, 0, value});
  return result;
}

void check(const std::optional<Steps>& got, const Steps& wanted) {
  REQUIRE(got);
  REQUIRE(got->pieces.size() == wanted.pieces.size());
  for (std::size_t i = 0; i < wanted.pieces.size(); ++i) {
    CAPTURE(i);
    CHECK(got->pieces[i].start == wanted.pieces[i].start);
    CHECK(got->pieces[i].slope == wanted.pieces[i].slope);
    CHECK(got->pieces[i].value == wanted.pieces[i].value);
  }
}

// The truth: the function by evaluating it at every distance.
double at(const Steps& steps, std::int64_t d) {
  std::size_t i = 0;
  while (i + 1 < steps.pieces.size() && steps.pieces[i + 1].start <= d) ++i;
  return static_cast<double>(steps.pieces[i].slope * d) + steps.pieces[i].value;
}

}  // namespace

TEST_CASE("comparisons of positions are steps of the distance") {
  MaskGraph m;
  check(m.prove(m.compare(Op::less_equal)), steps(0, {{0, 1}}));     // column <= row
  check(m.prove(m.compare(Op::less)), steps(0, {{1, 1}}));           // column < row
  check(m.prove(m.compare(Op::greater)), steps(1, {{0, 0}}));        // column > row
  check(m.prove(m.compare(Op::greater_equal)), steps(1, {{1, 0}}));  // column >= row
  check(m.prove(m.compare(Op::equal)), steps(0, {{0, 1}, {1, 0}}));
  check(m.prove(m.compare(Op::not_equal)), steps(1, {{0, 0}, {1, 1}}));
}

TEST_CASE("a sliding window is what two comparisons leave") {
  MaskGraph m;
  const NodeId distance = m.b.binary(Op::sub, m.rows, m.columns);
  const NodeId near = m.b.binary(Op::less, distance, m.integer(4));
  const Steps window = steps(0, {{0, 1}, {4, 0}});
  check(m.prove(m.b.binary(Op::logical_and, m.compare(Op::less_equal), near)), window);
  const NodeId hidden =
      m.b.binary(Op::logical_or, m.b.unary(Op::logical_not, near), m.compare(Op::greater));
  check(m.prove(m.b.unary(Op::logical_not, hidden)), window);
  const NodeId shifted = m.b.binary(Op::sub, m.rows, m.integer(4));
  check(m.prove(m.b.binary(Op::greater, m.columns, shifted)), steps(1, {{4, 0}}));
  // What each hides is 0: so is what their product hides.
  const NodeId product = m.b.binary(Op::mul, m.b.cast(m.compare(Op::less_equal), DType::f32),
                                    m.b.cast(near, DType::f32));
  check(m.prove(product), window);
  // |i - j| < 4, and a distance cut at 4.
  const NodeId size = m.b.unary(Op::abs, distance);
  check(m.prove(m.b.binary(Op::less, size, m.integer(4))), steps(0, {{-3, 1}, {4, 0}}));
  const NodeId cut = m.b.binary(Op::minimum, distance, m.integer(4));
  check(m.prove(m.b.binary(Op::equal, cut, m.integer(4))), steps(0, {{4, 1}}));
  // A triangle less another one.
  const NodeId band =
      m.b.binary(Op::sub, m.triangle(Op::tril, m.ones(), 0), m.triangle(Op::tril, m.ones(), -4));
  check(m.prove(band), window);
  // The whole, in two halves.
  check(m.prove(m.b.binary(Op::logical_or, m.compare(Op::less_equal), m.compare(Op::greater))),
        steps(1, {}));
}

TEST_CASE("triangles, additive masks and buffers cut to length are steps") {
  MaskGraph m;
  check(m.prove(m.triangle(Op::tril, m.ones(), 0)), steps(0, {{0, 1}}));
  check(m.prove(m.triangle(Op::triu, m.ones(), 1)), steps(1, {{0, 0}}));
  const NodeId lowest = m.b.expand(m.real(-INFINITY), {S, S});
  check(m.prove(m.triangle(Op::triu, lowest, 1)), steps(-INFINITY, {{0, 0}}));
  const NodeId inverted = m.b.binary(Op::sub, m.real(1), m.triangle(Op::tril, m.ones(), 0));
  check(m.prove(m.b.binary(Op::mul, inverted, m.real(-1e9))),
        steps(round_to(DType::f32, -1e9), {{0, 0}}));
  check(m.prove(m.b.unary(Op::log, m.triangle(Op::tril, m.ones(), 0))), steps(-INFINITY, {{0, 0}}));
  const NodeId buffer = m.triangle(Op::tril, m.b.expand(m.real(1), {1, 1, 2048, 2048}), 0);
  const NodeId cut = m.b.slice(m.b.slice(buffer, 2, 0, S), 3, 0, S);
  check(m.prove(m.b.binary(Op::equal, cut, m.real(0))), steps(1, {{0, 0}}));
  // Cut elsewhere than at its start: row 0 is what was row 1.
  check(m.prove(m.b.slice(m.b.slice(buffer, 2, 1, S + 1), 3, 0, S)), steps(0, {{-1, 1}}));
  check(m.prove(m.b.slice(m.b.slice(buffer, 2, 0, S), 3, 2, S + 2)), steps(0, {{2, 1}}));
  // Transposed, then turned around: row - column changes its sign twice.
  const NodeId transposed = m.b.permute(m.triangle(Op::triu, m.ones(), 0), {1, 0});
  check(m.prove(transposed), steps(0, {{0, 1}}));
  // Data, looked at.
  const NodeId data = m.b.constant(DType::f32, {3, 3}, {0, -9, -9, 0, 0, -9, 5, 0, 0});
  check(m.prove(data), steps(-9, {{0, 0}, {2, 5}}));
  const NodeId table = m.b.constant(DType::i64, {4}, {2, 3, 4, 5});
  const NodeId counted = m.b.reshape(m.b.slice(table, 0, 0, S), {S, 1});
  check(m.prove(m.b.binary(Op::less_equal, m.columns, counted)), steps(0, {{-2, 1}}));
}

TEST_CASE("what is no function of the distance is not proven") {
  MaskGraph m;
  const NodeId data = m.b.input("mask", {DType::boolean, {S, S}});
  CHECK(!m.prove(data));
  CHECK(!m.prove(m.b.binary(Op::logical_and, m.compare(Op::less_equal), data)));
  // every second token
  const NodeId doubled = m.b.binary(Op::mul, m.rows, m.integer(2));
  CHECK(!m.prove(m.b.binary(Op::less, m.columns, doubled)));
  // a prefix that all tokens see
  const NodeId prefix = m.b.binary(Op::less, m.columns, m.integer(4));
  CHECK(!m.prove(m.b.binary(Op::logical_or, m.compare(Op::less_equal), prefix)));
  CHECK(!m.prove(m.b.constant(DType::f32, {2, 2}, {1, 0, 1, 2})));
}

TEST_CASE("an axis of size 1 has only its first entry, however it is broadcast") {
  MaskGraph m;
  const NodeId first_row = m.b.slice(m.rows, 0, 0, 1);  // [1, 1]: position 0
  const NodeId first_column = m.b.slice(m.columns, 1, 0, 1);
  check(m.prove(m.b.binary(Op::greater_equal, m.rows, first_column)), steps(1, {}));
  check(m.prove(m.b.binary(Op::less, m.b.binary(Op::sub, m.rows, first_row), m.columns)),
        steps(1, {{0, 0}}));
  // i - 0 < 4 hides rows, and is no window.
  const NodeId distance = m.b.binary(Op::sub, m.b.expand(m.rows, {S, S}), first_row);
  CHECK(!m.prove(m.b.binary(Op::less, distance, m.integer(4))));
  // One row or column of a mask, for all of them.
  const NodeId mask = m.b.cast(m.compare(Op::less_equal), DType::f32);
  const NodeId one_row = m.b.slice(mask, 0, 0, 1), one_column = m.b.slice(mask, 1, 0, 1);
  CHECK(!m.prove(m.b.expand(one_row, {S, S})));
  CHECK(!m.prove(m.b.expand(one_column, {S, S})));
  CHECK(!m.prove(m.b.binary(Op::add, one_row, m.ones())));
  // A triangle of one column keeps all of it, and one of one row a single entry.
  const NodeId column = m.b.expand(m.real(1), {S, 1}), row = m.b.expand(m.real(1), {1, S});
  CHECK(!m.prove(m.triangle(Op::tril, column, 0)));
  CHECK(!m.prove(m.b.expand(m.triangle(Op::tril, row, 0), {S, S})));
  CHECK(!m.prove(m.triangle(Op::tril, m.b.slice(m.ones(), 0, 0, 1), 0)));
}

TEST_CASE("masks are computed in the type's own numbers") {
  MaskGraph m;
  // Neighbours coincide where bfloat16 or float16 have no whole numbers left.
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const NodeId i = m.b.cast(m.rows, dtype), j = m.b.cast(m.columns, dtype);
    CHECK(!m.prove(m.b.binary(Op::less_equal, j, i)));
  }
  MaskGraph few;
  few.graph.limit.tokens = 256;
  const NodeId i = few.b.cast(few.rows, DType::bf16), j = few.b.cast(few.columns, DType::bf16);
  check(few.prove(few.b.binary(Op::less_equal, j, i)), steps(0, {{0, 1}}));
  // float32 has no odd number above 2^24.
  const auto far = [&](NodeId x) {
    return m.b.binary(Op::add, m.b.cast(x, DType::f32), m.real(0x1p24));
  };
  CHECK(!m.prove(m.b.binary(Op::less_equal, far(m.columns), far(m.rows))));
  // int32 wraps.
  const NodeId wide =
      m.b.binary(Op::mul, m.b.cast(m.rows, DType::i32), m.b.scalar(DType::i32, 1 << 21));
  CHECK(!m.prove(m.b.binary(Op::greater_equal, wide, m.b.scalar(DType::i32, 0))));
  // 1 + 1e-8 is 1, and 2.9 as an integer is 2.
  const NodeId causal = m.b.cast(m.compare(Op::less_equal), DType::f32);
  const NodeId small = m.b.binary(Op::mul, causal, m.real(1e-8));
  const NodeId sum = m.b.binary(Op::add, small, m.real(1));
  check(m.prove(m.b.binary(Op::greater, sum, m.real(1))), steps(0, {}));
  const NodeId cut = m.b.cast(m.b.binary(Op::mul, causal, m.real(0.9)), DType::i64);
  check(m.prove(cut), steps(0, {}));
  // 0.1 is the number of the type that is nearest to it.
  const NodeId tenth = m.b.binary(Op::mul, causal, m.real(0.1));
  check(m.prove(m.b.binary(Op::less_equal, tenth, m.real(0.1))), steps(1, {}));
  check(m.prove(m.b.binary(Op::equal, m.b.binary(Op::mul, tenth, m.real(10)), m.real(1))),
        steps(0, {{0, 1}}));
  const NodeId half = m.b.cast(causal, DType::bf16);
  CHECK(!m.prove(m.b.binary(Op::mul, half, m.b.scalar(DType::bf16, 0.1))));
  check(m.prove(m.b.binary(Op::mul, half, m.b.scalar(DType::bf16, -1e9))),
        steps(0, {{0, round_to(DType::bf16, -1e9)}}));
  // What a type has no number for is not known.
  CHECK(!m.prove(m.b.cast(m.b.unary(Op::log, causal), DType::i64)));
}

TEST_CASE("powers are computed, and never data that compares") {
  MaskGraph m;
  const NodeId causal = m.b.cast(m.compare(Op::less_equal), DType::f32);
  check(m.prove(m.b.binary(Op::pow, causal, m.real(2))), steps(0, {{0, 1}}));
  check(m.prove(m.b.binary(Op::pow, causal, m.real(0))), steps(1, {}));
  CHECK(!m.prove(m.b.binary(Op::pow, causal, m.real(0.3))));
  const NodeId either = m.b.binary(Op::pow, causal, m.b.binary(Op::sub, m.real(1), causal));
  const auto proven = m.prove(either);  // 0^1 or 1^0
  check(proven, steps(0, {{0, 1}}));
}

TEST_CASE("steps agree with each distance computed alone") {
  // Every op on functions with lines in them, against the op at each distance.
  const Steps line = Steps::line(1, 0), down = Steps::line(-2, 3);
  const Steps causal = steps(0, {{0, 1}}), window = steps(-7, {{-2, 0}, {5, 2.5}});
  const std::vector<Steps> operands{
      line, down, causal, window, Steps::uniform(2), Steps::uniform(-0.5)};
  const auto truth = [](Op op, double a, double b) -> double {
    switch (op) {
      case Op::add:
        return a + b;
      case Op::sub:
        return a - b;
      case Op::mul:
        return a * b;
      case Op::minimum:
        return std::fmin(a, b);
      case Op::maximum:
        return std::fmax(a, b);
      case Op::less:
        return a < b;
      case Op::less_equal:
        return a <= b;
      case Op::greater:
        return a > b;
      case Op::greater_equal:
        return a >= b;
      case Op::equal:
        return a == b;
      default:
        return a != b;
    }
  };
  int known = 0;
  for (const Op op : {Op::add, Op::sub, Op::mul, Op::minimum, Op::maximum, Op::less, Op::less_equal,
                      Op::greater, Op::greater_equal, Op::equal, Op::not_equal})
    for (const Steps& a : operands)
      for (const Steps& b : operands) {
        const auto result = compute_steps(op, DType::f32, {a, b}, 100);
        if (!result) continue;
        ++known;
        for (std::int64_t d = -40; d <= 40; ++d)
          CHECK(at(*result, d) == truth(op, at(a, d), at(b, d)));
      }
  CHECK(known > 300);
  for (const Steps& a : operands) {
    for (std::int64_t d = -40; d <= 40; ++d) {
      CHECK(at(a.shifted(3), d) == at(a, d + 3));
      CHECK(at(a.mirrored(), d) == at(a, -d));
      for (const Op op : {Op::abs, Op::neg, Op::relu}) {
        const auto result = compute_steps(op, DType::f32, {a}, 100);
        REQUIRE(result);
        const double x = at(a, d);
        CHECK(at(*result, d) == (op == Op::neg   ? -x
                                 : op == Op::abs ? std::fabs(x)
                                                 : std::fmax(x, 0)));
      }
    }
  }
}

TEST_CASE("each rule of facts says why it is right, and speaks of one op") {
  std::set<Op> ops;
  for (const FactRule& rule : fact_rules()) {
    CHECK(ops.insert(rule.op).second);
    CHECK(rule.why.size() > 10);
  }
}

TEST_CASE("indices that may be negative are known") {
  MaskGraph m;
  Prover prover(m.graph);
  const NodeId ids = m.b.input("ids", {DType::i64, {S}});
  const NodeId p = m.b.positions(S);
  const NodeId back = m.b.binary(Op::sub, p, m.integer(3));
  CHECK(prover.never_negative(ids));
  CHECK(prover.never_negative(p));
  CHECK(prover.never_negative(m.b.binary(Op::add, p, m.integer(2))));
  CHECK(prover.never_negative(m.b.binary(Op::maximum, back, m.integer(0))));
  CHECK(!prover.never_negative(back));
  CHECK(!prover.never_negative(m.b.binary(Op::minimum, p, back)));
  CHECK(!prover.never_negative(m.b.constant(DType::i64, {2}, {0, -1})));
}
