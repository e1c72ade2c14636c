// The GPU as the benchmarks use it.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/device_helpers.cuh"
#include "kernels/tensor_map.h"

namespace ac::bench {

// What `enqueue` put on a stream, to be replayed.
struct Graph {
  cudaGraphExec_t executable;

  template <class Enqueue>
  Graph(cudaStream_t stream, Enqueue enqueue) {
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue();
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
  }
  Graph(const Graph&) = delete;
  ~Graph() { CHECK_CUDA(cudaGraphExecDestroy(executable)); }
};

// The GPU, a stream on it, and the clock.
struct Gpu {
  int sms = 0, max_shared = 0;
  cudaStream_t stream{};
  cudaEvent_t start{}, stop{};
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  decltype(&cuTensorMapEncodeTiled) encode = nullptr;

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
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
                                                reinterpret_cast<void**>(&encode), 12000,
                                                cudaEnableDefault, &found));
    return properties;
  }

  // Makes the tensor map of a matrix without gaps between its rows. A box has box_panels panels of
  // 64 columns (kernels/tensor_map.h).
  kernels::TensorMap map_of(CUtensorMapDataType type, const void* base, int rows, int columns,
                            int box_rows, int box_panels = 1) const {
    CUtensorMap map;
    const cuuint64_t sizes[3] = {cuuint64_t(box_panels > 1 ? 64 : columns), cuuint64_t(rows),
                                 cuuint64_t(columns / 64)};
    const cuuint64_t pitches[2] = {cuuint64_t(columns) * 2, 128};
    const cuuint32_t box[3] = {64, cuuint32_t(box_rows), cuuint32_t(box_panels)},
                     steps[3] = {1, 1, 1};
    if (encode(&map, type, box_panels > 1 ? 3 : 2, const_cast<void*>(base), sizes, pitches, box,
               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
      std::printf("{\"error\": \"a tensor map\"}\n"), std::exit(3);
    kernels::TensorMap result;
    std::memcpy(&result, &map, sizeof map);
    return result;
  }

  template <class T>
  static void allocate(T*& p, size_t count) {
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&p), count * sizeof(T)));
    CHECK_CUDA(cudaMemset(p, 0, count * sizeof(T)));
  }

  // Microseconds of what `enqueue` puts on the stream: the median of some runs, after two others.
  template <class Enqueue>
  double median_us(Enqueue enqueue, int runs = 9) {
    const Graph graph(stream, enqueue);
    std::vector<float> times;
    for (int i = 0; i < runs + 2; ++i) {
      CHECK_CUDA(cudaEventRecord(start, stream));
      CHECK_CUDA(cudaGraphLaunch(graph.executable, stream));
      CHECK_CUDA(cudaEventRecord(stop, stream));
      CHECK_CUDA(cudaStreamSynchronize(stream));
      float ms;
      CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
      if (i >= 2) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e3;
  }
  // Bytes a second that streaming reads of so much memory reach.
  double streaming_limit(const void* data, size_t bytes) {
    unsigned* sink;
    allocate(sink, 1);
    double best = 1e30;
    for (int blocks : {sms * 4, sms * 8})
      best = std::min(best, median_us([&] {
                        stream_read<8><<<blocks, 256, 0, stream>>>(static_cast<const uint4*>(data),
                                                                   bytes / 16, sink);
                      }));
    return bytes / (best * 1e-6);
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
