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
  // That have tiles of their own.
  static constexpr int matrices = op.pair == Pair::none ? op.matrices : 1;

  int matrix = 0;  // of a pair: the first
  int token;       // the first of the tile
  int output;      // the first of the tile, in its matrix

  AC_DEVICE static int tiles_m(const GemmParams& p) { return (p.m + tile_m - 1) / tile_m; }
  AC_DEVICE static int tiles_n(const GemmParams& p, int i) {
    return (p.matrix[i].rows + outputs - 1) / outputs;
  }
  AC_DEVICE static int tiles_n(const GemmParams& p) {
    int tiles = 0;
    AC_UNROLL
    for (int i = 0; i < matrices; ++i) tiles += tiles_n(p, i);
    return tiles;
  }

  // Blocks that run at once share tokens and weights in L2: they go down `group_m` tiles of tokens
  // before they go on to the next weights.
  AC_DEVICE GemmTile(const GemmParams& p, int block, int group_m) {
    const int down = tiles_m(p), across = tiles_n(p);
    const int group = block / (group_m * across), within = block % (group_m * across);
    const int left = down - group * group_m, height = left < group_m ? left : group_m;
    set(p, group * group_m + within % height, within / height);
  }
  AC_DEVICE static GemmTile at(const GemmParams& p, int row, int column) {
    GemmTile tile;
    tile.set(p, row, column);
    return tile;
  }

 private:
  GemmTile() = default;
  AC_DEVICE void set(const GemmParams& p, int row, int column) {
    token = row * tile_m;
    AC_UNROLL
    for (int i = 0; i + 1 < matrices; ++i)
      if (matrix == i && column >= tiles_n(p, i)) column -= tiles_n(p, i), matrix = i + 1;
    output = column * outputs;
  }
};

// activate() for outputs of 16 bits, of which a step of many tokens has so many that the exact form
// takes a tenth of a product's time.
template <Pair pair>
AC_DEVICE float activate_roughly(float gate) {
  if constexpr (pair == Pair::geglu_erf) return activate<pair>(gate);
  const float y = pair == Pair::swiglu ? gate : math::gelu_tanh_exponent(gate);
  return divide_fast(gate, 1.f + exp2_fast(-log2_e * y));
}

// `value` is the sum of one output; of a pair it is the gate's, and `up` its partner's. Not capped.
template <GemmOp op>
AC_DEVICE float scale_output(const GemmParams& p, const GemmMatrix& matrix, int output, float value,
                             float up, float residual) {
  using W = Scalar<op.weight>;
  if constexpr (op.bias) value += to_float(static_cast<const W*>(matrix.bias)[output]);
  if constexpr (op.pair != Pair::none) {
    if constexpr (op.bias) up += to_float(static_cast<const W*>(p.matrix[1].bias)[output]);
    if constexpr (sizeof(Scalar<op.y>) == 2)
      value = activate_roughly<op.pair>(value) * up;
    else
      value = activate<op.pair>(value) * up;
  }
  value *= p.scale;
  if constexpr (op.residual) value += residual;
  return value;
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
  const float y = scale_output<op>(p, matrix, output, value, up, residual);
  static_cast<Y*>(matrix.y)[at] = from_float<Y>(soft_cap(y, p.softcap));
}

// Four outputs of a token, from a multiple of 4 on, in one access where they lie so. What they are
// made of is loaded apart from the rest, so that several can be on their way.
template <GemmOp op>
struct FourOutputs {
  using Y = Scalar<op.y>;
  int token, output;  // the first
  bool inside = false, together = false;
  long long at = 0;
  float value[4], up[4], residual[4] = {};

  AC_DEVICE static void unpack(float (&to)[4], const float4& v) {
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
  // In memory that exists, or not `inside`.
  AC_DEVICE void load(const GemmMatrix& matrix, const float4& sums, const float4& of_up) {
    at = static_cast<long long>(token) * matrix.y_pitch + output;
    together = matrix.y_pitch % 4 == 0 && output + 4 <= matrix.rows;
    unpack(value, sums), unpack(up, of_up);
    if constexpr (op.residual) {
      const Y* const from = static_cast<const Y*>(matrix.residual) + at;
      if (!inside) return;
      if (!together) {
        AC_UNROLL
        for (int i = 0; i < 4; ++i)
          if (output + i < matrix.rows) residual[i] = to_float(load_fresh(from + i));
      } else if constexpr (sizeof(Y) == 4) {
        unpack(residual, load_fresh(reinterpret_cast<const float4*>(from)));
      } else {
        const uint2 v = load_fresh(reinterpret_cast<const uint2*>(from));
        const float2 low = unpack_pair<Y>(v.x), high = unpack_pair<Y>(v.y);
        residual[0] = low.x, residual[1] = low.y, residual[2] = high.x, residual[3] = high.y;
      }
    }
  }
  AC_DEVICE void write(const GemmParams& p, const GemmMatrix& matrix) const {
    if (!inside) return;
    float y[4] = {};
    AC_UNROLL
    for (int i = 0; i < 4; ++i)
      if (together || output + i < matrix.rows)
        y[i] = scale_output<op>(p, matrix, output + i, value[i], up[i], residual[i]);
    if (p.softcap > 0) {
      AC_UNROLL
      for (int i = 0; i < 4; ++i) y[i] = soft_cap(y[i], p.softcap);
    }
    Y* const to = static_cast<Y*>(matrix.y) + at;
    if (!together) {
      AC_UNROLL
      for (int i = 0; i < 4; ++i)
        if (output + i < matrix.rows) to[i] = from_float<Y>(y[i]);
    } else if constexpr (sizeof(Y) == 4) {
      *reinterpret_cast<float4*>(to) = make_float4(y[0], y[1], y[2], y[3]);
    } else {
      *reinterpret_cast<uint2*>(to) =
          make_uint2(pack_pair<Y>(y[0], y[1]), pack_pair<Y>(y[2], y[3]));
    }
  }
};

}  // namespace ac::kernels
