// What the kernel benchmarks share: checks of CUDA calls, random data, errors, models.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/types.cuh"

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

static __global__ void fill_random(f16* data, size_t count, float bound, float offset) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    unsigned long long z = (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    data[i] = from_float<f16>(offset + bound * (float(z >> 40) * (2.f / 16777216.f) - 1.f));
  }
}

static __global__ void largest_error(const void* y, Type type, const float* reference, long long n,
                                     unsigned* worst) {
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < n;
       i += gridDim.x * 1ll * blockDim.x) {
    const float got = type == Type::f32 ? static_cast<const float*>(y)[i]
                                        : to_float(static_cast<const f16*>(y)[i]);
    float error = fabsf(got - reference[i]) / (1.f + fabsf(reference[i]));
    if (!(error < 1e6f)) error = 1e6f;
    atomicMax(worst, __float_as_uint(error));
  }
}

struct Model {
  const char* name;
  int hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary;
};
inline const Model models[] = {
    {"Llama-3.2-1B", 2048, 16, 32, 8, 64, 8192, 128256},
    {"Qwen3-1.7B", 2048, 28, 16, 8, 128, 6144, 151936},
    {"Qwen3-4B", 2560, 36, 32, 8, 128, 9728, 151936},
};

}  // namespace ac::bench
