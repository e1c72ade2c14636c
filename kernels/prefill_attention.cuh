// The prefill attention kernel; prefill_attention_plan.h says what op, plan and parameters mean.
//
// Online softmax in base 2: a query keeps the maximum and sum of its scores, and its weighted
// values, over the tiles of keys so far. Tiles start at the first key that any query of the block
// sees and end with the last, so a window costs what it shows; only tiles at the edges are masked.
// Blocks with the most keys come first.
#pragma once

#include "kernels/math.cuh"
#include "kernels/mma_tile.cuh"
#include "kernels/prefill_attention_plan.h"
#include "kernels/tensor_map.cuh"
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

// ---- tensor cores: a warp has 16 queries or a multiple, a thread two rows of each 16

// What a block copies to shared memory.
template <PrefillAttentionOp op, PrefillAttentionPlan plan>
struct PrefillCopies {
  using T = Scalar<op.type>;
  static constexpr int dim = op.head_dim, chunks = dim / 8;

  AC_DEVICE static void queries(const PrefillAttentionParams& p, const PrefillBlock& block,
                                unsigned char* shared) {
    const auto row = [&](int r) {
      const int query = block.first_query + r < p.tokens ? block.first_query + r : p.tokens - 1;
      return static_cast<const T*>(p.q) + static_cast<long long>(query) * p.q_pitch +
             block.head * dim;
    };
    copy_tile<T, plan.query_tile, chunks, plan.threads()>(
        shared, row, [](int) { return true; }, 0, dim);
  }

  // The keys or values of tile number `tile`. Past the end they become 0.
  AC_DEVICE static void keys(const PrefillAttentionParams& p, const PrefillBlock& block,
                             unsigned char* shared, const void* cache, int tile) {
    const int first = block.first_key + tile * plan.key_tile;
    const long long head = block.head / op.group;
    const T* const base = static_cast<const T*>(cache) + head * p.capacity * dim;
    const int first_slot = block.slot(p, first);
    if (first + plan.key_tile <= block.end_key && first_slot + plan.key_tile <= p.capacity) {
      copy_whole_tile<T, plan.key_tile, chunks, plan.threads()>(
          shared, base + static_cast<long long>(first_slot) * dim);
      return;
    }
    const auto valid = [&](int r) { return first + r < block.end_key; };
    const auto row = [&](int r) {
      const int token = valid(r) ? first + r : first;
      return base + static_cast<long long>(block.slot(p, token)) * dim;
    };
    copy_tile<T, plan.key_tile, chunks, plan.threads()>(shared, row, valid, 0, dim);
  }
};

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

// A warp's products (mma).
template <PrefillAttentionOp op, PrefillAttentionPlan plan>
struct PrefillMma {
  using T = Scalar<op.type>;
  using Softmax = PrefillSoftmax<op, plan>;
  static constexpr int chunks = op.head_dim / 8, steps = op.head_dim / 16;
  static constexpr int tiles = Softmax::tiles, key_parts = Softmax::key_parts;
  using Rows = TileRows<chunks>;

  struct Queries {
    unsigned part[tiles][plan.keep_queries ? steps : 1][4];
  };
  Queries queries;

  AC_DEVICE static void load_queries(unsigned (&part)[tiles][4], const unsigned char* shared,
                                     int offset, int step) {
    AC_UNROLL
    for (int t = 0; t < tiles; ++t)
      load_matrices(part[t], shared + Rows::advance(offset, 2 * step) + t * 16 * Rows::row_bytes);
  }
  AC_DEVICE void keep(const unsigned char* shared, int offset) {
    if constexpr (plan.keep_queries) {
      AC_UNROLL
      for (int s = 0; s < steps; ++s) {
        unsigned part[tiles][4];
        load_queries(part, shared, offset, s);
        AC_UNROLL
        for (int t = 0; t < tiles; ++t) AC_UNROLL
        for (int i = 0; i < 4; ++i) queries.part[t][s][i] = part[t][i];
      }
    }
  }

  AC_DEVICE void multiply_keys(typename Softmax::Scores& scores,
                               const unsigned char* shared_queries, int query_offset,
                               const unsigned char* keys, int key_offset) const {
    AC_UNROLL
    for (int s = 0; s < steps; ++s) {
      unsigned part[tiles][4];
      if constexpr (plan.keep_queries) {
        AC_UNROLL
        for (int t = 0; t < tiles; ++t) AC_UNROLL
        for (int i = 0; i < 4; ++i) part[t][i] = queries.part[t][s][i];
      } else {
        load_queries(part, shared_queries, query_offset, s);
      }
      AC_UNROLL
      for (int j = 0; j < key_parts; j += 2) {
        unsigned k[4];
        load_matrices(k, keys + Rows::advance(key_offset, 2 * s) + j * 8 * Rows::row_bytes);
        AC_UNROLL
        for (int t = 0; t < tiles; ++t) {
          mma_16x8x16<T>(scores[t][j], part[t], {k[0], k[1]});
          mma_16x8x16<T>(scores[t][j + 1], part[t], {k[2], k[3]});
        }
      }
    }
  }

  AC_DEVICE static void multiply_values(typename Softmax::Outputs& out,
                                        const typename Softmax::Scores& weights,
                                        const unsigned char* values, int offset) {
    AC_UNROLL
    for (int k = 0; k < key_parts / 2; ++k) {
      unsigned part[tiles][4];
      AC_UNROLL
      for (int t = 0; t < tiles; ++t) Softmax::pack(part[t], weights[t], k);
      AC_UNROLL
      for (int s = 0; s < steps; ++s) {
        unsigned v[4];
        load_matrices<true>(v, values + Rows::advance(offset, 2 * s) + k * 16 * Rows::row_bytes);
        AC_UNROLL
        for (int t = 0; t < tiles; ++t) {
          mma_16x8x16<T>(out[t][2 * s], part[t], {v[0], v[1]});
          mma_16x8x16<T>(out[t][2 * s + 1], part[t], {v[2], v[3]});
        }
      }
    }
  }
};

template <PrefillAttentionOp op, PrefillAttentionPlan plan>
AC_DEVICE void prefill_attention_mma(const PrefillAttentionParams& p) {
  using Mma = PrefillMma<op, plan>;
  using Softmax = PrefillSoftmax<op, plan>;
  using Copies = PrefillCopies<op, plan>;
  constexpr int stages = plan.stages, keys_bytes = plan.keys_bytes(op);
  AC_DYNAMIC_SHARED(shared);
  const auto keys = [&](int stage) {
    return shared + plan.query_bytes(op) + stage * 2 * keys_bytes;
  };
  launch_dependents();
  wait_for_dependency();
  const PrefillBlock block(p, plan.query_tile);
  const int tiles = (block.end_key - block.first_key + plan.key_tile - 1) / plan.key_tile;
  const auto copy = [&](int stage, int tile) {
    if (tile < tiles) {
      Copies::keys(p, block, keys(stage), p.k_cache, tile);
      Copies::keys(p, block, keys(stage) + keys_bytes, p.v_cache, tile);
    }
    commit_copies();
  };
  Copies::queries(p, block, shared);
  for (int i = 0; i < stages - 1; ++i) copy(i, i);

  // Warps of one team have different queries, and the same keys of each tile.
  constexpr int team = plan.warps / plan.splits;
  const int warp = same_in_warp(static_cast<int>(threadIdx.x / 32));
  const int warp_query = warp % team * plan.warp_queries();
  const int warp_key = warp / team * plan.warp_keys();
  const int first_query = block.position + block.first_query + warp_query;
  const int query_offset = left_offset<Mma::chunks>(warp_query);
  const int key_offset = right_offset<Mma::chunks>(warp_key);
  const int value_offset = left_offset<Mma::chunks>(warp_key);
  const float factor = score_factor<op>(p);
  Mma mma;
  Softmax softmax;
  typename Softmax::Outputs out = {};
  int reading = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies<stages - 2>();
    __syncthreads();  // the tile is complete, and its predecessor read by everyone
    copy(reading == 0 ? stages - 1 : reading - 1, tile + stages - 1);
    if (tile == 0) mma.keep(shared, query_offset);
    const int first_key = block.first_key + tile * plan.key_tile + warp_key;
    if (first_key < first_query + plan.warp_queries()) {
      typename Softmax::Scores scores = {};
      mma.multiply_keys(scores, shared, query_offset, keys(reading), key_offset);
      softmax.cap_and_mask(p, scores, first_query, first_key);
      softmax.rescale(out, softmax.weigh(scores, factor));
      mma.multiply_values(out, scores, keys(reading) + keys_bytes, value_offset);
    }
    reading = reading + 1 < stages ? reading + 1 : 0;
  }
  if constexpr (plan.splits > 1) {
    softmax.meet(out, keys(0), factor);
    if (warp >= team) return;
  }
  softmax.write(p, block, warp_query, out);
}

// ---- the same by four warps at once (wgmma), which have 64 queries
//
// One warp more asks the copy engine for tiles of keys and values, as far ahead as there is room.
// The others compute a tile's scores while its predecessor's values are summed, so that tensor
// cores work through a softmax. Nobody waits for all of the block: what 64 queries are done with,
// they say, and go on.

// Tiles of keys, or of values, on their way through shared memory.
template <PrefillAttentionOp op, PrefillAttentionPlan plan>
struct PrefillRing {
  static constexpr int stages = plan.stages, slot_bytes = plan.keys_bytes(op);

  unsigned char* const slots;
  CopyBarrier *const filled, *const free;  // [stages]

  AC_DEVICE void init() const {
    for (int i = 0; i < stages; ++i) barrier_init(filled + i), barrier_init(free + i, plan.warps);
  }
  AC_DEVICE unsigned char* slot(int tile) const { return slots + tile % stages * slot_bytes; }
  AC_DEVICE void wait(int tile) const { barrier_wait(filled + tile % stages, tile / stages & 1); }
  // Of a warp; all of them have to.
  AC_DEVICE void release(int tile) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(free + tile % stages);
  }
  AC_DEVICE CopyBarrier* begin_copy(int tile) const {
    if (tile >= stages) barrier_wait(free + tile % stages, (tile / stages - 1) & 1);
    return filled + tile % stages;
  }
};

// What a block has in shared memory, and how many tiles come.
template <PrefillAttentionOp op, PrefillAttentionPlan plan>
struct PrefillTiles {
  using QueryRows = PanelRows<plan.query_tile>;
  using KeyRows = PanelRows<plan.key_tile>;

  const PrefillAttentionParams& p;
  const PrefillBlock& block;
  const int count;
  unsigned char* const queries;
  CopyBarrier* const queries_filled;
  const PrefillRing<op, plan> keys, values;
};

// The warp that asks for tiles.
template <PrefillAttentionOp op, PrefillAttentionPlan plan>
struct PrefillLoader {
  using Tiles = PrefillTiles<op, plan>;
  using T = Scalar<op.type>;
  using KeyRows = typename Tiles::KeyRows;
  static constexpr int dim = op.head_dim, panels = dim / 64;

  const Tiles& t;

  AC_DEVICE void run() const {
    const PrefillAttentionParams& p = t.p;
    if (threadIdx.x == 0) {
      prefetch_map(&p.queries), prefetch_map(&p.keys), prefetch_map(&p.values);
      barrier_expect(t.queries_filled, plan.query_bytes(op));
      for (int i = 0; i < panels; ++i)
        copy_box<false>(t.queries + i * Tiles::QueryRows::panel_bytes, &p.queries,
                        t.block.head * dim + i * 64, t.block.first_query, t.queries_filled, 0,
                        false);
    }
    load(t.keys, 0, &p.keys, p.k_cache);
    for (int tile = 0; tile < t.count; ++tile) {
      if (tile + 1 < t.count) load(t.keys, tile + 1, &p.keys, p.k_cache);
      load(t.values, tile, &p.values, p.v_cache);
    }
  }

 private:
  AC_DEVICE void load(const PrefillRing<op, plan>& ring, int tile, const TensorMap* map,
                      const void* cache) const {
    const PrefillAttentionParams& p = t.p;
    CopyBarrier* const filled = ring.begin_copy(tile);
    const int first = t.block.first_key + tile * plan.key_tile;
    const int slot = t.block.slot(p, first), kv_head = t.block.head / op.group;
    if (first + plan.key_tile <= t.block.position + p.tokens &&
        slot + plan.key_tile <= p.capacity) {
      if (threadIdx.x != 0) return;
      barrier_expect(filled, plan.keys_bytes(op));
      for (int i = 0; i < panels; ++i)
        copy_box<false>(ring.slot(tile) + i * KeyRows::panel_bytes, map, i * 64,
                        kv_head * p.capacity + slot, filled, 0, false);
      return;
    }
    // No box has what lies across the cache's end, and behind the last token is anything.
    copy_rows(ring.slot(tile), static_cast<const T*>(cache) + 1ll * kv_head * p.capacity * dim,
              first);
    publish_to_products();
    __syncwarp();
    if (threadIdx.x == 0) barrier_arrive(filled);
  }
  // Past the end they become 0.
  AC_DEVICE void copy_rows(unsigned char* to, const T* head, int first) const {
    constexpr int chunks = dim / 8;
    AC_UNROLL_BY(1)
    for (int i = threadIdx.x; i < plan.key_tile * chunks; i += 32) {
      const int row = i / chunks, chunk = i % chunks;
      const bool valid = first + row < t.block.end_key;
      const long long slot = t.block.slot(t.p, valid ? first + row : first);
      copy_async16(to + KeyRows::offset(row, chunk), head + slot * dim + chunk * 8, valid);
    }
    commit_copies();
    wait_for_copies<0>();
  }
};

// The products of four warps; `warp` counts all that multiply.
template <PrefillAttentionOp op, PrefillAttentionPlan plan>
struct PrefillGroup {
  using Tiles = PrefillTiles<op, plan>;
  using T = Scalar<op.type>;
  using Softmax = PrefillSoftmax<op, plan>;
  using KeyRows = typename Tiles::KeyRows;
  using QueryRows = typename Tiles::QueryRows;
  static constexpr int dim = op.head_dim, size = plan.key_tile;
  static constexpr int panels_at_once = dim % 128 == 0 ? 2 : 1;  // of values
  using Weights = unsigned[size / 16][4];
  using Queries = unsigned[plan.keep_queries ? dim / 16 : 1][4];  // if in registers

  const Tiles& t;
  const int warp;

  AC_DEVICE void keep(Queries& queries) const {
    if constexpr (plan.keep_queries) {
      const int lane = threadIdx.x % 32;
      AC_UNROLL
      for (int s = 0; s < dim / 16; ++s)
        load_matrices(queries[s],
                      t.queries + QueryRows::offset(warp * 16 + lane % 16, 2 * s + lane / 16));
    }
  }
  AC_DEVICE void multiply_keys(typename Softmax::Scores& scores, const Queries& queries,
                               int tile) const {
    const SharedTile k = shared_tile<size>(t.keys.slot(tile));
    const SharedTile q =
        moved(shared_tile<plan.query_tile>(t.queries), warp / 4 * 64 * QueryRows::row_bytes);
    AC_UNROLL
    for (int s = 0; s < dim / 16; ++s) {
      const SharedTile part = moved(k, s / 4 * KeyRows::panel_bytes + s % 4 * 32);
      if constexpr (plan.keep_queries)
        multiply_held<T, size, true>(scores[0], queries[s], part, s > 0);
      else
        multiply_shared<T, size>(scores[0], moved(q, s / 4 * QueryRows::panel_bytes + s % 4 * 32),
                                 part, s > 0);
    }
    products_commit();
  }
  AC_DEVICE void multiply_values(typename Softmax::Outputs& out, const Weights& weights,
                                 int tile) const {
    const SharedTile v = shared_tile<size>(t.values.slot(tile));
    constexpr int n = 64 * panels_at_once;
    AC_UNROLL
    for (int k = 0; k < size / 16; ++k) AC_UNROLL
    for (int part = 0; part < dim / n; ++part)
      multiply_held<T, n, false>(
          reinterpret_cast<float(&)[n / 8][4]>(out[0][part * n / 8]), weights[k],
          moved(v, part * panels_at_once * KeyRows::panel_bytes + k * 16 * KeyRows::row_bytes),
          true);
    products_commit();
  }
  AC_DEVICE static void pack(Weights& weights, const typename Softmax::Scores& scores) {
    AC_UNROLL
    for (int k = 0; k < size / 16; ++k) Softmax::pack(weights[k], scores[0], k);
  }

  AC_DEVICE void run() const {
    const PrefillAttentionParams& p = t.p;
    const int warp_query = warp * 16, all = t.count;
    const int first_query = t.block.position + t.block.first_query + warp_query;
    // What the last of the 64 queries sees.
    const int seen = first_query - warp_query % 64 + 64 - t.block.first_key;
    const int mine = min(all, (seen + size - 1) / size);
    const float factor = score_factor<op>(p);
    Softmax softmax;
    typename Softmax::Scores scores;
    typename Softmax::Outputs out = {};
    Weights weights;
    const auto weigh = [&](int tile) {
      softmax.cap_and_mask(p, scores, first_query, t.block.first_key + tile * size);
      return softmax.weigh(scores, factor);
    };

    barrier_wait(t.queries_filled, 0);
    Queries queries;
    keep(queries);
    t.keys.wait(0);
    products_begin();
    multiply_keys(scores, queries, 0);
    products_wait<0>();
    hold(scores[0]);
    t.keys.release(0);
    weigh(0);
    pack(weights, scores);
    for (int tile = 0; tile < mine - 1; ++tile) {
      t.keys.wait(tile + 1);
      products_begin();
      multiply_keys(scores, queries, tile + 1);
      t.values.wait(tile);
      products_begin();  // ptxas would add it, and say so
      multiply_values(out, weights, tile);
      products_wait<1>();
      hold(scores[0]);
      t.keys.release(tile + 1);
      const auto shrink = weigh(tile + 1);
      softmax.rescale_when_summed(out, shrink);
      t.values.release(tile);
      pack(weights, scores);
    }
    t.values.wait(mine - 1);
    products_begin();
    multiply_values(out, weights, mine - 1);
    products_wait<0>();
    hold(out[0]);
    t.values.release(mine - 1);
    for (int tile = mine; tile < all; ++tile) {  // others still need them
      t.keys.wait(tile), t.keys.release(tile);
      t.values.wait(tile), t.values.release(tile);
    }
    softmax.write(p, t.block, warp_query, out);
  }
};

template <PrefillAttentionOp op, PrefillAttentionPlan plan>
AC_DEVICE void prefill_attention_groups(const PrefillAttentionParams& p) {
  constexpr int stages = plan.stages;
  AC_ALIGNED_SHARED(panels, 1024);
  AC_SHARED(CopyBarrier, filled, 2 * stages);
  AC_SHARED(CopyBarrier, free, 2 * stages);
  AC_SHARED(CopyBarrier, queries_filled, 1);
  unsigned char* const tiles_at = panels + plan.query_bytes(op);
  const PrefillRing<op, plan> keys{tiles_at, filled, free};
  const PrefillRing<op, plan> values{tiles_at + stages * plan.keys_bytes(op), filled + stages,
                                     free + stages};
  launch_dependents();
  if (threadIdx.x == 0) {
    keys.init(), values.init();
    barrier_init(queries_filled);
    barrier_init_visible();
  }
  __syncthreads();
  wait_for_dependency();
  const PrefillBlock block(p, plan.query_tile);
  const int count = (block.end_key - block.first_key + plan.key_tile - 1) / plan.key_tile;
  const PrefillTiles<op, plan> tiles{p, block, count, panels, queries_filled, keys, values};
  const int warp = same_in_warp(static_cast<int>(threadIdx.x / 32));
  if (warp < 4) {
    give_registers<plan.loader_registers>();
    if (warp == 0) PrefillLoader<op, plan>{tiles}.run();
  } else {
    take_registers<plan.group_registers()>();
    PrefillGroup<op, plan>{tiles, warp - 4}.run();
  }
}

// ---- plain arithmetic: a lane has a key of 32 while it scores, and every 32nd dimension while it
// sums values

template <PrefillAttentionOp op, PrefillAttentionPlan plan>
AC_DEVICE void prefill_attention_scalar(const PrefillAttentionParams& p) {
  using T = Scalar<op.type>;
  constexpr int dim = op.head_dim, share = (dim + 31) / 32, queries = plan.warp_queries();
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
  const long long cache_offset = static_cast<long long>(block.head / op.group) * p.capacity * dim;
  for (int first = block.first_key; first < block.end_key; first += plan.key_tile) {
    __syncthreads();  // everyone is done with the tile before
    for (int i = threadIdx.x; i < plan.key_tile * dim; i += plan.threads()) {
      const int r = i / dim, d = i % dim;
      const bool valid = first + r < block.end_key;
      const long long at = cache_offset + (valid ? block.slot(p, first + r) : 0ll) * dim + d;
      const T zero = from_float<T>(0);
      keys[r * pitch + d] = valid ? load_fresh(static_cast<const T*>(p.k_cache) + at) : zero;
      values[r * pitch + d] = valid ? load_fresh(static_cast<const T*>(p.v_cache) + at) : zero;
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
        if constexpr (op.softcap) score = capped_score(p, score);
        if (key > query || (p.window > 0 && query - key >= p.window)) score = -INFINITY;
        const float largest = fmaxf(maximum[q], warp_max(score));
        const float shrink = exp2_fast((maximum[q] - largest) * factor);
        const float weight = exp2_fast((score - largest) * factor);
        maximum[q] = largest;
        sum[q] = sum[q] * shrink + weight;  // of this lane's keys
        AC_UNROLL
        for (int i = 0; i < share; ++i) out[q][i] *= shrink;
        for (int j = 0; j < 32; ++j) {
          const float w = __shfl_sync(full_warp, weight, j);
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
