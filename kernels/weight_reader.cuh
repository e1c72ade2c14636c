// How a kernel reads weights of each format (weight_format.h): what is in memory, and the elements
// of a 16-byte vector of it. A vector's elements share a scale, which their sum is multiplied by.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/weight_format.h"

namespace ac::kernels {

template <Format format, Type type>
struct WeightReader;

template <Type type>
struct WeightReader<Format::plain, type> {
  using Stored = Scalar<type>;
  static constexpr bool scaled = false;
  static constexpr int vector = vector_size<Stored>;
  AC_DEVICE static void unpack(uint4 v, float (&out)[vector]) { unpack_as<Stored>(v, out); }
};

template <Type type>
struct WeightReader<Format::fp8_block, type> {
  using Stored = e4m3;
  static constexpr bool scaled = true;
  static constexpr int vector = 16;
  static_assert(blocks_of(Format::fp8_block).columns % vector == 0);
  AC_DEVICE static void unpack(uint4 v, float (&out)[vector]) {
    const unsigned word[4] = {v.x, v.y, v.z, v.w};
    AC_UNROLL
    for (int w = 0; w < 4; ++w) {
      const float2 low = unpack_e4m3_pair(word[w]), high = unpack_e4m3_pair(word[w] >> 16);
      out[4 * w] = low.x, out[4 * w + 1] = low.y;
      out[4 * w + 2] = high.x, out[4 * w + 3] = high.y;
    }
  }
};

// Scales of a matrix of k columns, in rows.
template <Format format>
AC_DEVICE int scales_of_row(int k) {
  return divide_up(k, blocks_of(format).columns);
}

}  // namespace ac::kernels
