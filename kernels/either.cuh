// One of two types: NVRTC has no <type_traits>.
#pragma once

namespace ac::kernels {

template <bool first, class A, class B>
struct Either {
  using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using Type = B;
};

}  // namespace ac::kernels
