// Who reads what in a step, seen through views, and one order of its nodes that does not depend on
// how they were numbered. Everything the analyzer decides follows this order.
#pragma once

#include <vector>

#include "ir/step_graph.h"

namespace ac {

// Whether a node does work of its own: neither a leaf nor a view.
bool is_compute(const Node& node);

// Keeps a reference to the step.
class UseDef {
 public:
  explicit UseDef(const StepGraph& step);

  const StepGraph& step() const { return step_; }
  const Graph& graph() const { return step_.graph; }

  // All nodes: depth first from the outputs, then from the states, then whatever is left.
  const std::vector<NodeId>& order() const { return order_; }
  int position(NodeId id) const { return position_[static_cast<std::size_t>(id)]; }
  // The compute nodes that read a value or a view of it, each once, in order.
  const std::vector<NodeId>& users(NodeId id) const { return users_[static_cast<std::size_t>(id)]; }
  // The storages that a compute node reads, each once, in order of its operands.
  std::vector<NodeId> operands(NodeId id) const;
  bool is_output(NodeId id) const { return is_output_[static_cast<std::size_t>(id)]; }
  // A view of the value is an output of the step: it must stay whole in memory.
  bool is_aliased(NodeId id) const { return is_aliased_[static_cast<std::size_t>(id)]; }

 private:
  void visit(NodeId root);

  const StepGraph& step_;
  std::vector<NodeId> order_;
  std::vector<int> position_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_, is_aliased_;
};

}  // namespace ac
