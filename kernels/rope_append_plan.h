// What surrounds attention in a decoder layer, for T tokens after P cached ones: q/k norm, RoPE,
// and the append of keys and values to the cache that attention_plan.h describes. For prefill, and
// for decode where attention does not do it itself.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

struct RopeAppendOp {
  Type type = Type::f16;  // of q, k, v, the norm weights, and the cache if it holds no codes
  int head_dim = 128;
  bool qk_norm = false;      // RMSNorm of each query and key head
  int rotary = 128;          // leading dimensions that RoPE turns; 0: none
  bool interleaved = false;  // RoPE pairs (2 i, 2 i + 1) instead of (i, i + rotary / 2)
  bool fp8 = false;          // the cache holds codes of FP8: kernels/row_codes.h
  AC_FIELDS(RopeAppendOp, type, head_dim, qk_norm, rotary, interleaved, fp8)
};

struct RopeAppendPlan {
  int threads = 128;
  int heads = 8;  // of a token, which a warp has in registers at once
  int resident = 768;
  bool persistent = true;  // grid of what is resident; else a warp for each group of heads
  AC_FIELDS(RopeAppendPlan, threads, heads, resident, persistent)

  constexpr int warps() const { return threads / 32; }
  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  // Wide heads leave registers for fewer.
  constexpr int heads_at_once(const RopeAppendOp& op) const {
    const int fit = 32 / divide_up(op.head_dim, 32);
    return heads < fit ? heads : fit > 1 ? fit : 1;
  }
  // Groups of heads of a token; `all` are those of q, k and v together.
  constexpr int groups(const RopeAppendOp& op, int all) const {
    return divide_up(all, heads_at_once(op));
  }
  constexpr int grid(const RopeAppendOp& op, int tokens, int all, int sms) const {
    return work_grid(static_cast<long long>(tokens) * groups(op, all), warps(), persistent, sms,
                     blocks_per_sm());
  }
  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const RopeAppendOp& op) const {
    if (op.head_dim < 1 || op.head_dim > 1024) return "head_dim must be 1 to 1024";
    if (op.rotary < 0 || op.rotary > op.head_dim || op.rotary % 2 != 0)
      return "rotary must be even and at most head_dim";
    if (heads < 1 || heads > 16) return "heads must be 1 to 16";
    return why_threads_illegal(threads, 1, resident);
  }
};

// All but q, k and v begin at multiples of 16 bytes.
struct RopeAppendParams {
  const void* q;  // [tokens, heads, head_dim], `q_pitch` elements from token to token
  const void* k;  // [tokens, kv_heads, head_dim], `kv_pitch` elements from token to token
  const void* v;  // [tokens, kv_heads, head_dim], as k
  long long q_pitch, kv_pitch;
  int tokens, heads, kv_heads;
  const void* q_norm;  // [head_dim], if op.qk_norm
  const void* k_norm;  // [head_dim], if op.qk_norm
  float norm_eps;
  float norm_offset;      // 1 where the norm multiplies by 1 + weight
  const float* inv_freq;  // [rotary / 2]
  float rope_scale;       // of cosine and sine
  const int* position;    // [1] tokens before these: below 2^20
  void* q_out;            // [tokens, heads, head_dim]; may be q, if q_pitch is heads * head_dim
  void* k_cache;          // [kv_heads, capacity, head_dim], a token at its position % capacity
  void* v_cache;          // [kv_heads, capacity, head_dim]
  float* k_scales;        // [kv_heads, capacity], if op.fp8
  float* v_scales;        // [kv_heads, capacity], if op.fp8
  int capacity;           // no less than the tokens: attention reads them from there
};

constexpr double rope_append_bytes(const RopeAppendOp& op, int tokens, int heads, int kv_heads) {
  const double all = 2.0 * tokens * (heads + 2.0 * kv_heads) * op.head_dim * bytes_of(op.type);
  if (!op.fp8) return all;
  return all - 2.0 * tokens * kv_heads * (op.head_dim * (bytes_of(op.type) - 1) - 4);
}

}  // namespace ac::kernels
