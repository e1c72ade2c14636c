// The kernel of qkv_rope_plan.h, which says what op, plan and parameters mean: the product of
// tma_gemm.cuh with other outputs.
//
// A warp has 16 tokens of a tile, a lane in each eight of its columns two neighbours of two tokens:
// both dimensions of a RoPE pair, so that nothing is exchanged but a norm's sum. Angles are
// computed once for all heads of the tile.
#pragma once

#include "kernels/qkv_rope_plan.h"
#include "kernels/tma_gemm.cuh"

namespace ac::kernels {

template <QkvRopeOp op, TmaGemmPlan plan>
struct RopeOutputs {
  static constexpr bool own = false;
  static constexpr RopeAppendOp rope = op.append;
  static constexpr int dim = rope.head_dim, eights = dim / 8, heads = plan.tile_n / dim;
  using T = Scalar<rope.type>;
  using Sums = float (&)[plan.tile_n / 8][4];

  // Of a head, what lies together in shared memory: rows of it are lines of 16 bytes a lane.
  static constexpr int panel = dim < 64 ? dim : 64, across = panel / 8;
  static constexpr int count = across / 2, down = 32 / across;  // a lane's, and rows between them
  static constexpr int pitch = panel * 2 + 16;                  // bytes: rows begin in other banks
  static_assert(pitch <= plan.staging_pitch() * 4);

  const QkvRopeParamsOf<op.product.format>& p;

  AC_DEVICE static int lane() { return threadIdx.x % 32; }
  AC_DEVICE static int column() { return lane() % 4 * 2; }  // the first of two in each eight

  // Heads are counted through q, k and v.
  AC_DEVICE bool is_value(int head) const { return head >= p.heads + p.kv_heads; }
  AC_DEVICE bool is_query(int head) const { return head < p.heads; }

  // What every tile's outputs need lies in L1 by then.
  AC_DEVICE void ask() const {
    if constexpr (rope.qk_norm) ask(p.q_norm, dim * 2), ask(p.k_norm, dim * 2);
    if constexpr (rope.rotary > 0) ask(p.inv_freq, rope.rotary / 2 * 4);
  }
  AC_DEVICE static void ask(const void* from, int bytes) {
    for (int i = lane() * 32; i < bytes; i += 32 * 32)
      bring_to_l1(static_cast<const unsigned char*>(from) + i);
  }
  AC_DEVICE int begin() const { return load_fresh(p.position); }

  // `before`: tokens before these.
  template <class Tile>
  AC_DEVICE void write(Sums sums, const Tile& tile, int row, unsigned char* mine,
                       int before) const {
    const GemmMatrix& matrix = p.product.gemm.matrix[tile.matrix];
    int first = tile.output / dim;
    if (tile.matrix > 0) first += p.heads;
    if (tile.matrix > 1) first += p.kv_heads;
    const int present = (matrix.rows - tile.output) / dim;
    if constexpr (op.product.bias) {
      const T* const bias = static_cast<const T*>(matrix.bias) + tile.output;
      AC_UNROLL
      for (int h = 0; h < heads; ++h)
        if (h < present) add_bias(sums, h, bias + h * dim);
    }
    if constexpr (rope.qk_norm) {
      AC_UNROLL
      for (int h = 0; h < heads; ++h)
        if (!is_value(first + h)) norm(sums, h, is_query(first + h) ? p.q_norm : p.k_norm);
    }
    if constexpr (rope.rotary > 0) {
      if (!is_value(first)) turn(sums, first, before + row + lane() / 4);
    }
    store(sums, first, present, row, before, mine);
  }

  AC_DEVICE static void add_bias(Sums sums, int head, const T* bias) {
    AC_UNROLL
    for (int j = 0; j < eights; ++j) {
      const float2 pair = load_pair(bias + j * 8 + column());
      AC_UNROLL
      for (int i = 0; i < 4; ++i) sums[head * eights + j][i] += i % 2 ? pair.y : pair.x;
    }
  }

  AC_DEVICE void norm(Sums sums, int head, const void* weight) const {
    const int start = head * eights;
    float squares[2] = {};
    AC_UNROLL
    for (int j = 0; j < eights; ++j) AC_UNROLL
    for (int i = 0; i < 4; ++i) squares[i / 2] += sums[start + j][i] * sums[start + j][i];
    AC_UNROLL
    for (float& sum : squares) {
      sum += __shfl_xor_sync(full_warp, sum, 1);
      sum += __shfl_xor_sync(full_warp, sum, 2);
      sum = rsqrtf(sum / dim + p.norm_eps);
    }
    AC_UNROLL
    for (int j = 0; j < eights; ++j) {
      const float2 factor = load_pair(static_cast<const T*>(weight) + j * 8 + column());
      AC_UNROLL
      for (int i = 0; i < 4; ++i)
        sums[start + j][i] *= squares[i / 2] * ((i % 2 ? factor.y : factor.x) + p.norm_offset);
    }
  }

  // Of the query and key heads from `first` on. The lane's tokens are at `position` and 8 later.
  AC_DEVICE void turn(Sums sums, int first, int position) const {
    constexpr int pairs = rope.rotary / 2, steps = pairs / (rope.interleaved ? 4 : 8);
    // Of a large tile, whose sums leave no registers for more, one step after the other.
    constexpr int at_once = plan.tile_n == 256 ? 1 : steps;
    AC_UNROLL_BY(1)
    for (int now = 0; now < steps; now += at_once) AC_UNROLL
    for (int step = 0; step < steps; ++step) {
      if (step / at_once * at_once != now) continue;
      float2 angle[4];  // of a lane's four sums, or of each two of them
      AC_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (rope.interleaved && i % 2 == 1) continue;
        const int pair = rope.interleaved ? step * 4 + lane() % 4 : step * 8 + column() + i % 2;
        angle[i] = math::cos_sin_roughly(static_cast<float>(position + i / 2 * 8),
                                         load_constant(p.inv_freq + pair));
        angle[i].x *= p.rope_scale, angle[i].y *= p.rope_scale;
      }
      AC_UNROLL
      for (int h = 0; h < heads; ++h) {
        if (op.product.matrices == 1 && is_value(first + h)) continue;
        float(&low)[4] = sums[h * eights + step];
        AC_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (rope.interleaved && i % 2 == 1) continue;
          float& a = low[i];
          float& b = rope.interleaved ? low[i + 1] : sums[h * eights + step + steps][i];
          const float x = a, y = b;
          a = x * angle[i].x - y * angle[i].y;
          b = y * angle[i].x + x * angle[i].y;
        }
      }
    }
  }

  // The first `present` heads of the tile exist; they go through shared memory panel by panel.
  AC_DEVICE void store(Sums sums, int first, int present, int row, int before,
                       unsigned char* mine) const {
    const int tokens = p.product.gemm.m;
    unsigned char* const line = mine + lane() / across * pitch + lane() % across * 16;
    unsigned char* const pairs = mine + lane() / 4 * pitch + lane() % 4 * 4;
    // The slots of the lane's lines, -1 where there is no token, or a later one of this launch goes
    // to the same slot.
    int token[count], slot[count];
    AC_UNROLL
    for (int i = 0; i < count; ++i) {
      const int t = row + lane() / across + i * down;
      token[i] = t < tokens ? t : -1;
      slot[i] = t < tokens && tokens - t <= p.capacity ? (before + t) % p.capacity : -1;
    }
    AC_UNROLL
    for (int h = 0; h < heads; ++h) {
      if (h >= present) continue;
      const int head = first + h;
      const bool query = is_query(head), value = is_value(head);
      const int kv_head = head - p.heads - (value ? p.kv_heads : 0);
      T* to = static_cast<T*>(query   ? p.q_out
                              : value ? p.v_cache
                                      : p.k_cache) +
              lane() % across * 8 +
              (query ? head : static_cast<long long>(kv_head) * p.capacity) * dim;
      const long long step = query ? p.heads * dim : dim;
      AC_UNROLL
      for (int q = 0; q < dim / panel; ++q, to += panel) {
        AC_UNROLL
        for (int j = 0; j < across; ++j) AC_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float(&from)[4] = sums[h * eights + q * across + j];
          *reinterpret_cast<unsigned*>(pairs + 8 * half * pitch + 16 * j) =
              pack_pair<T>(from[2 * half], from[2 * half + 1]);
        }
        __syncwarp();
        AC_UNROLL
        for (int i = 0; i < count; ++i) {
          const int at = query ? token[i] : slot[i];
          if (at >= 0)
            *reinterpret_cast<uint4*>(to + at * step) =
                *reinterpret_cast<const uint4*>(line + i * down * pitch);
        }
        __syncwarp();
      }
    }
  }

  AC_DEVICE static float2 load_pair(const T* at) {
    return unpack_pair<T>(load_constant(reinterpret_cast<const unsigned*>(at)));
  }
};

template <QkvRopeOp op, TmaGemmPlan plan>
AC_DEVICE void qkv_rope(const QkvRopeParamsOf<op.product.format>& p) {
  static_assert(why_illegal(op, plan) == nullptr, "the plan is illegal for this op");
  tma_gemm_to<op.product, plan>(p.product, RopeOutputs<op, plan>{p});
}

}  // namespace ac::kernels

// Defines the kernel `name`; its grid is that of the product.
#define AC_QKV_ROPE_KERNEL(name, op, plan)                                           \
  AC_CLUSTER_KERNEL_ENTRY(name, ::ac::kernels::QkvRopeParamsOf<(op).product.format>, \
                          (plan).threads(), (plan).cluster(),                        \
                          ::ac::kernels::qkv_rope<op, plan>(p))
