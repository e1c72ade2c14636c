#include "reference/ops.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "reference/ops_internal.h"
#include "reference/parallel.h"

namespace ac {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements that are worth a thread

template <class Function>
Value map(const Call& call, Function function) {
  Value result = call.result();
  const double* x = call[0].data.data();
  parallel_for(call.threads, element_count(result.shape), kGrain,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) result.data[i] = function(x[i]);
               });
  return result;
}

template <class Function>
Value zip(const Call& call, Function function) {
  Value result = call.result();
  Value expanded[2];
  const double* in[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const bool as_is = call[i].shape == call.shape;
    if (!as_is) expanded[i] = broadcast_to(call[i], call.shape);
    in[i] = as_is ? call[i].data.data() : expanded[i].data.data();
  }
  parallel_for(call.threads, element_count(result.shape), kGrain,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   result.data[i] = function(in[0][i], in[1][i]);
               });
  return result;
}

Value where(const Call& call) {
  const Value condition = broadcast_to(call[0], call.shape);
  const Value yes = broadcast_to(call[1], call.shape), no = broadcast_to(call[2], call.shape);
  Value result = call.result();
  for (std::size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = condition.data[i] != 0 ? yes.data[i] : no.data[i];
  return result;
}

Value cast(const Call& call) {
  const DType to = call.node().type.dtype;
  if (to == DType::boolean) return map(call, [](double x) { return x != 0; });
  if (is_float(to)) return map(call, [](double x) { return x; });
  return map(call, [](double x) { return std::trunc(x); });
}

// (1 + tanh(y)) / 2 is 1 / (1 + exp(-2 y)), and 1 + erf(y) is erfc(-y), without the cancellation
// for negative y.
Value gelu(const Call& call) {
  if (call.node().flag("tanh"))
    return map(call, [](double x) {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * inner));
    });
  return map(call, [](double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); });
}

Value div(const Call& call) {
  if (is_float(call.node().type.dtype)) return zip(call, [](double a, double b) { return a / b; });
  return zip(call, [](double a, double b) { return std::trunc(a / b); });
}

double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return a > b ? a : b;
}

double minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return a < b ? a : b;
}

Value constant(const Call& call) {
  return {call.node().type.dtype, call.shape, call.node().data()};
}

Value positions(const Call& call) {
  Value result = call.result();
  // A whole forward has no cached tokens: P is not set.
  const std::int64_t first = call.bindings.P < 0 ? 0 : call.bindings.P;
  for (std::size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = static_cast<double>(first + static_cast<std::int64_t>(i));
  return result;
}

}  // namespace

const Value& Operand::value() const {
  AC_ASSERT(value_);
  return *value_;
}

const double* Operand::read(std::int64_t first, std::int64_t count,
                            std::vector<double>& scratch) const {
  if (value_) return value_->data.data() + first;
  if (const double* const elements = stored_->elements()) return elements + first;
  scratch.resize(static_cast<std::size_t>(count));
  stored_->read(first, count, scratch.data());
  return scratch.data();
}

bool takes_stored(Op op, std::size_t input) {
  if (op == Op::linear || op == Op::matmul) return input == 1;
  return op == Op::embedding && input == 0;
}

Value Call::result() const {
  return {node().type.dtype, shape,
          std::vector<double>(static_cast<std::size_t>(element_count(shape)))};
}

Value evaluate_op(const Call& call) {
  // No default: a new op without an evaluator is a warning here, and fails the test of every op.
  switch (call.node().op) {
    case Op::input:
    case Op::weight:
      break;
    case Op::constant:
      return constant(call);
    case Op::positions:
      return positions(call);

    case Op::cast:
      return cast(call);
    case Op::neg:
      return map(call, [](double x) { return -x; });
    case Op::abs:
      return map(call, [](double x) { return std::fabs(x); });
    case Op::exp:
      return map(call, [](double x) { return std::exp(x); });
    case Op::log:
      return map(call, [](double x) { return std::log(x); });
    case Op::sqrt:
      return map(call, [](double x) { return std::sqrt(x); });
    case Op::rsqrt:
      return map(call, [](double x) { return 1 / std::sqrt(x); });
    case Op::reciprocal:
      return map(call, [](double x) { return 1 / x; });
    case Op::sin:
      return map(call, [](double x) { return std::sin(x); });
    case Op::cos:
      return map(call, [](double x) { return std::cos(x); });
    case Op::tanh:
      return map(call, [](double x) { return std::tanh(x); });
    case Op::erf:
      return map(call, [](double x) { return std::erf(x); });
    case Op::sigmoid:
      return map(call, [](double x) { return 1 / (1 + std::exp(-x)); });
    case Op::silu:
      return map(call, [](double x) { return x / (1 + std::exp(-x)); });
    case Op::relu:
      return map(call, [](double x) { return maximum(x, 0); });
    case Op::gelu:
      return gelu(call);
    case Op::logical_not:
      return map(call, [](double x) { return x == 0; });

    case Op::add:
      return zip(call, [](double a, double b) { return a + b; });
    case Op::sub:
      return zip(call, [](double a, double b) { return a - b; });
    case Op::mul:
      return zip(call, [](double a, double b) { return a * b; });
    case Op::div:
      return div(call);
    case Op::pow:
      return zip(call, [](double a, double b) { return std::pow(a, b); });
    case Op::maximum:
      return zip(call, maximum);
    case Op::minimum:
      return zip(call, minimum);
    case Op::equal:
      return zip(call, [](double a, double b) { return a == b; });
    case Op::not_equal:
      return zip(call, [](double a, double b) { return a != b; });
    case Op::less:
      return zip(call, [](double a, double b) { return a < b; });
    case Op::less_equal:
      return zip(call, [](double a, double b) { return a <= b; });
    case Op::greater:
      return zip(call, [](double a, double b) { return a > b; });
    case Op::greater_equal:
      return zip(call, [](double a, double b) { return a >= b; });
    case Op::logical_and:
      return zip(call, [](double a, double b) { return a != 0 && b != 0; });
    case Op::logical_or:
      return zip(call, [](double a, double b) { return a != 0 || b != 0; });
    case Op::where:
      return where(call);

    case Op::sum:
    case Op::mean:
    case Op::amax:
      return reduce(call);
    case Op::softmax:
      return softmax(call);
    case Op::rms_norm:
      return rms_norm(call);
    case Op::layer_norm:
      return layer_norm(call);

    case Op::matmul:
      return matmul(call);
    case Op::linear:
      return linear(call);
    case Op::embedding:
      return embedding(call);

    case Op::rope:
      return rope(call);
    case Op::attention:
      return attention(call);
    case Op::append_attend:
      return append_attend(call);

    case Op::reshape:
      return reshape(call);
    case Op::permute:
      return permute(call);
    case Op::expand:
      return expand(call);
    case Op::slice:
      return slice(call);
    case Op::concat:
      return concat(call);
    case Op::tril:
    case Op::triu:
      return triangle(call);
  }
  AC_UNREACHABLE();
}

}  // namespace ac
