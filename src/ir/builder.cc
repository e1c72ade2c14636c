#include "ir/builder.h"

#include <numeric>

namespace ac {

NodeId Builder::add(Op op, std::vector<NodeId> inputs, Attrs attrs) {
  return graph_.add(op, std::move(inputs), std::move(attrs), module_, source_);
}

NodeId Builder::add_leaf(Op op, Attrs attrs, TensorType type) {
  return graph_.add_leaf(op, std::move(attrs), std::move(type), module_, source_);
}

NodeId Builder::input(std::string name, TensorType type) {
  return add_leaf(Op::input, {{"name", std::move(name)}}, std::move(type));
}

NodeId Builder::weight(std::string key, TensorType type, std::string store) {
  return add_leaf(Op::weight, {{"key", std::move(key)}, {"store", std::move(store)}},
                  std::move(type));
}

NodeId Builder::weight(const std::string& module, TensorType type, const Format& format,
                       FileLayout layout, std::string store) {
  if (format.is_plain()) return weight(module + ".weight", std::move(type), std::move(store));
  const WeightFormat traits = ac::traits(format);
  const WeightLayout& stored = layout_traits(layout);
  Attrs attrs{
      {"store", std::move(store)}, {"format", traits.name}, {"layout", std::string(stored.name)}};
  for (const WeightPart& part : traits.parts)
    attrs[std::string(key_of(part.kind))] = module + std::string(stored.part(part.kind).suffix);
  return add_leaf(Op::weight, std::move(attrs), std::move(type));
}

NodeId Builder::constant(DType dtype, std::vector<std::int64_t> shape, std::vector<double> data) {
  return add_leaf(Op::constant,
                  {{"data", std::make_shared<const std::vector<double>>(std::move(data))}},
                  {dtype, Shape(shape.begin(), shape.end())});
}

NodeId Builder::scalar(DType dtype, double value) { return constant(dtype, {}, {value}); }

NodeId Builder::positions(Dim count) {
  return add_leaf(Op::positions, {}, {DType::i64, {std::move(count)}});
}

NodeId Builder::cast(NodeId x, DType dtype) {
  return type(x).dtype == dtype ? x : add(Op::cast, {x}, {{"dtype", dtype}});
}

NodeId Builder::gelu(NodeId x, bool tanh) { return add(Op::gelu, {x}, {{"tanh", tanh}}); }

NodeId Builder::reduce(Op op, NodeId x, std::vector<std::int64_t> axes, bool keep) {
  return add(op, {x}, {{"axes", std::move(axes)}, {"keep", keep}});
}

NodeId Builder::softmax(NodeId x, std::int64_t axis) {
  return add(Op::softmax, {x}, {{"axis", axis}});
}

NodeId Builder::rms_norm(NodeId x, NodeId weight, double eps, double weight_offset) {
  return add(Op::rms_norm, {x, weight}, {{"eps", eps}, {"weight_offset", weight_offset}});
}

NodeId Builder::layer_norm(std::vector<NodeId> x_weight_bias, double eps) {
  return add(Op::layer_norm, std::move(x_weight_bias), {{"eps", eps}});
}

NodeId Builder::rope(NodeId x, NodeId positions, NodeId inv_freq, double scale, bool interleaved) {
  return add(Op::rope, {x, positions, inv_freq}, {{"scale", scale}, {"interleaved", interleaved}});
}

NodeId Builder::attention(NodeId q, NodeId k, NodeId v, double scale, std::int64_t window,
                          double softcap) {
  return add(Op::attention, {q, k, v},
             {{"scale", scale}, {"window", window}, {"softcap", softcap}});
}

NodeId Builder::append_attend(NodeId q, NodeId k, NodeId v, std::int64_t state, double scale,
                              std::int64_t window, double softcap) {
  return add(Op::append_attend, {q, k, v},
             {{"state", state}, {"scale", scale}, {"window", window}, {"softcap", softcap}});
}

NodeId Builder::reshape(NodeId x, Shape shape) {
  return type(x).shape == shape ? x : add(Op::reshape, {x}, {{"shape", std::move(shape)}});
}

NodeId Builder::permute(NodeId x, std::vector<std::int64_t> axes) {
  std::vector<std::int64_t> unchanged(axes.size());
  std::iota(unchanged.begin(), unchanged.end(), 0);
  return axes == unchanged ? x : add(Op::permute, {x}, {{"axes", std::move(axes)}});
}

NodeId Builder::expand(NodeId x, Shape shape) {
  return type(x).shape == shape ? x : add(Op::expand, {x}, {{"shape", std::move(shape)}});
}

NodeId Builder::slice(NodeId x, std::int64_t axis, Dim start, Dim end, std::int64_t step) {
  return add(
      Op::slice, {x},
      {{"axis", axis}, {"start", std::move(start)}, {"end", std::move(end)}, {"step", step}});
}

NodeId Builder::concat(std::vector<NodeId> parts, std::int64_t axis) {
  return add(Op::concat, std::move(parts), {{"axis", axis}});
}

}  // namespace ac
