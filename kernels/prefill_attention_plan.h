// Attention of many new tokens against a KV cache that already holds them (flash attention): a
// block takes a tile of queries of one head through the keys that they see.
#pragma once

#include "kernels/plan.h"
#include "kernels/tensor_map.h"

namespace ac::kernels {

struct PrefillAttentionOp {
  Type type = Type::f16;  // of q, the output, and the cache if it holds no codes
  int head_dim = 128;
  int group = 4;  // query heads that share a KV head
  bool softcap = false;
  bool fp8 = false;  // the cache holds codes of FP8: kernels/row_codes.h
  AC_FIELDS(PrefillAttentionOp, type, head_dim, group, softcap, fp8)
};

struct PrefillAttentionPlan {
  Tile tile = Tile::mma;
  int query_tile = 64;       // queries of a block
  int key_tile = 64;         // keys that a block holds at once
  int warps = 4;             // each has its own queries; of wgmma, four have 64
  int stages = 2;            // tiles of keys and values in shared memory (1 if scalar)
  bool keep_queries = true;  // fragments of the queries stay in registers (not of scalar)
  int resident = 2;          // blocks an SM that registers aim at
  int splits = 1;            // warps (of mma) that share queries, and each tile's keys among them
  AC_FIELDS(PrefillAttentionPlan, tile, query_tile, key_tile, warps, stages, keep_queries, resident,
            splits)

  // Of wgmma, four warps more ask for copies and do nothing else.
  constexpr int threads() const { return 32 * (warps + (tile == Tile::wgmma ? 4 : 0)); }
  // Of a thread of wgmma: when all begin, and when those four have given what they do without.
  static constexpr int loader_registers = 32;
  constexpr int registers_at_start() const { return 65536 / (resident * threads()) / 8 * 8; }
  constexpr int group_registers() const {
    const int given = registers_at_start() * threads() - 128 * loader_registers;
    const int most = given / (32 * warps) / 8 * 8;
    return most < 240 ? most : 240;
  }
  constexpr int warp_queries() const { return query_tile * splits / warps; }
  constexpr int warp_keys() const { return key_tile / splits; }
  // An mma tile's rows are in chunks (see tile_row_bytes), a wgmma tile's in panels. A scalar
  // tile's queries are float32, its keys and values of an odd number of 4-byte words: 32 lanes read
  // 32 keys at once.
  constexpr int row_bytes(const PrefillAttentionOp& op) const {
    if (tile == Tile::wgmma) return op.head_dim * 2;
    if (tile == Tile::mma) return tile_row_bytes(op.head_dim / 8);
    return (divide_up(op.head_dim * bytes_of(op.type), 4) | 1) * 4;
  }
  constexpr int query_bytes(const PrefillAttentionOp& op) const {
    return round_up(query_tile * (tile == Tile::scalar ? op.head_dim * 4 : row_bytes(op)), 128);
  }
  constexpr int keys_bytes(const PrefillAttentionOp& op) const {
    return round_up(key_tile * row_bytes(op), 128);
  }
  // Where the warps that share queries meet at the end: a lane's outputs, maxima and sums.
  constexpr int meeting_bytes(const PrefillAttentionOp& op) const {
    return (warps - warps / splits) * 32 * (warp_queries() / 16) * (op.head_dim / 2 + 4) * 4;
  }
  constexpr int shared_bytes(const PrefillAttentionOp& op) const {
    const int keys = stages * 2 * keys_bytes(op);
    return query_bytes(op) + (splits > 1 && meeting_bytes(op) > keys ? meeting_bytes(op) : keys);
  }
  // Of a thread: outputs, scores, and two generations of fragments; of wgmma, weights.
  constexpr int registers(const PrefillAttentionOp& op) const {
    if (tile == Tile::wgmma)
      return op.head_dim / 2 + key_tile / 2 + key_tile / 4 + (keep_queries ? op.head_dim / 4 : 0) +
             48;
    const int tiles = warp_queries() / 16, steps = op.head_dim / 16;
    return tiles * (op.head_dim / 2 + warp_keys() / 2 + 4) + 16 +
           (keep_queries ? tiles * steps * 4 : 0);
  }

  constexpr const char* why_illegal(const PrefillAttentionOp& op) const {
    if (op.head_dim < 1 || op.head_dim > 256) return "head_dim must be 1 to 256";
    if (op.group < 1) return "group must be positive";
    if (warps < 1 || warps > 16) return "warps must be 1 to 16";
    if (splits < 1 || warps % splits != 0) return "splits must divide warps";
    if (splits > 1 && tile != Tile::mma) return "only mma splits keys";
    if (query_tile < warps / splits || query_tile % (warps / splits) != 0)
      return "warps must divide query_tile";
    if (resident < 1 || resident * threads() > 2048) return "resident blocks do not fit an SM";
    if (tile == Tile::scalar) {
      if (stages != 1) return "a scalar tile has one stage";
      if (warp_queries() * divide_up(op.head_dim, 32) > 64)
        return "a warp's queries do not fit in registers";
      if (key_tile < 32 || key_tile > 256 || key_tile % 32 != 0)
        return "a scalar tile's keys must be 32 to 256 in whole 32";
      return nullptr;
    }
    if (op.type == Type::f32) return "tensor cores need a 16-bit type";
    if (op.head_dim % 16 != 0) return "tensor cores need a head_dim in whole 16";
    if (op.fp8 && tile == Tile::wgmma) return "wgmma reads no codes";
    // Products of weights and scales need more range than float16 has.
    if (op.fp8 && op.type != Type::bf16) return "tensor cores read codes for bfloat16 alone";
    if (tile == Tile::wgmma) return why_groups_illegal(op);
    if (warp_queries() % 16 != 0) return "tensor cores need a warp's queries in whole 16";
    if (key_tile < 16 * splits || key_tile > 256 || key_tile % (16 * splits) != 0)
      return "tensor cores need 16 to 256 keys in whole 16";
    if (stages < 2 || stages > 4) return "stages must be 2 to 4";
    if (registers(op) > 216) return "a warp's queries do not fit in registers";
    return nullptr;
  }
  constexpr const char* why_groups_illegal(const PrefillAttentionOp& op) const {
    if (op.head_dim % 64 != 0) return "wgmma needs a head_dim in whole 64";
    if (warps % 4 != 0 || warp_queries() != 16) return "wgmma needs four warps for 64 queries";
    if (key_tile != 64 && key_tile != 128) return "wgmma needs 64 or 128 keys";
    if (stages < 2 || stages > 4) return "stages must be 2 to 4";
    return registers(op) > group_registers() ? "a warp's queries do not fit in registers" : nullptr;
  }
  constexpr const char* why_illegal(const PrefillAttentionOp& op, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    // Barriers, and what brings panels to a multiple of 1024.
    const int more = tile == Tile::wgmma ? 1024 : 0;
    if (shared_bytes(op) + more > max_shared_bytes) return "too much shared memory";
    return nullptr;
  }
};

// Memory starts at multiples of 16 bytes; for tensor cores, so do the rows of q.
struct PrefillAttentionParams {
  // Of wgmma: what the copy engine brings, by boxes of query_tile and key_tile rows.
  TensorMap queries;      // [tokens, kv_heads * group * head_dim]
  TensorMap keys;         // [kv_heads * capacity, head_dim]
  TensorMap values;       // [kv_heads * capacity, head_dim]
  const void* q;          // [tokens, kv_heads * group, head_dim], q_pitch from token to token
  int q_pitch;            // in elements
  int tokens;             // new ones
  const int* position;    // [1] tokens before the new ones
  const void* k_cache;    // [kv_heads, capacity, head_dim], a token at its position % capacity
  const void* v_cache;    // [kv_heads, capacity, head_dim]
  int capacity;           // at least what is visible: position + tokens, or window + tokens - 1
  int window;             // above 0: a token sees only the last `window` ones, itself included
  float scale;            // of the scores; above 0
  float softcap;          // if op.softcap: score = softcap * tanh(score / softcap)
  void* out;              // [tokens, kv_heads * group, head_dim]
  const float* k_scales;  // [kv_heads, capacity], if op.fp8
  const float* v_scales;  // [kv_heads, capacity], if op.fp8
  const void* unused[6];
};
static_assert(sizeof(PrefillAttentionParams) % 64 == 0);  // alignment changes no layout

// The grid is (query heads, tiles of queries).
constexpr int prefill_tiles(const PrefillAttentionPlan& plan, int tokens) {
  return divide_up(tokens, plan.query_tile);
}
// Multiplications and additions of `heads` query heads.
constexpr double prefill_flops(const PrefillAttentionOp& op, int heads, int tokens, int position,
                               int window) {
  double pairs = 0;  // of a query and a key that it sees
  for (int i = 0; i < tokens; ++i) {
    const int seen = position + i + 1;
    pairs += window > 0 && window < seen ? window : seen;
  }
  return 4.0 * pairs * heads * op.head_dim;
}

}  // namespace ac::kernels
