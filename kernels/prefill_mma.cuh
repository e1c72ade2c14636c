// Prefill attention by mma.sync: a warp has 16 queries or a multiple, a thread two rows of each 16.
#pragma once

#include "kernels/prefill_softmax.cuh"

namespace ac::kernels {

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

  // The codes of such a tile, as elements. Nobody waits for a copy.
  AC_DEVICE static void codes(const PrefillAttentionParams& p, const PrefillBlock& block,
                              unsigned char* shared, const void* cache, int tile) {
    const int first = block.first_key + tile * plan.key_tile;
    const long long head = block.head / op.group;
    const e4m3* const base = static_cast<const e4m3*>(cache) + head * p.capacity * dim;
    for (int i = threadIdx.x; i < plan.key_tile * (dim / 16); i += plan.threads()) {
      const int r = i / (dim / 16), part = i % (dim / 16);
      const bool valid = first + r < block.end_key;
      uint4 low = make_uint4(0, 0, 0, 0), high = low;
      if (valid) {
        const long long at = static_cast<long long>(block.slot(p, first + r)) * dim + part * 16;
        const uint4 from = load_fresh(reinterpret_cast<const uint4*>(base + at));
        low = widen_codes<T>(make_uint2(from.x, from.y));
        high = widen_codes<T>(make_uint2(from.z, from.w));
      }
      using Rows = TileRows<chunks>;
      *reinterpret_cast<uint4*>(shared + Rows::offset(r, 2 * part)) = low;
      *reinterpret_cast<uint4*>(shared + Rows::offset(r, 2 * part + 1)) = high;
    }
  }

  // The keys or values of tile number `tile`. Past the end they become 0.
  AC_DEVICE static void keys(const PrefillAttentionParams& p, const PrefillBlock& block,
                             unsigned char* shared, const void* cache, int tile) {
    if constexpr (op.fp8) return codes(p, block, shared, cache, tile);
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

// Scores or weights by the scales of their keys, of which a warp's first of the tile is
// `first_key`.
template <class Softmax, PrefillAttentionOp op>
AC_DEVICE void multiply_by_scales(typename Softmax::Scores& scores, const PrefillAttentionParams& p,
                                  const float* scales, const PrefillBlock& block, int first_key) {
  const float* const of_head = scales + static_cast<long long>(block.head / op.group) * p.capacity;
  AC_UNROLL
  for (int j = 0; j < Softmax::key_parts; ++j) AC_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int key = first_key + 8 * j + threadIdx.x % 4 * 2 + i;
    const float scale =
        load_fresh(of_head + block.slot(p, key < block.end_key ? key : block.end_key - 1));
    AC_UNROLL
    for (auto& rows : scores) rows[j][i] *= scale, rows[j][i + 2] *= scale;
  }
}

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
  const int tiles = divide_up(block.end_key - block.first_key, plan.key_tile);
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
      if constexpr (op.fp8)
        multiply_by_scales<Softmax, op>(scores, p, p.k_scales, block, first_key);
      softmax.cap_and_mask(p, scores, first_query, first_key);
      softmax.rescale(out, softmax.weigh(scores, factor));
      if constexpr (op.fp8)
        multiply_by_scales<Softmax, op>(scores, p, p.v_scales, block, first_key);
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

}  // namespace ac::kernels
