// Decode attention of one token against a KV cache, with what surrounds it in a decoder layer: q/k
// norm, RoPE, append of the new key and value. The cache is split over blocks; the last block of a
// KV head combines. One launch serves every position: it reads how many tokens there are.
#pragma once

#include "kernels/row_codes.h"

namespace ac::kernels {

struct AttentionOp {
  Type type = Type::f16;  // of q, k, v, the output, and the cache if it holds no codes
  int head_dim = 128;
  int group = 4;             // query heads that share a KV head
  bool qk_norm = false;      // RMSNorm of each query and key head
  int rotary = 128;          // leading dimensions that RoPE turns; 0: none
  bool interleaved = false;  // RoPE pairs (2 i, 2 i + 1) instead of (i, i + rotary / 2)
  bool window = false;       // AttentionParams::window counts
  bool softcap = false;      // AttentionParams::softcap counts
  bool fp8 = false;          // the cache holds codes of FP8: kernels/row_codes.h
  AC_FIELDS(AttentionOp, type, head_dim, group, qk_norm, rotary, interleaved, window, softcap, fp8)

  // Partial sums come in columns of two heads by two dimensions, 16 bytes each.
  constexpr int head_pairs() const { return divide_up(group, 2); }
  constexpr int columns() const { return head_dim / 2 * head_pairs(); }
  constexpr int set_vectors() const { return head_pairs() + columns(); }
  // Floats that AttentionParams::partial needs.
  constexpr int partial_floats(int kv_heads, int splits) const {
    return kv_heads * splits * set_vectors() * 4;
  }
};

struct AttentionPlan {
  Tile tile = Tile::mma;
  int threads = 256;
  int splits = 16;     // blocks a KV head
  int min_tiles = 1;   // tiles a warp must have before another split is used
  int resident = 512;  // threads an SM that registers aim at
  AC_FIELDS(AttentionPlan, tile, threads, splits, min_tiles, resident)

  constexpr int warps() const { return threads / 32; }
  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  // Cached tokens a warp takes at once: 8 KB of 16-bit keys and values where that makes whole mmas.
  constexpr int tile_tokens(const AttentionOp& op) const {
    return tile == Tile::scalar ? 4 : op.head_dim <= 64 ? 32 : 16;
  }
  constexpr int query_rows(const AttentionOp& op) const { return tile == Tile::mma ? 8 : op.group; }

  // Neighbouring lanes that add up a column between them.
  constexpr int parts(const AttentionOp& op) const {
    int parts = 1;
    while (parts < 8 && 2 * parts <= warps() && 2 * parts * op.columns() <= threads) parts *= 2;
    return parts;
  }
  // 16-byte vectors from one warp's set of sums to the next: those lanes then read other banks.
  constexpr int set_stride(const AttentionOp& op) const {
    return round_up(op.set_vectors(), 8) + 8 / parts(op);
  }

  // Shared memory: queries, new key and value | norm weights of q and k, RoPE's row | the warps'
  // sums; before there are any, a float32 head for each warp.
  constexpr int heads_bytes(const AttentionOp& op) const {
    return round_up((query_rows(op) + 2) * op.head_dim * bytes_of(op.type), 128);
  }
  constexpr int constants_bytes(const AttentionOp& op) const {
    return round_up(((op.qk_norm ? 2 * op.head_dim : 0) + op.rotary) * 4, 128);
  }
  constexpr int shared_bytes(const AttentionOp& op) const {
    return heads_bytes(op) + constants_bytes(op) + warps() * set_stride(op) * 16;
  }

  constexpr const char* why_illegal(const AttentionOp& op) const {
    if (op.head_dim < 8 || op.head_dim > 256 || op.head_dim % 8 != 0)
      return "head_dim must be a multiple of 8, at most 256";
    if (op.group < 1 || op.group > 32) return "group must be 1 to 32";
    if (op.rotary < 0 || op.rotary > op.head_dim || op.rotary % 2 != 0)
      return "rotary must be even and at most head_dim";
    if (threads < 32 || threads > 1024 || threads % 32 != 0)
      return "threads must be a multiple of 32, at most 1024";
    if (splits < 1 || splits > 256) return "splits must be 1 to 256";
    if (min_tiles < 1) return "min_tiles must be positive";
    if (resident < 32 || resident > 2048) return "resident must be 32 to 2048";
    if (tile == Tile::wgmma) return "one token has no 64 queries for wgmma";
    if (tile == Tile::mma) {
      if (op.type == Type::f32) return "tensor cores need a 16-bit type";
      if (op.head_dim % 64 != 0) return "tensor cores need a head_dim in whole 64";
      if (op.group > 8) return "tensor cores take groups up to 8";
    }
    return nullptr;
  }
  constexpr const char* why_illegal(const AttentionOp& op, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    // Static shared memory: the new token's scores and a flag.
    if (shared_bytes(op) + op.head_pairs() * 8 + 64 > max_shared_bytes)
      return "too much shared memory";
    return nullptr;
  }
};

struct AttentionParams {
  const void* q;       // [kv_heads * group, head_dim]
  const void* k;       // [kv_heads, head_dim]
  const void* v;       // [kv_heads, head_dim]
  const void* q_norm;  // [head_dim], if op.qk_norm
  const void* k_norm;  // [head_dim], if op.qk_norm
  float norm_eps;
  float norm_offset;  // 1 where the norm multiplies by 1 + weight
  const float* rope;  // [positions, rotary / 2, 2] cosine and sine, if op.rotary: a constant table
  int rope_pitch;     // floats from position to position
  const int* position;  // [1] tokens before this one
  // Above 0: before the wait, *position is at most that many tokens short, and blocks that have no
  // work by then leave early.
  int position_lag;
  void* k_cache;    // [kv_heads, capacity, head_dim], a token at its position % capacity
  void* v_cache;    // [kv_heads, capacity, head_dim]
  float* k_scales;  // [kv_heads, capacity], if op.fp8
  float* v_scales;  // [kv_heads, capacity], if op.fp8
  int capacity;
  int window;          // above 0: only the last `window` tokens, with this one, are seen
  float scale;         // of the scores
  float softcap;       // above 0: score = softcap * tanh(score / softcap)
  void* out;           // [kv_heads * group, head_dim]
  float* partial;      // [op.partial_floats(kv_heads, splits)], at a multiple of 16 bytes
  unsigned* finished;  // [kv_heads], 0 before the first launch; every launch leaves 0 again
};

// The grid is (kv_heads, splits): blocks with work come first, those that a short context leaves
// idle after them. Blocks start one after another, idle ones too: where many rows have a launch, it
// has fewer blocks, which take several splits in turn.

// Bytes that must cross the memory bus, and operations, for a token that sees `tokens` cached ones.
constexpr double attention_bytes(const AttentionOp& op, int kv_heads, double tokens) {
  const double head = double(op.head_dim) * bytes_of(op.type);
  return kv_heads * (2 * cached_row_bytes(op.fp8, op.type, op.head_dim) * (tokens + 1) +
                     head * (2 + 2 * op.group));
}
constexpr double attention_flops(const AttentionOp& op, int kv_heads, double tokens) {
  return 4.0 * kv_heads * op.group * op.head_dim * (tokens + 1);
}

}  // namespace ac::kernels
