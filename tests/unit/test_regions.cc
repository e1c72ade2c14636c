// Single regions: where fusion is refused, and the regions that a planner asks for.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "analyze/analyse.h"
#include "expect_error.h"
#include "regions_models.h"

using namespace ac;

namespace {

const Dim kT(Symbol::T);

struct Chain {
  StepGraph step;
  Builder b{step.graph};
  NodeId x(DType dtype = DType::bf16, Shape shape = {kT, 32}) {
    return b.input("x" + std::to_string(step.graph.nodes.size()), {dtype, std::move(shape)});
  }
  NodeId weight(Shape shape) {
    return b.weight("w" + std::to_string(step.graph.nodes.size()), {DType::bf16, std::move(shape)});
  }
  void output(NodeId id) {
    step.graph.outputs.push_back({"out" + std::to_string(step.graph.outputs.size()), id});
  }
  // "relu | neg+exp": the regions in order.
  std::string groups() const {
    const Regions regions = analyse(step);
    verify(regions, "test");
    std::string text;
    for (const Region& region : regions.regions) {
      if (!text.empty()) text += " | ";
      std::string ops;
      for (const Op op : region.ops) ops += (ops.empty() ? "" : "+") + std::string(info(op).name);
      text += ops;
    }
    return text;
  }
  // The reasons on the edge between two nodes, or of one node.
  bool ends(Reason reason, NodeId from, NodeId to) const {
    for (const Region& region : analyse(step).regions)
      for (const Boundary& boundary : region.boundaries)
        if (boundary.reason == reason && boundary.from == from && boundary.to == to)
          return !boundary.text.empty();
    return false;
  }
  Reason refusal(std::vector<NodeId> nodes) const {
    const auto made = make_region(step, std::move(nodes));
    REQUIRE(std::holds_alternative<Boundary>(made));
    CHECK(!std::get<Boundary>(made).text.empty());
    return std::get<Boundary>(made).reason;
  }
  Region region(std::vector<NodeId> nodes) const {
    const auto made = make_region(step, std::move(nodes));
    if (const auto* boundary = std::get_if<Boundary>(&made)) FAIL(boundary->text);
    return std::get<Region>(made);
  }
};

std::vector<NodeId> all_of(const StepGraph& step, std::initializer_list<Op> ops) {
  std::vector<NodeId> found;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (std::find(ops.begin(), ops.end(), step.graph.nodes[i].op) != ops.end())
      found.push_back(static_cast<NodeId>(i));
  return found;
}

// Nodes of those ops whose module or weight holds the text.
std::vector<NodeId> named(const StepGraph& step, const std::string& text) {
  std::vector<NodeId> found;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    if (is_compute(node) && node.module.find(text) != std::string::npos)
      found.push_back(static_cast<NodeId>(i));
  }
  return found;
}

std::vector<NodeId> operator+(std::vector<NodeId> a, const std::vector<NodeId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("refusing to fuse: a state op in the middle of a chain") {
  Chain c;
  const NodeId q = c.b.unary(Op::relu, c.x(DType::bf16, {kT, 2, 16}));
  c.step.states.push_back(kv_state(DType::bf16, 2, 16, 16, 0, ""));
  const NodeId y = c.b.append_attend(q, q, q, 0, 1.0, 0, 0.0);
  const NodeId z = c.b.unary(Op::neg, y);
  c.output(z);
  CHECK(c.groups() == "relu | append_attend | neg");
  CHECK(c.ends(Reason::state, y, z));
  CHECK(c.ends(Reason::state, y, y));
  CHECK(c.refusal({y, z}) == Reason::state);
  CHECK(c.refusal({q, y, z}) == Reason::state);
  CHECK(c.region({q, y}).states.size() == 1);  // values may lead into it
}

TEST_CASE("refusing to fuse: an aliased output") {
  Chain c;
  const NodeId x = c.x();
  const NodeId y = c.b.unary(Op::relu, x);
  const NodeId z = c.b.unary(Op::neg, y);
  c.output(z);
  CHECK(c.groups() == "relu+neg");
  c.output(c.b.reshape(y, {kT, 4, 8}));
  CHECK(c.groups() == "relu | neg");
  CHECK(c.ends(Reason::aliasing, y, z));
  CHECK(c.refusal({y, z}) == Reason::aliasing);

  // Nor does a sibling bring the two together, directly or by merging their regions.
  Chain sibling;
  const NodeId first = sibling.b.unary(Op::relu, sibling.x());
  const NodeId seen = sibling.b.unary(Op::neg, first), unseen = sibling.b.unary(Op::abs, first);
  const NodeId after = sibling.b.unary(Op::exp, seen);
  const NodeId both = sibling.b.binary(Op::add, seen, unseen);
  const NodeId all = sibling.b.binary(Op::mul, after, unseen);
  sibling.output(both);
  sibling.output(all);
  CHECK(sibling.groups() == "relu+neg+abs+add+exp+mul");
  sibling.output(sibling.b.slice(seen, 1, 0, 8));
  CHECK(sibling.groups() == "relu+neg+abs | add | exp+mul");
  CHECK(sibling.ends(Reason::aliasing, seen, both));
  CHECK(sibling.ends(Reason::aliasing, unseen, both));
  CHECK(sibling.ends(Reason::aliasing, unseen, all));

  // An output that is itself computed, with no view, does not stop anyone.
  Chain plain;
  const NodeId a = plain.b.unary(Op::relu, plain.x());
  const NodeId b = plain.b.unary(Op::neg, a);
  plain.output(a);
  plain.output(b);
  CHECK(plain.groups() == "relu+neg");
  CHECK(plain.region({a, b}).outputs.size() == 2);

  // Outputs that alias inputs and weights belong to no region.
  Chain leaves;
  const NodeId in = leaves.x(), w = leaves.weight({32});
  leaves.output(leaves.b.slice(in, 1, 0, 8));
  leaves.output(w);
  const Regions regions = analyse(leaves.step);
  verify(regions, "test");
  CHECK(regions.regions.empty());
  REQUIRE(regions.boundaries.size() == 2);
  CHECK(regions.boundaries[0].reason == Reason::aliasing);
  CHECK(regions.boundaries[0].text.find("a view of %0 = input") != std::string::npos);
  CHECK(regions.boundaries[1].text.find("\"out1\" is %1 = weight") != std::string::npos);
  CHECK(print(regions, {1, 1, 1}).find("no region: aliasing") != std::string::npos);
}

TEST_CASE("refusing to fuse: mixed dtypes") {
  Chain c;
  const NodeId a = c.b.unary(Op::relu, c.x());
  const NodeId wide = c.b.cast(a, DType::f32);
  const NodeId e = c.b.unary(Op::exp, wide);
  const NodeId back = c.b.cast(e, DType::bf16);
  const NodeId z = c.b.unary(Op::neg, back);
  c.output(z);
  CHECK(c.groups() == "relu | cast | exp | cast | neg");
  CHECK(c.ends(Reason::mixed_dtype, a, wide));
  CHECK(c.ends(Reason::mixed_dtype, wide, e));
  CHECK(c.ends(Reason::mixed_dtype, wide, wide));
  CHECK(c.refusal({a, wide}) == Reason::mixed_dtype);
  CHECK(c.refusal({wide, e, back}) == Reason::mixed_dtype);
  CHECK(c.region({wide}).category == Category::elementwise);
}

TEST_CASE("refusing to fuse: unsupported dtypes") {
  Chain c;
  const NodeId n = c.x(DType::i64);
  const NodeId sum = c.b.binary(Op::add, n, n);
  const NodeId twice = c.b.binary(Op::add, sum, sum);
  const NodeId x = c.x();
  const NodeId y = c.b.unary(Op::relu, x);
  const NodeId mask = c.b.binary(Op::less, y, x);
  const NodeId z = c.b.add(Op::where, {mask, y, x});
  c.output(twice);
  c.output(c.b.unary(Op::neg, z));
  CHECK(c.groups() == "add | add | relu | less | where | neg");
  CHECK(c.ends(Reason::unsupported_dtype, sum, twice));
  CHECK(c.ends(Reason::unsupported_dtype, mask, z));
  CHECK(c.refusal({sum, twice}) == Reason::unsupported_dtype);
  CHECK(c.refusal({y, mask}) == Reason::unsupported_dtype);
  // As a region of its own, for the fallback.
  CHECK(c.region({sum}).accumulation == DType::i64);
}

TEST_CASE("refusing to fuse: dynamic shapes") {
  Chain c;
  const NodeId x = c.x();
  const NodeId a = c.b.unary(Op::relu, x);
  const NodeId columns = c.b.reduce(Op::sum, a, {0}, true);
  const NodeId z = c.b.binary(Op::mul, a, columns);
  c.output(z);
  CHECK(c.groups() == "relu | sum | mul");  // relu and mul could not run in any order with sum
  CHECK(c.ends(Reason::dynamic_shape, a, columns));
  CHECK(c.ends(Reason::dynamic_shape, columns, z));
  CHECK(c.ends(Reason::order, a, z));
  CHECK(c.refusal({a, columns, z}) == Reason::dynamic_shape);
  CHECK(c.refusal({a, z}) == Reason::not_convex);

  // The same reduction over a known size is as good as any.
  Chain fixed;
  const NodeId f = fixed.b.unary(Op::relu, fixed.x(DType::bf16, {4, 32}));
  fixed.output(fixed.b.binary(Op::mul, f, fixed.b.reduce(Op::sum, f, {0}, true)));
  CHECK(fixed.groups() == "relu+sum+mul");

  for (const Shape& shape : {Shape{kT, kT}, Shape{Dim(Symbol::P) + kT, 8}, Shape{kT * 2, 8}}) {
    CAPTURE(to_string(shape));
    Chain odd;
    const NodeId first = odd.b.unary(Op::relu, odd.x(DType::bf16, shape));
    const NodeId second = odd.b.unary(Op::neg, first);
    odd.output(second);
    CHECK(odd.groups() == "relu | neg");
    CHECK(odd.ends(Reason::dynamic_shape, first, second));
    CHECK(odd.refusal({first, second}) == Reason::dynamic_shape);
  }
}

TEST_CASE("what merges, and what does not") {
  SUBCASE("other rows, other axes") {
    Chain c;
    const NodeId a = c.b.softmax(c.x(), 1);
    const NodeId heads = c.b.reshape(a, {kT, 4, 8});
    const NodeId s = c.b.softmax(heads, 2);
    const NodeId t = c.b.softmax(s, 1);
    c.output(t);
    CHECK(c.groups() == "softmax | softmax | softmax");
    CHECK(c.ends(Reason::layout, a, s));
    CHECK(c.ends(Reason::reduction_axes, s, t));
    CHECK(c.region({t}).category == Category::softmax);
    CHECK(c.region({t}).reduction_axes == std::vector<std::int64_t>{1});
    CHECK(c.region({a, s}).category == Category::reduction_pointwise);
  }
  SUBCASE("a value that keeps one element a row comes back") {
    Chain c;
    const NodeId x = c.x();
    const NodeId sum = c.b.reduce(Op::sum, c.b.binary(Op::mul, x, x), {1}, false);
    const NodeId column = c.b.reshape(c.b.unary(Op::sqrt, sum), {kT, 1});
    c.output(c.b.binary(Op::div, x, column));
    CHECK(c.groups() == "mul+sum+sqrt+div");
    CHECK(analyse(c.step).regions[0].category == Category::rms_norm);
  }
  SUBCASE("two chains meet") {
    Chain c;
    const NodeId a = c.b.unary(Op::relu, c.x()), b = c.b.unary(Op::neg, c.x());
    c.output(c.b.binary(Op::add, a, b));
    CHECK(c.groups() == "relu+neg+add");
  }
  SUBCASE("two chains that a product couples stay apart") {
    Chain c;
    const NodeId a = c.b.unary(Op::relu, c.x());
    const NodeId b = c.b.softmax(c.b.linear(a, c.weight({32, 32})), 1);
    const NodeId z = c.b.binary(Op::mul, a, b);
    c.output(z);
    CHECK(c.groups() == "relu | linear | softmax+mul");
    CHECK(c.ends(Reason::order, a, z));
    CHECK(c.refusal({a, b, z}) == Reason::not_convex);
  }
  SUBCASE("chains that would need each other through a third stay apart") {
    // The second chain already needs the first, through a copy; its product must not come back.
    Chain c;
    const NodeId y1 = c.b.unary(Op::relu, c.x());
    const NodeId product = c.b.linear(y1, c.weight({32, 32}));
    c.output(product);
    const NodeId m1 = c.b.unary(Op::exp, c.x());
    c.output(c.b.binary(Op::add, y1, c.b.concat({m1}, 1)));
    const NodeId m2 = c.b.binary(Op::mul, m1, c.b.concat({product}, 1));
    c.output(m2);
    CHECK(c.groups() == "exp | concat | relu+add | linear | concat | mul");
    CHECK(c.ends(Reason::order, m1, m2));
    // Either one alone may have its second op.
    Chain half;
    const NodeId one = half.b.unary(Op::exp, half.x());
    half.output(half.b.binary(Op::mul, one,
                              half.b.concat({half.b.linear(half.x(), half.weight({32, 32}))}, 1)));
    CHECK(half.groups() == "linear | concat | exp+mul");
  }
  SUBCASE("two chains that meet may not need each other through a third") {
    Chain c;
    const NodeId a = c.b.unary(Op::relu, c.x());
    const NodeId b = c.b.unary(Op::neg, c.b.concat({a}, 1));
    const NodeId both = c.b.binary(Op::add, a, b);
    c.output(both);
    CHECK(c.groups() == "relu | concat | neg+add");
    CHECK(c.ends(Reason::order, a, both));
  }
  SUBCASE("views that no strides can say") {
    Chain c;
    const NodeId x = c.x();
    const NodeId y = c.b.unary(Op::relu, c.b.reshape(c.b.slice(x, 1, 0, 16), {kT * 16}));
    c.output(y);
    const Regions regions = analyse(c.step);
    verify(regions, "test");
    REQUIRE(regions.regions.size() == 1);
    CHECK(regions.regions[0].inputs[0].layout.placement == Placement::opaque);
    CHECK(regions.regions[0].nodes.size() == 3);
    CHECK(regions.regions[0].signature.find("opaque; slice bf16[T, 16]; reshape") !=
          std::string::npos);
    CHECK(c.ends(Reason::dynamic_shape, y, y));
  }
  SUBCASE("epilogues") {
    Chain c;
    const NodeId x = c.x();
    const NodeId shared = c.b.linear(x, c.weight({32, 32}));
    const NodeId one = c.b.unary(Op::relu, shared);
    c.output(c.b.binary(Op::add, one, shared));
    const NodeId normed = c.b.linear(x, c.weight({32, 32}));
    const NodeId norm = c.b.rms_norm(normed, c.weight({32}), 1e-6, 0.0);
    c.output(norm);
    const NodeId grown = c.b.linear(x, c.weight({1, 32}));
    const NodeId wide = c.b.binary(Op::mul, grown, x);
    c.output(wide);
    const NodeId viewed = c.b.linear(x, c.weight({32, 32}));
    const NodeId heads = c.b.unary(Op::silu, c.b.reshape(viewed, {kT, 4, 8}));
    c.output(heads);
    const NodeId scaled = c.b.binary(Op::mul, c.b.linear(x, c.weight({32, 32})), c.weight({32}));
    const NodeId added = c.b.binary(Op::add, scaled, x);
    const NodeId twice = c.b.binary(Op::mul, added, c.x());
    c.output(twice);
    CHECK(c.groups() ==
          "linear | relu+add | linear | rms_norm | linear | mul | linear | silu | "
          "linear+mul+add | mul");
    CHECK(c.ends(Reason::several_uses, shared, one));
    CHECK(c.ends(Reason::stands_alone, normed, norm));
    CHECK(c.ends(Reason::shape, grown, wide));
    CHECK(c.ends(Reason::layout, viewed, heads));
    CHECK(c.ends(Reason::side_input, added, twice));
  }
  SUBCASE("spelled-out norms and softmax are recognised") {
    Chain c;
    const NodeId x = c.x();
    const NodeId centred = c.b.binary(Op::sub, x, c.b.reduce(Op::mean, x, {1}, true));
    const NodeId variance = c.b.reduce(Op::mean, c.b.binary(Op::mul, centred, centred), {1}, true);
    const NodeId root =
        c.b.unary(Op::rsqrt, c.b.binary(Op::add, variance, c.b.scalar(DType::bf16, 1e-5)));
    const NodeId y = c.b.binary(Op::mul, centred, root);
    c.output(y);
    CHECK(analyse(c.step).regions.at(0).category == Category::layer_norm);
    CHECK(analyse(c.step).regions.size() == 1);

    Chain s;
    const NodeId z = s.x();
    const NodeId e = s.b.unary(Op::exp, s.b.binary(Op::sub, z, s.b.reduce(Op::amax, z, {1}, true)));
    s.output(s.b.binary(Op::div, e, s.b.reduce(Op::sum, e, {1}, true)));
    CHECK(analyse(s.step).regions.at(0).category == Category::softmax);
    CHECK(analyse(s.step).regions.size() == 1);
  }
}

TEST_CASE("regions that a fusion planner asks for") {
  const StepGraph step = test::one_layer_qwen3();
  const UseDef uses(step);
  const auto region = [&](const std::vector<NodeId>& nodes) {
    const auto made = make_region(uses, nodes);
    if (const auto* boundary = std::get_if<Boundary>(&made)) FAIL(boundary->text);
    return std::get<Region>(made);
  };
  const auto refusal = [&](const std::vector<NodeId>& nodes) {
    const auto made = make_region(uses, nodes);
    REQUIRE(std::holds_alternative<Boundary>(made));
    return std::get<Boundary>(made).reason;
  };
  const auto projections = named(step, "q_proj") + named(step, "k_proj") + named(step, "v_proj");
  const auto input_norm = named(step, "input_layernorm");

  const Region qkv = region(projections);
  CHECK(qkv.category == Category::gemm);
  CHECK(qkv.inputs.size() == 4);
  CHECK(qkv.outputs.size() == 3);
  CHECK(qkv.module == "model.layers.0.self_attn");
  const Region normed = region(projections + input_norm);
  CHECK(normed.category == Category::mixed);
  CHECK(normed.inputs.size() == 5);
  CHECK(normed.work.weight_bytes == qkv.work.weight_bytes + Dim(64));
  CHECK(normed.module == "model.layers.0");

  const Region mlp = region(named(step, "gate_proj") + named(step, "up_proj") +
                            named(step, "act_fn") + all_of(step, {Op::mul}));
  CHECK(mlp.category == Category::gemm_epilogue);
  CHECK(mlp.outputs.size() == 1);
  CHECK(mlp.ops == std::vector<Op>{Op::linear, Op::silu, Op::linear, Op::mul});

  const auto heads =
      named(step, "q_norm") + named(step, "k_norm") + all_of(step, {Op::rope, Op::append_attend});
  const Region attention = region(heads);
  CHECK(attention.category == Category::rope_append);
  CHECK(attention.access == Access::attention);
  CHECK(attention.dominant == Op::append_attend);
  CHECK(attention.states.size() == 1);
  CHECK(attention.outputs.size() == 1);
  CHECK(attention.dynamic_context);
  CHECK(!attention.dynamic_rows);
  // Order and views do not matter, nor does naming a node twice.
  const std::vector<NodeId> views = all_of(step, {Op::reshape});
  CHECK(region(std::vector<NodeId>(heads.rbegin(), heads.rend()) + views + heads) == attention);

  const auto attend = all_of(step, {Op::append_attend});
  CHECK(refusal(attend + named(step, "o_proj")) == Reason::state);
  CHECK(refusal(input_norm + attend) == Reason::not_connected);
  CHECK(refusal(input_norm + named(step, "q_norm")) == Reason::not_connected);
  CHECK(refusal(named(step, "gate_proj") + named(step, "act_fn") + named(step, "down_proj")) ==
        Reason::not_connected);
  CHECK(refusal(named(step, "post_attention_layernorm") + named(step, "gate_proj") +
                all_of(step, {Op::mul})) == Reason::not_connected);
  CHECK(refusal(named(step, "post_attention_layernorm") + named(step, "up_proj") +
                all_of(step, {Op::mul})) == Reason::not_convex);
  CHECK(refusal({}) == Reason::not_compute);
  CHECK(refusal(views) == Reason::not_compute);
  CHECK(refusal(all_of(step, {Op::weight})) == Reason::not_compute);
  CHECK(refusal({-1}) == Reason::not_compute);
  CHECK(refusal({1'000'000}) == Reason::not_compute);
}

TEST_CASE("a signature tells apart what needs other kernels, and nothing else") {
  const auto signature = [](double eps, std::int64_t size, DType dtype, const std::string& key,
                            const std::string& module, bool strided) {
    StepGraph step;
    Builder b(step.graph);
    b.set_module(module);
    NodeId x = b.input("x", {dtype, {kT, strided ? size * 2 : size}});
    if (strided) x = b.slice(x, 1, size, size * 2);
    step.graph.outputs.push_back({"y", b.rms_norm(x, b.weight(key, {dtype, {size}}), eps, 0.0)});
    return analyse(step).regions.at(0).signature;
  };
  const std::string base = signature(1e-6, 32, DType::bf16, "a", "layers.0", false);
  CHECK(signature(1e-6, 32, DType::bf16, "b", "layers.1", false) == base);
  CHECK(signature(1e-5, 32, DType::bf16, "a", "layers.0", false) != base);
  CHECK(signature(1e-6, 64, DType::bf16, "a", "layers.0", false) != base);
  CHECK(signature(1e-6, 32, DType::f16, "a", "layers.0", false) != base);
  CHECK(signature(1e-6, 32, DType::bf16, "a", "layers.0", true) != base);
  CHECK(base ==
        "in0: activation bf16[T, 32]; in1: weight bf16[32]; v0 = rms_norm(in0, in1) "
        "eps=1e-06 weight_offset=0 bf16[T, 32]; return v0");

  // How operands hang together counts: x * x is not x * y.
  Chain square, other;
  const NodeId x = square.x();
  square.output(square.b.binary(Op::mul, x, x));
  const NodeId y = other.x();
  other.output(other.b.binary(Op::mul, y, other.x()));
  CHECK(analyse(square.step).regions[0].signature != analyse(other.step).regions[0].signature);
}

// Whatever the step, its regions are legal, cover it, can run, and stay legal when renumbered.
TEST_CASE("random steps") {
  std::size_t merged = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Chain c;
    std::vector<NodeId> values{c.x(), c.x()};
    std::size_t ops = 0;
    while (ops < 40) {
      const auto pick = [&] { return values[random() % values.size()]; };
      const NodeId a = pick();
      NodeId made = a;
      switch (random() % 12) {
        case 0:
        case 1:
          made = c.b.unary(Op::relu, a);
          break;
        case 2:
        case 3:
        case 4:
          made = c.b.binary(Op::add, a, pick());
          break;
        case 5:
        case 6:
          made = c.b.linear(a, c.weight({32, 32}));
          break;
        case 7:
          made = c.b.softmax(a, 1);
          break;
        case 8:
          made = c.b.binary(Op::mul, a, c.b.reduce(Op::mean, pick(), {1}, true));
          ++ops;
          break;
        case 9:
          made = c.b.concat({c.b.slice(a, 1, 0, 16), c.b.slice(pick(), 1, 16, 32)}, 1);
          break;
        case 10:
          made = c.b.cast(c.b.unary(Op::exp, c.b.cast(a, DType::f32)), DType::bf16);
          ops += 2;
          break;
        case 11:
          c.output(random() % 2 ? a : c.b.slice(a, 1, 0, 8));
          continue;
      }
      ++ops;
      values.push_back(made);
    }
    // Nothing is dead: the order of dead nodes is that of their numbers.
    std::vector<bool> used(c.step.graph.nodes.size());
    for (const Node& node : c.step.graph.nodes)
      for (const NodeId input : node.inputs) used[static_cast<std::size_t>(input)] = true;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (!used[i]) c.output(static_cast<NodeId>(i));
    const Regions regions = analyse(c.step);
    verify(regions, "random");
    merged += ops - regions.regions.size();
    const Regions other = analyse(test::shuffled(c.step, seed));
    verify(other, "shuffled");
    CHECK(other.regions.size() == regions.regions.size());
    CHECK(other.signatures.size() == regions.signatures.size());
  }
  CHECK(merged > 1000);
}

TEST_CASE("hostile steps") {
  Chain deep;
  NodeId x = deep.x();
  for (int i = 0; i < 20000; ++i) x = deep.b.unary(i % 2 ? Op::neg : Op::abs, x);
  deep.output(x);
  const Regions regions = analyse(deep.step);
  CHECK(regions.regions.size() == 1);

  Chain huge;
  huge.output(huge.b.unary(Op::relu, huge.x(DType::bf16, {std::int64_t{1} << 40, 1 << 30})));
  CHECK_BAD_INPUT(analyse(huge.step), "a size overflows 64 bits");

  Chain whole;
  whole.output(whole.b.unary(Op::relu, whole.x(DType::bf16, {Dim(Symbol::S), 8})));
  CHECK_BAD_INPUT(analyse(whole.step), "a step has no S");

  // A dead op is a region like any other; no outputs at all are refused before.
  Chain dead;
  const NodeId in = dead.x();
  dead.output(dead.b.unary(Op::relu, in));
  dead.b.reduce(Op::sum, in, {1}, false);
  CHECK(dead.groups() == "relu | sum");
}
