#include <doctest/doctest.h>

#include <cmath>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "ir/rewrite.h"
#include "ir/text.h"

using namespace ac;

namespace {

const Dim S(Symbol::S), T(Symbol::T);

constexpr int kHeads = 4, kKvHeads = 2, kSize = 8, kHidden = 32;

std::string error_of(auto action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One decoder layer as our own front end writes it.
Graph native_layer(std::int64_t window, double softcap) {
  Graph graph{"native", {}, {}};
  Builder b(graph);
  const auto weight = [&](const char* key, Shape shape) {
    return b.weight(key, {DType::f16, std::move(shape)});
  };
  const NodeId ids = b.input("ids", {DType::i64, {S}});
  const NodeId embed = weight("embed", {100, kHidden});
  const NodeId x = b.embedding(embed, ids);
  const NodeId h = b.rms_norm(x, weight("norm", {kHidden}), 1e-6, 0);
  const NodeId inv_freq = b.constant(DType::f32, {4}, {1, 0.5, 0.25, 0.125});
  const NodeId positions = b.positions(S);
  const auto heads = [&](const char* key, int count, bool turn) {
    const NodeId rows = b.linear(h, weight(key, {count * kSize, kHidden}));
    const NodeId split = b.reshape(rows, {S, count, kSize});
    return turn ? b.rope(split, positions, inv_freq, 1, false) : split;
  };
  const NodeId q = heads("q", kHeads, true), k = heads("k", kKvHeads, true);
  const NodeId a = b.attention(q, k, heads("v", kKvHeads, false), 0.25, window, softcap);
  const NodeId o = b.linear(b.reshape(a, {S, kHeads * kSize}), weight("o", {kHidden, kHidden}));
  const NodeId y = b.binary(Op::add, x, o);
  graph.outputs.push_back({"logits", b.linear(y, embed)});
  return graph;
}

// The same layer as PyTorch shows it: batch first, heads before tokens, everything spelled out.
Graph exported_layer(std::int64_t window, double softcap) {
  Graph graph{"exported", {}, {}};
  Builder b(graph);
  const auto weight = [&](const char* key, Shape shape) {
    return b.weight(key, {DType::f16, std::move(shape)});
  };
  const auto f16 = [&](double value) { return b.scalar(DType::f16, value); };
  const auto f32 = [&](double value) { return b.scalar(DType::f32, value); };
  const NodeId ids = b.reshape(b.input("ids", {DType::i64, {S}}), {1, S});
  const NodeId position_ids = b.reshape(b.positions(S), {1, S});
  const NodeId embed = weight("embed", {100, kHidden});
  const NodeId x = b.embedding(embed, ids);

  const NodeId wide = b.cast(x, DType::f32);
  const NodeId mean = b.reduce(Op::mean, b.binary(Op::pow, wide, f32(2)), {2}, true);
  const NodeId root = b.unary(Op::rsqrt, b.binary(Op::add, mean, f32(1e-6)));
  const NodeId normed = b.cast(b.binary(Op::mul, wide, root), DType::f16);
  const NodeId h = b.binary(Op::mul, weight("norm", {kHidden}), normed);

  const NodeId inv_freq = b.constant(DType::f32, {4}, {1, 0.5, 0.25, 0.125});
  const NodeId column = b.expand(b.reshape(inv_freq, {1, 4, 1}), {1, 4, 1});
  const NodeId row = b.cast(b.reshape(position_ids, {1, 1, S}), DType::f32);
  const NodeId freqs = b.permute(b.matmul(column, row), {0, 2, 1});
  const NodeId angles = b.concat({freqs, freqs}, 2);
  const auto wave = [&](Op op) {
    const NodeId scaled = b.binary(Op::mul, b.unary(op, angles), f32(1));
    return b.reshape(b.cast(scaled, DType::f16), {1, 1, S, kSize});
  };
  const NodeId cosine = wave(Op::cos), sine = wave(Op::sin);

  const auto heads = [&](const char* key, int count, bool turn) {
    const NodeId rows = b.linear(h, weight(key, {count * kSize, kHidden}));
    const NodeId split = b.permute(b.reshape(rows, {1, S, count, kSize}), {0, 2, 1, 3});
    if (!turn) return split;
    const NodeId left = b.slice(split, 3, 0, kSize / 2);
    const NodeId right = b.slice(split, 3, kSize / 2, kSize);
    const NodeId turned = b.concat({b.unary(Op::neg, right), left}, 3);
    return b.binary(Op::add, b.binary(Op::mul, split, cosine), b.binary(Op::mul, turned, sine));
  };
  const auto repeated = [&](NodeId kv) {
    const NodeId grouped = b.reshape(kv, {1, kKvHeads, 1, S, kSize});
    const NodeId wide_heads = b.expand(grouped, {1, kKvHeads, kHeads / kKvHeads, S, kSize});
    return b.reshape(wide_heads, {1, kHeads, S, kSize});
  };
  const NodeId q = heads("q", kHeads, true), k = repeated(heads("k", kKvHeads, true)),
               v = repeated(heads("v", kKvHeads, false));
  NodeId scores = b.binary(Op::mul, b.matmul(q, b.permute(k, {0, 1, 3, 2})), f16(0.25));
  if (softcap > 0) {
    scores = b.unary(Op::tanh, b.binary(Op::div, scores, f16(softcap)));
    scores = b.binary(Op::mul, scores, f16(softcap));
  }
  const NodeId i = b.reshape(b.positions(S), {S, 1}), j = b.reshape(b.positions(S), {1, S});
  NodeId seen = b.binary(Op::less_equal, j, i);
  if (window > 0) {
    const NodeId recent = b.binary(
        Op::greater, j, b.binary(Op::sub, i, b.scalar(DType::i64, static_cast<double>(window))));
    seen = b.binary(Op::logical_and, seen, recent);
  }
  seen = b.expand(b.reshape(seen, {1, 1, S, S}), {1, kHeads, S, S});
  scores = b.add(Op::where, {seen, scores, f16(-65504)});
  const NodeId p = b.cast(b.softmax(b.cast(scores, DType::f32), 3), DType::f16);
  const NodeId a = b.reshape(b.permute(b.matmul(p, v), {0, 2, 1, 3}), {1, S, kHeads * kSize});
  const NodeId y = b.binary(Op::add, x, b.linear(a, weight("o", {kHidden, kHidden})));
  graph.outputs.push_back({"logits", b.reshape(b.linear(y, embed), {S, 100})});
  return graph;
}

Graph with_logits(Graph graph, NodeId node) {
  graph.outputs.push_back({"logits", node});
  return graph;
}

}  // namespace

TEST_CASE("a spelled-out layer normalises to the native one") {
  for (const auto& [window, softcap] : {std::pair{0, 0.0}, {5, 0.0}, {0, 30.0}, {7, 50.0}}) {
    CAPTURE(window);
    CAPTURE(softcap);
    const Graph native = normalise(native_layer(window, softcap));
    const Graph exported = normalise(exported_layer(window, softcap));
    CHECK(first_difference(native, exported) == "");
    INFO(print(exported));
    CHECK(first_difference(normalise(native), native) == "");
  }
}

TEST_CASE("a difference in meaning is seen") {
  const Graph a = normalise(exported_layer(5, 0)), b = normalise(exported_layer(6, 0));
  CHECK(contains(first_difference(a, b), "attribute window differs"));
}

TEST_CASE("coupling of tokens other than causal attention is refused by name") {
  const auto refuse = [](auto build) {
    Graph graph{"bad", {}, {}};
    Builder b(graph);
    const NodeId ids = b.reshape(b.input("ids", {DType::i64, {S}}), {1, S});
    const NodeId x = b.embedding(b.weight("embed", {DType::f32, {10, 8}}), ids);
    b.set_module("model.layers.0");
    const NodeId result = build(b, x);
    return error_of([&] { incrementalise(normalise(with_logits(graph, result))); });
  };
  const std::string mean = refuse(
      [](Builder& b, NodeId x) { return b.binary(Op::add, x, b.reduce(Op::mean, x, {1}, true)); });
  CHECK(contains(mean, "mean at model.layers.0: it reduces over tokens"));
  const std::string scores = refuse([](Builder& b, NodeId x) {
    return b.matmul(b.softmax(b.matmul(x, b.permute(x, {0, 2, 1})), 2), x);
  });
  CHECK(contains(scores, "not provably causal: nothing masks the tokens that come later"));
  const std::string shifted = refuse(
      [](Builder& b, NodeId x) { return b.concat({b.slice(x, 1, 1, S), b.slice(x, 1, 0, 1)}, 1); });
  CHECK(contains(shifted, "slice at model.layers.0: it takes the tokens 1:S of S"));
  const std::string mixed =
      refuse([](Builder& b, NodeId x) { return b.reshape(b.permute(x, {0, 2, 1}), {1, S, 8}); });
  CHECK(contains(mixed, "reshaping [1, 8, S] to [1, S, 8] mixes tokens"));
  const std::string later = refuse([](Builder& b, NodeId x) {
    const NodeId i = b.reshape(b.positions(S), {S, 1}), j = b.reshape(b.positions(S), {1, S});
    const NodeId seen = b.binary(Op::less_equal, j, b.binary(Op::add, i, b.scalar(DType::i64, 1)));
    const NodeId scores = b.matmul(x, b.permute(x, {0, 2, 1}));
    const NodeId masked = b.add(Op::where, {seen, scores, b.scalar(DType::f32, -INFINITY)});
    return b.matmul(b.softmax(masked, 2), x);
  });
  CHECK(contains(later, "a token sees tokens that come later"));
}

TEST_CASE("positions read from a table become a lookup") {
  Graph graph{"learned", {}, {}};
  Builder b(graph);
  const NodeId ids = b.reshape(b.input("ids", {DType::i64, {S}}), {1, S});
  const NodeId x = b.embedding(b.weight("embed", {DType::f32, {10, 8}}), ids);
  const NodeId table = b.weight("positions", {DType::f32, {64, 8}});
  const NodeId y = b.binary(Op::add, x, b.slice(table, 0, 0, S));
  const Graph normal = normalise(with_logits(graph, b.reshape(y, {S, 8})));
  const std::string text = print(incrementalise(normal));
  CHECK(contains(text, "positions : i64[T]"));
  CHECK(contains(text, ": f32[T, 8]"));
  CHECK(!contains(text, "slice"));
}

TEST_CASE("a step has caches, and its instances have the rows they need") {
  const StepGraph step = incrementalise(normalise(native_layer(5, 0)));
  REQUIRE(step.caches.size() == 1);
  CHECK(step.caches[0] == Cache{DType::f16, kKvHeads, kSize, kSize, 5, ""});
  CHECK(print(parse_step(print(step), "step")) == print(step));

  const StepGraph decode = decode_instance(step);
  CHECK(decode.graph.type(decode.graph.outputs[0].node).shape == Shape{1, 100});

  const StepGraph prefill = prefill_instance(step);
  CHECK(prefill.graph.type(prefill.graph.outputs[0].node).shape == Shape{1, 100});
  for (const Node& node : prefill.graph.nodes) {
    if (node.op == Op::append_attend) CHECK(node.type.shape[0] == T);
    // Only k and v are needed for all tokens here; o and the head see one row.
    if (node.op == Op::linear && node.type.shape[1] == Dim(100))
      CHECK(node.type.shape[0] == Dim(1));
  }
}

TEST_CASE("a step that is not row by row is refused") {
  const auto refuse = [](auto build) {
    Graph graph{"bad", {}, {}};
    Builder b(graph);
    const NodeId ids = b.input("ids", {DType::i64, {S}});
    const NodeId x = b.embedding(b.weight("embed", {DType::f32, {10, 8}}), ids);
    b.set_module("head");
    const NodeId result = build(b, x);
    return error_of([&] { incrementalise(with_logits(graph, result)); });
  };
  const auto softmax = [](Builder& b, NodeId x) { return b.softmax(x, 0); };
  CHECK(contains(refuse(softmax), "softmax at head: cannot be computed token by token: it works"));
  const auto sum = [](Builder& b, NodeId x) { return b.reduce(Op::sum, x, {0, 1}, false); };
  CHECK(contains(refuse(sum), "sum at head: cannot be computed token by token"));
  const auto moved = [](Builder& b, NodeId x) { return b.permute(x, {1, 0}); };
  CHECK(contains(refuse(moved), "permute at head: cannot be computed token by token"));
}

TEST_CASE("what is put together of parts without elements is the rest") {
  Graph graph{"parts", {}, {}};
  Builder b(graph);
  const NodeId ids = b.input("ids", {DType::i64, {S}});
  const NodeId x = b.embedding(b.weight("embed", {DType::f16, {100, 8}}), ids);
  const NodeId none = b.slice(x, 1, 8, 8);
  graph.outputs.push_back({"logits", b.concat({none, b.concat({x, none}, 1), x, none}, 1)});
  const Graph normal = normalise(graph);
  const Node& last = normal[normal.outputs[0].node];
  CHECK(last.op == Op::concat);
  CHECK(last.inputs.size() == 2);
  CHECK(normal.nodes.size() == 4);  // ids, table, rows and the concat
}
