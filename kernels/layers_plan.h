// All layers of a decoder for one token, in one launch: blocks stay, one a multiprocessor, and hand
// activations to each other through memory, as words that say of which layer they are.
#pragma once

#include "kernels/plan.h"
#include "kernels/tensor_map.h"

namespace ac::kernels {

struct LayersOp {
  Type type = Type::bf16;  // of weights, hidden states and cache
  int hidden = 1024;
  int heads = 16, kv_heads = 8, head_dim = 128;
  int inter = 3072;
  bool head_norms = false;  // RMSNorm of each query and key head
  AC_FIELDS(LayersOp, type, hidden, heads, kv_heads, head_dim, inter, head_norms)

  constexpr int group() const { return heads / kv_heads; }
  constexpr int query_rows() const { return heads * head_dim; }
  constexpr int kv_rows() const { return kv_heads * head_dim; }
  constexpr int qkv_rows() const { return query_rows() + 2 * kv_rows(); }
};

// One launch has 34 layers at most: CUDA limits a kernel's parameters to 32,764 bytes.
constexpr int most_layers = 34;

// A layer's weights, row by row, with boxes as LayersPlan has them.
struct LayerMaps {
  TensorMap q, k, v, o, gate, up, down;
};
constexpr int maps_of_layer = sizeof(LayerMaps) / sizeof(TensorMap);

struct LayerPointers {
  const void *norm, *mlp_norm;  // [hidden]
  const void *q_norm, *k_norm;  // [head_dim], if op.head_norms
  void *keys, *values;          // [kv_heads, capacity, head_dim]
};

// A product's matrix is cut into tiles of 16 rows, q over k over v, or eight rows of gate and eight
// of up; and K into parts. A block multiplies neighbouring tiles of one part. Weights, and cached
// keys and values, come through a ring of stages: of weights 16 rows of 512 columns, a step, 64
// columns a warp.
struct LayersPlan {
  int blocks = 132;    // all of which must be there at once
  int parts_o = 1;     // of K, of the product with attention's output
  int parts_down = 1;  // of K, of the last product of a layer
  int stages = 11;     // of the ring
  int window = 2;      // stages that are under way at once: more keep words waiting behind weights
  AC_FIELDS(LayersPlan, blocks, parts_o, parts_down, stages, window)

  static constexpr int warps = 8;  // that multiply
  // One more warp asks for weights, and one finishes what the others multiply.
  static constexpr int threads = 32 * (warps + 2);
  static constexpr int warp_columns = 64, columns = warps * warp_columns;
  static constexpr int stage_bytes = 16 * columns * 2;
  // Boxes of the maps: a stage is one, or of gate and up one each, with fewer rows.
  static constexpr int box_panels = warps, box_rows = 16, pair_box_rows = 8;

  constexpr int splits(const LayersOp& op) const { return blocks / op.kv_heads; }
  // Tokens of which a warp takes keys at once.
  static constexpr int warp_keys(const LayersOp& op) { return 1024 / op.head_dim; }
  static constexpr int steps_of(int k) { return divide_up(k, columns); }

  // Shared memory: the ring | each warp's part of an input | the warps' sums of a product, and of
  // attention | queries, and this token's key and value | barriers | pointers of the layers |
  // the block's shares of products.
  constexpr int most_steps(const LayersOp& op) const {
    const int from_hidden = steps_of(op.hidden);
    const int from_heads = divide_up(steps_of(op.query_rows()), parts_o);
    const int from_inter = divide_up(steps_of(op.inter), parts_down);
    const int two = from_hidden > from_heads ? from_hidden : from_heads;
    return two > from_inter ? two : from_inter;
  }
  static constexpr int tiles_of(int rows, int blocks_of_part) {
    return divide_up(divide_up(rows, 16), blocks_of_part);
  }
  constexpr int sums_rows(const LayersOp& op) const {  // of all products, and a row of squares each
    return 16 * (tiles_of(op.qkv_rows(), blocks) + tiles_of(op.hidden, blocks / parts_o) +
                 tiles_of(2 * op.inter, blocks) + tiles_of(op.hidden, blocks / parts_down)) +
           4;
  }
  static constexpr int attention_floats(const LayersOp& op) {
    return warps * op.group() * (op.head_dim + 2);
  }
  static constexpr int barriers_of(int stages) { return 2 * stages + 4 + 1; }
  constexpr int shared_bytes(const LayersOp& op) const {
    return stages * stage_bytes + warps * most_steps(op) * warp_columns * 2 +
           sums_rows(op) * warps * 4 + round_up(attention_floats(op) * 4, 16) +
           (op.group() + 2) * op.head_dim * 2 + barriers_of(stages) * 8 +
           most_layers * static_cast<int>(sizeof(LayerPointers)) + 4 * 8;
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

  constexpr const char* why_illegal(const LayersOp& op) const {
    if (op.type != Type::bf16) return "an input's norm comes after the product: float16 overflows";
    if (op.head_dim != 64 && op.head_dim != 128) return "head_dim must be 64 or 128";
    if (op.kv_heads < 1 || op.heads % op.kv_heads != 0) return "heads must be whole groups";
    if (op.group() > 8) return "tensor cores take groups up to 8";
    if (op.hidden % 64 != 0 || op.inter % 64 != 0) return "sizes must be multiples of 64";
    if (blocks < op.kv_heads) return "a head of keys needs a block";
    if (parts_o < 1 || parts_down < 1 || parts_o > steps_of(op.query_rows()) ||
        parts_down > steps_of(op.inter) || parts_o > blocks || parts_down > blocks)
      return "more parts than K has steps";
    if (stages < 2 || window < 1 || window > stages) return "a window is 1 to all stages";
    return nullptr;
  }
  constexpr const char* why_illegal(const LayersOp& op, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (shared_bytes(op) > max_shared_bytes) return "too much shared memory";
    return nullptr;
  }
};

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
  float scale;          // of the scores
  long long unused[2];  // whole 64 bytes, as on a GPU maps have them
};
static_assert(sizeof(LayersParams) % 64 == 0 && sizeof(LayersParams) <= 32764);

}  // namespace ac::kernels
