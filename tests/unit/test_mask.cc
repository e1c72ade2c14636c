#include <doctest/doctest.h>

#include <cmath>

#include "ir/builder.h"
#include "ir/normalise/mask.h"

using namespace ac;

namespace {

const Dim S(Symbol::S);

struct Mask {
  Graph graph{"mask", {}, {}};
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
  std::optional<Band> prove(NodeId id) { return prove_band(graph, id); }
};

void check_band(const std::optional<Band>& band, std::optional<std::int64_t> low,
                std::optional<std::int64_t> high, double inside, double outside) {
  REQUIRE(band);
  CHECK(band->low == low);
  CHECK(band->high == high);
  CHECK(band->inside == inside);
  CHECK(band->outside == outside);
}

}  // namespace

TEST_CASE("comparisons of positions are bands") {
  Mask m;
  check_band(m.prove(m.compare(Op::less_equal)), 0, {}, 1, 0);     // column <= row
  check_band(m.prove(m.compare(Op::less)), 1, {}, 1, 0);           // column < row
  check_band(m.prove(m.compare(Op::greater)), {}, -1, 1, 0);       // column > row
  check_band(m.prove(m.compare(Op::greater_equal)), {}, 0, 1, 0);  // column >= row
}

TEST_CASE("a sliding window is the intersection of two comparisons") {
  Mask m;
  const NodeId distance = m.b.binary(Op::sub, m.rows, m.columns);
  const NodeId near = m.b.binary(Op::less, distance, m.integer(4));
  const NodeId both = m.b.binary(Op::logical_and, m.compare(Op::less_equal), near);
  check_band(m.prove(both), 0, 3, 1, 0);
  const NodeId hidden =
      m.b.binary(Op::logical_or, m.b.unary(Op::logical_not, near), m.compare(Op::greater));
  check_band(m.prove(m.b.unary(Op::logical_not, hidden)), 0, 3, 1, 0);
  // column > row - 4
  const NodeId shifted = m.b.binary(Op::sub, m.rows, m.integer(4));
  check_band(m.prove(m.b.binary(Op::greater, m.columns, shifted)), {}, 3, 1, 0);
}

TEST_CASE("triangles, additive masks and buffers cut to length are bands") {
  Mask m;
  check_band(m.prove(m.triangle(Op::tril, m.ones(), 0)), 0, {}, 1, 0);
  check_band(m.prove(m.triangle(Op::triu, m.ones(), 1)), {}, -1, 1, 0);
  const NodeId lowest = m.b.expand(m.real(-INFINITY), {S, S});
  check_band(m.prove(m.triangle(Op::triu, lowest, 1)), {}, -1, -INFINITY, 0);
  const NodeId inverted = m.b.binary(Op::sub, m.real(1), m.triangle(Op::tril, m.ones(), 0));
  check_band(m.prove(m.b.binary(Op::mul, inverted, m.real(-1e9))), 0, {}, 0, -1e9);
  const NodeId buffer = m.triangle(Op::tril, m.b.expand(m.real(1), {1, 1, 2048, 2048}), 0);
  const NodeId cut = m.b.slice(m.b.slice(buffer, 2, 0, S), 3, 0, S);
  check_band(m.prove(m.b.binary(Op::equal, cut, m.real(0))), 0, {}, 0, 1);
  // Transposed, then turned around: row - column changes its sign twice.
  const NodeId transposed = m.b.permute(m.triangle(Op::triu, m.ones(), 0), {1, 0});
  check_band(m.prove(transposed), 0, {}, 1, 0);
}

TEST_CASE("what is not a band is not proven") {
  Mask m;
  const NodeId data = m.b.input("mask", {DType::boolean, {S, S}});
  CHECK(!m.prove(data));
  CHECK(!m.prove(m.b.binary(Op::logical_and, m.compare(Op::less_equal), data)));
  // every second token
  const NodeId doubled = m.b.binary(Op::mul, m.rows, m.integer(2));
  CHECK(!m.prove(m.b.binary(Op::less, m.columns, doubled)));
  // a prefix that all tokens see
  const NodeId prefix = m.b.binary(Op::less, m.columns, m.integer(4));
  CHECK(!m.prove(m.b.binary(Op::logical_or, m.compare(Op::less_equal), prefix)));
  // a buffer cut elsewhere than at its start
  const NodeId buffer = m.triangle(Op::tril, m.b.expand(m.real(1), {2048, 2048}), 0);
  CHECK(!m.prove(m.b.slice(m.b.slice(buffer, 0, 1, S + 1), 1, 0, S)));
  const NodeId uneven = m.b.constant(DType::f32, {2, 2}, {1, 0, 1, 1});
  CHECK(!m.prove(uneven));
}
