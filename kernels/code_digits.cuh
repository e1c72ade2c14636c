// Products of codes by tensor cores. Of whole codes and e2m1, in whole numbers: an input becomes
// digits, two signed bytes of a whole number, on a power of two that a warp's values share. Tensor
// cores multiply bytes and add exactly, so that no code has to become a floating-point number. The
// step between numbers is at most 1 / 8192 of the largest value: of 256 values, rounding to it errs
// less in all than rounding to bfloat16. Of e4m3, in float16, which has all its values: an input is
// on such a power of two there, too, so that none is too large.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

// (x & mask) ^ flipped, in one instruction: constants in it would make two.
AC_DEVICE unsigned masked_and_flipped(unsigned x, unsigned mask, unsigned flipped) {
#ifdef AC_HOST_DEVICE
  return (x & mask) ^ flipped;
#else
  unsigned out;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(x), "r"(mask), "r"(flipped));
  return out;
#endif
}
// Bytes of low and high, which a selector's 4 lowest digits name; a digit of 8 or more asks for its
// byte's highest bit, 8 times.
AC_DEVICE unsigned permuted(unsigned low, unsigned high, unsigned selector) {
#ifdef AC_HOST_DEVICE
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = selector >> 4 * i & 15;
    unsigned byte = (digit % 8 < 4 ? low : high) >> digit % 4 * 8 & 255;
    if (digit >= 8) byte = byte >> 7 ? 255 : 0;
    out |= byte << 8 * i;
  }
  return out;
#else
  unsigned out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
  return out;
#endif
}
// Codes of 4 bits around a zero point of 8, as signed bytes: 16 times what they stand for. Of a
// word, codes 0, 2, 4 and 6, and the others.
constexpr int lifted_codes = 16;
AC_DEVICE unsigned odd_codes(unsigned word) {
  return masked_and_flipped(word, 0xf0f0f0f0u, 0x80808080u);
}
AC_DEVICE unsigned even_codes(unsigned word) { return odd_codes(word << 4); }
// Codes of 8 bits around a zero point of 128.
AC_DEVICE unsigned signed_bytes(unsigned word) { return word ^ 0x80808080u; }
// e2m1 as signed bytes, twice what they stand for. Of a word, codes 0 to 3, and the others.
constexpr int lifted_e2m1 = 2;
AC_DEVICE void bytes_of_e2m1(unsigned word, unsigned& first, unsigned& second) {
  const unsigned sizes = word & 0x77777777u;
  const unsigned even_high = word << 4;  // whose bytes' highest bits are those of codes 0, 2, 4, 6
  const auto four = [&](unsigned which, unsigned signs_of) {
    const unsigned positive = permuted(0x03020100u, 0x0c080604u, which);
    const unsigned negative = permuted(0xfdfeff00u, 0xf4f8fafcu, which);
    const unsigned signs = permuted(even_high, word, signs_of);
    return (positive & ~signs) | (negative & signs);
  };
  first = four(sizes, 0xd9c8u), second = four(sizes >> 16, 0xfbeau);
}
// The first two e4m3 of a word as float16, and the others.
struct HalfPairs {
  unsigned first, second;
};
AC_DEVICE HalfPairs halves_of_e4m3(unsigned word) {
#if defined(AC_HOST_DEVICE) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 890
  const float2 a = unpack_e4m3_pair(word), b = unpack_e4m3_pair(word >> 16);
  return {pack_pair<f16>(a.x, a.y), pack_pair<f16>(b.x, b.y)};
#else
  HalfPairs out;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}"
      : "=r"(out.first), "=r"(out.second)
      : "r"(word));
  return out;
#endif
}

// The power of two of digits, for values up to one that has these bits. A value is scaled twice,
// and so is a sum of digits, as the power may be too small for a float. Not a number where the
// largest value is none.
struct DigitUnit {
  float lift, scale;  // of a value
  float unit, lower;  // of a sum
};
AC_DEVICE DigitUnit digit_unit(unsigned largest) {
  const unsigned stored = largest >> 23;
  const bool is_small = stored < 64;
  const unsigned exponent = is_small ? stored + 64 : stored;  // once it is lifted
  return {is_small ? 0x1p64f : 1, __uint_as_float((267 - exponent) << 23),
          __uint_as_float(stored == 255 ? 0x7fc00000u : (exponent - 13) << 23),
          is_small ? 0x1p-64f : 1};
}
AC_DEVICE float in_units(float x, const DigitUnit& of) { return x * of.lift * of.scale; }
// The digits of x, the lowest in the lowest byte.
AC_DEVICE unsigned digits_of(float x, const DigitUnit& of) {
  constexpr float whole = 0x1.8p23f;  // whose last bit is 1
  return (__float_as_uint(fmaf(x * of.lift, of.scale, whole)) - (0x4b400000u - 0x8080u)) ^ 0x8080u;
}
// The sum of four values, of the words of their digits.
AC_DEVICE int sum_of_digits(unsigned low, unsigned high) {
  constexpr int ones = 0x01010101;
  return __dp4a(static_cast<int>(high), ones, 0) * 256 + __dp4a(static_cast<int>(low), ones, 0);
}
AC_DEVICE int sum_of_warp(int x) {
#if !defined(AC_HOST_DEVICE) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(full_warp, x);
#else
  AC_UNROLL
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(full_warp, x, d);
  return x;
#endif
}
// The words of each digit of four values.
AC_DEVICE void digit_words(const unsigned (&x)[4], unsigned& low, unsigned& high) {
  const unsigned a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[2], x[3], 0x5140);
  low = __byte_perm(a, b, 0x5410), high = __byte_perm(a, b, 0x7632);
}

}  // namespace ac::kernels
