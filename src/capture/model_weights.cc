#include "capture/model_weights.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/print_stderr.h"
#include "checkpoint/weight_part.h"

namespace ac {

ModelWeights::ModelWeights(const Model& model) : paths_(model.stores) {}

const Checkpoint& ModelWeights::store(const std::string& name) {
  if (const auto found = open_.find(name); found != open_.end()) return found->second;
  const auto path = paths_.find(name);
  if (path == paths_.end())
    bad_input("the graph names a weight store \"{}\" that does not exist", name);
  Checkpoint checkpoint =
      std::filesystem::is_directory(path->second)
          ? Checkpoint::open_model(path->second)
          : Checkpoint::open_file(path->second.parent_path(), path->second.filename().string());
  for (const std::string& warning : checkpoint.warnings()) print_stderr("warning: {}\n", warning);
  return open_.emplace(name, std::move(checkpoint)).first->second;
}

WeightLookup ModelWeights::lookup() {
  return [this](const Node& weight) {
    std::vector<std::int64_t> shape;
    for (const Dim& dim : weight.type.shape) shape.push_back(dim.constant());
    const Checkpoint& checkpoint = store(weight.text("store"));
    const std::string& key = weight.text("key");
    if (const auto part = in_file(weight)) {
      const TensorView found = require_part(checkpoint, key, shape, *part);
      return WeightView{found.dtype, found.shape, found.bytes.data(), nullptr, found.made};
    }
    const TensorView view = checkpoint.require(key, shape);
    return WeightView{view.dtype, view.shape, view.bytes.data(), nullptr, view.made};
  };
}

}  // namespace ac
