// The kernels that make random values; random_plan.h says which.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/random_plan.h"

namespace ac::kernels {

template <class T, class Convert>
AC_DEVICE void random_values(const RandomParams& p, Convert convert) {
  auto* const to = static_cast<T*>(p.to);
  const unsigned long long stride = 1ull * gridDim.x * blockDim.x;
  for (unsigned long long i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < p.count;
       i += stride) {
    unsigned long long z = (p.seed + i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    const float u = static_cast<float>(static_cast<int>(z >> 40) - (1 << 23)) * (1.f / (1 << 23));
    to[i * p.every] = convert(fmaf(p.scale, u, p.offset));
  }
}

// Towards 0, and in the range: random values need no better.
AC_DEVICE e4m3 cut_to_e4m3(float x) {
  const unsigned bits = __float_as_uint(x), sign = bits >> 24 & 0x80u;
  const float magnitude = fminf(fabsf(x), 448.f);
  const unsigned code = magnitude < 0.015625f ? static_cast<unsigned>(magnitude * 512.f)
                                              : (__float_as_uint(magnitude) >> 20) - (120u << 3);
  return {static_cast<unsigned char>(sign | code)};
}

// To the nearest, which is a whole number from 0 to 255.
AC_DEVICE unsigned char round_to_u8(float x) {
  return static_cast<unsigned char>(fminf(fmaxf(x, 0.f), 255.f) + 0.5f);
}

// Two codes of 4 bits, of numbers from 0 to 255. 0 becomes 8, so that they are 8 on average.
AC_DEVICE unsigned char round_to_codes(float x) {
  const unsigned codes = round_to_u8(x);
  return static_cast<unsigned char>(codes | ((codes & 0xfu) == 0 ? 0x8u : 0) |
                                    ((codes & 0xf0u) == 0 ? 0x80u : 0));
}

// To the nearest, which is a whole number from -128 to 127.
AC_DEVICE signed char round_to_i8(float x) {
  return static_cast<signed char>(floorf(fminf(fmaxf(x, -128.f), 127.f) + 0.5f));
}

// The power of two at or below it, without its sign.
AC_DEVICE e8m0 cut_to_e8m0(float x) {
  return {static_cast<unsigned char>(__float_as_uint(x) >> 23)};
}

// To the nearest.
AC_DEVICE int round_to_i32(float x) { return static_cast<int>(floorf(x + 0.5f)); }

// Defines all of them.
#define AC_RANDOM_KERNEL(type, T, convert)                             \
  AC_KERNEL_ENTRY(random_##type##_kernel, ::ac::kernels::RandomParams, \
                  ::ac::kernels::random_threads, 1,                    \
                  ::ac::kernels::random_values<T>(p, [](float x) { return convert(x); }))
#define AC_RANDOM_KERNELS                                                                     \
  AC_RANDOM_KERNEL(f32, float, float)                                                         \
  AC_RANDOM_KERNEL(f16, ::ac::kernels::f16, ::ac::kernels::from_float<::ac::kernels::f16>)    \
  AC_RANDOM_KERNEL(bf16, ::ac::kernels::bf16, ::ac::kernels::from_float<::ac::kernels::bf16>) \
  AC_RANDOM_KERNEL(e4m3, ::ac::kernels::e4m3, ::ac::kernels::cut_to_e4m3)                     \
  AC_RANDOM_KERNEL(e8m0, ::ac::kernels::e8m0, ::ac::kernels::cut_to_e8m0)                     \
  AC_RANDOM_KERNEL(i32, int, ::ac::kernels::round_to_i32)                                     \
  AC_RANDOM_KERNEL(u8, unsigned char, ::ac::kernels::round_to_u8)                             \
  AC_RANDOM_KERNEL(codes, unsigned char, ::ac::kernels::round_to_codes)                       \
  AC_RANDOM_KERNEL(i8, signed char, ::ac::kernels::round_to_i8)

}  // namespace ac::kernels
