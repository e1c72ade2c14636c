// Matrix product of many tokens: y[m,n] = epilogue(sum_k x[m,k] * W[n,k]), W as the checkpoint has
// it. What the matrix families (gemm, mma_gemm) compute; their plans say how.
#pragma once

#include "kernels/plan.h"
#include "kernels/weight_format.h"

namespace ac::kernels {

struct GemmOp {
  Type weight = Type::f16;  // of the matrices and the bias
  Type x = Type::f16;
  Type y = Type::f16;  // and of the residual
  Pair pair = Pair::none;
  bool bias = false;
  bool residual = false;  // y = residual + ...
  int matrices = 1;       // 1 to 3 with one x (QKV); two for a pair
  Format format = {};     // of the matrices
  AC_FIELDS(GemmOp, weight, x, y, pair, bias, residual, matrices, format)

  constexpr int vector() const { return 128 / code_bits(format, weight); }  // of 16 bytes of a row
  constexpr int row_sets() const { return pair == Pair::none ? 1 : 2; }     // weight rows an output
  constexpr const char* why_illegal() const {
    if (matrices < 1 || matrices > 3) return "matrices must be 1 to 3";
    if (pair != Pair::none && matrices != 2) return "a pair has two matrices";
    return nullptr;
  }
};

struct GemmShape {
  // Of rows and k, so that an int counts the elements of a tile's rows.
  static constexpr int most = 1 << 21;

  int m = 0;
  int rows[3] = {};  // of each matrix: its outputs; a pair's two are equal
  int k = 0;

  constexpr const char* why_illegal(const GemmOp& op) const {
    if (m < 1) return "m must be positive";
    if (k < 1 || k > most) return "k must be 1 to 2^21";
    for (int i = 0; i < op.matrices; ++i)
      if (rows[i] < 1 || rows[i] > most) return "every matrix must have 1 to 2^21 rows";
    if (op.pair != Pair::none && rows[0] != rows[1]) return "a pair's matrices must be equal";
    return nullptr;
  }
};

// Memory starts at multiples of 16 bytes; for tensor cores, so do the rows of x and the weights.
struct GemmMatrix {
  const void* weight;    // [rows, k], `pitch` elements from row to row
  const void* bias;      // [rows], if op.bias
  const void* residual;  // [m, rows], if op.residual, y_pitch from row to row; may be y
  void* y;               // [m, rows]; a pair writes the first matrix's
  int rows;
  int y_pitch;  // elements from row to row of y
};

struct GemmParams {
  GemmMatrix matrix[3];  // a pair: gate, up
  int m;
  int k;
  int pitch;      // k, or 2 k for two matrices whose rows alternate
  const void* x;  // [m, k]
  int x_pitch;    // elements from row to row of x
  float scale;    // y = residual + scale * (W x + bias), or residual + scale * act(gate) * up
  float softcap;  // above 0: y = softcap * tanh(y / softcap)
  // If the plan splits K:
  float* partial;      // plan.workspace_bytes()
  unsigned* finished;  // [tiles], 0 before the first launch; every launch leaves 0 again
};

// Of a format of codes; `pitch` counts bytes. Of each matrix: [rows / the format's, k / the
// format's], both rounded up.
struct CodedGemmParams : GemmParams {
  const void* scales[3];
  const unsigned char* zeros[3];  // if the format has them
  const float* globals[3];        // likewise
  const int* groups[3];           // likewise
  const void* outer[3];           // likewise
  const unsigned char* high[3];   // likewise
};
template <bool coded>
struct GemmParamsFor {
  using type = CodedGemmParams;
};
template <>
struct GemmParamsFor<false> {
  using type = GemmParams;
};
template <Format format>
using GemmParamsOf = typename GemmParamsFor<!format.is_plain()>::type;

// Tiles of `tile_n` weight rows that cover all matrices; a tile is of one matrix, or of a pair.
constexpr int gemm_tiles_n(const GemmOp& op, const GemmShape& shape, int tile_n) {
  if (op.pair != Pair::none) return divide_up(shape.rows[0], tile_n / 2);
  int tiles = 0;
  for (int i = 0; i < op.matrices; ++i) tiles += divide_up(shape.rows[i], tile_n);
  return tiles;
}

// Bytes that must cross the memory bus, and operations.
constexpr double gemm_weight_rows(const GemmOp& op, const GemmShape& shape) {
  double rows = 0;
  for (int i = 0; i < op.matrices; ++i) rows += shape.rows[i];
  return rows;
}
constexpr double gemm_bytes(const GemmOp& op, const GemmShape& shape) {
  const double rows = gemm_weight_rows(op, shape);
  return weight_bytes(op.format, op.weight, rows, shape.k) +
         double(shape.m) * shape.k * bytes_of(op.x) +
         double(shape.m) * rows / op.row_sets() * bytes_of(op.y) * (op.residual ? 2 : 1);
}
constexpr double gemm_flops(const GemmOp& op, const GemmShape& shape) {
  return 2.0 * shape.m * gemm_weight_rows(op, shape) * shape.k;
}

}  // namespace ac::kernels
