// The matrix product by wgmma with tiles that the copy engine brings: blocks of a cluster share
// them, so that each comes through L2 once for all of them; and they may share an output tile, of
// whose products each has a part of K. sm_90a alone.
#pragma once

#include "kernels/gemm_op.h"
#include "kernels/tensor_map.h"

namespace ac::kernels {

struct TmaGemmPlan {
  int tile_m = 128;   // tokens of a block: 64 for each four warps that multiply
  int tile_n = 256;   // weight rows of a block
  int stages = 4;     // slots of the ring, each with 64 elements of K
  int cluster_m = 2;  // blocks with other tokens that share the weights' tile
  int cluster_n = 1;  // blocks with other weights that share the tokens' tile
  int cluster_k = 1;  // blocks with other parts of K that share the tile of outputs
  int group_m = 8;    // clusters of tokens that go together through the weights
  AC_FIELDS(TmaGemmPlan, tile_m, tile_n, stages, cluster_m, cluster_n, cluster_k, group_m)

  constexpr int cluster() const { return cluster_m * cluster_n * cluster_k; }
  constexpr int groups() const { return tile_m / 64; }  // of four warps that multiply
  constexpr int threads() const { return (groups() + 1) * 128; }
  constexpr int stage_bytes() const { return (tile_m + tile_n) * 128; }
  // The ring, and what a warp's sums pass through: 16 rows of 32, each of which begins 8 banks
  // after the one before it.
  constexpr int staging_pitch() const { return 32 + 8; }
  constexpr int staging_bytes() const { return groups() * 4 * 16 * staging_pitch() * 4; }
  // Weights in a format of codes need a second ring, for the codes of each step.
  constexpr int code_bytes(const GemmOp& op) const { return tile_n * 8 * bits_of(op.format.codes); }
  constexpr int shared_bytes(const GemmOp& op) const {
    return stages * (stage_bytes() + code_bytes(op)) + staging_bytes();
  }

  // Of a token's outputs in a tile, those that one of its cluster_k blocks writes: as few as make
  // whole lines of a power of two, so that the last blocks may be left without any.
  constexpr int written(const GemmOp& op) const {
    int share = 16;
    while (share * cluster_k < tile_n / op.row_sets()) share *= 2;
    return share;
  }
  // What the others of a tile send to a block when all have read their rings, into its ring: their
  // sums of what it writes. There is a place for each of them, and for itself.
  constexpr int sent_bytes(const GemmOp& op) const {
    return tile_m * written(op) * op.row_sets() * 4;
  }
  constexpr int received_bytes(const GemmOp& op) const { return (cluster_k - 1) * sent_bytes(op); }

  // Rows of a box: of x, and of the weights, of which a pair's two halves are of two matrices.
  constexpr int box_m() const { return tile_m / cluster_n; }
  constexpr int boxes_n(const GemmOp& op) const {
    return cluster_m > op.row_sets() ? cluster_m : op.row_sets();
  }
  constexpr int box_n(const GemmOp& op) const { return tile_n / boxes_n(op); }

  // Clusters side by side; `times` this, clusters of tokens are all of them.
  constexpr int across(const GemmOp& op, const GemmShape& shape) const {
    return divide_up(gemm_tiles_n(op, shape, tile_n), cluster_n);
  }
  constexpr long long blocks(const GemmOp& op, const GemmShape& shape) const {
    return 1ll * divide_up(shape.m, tile_m * cluster_m) * across(op, shape) * cluster();
  }
  // Blocks that run at once. A cluster lies within one of a GPU's groups of multiprocessors, which
  // are not all whole fours: the driver says that an H100 with 132 of them runs 66 clusters of two,
  // but 30 of four and 15 of eight.
  constexpr int at_once(int multiprocessors) const {
    const int usable =
        cluster() > 2 && multiprocessors >= 16 ? multiprocessors * 10 / 11 : multiprocessors;
    return usable < cluster() ? cluster() : usable / cluster() * cluster();
  }
  // Of a launch; 0: all. Blocks take tile after tile, but for those with parts of K, which have
  // one.
  constexpr int most_blocks(int multiprocessors) const {
    return cluster_k == 1 ? at_once(multiprocessors) : 0;
  }
  constexpr long long grid(const GemmOp& op, const GemmShape& shape, int multiprocessors) const {
    const long long all = blocks(op, shape), most = most_blocks(multiprocessors);
    return most > 0 && most < all ? most : all;
  }

  constexpr const char* why_illegal(const GemmOp& op) const {
    if (const char* reason = op.why_illegal()) return reason;
    if (op.x == Type::f32 || op.weight != op.x) return "tensor cores need one 16-bit type";
    if (op.y != op.x) return "outputs have the type of x";
    if (tile_m != 64 && tile_m != 128) return "tile_m must be 64 or 128";
    if (tile_n != 64 && tile_n != 128 && tile_n != 256) return "tile_n must be 64, 128 or 256";
    if (stages < 2 || stages > 12) return "stages must be 2 to 12";
    if (cluster_m < 1 || cluster_n < 1 || cluster_k < 1 || cluster() > 8)
      return "a cluster has 1 to 8 blocks";
    if (!is_power_of_two(cluster_m) || !is_power_of_two(cluster_n))
      return "1, 2, 4 or 8 blocks share what they copy";
    if (cluster_k > 1 && tile_n > 128) return "parts of K take the registers of 256 columns";
    if (cluster_k > 1 && cluster_k * sent_bytes(op) > stages * stage_bytes())
      return "the ring must hold what a tile's blocks send each other";
    if (!op.format.is_plain() && cluster_m > 1) return "each block makes its elements of codes";
    if (!op.format.is_plain() &&
        (op.format.scales_of(op.vector()) == 0 || op.format.scales_of(op.vector()) > 4))
      return "16-byte copies need whole words of a scale";
    if (box_m() % 8 != 0 || box_n(op) % 8 != 0) return "boxes must have whole eights of rows";
    if (group_m < 1) return "group_m must be positive";
    return nullptr;
  }
  constexpr const char* why_illegal(const GemmOp& op, const GemmShape& shape,
                                    int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (const char* reason = shape.why_illegal(op)) return reason;
    if (shape.k % op.vector() != 0) return "rows must be in whole 16 bytes";
    if (divide_up(shape.k, 64) < cluster_k) return "K has no part for every block of a tile";
    // Barriers, and what brings the ring to a multiple of 1024.
    if (shared_bytes(op) + 1024 > max_shared_bytes) return "too much shared memory";
    return nullptr;
  }
};

// A pair's two weights are the first and second map, as its matrices are.
struct TmaGemmParams {
  TensorMap x;          // boxes of plan.box_m()
  TensorMap weight[3];  // boxes of plan.box_n(op)
  GemmParams gemm;
  long long unused[2] = {};  // whole 64 bytes, so that alignment changes no layout
};
static_assert(sizeof(TmaGemmParams) % 64 == 0);

// For weights in a format of codes. Threads copy the codes, so that the weights have no map.
struct CodedTmaGemmParams {
  TensorMap x;
  CodedGemmParams gemm;
};
static_assert(sizeof(CodedTmaGemmParams) % 64 == 0);
template <bool coded>
struct TmaGemmParamsFor {
  using type = CodedTmaGemmParams;
};
template <>
struct TmaGemmParamsFor<false> {
  using type = TmaGemmParams;
};
template <Format format>
using TmaGemmParamsOf = typename TmaGemmParamsFor<!format.is_plain()>::type;

}  // namespace ac::kernels
