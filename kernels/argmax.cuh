// The index of the largest value of a whole grid, with no second launch.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/sampling_plan.h"

namespace ac::kernels {

// Larger floats, and among equals smaller rows, have larger keys. Every key is above 0.
AC_DEVICE unsigned long long argmax_key(float value, int row) {
  const unsigned bits = value == 0 ? 0 : __float_as_uint(value);  // -0 equals 0
  const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | ~static_cast<unsigned>(row);
}

// The same of logits: one that is not finite has a larger key than all that are, the first of them
// the largest.
AC_DEVICE unsigned long long logit_key(float value, int row) {
  constexpr unsigned infinity = 0x7f800000u;
  const unsigned bits = __float_as_uint(value);
  if ((bits & infinity) != infinity) return argmax_key(value, row);
  const BadLogit what = value != value              ? BadLogit::nan
                        : (bits & 0x80000000u) != 0 ? BadLogit::minus_infinity
                                                    : BadLogit::infinity;
  return 0xffffffffull << 32 | static_cast<unsigned>(bad_token(row, what));
}

// The row of a key, or the bad token.
AC_DEVICE int argmax_token(unsigned long long key) {
  const auto low = static_cast<unsigned>(key);
  return static_cast<int>(key >> 32 == 0xffffffffull ? low : ~low);
}

// Takes each thread's largest key. The block's best goes to block_best [grid], and the block that
// comes last writes the token of the best of all. `finished_blocks` is 0 before and after.
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
    *best_row = argmax_token(best);
  }
}

}  // namespace ac::kernels
