// The matrix product on tensor cores; mma_gemm_plan.h says what op and plan mean.
//
// While a warp multiplies one fragment of K, the next one is on its way from shared memory; while
// the block works on one slot of the ring, the others fill. One barrier a slot: it comes before the
// slot's last fragment, when everyone has read the slot and the next one is complete. Products of
// four warps at once (wgmma) read slots themselves; they run two slots behind the copies.
#pragma once

#include "kernels/either.cuh"
#include "kernels/gemm_tile.cuh"
#include "kernels/mma_gemm_plan.h"
#include "kernels/mma_tile.cuh"
#include "kernels/warpgroup.cuh"

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

  // Rows past the end repeat one before it: their sums are never written.
  struct RowsOfX {
    const GemmParams& p;
    int first;
    AC_DEVICE const T* operator()(int r) const {
      const int token = first + r < p.m ? first + r : p.m - 1;
      return static_cast<const T*>(p.x) + static_cast<long long>(token) * p.x_pitch;
    }
    AC_DEVICE int step(int rows) const { return rows * p.x_pitch; }
    AC_DEVICE int left(int r) const { return p.m - 1 - first - r; }
  };
  // Of a pair, 8 rows of the gate and 8 of its partner take turns, so that a thread gets the sums
  // of both.
  struct RowsOfWeights {
    const GemmParams& p;
    int matrix, first;
    AC_DEVICE static int within(int r) { return sets == 2 ? r / 16 * 8 + r % 8 : r; }
    AC_DEVICE const T* operator()(int r) const {
      const GemmMatrix& of = p.matrix[matrix];
      const void* weight = of.weight;
      if constexpr (sets == 2)
        if (r / 8 % 2 == 1) weight = p.matrix[1].weight;
      const int output = first + within(r) < of.rows ? first + within(r) : of.rows - 1;
      return static_cast<const T*>(weight) + static_cast<long long>(output) * p.pitch;
    }
    AC_DEVICE int step(int rows) const { return rows / sets * p.pitch; }
    AC_DEVICE int left(int r) const {
      return (p.matrix[matrix].rows - 1 - first - within(r)) * sets;
    }
  };
  template <int rows, class Pointer>
  struct StridedCopies : TileCopies<T, rows, chunks, plan.threads()> {
    using Base = TileCopies<T, rows, chunks, plan.threads()>;
    AC_DEVICE explicit StridedCopies(const Pointer& of)
        : Base(of(Base::first_row()), of.step(Base::down),
               max(of.left(Base::first_row()), 0) / Base::down) {}
  };
  // Where a thread's rows do not lie evenly, addresses are computed again for each slot.
  template <int rows, class Pointer>
  struct FreshCopies {
    Pointer pointer;
    AC_DEVICE explicit FreshCopies(const Pointer& of) : pointer(of) {}
    AC_DEVICE void start(unsigned char* to, int begin, int end) const {
      copy_tile<T, rows, chunks, plan.threads()>(to, pointer, [](int) { return true; }, begin, end);
    }
  };
  static constexpr bool strided = TileCopies<T, plan.tile_m, chunks, plan.threads()>::fit;
  template <int rows, class Pointer>
  using Copies =
      typename Either<strided, StridedCopies<rows, Pointer>, FreshCopies<rows, Pointer>>::Type;

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

  // Puts a warp's sums where rows of the block's tile lie `pitch` apart; rows from `end` on count
  // for nothing.
  AC_DEVICE static void put(const float (&sums)[fragments_m][fragments_n][4], float* tile,
                            int pitch, int warp_row, int warp_column, int end) {
    const int lane = threadIdx.x % 32, row = warp_row + lane / 4;
    float* const to = tile + row * pitch + warp_column + lane % 4 * 2;
    AC_UNROLL
    for (int i = 0; i < fragments_m; ++i) AC_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (row + 16 * i + 8 * half >= end) continue;
      AC_UNROLL
      for (int j = 0; j < fragments_n; ++j)
        *reinterpret_cast<float2*>(to + (16 * i + 8 * half) * pitch + 8 * j) =
            make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
    }
  }

  // Whether this is the last block of its tile, which then sees the sums of all of them.
  AC_DEVICE static bool is_last(const GemmParams& p) {
    AC_SHARED(int, last, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      constexpr unsigned most = plan.split - 1;
      *last = atomicInc(p.finished + blockIdx.x, most) == most;  // wraps to 0 by itself
    }
    __syncthreads();
    if (!*last) return false;
    __threadfence();
    return true;
  }

  // Row by row, in a loop that is small: instructions that run once a launch, for each sum where it
  // stands, were most of what a short step took. read(row, column) has four sums of the tile.
  template <class Read>
  AC_DEVICE static void write(const GemmParams& p, const Tile& tile, int end, Read read) {
    constexpr int across = Tile::outputs / 4;
    constexpr int at_once = plan.split <= 4 ? 4 : plan.split <= 8 ? 2 : 1;  // as registers allow
    const GemmMatrix& matrix = p.matrix[tile.matrix];
    const int total = end * across;
    for (int first = threadIdx.x; first < total; first += plan.threads() * at_once) {
      FourOutputs<op> fours[at_once];
      AC_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int at = first + i * plan.threads(), within = at < total ? at : total - 1;
        const int row = within / across, output = within % across * 4;
        const int column = sets == 2 ? output / 8 * 16 + output % 8 : output;
        fours[i].token = tile.token + row, fours[i].output = tile.output + output;
        fours[i].inside = at < total && fours[i].output < matrix.rows;
        fours[i].load(matrix, read(row, column), read(row, sets == 2 ? column + 8 : column));
      }
      AC_UNROLL
      for (int i = 0; i < at_once; ++i) fours[i].write(p, matrix);
    }
  }

  // The block's outputs, from the sums of its warps.
  AC_DEVICE static void finish(const GemmParams& p, const Tile& tile, unsigned char* shared,
                               const float (&sums)[fragments_m][fragments_n][4], int warp_row,
                               int warp_column) {
    const int end = p.m - tile.token < plan.tile_m ? p.m - tile.token : plan.tile_m;
    if constexpr (plan.split == 1) {
      __syncthreads();  // the ring has been read
      auto* const all = reinterpret_cast<float*>(shared);
      put(sums, all, plan.sums_pitch(), warp_row, warp_column, end);
      __syncthreads();
      write(p, tile, end, [&](int row, int column) {
        return *reinterpret_cast<const float4*>(all + row * plan.sums_pitch() + column);
      });
    } else {
      constexpr int part = plan.tile_m * plan.tile_n;
      float* const all = p.partial + static_cast<long long>(blockIdx.x) * plan.split * part;
      put(sums, all + blockIdx.y * part, plan.tile_n, warp_row, warp_column, end);
      if (!is_last(p)) return;
      write(p, tile, end, [&](int row, int column) {
        const float* const from = all + row * plan.tile_n + column;
        // In the order of the splits, whoever came last: the same bits in every run.
        float4 parts[plan.split], sum = make_float4(0, 0, 0, 0);
        AC_UNROLL
        for (int i = 0; i < plan.split; ++i)
          parts[i] = load_fresh(reinterpret_cast<const float4*>(from + i * part));
        AC_UNROLL
        for (int i = 0; i < plan.split; ++i)
          sum.x += parts[i].x, sum.y += parts[i].y, sum.z += parts[i].z, sum.w += parts[i].w;
        return sum;
      });
    }
  }
};

// A block's part of K, in slots, and the copies into them.
template <GemmOp op, MmaGemmPlan plan>
struct MmaGemmSteps {
  using G = MmaGemm<op, plan>;

  const GemmParams& p;
  unsigned char* const shared;
  int first = 0, count;
  const typename G::template Copies<plan.tile_m, typename G::RowsOfX> x;
  const typename G::template Copies<plan.tile_n, typename G::RowsOfWeights> weights;

  AC_DEVICE MmaGemmSteps(const GemmParams& p, const typename G::Tile& tile, unsigned char* shared)
      : p(p),
        shared(shared),
        count((p.k + plan.tile_k - 1) / plan.tile_k),
        x(typename G::RowsOfX{p, tile.token}),
        weights(typename G::RowsOfWeights{p, tile.matrix, tile.output}) {
    if constexpr (plan.split > 1) {
      const int part = (count + plan.split - 1) / plan.split;
      first = blockIdx.y * part;
      const int left = count - first;
      count = left < 0 ? 0 : left < part ? left : part;
    }
  }

  AC_DEVICE unsigned char* slot(int index) const { return shared + index * plan.stage_bytes(); }
  AC_DEVICE void copy_x(int index, int step) const {
    x.start(slot(index), (first + step) * plan.tile_k, p.k);
  }
  AC_DEVICE void copy_weights(int index, int step) const {
    weights.start(slot(index) + G::x_bytes, (first + step) * plan.tile_k, p.k);
  }
  // The first slots; weights need not wait for the kernel before this one.
  AC_DEVICE void begin(int slots) const {
    launch_dependents();
    for (int i = 0; i < slots; ++i)
      if (i < count) copy_weights(i, i);
    wait_for_dependency();
    for (int i = 0; i < slots; ++i) {
      if (i < count) copy_x(i, i);
      commit_copies();
    }
  }
};

template <GemmOp op, MmaGemmPlan plan>
AC_DEVICE void mma_gemm_groups(const GemmParams& p) {
  using G = MmaGemm<op, plan>;
  // Slots between what is copied and what is multiplied: of the two others, products read one, and
  // have read the other when everyone has come to the next barrier.
  constexpr int stages = plan.stages, ahead = stages - 2;
  AC_ALIGNED_SHARED(panels, 1024);
  const typename G::Tile tile(p, blockIdx.x, plan.group_m);
  const MmaGemmSteps<op, plan> steps(p, tile, panels);
  const int group = threadIdx.x / 128;
  const int group_row = group / plan.warps_n() * 64;
  const int column = group % plan.warps_n() * plan.warp_n;

  steps.begin(ahead);
  float sums[1][G::fragments_n][4] = {};
  int reading = 0, writing = ahead;
  for (int step = 0; step < steps.count; ++step) {
    wait_for_copies<stages - 3>();
    publish_to_products();
    __syncthreads();
    const unsigned char* const slot = steps.slot(reading);
    const SharedTile x = moved(shared_tile<plan.tile_m>(slot), group_row * 128);
    const SharedTile w = moved(shared_tile<plan.tile_n>(slot + G::x_bytes), column * 128);
    products_begin();
    AC_UNROLL
    for (int k = 0; k < plan.tile_k / 16; ++k)
      multiply_shared<typename G::T, plan.warp_n>(sums[0], moved(x, k * 32), moved(w, k * 32),
                                                  true);
    products_commit();
    products_wait<1>();
    if (step + ahead < steps.count) {
      steps.copy_weights(writing, step + ahead);
      steps.copy_x(writing, step + ahead);
    }
    commit_copies();
    reading = reading + 1 < stages ? reading + 1 : 0;
    writing = writing + 1 < stages ? writing + 1 : 0;
  }
  products_wait<0>();
  hold(sums[0]);
  G::finish(p, tile, panels, sums, group_row + threadIdx.x / 32 % 4 * 16, column);
}

template <GemmOp op, MmaGemmPlan plan>
AC_DEVICE void mma_gemm_warps(const GemmParams& p) {
  using G = MmaGemm<op, plan>;
  using T = typename G::T;
  constexpr int fragments_k = plan.tile_k / 16, stages = plan.stages;

  AC_DYNAMIC_SHARED(shared);
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / plan.warps_n() * plan.warp_m;
  const int warp_column = warp % plan.warps_n() * plan.warp_n;
  const typename G::Tile tile(p, blockIdx.x, plan.group_m);
  const MmaGemmSteps<op, plan> steps(p, tile, shared);
  const auto slot = [&](int index) { return steps.slot(index); };

  steps.begin(stages - 1);
  float sums[G::fragments_m][G::fragments_n][4] = {};
  typename G::Fragments fragments[2];
  const int x_offset = left_offset<G::chunks>(warp_row);
  const int w_offset = right_offset<G::chunks>(warp_column);
  wait_for_copies<stages - 2>();
  __syncthreads();
  G::load(fragments[0], slot(0), x_offset, w_offset, 0);
  int reading = 0, writing = stages - 1;
  for (int step = 0; step < steps.count; ++step) {
    if (step + stages - 1 < steps.count) {
      steps.copy_weights(writing, step + stages - 1);
      steps.copy_x(writing, step + stages - 1);
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

  G::finish(p, tile, shared, sums, warp_row, warp_column);
}

template <GemmOp op, MmaGemmPlan plan>
AC_DEVICE void mma_gemm(const GemmParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  if constexpr (plan.tile == Tile::wgmma)
    mma_gemm_groups<op, plan>(p);
  else
    mma_gemm_warps<op, plan>(p);
}

}  // namespace ac::kernels

// Defines the kernel `name`; its grid is (plan.grid(op, shape), plan.split).
#define AC_MMA_GEMM_KERNEL(name, op, plan)                                            \
  AC_KERNEL_ENTRY(name, ::ac::kernels::GemmParams, (plan).threads(), (plan).resident, \
                  ::ac::kernels::mma_gemm<op, plan>(p))
