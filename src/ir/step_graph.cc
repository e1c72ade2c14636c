#include "ir/step_graph.h"

#include "base/error.h"
#include "ir/verify.h"

namespace ac {

Op in_a_step(Op op) { return op == Op::attention ? Op::append_attend : op; }

StateSpec state_of(const Graph& graph, const Node& node, KvStorage storage) {
  const auto size = [&](std::size_t input, std::size_t axis) {
    const Dim& dim = graph.type(node.inputs[input]).shape[axis];
    return dim.is_constant() ? dim.constant() : 0;
  };
  switch (in_a_step(node.op)) {
    case Op::append_attend:
      return kv_state(node.type.dtype, size(1, 1), size(1, 2), size(2, 2), node.integer("window"),
                      node.module, 0, storage);
    default:
      AC_UNREACHABLE();
  }
}

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
    if (const Op op = in_a_step(node.op); op != node.op)
      bad_input("{}: {}: a step has {} in its place", origin, describe(step.graph, id),
                info(op).name);
    if (info(node.op).memory != Memory::state) continue;
    const std::int64_t index = node.integer("state");
    if (index < 0 || index >= static_cast<std::int64_t>(step.states.size()))
      bad_input("{}: {}: state {} does not exist", origin, describe(step.graph, id), index);
    const auto slot = static_cast<std::size_t>(index);
    if (used[slot])
      bad_input("{}: {}: state {} has two writers", origin, describe(step.graph, id), index);
    used[slot] = true;
    StateSpec fitting = state_of(step.graph, node, storage_of(step.states[slot]));
    fitting.module = step.states[slot].module;
    const bool fits = step.states[slot] == fitting;
    if (!fits) bad_input("{}: {}: does not fit state {}", origin, describe(step.graph, id), index);
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) bad_input("{}: nothing writes state {}", origin, i);
}

}  // namespace ac
