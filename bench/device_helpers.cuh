// Small kernels of the benchmarks: random data, the streaming limit, references.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/gemv.cuh"

#define CHECK_CUDA(call)                                                                           \
  do {                                                                                             \
    const cudaError_t error = (call);                                                              \
    if (error != cudaSuccess) {                                                                    \
      std::printf("{\"error\": \"%s\", \"at\": \"%s:%d\"}\n", cudaGetErrorString(error), __FILE__, \
                  __LINE__);                                                                       \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (0)

namespace ac::bench {

using namespace ac::kernels;

template <class T>
static __global__ void fill_random(T* data, size_t count, float bound, float offset) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    unsigned long long z = (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    data[i] = from_float<T>(offset + bound * (float(z >> 40) * (2.f / 16777216.f) - 1.f));
  }
}

// Cosines and sines of some angles: a RoPE table.
static __global__ void fill_turns(float* table, size_t pairs) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < pairs;
       i += size_t(gridDim.x) * blockDim.x)
    sincosf(float(i) * 0.1f, table + 2 * i + 1, table + 2 * i);
}

template <int loads>
static __global__ void stream_read(const uint4* data, size_t count, unsigned* sink) {
  unsigned sum = 0;
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  for (; i + (loads - 1) * stride < count; i += loads * stride) {
    uint4 v[loads];
#pragma unroll
    for (int u = 0; u < loads; ++u)
      load_weights<Cache::streaming>(v[u], data + i + u * stride, true);
#pragma unroll
    for (int u = 0; u < loads; ++u) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

// One warp an output, in float32, one product at a time.
static __global__ void reference_gemv(GemvParams p, GemvOp op, float* y) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= p.matrix[0].rows) return;
  const f16* x = static_cast<const f16*>(p.x);
  const f16* norm = static_cast<const f16*>(p.norm_weight);
  float squares = 0, sums[2] = {0, 0};
  for (int i = lane; i < p.k; i += 32) {
    const float v = to_float(x[i]), scaled = op.norm ? v * to_float(norm[i]) : v;
    squares += v * v;
    for (int m = 0; m < op.row_sets(); ++m)
      sums[m] +=
          scaled * to_float(static_cast<const f16*>(p.matrix[m].weight)[size_t(row) * p.pitch + i]);
  }
  squares = warp_sum(squares);
  for (float& sum : sums)
    sum = warp_sum(sum) * (op.norm ? rsqrtf(squares / p.k + p.norm_eps) : 1.f);
  float value = sums[0];
  if (op.pair == Pair::swiglu) value = value / (1.f + expf(-value)) * sums[1];
  if (op.residual) value += to_float(static_cast<const f16*>(p.residual)[row]);
  if (lane == 0) y[row] = value;
}

static __global__ void largest_error(const void* y, Type type, const float* reference, size_t n,
                                     unsigned* worst) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += size_t(gridDim.x) * blockDim.x) {
    const float got = type == Type::f32 ? static_cast<const float*>(y)[i]
                                        : to_float(static_cast<const f16*>(y)[i]);
    float error = fabsf(got - reference[i]) / (1.f + fabsf(reference[i]));
    if (!(error < 1e6f)) error = 1e6f;
    atomicMax(worst, __float_as_uint(error));
  }
}

}  // namespace ac::bench
