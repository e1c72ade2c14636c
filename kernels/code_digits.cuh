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
// Codes as they are stored, four bytes without a sign: a byte is one code, or 16 times the second
// of two and the first. Bytes times the input of the second codes, and first codes times
// beside_stored() are 16 times the codes' products. Both take in a zero point of 0: the input's sum
// has to be taken away from that.
AC_DEVICE unsigned first_codes(unsigned word) { return word & 0x0f0f0f0fu; }
AC_DEVICE unsigned beside_stored(unsigned first, unsigned second) { return first * 16 - second; }
// Multiplies bytes without a sign (a) by signed bytes (b): c[16,8] += a[16,32] * b[32,8].
#ifdef AC_HOST_DEVICE
inline void mma_stored(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  unsigned highest[4];  // bits, which stand for 256 more than they do in signed bytes
  for (int i = 0; i < 4; ++i) highest[i] = a[i] >> 7 & 0x01010101u;
  int more[4] = {};
  mma_16x8x32(c, a, b);
  mma_16x8x32(more, highest, b);
  for (int i = 0; i < 4; ++i) c[i] += 256 * more[i];
}
#else
AC_DEVICE void mma_stored(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
// e2m1 as bytes, twice what those stand for that are not below 0, and 0 for all others: codes 0 to
// 3 of a word, and its last four. A code's sign asks `permuted` for its byte's highest bits, which
// are 0.
constexpr int lifted_e2m1 = 2;
AC_DEVICE void bytes_of_e2m1(unsigned word, unsigned& first, unsigned& second) {
  first = permuted(0x03020100u, 0x0c080604u, word);
  second = permuted(0x03020100u, 0x0c080604u, word >> 16);
}
// What they stand for, with the other sign.
AC_DEVICE unsigned negated_e2m1(unsigned word) { return word ^ 0x88888888u; }
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
// A whole number, with its sign: what is not a number gives any.
AC_DEVICE unsigned in_whole_units(float x, const DigitUnit& of) {
  constexpr float whole = 0x1.8p23f;  // whose last bit is 1
  return __float_as_uint(fmaf(x * of.lift, of.scale, whole)) - 0x4b400000u;
}
// Three digits of a whole number, the lowest in the lowest byte.
AC_DEVICE unsigned digits_of(unsigned x) { return (x + 0x808080u) ^ 0x808080u; }
// Lowest digits of two numbers, then their next ones.
AC_DEVICE unsigned two_digits(unsigned first, unsigned second) {
  return __byte_perm(digits_of(first), digits_of(second), 0x5140);
}
AC_DEVICE unsigned sum_of_warp(unsigned x) {
#if !defined(AC_HOST_DEVICE) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(full_warp, x);
#else
  AC_UNROLL
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(full_warp, x, d);
  return x;
#endif
}

}  // namespace ac::kernels
