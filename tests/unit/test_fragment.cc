// Fragments: a region by itself computes what it computes in its step.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "analyze/analyse.h"
#include "analyze/fragment.h"
#include "ir/rewrite.h"
#include "reference/executor.h"
#include "regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

// Weights that depend on key, row and column only, so that fewer rows are the first ones.
class Weights {
 public:
  WeightLookup lookup() {
    return [this](const Node& node) -> WeightView {
      const TensorType& type = node.type;
      const auto rows = type.shape[0].constant();
      const auto count = product(type.shape).constant();
      std::vector<std::byte>& bytes = kept_[node.text("key") + " " + std::to_string(rows)];
      const std::size_t size = bytes_of(type.dtype);
      bytes.resize(static_cast<std::size_t>(count) * size);
      const auto salt = static_cast<double>(std::hash<std::string>()(node.text("key")) % 1000);
      for (std::int64_t i = 0; i < count; ++i)
        store_element(type.dtype, 0.3 * std::sin(salt + 1.7 * static_cast<double>(i)),
                      bytes.data() + static_cast<std::size_t>(i) * size);
      std::vector<std::int64_t> shape;
      for (const Dim& dim : type.shape) shape.push_back(dim.constant());
      return {type.dtype, shape, bytes.data()};
    };
  }

 private:
  std::map<std::string, std::vector<std::byte>> kept_;
};

// The first columns of what is wider.
Value narrowed(const Value& value, std::int64_t columns) {
  if (value.shape.empty() || value.shape.back() == columns) return value;
  Value result{value.dtype, value.shape, {}};
  result.shape.back() = columns;
  const auto wide = static_cast<std::size_t>(value.shape.back());
  for (std::size_t at = 0; at < value.data.size(); at += wide)
    for (std::size_t i = 0; i < static_cast<std::size_t>(columns); ++i)
      result.data.push_back(value.data[at + i]);
  return result;
}

// Runs the step with all its values as outputs, and each fragment on those.
void check(const StepGraph& step, std::int64_t tokens, int& shrunk) {
  const Regions regions = analyse(step);
  StepGraph open = step;
  open.graph.outputs.clear();
  const auto name = [](NodeId id) { return "v" + std::to_string(id); };
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (step.graph.nodes[i].op != Op::input)
      open.graph.outputs.push_back({name(static_cast<NodeId>(i)), static_cast<NodeId>(i)});
  Weights weights;
  StepExecutor whole(open, weights.lookup());
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids.push_back(3 + 5 * i);
  Values values = whole.step(ids);
  Value id_value{DType::i64, {tokens}, {}};
  for (const std::int64_t id : ids) id_value.data.push_back(static_cast<double>(id));

  const auto run = [&](const StepGraph& fragment, const Region& region) {
    Values inputs;
    for (const Node& node : fragment.graph.nodes) {
      if (node.op != Op::input) continue;
      if (node.text("name") == "ids") inputs["ids"] = id_value;
      for (const Parameter& input : region.inputs) {
        if (input.name != node.text("name")) continue;
        const Dim& last = node.type.shape.empty() ? Dim(1) : node.type.shape.back();
        const Value& value = values.at(name(input.storage));
        inputs[input.name] = last.is_constant() ? narrowed(value, last.constant()) : value;
      }
    }
    StepExecutor executor(fragment, weights.lookup());
    const Values outputs = executor.step(tokens, inputs);
    for (const Parameter& output : region.outputs) {
      const Value& got = outputs.at(output.name);
      const Value wanted = got.shape.empty()
                               ? values.at(name(output.value))
                               : narrowed(values.at(name(output.value)), got.shape.back());
      CHECK(got.shape == wanted.shape);
      REQUIRE(got.data.size() == wanted.data.size());
      double worst = 0;
      for (std::size_t i = 0; i < got.data.size(); ++i)
        worst = std::max(worst, std::abs(got.data[i] - wanted.data[i]));
      CHECK(worst < 1e-12);
    }
  };
  for (const Region& region : regions.regions) {
    CAPTURE(region.signature);
    const StepGraph fragment = fragment_of(step, region);
    run(fragment, region);
    // Its own analysis finds the same region.
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < fragment.graph.nodes.size(); ++i)
      if (is_compute(fragment.graph.nodes[i])) nodes.push_back(static_cast<NodeId>(i));
    auto again = make_region(fragment, nodes);
    REQUIRE(std::holds_alternative<Region>(again));
    CHECK(std::get<Region>(again).signature == region.signature);
    const StepGraph fewer =
        with_fewer_rows(fragment, [](std::int64_t n) { return std::min<std::int64_t>(n, 7); });
    if (first_difference(fewer.graph, fragment.graph).empty()) continue;
    ++shrunk;
    run(fewer, region);
  }
}

}  // namespace

TEST_CASE("a region computes the same by itself, whole or with fewer rows") {
  const Dim T(Symbol::T);
  int shrunk = 0;
  check(one_layer_qwen3(), 1, shrunk);
  check(gemma_like(2, 1), 1, shrunk);
  check(gemma_like(2, T), 5, shrunk);
  check(gpt2_like(2, 1), 1, shrunk);
  check(gpt2_like(2, T), 5, shrunk);
  CHECK(shrunk > 20);
}
