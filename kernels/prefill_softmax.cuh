// What all prefill attention kernels share: what a block works on, how scores become weights, and
// the softmax of queries whose scores tensor cores leave in registers.
//
// Online softmax in base 2: a query keeps the maximum and sum of its scores, and its weighted
// values, over the tiles of keys so far. Tiles start at the first key that any query of the block
// sees and end with the last, so a window costs what it shows; only tiles at the edges are masked.
// Blocks with the most keys come first.
#pragma once

#include "kernels/math.cuh"
#include "kernels/mma_tile.cuh"
#include "kernels/prefill_attention_plan.h"
#include "kernels/row_codes.cuh"
#include "kernels/warpgroup.cuh"

namespace ac::kernels {

// What a block works on. Tokens are counted from the start of the text; `first_*` and `end_*` are
// of the block.
struct PrefillBlock {
  int head, first_query, position, first_key, end_key, first_slot;

  AC_DEVICE PrefillBlock(const PrefillAttentionParams& p, int query_tile) {
    head = blockIdx.x;
    first_query = static_cast<int>(gridDim.y - 1 - blockIdx.y) * query_tile;  // of the new tokens
    position = same_in_warp(load_fresh(p.position));
    const int left = p.tokens - first_query;
    end_key = position + first_query + (left < query_tile ? left : query_tile);
    const int oldest = position + first_query - p.window + 1;
    first_key = p.window > 0 && oldest > 0 ? oldest : 0;
    first_slot = first_key % p.capacity;
  }
  // Where in the cache `token` is. No more keys are visible than fit the cache: one turn at most.
  AC_DEVICE int slot(const PrefillAttentionParams& p, int token) const {
    const int slot = first_slot + token - first_key;
    return slot < p.capacity ? slot : slot - p.capacity;
  }
};

// Scores are kept unscaled: weight = 2^(score * factor - maximum * factor). A soft cap needs them
// scaled, and leaves a factor of 1.
AC_DEVICE float capped_score(const PrefillAttentionParams& p, float score) {
  return log2_e * soft_cap(score * p.scale, p.softcap);
}
template <PrefillAttentionOp op>
AC_DEVICE float score_factor(const PrefillAttentionParams& p) {
  return op.softcap ? 1.f : p.scale * log2_e;
}

// The softmax of a warp's queries so far: a thread has two rows of each 16, of their scores as an
// mma has its sums.
template <PrefillAttentionOp op, PrefillAttentionPlan plan>
struct PrefillSoftmax {
  using T = Scalar<op.type>;
  static constexpr int dim = op.head_dim, key_parts = plan.warp_keys() / 8;
  static constexpr int tiles = plan.warp_queries() / 16;
  using Scores = float[tiles][key_parts][4];
  using Outputs = float[tiles][dim / 8][4];
  struct Shrink {
    float by[tiles][2];
    bool any = false;  // of this thread
  };

  float maximum[tiles][2], sum[tiles][2] = {};

  AC_DEVICE PrefillSoftmax() {
    AC_UNROLL
    for (int t = 0; t < tiles; ++t) maximum[t][0] = maximum[t][1] = no_score;
  }

  // `first_query` and `first_key` are positions of this warp's first query and key of the tile.
  AC_DEVICE static void cap_and_mask(const PrefillAttentionParams& p, Scores& scores,
                                     int first_query, int first_key) {
    if constexpr (op.softcap) {
      AC_UNROLL
      for (auto& rows : scores) AC_UNROLL
      for (auto& part : rows) AC_UNROLL
      for (float& score : part) score = capped_score(p, score);
    }
    const int lane = threadIdx.x % 32;
    const bool all_seen = first_key + plan.warp_keys() - 1 <= first_query &&
                          (p.window <= 0 || first_query + 16 * tiles - 1 - first_key < p.window);
    if (all_seen) return;
    AC_UNROLL
    for (int t = 0; t < tiles; ++t) AC_UNROLL
    for (int j = 0; j < key_parts; ++j) AC_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int query = first_query + 16 * t + lane / 4 + i / 2 * 8;
      const int key = first_key + 8 * j + lane % 4 * 2 + i % 2;
      if (key > query || (p.window > 0 && query - key >= p.window)) scores[t][j][i] = -INFINITY;
    }
  }

  // Scores become weights; what was summed before is to shrink to the new maximum.
  AC_DEVICE Shrink weigh(Scores& scores, float factor) {
    Shrink shrink;
    AC_UNROLL
    for (int t = 0; t < tiles; ++t) AC_UNROLL
    for (int half = 0; half < 2; ++half) {
      float largest = maximum[t][half];
      AC_UNROLL
      for (int j = 0; j < key_parts; ++j)
        largest = fmaxf(largest, fmaxf(scores[t][j][2 * half], scores[t][j][2 * half + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, 2));
      shrink.by[t][half] = exp2_fast((maximum[t][half] - largest) * factor);
      shrink.any = shrink.any || largest != maximum[t][half];
      maximum[t][half] = largest;
      float total = sum[t][half] * shrink.by[t][half];
      AC_UNROLL
      for (int j = 0; j < key_parts; ++j) AC_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = scores[t][j][2 * half + i];
        score = exp2_fast(fmaf(score, factor, -largest * factor));
        total += score;
      }
      sum[t][half] = total;
    }
    return shrink;
  }
  AC_DEVICE static void rescale(Outputs& out, const Shrink& shrink) {
    if (__any_sync(full_warp, shrink.any)) multiply(out, shrink);
  }
  AC_DEVICE static void multiply(Outputs& out, const Shrink& shrink) {
    AC_UNROLL
    for (int t = 0; t < tiles; ++t) AC_UNROLL
    for (auto& o : out[t]) {
      o[0] *= shrink.by[t][0], o[1] *= shrink.by[t][0];
      o[2] *= shrink.by[t][1], o[3] *= shrink.by[t][1];
    }
  }
  // The same of sums that products are still being added to. ptxas moves a wait ahead of whatever
  // needs none of its sums, which is all of the softmax that should run meanwhile, but not ahead of
  // a branch that needs the softmax.
  AC_DEVICE void rescale_when_summed(Outputs& out, const Shrink& shrink) const {
    bool weighed = true;
    AC_UNROLL
    for (int t = 0; t < tiles; ++t) weighed = weighed && sum[t][0] >= 0 && sum[t][1] >= 0;
    if (__any_sync(full_warp, shrink.any || !weighed)) {
      products_wait<0>();
      hold(out[0]);
      multiply(out, shrink);
    } else {
      products_wait<0>();
      hold(out[0]);
    }
  }
  // Sixteen weights as a left operand: their layout as a product is their layout as a factor.
  AC_DEVICE static void pack(unsigned (&part)[4], const float (&weights)[key_parts][4], int k) {
    AC_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float(&w)[4] = weights[2 * k + i / 2];
      part[i] = pack_pair<T>(w[i % 2 * 2], w[i % 2 * 2 + 1]);
    }
  }

  // Of warps that share queries, the first gets what the others have. `meeting` is the block's, and
  // [other warp, float4 of a lane, lane].
  AC_DEVICE void meet(Outputs& out, unsigned char* meeting, float factor) {
    constexpr int team = plan.warps / plan.splits, fours = tiles * (dim / 8 + 1);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float4* const all = reinterpret_cast<float4*>(meeting) + lane;
    __syncthreads();  // nobody reads keys or values any more
    if (warp >= team) {
      float4* const mine = all + (warp - team) * fours * 32;
      AC_UNROLL
      for (int t = 0; t < tiles; ++t) {
        AC_UNROLL
        for (int i = 0; i < dim / 8; ++i) {
          const float(&o)[4] = out[t][i];
          mine[(t * (dim / 8 + 1) + i) * 32] = make_float4(o[0], o[1], o[2], o[3]);
        }
        mine[(t * (dim / 8 + 1) + dim / 8) * 32] =
            make_float4(maximum[t][0], maximum[t][1], sum[t][0], sum[t][1]);
      }
    }
    __syncthreads();
    if (warp >= team) return;
    AC_UNROLL
    for (int other = 1; other < plan.splits; ++other) {
      const float4* const theirs = all + ((other - 1) * team + warp) * fours * 32;
      AC_UNROLL
      for (int t = 0; t < tiles; ++t) {
        const float4* const from = theirs + t * (dim / 8 + 1) * 32;
        const float4 state = from[dim / 8 * 32];
        const float maxima[2] = {state.x, state.y}, sums[2] = {state.z, state.w};
        float ours_by[2], theirs_by[2];
        AC_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float largest = fmaxf(maximum[t][half], maxima[half]);
          ours_by[half] = exp2_fast((maximum[t][half] - largest) * factor);
          theirs_by[half] = exp2_fast((maxima[half] - largest) * factor);
          sum[t][half] = sum[t][half] * ours_by[half] + sums[half] * theirs_by[half];
          maximum[t][half] = largest;
        }
        AC_UNROLL
        for (int i = 0; i < dim / 8; ++i) {
          const float4 o = from[i * 32];
          out[t][i][0] = out[t][i][0] * ours_by[0] + o.x * theirs_by[0];
          out[t][i][1] = out[t][i][1] * ours_by[0] + o.y * theirs_by[0];
          out[t][i][2] = out[t][i][2] * ours_by[1] + o.z * theirs_by[1];
          out[t][i][3] = out[t][i][3] * ours_by[1] + o.w * theirs_by[1];
        }
      }
    }
  }

  // `warp_query` is the warp's first one of the block.
  AC_DEVICE void write(const PrefillAttentionParams& p, const PrefillBlock& block, int warp_query,
                       const Outputs& out) const {
    const int lane = threadIdx.x % 32;
    AC_UNROLL
    for (int t = 0; t < tiles; ++t) AC_UNROLL
    for (int half = 0; half < 2; ++half) {
      float total = sum[t][half];
      total += __shfl_xor_sync(full_warp, total, 1);
      total += __shfl_xor_sync(full_warp, total, 2);
      const int query = block.first_query + warp_query + 16 * t + lane / 4 + 8 * half;
      if (query >= p.tokens) continue;
      const float inverse = 1.f / total;
      T* const row = static_cast<T*>(p.out) +
                     (static_cast<long long>(query) * gridDim.x + block.head) * dim + lane % 4 * 2;
      AC_UNROLL
      for (int i = 0; i < dim / 8; ++i)
        *reinterpret_cast<unsigned*>(row + 8 * i) =
            pack_pair<T>(out[t][i][2 * half] * inverse, out[t][i][2 * half + 1] * inverse);
    }
  }
};

}  // namespace ac::kernels
