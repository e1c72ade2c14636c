#include "capture/gguf_capture.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "capture/native.h"
#include "checkpoint/safetensors.h"
#include "gguf/gguf_model.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

// Each weight of the graph is a tensor of the file, of the same shape, and each tensor is used.
void check_weights(const GgufModel& gguf, const Graph& graph) {
  std::set<std::string, std::less<>> used;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::weight) continue;
    const std::string& name = node.text("key");
    std::vector<std::int64_t> shape;
    for (const Dim& dim : node.type.shape) shape.push_back(dim.constant());
    const auto found = gguf.weights().find(name);
    if (found == gguf.weights().end())
      bad_input("{}: there is no tensor for {}", gguf.file().name(), quote(name));
    const GgufTensor& tensor = *found->second.tensor;
    if (tensor.shape != shape)
      bad_input("{}: tensor {} has shape {}, but the model needs {}", gguf.file().name(),
                quote(tensor.name), show_shape(tensor.shape), show_shape(shape));
    used.insert(name);
  }
  for (const auto& [name, weight] : gguf.weights())
    if (!used.contains(name))
      bad_input("{}: tensor {} is in no place of the model", gguf.file().name(),
                quote(weight.tensor->name));
}

void say_unpacked(const GgufModel& gguf, DType dtype) {
  std::map<std::string_view, std::size_t> tensors;
  double stored = 0, held = 0;
  for (const auto& [name, weight] : gguf.weights()) {
    const BlockType& type = *weight.tensor->type;
    if (type.elements == 1) continue;
    ++tensors[type.name];
    const auto bytes = static_cast<double>(weight.tensor->end - weight.tensor->begin);
    stored += bytes;
    held += bytes / static_cast<double>(type.bytes) *
            static_cast<double>(type.elements * bytes_of(dtype));
  }
  if (tensors.empty()) return;
  std::string kinds;
  for (const auto& [type, count] : tensors)
    kinds += fmt::format("{}{} of {}", kinds.empty() ? "" : ", ", count, type);
  fmt::print(stderr,
             "{}: quantised tensors are held as {} (or as --dtype says) when the model runs: {}; "
             "{:.4g} MB in place of "
             "{:.4g}\n",
             gguf.file().name(), torch_name(dtype), kinds, held * 1e-6, stored * 1e-6);
}

}  // namespace

Model capture_gguf(const fs::path& file, bool quiet) {
  if (!fs::exists(file)) bad_input("{}: there is no such file", file.string());
  const GgufModel gguf(file);
  DecoderConfig config = parse_config(gguf.config(), file.string());
  if (std::vector<float> divisors = gguf.rope_divisors(); !divisors.empty()) {
    const auto pairs = static_cast<std::size_t>(config.layers[0].attention.head_dim / 2);
    if (divisors.size() != pairs)
      bad_input("{}: tensor \"rope_freqs.weight\" has {} elements, and heads have {} pairs",
                file.string(), divisors.size(), pairs);
    config.ropes[0].divisors = std::move(divisors);
  }
  Model model;
  model.graph = build_decoder(config, file.stem().string());
  check_weights(gguf, model.graph);
  model.stores = {{"checkpoint", fs::canonical(file)}};
  model.architecture = config.architecture;
  if (!quiet) say_unpacked(gguf, config.dtype);
  return model;
}

}  // namespace ac
