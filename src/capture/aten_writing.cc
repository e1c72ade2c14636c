// Tensors put together of parts: what is left of writes in place, and other orders of entries.
#include <algorithm>

#include "base/error.h"
#include "capture/aten.h"

namespace ac {
namespace {

using Results = std::vector<NodeId>;

// More parts than a concat takes.
constexpr std::int64_t kMostParts = 1024;

std::int64_t constant_size(const AtenCall& call, NodeId x, std::size_t axis) {
  const Dim& size = call.shape(x)[axis];
  if (!size.is_constant()) bad_input("is not supported along the tokens");
  return size.constant();
}

Results flip(const AtenCall& call) {
  NodeId x = call.tensor("self");
  if (call.dims("dims").empty()) return {x};
  for (const std::int64_t axis : call.axes("dims", call.rank(x))) {
    const auto place = static_cast<std::size_t>(axis);
    const std::int64_t size = constant_size(call, x, place);
    if (size > kMostParts) bad_input("of {} entries; at most {} are supported", size, kMostParts);
    std::vector<NodeId> parts;
    for (std::int64_t i = size; i-- > 0;) parts.push_back(slice_from(call, x, place, i, i + 1, 1));
    if (size > 1) x = call.build().concat(std::move(parts), axis);
  }
  return {x};
}

// Numbers before and after, from the last axis on; negative ones take entries away.
Results pad(const AtenCall& call) {
  NodeId x = call.tensor("self");
  const Shape& sizes = call.dims("pad");
  const SymbolRange& range = call.context().range;
  if (sizes.size() % 2 != 0 || sizes.size() / 2 > call.rank(x))
    bad_input("pads {} by {}", to_string(call.type(x)), to_string(sizes));
  const NodeId filling = as_dtype(call, call.scalar("value"), call.type(x).dtype);
  for (std::size_t i = 0; i < sizes.size() / 2; ++i) {
    const std::size_t axis = call.rank(x) - 1 - i;
    const Dim before = sizes[2 * i], after = sizes[2 * i + 1], size = call.shape(x)[axis];
    const Dim start = at_most(before, 0, range) ? Dim(0) - before : Dim(0);
    const Dim end = at_most(after, 0, range) ? size + after : size;
    x = slice_from(call, x, axis, start, end, 1);
    std::vector<NodeId> parts{x};
    const auto add = [&](const Dim& count, auto place) {
      if (at_most(count, 0, range)) return;
      Shape shape = call.shape(x);
      shape[axis] = count;
      parts.insert(place(), call.build().expand(filling, std::move(shape)));
    };
    add(before, [&] { return parts.begin(); });
    add(after, [&] { return parts.end(); });
    if (parts.size() > 1) x = call.build().concat(parts, static_cast<std::int64_t>(axis));
  }
  return {x};
}

// x with the entries of one axis from start on, every step-th, replaced by those of `source`.
NodeId replaced(const AtenCall& call, NodeId x, NodeId source, std::size_t axis, const Dim& start,
                const Dim& end, std::int64_t step) {
  const Dim size = call.shape(x)[axis];
  const auto at = static_cast<std::int64_t>(axis);
  const auto part = [&](const Dim& from, const Dim& to) {
    return slice_from(call, x, axis, from, to, 1);
  };
  std::vector<NodeId> parts;
  if (step == 1) {
    if (start != Dim(0)) parts.push_back(part(0, start));
    parts.push_back(source);
    if (end != size) parts.push_back(part(end, size));
    return parts.size() == 1 ? source : call.build().concat(parts, at);
  }
  const std::int64_t count = constant_size(call, source, axis), all = constant_size(call, x, axis);
  const std::int64_t first = start.constant();
  if (first < step && count * step == all) {
    // One entry of each group of `step`.
    Shape groups = call.shape(x), group = call.shape(source);
    groups[axis] = count;
    group[axis] = count;
    groups.insert(groups.begin() + at + 1, Dim(step));
    group.insert(group.begin() + at + 1, Dim(1));
    Builder& build = call.build();
    const NodeId split = build.reshape(x, groups);
    if (first > 0) parts.push_back(slice_from(call, split, axis + 1, 0, first, 1));
    parts.push_back(build.reshape(source, group));
    if (first + 1 < step) parts.push_back(slice_from(call, split, axis + 1, first + 1, step, 1));
    return build.reshape(build.concat(parts, at + 1), Shape(call.shape(x)));
  }
  if (2 * count + 1 > kMostParts) bad_input("writes {} entries apart from each other", count);
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = first + i * step;
    if (place > next) parts.push_back(part(next, place));
    parts.push_back(slice_from(call, source, axis, i, i + 1, 1));
    next = place + 1;
  }
  if (next < all) parts.push_back(part(next, all));
  return parts.size() == 1 ? parts[0] : call.build().concat(parts, at);
}

Results slice_scatter(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  NodeId source = call.tensor("src");
  const std::size_t axis = call.axis("dim", call.rank(x));
  const std::int64_t step = call.integer("step");
  const Dim size = call.shape(x)[axis];
  const Dim start = call.has("start") ? slice_bound(call, call.dim("start"), size) : Dim(0);
  Dim end = call.has("end") ? slice_bound(call, call.dim("end"), size) : size;
  if (at_most(end, start, call.context().range)) return {x};
  Shape shape = call.shape(x);
  if (step == 1) {
    shape[axis] = end - start;
  } else {
    if (step < 1 || !start.is_constant() || !end.is_constant() || !size.is_constant())
      bad_input("in steps of {} is not supported along the tokens", step);
    shape[axis] = (end.constant() - start.constant() + step - 1) / step;
  }
  source = call.build().expand(call.build().cast(source, call.type(x).dtype), shape);
  return {replaced(call, x, source, axis, start, end, step)};
}

Results select_scatter(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const std::size_t axis = call.axis("dim", call.rank(x));
  Dim index = call.dim("index");
  if (!at_most(0, index, call.context().range)) index = index + call.shape(x)[axis];
  Shape shape = call.shape(x);
  shape[axis] = 1;
  const NodeId source =
      call.build().reshape(call.build().cast(call.tensor("src"), call.type(x).dtype), shape);
  return {replaced(call, x, source, axis, index, index + 1, 1)};
}

// [n]: whether an entry is among those that the index, a constant, names.
NodeId named_entries(const AtenCall& call, NodeId index, std::int64_t size) {
  Builder& build = call.build();
  const Dim count = product(call.shape(index));
  const NodeId line = build.cast(build.reshape(index, {1, count}), DType::i64);
  std::vector<double> places;
  for (std::int64_t i = 0; i < size; ++i) places.push_back(static_cast<double>(i));
  const NodeId entries = build.constant(DType::i64, {size, 1}, std::move(places));
  const NodeId wrapped =
      build.binary(Op::add, line,
                   build.add(Op::where, {build.binary(Op::less, line, number_like(call, line, 0)),
                                         number_like(call, line, static_cast<double>(size)),
                                         number_like(call, line, 0)}));
  return build.reduce(Op::amax, build.binary(Op::equal, entries, wrapped), {1}, false);
}

// x[mask] = number and x[..., indices] = number choose between the number and x.
Results index_put(const AtenCall& call) {
  const NodeId x = call.tensor("self"), value = call.tensor("values");
  const auto& indices = call.maybe_tensors("indices");
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i]) continue;
    if (first) bad_input("is only supported with one index tensor");
    first = i;
  }
  if (!first) bad_input("has no index tensor");
  if (call.flag("accumulate")) bad_input("adds to entries: only writing to them is supported");
  if (product(call.shape(value)) != Dim(1))
    bad_input("writes {}: only one number is supported", to_string(call.type(value)));
  Builder& build = call.build();
  NodeId mask = *indices[*first];
  Shape covered = call.shape(mask);
  if (call.type(mask).dtype != DType::boolean) {
    if (!product(covered).is_constant()) bad_input("the index depends on the number of tokens");
    if (*first >= call.rank(x)) bad_input("{} indices", indices.size());
    mask = named_entries(call, mask, constant_size(call, x, *first));
    covered = call.shape(mask);
  }
  const Shape& shape = call.shape(x);
  for (std::size_t i = 0; i < covered.size(); ++i)
    if (*first + i >= shape.size() || covered[i] != shape[*first + i])
      bad_input("the mask {} does not fit {}", to_string(covered), to_string(shape));
  covered.resize(shape.size() - *first, Dim(1));
  const NodeId number = build.cast(build.reshape(value, {}), call.type(x).dtype);
  return {build.add(Op::where, {build.reshape(mask, covered), number, x})};
}

// result[..., i, ...] = x[..., index[..., i, ...], ...]
Results gather(const AtenCall& call) {
  const NodeId x = call.tensor("self"), index = call.tensor("index");
  const std::size_t rank = call.rank(x);
  if (rank == 0 || call.rank(index) != rank)
    bad_input("the index is {}", to_string(call.type(index)));
  const std::size_t axis = call.axis("dim", rank);
  const Shape shape = call.shape(index);
  Builder& build = call.build();
  // An index that is the same for all other coordinates selects whole entries.
  NodeId narrow = index;
  while (build.graph()[narrow].op == Op::expand &&
         call.rank(build.graph()[narrow].inputs[0]) == rank)
    narrow = build.graph()[narrow].inputs[0];
  if (product(call.shape(narrow)) == call.shape(narrow)[axis]) {
    Shape wanted = call.shape(x);
    const NodeId line = build.reshape(narrow, {call.shape(narrow)[axis]});
    NodeId taken = take(call, x, axis, line);
    for (std::size_t i = 0; i < rank; ++i)
      if (i != axis && shape[i] != wanted[i]) taken = slice_from(call, taken, i, 0, shape[i], 1);
    return {build.expand(taken, shape)};
  }
  for (std::size_t i = 0; i < rank; ++i)
    if (i != axis && shape[i] != call.shape(x)[i])
      bad_input("the index {} for {}", to_string(shape), to_string(call.shape(x)));
  // One entry of all: the others are put to 0.
  const std::int64_t size = constant_size(call, x, axis);
  Shape wide = shape, entries(rank + 1, Dim(1)), values = call.shape(x);
  const auto at = static_cast<std::ptrdiff_t>(axis);
  wide.insert(wide.begin() + at + 1, Dim(1));
  values.insert(values.begin() + at, Dim(1));
  entries[axis + 1] = size;
  std::vector<double> places;
  for (std::int64_t i = 0; i < size; ++i) places.push_back(static_cast<double>(i));
  const NodeId count =
      build.reshape(build.constant(DType::i64, {size}, std::move(places)), entries);
  const NodeId named =
      build.binary(Op::equal, build.reshape(build.cast(index, DType::i64), wide), count);
  const NodeId chosen =
      build.add(Op::where, {named, build.reshape(x, values), number_like(call, x, 0)});
  return {build.reduce(Op::sum, chosen, {static_cast<std::int64_t>(axis) + 1}, false)};
}

}  // namespace

std::vector<AtenOp> aten_writing_ops() {
  return {
      {"aten.flip.default", "self:tensor dims:ints", flip},
      {"aten.constant_pad_nd.default", "self:tensor pad:ints value:number", pad},
      {"aten.slice_scatter.default", "self:tensor src:tensor dim:int start:int? end:int? step:int",
       slice_scatter},
      {"aten.select_scatter.default", "self:tensor src:tensor dim:int index:int", select_scatter},
      {"aten.index_put.default", "self:tensor indices:tensors? values:tensor accumulate:bool",
       index_put},
      {"aten.gather.default", "self:tensor dim:int index:tensor sparse_grad:bool", gather},
  };
}

}  // namespace ac
