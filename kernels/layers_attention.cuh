// Attention inside the launch of all layers: members of Layers (kernels/layers.cuh), which includes
// this file. A block has some of the tokens of one head of keys, or all of them.
#pragma once

#include "kernels/layers.cuh"
#include "kernels/row_codes.cuh"

namespace ac::kernels {

// A head of queries or keys, normed and turned: word j of a lane has dimensions 64 j + 2 lane and
// the next.
template <LayersOp op, LayersPlan plan>
AC_DEVICE void Layers<op, plan>::turn(const unsigned (&raw)[dim_words],
                                      const unsigned (&norm)[dim_words], const float4& angles,
                                      float2 (&x)[dim_words]) const {
  AC_UNROLL
  for (int j = 0; j < dim_words; ++j) x[j] = unpack_pair<T>(raw[j]);
  if constexpr (op.head_norms) {
    float squares = 0;
    AC_UNROLL
    for (int j = 0; j < dim_words; ++j) squares += x[j].x * x[j].x + x[j].y * x[j].y;
    AC_UNROLL
    for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(full_warp, squares, d);
    const float factor = rsqrtf(squares / dim + p.head_norm_eps);
    AC_UNROLL
    for (int j = 0; j < dim_words; ++j) {
      const float2 w = unpack_pair<T>(norm[j]);
      x[j].x *= factor * (w.x + p.head_norm_offset), x[j].y *= factor * (w.y + p.head_norm_offset);
    }
  }
  if constexpr (dim == 128) {
    const float2 low = x[0], high = x[1];
    x[0].x = low.x * angles.x - high.x * angles.y, x[1].x = high.x * angles.x + low.x * angles.y;
    x[0].y = low.y * angles.z - high.y * angles.w, x[1].y = high.y * angles.z + low.y * angles.w;
  } else {  // the other half is 16 lanes away
    const float sign = lane() < 16 ? -1.f : 1.f;
    const float2 other =
        make_float2(__shfl_xor_sync(full_warp, x[0].x, 16), __shfl_xor_sync(full_warp, x[0].y, 16));
    x[0].x = x[0].x * angles.x + sign * other.x * angles.y;
    x[0].y = x[0].y * angles.z + sign * other.y * angles.w;
  }
}

// Writes this token's key or value to the cache as codes. The warp holds the row as turn() does;
// afterwards it holds the values of the codes, without their scale.
template <LayersOp op, LayersPlan plan>
AC_DEVICE void Layers<op, plan>::append_codes(unsigned (&row)[dim_words], bool is_value, int tokens,
                                              const LayerPointers& l) const {
  unsigned largest = 0;
  AC_UNROLL
  for (int j = 0; j < dim_words; ++j) {
    const float2 x = unpack_pair<T>(row[j]);
    const unsigned first = magnitude_bits(x.x), second = magnitude_bits(x.y);
    largest = first > largest ? first : largest, largest = second > largest ? second : largest;
  }
  const float scale = row_scale(largest_of_warp(largest)), inverse = inverse_scale(scale);
  const bool has_room = tokens < p.capacity;
  const long long slot = static_cast<long long>(kv_head()) * p.capacity + tokens;
  auto* const cached = static_cast<unsigned char*>(is_value ? l.values : l.keys) + slot * dim;
  AC_UNROLL
  for (int j = 0; j < dim_words; ++j) {
    const float2 x = unpack_pair<T>(row[j]);
    const e4m3 first = nearest_e4m3(x.x * inverse), second = nearest_e4m3(x.y * inverse);
    if (has_room)
      reinterpret_cast<unsigned short*>(cached)[32 * j + lane()] =
          static_cast<unsigned short>(first.bits | second.bits << 8);
    row[j] = pack_pair<T>(to_float(first), to_float(second));
  }
  if (lane() != 0) return;
  if (has_room) (is_value ? l.value_scales : l.key_scales)[slot] = scale;
  new_scales[is_value] = scale;
}

template <LayersOp op, LayersPlan plan>
struct Layers<op, plan>::CacheScales {
  float of[warp_keys / 8][2] = {};

  // Loads the scales of the warp's keys, which begin at token `first`. Where a key is not there,
  // the last token's scale is read instead: nothing uses it.
  AC_DEVICE void load(const float* all, int capacity, int first, int tokens) {
    if constexpr (op.fp8) {
      const float* const head = all + static_cast<long long>(kv_head()) * capacity;
      AC_UNROLL
      for (int n = 0; n < warp_keys / 8; ++n) AC_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int token = first + n * 8 + lane() % 4 * 2 + j;
        of[n][j] = load_fresh(head + (token < tokens ? token : tokens - 1));
      }
    }
  }
};

template <LayersOp op, LayersPlan plan>
AC_DEVICE void Layers<op, plan>::attend(State& state, const LayerPointers& l) const {
  const int sharing = sharers(state.tokens);
  if (!attends(sharing)) {
    stamp(state, Link::attention, Point::input), stamp(state, Link::attention, Point::computed);
    return;
  }
  const unsigned tag = state.tag;
  const bool appends = split() == sharing - 1;
  // Scales are loaded a round ahead: the first ones while the warp waits for queries.
  CacheScales key_scales, value_scales;
  if (state.tokens > 0) {
    const int first = first_token(0, warp(), sharing);
    key_scales.load(l.key_scales, p.capacity, first, state.tokens);
    value_scales.load(l.value_scales, p.capacity, first, state.tokens);
  }
  // Queries, and this token's key and value, a head a warp.
  AC_UNROLL_BY(1)
  for (int task = warp(); task < group + (appends ? 2 : 0); task += warps) {
    const bool is_query = task < group, is_value = task == group + 1;
    unsigned norm[dim_words] = {}, raw[dim_words];
    const int head = is_query   ? kv_head() * group + task
                     : is_value ? op.heads + op.kv_heads + kv_head()
                                : op.heads + kv_head();
    if constexpr (op.head_norms) {
      const auto* const weights = static_cast<const unsigned*>(is_query ? l.q_norm : l.k_norm);
      AC_UNROLL
      for (int j = 0; j < dim_words; ++j)
        if (!is_value) norm[j] = load_early(weights + 32 * j + lane());
    }
    fetch_words<dim_words, 1>(
        [&](int j) { return words(of_qkv) + head * (dim / 2) + lane() + 32 * j; }, tag, raw);
    T* const here = is_query ? queries + task * dim : is_value ? value : key;
    unsigned* const to = reinterpret_cast<unsigned*>(here) + lane();
    if (!is_value) {
      float2 x[dim_words];
      turn(raw, norm, state.angles, x);
      const float factor = is_query ? p.scale * log2_e : 1;
      AC_UNROLL
      for (int j = 0; j < dim_words; ++j) raw[j] = pack_pair<T>(x[j].x * factor, x[j].y * factor);
    }
    if constexpr (op.fp8)
      if (!is_query) append_codes(raw, is_value, state.tokens, l);
    AC_UNROLL
    for (int j = 0; j < dim_words; ++j) to[32 * j] = raw[j];
    if (!op.fp8 && !is_query && state.tokens < p.capacity) {
      unsigned* const cached =
          static_cast<unsigned*>(is_value ? l.values : l.keys) +
          (static_cast<long long>(kv_head()) * p.capacity + state.tokens) * (dim / 2) + lane();
      AC_UNROLL
      for (int j = 0; j < dim_words; ++j) cached[32 * j] = raw[j];
    }
  }
  meet();
  stamp(state, Link::attention, Point::input);

  // Lane 4 h + t has the maximum and its own total of head h. As tensor cores give it, it also has
  // sums of values of heads 2 t and 2 t + 1, of the h-th eighth of dimensions: out[i][0] and [1]
  // are of its dimension 2 i, out[i][2] and [3] of the next one.
  constexpr int tiles = dim / 16, eighth = dim / 8;
  float largest = -INFINITY, total = 0, out[tiles][4] = {};
  if (appends && warp() == warps - 1) {  // this token
    constexpr int values = dim / 32;
    float mine[values];
    AC_UNROLL
    for (int j = 0; j < values; ++j) mine[j] = to_float(key[lane() * values + j]);
    AC_UNROLL
    for (int h = 0; h < group; ++h) {
      float dot = 0;
      AC_UNROLL
      for (int j = 0; j < values; ++j)
        dot += to_float(queries[h * dim + lane() * values + j]) * mine[j];
      AC_UNROLL
      for (int d = 16; d > 0; d /= 2) dot += __shfl_xor_sync(full_warp, dot, d);
      if constexpr (op.fp8) dot *= new_scales[0];
      if (lane() / 4 == h) largest = dot, total = lane() % 4 == 0 ? 1.f : 0.f;
    }
    const float scale = op.fp8 ? new_scales[1] : 1;
    AC_UNROLL
    for (int i = 0; i < tiles; ++i) {
      out[i][0] = out[i][1] = to_float(value[lane() / 4 * eighth + 2 * i]) * scale;
      out[i][2] = out[i][3] = to_float(value[lane() / 4 * eighth + 2 * i + 1]) * scale;
    }
  }
  // A lane reads 16 bytes of each 64 bytes of a key: 8 elements, or 16 codes, which make two pieces
  // of 8 elements.
  constexpr int row_bytes = op.cached_bytes(), loads = row_bytes / 64;
  uint4 q[dim / 32];
  AC_UNROLL
  for (int i = 0; i < dim / 32; ++i) {
    const int column = op.fp8 ? i / 2 * 64 + lane() % 4 * 16 + i % 2 * 8 : 32 * i + lane() % 4 * 8;
    q[i] = lane() / 4 < group ? *reinterpret_cast<const uint4*>(queries + lane() / 4 * dim + column)
                              : make_uint4(0, 0, 0, 0);
  }
  AC_UNROLL_BY(1)
  for (int round = 0; first_token(round, 0, sharing) < state.tokens; ++round) {
    const int first = first_token(round, warp(), sharing), count = keys_at(first, state.tokens);
    // Scores of keys lane % 4 * 2 and the next of each eight.
    float scores[warp_keys / 8][2];
    {
      const unsigned char* const at = state.ring.arrived() + warp() * 2048;
      uint4 k[warp_keys / 8][loads];
      AC_UNROLL
      for (int n = 0; n < warp_keys / 8; ++n) AC_UNROLL
      for (int i = 0; i < loads; ++i)
        k[n][i] = *reinterpret_cast<const uint4*>(at + (n * 8 + lane() / 4) * row_bytes + i * 64 +
                                                  lane() % 4 * 16);
      state.ring.release();
      const auto piece = [&](int n, int i) {
        if constexpr (!op.fp8) return k[n][i];
        const uint4& codes = k[n][i / 2];
        return widen_codes<T>(i % 2 == 0 ? make_uint2(codes.x, codes.y)
                                         : make_uint2(codes.z, codes.w));
      };
      AC_UNROLL
      for (int n = 0; n < warp_keys / 8; ++n) {
        float c[4][4] = {};
        AC_UNROLL
        for (int i = 0; i < dim / 32; ++i) {
          const uint4 keys = piece(n, i);
          mma_16x8x16<T>(c[i % 2 * 2], {q[i].x, 0, q[i].y, 0}, {keys.x, keys.y});
          mma_16x8x16<T>(c[i % 2 * 2 + 1], {q[i].z, 0, q[i].w, 0}, {keys.z, keys.w});
        }
        AC_UNROLL
        for (int j = 0; j < 2; ++j) {
          const float dot = (c[0][j] + c[1][j]) + (c[2][j] + c[3][j]);
          const bool is_there = n * 8 + lane() % 4 * 2 + j < count;
          scores[n][j] = !is_there ? -INFINITY : op.fp8 ? dot * key_scales.of[n][j] : dot;
        }
      }
    }
    const int next = first_token(round + 1, warp(), sharing);
    key_scales.load(l.key_scales, p.capacity, next, state.tokens);
    const unsigned char* const at = state.ring.arrived() + warp() * 2048;
    if (count > 0) {
      float top = largest;
      AC_UNROLL
      for (int n = 0; n < warp_keys / 8; ++n) top = fmaxf(top, fmaxf(scores[n][0], scores[n][1]));
      top = fmaxf(top, __shfl_xor_sync(full_warp, top, 1));
      top = fmaxf(top, __shfl_xor_sync(full_warp, top, 2));
      const float shrink = exp2_fast(largest - top);
      largest = top, total *= shrink;
      unsigned weights[2] = {};  // of 8 keys each
      AC_UNROLL
      for (int n = 0; n < warp_keys / 8; ++n) {
        AC_UNROLL
        for (int j = 0; j < 2; ++j) total += scores[n][j] = exp2_fast(scores[n][j] - top);
        if constexpr (op.fp8)
          weights[n] = pack_pair<T>(scores[n][0] * value_scales.of[n][0],
                                    scores[n][1] * value_scales.of[n][1]);
        else
          weights[n] = pack_pair<T>(scores[n][0], scores[n][1]);
      }
      const OfLanes<float> shrinks(shrink);
      const float first = shrinks[lane() % 4 * 8], second = shrinks[lane() % 4 * 8 + 4];
      // A lane's dimensions of two neighbours of each 8 keys; 0 of those that are not there.
      unsigned v[warp_keys / 8][2][value_words];
      AC_UNROLL
      for (int n = 0; n < warp_keys / 8; ++n) AC_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int k = n * 8 + lane() % 4 * 2 + j;
        load_values(at + k * row_bytes + lane() / 4 * (row_bytes / 8), k < count, v[n][j]);
      }
      AC_UNROLL
      for (int i = 0; i < tiles; ++i) {
        unsigned a[4] = {};
        AC_UNROLL
        for (int n = 0; n < warp_keys / 8; ++n) {
          const unsigned first_key = value_pair(v[n][0], i), second_key = value_pair(v[n][1], i);
          a[2 * n] = __byte_perm(first_key, second_key, 0x5410);
          a[2 * n + 1] = __byte_perm(first_key, second_key, 0x7632);
        }
        float(&sum)[4] = out[i];
        sum[0] *= first, sum[1] *= second, sum[2] *= first, sum[3] *= second;
        mma_16x8x16<T>(sum, a, weights);
      }
    }
    value_scales.load(l.value_scales, p.capacity, next, state.tokens);
    state.ring.release();
  }

  stamp(state, Link::attention, Point::computed);
  // The warps' sums meet.
  float* const maxima = attended + warps * group * dim;
  float* const totals = maxima + warps * group;
  total += __shfl_xor_sync(full_warp, total, 1);
  total += __shfl_xor_sync(full_warp, total, 2);
  if (lane() % 4 == 0 && lane() / 4 < group) {
    maxima[warp() * group + lane() / 4] = largest;
    totals[warp() * group + lane() / 4] = total;
  }
  AC_UNROLL
  for (int j = 0; j < 2; ++j) {
    const int h = lane() % 4 * 2 + j;
    if (h >= group) continue;
    float* const to = attended + (warp() * group + h) * dim + lane() / 4 * eighth;
    AC_UNROLL
    for (int i = 0; i < tiles; ++i)
      *reinterpret_cast<float2*>(to + 2 * i) = make_float2(out[i][j], out[i][2 + j]);
  }
  meet();
  constexpr int pairs = group * dim / 2;
  AC_UNROLL_BY(1)
  for (int i = threadIdx.x; i < pairs; i += 32 * warps) {
    const int h = i / (dim / 2);
    const float* const from = attended + 2 * i;
    float top = maxima[h], x = 0, y = 0, weight = 0;
    AC_UNROLL
    for (int w = 1; w < warps; ++w) top = max_or_nan(top, maxima[w * group + h]);
    if (top != -INFINITY) {
      AC_UNROLL
      for (int w = 0; w < warps; ++w) {
        const float factor = exp2_fast(maxima[w * group + h] - top);
        x += factor * from[w * group * dim], y += factor * from[w * group * dim + 1];
        weight += factor * totals[w * group + h];
      }
    }
    if (sharing == 1) {
      store_word(words(of_attention) + kv_head() * pairs + i, pack_pair<T>(x / weight, y / weight),
                 tag);
      continue;
    }
    Word* const to = words(of_splits) + (kv_head() * splits + split()) * plan.partial_words(op);
    store_word(to + 2 * i, __float_as_uint(x), tag);
    store_word(to + 2 * i + 1, __float_as_uint(y), tag);
    if (i % (dim / 2) == 0) {
      store_word(to + group * dim + 2 * h, __float_as_uint(top), tag);
      store_word(to + group * dim + 2 * h + 1, __float_as_uint(weight), tag);
    }
  }
}

// Loads an eighth of a cached value: elements, or codes.
template <LayersOp op, LayersPlan plan>
AC_DEVICE void Layers<op, plan>::load_values(const unsigned char* from, bool are_there,
                                             unsigned (&v)[value_words]) {
  if constexpr (value_words == 2) {
    const uint2 words = are_there ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
    v[0] = words.x, v[1] = words.y;
    return;
  }
  // Lanes whose keys share banks begin with other words.
  constexpr int each = divide_up(value_words, 4);
  const bool turned = each == 2 && lane() % 2 == 1;
  uint4 words[each];
  AC_UNROLL
  for (int i = 0; i < each; ++i)
    words[i] = are_there ? *reinterpret_cast<const uint4*>(from + (turned ? 1 - i : i) * 16)
                         : make_uint4(0, 0, 0, 0);
  AC_UNROLL
  for (int i = 0; i < each; ++i) {
    const uint4 &mine = words[i], &other = words[each - 1 - i];
    v[i * 4] = turned ? other.x : mine.x, v[i * 4 + 1] = turned ? other.y : mine.y;
    v[i * 4 + 2] = turned ? other.z : mine.z, v[i * 4 + 3] = turned ? other.w : mine.w;
  }
}

// The i-th pair of elements of what load_values() loaded.
template <LayersOp op, LayersPlan plan>
AC_DEVICE unsigned Layers<op, plan>::value_pair(const unsigned (&v)[value_words], int i) {
  if constexpr (!op.fp8) return v[i];
  const uint2 four = widen_codes<T>(v[i / 2]);
  return i % 2 == 0 ? four.x : four.y;
}

// Joins some pairs of values of all splits: lanes have a pair each, or share it.
template <LayersOp op, LayersPlan plan>
AC_DEVICE void Layers<op, plan>::join(unsigned tag) const {
  constexpr int pairs = group * dim / 2, most = divide_up(pairs, splits);
  constexpr int room = power_of_two_from(most) < 32 ? power_of_two_from(most) : 32;
  constexpr int sharers = 32 / room, each = divide_up(splits, sharers);
  const int begin = split() * pairs / splits, end = (split() + 1) * pairs / splits;
  const Word* const from = words(of_splits) + kv_head() * splits * plan.partial_words(op);
  AC_UNROLL_BY(1)
  for (int base = begin; base < end; base += room) {
    const int mine = base + lane() % room, pair = mine < end ? mine : end - 1;
    const int h = pair * 2 / dim, share = lane() / room;
    unsigned v[4 * each];
    fetch_words<2 * each, 2>(
        [&](int i) {
          const int s = share * each + i / 2;
          return from + (s < splits ? s : splits - 1) * plan.partial_words(op) +
                 (i % 2 == 0 ? 2 * pair : group * dim + 2 * h);
        },
        tag, v);
    float most_of_all = -INFINITY;
    const auto top = [&](int i) {
      return share * each + i < splits ? __uint_as_float(v[4 * i + 2]) : -INFINITY;
    };
    AC_UNROLL
    for (int i = 0; i < each; ++i) most_of_all = fmaxf(most_of_all, top(i));
    AC_UNROLL
    for (int d = room; d < 32; d *= 2)
      most_of_all = fmaxf(most_of_all, __shfl_xor_sync(full_warp, most_of_all, d));
    float all = 0, sum_x = 0, sum_y = 0;
    AC_UNROLL
    for (int i = 0; i < each; ++i) {
      const float factor = exp2_fast(top(i) - most_of_all);
      sum_x += factor * __uint_as_float(v[4 * i]), sum_y += factor * __uint_as_float(v[4 * i + 1]);
      all += factor * __uint_as_float(v[4 * i + 3]);
    }
    AC_UNROLL
    for (int d = room; d < 32; d *= 2) {
      all += __shfl_xor_sync(full_warp, all, d);
      sum_x += __shfl_xor_sync(full_warp, sum_x, d);
      sum_y += __shfl_xor_sync(full_warp, sum_y, d);
    }
    if (share == 0 && mine < end)
      store_word(words(of_attention) + kv_head() * pairs + mine,
                 pack_pair<T>(sum_x / all, sum_y / all), tag);
  }
}

}  // namespace ac::kernels
