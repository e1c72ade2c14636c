// The index of the largest value of a whole grid, with no second launch.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

// Larger floats, and among equals smaller rows, have larger keys. NaN has the smallest, but any key
// is above 0.
AC_DEVICE unsigned long long argmax_key(float value, int row) {
  const unsigned bits = value == 0 ? 0 : __float_as_uint(value);  // -0 equals 0
  unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  if (value != value) ordered = 0;
  return static_cast<unsigned long long>(ordered) << 32 | ~static_cast<unsigned>(row);
}

AC_DEVICE int argmax_row(unsigned long long key) {
  return static_cast<int>(~static_cast<unsigned>(key));
}

// Takes each thread's largest key. The block's best goes to block_best [grid], and the block that
// comes last writes the row of the best of all. `finished_blocks` is 0 before and after.
template <int warps>
AC_DEVICE void combine_argmax(unsigned long long best, unsigned long long* block_best,
                              unsigned* finished_blocks, int* best_row) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  AC_SHARED(unsigned long long, warp_best, warps);
  AC_SHARED(int, is_last, 1);
  best = warp_max(best);
  if (lane == 0) warp_best[warp] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < warps; ++i) best = warp_best[i] > best ? warp_best[i] : best;
    block_best[blockIdx.x] = best;
    __threadfence();
    const unsigned last = gridDim.x - 1;
    *is_last = atomicInc(finished_blocks, last) == last;  // wraps to 0 by itself
  }
  __syncthreads();
  if (!*is_last) return;
  __threadfence();
  for (unsigned i = threadIdx.x; i < gridDim.x; i += warps * 32) {
    const unsigned long long other = load_fresh(block_best + i);
    best = other > best ? other : best;
  }
  best = warp_max(best);
  if (lane == 0) warp_best[warp] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < warps; ++i) best = warp_best[i] > best ? warp_best[i] : best;
    *best_row = argmax_row(best);
  }
}

}  // namespace ac::kernels
