#include "base/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/elements.h"
#include "base/error.h"
#include "base/half.h"

namespace ac {
namespace {

struct Names {
  DType dtype;
  std::size_t bytes;
  std::string_view short_name, torch_name;
};
constexpr std::array<Names, 10> kNames{{
    {DType::f32, 4, "f32", "float32"},
    {DType::f16, 2, "f16", "float16"},
    {DType::bf16, 2, "bf16", "bfloat16"},
    {DType::i32, 4, "i32", "int32"},
    {DType::i64, 8, "i64", "int64"},
    {DType::boolean, 1, "bool", "bool"},
    {DType::f8e4m3, 1, "f8e4m3", "float8_e4m3fn"},
    {DType::u8, 1, "u8", "uint8"},
    {DType::i8, 1, "i8", "int8"},
    {DType::f8e8m0, 1, "f8e8m0", "float8_e8m0fnu"},
}};
const Names& names(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

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

std::uint16_t bfloat_bits(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// E4M3 has no infinity: 0x7f and 0xff are NaN, and 0x7e is the largest number, 448.
double e4m3_value(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 15 && mantissa == 7 ? NAN
                           : exponent == 0                 ? std::ldexp(mantissa, -9)
                                           : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}
constexpr std::size_t kCodes = 256;
const std::array<double, kCodes>& e4m3_values() {
  static const std::array<double, kCodes> all = [] {
    std::array<double, kCodes> values;
    for (std::size_t code = 0; code < kCodes; ++code)
      values[code] = e4m3_value(static_cast<std::uint8_t>(code));
    return values;
  }();
  return all;
}

// The code of the nearest number; of what is too large, of the largest, as in PyTorch. A trial
// draws so many that they are rounded in whole numbers.
std::uint8_t nearest_e4m3(double value) {
  constexpr std::uint64_t kSign = 1ull << 63, kLeastNormal = std::bit_cast<std::uint64_t>(0x1p-6);
  constexpr int kDropped = 49;  // bits of a double's fraction, of which 3 stay
  constexpr std::uint64_t kBias = std::uint64_t{1023 - 7} << 3;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int sign = bits & kSign ? 0x80 : 0;
  const std::uint64_t magnitude = bits & ~kSign;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7f);
  if (magnitude < kLeastNormal)  // whole units of 2^-9
    return static_cast<std::uint8_t>(sign | int(std::fabs(value) * 0x1p9 + 0x1p52 - 0x1p52));
  const std::uint64_t half = (1ull << (kDropped - 1)) - 1, odd = magnitude >> kDropped & 1;
  const std::uint64_t code = ((magnitude + half + odd) >> kDropped) - kBias;
  constexpr std::uint64_t kLargest = 0x7e;
  return static_cast<std::uint8_t>(sign | int(std::min(code, kLargest)));
}

// E8M0 is a power of two: its exponent + 127. 255 is NaN.
constexpr int kBiasE8m0 = 127, kNanE8m0 = 255;

double e8m0_value(std::uint8_t code) {
  return code == kNanE8m0 ? NAN : std::ldexp(1.0, code - kBiasE8m0);
}

// The nearest power of two, of two as near the larger one; of what is not above 0, the least.
double round_to_e8m0(double value) {
  if (std::isnan(value)) return value;
  const double least = e8m0_value(0), most = e8m0_value(kNanE8m0 - 1);
  if (!(value > least)) return least;
  if (value >= most) return most;
  const double below = std::ldexp(1.0, std::ilogb(value));
  return value < 1.5 * below ? below : 2 * below;
}

// `value` is one of the format.
std::uint8_t e8m0_code(double value) {
  return static_cast<std::uint8_t>(std::isnan(value) ? kNanE8m0 : std::ilogb(value) + kBiasE8m0);
}

// Calls `f` with how an element lies in memory, as a T, becomes a double, and the other way.
template <class F>
void with_format(DType dtype, const F& f) {
  const auto plain = [&]<class T>(T) {
    f(
        T{}, [](T stored) { return static_cast<double>(stored); },
        [](double value) { return static_cast<T>(value); });
  };
  switch (dtype) {
    case DType::f32:
      return plain(float{});
    case DType::f16:
      return f(
          std::uint16_t{}, [](std::uint16_t bits) { return double{half_to_float(bits)}; },
          [](double value) { return half_bits(round_to_half(static_cast<float>(value))); });
    case DType::bf16:
      return f(
          std::uint16_t{},
          [](std::uint16_t bits) {
            return double{std::bit_cast<float>(std::uint32_t{bits} << 16)};
          },
          [](double value) { return bfloat_bits(round_to_bfloat(static_cast<float>(value))); });
    case DType::i32:
      return plain(std::int32_t{});
    case DType::i64:
      return plain(std::int64_t{});
    case DType::boolean:
      return f(
          std::uint8_t{}, [](std::uint8_t byte) { return byte != 0 ? 1.0 : 0.0; },
          [](double value) { return static_cast<std::uint8_t>(value != 0); });
    case DType::f8e4m3:
      return f(
          std::uint8_t{}, [&all = e4m3_values()](std::uint8_t code) { return all[code]; },
          nearest_e4m3);
    case DType::f8e8m0:
      return f(std::uint8_t{}, e8m0_value,
               [](double value) { return e8m0_code(round_to_e8m0(value)); });
    case DType::u8:
      return plain(std::uint8_t{});
    case DType::i8:
      return plain(std::int8_t{});
  }
  AC_UNREACHABLE();
}

}  // namespace

std::size_t bytes_of(DType dtype) { return names(dtype).bytes; }
bool is_float(DType dtype) { return dtype <= DType::bf16; }
bool is_code(DType dtype) { return dtype >= DType::f8e4m3; }
bool has_nan(DType dtype) {
  return is_float(dtype) || dtype == DType::f8e4m3 || dtype == DType::f8e8m0;
}
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
  double value;
  load_elements(dtype, element, {&value, 1});
  return value;
}

void load_elements(DType dtype, const void* from, std::span<double> elements) {
  with_format(dtype, [&]<class T>(T, const auto& load, const auto&) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      T stored;
      std::memcpy(&stored, bytes + i * sizeof stored, sizeof stored);
      elements[i] = load(stored);
    }
  });
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
    case DType::u8:
    case DType::i8:
      return std::trunc(value);
    case DType::boolean:
      return value != 0;
    case DType::f8e4m3:
      return e4m3_values()[nearest_e4m3(value)];
    case DType::f8e8m0:
      return round_to_e8m0(value);
  }
  AC_UNREACHABLE();
}

void store_element(DType dtype, double value, void* to) { store_elements(dtype, {&value, 1}, to); }

void store_elements(DType dtype, std::span<const double> elements, void* to) {
  with_format(dtype, [&]<class T>(T, const auto&, const auto& store) {
    auto* const bytes = static_cast<std::byte*>(to);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const T stored = store(elements[i]);
      std::memcpy(bytes + i * sizeof stored, &stored, sizeof stored);
    }
  });
}

}  // namespace ac
