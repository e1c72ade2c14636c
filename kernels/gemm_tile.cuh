// What the matrix families share: which tile a block has, and what becomes of finished sums.
#pragma once

#include "kernels/gemm_op.h"
#include "kernels/math.cuh"
#include "kernels/ptx.cuh"

namespace ac::kernels {

// Numbers a tile of the grid: `tile_m` tokens by `tile_n` weight rows.
template <GemmOp op, int tile_m, int tile_n>
struct GemmTile {
  static constexpr int outputs = tile_n / op.row_sets();  // of a token

  int matrix = 0;  // of a pair: the first
  int token;       // the first of the tile
  int output;      // the first of the tile, in its matrix

  AC_DEVICE static int tiles_m(const GemmParams& p) { return (p.m + tile_m - 1) / tile_m; }
  AC_DEVICE static int tiles_n(const GemmParams& p, int i) {
    return (p.matrix[i].rows + outputs - 1) / outputs;
  }
  AC_DEVICE static int tiles_n(const GemmParams& p) {
    int tiles = tiles_n(p, 0);
    if constexpr (op.pair == Pair::none) {
      if constexpr (op.matrices > 1) tiles += tiles_n(p, 1);
      if constexpr (op.matrices > 2) tiles += tiles_n(p, 2);
    }
    return tiles;
  }

  // Blocks that run at once share tokens and weights in L2: they go down `group_m` tiles of tokens
  // before they go on to the next weights.
  AC_DEVICE GemmTile(const GemmParams& p, int block, int group_m) {
    const int down = tiles_m(p), across = tiles_n(p);
    const int group = block / (group_m * across), within = block % (group_m * across);
    const int left = down - group * group_m, height = left < group_m ? left : group_m;
    token = (group * group_m + within % height) * tile_m;
    int column = within / height;
    if constexpr (op.pair == Pair::none) {
      AC_UNROLL
      for (int i = 0; i + 1 < op.matrices; ++i)
        if (matrix == i && column >= tiles_n(p, i)) column -= tiles_n(p, i), matrix = i + 1;
    }
    output = column * outputs;
  }
};

// `value` is the sum of one output; of a pair it is the gate's, and `up` its partner's.
template <GemmOp op>
AC_DEVICE float finish_output(const GemmParams& p, const GemmMatrix& matrix, int output,
                              float value, float up, float residual) {
  using W = Scalar<op.weight>;
  if constexpr (op.bias) value += to_float(static_cast<const W*>(matrix.bias)[output]);
  if constexpr (op.pair != Pair::none) {
    if constexpr (op.bias) up += to_float(static_cast<const W*>(p.matrix[1].bias)[output]);
    value = activate<op.pair>(value) * up;
  }
  value *= p.scale;
  if constexpr (op.residual) value += residual;
  return soft_cap(value, p.softcap);
}

template <GemmOp op>
AC_DEVICE void write_output(const GemmParams& p, const GemmMatrix& matrix, int token, int output,
                            float value, float up) {
  using Y = Scalar<op.y>;
  if (token >= p.m || output >= matrix.rows) return;
  const long long at = static_cast<long long>(token) * matrix.y_pitch + output;
  float residual = 0;
  if constexpr (op.residual)
    residual = to_float(load_fresh(static_cast<const Y*>(matrix.residual) + at));
  static_cast<Y*>(matrix.y)[at] =
      from_float<Y>(finish_output<op>(p, matrix, output, value, up, residual));
}

// Outputs `output` (even) and the next, in one access where they lie so.
template <GemmOp op>
AC_DEVICE void write_output_pair(const GemmParams& p, const GemmMatrix& matrix, int token,
                                 int output, const float (&value)[2], const float (&up)[2]) {
  using Y = Scalar<op.y>;
  if (matrix.y_pitch % 2 != 0 || output + 1 >= matrix.rows) {
    write_output<op>(p, matrix, token, output, value[0], up[0]);
    write_output<op>(p, matrix, token, output + 1, value[1], up[1]);
    return;
  }
  if (token >= p.m) return;
  const long long at = static_cast<long long>(token) * matrix.y_pitch + output;
  float2 residual = make_float2(0, 0);
  if constexpr (op.residual) {
    const Y* from = static_cast<const Y*>(matrix.residual) + at;
    if constexpr (sizeof(Y) == 4)
      residual = load_fresh(reinterpret_cast<const float2*>(from));
    else
      residual = unpack_pair<Y>(load_fresh(reinterpret_cast<const unsigned*>(from)));
  }
  const float low = finish_output<op>(p, matrix, output, value[0], up[0], residual.x);
  const float high = finish_output<op>(p, matrix, output + 1, value[1], up[1], residual.y);
  Y* const to = static_cast<Y*>(matrix.y) + at;
  if constexpr (sizeof(Y) == 4)
    *reinterpret_cast<float2*>(to) = make_float2(low, high);
  else
    *reinterpret_cast<unsigned*>(to) = pack_pair<Y>(low, high);
}

}  // namespace ac::kernels
