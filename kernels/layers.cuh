// All layers of a decoder for one token; layers_plan.h says what op, plan and parameters mean.
//
// A step of few bytes is bound by what lies between its products. Here that is little:
//   - One warp asks for all weights and cached rows in the order in which they are used, on across
//     layers, so that memory never waits for an input. It keeps few copies under way: words that
//     blocks hand to each other would wait behind more.
//   - A warp multiplies its own columns of each step, waits for its own part of the input alone,
//     and has its first weights in registers by then. Then the block's warps meet, and each adds up
//     and hands on some rows.
//   - Few cached tokens are attended by one block a head, so that nobody waits for others' sums. Of
//     more, one warp of each block joins what the blocks of a head have.
//   - A word of an activation says of which layer it is. Whoever needs it looks at it until it is
//     of this one: no flag, no fence, no end of a grid.
//   - A norm's factor comes after the product. Every block has the hidden state in registers, and
//     adds to it what all blocks computed.
//   - Codes of weights are multiplied by digits of the input, e4m3 by float16.
// No word is written again before all have read it: what a block writes next depends, by way of the
// products in between, on all words of the layer before.
#pragma once

#include "kernels/attention_sums.cuh"
#include "kernels/code_digits.cuh"
#include "kernels/either.cuh"
#include "kernels/layers_machine.cuh"
#include "kernels/layers_plan.h"
#include "kernels/ptx.cuh"
#include "kernels/tensor_map.cuh"
#include "kernels/weight_reader.cuh"
#include "kernels/words.cuh"

namespace ac::kernels {

template <LayersOp op, LayersPlan plan>
struct Layers {
  using T = Scalar<op.type>;
  using Params = LayersParams;
  static constexpr int warps = plan.warps, dim = op.head_dim, group = op.group();
  static constexpr int splits = plan.splits(op), warp_keys = plan.warp_keys(op);
  static constexpr int dim_words = dim / 64;  // words of a head that a lane has
  static constexpr int warp_columns = plan.warp_columns(op), step_columns = plan.columns(op);
  static constexpr int input_bytes = plan.input_bytes(op);
  static constexpr bool coded = !op.format.is_plain();
  // Inputs of products have digits.
  static constexpr bool has_digits =
      coded && (bits_of(op.format.codes) == 4 || is_whole(op.format.codes));
  static constexpr bool has_groups = plan.has_groups(op);
  static constexpr bool has_blocks =
      coded && plan.shared_scale(op.format) == LayersPlan::Shared::block;
  static constexpr bool has_row_scales = coded && !has_groups && !has_blocks;
  static constexpr bool has_zeros = op.format.zeros, has_global = op.format.global;
  static constexpr bool as_stored = plan.as_stored(op), has_sums = plan.has_sums(op);
  static constexpr int digits = plan.digits(op);
  static constexpr int sum_words = digits - 1;  // of a group: lanes with digits of a row
  static constexpr int groups_of_panel = plan.groups_of_panel(op);
  // Many groups: each of four lanes that have sums of a row has those of other groups.
  static constexpr bool spread = has_digits && groups_of_panel >= 4;
  static constexpr int lane_groups = spread ? groups_of_panel / 4 : groups_of_panel;
  using Scale = typename ScaleOf<op.format.scale>::type;
  // A lane has two elements of each 64 of a warp's columns.
  static constexpr int pieces = warp_columns / 64;
  static constexpr int hidden_steps = plan.steps_of(op, op.hidden);
  static constexpr int hidden_pieces = hidden_steps * pieces;

  // A product of a layer: q, k and v; o; gate and up; down.
  enum Which { qkv, o, gate_up, down };
  template <int which>
  struct Product {
    static constexpr int k = which == o ? op.query_rows() : which == down ? op.inter : op.hidden;
    static constexpr int rows = which == qkv       ? op.qkv_rows()
                                : which == gate_up ? 2 * op.inter
                                                   : op.hidden;
    static constexpr int parts = which == o ? plan.parts_o : which == down ? plan.parts_down : 1;
    static constexpr int blocks = plan.blocks / parts;  // of a part
    static constexpr int tiles = rows / 16, steps = plan.steps_of(op, k);
    static constexpr int most_tiles = plan.tiles_of(rows, blocks);
    static constexpr int most_steps = divide_up(steps, parts);
    static_assert(rows % 16 == 0);
    static constexpr int groups = coded ? op.format.scales_of_row(k) : 0;  // of a row
    // This block's part of K, and its tiles and steps there.
    AC_DEVICE static int part() { return blockIdx.x % parts; }
    AC_DEVICE static int first_tile() { return index() * tiles / blocks; }
    AC_DEVICE static int tile_count() {
      return index() < blocks ? (index() + 1) * tiles / blocks - first_tile() : 0;
    }
    AC_DEVICE static int first_step() { return part() * steps / parts; }
    AC_DEVICE static int step_count() { return (part() + 1) * steps / parts - first_step(); }
    // Columns of a step, all but the last of which are full.
    AC_DEVICE static int columns(int step) {
      return k % step_columns == 0 || step < steps - 1 ? step_columns : k % step_columns;
    }

   private:
    AC_DEVICE static int index() { return blockIdx.x / parts; }
  };

  template <int which>
  static constexpr int sums_before() {
    int rows = 0;
    if constexpr (which > qkv) rows += 16 * Product<qkv>::most_tiles + 1;
    if constexpr (which > o) rows += 16 * Product<o>::most_tiles + 1;
    if constexpr (which > gate_up) rows += 16 * Product<gate_up>::most_tiles + 1;
    return rows * warps;
  }

  const Params& p;
  // Shared memory.
  unsigned char* const ring;
  unsigned char* const inputs;  // [warps][most_steps], input_bytes() each
  float* const sums;
  float* const attended;  // [warps][group][dim], then their maxima and totals, [warps][group] each
  T* const queries;       // [group][dim]
  T *const key, *const value;
  float* const new_scales;  // of this key and this value, if the cache holds codes
  CopyBarrier *const full, *const empty;
  CopyBarrier *const scales_there, *const scales_read;  // of each product
  // The pointers of all layers: parameters that are new in each layer would be waited for.
  LayerPointers* const layer;
  Scale* const scales;         // of the block's rows of each product
  unsigned char* const zeros;  // so too
  int* const input_sums;       // [warps][most_steps][groups_of_panel]

  AC_DEVICE Layers(const Params& p, unsigned char* shared)
      : p(p),
        ring(shared),
        inputs(shared + plan.stages * plan.stage_bytes()),
        sums(reinterpret_cast<float*>(inputs + warps * plan.most_steps(op) * input_bytes)),
        attended(sums + round_up(plan.sums_rows(op) * warps, 4)),
        queries(reinterpret_cast<T*>(attended + round_up(plan.attention_floats(op), 4))),
        key(queries + group * dim),
        value(key + dim),
        new_scales(reinterpret_cast<float*>(value + dim)),
        full(reinterpret_cast<CopyBarrier*>(new_scales + plan.new_scales_bytes / 4)),
        empty(full + plan.stages),
        scales_there(empty + plan.stages),
        scales_read(scales_there + 4),
        layer(reinterpret_cast<LayerPointers*>(full + round_up(plan.barriers_of(plan.stages), 2))),
        scales(reinterpret_cast<Scale*>(layer + most_layers)),
        zeros(reinterpret_cast<unsigned char*>(scales + plan.groups(op))),
        input_sums(reinterpret_cast<int*>(zeros + plan.zeros_bytes(op))) {}

  // Words of what, in their order in memory (LayersPlan::words_of).
  enum Handed { of_qkv, of_splits, of_attention, of_o, of_gate_up, of_down };
  AC_DEVICE Word* words(Handed which) const { return p.words + plan.words_of(op, which); }
  AC_DEVICE static int warp() { return in_place(static_cast<int>(threadIdx.x)) / 32; }
  AC_DEVICE static int lane() { return threadIdx.x % 32; }

  static constexpr bool in_nibbles = coded && bits_of(op.format.codes) == 4;
  // Where the hidden state's words are: a lane takes neighbours twice, which are four columns.
  AC_DEVICE static int hidden_word(int column) {
    return coded ? (column & ~127) + column / 2 % 2 * 64 + column % 128 / 4 * 2 + column % 2
                 : column;
  }

  // ---- the ring

  struct Ring {
    unsigned char* const stages;
    CopyBarrier *const full, *const empty;
    int at = 0;
    unsigned phase = 0;

    AC_DEVICE void move() {
      if (++at == plan.stages) at = 0, phase ^= 1;
    }
    // By a warp that multiplies.
    AC_DEVICE const unsigned char* arrived() const {
      barrier_wait(full + at, phase);
      return stages + at * plan.stage_bytes();
    }
    AC_DEVICE void release() {
      publish_reads();
      __syncwarp();
      if (lane() == 0) barrier_arrive(empty + at);
      move();
    }
  };

  // The warp that asks.
  struct Asker : Ring {
    int under_way = 0, oldest = 0;
    unsigned oldest_phase = 0;
    unsigned due = clock_now();  // when it may ask again

    AC_DEVICE void keep_pace() {
      if constexpr (plan.pace > 0) due = wait_for_clock(due) + plan.pace;
    }
    // A free stage, into which so many bytes will come.
    AC_DEVICE unsigned char* free(unsigned bytes) {
      barrier_wait(this->empty + this->at, this->phase ^ 1);
      if (under_way == plan.window) {
        barrier_wait(this->full + oldest, oldest_phase);
        if (++oldest == plan.stages) oldest = 0, oldest_phase ^= 1;
      } else {
        ++under_way;
      }
      keep_pace();
      if (lane() == 0) barrier_expect(this->full + this->at, bytes);
      __syncwarp();
      return this->stages + this->at * plan.stage_bytes();
    }
    AC_DEVICE void copy(unsigned char* to, const void* from, unsigned bytes) {
      copy_bulk(to, from, bytes, this->full + this->at);
    }
  };

  // The copy engine reads a map before it copies, so maps are fetched a layer ahead.
  AC_DEVICE void prefetch_maps(int i) const {
    if (lane() < maps_of_layer)
      prefetch_map(reinterpret_cast<const TensorMap*>(p.maps + i) + lane());
  }

  template <int which>
  AC_DEVICE void ask(Asker& asker, const LayerMaps& maps) const {
    using P = Product<which>;
    const int end = P::first_step() + P::step_count();
    AC_UNROLL_BY(1)
    for (int tile = 0; tile < P::tile_count(); ++tile) {
      const TensorMap* map = which == o ? &maps.o : which == down ? &maps.down : &maps.q;
      int row = (P::first_tile() + tile) * plan.box_rows;
      if constexpr (which == qkv) {
        if (row >= op.query_rows() + op.kv_rows())
          map = &maps.v, row -= op.query_rows() + op.kv_rows();
        else if (row >= op.query_rows())
          map = &maps.k, row -= op.query_rows();
      }
      AC_UNROLL_BY(1)
      for (int step = P::first_step(); step < end; ++step) {
        unsigned char* const to = asker.free(plan.stage_bytes());
        CopyBarrier* const barrier = asker.full + asker.at;
        const int panel = step * plan.box_panels();
        if (lane() == 0) {
          if constexpr (which == gate_up) {
            copy_panels(to, &maps.gate, panel, row / 2, barrier);
            copy_panels(to + plan.stage_bytes() / 2, &maps.up, panel, row / 2, barrier);
          } else {
            copy_panels(to, map, panel, row, barrier);
          }
        }
        __syncwarp();
        asker.move();
      }
    }
  }

  // ---- scales and zero points of groups of codes, which wait beside the ring

  template <int which>
  static constexpr int groups_before() {
    int sum = 0;
    if constexpr (which > qkv) sum += most_groups<qkv>();
    if constexpr (which > o) sum += most_groups<o>();
    if constexpr (which > gate_up) sum += most_groups<gate_up>();
    return sum;
  }
  template <int which>
  static constexpr int most_groups() {
    return 16 * Product<which>::most_tiles * plan.groups_of_row(op, Product<which>::k);
  }
  // Asks for those of this block's rows, once the layer before has been multiplied.
  template <int which>
  AC_DEVICE void ask_scales(const LayerPointers& l, int number) const {
    if constexpr (has_groups) {
      using P = Product<which>;
      const int rows = P::tile_count() * 16;
      if (rows == 0) return;
      if (number > 0) barrier_wait(scales_read + which, (number - 1) & 1);
      if (lane() != 0) return;
      constexpr int bytes = P::groups * (static_cast<int>(sizeof(Scale)) + has_zeros);
      barrier_expect(scales_there + which, rows * bytes);
      ask_groups<which>(l.scales, scales + groups_before<which>());
      if constexpr (has_zeros) ask_groups<which>(l.beside, zeros + groups_before<which>());
    }
  }
  template <int which, class Value>
  AC_DEVICE void ask_groups(const OfMatrices& from, Value* to) const {
    using P = Product<which>;
    const int begin = P::first_tile() * 16, rows = P::tile_count() * 16;
    // Copies the values of `count` rows of a matrix behind those that were copied before.
    const auto copy = [&](const void* of, int first, int count) {
      constexpr int row_bytes = P::groups * static_cast<int>(sizeof(Value));
      copy_bulk(to,
                static_cast<const unsigned char*>(of) + static_cast<long long>(first) * row_bytes,
                count * row_bytes, scales_there + which);
      to += count * P::groups;
    };
    if constexpr (which == qkv) {
      const void* const matrices[3] = {from.q, from.k, from.v};
      const int of[3] = {op.query_rows(), op.kv_rows(), op.kv_rows()};
      AC_UNROLL
      for (int i = 0, before = 0; i < 3; before += of[i++]) {
        const int first = begin > before ? begin - before : 0;
        const int end = begin + rows - before < of[i] ? begin + rows - before : of[i];
        if (first < end) copy(matrices[i], first, end - first);
      }
    } else if constexpr (which == gate_up) {
      copy(from.gate, begin / 2, rows / 2), copy(from.up, begin / 2, rows / 2);
    } else {
      copy(which == o ? from.o : from.down, begin, rows);
    }
  }

  // How many blocks share a head of keys: one, if there are few tokens, so that nobody waits for
  // others.
  AC_DEVICE static int sharers(int tokens) {
    return tokens <= plan.rounds_alone * warps * warp_keys ? 1 : splits;
  }
  // This block's head of keys, and which of its splits it has.
  AC_DEVICE static bool attends(int sharers) {
    return static_cast<int>(blockIdx.x) < op.kv_heads * splits && split() < sharers;
  }
  AC_DEVICE static int kv_head() { return blockIdx.x / splits; }
  AC_DEVICE static int split() { return blockIdx.x % splits; }
  // The first token of a warp's keys in a round; warps' keys of all splits come in turn.
  AC_DEVICE static int first_token(int round, int warp, int sharers) {
    return ((round * warps + warp) * sharers + split()) * warp_keys;
  }
  AC_DEVICE static int keys_at(int first, int tokens) {
    return first >= tokens ? 0 : tokens - first < warp_keys ? tokens - first : warp_keys;
  }

  AC_DEVICE void ask_cached(Asker& asker, const LayerPointers& l, int tokens) const {
    const int sharing = sharers(tokens);
    if (!attends(sharing)) return;
    constexpr int row_bytes = op.cached_bytes();
    const long long head = static_cast<long long>(kv_head()) * p.capacity * row_bytes;
    AC_UNROLL_BY(1)
    for (int round = 0; first_token(round, 0, sharing) < tokens; ++round) {
      int all = 0;
      AC_UNROLL_BY(1)
      for (int w = 0; w < warps; ++w) all += keys_at(first_token(round, w, sharing), tokens);
      const int first = first_token(round, lane() % warps, sharing), mine = keys_at(first, tokens);
      AC_UNROLL_BY(1)
      for (int of_values = 0; of_values < 2; ++of_values) {
        unsigned char* const to = asker.free(all * row_bytes);
        const auto* const rows =
            static_cast<const unsigned char*>(of_values ? l.values : l.keys) + head;
        if (lane() < warps && mine > 0)
          asker.copy(to + lane() * 2048, rows + static_cast<long long>(first) * row_bytes,
                     mine * row_bytes);
        __syncwarp();
        asker.move();
      }
    }
  }

  AC_DEVICE void ask_for_all() const {
    Asker asker{{ring, full, empty}};
    // Weights need not wait for the kernel before this one.
    ask_scales<qkv>(layer[0], 0);
    ask<qkv>(asker, p.maps[0]);
    wait_for_dependency();
    const int tokens = load_fresh(p.position);
    AC_UNROLL_BY(1)
    for (int i = 0; i < p.layers; ++i) {
      const LayerMaps& maps = p.maps[i];
      const LayerPointers& l = layer[i];
      if (i > 0) ask_scales<qkv>(l, i), ask<qkv>(asker, maps);
      if (i + 1 < p.layers) prefetch_maps(i + 1);
      ask_cached(asker, l, tokens);
      ask_scales<o>(l, i), ask<o>(asker, maps);
      ask_scales<gate_up>(l, i), ask<gate_up>(asker, maps);
      ask_scales<down>(l, i), ask<down>(asker, maps);
    }
  }

  // ---- warps that multiply

  // What such a warp keeps between products.
  struct State {
    Ring ring;
    int tokens = 0;                // before this one
    unsigned tag = 0;              // of this layer's words
    int layer = 0;                 // how many came before
    float4 angles{};               // of this token: cosines and sines of a lane's two pairs
    int nothing = 0;               // 0, and the compiler cannot know it
    float2 h[hidden_pieces] = {};  // its part of the hidden state
  };

  // If somebody asks, the first warp notes when its block comes to a point of a layer.
  AC_DEVICE void stamp(const State& state, Link link, Point point) const {
    if (p.stamps == nullptr || threadIdx.x != 0) return;
    p.stamps[(static_cast<int>(blockIdx.x) * p.layers + state.layer) * points_of_layer +
             static_cast<int>(link) * points_of_link + static_cast<int>(point)] = nanoseconds();
  }
  static constexpr Link link_of(int which) {
    return which == qkv       ? Link::qkv
           : which == o       ? Link::o
           : which == gate_up ? Link::gate_up
                              : Link::down;
  }

  // The warps of the block that multiply wait for each other.
  AC_DEVICE static void meet() { meet_first<32 * warps>(); }

  // Weights of a warp's columns of a step, of 32 bytes of rows each; and their stage.
  struct Weights {
    unsigned of[4][4];
    int stage;

    // They have any values from here on, so that no registers keep those of before.
    AC_DEVICE void forget() {
      AC_UNROLL
      for (auto& words : of) AC_UNROLL
      for (unsigned& word : words) word = anything();
      stage = static_cast<int>(anything());
    }
  };
  // Where a lane reads its warp's panel, of the ring's first stage. A panel has its 16 rows
  // together, or those of gate, and those of up half a stage later. A lane points to a row of one
  // of four matrices of 8 x 8: above, below, and to the right of each.
  template <int which>
  AC_DEVICE const unsigned char* panel_row() const {
    constexpr bool pair = which == gate_up;
    constexpr int panel = (pair ? plan.pair_box_rows : plan.box_rows) * 128;
    const int row = lane() % 8, below = lane() / 8 % 2, right = lane() / 16;
    return ring + warp() * panel + row * 128 + below * (pair ? plan.stage_bytes() / 2 : panel / 2) +
           (right ^ row) * 16;
  }
  AC_DEVICE static void take(Ring& ring, SharedAddress row, Weights& w) {
    ring.arrived();
    // As maps swizzle, 32 bytes further are a flipped bit.
    const SharedAddress at = row + ring.at * plan.stage_bytes();
    AC_UNROLL
    for (int i = 0; i < 4; ++i) load_matrices(w.of[i], at_shared(at ^ i * 32));
    w.stage = ring.at;
    ring.move();
  }
  // Frees the stage of weights. Reads may still be under way, and a fence would wait for more than
  // them: the barrier's address is computed from what was read.
  AC_DEVICE void free_stage(const Weights& w, int nothing) const {
    const int after_reads = (w.of[0][0] | w.of[1][0] | w.of[2][0] | w.of[3][0]) & nothing;
    __syncwarp();
    if (lane() == 0) barrier_arrive(empty + w.stage + after_reads);
  }

  // What codes are multiplied as is so many times what they stand for.
  static constexpr int lifted = !in_nibbles                 ? 1
                                : is_whole(op.format.codes) ? lifted_codes
                                                            : lifted_e2m1;
  AC_DEVICE unsigned char* input() const {
    return inputs + warp() * plan.most_steps(op) * input_bytes;
  }
  // What a warp knows of its part of an input: the sum of squares, and the unit of codes' sums.
  struct Staged {
    float squares = 0, unit = 1, lower = 1;
  };

  // ---- what a product is made of: kernels/layers_products.cuh

  struct Columns;
  struct PlainSums;
  struct CodeSums;
  using Sums = typename Either<coded, CodeSums, PlainSums>::Type;
  template <int which>
  struct FinishedScales;
  template <int which>
  struct GroupScales;
  template <int which>
  struct BlockScales;
  struct NoScales;
  template <int which>
  AC_DEVICE static const void* matrix_of(const OfMatrices& of, int tile, int row_of_tile, int& row);
  template <int which>
  AC_DEVICE static float load_scale(const LayerPointers& l, int tile, int row_of_tile, int column);
  template <int which>
  AC_DEVICE auto panel_scales(const State& state) const;
  template <int which, class Stage>
  AC_DEVICE float multiply_panels(State& state, Stage stage_input) const;

  // Whether a norm comes before the product: its sums of squares are the first row.
  static constexpr bool norms(int which) { return which == qkv || which == gate_up; }
  // One product: `stage_input()` waits for this warp's part of the input and leaves it in shared
  // memory.
  template <int which, class Stage>
  AC_DEVICE void multiply(State& state, Stage stage_input) const {
    constexpr Link link = link_of(which);
    FinishedScales<which> scales_of_rows;
    scales_of_rows.load(layer[state.layer]);
    float squares = multiply_panels<which>(state, stage_input);
    stamp(state, link, Point::computed);
    if (Product<which>::tile_count() > 0) {
      if constexpr (norms(which)) {
        AC_UNROLL
        for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(full_warp, squares, d);
        if (lane() == 0) sums[sums_before<which>() + warp()] = squares;
      }
      meet();
      finish<which>(state.tag, scales_of_rows);
    }
    stamp(state, link, Point::handed_on);
  }

  // Whether the hidden state matters to this block.
  AC_DEVICE static bool has_hidden() {
    return Product<qkv>::tile_count() > 0 || Product<gate_up>::tile_count() > 0;
  }
  // Columns of the hidden state that a lane has: two neighbours of each piece, or four of each two.
  AC_DEVICE static int hidden_column(int i) {
    const int first = i / pieces * step_columns + warp() * warp_columns;
    return coded ? first + i % pieces / 2 * 128 + lane() * 4 + i % 2 * 2
                 : first + i % pieces * 64 + lane() * 2;
  }
  AC_DEVICE static bool has_column(int i) {
    return op.hidden % step_columns == 0 || hidden_column(i) < op.hidden;
  }

  // ---- inputs of products: kernels/layers_input.cuh

  // Elements are lifted, as those so small that they have few bits are not when the norm is done
  // with them.
  static constexpr float lift = coded ? 1 : 0x1p30f;
  AC_DEVICE int* sums_of_input() const { return input_sums + warp() * plan.input_sums(op); }
  AC_DEVICE static void load_norm(const void* weights, unsigned (&norm)[hidden_pieces]) {
    AC_UNROLL
    for (int i = 0; i < hidden_pieces; ++i) {
      norm[i] = 0;
      if (!has_column(i)) continue;
      norm[i] = load_early(static_cast<const unsigned*>(weights) + hidden_column(i) / 2);
    }
  }
  template <int parts>
  AC_DEVICE void add_to_hidden(State& state, const Word* from, unsigned tag) const;
  AC_DEVICE Staged stage_hidden(const State& state, const unsigned (&norm)[hidden_pieces]) const;
  template <int n>
  AC_DEVICE DigitUnit stage_in_units(const float (&x)[n]) const;
  template <int count>
  AC_DEVICE static void store_digits(unsigned char* to, unsigned first, unsigned second);
  template <int n>
  AC_DEVICE void stage_sums(const unsigned (&of_lane)[n]) const;
  template <int which>
  AC_DEVICE Staged stage_pairs(const Word* from, unsigned tag) const;

  // ---- attention: kernels/layers_attention.cuh

  AC_DEVICE void turn(const unsigned (&raw)[dim_words], const unsigned (&norm)[dim_words],
                      const float4& angles, float2 (&x)[dim_words]) const;
  AC_DEVICE void attend(State& state, const LayerPointers& l) const;
  AC_DEVICE void append_codes(unsigned (&row)[dim_words], bool is_value, int tokens,
                              const LayerPointers& l) const;
  // The scales of those cached keys or values whose scores a lane has, if the cache holds codes.
  struct CacheScales;
  static constexpr int value_words = op.cached_bytes() / 32;  // of a value, for each lane
  AC_DEVICE static void load_values(const unsigned char* from, bool are_there,
                                    unsigned (&v)[value_words]);
  AC_DEVICE static unsigned value_pair(const unsigned (&v)[value_words], int i);
  AC_DEVICE void join(unsigned tag) const;

  AC_DEVICE void multiply_all() const {
    State state{.ring = {ring, full, empty}};
    unsigned norm[hidden_pieces];
    load_norm(layer[0].norm, norm);
    wait_for_dependency();
    state.tokens = load_fresh(p.position);
    state.nothing = state.tokens >> 31;
    state.angles = load_constant(reinterpret_cast<const float4*>(
                                     p.rope + static_cast<long long>(state.tokens) * p.rope_pitch) +
                                 lane() % (dim / 4));
    state.tag = load_fresh(p.done) + 1;
    AC_UNROLL
    for (int i = 0; i < hidden_pieces; ++i) {
      state.h[i] = make_float2(0, 0);
      if (!has_column(i)) continue;
      state.h[i] =
          unpack_pair<T>(load_fresh(static_cast<const unsigned*>(p.in) + hidden_column(i) / 2));
    }
    AC_UNROLL_BY(1)
    for (int i = 0; i < p.layers; ++i, ++state.tag, ++state.layer) {
      const LayerPointers& l = layer[i];
      const unsigned tag = state.tag;
      multiply<qkv>(state, [&] {
        if (!has_hidden()) return Staged{};
        if (i > 0) add_to_hidden<plan.parts_down>(state, words(of_down), tag - 1);
        return stage_hidden(state, norm);
      });
      load_norm(l.mlp_norm, norm);
      attend(state, l);
      stamp(state, Link::attention, Point::handed_on);
      multiply<o>(state, [&] { return stage_pairs<o>(words(of_attention), tag); });
      multiply<gate_up>(state, [&] {
        if (!has_hidden()) return Staged{};
        add_to_hidden<plan.parts_o>(state, words(of_o), tag);
        return stage_hidden(state, norm);
      });
      if (i + 1 < p.layers) load_norm(layer[i + 1].norm, norm);
      multiply<down>(state, [&] { return stage_pairs<down>(words(of_gate_up), tag); });
    }
    if (blockIdx.x != plan.blocks - 1) return;  // which has tiles of each product
    add_to_hidden<plan.parts_down>(state, words(of_down), state.tag - 1);
    // All blocks with work have read it: they had a part in what this one has.
    if (threadIdx.x == 0) *p.done = state.tag - 1;
    AC_UNROLL
    for (int i = 0; i < hidden_pieces; ++i) {
      if (!has_column(i)) continue;
      static_cast<unsigned*>(p.out)[hidden_column(i) / 2] =
          pack_pair<T>(state.h[i].x, state.h[i].y);
    }
  }

  // ---- what is handed on

  // The sum of what all warps have of a row.
  AC_DEVICE static float sum_of(const float* row) {
    if constexpr (warps == 8) {
      const float4 a = *reinterpret_cast<const float4*>(row);
      const float4 b = *reinterpret_cast<const float4*>(row + 4);
      return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
    } else {
      float2 sum = *reinterpret_cast<const float2*>(row);
      AC_UNROLL
      for (int w = 2; w < warps; w += 2) {
        const float2 v = *reinterpret_cast<const float2*>(row + w);
        sum.x += v.x, sum.y += v.y;
      }
      return sum.x + sum.y;
    }
  }

  AC_DEVICE static float silu(float x) { return divide_fast(x, 1 + exp2_fast(-log2_e * x)); }

  // The block's rows, once all warps have their sums: 16 lanes a tile.
  template <int which>
  AC_DEVICE void finish(unsigned tag, const FinishedScales<which>& scales_of_rows) const {
    using P = Product<which>;
    const float* from = sums + sums_before<which>();
    float factor = 1;
    if constexpr (norms(which)) {
      factor = rsqrtf(sum_of(from) * (1.f / op.hidden) + p.norm_eps) * (1 / lift);
      from += warps;
    }
    const int tiles = P::tile_count(), row = lane() % 16;
    [[maybe_unused]] int turn = 0;
    AC_UNROLL_BY(1)
    for (int first = warp() * 2; first < tiles; first += 2 * warps) {
      const int tile = first + lane() / 16;
      const bool has = tile < tiles;
      float x = sum_of(from + ((has ? tile : first) * 16 + row) * warps) * factor;
      if constexpr (has_row_scales || has_global) x *= scales_of_rows[turn++];
      const int all = P::first_tile() + tile;
      if constexpr (which == gate_up) {
        const float v = silu(x) * __shfl_xor_sync(full_warp, x, 8);
        const float other = __shfl_xor_sync(full_warp, v, 1);
        if (has && row < 8 && row % 2 == 0)
          store_word(words(of_gate_up) + all * 4 + row / 2, pack_pair<T>(v, other), tag);
      } else if constexpr (which == qkv) {
        const float other = __shfl_xor_sync(full_warp, x, 1);
        if (has && row % 2 == 0)
          store_word(words(of_qkv) + all * 8 + row / 2, pack_pair<T>(x, other), tag);
      } else {
        Word* const to = words(which == o ? of_o : of_down) + P::part() * op.hidden;
        if (has) store_word(to + hidden_word(all * 16 + row), __float_as_uint(x), tag);
      }
    }
  }

  AC_DEVICE void join_all() const {
    wait_for_dependency();
    const int sharing = sharers(load_fresh(p.position));
    if (sharing == 1 || !attends(sharing)) return;
    unsigned tag = load_fresh(p.done) + 1;
    AC_UNROLL_BY(1)
    for (int i = 0; i < p.layers; ++i, ++tag) join(tag);
  }

  AC_DEVICE void run() const {
    if (warp() == warps) prefetch_maps(0);
    if (threadIdx.x == 0) {
      AC_UNROLL_BY(1)
      for (int i = 0; i < plan.stages; ++i) barrier_init(full + i), barrier_init(empty + i, warps);
      for (int i = 0; i < 4; ++i)
        barrier_init(scales_there + i), barrier_init(scales_read + i, warps);
      barrier_init_visible();
    }
    const int words_of_table = p.layers * static_cast<int>(sizeof(LayerPointers) / 8);
    AC_UNROLL_BY(1)
    for (int i = threadIdx.x; i < words_of_table; i += plan.threads())
      reinterpret_cast<unsigned long long*>(layer)[i] =
          reinterpret_cast<const unsigned long long*>(p.layer)[i];
    launch_dependents();
    __syncthreads();
    if (warp() < warps)
      multiply_all();
    else if (warp() == warps)
      ask_for_all();
    else
      join_all();
  }
};

}  // namespace ac::kernels

#include "kernels/layers_attention.cuh"
#include "kernels/layers_input.cuh"
#include "kernels/layers_products.cuh"

namespace ac::kernels {

template <LayersOp op, LayersPlan plan>
AC_DEVICE void layers(const LayersParams& p) {
  AC_ALIGNED_SHARED(stages, 1024);
  Layers<op, plan>(p, stages).run();
}

// Defines the kernel `name`. Its blocks wait for each other: all of them run at once, one a
// multiprocessor.
#ifdef AC_HOST_DEVICE
#define AC_LAYERS_KERNEL(name, op, plan)                                          \
  AC_CLUSTER_KERNEL_ENTRY(name, ::ac::kernels::LayersParams, (plan).threads(), 0, \
                          ::ac::kernels::layers<op, plan>(p))
#else
#define AC_LAYERS_KERNEL(name, op, plan)                                  \
  AC_KERNEL_ENTRY(name, ::ac::kernels::LayersParams, (plan).threads(), 1, \
                  ::ac::kernels::layers<op, plan>(p))
#endif

}  // namespace ac::kernels
