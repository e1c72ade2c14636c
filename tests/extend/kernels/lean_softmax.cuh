// The kernel; lean_softmax_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/lean_softmax_plan.h"
#include "kernels/rows.cuh"

namespace ac::kernels {

template <LeanSoftmaxOp op, LeanSoftmaxPlan plan>
AC_DEVICE void lean_softmax(const LeanSoftmaxParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using X = Scalar<op.x>;
  launch_dependents();
  wait_for_dependency();
  const int row = static_cast<int>(blockIdx.x) * plan.threads + static_cast<int>(threadIdx.x);
  if (row >= p.rows) return;
  const X* const x = static_cast<const X*>(p.x) + row * p.x_pitch;
  X* const y = static_cast<X*>(p.y) + static_cast<long long>(row) * p.columns;
  float maximum = -INFINITY, sum = 0;
  for (int i = 0; i < p.columns; ++i) maximum = fmaxf(maximum, to_float(x[i]) * p.scale);
  const auto weight = [&](int i) {
    const float value = to_float(x[i]);
    return value * p.scale == -INFINITY ? 0.f : expf(fmaf(value, p.scale, -maximum));
  };
  for (int i = 0; i < p.columns; ++i) sum += weight(i);
  for (int i = 0; i < p.columns; ++i) y[i] = from_float<X>(weight(i) / sum);
}

#define AC_LEAN_SOFTMAX_KERNEL(name, op, plan)                               \
  AC_KERNEL_ENTRY(name, ::ac::kernels::LeanSoftmaxParams, (plan).threads, 1, \
                  ::ac::kernels::lean_softmax<op, plan>(p))

}  // namespace ac::kernels
