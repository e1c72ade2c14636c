#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "capture/aten.h"

namespace ac {
namespace {

using Results = std::vector<NodeId>;

auto position(const Shape& shape, std::size_t axis) {
  return shape.begin() + static_cast<std::ptrdiff_t>(axis);
}

Results reshape_to(const AtenCall& call, NodeId x, Shape shape) {
  return {call.build().reshape(x, std::move(shape))};
}

// Replaces one -1 by what makes the sizes multiply to `total`.
Shape infer_size(Shape sizes, const Dim& total) {
  const auto unknown = std::find(sizes.begin(), sizes.end(), Dim(-1));
  if (unknown == sizes.end()) return sizes;
  *unknown = 1;
  const std::optional<Dim> rest = total.divided_by(product(sizes));
  if (!rest) bad_input("{} elements do not divide into {}", total.str(), to_string(sizes));
  *unknown = *rest;
  return sizes;
}

auto view(const char* argument) {
  return [argument](const AtenCall& call) -> Results {
    const NodeId x = call.tensor("self");
    return reshape_to(call, x, infer_size(call.dims(argument), product(call.shape(x))));
  };
}

Results view_as(const AtenCall& call) {
  return reshape_to(call, call.tensor("self"), call.shape(call.tensor("other")));
}

Results unsqueeze(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  Shape shape = call.shape(x);
  shape.insert(position(shape, call.axis("dim", shape.size() + 1)), Dim(1));
  return reshape_to(call, x, shape);
}

// Takes away those axes of `axes` that have size 1. S counts as more than 1.
Results squeeze_axes(const AtenCall& call, std::vector<std::int64_t> axes) {
  const NodeId x = call.tensor("self");
  Shape shape = call.shape(x);
  std::sort(axes.rbegin(), axes.rend());
  for (const std::int64_t axis : axes)
    if (const auto at = position(shape, static_cast<std::size_t>(axis)); *at == Dim(1))
      shape.erase(at);
  return reshape_to(call, x, shape);
}

Results squeeze_one(const AtenCall& call) {
  const auto axis = call.axis("dim", call.rank(call.tensor("self")));
  return squeeze_axes(call, {static_cast<std::int64_t>(axis)});
}

Results squeeze_several(const AtenCall& call) {
  if (call.dims("dim").empty()) return {call.tensor("self")};
  return squeeze_axes(call, call.axes("dim", call.rank(call.tensor("self"))));
}

Results squeeze_all(const AtenCall& call) {
  std::vector<std::int64_t> axes(call.rank(call.tensor("self")));
  std::iota(axes.begin(), axes.end(), 0);
  return squeeze_axes(call, std::move(axes));
}

Results flatten(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  Shape shape = call.shape(x);
  if (shape.empty()) return reshape_to(call, x, {1});
  const std::size_t start = call.axis("start_dim", shape.size());
  const std::size_t end = call.axis("end_dim", shape.size());
  if (start > end) bad_input("start_dim {} comes after end_dim {}", start, end);
  const Shape merged(position(shape, start), position(shape, end + 1));
  shape.erase(position(shape, start), position(shape, end + 1));
  shape.insert(position(shape, start), product(merged));
  return reshape_to(call, x, shape);
}

Results unflatten(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  Shape shape = call.shape(x);
  const std::size_t axis = call.axis("dim", shape.size());
  const Shape parts = infer_size(call.dims("sizes"), shape[axis]);
  shape.erase(position(shape, axis));
  shape.insert(position(shape, axis), parts.begin(), parts.end());
  return reshape_to(call, x, shape);
}

Results permute(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  if (call.dims("dims").size() != call.rank(x))
    bad_input("{} axes for {}", call.dims("dims").size(), to_string(call.type(x)));
  return {call.build().permute(x, call.axes("dims", call.rank(x)))};
}

Results swap_axes(const AtenCall& call, std::size_t a, std::size_t b) {
  const NodeId x = call.tensor("self");
  std::vector<std::int64_t> axes(call.rank(x));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes.at(a), axes.at(b));
  return {call.build().permute(x, std::move(axes))};
}

Results transpose(const AtenCall& call) {
  const std::size_t rank = call.rank(call.tensor("self"));
  return swap_axes(call, call.axis("dim0", rank), call.axis("dim1", rank));
}

Results transpose_matrix(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  if (call.rank(x) > 2) bad_input("the input is {}, not a matrix", to_string(call.type(x)));
  return call.rank(x) < 2 ? Results{x} : swap_axes(call, 0, 1);
}

Results expand(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const Shape& from = call.shape(x);
  Shape shape = call.dims("size");
  if (shape.size() < from.size())
    bad_input("cannot expand {} to {}", to_string(from), to_string(shape));
  const std::size_t added = shape.size() - from.size();
  for (std::size_t i = added; i < shape.size(); ++i)
    if (shape[i] == Dim(-1)) shape[i] = from[i - added];
  return {call.build().expand(x, shape)};
}

Results expand_as(const AtenCall& call) {
  return {call.build().expand(call.tensor("self"), call.shape(call.tensor("other")))};
}

// Tiles axis i `counts[i]` times, or repeats each of its elements so often: both are an expansion
// of a new axis, before or after the one that repeats.
NodeId repeat_axes(const AtenCall& call, NodeId x, const Shape& counts, bool each_element) {
  const Shape& shape = call.shape(x);
  Shape spread, expanded, joined;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!at_most(0, counts[i], call.context().range))
      bad_input("repeats axis {} {} times", i, counts[i].str());
    joined.push_back(shape[i] * counts[i]);
    if (counts[i] == Dim(1)) {
      spread.push_back(shape[i]);
      expanded.push_back(shape[i]);
      continue;
    }
    const auto pair = [&](Shape& to, const Dim& count) {
      to.push_back(each_element ? shape[i] : count);
      to.push_back(each_element ? count : shape[i]);
    };
    pair(spread, 1);
    pair(expanded, counts[i]);
  }
  Builder& build = call.build();
  return build.reshape(build.expand(build.reshape(x, spread), expanded), joined);
}

Results repeat(const AtenCall& call) {
  NodeId x = call.tensor("self");
  const Shape& counts = call.dims("repeats");
  Shape shape = call.shape(x);
  if (counts.size() < shape.size())
    bad_input("{} repeats for {}", counts.size(), to_string(call.type(x)));
  shape.insert(shape.begin(), counts.size() - shape.size(), Dim(1));
  return {repeat_axes(call, call.build().reshape(x, shape), counts, false)};
}

Results repeat_interleave(const AtenCall& call) {
  NodeId x = call.tensor("self");
  std::size_t axis = 0;
  if (call.has("dim"))
    axis = call.axis("dim", call.rank(x));
  else
    x = call.build().reshape(x, {product(call.shape(x))});
  Shape counts(call.rank(x), Dim(1));
  counts[axis] = call.dim("repeats");
  return {repeat_axes(call, x, counts, true)};
}

Results slice(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const std::size_t axis = call.axis("dim", call.rank(x));
  const Dim size = call.shape(x)[axis];
  const Dim start = call.has("start") ? slice_bound(call, call.dim("start"), size) : Dim(0);
  const Dim end = call.has("end") ? slice_bound(call, call.dim("end"), size) : size;
  return {slice_from(call, x, axis, start, end, call.integer("step"))};
}

Results narrow(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const std::size_t axis = call.axis("dim", call.rank(x));
  const Dim start = slice_bound(call, call.dim("start"), call.shape(x)[axis]);
  return {slice_from(call, x, axis, start, start + call.dim("length"), 1)};
}

Results select(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  return {select_at(call, x, call.axis("dim", call.rank(x)), call.dim("index"))};
}

Results index_select(const AtenCall& call) {
  const NodeId x = call.tensor("self"), index = call.tensor("index");
  if (call.rank(index) != 1) bad_input("the index is {}", to_string(call.type(index)));
  return {take(call, x, call.axis("dim", call.rank(x)), index)};
}

Results index(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const auto& indices = call.maybe_tensors("indices");
  if (indices.size() > call.rank(x))
    bad_input("{} indices for {}", indices.size(), to_string(call.type(x)));
  std::optional<std::size_t> axis;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i]) continue;
    if (axis) bad_input("is only supported with one index tensor");
    axis = i;
  }
  if (!axis) bad_input("has no index tensor");
  return {take(call, x, *axis, *indices[*axis])};
}

Results concatenate(const AtenCall& call) {
  std::vector<NodeId> parts = call.tensors("tensors");
  const DType dtype = result_dtype(call, {parts.begin(), parts.end()});
  for (NodeId& part : parts) part = call.build().cast(part, dtype);
  return {
      call.build().concat(parts, static_cast<std::int64_t>(call.axis("dim", call.rank(parts[0]))))};
}

Results stack(const AtenCall& call) {
  std::vector<NodeId> parts = call.tensors("tensors");
  const DType dtype = result_dtype(call, {parts.begin(), parts.end()});
  const std::size_t axis = call.axis("dim", call.rank(parts[0]) + 1);
  for (NodeId& part : parts) {
    Shape shape = call.shape(part);
    if (shape.size() < axis) bad_input("an input is {}", to_string(call.type(part)));
    shape.insert(position(shape, axis), Dim(1));
    part = call.build().reshape(call.build().cast(part, dtype), shape);
  }
  return {call.build().concat(parts, static_cast<std::int64_t>(axis))};
}

Results split_into(const AtenCall& call, std::size_t axis, const Shape& sizes) {
  call.expect_results(sizes.size());
  const NodeId x = call.tensor("self");
  Dim total;
  for (const Dim& size : sizes) total = total + size;
  if (total != call.shape(x)[axis])
    bad_input("splits {} into {}", call.shape(x)[axis].str(), to_string(sizes));
  Results parts;
  Dim start;
  for (const Dim& size : sizes) {
    parts.push_back(slice_from(call, x, axis, start, start + size, 1));
    start = start + size;
  }
  return parts;
}

auto split_sizes(const char* argument) {
  return [argument](const AtenCall& call) -> Results {
    const std::size_t axis = call.axis("dim", call.rank(call.tensor("self")));
    return split_into(call, axis, call.dims(argument));
  };
}

Results split_evenly(const AtenCall& call, std::size_t axis, std::int64_t size,
                     std::int64_t total) {
  if (size < 1) bad_input("splits into parts of {}", size);
  const std::int64_t count = std::max<std::int64_t>(1, total / size + (total % size != 0 ? 1 : 0));
  call.expect_results(static_cast<std::size_t>(count));
  Shape sizes(static_cast<std::size_t>(count), Dim(size));
  sizes.back() = total - size * (count - 1);
  return split_into(call, axis, sizes);
}

std::int64_t constant_size(const AtenCall& call, std::size_t axis) {
  const Dim& size = call.shape(call.tensor("self"))[axis];
  if (!size.is_constant()) bad_input("cannot split the size {}", size.str());
  return size.constant();
}

Results split(const AtenCall& call) {
  const std::size_t axis = call.axis("dim", call.rank(call.tensor("self")));
  if (call.dim("split_size") == call.shape(call.tensor("self"))[axis])
    return split_into(call, axis, {call.dim("split_size")});
  return split_evenly(call, axis, call.integer("split_size"), constant_size(call, axis));
}

Results chunk(const AtenCall& call) {
  const std::size_t axis = call.axis("dim", call.rank(call.tensor("self")));
  const std::int64_t total = constant_size(call, axis), count = call.integer("chunks");
  if (count < 1) bad_input("{} chunks", count);
  return split_evenly(
      call, axis, std::max<std::int64_t>(1, total / count + (total % count != 0 ? 1 : 0)), total);
}

Results unbind(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const std::size_t axis = call.axis("dim", call.rank(x));
  const std::int64_t count = constant_size(call, axis);
  call.expect_results(static_cast<std::size_t>(count));
  Results parts;
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(select_at(call, x, axis, i));
  return parts;
}

// Where an index may be below 0, PyTorch counts it from the end.
NodeId counted_from_start(const AtenCall& call, NodeId index, const Dim& size) {
  const DType dtype = call.type(index).dtype;
  if (dtype == DType::boolean)
    bad_input("a mask of bools selects a number of entries that depends on data");
  if (call.context().prover.never_negative(index)) return index;
  if (!size.is_constant())
    bad_input("an index that may be negative counts back from the last token");
  Builder& build = call.build();
  const NodeId negative = build.binary(Op::less, index, build.scalar(dtype, 0));
  const NodeId from_end =
      build.binary(Op::add, index, build.scalar(dtype, static_cast<double>(size.constant())));
  return build.add(Op::where, {negative, from_end, index});
}

Results identity(const AtenCall& call) { return {call.tensor("self")}; }

Results cast(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  return {call.build().cast(x, call.maybe_dtype("dtype").value_or(call.type(x).dtype))};
}

Results cast_like(const AtenCall& call) {
  return {call.build().cast(call.tensor("self"), call.type(call.tensor("other")).dtype)};
}

Results dropout(const AtenCall& call) {
  if (call.has("train") && call.flag("train") && call.number("p") != 0)
    bad_input("draws random numbers: capture the model in evaluation mode (model.eval())");
  return {call.tensor("input")};
}

Results native_dropout(const AtenCall& call) { return {dropout(call)[0], kNoResult}; }

}  // namespace

// A bound as Python means it: negative ones count from the end, and all are clamped to the axis.
Dim slice_bound(const AtenCall& call, Dim bound, const Dim& size) {
  const SymbolRange& range = call.context().range;
  if (!at_most(0, bound, range)) {
    if (!at_most(bound, -1, range)) bad_input("cannot tell the sign of the bound {}", bound.str());
    bound = bound + size;
    if (at_most(bound, 0, range)) return 0;
    if (!at_most(0, bound, range)) bad_input("cannot tell the sign of the bound {}", bound.str());
  }
  if (at_most(size, bound, range)) return size;
  if (!at_most(bound, size, range))
    bad_input("cannot tell whether the bound {} is within the size {} for {} to {} tokens",
              bound.str(), size.str(), range.min, range.max);
  return bound;
}

NodeId slice_from(const AtenCall& call, NodeId x, std::size_t axis, const Dim& start, Dim end,
                  std::int64_t step) {
  const Dim& size = call.shape(x)[axis];
  if (step == 1 && start == Dim(0) && end == size) return x;
  if (at_most(end, start, call.context().range)) end = start;  // empty
  return call.build().slice(x, static_cast<std::int64_t>(axis), start, end, step);
}

NodeId select_at(const AtenCall& call, NodeId x, std::size_t axis, Dim index) {
  Shape shape = call.shape(x);
  if (!at_most(0, index, call.context().range)) index = index + shape[axis];
  const NodeId row = slice_from(call, x, axis, index, index + 1, 1);
  shape.erase(position(shape, axis));
  return call.build().reshape(row, shape);
}

// Takes entries of one axis: an embedding, once that axis is the first.
NodeId take(const AtenCall& call, NodeId x, std::size_t axis, NodeId index) {
  std::vector<std::int64_t> to_front(call.rank(x));
  std::iota(to_front.begin(), to_front.end(), 0);
  std::rotate(to_front.begin(), to_front.begin() + static_cast<std::ptrdiff_t>(axis),
              to_front.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
  Builder& build = call.build();
  index = counted_from_start(call, index, call.shape(x)[axis]);
  const NodeId taken = build.embedding(build.permute(x, to_front), index);
  // [index..., before..., after...] -> [before..., index..., after...]
  std::vector<std::int64_t> back(call.rank(taken));
  std::iota(back.begin(), back.end(), 0);
  const auto middle = back.begin() + static_cast<std::ptrdiff_t>(call.rank(index));
  std::rotate(back.begin(), middle, middle + static_cast<std::ptrdiff_t>(axis));
  return build.permute(taken, std::move(back));
}

std::vector<AtenOp> aten_view_ops() {
  return {
      {"aten.view.default", "self:tensor size:ints", view("size")},
      {"aten.reshape.default", "self:tensor shape:ints", view("shape")},
      {"aten._unsafe_view.default", "self:tensor size:ints", view("size")},
      {"aten.view_as.default", "self:tensor other:tensor", view_as},
      {"aten.unsqueeze.default", "self:tensor dim:int", unsqueeze},
      {"aten.squeeze.default", "self:tensor", squeeze_all},
      {"aten.squeeze.dim", "self:tensor dim:int", squeeze_one},
      {"aten.squeeze.dims", "self:tensor dim:ints", squeeze_several},
      {"aten.flatten.using_ints", "self:tensor start_dim:int end_dim:int", flatten},
      {"aten.unflatten.int", "self:tensor dim:int sizes:ints", unflatten},
      {"aten.permute.default", "self:tensor dims:ints", permute},
      {"aten.transpose.int", "self:tensor dim0:int dim1:int", transpose},
      {"aten.t.default", "self:tensor", transpose_matrix},
      {"aten.expand.default", "self:tensor size:ints implicit:bool", expand},
      {"aten.expand_as.default", "self:tensor other:tensor", expand_as},
      {"aten.repeat.default", "self:tensor repeats:ints", repeat},
      {"aten.repeat_interleave.self_int", "self:tensor repeats:int dim:int? output_size:int?",
       repeat_interleave},
      {"aten.slice.Tensor", "self:tensor dim:int start:int? end:int? step:int", slice},
      {"aten.narrow.default", "self:tensor dim:int start:int length:int", narrow},
      {"aten.select.int", "self:tensor dim:int index:int", select},
      {"aten.index_select.default", "self:tensor dim:int index:tensor", index_select},
      {"aten.index.Tensor", "self:tensor indices:tensors?", index},
      {"aten.cat.default", "tensors:tensors dim:int", concatenate},
      {"aten.stack.default", "tensors:tensors dim:int", stack},
      {"aten.split.Tensor", "self:tensor split_size:int dim:int", split},
      {"aten.split.sizes", "self:tensor split_size:ints dim:int", split_sizes("split_size")},
      {"aten.split_with_sizes.default", "self:tensor split_sizes:ints dim:int",
       split_sizes("split_sizes")},
      {"aten.chunk.default", "self:tensor chunks:int dim:int", chunk},
      {"aten.unbind.int", "self:tensor dim:int", unbind},

      {"aten.clone.default", "self:tensor", identity},
      {"aten.contiguous.default", "self:tensor", identity},
      {"aten.alias.default", "self:tensor", identity},
      {"aten.detach.default", "self:tensor", identity},
      {"aten.lift_fresh_copy.default", "self:tensor", identity},
      {"aten.dropout.default", "input:tensor p:number train:bool", dropout},
      {"aten.native_dropout.default", "input:tensor p:number train:bool?", native_dropout},
      {"aten._to_copy.default", "self:tensor dtype:dtype? non_blocking:bool", cast},
      {"aten.to.dtype", "self:tensor dtype:dtype non_blocking:bool copy:bool", cast},
      {"aten.to.dtype_layout", "self:tensor dtype:dtype? non_blocking:bool copy:bool", cast},
      {"aten.to.device", "self:tensor dtype:dtype non_blocking:bool copy:bool", cast},
      {"aten.to.other", "self:tensor other:tensor non_blocking:bool copy:bool", cast_like},
      {"aten.type_as.default", "self:tensor other:tensor", cast_like},
  };
}

}  // namespace ac
