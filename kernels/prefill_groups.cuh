// Prefill attention by wgmma: four warps at once, which have 64 queries.
//
// One warp more asks the copy engine for tiles of keys and values, as far ahead as there is room.
// The others compute a tile's scores while its predecessor's values are summed, so that tensor
// cores work through a softmax. Nobody waits for all of the block: what 64 queries are done with,
// they say, and go on.
#pragma once

#include "kernels/prefill_softmax.cuh"
#include "kernels/tensor_map.cuh"

namespace ac::kernels {

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
    const int mine = min(all, divide_up(seen, size));
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
  const int count = divide_up(block.end_key - block.first_key, plan.key_tile);
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

}  // namespace ac::kernels
