#include "families/body.h"

#include <algorithm>
#include <limits>

namespace ac {

std::optional<kernels::Type> kernel_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kernels::Type::f32;
    case DType::f16:
      return kernels::Type::f16;
    case DType::bf16:
      return kernels::Type::bf16;
    default:
      return std::nullopt;
  }
}

Body::Body(const StepGraph& step, const Region& region, const Bindings& at, bool argmax)
    : step_(step), region_(region), at_(at), argmax_(argmax) {
  for (const NodeId id : region.nodes)
    if (is_compute(step.graph[id])) {
      compute_.push_back(id);
      members_.insert(id);
    }
}

bool Body::is_output(NodeId id) const {
  return std::any_of(region_.outputs.begin(), region_.outputs.end(),
                     [&](const Parameter& output) { return output.value == id; });
}

std::vector<NodeId> Body::users(NodeId id) const {
  std::vector<NodeId> found;
  for (const NodeId user : compute_) {
    const std::vector<NodeId>& inputs = (*this)[user].inputs;
    if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) found.push_back(user);
  }
  return found;
}

std::optional<double> Body::immediate(NodeId value) const {
  const Parameter* parameter = input(value);
  return parameter ? parameter->immediate : std::nullopt;
}

const Parameter* Body::input(NodeId value) const {
  for (const Parameter& parameter : region_.inputs)
    if (parameter.value == value) return &parameter;
  return nullptr;
}

bool Body::is_contiguous(NodeId value, Role role) const {
  const Parameter* parameter = input(value);
  return parameter && parameter->role == role && !parameter->immediate &&
         parameter->layout.placement == Placement::contiguous;
}

bool Body::is_flat(NodeId value) const {
  const Layout layout = layout_of(graph(), value);
  return layout.placement == Placement::contiguous && layout.offset == Dim(0) &&
         product(graph().type(value).shape) ==
             product(graph().type(storage_of(graph(), value)).shape);
}

int Body::size(const Dim& dim) const {
  const std::int64_t value = dim.evaluate(at_);
  return value < 0 || value > std::numeric_limits<int>::max() ? -1 : static_cast<int>(value);
}

int Body::rows(const Shape& shape) const {
  return shape.empty() ? 1 : size(product({shape.begin(), shape.end() - 1}));
}

std::optional<std::int64_t> Body::row_pitch(NodeId value) const {
  const Shape& shape = graph().type(value).shape;
  const Layout layout = layout_of(graph(), value);
  if (layout.placement == Placement::opaque) return std::nullopt;
  if (layout.placement == Placement::contiguous) return columns(shape);
  if (layout.strides.empty()) return 1;
  // Rows whose distance depends on how many tokens there are have none that a plan could know.
  for (const Dim& stride : layout.strides)
    if (stride.uses(Symbol::T)) return std::nullopt;
  if (columns(shape) > 1 && layout.strides.back().evaluate(at_) != 1) return std::nullopt;
  std::optional<std::int64_t> pitch, next;
  for (std::size_t i = shape.size() - 1; i-- > 0;) {
    const std::int64_t count = shape[i].evaluate(at_), stride = layout.strides[i].evaluate(at_);
    if (count == 1) continue;
    if (!pitch) pitch = stride;
    if (next && stride != *next) return std::nullopt;
    next = stride * count;
  }
  return pitch.value_or(columns(shape));
}

std::optional<std::int64_t> Body::head_pitch(NodeId value) const {
  const Shape& shape = graph().type(value).shape;
  const Layout layout = layout_of(graph(), value);
  if (layout.placement == Placement::contiguous)
    return product(shape).evaluate(at_) / std::max(1, size(shape[0]));
  if (layout.placement == Placement::opaque || shape.size() != 3) return std::nullopt;
  const auto one = [&](std::size_t axis) { return shape[axis] == Dim(1); };
  if (!one(2) && layout.strides[2] != Dim(1)) return std::nullopt;
  if (!one(1) && layout.strides[1] != shape[2]) return std::nullopt;
  if (layout.strides[0].uses(Symbol::T)) return std::nullopt;
  return one(0) ? product(shape).evaluate(at_) : layout.strides[0].evaluate(at_);
}

Body::Broadcast Body::broadcast_to(NodeId value, const Shape& shape) const {
  const Shape& own = graph().type(value).shape;
  const Layout layout = layout_of(graph(), value);
  if (layout.placement == Placement::opaque || own.size() > shape.size()) return {};
  Broadcast result{true, true};
  // Strides of the axes but the last must be those of one axis.
  std::optional<std::int64_t> next;
  std::int64_t contiguous = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    const std::size_t missing = shape.size() - own.size();
    const std::int64_t count = shape[i].evaluate(at_);
    std::int64_t stride = 0;
    if (i >= missing && layout.placement != Placement::contiguous &&
        layout.strides[i - missing].uses(Symbol::T))
      return {};
    if (i >= missing) {
      const std::int64_t here = own[i - missing].evaluate(at_);
      if (here != 1)
        stride = layout.placement == Placement::contiguous
                     ? contiguous
                     : layout.strides[i - missing].evaluate(at_);
      contiguous *= here;
    }
    if (count == 1) continue;
    if (stride == 0) result.full = false;
    if (i + 1 == shape.size()) {
      result.column_stride = stride;
      continue;
    }
    if (next && stride != *next) return {};
    if (!next) result.row_stride = stride;
    next = stride * count;
  }
  return result;
}

}  // namespace ac
