// Steps against whole forwards of the same model, and what the executors refuse.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "reference/executor.h"

using namespace ac;

namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kVocab = 23, kHeads = 4, kKey = 6, kHidden = kHeads * kKey;

struct LayerShape {
  std::int64_t kv_heads, value_size, window;
  double softcap;
};
const std::vector<LayerShape> kLayers{
    {4, 6, 0, 0.0}, {2, 6, 5, 0.0}, {1, 3, 0, 2.0}, {2, 4, 1, 0.0}, {4, 5, 30, 1.0}};

// A decoder with an attention of every kind, over S tokens, or over T tokens with a cache.
StepGraph decoder(bool step) {
  StepGraph model;
  const Dim count(step ? Symbol::T : Symbol::S);
  Builder b(model.graph);
  const auto weight = [&](const std::string& key, Shape shape) {
    return b.weight(key, {DType::f32, std::move(shape)});
  };
  const NodeId ids = b.input("ids", {DType::i64, {count}});
  const NodeId table = weight("table", {kVocab, kHidden});
  const NodeId positions = b.positions(count);
  const NodeId frequencies = b.constant(DType::f32, {2}, {1.0, 0.1});
  NodeId x = b.embedding(table, ids);
  for (std::size_t i = 0; i < kLayers.size(); ++i) {
    const LayerShape& layer = kLayers[i];
    const std::string name = "layers." + std::to_string(i);
    b.set_module(name);
    const NodeId normed = b.rms_norm(x, weight(name + ".norm", {kHidden}), 1e-6, 1.0);
    const auto project = [&](const std::string& which, std::int64_t heads, std::int64_t size) {
      const NodeId flat = b.linear(normed, weight(name + which, {heads * size, kHidden}));
      return b.reshape(flat, {count, heads, size});
    };
    const NodeId q = b.rope(project(".q", kHeads, kKey), positions, frequencies, 1.0, false);
    const NodeId k =
        b.rope(project(".k", layer.kv_heads, kKey), positions, frequencies, 1.0, false);
    const NodeId v = project(".v", layer.kv_heads, layer.value_size);
    NodeId y;
    if (step) {
      model.states.push_back(
          kv_state(DType::f32, layer.kv_heads, kKey, layer.value_size, layer.window, name));
      y = b.append_attend(q, k, v, static_cast<std::int64_t>(i), 0.8, layer.window, layer.softcap);
    } else {
      y = b.attention(q, k, v, 0.8, layer.window, layer.softcap);
    }
    const std::int64_t inner = kHeads * layer.value_size;
    y = b.linear(b.reshape(y, {count, inner}), weight(name + ".o", {kHidden, inner}));
    x = b.binary(Op::add, x, y);
  }
  model.graph.outputs.push_back({"logits", b.linear(x, table)});
  model.graph.outputs.push_back({"hidden", x});
  return model;
}

// Random f32 weights that depend on nothing but their key and size.
class RandomWeights {
 public:
  WeightView operator()(const Node& node) {
    std::vector<float>& data = store_[node.text("key")];
    std::vector<std::int64_t> shape;
    std::size_t count = 1;
    for (const Dim& dim : node.type.shape) {
      shape.push_back(dim.constant());
      count *= static_cast<std::size_t>(dim.constant());
    }
    if (data.empty()) {
      std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(node.text("key"))));
      for (std::size_t i = 0; i < count; ++i)
        data.push_back(static_cast<float>(random() % 2001) / 4000.0f - 0.25f);
    }
    return {DType::f32, shape, reinterpret_cast<const std::byte*>(data.data())};
  }

 private:
  std::map<std::string, std::vector<float>> store_;
};

Ids random_ids(std::size_t count) {
  std::mt19937 random(3);
  Ids ids;
  for (std::size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int64_t>(random() % kVocab));
  return ids;
}

Value value_of(const Ids& ids) {
  return {DType::i64, {static_cast<std::int64_t>(ids.size())}, {ids.begin(), ids.end()}};
}

Values whole(const Ids& ids, RandomWeights& weights) {
  return evaluate(decoder(false).graph, {.S = static_cast<std::int64_t>(ids.size())},
                  {{"ids", value_of(ids)}}, std::ref(weights), 2);
}

// The largest difference between rows [first, ...) of `all` and `part`.
double difference(const Value& all, std::int64_t first, const Value& part) {
  const std::int64_t width = all.shape[1];
  REQUIRE(part.shape[1] == width);
  double largest = 0;
  for (std::size_t i = 0; i < part.data.size(); ++i)
    largest = std::max(
        largest, std::fabs(part.data[i] - all.data[static_cast<std::size_t>(first * width) + i]));
  return largest;
}

void check_chunks(StepExecutor& executor, const Ids& ids, std::int64_t chunk, const Values& truth) {
  const auto total = static_cast<std::int64_t>(ids.size());
  while (executor.position() < total) {
    const std::int64_t first = executor.position(), end = std::min(total, first + chunk);
    const Values outputs = executor.step(Ids(ids.begin() + first, ids.begin() + end));
    CHECK(executor.position() == end);
    for (const char* name : {"logits", "hidden"}) {
      CHECK(outputs.at(name).shape[0] == end - first);
      CHECK(difference(truth.at(name), first, outputs.at(name)) < 1e-12);
    }
  }
}

std::string error_of(auto action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::bad_input);
    return error.what();
  }
  return "no error";
}

Graph graph_of(const std::string& body) {
  return parse_graph("graph \"g\" {" + body + "}", "test");
}

}  // namespace

TEST_CASE("steps of any size equal the whole forward") {
  RandomWeights weights;
  const Ids ids = random_ids(19);
  const Values truth = whole(ids, weights);
  CHECK(std::fabs(truth.at("logits").data[0]) > 1e-3);
  for (const std::int64_t chunk : {1, 3, 7, 19}) {
    CAPTURE(chunk);
    StepExecutor executor(decoder(true), std::ref(weights), 2);
    check_chunks(executor, ids, chunk, truth);
  }
}

TEST_CASE("a score beyond what the graph assumes is an error, whether a mask hides it or not") {
  const auto executor = [](int window) {
    const std::string text = fmt::format(
        "step \"s\" {{ state 0 : kv f32 keys=1x1 values=1x1 window={0} "
        "%0 = input {{name=\"q\"}} : f32[T, 1, 1] %1 = input {{name=\"k\"}} : f32[T, 1, 1] "
        "%2 = append_attend(%0, %1, %1) {{state=0, scale=0.5, window={0}, softcap=0.0, "
        "scores_within=250.0}} : f32[T, 1, 1] @ \"layer.0\" return %2 as \"y\" }}",
        window);
    return StepExecutor(parse_step(text, "test"), {}, 2);
  };
  const auto step = [](StepExecutor& of, std::vector<double> q, std::vector<double> k) {
    const auto tokens = static_cast<std::int64_t>(q.size());
    const auto rows = [&](std::vector<double>& data) {
      return Value{DType::f32, {tokens, 1, 1}, std::move(data)};
    };
    of.step(tokens, {{"q", rows(q)}, {"k", rows(k)}});
  };
  StepExecutor near = executor(0);
  step(near, {20, -1}, {1, 25});  // scores of 10, 250, -0.5 and -12.5
  CHECK(near.scores_seen().largest == 250);
  CHECK(near.scores_seen().within == 250);
  const std::string why = error_of([&] { step(near, {-26}, {26}); });
  for (const char* part : {"append_attend at layer.0", "magnitude 338", "mask's -1000",
                           "beyond 250", "torch.finfo(dtype).min"}) {
    CAPTURE(part);
    CHECK(why.find(part) != std::string::npos);
  }
  CHECK(near.position() == 2);
  StepExecutor later = executor(0);  // the first token does not see the second
  CHECK(error_of([&] { step(later, {20, 1}, {1, 26}); }).find("magnitude 260") !=
        std::string::npos);
  StepExecutor earlier = executor(1);  // the second token does not see the first
  step(earlier, {1}, {26});
  CHECK(error_of([&] { step(earlier, {20}, {1}); }).find("magnitude 260") != std::string::npos);
}

TEST_CASE("truncate and reset forget tokens, and only those") {
  RandomWeights weights;
  const Ids ids = random_ids(15);
  const Values truth = whole(ids, weights);
  StepExecutor executor(decoder(true), std::ref(weights), 2);
  check_chunks(executor, ids, 7, truth);
  executor.truncate(4);
  CHECK(executor.position() == 4);
  executor.step(Ids{0, 1, 2});  // another continuation, forgotten again
  executor.truncate(4);
  check_chunks(executor, ids, 3, truth);
  executor.reset();
  CHECK(executor.position() == 0);
  StepExecutor moved = std::move(executor);
  check_chunks(moved, ids, 6, truth);
}

TEST_CASE("a decode instance, with T = 1 in its shapes, runs like the step") {
  RandomWeights weights;
  StepGraph decode = decoder(true);
  for (Node& node : decode.graph.nodes) {
    for (Dim& dim : node.type.shape) dim = dim.substitute(Symbol::T, 1);
    for (auto& [name, attr] : node.attrs)
      if (Shape* dims = std::get_if<Shape>(&attr))
        for (Dim& dim : *dims) dim = dim.substitute(Symbol::T, 1);
  }
  const Ids ids = random_ids(9);
  const Values truth = whole(ids, weights);
  StepExecutor executor(decode, std::ref(weights), 1);
  check_chunks(executor, ids, 1, truth);
  CHECK(error_of([&] { executor.step(Ids{1, 2}); }) ==
        "input \"ids\" is i64[2] with 2 elements, but the graph needs i64[1]");
}

TEST_CASE("a failed step leaves the state as it was") {
  RandomWeights weights;
  const Ids ids = random_ids(11);
  const Values truth = whole(ids, weights);
  // Looks its ids up again after the attentions, in a table that is too small: fails late.
  StepGraph late = decoder(true);
  Builder b(late.graph);
  const NodeId table = b.weight("small", {DType::f32, {kVocab - 1, 1}});
  late.graph.outputs.push_back({"late", b.embedding(table, 0)});
  StepExecutor executor(late, std::ref(weights), 1);
  Ids good = ids;
  for (std::int64_t& id : good) id %= kVocab - 1;
  const Values good_truth = whole(good, weights);
  executor.step(Ids(good.begin(), good.begin() + 5));
  CHECK(error_of([&] { executor.step(Ids{kVocab - 1}); }).find("id 22 is outside") !=
        std::string::npos);
  CHECK_THROWS_AS(executor.step(Ids{}), Error);
  CHECK(executor.position() == 5);
  const Values outputs = executor.step(Ids(good.begin() + 5, good.end()));
  CHECK(difference(good_truth.at("logits"), 5, outputs.at("logits")) < 1e-12);
}

TEST_CASE("ids outside the table are an error that names the id and the table") {
  RandomWeights weights;
  CHECK(error_of([&] { whole({1, kVocab}, weights); }) ==
        "%4 = embedding: id 23 is outside the table %1 = weight \"table\" of 23 rows");
  CHECK(error_of([&] { whole({-1}, weights); }).find("id -1 is outside the table") !=
        std::string::npos);
}

TEST_CASE("inputs that do not fit are refused") {
  const Graph graph = graph_of(R"(%0 = input {name="x"} : f32[S, 2]
    %1 = input {name="n"} : i32[1]
    %2 = input {name="b"} : bool[1]
    %3 = neg(%0) : f32[S, 2]
    return %3 as "y")");
  const Values good{{"x", {DType::f32, {1, 2}, {1, 2}}},
                    {"n", {DType::i32, {1}, {-5}}},
                    {"b", {DType::boolean, {1}, {1}}}};
  const auto message = [&](const char* name, Value value) {
    Values inputs = good;
    inputs[name] = std::move(value);
    return error_of([&] { evaluate(graph, {.S = 1}, inputs, {}); });
  };
  CHECK(evaluate(graph, {.S = 1}, good, {}).at("y").data == std::vector<double>{-1, -2});
  CHECK(message("x", {DType::f32, {2, 1}, {1, 2}}) ==
        "input \"x\" is f32[2, 1] with 2 elements, but the graph needs f32[1, 2]");
  CHECK(message("x", {DType::f32, {1, 2}, {1}}) ==
        "input \"x\" is f32[1, 2] with 1 elements, but the graph needs f32[1, 2]");
  CHECK(message("x", {DType::f16, {1, 2}, {1, 2}}).find("but the graph needs f32") !=
        std::string::npos);
  CHECK(message("n", {DType::i32, {1}, {0.5}}) == "input \"n\": 0.5 is not a value of i32");
  CHECK(message("n", {DType::i32, {1}, {3e9}}) != "no error");
  CHECK(message("b", {DType::boolean, {1}, {2}}) == "input \"b\": 2 is not a value of bool");
  CHECK(message("z", {DType::f32, {}, {1}}) == "the graph has no input \"z\"");
  CHECK(error_of([&] { evaluate(graph, {.S = 1}, {}, {}); }) ==
        "the graph's input \"x\" was not given");
  CHECK(error_of([&] { evaluate(graph, {.T = 1}, good, {}); }) ==
        "%0 = input: depends on S, which has no value");
}

TEST_CASE("weights that do not fit are refused") {
  const Graph graph = graph_of(R"(%0 = weight {key="a.b", store="s"} : f16[2] @ "a"
    return %0 as "y")");
  float data[2] = {1.5f, -65504};
  const auto message = [&](DType dtype, std::vector<std::int64_t> shape) {
    return error_of([&] {
      const auto y = evaluate(graph, {}, {}, [&](const Node&) {
        return WeightView{dtype, shape, reinterpret_cast<const std::byte*>(data)};
      });
      CHECK(y.at("y").data == std::vector<double>{1.5, -65504});
    });
  };
  CHECK(message(DType::f32, {2}) == "no error");
  CHECK(message(DType::f32, {1, 2}) ==
        "%0 = weight \"a.b\" at a: is stored as f32[1, 2], but the graph needs f16[2]");
  CHECK(message(DType::i32, {2}) ==
        "%0 = weight \"a.b\" at a: is stored as i32[2], but the graph needs f16[2]");
  data[1] = -1e30f;
  CHECK(message(DType::f32, {2}) ==
        "the weight \"a.b\" has the element -1e+30, which float16 cannot hold");
}

TEST_CASE("results that are not integers are errors") {
  const auto message = [](const std::string& a, const std::string& b, const std::string& op) {
    return error_of([&] {
      evaluate(graph_of("%0 = constant {data=[" + a + "]} : i64[] %1 = constant {data=[" + b +
                        "]} : i64[] %2 = " + op + "(%0, %1) : i64[] return %2 as \"y\""),
               {}, {}, {});
    });
  };
  CHECK(message("6", "4", "div") == "no error");
  CHECK(message("5", "0", "div") == "%2 = div: inf is not a value of i64 within 2^53");
  CHECK(message("2", "-1", "pow") == "%2 = pow: 0.5 is not a value of i64 within 2^53");
  CHECK(message("9007199254740992", "2", "mul") != "no error");
  CHECK(message("0.5", "2", "mul") == "%0 = constant: 0.5 is not a value of i64 within 2^53");
  CHECK(error_of([] {
          evaluate(graph_of("%0 = constant {data=[nan]} : f32[] %1 = cast(%0) {dtype=i32} : i32[] "
                            "return %1 as \"y\""),
                   {}, {}, {});
        }) == "%1 = cast: nan is not a value of i32");
}

TEST_CASE("sizes that only show at run time are checked then") {
  const std::string slice = R"(%0 = input {name="x"} : f32[S]
    %1 = slice(%0) {axis=0, start=2, end=S, step=1} : f32[S - 2]
    return %1 as "y")";
  const auto message = [&](const Graph& graph, std::int64_t size) {
    Value x{DType::f32, {size}, std::vector<double>(static_cast<std::size_t>(size))};
    return error_of([&] { evaluate(graph, {.S = size}, {{"x", x}}, {}); });
  };
  CHECK(message(graph_of(slice), 2) == "no error");
  CHECK(message(graph_of(slice), 1) == "%1 = slice: the size S - 2 is negative here");
  const std::string fixed = R"(%0 = input {name="x"} : f32[S]
    %1 = slice(%0) {axis=0, start=1, end=3, step=1} : f32[2]
    return %1 as "y")";
  CHECK(message(graph_of(fixed), 3) == "no error");
  CHECK(message(graph_of(fixed), 2) == "%1 = slice: slice 1:3 does not fit axis 0 of f32[2]");
  const std::string huge = R"(%0 = input {name="x"} : f32[S]
    %1 = constant {data=[1.0]} : f32[]
    %2 = expand(%1) {shape=[S, 99999999999, 9999999999]} : f32[999999999890000000001*S]
    return %2 as "y")";
  CHECK_THROWS_AS(graph_of(huge), Error);
  const std::string large = R"(%0 = input {name="x"} : f32[S]
    %1 = constant {data=[1.0]} : f32[]
    %2 = expand(%1) {shape=[S, 9999999999]} : f32[S, 9999999999]
    return %2 as "y")";
  CHECK(message(graph_of(large), 9) ==
        "%2 = expand: f32[S, 9999999999] is too large for the reference");
}

TEST_CASE("a graph that the verifier refuses is refused, and so is a state outside a step") {
  Graph graph =
      graph_of("%0 = input {name=\"x\"} : f32[2] %1 = neg(%0) : f32[2] return %1 as \"y\"");
  graph.nodes[1].type.shape = {3};
  CHECK(error_of([&] { evaluate(graph, {}, {}, {}); }).find("is declared f32[3]") !=
        std::string::npos);
  RandomWeights weights;
  CHECK(error_of([&] {
          evaluate(decoder(true).graph, {.T = 1, .P = 0}, {{"ids", value_of({1})}},
                   std::ref(weights));
        }).find("there is no state 0") != std::string::npos);
}

TEST_CASE("an append of another size than the step is refused") {
  const StepGraph step = parse_step(R"(step "s" {
    state 0 : kv f32 keys=1x1 values=1x1 window=0
    %0 = input {name="x"} : f32[2, 1, 1]
    %1 = append_attend(%0, %0, %0) {state=0, scale=1.0, window=0, softcap=0.0} : f32[2, 1, 1]
    return %1 as "y"
  })",
                                    "test");
  StepExecutor executor(step, {});
  const Values inputs{{"x", {DType::f32, {2, 1, 1}, {1, 2}}}};
  CHECK(error_of([&] { executor.step(3, inputs); }) ==
        "%1 = append_attend: appends 2 tokens in a step of 3");
  executor.step(2, inputs);
  CHECK(executor.position() == 2);
}
