// Attention in the layouts that einsum and people make: its normal form computes what was written,
// by the reference executor, and what looks alike and is no causal attention is refused.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "reference/executor.h"
#include "tests/unit/contains.h"
#include "tests/unit/symbols.h"

using namespace ac;
using namespace ac::test;

namespace {

constexpr std::int64_t kTokens = 6, kVocab = 9;
constexpr double kMasked = -INFINITY;

struct Scene {
  Graph graph{"layouts", {}, {}, {64, ""}};
  Builder b{graph};
  std::mt19937 random{5};
  NodeId ids = b.input("ids", {DType::i64, {S}});

  NodeId numbers(std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<double> data;
    for (std::int64_t i = 0; i < count; ++i)
      data.push_back(static_cast<double>(random() % 2001) / 1000 - 1);
    return b.constant(DType::f32, std::move(shape), std::move(data));
  }
  // [S, sizes...]
  NodeId rows(std::vector<std::int64_t> sizes) {
    std::int64_t count = 1;
    Shape shape{S};
    for (const std::int64_t size : sizes) count *= size, shape.emplace_back(size);
    return b.reshape(b.embedding(numbers({kVocab, count}), ids), shape);
  }
  NodeId permute(NodeId x, std::vector<std::int64_t> axes) { return b.permute(x, std::move(axes)); }
  NodeId ones() { return b.expand(b.scalar(DType::boolean, 1), {S, S}); }
  NodeId triangle(Op op, std::int64_t diagonal) {
    return b.add(op, {ones()}, {{"diagonal", diagonal}});
  }
  NodeId hidden(NodeId condition, NodeId scores) {
    return b.add(Op::where, {condition, b.scalar(DType::f32, kMasked), scores});
  }
  NodeId causal(NodeId scores) { return hidden(triangle(Op::triu, 1), scores); }
};

using Make = std::function<NodeId(Scene&)>;

Graph graph_of(const Make& make) {
  Scene scene;
  const NodeId result = make(scene);
  scene.graph.outputs.push_back({"logits", result});
  return std::move(scene.graph);
}

// The normal form, if it computes what the graph does and is a step; else why it is refused.
std::string normal_form_of(const Make& make) {
  const Graph graph = graph_of(make);
  Graph normal;
  try {
    normal = normalise(graph);
    incrementalise(normal);
  } catch (const Error& error) {
    return error.what();
  }
  Value ids{DType::i64, {kTokens}, {}};
  for (std::int64_t i = 0; i < kTokens; ++i) ids.data.push_back(static_cast<double>(i * 4 % 9));
  const auto run = [&](const Graph& of) {
    return evaluate(of, {.S = kTokens}, {{"ids", ids}}, {}).at("logits").data;
  };
  const std::vector<double> wanted = run(graph), got = run(normal);
  REQUIRE(got.size() == wanted.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    REQUIRE(std::isfinite(wanted[i]));
    worst = std::max(worst, std::fabs(got[i] - wanted[i]));
  }
  CHECK(worst < 1e-9);
  return print(normal);
}

void check_attention(const Make& make) {
  const std::string text = normal_form_of(make);
  CAPTURE(text);
  CHECK(contains(text, "= attention("));
}

void check_refused(const Make& make, const std::string& why) {
  const std::string text = normal_form_of(make);
  CAPTURE(text);
  CHECK(contains(text, why));
}

constexpr const char* kCoupled = "a decoder may couple tokens only by causal attention";

// Four query heads and one of keys, whose queries are rows of one product: heads and tokens merged
// with `heads_first` or tokens first.
NodeId merged_rows(Scene& s, bool heads_first) {
  Builder& b = s.b;
  NodeId q = s.rows({4, 8});
  if (heads_first) q = s.permute(q, {1, 0, 2});
  const NodeId k = b.reshape(s.rows({8}), {1, S, 8}), v = b.reshape(s.rows({8}), {1, S, 8});
  const NodeId product = b.matmul(b.reshape(q, {1, S * 4, 8}), s.permute(k, {0, 2, 1}));
  NodeId scores = b.binary(Op::mul, product, b.scalar(DType::f32, 0.5));
  scores = b.reshape(scores, heads_first ? Shape{1, 4, S, S} : Shape{1, S, 4, S});
  if (!heads_first) scores = s.permute(scores, {0, 2, 1, 3});
  NodeId p = b.softmax(s.causal(scores), 3);
  if (!heads_first) p = s.permute(p, {0, 2, 1, 3});
  NodeId y = b.matmul(b.reshape(p, {1, S * 4, S}), v);
  if (heads_first) y = s.permute(b.reshape(y, {4, S, 8}), {1, 0, 2});
  return b.reshape(y, {S, 32});
}

// Scores [2, keys, queries] of two heads.
struct KeysFirst {
  NodeId scores, v;
  explicit KeysFirst(Scene& s) {
    const auto heads = [&](NodeId x) { return s.permute(x, {1, 0, 2}); };
    const NodeId q = heads(s.rows({2, 3})), k = heads(s.rows({2, 3}));
    scores = s.b.matmul(k, s.permute(q, {0, 2, 1}));
    v = heads(s.rows({2, 3}));
  }
};
NodeId merge(Scene& s, NodeId y) { return s.b.reshape(s.permute(y, {1, 0, 2}), {S, 6}); }

}  // namespace

TEST_CASE("heads that are rows of one product come apart") {
  check_attention([](Scene& s) { return merged_rows(s, true); });
  check_attention([](Scene& s) { return merged_rows(s, false); });
  // A number and a norm of each head, computed while they were merged.
  check_attention([](Scene& s) {
    Builder& b = s.b;
    const NodeId flat = b.reshape(s.rows({2, 4}), {S * 2, 4});
    const NodeId normed = b.rms_norm(flat, s.numbers({4}), 1e-6, 0);
    const NodeId q =
        s.permute(b.reshape(b.linear(normed, s.numbers({4, 4})), {S, 2, 4}), {1, 0, 2});
    const NodeId scores = s.causal(b.matmul(q, s.permute(q, {0, 2, 1})));
    return b.reshape(s.permute(b.matmul(b.softmax(scores, 2), q), {1, 0, 2}), {S, 8});
  });
}

TEST_CASE("scores may lie keys first, and heads between tokens") {
  const auto later = [](Scene& s, NodeId x) { return s.hidden(s.triangle(Op::tril, -1), x); };
  check_attention([&](Scene& s) {
    const KeysFirst a(s);
    const NodeId p = s.b.softmax(later(s, a.scores), 1);
    return merge(s, s.b.matmul(s.permute(p, {0, 2, 1}), a.v));
  });
  check_attention([&](Scene& s) {  // v^T p
    const KeysFirst a(s);
    const NodeId p = s.b.softmax(later(s, a.scores), 1);
    const NodeId y = s.b.matmul(s.permute(a.v, {0, 2, 1}), p);
    return merge(s, s.permute(y, {0, 2, 1}));
  });
  check_attention([](Scene& s) {  // [queries, keys, heads], less the maximum
    Builder& b = s.b;
    const NodeId q = s.permute(s.rows({2, 3}), {1, 0, 2}), v = s.permute(s.rows({2, 3}), {1, 0, 2});
    const NodeId scores = s.permute(b.matmul(q, s.permute(q, {0, 2, 1})), {1, 2, 0});
    const NodeId masked = s.hidden(b.reshape(s.triangle(Op::triu, 1), {S, S, 1}), scores);
    const NodeId less = b.binary(Op::sub, masked, b.reduce(Op::amax, masked, {1}, true));
    return merge(s, b.matmul(s.permute(b.softmax(less, 1), {2, 0, 1}), v));
  });
  // A softmax over queries, and the triangle that is right for the other layout.
  check_refused(
      [&](Scene& s) {
        const KeysFirst a(s);
        const NodeId p = s.b.softmax(later(s, a.scores), 2);
        return merge(s, s.b.matmul(s.permute(p, {0, 2, 1}), a.v));
      },
      kCoupled);
  check_refused(
      [&](Scene& s) {
        const KeysFirst a(s);
        const NodeId p = s.b.softmax(s.causal(a.scores), 1);
        return merge(s, s.b.matmul(s.permute(p, {0, 2, 1}), a.v));
      },
      "a token sees tokens that come later");
  check_refused(
      [&](Scene& s) {  // weights that are not turned back
        const KeysFirst a(s);
        return merge(s, s.b.matmul(s.b.softmax(later(s, a.scores), 1), a.v));
      },
      kCoupled);
}

TEST_CASE("a permute above more ops than anybody writes stays, whatever their number") {
  const auto turned_after = [](int ops) {
    return [ops](Scene& s) {
      const KeysFirst a(s);
      NodeId scores = s.hidden(s.triangle(Op::tril, -1), a.scores);
      for (int i = 0; i < ops; ++i) scores = s.b.unary(Op::neg, s.b.unary(Op::neg, scores));
      const NodeId p = s.b.softmax(s.permute(scores, {0, 2, 1}), 2);
      return merge(s, s.b.matmul(p, a.v));
    };
  };
  check_refused(turned_after(6500), "a view of the scores moves their tokens");
}

TEST_CASE("groups of heads may lie either way around") {
  // q [groups, members, S, 3] with k and v of each group, which the scores name in this order.
  const auto grouped = [](std::vector<std::int64_t> order) {
    return [order](Scene& s) {
      Builder& b = s.b;
      const NodeId q = s.permute(s.rows({2, 2, 3}), {1, 2, 0, 3});
      const auto kv = [&] { return b.reshape(s.permute(s.rows({2, 3}), {1, 0, 2}), {2, 1, S, 3}); };
      const NodeId k = kv(), v = kv();
      const NodeId scores = s.permute(b.matmul(q, s.permute(k, {0, 1, 3, 2})), order);
      const NodeId p = s.permute(b.softmax(s.causal(scores), 3), order);  // its own inverse
      return b.reshape(s.permute(b.matmul(p, v), {2, 0, 1, 3}), {S, 12});
    };
  };
  CHECK(contains(normal_form_of(grouped({0, 1, 2, 3})), "f32[S, 2, 3]"));
  check_attention(grouped({1, 0, 2, 3}));
  check_attention([](Scene& s) {  // weights of moved heads meet values of moved heads
    Builder& b = s.b;
    const NodeId q = s.permute(s.rows({2, 2, 3}), {1, 2, 0, 3});
    const NodeId p = b.softmax(s.causal(b.matmul(q, s.permute(q, {0, 1, 3, 2}))), 3);
    const NodeId y =
        b.matmul(s.permute(p, {1, 0, 2, 3}), s.permute(s.rows({2, 2, 3}), {1, 2, 0, 3}));
    return b.reshape(s.permute(y, {2, 0, 1, 3}), {S, 12});
  });
}

TEST_CASE("scores that are sums of products are one product") {
  const auto summed = [](Op op, std::int64_t heads) {
    return [=](Scene& s) {
      Builder& b = s.b;
      const auto queries = [&](std::int64_t size) {
        return s.permute(s.rows({4, size}), {1, 0, 2});
      };
      const auto keys = [&](std::int64_t count, std::int64_t size) {
        return s.permute(s.rows({count, size}), {1, 2, 0});
      };
      const NodeId first = b.matmul(queries(3), keys(heads, 3));
      const NodeId second =
          b.binary(Op::div, b.matmul(queries(2), keys(4, 2)), b.scalar(DType::f32, 4));
      const NodeId p = b.softmax(s.causal(b.binary(op, first, second)), 2);
      const NodeId y = b.matmul(p, s.permute(s.rows({4, 3}), {1, 0, 2}));
      return b.reshape(s.permute(y, {1, 0, 2}), {S, 12});
    };
  };
  check_attention(summed(Op::add, 4));
  check_attention(summed(Op::sub, 4));
  check_attention(summed(Op::add, 1));
  check_refused(summed(Op::maximum, 4), "this op stands between q k^T and the softmax");
}

TEST_CASE("a mask after the softmax may only take away what is 0") {
  const auto masked = [](const std::function<NodeId(Scene&, NodeId)>& mask, bool before = true) {
    return [=](Scene& s) {
      const NodeId q = s.permute(s.rows({2, 3}), {1, 0, 2});
      const NodeId scores = s.b.matmul(q, s.permute(q, {0, 2, 1}));
      const NodeId p = mask(s, s.b.softmax(before ? s.causal(scores) : scores, 2));
      return merge(s, s.b.matmul(p, q));
    };
  };
  const auto filled = [](Op op, std::int64_t diagonal) {
    return [=](Scene& s, NodeId p) {
      return s.b.add(Op::where, {s.triangle(op, diagonal), s.b.scalar(DType::f32, 0), p});
    };
  };
  const auto times = [](std::int64_t diagonal) {
    return [=](Scene& s, NodeId p) {
      return s.b.binary(Op::mul, p, s.b.cast(s.triangle(Op::tril, diagonal), DType::f32));
    };
  };
  check_attention(masked(filled(Op::triu, 1)));
  check_attention(masked(times(0)));
  check_attention(masked(times(3)));
  check_attention(masked(
      [](Scene& s, NodeId p) { return s.b.add(Op::tril, {p}, {{"diagonal", std::int64_t{0}}}); }));
  check_refused(masked(filled(Op::triu, 0)), "takes away tokens that are seen");
  check_refused(masked(filled(Op::tril, -2)), "takes away tokens that are seen");
  check_refused(masked(times(-1)), "takes away tokens that are seen");
  // The sum is over all tokens: what is left depends on those that come later.
  check_refused(masked(filled(Op::triu, 1), false), "nothing masks");
}

TEST_CASE("products with a matrix for each token or each head are written out") {
  CHECK(!contains(normal_form_of([](Scene& s) {  // [S, 2, 3] x [S, 3, 4]
                    const NodeId y = s.b.matmul(s.rows({2, 3}), s.rows({3, 4}));
                    return s.b.reshape(y, {S, 8});
                  }),
                  "matmul"));
  CHECK(!contains(normal_form_of([](Scene& s) {  // [2, S, 1, 3] x [S, 3, 4]
                    const NodeId x =
                        s.b.reshape(s.permute(s.rows({2, 3}), {1, 0, 2}), {2, S, 1, 3});
                    const NodeId y = s.b.matmul(x, s.rows({3, 4}));
                    return s.b.reshape(s.permute(y, {1, 0, 2, 3}), {S, 8});
                  }),
                  "matmul"));
  // Tokens against tokens: the rows of one are what the other sums over.
  check_refused(
      [](Scene& s) {
        const NodeId x = s.permute(s.rows({2, 3}), {1, 0, 2});
        const NodeId y = s.b.matmul(s.permute(x, {0, 2, 1}), x);
        return s.b.binary(Op::add, s.rows({18}), s.b.reshape(y, {18}));
      },
      "it multiplies tokens by tokens");
  const auto heads = [](bool has_heads) {
    return [=](Scene& s) {
      const NodeId x = has_heads ? s.permute(s.rows({3, 4}), {1, 0, 2}) : s.rows({4});
      const NodeId y = s.b.matmul(x, s.numbers({3, 4, 2}));
      return s.b.reshape(s.permute(y, {1, 0, 2}), {S, 6});
    };
  };
  CHECK(contains(normal_form_of(heads(true)), "concat"));
  CHECK(contains(normal_form_of(heads(false)), "concat"));
  check_refused(
      [](Scene& s) {
        const NodeId y = s.b.matmul(s.rows({4}), s.numbers({300, 4, 2}));
        return s.b.reshape(s.permute(y, {1, 0, 2}), {S, 600});
      },
      "a stack of 300 matrices");
}
