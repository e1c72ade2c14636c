// Kernels that measure a GPU: what streaming reads, copies and tensor cores reach at best. They
// leave something that depends on all they did, so that no compiler leaves it out and tests can see
// that they did it.
#pragma once

#include "kernels/measure_plan.h"
#include "kernels/ptx.cuh"

namespace ac::kernels {

// Calls `use` with every one of `count` pieces, of which each thread has eight loads under way.
template <class Use>
AC_DEVICE void for_each_piece(const MeasureMemoryParams& p, Use use) {
  constexpr int under_way = 8;
  const auto* const from = static_cast<const uint4*>(p.from);
  const unsigned long long count = p.count;
  const unsigned long long stride = 1ull * gridDim.x * blockDim.x;
  for (unsigned long long i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += under_way * stride) {
    uint4 v[under_way];
    AC_UNROLL
    for (int u = 0; u < under_way; ++u)
      load_weights<Cache::streaming>(v[u], from + i + u * stride, i + u * stride < count);
    AC_UNROLL
    for (int u = 0; u < under_way; ++u)
      if (i + u * stride < count) use(i + u * stride, v[u]);
  }
}

// The exclusive or of all that a thread read, to its word.
AC_DEVICE void measure_read(const MeasureMemoryParams& p) {
  unsigned all = 0;
  for_each_piece(p, [&](unsigned long long, uint4 v) { all ^= v.x ^ v.y ^ v.z ^ v.w; });
  static_cast<unsigned*>(p.to)[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

AC_DEVICE void measure_copy(const MeasureMemoryParams& p) {
  for_each_piece(p, [&](unsigned long long i, uint4 v) { static_cast<uint4*>(p.to)[i] = v; });
}

// Random words.
AC_DEVICE void measure_fill(const MeasureFillParams& p) {
  const unsigned long long stride = 1ull * gridDim.x * blockDim.x;
  for (unsigned long long i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < p.count;
       i += stride) {
    unsigned long long z = (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    static_cast<unsigned*>(p.to)[i] = (static_cast<unsigned>(z >> 32) & ~p.clear) | p.set;
  }
}

// A warp's register tile of a matrix product, again and again.
AC_DEVICE void measure_mma(const MeasureMmaParams& p) {
  constexpr int side = measure_mma_side;
  const auto* const operands = static_cast<const unsigned*>(p.operands) + threadIdx.x % 32;
  unsigned a[side][4], b[side][2][2];
  float c[side][2 * side][4] = {};
  AC_UNROLL
  for (int i = 0; i < side; ++i) {
    AC_UNROLL
    for (int w = 0; w < 4; ++w) {
      a[i][w] = operands[(i * 4 + w) * 32];
      b[i][w / 2][w % 2] = operands[((side + i) * 4 + w) * 32];
    }
  }
  for (int round = 0; round < p.rounds; ++round) {
    AC_UNROLL
    for (int i = 0; i < side; ++i) {
      AC_UNROLL
      for (int j = 0; j < 2 * side; ++j) mma_16x8x16<f16>(c[i][j], a[i], b[j / 2][j % 2]);
    }
  }
  float sum = 0;
  AC_UNROLL
  for (int i = 0; i < side; ++i) {
    AC_UNROLL
    for (int j = 0; j < 2 * side; ++j) {
      AC_UNROLL
      for (int w = 0; w < 4; ++w) sum += c[i][j][w];
    }
  }
  static_cast<float*>(p.sums)[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Defines all of them.
#define AC_MEASURE_KERNELS                                                           \
  AC_KERNEL_ENTRY(measure_read_kernel, ::ac::kernels::MeasureMemoryParams,           \
                  ::ac::kernels::measure_threads, 2, ::ac::kernels::measure_read(p)) \
  AC_KERNEL_ENTRY(measure_copy_kernel, ::ac::kernels::MeasureMemoryParams,           \
                  ::ac::kernels::measure_threads, 2, ::ac::kernels::measure_copy(p)) \
  AC_KERNEL_ENTRY(measure_fill_kernel, ::ac::kernels::MeasureFillParams,             \
                  ::ac::kernels::measure_threads, 2, ::ac::kernels::measure_fill(p)) \
  AC_KERNEL_ENTRY(measure_mma_kernel, ::ac::kernels::MeasureMmaParams,               \
                  ::ac::kernels::measure_mma_threads, 1, ::ac::kernels::measure_mma(p))

}  // namespace ac::kernels
