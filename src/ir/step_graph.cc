#include "ir/step_graph.h"

#include "base/error.h"
#include "ir/verify.h"

namespace ac {

void verify(const StepGraph& step, const std::string& origin) {
  verify(step.graph, origin);
  std::vector<bool> used(step.caches.size());
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    const auto id = static_cast<NodeId>(i);
    for (const Dim& dim : node.type.shape)
      if (dim.uses(Symbol::S))
        bad_input("{}: {}: a step has no S, but its shape is {}", origin, describe(step.graph, id),
                  to_string(node.type.shape));
    if (node.op == Op::attention)
      bad_input("{}: {}: a step appends to its cache before it attends", origin,
                describe(step.graph, id));
    if (node.op != Op::append_attend) continue;
    const std::int64_t index = node.integer("cache");
    if (index < 0 || index >= static_cast<std::int64_t>(step.caches.size()))
      bad_input("{}: {}: cache {} does not exist", origin, describe(step.graph, id), index);
    const auto slot = static_cast<std::size_t>(index);
    if (used[slot])
      bad_input("{}: {}: cache {} has two writers", origin, describe(step.graph, id), index);
    used[slot] = true;
    const Cache& cache = step.caches[slot];
    const TensorType &k = step.graph.type(node.inputs[1]), &v = step.graph.type(node.inputs[2]);
    const bool fits = k.dtype == cache.dtype && k.shape[1] == Dim(cache.heads) &&
                      k.shape[2] == Dim(cache.key_size) && v.shape[2] == Dim(cache.value_size) &&
                      node.integer("window") == cache.window;
    if (!fits) bad_input("{}: {}: does not fit cache {}", origin, describe(step.graph, id), index);
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) bad_input("{}: nothing writes cache {}", origin, i);
}

}  // namespace ac
