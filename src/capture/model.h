// What capture produces, whichever front end made it: a graph, and where its weights are. Weights
// are not opened before a model runs.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "ir/graph.h"
#include "ir/verify.h"

namespace ac {

// Whose attention scores were measured when the capture was compared with the live module.
enum class ScoresMeasured : std::uint8_t { none, of_a_small_model, of_the_model };

struct Model {
  Graph graph;  // the plain forward over S tokens: input "ids" i64[S] -> output "logits" [S, vocab]
  // For each `store` that the graph's weights name: a checkpoint folder, or one safetensors file.
  std::map<std::string, std::filesystem::path> stores;
  std::string architecture;
  std::string checked;  // how the capture was compared with the live module, in words
  ScoresMeasured scores = ScoresMeasured::none;
  // Whatever must last as long as the model does: a temporary folder that a store is in.
  std::shared_ptr<const void> files;
};

inline void verify(const Model& model, const std::string& origin) { verify(model.graph, origin); }

}  // namespace ac
