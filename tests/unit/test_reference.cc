// Holds every evaluator to PyTorch: tests/data/op_cases.json is written by
// tests/python/make_op_cases.py.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "base/elements.h"
#include "base/error.h"
#include "base/half.h"
#include "base/json.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "ir/shape.h"
#include "reference/executor.h"
#include "reference/ops_internal.h"
#include "tests/tools/source_folder.h"

using namespace ac;

namespace {

const Json& op_cases() {
  static const Json cases = read_json(test_data() / "op_cases.json");
  return cases;
}

Value value_from(const Json& json) {
  Value value{
      *dtype_from_short_name(json["dtype"].get<std::string>()), json["shape"].get<Sizes>(), {}};
  for (const Json& element : json["data"])
    value.data.push_back(element.is_string() ? std::stod(element.get<std::string>())
                                             : element.get<double>());
  return value;
}

Values values_from(const Json& json) {
  Values values;
  for (const auto& [name, value] : json.items()) values[name] = value_from(value);
  return values;
}

// The bytes live in `store`, one byte off alignment: weights are not aligned in files.
WeightLookup lookup_in(const Json& json, std::map<std::string, std::vector<std::byte>>& store) {
  std::map<std::string, WeightView> views;
  for (const auto& [key, weight] : json.items()) {
    const auto hex = weight["bytes"].get<std::string>();
    std::vector<std::byte>& bytes = store[key];
    bytes.resize(1 + hex.size() / 2);
    for (std::size_t i = 1; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * (i - 1), 2), nullptr, 16));
    views[key] = {*dtype_from_short_name(weight["dtype"].get<std::string>()),
                  weight["shape"].get<Sizes>(), bytes.data() + 1};
  }
  return [views](const Node& weight) { return views.at(weight.text("key")); };
}

std::int64_t binding(const Json& bindings, const char* symbol) {
  return bindings.contains(symbol) ? bindings[symbol].get<std::int64_t>() : -1;
}

void check_equal(const Values& values, const Values& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (const auto& [name, want] : expected) {
    const Value& got = values.at(name);
    CHECK(to_string(got.dtype, got.shape) == to_string(want.dtype, want.shape));
    REQUIRE(got.data.size() == want.data.size());
    for (std::size_t i = 0; i < want.data.size(); ++i) {
      const double a = got.data[i], b = want.data[i];
      CAPTURE(i);
      CAPTURE(a);
      CAPTURE(b);
      const bool close = std::fabs(a - b) <= tolerance * std::max(1.0, std::fabs(b));
      CHECK((a == b || close || (std::isnan(a) && std::isnan(b))));
    }
  }
}

void run_case(const Json& item, int threads) {
  std::map<std::string, std::vector<std::byte>> store;
  const WeightLookup weights = lookup_in(item["weights"], store);
  const auto text = item["graph"].get<std::string>();
  const double tolerance = item["tolerance"].get<double>();
  if (item.contains("steps")) {
    StepExecutor executor(parse_step(text, "case"), weights, threads);
    for (const Json& step : item["steps"])
      check_equal(executor.step(step["tokens"].get<std::int64_t>(), values_from(step["inputs"])),
                  values_from(step["outputs"]), tolerance);
    return;
  }
  const Json& symbols = item["bindings"];
  const Bindings bindings{binding(symbols, "S"), binding(symbols, "T"), binding(symbols, "P")};
  check_equal(
      evaluate(parse_graph(text, "case"), bindings, values_from(item["inputs"]), weights, threads),
      values_from(item["outputs"]), tolerance);
}

}  // namespace

TEST_CASE("every op computes what PyTorch computes") {
  for (const Json& item : op_cases()) {
    const std::string name = item["op"].get<std::string>() + ": " + item["name"].get<std::string>();
    CAPTURE(name);
    CHECK_NOTHROW(run_case(item, 1));
  }
}

TEST_CASE("every op of the table has a case, and the case has the op") {
  std::set<std::string> covered;
  for (const Json& item : op_cases()) {
    const auto op = item["op"].get<std::string>();
    CHECK(item["graph"].get<std::string>().find("= " + op) != std::string::npos);
    covered.insert(op);
  }
  for (const OpInfo& op : op_table()) {
    CAPTURE(op.name);
    CHECK(covered.contains(std::string(op.name)));
  }
}

namespace {

Sizes coordinates(std::size_t index, const Sizes& shape) {
  Sizes result(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    result[axis] = static_cast<std::int64_t>(index % size);
    index /= size;
  }
  return result;
}

// Whether the table lets element `to` of the result depend on element `from` of an input.
bool may_depend(const Graph& graph, const Node& node, std::size_t input, const Sizes& from_shape,
                const Sizes& from, const Sizes& to) {
  std::set<std::int64_t> reduced;
  if (info(node.op).reduces()) {
    if (input > 0) return true;  // weights
    for (const std::int64_t axis : reduced_axes(graph, node)) reduced.insert(axis);
  }
  const bool drops = info(node.op).over == Over::axes && !node.flag("keep");
  // Axes are counted from the last, as broadcasting does.
  std::size_t at = to.size();
  for (std::size_t axis = from.size(); axis-- > 0;) {
    const bool any = reduced.count(static_cast<std::int64_t>(axis)) > 0;
    if (any && drops) continue;
    --at;
    if (!any && from_shape[axis] != 1 && from[axis] != to[at]) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("an element depends on no other elements than the table says") {
  std::set<Op> tried;
  for (const Json& item : op_cases()) {
    const Op op = *op_from_name(item["op"].get<std::string>());
    if (info(op).over == Over::own || item.contains("steps") || !item["bindings"].empty()) continue;
    const Graph graph = parse_graph(item["graph"].get<std::string>(), "case");
    const Node& node = graph[graph.outputs.at(0).node];
    if (node.op != op) continue;
    CAPTURE(item["name"].get<std::string>());
    const Values given = values_from(item["inputs"]);
    std::map<std::string, std::vector<std::byte>> store;
    const WeightLookup weights = lookup_in(item["weights"], store);
    const auto run = [&](const Values& inputs) {
      return evaluate(graph, {}, inputs, weights, 1).begin()->second;
    };
    const Value before = run(given);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& leaf = graph[node.inputs[i]];
      if (leaf.op != Op::input) continue;
      Values changed = given;
      Value& value = changed.at(leaf.text("name"));
      const auto uses = std::count(node.inputs.begin(), node.inputs.end(), node.inputs[i]);
      for (std::size_t k = 0; k < value.data.size() && k < 30 && uses == 1; ++k) {
        const double old = value.data[k];
        value.data[k] = value.dtype == DType::boolean ? 1 - old : old + 1;
        const Value after = run(changed);
        value.data[k] = old;
        for (std::size_t o = 0; o < after.data.size(); ++o) {
          const double x = before.data[o], y = after.data[o];
          if (x == y || (std::isnan(x) && std::isnan(y))) continue;
          tried.insert(op);
          CHECK(may_depend(graph, node, i, value.shape, coordinates(k, value.shape),
                           coordinates(o, after.shape)));
        }
      }
    }
  }
  for (const OpInfo& op : op_table()) {
    CAPTURE(std::string(op.name));
    CHECK(tried.contains(op.op) == (op.over != Over::own));
  }
}

namespace {

Value random_value(const Sizes& shape, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<double> uniform(-1, 1);
  Value value{DType::f32, shape, {}};
  for (std::int64_t i = 0; i < element_count(shape); ++i) value.data.push_back(uniform(random));
  return value;
}

}  // namespace

TEST_CASE("the number of threads changes nothing, bit for bit") {
  // Large enough for every parallel loop to be split.
  const Graph graph = parse_graph(R"(graph "threads" {
    %0 = input {name="x"} : f32[S, 96]
    %1 = input {name="w"} : f32[1030, 96]
    %2 = linear(%0, %1) : f32[S, 1030]
    %3 = silu(%2) : f32[S, 1030]
    %4 = add(%3, %2) : f32[S, 1030]
    %5 = softmax(%4) {axis=1} : f32[S, 1030]
    %6 = matmul(%5, %1) : f32[S, 96]
    %7 = reshape(%6) {shape=[S, 6, 16]} : f32[S, 6, 16]
    %8 = attention(%7, %7, %7) {scale=2.0, window=20, softcap=3.0} : f32[S, 6, 16]
    return %8 as "y"
  })",
                                  "test");
  const Values inputs{{"x", random_value({50, 96}, 1)}, {"w", random_value({1030, 96}, 2)}};
  const Value one = evaluate(graph, {.S = 50}, inputs, {}, 1).at("y");
  for (const int threads : {2, 3, 16})
    CHECK(evaluate(graph, {.S = 50}, inputs, {}, threads).at("y").data == one.data);
}

// float32 sums leave a mean that is not quite what all elements are, and nothing else is left then.
TEST_CASE("a plain LayerNorm of equal values has the rounding of its sums") {
  constexpr int columns = 328;
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::f32, {Dim(1), Dim(columns)}});
  const NodeId one = b.constant(DType::f32, {columns}, std::vector<double>(columns, 1));
  const NodeId zero = b.constant(DType::f32, {columns}, std::vector<double>(columns, 0));
  step.graph.outputs = {{"y", b.layer_norm({x, one, zero}, 1e-5)}};
  const Value equal{DType::f32, {1, columns}, std::vector<double>(columns, double(0.3f))};
  const auto largest = [&](Arithmetic arithmetic) {
    StepExecutor executor(step, [](const Node&) { return WeightView{}; }, 1, arithmetic);
    const Values outputs = executor.step(1, {{"x", equal}});
    double most = 0;
    for (const double y : outputs.at("y").data) most = std::max(most, std::fabs(y));
    return most;
  };
  CHECK(largest(Arithmetic::exact) < 1e-10);
  CHECK(largest(Arithmetic::plain) > 1e-6);
  CHECK(largest(Arithmetic::plain) < 1e-3);
}

TEST_CASE("the fast conversions of weights are the exact ones") {
  const auto same = [](double a, double b) {
    return std::signbit(a) == std::signbit(b) && (a == b || (std::isnan(a) && std::isnan(b)));
  };
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31  ? (fraction ? std::nan("") : INFINITY)
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1024 + fraction, exponent - 25);
    const double exact = bits & 0x8000 ? -size : size, fast = half_to_float(half);
    // The sign of a NaN means nothing.
    if (!same(fast, exact) && !(std::isnan(fast) && std::isnan(exact))) FAIL(bits);
    if (std::isnan(exact)) continue;
    std::uint16_t stored = 0;
    store_element(DType::f16, exact, &stored);
    if (stored != half || !same(load_element(DType::f16, &stored), exact)) FAIL(bits);
  }
  std::mt19937 random(7);
  for (int i = 0; i < 400'000; ++i) {
    // Every fourth is in the range of halves, and every third near a tie.
    std::uint32_t bits = random();
    if (i % 4 == 0) bits = (bits & 0x87ffffffu) + 0x34000000u;
    if (i % 3 == 0) bits = (bits & ~0x1fffu) | (0x0fffu + static_cast<std::uint32_t>(i % 5));
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) continue;
    if (!same(round_to_half(value), round_to(DType::f16, value))) FAIL(value);
    if (!same(round_to_bfloat(value), round_to(DType::bf16, value))) FAIL(value);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      float stored = 0;
      store_element(dtype, value, &stored);
      if (!same(load_element(dtype, &stored), round_to(dtype, value))) FAIL(value);
    }
  }
}

TEST_CASE("many elements are stored and loaded as single ones are") {
  const std::vector<double> values = {0, 1, -2.75, 65519, 1e-7, 300, -1e30, INFINITY, 7};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i64, DType::boolean}) {
    const std::size_t size = bytes_of(dtype), count = values.size() - (is_float(dtype) ? 0 : 3);
    std::vector<std::byte> bytes(1 + count * size, std::byte{0x5a});
    std::vector<double> loaded(count);
    // Unaligned.
    store_elements(dtype, std::span(values).first(count), bytes.data() + 1);
    load_elements(dtype, bytes.data() + 1, loaded);
    CHECK(bytes[0] == std::byte{0x5a});
    for (std::size_t i = 0; i < count; ++i) {
      std::byte one[8];
      store_element(dtype, values[i], one);
      CHECK(std::memcmp(one, bytes.data() + 1 + i * size, size) == 0);
      CHECK(loaded[i] == load_element(dtype, one));
      CHECK(loaded[i] == round_to(dtype, values[i]));
    }
  }
}

TEST_CASE(
    "products of rows with a vector: each is the sum that it is alone, in double or in float") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const std::int64_t stride = 45, most = 9;
  std::vector<double> numbers(most * stride), vector(stride);
  for (double& x : numbers) x = static_cast<float>(uniform(random));
  for (double& x : vector) x = static_cast<float>(uniform(random));
  std::vector<float> singles(numbers.size()), single(vector.size());
  narrow(numbers.data(), static_cast<std::int64_t>(numbers.size()), singles.data());
  narrow(vector.data(), stride, single.data());
  for (std::int64_t rows = 0; rows <= most; ++rows)
    for (std::int64_t columns = 0; columns <= stride; ++columns) {
      std::vector<double> wide(2 * most, 5), narrowed(2 * most, 5);
      dots({numbers.data(), rows, columns, stride}, vector.data(), wide.data(), 2);
      dots({singles.data(), rows, columns, stride}, single.data(), narrowed.data(), 2);
      for (std::int64_t row = 0; row < most; ++row) {
        const auto at = static_cast<std::size_t>(2 * row);
        CHECK((wide[at + 1] == 5 && narrowed[at + 1] == 5));
        if (row >= rows) {
          CHECK((wide[at] == 5 && narrowed[at] == 5));
          continue;
        }
        long double truth = 0;
        float lanes[8] = {}, total = 0;
        for (std::int64_t i = 0; i < columns; ++i) {
          const auto of = static_cast<std::size_t>(row * stride + i),
                     to = static_cast<std::size_t>(i);
          truth += static_cast<long double>(numbers[of]) * vector[to];
          lanes[i % 8] += singles[of] * single[to];
        }
        for (const float lane : lanes) total += lane;
        double alone = 0;
        dots({numbers.data() + row * stride, 1, columns, stride}, vector.data(), &alone, 1);
        CHECK(wide[at] == alone);
        CHECK(std::fabs(wide[at] - static_cast<double>(truth)) < 1e-14);
        CHECK(narrowed[at] == total);
      }
    }
}
