// Codes of weights as pairs of 16-bit elements, as multiply-accumulates take them.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/weight_reader.cuh"

namespace ac::kernels {

// The pairs of elements of a word of codes, each less the zero point. Pair i of a word meets pair i
// of as many elements of x.
template <Format format, Type type>
struct CodePairs;
template <Format format, Type type>
  requires(format.is_plain())
struct CodePairs<format, type> {
  using T = Scalar<type>;
  static constexpr int count = 1, high_bits = 0;
  struct Zero {};
  AC_DEVICE static Zero zero_of(float) { return {}; }
  AC_DEVICE static void unpack(unsigned word, unsigned, Zero, unsigned (&out)[count]) {
    out[0] = word;
  }
  AC_DEVICE static uint4 arranged(const float (&x)[8]) {
    return make_uint4(pack_pair<T>(x[0], x[1]), pack_pair<T>(x[2], x[3]), pack_pair<T>(x[4], x[5]),
                      pack_pair<T>(x[6], x[7]));
  }
};
template <Format format, Type type>
  requires(!format.is_plain())
struct CodePairs<format, type> {
  using T = Scalar<type>;
  using Reader = WeightReader<format, type>;
  static constexpr int elements = Reader::of_word, count = elements / 2;
  // Elements i and i + 4 are a pair.
  static constexpr bool far_apart = bits_of(format.codes) == 4;
  static constexpr int high_bits = high_bits_of(format.codes);
  // unpack() puts a whole number into the low bits of a power of two, and subtracts that power
  // together with the zero point.
  static constexpr unsigned power = type == Type::bf16 ? 0x43004300u : 0x64006400u;

  // What unpack() wants of a zero point.
  struct Zero {
    float value;
    unsigned less;  // of whole numbers that are far apart
  };
  AC_DEVICE static Zero zero_of(float value) {
    const float less = -(type == Type::bf16 ? 128.f : 1024.f) - value;
    return {value, pack_pair<T>(less, less)};
  }
  // The high bits of the word's codes are those that VectorHigh::of_word() gives.
  AC_DEVICE static void unpack(unsigned word, [[maybe_unused]] unsigned high, Zero zero,
                               unsigned (&out)[count]) {
    if constexpr (format.codes == Codes::e2m1) {
      AC_UNROLL
      for (int i = 0; i < count; ++i) out[i] = e2m1_pair<type>(word, i);
    } else if constexpr (far_apart && is_whole(format.codes)) {
      // High bits of codes i and i + 4 are to lie as far apart as the low ones.
      constexpr unsigned of_half = (1u << 4 * high_bits) - 1,
                         mask = ((1u << high_bits) - 1) * 0x100010u;
      const unsigned apart = (high & of_half) | (high >> 4 * high_bits & of_half) << 16;
      AC_UNROLL
      for (int i = 0; i < count; ++i) {
        unsigned pair = masked_or<power>(word >> 4 * i, 0x000f000fu);
        if constexpr (high_bits > 0) pair |= apart << 4 >> high_bits * i & mask;
        out[i] = add_pairs<T>(pair, zero.less);
      }
    } else {
      float v[elements];
      Reader::unpack(word, zero.value, v);
      AC_UNROLL
      for (int i = 0; i < count; ++i)
        out[i] =
            far_apart ? pack_pair<T>(v[i], v[i + count]) : pack_pair<T>(v[2 * i], v[2 * i + 1]);
    }
  }
  // Pairs of one word that are far apart, as pairs of neighbours.
  AC_DEVICE static void to_neighbours(const unsigned (&in)[count], unsigned* out) {
    static_assert(far_apart);
    AC_UNROLL
    for (int i = 0; i < 2; ++i) {
      out[i] = (in[2 * i] & 0xffffu) | in[2 * i + 1] << 16;
      out[2 + i] = in[2 * i] >> 16 | (in[2 * i + 1] & 0xffff0000u);
    }
  }
  // 8 elements of x.
  AC_DEVICE static uint4 arranged(const float (&x)[8]) {
    unsigned out[4];
    AC_UNROLL
    for (int i = 0; i < 4; ++i)
      out[i] = far_apart ? pack_pair<T>(x[i], x[i + 4]) : pack_pair<T>(x[2 * i], x[2 * i + 1]);
    return make_uint4(out[0], out[1], out[2], out[3]);
  }
};

}  // namespace ac::kernels
