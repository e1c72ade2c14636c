// How a warp or a block goes over a row, several times if need be, and what it does together.
#pragma once

#include "kernels/math.cuh"
#include "kernels/rows_plan.h"
#include "kernels/vectors.cuh"

namespace ac::kernels {

// The threads that share a row. Every one of them must come to each reduction.
template <Team team, int threads>
struct RowTeam {
  static constexpr int size = team_threads(team, threads);
  static constexpr int teams = threads / size;  // in a block
  static constexpr int warps = size / 32;
  static constexpr int scratch_size = team == Team::warp ? 1 : 2 * warps;

  float* scratch;  // [2, warps] in shared memory
  int turn = 0;    // of the two buffers: nobody can be two reductions ahead of the barrier

  AC_DEVICE explicit RowTeam(float* shared) : scratch(shared) {}

  AC_DEVICE static int lane() { return threadIdx.x % size; }
  AC_DEVICE static int number() { return threadIdx.x / size; }
  AC_DEVICE static int first_row() { return blockIdx.x * teams + number(); }
  AC_DEVICE static int row_stride() { return gridDim.x * teams; }

  template <class Combine>
  AC_DEVICE float reduce(float v, Combine combine) {
    v = warp_reduce(v, combine);
    if constexpr (team == Team::block) {
      float* const of_warp = scratch + turn * warps;
      turn ^= 1;
      if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
      __syncthreads();
      v = of_warp[0];
      AC_UNROLL
      for (int w = 1; w < warps; ++w) v = combine(v, of_warp[w]);
    }
    return v;
  }
  AC_DEVICE float sum(float v) { return reduce(v, math::Add()); }
};

// This thread's part of a row: vectors of `vector` elements, dealt out in turn. A pass calls
// visit(values, column, count) for each: elements `count` and up are past the end of the row, and
// hold `otherwise`. The first pass may change the values; later ones see what it left.
template <Team team, int threads, int vector, Keep keep, int kept>
struct RowPart {
  static constexpr int size = team_threads(team, threads);

  float values[keep == Keep::registers ? kept : 1][vector];
  float* shared;  // of this team, if the row is kept there: element e of vector i at [e, i]
  int columns;

  AC_DEVICE RowPart(unsigned char* dynamic_shared, int columns_) : columns(columns_) {
    const int number = threadIdx.x / size;
    const int bytes = kept_row_bytes(keep, size, size, vector, columns);
    shared = reinterpret_cast<float*>(dynamic_shared + number * bytes);
  }

  template <class Body>
  AC_DEVICE void each(Body body) {
    const int lane = threadIdx.x % size;
    if constexpr (keep == Keep::registers) {
      AC_UNROLL
      for (int j = 0; j < kept; ++j) {
        const int column = (j * size + lane) * vector;
        if (column < columns) body(j, column, columns - column);
      }
    } else {
      AC_UNROLL_BY(2)
      for (int column = lane * vector; column < columns; column += size * vector)
        body(0, column, columns - column);
    }
  }

  // Where element e of the vector at `column` is kept.
  AC_DEVICE float& in_shared(int column, int e) {
    const int vectors = divide_up(columns, vector);
    return shared[e * vectors + column / vector];
  }

  template <class T, class Visit>
  AC_DEVICE void first_pass(const T* row, float otherwise, Visit visit) {
    if constexpr (keep == Keep::registers) {
      // All loads are on their way before the first value is used.
      if (columns % vector == 0 && is_aligned<vector>(row)) {
        Packed<T, vector> packed[kept];
        each([&](int j, int column, int) { packed[j].load(row + column); });
        each([&](int j, int, int) { packed[j].unpack(values[j]); });
      } else {
        each([&](int j, int column, int count) {
          load_some(row + column, count, values[j], otherwise);
        });
      }
      each([&](int j, int column, int count) { visit(values[j], column, count); });
    } else {
      each([&](int, int column, int count) {
        float v[vector];
        load_some(row + column, count, v, otherwise);
        visit(v, column, count);
        if constexpr (keep == Keep::shared) {
          AC_UNROLL
          for (int e = 0; e < vector; ++e) in_shared(column, e) = v[e];
        }
      });
    }
  }

  // `row` is loaded again only if the plan keeps it nowhere: it must hold what the first pass left.
  template <class T, class Visit>
  AC_DEVICE void next_pass(const T* row, float otherwise, Visit visit) {
    each([&](int j, int column, int count) {
      if constexpr (keep == Keep::registers) {
        visit(values[j], column, count);
      } else {
        float v[vector];
        if constexpr (keep == Keep::shared) {
          AC_UNROLL
          for (int e = 0; e < vector; ++e) v[e] = in_shared(column, e);
        } else {
          load_some(row + column, count, v, otherwise);
        }
        visit(v, column, count);
      }
    });
  }
};

}  // namespace ac::kernels
