#include <cmath>
#include <numeric>

#include "base/error.h"
#include "capture/aten.h"

namespace ac {
namespace {

using Results = std::vector<NodeId>;

auto reduce(Op op) {
  return [op](const AtenCall& call) -> Results {
    NodeId x = call.tensor("self");
    if (const auto dtype = call.maybe_dtype("dtype")) x = call.build().cast(x, *dtype);
    return {call.build().reduce(op, x, call.axes("dim", call.rank(x)), call.flag("keepdim"))};
  };
}

auto reduce_all(Op op) {
  return [op](const AtenCall& call) -> Results {
    NodeId x = call.tensor("self");
    if (const auto dtype = call.maybe_dtype("dtype")) x = call.build().cast(x, *dtype);
    std::vector<std::int64_t> axes(call.rank(x));
    std::iota(axes.begin(), axes.end(), 0);
    return {call.build().reduce(op, x, std::move(axes), false)};
  };
}

NodeId least_or_most(const AtenCall& call, Op op, NodeId x, std::vector<std::int64_t> axes,
                     bool keep) {
  Builder& build = call.build();
  if (op == Op::maximum) return build.reduce(Op::amax, x, std::move(axes), keep);
  if (call.type(x).dtype == DType::boolean) bad_input("of bools is not supported");
  const NodeId turned = build.unary(Op::neg, x);
  return build.unary(Op::neg, build.reduce(Op::amax, turned, std::move(axes), keep));
}

std::vector<std::int64_t> all_axes(const AtenCall& call, NodeId x) {
  std::vector<std::int64_t> axes(call.rank(x));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// amax, amin
auto extreme(Op op) {
  return [op](const AtenCall& call) -> Results {
    const NodeId x = call.tensor("self");
    return {least_or_most(call, op, x, call.axes("dim", call.rank(x)), call.flag("keepdim"))};
  };
}

// max and min of everything
auto extreme_of_all(Op op) {
  return [op](const AtenCall& call) -> Results {
    const NodeId x = call.tensor("self");
    return {least_or_most(call, op, x, all_axes(call, x), false)};
  };
}

// max and min along an axis; where they are is for argmax to find.
auto extreme_along(Op op) {
  return [op](const AtenCall& call) -> Results {
    const NodeId x = call.tensor("self");
    const auto axis = static_cast<std::int64_t>(call.axis("dim", call.rank(x)));
    return {least_or_most(call, op, x, {axis}, call.flag("keepdim")), kNoResult};
  };
}

// Whether any of the elements is not 0.
NodeId any_of(const AtenCall& call, std::vector<std::int64_t> axes, bool keep) {
  const NodeId truth = call.build().cast(call.tensor("self"), DType::boolean);
  return call.build().reduce(Op::amax, truth, std::move(axes), keep);
}

Results any_along(const AtenCall& call) {
  const auto axis = static_cast<std::int64_t>(call.axis("dim", call.rank(call.tensor("self"))));
  return {any_of(call, {axis}, call.flag("keepdim"))};
}

Results any_along_several(const AtenCall& call) {
  return {any_of(call, call.axes("dim", call.rank(call.tensor("self"))), call.flag("keepdim"))};
}

Results any_at_all(const AtenCall& call) {
  return {any_of(call, all_axes(call, call.tensor("self")), false)};
}

constexpr auto kOverTokens =
    "goes over the tokens: a decoder may couple tokens only by causal attention";

// The entries of a short axis.
std::vector<NodeId> entries(const AtenCall& call, NodeId x, std::size_t axis) {
  constexpr std::int64_t kMost = 256;
  const Dim size = call.shape(x)[axis];
  if (!size.is_constant()) bad_input(kOverTokens);
  if (size.constant() > kMost)
    bad_input("over {} entries; at most {} are supported", size.constant(), kMost);
  std::vector<NodeId> all;
  for (std::int64_t i = 0; i < size.constant(); ++i)
    all.push_back(slice_from(call, x, axis, i, i + 1, 1));
  return all;
}

// PyTorch adds and multiplies integers and bools as int64.
NodeId accumulated(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const DType own = call.type(x).dtype;
  return call.build().cast(x, call.maybe_dtype("dtype").value_or(is_float(own) ? own : DType::i64));
}

Results product_along(const AtenCall& call) {
  const NodeId x = accumulated(call);
  const std::size_t axis = call.axis("dim", call.rank(x));
  std::optional<NodeId> result;
  for (const NodeId entry : entries(call, x, axis))
    result = result ? call.build().binary(Op::mul, *result, entry) : entry;
  if (!result) bad_input("over nothing");
  Shape shape = call.shape(*result);
  if (!call.flag("keepdim")) shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return {call.build().reshape(*result, shape)};
}

// Sums and products of the entries so far. Along the tokens a sum is known where all entries have
// one value: people count positions so.
auto cumulative(Op op) {
  return [op](const AtenCall& call) -> Results {
    Builder& build = call.build();
    const NodeId x = accumulated(call);
    if (call.rank(x) == 0) return {x};
    const std::size_t axis = call.axis("dim", call.rank(x));
    const auto value = call.context().prover.bounds(x);
    if (op == Op::add && call.shape(x)[axis] == Dim(Symbol::S) && value &&
        value->least == value->most) {
      const auto whole = [&](std::int64_t number) {
        return build.scalar(DType::i64, static_cast<double>(number));
      };
      NodeId count = build.binary(Op::add, call.context().all_positions(), whole(1));
      if (value->least != 1) count = build.binary(Op::mul, count, whole(value->least));
      Shape shape(call.rank(x), Dim(1));
      shape[axis] = Symbol::S;
      count = build.reshape(build.cast(count, call.type(x).dtype), shape);
      return {build.expand(count, Shape(call.shape(x)))};
    }
    std::vector<NodeId> parts = entries(call, x, axis);
    for (std::size_t i = 1; i < parts.size(); ++i)
      parts[i] = build.binary(op, parts[i - 1], parts[i]);
    if (parts.size() < 2) return {x};
    return {build.concat(parts, static_cast<std::int64_t>(axis))};
  };
}

// The first place of the largest entry.
Results argmax(const AtenCall& call) {
  Builder& build = call.build();
  const NodeId x = call.tensor("self");
  if (!call.has("dim")) bad_input("of all elements is not supported");
  const std::size_t axis = call.axis("dim", call.rank(x));
  const auto at = static_cast<std::int64_t>(axis);
  const Dim size = call.shape(x)[axis];
  if (!size.is_constant() || size.constant() < 1) bad_input(kOverTokens);
  Shape line(call.rank(x), Dim(1));
  line[axis] = size;
  std::vector<double> turned;  // so that the first place is the largest
  for (std::int64_t i = 0; i < size.constant(); ++i) turned.push_back(-static_cast<double>(i));
  const NodeId places =
      build.reshape(build.constant(DType::i64, {size.constant()}, std::move(turned)), line);
  const NodeId is_most = build.binary(Op::equal, x, build.reduce(Op::amax, x, {at}, true));
  const NodeId last = build.scalar(DType::i64, 1 - static_cast<double>(size.constant()));
  const NodeId candidates = build.add(Op::where, {is_most, places, last});
  return {build.unary(Op::neg, build.reduce(Op::amax, candidates, {at}, call.flag("keepdim")))};
}

NodeId mean_of(const AtenCall& call, bool keep) {
  const NodeId x = call.tensor("self");
  return call.build().reduce(Op::mean, x, call.axes("dim", call.rank(x)), keep);
}

NodeId variance(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const auto axes = call.axes("dim", call.rank(x));
  Dim count(1);
  for (const std::int64_t axis : axes)
    count = count * call.shape(x)[static_cast<std::size_t>(axis)];
  if (!count.is_constant()) bad_input("over {} elements", count.str());
  const double correction = call.has("correction") ? call.number("correction") : 1;
  const double divisor = static_cast<double>(count.constant()) - correction;
  if (!(divisor > 0)) bad_input("over {} elements, less {}", count.constant(), correction);
  Builder& build = call.build();
  const NodeId centred = build.binary(Op::sub, x, mean_of(call, true));
  const NodeId squares = build.binary(Op::mul, centred, centred);
  return times(call, build.reduce(Op::sum, squares, axes, call.flag("keepdim")), 1 / divisor);
}

Results variance_and_mean(const AtenCall& call) {
  return {variance(call), mean_of(call, call.flag("keepdim"))};
}

Results deviation(const AtenCall& call) { return {call.build().unary(Op::sqrt, variance(call))}; }

// (sum |x|^ord)^(1 / ord) for the orders that people normalise by.
Results vector_norm(const AtenCall& call) {
  NodeId x = call.tensor("self");
  if (const auto dtype = call.maybe_dtype("dtype")) x = call.build().cast(x, *dtype);
  const double order = call.number("ord");
  const auto axes = call.axes("dim", call.rank(x));
  const bool keep = call.flag("keepdim");
  Builder& build = call.build();
  if (order == 2) {
    const NodeId squares = build.binary(Op::mul, x, x);
    return {build.unary(Op::sqrt, build.reduce(Op::sum, squares, axes, keep))};
  }
  const NodeId sizes = build.unary(Op::abs, x);
  if (order == 1) return {build.reduce(Op::sum, sizes, axes, keep)};
  if (order == INFINITY) return {build.reduce(Op::amax, sizes, axes, keep)};
  bad_input("a norm of order {}: only 1, 2 and inf are supported", order);
}

}  // namespace

std::vector<AtenOp> aten_reduction_ops() {
  constexpr auto kVariance = "self:tensor dim:ints? correction:number? keepdim:bool";
  constexpr auto kReduce = "self:tensor dim:ints? keepdim:bool dtype:dtype?";
  return {
      {"aten.sum.default", "self:tensor dtype:dtype?", reduce_all(Op::sum)},
      {"aten.sum.dim_IntList", kReduce, reduce(Op::sum)},
      {"aten.mean.default", "self:tensor dtype:dtype?", reduce_all(Op::mean)},
      {"aten.mean.dim", kReduce, reduce(Op::mean)},
      {"aten.amax.default", "self:tensor dim:ints keepdim:bool", extreme(Op::maximum)},
      {"aten.amin.default", "self:tensor dim:ints keepdim:bool", extreme(Op::minimum)},
      {"aten.max.default", "self:tensor", extreme_of_all(Op::maximum)},
      {"aten.min.default", "self:tensor", extreme_of_all(Op::minimum)},
      {"aten.max.dim", "self:tensor dim:int keepdim:bool", extreme_along(Op::maximum)},
      {"aten.min.dim", "self:tensor dim:int keepdim:bool", extreme_along(Op::minimum)},
      {"aten.argmax.default", "self:tensor dim:int? keepdim:bool", argmax},
      {"aten.any.default", "self:tensor", any_at_all},
      {"aten.any.dim", "self:tensor dim:int keepdim:bool", any_along},
      {"aten.any.dims", "self:tensor dim:ints? keepdim:bool", any_along_several},
      {"aten.prod.dim_int", "self:tensor dim:int keepdim:bool dtype:dtype?", product_along},
      {"aten.cumsum.default", "self:tensor dim:int dtype:dtype?", cumulative(Op::add)},
      {"aten.cumprod.default", "self:tensor dim:int dtype:dtype?", cumulative(Op::mul)},
      {"aten.linalg_vector_norm.default",
       "self:tensor ord:number dim:ints? keepdim:bool dtype:dtype?", vector_norm},
      {"aten.var.correction", kVariance,
       [](const AtenCall& call) -> Results { return {variance(call)}; }},
      {"aten.var_mean.correction", kVariance, variance_and_mean},
      {"aten.std.correction", kVariance, deviation},
  };
}

}  // namespace ac
