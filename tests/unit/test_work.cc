// Views as addresses, and the work of ops.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/layout.h"
#include "ir/work.h"

using namespace ac;

namespace {

const Dim kNew(Symbol::T), kPast(Symbol::P);

struct Views {
  Graph graph;
  Builder b{graph};
  NodeId x(Shape shape) { return b.input("x", {DType::bf16, std::move(shape)}); }
  std::string layout(NodeId id) const {
    const Layout found = layout_of(graph, id);
    return std::string(to_string(found.placement)) + " " + found.offset.str() + " " +
           to_string(found.strides);
  }
};

}  // namespace

TEST_CASE("the layout of views") {
  Views v;
  const NodeId x = v.x({kNew, 96});
  CHECK(v.layout(x) == "contiguous 0 [96, 1]");
  // Fused q, k, v: the parts are not contiguous, but their heads have strides.
  const NodeId part = v.b.slice(x, 1, 32, 64);
  CHECK(v.layout(part) == "strided 32 [96, 1]");
  CHECK(v.layout(v.b.reshape(part, {kNew, 4, 8})) == "strided 32 [96, 8, 1]");
  CHECK(v.layout(v.b.reshape(v.b.reshape(part, {kNew, 4, 8}), {kNew, 32})) == "strided 32 [96, 1]");
  CHECK(v.layout(v.b.permute(v.b.reshape(x, {kNew, 4, 24}), {1, 0, 2})) == "strided 0 [24, 96, 1]");
  // Rows that do not lie behind each other cannot be one axis.
  CHECK(v.layout(v.b.reshape(part, {kNew * 32})) == "opaque 0 []");
  CHECK(v.layout(v.b.reshape(v.b.permute(x, {1, 0}), {kNew, 96})) == "opaque 0 []");
  CHECK(v.layout(v.b.reshape(x, {kNew * 96})) == "contiguous 0 [1]");
  CHECK(v.layout(v.b.slice(x, 0, kNew - 1, kNew)) == "contiguous 96*T - 96 [0, 1]");
  CHECK(v.layout(v.b.slice(x, 1, 1, 96, 2)) == "strided 1 [96, 2]");
  CHECK(v.layout(v.b.slice(v.x({1, 96}), 1, 32, 64)) == "contiguous 32 [0, 1]");
  CHECK(v.layout(v.b.expand(v.x({kNew, 1}), {3, kNew, 8})) == "strided 0 [0, 1, 0]");
  CHECK(v.layout(v.b.reshape(v.x({4, 6}), {6, 4})) == "contiguous 0 [4, 1]");
  CHECK(v.layout(v.b.reshape(v.b.reshape(x, {kNew, 1, 96, 1}), {1, kNew, 96})) ==
        "contiguous 0 [0, 96, 1]");
  CHECK(views_of(v.graph, part) == std::vector<NodeId>{part});
  CHECK(storage_of(v.graph, part) == x);
  CHECK(elements_touched(v.graph, part) == kNew * 32);
  CHECK(elements_touched(v.graph, v.b.expand(v.x({kNew, 1}), {3, kNew, 8})) == kNew);
  CHECK(elements_touched(v.graph, v.x({0, 3})) == Dim(0));
}

TEST_CASE("the work of single ops") {
  Graph g;
  Builder b(g);
  const NodeId x = b.input("x", {DType::bf16, {kNew, 64}});
  const NodeId w = b.weight("w", {DType::bf16, {32, 64}}),
               bias = b.weight("b", {DType::bf16, {32}});
  const Work linear = work_of(g, b.linear(x, w, bias));
  CHECK(linear.flops == kNew * (32 * 64 * 2 + 32));
  CHECK(linear.weight_bytes == Dim(32 * 64 * 2 + 32 * 2));
  CHECK(linear.activation_bytes == kNew * 2 * (64 + 32));
  CHECK(linear.state_bytes == Dim(0));

  const NodeId ids = b.input("ids", {DType::i64, {kNew}});
  const Work gather = work_of(g, b.embedding(w, ids));
  CHECK(gather.flops == Dim(0));
  CHECK(gather.weight_bytes == kNew * 64 * 2);  // not the table
  CHECK(gather.activation_bytes == kNew * 8 + kNew * 64 * 2);

  CHECK(work_of(g, b.binary(Op::mul, x, x)).activation_bytes == kNew * 64 * 2 * 2);  // x once
  const NodeId frequencies = b.constant(DType::f32, {4}, {1, 1, 1, 1});
  const Work rope =
      work_of(g, b.rope(b.reshape(x, {kNew, 4, 16}), b.positions(kNew), frequencies, 1.0, false));
  CHECK(rope.flops == kNew * 4 * 4 * 6);  // 8 of 16 features
  CHECK(rope.activation_bytes == kNew * 64 * 2 * 2 + Dim(16));

  const NodeId q = b.input("q", {DType::bf16, {kNew, 8, 16}}),
               k = b.input("k", {DType::bf16, {kNew, 2, 16}});
  const Work attend = work_of(g, b.append_attend(q, k, k, 0, 1.0, 0, 0.0));
  CHECK(attend.state_bytes == (kPast + kNew) * 2 * 32 * 2);
  // 3 tokens after 5: 6 + 7 + 8 pairs, 16 products for q k and 16 for p v, 2 flops each.
  CHECK(evaluate(attend, {-1, 3, 5}).flops == 8 * (6 + 7 + 8) * (2 * 32 + 4));
  const Work windowed = work_of(g, b.append_attend(q, k, k, 1, 1.0, 4, 0.0));
  CHECK(evaluate(windowed, {-1, 1, 1000}).flops == evaluate(attend, {-1, 1, 3}).flops);
  CHECK(evaluate(windowed, {-1, 1, 1000}).state_bytes == evaluate(attend, {-1, 1, 3}).state_bytes);
  CHECK(evaluate(windowed, {-1, 1, 2}).flops == evaluate(attend, {-1, 1, 2}).flops);
  CHECK(Amount{10, 2, 2, 1}.intensity() == 2.0);
  CHECK(Amount{}.intensity() == 0.0);
}

// A node of any op of the table, over x [T, 8] bf16.
namespace {

NodeId node_of(Builder& b, Op op) {
  const NodeId x = b.input("x", {DType::bf16, {kNew, 8}});
  const NodeId flag = b.input("flag", {DType::boolean, {kNew, 8}});
  const NodeId w = b.weight("w", {DType::bf16, {8, 8}});
  const NodeId heads = b.reshape(x, {kNew, 2, 4});
  switch (info(op).rule) {
    case ShapeRule::declared:
      if (op == Op::input) return x;
      if (op == Op::weight) return w;
      return b.scalar(DType::bf16, 1.0);
    case ShapeRule::positions:
      return b.positions(kNew);
    case ShapeRule::cast:
      return b.cast(x, DType::f32);
    case ShapeRule::unary:
      return op == Op::gelu ? b.gelu(x, true) : b.unary(op, x);
    case ShapeRule::binary:
    case ShapeRule::compare:
      return b.binary(op, x, x);
    case ShapeRule::logical:
      return op == Op::logical_not ? b.unary(op, flag) : b.binary(op, flag, flag);
    case ShapeRule::where:
      return b.add(op, {flag, x, x});
    case ShapeRule::reduce:
      return b.reduce(op, x, {1}, true);
    case ShapeRule::softmax:
      return b.softmax(x, 1);
    case ShapeRule::norm:
      return op == Op::layer_norm ? b.layer_norm({x}, 1e-5)
                                  : b.rms_norm(x, b.weight("n", {DType::bf16, {8}}), 1e-6, 0.0);
    case ShapeRule::matmul:
      return b.matmul(x, w);
    case ShapeRule::linear:
      return b.linear(x, w);
    case ShapeRule::embedding:
      return b.embedding(w, b.input("ids", {DType::i64, {kNew}}));
    case ShapeRule::rope:
      return b.rope(heads, b.positions(kNew), b.constant(DType::f32, {1}, {1.0}), 1.0, false);
    case ShapeRule::attention:
      return op == Op::attention ? b.attention(heads, heads, heads, 1.0, 0, 0.0)
                                 : b.append_attend(heads, heads, heads, 0, 1.0, 0, 0.0);
    case ShapeRule::reshape:
      return heads;
    case ShapeRule::permute:
      return b.permute(x, {1, 0});
    case ShapeRule::expand:
      return b.expand(x, {2, kNew, 8});
    case ShapeRule::slice:
      return b.slice(x, 1, 0, 4);
    case ShapeRule::concat:
      return b.concat({x, x}, 1);
    case ShapeRule::triangle:
      return b.add(op, {x}, {{"diagonal", std::int64_t{0}}});
  }
  AC_UNREACHABLE();
}

}  // namespace

TEST_CASE("every op of the table has flops and bytes") {
  const std::set<Op> moves{Op::embedding, Op::concat};
  for (const OpInfo& op : op_table()) {
    CAPTURE(std::string(op.name));
    Graph graph;
    Builder b(graph);
    const NodeId id = node_of(b, op.op);
    REQUIRE(graph[id].op == op.op);
    const Work work = work_of(graph, id);
    const Amount amount = evaluate(work, {-1, 3, 5});
    const bool computes = op.max_inputs > 0 && op.memory != Memory::view;
    CHECK((amount.flops > 0) == (computes && moves.count(op.op) == 0));
    CHECK((amount.bytes() > 0) == computes);
    CHECK((amount.state_bytes > 0) == (op.memory == Memory::state));
    if (computes) CHECK(result_bytes(graph, id) != Dim(0));
    // Twice the rows, at least twice the flops.
    if (computes && op.op != Op::attention)
      CHECK(evaluate(work, {-1, 6, 5}).flops >= 2 * amount.flops);
  }
}
