// The tiled matrix product on plain arithmetic units; gemm_plan.h says what op and plan mean.
//
// A block copies a tile of x and of the weights to shared memory as float32; while a thread
// multiplies, its share of the next tile is on its way into registers.
#pragma once

#include "kernels/gemm_plan.h"
#include "kernels/gemm_tile.cuh"
#include "kernels/weight_reader.cuh"

namespace ac::kernels {

// A thread's share of a tile of `rows` rows and `tile_k` columns on its way to shared memory.
template <class T, int rows, int tile_k, int threads>
struct GemmLoads {
  static constexpr int count = rows * tile_k, share = (count + threads - 1) / threads;
  static constexpr int pitch = rows + 1;
  T elements[share];

  // row(r) points to row r, or is null where there is none.
  template <class Row>
  AC_DEVICE void load(Row row, int first_k, int k) {
    AC_UNROLL
    for (int i = 0; i < share; ++i) {
      const int at = threadIdx.x + i * threads;
      const T* from = at < count ? row(at / tile_k) : nullptr;
      const bool valid = from != nullptr && first_k + at % tile_k < k;
      elements[i] = valid ? load_fresh(from + first_k + at % tile_k) : from_float<T>(0);
    }
  }
  AC_DEVICE void store(float* shared) const {
    AC_UNROLL
    for (int i = 0; i < share; ++i) {
      const int at = threadIdx.x + i * threads;
      if (count % threads == 0 || at < count)
        shared[at % tile_k * pitch + at / tile_k] = to_float(elements[i]);
    }
  }
};

// The same of weights in a format of codes: what goes to shared memory are the elements.
template <GemmOp op, int rows, int tile_k, int threads>
struct CodedGemmLoads : GemmLoads<float, rows, tile_k, threads> {
  using Base = GemmLoads<float, rows, tile_k, threads>;
  using Reader = WeightReader<op.format, op.weight>;
  struct Row {
    const typename Reader::Stored* codes = nullptr;
    RowScales<op.format> of_row;
  };

  template <class RowOf>
  AC_DEVICE void load(RowOf row, int first_k, int k) {
    AC_UNROLL
    for (int i = 0; i < Base::share; ++i) {
      const int at = threadIdx.x + i * threads, column = first_k + at % tile_k;
      Base::elements[i] = 0;
      if (at >= Base::count || column >= k) continue;
      const Row of = row(at / tile_k);
      if (of.codes == nullptr) continue;
      Base::elements[i] = fmaf(
          Reader::element(of.codes, column, of.of_row.zero_at(column)) + of.of_row.high_at(column),
          of.of_row.scale_at(column), -of.of_row.minimum_at(column));
    }
  }
};
template <GemmOp op, int rows, int tile_k, int threads>
struct GemmWeightLoads {
  using type = CodedGemmLoads<op, rows, tile_k, threads>;
};
template <GemmOp op, int rows, int tile_k, int threads>
  requires(op.format.is_plain())
struct GemmWeightLoads<op, rows, tile_k, threads> {
  using type = GemmLoads<Scalar<op.weight>, rows, tile_k, threads>;
};

template <GemmOp op, GemmPlan plan>
AC_DEVICE void gemm(const GemmParamsOf<op.format>& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using X = Scalar<op.x>;
  using Reader = WeightReader<op.format, op.weight>;
  using W = typename Reader::Stored;
  using TileX = GemmLoads<X, plan.tile_m, plan.tile_k, plan.threads()>;
  using TileW = typename GemmWeightLoads<op, plan.tile_n, plan.tile_k, plan.threads()>::type;
  constexpr int sets = op.row_sets(), across = plan.threads_n(), down = plan.threads_m();

  AC_DYNAMIC_SHARED(shared);
  launch_dependents();
  wait_for_dependency();
  const GemmTile<op, plan.tile_m, plan.tile_n> tile(p, blockIdx.x, plan.group_m);
  const GemmMatrix& matrix = p.matrix[tile.matrix];
  const int column = threadIdx.x % across, row = threadIdx.x / across;

  const auto x_row = [&](int r) {
    const int token = tile.token + r;
    return token < p.m ? static_cast<const X*>(p.x) + static_cast<long long>(token) * p.x_pitch
                       : nullptr;
  };
  // A thread's columns lie `across` apart, and alternate between gate and up.
  const auto weight_row = [&](int r) {
    const int j = r / across, set = j % sets;
    const int output = tile.output + j / sets * across + r % across;
    const W* from = nullptr;
    if (output < matrix.rows)
      from = static_cast<const W*>(p.matrix[tile.matrix + set].weight) +
             static_cast<long long>(output) * p.pitch;
    if constexpr (Reader::scaled) {
      typename TileW::Row coded{from, {}};
      if (from != nullptr) coded.of_row.point_to(p, tile.matrix + set, output);
      return coded;
    } else {
      return from;
    }
  };

  TileX next_x;
  TileW next_w;
  const auto load = [&](int first_k) {
    next_x.load(x_row, first_k, p.k);
    next_w.load(weight_row, first_k, p.k);
  };
  float sums[plan.thread_m][plan.thread_n] = {};
  load(0);
  int stage = 0;
  for (int first_k = 0; first_k < p.k; first_k += plan.tile_k) {
    auto* const xs = reinterpret_cast<float*>(shared + stage * plan.stage_bytes());
    float* const ws = xs + plan.tile_k * TileX::pitch;
    next_x.store(xs);
    next_w.store(ws);
    __syncthreads();
    if (first_k + plan.tile_k < p.k) load(first_k + plan.tile_k);
    AC_UNROLL
    for (int k = 0; k < plan.tile_k; ++k) {
      float x[plan.thread_m], w[plan.thread_n];
      AC_UNROLL
      for (int i = 0; i < plan.thread_m; ++i) x[i] = xs[k * TileX::pitch + row + i * down];
      AC_UNROLL
      for (int j = 0; j < plan.thread_n; ++j) w[j] = ws[k * TileW::pitch + column + j * across];
      AC_UNROLL
      for (int i = 0; i < plan.thread_m; ++i) AC_UNROLL
      for (int j = 0; j < plan.thread_n; ++j) sums[i][j] = fmaf(x[i], w[j], sums[i][j]);
    }
    if constexpr (plan.stages == 1) __syncthreads();
    if constexpr (plan.stages == 2) stage ^= 1;
  }

  AC_UNROLL
  for (int i = 0; i < plan.thread_m; ++i) AC_UNROLL
  for (int j = 0; j < plan.thread_n; j += sets)
    write_output<op>(p, matrix, tile.token + row + i * down,
                     tile.output + j / sets * across + column, sums[i][j], sums[i][j + sets - 1]);
}

}  // namespace ac::kernels

// Defines the kernel `name`; its grid is plan.grid(op, shape).
#define AC_GEMM_KERNEL(name, op, plan)                                              \
  AC_KERNEL_ENTRY(name, ::ac::kernels::GemmParamsOf<(op).format>, (plan).threads(), \
                  (plan).blocks_per_sm(), ::ac::kernels::gemm<op, plan>(p))
