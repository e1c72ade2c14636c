// Weights in formats of codes on their way to tensor cores: threads copy codes to shared memory as
// they are, and later make a tile of 16-bit elements of them, as PanelRows has it. A thread makes
// elements of what it copied itself, so that nobody has to meet in between.
#pragma once

#include "kernels/code_pairs.cuh"
#include "kernels/gemm_op.h"
#include "kernels/warpgroup.cuh"

namespace ac::kernels {

// `tile_n` rows of a matrix, or of a pair half as many of each, and 64 columns.
template <GemmOp op, int tile_n, int threads>
struct CodedTile {
  static constexpr Format format = op.format;
  using T = Scalar<op.weight>;
  using Reader = WeightReader<format, op.weight>;
  using Pairs = CodePairs<format, op.weight>;
  // Pairs times a scale of their own type are rounded once, as floats that become 16 bits are.
  static constexpr bool in_pairs = Pairs::far_apart && is_exact_in(format.scale, op.weight) &&
                                   !format.global && format.outer == 0 && !format.minima;
  static constexpr int vector = op.vector();     // elements of a thread's copy
  static constexpr int across = 64 / vector;     // threads of a row
  static constexpr int down = threads / across;  // rows from one of a thread's copies to the next
  static constexpr int count = tile_n / down;
  static_assert(count * down == tile_n);

  using RowOf = RowScales<format>;
  static constexpr int scales_each = format.scales_of(vector), of_scale = 4 / scales_each;
  struct Scales {
    typename RowOf::Scale scale[count][scales_each], minimum[count][scales_each];
    unsigned char zero[count][scales_each];
    float unit[count][RowOf::each];
    VectorHigh<format> high[count];
  };

  const CodedGemmParams& p;
  const int thread, first_row, first_column;

  AC_DEVICE CodedTile(const CodedGemmParams& p, int thread)
      : p(p), thread(thread), first_row(thread / across), first_column(thread % across * vector) {}

  // Codes of the columns from `begin` on; of the matrix from `output` on.
  AC_DEVICE void copy(unsigned char* codes, int matrix, int output, int begin) const {
    const int column = begin + first_column;
    AC_UNROLL
    for (int i = 0; i < count; ++i) {
      const Row row = row_of(i, matrix, output);
      const auto* const from = static_cast<const unsigned char*>(p.matrix[row.matrix].weight) +
                               static_cast<long long>(row.number) * p.pitch;
      const bool inside = column < p.k;
      copy_async16(codes + (i * threads + thread) * 16,
                   from + (inside ? column / (8 / bits_of(format.codes)) : 0), inside);
    }
  }
  AC_DEVICE Scales scales(int matrix, int output, int begin) const {
    const int column = begin + first_column, inside = column < p.k ? column : 0;
    Scales found;
    AC_UNROLL
    for (int i = 0; i < count; ++i) {
      const Row row = row_of(i, matrix, output);
      RowOf of;
      of.point_to(p, row.matrix, row.number);
      AC_UNROLL
      for (int which = 0; which < of.each; ++which) found.unit[i][which] = of.unit(inside, which);
      found.high[i].load(of, inside);
      AC_UNROLL
      for (int s = 0; s < scales_each; ++s) {
        const auto* const from = of.scale + (of.number(inside) + s) * of.each;
        found.scale[i][s] = load_constant(from);
        if constexpr (format.minima) found.minimum[i][s] = load_constant(from + 1);
        if constexpr (format.zeros)
          found.zero[i][s] = load_constant(of.zero + of.number(inside) + s);
      }
    }
    return found;
  }
  // What lies behind the last column is multiplied by what x has there: 0.
  AC_DEVICE void make(unsigned char* tile, const unsigned char* codes, const Scales& of) const {
    AC_UNROLL
    for (int i = 0; i < count; ++i) {
      const uint4 v = *reinterpret_cast<const uint4*>(codes + (i * threads + thread) * 16);
      const unsigned words[4] = {v.x, v.y, v.z, v.w};
      unsigned pairs[vector / 2];
      AC_UNROLL
      for (int w = 0; w < 4; ++w) {
        const int s = w / of_scale;
        const auto stored = of.scale[i][s];
        float zero = static_cast<float>(format.usual_zero());
        if constexpr (format.zeros) zero = whole_at<0, 8>(of.zero[i][s], 0.f);
        if constexpr (in_pairs) {
          unsigned far[Pairs::count];
          Pairs::unpack(words[w], of.high[i].of_word(w), Pairs::zero_of(zero), far);
          const unsigned both = pair_of(stored);
          AC_UNROLL
          for (unsigned& pair : far) pair = multiply_pairs<T>(pair, both);
          Pairs::to_neighbours(far, pairs + w * Pairs::count);
        } else {
          const float scale = RowOf::in_units(stored, of.unit[i][0]);
          float minimum = 0;
          if constexpr (format.minima) minimum = RowOf::in_units(of.minimum[i][s], of.unit[i][1]);
          float elements[Reader::of_word];
          unpack_word<format, op.weight>(words[w], of.high[i].of_word(w), zero, elements);
          AC_UNROLL
          for (int e = 0; e < Reader::of_word; e += 2)
            pairs[(w * Reader::of_word + e) / 2] =
                format.minima ? pack_pair<T>(fmaf(elements[e], scale, -minimum),
                                             fmaf(elements[e + 1], scale, -minimum))
                              : pack_pair<T>(elements[e] * scale, elements[e + 1] * scale);
        }
      }
      AC_UNROLL
      for (int c = 0; c < vector / 8; ++c) {
        unsigned char* const to =
            tile + PanelRows<tile_n>::offset(first_row + i * down, first_column / 8 + c);
        *reinterpret_cast<uint4*>(to) =
            make_uint4(pairs[4 * c], pairs[4 * c + 1], pairs[4 * c + 2], pairs[4 * c + 3]);
      }
    }
  }

 private:
  template <class Scale>
  AC_DEVICE static unsigned pair_of(Scale scale) {
    if constexpr (sizeof scale == 2) return scale.bits * 0x10001u;
    return pack_pair<T>(to_float(scale), to_float(scale));
  }
  // Rows past the end repeat the last one: their sums are never written.
  struct Row {
    int matrix, number;
  };
  AC_DEVICE Row row_of(int i, int matrix, int output) const {
    constexpr int of_one = tile_n / op.row_sets();
    const int row = first_row + i * down, set = row / of_one;
    const int last = p.matrix[matrix].rows - 1, number = output + row - set * of_one;
    return {matrix + set, number < last ? number : last};
  }
};

}  // namespace ac::kernels
