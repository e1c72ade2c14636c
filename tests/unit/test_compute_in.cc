// A model in another float type than its own.
#include <doctest/doctest.h>

#include <cmath>

#include "ir/builder.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "ir/rewrite.h"
#include "reference/executor.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/symbols.h"

namespace ac::test {
namespace {

constexpr int kSize = 8;

// An embedding, a norm and a head in `dtype`, with what `middle` puts between them.
Graph model(DType dtype, const std::function<NodeId(Builder&, NodeId)>& middle) {
  Graph graph{"model", {}, {}};
  Builder b(graph);
  const NodeId ids = b.input("ids", {DType::i64, {S}});
  const NodeId table = b.weight("table", {dtype, {50, kSize}});
  const NodeId x = middle(b, b.embedding(table, ids));
  const NodeId normed = b.rms_norm(x, b.weight("norm", {dtype, {kSize}}), 1e-6, 0);
  graph.outputs.push_back({"logits", b.linear(normed, table)});
  return normalise(graph);
}

NodeId attended(Builder& b, NodeId x) {
  const NodeId heads = b.reshape(x, {S, 2, kSize / 2});
  const NodeId turned =
      b.rope(heads, b.positions(S), b.constant(DType::f32, {2}, {1, 0.1}), 1, false);
  return b.reshape(b.attention(turned, turned, heads, 0.5, 0, 0), {S, kSize});
}

// Doubled and shifted in float32, whatever the model is in.
NodeId widened(Builder& b, NodeId x) {
  const DType own = b.type(x).dtype;
  const NodeId wide = b.binary(Op::mul, b.cast(x, DType::f32), b.scalar(DType::f32, 2));
  const NodeId scale = b.weight("scale", {DType::f32, {kSize}});
  return b.cast(b.binary(Op::add, wide, scale), own);
}

int count(const Graph& graph, Op op) {
  int times = 0;
  for (const Node& node : graph.nodes) times += node.op == op;
  return times;
}

}  // namespace

TEST_CASE("compute in: a model in another type is what it is when written in that type") {
  const DType all[] = {DType::f32, DType::f16, DType::bf16};
  for (const DType own : all)
    for (const DType other : all) {
      const Graph made = compute_in(model(own, attended), other);
      CHECK(first_difference(made, model(other, attended)) == "");
      CHECK(main_dtype(made) == other);
      CHECK(incrementalise(made).states.at(0).dtype == other);
      CHECK(first_difference(compute_in(made, own), model(own, attended)) == "");
    }
}

TEST_CASE("compute in: what a model computes in float32 on purpose stays there") {
  const Graph made = compute_in(model(DType::bf16, widened), DType::f16);
  CHECK(first_difference(made, model(DType::f16, widened)) == "");
  CHECK(count(made, Op::cast) == 2);
  const Graph single = compute_in(model(DType::bf16, widened), DType::f32);
  CHECK(count(single, Op::cast) == 0);
  CHECK(first_difference(single, model(DType::f32, widened)) == "");
}

TEST_CASE("compute in: angles of positions stay in float32") {
  const auto waves = [](Builder& b, NodeId x) {
    const NodeId at = b.reshape(b.cast(b.positions(S), DType::f32), {S, 1});
    const NodeId angles = b.binary(Op::mul, at, b.scalar(DType::f32, 0.01));
    return b.binary(Op::add, x, b.unary(Op::cos, angles));
  };
  const Graph made = compute_in(model(DType::f32, waves), DType::bf16);
  for (const Node& node : made.nodes) {
    if (node.op == Op::cos) CHECK(node.type.dtype == DType::f32);
    if (node.op == Op::add) CHECK(node.type.dtype == DType::bf16);
  }
  CHECK(count(made, Op::cast) == 2);  // of the positions, and of the cosine
}

TEST_CASE("compute in: constants are rounded as they would be when stored") {
  const auto scaled = [](Builder& b, NodeId x) {
    return b.binary(Op::mul, x, b.scalar(b.type(x).dtype, 0.1));
  };
  const Graph made = compute_in(model(DType::f32, scaled), DType::bf16);
  CHECK(count(made, Op::cast) == 0);
  for (const Node& node : made.nodes)
    if (node.op == Op::constant) CHECK(node.data()[0] == round_to(DType::bf16, 0.1));
}

TEST_CASE("compute in: the reference rounds weights, and refuses what the type cannot hold") {
  const Graph made = compute_in(model(DType::f32, attended), DType::f16);
  std::vector<float> table(50 * kSize, 0.1f);
  const std::vector<float> norm(kSize, 1.f);
  const WeightLookup weights = [&](const Node& node) {
    const bool is_norm = node.text("key") == "norm";
    return WeightView{
        DType::f32,
        is_norm ? std::vector<std::int64_t>{kSize} : std::vector<std::int64_t>{50, kSize},
        reinterpret_cast<const std::byte*>(is_norm ? norm.data() : table.data())};
  };
  const auto run = [&] {
    return evaluate(made, {.S = 1}, {{"ids", {DType::i64, {1}, {49}}}}, weights).at("logits");
  };
  CHECK(run().data.at(0) == doctest::Approx(8 * round_to(DType::f16, 0.1)).epsilon(1e-3));
  table.back() = 65504;
  CHECK_NOTHROW(run());
  table.back() = 65520;
  CHECK_BAD_INPUT(run(), "\"table\"", "65520", "float16");
  table.back() = INFINITY;  // is what it is
  CHECK_NOTHROW(run());
}

}  // namespace ac::test
