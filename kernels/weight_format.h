// How the numbers of a weight matrix are stored, beside the element type that they mean: what a
// kernel must know of it. src/base/weight_format.h says of each which tensors it is made of.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

enum class Codes : unsigned char {
  none,  // elements of the type itself
  e4m3,  // a byte each
  u8,    // a byte each: 0 to 255
  u4,    // two in a byte, the first one in its low bits: 0 to 15
};
constexpr const char* names_of(Codes) { return "Codes, none, e4m3, u8, u4"; }
constexpr int bits_of(Codes codes) { return codes == Codes::none ? 0 : codes == Codes::u4 ? 4 : 8; }
// A whole number is counted from a zero point: this one, where a format has none of its own.
constexpr bool is_whole(Codes codes) { return codes == Codes::u8 || codes == Codes::u4; }
constexpr int middle_of(Codes codes) { return is_whole(codes) ? 1 << (bits_of(codes) - 1) : 0; }

// An element is (code - zero point) * scale.
struct Format {
  Codes codes = Codes::none;
  Type scale = Type::f32;
  bool zeros = false;  // a zero point, one byte, for each scale
  // Elements that share a scale, fewer at the edges; 0: as many as there are.
  int rows = 1, columns = 0;
  AC_FIELDS(Format, codes, scale, zeros, rows, columns)

  constexpr bool operator==(const Format&) const = default;
  constexpr bool is_plain() const { return codes == Codes::none; }
  // Of a matrix of n rows of k elements.
  constexpr int row_of_scales(int row) const { return rows > 0 ? row / rows : 0; }
  constexpr int scales_of_row(int k) const { return columns > 0 ? divide_up(k, columns) : 1; }
  // Scales are as many as the bytes of a row make worth fetching ahead.
  constexpr bool many_scales() const { return columns > 0 && rows == 1; }
};

constexpr int code_bits(Format format, Type type) {
  return format.is_plain() ? 8 * bytes_of(type) : bits_of(format.codes);
}
// Of a matrix of n rows of k elements, with its scales and zero points.
constexpr double weight_bytes(Format format, Type type, double n, double k) {
  const double codes = n * k * code_bits(format, type) / 8;
  if (format.is_plain()) return codes;
  const double scales =
      (format.rows > 0 ? n / format.rows : 1) * (format.columns > 0 ? k / format.columns : 1);
  return codes + scales * (bytes_of(format.scale) + (format.zeros ? 1 : 0));
}

}  // namespace ac::kernels
