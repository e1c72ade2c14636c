#include "ir/work.h"

#include <algorithm>

#include "base/error.h"
#include "ir/layout.h"

namespace ac {
namespace {

constexpr std::int64_t kSpecial = 4;

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

// No default: the compiler warns about an op that is missing here.
Dim flops_of(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const auto in = [&](std::size_t i) -> const Shape& { return graph.type(node.inputs[i]).shape; };
  const Dim results = product(node.type.shape);
  switch (node.op) {
    case Op::input:
    case Op::weight:
    case Op::constant:
    case Op::positions:
    case Op::reshape:
    case Op::permute:
    case Op::expand:
    case Op::slice:
    case Op::concat:
    case Op::embedding:
      return 0;
    case Op::cast:
    case Op::neg:
    case Op::abs:
    case Op::relu:
    case Op::logical_not:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::maximum:
    case Op::minimum:
    case Op::equal:
    case Op::not_equal:
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::where:
    case Op::tril:
    case Op::triu:
      return results;
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::reciprocal:
    case Op::sin:
    case Op::cos:
    case Op::tanh:
    case Op::erf:
    case Op::div:
    case Op::pow:
      return results * kSpecial;
    case Op::sigmoid:
    case Op::silu:
    case Op::gelu:
      return results * (2 * kSpecial);
    case Op::sum:
    case Op::mean:
    case Op::amax:
      return product(in(0));
    case Op::softmax:  // maximum, subtract, exp, sum, scale
      return results * (4 + kSpecial);
    case Op::rms_norm:  // square, sum, scale, weight
      return results * 4;
    case Op::layer_norm:  // sum, subtract, square, sum, scale, weight, bias
      return results * 7;
    case Op::matmul:
    case Op::linear:
      return results * in(0).back() * 2 + (node.inputs.size() == 3 ? results : Dim(0));
    case Op::rope: {  // a pair: four products, two sums
      const Shape& x = in(0);
      return product(Shape(x.begin(), x.end() - 1)) * in(2)[0] * 6;
    }
    case Op::attention:
    case Op::append_attend:  // two products a feature and pair, and 4 for the softmax of a pair
      return in(0)[1] * (in(0)[2] + in(2)[2] + 2) * twice_the_pairs(node, in(0)[0]);
  }
  AC_UNREACHABLE();
}

Dim operand_bytes(const Graph& graph, NodeId id, std::size_t operand) {
  const Node& node = graph[id];
  const NodeId value = node.inputs[operand];
  const OpInfo& op = info(node.op);
  if (op.memory == Memory::view || graph[storage_of(graph, value)].op == Op::positions) return 0;
  const TensorType& type = graph.type(value);
  if (node.op == Op::embedding && operand == 0)
    return product(node.type.shape) * element_bytes(type.dtype);
  return elements_touched(graph, value) * element_bytes(type.dtype);
}

Dim result_bytes(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const OpInfo& op = info(node.op);
  if (op.max_inputs == 0 || op.memory == Memory::view) return 0;
  return product(node.type.shape) * element_bytes(node.type.dtype);
}

// Reads the keys and values of the tokens before, writes those of the new ones.
Dim state_bytes_of(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  if (info(node.op).memory != Memory::state) return 0;
  const TensorType &k = graph.type(node.inputs[1]), &v = graph.type(node.inputs[2]);
  const Dim a_token = k.shape[1] * (k.shape[2] + v.shape[2]) * element_bytes(k.dtype);
  return (Dim(Symbol::P) + k.shape[0]) * a_token;
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
