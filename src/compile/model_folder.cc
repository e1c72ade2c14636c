#include "compile/model_folder.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layer_of_key.h"
#include "gguf/gguf_model.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> positions_of(const Json& config) {
  for (const char* name : {"max_position_embeddings", "n_positions"})
    if (config.is_object() && config.contains(name) && config[name].is_number_integer() &&
        config[name].get<std::int64_t>() > 0)
      return config[name].get<std::int64_t>();
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> known_positions(const Model& model) {
  for (const auto& [name, path] : model.stores) {
    std::error_code error;
    if (is_gguf(path)) return positions_of(GgufModel(path).config());
    if (!fs::is_regular_file(path / "config.json", error)) continue;
    const Json config = read_json(path / "config.json");
    if (const auto positions = positions_of(config)) return positions;
    if (config.is_object() && config.contains("text_config"))
      return positions_of(config["text_config"]);
  }
  return std::nullopt;
}

std::string unused_layers(const Model& model) {
  for (const auto& [store, path] : model.stores) {
    std::error_code error;
    if (!fs::is_directory(path, error)) continue;
    std::set<int> used, stored;
    for (const Node& node : model.graph.nodes)
      if (node.op == Op::weight && node.text("store") == store)
        if (const auto layer = layer_of_key(node.text("key"))) used.insert(*layer);
    try {
      for (const std::string& key : Checkpoint::open_model(path).keys())
        if (const auto layer = layer_of_key(key)) stored.insert(*layer);
    } catch (const Error&) {
      continue;  // whoever runs the model needs it, and says what is wrong
    }
    if (!used.empty() && stored.size() > used.size())
      return fmt::format("{}: the checkpoint has {} layers, and the model uses {} of them",
                         path.string(), stored.size(), used.size());
  }
  return "";
}

}  // namespace ac
