// Whole numbers of fractions, quotients and remainders.
#include <cmath>

#include "base/error.h"
#include "capture/aten.h"

namespace ac {
namespace {

using Results = std::vector<NodeId>;

// What `make` gives for x where it has a fraction: a number this large has none, and may not fit an
// integer.
template <class Make>
Results of_fractions(const AtenCall& call, NodeId x, Make make) {
  const DType dtype = call.type(x).dtype;
  if (!is_float(dtype)) return {x};
  Builder& build = call.build();
  const NodeId size = build.unary(Op::abs, x);
  const NodeId small =
      build.binary(Op::less, size, number_like(call, x, dtype == DType::f16 ? 2048 : 0x1p24));
  const NodeId inner = build.add(Op::where, {small, x, number_like(call, x, 0)});
  return {build.add(Op::where, {small, make(inner), x})};
}

NodeId cut(const AtenCall& call, NodeId x) {
  return call.build().cast(call.build().cast(x, DType::i64), call.type(x).dtype);
}

// Cuts off the fraction, and goes one down or up from there if that leads `past` x.
NodeId next_whole(const AtenCall& call, NodeId x, Op past) {
  Builder& build = call.build();
  const NodeId whole = cut(call, x);
  const NodeId is_past = build.binary(past, whole, x);
  const NodeId next =
      build.binary(past == Op::greater ? Op::sub : Op::add, whole, number_like(call, x, 1));
  return build.add(Op::where, {is_past, next, whole});
}

// A half goes to the even neighbour.
NodeId nearest(const AtenCall& call, NodeId x) {
  Builder& build = call.build();
  const NodeId half = number_like(call, x, 0.5);
  const NodeId below = next_whole(call, x, Op::greater);
  const NodeId rest = build.binary(Op::sub, x, below);
  const NodeId halved = build.binary(Op::mul, below, half);
  const NodeId is_odd = build.binary(Op::not_equal, cut(call, halved), halved);
  const NodeId is_half = build.binary(Op::equal, rest, half);
  const NodeId is_tie = build.binary(Op::logical_and, is_half, is_odd);
  const NodeId is_more = build.binary(Op::greater, rest, half);
  const NodeId up = build.binary(Op::logical_or, is_more, is_tie);
  const NodeId above = build.binary(Op::add, below, number_like(call, x, 1));
  return build.add(Op::where, {up, above, below});
}

Results floor(const AtenCall& call) {
  return of_fractions(call, call.tensor("self"),
                      [&](NodeId x) { return next_whole(call, x, Op::greater); });
}

Results ceil(const AtenCall& call) {
  return of_fractions(call, call.tensor("self"),
                      [&](NodeId x) { return next_whole(call, x, Op::less); });
}

Results trunc(const AtenCall& call) {
  return of_fractions(call, call.tensor("self"), [&](NodeId x) { return cut(call, x); });
}

Results round(const AtenCall& call) {
  return of_fractions(call, call.tensor("self"), [&](NodeId x) { return nearest(call, x); });
}

Results round_decimals(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const std::int64_t decimals = call.integer("decimals");
  if (std::abs(decimals) > 6) bad_input("to {} decimals", decimals);
  if (!is_float(call.type(x).dtype)) bad_input("of {}", torch_name(call.type(x).dtype));
  Builder& build = call.build();
  const NodeId unit = number_like(call, x, std::pow(10, std::abs(decimals)));
  const Op there = decimals < 0 ? Op::div : Op::mul, back = decimals < 0 ? Op::mul : Op::div;
  const NodeId scaled = build.binary(there, x, unit);
  const auto whole = of_fractions(call, scaled, [&](NodeId y) { return nearest(call, y); });
  return {build.binary(back, whole[0], unit)};
}

// ---- quotients of whole numbers ----

// Both operands as integers of one type: where a quotient of fractions becomes whole, rounding may
// decide what it is, but not where whole numbers are divided.
struct Division {
  DType result;
  NodeId a, b;
  std::int64_t divisor;
};

Division whole_numbers(const AtenCall& call) {
  const AtenOperand self = call.operand("self"), other = call.operand("other");
  const DType result = result_dtype(call, {self, other});
  const DType whole = is_float(result) ? DType::i64 : result;
  if (result == DType::boolean) bad_input("is not supported on bools");
  Prover& prover = call.context().prover;
  const NodeId a = as_dtype(call, self, result), b = as_dtype(call, other, result);
  const auto divisor = prover.bounds(b);
  if (is_float(result) && (!prover.bounds(a) || !divisor))
    bad_input("of fractions is not supported: rounding may decide what it is");
  if (!divisor || divisor->least != divisor->most || divisor->least == 0)
    bad_input("is only supported by one number other than 0");
  return {result, call.build().cast(a, whole), call.build().cast(b, whole), divisor->least};
}

// a / b, cut towards 0 or, if `down`, towards minus infinity.
NodeId quotient(const AtenCall& call, const Division& d, bool down) {
  Builder& build = call.build();
  const NodeId cut_off = build.binary(Op::div, d.a, d.b);
  if (!down || (d.divisor > 0 && call.context().prover.never_negative(d.a))) return cut_off;
  const NodeId zero = number_like(call, d.a, 0);
  const NodeId rest = build.binary(Op::sub, d.a, build.binary(Op::mul, cut_off, d.b));
  const NodeId is_above = build.binary(d.divisor > 0 ? Op::less : Op::greater, rest, zero);
  const NodeId below = build.binary(Op::sub, cut_off, number_like(call, d.a, 1));
  return build.add(Op::where, {is_above, below, cut_off});
}

Results floor_divide(const AtenCall& call) {
  const Division division = whole_numbers(call);
  return {call.build().cast(quotient(call, division, true), division.result)};
}

// What is left of a after a whole number of b: with b's sign if `down`, else with a's.
auto rest(bool down) {
  return [down](const AtenCall& call) -> Results {
    const Division d = whole_numbers(call);
    Builder& build = call.build();
    const NodeId taken = build.binary(Op::mul, quotient(call, d, down), d.b);
    return {build.cast(build.binary(Op::sub, d.a, taken), d.result)};
  };
}

Results divide(const AtenCall& call) {
  if (!call.has("rounding_mode"))
    return {elementwise(call, Op::div, call.operand("self"), call.operand("other"))};
  const std::string& mode = call.text("rounding_mode");
  if (mode != "floor" && mode != "trunc") bad_input("rounding_mode is \"{}\"", mode);
  const Division division = whole_numbers(call);
  return {call.build().cast(quotient(call, division, mode == "floor"), division.result)};
}

}  // namespace

std::vector<AtenOp> aten_rounding_ops() {
  constexpr auto kTwo = "self:operand other:operand";
  constexpr auto kMode = "self:operand other:operand rounding_mode:text?";
  return {
      {"aten.floor.default", "self:tensor", floor},
      {"aten.ceil.default", "self:tensor", ceil},
      {"aten.trunc.default", "self:tensor", trunc},
      {"aten.round.default", "self:tensor", round},
      {"aten.round.decimals", "self:tensor decimals:int", round_decimals},
      {"aten.div.Tensor_mode", kMode, divide},
      {"aten.div.Scalar_mode", kMode, divide},
      {"aten.floor_divide.default", kTwo, floor_divide},
      {"aten.floor_divide.Scalar", kTwo, floor_divide},
      {"aten.remainder.Scalar", kTwo, rest(true)},
      {"aten.remainder.Tensor", kTwo, rest(true)},
      {"aten.fmod.Scalar", kTwo, rest(false)},
      {"aten.fmod.Tensor", kTwo, rest(false)},
  };
}

}  // namespace ac
