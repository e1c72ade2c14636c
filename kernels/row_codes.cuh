// Rows as codes of FP8; row_codes.h has the rule.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/row_codes.h"

namespace ac::kernels {

// The nearest code, ties to even; what is too large is the largest.
AC_DEVICE e4m3 nearest_e4m3(float x) {
#if !defined(AC_HOST_DEVICE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(x));
  return {static_cast<unsigned char>(pair)};
#else
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  if (x != x) return {static_cast<unsigned char>(sign | 0x7f)};
  const float magnitude = fminf(fabsf(x), most_e4m3);
  const unsigned bits = __float_as_uint(magnitude);
  // Numbers without a leading 1 are whole multiples of 2^-9: the sum rounds there.
  const unsigned code = magnitude < 0x1p-6f
                            ? __float_as_uint(magnitude + 0x1p14f) - __float_as_uint(0x1p14f)
                            : (bits - (120u << 23) + 0x7ffffu + (bits >> 20 & 1)) >> 20;
  return {static_cast<unsigned char>(sign | code)};
#endif
}

// The bits of magnitudes are in the order of the magnitudes, and those of NaN come last.
AC_DEVICE unsigned magnitude_bits(float x) { return __float_as_uint(fabsf(x)); }
// The scale of a row whose largest magnitude has these bits.
AC_DEVICE float row_scale(unsigned largest_bits) {
  const float scale = __uint_as_float(largest_bits) * (1 / most_e4m3);
  return scale < least_row_scale ? least_row_scale : scale;
}
// What elements are multiplied with before they are rounded to codes.
AC_DEVICE float inverse_scale(float scale) { return __fdividef(1, scale); }

// The codes of a word as elements of a 16-bit type. Their bits are numbers of the type with another
// exponent, which also those without a leading 1 are; the product makes it right.
template <class T>
struct WidenedCode;
template <>
struct WidenedCode<f16> {
  static constexpr int shift = 1;
  static constexpr float factor = 0x1p8f;
};
template <>
struct WidenedCode<bf16> {
  static constexpr int shift = 4;
  static constexpr float factor = 0x1p120f;
};
template <class T>
AC_DEVICE uint2 widen_codes(unsigned word) {
  using Widened = WidenedCode<T>;
  const unsigned factor = from_float<T>(Widened::factor).bits * 0x10001u;
  const auto widen = [&](unsigned pair) {  // in the upper byte of each half
    const unsigned magnitude = (pair & 0x7f007f00u) >> Widened::shift;
    return multiply_pairs<T>((pair & 0x80008000u) | magnitude, factor);
  };
  return make_uint2(widen(__byte_perm(word, 0, 0x1404)), widen(__byte_perm(word, 0, 0x3424)));
}
template <class T>
AC_DEVICE uint4 widen_codes(uint2 words) {
  const uint2 low = widen_codes<T>(words.x), high = widen_codes<T>(words.y);
  return make_uint4(low.x, low.y, high.x, high.y);
}

template <class T, bool fp8>
struct CachedAs {
  using type = T;
};
template <class T>
struct CachedAs<T, true> {
  using type = e4m3;
};
template <class T, bool fp8>
using CachedElement = typename CachedAs<T, fp8>::type;

// Keys or values of a head: [capacity, head_dim], with a scale for each slot if they are codes.
template <class T, bool fp8>
struct CachedRows {
  using Piece = uint4;  // 8 elements
  T* rows;
  AC_DEVICE CachedRows(void* all, float*, long long first_slot, int dim)
      : rows(static_cast<T*>(all) + first_slot * dim) {}
};
template <class T>
struct CachedRows<T, true> {
  using Piece = uint2;
  e4m3* rows;
  float* scales;
  AC_DEVICE CachedRows(void* all, float* all_scales, long long first_slot, int dim)
      : rows(static_cast<e4m3*>(all) + first_slot * dim), scales(all_scales + first_slot) {}
};

}  // namespace ac::kernels
