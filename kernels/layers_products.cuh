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
    AC_DEVICE void load(float (&above)[lane_groups], float (&below)[lane_groups]) const {
      load_row(first, above), load_row(first + below_by, below);
    }
    AC_DEVICE static void load_row(const Scale* from, float (&to)[lane_groups]) {
      if constexpr (lane_groups == 2 && !spread && sizeof(Scale) == 2) {
        const unsigned both = *reinterpret_cast<const unsigned*>(from);
        const float2 v = unpack_pair<Scale>(both);
        to[0] = v.x, to[1] = v.y;
      } else {
        AC_UNROLL
        for (int i = 0; i < lane_groups; ++i) to[i] = to_float(from[i * pitch]);
      }
    }
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
    AC_DEVICE void load(float (&above)[1], float (&below)[1]) const {
      above[0] = first, below[0] = second;
    }
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
    AC_DEVICE void load(float (&above)[1], float (&below)[1]) const { above[0] = below[0] = 1; }
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
  // The first columns of tensor cores' right operand are the digits, from the highest, or one is
  // the input; nobody looks at the others. If groups are many, four pairs of columns have other
  // groups each, and 0 in the places of others.
  static constexpr int vectors = warp_columns / (has_digits ? 64 : 32);
  uint4 of[vectors];
  int sums[has_sums ? lane_groups : 1];  // of the input

  AC_DEVICE void load(const unsigned char* from, [[maybe_unused]] const int* from_sums) {
    if constexpr (coded) {
      if constexpr (has_digits) {
        const int column = lane() / 4;
        from += (digits == 2 ? 1 - column % 2 : column < 2 ? 2 - column : 0) * 64;
      }
      from += lane() % 4 * 16;
      AC_UNROLL
      for (int i = 0; i < vectors; ++i)
        of[i] = *reinterpret_cast<const uint4*>(from + i * (has_digits ? digits * 64 : 64));
      if constexpr (spread) {
        AC_UNROLL
        for (int i = 0; i < vectors; ++i) {
          if (!has_columns(2 * i)) of[i].x = of[i].y = 0;
          if (!has_columns(2 * i + 1)) of[i].z = of[i].w = 0;
        }
      }
      if constexpr (has_sums) {
        AC_UNROLL
        for (int i = 0; i < lane_groups; ++i)
          sums[i] = from_sums[spread ? i * 4 + lane() % 4 : i * sum_words + lane() % sum_words];
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
// Each group's sums times its scales. A lane has two digits of its rows, of three digits the
// highest two or the lowest one, or another lane's group if those are many.
template <LayersOp op, LayersPlan plan>
struct Layers<op, plan>::CodeSums {
  float above = 0, below = 0;
  template <class At>
  AC_DEVICE void add(const Weights& w, const Columns& x, const At& scale) {
    float of_above[lane_groups], of_below[lane_groups];
    scale.load(of_above, of_below);
    // Groups take turns, so that none waits for its sum.
    Parts parts[lane_groups] = {};
    AC_UNROLL
    for (int v = 0; v < of_group; ++v) AC_UNROLL
    for (int g = 0; g < lane_groups; ++g) multiply(parts[g], w, x, g * of_group + v);
    AC_UNROLL
    for (int g = 0; g < lane_groups; ++g) {
      const float2 group = sums_of_group(parts[g], x, g, scale);
      above += of_above[g] * group.x, below += of_below[g] * group.y;
    }
  }
  AC_DEVICE float2 in_units(const Staged& staged) const {
    const float unit = staged.unit / lifted;
    float2 all = make_float2(above, below);
    constexpr int sharers = spread ? 4 : digits == 3 ? 2 : 1;
    AC_UNROLL
    for (int d = 1; d < sharers; d *= 2) {
      all.x += __shfl_xor_sync(full_warp, all.x, d);
      all.y += __shfl_xor_sync(full_warp, all.y, d);
    }
    return make_float2(all.x * unit * staged.lower, all.y * unit * staged.lower);
  }

 private:
  static constexpr int of_group = Columns::vectors / lane_groups;
  // A group's sum, as tensor cores add it up. Of codes that are not multiplied as stored it has two
  // parts: of e2m1, what is above and below 0; else halves, so that neither waits for the other.
  struct Parts {
    typename Either<has_digits, int, float>::Type of[as_stored ? 1 : 2][4];
  };
  // Adds codes of one of the vectors of columns, times the input.
  AC_DEVICE static void multiply(Parts& to, const Weights& w, const Columns& columns, int v) {
    const uint4& x = columns.of[v];
    if constexpr (as_stored && in_nibbles) {
      unsigned first[4];
      AC_UNROLL
      for (int i = 0; i < 4; ++i) first[i] = first_codes(w.of[v][i]);
      mma_stored(to.of[0], w.of[v], {x.x, x.y});
      mma_stored(to.of[0], first, {x.z, x.w});
    } else if constexpr (as_stored) {
      mma_stored(to.of[0], w.of[2 * v], {x.x, x.y});
      mma_stored(to.of[0], w.of[2 * v + 1], {x.z, x.w});
    } else {
      AC_UNROLL
      for (int i = 0; i < 2; ++i) {
        const unsigned b[2] = {i == 0 ? x.x : x.z, i == 0 ? x.y : x.w};
        const unsigned above = w.of[v][2 * i], below = w.of[v][2 * i + 1];
        unsigned a[4];
        if constexpr (!in_nibbles) {
          const HalfPairs first = halves_of_e4m3(above), second = halves_of_e4m3(below);
          mma_16x8x16<f16>(to.of[i], {first.first, second.first, first.second, second.second}, b);
        } else if constexpr (is_whole(op.format.codes)) {
          a[0] = even_codes(above), a[1] = even_codes(below);
          a[2] = odd_codes(above), a[3] = odd_codes(below);
          mma_16x8x32(to.of[i], a, b);
        } else {
          bytes_of_e2m1(above, a[0], a[2]), bytes_of_e2m1(below, a[1], a[3]);
          mma_16x8x32(to.of[0], a, b);
          bytes_of_e2m1(negated_e2m1(above), a[0], a[2]);
          bytes_of_e2m1(negated_e2m1(below), a[1], a[3]);
          mma_16x8x32(to.of[1], a, b);
        }
      }
    }
  }
  // a b + c, also where it is too large, as it is of an input that is not a number.
  AC_DEVICE static int wrapped(int a, int b, int c) {
    return static_cast<int>(static_cast<unsigned>(a) * static_cast<unsigned>(b) +
                            static_cast<unsigned>(c));
  }
  // What a lane has of its two rows.
  template <class At>
  AC_DEVICE static float2 sums_of_group(const Parts& parts, [[maybe_unused]] const Columns& x,
                                        [[maybe_unused]] int g, [[maybe_unused]] const At& scale) {
    const auto part = [&](int i) {
      if constexpr (as_stored)
        return parts.of[0][i];
      else if constexpr (in_nibbles && is_small_float(op.format.codes))
        return parts.of[0][i] - parts.of[1][i];
      else
        return parts.of[0][i] + parts.of[1][i];
    };
    if constexpr (has_digits) {
      const int high = digits < 3 ? 256 : lane() % 4 == 0 ? 65536 : 1;
      const int low = digits < 3 ? 1 : lane() % 4 == 0 ? 256 : 0;
      int above = 0, below = 0;
      if constexpr (has_zeros) {
        constexpr int middle = as_stored ? 0 : middle_of(op.format.codes);
        above = wrapped(middle - scale.zero_above(g), x.sums[g], 0);
        below = wrapped(middle - scale.zero_below(g), x.sums[g], 0);
      } else if constexpr (has_sums) {
        above = below = x.sums[g];
      }
      above = wrapped(part(1), low, wrapped(part(0), high, above));
      below = wrapped(part(3), low, wrapped(part(2), high, below));
      return make_float2(static_cast<float>(above), static_cast<float>(below));
    } else {
      return make_float2(part(0), part(2));
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
  constexpr bool small_floats = is_small_float(op.format.codes);  // which take more registers
  constexpr int room = !coded ? 6 : in_nibbles && !small_floats ? 4 : 3;  // panels of a batch
  constexpr int longest = small_floats ? 2 : 4;                           // in steps
  constexpr int batch = most <= room ? most : divide_up(most, divide_up(most, longest));
  constexpr int together = most > room                   ? 1
                           : room / most < P::most_tiles ? room / most
                                                         : P::most_tiles;
  const int tiles = P::tile_count(), steps = P::step_count();
  const auto has_step = [&](int step) {
    return (P::steps % P::parts == 0 && most % batch == 0) || step < steps;
  };
  const SharedAddress row = address_in_shared(panel_row<which>());
  Weights w[together][batch];
  // A stage is freed once the next one is on its way to registers.
  const auto take_from = [&](int tile, int step) {
    const auto has = [&](int j) { return tile + j / batch < tiles && has_step(step + j % batch); };
    AC_UNROLL
    for (int j = 0; j <= together * batch; ++j) {
      if (j < together * batch) {
        Weights& to = w[j / batch][j % batch];
        if (has(j))
          take(state.ring, row, to);
        else if constexpr (coded)
          to.forget();
        else
          to = {};  // with any values, sm_100 runs out of registers
      }
      if (j > 0 && has(j - 1)) free_stage(w[(j - 1) / batch][(j - 1) % batch], state.nothing);
    }
  };
  take_from(0, 0);
  const auto scales_of_panels = panel_scales<which>(state);
  const Staged staged = stage_input();
  stamp(state, link_of(which), Point::input);
  __syncwarp();
  if (tiles == 0) return 0;
  // Where a lane's first row has this warp's sums.
  float* to = sums + sums_before<which>() + (lane() / 4 + norms(which)) * warps + warp();
  const bool has_last =
      P::k % step_columns == 0 || warp() * warp_columns < P::columns(P::first_step() + steps - 1);
  Columns columns;
  constexpr bool one_step = coded && most == 1;
  const auto load_columns = [&](int step) {
    columns.load(input() + step * input_bytes,
                 sums_of_input() + step * groups_of_panel * sum_words);
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
