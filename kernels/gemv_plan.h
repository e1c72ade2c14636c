// Decode GEMV: y[n] = epilogue(sum_k W[n,k] * prologue(x)[k]) for one token, or for each of a few.
// `GemvOp` says what is computed, `GemvPlan` how. Both are template arguments of the kernel, and
// the one place where planner, generator and kernel read legality, shared memory and launch shape.
#pragma once

#include "kernels/weight_format.h"

namespace ac::kernels {

struct GemvOp {
  Type weight = Type::f16;  // what the matrices mean, and of the bias and the norm weight
  Type x = Type::f16;
  Type y = Type::f16;  // and of the residual
  bool norm = false;   // RMSNorm of x first
  Pair pair = Pair::none;
  bool bias = false;
  bool residual = false;  // y = residual + ...
  bool argmax = false;    // also the row of the largest output
  int matrices = 1;       // 1 to 3 with one x (QKV); two for a pair
  Format format = {};     // of the matrices
  AC_FIELDS(GemvOp, weight, x, y, norm, pair, bias, residual, argmax, matrices, format)

  constexpr int row_sets() const { return pair == Pair::none ? 1 : 2; }  // weight rows an output
  constexpr int vector() const { return 128 / code_bits(format, weight); }
  // x is kept in shared memory as float32, unless it can stay as it is.
  constexpr bool wide_x() const {
    return norm || x == Type::f32 || weight == Type::f32 || !format.is_plain();
  }
};

// Where a warp's weights wait between their load and their use.
enum class Ring : unsigned char {
  none,        // loaded by the element and used at once: any K, any alignment, slow
  registers,   // 16-byte loads
  async_copy,  // cp.async into shared memory, each lane its own bytes
  bulk_copy,   // the copy engine moves whole pieces of a row (sm_90 and later)
};
constexpr const char* names_of(Ring) { return "Ring, none, registers, async_copy, bulk_copy"; }

// When the next kernel of the stream may start its own loads.
enum class Signal : unsigned char { entry, last_group };
constexpr const char* names_of(Signal) { return "Signal, entry, last_group"; }

// Tokens that one launch computes with the bits that each has alone.
constexpr int most_gemv_tokens = 8;

struct GemvPlan {
  int threads = 256;
  int rows = 1;    // weight rows that a warp works on at once
  int depth = 8;   // slots of the ring
  int chunks = 1;  // 16-byte pieces of each row that a lane has in one slot (1 unless bulk_copy)
  Ring ring = Ring::registers;
  int split = 1;  // warps that share a row
  // Threads an SM that registers and grid aim at: less leaves room for the next kernel to preload.
  int resident = 768;
  bool persistent = true;  // grid of what is resident; else one block for each set of rows
  Signal signal = Signal::entry;
  Cache cache = Cache::streaming;
  int tokens = 1;  // that a block computes at once: each weight is read for all of them
  AC_FIELDS(GemvPlan, threads, rows, depth, chunks, ring, split, resident, persistent, signal,
            cache, tokens)

  constexpr int warps() const { return threads / 32; }
  constexpr int groups_per_block() const { return warps() / split; }
  constexpr int outputs_per_group(const GemvOp& op) const { return rows / op.row_sets(); }
  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  constexpr int bytes_in_flight() const { return threads * rows * depth * chunks * 16; }

  // Steps of one warp along its part of a row; a step is 32 * chunks vectors.
  constexpr int steps(const GemvOp& op, int k) const {
    return divide_up(divide_up(divide_up(k, op.vector()), 32 * chunks), split);
  }
  // Vectors of x in shared memory. The last part ends with a whole turn of a register ring, so that
  // no turn needs a branch.
  constexpr int padded_vectors(const GemvOp& op, int k) const {
    const int turn = ring == Ring::registers ? depth : 1;
    return ((split - 1) * steps(op, k) + round_up(steps(op, k), turn)) * 32 * chunks;
  }
  // The bytes that one token's x takes in shared memory.
  constexpr int x_bytes(const GemvOp& op, int k) const {
    if (ring == Ring::none) return round_up(k * 4, 128);
    const int element = op.wide_x() ? 4 : 2;
    return round_up(padded_vectors(op, k) * op.vector() * element, 128);
  }
  constexpr int ring_bytes() const {
    return ring == Ring::async_copy || ring == Ring::bulk_copy ? bytes_in_flight() : 0;
  }
  constexpr int shared_bytes(const GemvOp& op, int k) const {
    const int barriers = ring == Ring::bulk_copy ? warps() * depth * 8 : 0;
    return tokens * x_bytes(op, k) + ring_bytes() + barriers;
  }
  // Blocks of weight rows; further tokens are in further blocks (grid y).
  constexpr int grid(const GemvOp& op, int n, int sms) const {
    const int full = divide_up(divide_up(n, outputs_per_group(op)), groups_per_block());
    const int fits = sms * blocks_per_sm();
    return persistent && fits < full ? fits : full;
  }
  // Static shared memory: reductions and the split's partial sums.
  constexpr int sums_bytes() const { return 4 * 2 * warps() * rows * tokens; }

  // What decides in which order a token's products are summed up. Kernels of one op whose orders
  // are equal give a token the same bits, however many others are computed with it.
  struct Order {
    bool by_element = false;
    int split = 1;    // parts of a row, and
    int of_part = 0;  // vectors of each but the last
    int threads = 0;  // that have squares of a norm to sum up
    AC_FIELDS(Order, by_element, split, of_part, threads)
  };
  constexpr Order order(const GemvOp& op, int k) const {
    const bool in_parts = split > 1 && ring != Ring::none;
    // Threads that have none add zeros.
    const int squares = round_up(ring == Ring::none ? k : divide_up(k, op.vector()), 32);
    return {.by_element = ring == Ring::none,
            .split = split,
            .of_part = in_parts ? steps(op, k) * 32 * chunks : 0,
            .threads = !op.norm            ? 0
                       : threads < squares ? threads
                                           : squares};
  }

  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const GemvOp& op) const {
    if (threads < 32 || threads > 1024 || threads % 32 != 0)
      return "threads must be a multiple of 32, at most 1024";
    if (rows < 1 || rows > 8) return "rows must be 1 to 8";
    if (op.pair != Pair::none && rows % 2 != 0) return "a pair needs an even number of rows";
    if (op.pair != Pair::none && op.matrices != 2) return "a pair has two matrices";
    if (op.pair != Pair::none && op.argmax) return "a pair has no argmax";
    if (op.matrices < 1 || op.matrices > 3) return "matrices must be 1 to 3";
    if (op.argmax && op.matrices != 1) return "argmax is over one matrix";
    if (tokens < 1 || tokens > most_gemv_tokens) return "tokens must be 1 to 8";
    if (tokens > 1 && op.argmax) return "argmax is of one token";
    if (tokens * rows > 32) return "a lane has the sum of one row and token";
    if (split < 1 || warps() % split != 0) return "split must divide the warps";
    if (resident < 32 || resident > 2048) return "resident must be 32 to 2048";
    if (ring == Ring::none)
      return depth == 1 && chunks == 1 ? nullptr : "no ring: depth and chunks must be 1";
    if (depth < 2 || depth > 32) return "depth must be 2 to 32";
    if (chunks < 1 || chunks > 16) return "chunks must be 1 to 16";
    if (chunks != 1 && ring != Ring::bulk_copy) return "only a bulk ring has chunks";
    if (ring == Ring::registers && rows * depth > 32) return "the ring does not fit in registers";
    if (op.format.scales_of(op.vector()) == 0 || op.format.scales_of(op.vector()) > 4)
      return "16-byte loads need whole words of a scale";
    return nullptr;
  }
  // As above, for one K and the shared memory a block may have.
  constexpr const char* why_illegal(const GemvOp& op, int k, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (k < 1) return "k must be positive";
    if (ring != Ring::none && k % op.vector() != 0) return "16-byte loads need whole vectors of k";
    if (shared_bytes(op, k) + 2048 + sums_bytes() > max_shared_bytes)
      return "too much shared memory";
    return nullptr;
  }
};

struct GemvMatrix {
  const void* weight;  // [rows, k], `pitch` elements from row to row
  const void* bias;    // [rows], if op.bias
  void* y;             // [rows]; a pair writes the first matrix's
  int rows;
};

struct GemvParams {
  GemvMatrix matrix[3];     // a pair: gate, up
  int k;                    // length of x; its vectors start at multiples of 16 bytes
  int pitch;                // k, or 2 k for two matrices whose rows alternate
  const void* x;            // [k]
  const void* norm_weight;  // [k], if op.norm
  float norm_eps;
  float norm_offset;     // 1 where the norm multiplies by 1 + weight
  float scale;           // y = residual + scale * (W x + bias)
  float softcap;         // above 0: y = softcap * tanh(y / softcap)
  const void* residual;  // [sum of rows], if op.residual; may be y
  // If op.argmax:
  unsigned long long* block_best;  // [grid]
  unsigned* finished_blocks;       // 0 before the first launch; every launch leaves 0 again
  int* best_row;                   // [1]: as kernels/sampling_plan.h has a token
};

// Of a format of codes; `pitch` counts bytes. Of each matrix: [rows / the format's, k / the
// format's], both rounded up.
struct CodedGemvParams : GemvParams {
  const void* scales[3];
  const unsigned char* zeros[3];  // if the format has them
  const float* globals[3];        // likewise
  const int* groups[3];           // likewise
  const void* outer[3];           // likewise
  const unsigned char* high[3];   // likewise
};
// Parameters for several tokens, whose rows of x, of y and of the residual lie one after the other.
template <class Params>
struct ForTokens : Params {
  int tokens;
};
template <bool coded, bool several>
struct GemvParamsFor {
  using type = GemvParams;
};
template <>
struct GemvParamsFor<true, false> {
  using type = CodedGemvParams;
};
template <bool coded>
struct GemvParamsFor<coded, true> {
  using type = ForTokens<typename GemvParamsFor<coded, false>::type>;
};
template <Format format, int tokens = 1>
using GemvParamsOf = typename GemvParamsFor<!format.is_plain(), (tokens > 1)>::type;

// Bytes that must cross the memory bus, and operations, for n outputs of length k of each token.
constexpr double gemv_bytes(const GemvOp& op, int n, int k, int tokens = 1) {
  const double rows = double(n) * op.row_sets();
  return weight_bytes(op.format, op.weight, rows, k) + double(tokens) * k * bytes_of(op.x) +
         (op.norm ? double(k) * bytes_of(op.weight) : 0) +
         double(tokens) * n * bytes_of(op.y) * (op.residual ? 2 : 1);
}
constexpr double gemv_flops(const GemvOp& op, int n, int k, int tokens = 1) {
  return 2.0 * tokens * n * op.row_sets() * k;
}

}  // namespace ac::kernels
