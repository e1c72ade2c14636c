// Arithmetic that kernel families share.
#pragma once

#include "kernels/types.cuh"

namespace ac::kernels {

constexpr float log2_e = 1.4426950408889634f;
constexpr float no_score = -1e30f;  // below every attention score, and finite

// What a gate does to its partner; Pair::none has no gate.
template <Pair pair>
AC_DEVICE float activate(float gate) {
  static_assert(pair != Pair::none);
  if constexpr (pair == Pair::swiglu) return __fdividef(gate, 1.f + __expf(-gate));
  if constexpr (pair == Pair::geglu_erf)
    return 0.5f * gate * (1.f + erff(gate * 0.70710678118654752f));
  return 0.5f * gate *
         (1.f + tanhf(0.79788456080286536f * (gate + 0.044715f * gate * gate * gate)));
}

// Within (-cap, cap), if cap is above 0.
AC_DEVICE float soft_cap(float value, float cap) {
  return cap > 0 ? cap * tanhf(value / cap) : value;
}

}  // namespace ac::kernels
