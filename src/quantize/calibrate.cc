#include "quantize/calibrate.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "capture/model_weights.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "reference/executor.h"

namespace ac {
namespace {

// The inputs of all linears are in memory for so many tokens.
constexpr std::size_t kTokensOfStep = 64;

}  // namespace

Importance mean_squares(const Model& model, const std::vector<std::vector<std::int64_t>>& pieces,
                        const std::function<void(std::size_t)>& on_tokens) {
  StepGraph step = incrementalise(normalise(model.graph));
  std::map<NodeId, std::set<std::string>> keys;  // of the weights that an input meets
  for (const Node& node : step.graph.nodes)
    if (node.op == Op::linear)
      if (const Node& weight = step.graph[node.inputs[1]]; weight.op == Op::weight)
        keys[node.inputs[0]].insert(weight.text("key"));
  step.graph.outputs.clear();
  for (const auto& [input, of_weights] : keys)
    step.graph.outputs.push_back({std::to_string(input), input});

  ModelWeights weights(model);
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  StepExecutor executor(std::move(step), weights.lookup(), threads);
  std::map<std::string, std::vector<double>> sums;
  std::size_t tokens = 0;
  for (const std::vector<std::int64_t>& piece : pieces) {
    executor.reset();
    for (std::size_t at = 0; at < piece.size(); at += kTokensOfStep) {
      const std::size_t end = std::min(at + kTokensOfStep, piece.size());
      for (const auto& [name, value] : executor.step({piece.data() + at, piece.data() + end})) {
        std::vector<double>& sum = sums[name];
        sum.resize(static_cast<std::size_t>(value.shape.back()));
        for (std::size_t i = 0; i < value.data.size(); ++i)
          sum[i % sum.size()] += value.data[i] * value.data[i];
      }
      tokens += end - at;
      if (on_tokens) on_tokens(tokens);
    }
  }
  Importance importance;
  for (const auto& [input, of_weights] : keys)
    for (const std::string& key : of_weights) {
      const std::vector<double>& sum = sums[std::to_string(input)];
      std::vector<float>& means = importance[key];
      means.resize(sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        means[i] += static_cast<float>(sum[i] / static_cast<double>(tokens));
        if (!std::isfinite(means[i]))
          bad_input("{}: an input of {} is not finite on this text", model.graph.name, quote(key));
      }
    }
  return importance;
}

}  // namespace ac
