// The kernels that make random values; random_plan.h says which.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/random_plan.h"

namespace ac::kernels {

template <Type type>
AC_DEVICE void random_values(const RandomParams& p) {
  auto* const to = static_cast<Scalar<type>*>(p.to);
  const unsigned long long stride = 1ull * gridDim.x * blockDim.x;
  for (unsigned long long i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < p.count;
       i += stride) {
    unsigned long long z = (p.seed + i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    const float u = static_cast<float>(static_cast<int>(z >> 40) - (1 << 23)) * (1.f / (1 << 23));
    to[i] = from_float<Scalar<type>>(fmaf(p.scale, u, p.offset));
  }
}

// Defines all of them.
#define AC_RANDOM_KERNEL(type)                                         \
  AC_KERNEL_ENTRY(random_##type##_kernel, ::ac::kernels::RandomParams, \
                  ::ac::kernels::random_threads, 1,                    \
                  ::ac::kernels::random_values<::ac::kernels::Type::type>(p))
#define AC_RANDOM_KERNELS AC_RANDOM_KERNEL(f32) AC_RANDOM_KERNEL(f16) AC_RANDOM_KERNEL(bf16)

}  // namespace ac::kernels
