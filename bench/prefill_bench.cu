// Measures prefill attention on this GPU and prints JSON lines: each plan, for some numbers of new
// tokens after some others, for the attention of three models in bfloat16. `us` is the median with
// the cache (L2) as the launch before left it, `us_cold` that of launches after L2 was overwritten,
// `us_hot` that of launches for so long that the card slows down; FLOPs are those of the keys that
// each query sees. A plan is right if 64 queries of every head agree with a plain kernel, nothing
// of the output is left unwritten, and all of it agrees with the first right plan. Usage:
// prefill_bench [model name's part [new tokens [plan name's part]]]
#include "bench/prefill_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/gpu.cuh"
#include "bench/reference_attention.cuh"

namespace ac::bench {
namespace {

struct Prompt {
  int tokens, context;
};
constexpr Prompt prompts[] = {{1999, 77}, {128, 0},  {512, 0},     {1024, 0},
                              {2048, 0},  {8192, 0}, {8192, 12288}};
constexpr int most_tokens = 8192, samples = 64, longest = 20480;

__global__ void fill_normal(bf16* data, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    unsigned long long z =
        (i + 1 + (static_cast<unsigned long long>(seed) << 40)) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    const float a = (float(z >> 40) + 0.5f) * 0x1p-24f, b = float(z & 0xffffff) * 0x1p-24f;
    data[i] = from_float<bf16>(sqrtf(-2 * logf(a)) * cospif(2 * b));
  }
}

// The largest difference of the sampled rows from the reference, and what is no number anywhere.
__global__ void compare_samples(const bf16* y, const float* reference, int row, int tokens,
                                float* worst) {
  const int query = sampled_token(blockIdx.x, samples, tokens);
  for (int i = threadIdx.x; i < row; i += blockDim.x) {
    const float truth = reference[size_t(blockIdx.x) * row + i];
    const float error = fabsf(to_float(y[size_t(query) * row + i]) - truth) / (1 + fabsf(truth));
    atomicMax(reinterpret_cast<unsigned*>(worst), __float_as_uint(error < 1e6f ? error : 1e6f));
  }
}
// The largest difference of all outputs from those of another plan.
__global__ void compare_all(const bf16* y, const bf16* other, size_t count, float* worst) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    const float truth = to_float(other[i]);
    const float error = fabsf(to_float(y[i]) - truth) / (1 + fabsf(truth));
    if (!(error <= 0))
      atomicMax(reinterpret_cast<unsigned*>(worst), __float_as_uint(error < 1e6f ? error : 1e6f));
  }
}

std::string name_of(const PrefillAttentionPlan& p) {
  char text[96];
  std::snprintf(text, sizeof text, "%s%dx%d/%d/%d/%d%s", p.tile == Tile::wgmma ? "wgmma" : "mma",
                p.query_tile, p.key_tile, p.warps, p.stages, p.resident,
                p.keep_queries ? "/keep" : "");
  return text;
}

struct Bench : Gpu {
  static constexpr size_t most_queries = size_t(most_tokens) * 32 * 128;
  static constexpr size_t most_keys = size_t(longest) * 8 * 128;
  static constexpr size_t flush_bytes = size_t(192) << 20;
  bf16 *q = nullptr, *k = nullptr, *v = nullptr, *y = nullptr, *first = nullptr;
  float *reference = nullptr, *worst = nullptr;
  int* position = nullptr;
  unsigned char* flushed = nullptr;
  Kernel kernels[attention_count][plan_count] = {};

  void set_up() {
    const cudaDeviceProp properties = open();
    allocate(q, most_queries), allocate(y, most_queries), allocate(first, most_queries);
    allocate(k, most_keys), allocate(v, most_keys), allocate(flushed, flush_bytes);
    allocate(reference, size_t(samples) * 32 * 128), allocate(worst, 2), allocate(position, 1);
    fill_normal<<<sms * 8, 256, 0, stream>>>(q, most_queries, 1);
    fill_normal<<<sms * 8, 256, 0, stream>>>(k, most_keys, 2);
    fill_normal<<<sms * 8, 256, 0, stream>>>(v, most_keys, 3);
    fill_prefill_table_0(kernels[0]), fill_prefill_table_1(kernels[1]);
    fill_prefill_table_2(kernels[2]);
    for (auto& row : kernels)
      for (Kernel kernel : row)
        if (kernel != nullptr) prepare(kernel);
    prepare(reference_attention<bf16>);
    CHECK_CUDA(cudaDeviceSynchronize());
    std::printf("{\"device\": \"%s\", \"sms\": %d, \"l2_mb\": %.0f, \"clock_mhz\": %d}\n",
                properties.name, sms, properties.l2CacheSize / 1048576.0, clock_mhz());
  }
  static int clock_mhz() {
    int khz = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
    return khz / 1000;
  }

  template <class Launch>
  double once(int count, Launch launch) {
    CHECK_CUDA(cudaEventRecord(start, stream));
    for (int i = 0; i < count; ++i) launch();
    CHECK_CUDA(cudaEventRecord(stop, stream));
    CHECK_CUDA(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
    return ms * 1e3 / count;
  }
  static double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  template <class Launch>
  double warm(Launch launch) {
    const int count = std::clamp(static_cast<int>(3000 / once(1, launch)), 2, 32);
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(once(count, launch));
    return median(times);
  }
  template <class Launch>
  double hot(Launch launch) {
    const int count = std::clamp(static_cast<int>(30000 / once(1, launch)), 2, 4096);
    return once(count, launch);
  }
  template <class Launch>
  double cold(Launch launch) {
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) {
      CHECK_CUDA(cudaMemsetAsync(flushed, i, flush_bytes, stream));
      times.push_back(once(1, launch));
    }
    return median(times);
  }
  // A NaN counts as the largest.
  float take_worst() {
    float largest = 0;
    CHECK_CUDA(cudaMemcpyAsync(&largest, worst, sizeof largest, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaMemsetAsync(worst, 0, sizeof largest, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return largest;
  }

  void run(int index, const Prompt& prompt, const char* wanted) {
    const auto [new_tokens, context] = prompt;
    const Attention& a = attentions[index];
    const int heads = a.kv_heads * a.op.group, dim = a.op.head_dim, row = heads * dim;
    const size_t outputs = size_t(new_tokens) * row;
    PrefillAttentionParams p{};
    p.q = q, p.q_pitch = row, p.tokens = new_tokens, p.position = position;
    p.k_cache = k, p.v_cache = v, p.capacity = context + new_tokens;
    p.scale = 1 / std::sqrt(static_cast<float>(dim)), p.out = y;
    const auto map = [&](const void* base, int rows, int columns, int box) {
      return map_of(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, base, rows, columns, box);
    };
    CHECK_CUDA(cudaMemcpyAsync(position, &context, sizeof context, cudaMemcpyHostToDevice, stream));
    reference_attention<bf16>
        <<<dim3(heads, samples), 256, (context + new_tokens) * sizeof(float), stream>>>(
            p, dim, a.op.group, samples, reference);
    CHECK_CUDA(cudaGetLastError());
    const double flops = prefill_flops(a.op, heads, new_tokens, context, 0);
    bool any_right = false;
    double best = 1e30;
    std::string best_name = "none";
    for (int plan = 0; plan < plan_count; ++plan) {
      const PrefillAttentionPlan& of = plans[plan];
      const Kernel kernel = kernels[index][plan];
      if (kernel == nullptr || !std::strstr(name_of(of).c_str(), wanted)) continue;
      if (of.tile == Tile::wgmma) {
        p.queries = map(q, new_tokens, row, of.query_tile);
        p.keys = map(k, a.kv_heads * p.capacity, dim, of.key_tile);
        p.values = map(v, a.kv_heads * p.capacity, dim, of.key_tile);
      }
      const auto launch = [&] {
        kernel<<<dim3(heads, prefill_tiles(of, new_tokens)), of.threads(), of.shared_bytes(a.op),
                 stream>>>(p);
        CHECK_CUDA(cudaGetLastError());
      };
      CHECK_CUDA(cudaMemsetAsync(y, 0xff, outputs * sizeof(bf16), stream));
      launch();
      compare_samples<<<samples, 256, 0, stream>>>(y, reference, row, new_tokens, worst);
      const float error = take_worst();
      bool right = error < 0.01f;
      compare_all<<<sms * 8, 256, 0, stream>>>(y, any_right ? first : y, outputs, worst);
      const float difference = take_worst();
      right = right && difference < 0.01f;
      if (right && !any_right) {
        any_right = true;
        CHECK_CUDA(
            cudaMemcpyAsync(first, y, outputs * sizeof(bf16), cudaMemcpyDeviceToDevice, stream));
      }
      cudaFuncAttributes attributes;
      CHECK_CUDA(cudaFuncGetAttributes(&attributes, kernel));
      int blocks = 0;
      CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, of.threads(),
                                                               of.shared_bytes(a.op)));
      const double us = warm(launch), us_cold = cold(launch), us_hot = hot(launch);
      std::printf(
          "{\"attention\": \"%s\", \"heads\": %d, \"head_dim\": %d, \"context\": %d, \"new\": %d, "
          "\"plan\": \"%s\", \"us\": %.1f, \"tflop_s\": %.1f, \"us_cold\": %.1f, "
          "\"us_hot\": %.1f, \"tflop_s_hot\": %.1f, \"registers\": %d, \"spilled\": %d, "
          "\"blocks_per_sm\": %d, "
          "\"error\": %.1e, \"difference\": %.1e%s}\n",
          a.model, heads, dim, context, new_tokens, name_of(of).c_str(), us, flops / us * 1e-6,
          us_cold, us_hot, flops / us_hot * 1e-6, attributes.numRegs,
          static_cast<int>(attributes.localSizeBytes), blocks, error, difference,
          right ? "" : ", \"wrong\": true");
      if (right && us < best) best = us, best_name = name_of(of);
    }
    std::printf(
        "{\"best\": \"%s\", \"context\": %d, \"plan\": \"%s\", \"us\": %.1f, \"tflop_s\": %.1f}\n",
        a.model, context, best_name.c_str(), best, flops / best * 1e-6);
  }
};

}  // namespace
}  // namespace ac::bench

int main(int argc, char** argv) {
  using namespace ac::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  static Bench bench;
  bench.set_up();
  for (int index = 0; index < attention_count; ++index)
    for (const Prompt& prompt : prompts) {
      if (argc > 1 && std::strstr(attentions[index].model, argv[1]) == nullptr) continue;
      if (argc > 2 && std::atoi(argv[2]) != prompt.tokens) continue;
      bench.run(index, prompt, argc > 3 ? argv[3] : "");
    }
  std::printf("{\"seconds\": %.1f}\n", bench.seconds());
}
