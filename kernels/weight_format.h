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
  e2m1,  // the same of floats: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and below 0 the same
  // Their low 4 bits are as those of u4, the others in a plane of their own, the first code's in
  // the lowest bits of a byte.
  u5,
  u6,
};
constexpr const char* names_of(Codes) { return "Codes, none, e4m3, u8, u4, e2m1, u5, u6"; }
// In the plane that all codes have, and in the other one.
constexpr int bits_of(Codes codes) {
  return codes == Codes::none ? 0 : codes == Codes::e4m3 || codes == Codes::u8 ? 8 : 4;
}
constexpr int high_bits_of(Codes codes) {
  return codes == Codes::u5 ? 1 : codes == Codes::u6 ? 2 : 0;
}
// A whole number is counted from a zero point: this one, where a format has none of its own.
constexpr bool is_whole(Codes codes) {
  return codes == Codes::u8 || codes == Codes::u4 || high_bits_of(codes) > 0;
}
constexpr bool is_small_float(Codes codes) { return bits_of(codes) == 4 && !is_whole(codes); }
constexpr int middle_of(Codes codes) {
  return is_whole(codes) ? 1 << (bits_of(codes) + high_bits_of(codes) - 1) : 0;
}

enum class ScaleType : unsigned char {
  f32,
  f16,
  bf16,
  e4m3,
  e8m0,  // a power of two: its exponent + 127
  i8,
};
constexpr const char* names_of(ScaleType) { return "ScaleType, f32, f16, bf16, e4m3, e8m0, i8"; }
constexpr int bytes_of(ScaleType type) {
  return type == ScaleType::f32 ? 4 : type <= ScaleType::bf16 ? 2 : 1;
}
// Whether elements of the type hold it without rounding.
constexpr bool is_exact_in(ScaleType scale, Type type) {
  if (type == Type::f32) return true;
  if (scale == ScaleType::e4m3 || scale == ScaleType::i8) return true;
  return type == Type::f16 ? scale == ScaleType::f16
                           : scale == ScaleType::bf16 || scale == ScaleType::e8m0;
}

// An element is (code - zero point) * scale, times the matrix's own scale; or with minima,
// code * scale - minimum.
struct Format {
  Codes codes = Codes::none;
  ScaleType scale = ScaleType::f32;
  bool zeros = false;  // a zero point, one byte, for each scale
  // Elements that share a scale, fewer at the edges; 0: as many as there are.
  int rows = 1, columns = 0;
  bool global = false;  // a scale of the whole matrix besides, a float
  bool listed = false;  // which group a column is of is listed, and no column has a neighbour's
  // Columns of a row whose scales are multiples of one more, a float16; 0: there is none.
  int outer = 0;
  bool minima = false;  // behind each scale, be it an outer one, is the same of its minimum
  AC_FIELDS(Format, codes, scale, zeros, rows, columns, global, listed, outer, minima)

  constexpr bool operator==(const Format&) const = default;
  constexpr bool is_plain() const { return codes == Codes::none; }
  // Of a matrix of n rows of k elements.
  constexpr int row_of_scales(int row) const { return rows > 0 ? row / rows : 0; }
  constexpr int scales_of_row(int k) const { return columns > 0 ? divide_up(k, columns) : 1; }
  // Values of a group: its scale, and its minimum.
  constexpr int values_each() const { return minima ? 2 : 1; }
  // The zero point, where none are stored.
  constexpr int usual_zero() const { return minima ? 0 : middle_of(codes); }
  // Scales of `count` elements of a row that begin at a multiple of it; 0: they are not whole.
  constexpr int scales_of(int count) const {
    if (listed) return 0;
    if (columns % count == 0) return 1;
    return count % columns == 0 ? count / columns : 0;
  }
  // Groups lie in one outer scale each, row by row.
  constexpr bool has_whole_outer() const {
    return rows == 1 && columns > 0 && outer % columns == 0 && !zeros && !global && !listed;
  }
  // Scales are as many as the bytes of a row make worth fetching ahead.
  constexpr bool many_scales() const { return columns > 0 && rows == 1; }
};

// In the plane that vectors of 16 bytes are of.
constexpr int code_bits(Format format, Type type) {
  return format.is_plain() ? 8 * bytes_of(type) : bits_of(format.codes);
}
// Of a matrix of n rows of k elements, with its scales and zero points.
constexpr double weight_bytes(Format format, Type type, double n, double k) {
  const double codes = n * k * (code_bits(format, type) + high_bits_of(format.codes)) / 8;
  if (format.is_plain()) return codes;
  const double scales =
      (format.rows > 0 ? n / format.rows : 1) * (format.columns > 0 ? k / format.columns : 1);
  const double outer = format.outer > 0 ? n * k / format.outer * 2 : 0;
  return codes + (scales * bytes_of(format.scale) + outer) * format.values_each() +
         (format.zeros ? scales : 0) + (format.global ? 4 : 0) + (format.listed ? 4 * k : 0);
}

}  // namespace ac::kernels
