#include "capture/gguf_capture.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "base/print_stderr.h"
#include "base/text.h"
#include "capture/native.h"
#include "checkpoint/safetensors.h"
#include "gguf/gguf_model.h"
#include "ir/weights.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";

// Matrices in blocks stay packed, where a format has their parts.
void take_formats(const GgufModel& gguf, Quantization& quantization) {
  for (const auto& [name, weight] : gguf.weights()) {
    const Format& format = weight.tensor->type->format;
    if (format.is_plain() || weight.tensor->shape.size() != 2 || !name.ends_with(kWeight)) continue;
    quantization.of_module[name.substr(0, name.size() - kWeight.size())] = {format,
                                                                            FileLayout::gguf};
  }
}

const GgufWeight& find_weight(const GgufModel& gguf, const Node& node) {
  const std::string& key = node.text("key");
  if (!format_of(node).is_plain()) return *gguf.find_part(key)->weight;
  const auto found = gguf.weights().find(key);
  if (found == gguf.weights().end())
    bad_input("{}: there is no tensor for {}", gguf.file().name(), quote(key));
  return found->second;
}

// Each weight of the graph is a tensor of the file, of the same shape, and each tensor is used.
void check_weights(const GgufModel& gguf, const Graph& graph) {
  std::set<const GgufTensor*> used;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::weight) continue;
    std::vector<std::int64_t> shape;
    for (const Dim& dim : node.type.shape) shape.push_back(dim.constant());
    const GgufTensor& tensor = *find_weight(gguf, node).tensor;
    if (tensor.shape != shape)
      bad_input("{}: tensor {} has shape {}, but the model needs {}", gguf.file().name(),
                quote(tensor.name), show_shape(tensor.shape), show_shape(shape));
    used.insert(&tensor);
  }
  for (const auto& [name, weight] : gguf.weights())
    if (!used.contains(weight.tensor))
      bad_input("{}: tensor {} is in no place of the model", gguf.file().name(),
                quote(weight.tensor->name));
}

// Tensors in blocks by type, what they take in the file, and what where the model runs.
struct Held {
  std::map<std::string_view, std::size_t> tensors;
  double stored = 0, held = 0;

  void add(const GgufTensor& tensor, const Node& node) {
    ++tensors[tensor.type->name];
    stored += static_cast<double>(tensor.end - tensor.begin);
    held += static_cast<double>(stored_bytes(node));
  }
  void say(const std::string& file, const std::string& how) const {
    if (tensors.empty()) return;
    std::string kinds;
    for (const auto& [type, count] : tensors)
      kinds += fmt::format("{}{} of {}", kinds.empty() ? "" : ", ", count, type);
    print_stderr("{}: quantised tensors that {}: {}; {:.4g} MB in place of {:.4g}\n", file, how,
                 kinds, held * 1e-6, stored * 1e-6);
  }
};

void say_held(const GgufModel& gguf, const Graph& graph, DType dtype) {
  Held packed, widened;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::weight) continue;
    const GgufTensor& tensor = *find_weight(gguf, node).tensor;
    if (tensor.type->elements == 1) continue;
    (format_of(node).is_plain() ? widened : packed).add(tensor, node);
  }
  packed.say(gguf.file().name(), "stay packed");
  widened.say(gguf.file().name(),
              fmt::format("are held as {} (or as --dtype says)", torch_name(dtype)));
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
  take_formats(gguf, config.quantization);
  Model model;
  model.graph = build_decoder(config, file.stem().string());
  check_weights(gguf, model.graph);
  model.stores = {{"checkpoint", fs::canonical(file)}};
  model.architecture = config.architecture;
  if (!quiet) say_held(gguf, model.graph, config.dtype);
  return model;
}

}  // namespace ac
