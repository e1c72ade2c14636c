// The decode attention kernel; attention_plan.h says what op, plan and parameters mean.
//
// Each warp takes tiles of cached tokens in turn and keeps, for every query head of its KV head, a
// running maximum, sum and weighted value (online softmax in base 2). Warps meet in shared memory,
// splits in global memory. The new token never goes through the cache: split 0 adds it at the end.
#pragma once

#include "kernels/attention_plan.h"
#include "kernels/head.cuh"
#include "kernels/math.cuh"

namespace ac::kernels {

// Which slots of the cache the new token at `position` sees.
struct VisibleTokens {
  int position, window, cursor, capacity, begin, end;

  AC_DEVICE VisibleTokens(const AttentionParams& p, int position_)
      : position(position_), window(p.window), capacity(p.capacity) {
    cursor = position % capacity;  // where the new token goes
    end = position < capacity ? position : capacity;
    begin = window > 0 && position <= capacity && position >= window ? position - window + 1 : 0;
  }
  AC_DEVICE bool operator()(int slot) const {
    if (slot >= end) return false;
    if (window <= 0) return true;
    const int token = position - cursor + slot - (slot < cursor ? 0 : capacity);
    return position - token < window;
  }
};

// Sums over tokens of one warp, with tensor cores. Scores are q k^T (heads x tokens) and outputs
// v^T p^T (dimensions x heads), so that the scores leave the first mma in the layout that the
// second wants. Dimensions are taken in the order in which 16-byte loads bring them.
template <AttentionOp op, AttentionPlan plan>
struct MmaTile {
  using T = Scalar<op.type>;
  static constexpr int dim = op.head_dim, tokens = plan.tile_tokens(op);
  static constexpr int score_tiles = tokens / 8, key_loads = dim / 32;
  static constexpr int value_tiles = tokens / 16, halves = dim / 64;

  uint4 keys[score_tiles][key_loads];    // token 8 t + lane / 4, dimensions 32 i + lane % 4 * 8
  uint4 values[value_tiles][halves][4];  // dimensions 64 h + lane / 4 * 8
  float maximum = no_score, sum = 0;     // of head lane / 4
  float out[halves * 4][4] = {};         // heads lane % 4 * 2 and the next

  AC_DEVICE void load_keys(const T* cache, int first, const VisibleTokens& visible) {
    const int lane = threadIdx.x % 32;
    AC_UNROLL
    for (int t = 0; t < score_tiles; ++t) {
      const int slot = first + 8 * t + lane / 4;
      const bool valid = slot < visible.end;
      const T* row = cache + static_cast<long long>(valid ? slot : 0) * dim + lane % 4 * 8;
      AC_UNROLL
      for (int i = 0; i < key_loads; ++i) load_cached(keys[t][i], row + 32 * i, valid);
    }
  }
  AC_DEVICE void load_values(const T* cache, int first, const VisibleTokens& visible) {
    const int lane = threadIdx.x % 32;
    AC_UNROLL
    for (int t = 0; t < value_tiles; ++t) AC_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int slot = first + 16 * t + lane % 4 * 2 + j % 2 + j / 2 * 8;
      const bool valid = slot < visible.end;
      const T* row = cache + static_cast<long long>(valid ? slot : 0) * dim + lane / 4 * 8;
      AC_UNROLL
      for (int h = 0; h < halves; ++h) load_cached(values[t][h][j], row + 64 * h, valid);
    }
  }

  // Takes the loaded tile at slot `first`, and loads the one at `next` as registers get free.
  AC_DEVICE void take(const AttentionParams& p, const T* queries, const T* k_cache,
                      const T* v_cache, int first, int next, const VisibleTokens& visible) {
    const int lane = threadIdx.x % 32;
    float scores[score_tiles][4] = {};
    AC_UNROLL
    for (int i = 0; i < key_loads; ++i) {
      const uint4 q = load_pinned(queries + lane / 4 * dim + 32 * i + lane % 4 * 8);
      AC_UNROLL
      for (int t = 0; t < score_tiles; ++t) {
        const uint4 k = keys[t][i];
        mma_16x8x16<T>(scores[t], {q.x, 0, q.y, 0}, {k.x, k.y});
        mma_16x8x16<T>(scores[t], {q.z, 0, q.w, 0}, {k.z, k.w});
      }
    }
    load_keys(k_cache, next, visible);

    float new_maximum = maximum;
    AC_UNROLL
    for (int t = 0; t < score_tiles; ++t) AC_UNROLL
    for (int i = 0; i < 2; ++i) {
      float score = scores[t][i] * p.scale;
      if (p.softcap > 0) score = p.softcap * tanhf(score / p.softcap);
      scores[t][i] = visible(first + 8 * t + lane % 4 * 2 + i) ? score * log2_e : -INFINITY;
      new_maximum = fmaxf(new_maximum, scores[t][i]);
    }
    new_maximum = fmaxf(new_maximum, __shfl_xor_sync(full_warp, new_maximum, 1));
    new_maximum = fmaxf(new_maximum, __shfl_xor_sync(full_warp, new_maximum, 2));
    const float shrink = exp2f(maximum - new_maximum);
    const bool moved = maximum != new_maximum;
    maximum = new_maximum;
    sum *= shrink;
    unsigned weights[score_tiles];
    AC_UNROLL
    for (int t = 0; t < score_tiles; ++t) {
      const float a = exp2f(scores[t][0] - maximum), b = exp2f(scores[t][1] - maximum);
      sum += a + b;
      weights[t] = pack_pair<T>(a, b);
    }
    if (__any_sync(full_warp, moved)) {
      const float even = __shfl_sync(full_warp, shrink, lane % 4 * 8);
      const float odd = __shfl_sync(full_warp, shrink, lane % 4 * 8 + 4);
      AC_UNROLL
      for (auto& o : out) o[0] *= even, o[1] *= odd, o[2] *= even, o[3] *= odd;
    }
    AC_UNROLL
    for (int t = 0; t < value_tiles; ++t) AC_UNROLL
    for (int h = 0; h < halves; ++h) {
      const uint4(&v)[4] = values[t][h];
      const auto multiply = [&](float(&sums)[4], unsigned v0, unsigned v1, unsigned v2,
                                unsigned v3) {
        mma_16x8x16<T>(sums,
                       {__byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                        __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632)},
                       {weights[2 * t], weights[2 * t + 1]});
      };
      multiply(out[4 * h], v[0].x, v[1].x, v[2].x, v[3].x);
      multiply(out[4 * h + 1], v[0].y, v[1].y, v[2].y, v[3].y);
      multiply(out[4 * h + 2], v[0].z, v[1].z, v[2].z, v[3].z);
      multiply(out[4 * h + 3], v[0].w, v[1].w, v[2].w, v[3].w);
    }
    load_values(v_cache, next, visible);
  }

  // maxima, sums: [group]; outputs: [group, head_dim].
  AC_DEVICE void store(float* maxima, float* sums, float* outputs) {
    const int lane = threadIdx.x % 32;
    sum += __shfl_xor_sync(full_warp, sum, 1);
    sum += __shfl_xor_sync(full_warp, sum, 2);
    if (lane % 4 == 0 && lane / 4 < op.group) maxima[lane / 4] = maximum, sums[lane / 4] = sum;
    AC_UNROLL
    for (int i = 0; i < halves * 4; ++i) AC_UNROLL
    for (int head = 0; head < 2; ++head) {
      const int g = lane % 4 * 2 + head, d = i / 4 * 64 + lane / 4 * 8 + i % 4 * 2;
      if (g < op.group) {
        outputs[g * dim + d] = out[i][head];
        outputs[g * dim + d + 1] = out[i][2 + head];
      }
    }
  }
};

// The same by plain arithmetic: a lane has every 32nd dimension.
template <AttentionOp op, AttentionPlan plan>
struct ScalarTile {
  using T = Scalar<op.type>;
  static constexpr int dim = op.head_dim, tokens = plan.tile_tokens(op);
  static constexpr int share = (dim + 31) / 32;

  float maximum[op.group], sum[op.group] = {}, out[op.group][share] = {};

  AC_DEVICE ScalarTile() {
    for (float& m : maximum) m = no_score;
  }
  AC_DEVICE void load_keys(const T*, int, const VisibleTokens&) {}
  AC_DEVICE void load_values(const T*, int, const VisibleTokens&) {}

  AC_DEVICE void take(const AttentionParams& p, const T* queries, const T* k_cache,
                      const T* v_cache, int first, int, const VisibleTokens& visible) {
    const int lane = threadIdx.x % 32;
    for (int slot = first; slot < first + tokens; ++slot) {
      if (!visible(slot)) continue;
      const T* k = k_cache + static_cast<long long>(slot) * dim;
      const T* v = v_cache + static_cast<long long>(slot) * dim;
      for (int g = 0; g < op.group; ++g) {
        float score = 0;
        for (int d = lane; d < dim; d += 32)
          score = fmaf(to_float(queries[g * dim + d]), to_float(load_fresh(k + d)), score);
        score = warp_sum(score) * p.scale;
        if (p.softcap > 0) score = p.softcap * tanhf(score / p.softcap);
        score *= log2_e;
        const float new_maximum = fmaxf(maximum[g], score);
        const float shrink = exp2f(maximum[g] - new_maximum), weight = exp2f(score - new_maximum);
        maximum[g] = new_maximum;
        sum[g] = sum[g] * shrink + weight;
        for (int i = 0; i < share; ++i)
          if (lane + 32 * i < dim)
            out[g][i] = out[g][i] * shrink + weight * to_float(load_fresh(v + lane + 32 * i));
      }
    }
  }

  AC_DEVICE void store(float* maxima, float* sums, float* outputs) {
    const int lane = threadIdx.x % 32;
    for (int g = 0; g < op.group; ++g) {
      if (lane == 0) maxima[g] = maximum[g], sums[g] = sum[g];
      for (int i = 0; i < share; ++i)
        if (lane + 32 * i < dim) outputs[g * dim + lane + 32 * i] = out[g][i];
    }
  }
};

template <AttentionOp op, AttentionPlan plan>
struct TileOf {
  using type = MmaTile<op, plan>;
};
template <AttentionOp op, AttentionPlan plan>
  requires(plan.tile == Tile::scalar)
struct TileOf<op, plan> {
  using type = ScalarTile<op, plan>;
};

template <AttentionOp op, AttentionPlan plan>
AC_DEVICE void attention(const AttentionParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using T = Scalar<op.type>;
  constexpr int dim = op.head_dim, group = op.group, warps = plan.warps();
  constexpr int tokens = plan.tile_tokens(op), query_rows = plan.query_rows(op);

  AC_DYNAMIC_SHARED(shared);
  auto* const queries = reinterpret_cast<T*>(shared);  // [query_rows, head_dim]
  T* const new_key = queries + query_rows * dim;       // [head_dim]
  T* const new_value = new_key + dim;                  // [head_dim]
  auto* const scratch = reinterpret_cast<float*>(shared + plan.heads_bytes(op));
  auto* const outputs = scratch + plan.scratch_bytes(op) / 4;  // [warps, group, head_dim]
  AC_SHARED(float, maxima, warps* group);
  AC_SHARED(float, sums, warps* group);
  AC_SHARED(float, new_scores, group);
  AC_SHARED(float, inverse_sums, group);
  AC_SHARED(float, split_weights, group* plan.splits);
  AC_SHARED(int, is_last, 1);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int split = blockIdx.x, kv_head = blockIdx.y;
  const long long cache_offset = static_cast<long long>(kv_head) * p.capacity * dim;
  T* const k_cache = static_cast<T*>(p.k_cache) + cache_offset;
  T* const v_cache = static_cast<T*>(p.v_cache) + cache_offset;
  launch_dependents();

  // Before the wait, the position may be that of an earlier token. What was cached by then is
  // final, so the first tile can be on its way.
  typename TileOf<op, plan>::type tile;
  const auto first_slot = [&](const VisibleTokens& visible) {
    return (visible.begin / tokens + split * warps + warp) * tokens;
  };
  int hint = -1;
  if constexpr (plan.early) {
    hint = load_relaxed(p.position);
    const VisibleTokens visible(p, hint);
    tile.load_keys(k_cache, first_slot(visible), visible);
    tile.load_values(v_cache, first_slot(visible), visible);
  }
  prefetch_share(p.next_weight, p.next_bytes, blockIdx.y * gridDim.x + blockIdx.x,
                 gridDim.x * gridDim.y, plan.threads);
  for (int i = threadIdx.x; i < (query_rows - group) * dim; i += plan.threads)
    queries[group * dim + i] = from_float<T>(0);
  wait_for_dependency();

  const int position = load_fresh(p.position);
  const VisibleTokens visible(p, position);
  const int tiles = (visible.end + tokens - 1) / tokens - visible.begin / tokens;
  constexpr int tiles_per_split = warps * plan.min_tiles;
  int splits = (tiles + tiles_per_split - 1) / tiles_per_split;
  splits = splits < 1 ? 1 : splits < plan.splits ? splits : plan.splits;
  if (split >= splits) return;
  if (hint != position) {
    tile.load_keys(k_cache, first_slot(visible), visible);
    tile.load_values(v_cache, first_slot(visible), visible);
  }

  // The new token's heads; split 0 keeps its key and value.
  for (int head = warp; head < group + (split == 0 ? 2 : 0); head += warps) {
    const float* rope = op.rotary == 0 || head > group ? nullptr : p.rope + position * p.rope_pitch;
    const bool norm = op.qk_norm && head <= group;
    const T* in = static_cast<const T*>(p.q) + (kv_head * group + head) * dim;
    if (head == group) in = static_cast<const T*>(p.k) + kv_head * dim;
    if (head > group) in = static_cast<const T*>(p.v) + kv_head * dim;
    T* const out = head < group ? queries + head * dim : head == group ? new_key : new_value;
    const auto angle = [&](int pair) { return make_float2(rope[2 * pair], rope[2 * pair + 1]); };
    prepare_head<op.head_dim, op.rotary, op.interleaved>(
        in, norm ? static_cast<const T*>(head < group ? p.q_norm : p.k_norm) : nullptr, p.norm_eps,
        p.norm_offset, rope != nullptr, angle, scratch + warp * dim, out);
    if (head >= group) {
      T* const row =
          (head == group ? k_cache : v_cache) + static_cast<long long>(visible.cursor) * dim;
      for (int d = lane; d < dim; d += 32) row[d] = out[d];
    }
  }
  __syncthreads();
  if (split == 0) {
    for (int g = warp; g < group; g += warps) {
      float score = 0;
      for (int d = lane; d < dim; d += 32)
        score = fmaf(to_float(queries[g * dim + d]), to_float(new_key[d]), score);
      score = warp_sum(score) * p.scale;
      if (p.softcap > 0) score = p.softcap * tanhf(score / p.softcap);
      if (lane == 0) new_scores[g] = score * log2_e;
    }
  }

  const int stride = splits * warps * tokens;
  for (int first = first_slot(visible); first < visible.end; first += stride)
    tile.take(p, queries, k_cache, v_cache, first, first + stride, visible);
  tile.store(maxima + warp * group, sums + warp * group, outputs + warp * group * dim);
  __syncthreads();

  // Warps, and the new token, into one.
  const int whole = kv_head * plan.splits + split;
  for (int i = threadIdx.x; i < group * dim; i += plan.threads) {
    const int g = i / dim, d = i % dim;
    float maximum = split == 0 ? new_scores[g] : no_score, total = 0, value = 0;
    AC_UNROLL
    for (int w = 0; w < warps; ++w) maximum = fmaxf(maximum, maxima[w * group + g]);
    AC_UNROLL
    for (int w = 0; w < warps; ++w) {
      const float weight = exp2f(maxima[w * group + g] - maximum);
      total += weight * sums[w * group + g];
      value += weight * outputs[w * group * dim + i];
    }
    if (split == 0) {
      const float weight = exp2f(new_scores[g] - maximum);
      total += weight;
      value += weight * to_float(new_value[d]);
    }
    if (splits == 1) {
      static_cast<T*>(p.out)[kv_head * group * dim + i] = from_float<T>(value / total);
    } else {
      p.partial[static_cast<long long>(whole) * group * dim + i] = value;
      if (d == 0) {
        p.partial_stats[(whole * group + g) * 2] = maximum;
        p.partial_stats[(whole * group + g) * 2 + 1] = total;
      }
    }
  }
  if (splits == 1) return;

  // Splits into one, by the block that comes last.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned last = static_cast<unsigned>(splits) - 1;
    *is_last = atomicInc(p.finished + kv_head, last) == last;  // wraps to 0 by itself
  }
  __syncthreads();
  if (!*is_last) return;
  __threadfence();
  const float* stats = p.partial_stats + kv_head * plan.splits * group * 2;
  for (int g = warp; g < group; g += warps) {
    float maximum = no_score, total = 0;
    for (int s = lane; s < splits; s += 32)
      maximum = fmaxf(maximum, load_fresh(stats + (s * group + g) * 2));
    maximum = warp_max(maximum);
    for (int s = lane; s < splits; s += 32) {
      const float weight = exp2f(load_fresh(stats + (s * group + g) * 2) - maximum);
      split_weights[g * plan.splits + s] = weight;
      total += weight * load_fresh(stats + (s * group + g) * 2 + 1);
    }
    total = warp_sum(total);
    if (lane == 0) inverse_sums[g] = 1.f / total;
  }
  __syncthreads();
  const float* partial = p.partial + static_cast<long long>(kv_head) * plan.splits * group * dim;
  for (int i = threadIdx.x; i < group * dim; i += plan.threads) {
    const int g = i / dim;
    float value = 0;
    AC_UNROLL_BY(8)
    for (int s = 0; s < splits; ++s)
      value += split_weights[g * plan.splits + s] * load_fresh(partial + s * group * dim + i);
    static_cast<T*>(p.out)[kv_head * group * dim + i] = from_float<T>(value * inverse_sums[g]);
  }
}

// The grid of the kernel is (plan.splits, KV heads).
#define AC_ATTENTION_KERNEL(name, op, plan)                                                     \
  AC_KERNEL_ENTRY(name, ::ac::kernels::AttentionParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::attention<op, plan>(p))

}  // namespace ac::kernels
