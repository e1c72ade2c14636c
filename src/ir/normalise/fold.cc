#include "ir/normalise/fold.h"

#include "ir/normalise/numbers.h"

namespace ac {
namespace {

constexpr std::int64_t kMaxElements = 1 << 16;

std::vector<std::int64_t> sizes(const TensorType& type) {
  std::vector<std::int64_t> result;
  for (const Dim& dim : type.shape) result.push_back(dim.constant());
  return result;
}

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Reads a tensor of `shape` from `data` through arbitrary strides.
std::vector<double> gather(const std::vector<double>& data, const std::vector<std::int64_t>& shape,
                           const std::vector<std::int64_t>& strides, std::int64_t offset) {
  std::vector<double> result;
  std::vector<std::int64_t> index(shape.size(), 0);
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  result.reserve(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t at = offset;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) at += index[axis] * strides[axis];
    result.push_back(data[static_cast<std::size_t>(at)]);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
  return result;
}

std::vector<double> broadcast_to(const Graph& graph, NodeId id,
                                 const std::vector<std::int64_t>& shape) {
  const std::vector<std::int64_t> from = sizes(graph.type(id));
  const std::vector<std::int64_t> own = row_major_strides(from);
  std::vector<std::int64_t> strides(shape.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i] != 1) strides[shape.size() - from.size() + i] = own[i];
  return gather(graph[id].data(), shape, strides, 0);
}

std::vector<double> concat(const Graph& graph, const Node& node) {
  const auto axis = static_cast<std::size_t>(node.integer("axis"));
  std::int64_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= node.type.shape[i].constant();
  std::vector<double> result;
  for (std::int64_t n = 0; n < outer; ++n)
    for (const NodeId input : node.inputs) {
      const std::vector<double>& data = graph[input].data();
      const auto part = static_cast<std::int64_t>(data.size()) / outer;
      result.insert(result.end(), data.begin() + n * part, data.begin() + (n + 1) * part);
    }
  return result;
}

}  // namespace

std::optional<std::vector<double>> fold_constant(const Graph& graph, const Node& node) {
  if (node.inputs.empty()) return std::nullopt;
  for (const NodeId input : node.inputs)
    if (graph[input].op != Op::constant) return std::nullopt;
  const Dim count = product(node.type.shape);
  if (!count.is_constant() || count.constant() < 1 || count.constant() > kMaxElements)
    return std::nullopt;

  const std::vector<std::int64_t> shape = sizes(node.type);
  const Node& input = graph[node.inputs[0]];
  const std::vector<std::int64_t> from = sizes(input.type);
  std::vector<std::int64_t> strides = row_major_strides(from);
  if (node.op == Op::reshape) return input.data();
  if (node.op == Op::concat) return concat(graph, node);
  if (node.op == Op::permute) {
    std::vector<std::int64_t> moved;
    for (const std::int64_t axis : node.integers("axes"))
      moved.push_back(strides[static_cast<std::size_t>(axis)]);
    return gather(input.data(), shape, moved, 0);
  }
  if (node.op == Op::slice) {
    const auto axis = static_cast<std::size_t>(node.integer("axis"));
    if (!node.dim("start").is_constant()) return std::nullopt;
    const std::int64_t offset = node.dim("start").constant() * strides[axis];
    strides[axis] *= node.integer("step");
    return gather(input.data(), shape, strides, offset);
  }
  if (info(node.op).over != Over::each) return std::nullopt;
  const bool is_cast = node.op == Op::cast;
  std::vector<double> result = broadcast_to(graph, node.inputs[0], shape), other;
  if (node.op == Op::where) {
    const std::vector<double> yes = broadcast_to(graph, node.inputs[1], shape);
    const std::vector<double> no = broadcast_to(graph, node.inputs[2], shape);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = result[i] != 0 ? yes[i] : no[i];
    return result;
  }
  if (node.inputs.size() == 2) other = broadcast_to(graph, node.inputs[1], shape);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto value = is_cast         ? convert(node.type.dtype, result[i])
                       : other.empty() ? compute(node.op, input.type.dtype, result[i])
                                       : compute(node.op, input.type.dtype, result[i], other[i]);
    if (!value) return std::nullopt;
    result[i] = *value;
  }
  return result;
}

}  // namespace ac
