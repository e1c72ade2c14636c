#include "analyze/use_def.h"

#include <algorithm>

#include "ir/layout.h"

namespace ac {

bool is_compute(const Node& node) {
  const OpInfo& op = info(node.op);
  return op.max_inputs > 0 && op.memory != Memory::view;
}

UseDef::UseDef(const StepGraph& step)
    : step_(step),
      position_(step.graph.nodes.size(), -1),
      users_(step.graph.nodes.size()),
      is_output_(step.graph.nodes.size()),
      is_aliased_(step.graph.nodes.size()) {
  const Graph& graph = step.graph;
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (const Output& output : graph.outputs) visit(output.node);
  std::vector<NodeId> writers(step.states.size(), -1);
  for (NodeId id = 0; id < count; ++id)
    if (info(graph[id].op).memory == Memory::state)
      writers[static_cast<std::size_t>(graph[id].integer("state"))] = id;
  for (const NodeId writer : writers)
    if (writer >= 0) visit(writer);
  for (NodeId id = 0; id < count; ++id) visit(id);

  for (const NodeId id : order_)
    if (is_compute(graph[id]))
      for (const NodeId storage : operands(id))
        users_[static_cast<std::size_t>(storage)].push_back(id);
  for (const Output& output : graph.outputs) {
    const NodeId storage = storage_of(graph, output.node);
    (storage == output.node ? is_output_ : is_aliased_)[static_cast<std::size_t>(storage)] = true;
  }
}

// With a stack of its own: a hostile graph may be a chain of a million nodes.
void UseDef::visit(NodeId root) {
  constexpr int kOpen = -2;
  std::vector<NodeId> stack{root};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    int& position = position_[static_cast<std::size_t>(id)];
    if (position == -1) {
      position = kOpen;
      const std::vector<NodeId>& inputs = step_.graph[id].inputs;
      for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
        if (position_[static_cast<std::size_t>(*input)] == -1) stack.push_back(*input);
      continue;
    }
    stack.pop_back();
    if (position != kOpen) continue;
    position = static_cast<int>(order_.size());
    order_.push_back(id);
  }
}

std::vector<NodeId> UseDef::operands(NodeId id) const {
  std::vector<NodeId> storages;
  for (const NodeId input : graph()[id].inputs) {
    const NodeId storage = storage_of(graph(), input);
    if (std::find(storages.begin(), storages.end(), storage) == storages.end())
      storages.push_back(storage);
  }
  return storages;
}

}  // namespace ac
