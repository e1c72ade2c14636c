#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ir/assumptions.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "tests/unit/symbols.h"

using namespace ac;
using namespace ac::test;

namespace {

std::string error_of(auto action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::bad_input);
    return error.what();
  }
  return "no error";
}

Graph small_graph() {
  Graph graph{"a \"quoted\" name\n", {}, {}};
  Builder b(graph);
  const NodeId ids = b.input("ids", {DType::i64, {S}});
  b.set_module("model.embed");
  const NodeId table = b.weight("embed.weight", {DType::f16, {100, 8}});
  NodeId x = b.embedding(table, ids);
  b.set_module("model.layers.0");
  x = b.binary(Op::mul, x, b.scalar(DType::f16, 0.1));
  x = b.gelu(x, true);
  const NodeId odd =
      b.constant(DType::f16, {2, 4}, {INFINITY, -INFINITY, std::nan(""), 0.0, -0.0, 1e-300, 3, 3});
  x = b.binary(Op::add, b.reshape(x, {S, 1, 2, 4}), odd);
  x = b.slice(b.permute(x, {0, 1, 3, 2}), 2, 1, 4, 2);
  x = b.cast(b.concat({x, x}, 1), DType::f32);
  x = b.reduce(Op::mean, x, {1, 2}, false);
  graph.outputs.push_back({"logits", x});
  return graph;
}

// Any valid node of each op, so that the round trip covers the whole table.
Graph every_op() {
  Graph graph{"every", {}, {}};
  Builder b(graph);
  const NodeId x = b.input("x", {DType::f32, {S, 2, 8}});
  const NodeId w = b.weight("w", {DType::f32, {8}});
  const NodeId square = b.weight("square", {DType::f32, {8, 8}});
  const NodeId frequencies = b.constant(DType::f32, {2}, {1, 0.5});
  const NodeId positions = b.positions(S);
  const NodeId flags = b.binary(Op::less, x, x);
  for (const OpInfo& op : op_table()) {
    switch (op.rule) {
      case ShapeRule::declared:
      case ShapeRule::positions:
        break;
      case ShapeRule::cast:
        b.cast(x, DType::bf16);
        break;
      case ShapeRule::unary:
        op.op == Op::gelu ? b.gelu(x, false) : b.unary(op.op, x);
        break;
      case ShapeRule::binary:
      case ShapeRule::compare:
        b.binary(op.op, x, x);
        break;
      case ShapeRule::logical:
        op.max_inputs == 1 ? b.unary(op.op, flags) : b.binary(op.op, flags, flags);
        break;
      case ShapeRule::where:
        b.add(Op::where, {flags, x, x});
        break;
      case ShapeRule::reduce:
        b.reduce(op.op, x, {1}, true);
        break;
      case ShapeRule::softmax:
        b.softmax(x, 2);
        break;
      case ShapeRule::norm:
        op.op == Op::rms_norm ? b.rms_norm(x, w, 1e-6, 1.0) : b.layer_norm({x, w, w}, 1e-5);
        break;
      case ShapeRule::matmul:
        b.matmul(x, square);
        break;
      case ShapeRule::linear:
        b.linear(x, square, w);
        break;
      case ShapeRule::embedding:
        b.embedding(square, positions);
        break;
      case ShapeRule::rope:
        b.rope(x, positions, frequencies, 1.5, true);
        break;
      case ShapeRule::attention:
        op.op == Op::attention ? b.attention(x, x, x, 0.3, 4, 30.0)
                               : b.append_attend(x, x, x, 0, 0.3, 4, 30.0);
        break;
      case ShapeRule::reshape:
        b.reshape(x, {S * 2, 8});
        break;
      case ShapeRule::permute:
        b.permute(x, {1, 0, 2});
        break;
      case ShapeRule::expand:
        b.expand(x, {3, S, 2, 8});
        break;
      case ShapeRule::slice:
        b.slice(x, 0, 0, S);
        break;
      case ShapeRule::concat:
        b.concat({x, x}, 2);
        break;
      case ShapeRule::triangle:
        b.add(op.op, {x}, {{"diagonal", std::int64_t{-1}}});
        break;
    }
  }
  graph.outputs.push_back({"x", x});
  return graph;
}

}  // namespace

TEST_CASE("a printed graph parses back to itself") {
  for (const Graph& graph : {small_graph(), every_op()}) {
    verify(graph, "test");
    const std::string text = print(graph);
    CHECK(print(parse_graph(text, "text")) == text);
  }
}

TEST_CASE("every op of the table appears in the round trip") {
  const Graph graph = every_op();
  for (const OpInfo& op : op_table()) {
    CAPTURE(op.name);
    CHECK(std::any_of(graph.nodes.begin(), graph.nodes.end(),
                      [&](const Node& node) { return node.op == op.op; }));
  }
}

TEST_CASE("a printed step parses back to itself") {
  StepGraph step;
  step.graph.name = "step";
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::f32, {T, 2, 8}});
  step.states.push_back(kv_state(DType::f32, 2, 8, 8, 4, "layers.0"));
  step.graph.outputs.push_back({"y", b.append_attend(x, x, x, 0, 0.5, 4, 0.0)});
  std::string text = print(step);
  CHECK(print(parse_step(text, "text")) == text);
  CHECK(text.find("scores_within") == std::string::npos);
  step.graph.nodes.back().attrs["scores_within"] = 2500.0;
  text = print(step);
  CHECK(text.find("softcap=0.0, scores_within=2500.0}") != std::string::npos);
  CHECK(print(parse_step(text, "text")) == text);
  CHECK(!first_difference(without_assumptions(step).graph, step.graph).empty());
  step.graph.nodes.back().attrs["scores_within"] = 0.0;
  CHECK(error_of([&] { verify(step, "test"); }).find("scores_within is 0") != std::string::npos);
  step = without_assumptions(step);
  step.states[0] = kv_state(DType::f32, 2, 8, 8, 4, "layers.0", 0, KvStorage::fp8);
  text = print(step);
  CHECK(text.find("kv f32 keys=2x8:f8e4m3 values=2x8:f8e4m3 key_scales=2x1 value_scales=2x1 "
                  "window=4") != std::string::npos);
  CHECK(parse_step(text, "text").states == step.states);
  step.states[0].window = 5;
  CHECK(error_of([&] { verify(step, "test"); }).find("does not fit state 0") != std::string::npos);
}

TEST_CASE("errors name the line, the op and the module") {
  const auto message = [](const char* text) {
    return error_of([&] { parse_graph(text, "file.txt"); });
  };
  CHECK(message("graph \"g\" {\n  %0 = frobnicate : f32[1]\n}") ==
        "file.txt:2: unknown op \"frobnicate\"");
  CHECK(message("graph \"g\" {\n %0 = neg(%0) : f32[1] @ \"a.b\"\n return %0 as \"x\"\n}") ==
        "file.txt: %0 = neg at a.b: input %0 is not a node before this one");
  CHECK(message("graph \"g\" {\n %0 = input {name=\"x\"} : f32[2]\n %1 = neg(%0) : f32[3]\n"
                " return %1 as \"x\"\n}") ==
        "file.txt: %1 = neg: is declared f32[3], but its inputs make it f32[2]");
  CHECK(message("graph \"g\" { %0 = constant {data=[0.0 x 99999999999]} : f32[1] }")
            .find("a constant of more than") != std::string::npos);
  CHECK(message("graph \"g\" {") == "file.txt:1: expected a node, a state or a return, got \"\"");
  CHECK(message("graph \"g\" {}") == "file.txt: the graph has no output");
}

TEST_CASE("any truncation of a printed graph is an error, not a crash") {
  const std::string text = print(every_op());
  for (std::size_t size = 0; size + 2 < text.size(); size += 7)
    CHECK_THROWS_AS(parse_graph(text.substr(0, size), "cut"), Error);
}
