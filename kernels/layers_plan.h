// All layers of a decoder for one token, in one launch: blocks stay, one a multiprocessor, and hand
// activations to each other through memory, as words that say of which layer they are.
#pragma once

#include "kernels/plan.h"
#include "kernels/tensor_map.h"
#include "kernels/weight_format.h"

namespace ac::kernels {

struct LayersOp {
  Type type = Type::bf16;  // of weights, hidden states, and the cache if it holds no codes
  int hidden = 1024;
  int heads = 16, kv_heads = 8, head_dim = 128;
  int inter = 3072;
  bool head_norms = false;  // RMSNorm of each query and key head
  Format format{};          // of all weights
  bool fp8 = false;         // the cache holds codes of FP8: kernels/row_codes.h
  AC_FIELDS(LayersOp, type, hidden, heads, kv_heads, head_dim, inter, head_norms, format, fp8)

  constexpr int group() const { return heads / kv_heads; }
  constexpr int query_rows() const { return heads * head_dim; }
  constexpr int kv_rows() const { return kv_heads * head_dim; }
  constexpr int qkv_rows() const { return query_rows() + 2 * kv_rows(); }
  // The bytes of one cached key or value, without its scale.
  constexpr int cached_bytes() const { return head_dim * (fp8 ? 1 : 2); }
};

// One launch has 30 layers at most: CUDA limits a kernel's parameters to 32,764 bytes.
constexpr int most_layers = 30;

// A layer's weights, row by row, with boxes as LayersPlan has them.
struct LayerMaps {
  TensorMap q, k, v, o, gate, up, down;
};
constexpr int maps_of_layer = sizeof(LayerMaps) / sizeof(TensorMap);

struct OfMatrices {
  const void *q, *k, *v, *o, *gate, *up, *down;
};
struct LayerPointers {
  const void *norm, *mlp_norm;       // [hidden]
  const void *q_norm, *k_norm;       // [head_dim], if op.head_norms
  void *keys, *values;               // [kv_heads, capacity, head_dim]
  float *key_scales, *value_scales;  // [kv_heads, capacity], if op.fp8
  // If the weights are codes.
  OfMatrices scales;  // row by row
  OfMatrices beside;  // the zero points of each scale, or the scale of the whole matrix
};

// A product's matrix is cut into tiles of 16 rows, q over k over v, or eight rows of gate and eight
// of up; and K into parts. A block multiplies neighbouring tiles of one part. Weights, and cached
// keys and values, come through a ring of stages: of weights 128 bytes of 16 rows a warp, which are
// a step's columns.
struct LayersPlan {
  int blocks = 132;    // all of which must be there at once
  int parts_o = 1;     // of K, of the product with attention's output
  int parts_down = 1;  // of K, of the last product of a layer
  int stages = 11;     // of the ring
  int window = 2;      // stages that are under way at once: more keep words waiting behind weights
  int warps = 8;       // that multiply
  // Rounds of all warps' keys that one block does, where attention has no more: a fourth takes
  // longer than joining what several blocks have.
  int rounds_alone = 3;
  // Cycles from one stage that is asked for to the next one, at least: memory that is always busy
  // keeps words waiting, too.
  int pace = 0;
  AC_FIELDS(LayersPlan, blocks, parts_o, parts_down, stages, window, warps, rounds_alone, pace)

  // One more warp asks for weights, and one joins what blocks have of attention.
  constexpr int threads() const { return 32 * (warps + 2); }
  // A warp's columns of a step, which are 128 bytes of a row, and those of all warps.
  static constexpr int panel_bytes = 128;
  static constexpr int warp_columns(const LayersOp& op) {
    return 8 * panel_bytes / code_bits(op.format, op.type);
  }
  constexpr int columns(const LayersOp& op) const { return warps * warp_columns(op); }
  constexpr int stage_bytes() const { return 16 * warps * panel_bytes; }
  // Whether whole codes are multiplied as they are stored, if groups are few, and how many digits
  // an input then has (kernels/code_digits.cuh).
  static constexpr bool as_stored(const LayersOp& op) {
    return !op.format.is_plain() && is_whole(op.format.codes) &&
           (bits_of(op.format.codes) == 8 || groups_of_panel(op) < 4);
  }
  static constexpr int digits(const LayersOp& op) {
    return as_stored(op) && bits_of(op.format.codes) == 4 ? 3 : 2;
  }
  // Bytes of a warp's columns of an input: of elements, or of digits.
  static constexpr int input_bytes(const LayersOp& op) { return warp_columns(op) * digits(op); }
  // Boxes of the maps: a stage is one, with a panel for each warp, or of gate and up one each, with
  // fewer rows.
  static constexpr int box_rows = 16, pair_box_rows = 8;
  constexpr int box_panels() const { return warps; }

  constexpr int splits(const LayersOp& op) const { return blocks / op.kv_heads; }
  // The number of keys that a warp takes at once: 2 KB of them, and no more than the 16 whose
  // values tensor cores add up at once.
  static constexpr int warp_keys(const LayersOp& op) { return op.fp8 ? 16 : 1024 / op.head_dim; }
  constexpr int steps_of(const LayersOp& op, int k) const { return divide_up(k, columns(op)); }

  // Shared memory: the ring | each warp's part of an input | the warps' sums of a product, and of
  // attention | queries, and this token's key and value | barriers | pointers of the layers |
  // scales | zero points | sums of each warp's part of an input.
  constexpr int most_steps(const LayersOp& op) const {
    const int from_hidden = steps_of(op, op.hidden);
    const int from_heads = divide_up(steps_of(op, op.query_rows()), parts_o);
    const int from_inter = divide_up(steps_of(op, op.inter), parts_down);
    const int two = from_hidden > from_heads ? from_hidden : from_heads;
    return two > from_inter ? two : from_inter;
  }
  static constexpr int tiles_of(int rows, int blocks_of_part) {
    return divide_up(divide_up(rows, 16), blocks_of_part);
  }
  // How many panels, which are 16 rows of a warp's columns of a step, a warp of the block that has
  // most to do multiplies in a layer.
  constexpr int most_panels(const LayersOp& op) const {
    const int from_hidden = steps_of(op, op.hidden);
    return (tiles_of(op.qkv_rows(), blocks) + tiles_of(2 * op.inter, blocks)) * from_hidden +
           tiles_of(op.hidden, blocks / parts_o) *
               divide_up(steps_of(op, op.query_rows()), parts_o) +
           tiles_of(op.hidden, blocks / parts_down) * divide_up(steps_of(op, op.inter), parts_down);
  }
  constexpr int sums_rows(const LayersOp& op) const {  // of all products, and a row of squares each
    return 16 * (tiles_of(op.qkv_rows(), blocks) + tiles_of(op.hidden, blocks / parts_o) +
                 tiles_of(2 * op.inter, blocks) + tiles_of(op.hidden, blocks / parts_down)) +
           4;
  }
  constexpr int attention_floats(const LayersOp& op) const {
    return warps * op.group() * (op.head_dim + 2);
  }
  static constexpr int new_scales_bytes = 16;  // of this token's key and value
  static constexpr int barriers_of(int stages) { return 2 * stages + 4 + 4; }
  // What of a matrix shares a scale.
  enum class Shared { everything, row, group, block };
  static constexpr Shared shared_scale(const Format& format) {
    if (format.columns == 0) return format.rows == 1 ? Shared::row : Shared::everything;
    return format.rows == 1 ? Shared::group : Shared::block;
  }
  static constexpr bool has_groups(const LayersOp& op) {
    return !op.format.is_plain() && shared_scale(op.format) == Shared::group;
  }
  // Groups of a row, and of all rows of a product that a block may have.
  static constexpr int groups_of_row(const LayersOp& op, int k) {
    return has_groups(op) ? k / op.format.columns : 0;
  }
  static constexpr int groups_of(const LayersOp& op, int rows, int k, int blocks_of_part) {
    return 16 * tiles_of(rows, blocks_of_part) * groups_of_row(op, k);
  }
  constexpr int groups(const LayersOp& op) const {
    return groups_of(op, op.qkv_rows(), op.hidden, blocks) +
           groups_of(op, op.hidden, op.query_rows(), blocks / parts_o) +
           groups_of(op, 2 * op.inter, op.hidden, blocks) +
           groups_of(op, op.hidden, op.inter, blocks / parts_down);
  }
  // Groups that a warp's columns of a step have.
  static constexpr int groups_of_panel(const LayersOp& op) {
    return has_groups(op) ? warp_columns(op) / op.format.columns : 1;
  }
  constexpr int scales_bytes(const LayersOp& op) const {
    return groups(op) * bytes_of(op.format.scale);
  }
  constexpr int zeros_bytes(const LayersOp& op) const { return op.format.zeros ? groups(op) : 0; }
  // Whether products need sums of their input's groups.
  static constexpr bool has_sums(const LayersOp& op) { return op.format.zeros || as_stored(op); }
  constexpr int input_sums(const LayersOp& op) const {  // a warp's
    return has_sums(op) ? most_steps(op) * groups_of_panel(op) * (digits(op) - 1) : 0;
  }
  constexpr int shared_bytes(const LayersOp& op) const {
    return stages * stage_bytes() + warps * most_steps(op) * input_bytes(op) +
           round_up(sums_rows(op) * warps * 4, 16) + round_up(attention_floats(op) * 4, 16) +
           (op.group() + 2) * op.head_dim * 2 + new_scales_bytes +
           round_up(barriers_of(stages) * 8, 16) +
           most_layers * static_cast<int>(sizeof(LayerPointers)) + scales_bytes(op) +
           zeros_bytes(op) + warps * input_sums(op) * 4;
  }

  // Words of LayersParams::words: q, k and v | partial sums of attention | its output | sums of o |
  // activations | sums of down.
  static constexpr int partial_words(const LayersOp& op) { return op.group() * (op.head_dim + 2); }
  constexpr int words_of(const LayersOp& op, int before) const {
    const int counts[6] = {op.qkv_rows() / 2,   op.kv_heads * splits(op) * partial_words(op),
                           op.query_rows() / 2, parts_o * op.hidden,
                           op.inter / 2,        parts_down * op.hidden};
    int sum = 0;
    for (int i = 0; i < before; ++i) sum += counts[i];
    return sum;
  }
  constexpr int words(const LayersOp& op) const { return words_of(op, 6); }

  // The first reason why no plan reads weights in this format, or null.
  static constexpr const char* why_illegal_format(const LayersOp& op) {
    const Format& format = op.format;
    if (format.is_plain()) return nullptr;
    if (high_bits_of(format.codes) > 0) return "codes must be of 4 or 8 bits";
    if (format.minima || format.listed || format.outer > 0)
      return "scales must be alone, or with zero points or one of the whole matrix";
    const bool in_groups = shared_scale(format) == Shared::group;
    if (!in_groups && (format.zeros || is_small_float(format.codes)))
      return "zero points, and small floats, must be of groups";
    if (!in_groups && (format.global || bytes_of(format.scale) < 2))
      return "a scale of more than a group must have 16 or 32 bits, and be alone";
    const int columns = warp_columns(op), sizes[] = {op.hidden, op.inter, op.query_rows()};
    for (const int k : sizes)
      if (k % columns != 0) return "sizes must be multiples of a warp's columns";
    switch (shared_scale(format)) {
      case Shared::everything:
        return format.rows == 0 ? nullptr : "rows must not share a scale";
      case Shared::row:
        return nullptr;
      case Shared::group:
        if (format.columns < (bits_of(format.codes) == 4 ? 16 : 32) ||
            columns % format.columns != 0)
          return "groups must have 32 columns or more, 16 of 4 bits, and be whole in a warp's "
                 "columns";
        // Half a tile's are copied as whole 16 bytes.
        for (const int k : sizes)
          if (8 * groups_of_row(op, k) * (format.zeros ? 1 : bytes_of(format.scale)) % 16 != 0)
            return "rows must have an even number of groups";
        return nullptr;
      case Shared::block:
        return format.rows > 0 && format.rows % box_rows == 0 && format.columns % columns == 0
                   ? nullptr
                   : "blocks must have whole tiles, and a warp's columns";
    }
    return nullptr;
  }
  constexpr const char* why_illegal(const LayersOp& op) const {
    if (op.type == Type::f32) return "hidden states and the cache must have 16 bits";
    // Codes are multiplied in units of the input.
    if (op.type == Type::f16 && op.format.is_plain())
      return "an input's norm comes after the product: float16 overflows";
    if (op.fp8 && op.type != Type::bf16) return "weights times scales need the range of bfloat16";
    if (op.head_dim != 64 && op.head_dim != 128) return "head_dim must be 64 or 128";
    if (op.kv_heads < 1 || op.heads % op.kv_heads != 0) return "heads must be whole groups";
    if (op.group() > 8) return "tensor cores take groups up to 8";
    if (op.hidden % 64 != 0 || op.inter % 64 != 0) return "sizes must be multiples of 64";
    if (const char* reason = why_illegal_format(op)) return reason;
    if (warps < 1 || warps > 14 || warps % 2 != 0) return "2 to 14 warps, in pairs, multiply";
    if (blocks < op.kv_heads) return "a head of keys needs a block";
    if (parts_o < 1 || parts_down < 1 || parts_o > steps_of(op, op.query_rows()) ||
        parts_down > steps_of(op, op.inter) || parts_o > blocks || parts_down > blocks)
      return "more parts than K has steps";
    if (stages < 2 || window < 1 || window > stages) return "a window is 1 to all stages";
    if (pace < 0) return "a pace is 0 cycles or more";
    return nullptr;
  }
  constexpr const char* why_illegal(const LayersOp& op, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (shared_bytes(op) > max_shared_bytes) return "too much shared memory";
    return nullptr;
  }
};

// What a layer waits for: its four products, and attention. Each has its input there, then has
// computed, then has handed on what came out.
enum class Link { qkv, attention, o, gate_up, down };
enum class Point { input, computed, handed_on };
constexpr int points_of_link = 3, points_of_layer = 5 * points_of_link;

struct Word;  // kernels/words.cuh

struct LayersParams {
  LayerMaps maps[most_layers];
  LayerPointers layer[most_layers];
  const void* in;       // [hidden]
  void* out;            // [hidden]
  const float* rope;    // [positions, head_dim / 2, 2] cosine and sine
  const int* position;  // [1] tokens before this one
  // [plan.words(op)], 0 before the first launch. Who else writes them counts its layers in `done`.
  Word* words;
  unsigned* done;               // [1], 0 before the first launch: layers that launches had
  int layers;                   // 1 to most_layers
  int rope_pitch;               // floats from position to position
  int capacity;                 // positions from 0 on that the cache has room for
  float norm_eps, norm_offset;  // offset: 1 where a norm multiplies by 1 + weight
  float head_norm_eps, head_norm_offset;
  float scale;  // of the scores
  // Null, or [blocks][layers][points_of_layer]: when a block came to each point, in nanoseconds.
  unsigned long long* stamps;
  long long unused[1];  // whole 64 bytes, as on a GPU maps have them
};
static_assert(sizeof(LayersParams) % 64 == 0 && sizeof(LayersParams) <= 32764);

}  // namespace ac::kernels
