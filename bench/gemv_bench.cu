// Measures the decode GEMV family on this GPU and prints JSON lines:
//   limit  what a streaming read of several GB reaches, before, between and after the rest
//   gemv   each plan for each matrix of three models: cold L2, checked against a plain kernel
//   chain  all GEMVs of one decode step in a CUDA graph with programmatic dependent launch
// Usage: gemv_bench [seconds that the sweeps may take]
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/gemv_bench.h"

namespace ac::bench {
namespace {

// ---- device helpers

template <int loads>
__global__ void stream_read(const uint4* data, size_t count, unsigned* sink) {
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
__global__ void reference_gemv(GemvParams p, GemvOp op, float* y) {
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

// ---- models

struct Shape {
  int n, k;
  size_t elements;
};
Shape shape_of(const Model& m, int site) {
  const int query = m.heads * m.head_dim;
  int n = 0, k = 0;
  if (site == qkv) n = query + 2 * m.kv_heads * m.head_dim, k = m.hidden;
  if (site == o) n = m.hidden, k = query;
  if (site == gate_up) n = m.intermediate, k = m.hidden;
  if (site == down) n = m.hidden, k = m.intermediate;
  if (site == head) n = m.vocabulary, k = m.hidden;
  return {n, k, size_t(n) * k * ops[site].row_sets()};
}
size_t layer_elements(const Model& m) {
  size_t total = 0;
  for (int site = qkv; site <= down; ++site) total += shape_of(m, site).elements;
  return total;
}

std::string plan_name(const GemvPlan& p) {
  char text[96];
  const char* ring = p.ring == Ring::registers ? "R" : p.ring == Ring::async_copy ? "S" : "B";
  int length = std::snprintf(text, sizeof text, "%s%dx%dx%d", ring, p.threads, p.rows, p.depth);
  std::string name(text, static_cast<size_t>(length));
  if (p.chunks > 1) name += "x" + std::to_string(p.chunks);
  name += p.persistent ? "/" + std::to_string(p.resident) : std::string("/full");
  if (p.split > 1) name += "/split" + std::to_string(p.split);
  if (p.signal == Signal::last_group) name += "/late";
  if (p.cache == Cache::no_allocate) name += "/noalloc";
  if (p.cache == Cache::evict_first) name += "/evict";
  if (p.l2_ahead > 0) name += "/ahead" + std::to_string(p.l2_ahead);
  return name;
}

// ---- the machine

struct Bench {
  int sms = 0, max_shared = 0;
  cudaStream_t stream{};
  cudaEvent_t start{}, stop{};
  f16* arena = nullptr;  // random weights of the largest model
  size_t arena_elements = 0;
  f16 *hidden[2] = {}, *attention = nullptr, *query = nullptr, *activation = nullptr;
  f16* norm_weight = nullptr;
  float *logits = nullptr, *reference = nullptr;
  unsigned long long* block_best = nullptr;
  unsigned *finished_blocks = nullptr, *worst = nullptr;
  int* best_row = nullptr;
  Kernel kernels[site_count][plan_count] = {};
  int blocks_per_sm[site_count][plan_count] = {};
  double limit = 0;  // bytes a second
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  template <class T>
  static void allocate(T*& p, size_t count) {
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&p), count * sizeof(T)));
    CHECK_CUDA(cudaMemset(p, 0, count * sizeof(T)));
  }

  void set_up() {
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    sms = properties.multiProcessorCount;
    max_shared = static_cast<int>(properties.sharedMemPerBlockOptin);
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&stop));
    for (const Model& m : models)
      arena_elements =
          std::max(arena_elements, layer_elements(m) * m.layers + shape_of(m, head).elements);
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&arena), arena_elements * sizeof(f16)));
    fill_random<<<sms * 8, 256>>>(arena, arena_elements, 0.03f, 0);
    for (f16*& h : hidden) allocate(h, 16384);
    allocate(attention, 16384), allocate(query, 16384), allocate(activation, 16384);
    allocate(norm_weight, 16384);
    fill_random<<<16, 256>>>(norm_weight, 16384, 0.2f, 1);
    fill_random<<<16, 256>>>(attention, 16384, 1, 0);
    fill_random<<<16, 256>>>(activation, 16384, 1, 0);
    for (f16* h : hidden) fill_random<<<16, 256>>>(h, 16384, 1, 0);
    allocate(logits, 160000), allocate(reference, 160000), allocate(block_best, 160000);
    allocate(finished_blocks, 1), allocate(worst, 1), allocate(best_row, 1);
    fill_table_0(kernels[qkv]), fill_table_1(kernels[o]), fill_table_2(kernels[gate_up]);
    fill_table_1(kernels[down]), fill_table_4(kernels[head]);
    for (auto& row : kernels)
      for (Kernel kernel : row)
        if (kernel != nullptr) {
          cudaFuncAttributes attributes;
          CHECK_CUDA(cudaFuncGetAttributes(&attributes, kernel));
          // One carve-out for all, so that neighbours in the stream can share an SM.
          CHECK_CUDA(
              cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
          CHECK_CUDA(
              cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   max_shared - static_cast<int>(attributes.sharedSizeBytes)));
        }
    CHECK_CUDA(cudaDeviceSynchronize());
    std::printf("{\"device\": \"%s\", \"sms\": %d, \"l2_mb\": %.0f, \"plans\": %d}\n",
                properties.name, sms, properties.l2CacheSize / 1048576.0, plan_count);
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

  bool legal(const Model& m, int site, int plan) const {
    return kernels[site][plan] != nullptr &&
           plans[plan].why_illegal(ops[site], shape_of(m, site).k, max_shared) == nullptr;
  }

  // `weights` holds the matrix, gate and up rows in turn.
  GemvParams params(const Model& m, int site, const f16* weights, bool in_place) const {
    const Shape s = shape_of(m, site);
    GemvParams p{};
    p.matrix[0] = {weights, nullptr, nullptr, s.n};
    p.matrix[1] = {weights + s.k, nullptr, nullptr, s.n};
    p.k = s.k;
    p.pitch = s.k * ops[site].row_sets();
    p.norm_weight = norm_weight;
    p.norm_eps = 1e-6f;
    p.scale = 1;
    p.block_best = block_best, p.finished_blocks = finished_blocks, p.best_row = best_row;
    p.x = site == o ? (in_place ? query : attention) : site == down ? activation : hidden[0];
    void* y = site == qkv    ? query
              : site == head ? static_cast<void*>(logits)
                             : hidden[in_place ? 0 : 1];
    // A sweep must not change its own x.
    if (site == gate_up) y = in_place ? activation : query;
    p.matrix[0].y = y;
    p.residual = hidden[0];
    return p;
  }

  void launch(const Model& m, int site, int plan, const GemvParams& p, bool dependent) const {
    const Shape s = shape_of(m, site);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(plans[plan].grid(ops[site], s.n, sms)));
    config.blockDim = dim3(static_cast<unsigned>(plans[plan].threads));
    config.dynamicSmemBytes = static_cast<size_t>(plans[plan].shared_bytes(ops[site], s.k));
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = dependent ? 1 : 0;
    CHECK_CUDA(cudaLaunchKernelEx(&config, kernels[site][plan], p));
  }

  // Milliseconds of one replay of what `enqueue` puts on the stream: the least of `rounds`.
  template <class Enqueue>
  double time_graph(Enqueue enqueue, int rounds, int replays) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue();
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    double best = 1e9;
    for (int round = 0; round < rounds; ++round) {
      CHECK_CUDA(cudaEventRecord(start, stream));
      for (int i = 0; i < replays; ++i) CHECK_CUDA(cudaGraphLaunch(executable, stream));
      CHECK_CUDA(cudaEventRecord(stop, stream));
      CHECK_CUDA(cudaEventSynchronize(stop));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
      best = std::min(best, double(ms) / replays);
    }
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return best;
  }

  double check(const Model& m, int site, int plan) {
    const Shape s = shape_of(m, site);
    const GemvParams p = params(m, site, arena, false);
    const Type type = ops[site].y;
    CHECK_CUDA(cudaMemsetAsync(p.matrix[0].y, 0xff, size_t(s.n) * bytes_of(type), stream));
    CHECK_CUDA(cudaMemsetAsync(worst, 0, sizeof *worst, stream));
    launch(m, site, plan, p, true);
    largest_error<<<sms, 256, 0, stream>>>(p.matrix[0].y, type, reference, s.n, worst);
    unsigned bits = 0;
    CHECK_CUDA(cudaMemcpyAsync(&bits, worst, sizeof bits, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    float error = 0;
    std::memcpy(&error, &bits, sizeof error);
    return error;
  }

  // Times every plan for one matrix; returns the plans from fastest to slowest.
  std::vector<int> sweep(const Model& m, int site) {
    const Shape s = shape_of(m, site);
    const size_t bytes = s.elements * sizeof(f16);
    const int copies = static_cast<int>(
        std::max<size_t>(2, std::min<size_t>(arena_elements / s.elements, 400000000 / bytes)));
    reference_gemv<<<(s.n + 7) / 8, 256, 0, stream>>>(params(m, site, arena, false), ops[site],
                                                      reference);
    std::vector<std::pair<double, int>> order;
    for (int plan = 0; plan < plan_count; ++plan) {
      if (!legal(m, site, plan)) continue;
      const double error = check(m, site, plan);
      const double ms = time_graph(
          [&] {
            for (int i = 0; i < copies; ++i)
              launch(m, site, plan, params(m, site, arena + i * s.elements, false), true);
          },
          3, 2);
      const double us = ms * 1e3 / copies, rate = bytes / (us * 1e-6);
      std::printf(
          "{\"gemv\": \"%s\", \"site\": \"%s\", \"n\": %d, \"k\": %d, \"mb\": %.1f, \"plan\": "
          "\"%s\", \"us\": %.2f, \"gb_s\": %.0f, \"share\": %.3f, \"error\": %.1e%s}\n",
          m.name, site_names[site], s.n, s.k, bytes / 1e6, plan_name(plans[plan]).c_str(), us,
          rate / 1e9, rate / limit, error, error < 4e-3 ? "" : ", \"wrong\": true");
      if (error < 4e-3) order.push_back({us, plan});
    }
    std::sort(order.begin(), order.end());
    std::vector<int> result;
    for (auto [us, plan] : order) result.push_back(plan);
    return result;
  }

  struct Choice {
    int plan[site_count];
  };

  double time_chain(const Model& m, const Choice& choice, bool dependent, int rounds = 3) {
    return time_graph(
        [&] {
          const f16* weights = arena;
          for (int layer = 0; layer < m.layers; ++layer)
            for (int site = qkv; site <= down; ++site) {
              launch(m, site, choice.plan[site], params(m, site, weights, true), dependent);
              weights += shape_of(m, site).elements;
            }
          launch(m, head, choice.plan[head], params(m, head, weights, true), dependent);
        },
        rounds, 4);
  }

  void report_chain(const Model& m, const char* what, const Choice& choice, double ms) const {
    const double bytes =
        2.0 * (double(layer_elements(m)) * m.layers + double(shape_of(m, head).elements));
    std::printf(
        "{\"chain\": \"%s\", \"what\": \"%s\", \"ms\": %.4f, \"gb_s\": %.0f, \"share\": %.3f",
        m.name, what, ms, bytes / ms / 1e6, bytes / (ms * 1e-3) / limit);
    for (int site = 0; site < site_count; ++site)
      std::printf(", \"%s\": \"%s\"", site_names[site],
                  plan_name(plans[choice.plan[site]]).c_str());
    std::printf("}\n");
  }

  void run(const Model& m, double budget) {
    const double stop_at = seconds() + budget;
    std::vector<int> order[site_count];
    Choice isolated{};
    for (int site = 0; site < site_count; ++site) {
      order[site] = sweep(m, site);
      if (order[site].empty()) {
        std::printf("{\"error\": \"no plan is right for %s\"}\n", site_names[site]);
        return;
      }
      isolated.plan[site] = order[site][0];
    }

    // One plan for every matrix: which kinds of ring chain well?
    Choice best = isolated;
    double best_ms = time_chain(m, isolated, true);
    report_chain(m, "isolated winners", isolated, best_ms);
    for (int plan = 0; plan < plan_count && seconds() < stop_at; ++plan) {
      Choice uniform;
      bool all = true;
      for (int site = 0; site < site_count; ++site) {
        // A pair needs two rows: take the nearest plan that is legal.
        uniform.plan[site] = legal(m, site, plan) ? plan : isolated.plan[site];
        if (site != gate_up && !legal(m, site, plan)) all = false;
      }
      if (!all) continue;
      const double ms = time_chain(m, uniform, true);
      report_chain(m, "one plan", uniform, ms);
      if (ms < best_ms) best_ms = ms, best = uniform;
    }

    // Coordinate descent in the whole chain, from the best so far.
    for (int pass = 0; pass < 2; ++pass)
      for (int site : {gate_up, down, head, qkv, o}) {
        const size_t tries = std::min<size_t>(order[site].size(), pass == 0 ? 24 : 12);
        for (size_t i = 0; i < tries && seconds() < stop_at; ++i) {
          Choice other = best;
          other.plan[site] = order[site][i];
          if (other.plan[site] == best.plan[site]) continue;
          double ms = time_chain(m, other, true, 2);
          if (ms < best_ms * 0.999) ms = time_chain(m, other, true, 4);
          if (ms < best_ms * 0.999) best_ms = ms, best = other;
        }
      }
    report_chain(m, "tuned in the chain", best, time_chain(m, best, true, 6));
    report_chain(m, "tuned, no dependent launch", best, time_chain(m, best, false));
    Choice plain{};
    for (int site = 0; site < site_count; ++site) plain.plan[site] = 0;
    report_chain(m, "plain plan, no dependent launch", plain, time_chain(m, plain, false));
  }
};

}  // namespace
}  // namespace ac::bench

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const double budget = argc > 1 ? std::atof(argv[1]) : 54;
  static ac::bench::Bench bench;
  bench.set_up();
  bench.measure_limit("before");
  double share = budget;
  int left = 3;
  for (const auto& model : ac::bench::models) {
    bench.run(model, (share - bench.seconds()) / left--);
    bench.measure_limit(model.name);
  }
  std::printf("{\"seconds\": %.1f}\n", bench.seconds());
}
