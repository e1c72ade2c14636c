#include "ir/work.h"

#include <algorithm>

#include "base/error.h"
#include "ir/layout.h"
#include "ir/weights.h"

namespace ac {
namespace {

Dim element_bytes(DType dtype) { return static_cast<std::int64_t>(bytes_of(dtype)); }

// Twice the number of (query, key) pairs of causal attention: query i of T sees P + i + 1 keys.
Dim twice_the_pairs(const Node& node, const Dim& tokens) {
  const Dim cached = node.op == Op::append_attend ? Dim(Symbol::P) : Dim(0);
  return tokens * (cached * 2 + tokens + 1);
}

}  // namespace

double Amount::intensity() const {
  return bytes() == 0 ? 0.0 : static_cast<double>(flops) / static_cast<double>(bytes());
}

Amount& Amount::operator+=(const Amount& other) {
  flops += other.flops;
  weight_bytes += other.weight_bytes;
  activation_bytes += other.activation_bytes;
  state_bytes += other.state_bytes;
  return *this;
}

Amount evaluate(const Work& work, const Bindings& at) {
  Bindings seen = at;
  if (work.window > 0) seen.P = std::min(seen.P, work.window - 1);
  return {work.flops.evaluate(seen), work.weight_bytes.evaluate(seen),
          work.activation_bytes.evaluate(seen), work.state_bytes.evaluate(seen)};
}

Dim flops_of(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const OpInfo& op = info(node.op);
  if (op.max_inputs == 0) return 0;
  const auto in = [&](std::size_t i) -> const Shape& { return graph.type(node.inputs[i]).shape; };
  const Dim results = product(node.type.shape);
  switch (op.rule) {
    case ShapeRule::matmul:
    case ShapeRule::linear:
      return results * in(0).back() * op.flops + (node.inputs.size() == 3 ? results : Dim(0));
    case ShapeRule::rope: {  // a pair: four products, two sums
      const Shape& x = in(0);
      return product(Shape(x.begin(), x.end() - 1)) * in(2)[0] * op.flops;
    }
    case ShapeRule::attention:  // two products a feature and pair, and 4 for the softmax of a pair
      return in(0)[1] * (in(0)[2] + in(2)[2] + 2) * twice_the_pairs(node, in(0)[0]);
    default:
      return (op.reduces() ? product(in(0)) : results) * op.flops;
  }
}

Dim operand_bytes(const Graph& graph, NodeId id, std::size_t operand) {
  const Node& node = graph[id];
  const NodeId value = node.inputs[operand];
  const OpInfo& op = info(node.op);
  if (op.memory == Memory::view || graph[storage_of(graph, value)].op == Op::positions) return 0;
  const TensorType& type = graph.type(value);
  if (node.op == Op::embedding && operand == 0)
    return product(node.type.shape) * element_bytes(type.dtype);
  if (const Node& weight = graph[value]; weight.op == Op::weight && !format_of(weight).is_plain())
    return stored_bytes(weight);
  return elements_touched(graph, value) * element_bytes(type.dtype);
}

Dim result_bytes(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const OpInfo& op = info(node.op);
  if (op.max_inputs == 0 || op.memory == Memory::view) return 0;
  return product(node.type.shape) * element_bytes(node.type.dtype);
}

// Reads what the tokens before left, writes that of the new ones.
Dim state_bytes_of(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  if (info(node.op).memory != Memory::state) return 0;
  return (Dim(Symbol::P) + node.type.shape[0]) * bytes_of_token(state_of(graph, node));
}

Dim state_bytes_of(const StepGraph& step, NodeId id) {
  const Node& node = step.graph[id];
  if (info(node.op).memory != Memory::state) return 0;
  const StateSpec& state = step.states.at(static_cast<std::size_t>(node.integer("state")));
  return (Dim(Symbol::P) + node.type.shape[0]) * bytes_of_token(state);
}

Work work_of(const StepGraph& step, NodeId id) {
  Work work = work_of(step.graph, id);
  work.state_bytes = state_bytes_of(step, id);
  return work;
}

Work work_of(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  Work work{flops_of(graph, id), 0, result_bytes(graph, id), state_bytes_of(graph, id), 0};
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const bool repeated = std::find(node.inputs.begin(), node.inputs.begin() + i, node.inputs[i]) !=
                          node.inputs.begin() + i;
    if (repeated) continue;
    const bool is_weight = graph[storage_of(graph, node.inputs[i])].op == Op::weight;
    Dim& bytes = is_weight ? work.weight_bytes : work.activation_bytes;
    bytes = bytes + operand_bytes(graph, id, i);
  }
  if (info(node.op).memory == Memory::state) work.window = node.integer("window");
  return work;
}

}  // namespace ac
