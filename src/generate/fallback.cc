#include "generate/fallback.h"

#include <tuple>
#include <utility>

#include "base/error.h"
#include "generate/counts.h"
#include "generate/fallback_call.h"
#include "ir/layout.h"
#include "ir/weights.h"

namespace ac {
namespace {

using kernels::Element;
using kernels::FallbackKind;

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Element::f32;
    case DType::f16:
      return Element::f16;
    case DType::bf16:
      return Element::bf16;
    case DType::i32:
      return Element::i32;
    case DType::i64:
      return Element::i64;
    case DType::boolean:
      return Element::boolean;
    case DType::f8e4m3:
      return Element::e4m3;
    case DType::f8e8m0:
      return Element::e8m0;
    case DType::u8:
      return Element::u8;
    case DType::i8:
      return Element::i8;
  }
  AC_UNREACHABLE();
}

// The kind that has the op's own name.
FallbackKind kind_of(Op op) {
  for (int i = 0;; ++i) {
    const auto kind = static_cast<FallbackKind>(i);
    if (kernels::name_of(kind) == info(op).name) return kind;
    AC_ASSERT(kind != FallbackKind::append);  // the last one
  }
}

class FallbackWriter {
 public:
  FallbackWriter(const StepGraph& step, const Setting& setting)
      : step_(step), graph_(step.graph), setting_(setting) {}

  void add(NodeId id) {
    id_ = id;
    const Node& node = graph_[id];
    if (info(node.op).over == Over::each) return add_elementwise();
    switch (info(node.op).rule) {
      case ShapeRule::triangle:
        return add_triangle();
      case ShapeRule::concat:
        return add_concat();
      case ShapeRule::reduce:
        return add_reduction();
      case ShapeRule::softmax:
        return add_softmax();
      case ShapeRule::norm:
        return add_norm();
      case ShapeRule::matmul:
        return add_matmul();
      case ShapeRule::linear:
        return add_linear();
      case ShapeRule::embedding:
        return add_embedding();
      case ShapeRule::rope:
        return add_rope();
      case ShapeRule::attention:
        return add_attention();
      default:  // leaves and views are not launched
        break;
    }
    AC_UNREACHABLE();
  }

  // Of the one row of logits.
  void add_argmax(NodeId logits) {
    id_ = logits;
    FallbackCall c = call(FallbackKind::argmax);
    FallbackTensor x = view(logits);
    x.strides = {x.strides.back()};
    c.in = {std::move(x)};
    c.out.element = Element::i32;
    c.out.buffer = generated_.refer({.role = Buffer::Role::token});
    c.outer.clear();
    c.inner = {graph_.type(logits).shape.back()};
    launch(std::move(c));
  }

  Generated finish() {
    if (workspace_ >= 0)
      generated_.buffers[static_cast<std::size_t>(workspace_)].bytes = workspace_bytes_;
    return std::move(generated_);
  }

 private:
  const Node& node() const { return graph_[id_]; }
  std::size_t rank() const { return node().type.shape.size(); }

  FallbackCall call(FallbackKind kind) const {
    return {.kind = kind,
            .in = {},
            .out = {},
            .outer = node().type.shape,
            .inner = {},
            .what = describe(graph_, id_)};
  }
  void launch(FallbackCall call) { add_fallback(generated_, std::move(call), setting_); }

  // ---- tensors, with a stride for each axis of their own
  FallbackTensor stored(NodeId storage) {
    const bool positions = graph_[storage].op == Op::positions;
    FallbackTensor tensor;
    tensor.element = positions ? Element::positions : element_of(graph_.type(storage).dtype);
    tensor.buffer = positions ? position() : generated_.refer(buffer_of(step_, storage));
    tensor.strides = layout_of(graph_, storage, storage).strides;
    return tensor;
  }
  FallbackTensor result() { return stored(id_); }
  int position() { return generated_.refer({.role = Buffer::Role::position}); }

  FallbackTensor operand(std::size_t number) { return view(node().inputs[number]); }
  FallbackTensor view(NodeId value) {
    NodeId base = storage_of(graph_, value);
    FallbackTensor tensor = stored(base);
    for (;;) {
      const Layout layout = layout_of(graph_, value, base);
      if (layout.placement != Placement::opaque) {
        tensor.first = layout.offset;
        tensor.strides = layout.strides;
        return tensor;
      }
      const NodeId last = last_strided(value, base);
      AC_ASSERT(last != base);  // a tensor without gaps can be viewed in any way
      tensor = copy(tensor, last, base);
      base = last;
    }
  }
  // The last of the views from `base` towards `value` that strides can say.
  NodeId last_strided(NodeId value, NodeId base) const {
    NodeId last = graph_[value].inputs[0];
    while (layout_of(graph_, last, base).placement == Placement::opaque)
      last = graph_[last].inputs[0];
    return last;
  }
  // Copies the view `value` of `base`, which is `tensor`.
  FallbackTensor copy(FallbackTensor tensor, NodeId value, NodeId base) {
    const Layout layout = layout_of(graph_, value, base);
    tensor.first = layout.offset, tensor.strides = layout.strides;
    FallbackTensor dense;
    dense.element = element_of(graph_.type(value).dtype);
    dense.strides = layout_of(graph_, value, value).strides;
    const Shape& shape = graph_.type(value).shape;
    const Dim bytes =
        product(shape) * Dim(static_cast<std::int64_t>(bytes_of(graph_.type(value).dtype)));
    std::tie(dense.buffer, dense.start) = scratch(count_of(bytes, describe(graph_, id_)));
    FallbackCall copying = call(FallbackKind::cast);
    copying.in = {std::move(tensor)}, copying.out = dense, copying.outer = shape;
    launch(std::move(copying));
    return dense;
  }
  // A place in the workspace, aligned for any dtype: a region has only one.
  std::pair<int, Count> scratch(const Count& bytes) {
    if (workspace_ < 0) workspace_ = generated_.refer({});
    const auto aligned = [](std::int64_t value) { return (value + 15) / 16 * 16; };
    const Count start = workspace_bytes_;
    workspace_bytes_.fixed += aligned(bytes.fixed);
    workspace_bytes_.per_token += aligned(bytes.per_token);
    return {workspace_, start};
  }

  // ---- strides for the axes of a call
  // Behind repeated axes, until it has as many as the result.
  FallbackTensor broadcast(FallbackTensor tensor) const {
    tensor.strides.insert(tensor.strides.begin(), rank() - tensor.strides.size(), Dim(0));
    return tensor;
  }
  // With a stride for the one inner axis.
  static FallbackTensor with_inner(FallbackTensor tensor, const Dim& stride = 0) {
    tensor.strides.push_back(stride);
    return tensor;
  }
  // Goes along `axis` as the inner axis instead.
  static FallbackTensor along(FallbackTensor tensor, std::size_t axis) {
    const Dim stride = tensor.strides[axis];
    tensor.strides[axis] = 0;
    return with_inner(std::move(tensor), stride);
  }

  // ---- ops
  void add_elementwise() {
    const FallbackKind kind = node().op != Op::gelu ? kind_of(node().op)
                              : node().flag("tanh") ? FallbackKind::gelu_tanh
                                                    : FallbackKind::gelu_erf;
    FallbackCall c = call(kind);
    for (std::size_t i = 0; i < node().inputs.size(); ++i) c.in.push_back(broadcast(operand(i)));
    c.out = result();
    launch(std::move(c));
  }

  void add_triangle() {
    FallbackCall c = call(kind_of(node().op));
    c.in = {operand(0)}, c.out = result();
    c.indexed = 2;
    c.params.diagonal = node().integer("diagonal");
    launch(std::move(c));
  }

  // Each input into its part of the result.
  void add_concat() {
    const auto axis = static_cast<std::size_t>(node().integer("axis"));
    Dim before(0);
    for (std::size_t i = 0; i < node().inputs.size(); ++i) {
      FallbackCall c = call(FallbackKind::cast);
      c.outer = graph_.type(node().inputs[i]).shape;
      c.in = {operand(i)}, c.out = result();
      c.out.first = before * c.out.strides[axis];
      before = before + c.outer[axis];
      launch(std::move(c));
    }
  }

  void add_reduction() {
    FallbackCall c = call(kind_of(node().op));
    const Shape& shape = graph_.type(node().inputs[0]).shape;
    std::vector<bool> reduced(shape.size());
    for (const std::int64_t axis : node().integers("axes"))
      reduced[static_cast<std::size_t>(axis)] = true;
    FallbackTensor x = operand(0);
    Shape outer_strides, inner_strides;
    c.outer.clear();
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      (reduced[axis] ? c.inner : c.outer).push_back(shape[axis]);
      (reduced[axis] ? inner_strides : outer_strides).push_back(x.strides[axis]);
    }
    x.strides = std::move(outer_strides);
    x.strides.insert(x.strides.end(), inner_strides.begin(), inner_strides.end());
    c.in = {std::move(x)}, c.out = result();
    if (node().flag("keep")) {
      Shape kept;
      for (std::size_t axis = 0; axis < shape.size(); ++axis)
        if (!reduced[axis]) kept.push_back(c.out.strides[axis]);
      c.out.strides = std::move(kept);
    }
    launch(std::move(c));
  }

  void add_softmax() {
    FallbackCall c = call(FallbackKind::softmax);
    const auto axis = static_cast<std::size_t>(node().integer("axis"));
    const FallbackTensor x = operand(0);
    c.in = {with_inner(x), along(x, axis)}, c.out = result();
    c.inner = {c.outer[axis]};
    launch(std::move(c));
  }

  void add_norm() {
    FallbackCall c = call(kind_of(node().op));
    const FallbackTensor x = operand(0);
    c.in = {with_inner(x), along(x, rank() - 1)};
    for (std::size_t i = 1; i < node().inputs.size(); ++i)
      c.in.push_back(with_inner(broadcast(operand(i))));
    c.out = result();
    c.inner = {c.outer.back()};
    c.params.eps = static_cast<float>(node().number("eps"));
    if (node().op == Op::rms_norm)
      c.params.offset = static_cast<float>(node().number("weight_offset"));
    launch(std::move(c));
  }

  void add_matmul() {
    FallbackCall c = call(FallbackKind::product);
    c.in = {along(broadcast(operand(0)), rank() - 1), along(broadcast(operand(1)), rank() - 2)};
    c.out = result();
    c.inner = {graph_.type(node().inputs[0]).shape.back()};
    launch(std::move(c));
  }

  // A part of a weight in a format, with strides of its own.
  FallbackTensor part_of(NodeId weight, std::size_t part) {
    FallbackTensor tensor;
    const Buffer buffer = buffer_of(step_, weight, part);
    tensor.element = element_of(buffer.dtype);
    tensor.buffer = generated_.refer(buffer);
    tensor.strides = {buffer.shape[1], 1};
    return tensor;
  }

  void add_scaled_linear() {
    FallbackCall c = call(FallbackKind::scaled_product);
    const NodeId weight = node().inputs[1];
    c.format = format_of(graph_[weight]).format;
    c.in = {along(operand(0), rank() - 1)};
    for (std::size_t part = 0; part < format_of(graph_[weight]).parts.size(); ++part) {
      FallbackTensor tensor = part_of(weight, part);
      tensor.strides.pop_back();  // its rows are the columns of the result
      c.in.push_back(with_inner(broadcast(tensor), 1));
    }
    if (node().inputs.size() > 2) c.in.push_back(with_inner(broadcast(operand(2))));
    c.out = result();
    c.inner = {graph_.type(node().inputs[0]).shape.back()};
    c.indexed = 1;
    launch(std::move(c));
  }

  void add_linear() {
    const Node& matrix = graph_[node().inputs[1]];
    if (matrix.op == Op::weight && !format_of(matrix).is_plain()) return add_scaled_linear();
    FallbackCall c = call(FallbackKind::product);
    FallbackTensor weight = operand(1);
    const Dim inner_stride = weight.strides.back();
    weight.strides.pop_back();  // its rows are the columns of the result
    c.in = {along(operand(0), rank() - 1), with_inner(broadcast(weight), inner_stride)};
    if (node().inputs.size() > 2) c.in.push_back(with_inner(broadcast(operand(2))));
    c.out = result();
    c.inner = {graph_.type(node().inputs[0]).shape.back()};
    launch(std::move(c));
  }

  void add_embedding() {
    FallbackCall c = call(FallbackKind::embedding);
    FallbackTensor table = operand(0), ids = operand(1);
    const Dim entry = table.strides[0];
    table.strides.erase(table.strides.begin());
    ids.strides.resize(rank());
    c.in = {with_inner(broadcast(table), entry), with_inner(ids)}, c.out = result();
    c.inner = {graph_.type(node().inputs[0]).shape[0]};
    launch(std::move(c));
  }

  void add_rope() {
    FallbackCall c =
        call(node().flag("interleaved") ? FallbackKind::rope_interleaved : FallbackKind::rope);
    const FallbackTensor x = operand(0);
    FallbackTensor positions = operand(1), frequencies = operand(2);
    positions.strides.resize(rank());
    const Dim step = frequencies.strides[0];
    frequencies.strides.assign(rank(), Dim(0));
    c.in = {with_inner(x), along(x, rank() - 1), with_inner(positions),
            with_inner(frequencies, step)};
    c.out = result();
    c.inner = graph_.type(node().inputs[2]).shape;
    c.indexed = 1;
    c.params.scale = static_cast<float>(node().number("scale"));
    launch(std::move(c));
  }

  // ---- states
  const StateSpec& state() const {
    return step_.states[static_cast<std::size_t>(node().integer("state"))];
  }
  std::int64_t slots() const {
    const std::int64_t slots = setting_.slots.at(static_cast<std::size_t>(node().integer("state")));
    AC_ASSERT(slots > 0);
    return slots;
  }
  // One of its tensors. Axes are slot, row, feature.
  FallbackTensor cached(std::size_t number) {
    const StateTensor& kept = state().tensors[number];
    FallbackTensor tensor;
    tensor.element = element_of(kept.dtype);
    tensor.buffer = generated_.refer({.role = Buffer::Role::state,
                                      .state = node().integer("state"),
                                      .tensor = static_cast<std::int32_t>(number)});
    tensor.strides = {kept.size, slots() * kept.size, 1};
    return tensor;
  }

  void add_attention() {
    const KvSizes sizes = kv_sizes(state());
    FallbackCall c = call(FallbackKind::attend);
    std::vector<FallbackTensor> in = {operand(0), operand(1), operand(2), cached(kKeys),
                                      cached(kValues)};
    if (has_codes(state())) in.insert(in.end(), {cached(kKeyScales), cached(kValueScales)});
    for (const FallbackTensor& tensor : in) c.in.push_back(with_inner(with_inner(tensor)));
    c.out = result();
    constexpr std::int64_t features = kernels::attend_features;
    c.outer[2] = (sizes.value_size + features - 1) / features;
    c.inner = {sizes.key_size, sizes.value_size};
    c.indexed = 3;
    c.position = position();
    c.params.capacity = slots();
    c.params.window = node().integer("window");
    c.params.group = static_cast<int>(c.outer[1].constant() / sizes.heads);
    c.params.scale = static_cast<float>(node().number("scale"));
    c.params.softcap = static_cast<float>(node().number("softcap"));
    launch(std::move(c));
    add_append(1, kKeys);
    add_append(2, kValues);
    if (!has_codes(state())) return;
    add_append(1, kKeyScales, true);
    add_append(2, kValueScales, true);
  }

  // An operand's rows, or what a tensor of codes or scales keeps of them.
  void add_append(std::size_t number, std::size_t tensor, bool is_scale = false) {
    FallbackCall c = call(FallbackKind::append);
    const FallbackTensor x = operand(number);
    c.outer = graph_.type(node().inputs[number]).shape;
    c.in = {x}, c.out = cached(tensor);
    if (c.out.element == Element::e4m3 || is_scale) {
      c.inner = {c.outer[2]};
      c.in = {with_inner(x), along(x, 2)};
      if (is_scale) c.in[0] = c.in[1], c.outer[2] = 1;
    }
    c.indexed = 3;
    c.position = position();
    c.params.capacity = slots();
    launch(std::move(c));
  }

  const StepGraph& step_;
  const Graph& graph_;
  const Setting& setting_;
  Generated generated_;
  NodeId id_ = 0;  // the node that is being added
  int workspace_ = -1;
  Count workspace_bytes_;
};

}  // namespace

Generated fallback(const StepGraph& step, const Region& region, const Setting& setting,
                   bool argmax) {
  FallbackWriter writer(step, setting);
  for (const NodeId id : region.nodes)
    if (is_compute(step.graph[id])) writer.add(id);
  if (argmax) writer.add_argmax(step.graph.outputs.at(0).node);
  return writer.finish();
}

Generated fallback_argmax(const StepGraph& step, NodeId logits, const Setting& setting) {
  FallbackWriter writer(step, setting);
  writer.add_argmax(logits);
  return writer.finish();
}

}  // namespace ac
