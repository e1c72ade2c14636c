// Weights in a format of codes for kernels on the host device.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "kernels/weight_format.h"
#include "tests/unit/elements.h"

namespace ac::kernels {

inline double e4m3_value(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15), fraction = static_cast<int>(code & 7);
  const double size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code & 128 ? -size : size;
}

inline double e2m1_value(unsigned code) {
  const double size[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -size[code & 7] : size[code & 7];
}
constexpr bool is_byte(ScaleType type) { return bytes_of(type) == 1; }
constexpr Type type_of(ScaleType type) {
  return type == ScaleType::f16 ? Type::f16 : type == ScaleType::bf16 ? Type::bf16 : Type::f32;
}

// A matrix of random codes, and its elements as a loop decodes them.
struct CodedWeights {
  Format f;
  std::vector<unsigned char> codes, zeros, byte_scales, high;
  Elements scales;  // others than bytes
  Elements outer;
  float global = 0.03f;
  int rows, k;

  static int across(const Format& f, int k) { return f.columns > 0 ? (k - 1) / f.columns + 1 : 1; }
  static int down(const Format& f, int rows) { return f.rows > 0 ? (rows - 1) / f.rows + 1 : 1; }
  CodedWeights(const Format& f, int rows, int k, std::mt19937& random)
      : f(f),
        scales(type_of(f.scale),
               static_cast<std::size_t>(down(f, rows) * across(f, k) * f.values_each())),
        outer(Type::f16,
              static_cast<std::size_t>(f.outer > 0 ? rows * (k / f.outer) * f.values_each() : 1)),
        rows(rows),
        k(k) {
    codes.resize(static_cast<std::size_t>(rows * k * bits_of(f.codes) / 8));
    for (unsigned char& code : codes) {
      code = static_cast<unsigned char>(random());
      if (f.codes == Codes::e4m3 && (code & 127) == 127) code ^= 1;  // no NaN
    }
    high.resize(static_cast<std::size_t>(rows * k * high_bits_of(f.codes) / 8));
    for (unsigned char& bits : high) bits = static_cast<unsigned char>(random());
    scales.fill(random, 0.01f, 0.05f);
    if (f.zeros) zeros.resize(scales.size());
    if (is_byte(f.scale)) byte_scales.resize(scales.size());
    outer.fill(random, 0.0005f, 0.002f);
    // E4M3 from 0.25 on, or powers of two from 2^-9 on, or all whole numbers.
    for (unsigned char& scale : byte_scales)
      scale = static_cast<unsigned char>(f.scale == ScaleType::e4m3   ? 40 + random() % 24
                                         : f.scale == ScaleType::e8m0 ? 118 + random() % 5
                                                                      : random());
    for (unsigned char& zero : zeros)
      zero = static_cast<unsigned char>(random() % (f.codes == Codes::u8 ? 256 : 17));
  }
  double get(int row, int column) const {
    const auto at = static_cast<std::size_t>(row * k + column);
    const auto group = static_cast<std::size_t>((f.rows > 0 ? row / f.rows : 0) * across(f, k) +
                                                (f.columns > 0 ? column / f.columns : 0));
    const auto each = static_cast<std::size_t>(f.values_each());
    const auto in_units = [&](std::size_t which) {
      const std::size_t i = group * each + which;
      const double value = is_byte(f.scale) ? byte_scale(i) : scales.get(i);
      if (f.outer == 0) return value;
      return value *
             outer.get(static_cast<std::size_t>(row * (k / f.outer) + column / f.outer) * each +
                       which);
    };
    double scale = in_units(0);
    if (f.global) scale *= double{global};
    if (f.codes == Codes::e4m3) return e4m3_value(codes[at]) * scale;
    int code = f.codes == Codes::u8 ? codes[at]
               : at % 2 == 0        ? codes[at / 2] & 15
                                    : codes[at / 2] >> 4;
    if (f.codes == Codes::u5) code += 16 * (high[at / 8] >> at % 8 & 1);
    if (f.codes == Codes::u6) code += 16 * (high[at / 4] >> 2 * (at % 4) & 3);
    if (f.codes == Codes::e2m1) return e2m1_value(static_cast<unsigned>(code)) * scale;
    if (f.minima) return code * scale - in_units(1);
    return (code - (f.zeros ? zeros[group] : middle())) * scale;
  }
  int middle() const {
    return f.codes == Codes::u8 ? 128 : f.codes == Codes::u6 ? 32 : f.codes == Codes::u5 ? 16 : 8;
  }
  double byte_scale(std::size_t group) const {
    if (f.scale == ScaleType::i8) return static_cast<signed char>(byte_scales[group]);
    return f.scale == ScaleType::e4m3 ? e4m3_value(byte_scales[group])
                                      : std::ldexp(1.0, byte_scales[group] - 127);
  }
  // Of one matrix of what a kernel is launched with.
  template <class Params>
  void point(Params& p, int matrix) {
    p.scales[matrix] = is_byte(f.scale) ? byte_scales.data() : scales.at(0);
    p.zeros[matrix] = zeros.data();
    p.globals[matrix] = &global;
    p.outer[matrix] = outer.at(0);
    p.high[matrix] = high.data();
  }
};

}  // namespace ac::kernels
