#include "ir/step_graph.h"

#include "base/error.h"
#include "ir/verify.h"

namespace ac {

void verify(const StepGraph& step, const std::string& origin) {
  verify(step.graph, origin);
  std::vector<bool> used(step.states.size());
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    const auto id = static_cast<NodeId>(i);
    for (const Dim& dim : node.type.shape)
      if (dim.uses(Symbol::S))
        bad_input("{}: {}: a step has no S, but its shape is {}", origin, describe(step.graph, id),
                  to_string(node.type.shape));
    if (node.op == Op::attention)
      bad_input("{}: {}: a step appends to its state before it attends", origin,
                describe(step.graph, id));
    if (info(node.op).memory != Memory::state) continue;
    const std::int64_t index = node.integer("state");
    if (index < 0 || index >= static_cast<std::int64_t>(step.states.size()))
      bad_input("{}: {}: state {} does not exist", origin, describe(step.graph, id), index);
    const auto slot = static_cast<std::size_t>(index);
    if (used[slot])
      bad_input("{}: {}: state {} has two writers", origin, describe(step.graph, id), index);
    used[slot] = true;
    const TensorType &k = step.graph.type(node.inputs[1]), &v = step.graph.type(node.inputs[2]);
    const StateSpec fitting =
        kv_state(k.dtype, k.shape[1].is_constant() ? k.shape[1].constant() : 0,
                 k.shape[2].is_constant() ? k.shape[2].constant() : 0,
                 v.shape[2].is_constant() ? v.shape[2].constant() : 0, node.integer("window"),
                 step.states[slot].module, 0, storage_of(step.states[slot]));
    const bool fits = step.states[slot] == fitting;
    if (!fits) bad_input("{}: {}: does not fit state {}", origin, describe(step.graph, id), index);
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) bad_input("{}: nothing writes state {}", origin, i);
}

}  // namespace ac
