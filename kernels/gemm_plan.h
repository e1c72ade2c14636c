// The tiled matrix product on plain arithmetic units: any type, size and alignment. The fallback
// that is always right for more than one token.
#pragma once

#include "kernels/gemm_op.h"

namespace ac::kernels {

struct GemmPlan {
  static constexpr int group_m = 8;  // tiles of tokens that go together through the weights

  int tile_m = 64;     // tokens of a block
  int tile_n = 64;     // weight rows of a block
  int tile_k = 16;     // of x and weights that a block holds at once
  int thread_m = 4;    // tokens of a thread
  int thread_n = 4;    // weight rows of a thread
  int stages = 2;      // 2: the next tile has its own place, and one barrier a tile is enough
  int resident = 512;  // threads an SM that registers aim at
  AC_FIELDS(GemmPlan, tile_m, tile_n, tile_k, thread_m, thread_n, stages, resident)

  constexpr int threads_m() const { return tile_m / thread_m; }
  constexpr int threads_n() const { return tile_n / thread_n; }
  constexpr int threads() const { return threads_m() * threads_n(); }
  constexpr int blocks_per_sm() const { return resident > threads() ? resident / threads() : 1; }
  // A row of a tile holds one k of all tokens (or weight rows), in float32; odd pitches let a warp
  // store a column without bank conflicts.
  constexpr int stage_bytes() const { return tile_k * (tile_m + tile_n + 2) * 4; }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
  constexpr int grid(const GemmOp& op, const GemmShape& shape) const {
    return divide_up(shape.m, tile_m) * gemm_tiles_n(op, shape, tile_n);
  }

  constexpr const char* why_illegal(const GemmOp& op) const {
    if (const char* reason = op.why_illegal()) return reason;
    if (tile_m < 1 || tile_n < 1 || tile_m > 256 || tile_n > 256)
      return "tile_m and tile_n must be 1 to 256";
    if (tile_k < 1 || tile_k > 128) return "tile_k must be 1 to 128";
    if (thread_m < 1 || tile_m % thread_m != 0) return "thread_m must divide tile_m";
    if (thread_n < 1 || tile_n % thread_n != 0) return "thread_n must divide tile_n";
    if (thread_m * thread_n > 128) return "a thread's tile does not fit in registers";
    if (op.pair != Pair::none && thread_n % 2 != 0) return "a pair needs an even thread_n";
    if (threads() < 32 || threads() > 1024 || threads() % 32 != 0)
      return "threads must be a multiple of 32, at most 1024";
    if ((tile_m + tile_n) * tile_k / threads() > 64) return "a thread loads more than it can hold";
    if (stages < 1 || stages > 2) return "stages must be 1 or 2";
    if (resident < 32 || resident > 2048) return "resident must be 32 to 2048";
    return nullptr;
  }
  constexpr const char* why_illegal(const GemmOp& op, const GemmShape& shape,
                                    int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (const char* reason = shape.why_illegal(op)) return reason;
    if (shared_bytes() > max_shared_bytes) return "too much shared memory";
    return nullptr;
  }
};

}  // namespace ac::kernels
