// What kernels for one token or a few have in common: which tokens a block has, which matrix a row
// is of, and its output.
#pragma once

#include "kernels/argmax.cuh"
#include "kernels/gemv_plan.h"
#include "kernels/math.cuh"
#include "kernels/ptx.cuh"
#include "kernels/weight_reader.cuh"

namespace ac::kernels {

#if defined(AC_HOST_DEVICE) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool has_bulk_copies = true;
#else
constexpr bool has_bulk_copies = false;
#endif

// Sums of so many values over a warp's lanes. Each lane has one of them, to the bit as warp_sum()
// has it, in a fraction of the exchanges: lane i that of value i / lanes_of_each.
template <int count>
struct SpreadSums {
  static_assert(count >= 1 && count <= 32);
  static constexpr int values = power_of_two_from(count);
  static constexpr int lanes_of_each = 32 / values;

  // Which one this lane has: `count` or more are none.
  AC_DEVICE static int mine() { return static_cast<int>(threadIdx.x % 32) / lanes_of_each; }
  AC_DEVICE static bool is_first() { return threadIdx.x % lanes_of_each == 0; }

  template <int rows, int columns>
  AC_DEVICE static float of(const float (&v)[rows][columns]) {
    static_assert(rows * columns == count);
    float all[count];
    AC_UNROLL
    for (int i = 0; i < count; ++i) all[i] = v[i / columns][i % columns];
    return of(all);
  }
  AC_DEVICE static float of(const float (&v)[count]) {
#ifdef AC_HOST_DEVICE
    struct All {
      float v[values];
    } all{};
    for (int i = 0; i < count; ++i) all.v[i] = v[i];
    all = warp_reduce(all, [](All a, const All& b) {
      for (int i = 0; i < count; ++i) a.v[i] += b.v[i];
      return a;
    });
    return all.v[mine()];
#else
    float all[values] = {};
    AC_UNROLL
    for (int i = 0; i < count; ++i) all[i] = v[i];
    return half_of<16>(all);
#endif
  }

 private:
#ifndef AC_HOST_DEVICE
  // Two lanes that are `distance` apart exchange half of their values: the lower one keeps the
  // first.
  template <int distance, int left>
  AC_DEVICE static float half_of(const float (&v)[left]) {
    if constexpr (left == 1) {
      float sum = v[0];
      AC_UNROLL
      for (int lanes = distance; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(full_warp, sum, lanes);
      return sum;
    } else {
      const bool upper = threadIdx.x & distance;
      float half[left / 2];
      AC_UNROLL
      for (int i = 0; i < left / 2; ++i) {
        const float kept = upper ? v[i + left / 2] : v[i], given = upper ? v[i] : v[i + left / 2];
        half[i] = kept + __shfl_xor_sync(full_warp, given, distance);
      }
      return half_of<distance / 2>(half);
    }
  }
#endif
};

// The tokens of a block that computes so many at once.
struct BlockTokens {
  int first, count;
};
template <int tokens, class Params>
AC_DEVICE BlockTokens block_tokens([[maybe_unused]] const Params& p) {
  if constexpr (tokens == 1) {
    return {0, 1};
  } else {
    const int first = blockIdx.y * tokens, left = p.tokens - first;
    return {first, left < tokens ? left : tokens};
  }
}

template <GemvOp op>
struct GemvRows {
  using Params = GemvParamsOf<op.format>;
  using W = Scalar<op.weight>;  // of what is no matrix
  using X = Scalar<op.x>;
  using Y = Scalar<op.y>;
  // Whose outputs are counted one after the other.
  static constexpr int matrices = op.pair == Pair::none ? op.matrices : 1;

  AC_DEVICE static int total_rows(const GemvParams& p) {
    int total = 0;
    AC_UNROLL
    for (int m = 0; m < matrices; ++m) total += p.matrix[m].rows;
    return total;
  }

  // The matrix that output `row` of all matrices belongs to; `row` becomes its row there.
  AC_DEVICE static int matrix_of(const GemvParams& p, int& row) {
    int matrix = 0;
    AC_UNROLL
    for (int m = 0; m + 1 < matrices; ++m)
      if (matrix == m && row >= p.matrix[m].rows) row -= p.matrix[m].rows, matrix = m + 1;
    return matrix;
  }

  AC_DEVICE static const X* x_of(const GemvParams& p, int token) {
    return static_cast<const X*>(p.x) + static_cast<long long>(token) * p.k;
  }
  // Where x of each of a block's tokens is. Tokens past the last one repeat it.
  template <int tokens>
  AC_DEVICE static void point_to_x(const GemvParams& p, const BlockTokens& of,
                                   const X* (&x)[tokens]) {
    AC_UNROLL
    for (int t = 0; t < tokens; ++t) x[t] = x_of(p, of.first + (t < of.count ? t : of.count - 1));
  }
  // This thread's shares of all tokens' sums of squares become the warp's, in [tokens, warps].
  template <int warps, int tokens>
  AC_DEVICE static void share_squares(const float (&squares)[tokens], float* warp_squares) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if constexpr (tokens == 1) {
      const float sum = warp_sum(squares[0]);
      if (lane == 0) warp_squares[warp] = sum;
    } else {
      using Sums = SpreadSums<tokens>;
      const float sum = Sums::of(squares);
      if (Sums::is_first() && Sums::mine() < tokens)
        warp_squares[Sums::mine() * warps + warp] = sum;
    }
  }
  // The residual of output `row`, of n that a token has.
  AC_DEVICE static float residual_of(const GemvParams& p, int token, int n, int row) {
    return to_float(
        load_fresh(static_cast<const Y*>(p.residual) + (static_cast<long long>(token) * n + row)));
  }

  // Writes output `row` of all matrices, whose sums these are (`up` is a pair's second one).
  AC_DEVICE static void finish(const GemvParams& p, int token, int row, float value, float up,
                               float norm_scale, float residual, unsigned long long& best) {
    const int output = row;
    const GemvMatrix& m = p.matrix[matrix_of(p, row)];
    value *= norm_scale;
    if constexpr (op.bias) value += to_float(static_cast<const W*>(m.bias)[row]);
    if constexpr (op.pair != Pair::none) {
      up *= norm_scale;
      if constexpr (op.bias) up += to_float(static_cast<const W*>(p.matrix[1].bias)[row]);
      value = activate<op.pair>(value) * up;
    }
    value *= p.scale;
    if constexpr (op.residual) value += residual;
    value = soft_cap(value, p.softcap);
    static_cast<Y*>(m.y)[static_cast<long long>(token) * m.rows + row] = from_float<Y>(value);
    if constexpr (op.argmax) {
      // The key is made of the stored value: rounding may make neighbours equal, and the argmax of
      // y must be the same.
      const unsigned long long key = logit_key(to_float(from_float<Y>(value)), output);
      best = key > best ? key : best;
    }
  }
};

}  // namespace ac::kernels
