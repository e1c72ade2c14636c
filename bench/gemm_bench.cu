// Measures prefill's kernels on this GPU and prints JSON lines:
//   gemm       each plan for each matrix of three models at 128 to 8192 tokens
//   attention  each plan for attention of head dimensions 64 and 128 at 2048 to 20480 tokens
//   best       the fastest right plan of each shape
// Every plan is checked against a plain kernel. Weights rotate through memory, so that they come
// from outside L2 as in a model; figures are medians. Usage: gemm_bench [model name's part
// [site [tokens [plan name's part]]]]
#include "bench/gemm_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "bench/gpu.cuh"
#include "bench/models.h"
#include "bench/reference_attention.cuh"

namespace ac::bench {
namespace {

// ---- plain kernels

// A block has 32 x 32 outputs; float32 sums in the order of k.
__global__ void reference_gemm(GemmParams p, GemmOp op, float* y) {
  __shared__ float xs[32][33], ws[2][32][33];
  const int column = threadIdx.x, n = p.matrix[0].rows, output = blockIdx.x * 32 + column;
  float sums[2][4] = {};
  for (int first = 0; first < p.k; first += 32) {
    for (int i = threadIdx.y; i < 32; i += 8) {
      const int token = blockIdx.y * 32 + i, row = blockIdx.x * 32 + i, k = first + column;
      xs[i][column] = token < p.m && k < p.k
                          ? to_float(static_cast<const f16*>(p.x)[size_t(token) * p.x_pitch + k])
                          : 0;
      for (int set = 0; set < op.row_sets(); ++set)
        ws[set][i][column] =
            row < n && k < p.k
                ? to_float(static_cast<const f16*>(p.matrix[set].weight)[size_t(row) * p.pitch + k])
                : 0;
    }
    __syncthreads();
    for (int k = 0; k < 32; ++k)
      for (int i = 0; i < 4; ++i)
        for (int set = 0; set < op.row_sets(); ++set)
          sums[set][i] += xs[threadIdx.y + 8 * i][k] * ws[set][column][k];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    const int token = blockIdx.y * 32 + threadIdx.y + 8 * i;
    if (token >= p.m || output >= n) continue;
    float value = sums[0][i];
    if (op.pair == Pair::swiglu) value = value / (1.f + expf(-value)) * sums[1][i];
    const size_t at = size_t(token) * n + output;
    if (op.residual) value += to_float(static_cast<const f16*>(p.matrix[0].residual)[at]);
    y[at] = value;
  }
}

// The sampled rows of an output, one after the other.
__global__ void gather_rows(const f16* from, f16* to, int row, int samples, int tokens) {
  const int token = sampled_token(blockIdx.x, samples, tokens);
  for (int i = threadIdx.x; i < row; i += blockDim.x)
    to[size_t(blockIdx.x) * row + i] = from[size_t(token) * row + i];
}

__global__ void count_nans(const f16* y, size_t n, unsigned* count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += size_t(gridDim.x) * blockDim.x)
    if (const float v = to_float(y[i]); v != v) atomicAdd(count, 1u);
}

// ---- shapes and names

GemmShape shape_of(const Model& m, int site, int tokens) {
  const int query = m.heads * m.head_dim;
  int n = m.hidden, k = m.hidden;
  if (site == qkv) n = query + 2 * m.kv_heads * m.head_dim;
  if (site == o) k = query;
  if (site == gate_up) n = m.intermediate;
  if (site == down) k = m.intermediate;
  return {tokens, {n, site == gate_up ? n : 0}, k};
}
size_t weights_of(const GemmShape& s) { return size_t(s.rows[0] + s.rows[1]) * s.k; }

std::string gemm_name(int plan) {
  char text[96];
  if (plan >= first_tma_plan) {
    const TmaGemmPlan& p = tma_plans[plan - first_tma_plan];
    std::snprintf(text, sizeof text, "tma%dx%d/s%d/c%dx%dx%d/g%d", p.tile_m, p.tile_n, p.stages,
                  p.cluster_m, p.cluster_n, p.cluster_k, p.group_m);
    return text;
  }
  if (plan >= mma_plan_count) {
    const GemmPlan& p = plain_plans[plan - mma_plan_count];
    std::snprintf(text, sizeof text, "plain%dx%dx%d/%dx%d", p.tile_m, p.tile_n, p.tile_k,
                  p.thread_m, p.thread_n);
    return text;
  }
  const MmaGemmPlan& p = mma_plans[plan];
  std::snprintf(text, sizeof text, "%s%dx%dx%d/%dx%d/s%d/r%d/g%d",
                p.tile == Tile::wgmma ? "wgmma" : "", p.tile_m, p.tile_n, p.tile_k, p.warp_m,
                p.warp_n, p.stages, p.resident, p.group_m);
  return text + (p.split > 1 ? "/split" + std::to_string(p.split) : std::string());
}
std::string attention_name(int plan) {
  const PrefillAttentionPlan& p = attention_plans[plan];
  char text[96];
  std::snprintf(text, sizeof text, "q%d/k%d/w%d/s%d/r%d%s", p.query_tile, p.key_tile, p.warps,
                p.stages, p.resident, p.keep_queries ? "/keep" : "");
  return text;
}

// ---- the machine

struct Bench : Gpu {
  static constexpr int most_tokens = 20480, samples = 96;
  static constexpr size_t arena_elements = size_t(512) << 20;
  f16 *arena = nullptr, *x = nullptr, *y = nullptr, *residual = nullptr, *gathered = nullptr;
  float *reference = nullptr, *partial = nullptr;
  size_t partial_bytes = size_t(256) << 20;
  unsigned *worst = nullptr, *finished = nullptr;
  int* position = nullptr;
  GemmKernel gemm_kernels[site_count][first_tma_plan] = {};
  TmaKernel tma_kernels[site_count][tma_plan_count] = {};
  AttentionKernel attention_kernels[attention_count][attention_plan_count] = {};

  void fill(f16* p, size_t count, float bound) {
    fill_random<<<sms * 8, 256, 0, stream>>>(p, count, bound, 0);
    CHECK_CUDA(cudaGetLastError());
  }

  void set_up() {
    const cudaDeviceProp properties = open();
    const size_t activations = size_t(8192) * 9728;  // no less than any q or attention output
    static_assert(activations >= size_t(most_tokens) * 32 * 64);
    allocate(arena, arena_elements), allocate(x, activations * 2), allocate(y, activations * 2);
    allocate(residual, activations), allocate(gathered, size_t(samples) * 4096);
    allocate(reference, activations), allocate(worst, 2), allocate(position, 1);
    allocate(partial, partial_bytes / 4), allocate(finished, 1 << 16);
    CHECK_CUDA(cudaDeviceSynchronize());
    fill(arena, arena_elements, 0.03f), fill(x, activations * 2, 1), fill(residual, activations, 1);
    fill_gemm_table_0(gemm_kernels[qkv], tma_kernels[qkv]);
    fill_gemm_table_1(gemm_kernels[o], tma_kernels[o]);
    fill_gemm_table_2(gemm_kernels[gate_up], tma_kernels[gate_up]);
    fill_gemm_table_1(gemm_kernels[down], tma_kernels[down]);
    for (auto& row : tma_kernels)
      for (TmaKernel kernel : row)
        if (kernel != nullptr) prepare(kernel);
    fill_attention_table_0(attention_kernels[0]), fill_attention_table_1(attention_kernels[1]);
    for (auto& row : gemm_kernels)
      for (GemmKernel kernel : row)
        if (kernel != nullptr) prepare(kernel);
    for (auto& row : attention_kernels)
      for (AttentionKernel kernel : row)
        if (kernel != nullptr) prepare(kernel);
    prepare(reference_attention<f16>);
    CHECK_CUDA(cudaDeviceSynchronize());
    std::printf("{\"device\": \"%s\", \"sms\": %d, \"gemm_plans\": %d, \"attention_plans\": %d}\n",
                properties.name, sms, plan_count, attention_plan_count);
  }

  // Median microseconds of launch(i), which may put something else first each time.
  template <class Launch>
  double time(Launch launch) {
    const auto once = [&](int count, int from) {
      CHECK_CUDA(cudaEventRecord(start, stream));
      for (int i = 0; i < count; ++i) launch(from + i);
      CHECK_CUDA(cudaEventRecord(stop, stream));
      CHECK_CUDA(cudaEventSynchronize(stop));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
      return ms * 1e3 / count;
    };
    const double first = once(1, 0);
    const int count = first < 500 ? 8 : 1, repeats = first < 5000 ? 7 : 3;
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) times.push_back(once(count, 1 + i * count));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  float take_worst() {
    unsigned bits[2] = {};
    CHECK_CUDA(cudaMemcpyAsync(bits, worst, sizeof bits, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemsetAsync(worst, 0, 2 * sizeof *worst, stream));
    float error = 0;
    std::memcpy(&error, bits, sizeof error);
    return bits[1] > 0 ? 1e6f : error;
  }

  // ---- matrix products

  GemmParams params(const GemmShape& s, size_t offset) const {
    GemmParams p{};
    p.matrix[0] = {arena + offset, nullptr, residual, y, s.rows[0], s.rows[0]};
    p.matrix[1] = p.matrix[0];
    p.matrix[1].weight = arena + offset + size_t(s.rows[0]) * s.k;
    p.m = s.m, p.k = s.k, p.pitch = s.k;
    p.x = x, p.x_pitch = s.k, p.scale = 1;
    p.partial = partial, p.finished = finished;
    return p;
  }

  void launch_tma(const GemmOp& op, const GemmShape& s, int site, int plan, size_t offset) {
    const TmaGemmPlan& p = tma_plans[plan];
    TmaGemmParams all{};
    all.gemm = params(s, offset);
    all.x = map_of(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, x, s.m, s.k, p.box_m());
    for (int i = 0; i < op.matrices; ++i)
      all.weight[i] = map_of(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, all.gemm.matrix[i].weight, s.rows[i],
                             s.k, p.box_n(op));
    const auto grid = p.grid(op, s, sms);
    tma_kernels[site][plan]<<<unsigned(grid), p.threads(), p.shared_bytes(op), stream>>>(all);
    CHECK_CUDA(cudaGetLastError());
  }

  const char* why_not(const GemmOp& op, const GemmShape& s, int plan) const {
    if (plan >= first_tma_plan)
      return tma_plans[plan - first_tma_plan].why_illegal(op, s, max_shared);
    if (plan >= mma_plan_count)
      return s.m > 2048 ? "slow"
                        : plain_plans[plan - mma_plan_count].why_illegal(op, s, max_shared);
    const MmaGemmPlan& p = mma_plans[plan];
    if (p.workspace_bytes(op, s) > static_cast<long long>(partial_bytes)) return "workspace";
    if (p.split > 1 && p.tiles(op, s) > 4 * sms) return "nothing to split for";
    return p.why_illegal(op, s, max_shared);
  }

  void launch(const GemmOp& op, const GemmShape& s, int site, int plan, size_t offset) {
    if (plan >= first_tma_plan) return launch_tma(op, s, site, plan - first_tma_plan, offset);
    dim3 grid, block;
    int shared = 0;
    if (plan >= mma_plan_count) {
      const GemmPlan& p = plain_plans[plan - mma_plan_count];
      grid.x = p.grid(op, s), block.x = p.threads(), shared = p.shared_bytes();
    } else {
      const MmaGemmPlan& p = mma_plans[plan];
      grid.x = p.grid(op, s), grid.y = p.split, block.x = p.threads(), shared = p.shared_bytes();
    }
    gemm_kernels[site][plan]<<<grid, block, shared, stream>>>(params(s, offset));
    CHECK_CUDA(cudaGetLastError());
  }

  void run_gemm(const Model& m, int site, int tokens, const char* wanted) {
    const GemmOp& op = ops[site];
    const GemmShape s = shape_of(m, site, tokens);
    const size_t outputs = size_t(s.m) * s.rows[0];
    reference_gemm<<<dim3((s.rows[0] + 31) / 32, (s.m + 31) / 32), dim3(32, 8), 0, stream>>>(
        params(s, 0), op, reference);
    CHECK_CUDA(cudaGetLastError());
    const size_t copies = arena_elements / weights_of(s);
    double best = 1e30;
    std::string best_name = "none";
    for (int plan = 0; plan < plan_count; ++plan) {
      const bool is_built = plan >= first_tma_plan
                                ? tma_kernels[site][plan - first_tma_plan] != nullptr
                                : gemm_kernels[site][plan] != nullptr;
      if (!is_built || why_not(op, s, plan) != nullptr ||
          !std::strstr(gemm_name(plan).c_str(), wanted))
        continue;
      CHECK_CUDA(cudaMemsetAsync(y, 0xff, outputs * sizeof(f16), stream));
      launch(op, s, site, plan, 0);
      largest_error<<<sms * 8, 256, 0, stream>>>(y, Type::f16, reference, outputs, worst);
      const float error = take_worst();
      const double us = time([&](int i) { launch(op, s, site, plan, i % copies * weights_of(s)); });
      const bool right = error < 4e-3f;
      std::printf(
          "{\"gemm\": \"%s\", \"site\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"plan\": \"%s\", "
          "\"us\": %.1f, \"tflop_s\": %.1f, \"error\": %.1e%s}\n",
          m.name, site_names[site], s.m, s.rows[0] + s.rows[1], s.k, gemm_name(plan).c_str(), us,
          gemm_flops(op, s) / us * 1e-6, error, right ? "" : ", \"wrong\": true");
      if (right && us < best) best = us, best_name = gemm_name(plan);
    }
    std::printf(
        "{\"best\": \"%s\", \"site\": \"%s\", \"m\": %d, \"plan\": \"%s\", \"us\": %.1f, "
        "\"tflop_s\": %.1f, \"ms_all_layers\": %.2f}\n",
        m.name, site_names[site], s.m, best_name.c_str(), best, gemm_flops(op, s) / best * 1e-6,
        best * m.layers * 1e-3);
  }

  // ---- attention

  void run_attention(int index, int tokens) {
    const Model& m = models[index];
    const PrefillAttentionOp& op = attention_ops[index];
    const int row = m.heads * m.head_dim;
    PrefillAttentionParams p{};
    p.q = x, p.q_pitch = row, p.tokens = tokens, p.position = position;
    p.k_cache = arena, p.v_cache = arena + size_t(m.kv_heads) * tokens * m.head_dim;
    p.capacity = tokens;
    p.scale = 8 / std::sqrt(static_cast<float>(m.head_dim));
    p.out = y;
    reference_attention<f16><<<dim3(m.heads, samples), 256, tokens * 4, stream>>>(
        p, m.head_dim, op.group, samples, reference);
    CHECK_CUDA(cudaGetLastError());
    double best = 1e30;
    std::string best_name = "none";
    const double flops = prefill_flops(op, m.heads, tokens, 0, 0);
    for (int plan = 0; plan < attention_plan_count; ++plan) {
      const PrefillAttentionPlan& a = attention_plans[plan];
      const AttentionKernel kernel = attention_kernels[index][plan];
      if (kernel == nullptr || a.why_illegal(op, max_shared) != nullptr) continue;
      const auto launch = [&](int) {
        kernel<<<dim3(m.heads, prefill_tiles(a, tokens)), a.threads(), a.shared_bytes(op),
                 stream>>>(p);
        CHECK_CUDA(cudaGetLastError());
      };
      CHECK_CUDA(cudaMemsetAsync(y, 0xff, size_t(tokens) * row * sizeof(f16), stream));
      launch(0);
      count_nans<<<sms * 8, 256, 0, stream>>>(y, size_t(tokens) * row, worst + 1);
      gather_rows<<<samples, 256, 0, stream>>>(y, gathered, row, samples, tokens);
      largest_error<<<sms * 8, 256, 0, stream>>>(gathered, Type::f16, reference,
                                                 size_t(samples) * row, worst);
      const float error = take_worst();
      const double us = time(launch);
      const bool right = error < 4e-3f;
      std::printf(
          "{\"attention\": \"%s\", \"tokens\": %d, \"plan\": \"%s\", \"us\": %.1f, \"tflop_s\": "
          "%.1f, \"error\": %.1e%s}\n",
          m.name, tokens, attention_name(plan).c_str(), us, flops / us * 1e-6, error,
          right ? "" : ", \"wrong\": true");
      if (right && us < best) best = us, best_name = attention_name(plan);
    }
    std::printf(
        "{\"best\": \"%s\", \"site\": \"attention\", \"m\": %d, \"plan\": \"%s\", \"us\": %.1f, "
        "\"tflop_s\": %.1f, \"ms_all_layers\": %.2f}\n",
        m.name, tokens, best_name.c_str(), best, flops / best * 1e-6, best * m.layers * 1e-3);
  }
};

}  // namespace
}  // namespace ac::bench

int main(int argc, char** argv) {
  using namespace ac::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  static Bench bench;
  bench.set_up();
  for (int index = 0; index < 3; ++index) {
    if (argc > 1 && std::strstr(models[index].name, argv[1]) == nullptr) continue;
    for (int tokens : {128, 512, 2048, 8192})
      for (int site = 0; site < site_count; ++site) {
        if (argc > 2 && std::strcmp(site_names[site], argv[2]) != 0) continue;
        if (argc > 3 && std::atoi(argv[3]) != tokens) continue;
        bench.run_gemm(models[index], site, tokens, argc > 4 ? argv[4] : "");
      }
  }
  // Scores of some spread: larger queries and keys than a product's inputs.
  bench.fill(bench.arena, bench.arena_elements, 1);
  for (int index = 0; index < attention_count; ++index) {
    if (argc > 2 || (argc > 1 && std::strstr(models[index].name, argv[1]) == nullptr)) continue;
    for (int tokens : {2048, 8192, 20480}) bench.run_attention(index, tokens);
  }
  std::printf("{\"seconds\": %.1f}\n", bench.seconds());
}
