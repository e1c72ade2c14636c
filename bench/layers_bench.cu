// All layers of a step in one launch (kernels/layers.cuh), alone: microseconds a step at several
// contexts, as a share of what streaming reads reach in the same run, and the error of the last
// hidden state against sums in double; launched alone and as a cooperative launch, which makes sure
// that all blocks are there at once. One JSON line a plan, context and kind of launch.
#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/device_helpers.cuh"
#include "bench/gpu.cuh"
#include "kernels/layers.cuh"

namespace ac::bench {

constexpr LayersOp qwen3_06b{
    .hidden = 1024, .heads = 16, .kv_heads = 8, .head_dim = 128, .inter = 3072, .head_norms = true};
constexpr LayersOp qwen3_17b{
    .hidden = 2048, .heads = 16, .kv_heads = 8, .head_dim = 128, .inter = 6144, .head_norms = true};
constexpr LayersOp qwen3_4b{
    .hidden = 2560, .heads = 32, .kv_heads = 8, .head_dim = 128, .inter = 9728, .head_norms = true};
constexpr LayersOp llama_1b{
    .hidden = 2048, .heads = 32, .kv_heads = 8, .head_dim = 64, .inter = 8192};

constexpr LayersOp with(LayersOp op, Format format) {
  op.format = format;
  return op;
}
constexpr ScaleType two_bytes = ScaleType::bf16;
constexpr Format int4{.codes = Codes::u4, .scale = two_bytes, .columns = 128};
constexpr Format int4_of_32{.codes = Codes::u4, .scale = two_bytes, .columns = 32};
constexpr Format awq{.codes = Codes::u4, .scale = ScaleType::f16, .zeros = true, .columns = 128};
constexpr Format nvfp4{
    .codes = Codes::e2m1, .scale = ScaleType::e4m3, .columns = 16, .global = true};
constexpr Format mxfp4{.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 32};
constexpr Format int8{.codes = Codes::u8, .scale = two_bytes};
constexpr Format fp8{.codes = Codes::e4m3, .scale = two_bytes};
constexpr Format fp8_blocks{.codes = Codes::e4m3, .scale = two_bytes, .rows = 128, .columns = 128};
constexpr LayersOp qwen3_06b_int4 = with(qwen3_06b, int4);
constexpr LayersOp qwen3_17b_int4 = with(qwen3_17b, int4);
constexpr LayersOp qwen3_4b_int4 = with(qwen3_4b, int4);
constexpr LayersOp qwen3_4b_int4_32 = with(qwen3_4b, int4_of_32);
constexpr LayersOp qwen3_17b_awq = with(qwen3_17b, awq), qwen3_4b_awq = with(qwen3_4b, awq);
constexpr LayersOp qwen3_17b_nvfp4 = with(qwen3_17b, nvfp4), qwen3_4b_nvfp4 = with(qwen3_4b, nvfp4);
constexpr LayersOp qwen3_17b_mxfp4 = with(qwen3_17b, mxfp4), qwen3_4b_mxfp4 = with(qwen3_4b, mxfp4);
constexpr LayersOp qwen3_17b_int8 = with(qwen3_17b, int8), qwen3_4b_int8 = with(qwen3_4b, int8);
constexpr LayersOp qwen3_17b_fp8 = with(qwen3_17b, fp8), qwen3_4b_fp8 = with(qwen3_4b, fp8);
constexpr LayersOp qwen3_17b_fp8_blocks = with(qwen3_17b, fp8_blocks);
constexpr LayersOp qwen3_4b_fp8_blocks = with(qwen3_4b, fp8_blocks);

// Of Qwen3-4B's 36, as many as parameters hold.
constexpr int layers_qwen3_06b = 28, layers_qwen3_17b = 28, layers_llama_1b = 16,
              layers_qwen3_4b = most_layers;
constexpr int layers_qwen3_06b_int4 = 28, layers_qwen3_17b_int4 = 28,
              layers_qwen3_4b_int4 = most_layers, layers_qwen3_4b_int4_32 = most_layers,
              layers_qwen3_17b_awq = 28, layers_qwen3_4b_awq = most_layers,
              layers_qwen3_17b_nvfp4 = 28, layers_qwen3_4b_nvfp4 = most_layers,
              layers_qwen3_17b_mxfp4 = 28, layers_qwen3_4b_mxfp4 = most_layers,
              layers_qwen3_17b_int8 = 28, layers_qwen3_17b_fp8 = 28,
              layers_qwen3_17b_fp8_blocks = 28, layers_qwen3_4b_int8 = most_layers,
              layers_qwen3_4b_fp8 = most_layers, layers_qwen3_4b_fp8_blocks = most_layers;

// Op, parts of o and of down, stages, window, warps, pace. `nvcc -include FILE` may define others.
#ifndef AC_BENCHED
#define AC_BENCHED(X)                        \
  X(qwen3_06b, 1, 1, 11, 2, 8, 0)            \
  X(qwen3_06b, 2, 1, 11, 2, 8, 0)            \
  X(qwen3_17b, 1, 1, 10, 3, 8, 0)            \
  X(qwen3_17b, 2, 2, 10, 3, 8, 0)            \
  X(llama_1b, 2, 2, 10, 3, 8, 0)             \
  X(qwen3_4b, 2, 2, 8, 3, 8, 0)              \
  X(qwen3_06b_int4, 1, 1, 10, 3, 8, 0)       \
  X(qwen3_17b_int4, 1, 1, 10, 3, 8, 0)       \
  X(qwen3_4b_int4, 1, 1, 7, 2, 10, 0)        \
  X(qwen3_4b_int4, 2, 2, 7, 2, 10, 0)        \
  X(qwen3_4b_int4, 2, 2, 7, 3, 10, 1200)     \
  X(qwen3_4b_int4_32, 2, 2, 5, 2, 10, 0)     \
  X(qwen3_17b_awq, 1, 1, 10, 3, 8, 0)        \
  X(qwen3_4b_awq, 2, 2, 7, 3, 10, 1200)      \
  X(qwen3_17b_nvfp4, 1, 1, 9, 3, 8, 0)       \
  X(qwen3_4b_nvfp4, 1, 1, 5, 2, 10, 0)       \
  X(qwen3_17b_mxfp4, 1, 1, 10, 3, 8, 0)      \
  X(qwen3_4b_mxfp4, 1, 1, 6, 2, 10, 0)       \
  X(qwen3_17b_int8, 1, 1, 10, 3, 8, 0)       \
  X(qwen3_17b_fp8, 1, 1, 10, 3, 8, 0)        \
  X(qwen3_17b_fp8_blocks, 1, 1, 10, 3, 8, 0) \
  X(qwen3_4b_int8, 1, 1, 7, 2, 10, 0)        \
  X(qwen3_4b_fp8, 1, 1, 7, 2, 10, 0)         \
  X(qwen3_4b_fp8_blocks, 1, 1, 7, 2, 10, 0)
#endif

#define AC_KERNEL_NAME(op, o, d, s, w, n, p) op##_##o##_##d##_##s##_##w##_##n##_##p
#define AC_DEFINE(op, o, d, s, w, n, p)                                             \
  constexpr LayersPlan AC_KERNEL_NAME(plan_##op, o, d, s, w, n, p){.blocks = 132,   \
                                                                   .parts_o = o,    \
                                                                   .parts_down = d, \
                                                                   .stages = s,     \
                                                                   .window = w,     \
                                                                   .warps = n,      \
                                                                   .pace = p};      \
  AC_LAYERS_KERNEL(AC_KERNEL_NAME(kernel_##op, o, d, s, w, n, p), op,               \
                   AC_KERNEL_NAME(plan_##op, o, d, s, w, n, p))
AC_BENCHED(AC_DEFINE)

// A matrix of rows of k elements: its elements, or codes with what is beside them.
struct Matrix {
  const bf16* plain;
  const unsigned char *codes, *scales, *zeros;
  const float* global;
  Format format;
  int k;
  __device__ float code(size_t i) const {
    if (bits_of(format.codes) == 4) {
      const int bits = codes[i / 2] >> 4 * (i % 2) & 15;
      constexpr float sizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
      return is_whole(format.codes) ? bits : bits < 8 ? sizes[bits] : -sizes[bits - 8];
    }
    return is_whole(format.codes) ? codes[i] : to_float(e4m3{codes[i]});
  }
  __device__ float scale(int i) const {
    const unsigned char* const at = scales + size_t(i) * bytes_of(format.scale);
    return format.scale == ScaleType::f16    ? to_float(*reinterpret_cast<const f16*>(at))
           : format.scale == ScaleType::bf16 ? to_float(*reinterpret_cast<const bf16*>(at))
           : format.scale == ScaleType::e4m3 ? to_float(e4m3{*at})
                                             : ldexpf(1, *at - 127);
  }
  __device__ float at(int row, int column) const {
    const size_t i = size_t(row) * k + column;
    if (plain) return to_float(plain[i]);
    const int group = format.row_of_scales(row) * format.scales_of_row(k) +
                      (format.columns > 0 ? column / format.columns : 0);
    const int zero = format.zeros ? zeros[group] : middle_of(format.codes);
    return (code(i) - zero) * scale(group) * (format.global ? *global : 1);
  }
  explicit operator bool() const { return plain || codes; }
};
static __global__ void fill_bytes(unsigned* to, size_t count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    unsigned long long v = (i + 1) * 0x9e3779b97f4a7c15ull;
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull, v = (v ^ v >> 27) * 0x94d049bb133111ebull;
    // No byte is an e4m3 that is no number, or a large one.
    to[i] = unsigned(v >> 32) & 0xbfbfbfbfu;
  }
}
// From half of the largest one on. Those of bytes that are no powers of two are around 1.
static __global__ void fill_scales(unsigned char* to, ScaleType type, size_t count, float largest) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    const unsigned some = unsigned(i * 2654435761u >> 8) & 255;
    const float v = (0.5f + 0.5f * some / 256) * largest;
    if (type == ScaleType::bf16) reinterpret_cast<bf16*>(to)[i] = from_float<bf16>(v);
    if (type == ScaleType::f16) reinterpret_cast<f16*>(to)[i] = from_float<f16>(v);
    if (type == ScaleType::e4m3) to[i] = 0x30 + some % 8;
    if (type == ScaleType::e8m0) to[i] = 127 + ilogbf(largest) - some % 2;
  }
}
static __global__ void fill_zeros(unsigned char* to, size_t count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x)
    to[i] = 6 + (i * 2654435761u >> 8) % 5;
}

// Rows of a matrix, one warp each, in double; or of gate and up, if there is a second matrix.
static __global__ void reference_product(Matrix a, Matrix up, bool pair, int rows, int k,
                                         const float* x, const bf16* norm, const float* add,
                                         float* y) {
  const int lane = threadIdx.x % 32;
  for (int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows;
       row += gridDim.x * (blockDim.x / 32)) {
    double sums[2] = {}, squares = 0;
    for (int i = lane; i < k; i += 32) {
      const double in = norm ? double(x[i]) * to_float(norm[i]) : double(x[i]);
      squares += double(x[i]) * x[i];
      sums[0] += a.at(row, i) * in;
      if (pair) sums[1] += up.at(row, i) * in;
    }
    for (int d = 16; d > 0; d /= 2) {
      for (double& v : sums) v += __shfl_xor_sync(~0u, v, d);
      squares += __shfl_xor_sync(~0u, squares, d);
    }
    const double factor = norm ? 1 / sqrt(squares / k + 1e-6) : 1;
    if (lane == 0) {
      double v = sums[0] * factor;
      if (pair) v = v / (1 + exp(-v)) * sums[1] * factor;
      y[row] = float(v + (add ? add[row] : 0));
    }
  }
}

// A block a head of queries.
static __global__ void reference_attention(LayersOp op, LayerPointers l, int tokens, int capacity,
                                           const float* rope, const float* qkv, float* out) {
  const int dim = op.head_dim, head = blockIdx.x, kv = head / op.group(), i = threadIdx.x;
  __shared__ double q[128], k[128];
  extern __shared__ __align__(128) unsigned char dynamic[];
  double* scores = reinterpret_cast<double*>(dynamic);
  const auto turned = [&](const float* x, const void* norm, double* to) {
    const auto* w = static_cast<const bf16*>(norm);
    double squares = 0;
    for (int j = 0; j < dim; ++j) squares += double(x[j]) * x[j];
    const double factor = op.head_norms ? 1 / sqrt(squares / dim + 1e-6) : 1;
    const int half = dim / 2, pair = i % half;
    const double low = x[pair] * factor * (op.head_norms ? to_float(w[pair]) : 1);
    const double high = x[pair + half] * factor * (op.head_norms ? to_float(w[pair + half]) : 1);
    const double c = rope[size_t(tokens) * dim + 2 * pair],
                 s = rope[size_t(tokens) * dim + 2 * pair + 1];
    to[i] = i < half ? low * c - high * s : high * c + low * s;
  };
  turned(qkv + head * dim, l.q_norm, q);
  turned(qkv + (op.heads + kv) * dim, l.k_norm, k);
  __syncthreads();
  const size_t base = size_t(kv) * capacity * dim;
  const auto *keys = static_cast<const bf16*>(l.keys), *values = static_cast<const bf16*>(l.values);
  for (int t = i; t <= tokens; t += dim) {
    double dot = 0;
    for (int j = 0; j < dim; ++j)
      dot += q[j] * (t == tokens ? k[j] : double(to_float(keys[base + size_t(t) * dim + j])));
    scores[t] = dot / sqrt(double(dim));
  }
  __syncthreads();
  double top = -1e300, sum = 0, value = 0;
  for (int t = 0; t <= tokens; ++t) top = fmax(top, scores[t]);
  for (int t = 0; t <= tokens; ++t) {
    const double w = exp(scores[t] - top);
    sum += w;
    value += w * (t == tokens ? double(qkv[(op.heads + op.kv_heads + kv) * dim + i])
                              : double(to_float(values[base + size_t(t) * dim + i])));
  }
  out[head * dim + i] = float(value / sum);
}

static __global__ void widen(const bf16* x, int count, float* y) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) y[i] = to_float(x[i]);
}

constexpr int contexts[] = {128, 2048, 8192, 20480}, capacity = 20480 + 64, tokens_of_graph = 4;

struct Bench : Gpu {
  bf16 *weights = nullptr, *cache = nullptr, *norms = nullptr, *in = nullptr, *out = nullptr;
  float *rope = nullptr, *f[5] = {};
  Word* words = nullptr;
  unsigned* done = nullptr;
  int* position = nullptr;
  size_t elements = size_t(36) * 110'000'000, cached = size_t(36) * 2 * 8 * capacity * 128;
  unsigned* codes = nullptr;
  unsigned char *scales = nullptr, *zeros = nullptr;
  float* global = nullptr;
  double limit = 0;

  void set_up() {
    open();
    allocate(codes, elements / 4), allocate(scales, elements / 16);
    allocate(zeros, elements / 32), allocate(global, 1);
    fill_zeros<<<sms * 8, 256>>>(zeros, elements / 32);
    fill_bytes<<<sms * 8, 256>>>(codes, elements / 4);
    allocate(weights, elements), allocate(cache, cached), allocate(norms, 2 * 4096 + 256);
    allocate(in, 4096), allocate(out, 4096), allocate(rope, size_t(capacity) * 128),
        allocate(words, 1 << 20);
    allocate(done, 1), allocate(position, 1);
    for (float*& x : f) allocate(x, 65536);
    fill_random<<<sms * 8, 256>>>(weights, elements, 0.03f, 0);
    fill_random<<<sms * 8, 256>>>(cache, cached, 1, 0);
    fill_random<<<1, 256>>>(norms, 2 * 4096 + 256, 0.3f, 1);
    fill_random<<<1, 256>>>(in, 4096, 1, 0);
    fill_turns<<<sms * 8, 256>>>(rope, size_t(capacity) * 64);
    limit = streaming_limit(weights, elements * 2);
    std::printf("{\"limit_bytes_a_second\": %.4g, \"sms\": %d}\n", limit, sms);
  }

  LayerPointers layer(const LayersOp& op, int i) const {
    bf16* keys = cache + size_t(2) * i * op.kv_rows() * capacity;
    LayerPointers l{norms,        norms + 4096,
                    norms + 8192, norms + 8192 + 128,
                    keys,         keys + size_t(op.kv_rows()) * capacity};
    const Weights w = weights_of(op, i);
    l.scales = {w.q.scales,    w.k.scales,  w.v.scales,   w.o.scales,
                w.gate.scales, w.up.scales, w.down.scales};
    if (op.format.zeros)
      l.beside = {w.q.zeros,    w.k.zeros,  w.v.zeros,   w.o.zeros,
                  w.gate.zeros, w.up.zeros, w.down.zeros};
    if (op.format.global) l.beside = {global, global, global, global, global, global, global};
    return l;
  }
  struct Weights {
    Matrix q, k, v, o, gate, up, down;
  };
  Matrix matrix(const LayersOp& op, size_t first, int k) const {
    if (op.format.is_plain()) return {.plain = weights + first, .format = op.format, .k = k};
    // Scales of matrices are apart as bytes of groups of 16 elements would be.
    return {nullptr,
            reinterpret_cast<const unsigned char*>(codes) + first * bits_of(op.format.codes) / 8,
            scales + first / 16,
            zeros + first / 32,
            global,
            op.format,
            k};
  }
  Weights weights_of(const LayersOp& op, int i) const {
    const size_t q = size_t(op.query_rows()) * op.hidden, kv = size_t(op.kv_rows()) * op.hidden;
    const size_t mlp = size_t(op.inter) * op.hidden;
    const size_t w = (2 * q + 2 * kv + 3 * mlp) * i, o = w + q + 2 * kv;
    const auto at = [&](size_t first, int k) { return matrix(op, first, k); };
    const int hidden = op.hidden;
    return {at(w, hidden),
            at(w + q, hidden),
            at(w + q + kv, hidden),
            at(o, op.query_rows()),
            at(o + q, hidden),
            at(o + q + mlp, hidden),
            at(o + q + 2 * mlp, op.inter)};
  }
  LayerMaps maps(const LayersOp& op, const LayersPlan& plan, int i) const {
    const auto map = [&](const Matrix& m, int rows, int k, int box_rows = LayersPlan::box_rows) {
      // A map counts pairs of bytes, be they elements or codes.
      const void* const from = m.plain ? static_cast<const void*>(m.plain) : m.codes;
      const int pairs_of_bytes = k * code_bits(op.format, op.type) / 16;
      return map_of(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, from, rows, pairs_of_bytes, box_rows,
                    plan.box_panels());
    };
    const Weights w = weights_of(op, i);
    return {map(w.q, op.query_rows(), op.hidden),
            map(w.k, op.kv_rows(), op.hidden),
            map(w.v, op.kv_rows(), op.hidden),
            map(w.o, op.hidden, op.query_rows()),
            map(w.gate, op.inter, op.hidden, LayersPlan::pair_box_rows),
            map(w.up, op.inter, op.hidden, LayersPlan::pair_box_rows),
            map(w.down, op.hidden, op.inter)};
  }

  std::vector<float> truth(const LayersOp& op, int layers, int tokens) {
    float *h = f[0], *qkv = f[1], *mixed = f[2], *next = f[3], *act = f[4];
    widen<<<1, 256, 0, stream>>>(in, op.hidden, h);
    const int warps = sms * 8;
    for (int i = 0; i < layers; ++i) {
      const LayerPointers l = layer(op, i);
      const Weights w = weights_of(op, i);
      const auto norm = [](const void* p) { return static_cast<const bf16*>(p); };
      int first = 0;
      for (const Matrix& m : {w.q, w.k, w.v}) {
        const int rows = first == 0 ? op.query_rows() : op.kv_rows();
        reference_product<<<warps, 256, 0, stream>>>(m, {}, false, rows, op.hidden, h, norm(l.norm),
                                                     nullptr, qkv + first);
        first += rows;
      }
      reference_attention<<<op.heads, op.head_dim, (tokens + 1) * 8, stream>>>(
          op, l, tokens, capacity, rope, qkv, mixed);
      reference_product<<<warps, 256, 0, stream>>>(w.o, {}, false, op.hidden, op.query_rows(),
                                                   mixed, nullptr, h, next);
      reference_product<<<warps, 256, 0, stream>>>(w.gate, w.up, true, op.inter, op.hidden, next,
                                                   norm(l.mlp_norm), nullptr, act);
      reference_product<<<warps, 256, 0, stream>>>(w.down, {}, false, op.hidden, op.inter, act,
                                                   nullptr, next, h);
    }
    CHECK_CUDA(cudaGetLastError());
    std::vector<float> v(op.hidden);
    CHECK_CUDA(cudaMemcpyAsync(v.data(), h, v.size() * 4, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return v;
  }

  // What a launch says that may be impossible: alone, and as a graph.
  template <class Launch>
  cudaError_t error_of(Launch launch) {
    cudaError_t error = launch();
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) return cudaGetLastError(), error;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    error = launch();
    // Twice: how they depend on each other is part of the graph.
    if (error == cudaSuccess) error = launch();
    const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
    if (error == cudaSuccess) error = captured;
    if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
    if (error == cudaSuccess) error = cudaGraphLaunch(executable, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (executable) CHECK_CUDA(cudaGraphExecDestroy(executable));
    if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
    cudaGetLastError();
    return error;
  }

  template <LayersOp op, class Kernel>
  void run(const char* name, int layers, const LayersPlan& plan, Kernel kernel) {
    if (const char* why = plan.why_illegal(op, max_shared)) {
      std::printf("{\"plan\": \"%s\", \"illegal\": \"%s\", \"shared\": %d}\n", name, why,
                  plan.shared_bytes(op));
      return;
    }
    prepare(kernel), prepare(reference_attention);
    // Elements of one size, whatever the codes are.
    const float largest = bits_of(op.format.codes) == 4 ? 0.008f
                          : is_whole(op.format.codes)   ? 0.0005f
                                                        : 0.05f;
    fill_scales<<<sms * 8, 256, 0, stream>>>(scales, op.format.scale,
                                             elements / 16 / bytes_of(op.format.scale), largest);
    CHECK_CUDA(cudaMemcpyAsync(global, &largest, 4, cudaMemcpyHostToDevice, stream));
    LayersParams p{};
    for (int i = 0; i < layers; ++i) p.maps[i] = maps(op, plan, i), p.layer[i] = layer(op, i);
    p.in = in, p.out = out, p.rope = rope, p.position = position, p.words = words, p.done = done,
    p.layers = layers;
    p.rope_pitch = op.head_dim, p.capacity = capacity, p.norm_eps = p.head_norm_eps = 1e-6f;
    p.scale = 1 / std::sqrt(float(op.head_dim));
    CHECK_CUDA(cudaMemsetAsync(words, 0, (1 << 20) * 8, stream));
    CHECK_CUDA(cudaMemsetAsync(done, 0, 4, stream));
    for (const int tokens : contexts) {
      CHECK_CUDA(cudaMemcpyAsync(position, &tokens, 4, cudaMemcpyHostToDevice, stream));
      const std::vector<float> expected = truth(op, layers, tokens);
      for (const bool cooperative : {false, true}) {
        const auto launch = [&] {
          cudaLaunchAttribute attributes[2]{};
          attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
          attributes[0].val.programmaticStreamSerializationAllowed = 1;
          attributes[1].id = cudaLaunchAttributeCooperative;
          attributes[1].val.cooperative = 1;
          cudaLaunchConfig_t config{};
          config.gridDim = plan.blocks, config.blockDim = plan.threads(), config.stream = stream;
          config.dynamicSmemBytes = plan.shared_bytes(op);
          config.attrs = attributes, config.numAttrs = cooperative ? 2 : 1;
          return cudaLaunchKernelEx(&config, kernel, p);
        };
        const char* const kind = cooperative ? "true" : "false";
        if (const cudaError_t error = error_of(launch)) {
          std::printf(
              "{\"plan\": \"%s\", \"context\": %d, \"cooperative\": %s, \"error\": \"%s\"}\n", name,
              tokens, kind, cudaGetErrorString(error));
          continue;
        }
        const double us = median_us([&] {
                            for (int i = 0; i < tokens_of_graph; ++i) CHECK_CUDA(launch());
                          }) /
                          tokens_of_graph;
        std::vector<bf16> y(op.hidden);
        CHECK_CUDA(cudaMemcpy(y.data(), out, y.size() * 2, cudaMemcpyDeviceToHost));
        // The same bits, however often.
        int others = 0;
        std::vector<bf16> again(op.hidden);
        for (int i = 0; i < (cooperative ? 20 : 200); ++i) {
          CHECK_CUDA(cudaMemsetAsync(out, 0xff, op.hidden * 2, stream));
          CHECK_CUDA(launch());
          CHECK_CUDA(
              cudaMemcpyAsync(again.data(), out, again.size() * 2, cudaMemcpyDeviceToHost, stream));
          CHECK_CUDA(cudaStreamSynchronize(stream));
          others += std::memcmp(again.data(), y.data(), y.size() * 2) != 0;
        }
        double error = 0, size = 0;
        for (int i = 0; i < op.hidden; ++i) {
          const unsigned bits = unsigned(y[i].bits) << 16;
          float v;
          std::memcpy(&v, &bits, 4);
          error += (v - expected[i]) * (v - expected[i]), size += expected[i] * expected[i];
        }
        const double bytes =
            layers * (weight_bytes(op.format, op.type, op.hidden,
                                   op.qkv_rows() + op.query_rows() + 3.0 * op.inter) +
                      4.0 * op.kv_rows() * tokens);
        std::printf(
            "{\"plan\": \"%s\", \"context\": %d, \"cooperative\": %s, \"us\": %.1f, "
            "\"limit_us\": %.1f, \"share\": %.3f, \"error\": %.2e, \"others\": %d, \"shared\": "
            "%d}\n",
            name, tokens, kind, us, bytes / limit * 1e6, bytes / limit * 1e6 / us,
            std::sqrt(error / size), others, plan.shared_bytes(op));
      }
    }
  }
};

}  // namespace ac::bench

int main() {
  using namespace ac::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Bench bench;
  bench.set_up();
#define AC_RUN(op, o, d, s, w, n, p)                                        \
  bench.run<op>(#op " " #o " " #d " " #s " " #w " " #n " " #p, layers_##op, \
                AC_KERNEL_NAME(plan_##op, o, d, s, w, n, p),                \
                AC_KERNEL_NAME(kernel_##op, o, d, s, w, n, p));
  AC_BENCHED(AC_RUN)
}
