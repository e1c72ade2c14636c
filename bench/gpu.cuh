// The GPU as the benchmarks use it.
#pragma once

#include <chrono>

#include "bench/device_helpers.cuh"

namespace ac::bench {

// The GPU, a stream on it, and the clock.
struct Gpu {
  int sms = 0, max_shared = 0;
  cudaStream_t stream{};
  cudaEvent_t start{}, stop{};
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  cudaDeviceProp open() {
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    sms = properties.multiProcessorCount;
    max_shared = static_cast<int>(properties.sharedMemPerBlockOptin);
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&stop));
    return properties;
  }

  template <class T>
  static void allocate(T*& p, size_t count) {
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&p), count * sizeof(T)));
    CHECK_CUDA(cudaMemset(p, 0, count * sizeof(T)));
  }

  template <class K>
  void prepare(K kernel) const {
    cudaFuncAttributes attributes;
    CHECK_CUDA(cudaFuncGetAttributes(&attributes, kernel));
    // One carve-out for all, so that neighbours in the stream can share an SM.
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    max_shared - static_cast<int>(attributes.sharedSizeBytes)));
  }
};

}  // namespace ac::bench
