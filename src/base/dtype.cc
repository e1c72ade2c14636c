#include "base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace ac {
namespace {

struct Names {
  DType dtype;
  std::size_t bytes;
  std::string_view short_name, torch_name;
};
constexpr std::array<Names, 6> kNames{{
    {DType::f32, 4, "f32", "float32"},
    {DType::f16, 2, "f16", "float16"},
    {DType::bf16, 2, "bf16", "bfloat16"},
    {DType::i32, 4, "i32", "int32"},
    {DType::i64, 8, "i64", "int64"},
    {DType::boolean, 1, "bool", "bool"},
}};
const Names& names(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

template <class T>
T read_as(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31)
    magnitude = fraction ? std::nan("") : INFINITY;
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Rounds to `bits` significant bits with the smallest exponent of the format; ties to even.
double round_binary(double value, int significant_bits, int min_exponent, double max_finite) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const int unit = exponent - (significant_bits - 1);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(rounded) > max_finite ? std::copysign(INFINITY, value) : rounded;
}

// `value` is one of the format: this only moves its bits.
std::uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7e00;
  if (magnitude == 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7c00);
  const std::uint32_t half = magnitude < 0x38800000  // below 2^-14: whole units of 2^-24
                                 ? static_cast<std::uint32_t>(std::fabs(value) * 0x1p24f)
                                 : (magnitude - 0x38000000) >> 13;
  return static_cast<std::uint16_t>(sign | half);
}

template <class T>
void put(T value, void* to) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

std::size_t bytes_of(DType dtype) { return names(dtype).bytes; }
bool is_float(DType dtype) { return dtype <= DType::bf16; }
std::string_view short_name(DType dtype) { return names(dtype).short_name; }
std::string_view torch_name(DType dtype) { return names(dtype).torch_name; }

std::optional<DType> dtype_from_short_name(std::string_view name) {
  for (const Names& entry : kNames)
    if (entry.short_name == name) return entry.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_torch_name(std::string_view name) {
  for (const Names& entry : kNames)
    if (entry.torch_name == name) return entry.dtype;
  return std::nullopt;
}

double load_element(DType dtype, const void* element) {
  switch (dtype) {
    case DType::f32:
      return read_as<float>(element);
    case DType::f16:
      return half_to_double(read_as<std::uint16_t>(element));
    case DType::bf16:
      return std::bit_cast<float>(std::uint32_t{read_as<std::uint16_t>(element)} << 16);
    case DType::i32:
      return read_as<std::int32_t>(element);
    case DType::i64:
      return static_cast<double>(read_as<std::int64_t>(element));
    case DType::boolean:
      return read_as<std::uint8_t>(element) != 0;
  }
  AC_UNREACHABLE();
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return static_cast<float>(value);
    case DType::f16:
      return round_binary(value, 11, -14, 65504.0);
    case DType::bf16:
      return round_binary(value, 8, -126, 0x1.fep127);
    case DType::i32:
    case DType::i64:
      return std::trunc(value);
    case DType::boolean:
      return value != 0;
  }
  AC_UNREACHABLE();
}

void store_element(DType dtype, double value, void* to) {
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case DType::f32:
      return put(single, to);
    case DType::f16:
      return put(half_bits(static_cast<float>(round_to(dtype, single))), to);
    case DType::bf16:
      return put(
          static_cast<std::uint16_t>(
              std::bit_cast<std::uint32_t>(static_cast<float>(round_to(dtype, single))) >> 16),
          to);
    case DType::i32:
      return put(static_cast<std::int32_t>(value), to);
    case DType::i64:
      return put(static_cast<std::int64_t>(value), to);
    case DType::boolean:
      return put(static_cast<std::uint8_t>(value != 0), to);
  }
  AC_UNREACHABLE();
}

}  // namespace ac
