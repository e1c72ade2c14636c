#include <cmath>

#include "base/error.h"
#include "capture/aten.h"

namespace ac {
namespace {

using Results = std::vector<NodeId>;

// The shape by value: making the scalar may move the node that it is the shape of.
NodeId filled(const AtenCall& call, Shape shape, const Scalar& value, DType dtype) {
  return call.build().expand(as_element(call, value, dtype), std::move(shape));
}

// Without a dtype, PyTorch's default decides; the declared result knows what that was.
DType dtype_of(const AtenCall& call) {
  return call.maybe_dtype("dtype").value_or(call.declared().dtype);
}

Results full(const AtenCall& call) {
  return {filled(call, call.dims("size"), call.scalar("fill_value"), dtype_of(call))};
}

Scalar whole(double value) {
  return {Scalar::Kind::integer, static_cast<std::int64_t>(value), value};
}

auto full_of(double value) {
  return [value](const AtenCall& call) -> Results {
    return {filled(call, call.dims("size"), whole(value), dtype_of(call))};
  };
}

DType dtype_like(const AtenCall& call) {
  return call.maybe_dtype("dtype").value_or(call.type(call.tensor("self")).dtype);
}

Results full_like(const AtenCall& call) {
  return {
      filled(call, call.shape(call.tensor("self")), call.scalar("fill_value"), dtype_like(call))};
}

auto full_of_like(double value) {
  return [value](const AtenCall& call) -> Results {
    return {filled(call, call.shape(call.tensor("self")), whole(value), dtype_like(call))};
  };
}

Results new_full(const AtenCall& call) {
  return {filled(call, call.dims("size"), call.scalar("fill_value"), dtype_like(call))};
}

auto new_full_of(double value) {
  return [value](const AtenCall& call) -> Results {
    return {filled(call, call.dims("size"), whole(value), dtype_like(call))};
  };
}

Results scalar_tensor(const AtenCall& call) {
  return {as_element(call, call.scalar("s"), dtype_of(call))};
}

bool is_symbolic(const Scalar& scalar) { return !scalar.size.is_constant(); }

NodeId constant_range(const AtenCall& call, double start, double end, double step, DType dtype) {
  const double count = std::max(0.0, std::ceil((end - start) / step));
  std::int64_t& budget = call.context().constant_budget;
  if (!(count <= static_cast<double>(budget))) bad_input("a range of {} elements", count);
  budget -= static_cast<std::int64_t>(count);
  std::vector<double> data;
  data.reserve(static_cast<std::size_t>(count));
  for (double i = 0; i < count; ++i) data.push_back(round_to(dtype, start + i * step));
  return call.build().constant(dtype, {static_cast<std::int64_t>(count)}, std::move(data));
}

// start + step * (0 .. S-1).
NodeId token_range(const AtenCall& call, const Scalar& start, const Scalar& end, const Scalar& step,
                   DType dtype) {
  if (is_symbolic(start) || is_symbolic(step) || end.kind != Scalar::Kind::integer)
    bad_input("is only supported from a constant to a size in constant steps");
  const bool is_whole = start.kind == Scalar::Kind::integer && step.kind == Scalar::Kind::integer;
  // Only whole numbers can be shown to make exactly S of them.
  if (!is_whole || (end.size - start.size).divided_by(step.size) != Dim(Symbol::S))
    bad_input("the range from {} to {} in steps of {} is not one entry a token", start.constant(),
              end.size.str(), step.constant());
  NodeId x = call.context().all_positions();
  if (step.constant() != 1) x = elementwise(call, Op::mul, x, step);
  if (start.constant() != 0) x = elementwise(call, Op::add, x, start);
  return call.build().cast(x, dtype);
}

Results arange_of(const AtenCall& call, const Scalar& start, const Scalar& end,
                  const Scalar& step) {
  const DType dtype = dtype_of(call);
  if (is_symbolic(start) || is_symbolic(end) || is_symbolic(step))
    return {token_range(call, start, end, step, dtype)};
  if (step.constant() == 0) bad_input("the step is 0");
  return {constant_range(call, start.constant(), end.constant(), step.constant(), dtype)};
}

Results arange_end(const AtenCall& call) {
  return arange_of(call, whole(0), call.scalar("end"), whole(1));
}

Results arange_start(const AtenCall& call) {
  return arange_of(call, call.scalar("start"), call.scalar("end"), whole(1));
}

Results arange_step(const AtenCall& call) {
  return arange_of(call, call.scalar("start"), call.scalar("end"), call.scalar("step"));
}

auto triangle(Op op) {
  return [op](const AtenCall& call) -> Results {
    return {call.build().add(op, {call.tensor("self")}, {{"diagonal", call.integer("diagonal")}})};
  };
}

}  // namespace

std::vector<AtenOp> aten_creation_ops() {
  return {
      {"aten.full.default", "size:ints fill_value:number dtype:dtype?", full},
      {"aten.ones.default", "size:ints dtype:dtype?", full_of(1)},
      {"aten.zeros.default", "size:ints dtype:dtype?", full_of(0)},
      {"aten.full_like.default", "self:tensor fill_value:number dtype:dtype?", full_like},
      {"aten.ones_like.default", "self:tensor dtype:dtype?", full_of_like(1)},
      {"aten.zeros_like.default", "self:tensor dtype:dtype?", full_of_like(0)},
      {"aten.new_full.default", "self:tensor size:ints fill_value:number dtype:dtype?", new_full},
      {"aten.new_ones.default", "self:tensor size:ints dtype:dtype?", new_full_of(1)},
      {"aten.new_zeros.default", "self:tensor size:ints dtype:dtype?", new_full_of(0)},
      {"aten.scalar_tensor.default", "s:number dtype:dtype?", scalar_tensor},
      {"aten.arange.default", "end:number dtype:dtype?", arange_end},
      {"aten.arange.start", "start:number end:number dtype:dtype?", arange_start},
      {"aten.arange.start_step", "start:number end:number step:number dtype:dtype?", arange_step},
      {"aten.tril.default", "self:tensor diagonal:int", triangle(Op::tril)},
      {"aten.triu.default", "self:tensor diagonal:int", triangle(Op::triu)},
  };
}

}  // namespace ac
