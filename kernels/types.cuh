// Element types of kernels, with conversions that need no CUDA header (NVRTC may have none).
#pragma once

#include "kernels/plan.h"
#ifdef AC_HOST_DEVICE
#include "kernels/shim/device.h"
#define AC_UNROLL
#define AC_UNROLL_BY(times)
#else
#define AC_UNROLL _Pragma("unroll")
#define AC_UNROLL_BY(times) _Pragma(AC_TEXT(unroll times))
#define AC_TEXT(text) #text
#define AC_SHARED(T, name, count) __shared__ T name[count]
#define AC_DYNAMIC_SHARED(name) AC_ALIGNED_SHARED(name, 128)
// Kernels of one file that want different alignments use different names.
#define AC_ALIGNED_SHARED(name, bytes) \
  extern __shared__ __align__(bytes)   \
  unsigned char name[]
#ifdef __CUDACC_RTC__  // has no <cmath>
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#endif

// Defines the kernel `name`, a function of one parameter `p` of the type `Params`; the arguments
// after min_blocks are its body. It has C linkage, so that a profile, a package and a module lookup
// call it by that name (and nvcc 13.0 cannot write host stubs for templates over structs). Where
// there is a host side, name_params_bytes() is the size of its parameters.
#ifdef AC_HOST_DEVICE
// A launcher that knows the parameters as bytes alone (src/device/host.h) finds their number, the
// body of a thread and the blocks of a cluster beside it. Kernels that are built one by one hide
// all else.
#define AC_CLUSTER_KERNEL_ENTRY(name, Params, threads, cluster, ...)                     \
  extern "C" {                                                                           \
  AC_EXPORTED void name(const Params p) { __VA_ARGS__; }                                 \
  AC_EXPORTED void name##_on_host(void* params) { name(*static_cast<Params*>(params)); } \
  AC_EXPORTED unsigned long name##_params_bytes() { return sizeof(Params); }             \
  AC_EXPORTED unsigned name##_cluster_blocks() { return cluster; }                       \
  }
#define AC_KERNEL_ENTRY(name, Params, threads, min_blocks, ...) \
  AC_CLUSTER_KERNEL_ENTRY(name, Params, threads, 1, __VA_ARGS__)
#else
// So many blocks in a row start together and reach each other's shared memory (sm_90).
#define AC_CLUSTER_KERNEL_ENTRY(name, Params, threads, cluster, ...)                       \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1) \
      name(const __grid_constant__ Params p) {                                             \
    __VA_ARGS__;                                                                           \
  }                                                                                        \
  AC_PARAMS_BYTES(name, Params)
#define AC_KERNEL_ENTRY(name, Params, threads, min_blocks, ...)     \
  extern "C" __global__ void __launch_bounds__(threads, min_blocks) \
      name(const __grid_constant__ Params p) {                      \
    __VA_ARGS__;                                                    \
  }                                                                 \
  AC_PARAMS_BYTES(name, Params)
#ifdef __CUDACC_RTC__  // has no host side
#define AC_PARAMS_BYTES(name, Params)
#else
#define AC_PARAMS_BYTES(name, Params) \
  extern "C" AC_EXPORTED unsigned long name##_params_bytes() { return sizeof(Params); }
#endif
#endif
#define AC_OF_ROWS false  // whether an entry is of several rows (each_row.cuh)
#define AC_EXPORTED __attribute__((visibility("default")))

#define AC_DEVICE __device__ __forceinline__

namespace ac::kernels {

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};
// A code of a weight, key or value: no kernel computes in it.
struct e4m3 {
  unsigned char bits;
};
// A scale of weights: 2 to the power of (bits - 127). 255 is NaN.
struct e8m0 {
  unsigned char bits;
};
// A code of a weight in the low 4 bits.
struct e2m1 {
  unsigned char bits;
};

template <Type type>
struct ScalarOf;
template <>
struct ScalarOf<Type::f32> {
  using type = float;
};
template <>
struct ScalarOf<Type::f16> {
  using type = f16;
};
template <>
struct ScalarOf<Type::bf16> {
  using type = bf16;
};
template <Type type>
using Scalar = typename ScalarOf<type>::type;

AC_DEVICE float to_float(float x) { return x; }
AC_DEVICE float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

#ifdef AC_HOST_DEVICE

AC_DEVICE float to_float(f16 x) {
  const unsigned sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // Scaling by 2^112 moves the exponent's bias and normalises subnormals.
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 13) * 0x1p112f));
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  const unsigned bits = __float_as_uint(x);
  if (x != x) return {0x7fff};
  return {static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
template <>
inline f16 from_float<f16>(float x) {
  const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return {static_cast<unsigned short>(sign | 0x7fffu)};
  if (rest >= 0x477ff000u) return {static_cast<unsigned short>(sign | 0x7c00u)};
  if (rest < 0x38800000u) {  // subnormal in f16: let float addition round at the right bit
    const float rounded = __uint_as_float(rest) + 0.5f;
    return {static_cast<unsigned short>(sign | (__float_as_uint(rounded) - 0x3f000000u))};
  }
  const unsigned rounded = rest - 0x38000000u + 0xfffu + (rest >> 13 & 1);
  return {static_cast<unsigned short>(sign | rounded >> 13)};
}

#else

AC_DEVICE float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <class T>
__device__ T from_float(float x);
template <>
AC_DEVICE float from_float<float>(float x) {
  return x;
}
template <>
AC_DEVICE f16 from_float<f16>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
AC_DEVICE bf16 from_float<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

#endif

// As float16 with the exponent 8 too small, which also numbers without a leading 1 are. 0x7f and
// 0xff are NaN.
AC_DEVICE float to_float(e4m3 x) {
  if ((x.bits & 0x7f) == 0x7f) return NAN;
  const unsigned half = (x.bits & 0x80u) << 8 | (x.bits & 0x7fu) << 7;
  return to_float(f16{static_cast<unsigned short>(half)}) * 256.f;
}
// Likewise, with the exponent 14 too small.
AC_DEVICE float to_float(e2m1 x) {
  const unsigned half = (x.bits & 8u) << 12 | (x.bits & 7u) << 9;
  return to_float(f16{static_cast<unsigned short>(half)}) * 16384.f;
}
AC_DEVICE float to_float(e8m0 x) {
  if (x.bits == 255) return NAN;
  return __uint_as_float(x.bits > 0 ? static_cast<unsigned>(x.bits) << 23 : 0x400000u);
}
// The elements in the lower half of a word.
AC_DEVICE float2 unpack_e4m3_pair(unsigned word) {
#if !defined(AC_HOST_DEVICE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(word)));
  return make_float2(to_float(f16{static_cast<unsigned short>(halves)}),
                     to_float(f16{static_cast<unsigned short>(halves >> 16)}));
#else
  return make_float2(to_float(e4m3{static_cast<unsigned char>(word)}),
                     to_float(e4m3{static_cast<unsigned char>(word >> 8)}));
#endif
}
// The elements in one 32-bit word: two of a 16-bit type.
template <class T>
AC_DEVICE float2 unpack_pair(unsigned word) {
  return make_float2(to_float(T{static_cast<unsigned short>(word & 0xffffu)}),
                     to_float(T{static_cast<unsigned short>(word >> 16)}));
}
template <class T>
AC_DEVICE unsigned pack_pair(float low, float high) {
  return from_float<T>(low).bits | static_cast<unsigned>(from_float<T>(high).bits) << 16;
}

// The elements of 16 bytes.
template <class T>
inline constexpr int vector_size = 16 / sizeof(T);

AC_DEVICE void unpack(uint4 v, float (&out)[4]) {
  out[0] = __uint_as_float(v.x), out[1] = __uint_as_float(v.y);
  out[2] = __uint_as_float(v.z), out[3] = __uint_as_float(v.w);
}
template <class T>
AC_DEVICE void unpack_as(uint4 v, float (&out)[vector_size<T>]) {
  if constexpr (sizeof(T) == 4) {
    unpack(v, out);
  } else {
    const float2 a = unpack_pair<T>(v.x), b = unpack_pair<T>(v.y);
    const float2 c = unpack_pair<T>(v.z), d = unpack_pair<T>(v.w);
    out[0] = a.x, out[1] = a.y, out[2] = b.x, out[3] = b.y;
    out[4] = c.x, out[5] = c.y, out[6] = d.x, out[7] = d.y;
  }
}

}  // namespace ac::kernels
