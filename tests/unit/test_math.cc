// The elementwise ops of kernels against double precision.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "kernels/math.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {
namespace {

double maximum(double a, double b) { return std::isnan(a) || a > b ? a : b; }
double minimum(double a, double b) { return std::isnan(a) || a < b ? a : b; }

struct Unary {
  const char* name;
  float (*op)(float);
  double (*truth)(double);
};
const Unary unary[] = {
    {"neg", math::neg, [](double x) { return -x; }},
    {"abs", math::abs, [](double x) { return std::fabs(x); }},
    {"exp", math::exp, [](double x) { return std::exp(x); }},
    {"log", math::log, [](double x) { return std::log(x); }},
    {"sqrt", math::sqrt, [](double x) { return std::sqrt(x); }},
    {"rsqrt", math::rsqrt, [](double x) { return 1 / std::sqrt(x); }},
    {"reciprocal", math::reciprocal, [](double x) { return 1 / x; }},
    {"sin", math::sin, [](double x) { return std::sin(x); }},
    {"cos", math::cos, [](double x) { return std::cos(x); }},
    {"tanh", math::tanh, [](double x) { return std::tanh(x); }},
    {"erf", math::erf, [](double x) { return std::erf(x); }},
    {"sigmoid", math::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"silu", math::silu, [](double x) { return x / (1 + std::exp(-x)); }},
    {"relu", math::relu, [](double x) { return maximum(x, 0); }},
    // (1 + tanh(y)) / 2 cancels even in double precision.
    {"gelu_tanh", math::gelu_tanh,
     [](double x) {
       return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
    {"gelu_erf", math::gelu_erf, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2)); }},
    {"logical_not", math::logical_not, [](double x) { return double(x == 0); }},
};

struct Binary {
  const char* name;
  float (*op)(float, float);
  double (*truth)(double, double);
};
const Binary binary[] = {
    {"add", math::add, [](double a, double b) { return a + b; }},
    {"sub", math::sub, [](double a, double b) { return a - b; }},
    {"mul", math::mul, [](double a, double b) { return a * b; }},
    {"div", math::div, [](double a, double b) { return a / b; }},
    {"pow", math::pow, [](double a, double b) { return std::pow(a, b); }},
    {"maximum", math::maximum, maximum},
    {"minimum", math::minimum, minimum},
    {"equal", math::equal, [](double a, double b) { return double(a == b); }},
    {"not_equal", math::not_equal, [](double a, double b) { return double(a != b); }},
    {"less", math::less, [](double a, double b) { return double(a < b); }},
    {"less_equal", math::less_equal, [](double a, double b) { return double(a <= b); }},
    {"greater", math::greater, [](double a, double b) { return double(a > b); }},
    {"greater_equal", math::greater_equal, [](double a, double b) { return double(a >= b); }},
    {"logical_and", math::logical_and, [](double a, double b) { return double(a != 0 && b != 0); }},
    {"logical_or", math::logical_or, [](double a, double b) { return double(a != 0 || b != 0); }},
};

std::vector<float> values() {
  std::vector<float> all;
  for (std::size_t i = 0; i < 16; ++i) all.push_back(hostile(i));
  for (int i = -120; i <= 120; ++i) all.push_back(static_cast<float>(i) / 8);
  return all;
}

TEST_CASE("math: unary ops") {
  for (const Unary& u : unary)
    for (float x : values()) {
      const double want = u.truth(x), got = u.op(x);
      INFO(fmt::format("{}({}): {} instead of {}", u.name, x, got, want));
      // What rounding does to an exponent grows with it.
      const double error = 1e-6 * std::fabs(want) * (1 + std::fmin(std::fabs(x), 16)) + 1e-37;
      CHECK(is_close(Type::f32, got, want, error));
    }
}

TEST_CASE("math: binary ops, where and cast") {
  for (const Binary& b : binary)
    for (float x : values())
      for (float y : {0.f, 1.f, 2.f, -0.5f, 3e38f, 1e-40f, INFINITY, -INFINITY, NAN}) {
        const double want = b.truth(x, y), got = b.op(x, y);
        INFO(fmt::format("{}({}, {}): {} instead of {}", b.name, x, y, got, want));
        CHECK(is_close(Type::f32, got, want, 1e-6 * std::fabs(want)));
      }
  CHECK(math::where(1, 2, 3) == 2);
  CHECK(math::where(0, 2, 3) == 3);
  CHECK(math::where(-0.f, NAN, 3) == 3);
  CHECK(math::cast<f16>(1e-8f) == 0);
  CHECK(math::cast<bf16>(1 + 0x1p-8f) == 1);
  CHECK(math::cast<f16>(1e6f) == INFINITY);
}

// Every 97th position up to 131072 and the last ones, at the frequencies of a head with theta 10000
// and of rounder ones.
TEST_CASE("math: cosine and sine of large angles") {
  std::vector<float> frequencies = {1.f, 0.5f, 0.1f, 1e-3f, 0.78539816f};
  for (int i = 0; i < 64; i += 3)
    frequencies.push_back(static_cast<float>(std::pow(10000, -2.0 * i / 128)));
  double largest = 0, roughly = 0;
  const auto check = [&](int position) {
    for (float frequency : frequencies) {
      const double angle = double(position) * frequency;
      const auto error = [&](const float2& got) {
        return std::fmax(std::fabs(got.x - std::cos(angle)), std::fabs(got.y - std::sin(angle)));
      };
      const auto at = static_cast<float>(position);
      largest = std::fmax(largest, error(math::cos_sin(at, frequency)));
      roughly = std::fmax(roughly, error(math::cos_sin_roughly(at, frequency)));
    }
  };
  for (int position = 0; position <= 131072; position += 97) check(position);
  for (int position = 131000; position <= 131072; ++position) check(position);
  for (int position : {1, 2, 3, 524287, 999999, 1048575}) check(position);
  CHECK(largest < 1.5e-7);
  CHECK(roughly < 5e-7);  // here without what the GPU's cosine and sine add
  CHECK(math::cos_sin(0, 1).x == 1);
  CHECK(math::cos_sin(0, 1).y == 0);
}

}  // namespace
}  // namespace ac::kernels
