// How a kernel reads weights of each format (weight_format.h): what is in memory, and the elements
// of a 16-byte vector of it. The elements of a word share a scale, and mostly those of a vector do.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/weight_format.h"

namespace ac::kernels {

template <Format format, Type type>
struct WeightReader;

template <Format format, Type type>
  requires(format.is_plain())
struct WeightReader<format, type> {
  using Stored = Scalar<type>;
  static constexpr bool scaled = false;
  static constexpr int vector = vector_size<Stored>;
  AC_DEVICE static void unpack(uint4 v, float (&out)[vector]) { unpack_as<Stored>(v, out); }
};

// What all formats of codes have: `unpack` gives the elements of one word of a vector, each less
// the zero point.
template <Format format>
struct CodeReader {
  static constexpr bool scaled = true;
  static constexpr int vector = 128 / bits_of(format.codes), of_word = vector / 4;
};

template <Format format, Type type>
  requires(format.codes == Codes::e4m3)
struct WeightReader<format, type> : CodeReader<format> {
  using Stored = e4m3;
  AC_DEVICE static void unpack(unsigned word, float, float (&out)[4]) {
    const float2 low = unpack_e4m3_pair(word), high = unpack_e4m3_pair(word >> 16);
    out[0] = low.x, out[1] = low.y, out[2] = high.x, out[3] = high.y;
  }
  AC_DEVICE static float element(const Stored* row, int i, float) { return to_float(row[i]); }
};

// The whole number in the bits `bit` and following of a word, less the zero point. One instruction
// makes it a float: its bits become the last ones of a power of two, which then is taken away too.
template <int bit, int bits>
AC_DEVICE float whole_at(unsigned word, float zero) {
  static_assert(bit + bits <= 23);
  constexpr unsigned mask = ((1u << bits) - 1) << bit, power = (150u - bit) << 23;
  return __uint_as_float((word & mask) | power) - (static_cast<float>(1 << (23 - bit)) + zero);
}

template <Format format, Type type>
  requires(format.codes == Codes::u8)
struct WeightReader<format, type> : CodeReader<format> {
  using Stored = unsigned char;
  AC_DEVICE static void unpack(unsigned word, float zero, float (&out)[4]) {
    const unsigned high = word >> 16;
    out[0] = whole_at<0, 8>(word, zero), out[1] = whole_at<8, 8>(word, zero);
    out[2] = whole_at<0, 8>(high, zero), out[3] = whole_at<8, 8>(high, zero);
  }
  AC_DEVICE static float element(const Stored* row, int i, float zero) {
    return whole_at<0, 8>(row[i], zero);
  }
};

// Reads the low 4 bits of a code, which lie two in a byte.
template <Format format>
struct NibbleReader : CodeReader<format> {
  using Stored = unsigned char;
  AC_DEVICE static float element(const Stored* row, int i, float zero) {
    return whole_at<0, 4>(row[i / 2] >> 4 * (i % 2), zero);
  }
};

template <Format format, Type type>
  requires(format.codes == Codes::u4)
struct WeightReader<format, type> : NibbleReader<format> {
  AC_DEVICE static void unpack(unsigned word, float zero, float (&out)[8]) {
    const unsigned high = word >> 12;
    out[0] = whole_at<0, 4>(word, zero), out[1] = whole_at<4, 4>(word, zero);
    out[2] = whole_at<8, 4>(word, zero), out[3] = whole_at<12, 4>(word, zero);
    out[4] = whole_at<16, 4>(word, zero), out[5] = whole_at<8, 4>(high, zero);
    out[6] = whole_at<12, 4>(high, zero), out[7] = whole_at<16, 4>(high, zero);
  }
};

// A code i of a word, whose other bits are in `high` as in a plane of them.
template <Codes codes>
AC_DEVICE unsigned code_of_planes(unsigned word, unsigned high, int i) {
  constexpr int bits = high_bits_of(codes);
  constexpr unsigned mask = ((1u << bits) - 1) << 4;
  const unsigned shifted = bits * i > 4 ? high >> (bits * i - 4) : high << (4 - bits * i);
  return (word >> 4 * i & 15u) | (shifted & mask);
}

template <Format format, Type type>
  requires(high_bits_of(format.codes) > 0)
struct WeightReader<format, type> : NibbleReader<format> {
  AC_DEVICE static void unpack(unsigned word, unsigned high, float zero, float (&out)[8]) {
    AC_UNROLL
    for (int i = 0; i < 8; ++i)
      out[i] = whole_at<0, 6>(code_of_planes<format.codes>(word, high, i), zero);
  }
};

// Codes i and i + 4 of a word as a pair of 16-bit elements. A code's exponent and fraction, where
// the type has them, are it times a power of two, below which there are no leading ones.
template <Type type>
AC_DEVICE unsigned e2m1_pair(unsigned word, int i) {
  constexpr bool half = type == Type::f16;
  constexpr unsigned digits = half ? 0x0e000e00u : 0x01c001c0u;
  constexpr unsigned power = half ? 0x74007400u : 0x7e807e80u;
  const unsigned high = word << (12 - 4 * i);  // each in the highest bits of a half
  return multiply_pairs<Scalar<type>>((high & 0x80008000u) | (high >> (half ? 3 : 6) & digits),
                                      power);
}

template <Format format, Type type>
  requires(format.codes == Codes::e2m1)
struct WeightReader<format, type> : CodeReader<format> {
  using Stored = unsigned char;
  AC_DEVICE static void unpack(unsigned word, float, float (&out)[8]) {
    AC_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<f16>(e2m1_pair<Type::f16>(word, i));
      out[i] = pair.x, out[i + 4] = pair.y;
    }
  }
  AC_DEVICE static float element(const Stored* row, int i, float) {
    return to_float(e2m1{static_cast<unsigned char>(row[i / 2] >> 4 * (i % 2))});
  }
};

template <ScaleType type>
struct ScaleOf;
template <>
struct ScaleOf<ScaleType::f32> {
  using type = float;
};
template <>
struct ScaleOf<ScaleType::f16> {
  using type = f16;
};
template <>
struct ScaleOf<ScaleType::bf16> {
  using type = bf16;
};
template <>
struct ScaleOf<ScaleType::e4m3> {
  using type = e4m3;
};
template <>
struct ScaleOf<ScaleType::e8m0> {
  using type = e8m0;
};
template <>
struct ScaleOf<ScaleType::i8> {
  using type = signed char;
};
AC_DEVICE float to_float(signed char x) {
  return whole_at<0, 8>(static_cast<unsigned char>(x) ^ 0x80u, 128.f);
}

// The scales of one row, and its zero points.
template <Format format>
struct RowScales;
template <Format format>
  requires(format.is_plain())
struct RowScales<format> {
  static constexpr int each = 0;
  static constexpr bool has_units = false;
};
template <Format format>
  requires(!format.is_plain())
struct RowScales<format> {
  using Scale = typename ScaleOf<format.scale>::type;
  static constexpr int each = format.values_each(), high_bits = high_bits_of(format.codes);
  const Scale* scale;
  const unsigned char* zero;
  float global;
  const int* group;  // of each column
  const f16* outer;
  const unsigned char* high;  // bits of codes

  // Points to the scales of one row of a matrix of the launch.
  template <class Params>
  AC_DEVICE void point_to(const Params& p, int matrix, int row) {
    point_to(p.scales[matrix], p.zeros[matrix], row, p.k);
    if constexpr (format.global) global = load_constant(p.globals[matrix]);
    if constexpr (format.listed) group = p.groups[matrix];
    if constexpr (format.outer > 0)
      outer = static_cast<const f16*>(p.outer[matrix]) +
              static_cast<long long>(row) * (p.k / format.outer) * each;
    if constexpr (high_bits > 0)
      high = p.high[matrix] + static_cast<long long>(row) * (p.k * high_bits / 8);
  }
  AC_DEVICE void point_to(const void* scales, const unsigned char* zeros, int row, int k) {
    const long long first =
        static_cast<long long>(format.row_of_scales(row)) * format.scales_of_row(k);
    scale = static_cast<const Scale*>(scales) + first * each;
    zero = zeros + first;
  }
  AC_DEVICE int number(int column) const {
    if constexpr (format.listed) return load_constant(group + column);
    return format.columns > 0 ? column / format.columns : 0;
  }
  // What the scales (0) or the minima (1) that are stored for a column are multiples of.
  static constexpr bool has_units = format.global || format.outer > 0;
  AC_DEVICE float unit([[maybe_unused]] int column, [[maybe_unused]] int which) const {
    if constexpr (format.outer > 0)
      return to_float(load_constant(outer + column / format.outer * each + which));
    if constexpr (format.global) return global;
    return 1;
  }
  AC_DEVICE static float in_units(Scale stored, [[maybe_unused]] float unit) {
    if constexpr (has_units) return to_float(stored) * unit;
    return to_float(stored);
  }
  AC_DEVICE float scale_at(int column) const {
    return in_units(load_constant(scale + number(column) * each), unit(column, 0));
  }
  AC_DEVICE float minimum_at(int column) const {
    if constexpr (format.minima)
      return in_units(load_constant(scale + number(column) * each + 1), unit(column, 1));
    return 0;
  }
  // What the high bits of a code add to it.
  AC_DEVICE float high_at(int column) const {
    if constexpr (high_bits > 0) {
      const unsigned byte = load_constant(high + column * high_bits / 8);
      return whole_at<0, high_bits>(byte >> column * high_bits % 8, 0.f) * 16.f;
    }
    return 0;
  }
  AC_DEVICE float zero_at(int column) const {
    if constexpr (format.zeros)
      return whole_at<0, 8>(load_constant(zero + number(column)), 0.f);
    else
      return static_cast<float>(format.usual_zero());
  }
};

// The high bits of a vector's codes, if they have any.
template <Format format>
struct VectorHigh {
  static constexpr int bits = high_bits_of(format.codes);
  unsigned words[bits > 0 ? bits : 1] = {};

  // `column` is the vector's first one.
  AC_DEVICE void load([[maybe_unused]] const RowScales<format>& row, [[maybe_unused]] int column) {
    if constexpr (bits > 0) {
      const unsigned char* const from = row.high + column / 8 * bits;
      if constexpr (bits == 1) {
        words[0] = load_constant(reinterpret_cast<const unsigned*>(from));
      } else {
        const uint2 v = load_constant(reinterpret_cast<const uint2*>(from));
        words[0] = v.x, words[1] = v.y;
      }
    }
  }
  AC_DEVICE unsigned of_word(int j) const { return words[j * bits / 4] >> 8 * bits * j % 32; }
};

// The elements of one word of a vector, each less the zero point.
template <Format format, Type type, int count>
AC_DEVICE void unpack_word(unsigned word, [[maybe_unused]] unsigned high, float zero,
                           float (&out)[count]) {
  if constexpr (high_bits_of(format.codes) > 0)
    WeightReader<format, type>::unpack(word, high, zero, out);
  else
    WeightReader<format, type>::unpack(word, zero, out);
}

// What load_constant() will want of a column's outer scale. Nobody waits for it.
template <Format format>
AC_DEVICE void bring_outer_to_l1([[maybe_unused]] const RowScales<format>& row,
                                 [[maybe_unused]] int column) {
  if constexpr (format.outer > 0) {
    const f16* const at = row.outer + column / format.outer * row.each;
#ifdef AC_HOST_DEVICE
    load_as<f16>(at);
#else
    [[maybe_unused]] unsigned unused;
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(unused) : "l"(at));
#endif
  }
}

// The same of all that a column wants.
template <Format format>
AC_DEVICE void bring_to_l1(const RowScales<format>& row, int column) {
  const int number = row.number(column);
  [[maybe_unused]] const auto* const scale = row.scale + number * row.each;
  bring_outer_to_l1(row, column);
#ifdef AC_HOST_DEVICE
  load_as<typename RowScales<format>::Scale>(scale);
  if constexpr (format.zeros) load_as<unsigned char>(row.zero + number);
  if constexpr (high_bits_of(format.codes) > 0)
    load_as<unsigned char>(row.high + column / 8 * row.high_bits);
#else
  [[maybe_unused]] unsigned unused;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(unused) : "l"(scale));
  if constexpr (format.zeros)
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(unused) : "l"(row.zero + number));
  if constexpr (high_bits_of(format.codes) > 0)
    asm volatile("ld.global.nc.u8 %0, [%1];"
                 : "=r"(unused)
                 : "l"(row.high + column / 8 * row.high_bits));
#endif
}

}  // namespace ac::kernels
