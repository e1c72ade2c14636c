// The decode attention kernel; attention_plan.h says what op, plan and parameters mean.
//
// Each warp takes tiles of cached tokens in turn and keeps, for every query head of its KV head, a
// running maximum, sum and weighted value (online softmax in base 2). Warps meet in shared memory,
// splits in global memory. The new token never goes through the cache: split 0 adds it at the end.
// What stands between the previous kernel and the next one is latency, so constants are loaded
// before the wait, loads that can go together do, and both meetings share their work by lanes.
#pragma once

#include "kernels/attention_sums.cuh"
#include "kernels/row_codes.cuh"

namespace ac::kernels {

// Which slots of the cache the new token at `position` sees.
template <AttentionOp op>
struct VisibleTokens {
  int position, window, cursor, capacity, begin, end;

  AC_DEVICE VisibleTokens(const AttentionParams& p, int position_)
      : position(position_), window(op.window ? p.window : 0), capacity(p.capacity) {
    cursor = position < capacity ? position : position % capacity;  // where the new token goes
    end = position < capacity ? position : capacity;
    begin = window > 0 && position <= capacity && position >= window ? position - window + 1 : 0;
  }
  AC_DEVICE int nearest(int slot) const { return slot < end ? slot : end - 1; }
  AC_DEVICE bool operator()(int slot) const {
    if (slot >= end) return false;
    if (window <= 0) return true;
    const int token = position - cursor + slot - (slot < cursor ? 0 : capacity);
    return position - token < window;
  }
};

template <AttentionOp op>
using HeadCache = CachedRows<Scalar<op.type>, op.fp8>;

// A score, as a power of two.
template <AttentionOp op>
AC_DEVICE float scaled_score(const AttentionParams& p, float product) {
  float score = product * p.scale;
  if constexpr (op.softcap)
    if (p.softcap > 0) score = p.softcap * tanhf(__fdividef(score, p.softcap));
  return score * log2_e;
}

// Sums over tokens of one warp, with tensor cores. Scores are q k^T (heads x tokens) and outputs
// v^T p^T (dimensions x heads), so that the scores leave the first mma in the layout that the
// second wants. Dimensions are taken in the order in which 16-byte loads bring them.
template <AttentionOp op, AttentionPlan plan>
struct MmaTile {
  using T = Scalar<op.type>;
  using Rows = HeadCache<op>;
  static constexpr int dim = op.head_dim, tokens = plan.tile_tokens(op);
  static constexpr int score_tiles = tokens / 8, key_loads = dim / 32;
  static constexpr int value_tiles = tokens / 16, halves = dim / 64;

  // Products of weights and scales need more range than float16 has: they are counted in the
  // largest scale so far.
  static constexpr bool in_units = op.fp8 && op.type == Type::f16;
  static constexpr bool wide = op.fp8 && dim % 128 == 0;  // 16 codes of a value in one load

  // Token 8 t + lane / 4, dimensions 32 i + lane % 4 * 8; of codes, 64 i + lane % 4 * 16.
  uint4 keys[score_tiles][op.fp8 ? dim / 64 : key_loads];
  // Dimensions 64 h + lane / 4 * 8; where it is wide, those of 128 in two parts of lane / 4 * 16.
  typename Rows::Piece values[value_tiles][halves][4];
  // Scales of codes, of token 8 t + lane % 4 * 2 and the next.
  float key_scales[op.fp8 ? score_tiles : 1][2], value_scales[op.fp8 ? score_tiles : 1][2];
  float unit = least_row_scale;       // of the values' scales, where they need one
  float maximum = no_score, sum = 0;  // of head lane / 4
  float out[halves * 4][4] = {};      // heads lane % 4 * 2 and the next

  // A tile's slots past the end read the last one instead: scores are masked, values must be
  // finite.
  AC_DEVICE void load_keys(const Rows& cache, int first, const VisibleTokens<op>& visible) {
    if (first >= visible.end) return;
    const int lane = threadIdx.x % 32;
    constexpr int part = op.fp8 ? 16 : 8;
    AC_UNROLL
    for (int t = 0; t < score_tiles; ++t) {
      const auto* row =
          cache.rows + visible.nearest(first + 8 * t + lane / 4) * dim + lane % 4 * part;
      AC_UNROLL
      for (int i = 0; i < dim / (4 * part); ++i) keys[t][i] = load_cached(row + 4 * part * i);
    }
    if constexpr (op.fp8) load_scales(cache, first, visible, key_scales);
  }
  AC_DEVICE static void load_scales(const Rows& cache, int first, const VisibleTokens<op>& visible,
                                    float (&scales)[score_tiles][2]) {
    const int slot = first + threadIdx.x % 4 * 2;
    AC_UNROLL
    for (int t = 0; t < score_tiles; ++t) AC_UNROLL
    for (int i = 0; i < 2; ++i)
      scales[t][i] = load_fresh(cache.scales + visible.nearest(slot + 8 * t + i));
  }
  AC_DEVICE void load_values(const Rows& cache, int first, const VisibleTokens<op>& visible) {
    if (first >= visible.end) return;
    const int lane = threadIdx.x % 32;
    AC_UNROLL
    for (int t = 0; t < value_tiles; ++t) AC_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int slot = first + 16 * t + lane % 4 * 2 + j % 2 + j / 2 * 8;
      const auto* row = cache.rows + visible.nearest(slot) * dim + lane / 4 * (wide ? 16 : 8);
      AC_UNROLL
      for (int h = 0; h < halves; h += wide ? 2 : 1) {
        if constexpr (wide) {
          const uint4 codes = load_cached(row + 64 * h);
          values[t][h][j] = make_uint2(codes.x, codes.y);
          values[t][h + 1][j] = make_uint2(codes.z, codes.w);
        } else if constexpr (op.fp8) {
          values[t][h][j] = load_fresh(reinterpret_cast<const uint2*>(row + 64 * h));
        } else {
          values[t][h][j] = load_cached(row + 64 * h);
        }
      }
    }
    if constexpr (op.fp8) load_scales(cache, first, visible, value_scales);
  }
  // 8 dimensions of a key: those of the queries' part i.
  AC_DEVICE uint4 key(int t, int i) const {
    if constexpr (op.fp8) {
      const uint4 codes = keys[t][i / 2];
      return widen_codes<T>(i % 2 == 0 ? make_uint2(codes.x, codes.y)
                                       : make_uint2(codes.z, codes.w));
    } else {
      return keys[t][i];
    }
  }
  AC_DEVICE static int query_part(int i) {
    const int lane = threadIdx.x % 4;
    return op.fp8 ? i / 2 * 64 + lane * 16 + i % 2 * 8 : 32 * i + lane * 8;
  }
  AC_DEVICE static uint4 widened(const uint4& value) { return value; }
  AC_DEVICE static uint4 widened(const uint2& codes) { return widen_codes<T>(codes); }

  // Takes the loaded tile at slot `first`, and loads the one at `next` as registers get free.
  AC_DEVICE void take(const AttentionParams& p, const T* queries, const Rows& k_cache,
                      const Rows& v_cache, int first, int next, const VisibleTokens<op>& visible) {
    const int lane = threadIdx.x % 32;
    float scores[score_tiles][4] = {};
    AC_UNROLL
    for (int i = 0; i < key_loads; ++i) {
      const uint4 q = load_pinned(queries + lane / 4 * dim + query_part(i));
      AC_UNROLL
      for (int t = 0; t < score_tiles; ++t) {
        const uint4 k = key(t, i);
        mma_16x8x16<T>(scores[t], {q.x, 0, q.y, 0}, {k.x, k.y});
        mma_16x8x16<T>(scores[t], {q.z, 0, q.w, 0}, {k.z, k.w});
      }
    }
    if constexpr (op.fp8) {
      AC_UNROLL
      for (int t = 0; t < score_tiles; ++t) AC_UNROLL
      for (int i = 0; i < 2; ++i) scores[t][i] *= key_scales[t][i];
    }
    load_keys(k_cache, next, visible);

    float new_maximum = maximum;
    AC_UNROLL
    for (int t = 0; t < score_tiles; ++t) AC_UNROLL
    for (int i = 0; i < 2; ++i) {
      const bool seen = visible(first + 8 * t + lane % 4 * 2 + i);
      scores[t][i] = seen ? scaled_score<op>(p, scores[t][i]) : -INFINITY;
      new_maximum = fmaxf(new_maximum, scores[t][i]);
    }
    new_maximum = fmaxf(new_maximum, __shfl_xor_sync(full_warp, new_maximum, 1));
    new_maximum = fmaxf(new_maximum, __shfl_xor_sync(full_warp, new_maximum, 2));
    float shrink = exp2f(maximum - new_maximum);
    bool moved = maximum != new_maximum;
    maximum = new_maximum;
    sum *= shrink;
    if constexpr (in_units) {
      float new_unit = unit;
      AC_UNROLL
      for (int t = 0; t < score_tiles; ++t) AC_UNROLL
      for (int i = 0; i < 2; ++i) new_unit = fmaxf(new_unit, value_scales[t][i]);
      new_unit = fmaxf(new_unit, __shfl_xor_sync(full_warp, new_unit, 1));
      new_unit = fmaxf(new_unit, __shfl_xor_sync(full_warp, new_unit, 2));
      moved = moved || unit != new_unit;
      shrink *= __fdividef(unit, new_unit);
      unit = new_unit;
    }
    const float inverse_unit = in_units ? inverse_scale(unit) : 1;
    unsigned weights[score_tiles];
    AC_UNROLL
    for (int t = 0; t < score_tiles; ++t) {
      const float a = exp2f(scores[t][0] - maximum), b = exp2f(scores[t][1] - maximum);
      sum += a + b;
      if constexpr (op.fp8)
        weights[t] = pack_pair<T>(a * (value_scales[t][0] * inverse_unit),
                                  b * (value_scales[t][1] * inverse_unit));
      else
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
      const uint4 v[4] = {widened(values[t][h][0]), widened(values[t][h][1]),
                          widened(values[t][h][2]), widened(values[t][h][3])};
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

  // The first of the two dimensions in a set's row of columns.
  AC_DEVICE static int dimension(int row) {
    const int half = row / 32, pair = row / 8 % 4 * 2;
    return wide ? half / 2 * 128 + row % 8 * 16 + half % 2 * 8 + pair
                : half * 64 + row % 8 * 8 + pair;
  }

  AC_DEVICE void store(float4* set) {
    constexpr int pairs = op.head_pairs();
    const int lane = threadIdx.x % 32, head = lane / 4;
    sum += __shfl_xor_sync(full_warp, sum, 1);
    sum += __shfl_xor_sync(full_warp, sum, 2);
    if (lane % 4 == 0 && head < 2 * pairs) {
      float* const statistics = reinterpret_cast<float*>(set + head / 2) + head % 2;
      statistics[0] = maximum, statistics[2] = sum;
    }
    if (lane % 4 < pairs) {
      AC_UNROLL
      for (int i = 0; i < halves * 4; ++i)
        set[pairs + (8 * i + lane / 4) * pairs + lane % 4] =
            in_units ? make_float4(out[i][0] * unit, out[i][1] * unit, out[i][2] * unit,
                                   out[i][3] * unit)
                     : make_float4(out[i][0], out[i][1], out[i][2], out[i][3]);
    }
  }
};

// The same by plain arithmetic: a lane has every 32nd dimension.
template <AttentionOp op, AttentionPlan plan>
struct ScalarTile {
  using T = Scalar<op.type>;
  using Rows = HeadCache<op>;
  static constexpr int dim = op.head_dim, tokens = plan.tile_tokens(op);
  static constexpr int share = divide_up(dim, 32);

  float maximum[op.group], sum[op.group] = {}, out[op.group][share] = {};

  AC_DEVICE ScalarTile() {
    for (float& m : maximum) m = no_score;
  }
  AC_DEVICE void load_keys(const Rows&, int, const VisibleTokens<op>&) {}
  AC_DEVICE void load_values(const Rows&, int, const VisibleTokens<op>&) {}

  AC_DEVICE void take(const AttentionParams& p, const T* queries, const Rows& k_cache,
                      const Rows& v_cache, int first, int, const VisibleTokens<op>& visible) {
    const int lane = threadIdx.x % 32;
    for (int slot = first; slot < first + tokens; ++slot) {
      if (!visible(slot)) continue;
      const auto* k = k_cache.rows + static_cast<long long>(slot) * dim;
      const auto* v = v_cache.rows + static_cast<long long>(slot) * dim;
      float key_scale = 1, value_scale = 1;
      if constexpr (op.fp8) {
        key_scale = load_fresh(k_cache.scales + slot);
        value_scale = load_fresh(v_cache.scales + slot);
      }
      for (int g = 0; g < op.group; ++g) {
        float score = 0;
        for (int d = lane; d < dim; d += 32)
          score = fmaf(to_float(queries[g * dim + d]), to_float(load_fresh(k + d)), score);
        score = scaled_score<op>(p, op.fp8 ? warp_sum(score) * key_scale : warp_sum(score));
        const float new_maximum = fmaxf(maximum[g], score);
        const float shrink = exp2f(maximum[g] - new_maximum), weight = exp2f(score - new_maximum);
        maximum[g] = new_maximum;
        sum[g] = sum[g] * shrink + weight;
        const float weighted = op.fp8 ? weight * value_scale : weight;
        for (int i = 0; i < share; ++i)
          if (lane + 32 * i < dim)
            out[g][i] = out[g][i] * shrink + weighted * to_float(load_fresh(v + lane + 32 * i));
      }
    }
  }

  AC_DEVICE static int dimension(int row) { return 2 * row; }

  AC_DEVICE void store(float4* set) {
    constexpr int pairs = op.head_pairs();
    const int lane = threadIdx.x % 32;
    for (int g = 0; g < 2 * pairs; ++g) {
      const bool real = g < op.group;
      float* const statistics = reinterpret_cast<float*>(set + g / 2) + g % 2;
      if (lane == 0) statistics[0] = real ? maximum[g] : no_score;
      if (lane == 0) statistics[2] = real ? sum[g] : 0;
      for (int i = 0; i < share; ++i) {
        const int d = lane + 32 * i;
        if (d >= dim) continue;
        float* const column = reinterpret_cast<float*>(set + pairs + d / 2 * pairs + g / 2);
        column[d % 2 * 2 + g % 2] = real ? out[g][i] : 0;
      }
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

// Norm and RoPE of one head by one warp, which has dimension lane + 32 i in values[i]. `scratch`
// holds head_dim floats of this warp alone; norm_weight and turns are in shared memory, or null.
template <AttentionOp op, int share>
AC_DEVICE void prepare_head(float eps, float (&values)[share], const float* norm_weight,
                            const float* turns, float* scratch, Scalar<op.type>* out) {
  const int lane = threadIdx.x % 32;
  if (norm_weight != nullptr) {
    float squares = 0;
    AC_UNROLL
    for (float value : values) squares += value * value;
    const float scale = rsqrtf(warp_sum(squares) / op.head_dim + eps);
    AC_UNROLL
    for (int i = 0; i < share; ++i)
      if (lane + 32 * i < op.head_dim) values[i] *= scale * norm_weight[lane + 32 * i];
  }
  if (turns != nullptr) {
    AC_UNROLL
    for (int i = 0; i < share; ++i)
      if (lane + 32 * i < op.rotary) scratch[lane + 32 * i] = values[i];
    __syncwarp();
    AC_UNROLL
    for (int i = 0; i < share; ++i) {
      const int d = lane + 32 * i;
      if (d >= op.rotary) continue;
      constexpr int half = op.rotary / 2;
      const int angle = op.interleaved ? d / 2 : d < half ? d : d - half;
      const bool second = op.interleaved ? d % 2 == 1 : d >= half;
      const int partner = op.interleaved ? d ^ 1 : second ? d - half : d + half;
      const float turned = second ? scratch[partner] : -scratch[partner];
      values[i] = values[i] * turns[2 * angle] + turned * turns[2 * angle + 1];
    }
    __syncwarp();  // scratch is free for the next head
  }
  AC_UNROLL
  for (int i = 0; i < share; ++i)
    if (lane + 32 * i < op.head_dim) out[lane + 32 * i] = from_float<Scalar<op.type>>(values[i]);
}

// The new token's key or value, which a warp has, to the cache as codes; `row` gets the codes as
// elements. Returns the scale.
template <AttentionOp op, int share>
AC_DEVICE float append_codes(const float (&values)[share], const HeadCache<op>& cache, int slot,
                             Scalar<op.type>* row) {
  using T = Scalar<op.type>;
  constexpr int dim = op.head_dim;
  const int lane = threadIdx.x % 32;
  unsigned largest = 0;
  AC_UNROLL
  for (const float value : values) {
    const unsigned bits = magnitude_bits(to_float(from_float<T>(value)));
    if (bits > largest) largest = bits;
  }
  AC_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const unsigned other = __shfl_xor_sync(full_warp, largest, lanes);
    if (other > largest) largest = other;
  }
  const float scale = row_scale(largest), inverse = inverse_scale(scale);
  AC_UNROLL
  for (int i = 0; i < share; ++i) {
    const int d = lane + 32 * i;
    if (d < dim) {
      const e4m3 code = nearest_e4m3(to_float(from_float<T>(values[i])) * inverse);
      cache.rows[static_cast<long long>(slot) * dim + d] = code;
      row[d] = from_float<T>(to_float(code));
    }
  }
  if (lane == 0) cache.scales[slot] = scale;
  return scale;
}

// One split of the cache. Returns how many have work, or 0 if this one has none.
template <AttentionOp op, AttentionPlan plan>
AC_DEVICE int attend_split(const AttentionParams& p, const int split) {
  using T = Scalar<op.type>;
  constexpr int dim = op.head_dim, group = op.group, warps = plan.warps();
  constexpr int tokens = plan.tile_tokens(op), query_rows = plan.query_rows(op);
  constexpr int pairs = op.head_pairs();

  AC_DYNAMIC_SHARED(shared);
  auto* const queries = reinterpret_cast<T*>(shared);  // [query_rows, head_dim]
  T* const new_key = queries + query_rows * dim;       // [head_dim]
  T* const new_value = new_key + dim;                  // [head_dim]
  auto* const turns = reinterpret_cast<float*>(shared + plan.heads_bytes(op));  // [rotary]
  float* const norm_weights = turns + op.rotary;  // of q and k, [2, head_dim]
  unsigned char* const shared_sets = shared + plan.heads_bytes(op) + plan.constants_bytes(op);
  auto* const scratch = reinterpret_cast<float*>(shared_sets);  // [warps, head_dim]
  auto* const sets = reinterpret_cast<float4*>(shared_sets);    // [warps, set_stride]
  AC_SHARED(float, new_scores, 2 * pairs);
  AC_SHARED(float, new_scales, 2);  // of the new key and value, if they are codes
  AC_SHARED(int, is_last, 1);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int kv_head = blockIdx.x;
  const long long first_of_head = static_cast<long long>(kv_head) * p.capacity;
  const HeadCache<op> k_cache(p.k_cache, p.k_scales, first_of_head, dim);
  const HeadCache<op> v_cache(p.v_cache, p.v_scales, first_of_head, dim);
  launch_dependents();

  // Before the wait, the position may be that of an earlier token. What was cached by then is
  // final, so the first tile can be on its way.
  using Visible = VisibleTokens<op>;
  typename TileOf<op, plan>::type tile;
  const auto first_slot = [&](const Visible& visible) {
    return (visible.begin / tokens + split * warps + warp) * tokens;
  };
  const auto load_tile = [&](const Visible& visible) {
    tile.load_keys(k_cache, first_slot(visible), visible);
    tile.load_values(v_cache, first_slot(visible), visible);
  };
  const auto load_turns = [&](int position) {
    const float* row = p.rope + static_cast<long long>(position) * p.rope_pitch;
    for (int i = threadIdx.x; i < op.rotary; i += plan.threads) turns[i] = row[i];
  };
  const auto splits_for = [&](const Visible& visible) {
    const int tiles = divide_up(visible.end, tokens) - visible.begin / tokens;
    constexpr int tiles_per_split = warps * plan.min_tiles;
    const int splits = divide_up(tiles, tiles_per_split);
    return splits < 1 ? 1 : splits < plan.splits ? splits : plan.splits;
  };
  const int hint = load_relaxed(p.position);
  // A block without work makes room for the next kernel's at once.
  if (!op.window && p.position_lag > 0 && split >= splits_for(Visible(p, hint + p.position_lag)))
    return 0;
  load_tile(Visible(p, hint));
  load_turns(hint);
  for (int i = threadIdx.x; i < (query_rows - group) * dim; i += plan.threads)
    queries[group * dim + i] = from_float<T>(0);
  for (int i = threadIdx.x; op.qk_norm && i < 2 * dim; i += plan.threads) {
    const T* weights = static_cast<const T*>(i < dim ? p.q_norm : p.k_norm);
    norm_weights[i] = to_float(weights[i % dim]) + p.norm_offset;
  }
  wait_for_dependency();

  // The new token's heads, its key and value last: warp by warp.
  constexpr int heads_per_warp = divide_up(group + 2, warps), share = divide_up(dim, 32);
  float heads[heads_per_warp][share];
  const int position = load_fresh(p.position);
  AC_UNROLL
  for (int h = 0; h < heads_per_warp; ++h) {
    const int head = warp + h * warps;
    const T* in = static_cast<const T*>(p.q) + (kv_head * group + head) * dim;
    if (head == group) in = static_cast<const T*>(p.k) + kv_head * dim;
    if (head > group) in = static_cast<const T*>(p.v) + kv_head * dim;
    AC_UNROLL
    for (int i = 0; i < share; ++i) {
      const bool inside = head < group + 2 && lane + 32 * i < dim;
      heads[h][i] = inside ? to_float(load_fresh(in + lane + 32 * i)) : 0;
    }
  }
  const Visible visible(p, position);
  const int splits = splits_for(visible);
  if (split >= splits) return 0;
  if (hint != position) {
    load_tile(visible);
    load_turns(position);
  }
  __syncthreads();

  AC_UNROLL
  for (int h = 0; h < heads_per_warp; ++h) {
    const int head = warp + h * warps;
    if (head >= group + (split == 0 ? 2 : 0)) break;
    const float* norm = nullptr;
    if (op.qk_norm && head <= group) norm = norm_weights + (head < group ? 0 : dim);
    T* const out = head < group ? queries + head * dim : head == group ? new_key : new_value;
    prepare_head<op>(p.norm_eps, heads[h], norm, op.rotary > 0 && head <= group ? turns : nullptr,
                     scratch + warp * dim, out);
    if (head < group) continue;
    const HeadCache<op> cache(head == group ? p.k_cache : p.v_cache,
                              head == group ? p.k_scales : p.v_scales, first_of_head, dim);
    if constexpr (op.fp8) {
      const float scale = append_codes<op>(heads[h], cache, visible.cursor, out);
      if (lane == 0) new_scales[head - group] = scale;
    } else {
      T* const row = cache.rows + static_cast<long long>(visible.cursor) * dim;
      AC_UNROLL
      for (int i = 0; i < share; ++i)
        if (lane + 32 * i < dim) row[lane + 32 * i] = from_float<T>(heads[h][i]);
    }
  }
  __syncthreads();
  if (split == 0) {
    for (int g = warp; g < 2 * pairs; g += warps) {
      const T* query = queries + (g < group ? g : 0) * dim;
      float product = 0;
      AC_UNROLL
      for (int i = 0; i < share; ++i) {
        const int d = lane + 32 * i;
        if (d < dim) product = fmaf(to_float(query[d]), to_float(new_key[d]), product);
      }
      product = warp_sum(product);
      if constexpr (op.fp8) product *= new_scales[0];
      if (lane == 0) new_scores[g] = scaled_score<op>(p, product);
    }
  }

  const int stride = splits * warps * tokens;
  for (int first = first_slot(visible); first < visible.end; first += stride)
    tile.take(p, queries, k_cache, v_cache, first, first + stride, visible);
  tile.store(sets + warp * plan.set_stride(op));
  __syncthreads();

  const auto write_out = [&](int column, const Column& total) {
    const int d = TileOf<op, plan>::type::dimension(column / pairs);
    AC_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int head = column % pairs * 2 + i;
      if (head >= group) continue;
      T* const out = static_cast<T*>(p.out) + (kv_head * group + head) * dim + d;
      const float inverse = __fdividef(1, total.sum[i]);
      out[0] = from_float<T>(total.out[0][i] * inverse);
      out[1] = from_float<T>(total.out[1][i] * inverse);
    }
  };
  auto* const partial =
      reinterpret_cast<float4*>(p.partial) +
      static_cast<long long>(kv_head) * plan.splits * op.set_vectors();  // [splits, set_vectors]

  // Warps, and the new token, into one.
  add_up<op, plan>(
      warps, [&](int i, int vector) { return sets[i * plan.set_stride(op) + vector]; },
      [&](int column, Column& total) {
        const int pair = column % pairs;
        if (split == 0) {
          const int d = TileOf<op, plan>::type::dimension(column / pairs);
          float low = to_float(new_value[d]), high = to_float(new_value[d + 1]);
          if constexpr (op.fp8) low *= new_scales[1], high *= new_scales[1];
          total.add(make_float4(new_scores[2 * pair], new_scores[2 * pair + 1], 1, 1),
                    make_float4(low, low, high, high));
        }
        if (splits == 1) return write_out(column, total);
        float4* const set = partial + split * op.set_vectors();
        if (column == pair) set[pair] = total.statistics();
        set[pairs + column] = total.outputs();
      });
  if (splits == 1) return 1;

  // Splits into one, by the block that comes last.
  __syncthreads();
  if (threadIdx.x == 0) *is_last = count_block(p.finished + kv_head, splits);
  __syncthreads();
  if (!*is_last) return splits;
  add_up<op, plan>(
      splits,
      [&](int i, int vector) { return load_fresh(partial + i * op.set_vectors() + vector); },
      write_out);
  return splits;
}

// `in_turn`: the launch has fewer blocks than splits.
template <AttentionOp op, AttentionPlan plan, bool in_turn>
AC_DEVICE void attention(const AttentionParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  if constexpr (!in_turn) {
    attend_split<op, plan>(p, blockIdx.y);
  } else {
    // A split writes nothing that others may still read of the one before, ahead of its first
    // barrier.
    const int stride = gridDim.y;
    int splits = plan.splits;
    for (int split = blockIdx.y; split < splits; split += stride)
      splits = attend_split<op, plan>(p, split);
  }
}

// Defines the kernel `name`; its grid is (KV heads, plan.splits). Of several rows, it may have
// fewer blocks than splits.
#define AC_ATTENTION_KERNEL(name, op, plan)                                                     \
  AC_KERNEL_ENTRY(name, ::ac::kernels::AttentionParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::attention<op, plan, AC_OF_ROWS>(p))

}  // namespace ac::kernels
