#include "ir/normalise/numbers.h"

#include <cmath>

#include "base/error.h"

namespace ac {
namespace {

// Integers are kept in doubles, which have all of them up to here.
constexpr double kMostInteger = 9007199254740992.0;  // 2^53

std::optional<double> store(DType dtype, double value) {
  if (is_float(dtype) || dtype == DType::boolean) return round_to(dtype, value);
  const bool fits =
      dtype == DType::i32 ? value >= -0x1p31 && value < 0x1p31 : std::fabs(value) <= kMostInteger;
  return fits ? std::optional(value) : std::nullopt;  // NaN does not fit
}

// Numbers of a model's source are doubles in a graph; float32 is the widest that PyTorch computes
// in.
double operand(DType dtype, double value) {
  return is_float(dtype) ? round_to(DType::f32, value) : value;
}

}  // namespace

std::optional<double> convert(DType to, double value) {
  return store(to, is_float(to) || to == DType::boolean ? value : std::trunc(value));
}

std::optional<double> compute(Op op, DType dtype, double a) {
  a = operand(dtype, a);
  switch (op) {
    case Op::neg:
      return store(dtype, -a);
    case Op::abs:
      return store(dtype, std::fabs(a));
    case Op::relu:
      return store(dtype, a < 0 ? 0 : a);
    case Op::exp:
      return store(dtype, std::exp(a));
    case Op::log:
      return store(dtype, std::log(a));
    case Op::sqrt:
      return store(dtype, std::sqrt(a));
    case Op::rsqrt:
      return store(dtype, 1 / std::sqrt(a));
    case Op::reciprocal:
      return store(dtype, 1 / a);
    case Op::logical_not:
      return a == 0;
    default:
      return std::nullopt;
  }
}

std::optional<double> compute(Op op, DType dtype, double a, double b) {
  const bool whole = !is_float(dtype);
  a = operand(dtype, a);
  b = operand(dtype, b);
  switch (op) {
    case Op::add:
      return store(dtype, a + b);
    case Op::sub:
      return store(dtype, a - b);
    case Op::mul:
      return store(dtype, a * b);
    case Op::div:
      return store(dtype, whole ? std::trunc(a / b) : a / b);
    case Op::pow:
      if (whole && b < 0) return std::nullopt;
      return store(dtype, std::pow(a, b));
    case Op::minimum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
    case Op::maximum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
    case Op::equal:
      return a == b;
    case Op::not_equal:
      return a != b;
    case Op::less:
      return a < b;
    case Op::less_equal:
      return a <= b;
    case Op::greater:
      return a > b;
    case Op::greater_equal:
      return a >= b;
    case Op::logical_and:
      return a != 0 && b != 0;
    case Op::logical_or:
      return a != 0 || b != 0;
    default:
      return std::nullopt;
  }
}

std::optional<double> compute_exactly(Op op, DType dtype, double a) {
  // IEEE rounds + - * / sqrt correctly; of the others, implementations agree on these points.
  if (op == Op::exp && a != 0 && !std::isinf(a)) return std::nullopt;
  if (op == Op::log && a != 0 && a != 1 && !std::isinf(a)) return std::nullopt;
  if (op == Op::rsqrt) return std::nullopt;
  return compute(op, dtype, a);
}

std::optional<double> compute_exactly(Op op, DType dtype, double a, double b) {
  // PyTorch's pow of floats is exact for squares, and 1 whatever is raised to 0.
  if (op == Op::pow && is_float(dtype) && b != 0 && b != 1 && b != 2) return std::nullopt;
  if (op == Op::pow && is_float(dtype) && b == 2) return compute(Op::mul, dtype, a, a);
  return compute(op, dtype, a, b);
}

double most_exact(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p24;
    case DType::f16:
      return 0x1p11;
    case DType::bf16:
      return 0x1p8;
    case DType::i32:
      return 0x1p31 - 1;
    case DType::i64:
      return 0x1p40;  // beyond any length; keeps sums of a few far from an overflow
    case DType::f8e4m3:
      return 16;
    case DType::boolean:
    case DType::u8:
    case DType::i8:
    case DType::f8e8m0:
      return 0;  // only what is the same everywhere
  }
  AC_UNREACHABLE();
}

}  // namespace ac
