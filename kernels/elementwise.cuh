// The elementwise kernel; elementwise_plan.h says what op, plan, functor and parameters mean.
#pragma once

#include "kernels/elementwise_plan.h"
#include "kernels/math.cuh"
#include "kernels/vectors.cuh"

namespace ac::kernels {

// Elements of input i at (row, column) and the columns after it, of which `count` are there.
template <ElementwiseOp op, int i, int n>
AC_DEVICE void load_input(const ElementwiseParams& p, int row, int column, int count,
                          float (&out)[n]) {
  if constexpr (i < op.inputs) {
    using T = Scalar<op.in[i]>;
    const ElementwiseInput& in = p.in[i];
    const T* const at =
        static_cast<const T*>(in.data) + row * in.row_stride + column * in.column_stride;
    if (in.column_stride == 1) {
      load_some(at, count, out);
    } else if (in.column_stride == 0) {
      const float value = to_float(load_fresh(at));
      AC_UNROLL
      for (int e = 0; e < n; ++e) out[e] = value;
    } else {
      AC_UNROLL
      for (int e = 0; e < n; ++e)
        out[e] = e < count ? to_float(load_fresh(at + e * in.column_stride)) : 0;
    }
  }
}

template <ElementwiseOp op, ElementwisePlan plan, class Chain>
AC_DEVICE void elementwise(const ElementwiseParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using Out = Scalar<op.out>;
  constexpr int n = plan.vector, unroll = plan.unroll;
  launch_dependents();
  wait_for_dependency();

  const unsigned per_row = divide_up(p.columns, n), total = per_row * p.rows;
  const unsigned stride = gridDim.x * plan.threads;
  for (unsigned first = blockIdx.x * plan.threads + threadIdx.x; first < total;
       first += stride * unroll) {
    float in[unroll][op.inputs][n];
    AC_UNROLL
    for (int u = 0; u < unroll; ++u) {
      const unsigned i = first + u * stride;
      if (i >= total) continue;
      const int row = i / per_row, column = i % per_row * n, count = p.columns - column;
      load_input<op, 0>(p, row, column, count, in[u][0]);
      load_input<op, 1>(p, row, column, count, in[u][op.inputs > 1 ? 1 : 0]);
      load_input<op, 2>(p, row, column, count, in[u][op.inputs > 2 ? 2 : 0]);
      load_input<op, 3>(p, row, column, count, in[u][op.inputs > 3 ? 3 : 0]);
    }
    AC_UNROLL
    for (int u = 0; u < unroll; ++u) {
      const unsigned i = first + u * stride;
      if (i >= total) continue;
      const int row = i / per_row, column = i % per_row * n;
      float out[n];
      AC_UNROLL
      for (int e = 0; e < n; ++e) {
        const auto& v = in[u];
        if constexpr (op.inputs == 1) out[e] = Chain()(v[0][e]);
        if constexpr (op.inputs == 2) out[e] = Chain()(v[0][e], v[1][e]);
        if constexpr (op.inputs == 3) out[e] = Chain()(v[0][e], v[1][e], v[2][e]);
        if constexpr (op.inputs == 4) out[e] = Chain()(v[0][e], v[1][e], v[2][e], v[3][e]);
      }
      store_some(static_cast<Out*>(p.out) + row * p.out_pitch + column, p.columns - column, out);
    }
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_ELEMENTWISE_KERNEL(name, op, plan, Chain)                                              \
  AC_KERNEL_ENTRY(name, ::ac::kernels::ElementwiseParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::elementwise<op, plan, Chain>(p))

}  // namespace ac::kernels
