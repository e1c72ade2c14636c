#include "capture/stored_formats.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "capture/tied_head.h"
#include "checkpoint/checkpoint.h"
#include "ir/weights.h"

namespace ac {

void check_formats(const std::filesystem::path& directory, const Graph& graph) {
  const auto in_format = [](const Node& node) {
    return node.op == Op::weight && !format_of(node).is_plain();
  };
  if (std::ranges::none_of(graph.nodes, in_format) || !has_weights(directory)) return;
  const Checkpoint checkpoint = Checkpoint::open_model(directory);
  for (const Node& node : graph.nodes) {
    if (node.op != Op::weight) continue;
    const WeightFormat& format = format_of(node);
    for (const Node& part : parts_of(node)) {
      std::vector<std::int64_t> shape;
      for (const Dim& dim : part.type.shape) shape.push_back(dim.constant());
      const TensorView view = checkpoint.require(part.text("key"), shape);
      const DType wanted = part.type.dtype;
      if (view.dtype != wanted && !(is_float(view.dtype) && is_float(wanted)))
        bad_input(
            "{}: tensor {} is stored as {}, and quantization_config of config.json says that it is "
            "{}{}",
            view.file, quote(view.name), torch_name(view.dtype), torch_name(wanted),
            format.is_plain() ? ", not quantized" : "");
    }
  }
}

}  // namespace ac
