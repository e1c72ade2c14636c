// The prefill attention kernel; prefill_attention_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/prefill_groups.cuh"
#include "kernels/prefill_mma.cuh"

namespace ac::kernels {

// ---- plain arithmetic: a lane has a key of 32 while it scores, and every 32nd dimension while it
// sums values

template <PrefillAttentionOp op, PrefillAttentionPlan plan>
AC_DEVICE void prefill_attention_scalar(const PrefillAttentionParams& p) {
  using T = Scalar<op.type>;
  constexpr int dim = op.head_dim, share = divide_up(dim, 32), queries = plan.warp_queries();
  constexpr int pitch = plan.row_bytes(op) / static_cast<int>(sizeof(T));
  AC_DYNAMIC_SHARED(shared);
  auto* const shared_queries = reinterpret_cast<float*>(shared);        // [query_tile, dim]
  T* const keys = reinterpret_cast<T*>(shared + plan.query_bytes(op));  // [key_tile, pitch]
  T* const values = reinterpret_cast<T*>(shared + plan.query_bytes(op) + plan.keys_bytes(op));
  launch_dependents();
  wait_for_dependency();
  const PrefillBlock block(p, plan.query_tile);
  const int lane = threadIdx.x % 32, warp_query = threadIdx.x / 32 * queries;
  for (int i = threadIdx.x; i < plan.query_tile * dim; i += plan.threads()) {
    const int query = block.first_query + i / dim;
    const T* const row = static_cast<const T*>(p.q) + static_cast<long long>(query) * p.q_pitch;
    shared_queries[i] =
        query < p.tokens ? to_float(load_fresh(row + block.head * dim + i % dim)) : 0;
  }

  float maximum[queries], sum[queries] = {}, out[queries][share] = {};
  AC_UNROLL
  for (float& m : maximum) m = no_score;
  const float factor = score_factor<op>(p);
  using Cached = CachedElement<T, op.fp8>;
  const long long first_slot = static_cast<long long>(block.head / op.group) * p.capacity;
  for (int first = block.first_key; first < block.end_key; first += plan.key_tile) {
    __syncthreads();  // everyone is done with the tile before
    for (int i = threadIdx.x; i < plan.key_tile * dim; i += plan.threads()) {
      const int r = i / dim, d = i % dim;
      const bool valid = first + r < block.end_key;
      const long long at = (first_slot + (valid ? block.slot(p, first + r) : 0ll)) * dim + d;
      const T zero = from_float<T>(0);
      const auto element = [&](const void* cache) {
        const Cached stored = load_fresh(static_cast<const Cached*>(cache) + at);
        if constexpr (op.fp8)
          return from_float<T>(to_float(stored));
        else
          return stored;
      };
      keys[r * pitch + d] = valid ? element(p.k_cache) : zero;
      values[r * pitch + d] = valid ? element(p.v_cache) : zero;
    }
    __syncthreads();
    AC_UNROLL
    for (int q = 0; q < queries; ++q) {
      const int query = block.position + block.first_query + warp_query + q;
      const float* const mine = shared_queries + (warp_query + q) * dim;
      for (int part = 0; part < plan.key_tile; part += 32) {
        const int key = first + part + lane;
        const T* const k = keys + (part + lane) * pitch;
        float score = 0;
        AC_UNROLL_BY(8)
        for (int d = 0; d < dim; ++d) score = fmaf(mine[d], to_float(k[d]), score);
        float value_scale = 1;
        if constexpr (op.fp8) {
          const long long slot = first_slot + block.slot(p, key < block.end_key ? key : first);
          score *= load_fresh(p.k_scales + slot), value_scale = load_fresh(p.v_scales + slot);
        }
        if constexpr (op.softcap) score = capped_score(p, score);
        if (key > query || (p.window > 0 && query - key >= p.window)) score = -INFINITY;
        const float largest = fmaxf(maximum[q], warp_max(score));
        const float shrink = exp2_fast((maximum[q] - largest) * factor);
        const float weight = exp2_fast((score - largest) * factor);
        maximum[q] = largest;
        sum[q] = sum[q] * shrink + weight;  // of this lane's keys
        AC_UNROLL
        for (int i = 0; i < share; ++i) out[q][i] *= shrink;
        const OfLanes<float> weights(op.fp8 ? weight * value_scale : weight);
        for (int j = 0; j < 32; ++j) {
          const float w = weights[j];
          AC_UNROLL
          for (int i = 0; i < share; ++i)
            if (lane + 32 * i < dim)
              out[q][i] = fmaf(w, to_float(values[(part + j) * pitch + lane + 32 * i]), out[q][i]);
        }
      }
    }
  }
  AC_UNROLL
  for (int q = 0; q < queries; ++q) {
    const float inverse = 1.f / warp_sum(sum[q]);
    const int query = block.first_query + warp_query + q;
    if (query >= p.tokens) continue;
    T* const row =
        static_cast<T*>(p.out) + (static_cast<long long>(query) * gridDim.x + block.head) * dim;
    AC_UNROLL
    for (int i = 0; i < share; ++i)
      if (lane + 32 * i < dim) row[lane + 32 * i] = from_float<T>(out[q][i] * inverse);
  }
}

template <PrefillAttentionOp op, PrefillAttentionPlan plan>
AC_DEVICE void prefill_attention(const PrefillAttentionParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  if constexpr (plan.tile == Tile::wgmma)
    prefill_attention_groups<op, plan>(p);
  else if constexpr (plan.tile == Tile::mma)
    prefill_attention_mma<op, plan>(p);
  else
    prefill_attention_scalar<op, plan>(p);
}

}  // namespace ac::kernels

// Defines the kernel `name`; its grid is (query heads, prefill_tiles(plan, tokens)).
#define AC_PREFILL_ATTENTION_KERNEL(name, op, plan)                                               \
  AC_KERNEL_ENTRY(name, ::ac::kernels::PrefillAttentionParams, (plan).threads(), (plan).resident, \
                  ::ac::kernels::prefill_attention<op, plan>(p))
