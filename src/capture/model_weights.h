// The weights of a captured model, opened when first asked for.
#pragma once

#include <map>
#include <string>

#include "capture/model.h"
#include "checkpoint/checkpoint.h"
#include "ir/weights.h"

namespace ac {

class ModelWeights {
 public:
  explicit ModelWeights(const Model& model);

  // For executors; must not outlive this object.
  WeightLookup lookup();

 private:
  const Checkpoint& store(const std::string& name);

  std::map<std::string, std::filesystem::path> paths_;
  std::map<std::string, Checkpoint> open_;
};

}  // namespace ac
