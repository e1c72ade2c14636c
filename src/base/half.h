// Halves and bfloats of floats, without branches or calls: loops over them can be vectorised.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace ac {

// Drops the low `bits` bits of a float's bits; ties to even.
inline std::uint32_t round_bits(std::uint32_t value, int bits) {
  const std::uint32_t unit = 1u << bits;
  return (value + unit / 2 - 1 + ((value >> bits) & 1)) & ~(unit - 1);
}

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  // Exponents move from bias 15 to bias 127; those of infinity and NaN move twice as far.
  const std::uint32_t moved = magnitude + ((magnitude >= (31u << 23) ? 224u : 112u) << 23);
  const float tiny = static_cast<float>(static_cast<std::int32_t>(half & 0x3ffu)) * 0x1p-24f;
  // All ones when below the first normal number. Arithmetic, because GCC makes a branch of `?:`.
  const std::uint32_t subnormal = 0u - ((magnitude - (1u << 23)) >> 31);
  const std::uint32_t bits =
      (std::bit_cast<std::uint32_t>(tiny) & subnormal) | (moved & ~subnormal);
  return std::bit_cast<float>(bits | sign);
}

inline float round_to_half(float value) {
  const float magnitude = std::fabs(value);
  if (!(magnitude <= INFINITY)) return value;
  // Below the smallest normal half, one unit is 2^-24, which is also one unit of a float near 0.5.
  const float rounded =
      magnitude < 0x1p-14f
          ? (magnitude + 0.5f) - 0.5f
          : std::bit_cast<float>(round_bits(std::bit_cast<std::uint32_t>(magnitude), 13));
  return std::copysign(rounded > 65504.0f ? INFINITY : rounded, value);
}

inline float round_to_bfloat(float value) {
  if (!(std::fabs(value) <= INFINITY)) return value;
  return std::bit_cast<float>(round_bits(std::bit_cast<std::uint32_t>(value), 16));
}

// To the dtype by way of float32, as a program that computes in float32 stores its results. What is
// not a float is left as it is.
inline double round_by_float(DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::f16) return round_to_half(single);
  if (dtype == DType::bf16) return round_to_bfloat(single);
  return dtype == DType::f32 ? single : value;
}

}  // namespace ac
