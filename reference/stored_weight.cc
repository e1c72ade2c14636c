#include "reference/stored_weight.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ac {
namespace {

constexpr std::int64_t kBlock = 256;  // elements converted at a time, through the first-level cache

std::uint16_t load_u16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Drops the low `bits` bits of a float's bits; ties to even.
std::uint32_t round_bits(std::uint32_t value, int bits) {
  const std::uint32_t unit = 1u << bits;
  return (value + unit / 2 - 1 + ((value >> bits) & 1)) & ~(unit - 1);
}

// Every float format is exact in a float.
void widen(DType dtype, const std::byte* from, std::int64_t count, float* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
  } else if (dtype == DType::f16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = half_to_float(load_u16(from + 2 * i));
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = std::bit_cast<float>(std::uint32_t{load_u16(from + 2 * i)} << 16);
  }
}

}  // namespace

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  // Exponents move from bias 15 to bias 127; those of infinity and NaN move twice as far.
  const std::uint32_t moved = magnitude + ((magnitude >= (31u << 23) ? 224u : 112u) << 23);
  const float tiny = static_cast<float>(static_cast<std::int32_t>(half & 0x3ffu)) * 0x1p-24f;
  const std::uint32_t bits = magnitude < (1u << 23) ? std::bit_cast<std::uint32_t>(tiny) : moved;
  return std::bit_cast<float>(bits | sign);
}

float round_to_half(float value) {
  const float magnitude = std::fabs(value);
  if (!(magnitude <= INFINITY)) return value;
  // Below the smallest normal half, one unit is 2^-24, which is also one unit of a float near 0.5.
  const float rounded =
      magnitude < 0x1p-14f
          ? (magnitude + 0.5f) - 0.5f
          : std::bit_cast<float>(round_bits(std::bit_cast<std::uint32_t>(magnitude), 13));
  return std::copysign(rounded > 65504.0f ? INFINITY : rounded, value);
}

float round_to_bfloat(float value) {
  if (!(std::fabs(value) <= INFINITY)) return value;
  return std::bit_cast<float>(round_bits(std::bit_cast<std::uint32_t>(value), 16));
}

void StoredWeight::read(std::int64_t first, std::int64_t count, double* out) const {
  const std::byte* from = view_.data + static_cast<std::size_t>(first) * bytes_of(view_.dtype);
  if (!is_float(view_.dtype)) {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] =
          load_element(view_.dtype, from + static_cast<std::size_t>(i) * bytes_of(view_.dtype));
    return;
  }
  const bool narrower = dtype_ != view_.dtype && dtype_ != DType::f32;
  float block[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t size = std::min(kBlock, count - at);
    widen(view_.dtype, from + static_cast<std::size_t>(at) * bytes_of(view_.dtype), size, block);
    if (narrower)
      for (std::int64_t i = 0; i < size; ++i)
        block[i] = dtype_ == DType::f16 ? round_to_half(block[i]) : round_to_bfloat(block[i]);
    for (std::int64_t i = 0; i < size; ++i) out[at + i] = block[i];
  }
}

Value StoredWeight::whole() const {
  Value value{dtype_, view_.shape, {}};
  value.data.resize(static_cast<std::size_t>(element_count(value.shape)));
  read(0, static_cast<std::int64_t>(value.data.size()), value.data.data());
  return value;
}

}  // namespace ac
