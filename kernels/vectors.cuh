// Loads and stores of a few neighbouring elements as float32, in pieces of up to 16 bytes.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

// Data that an earlier kernel may have written, or data that no kernel writes (L1 may keep it).
enum class Data : unsigned char { fresh, constant };

template <Data data, class T>
AC_DEVICE T load_data(const T* p) {
  if constexpr (data == Data::fresh)
    return load_fresh(p);
  else
    return load_constant(p);
}

// Whether n elements from p on can be moved in whole pieces.
template <int n, class T>
AC_DEVICE bool is_aligned(const T* p) {
  constexpr unsigned bytes = n * sizeof(T), piece = bytes < 16 ? bytes : 16;
  return reinterpret_cast<unsigned long long>(p) % piece == 0;
}

// Elements as they are in memory, so that several loads can be on their way before the first of
// them is waited for.
template <class T, int n>
struct Packed {
  static_assert(n == 1 || n == 2 || n == 4 || n == 8 || n == 16 || n == 32);
  static constexpr int words = n * sizeof(T) / 4;
  T element;  // if n is 1
  unsigned word[words > 0 ? words : 1];

  template <Data data = Data::fresh>
  AC_DEVICE void load(const T* p) {
    if constexpr (n == 1) {
      element = load_data<data>(p);
    } else if constexpr (words == 1) {
      word[0] = load_data<data>(reinterpret_cast<const unsigned*>(p));
    } else if constexpr (words == 2) {
      const uint2 v = load_data<data>(reinterpret_cast<const uint2*>(p));
      word[0] = v.x, word[1] = v.y;
    } else {
      AC_UNROLL
      for (int i = 0; i < words; i += 4) {
        const uint4 v = load_data<data>(reinterpret_cast<const uint4*>(p) + i / 4);
        word[i] = v.x, word[i + 1] = v.y, word[i + 2] = v.z, word[i + 3] = v.w;
      }
    }
  }
  AC_DEVICE void unpack(float (&out)[n]) const {
    if constexpr (n == 1) {
      out[0] = to_float(element);
    } else {
      AC_UNROLL
      for (int i = 0; i < words; ++i) {
        if constexpr (sizeof(T) == 4) {
          out[i] = __uint_as_float(word[i]);
        } else {
          const float2 pair = unpack_pair<T>(word[i]);
          out[2 * i] = pair.x, out[2 * i + 1] = pair.y;
        }
      }
    }
  }
};

template <Data data = Data::fresh, class T, int n>
AC_DEVICE void load_vector(const T* p, float (&out)[n]) {
  Packed<T, n> packed;
  packed.template load<data>(p);
  packed.unpack(out);
}

template <class T, int n>
AC_DEVICE void store_vector(T* p, const float (&in)[n]) {
  constexpr int words = n * sizeof(T) / 4;
  if constexpr (n == 1) {
    *p = from_float<T>(in[0]);
  } else {
    unsigned word[words];
    AC_UNROLL
    for (int i = 0; i < words; ++i) {
      if constexpr (sizeof(T) == 4)
        word[i] = __float_as_uint(in[i]);
      else
        word[i] = pack_pair<T>(in[2 * i], in[2 * i + 1]);
    }
    if constexpr (words == 1) {
      *reinterpret_cast<unsigned*>(p) = word[0];
    } else if constexpr (words == 2) {
      *reinterpret_cast<uint2*>(p) = make_uint2(word[0], word[1]);
    } else {
      AC_UNROLL
      for (int i = 0; i < words; i += 4)
        reinterpret_cast<uint4*>(p)[i / 4] =
            make_uint4(word[i], word[i + 1], word[i + 2], word[i + 3]);
    }
  }
}

// The same at any address, where only `count` of the n elements are there; the rest is `otherwise`.
template <Data data = Data::fresh, class T, int n>
AC_DEVICE void load_some(const T* p, int count, float (&out)[n], float otherwise = 0) {
  if (count >= n && is_aligned<n>(p)) {
    load_vector<data>(p, out);
  } else {
    AC_UNROLL
    for (int e = 0; e < n; ++e) out[e] = e < count ? to_float(load_data<data>(p + e)) : otherwise;
  }
}
template <class T, int n>
AC_DEVICE void store_some(T* p, int count, const float (&in)[n]) {
  if (count >= n && is_aligned<n>(p)) {
    store_vector(p, in);
  } else {
    AC_UNROLL
    for (int e = 0; e < n; ++e)
      if (e < count) p[e] = from_float<T>(in[e]);
  }
}

}  // namespace ac::kernels
