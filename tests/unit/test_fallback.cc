// Fallback kernels against the reference: every compute op of the table, whole steps, and what
// cannot be launched.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "analyze/analyse.h"
#include "generate/counts.h"
#include "generate/fallback.h"
#include "ir/builder.h"
#include "ir/incrementalise.h"
#include "kernels/fallback.cuh"
#include "kernels/shim/host_launch.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/fallback_runner.h"
#include "tests/unit/regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

// A step of one op in several variants, each an output.
struct Variants {
  StepGraph step;
  Builder b{step.graph};
  Dim tokens;

  explicit Variants(const Dim& t) : tokens(t) {}
  NodeId in(DType dtype, Shape shape, double low = -2, double high = 2) {
    const int number = static_cast<int>(step.graph.nodes.size());
    return b.input(input_name(number, low, high), {dtype, std::move(shape)});
  }
  NodeId weight(DType dtype, Shape shape) {
    return b.weight("w" + std::to_string(step.graph.nodes.size()), {dtype, std::move(shape)});
  }
  void out(NodeId node) {
    step.graph.outputs.push_back({fmt::format("y{}", step.graph.outputs.size()), node});
  }
  // [tokens, 3, 5] through a slice and a permute.
  NodeId strided(DType dtype, double low = -2, double high = 2) {
    return b.slice(b.permute(in(dtype, {tokens, 7, 3}, low, high), {0, 2, 1}), 2, 1, 6);
  }
  // [tokens, 15] by way of a view that has no strides.
  NodeId opaque(DType dtype, double low = -2, double high = 2) {
    return b.reshape(strided(dtype, low, high), {tokens, 15});
  }
};

void unary(Variants& v, Op op) {
  v.out(v.b.unary(op, v.in(DType::f32, {16}, 0, INFINITY)));
  v.out(v.b.unary(op, v.in(DType::f32, {v.tokens, 3, 5})));
  v.out(v.b.unary(op, v.strided(DType::f16)));
  v.out(v.b.unary(op, v.opaque(DType::bf16)));
}

void hostile_pairs(Variants& v, Op op) {
  const NodeId column = v.in(DType::f32, {16, 1}, 0, INFINITY);
  v.out(v.b.binary(op, column, v.in(DType::f32, {16}, 0, INFINITY)));
}

// Small whole numbers too, where the op takes them.
void binary(Variants& v, Op op, double low = -2, double high = 2) {
  hostile_pairs(v, op);
  v.out(v.b.binary(op, v.in(DType::f32, {v.tokens, 3, 5}, low, high), v.strided(DType::f32)));
  v.out(v.b.binary(op, v.strided(DType::f16, low, high), v.in(DType::f16, {3, 1})));
  v.out(v.b.binary(op, v.opaque(DType::bf16, low, high), v.opaque(DType::bf16)));
  const NodeId repeated = v.b.expand(v.in(DType::i64, {v.tokens, 1}, 1, 4), {v.tokens, 15});
  v.out(v.b.binary(op, v.opaque(DType::i64, -5, 5), repeated));
  v.out(v.b.binary(op, v.in(DType::i32, {v.tokens, 5}, -3, 3), v.b.scalar(DType::i32, 3)));
}

void compare(Variants& v, Op op) {
  hostile_pairs(v, op);
  v.out(v.b.binary(op, v.strided(DType::i64, -2, 2), v.in(DType::i64, {5}, -2, 2)));
  v.out(v.b.binary(op, v.strided(DType::boolean, 0, 1), v.strided(DType::boolean, 0, 1)));
  const NodeId x = v.strided(DType::f16);
  v.out(v.b.binary(op, x, v.b.unary(Op::abs, x)));
}

void logical(Variants& v, Op op) {
  v.out(v.b.binary(op, v.strided(DType::boolean, 0, 1), v.in(DType::boolean, {3, 1}, 0, 1)));
}

void reduce(Variants& v, Op op) {
  const NodeId x = v.in(DType::f32, {v.tokens, 3, 4, 5});
  v.out(v.b.reduce(op, x, {3}, true));
  v.out(v.b.reduce(op, x, {1, 3}, false));
  v.out(v.b.reduce(op, x, {0}, true));  // over the tokens
  v.out(v.b.reduce(op, v.in(DType::f32, {70, 5}), {0, 1}, false));
  v.out(v.b.reduce(op, v.strided(DType::bf16), {1, 2}, true));
  v.out(v.b.reduce(op, v.opaque(DType::f16), {1}, false));
  v.out(v.b.reduce(op, v.in(DType::f16, {v.tokens, 0}), {1}, true));
  if (op == Op::amax) v.out(v.b.reduce(op, v.in(DType::f32, {16, 3}, 0, INFINITY), {1}, true));
  if (op == Op::amax) v.out(v.b.reduce(op, v.in(DType::i64, {v.tokens, 7}, -9, 9), {1}, true));
  if (op == Op::amax) v.out(v.b.reduce(op, v.strided(DType::boolean, 0, 1), {1}, true));
}

void cast(Variants& v) {
  // More elements than threads at once.
  const NodeId many = v.b.expand(v.in(DType::f32, {v.tokens, 1, 3}), {v.tokens, 900, 3});
  v.out(v.b.cast(many, DType::bf16));
  const DType all[] = {DType::f32, DType::f16, DType::bf16, DType::i32, DType::i64, DType::boolean};
  for (const DType from : all) {
    const double low = from == DType::boolean ? 0 : -3, high = from == DType::boolean ? 1 : 3;
    const NodeId x = v.strided(from, low, high);
    for (const DType to : all) v.out(v.b.add(Op::cast, {x}, {{"dtype", to}}));
  }
  // A view without strides of a view without strides; and no gaps, though sizes are symbols.
  const NodeId turned = v.b.permute(v.opaque(DType::f16), {1, 0});
  v.out(v.b.cast(v.b.reshape(turned, {3, Dim(5) * v.tokens}), DType::f32));
  const NodeId dense = v.in(DType::f16, {v.tokens, 6});
  v.out(v.b.cast(v.b.reshape(dense, {3, Dim(2) * v.tokens}), DType::f32));
  // Positions: not in memory, sliced, and through a view without strides.
  const NodeId positions = v.b.positions(v.tokens);
  v.out(v.b.cast(positions, DType::f32));
  v.out(v.b.cast(v.b.slice(positions, 0, v.tokens - 1, v.tokens), DType::i32));
  const NodeId grid = v.b.expand(v.b.reshape(positions, {1, v.tokens, 1}), {3, v.tokens, 2});
  const NodeId flat = v.b.reshape(grid, {Dim(6) * v.tokens});
  v.out(v.b.cast(flat, DType::f16));
}

void where(Variants& v) {
  const NodeId condition = v.strided(DType::boolean, 0, 1);
  v.out(v.b.add(Op::where, {condition, v.strided(DType::f16), v.b.scalar(DType::f16, -INFINITY)}));
  v.out(v.b.add(Op::where, {condition, v.in(DType::i64, {5}), v.strided(DType::i64)}));
}

void softmax(Variants& v) {
  const NodeId x = v.in(DType::f32, {v.tokens, 3, 70}, -9, 9);
  v.out(v.b.softmax(x, 2));
  v.out(v.b.softmax(x, 1));
  v.out(v.b.softmax(v.strided(DType::f16), 2));
  v.out(v.b.softmax(v.opaque(DType::bf16), 1));
  v.out(v.b.softmax(v.in(DType::f32, {16, 3}, 0, INFINITY), 1));
  const NodeId masked = v.b.constant(DType::f32, {4}, {-INFINITY, 0, 200, -INFINITY});
  v.out(v.b.softmax(v.b.binary(Op::add, v.in(DType::f32, {v.tokens, 4}), masked), 1));
}

void rms_norm(Variants& v) {
  v.out(v.b.rms_norm(v.in(DType::f32, {v.tokens, 131}), v.weight(DType::f32, {131}), 1e-5, 1));
  v.out(v.b.rms_norm(v.strided(DType::f16), v.in(DType::f16, {5}), 1e-5, 0));
  v.out(v.b.add(Op::rms_norm, {v.opaque(DType::bf16)}, {{"eps", 1e-6}, {"weight_offset", 0.0}}));
}

void layer_norm(Variants& v) {
  const NodeId weight = v.weight(DType::f32, {131}), bias = v.weight(DType::f32, {131});
  // Far from 0, where one pass would lose the variance.
  v.out(v.b.layer_norm({v.in(DType::f32, {v.tokens, 131}, 30, 34), weight, bias}, 1e-5));
  v.out(v.b.layer_norm({v.strided(DType::f16), v.in(DType::f16, {5})}, 1e-5));
  v.out(v.b.layer_norm({v.opaque(DType::bf16)}, 1e-5));
}

void matmul(Variants& v) {
  v.out(v.b.matmul(v.in(DType::f32, {v.tokens, 70}), v.weight(DType::f32, {70, 3})));
  v.out(v.b.matmul(v.strided(DType::f16), v.in(DType::f16, {v.tokens, 5, 4})));
  const NodeId b = v.b.permute(v.in(DType::bf16, {3, 1, 4, 5}), {0, 1, 3, 2});
  v.out(v.b.matmul(v.strided(DType::bf16), b));  // [tokens, 3, 5] x [3, 1, 5, 4]
  v.out(v.b.matmul(v.opaque(DType::f32), v.weight(DType::f32, {15, 2})));
  v.out(v.b.matmul(v.in(DType::f32, {v.tokens, 0}), v.in(DType::f32, {0, 2})));
}

void linear(Variants& v) {
  const NodeId bias = v.weight(DType::f32, {9});
  v.out(v.b.linear(v.in(DType::f32, {v.tokens, 133}), v.weight(DType::f32, {9, 133}), bias));
  v.out(v.b.linear(v.strided(DType::f16), v.weight(DType::f16, {11, 5})));
  const NodeId part = v.b.slice(v.weight(DType::bf16, {9, 20}), 1, 5, 20);
  v.out(v.b.linear(v.opaque(DType::bf16), part));
}

void embedding(Variants& v) {
  const NodeId table = v.weight(DType::bf16, {9, 11});
  v.out(v.b.embedding(table, v.in(DType::i64, {v.tokens}, 0, 8)));
  v.out(v.b.embedding(v.b.permute(v.weight(DType::f16, {11, 9}), {1, 0}),
                      v.strided(DType::i32, 0, 8)));
  v.out(v.b.embedding(v.in(DType::i64, {20, 2, 3}, -9, 9), v.b.positions(v.tokens)));
}

void rope(Variants& v) {
  const NodeId positions = v.b.positions(v.tokens);
  const NodeId inv_freq = v.b.constant(DType::f32, {3}, {1, 0.3125, 0.0078125});
  for (const bool interleaved : {false, true}) {
    v.out(v.b.rope(v.in(DType::f32, {v.tokens, 3, 8}), positions, inv_freq, 1.5, interleaved));
    const NodeId far = v.in(DType::i64, {v.tokens}, 100000, 200000);
    v.out(v.b.rope(v.b.permute(v.in(DType::f16, {v.tokens, 6, 2}), {0, 2, 1}), far, inv_freq, 1,
                   interleaved));
  }
  const NodeId last = v.b.slice(positions, 0, v.tokens - 1, v.tokens);
  v.out(v.b.rope(v.in(DType::bf16, {1, 7}), last, inv_freq, 1, false));
}

void append_attend(Variants& v, std::int64_t window, KvStorage storage = KvStorage::elements) {
  const auto cached = [&](NodeId q, NodeId k, NodeId value, double softcap) {
    const Shape &keys = v.b.type(k).shape, &values = v.b.type(value).shape;
    const auto index = static_cast<std::int64_t>(v.step.states.size());
    v.step.states.push_back(kv_state(v.b.type(k).dtype, keys[1].constant(), keys[2].constant(),
                                     values[2].constant(), window, "", 0, storage));
    v.out(v.b.append_attend(q, k, value, index, 0.7, window, softcap));
  };
  const Dim t = v.tokens;
  // Groups of two heads; a key and a value of other sizes.
  cached(v.in(DType::f32, {t, 4, 5}), v.in(DType::f32, {t, 2, 5}), v.in(DType::f32, {t, 2, 39}), 0);
  const NodeId qkv = v.in(DType::f16, {t, 4, 3, 6});
  const auto part = [&](std::int64_t i) {
    return v.b.reshape(v.b.slice(qkv, 2, i, i + 1), {t, 4, 6});
  };
  cached(part(0), part(1), part(2), 3);
  const NodeId k = v.b.permute(v.in(DType::bf16, {t, 5, 1}), {0, 2, 1});
  cached(v.strided(DType::bf16), k, v.b.reshape(v.opaque(DType::bf16), {t, 1, 15}), 0);
}

void concat(Variants& v) {
  const NodeId x = v.strided(DType::f16);
  v.out(v.b.concat({x, v.in(DType::f16, {v.tokens, 3, 2}), x}, 2));
  v.out(v.b.concat({v.strided(DType::i32), v.in(DType::i32, {v.tokens, 4, 5})}, 1));
  v.out(v.b.concat({v.in(DType::bf16, {2, 3, 5}), v.strided(DType::bf16)}, 0));
  v.out(v.b.concat({v.opaque(DType::boolean, 0, 1), v.in(DType::boolean, {v.tokens, 0})}, 1));
}

void triangle(Variants& v, Op op) {
  for (const std::int64_t diagonal : {-1, 0, 2})
    v.out(v.b.add(op, {v.strided(DType::f16)}, {{"diagonal", diagonal}}));
  v.out(v.b.add(op, {v.in(DType::i64, {4, 1, 6}, 1, 9)}, {{"diagonal", std::int64_t{1}}}));
}

using Make = std::function<void(Variants&)>;

std::map<Op, Make> variants_of_ops() {
  std::map<Op, Make> make;
  const auto each = [&](std::initializer_list<Op> ops, auto function) {
    for (const Op op : ops) make[op] = [op, function](Variants& v) { function(v, op); };
  };
  make[Op::cast] = cast;
  each({Op::exp, Op::log, Op::sqrt, Op::rsqrt, Op::reciprocal, Op::sin, Op::cos, Op::tanh, Op::erf,
        Op::sigmoid, Op::silu, Op::relu},
       unary);
  each({Op::neg, Op::abs}, [](Variants& v, Op op) {
    unary(v, op);
    v.out(v.b.unary(op, v.strided(DType::i64)));
    v.out(v.b.unary(op, v.in(DType::i32, {v.tokens, 3})));
  });
  make[Op::gelu] = [](Variants& v) {
    for (const bool tanh : {false, true}) {
      v.out(v.b.gelu(v.in(DType::f32, {v.tokens, 9}), tanh));
      v.out(v.b.gelu(v.strided(DType::bf16), tanh));
    }
  };
  make[Op::logical_not] = [](Variants& v) {
    v.out(v.b.unary(Op::logical_not, v.strided(DType::boolean, 0, 1)));
  };
  each({Op::add, Op::sub, Op::mul, Op::div, Op::maximum, Op::minimum},
       [](Variants& v, Op op) { binary(v, op); });
  make[Op::pow] = [](Variants& v) { binary(v, Op::pow, 0.1, 3); };
  each({Op::equal, Op::not_equal, Op::less, Op::less_equal, Op::greater, Op::greater_equal},
       compare);
  each({Op::logical_and, Op::logical_or}, logical);
  make[Op::where] = where;
  each({Op::sum, Op::mean, Op::amax}, reduce);
  make[Op::softmax] = softmax;
  make[Op::rms_norm] = rms_norm;
  make[Op::layer_norm] = layer_norm;
  make[Op::matmul] = matmul;
  make[Op::linear] = linear;
  make[Op::embedding] = embedding;
  make[Op::rope] = rope;
  make[Op::append_attend] = [](Variants& v) { append_attend(v, 0); };
  make[Op::concat] = concat;
  each({Op::tril, Op::triu}, triangle);
  return make;
}

// At one token and several, with none before them and some.
void add_trials(const std::string& name, const Make& make, std::vector<Trial>& trials,
                std::int64_t slots = 12) {
  const auto add = [&](const Dim& symbol, std::int64_t tokens, std::int64_t position) {
    Variants v(symbol);
    make(v);
    trials.push_back({.name = fmt::format("{} at T = {}, P = {}", name, tokens, position),
                      .step = v.step,
                      .tokens = tokens,
                      .position = position,
                      .slots = std::vector<std::int64_t>(v.step.states.size(), slots)});
  };
  add(Dim(1), 1, 0);
  add(Dim(1), 1, 7);
  add(Dim(Symbol::T), 1, 7);
  add(Dim(Symbol::T), 5, 0);
  add(Dim(Symbol::T), 5, 7);
}

void run_all(const std::vector<Trial>& trials) {
  const std::vector<std::string> errors = run_by_fallback(trials);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    INFO(trials[i].name);
    CHECK(errors[i] == "");
  }
}

TEST_CASE("fallback: every op of the table") {
  const std::map<Op, Make> make = variants_of_ops();
  std::vector<Trial> trials;
  for (const OpInfo& op : op_table()) {
    if (!is_compute({.op = op.op, .inputs = {}, .attrs = {}, .type = {}, .module = ""})) continue;
    if (op.op == Op::attention) continue;  // in a step, it is append_attend
    INFO(op.name);
    const auto found = make.find(op.op);
    REQUIRE(found != make.end());
    add_trials(std::string(op.name), found->second, trials);
    const std::vector<Node>& nodes = trials.back().step.graph.nodes;
    CHECK(std::ranges::any_of(nodes, [&](const Node& node) { return node.op == op.op; }));
  }
  // Windows smaller than the position, in caches that hold all, some, or only the window.
  for (const std::int64_t slots : {12, 6, 4, 3})
    add_trials(
        fmt::format("a window of 3 in {} slots", slots), [](Variants& v) { append_attend(v, 3); },
        trials, slots);
  for (const std::int64_t slots : {12, 6, 3})
    add_trials(
        fmt::format("codes, with a window of 3 in {} slots", slots),
        [](Variants& v) { append_attend(v, 3, KvStorage::fp8); }, trials, slots);
  add_trials("codes", [](Variants& v) { append_attend(v, 0, KvStorage::fp8); }, trials);
  run_all(trials);
}

TEST_CASE("fallback: loops that threads share") {
  std::vector<Trial> trials;
  const std::map<Op, Make> make = variants_of_ops();
  for (const Op op : {Op::sum, Op::mean, Op::amax, Op::softmax, Op::rms_norm, Op::layer_norm,
                      Op::matmul, Op::linear, Op::append_attend})
    add_trials(std::string(info(op).name), make.at(op), trials);
  // More than a block's threads, each of which has one token, or two.
  for (const std::int64_t window : {0, 290, 291}) {
    Variants v{Dim(Symbol::T)};
    append_attend(v, window, window == 291 ? KvStorage::fp8 : KvStorage::elements);
    trials.push_back({.name = fmt::format("far, with a window of {}", window),
                      .step = v.step,
                      .tokens = 3,
                      .position = 300,
                      .slots = std::vector<std::int64_t>(v.step.states.size(), 304)});
  }
  for (Trial& trial : trials) trial.multiprocessors = 2;
  run_all(trials);
}

StepGraph in_float32(StepGraph step) {
  const auto change = [](DType& dtype) {
    if (is_float(dtype)) dtype = DType::f32;
  };
  for (Node& node : step.graph.nodes) change(node.type.dtype);
  for (StateSpec& state : step.states) {
    change(state.dtype);
    for (StateTensor& tensor : state.tensors) change(tensor.dtype);
  }
  return step;
}

TEST_CASE("fallback: whole decoders") {
  std::vector<Trial> trials;
  const auto add = [&](const std::string& name, const StepGraph& step, std::int64_t tokens) {
    const std::vector<std::int64_t> slots(step.states.size(), 20);
    trials.push_back({name + " in float32", in_float32(step), tokens, 7, slots, 2e-5});
    // Roundings between ops may fall to the other side than in the reference.
    trials.push_back({name, step, tokens, 7, slots, 0.06, true});
  };
  for (const std::int64_t tokens : {1, 5}) {
    const Dim symbol = tokens == 1 ? Dim(1) : Dim(Symbol::T);
    add("gemma", gemma_like(2, symbol), tokens);
    add("gpt2", gpt2_like(2, symbol), tokens);
  }
  add("qwen3", one_layer_qwen3(), 1);
  // Only the last row goes through what follows the last cache.
  add("gemma's prefill", prefill_instance(gemma_like(2, Dim(Symbol::T))), 5);
  add("gpt2's prefill", prefill_instance(gpt2_like(2, Dim(Symbol::T))), 5);
  run_all(trials);
  build_fallback_for_gpu({trials[1], trials.back()});
}

constexpr kernels::FallbackOp whole_op(kernels::FallbackKind kind) {
  using enum kernels::Element;
  return {.kind = kind, .in = {i64, i64}, .out = i64, .operands = 2};
}
AC_FALLBACK_KERNEL(fallback_test_div, whole_op(kernels::FallbackKind::div))
AC_FALLBACK_KERNEL(fallback_test_pow, whole_op(kernels::FallbackKind::pow))
AC_FALLBACK_KERNEL(fallback_test_truncate, (kernels::FallbackOp{.out = kernels::Element::i64}))
AC_FALLBACK_KERNEL(fallback_test_embedding,
                   (kernels::FallbackOp{.kind = kernels::FallbackKind::embedding,
                                        .in = {kernels::Element::f32, kernels::Element::i64},
                                        .operands = 2,
                                        .inner = 1}))

// What the reference refuses: the GPU must neither read elsewhere nor trap.
TEST_CASE("fallback: what has no result") {
  constexpr long long least = std::numeric_limits<long long>::min();
  constexpr int count = 5;
  const auto run = [](auto kernel, const void* a, const void* b, auto result) {
    kernels::FallbackParams p{};
    p.in[0].data = a, p.in[1].data = b, p.out.data = result.data();
    p.in[0].strides[0] = p.in[1].strides[0] = p.out.strides[0] = 1;
    p.sizes[0] = count;
    // Of the table: 3 entries, each one element.
    if (kernel == fallback_test_embedding) p.in[0].strides[0] = 0, p.in[0].strides[1] = 1;
    p.sizes[1] = 3;
    REQUIRE(kernels::host_launch({.block = {kernels::fallback_threads}}, kernel, p).error == "");
    return result;
  };
  using Whole = std::array<long long, count>;
  using Float = std::array<float, count>;
  const Whole a{7, -7, 0, least, least}, b{0, 2, 0, -1, 1};
  CHECK(run(fallback_test_div, a.data(), b.data(), Whole()) == Whole{0, -3, 0, least, least});
  const Whole base{0, 2, -1, 3, 2}, power{-1, -1, -3, 0, 200};
  CHECK(run(fallback_test_pow, base.data(), power.data(), Whole()) == Whole{0, 0, -1, 1, 0});
  const Float numbers{NAN, 1e30f, -INFINITY, -2.9f, 2.9f};
  CHECK(run(fallback_test_truncate, numbers.data(), nullptr, Whole()) ==
        Whole{0, std::numeric_limits<long long>::max(), least, -2, 2});
  const std::vector<float> table{1, 2, 3};
  const Whole ids{-1, 2, 3, 0, least};
  const Float rows = run(fallback_test_embedding, table.data(), ids.data(), Float());
  CHECK((rows[1] == 3 && rows[3] == 1));
  CHECK((std::isnan(rows[0]) && std::isnan(rows[2]) && std::isnan(rows[4])));
}

Generated first_region(const StepGraph& step) {
  return fallback(step, analyse(step).regions.at(0), {.multiprocessors = 4, .slots = {}});
}

TEST_CASE("fallback: equal ops share a kernel, and no launch is larger than the device") {
  Variants v{Dim(Symbol::T)};
  NodeId x = v.in(DType::f16, {v.tokens, 4096});
  for (int i = 0; i < 3; ++i) x = v.b.unary(Op::silu, x);
  v.out(x);
  const Generated generated = first_region(v.step);
  CHECK(generated.sources.size() == 1);
  REQUIRE(generated.launches.size() == 3);
  CHECK(generated.buffers.size() == 4);
  const Launch& launch = generated.launches[0];
  CHECK(launch.grid[0].at(1) == 16);
  CHECK(launch.grid[0].at(1000) == 4 * 32);
}

TEST_CASE("fallback: sizes that no launch can have") {
  const auto squares = [](const Shape& shape) {
    Variants v{Dim(Symbol::T)};
    v.out(v.b.unary(Op::neg, v.b.permute(v.in(DType::f32, shape), {2, 1, 0})));
    return first_region(v.step);
  };
  const Dim t(Symbol::T), p(Symbol::P);
  CHECK_BAD_INPUT(squares({t, t, t}), "%0 = input", "linear in T");
  CHECK_BAD_INPUT(squares({2, 3, p}), "%0 = input", "linear in T");
  CHECK_BAD_INPUT(squares({t, 3, t}), "%0 = input", "linear in T");
  CHECK(squares({t, 0, 3}).launches.empty());
  Variants v{Dim(1)};
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 9; i >= 0; --i) axes.push_back(i);
  v.out(v.b.unary(Op::neg, v.b.permute(v.in(DType::f32, Shape(10, Dim(2))), axes)));
  CHECK_BAD_INPUT(first_region(v.step), "neg", "10 axes");
}

TEST_CASE("counts of sizes that are linear in T") {
  const Dim t(Symbol::T);
  CHECK(count_of(7, "x") == Count(7));
  CHECK(count_of(Dim(3) * t - 2, "x") == Count(-2, 3));
  CHECK(!linear_count(t * t));
  CHECK(!linear_count(t * t - t));
  CHECK(!linear_count(Dim(Symbol::P) + t));
  CHECK_BAD_INPUT(count_of(t * t, "%3 = neg"), "%3 = neg", "T");
}

}  // namespace
