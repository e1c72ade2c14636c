// A product inside the launch of all layers: members of Layers (kernels/layers.cuh), which includes
// this file. How a warp multiplies its columns of a block's tiles, and with which scales.
#pragma once

#include "kernels/layers.cuh"

namespace ac::kernels {

// ---- scales

// Whose row a row of this block's tiles is in a product, and which of its rows.
template <LayersOp op, LayersPlan plan>
template <int which>
AC_DEVICE const void* Layers<op, plan>::matrix_of(const OfMatrices& of, int tile, int row_of_tile,
                                                  int& row) {
  constexpr bool pair = which == gate_up;
  row = (Product<which>::first_tile() + tile) * (pair ? 8 : 16) +
        (pair ? row_of_tile % 8 : row_of_tile);
  const void* from = which == o ? of.o : which == down ? of.down : of.q;
  if constexpr (pair) from = row_of_tile < 8 ? of.gate : of.up;
  if constexpr (which == qkv) {
    if (row >= op.query_rows() + op.kv_rows())
      from = of.v, row -= op.query_rows() + op.kv_rows();
    else if (row >= op.query_rows())
      from = of.k, row -= op.query_rows();
  }
  return from;
}
// Its scale of columns from one on.
template <LayersOp op, LayersPlan plan>
template <int which>
AC_DEVICE float Layers<op, plan>::load_scale(const LayerPointers& l, int tile, int row_of_tile,
                                             int column) {
  int row = 0;
  const void* const from = matrix_of<which>(l.scales, tile, row_of_tile, row);
  const int at = op.format.row_of_scales(row) * Product<which>::groups +
                 (op.format.columns > 0 ? column / op.format.columns : 0);
  if constexpr (sizeof(Scale) == 4)
    return __uint_as_float(load_early(static_cast<const unsigned*>(from) + at));
  else
    return to_float(Scale{load_early(static_cast<const unsigned short*>(from) + at)});
}

// Scales of the rows that a lane finishes, in the order in which it does: their own, or of the
// whole matrix.
template <LayersOp op, LayersPlan plan>
template <int which>
struct Layers<op, plan>::FinishedScales {
  using P = Product<which>;
  static constexpr int most =
      has_row_scales || has_global ? divide_up(P::most_tiles, 2 * warps) : 0;
  float of[most > 0 ? most : 1] = {};

  AC_DEVICE void load(const LayerPointers& l) {
    if constexpr (most > 0) {
      AC_UNROLL
      for (int i = 0; i < most; ++i) {
        const int tile = (i * warps + warp()) * 2 + lane() / 16;
        of[i] = tile < P::tile_count() ? of_row(l, tile) : 0.f;
      }
    }
  }
  AC_DEVICE float operator[](int i) const {
    if constexpr (most == 0) return 1;
    return of[most == 1 ? 0 : i];
  }

 private:
  AC_DEVICE static float of_row(const LayerPointers& l, int tile) {
    if constexpr (has_global) {
      int row = 0;
      const void* const from = matrix_of<which>(l.beside, tile, lane() % 16, row);
      return __uint_as_float(load_early(static_cast<const unsigned*>(from)));
    } else {
      return load_scale<which>(l, tile, lane() % 16, 0);
    }
  }
};

// Scales of what a warp multiplies, in groups, and zero points: of a lane's rows, lane / 4 of a
// tile and the one 8 rows below.
template <LayersOp op, LayersPlan plan>
template <int which>
struct Layers<op, plan>::GroupScales {
  using P = Product<which>;
  static constexpr int groups = P::groups;
  // Rows of gate come before those of up.
  static constexpr int rows_of_tile = which == gate_up ? 8 : 16;
  const Scale* const first;
  const unsigned char* const zero;
  const int below;

  AC_DEVICE GroupScales(const Layers& of, const State& state)
      : first(of.scales + start()),
        zero(of.zeros + start()),
        below((which == gate_up ? 8 * P::tile_count() : 8) * groups) {
    if (P::tile_count() > 0) barrier_wait(of.scales_there + which, state.layer & 1);
  }
  struct At {
    static constexpr int pitch = spread ? 4 : 1;
    const Scale* first;
    const unsigned char* zero;
    int below_by;
    AC_DEVICE float above(int group) const { return to_float(first[group * pitch]); }
    AC_DEVICE float below(int group) const { return to_float(first[below_by + group * pitch]); }
    AC_DEVICE int zero_above(int group) const { return zero[group * pitch]; }
    AC_DEVICE int zero_below(int group) const { return zero[below_by + group * pitch]; }
  };
  AC_DEVICE At at(int tile, int step, int) const {
    const int by = tile * rows_of_tile * groups + step * warps * groups_of_panel;
    return {first + by, zero + by, below};
  }

 private:
  AC_DEVICE static int start() {
    return groups_before<which>() + lane() / 4 * groups +
           (P::first_step() * warps + warp()) * groups_of_panel + (spread ? lane() % 4 : 0);
  }
};
// In blocks, which have whole panels: lanes have those of panels, one after another.
template <LayersOp op, LayersPlan plan>
template <int which>
struct Layers<op, plan>::BlockScales {
  using P = Product<which>;
  static constexpr int each = divide_up(P::most_tiles * P::most_steps, 32);
  float of[each], of_up[which == gate_up ? each : 1];

  AC_DEVICE BlockScales(const Layers& in, const State& state) {
    const int steps = P::step_count(), panels = P::tile_count() * steps;
    AC_UNROLL
    for (int i = 0; i < each; ++i) {
      const int panel = i * 32 + lane(), tile = panel / steps;
      const int column = ((P::first_step() + panel % steps) * warps + warp()) * warp_columns;
      const bool has = panel < panels && column < P::k;
      of[i] = has ? load_scale<which>(in.layer[state.layer], tile, 0, column) : 0.f;
      if constexpr (which == gate_up)
        of_up[i] = has ? load_scale<which>(in.layer[state.layer], tile, 8, column) : 0.f;
    }
  }
  struct At {
    float first, second;
    AC_DEVICE float above(int) const { return first; }
    AC_DEVICE float below(int) const { return second; }
  };
  AC_DEVICE At at(int, int, int panel) const {
    float first = of[0], second = of_up[0];
    AC_UNROLL
    for (int i = 1; i < each; ++i)
      if (panel / 32 == i) first = of[i], second = of_up[which == gate_up ? i : 0];
    first = __shfl_sync(full_warp, first, panel % 32);
    return {first, which == gate_up ? __shfl_sync(full_warp, second, panel % 32) : first};
  }
};

// None: rows have one each, or one is of everything.
template <LayersOp op, LayersPlan plan>
struct Layers<op, plan>::NoScales {
  struct At {
    AC_DEVICE float above(int) const { return 1; }
    AC_DEVICE float below(int) const { return 1; }
  };
  AC_DEVICE At at(int, int, int) const { return {}; }
};

template <LayersOp op, LayersPlan plan>
template <int which>
AC_DEVICE auto Layers<op, plan>::panel_scales(const State& state) const {
  if constexpr (has_groups)
    return GroupScales<which>(*this, state);
  else if constexpr (has_blocks)
    return BlockScales<which>(*this, state);
  else
    return NoScales();
}

// ---- columns of an input, and sums

// A warp's columns of an input, as tensor cores take them.
template <LayersOp op, LayersPlan plan>
struct Layers<op, plan>::Columns {
  // The first columns of tensor cores' right operand are the high digits and the low ones, or one
  // is the input; nobody looks at the others. If groups are many, four pairs of columns have other
  // groups each, and 0 in the places of others.
  static constexpr int vectors = has_digits ? warp_columns / 64 : warp_columns / 32;
  uint4 of[vectors];
  int sums[has_zeros ? lane_groups : 1];  // of the input

  AC_DEVICE void load(const unsigned char* from, [[maybe_unused]] const int* from_sums) {
    if constexpr (coded) {
      from += (has_digits ? lane() / 4 % 2 * 64 : 0) + lane() % 4 * 16;
      AC_UNROLL
      for (int i = 0; i < vectors; ++i)
        of[i] = *reinterpret_cast<const uint4*>(from + i * (has_digits ? 128 : 64));
      if constexpr (spread) {
        AC_UNROLL
        for (int i = 0; i < vectors; ++i) {
          if (!has_columns(2 * i)) of[i].x = of[i].y = 0;
          if (!has_columns(2 * i + 1)) of[i].z = of[i].w = 0;
        }
      }
      if constexpr (has_zeros) {
        AC_UNROLL
        for (int i = 0; i < lane_groups; ++i) sums[i] = from_sums[spread ? i * 4 + lane() % 4 : i];
      }
    } else {
      AC_UNROLL
      for (int i = 0; i < vectors; ++i) {
        unsigned b[4];
        load_matrices(b, from + i * 64 + lane() / 8 * 16);
        of[i] = make_uint4(b[0], b[1], b[2], b[3]);
      }
    }
  }

 private:
  // Whether a lane's pair of columns has the group that its places of 32 are of. Of codes of 4 bits
  // four lanes have 8 places each.
  AC_DEVICE static bool has_columns(int block) {
    return (block * 32 + lane() % 4 * 8) / op.format.columns % 4 == lane() / 8;
  }
};

// Sums of a lane's two rows: lane / 4 of a tile, and the one 8 rows below.
template <LayersOp op, LayersPlan plan>
struct Layers<op, plan>::PlainSums {
  float c[2][4] = {};
  template <class At>
  AC_DEVICE void add(const Weights& w, const Columns& x, const At&) {
    AC_UNROLL
    for (int i = 0; i < 2; ++i) {
      mma_16x8x16<T>(c[0], w.of[2 * i], {x.of[i].x, x.of[i].y});
      mma_16x8x16<T>(c[1], w.of[2 * i + 1], {x.of[i].z, x.of[i].w});
    }
  }
  AC_DEVICE float2 in_units(const Staged&) const {
    return make_float2(c[0][0] + c[1][0], c[0][2] + c[1][2]);
  }
};
// Each group's sums times its scales.
template <LayersOp op, LayersPlan plan>
struct Layers<op, plan>::CodeSums {
  float above = 0, below = 0;
  template <class At>
  AC_DEVICE void add(const Weights& w, const Columns& x, const At& scale) {
    AC_UNROLL
    for (int g = 0; g < lane_groups; ++g) {
      const float2 group = sums_of_group(w, x, g, scale);
      above += scale.above(g) * group.x, below += scale.below(g) * group.y;
    }
  }
  AC_DEVICE float2 in_units(const Staged& staged) const {
    const float unit = staged.unit / lifted;
    float2 all = make_float2(above, below);
    if constexpr (spread) {
      AC_UNROLL
      for (int d = 1; d < 4; d *= 2) {
        all.x += __shfl_xor_sync(full_warp, all.x, d);
        all.y += __shfl_xor_sync(full_warp, all.y, d);
      }
    }
    return make_float2(all.x * unit * staged.lower, all.y * unit * staged.lower);
  }
  // Codes of a group's columns times the input; of a lane's group of four, if they are many.
  template <class At>
  AC_DEVICE static float2 sums_of_group(const Weights& w, const Columns& x, int g,
                                        [[maybe_unused]] const At& scale) {
    constexpr int of_group = warp_columns / 32 / lane_groups;  // 32 columns each
    using Sum = typename Either<has_digits, int, float>::Type;
    Sum c[2][4] = {};  // two sums, so that one need not wait for the other
    AC_UNROLL
    for (int v = g * of_group; v < (g + 1) * of_group; ++v) {
      if constexpr (has_digits) {
        const uint4& both = x.of[v / 2];
        unsigned a[4];
        if constexpr (in_nibbles) {
          const unsigned first = w.of[v / 2][v % 2 * 2], second = w.of[v / 2][v % 2 * 2 + 1];
          if constexpr (even_first) {
            a[0] = even_codes(first), a[1] = even_codes(second);
            a[2] = odd_codes(first), a[3] = odd_codes(second);
          } else {
            bytes_of_e2m1(first, a[0], a[2]), bytes_of_e2m1(second, a[1], a[3]);
          }
        } else {
          AC_UNROLL
          for (int i = 0; i < 4; ++i) a[i] = signed_bytes(w.of[v][i]);
        }
        mma_16x8x32(c[v % 2], a, {v % 2 == 0 ? both.x : both.z, v % 2 == 0 ? both.y : both.w});
      } else {
        AC_UNROLL
        for (int i = 0; i < 2; ++i) {
          const HalfPairs a = halves_of_e4m3(w.of[v][2 * i]),
                          b = halves_of_e4m3(w.of[v][2 * i + 1]);
          mma_16x8x16<f16>(c[i], {a.first, b.first, a.second, b.second},
                           {i == 0 ? x.of[v].x : x.of[v].z, i == 0 ? x.of[v].y : x.of[v].w});
        }
      }
    }
    if constexpr (has_digits) {
      int above = (c[0][0] + c[1][0]) * 256 + c[0][1] + c[1][1];
      int below = (c[0][2] + c[1][2]) * 256 + c[0][3] + c[1][3];
      if constexpr (has_zeros) {
        constexpr int middle = middle_of(op.format.codes);
        above += (middle - scale.zero_above(g)) * x.sums[g];
        below += (middle - scale.zero_below(g)) * x.sums[g];
      }
      return make_float2(static_cast<float>(above), static_cast<float>(below));
    } else {
      return make_float2(c[0][0] + c[1][0], c[0][2] + c[1][2]);
    }
  }
};

// ---- all of it

// Weights come in batches of some tiles, or of some steps of one tile: the first is in registers
// before the input is there.
template <LayersOp op, LayersPlan plan>
template <int which, class Stage>
AC_DEVICE float Layers<op, plan>::multiply_panels(State& state, Stage stage_input) const {
  using P = Product<which>;
  constexpr int most = P::most_steps;
  constexpr int room = !coded ? 6 : in_nibbles ? 4 : 3;  // panels of a batch
  constexpr int batch = most <= room ? most : divide_up(most, divide_up(most, 4));
  constexpr int together = most > room                   ? 1
                           : room / most < P::most_tiles ? room / most
                                                         : P::most_tiles;
  const int tiles = P::tile_count(), steps = P::step_count();
  const auto has_step = [&](int step) {
    return (P::steps % P::parts == 0 && most % batch == 0) || step < steps;
  };
  Weights w[together][batch];
  // A stage is freed once the next one is on its way to registers.
  const auto take_from = [&](int tile, int step) {
    const auto has = [&](int j) { return tile + j / batch < tiles && has_step(step + j % batch); };
    AC_UNROLL
    for (int j = 0; j <= together * batch; ++j) {
      if (j < together * batch) {
        Weights& to = w[j / batch][j % batch];
        if (has(j))
          take<which>(state.ring, to);
        else
          to = {};  // else registers keep what they had, and the compiler runs out of them
      }
      if (j > 0 && has(j - 1)) free_stage(w[(j - 1) / batch][(j - 1) % batch], state.nothing);
    }
  };
  take_from(0, 0);
  const auto scales_of_panels = panel_scales<which>(state);
  const Staged staged = stage_input();
  __syncwarp();
  if (tiles == 0) return 0;
  // Where a lane's first row has this warp's sums.
  float* to = sums + sums_before<which>() + (lane() / 4 + norms(which)) * warps + warp();
  const bool has_last =
      P::k % step_columns == 0 || warp() * warp_columns < P::columns(P::first_step() + steps - 1);
  Columns columns;
  constexpr bool one_step = coded && most == 1;
  const auto load_columns = [&](int step) {
    columns.load(input() + step * input_bytes, sums_of_input() + step * groups_of_panel);
  };
  if constexpr (one_step) load_columns(0);
  const auto keep = [&](const Sums& of) {
    const float2 rows = of.in_units(staged);
    if (lane() % 4 == 0) to[0] = rows.x, to[8 * warps] = rows.y;
    to += 16 * warps;
  };
  AC_UNROLL_BY(1)
  for (int tile = 0; tile < tiles; tile += together) {
    Sums all[together];
    AC_UNROLL_BY(1)
    for (int step = 0; step < most; step += batch) {
      if (tile + step > 0) take_from(tile, step);
      const auto has = [&](int i) {
        return has_step(step + i) && (has_last || step + i < steps - 1);
      };
      const auto add = [&](int t, int i) {
        const int panel = (tile + t) * steps + step + i;
        all[t].add(w[t][i], columns, scales_of_panels.at(tile + t, step + i, panel));
      };
      // Tiles of codes share what is read of the input; others' sums come one after another, as
      // they take more registers.
      if constexpr (coded) {
        AC_UNROLL
        for (int i = 0; i < batch; ++i) {
          if (!has(i)) continue;
          if constexpr (!one_step) load_columns(step + i);
          AC_UNROLL
          for (int t = 0; t < together; ++t)
            if (tile + t < tiles) add(t, i);
        }
      } else {
        AC_UNROLL
        for (int t = 0; t < together; ++t) {
          if (tile + t >= tiles) continue;
          AC_UNROLL
          for (int i = 0; i < batch; ++i)
            if (has(i)) load_columns(step + i), add(t, i);
          if (step + batch >= most) keep(all[t]);
        }
      }
    }
    AC_UNROLL
    for (int t = 0; t < together; ++t)
      if (coded && tile + t < tiles) keep(all[t]);
  }
  if constexpr (has_groups) {
    publish_reads();  // of scales
    __syncwarp();
    if (lane() == 0) barrier_arrive(scales_read + which);
  }
  return staged.squares;
}

}  // namespace ac::kernels
