#include <cmath>

#include "base/error.h"
#include "capture/aten.h"

namespace ac {
namespace {

using Results = std::vector<NodeId>;

int kind_of(DType dtype) { return is_float(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (kind_of(a) != kind_of(b)) return kind_of(a) > kind_of(b) ? a : b;
  return is_float(a) ? DType::f32 : DType::i64;  // float16 and bfloat16 meet in float32
}

// On bools, arithmetic is logic.
Op on_bools(Op op) {
  switch (op) {
    case Op::add:
    case Op::maximum:
      return Op::logical_or;
    case Op::mul:
    case Op::minimum:
      return Op::logical_and;
    default:
      return op;
  }
}

NodeId to_bool(const AtenCall& call, NodeId x) { return call.build().cast(x, DType::boolean); }

auto unary(Op op) {
  return [op](const AtenCall& call) -> Results {
    const NodeId x = call.tensor("self");
    const bool keeps_integers = op == Op::neg || op == Op::abs;
    return {call.build().unary(op, keeps_integers ? x : as_float(call, x))};
  };
}

auto binary(Op op) {
  return [op](const AtenCall& call) -> Results {
    return {elementwise(call, op, call.operand("self"), call.operand("other"))};
  };
}

// add and sub: self + alpha * other.
auto scaled_binary(Op op, bool reversed = false) {
  return [op, reversed](const AtenCall& call) -> Results {
    AtenOperand a = call.operand("self"), b = call.operand("other");
    if (reversed) std::swap(a, b);
    if (const Scalar& alpha = call.scalar("alpha"); alpha.constant() != 1) {
      const DType dtype = result_dtype(call, {a, b});
      b = call.build().add(Op::mul, {as_dtype(call, b, dtype), as_dtype(call, alpha, dtype)});
    }
    return {elementwise(call, op, a, b)};
  };
}

auto logical(Op op) {
  return [op](const AtenCall& call) -> Results {
    return {call.build().add(
        op, {to_bool(call, call.tensor("self")), to_bool(call, call.tensor("other"))})};
  };
}

Results logical_not(const AtenCall& call) {
  return {call.build().unary(Op::logical_not, to_bool(call, call.tensor("self")))};
}

// The bitwise ops on bools; on integers they have no counterpart here.
void require_bool(const AtenCall& call, const AtenOperand& operand) {
  const DType dtype = result_dtype(call, {operand});
  if (dtype != DType::boolean)
    bad_input("is only supported on bools, not on {}", torch_name(dtype));
}

auto bitwise(Op op) {
  return [op](const AtenCall& call) -> Results {
    const AtenOperand a = call.operand("self"), b = call.operand("other");
    require_bool(call, a);
    require_bool(call, b);
    return {elementwise(call, op, a, b)};
  };
}

Results bitwise_not(const AtenCall& call) {
  require_bool(call, call.tensor("self"));
  return {call.build().unary(Op::logical_not, call.tensor("self"))};
}

Results power(const AtenCall& call) {
  return {elementwise(call, Op::pow, call.operand("self"), call.operand("exponent"))};
}

Results square(const AtenCall& call) {
  return {elementwise(call, Op::mul, call.tensor("self"), call.tensor("self"))};
}

// x where it is positive, else `otherwise`.
NodeId where_positive(const AtenCall& call, NodeId x, NodeId positive, NodeId otherwise) {
  Builder& build = call.build();
  const NodeId condition = build.binary(Op::greater, x, number_like(call, x, 0));
  return build.add(Op::where, {condition, positive, otherwise});
}

Results leaky_relu(const AtenCall& call) {
  const NodeId x = as_float(call, call.tensor("self"));
  return {where_positive(call, x, x, times(call, x, call.number("negative_slope")))};
}

// scale * x, or scale * alpha * (exp(input_scale * x) - 1)
Results elu(const AtenCall& call) {
  Builder& build = call.build();
  const NodeId x = as_float(call, call.tensor("self"));
  const double scale = call.number("scale");
  const NodeId power = build.unary(Op::exp, times(call, x, call.number("input_scale")));
  const NodeId less = times(call, build.binary(Op::sub, power, number_like(call, x, 1)),
                            scale * call.number("alpha"));
  return {where_positive(call, x, times(call, x, scale), less)};
}

Results log1p(const AtenCall& call) {
  const NodeId x = as_float(call, call.tensor("self"));
  return {call.build().unary(Op::log, call.build().binary(Op::add, x, number_like(call, x, 1)))};
}

Results expm1(const AtenCall& call) {
  const NodeId x = as_float(call, call.tensor("self"));
  const NodeId power = call.build().unary(Op::exp, x);
  return {call.build().binary(Op::sub, power, number_like(call, x, 1))};
}

Results sign(const AtenCall& call) {
  Builder& build = call.build();
  const NodeId x = call.tensor("self"), zero = number_like(call, x, 0);
  const NodeId below =
      build.add(Op::where, {build.binary(Op::less, x, zero), number_like(call, x, -1), zero});
  return {where_positive(call, x, number_like(call, x, 1), below)};
}

// factor * log(x): logarithms to another base.
auto scaled_log(double factor) {
  return [factor](const AtenCall& call) -> Results {
    const NodeId x = as_float(call, call.tensor("self"));
    return {times(call, call.build().unary(Op::log, x), factor)};
  };
}

Results exp2(const AtenCall& call) {
  const NodeId x = as_float(call, call.tensor("self"));
  return {call.build().binary(Op::pow, number_like(call, x, 2), x)};
}

Results tan(const AtenCall& call) {
  Builder& build = call.build();
  const NodeId x = as_float(call, call.tensor("self"));
  const NodeId sine = build.unary(Op::sin, x);
  return {build.binary(Op::div, sine, build.unary(Op::cos, x))};
}

// (exp(x) + sign * exp(-x)) / 2
auto hyperbolic(double sign) {
  return [sign](const AtenCall& call) -> Results {
    Builder& build = call.build();
    const NodeId x = as_float(call, call.tensor("self"));
    const NodeId rising = build.unary(Op::exp, x);
    const NodeId falling = build.unary(Op::exp, build.unary(Op::neg, x));
    return {times(call, build.binary(sign > 0 ? Op::add : Op::sub, rising, falling), 0.5)};
  };
}

Results erfc(const AtenCall& call) {
  const NodeId x = as_float(call, call.tensor("self"));
  const NodeId one = number_like(call, x, 1);
  return {call.build().binary(Op::sub, one, call.build().unary(Op::erf, x))};
}

Results is_nan(const AtenCall& call) {
  return {call.build().binary(Op::not_equal, call.tensor("self"), call.tensor("self"))};
}

Results is_infinite(const AtenCall& call) {
  const NodeId x = as_float(call, call.tensor("self"));
  const NodeId size = call.build().unary(Op::abs, x);
  return {call.build().binary(Op::equal, size, number_like(call, x, INFINITY))};
}

Results hardtanh(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const NodeId raised = elementwise(call, Op::maximum, x, call.operand("min_val"));
  return {elementwise(call, Op::minimum, raised, call.operand("max_val"))};
}

Results gelu(const AtenCall& call) {
  const std::string& kind = call.text("approximate");
  if (kind != "none" && kind != "tanh") bad_input("approximate is \"{}\"", kind);
  return {call.build().gelu(call.tensor("self"), kind == "tanh")};
}

Results where(const AtenCall& call) {
  const AtenOperand a = call.operand("self"), b = call.operand("other");
  const DType dtype = result_dtype(call, {a, b});
  return {call.build().add(Op::where, {to_bool(call, call.tensor("condition")),
                                       as_element(call, a, dtype), as_element(call, b, dtype)})};
}

Results masked_fill(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const AtenOperand value = call.operand("value");
  if (const auto* tensor = std::get_if<NodeId>(&value); tensor && call.rank(*tensor) != 0)
    bad_input("the value is {}, expected a number", to_string(call.type(*tensor)));
  return {call.build().add(Op::where,
                           {call.tensor("mask"), as_element(call, value, call.type(x).dtype), x})};
}

Results clamp(const AtenCall& call) {
  AtenOperand x = call.tensor("self");
  // Bounds take part in promotion together: an integer tensor between floats becomes float.
  std::vector<AtenOperand> operands{x};
  for (const char* bound : {"min", "max"})
    if (call.has(bound)) operands.push_back(call.operand(bound));
  if (operands.size() == 1) bad_input("has neither min nor max");
  const DType dtype = result_dtype(call, operands);
  if (call.has("min"))
    x = elementwise(call, Op::maximum, as_dtype(call, x, dtype), call.operand("min"));
  if (call.has("max"))
    x = elementwise(call, Op::minimum, as_dtype(call, x, dtype), call.operand("max"));
  return {std::get<NodeId>(x)};
}

// The value with the type and the shape of the tensor that it is written to.
auto written(const char* value) {
  return [value](const AtenCall& call) -> Results {
    const NodeId x = call.tensor("self");
    const NodeId filling = as_element(call, call.operand(value), call.type(x).dtype);
    return {call.build().expand(filling, Shape(call.shape(x)))};
  };
}

auto clamp_one(Op op, const char* bound) {
  return [op, bound](const AtenCall& call) -> Results {
    return {elementwise(call, op, call.tensor("self"), call.operand(bound))};
  };
}

}  // namespace

DType result_dtype(const AtenCall& call, const std::vector<AtenOperand>& operands) {
  std::optional<DType> classes[3];  // tensors with axes, without, numbers
  for (const AtenOperand& operand : operands) {
    const auto* tensor = std::get_if<NodeId>(&operand);
    const DType dtype = tensor ? call.type(*tensor).dtype : std::get<Scalar>(operand).dtype();
    auto& known = classes[!tensor ? 2 : call.rank(*tensor) == 0 ? 1 : 0];
    known = known ? promote(*known, dtype) : dtype;
  }
  std::optional<DType> result;
  for (const auto& known : classes)
    if (known && (!result || kind_of(*known) > kind_of(*result))) result = known;
  return *result;
}

NodeId as_dtype(const AtenCall& call, const AtenOperand& operand, DType dtype) {
  if (const auto* tensor = std::get_if<NodeId>(&operand)) return call.build().cast(*tensor, dtype);
  double value = std::get<Scalar>(operand).constant();
  if (dtype == DType::boolean) value = value != 0;
  if (!is_float(dtype)) {
    if (!std::isfinite(value)) bad_input("the value {} does not fit {}", value, torch_name(dtype));
    value = std::trunc(value);
  }
  return call.build().scalar(dtype, value);
}

NodeId as_element(const AtenCall& call, const AtenOperand& operand, DType dtype) {
  const auto* number = std::get_if<Scalar>(&operand);
  if (!number || !is_float(dtype)) return as_dtype(call, operand, dtype);
  return call.build().scalar(dtype, round_to(dtype, number->constant()));
}

NodeId as_float(const AtenCall& call, NodeId x) {
  return is_float(call.type(x).dtype) ? x : call.build().cast(x, DType::f32);
}

NodeId number_like(const AtenCall& call, NodeId x, double value) {
  return call.build().scalar(call.type(x).dtype, value);
}

NodeId times(const AtenCall& call, NodeId x, double factor) {
  if (factor == 1) return x;
  return elementwise(call, Op::mul, x, Scalar{Scalar::Kind::number, {}, factor});
}

NodeId elementwise(const AtenCall& call, Op op, const AtenOperand& a, const AtenOperand& b) {
  DType dtype = result_dtype(call, {a, b});
  if (op == Op::div && !is_float(dtype)) dtype = DType::f32;
  const bool compares = info(op).rule == ShapeRule::compare;
  const Op actual = dtype == DType::boolean && !compares ? on_bools(op) : op;
  // In a list, because the order in which the arguments of a function are made is the compiler's.
  return call.build().add(actual, {as_dtype(call, a, dtype), as_dtype(call, b, dtype)});
}

std::vector<AtenOp> aten_elementwise_ops() {
  std::vector<AtenOp> ops{
      {"aten.add.Tensor", "self:operand other:operand alpha:number", scaled_binary(Op::add)},
      {"aten.add.Scalar", "self:tensor other:number alpha:number", scaled_binary(Op::add)},
      {"aten.sub.Tensor", "self:operand other:operand alpha:number", scaled_binary(Op::sub)},
      {"aten.sub.Scalar", "self:tensor other:number alpha:number", scaled_binary(Op::sub)},
      {"aten.rsub.Scalar", "self:tensor other:number alpha:number", scaled_binary(Op::sub, true)},
      {"aten.mul.Tensor", "self:operand other:operand", binary(Op::mul)},
      {"aten.mul.Scalar", "self:tensor other:number", binary(Op::mul)},
      {"aten.div.Tensor", "self:operand other:operand", binary(Op::div)},
      {"aten.div.Scalar", "self:tensor other:number", binary(Op::div)},
      {"aten.maximum.default", "self:tensor other:tensor", binary(Op::maximum)},
      {"aten.minimum.default", "self:tensor other:tensor", binary(Op::minimum)},
      {"aten.pow.Tensor_Scalar", "self:tensor exponent:number", power},
      {"aten.pow.Tensor_Tensor", "self:tensor exponent:operand", power},
      {"aten.pow.Scalar", "self:number exponent:tensor", power},
      {"aten.square.default", "self:tensor", square},
      {"aten.log1p.default", "self:tensor", log1p},
      {"aten.expm1.default", "self:tensor", expm1},
      {"aten.log2.default", "self:tensor", scaled_log(1 / std::log(2))},
      {"aten.log10.default", "self:tensor", scaled_log(1 / std::log(10))},
      {"aten.exp2.default", "self:tensor", exp2},
      {"aten.tan.default", "self:tensor", tan},
      {"aten.sinh.default", "self:tensor", hyperbolic(-1)},
      {"aten.cosh.default", "self:tensor", hyperbolic(1)},
      {"aten.erfc.default", "self:tensor", erfc},
      {"aten.isnan.default", "self:tensor", is_nan},
      {"aten.isinf.default", "self:tensor", is_infinite},
      {"aten.sign.default", "self:tensor", sign},
      {"aten.hardtanh.default", "self:tensor min_val:number max_val:number", hardtanh},
      {"aten.leaky_relu.default", "self:tensor negative_slope:number", leaky_relu},
      {"aten.elu.default", "self:tensor alpha:number scale:number input_scale:number", elu},
      {"aten.gelu.default", "self:tensor approximate:text", gelu},
      {"aten.logical_not.default", "self:tensor", logical_not},
      {"aten.logical_and.default", "self:tensor other:tensor", logical(Op::logical_and)},
      {"aten.logical_or.default", "self:tensor other:tensor", logical(Op::logical_or)},
      {"aten.bitwise_not.default", "self:tensor", bitwise_not},
      {"aten.bitwise_and.Tensor", "self:tensor other:operand", bitwise(Op::logical_and)},
      {"aten.bitwise_and.Scalar", "self:tensor other:number", bitwise(Op::logical_and)},
      {"aten.bitwise_or.Tensor", "self:tensor other:operand", bitwise(Op::logical_or)},
      {"aten.bitwise_or.Scalar", "self:tensor other:number", bitwise(Op::logical_or)},
      // On bools, to differ is to be exclusive.
      {"aten.logical_xor.default", "self:tensor other:tensor", logical(Op::not_equal)},
      {"aten.bitwise_xor.Tensor", "self:tensor other:operand", bitwise(Op::not_equal)},
      {"aten.bitwise_xor.Scalar", "self:tensor other:number", bitwise(Op::not_equal)},
      {"aten.where.self", "condition:tensor self:operand other:operand", where},
      {"aten.where.ScalarSelf", "condition:tensor self:number other:tensor", where},
      {"aten.where.ScalarOther", "condition:tensor self:tensor other:number", where},
      {"aten.where.Scalar", "condition:tensor self:number other:number", where},
      {"aten.masked_fill.Scalar", "self:tensor mask:tensor value:number", masked_fill},
      {"aten.masked_fill.Tensor", "self:tensor mask:tensor value:operand", masked_fill},
      {"aten.fill.Scalar", "self:tensor value:number", written("value")},
      {"aten.fill.Tensor", "self:tensor value:tensor", written("value")},
      {"aten.copy.default", "self:tensor src:tensor non_blocking:bool", written("src")},
      {"aten.clamp.default", "self:tensor min:number? max:number?", clamp},
      {"aten.clamp.Tensor", "self:tensor min:tensor? max:tensor?", clamp},
      {"aten.clamp_min.default", "self:tensor min:number", clamp_one(Op::maximum, "min")},
      {"aten.clamp_max.default", "self:tensor max:number", clamp_one(Op::minimum, "max")},
  };
  for (const auto& [name, op] :
       std::initializer_list<std::pair<const char*, Op>>{{"neg", Op::neg},
                                                         {"abs", Op::abs},
                                                         {"exp", Op::exp},
                                                         {"log", Op::log},
                                                         {"sqrt", Op::sqrt},
                                                         {"rsqrt", Op::rsqrt},
                                                         {"sin", Op::sin},
                                                         {"cos", Op::cos},
                                                         {"reciprocal", Op::reciprocal},
                                                         {"tanh", Op::tanh},
                                                         {"erf", Op::erf},
                                                         {"sigmoid", Op::sigmoid},
                                                         {"silu", Op::silu},
                                                         {"relu", Op::relu}})
    ops.push_back({fmt::format("aten.{}.default", name), "self:tensor", unary(op)});
  for (const auto& [name, op] :
       std::initializer_list<std::pair<const char*, Op>>{{"eq", Op::equal},
                                                         {"ne", Op::not_equal},
                                                         {"lt", Op::less},
                                                         {"le", Op::less_equal},
                                                         {"gt", Op::greater},
                                                         {"ge", Op::greater_equal}}) {
    ops.push_back({fmt::format("aten.{}.Tensor", name), "self:operand other:operand", binary(op)});
    ops.push_back({fmt::format("aten.{}.Scalar", name), "self:tensor other:number", binary(op)});
  }
  return ops;
}

}  // namespace ac
