// Inputs of products inside the launch of all layers: members of Layers (kernels/layers.cuh), which
// includes this file. A warp waits for its columns and leaves them in shared memory, as elements,
// as digits or as float16.
#pragma once

#include "kernels/layers.cuh"

namespace ac::kernels {

// What all blocks computed joins the hidden state.
template <LayersOp op, LayersPlan plan>
template <int parts>
AC_DEVICE void Layers<op, plan>::add_to_hidden(State& state, const Word* from, unsigned tag) const {
  unsigned v[2 * parts * hidden_pieces];
  // A warp without columns of the last step looks at others.
  fetch_words<parts * hidden_pieces, 2>(
      [&](int i) {
        const int at = hidden_column(i / parts), part = i % parts;
        return from + part * op.hidden + (at < op.hidden ? hidden_word(at) : 0);
      },
      tag, v);
  AC_UNROLL
  for (int i = 0; i < hidden_pieces; ++i) AC_UNROLL
  for (int part = 0; part < parts; ++part) {
    state.h[i].x += __uint_as_float(v[(i * parts + part) * 2]);
    state.h[i].y += __uint_as_float(v[(i * parts + part) * 2 + 1]);
  }
}

// The hidden state times a norm's weights, as a product's input; the norm's factor comes later.
template <LayersOp op, LayersPlan plan>
AC_DEVICE auto Layers<op, plan>::stage_hidden(const State& state,
                                              const unsigned (&norm)[hidden_pieces]) const
    -> Staged {
  float squares = 0;
  const auto normed = [&](int i) {
    const float2 h = state.h[i], w = unpack_pair<T>(norm[i]);
    squares += h.x * h.x + h.y * h.y;
    const float offset = p.norm_offset * lift;
    return make_float2(h.x * fmaf(w.x, lift, offset), h.y * fmaf(w.y, lift, offset));
  };
  if constexpr (coded) {
    float x[2 * hidden_pieces];
    AC_UNROLL
    for (int i = 0; i < hidden_pieces; ++i) {
      const float2 v = has_column(i) ? normed(i) : make_float2(0, 0);
      x[2 * i] = v.x, x[2 * i + 1] = v.y;
    }
    const DigitUnit unit = stage_in_units(x);
    return {squares, unit.unit, unit.lower};
  } else {
    unsigned* const to = reinterpret_cast<unsigned*>(input()) + lane();
    AC_UNROLL
    for (int i = 0; i < hidden_pieces; ++i) {
      if (!has_column(i)) continue;
      const float2 v = normed(i);
      to[i * 32] = pack_pair<T>(v.x, v.y);
    }
    return {squares};
  }
}

// What a lane has of its warp's columns, four neighbours of each 128: as digits, or as float16.
template <LayersOp op, LayersPlan plan>
template <int n>
AC_DEVICE DigitUnit Layers<op, plan>::stage_in_units(const float (&x)[n]) const {
  unsigned largest = 0;
  AC_UNROLL
  for (int i = 0; i < n; ++i) {
    const unsigned bits = __float_as_uint(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  const DigitUnit unit = digit_unit(largest_of_warp(largest));
  if constexpr (has_digits) {
    // 64 columns have their lowest digits, then the next. Of each a lane of tensor cores takes 16
    // bytes: two words for one of their instructions, and two for the next.
    constexpr bool halves = in_nibbles && is_whole(op.format.codes);
    const int place = in_nibbles ? lane() % 8 / 2 * 16 + lane() % 2 * (halves ? 2 : 4)
                                 : lane() % 4 * 16 + lane() % 8 / 4 * 4;
    unsigned char* const to = input() + lane() / 16 * (digits * 64) + place +
                              lane() % 16 / 8 * (halves && as_stored ? 4 : 8);
    unsigned sums_of_lane[n / 4];
    AC_UNROLL
    for (int i = 0; i < n / 4; ++i) {
      unsigned char* const at = to + i * (2 * digits * 64);
      unsigned v[4];
      AC_UNROLL
      for (int j = 0; j < 4; ++j) v[j] = in_whole_units(x[4 * i + j], unit);
      if constexpr (has_sums) sums_of_lane[i] = (v[0] + v[1]) + (v[2] + v[3]);
      if constexpr (halves && as_stored) {
        store_digits<3>(at, v[1], v[3]);
        store_digits<3>(at + 8, beside_stored(v[0], v[1]), beside_stored(v[2], v[3]));
      } else if constexpr (halves) {
        store_digits<2>(at, v[0], v[2]);
        store_digits<2>(at + 4, v[1], v[3]);
      } else {
        const unsigned first = two_digits(v[0], v[1]), second = two_digits(v[2], v[3]);
        *reinterpret_cast<unsigned*>(at) = __byte_perm(first, second, 0x5410);
        *reinterpret_cast<unsigned*>(at + 64) = __byte_perm(first, second, 0x7632);
      }
    }
    if constexpr (has_sums) stage_sums(sums_of_lane);
  } else {
    unsigned char* const to = input() + lane() / 8 * 64 + lane() % 4 * 16 + lane() % 8 / 4 * 8;
    AC_UNROLL
    for (int i = 0; i < n / 4; ++i) {
      float v[4];
      AC_UNROLL
      for (int j = 0; j < 4; ++j) v[j] = in_units(x[4 * i + j], unit);
      *reinterpret_cast<uint2*>(to + i * 256) =
          make_uint2(pack_pair<f16>(v[0], v[1]), pack_pair<f16>(v[2], v[3]));
    }
  }
  return unit;
}

// The digits of two numbers, each 64 bytes behind the one below it.
template <LayersOp op, LayersPlan plan>
template <int count>
AC_DEVICE void Layers<op, plan>::store_digits(unsigned char* to, unsigned first, unsigned second) {
  const unsigned a = digits_of(first), b = digits_of(second);
  AC_UNROLL
  for (int j = 0; j < count; ++j)
    *reinterpret_cast<unsigned short*>(to + j * 64) =
        static_cast<unsigned short>(__byte_perm(a, b, (4 + j) * 16 + j));
}

// Sums of an input's groups, of what lanes have of each 128 columns, times what a code's zero
// point is times; or that already, if there is one zero point.
template <LayersOp op, LayersPlan plan>
template <int n>
AC_DEVICE void Layers<op, plan>::stage_sums(const unsigned (&of_lane)[n]) const {
  constexpr int columns = warp_columns / groups_of_panel, lanes = columns < 128 ? columns / 4 : 32;
  constexpr unsigned times = has_zeros ? lifted : 0u - lifted * middle_of(op.format.codes);
  constexpr int turns = divide_up(columns, 128);
  AC_UNROLL
  for (int i = 0; i < n; i += turns) {
    unsigned sum = of_lane[i];
    AC_UNROLL
    for (int turn = 1; turn < turns; ++turn) sum += of_lane[i + turn];
    if constexpr (lanes == 32) {
      sum = sum_of_warp(sum);
    } else {
      AC_UNROLL
      for (int d = lanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(full_warp, sum, d);
    }
    if (lane() % lanes == 0) {
      int* const to = sums_of_input() + (i / turns * (32 / lanes) + lane() / lanes) * sum_words;
      to[0] = static_cast<int>(sum * times);
      if constexpr (sum_words == 2) to[1] = 0;  // for the lane of the lowest digit
    }
  }
}

// An input that blocks hand on in pairs.
template <LayersOp op, LayersPlan plan>
template <int which>
AC_DEVICE auto Layers<op, plan>::stage_pairs(const Word* from, unsigned tag) const -> Staged {
  using P = Product<which>;
  if (P::tile_count() == 0) return {};
  const int steps = P::step_count();
  // Words that a lane takes side by side, and how often of a step.
  constexpr int each = pieces % 2 == 0 ? 2 : 1, turns = pieces / each;
  unsigned v[P::most_steps * turns * each];
  const int column = P::first_step() * step_columns + warp() * warp_columns;
  const auto has = [&](int step) { return step < steps && column + step * step_columns < P::k; };
  // Who has fewer columns looks at the first one of all.
  fetch_words<P::most_steps * turns, each>(
      [&](int i) {
        const int at = (column + i / turns * step_columns) / 2 + (i % turns * 32 + lane()) * each;
        return from + (has(i / turns) ? at : 0);
      },
      tag, v);
  if constexpr (coded) {
    float x[P::most_steps * 2 * pieces];
    AC_UNROLL
    for (int i = 0; i < P::most_steps * pieces; ++i) {
      const float2 both = has(i / pieces) ? unpack_pair<T>(v[i]) : make_float2(0, 0);
      x[2 * i] = both.x, x[2 * i + 1] = both.y;
    }
    const DigitUnit unit = stage_in_units(x);
    return {0, unit.unit, unit.lower};
  }
  unsigned* const to = reinterpret_cast<unsigned*>(input()) + lane() * each;
  AC_UNROLL
  for (int i = 0; i < P::most_steps * turns; ++i) {
    if (!has(i / turns)) continue;
    if constexpr (each == 2)
      *reinterpret_cast<uint2*>(to + i * 64) = make_uint2(v[2 * i], v[2 * i + 1]);
    else
      to[i * 32] = v[i];
  }
  return {};
}

}  // namespace ac::kernels
