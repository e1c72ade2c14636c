#include "base/error.h"
#include "reference/ops_internal.h"
#include "reference/strides.h"

namespace ac {
namespace {

Value gather(const Value& from, const Sizes& shape, const Sizes& strides, std::int64_t base = 0) {
  Value result{from.dtype, shape, {}};
  result.data.reserve(static_cast<std::size_t>(element_count(shape)));
  walk(shape, strides, base, [&](std::int64_t offset) {
    result.data.push_back(from.data[static_cast<std::size_t>(offset)]);
  });
  return result;
}

}  // namespace

Value broadcast_to(const Value& value, const Sizes& shape) {
  // An axis of size 1, or one that is missing in front, repeats: its stride is 0.
  const Sizes own = strides_of(value.shape);
  const std::size_t shift = shape.size() - value.shape.size();
  Sizes strides(shape.size());
  for (std::size_t axis = 0; axis < own.size(); ++axis)
    strides[shift + axis] = value.shape[axis] == 1 ? 0 : own[axis];
  return gather(value, shape, strides);
}

Value reshape(const Call& call) { return {call[0].dtype, call.shape, call[0].data}; }

Value expand(const Call& call) { return broadcast_to(call[0], call.shape); }

Value permute(const Call& call) {
  const Sizes own = strides_of(call[0].shape);
  Sizes strides;
  for (const std::int64_t axis : call.node().integers("axes"))
    strides.push_back(own[static_cast<std::size_t>(axis)]);
  return gather(call[0], call.shape, strides);
}

Value slice(const Call& call) {
  const Node& node = call.node();
  const Value& x = call[0];
  const auto axis = static_cast<std::size_t>(node.integer("axis"));
  const std::int64_t start = node.dim("start").evaluate(call.bindings);
  const std::int64_t end = node.dim("end").evaluate(call.bindings);
  // Symbolic bounds could not be checked before.
  if (start < 0 || end < start || end > x.shape[axis])
    bad_input("{}: slice {}:{} does not fit axis {} of {}", call.where(), start, end, axis,
              to_string(x.dtype, x.shape));
  Sizes strides = strides_of(x.shape);
  const std::int64_t base = start * strides[axis];
  strides[axis] *= node.integer("step");
  return gather(x, call.shape, strides, base);
}

Value concat(const Call& call) {
  const auto axis = static_cast<std::size_t>(call.node().integer("axis"));
  Value result = call.result();
  // Each input is, for every index of the axes before `axis`, one contiguous run.
  const std::int64_t rows = element_count(
      Sizes(call.shape.begin(), call.shape.begin() + static_cast<std::ptrdiff_t>(axis)));
  auto to = result.data.begin();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const std::vector<double>& from = call[i].data;
      const auto run = static_cast<std::ptrdiff_t>(from.size()) / rows;
      to = std::copy_n(from.begin() + row * run, run, to);
    }
  return result;
}

Value triangle(const Call& call) {
  const std::int64_t diagonal = call.node().integer("diagonal");
  const bool lower = call.node().op == Op::tril;
  const std::int64_t columns = call.shape.back(), rows = call.shape[call.shape.size() - 2];
  Value result = call[0];
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t column = at % columns, row = at / columns % rows;
    const bool keep = lower ? column - row <= diagonal : column - row >= diagonal;
    if (!keep) result.data[i] = 0;
  }
  return result;
}

}  // namespace ac
