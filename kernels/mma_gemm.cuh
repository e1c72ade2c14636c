// The matrix product on tensor cores; mma_gemm_plan.h says what op and plan mean.
//
// While a warp multiplies one fragment of K, the next one is on its way from shared memory; while
// the block works on one slot of the ring, the others fill. One barrier a slot: it comes before the
// slot's last fragment, when everyone has read the slot and the next one is complete.
#pragma once

#include "kernels/gemm_tile.cuh"
#include "kernels/mma_gemm_plan.h"
#include "kernels/mma_tile.cuh"

namespace ac::kernels {

template <GemmOp op, MmaGemmPlan plan>
struct MmaGemm {
  using T = Scalar<op.x>;
  static constexpr int chunks = plan.tile_k / 8, row_bytes = plan.row_bytes();
  static constexpr int fragments_m = plan.warp_m / 16, fragments_n = plan.warp_n / 8;
  static constexpr int x_bytes = plan.tile_m * row_bytes;
  static constexpr int sets = op.row_sets();
  using Rows = TileRows<chunks>;
  using Tile = GemmTile<op, plan.tile_m, plan.tile_n>;

  struct Fragments {
    unsigned x[fragments_m][4];
    unsigned w[fragments_n][2];
  };

  // Rows past the end repeat the last one: their sums are never written.
  AC_DEVICE static void copy_x(const GemmParams& p, const Tile& tile, unsigned char* slot,
                               int first_k, int end_k) {
    const auto row = [&](int r) {
      const int token = tile.token + r < p.m ? tile.token + r : p.m - 1;
      return static_cast<const T*>(p.x) + static_cast<long long>(token) * p.x_pitch;
    };
    copy_tile<T, plan.tile_m, chunks, plan.threads()>(
        slot, row, [](int) { return true; }, first_k, end_k);
  }
  // Of a pair, 8 rows of the gate and 8 of its partner take turns, so that a thread gets the sums
  // of both.
  AC_DEVICE static void copy_weights(const GemmParams& p, const Tile& tile, unsigned char* slot,
                                     int first_k, int end_k) {
    const GemmMatrix& matrix = p.matrix[tile.matrix];
    const auto row = [&](int r) {
      const void* weight = matrix.weight;
      if constexpr (sets == 2) {
        if (r / 8 % 2 == 1) weight = p.matrix[1].weight;
        r = r / 16 * 8 + r % 8;
      }
      const int output = tile.output + r < matrix.rows ? tile.output + r : matrix.rows - 1;
      return static_cast<const T*>(weight) + static_cast<long long>(output) * p.pitch;
    };
    copy_tile<T, plan.tile_n, chunks, plan.threads()>(
        slot + x_bytes, row, [](int) { return true; }, first_k, end_k);
  }

  // Fragment `k` (16 elements) of a slot; the offsets are this lane's.
  AC_DEVICE static void load(Fragments& f, const unsigned char* slot, int x_offset, int w_offset,
                             int k) {
    const unsigned char* const x = slot + Rows::advance(x_offset, 2 * k);
    const unsigned char* const w = slot + x_bytes + Rows::advance(w_offset, 2 * k);
    AC_UNROLL
    for (int i = 0; i < fragments_m; ++i) load_matrices(f.x[i], x + i * 16 * row_bytes);
    AC_UNROLL
    for (int j = 0; j < fragments_n; j += 2) {
      unsigned both[4];
      load_matrices(both, w + j * 8 * row_bytes);
      f.w[j][0] = both[0], f.w[j][1] = both[1];
      f.w[j + 1][0] = both[2], f.w[j + 1][1] = both[3];
    }
  }

  // Leaves the sum over all splits in the block that comes last; returns whether this is it.
  AC_DEVICE static bool combine(const GemmParams& p, float (&sums)[fragments_m][fragments_n][4]) {
    AC_SHARED(int, is_last, 1);
    constexpr int pieces = fragments_m * fragments_n;
    auto* const all = reinterpret_cast<float4*>(p.partial) +
                      static_cast<long long>(blockIdx.x) * plan.split * pieces * plan.threads();
    float4* const mine = all + blockIdx.y * pieces * plan.threads() + threadIdx.x;
    AC_UNROLL
    for (int i = 0; i < pieces; ++i) {
      const float(&s)[4] = sums[i / fragments_n][i % fragments_n];
      mine[i * plan.threads()] = make_float4(s[0], s[1], s[2], s[3]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      constexpr unsigned last = plan.split - 1;
      *is_last = atomicInc(p.finished + blockIdx.x, last) == last;  // wraps to 0 by itself
    }
    __syncthreads();
    if (!*is_last) return false;
    __threadfence();
    // In the order of the splits, whoever came last: the same bits in every run.
    AC_UNROLL
    for (int i = 0; i < pieces; ++i) {
      float(&s)[4] = sums[i / fragments_n][i % fragments_n];
      s[0] = s[1] = s[2] = s[3] = 0;
      for (int part = 0; part < plan.split; ++part) {
        const float4 v = load_fresh(all + (part * pieces + i) * plan.threads() + threadIdx.x);
        s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
      }
    }
    return true;
  }
};

template <GemmOp op, MmaGemmPlan plan>
AC_DEVICE void mma_gemm(const GemmParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using G = MmaGemm<op, plan>;
  using T = typename G::T;
  constexpr int fragments_k = plan.tile_k / 16, stages = plan.stages;

  AC_DYNAMIC_SHARED(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp / plan.warps_n() * plan.warp_m;
  const int warp_column = warp % plan.warps_n() * plan.warp_n;
  const typename G::Tile tile(p, blockIdx.x, plan.group_m);

  int steps = (p.k + plan.tile_k - 1) / plan.tile_k, first_step = 0;
  if constexpr (plan.split > 1) {
    const int part = (steps + plan.split - 1) / plan.split;
    first_step = blockIdx.y * part;
    const int left = steps - first_step;
    steps = left < 0 ? 0 : left < part ? left : part;
  }
  const auto slot = [&](int index) { return shared + index * plan.stage_bytes(); };
  const auto copy_x = [&](int index, int step) {
    G::copy_x(p, tile, slot(index), (first_step + step) * plan.tile_k, p.k);
  };
  const auto copy_weights = [&](int index, int step) {
    G::copy_weights(p, tile, slot(index), (first_step + step) * plan.tile_k, p.k);
  };

  launch_dependents();
  for (int i = 0; i < stages - 1; ++i)
    if (i < steps) copy_weights(i, i);
  wait_for_dependency();
  for (int i = 0; i < stages - 1; ++i) {
    if (i < steps) copy_x(i, i);
    commit_copies();
  }

  float sums[G::fragments_m][G::fragments_n][4] = {};
  typename G::Fragments fragments[2];
  const int x_offset = left_offset<G::chunks>(warp_row);
  const int w_offset = right_offset<G::chunks>(warp_column);
  wait_for_copies<stages - 2>();
  __syncthreads();
  G::load(fragments[0], slot(0), x_offset, w_offset, 0);
  int reading = 0, writing = stages - 1;
  for (int step = 0; step < steps; ++step) {
    if (step + stages - 1 < steps) {
      copy_weights(writing, step + stages - 1);
      copy_x(writing, step + stages - 1);
    }
    commit_copies();
    writing = reading;
    AC_UNROLL
    for (int k = 0; k < fragments_k; ++k) {
      auto& now = fragments[k % 2];
      auto& next = fragments[(k + 1) % 2];
      if (k + 1 < fragments_k) {
        G::load(next, slot(reading), x_offset, w_offset, k + 1);
      } else {
        wait_for_copies<stages - 2>();
        __syncthreads();
        reading = reading + 1 < stages ? reading + 1 : 0;
        if constexpr (fragments_k > 1) G::load(next, slot(reading), x_offset, w_offset, 0);
      }
      AC_UNROLL
      for (int i = 0; i < G::fragments_m; ++i) AC_UNROLL
      for (int j = 0; j < G::fragments_n; ++j) mma_16x8x16<T>(sums[i][j], now.x[i], now.w[j]);
    }
    if constexpr (fragments_k == 1) G::load(fragments[0], slot(reading), x_offset, w_offset, 0);
  }

  if constexpr (plan.split > 1)
    if (!G::combine(p, sums)) return;
  const GemmMatrix& matrix = p.matrix[tile.matrix];
  AC_UNROLL
  for (int i = 0; i < G::fragments_m; ++i) AC_UNROLL
  for (int j = 0; j < G::fragments_n; j += G::sets) AC_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float(&value)[4] = sums[i][j];
    const float(&up)[4] = sums[i][j + G::sets - 1];
    write_output_pair<op>(p, matrix, tile.token + warp_row + 16 * i + lane / 4 + 8 * half,
                          tile.output + warp_column / G::sets + 8 * (j / G::sets) + lane % 4 * 2,
                          {value[2 * half], value[2 * half + 1]}, {up[2 * half], up[2 * half + 1]});
  }
}

}  // namespace ac::kernels

// Defines the kernel `name`; its grid is (plan.grid(op, shape), plan.split).
#define AC_MMA_GEMM_KERNEL(name, op, plan)                                            \
  AC_KERNEL_ENTRY(name, ::ac::kernels::GemmParams, (plan).threads(), (plan).resident, \
                  ::ac::kernels::mma_gemm<op, plan>(p))
