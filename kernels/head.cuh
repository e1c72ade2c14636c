// RMSNorm and RoPE of one query or key head by one warp.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

// norm_weight: [head_dim], or null for no norm. If `turn`, the first `rotary` dimensions turn by
// rope(pair), which is cosine and sine for pairs (i, i + rotary / 2), or (2 i, 2 i + 1) if
// interleaved. `scratch` holds head_dim floats of this warp alone; `out` may be `in`.
template <int head_dim, int rotary, bool interleaved, class T, class Rope>
AC_DEVICE void prepare_head(const T* in, const T* norm_weight, float norm_eps, float norm_offset,
                            bool turn, Rope rope, float* scratch, T* out) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
  for (int d = lane; d < head_dim; d += 32) {
    const float value = to_float(load_fresh(in + d));
    scratch[d] = value;
    squares += value * value;
  }
  if (norm_weight != nullptr) {
    const float scale = rsqrtf(warp_sum(squares) / head_dim + norm_eps);
    for (int d = lane; d < head_dim; d += 32)
      scratch[d] *= scale * (to_float(norm_weight[d]) + norm_offset);
  }
  __syncwarp();
  for (int d = lane; d < head_dim; d += 32) {
    float value = scratch[d];
    if (turn && d < rotary) {
      constexpr int half = rotary / 2;
      const int pair = interleaved ? d / 2 : d < half ? d : d - half;
      const bool second = interleaved ? d % 2 == 1 : d >= half;
      const int partner = interleaved ? d ^ 1 : second ? d - half : d + half;
      const float turned = second ? scratch[partner] : -scratch[partner];
      const float2 cos_sin = rope(pair);
      value = value * cos_sin.x + turned * cos_sin.y;
    }
    out[d] = from_float<T>(value);
  }
  __syncwarp();  // scratch is free for the next head
}

}  // namespace ac::kernels
