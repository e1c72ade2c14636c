// What the decode benchmark runs on.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/gemv_shapes.h"
#include "bench/gpu.cuh"

namespace ac::bench {

constexpr int capacity = 20480 + 64;
constexpr int contexts[] = {128, 2048, 8192, 20480};

// The GPU with the buffers and compiled kernels on it.
struct Machine : Gpu {
  f16* arena = nullptr;  // random weights of the largest model
  size_t arena_elements = 0;
  f16 *hidden[2] = {}, *attention = nullptr, *query = nullptr, *activation = nullptr;
  f16* norm_weight = nullptr;
  float *logits = nullptr, *reference = nullptr;
  unsigned long long* block_best = nullptr;
  unsigned *finished_blocks = nullptr, *worst = nullptr;
  int* best_row = nullptr;
  Kernel kernels[site_count][plan_count] = {};
  AttentionKernel attention_kernels[3][attention_plan_count] = {};
  f16* kv = nullptr;  // keys and values of every layer of the model with the most
  float *rope = nullptr, *partial = nullptr;
  unsigned* finished_heads = nullptr;
  int* position = nullptr;
  double limit = 0;  // bytes a second

  void set_up() {
    const cudaDeviceProp properties = open();
    for (const Model& m : models)
      arena_elements =
          std::max(arena_elements, layer_elements(m) * m.layers + shape_of(m, head).elements);
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&arena), arena_elements * sizeof(f16)));
    fill_random<<<sms * 8, 256>>>(arena, arena_elements, 0.03f, 0);
    for (f16*& h : hidden) allocate(h, 16384);
    allocate(attention, 16384), allocate(query, 16384), allocate(activation, 16384);
    allocate(norm_weight, 16384);
    fill_random<<<16, 256>>>(norm_weight, 16384, 0.2f, 1);
    reset();
    allocate(logits, 160000), allocate(reference, 160000), allocate(block_best, 160000);
    allocate(finished_blocks, 1), allocate(worst, 1), allocate(best_row, 1);
    fill_table_0(kernels[qkv]), fill_table_1(kernels[o]), fill_table_2(kernels[gate_up]);
    fill_table_1(kernels[down]), fill_table_4(kernels[head]);
    size_t most_kv = 0;
    for (const Model& m : models)
      most_kv = std::max(most_kv, 2 * size_t(m.layers) * m.kv_heads * m.head_dim * capacity);
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&kv), most_kv * sizeof(f16)));
    fill_random<<<sms * 8, 256>>>(kv, most_kv, 1, 0);
    allocate(rope, size_t(capacity) * 128);
    fill_turns<<<sms, 256>>>(rope, size_t(capacity) * 64);
    allocate(partial, 1 << 20);
    allocate(finished_heads, 64), allocate(position, 1);
    fill_attention_table(attention_kernels);
    for (auto& row : attention_kernels)
      for (AttentionKernel kernel : row) prepare(kernel);
    for (auto& row : kernels)
      for (Kernel kernel : row)
        if (kernel != nullptr) prepare(kernel);
    CHECK_CUDA(cudaDeviceSynchronize());
    std::printf("{\"device\": \"%s\", \"sms\": %d, \"l2_mb\": %.0f, \"plans\": %d}\n",
                properties.name, sms, properties.l2CacheSize / 1048576.0, plan_count);
  }

  // Activations as at a step's start: chains add to the hidden state, and must not overflow.
  void reset() const {
    for (f16* data : {hidden[0], hidden[1], attention, query, activation})
      fill_random<<<16, 256, 0, stream>>>(data, 16384, 1, 0);
  }

  void measure_limit(const char* when) {
    const size_t vectors = arena_elements / 8;
    double best = 0;
    for (int blocks : {2, 3, 4}) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        CHECK_CUDA(cudaEventRecord(start, stream));
        stream_read<8><<<sms * blocks, 512, 0, stream>>>(reinterpret_cast<const uint4*>(arena),
                                                         vectors, worst);
        CHECK_CUDA(cudaEventRecord(stop, stream));
        CHECK_CUDA(cudaEventSynchronize(stop));
        float ms = 0;
        CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
        if (repeat > 0) best = std::max(best, vectors * 16.0 / (ms * 1e-3));
      }
    }
    if (limit == 0) limit = best;
    std::printf("{\"limit\": \"%s\", \"gb_s\": %.1f, \"gb\": %.2f}\n", when, best / 1e9,
                vectors * 16.0 / 1e9);
  }

  template <class P>
  void enqueue(void (*kernel)(P), dim3 grid, int threads, int shared_bytes, const P& p,
               bool dependent) const {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = dependent ? 1 : 0;
    CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, p));
  }

  // Milliseconds of one replay: the least of `rounds`.
  double time_replays(const Graph& graph, int rounds, int replays) const {
    CHECK_CUDA(cudaGraphLaunch(graph.executable, stream));
    double best = 1e9;
    for (int round = 0; round < rounds; ++round) {
      CHECK_CUDA(cudaEventRecord(start, stream));
      for (int i = 0; i < replays; ++i) CHECK_CUDA(cudaGraphLaunch(graph.executable, stream));
      CHECK_CUDA(cudaEventRecord(stop, stream));
      CHECK_CUDA(cudaEventSynchronize(stop));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
      best = std::min(best, double(ms) / replays);
    }
    return best;
  }

  // The same for what `enqueue` puts on the stream.
  template <class Enqueue>
  double time_graph(Enqueue enqueue, int rounds, int replays) const {
    return time_replays(Graph(stream, enqueue), rounds, replays);
  }
};

}  // namespace ac::bench
