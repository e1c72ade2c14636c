// The matrix product by wgmma with tiles that the copy engine brings: blocks of a cluster share
// them, so that each comes through L2 once for all of them. sm_90a alone.
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
  int group_m = 8;    // clusters of tokens that go together through the weights

  constexpr int cluster() const { return cluster_m * cluster_n; }
  constexpr int groups() const { return tile_m / 64; }  // of four warps that multiply
  constexpr int threads() const { return (groups() + 1) * 128; }
  constexpr int stage_bytes() const { return (tile_m + tile_n) * 128; }
  // The ring, and what a warp's outputs pass through: 16 rows of 64, in whole banks.
  constexpr int staging_bytes() const { return groups() * 4 * 16 * 144; }
  constexpr int shared_bytes() const { return stages * stage_bytes() + staging_bytes() + 1024; }

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
  // Blocks that take tile after tile: no more than run at once.
  constexpr int most_blocks(int multiprocessors) const {
    return multiprocessors < cluster() ? cluster() : multiprocessors / cluster() * cluster();
  }

  constexpr const char* why_illegal(const GemmOp& op) const {
    if (const char* reason = op.why_illegal()) return reason;
    if (op.x == Type::f32 || op.weight != op.x) return "tensor cores need one 16-bit type";
    if (op.y != op.x) return "outputs have the type of x";
    if (tile_m != 64 && tile_m != 128) return "tile_m must be 64 or 128";
    if (tile_n != 64 && tile_n != 128 && tile_n != 256) return "tile_n must be 64, 128 or 256";
    if (stages < 2 || stages > 12) return "stages must be 2 to 12";
    if (cluster_m < 1 || cluster_n < 1 || !is_power_of_two(cluster()) || cluster() > 8)
      return "a cluster has 1, 2, 4 or 8 blocks";
    if (box_m() % 8 != 0 || box_n(op) % 8 != 0) return "boxes must have whole eights of rows";
    if (group_m < 1) return "group_m must be positive";
    return nullptr;
  }
  constexpr const char* why_illegal(const GemmOp& op, const GemmShape& shape,
                                    int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (const char* reason = shape.why_illegal(op)) return reason;
    if (shape.k % 8 != 0) return "rows must be in whole 16 bytes";
    if (shared_bytes() + 256 > max_shared_bytes) return "too much shared memory";
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

}  // namespace ac::kernels
