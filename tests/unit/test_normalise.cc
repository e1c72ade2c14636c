#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "ir/rewrite.h"
#include "tests/unit/contains.h"
#include "tests/unit/symbols.h"

using namespace ac;
using namespace ac::test;

namespace {

constexpr int kHeads = 4, kKvHeads = 2, kSize = 8, kHidden = 32;

std::string error_of(auto action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
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

// By reference: whoever makes the node adds to the graph, before or after other arguments are made.
Graph with_logits(const Graph& graph, NodeId node) {
  Graph whole = graph;
  whole.outputs.push_back({"logits", node});
  return whole;
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
  CHECK(!contains(text, " = slice("));
}

TEST_CASE("a step has states, and its instances have the rows they need") {
  const StepGraph step = incrementalise(normalise(native_layer(5, 0)));
  REQUIRE(step.states.size() == 1);
  CHECK(step.states[0] == kv_state(DType::f16, kKvHeads, kSize, kSize, 5));
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

namespace {

constexpr int kSide = 4;  // heads, and features of each

// x [S, 4, 4] that something is made of.
std::string normal_form_of(const std::function<NodeId(Builder&, NodeId x)>& make,
                           std::int64_t max_tokens = kMostTokens) {
  Graph graph{"axes", {}, {}, {max_tokens, ""}};
  Builder b(graph);
  const NodeId ids = b.input("ids", {DType::i64, {S}});
  const NodeId x = b.embedding(b.weight("embed", {DType::f32, {10, kSide, kSide}}), ids);
  return print(normalise(with_logits(graph, b.reshape(make(b, x), {S, kSide * kSide}))));
}

// Scores of 2 heads, and what is attended to with them.
std::string attended(const std::function<NodeId(Builder&, NodeId scores)>& mask) {
  Graph graph{"scores", {}, {}, {4096, ""}};
  Builder b(graph);
  const NodeId ids = b.reshape(b.input("ids", {DType::i64, {S}}), {1, S});
  const NodeId x = b.embedding(b.weight("embed", {DType::f32, {10, 8}}), ids);
  const NodeId q = b.permute(b.reshape(x, {1, S, 2, 4}), {0, 2, 1, 3});
  const NodeId scores = mask(b, b.matmul(q, b.permute(q, {0, 1, 3, 2})));
  const NodeId y = b.matmul(b.softmax(scores, 3), q);
  const NodeId out = b.reshape(b.permute(y, {0, 2, 1, 3}), {S, 8});
  std::string text;
  const std::string error = error_of([&] { text = print(normalise(with_logits(graph, out))); });
  return text.empty() ? error : text;
}

NodeId triangle(Builder& b, DType dtype = DType::f32) {
  const NodeId ones = b.expand(b.scalar(dtype, 1), {S, S});
  return b.add(Op::tril, {ones}, {{"diagonal", std::int64_t{0}}});
}

NodeId hidden_by(Builder& b, NodeId scores, double fill) {
  const NodeId seen = b.cast(triangle(b), DType::boolean);
  return b.add(Op::where, {seen, scores, b.scalar(DType::f32, fill)});
}

}  // namespace

TEST_CASE("a mean over another axis of the same size is no norm") {
  const auto norm = [](Shape kept) {
    return normal_form_of([&](Builder& b, NodeId x) {
      const NodeId mean = b.reduce(Op::mean, b.binary(Op::mul, x, x), {2}, false);
      const NodeId root = b.unary(Op::rsqrt, b.binary(Op::add, mean, b.scalar(DType::f32, 1e-6)));
      return b.binary(Op::mul, x, b.reshape(root, kept));
    });
  };
  CHECK(contains(norm({S, kSide, 1}), "rms_norm"));
  CHECK(!contains(norm({S, 1, kSide}), "rms_norm"));
}

TEST_CASE("waves along another axis of the same size are no RoPE") {
  const auto turned = [](Shape waves, Shape frequencies, double first) {
    return normal_form_of([&](Builder& b, NodeId x) {
      const NodeId row = b.cast(b.reshape(b.positions(S), {S, 1}), DType::f32);
      NodeId angles = b.binary(Op::mul, row, b.constant(DType::f32, {4}, {first, 0.5, first, 0.5}));
      angles = b.reshape(angles, waves);
      if (!frequencies.empty())
        angles = b.binary(Op::mul, angles, b.constant(DType::f32, {4, 1}, {1, 2, 1, 2}));
      const NodeId half = b.concat({b.unary(Op::neg, b.slice(x, 2, 2, 4)), b.slice(x, 2, 0, 2)}, 2);
      return b.binary(Op::add, b.binary(Op::mul, x, b.unary(Op::cos, angles)),
                      b.binary(Op::mul, half, b.unary(Op::sin, angles)));
    });
  };
  CHECK(contains(turned({S, 1, 4}, {}, 1), "rope"));
  CHECK(!contains(turned({S, 4, 1}, {}, 1), "rope"));
  CHECK(!contains(turned({S, 1, 4}, {4, 1}, 1), "rope"));
}

TEST_CASE("casts to integers are not looked through") {
  CHECK(contains(attended([](Builder& b, NodeId scores) {
                   const NodeId cut = b.cast(b.cast(scores, DType::i64), DType::f32);
                   return hidden_by(b, cut, -INFINITY);
                 }),
                 "the scores are converted to"));
  // full(2.9).long() is 2, which is no neutral factor of 2.9 / 2.9.
  const std::string scaled = attended([](Builder& b, NodeId scores) {
    const NodeId two =
        b.cast(b.cast(b.expand(b.scalar(DType::f32, 2.9), {S, S}), DType::i64), DType::f32);
    return hidden_by(b, b.binary(Op::mul, scores, two), -INFINITY);
  });
  CHECK(contains(scaled, "scale=2.0"));
}

TEST_CASE("a finite number hides only what scores cannot outweigh") {
  const auto filled = [](double fill) {
    return attended([&](Builder& b, NodeId scores) { return hidden_by(b, scores, fill); });
  };
  CHECK(contains(filled(-INFINITY), "attention"));
  CHECK(contains(filled(-3.4e38), "window=0"));
  CHECK(contains(filled(-1e9), "window=0"));
  CHECK(!contains(filled(-1e9), "scores_within"));
  // Only where all scores are small, which the graph says.
  CHECK(contains(filled(-1e4), "softcap=0.0, scores_within=2500.0}"));
  CHECK(contains(filled(-1000), "scores_within=250.0"));
  CHECK(contains(filled(-999), "hides tokens with -999, which scores can outweigh"));
  CHECK(contains(filled(-3), "neither hides nor keeps"));
  CHECK(contains(filled(NAN), "the mask adds nan"));
  // Within a cap of 20, two scores differ by at most 40.
  const auto capped = [](double fill) {
    return attended([&](Builder& b, NodeId scores) {
      const NodeId cap = b.scalar(DType::f32, 20);
      const NodeId curve = b.unary(Op::tanh, b.binary(Op::div, scores, cap));
      return hidden_by(b, b.binary(Op::mul, curve, cap), fill);
    });
  };
  CHECK(contains(capped(-1e4), "softcap=20.0} :"));
  CHECK(contains(capped(-143), "which scores can outweigh"));
  // Scaled after the mask, as long as the fill stays low enough.
  const auto scaled = [](double fill, double factor) {
    return attended([&](Builder& b, NodeId scores) {
      return b.binary(Op::mul, hidden_by(b, scores, fill), b.scalar(DType::f32, factor));
    });
  };
  CHECK(contains(scaled(-1e9, 0.5), "scale=0.5"));
  CHECK(contains(scaled(-1e9, 1e-6), "scores_within=250.0"));
  CHECK(contains(scaled(-1e9, 1e-7), "which scores can outweigh"));
  CHECK(contains(scaled(-INFINITY, -1), "a negative factor"));
}

TEST_CASE("what else is done to scores counts where a mask hides small ones only") {
  const auto hidden = [](auto before, double fill = -1e4) {
    return attended(
        [&](Builder& b, NodeId scores) { return hidden_by(b, before(b, scores), fill); });
  };
  const auto number = [](Builder& b, double value) { return b.scalar(DType::f32, value); };
  // One number for all scores: an eighth of the mask's is left to it.
  const auto raised = [&](double by) {
    return hidden([&](Builder& b, NodeId x) { return b.binary(Op::add, x, number(b, by)); }, -4000);
  };
  CHECK(contains(raised(500), "scores_within=1000.0"));
  CHECK(contains(raised(-501), "which scores can outweigh"));
  const auto lowered = [](Builder& b, NodeId x) {
    return b.binary(Op::sub, x, b.reduce(Op::amax, x, {3}, true));
  };
  CHECK(contains(hidden(lowered), "scores_within=2500.0"));
  CHECK(contains(hidden([&](Builder& b, NodeId x) { return lowered(b, lowered(b, x)); }),
                 "which scores can outweigh"));
  // A maximum that a mask has made takes every score below what hides.
  CHECK(contains(hidden([&](Builder& b, NodeId x) { return lowered(b, hidden_by(b, x, 1e9)); }),
                 "of scores that a mask has raised"));
  // Weights may be any number.
  const auto by_weight = [](Builder& b, NodeId x) {
    return b.binary(Op::add, x, b.weight("bias", {DType::f32, {2, 1, 1}}));
  };
  CHECK(contains(hidden(by_weight), "which scores can outweigh"));
  CHECK(contains(hidden(by_weight, -1e9), "window=0"));
  // A floor under the scores, in the units of what it keeps.
  const auto kept = [&](double factor, double floor) {
    return hidden([&](Builder& b, NodeId x) {
      return b.binary(Op::mul, b.binary(Op::maximum, x, number(b, floor)), number(b, factor));
    });
  };
  CHECK(contains(kept(1, -2000), "scores_within=500.0"));
  CHECK(contains(kept(-1, -2000), "scores_within=500.0"));
  CHECK(contains(kept(0.25, -2000), "which scores can outweigh"));
  CHECK(contains(kept(1, -999), "kept above -999"));
  // Two masks, the weaker of which decides.
  CHECK(contains(hidden([](Builder& b, NodeId x) { return hidden_by(b, x, -INFINITY); }, -2000),
                 "scores_within=500.0"));
}

TEST_CASE("empty, turned and broken bands are refused for what they are") {
  const auto seen = [](const std::function<NodeId(Builder&, NodeId i, NodeId j)>& condition) {
    return attended([&](Builder& b, NodeId scores) {
      const NodeId i = b.reshape(b.positions(S), {S, 1}), j = b.reshape(b.positions(S), {1, S});
      return b.add(Op::where, {condition(b, i, j), scores, b.scalar(DType::f32, -1e9)});
    });
  };
  const auto both = [](Op first, Op second, Op join) {
    return [=](Builder& b, NodeId i, NodeId j) {
      return b.binary(join, b.binary(first, j, i), b.binary(second, j, i));
    };
  };
  CHECK(contains(seen(both(Op::less_equal, Op::greater, Op::logical_and)), "hides everything"));
  CHECK(contains(seen(both(Op::less_equal, Op::greater, Op::logical_or)), "nothing masks"));
  CHECK(contains(seen(both(Op::less, Op::less, Op::logical_and)), "does not see itself"));
  CHECK(contains(seen(both(Op::greater_equal, Op::greater_equal, Op::logical_and)),
                 "sees tokens that come later"));
  CHECK(contains(seen([](Builder& b, NodeId i, NodeId j) {
                   const NodeId distance = b.binary(Op::sub, i, j);
                   const NodeId near = b.binary(Op::less, distance, b.scalar(DType::i64, 2));
                   const NodeId far = b.binary(Op::greater, distance, b.scalar(DType::i64, 5));
                   return b.binary(Op::logical_and, b.binary(Op::less_equal, j, i),
                                   b.binary(Op::logical_or, near, far));
                 }),
                 "hides tokens in the middle"));
}

TEST_CASE("rules read only inputs that an op has") {
  CHECK(contains(attended([](Builder& b, NodeId) {
                   const NodeId same = b.expand(b.scalar(DType::f32, 0.5), {1, 2, S, S});
                   return b.binary(Op::mul, b.unary(Op::tanh, same), b.scalar(DType::f32, 5));
                 }),
                 "tanh of the scores is not c * tanh(scores / c)"));
}

TEST_CASE("masks by the position's slope are a bias") {
  CHECK(contains(attended([](Builder& b, NodeId scores) {
                   const NodeId i = b.reshape(b.positions(S), {S, 1}),
                                j = b.reshape(b.positions(S), {1, S});
                   const NodeId bias = b.cast(b.binary(Op::sub, j, i), DType::f32);
                   return hidden_by(b, b.binary(Op::add, scores, bias), -INFINITY);
                 }),
                 "ALiBi"));
}

TEST_CASE("a graph is right as far as its buffers and tables reach") {
  const auto limit = [](const std::function<NodeId(Builder&, NodeId x)>& make) {
    return parse_graph(normal_form_of(make, 4096), "graph").limit;
  };
  CHECK(limit([](Builder&, NodeId x) { return x; }) == TokenLimit{4096, ""});
  const auto table = [](Builder& b) { return b.weight("table", {DType::f32, {64, kSide, kSide}}); };
  const TokenLimit sliced = limit(
      [&](Builder& b, NodeId x) { return b.binary(Op::add, x, b.slice(table(b), 0, 2, S + 2)); });
  CHECK(sliced.tokens == 62);
  CHECK(contains(sliced.why, "takes them from a table of 64"));
  const TokenLimit looked_up = limit([&](Builder& b, NodeId x) {
    const NodeId shifted = b.binary(Op::add, b.positions(S), b.scalar(DType::i64, 2));
    return b.binary(Op::add, x, b.embedding(table(b), shifted));
  });
  CHECK(looked_up.tokens == 62);
  CHECK(contains(looked_up.why, "its table of 64 has no row for position 62"));
  const TokenLimit rounded = limit([&](Builder& b, NodeId x) {
    const NodeId halves = b.cast(b.positions(S), DType::bf16);
    return b.binary(Op::add, x, b.embedding(table(b), b.cast(halves, DType::i64)));
  });
  CHECK(rounded.tokens == 64);  // the table is shorter than what bfloat16 counts
  CHECK(limit([&](Builder& b, NodeId x) {
          const NodeId fixed = b.constant(DType::i64, {4}, {0, 1, 2, 3});
          const NodeId rows = b.reduce(Op::sum, b.embedding(table(b), fixed), {0}, false);
          return b.binary(Op::add, x, rows);
        }).tokens == 4096);
  const std::string step = print(incrementalise(
      parse_graph(normal_form_of([](Builder&, NodeId x) { return x; }, 128), "graph")));
  CHECK(contains(step, "step \"axes\" max_tokens=128 {"));
  CHECK(print(parse_step(step, "step")) == step);
}

TEST_CASE("a comparison that is too far from the positions to be tried is refused") {
  const auto after = [](int steps) {
    return [steps](Builder& b, NodeId x) {
      const NodeId half = b.scalar(DType::f32, 0.5);
      NodeId number = b.cast(b.reshape(b.positions(S), {S, 1, 1}), DType::f32);
      for (int i = 0; i < steps; ++i) number = b.binary(Op::mul, number, half);
      const NodeId flag = b.binary(Op::greater, number, b.scalar(DType::f32, 3));
      return b.binary(Op::add, x, b.cast(flag, DType::f32));
    };
  };
  CHECK(contains(normal_form_of(after(3)), "greater"));
  CHECK(contains(error_of([&] { normal_form_of(after(100'000)); }),
                 "rounding may decide this comparison, which is made of positions"));
}

TEST_CASE("selections by known indices are slices, counted from the end if negative") {
  const std::string text = normal_form_of([](Builder& b, NodeId x) {
    const NodeId reversed = b.constant(DType::i64, {4}, {-1, 2, 1, 0});
    const NodeId taken = b.embedding(b.permute(x, {2, 0, 1}), reversed);
    return b.permute(taken, {1, 2, 0});
  });
  CHECK(contains(text, "start=3, end=4"));
  CHECK(contains(text, "concat"));
  CHECK(contains(error_of([] {
                   normal_form_of([](Builder& b, NodeId x) {
                     const NodeId beyond = b.constant(DType::i64, {4}, {4, 2, 1, 0});
                     return b.permute(b.embedding(b.permute(x, {2, 0, 1}), beyond), {1, 2, 0});
                   });
                 }),
                 "the index 4 is outside the 4 entries"));
}
