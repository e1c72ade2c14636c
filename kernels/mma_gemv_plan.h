// Products with one token or a few by tensor cores: 16 weight rows are the left matrix, a token is
// a column of the right one. What is computed is a GemvOp.
#pragma once

#include "kernels/gemv_plan.h"

namespace ac::kernels {

constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

struct MmaGemvPlan {
  int threads = 256;
  int rows = 16;     // weight rows of a tile: 16, or 8 or 4, of which a warp takes 2 or 4 pieces
  int depth = 6;     // slots of a warp's ring
  int split = 4;     // warps that share a tile
  int resident = 2;  // blocks an SM that registers and grid aim at
  Signal signal = Signal::entry;
  Cache cache = Cache::streaming;
  int tokens = 1;  // that a block computes at once: codes are unpacked for all of them
  AC_FIELDS(MmaGemvPlan, threads, rows, depth, split, resident, signal, cache, tokens)

  // A slot is 128 bytes of each of 16 rows, and the scales that belong to them, if they are staged.
  static constexpr int row_bytes = 128, row_vectors = row_bytes / 16;
  // Bytes of scales that a row has in a slot. Others are read through the first-level cache.
  static constexpr int staged_bytes(const GemvOp& op) {
    const Format& format = op.format;
    if (format.zeros || format.rows != 1 || format.columns == 0) return 0;
    if (format.minima && format.scale != ScaleType::i8) return 0;
    const int columns = row_vectors * op.vector();
    // A slot's scales are whole, and of one outer scale.
    if (columns % format.columns != 0 || format.outer % columns != 0) return 0;
    const int bytes = columns / format.columns * bytes_of(format.scale) * format.values_each();
    return bytes == 4 || bytes == 8 || bytes == 16 ? bytes : 0;
  }
  // Bytes of high bits of codes that a row has in a slot.
  static constexpr int high_bytes(const GemvOp& op) {
    return row_vectors * op.vector() * high_bits_of(op.format.codes) / 8;
  }
  static constexpr int slot_bytes(const GemvOp& op) {
    return 16 * (row_bytes + staged_bytes(op) + high_bytes(op));
  }
  constexpr int warps() const { return threads / 32; }
  constexpr int tiles_per_block() const { return warps() / split; }
  constexpr int outputs_per_tile(const GemvOp& op) const { return rows / op.row_sets(); }
  constexpr int pieces() const { return 16 / rows; }  // of a row, in a slot
  // 16-byte vectors of a row that a slot takes.
  constexpr int slot_vectors() const { return row_vectors * pieces(); }
  // Slots of one warp along a row.
  constexpr int steps(const GemvOp& op, int k) const {
    return divide_up(divide_up(divide_up(k, op.vector()), slot_vectors()), split);
  }
  constexpr int padded(const GemvOp& op, int k) const {
    return steps(op, k) * split * slot_vectors() * op.vector();
  }
  // x times a norm's weight is two columns: rounded, and what rounding left.
  static constexpr int columns(const GemvOp& op) { return op.norm ? 2 : 1; }
  // The bytes of x that one piece of a slot meets. A gap follows each piece: lanes of one load read
  // up to 4 pieces, and gaps put these into different banks.
  static constexpr int piece_bytes(const GemvOp& op) { return 2 * row_vectors * op.vector(); }
  constexpr int gap(const GemvOp& op) const {
    if (pieces() == 1 || op.vector() > 16) return 0;
    return op.vector() == 16 ? 64 : 128 / pieces();
  }
  // Where 8 elements of a column begin.
  constexpr int place_of_x(const GemvOp& op, int vector) const {
    return 16 * vector + 16 * vector / piece_bytes(op) * gap(op);
  }
  // What 4 lanes read at once keeps the banks of neighbours apart.
  constexpr int column_bytes(const GemvOp& op, int k) const {
    return round_up(place_of_x(op, padded(op, k) / 8), 128) + 2 * op.vector();
  }
  constexpr int token_bytes(const GemvOp& op, int k) const {
    return columns(op) * column_bytes(op, k);
  }
  constexpr int x_bytes(const GemvOp& op, int k) const {
    return round_up(tokens * token_bytes(op, k), 128) + zeros_bytes(op);
  }
  // A right matrix has 8 columns. A token has a pair of them for each piece of a row, and for each
  // of a vector's two scales. Of a pair, the second is for what rounding left. Where nothing is
  // left, it is another token's, if there is one.
  constexpr int pairs_of_token(const GemvOp& op) const {
    return pieces() * op.format.scales_of(op.vector());
  }
  constexpr int tokens_of_pair(const GemvOp& op) const {
    return tokens > 1 && columns(op) == 1 ? 2 : 1;
  }
  constexpr int tokens_of_matrix(const GemvOp& op) const {
    return 4 / pairs_of_token(op) * tokens_of_pair(op);
  }
  constexpr int matrices(const GemvOp& op) const { return divide_up(tokens, tokens_of_matrix(op)); }
  // Vectors of a slot that share their scales wherever the slot begins: a group.
  static constexpr int group(const GemvOp& op) {
    const Format& format = op.format;
    if (format.columns == 0) return row_vectors;
    if (format.scales_of(op.vector()) > 1) return 1;
    return common_divisor(row_vectors, format.columns / op.vector());
  }
  // Groups next to one another whose sums stay apart up to a row's end. Those of one token are in
  // columns of their own, so that a lane multiplies the sum of one of them by its scale.
  constexpr int groups_apart(const GemvOp& op) const {
    const int groups = row_vectors / group(op), most = 4 / pairs_of_token(op);
    return groups < most ? groups : most;
  }
  constexpr bool in_columns(const GemvOp& op) const { return tokens == 1 && groups_apart(op) > 1; }
  // What columns of other groups meet, in place of x.
  constexpr int zeros_bytes(const GemvOp& op) const {
    return in_columns(op) ? row_vectors * op.vector() * 2 : 0;
  }
  // Static shared memory: norms and the split's partial sums.
  constexpr int sums_bytes() const { return 4 * (2 * 16 + 1) * warps() * tokens; }
  constexpr int shared_bytes(const GemvOp& op, int k) const {
    return x_bytes(op, k) + warps() * depth * slot_bytes(op);
  }
  // As GemvPlan::Order.
  struct Order {
    int rows = 16, split = 1;
    int threads = 0;  // that sum up a norm's squares
    AC_FIELDS(Order, rows, split, threads)
  };
  constexpr Order order(const GemvOp& op, int) const {
    return {.rows = rows, .split = split, .threads = op.norm ? threads : 0};
  }

  // Every block goes on to further tiles; further tokens are in further blocks (grid y).
  constexpr int grid(const GemvOp& op, int n, int sms) const {
    const int full = divide_up(divide_up(n, outputs_per_tile(op)), tiles_per_block());
    return sms * resident < full ? sms * resident : full;
  }

  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const GemvOp& op) const {
    if (op.weight == Type::f32 || op.x != op.weight) return "tensor cores take 16-bit elements";
    if (op.argmax) return "no argmax";
    // What is rounded is not yet divided by its mean square.
    if (op.norm && op.weight == Type::f16) return "x times the norm's weight may exceed float16";
    if (threads < 32 || threads > 1024 || threads % 32 != 0)
      return "threads must be a multiple of 32, at most 1024";
    if (rows != 4 && rows != 8 && rows != 16) return "a tile has 4, 8 or 16 rows";
    if (op.pair != Pair::none && op.matrices != 2) return "a pair has two matrices";
    if (op.matrices < 1 || op.matrices > 3) return "matrices must be 1 to 3";
    if (cache == Cache::no_allocate) return "that hint is for loads into registers";
    if (split < 1 || warps() % split != 0) return "split must divide the warps";
    if (resident < 1 || resident * threads > 2048) return "too many threads on an SM";
    if (depth < 2 || depth > 32) return "depth must be 2 to 32";
    if (op.format.scales_of(op.vector()) == 0 || op.format.scales_of(op.vector()) > 2)
      return "16-byte loads need whole halves of a vector of a scale";
    if (pairs_of_token(op) > 4) return "so many pieces and scales have no columns";
    if (tokens < 1 || tokens > most_gemv_tokens) return "tokens must be 1 to 8";
    if (matrices(op) > (op.format.is_plain() ? 8 : 4))
      return "sums of so many columns do not fit in registers";
    return nullptr;
  }
  // As above, for one K and the shared memory a block may have.
  constexpr const char* why_illegal(const GemvOp& op, int k, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (k < 1 || k % op.vector() != 0) return "16-byte loads need whole vectors of k";
    if (staged_bytes(op) > 0 && k % (row_vectors * op.vector()) != 0)
      return "scales that are staged need rows in whole 128 bytes";
    if (high_bytes(op) > 0 && k * high_bits_of(op.format.codes) % 128 != 0)
      return "high bits are copied by whole 16 bytes";
    if (shared_bytes(op, k) + sums_bytes() + 1024 > max_shared_bytes)
      return "too much shared memory";
    return nullptr;
  }
};

}  // namespace ac::kernels
