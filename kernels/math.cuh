// Arithmetic that kernel families share.
#pragma once

#include "kernels/plan.h"
#include "kernels/ptx.cuh"

namespace ac::kernels {

// The elementwise ops of the op table (src/ir/ops.def) on float32, by their names there: generated
// chains are made of these. A truth value is 0 or 1. NaN goes through maximum, minimum and relu.
namespace math {

AC_DEVICE bool is_nan(float x) { return x != x; }

// Through T and back: what storing in T would leave.
template <class T>
AC_DEVICE float cast(float x) {
  return to_float(from_float<T>(x));
}

AC_DEVICE float neg(float x) { return -x; }
AC_DEVICE float abs(float x) { return fabsf(x); }
AC_DEVICE float exp(float x) { return expf(x); }
AC_DEVICE float log(float x) { return logf(x); }
AC_DEVICE float sqrt(float x) { return sqrtf(x); }
AC_DEVICE float rsqrt(float x) { return rsqrtf(x); }
AC_DEVICE float reciprocal(float x) { return 1.f / x; }
AC_DEVICE float sin(float x) { return sinf(x); }
AC_DEVICE float cos(float x) { return cosf(x); }
AC_DEVICE float tanh(float x) { return tanhf(x); }
AC_DEVICE float erf(float x) { return erff(x); }
AC_DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
AC_DEVICE float silu(float x) { return x / (1.f + expf(-x)); }

// Neither form of gelu takes the difference of two near-equal numbers for negative x:
// (1 + tanh(y)) / 2 is 1 / (1 + exp(-2 y)), and 1 + erf(y) is erfc(-y).
AC_DEVICE float gelu_tanh_exponent(float x) {
  return 1.5957691216057308f * (x + 0.044715f * x * x * x);
}
AC_DEVICE float gelu_tanh(float x) { return x / (1.f + expf(-gelu_tanh_exponent(x))); }
AC_DEVICE float gelu_erf(float x) { return 0.5f * x * erfcf(-0.70710678118654752f * x); }

AC_DEVICE float add(float a, float b) { return a + b; }
AC_DEVICE float sub(float a, float b) { return a - b; }
AC_DEVICE float mul(float a, float b) { return a * b; }
AC_DEVICE float div(float a, float b) { return a / b; }
AC_DEVICE float pow(float a, float b) { return powf(a, b); }
AC_DEVICE float maximum(float a, float b) { return is_nan(a) || a > b ? a : b; }
AC_DEVICE float minimum(float a, float b) { return is_nan(a) || a < b ? a : b; }
AC_DEVICE float relu(float x) { return maximum(x, 0.f); }

AC_DEVICE float equal(float a, float b) { return a == b; }
AC_DEVICE float not_equal(float a, float b) { return a != b; }
AC_DEVICE float less(float a, float b) { return a < b; }
AC_DEVICE float less_equal(float a, float b) { return a <= b; }
AC_DEVICE float greater(float a, float b) { return a > b; }
AC_DEVICE float greater_equal(float a, float b) { return a >= b; }
AC_DEVICE float logical_not(float x) { return x == 0; }
AC_DEVICE float logical_and(float a, float b) { return a != 0 && b != 0; }
AC_DEVICE float logical_or(float a, float b) { return a != 0 || b != 0; }
AC_DEVICE float where(float condition, float yes, float no) { return condition != 0 ? yes : no; }

// For reductions.
struct Add {
  AC_DEVICE float operator()(float a, float b) const { return a + b; }
};
struct Maximum {
  AC_DEVICE float operator()(float a, float b) const { return maximum(a, b); }
};

// Cosine and sine of position * frequency, right to about 1e-7 for whole positions below 2^20 and
// frequencies up to 1. The float32 product alone may be wrong by 0.008 at position 131071: it is
// taken in two parts, and multiples of pi / 2 go off while both are there.
AC_DEVICE float2 cos_sin(float position, float frequency) {
  const float high = position * frequency, low = fmaf(position, frequency, -high);
  const float turns = rintf(high * 0.63661977236758134f);
  // pi / 2 in two parts; the first difference is exact.
  const float rest = fmaf(-turns, 1.57079637050628662f, high);
  const float x = rest + fmaf(turns, 4.371139006309477e-8f, low);
  const float z = x * x;
  // The polynomials of the Cephes library for [-pi / 4, pi / 4].
  const float s =
      fmaf(fmaf(fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f) * z, x, x);
  const float c =
      fmaf(fmaf(fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f),
           z * z, fmaf(-0.5f, z, 1.f));
  const int quarter = static_cast<int>(turns) & 3;
  const float cosine = quarter & 1 ? s : c, sine = quarter & 1 ? c : s;
  return make_float2(quarter == 1 || quarter == 2 ? -cosine : cosine, quarter >= 2 ? -sine : sine);
}

// As cos_sin, to about 1e-6 and with half its instructions: for outputs of 16 bits.
AC_DEVICE float2 cos_sin_roughly(float position, float frequency) {
  constexpr float of_pi = 0.15915493667125702f, of_pi_rest = 6.420638e-9f;  // 1 / (2 pi)
  constexpr float whole = 12582912;  // 1.5 * 2^23: to add it rounds to whole numbers
  const float high = position * frequency, low = fmaf(position, frequency, -high);
  const float turns = high * of_pi;
  const float rest = fmaf(high, of_pi_rest, fmaf(low, of_pi, fmaf(high, of_pi, -turns)));
  return cos_sin_fast((turns - ((turns + whole) - whole) + rest) * 6.2831853071795865f);
}

}  // namespace math

constexpr float log2_e = 1.4426950408889634f;
constexpr float no_score = -1e30f;  // below every attention score, and finite

// What a gate does to its partner; Pair::none has no gate.
template <Pair pair>
AC_DEVICE float activate(float gate) {
  static_assert(pair != Pair::none);
  if constexpr (pair == Pair::swiglu) return math::silu(gate);
  if constexpr (pair == Pair::geglu_erf) return math::gelu_erf(gate);
  return math::gelu_tanh(gate);
}

// Within (-cap, cap), if cap is above 0.
AC_DEVICE float soft_cap(float value, float cap) {
  return cap > 0 ? cap * math::tanh(value / cap) : value;
}

}  // namespace ac::kernels
