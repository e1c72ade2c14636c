// The matrix product on tensor cores (mma.sync): 16-bit types, K in whole 16-byte vectors. Tiles
// of x and of the weights come through a ring of asynchronous copies.
#pragma once

#include "kernels/gemm_op.h"

namespace ac::kernels {

struct MmaGemmPlan {
  int tile_m = 128;  // tokens of a block
  int tile_n = 128;  // weight rows of a block
  int tile_k = 64;   // of x and weights in one slot of the ring
  int warp_m = 64;   // tokens of a warp; 16 of wgmma, which multiplies those of four
  int warp_n = 64;   // weight rows of a warp
  int stages = 3;    // slots of the ring
  int split = 1;     // blocks that share a tile, each with a part of K
  int group_m = 8;   // tiles of tokens that go together through the weights
  int resident = 1;  // blocks an SM that registers aim at
  Tile tile = Tile::mma;
  AC_FIELDS(MmaGemmPlan, tile_m, tile_n, tile_k, warp_m, warp_n, stages, split, group_m, resident,
            tile)

  constexpr int warps_m() const { return tile_m / warp_m; }
  constexpr int warps_n() const { return tile_n / warp_n; }
  constexpr int threads() const { return warps_m() * warps_n() * 32; }
  constexpr int row_bytes() const { return tile_row_bytes(tile_k / 8); }
  constexpr int stage_bytes() const { return (tile_m + tile_n) * row_bytes(); }
  // Of a row of sums in shared memory, where the ring was: no two of a fragment meet in a bank.
  constexpr int sums_pitch() const { return tile_n + 8; }
  constexpr int shared_bytes() const {
    const int ring = stages * stage_bytes(), sums = tile_m * sums_pitch() * 4;
    return split > 1 || ring > sums ? ring : sums;
  }
  constexpr int accumulators() const { return warp_m * warp_n / 32; }

  constexpr int tiles(const GemmOp& op, const GemmShape& shape) const {
    return divide_up(shape.m, tile_m) * gemm_tiles_n(op, shape, tile_n);
  }
  // The grid is (tiles, split).
  constexpr int grid(const GemmOp& op, const GemmShape& shape) const { return tiles(op, shape); }
  // Partial sums of split tiles, and as many counters as tiles.
  constexpr long long workspace_bytes(const GemmOp& op, const GemmShape& shape) const {
    return split == 1 ? 0 : 4ll * tiles(op, shape) * split * tile_m * tile_n;
  }

  constexpr const char* why_illegal(const GemmOp& op) const {
    if (const char* reason = op.why_illegal()) return reason;
    if (!op.format.is_plain()) return "it reads plain weights only";
    if (op.x == Type::f32 || op.weight != op.x) return "tensor cores need one 16-bit type";
    if (tile_k < 16 || tile_k > 128 || !is_power_of_two(tile_k))
      return "tile_k must be 16, 32, 64 or 128";
    if (tile == Tile::scalar) return "mma_gemm multiplies on tensor cores";
    if (warp_m < 16 || warp_m % 16 != 0 || warp_n < 16 || warp_n % 16 != 0)
      return "a warp's tile must be in whole 16";
    if (tile_m < warp_m || tile_m % warp_m != 0 || tile_n < warp_n || tile_n % warp_n != 0)
      return "warps must divide the block's tile";
    if (tile_m > 256 || tile_n > 256) return "tile_m and tile_n must be at most 256";
    if (threads() > 1024) return "at most 1024 threads";
    if (accumulators() + 2 * (warp_m / 4 + warp_n / 4) > 216)
      return "a warp's tile does not fit in registers";
    if (stages < 2 || stages > 8) return "stages must be 2 to 8";
    if (tile == Tile::wgmma)
      if (const char* reason = why_groups_illegal()) return reason;
    if (split < 1 || split > 32) return "split must be 1 to 32";
    if (group_m < 1) return "group_m must be positive";
    if (resident < 1 || resident * threads() > 2048) return "resident blocks do not fit an SM";
    return nullptr;
  }
  constexpr const char* why_groups_illegal() const {
    if (tile_k != 64) return "wgmma reads rows of 128 bytes";
    if (warp_m != 16 || tile_m % 64 != 0) return "wgmma needs four warps for 64 tokens";
    if (warp_n != 64 && warp_n != 128) return "wgmma needs 64 or 128 weight rows of a warp";
    if (stages < 3) return "wgmma runs behind the copies: it needs three stages";
    if (threads() * resident * (accumulators() + 64) > 65536) return "registers do not suffice";
    return nullptr;
  }
  constexpr const char* why_illegal(const GemmOp& op, const GemmShape& shape,
                                    int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (const char* reason = shape.why_illegal(op)) return reason;
    if (shape.k % 8 != 0) return "16-byte copies need whole vectors of k";
    if (split > divide_up(shape.k, tile_k)) return "split has more parts than k has tiles";
    if (shared_bytes() + 64 > max_shared_bytes) return "too much shared memory";
    return nullptr;
  }
};

}  // namespace ac::kernels
