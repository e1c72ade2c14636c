// What benchmarks of prefill attention compare with: a plain kernel, for some of the queries.
#pragma once

#include "kernels/prefill_attention_plan.h"
#include "kernels/ptx.cuh"

namespace ac::bench {

using namespace ac::kernels;

// From the last token to the first.
static __device__ int sampled_token(int sample, int samples, int tokens) {
  return tokens - 1 -
         static_cast<int>(static_cast<long long>(sample) * (tokens - 1) / (samples - 1));
}

// A block (of a multiple of `dim` threads) has one query of one head, of samples x heads: its
// scores in dynamic shared memory, a float for each token, then their sum of values.
template <class T>
__global__ void reference_attention(PrefillAttentionParams p, int dim, int group, int samples,
                                    float* y) {
  extern __shared__ float weights[];
  const int head = blockIdx.x, query = sampled_token(blockIdx.y, samples, p.tokens);
  const int seen = *p.position + query + 1;
  const T* q = static_cast<const T*>(p.q) + size_t(query) * p.q_pitch + head * dim;
  const size_t offset = size_t(head / group) * p.capacity * dim;
  const T* keys = static_cast<const T*>(p.k_cache) + offset;
  const T* values = static_cast<const T*>(p.v_cache) + offset;
  __shared__ float shared_sum, shared_maximum, parts[256];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int key = warp; key < seen; key += warps) {
    float score = 0;
    for (int d = lane; d < dim; d += 32)
      score += to_float(q[d]) * to_float(keys[size_t(key) * dim + d]);
    score = warp_sum(score);
    if (lane == 0) weights[key] = score * p.scale;
  }
  __syncthreads();
  if (warp == 0) {
    float maximum = -1e30f, sum = 0;
    for (int key = lane; key < seen; key += 32) maximum = fmaxf(maximum, weights[key]);
    maximum = warp_max(maximum);
    for (int key = lane; key < seen; key += 32) sum += expf(weights[key] - maximum);
    sum = warp_sum(sum);
    if (lane == 0) shared_sum = sum, shared_maximum = maximum;
  }
  __syncthreads();
  const int d = threadIdx.x % dim, part = threadIdx.x / dim, count = blockDim.x / dim;
  float value = 0;
  for (int key = part; key < seen; key += count)
    value += expf(weights[key] - shared_maximum) * to_float(values[size_t(key) * dim + d]);
  parts[threadIdx.x] = value;
  __syncthreads();
  if (part != 0) return;
  for (int i = 1; i < count; ++i) value += parts[i * dim + d];
  y[(size_t(blockIdx.y) * gridDim.x + head) * dim + d] = value / shared_sum;
}

}  // namespace ac::bench
