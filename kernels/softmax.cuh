// The softmax kernel; softmax_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/rows.cuh"
#include "kernels/softmax_plan.h"

namespace ac::kernels {

template <SoftmaxOp op, SoftmaxPlan plan>
AC_DEVICE void softmax(const SoftmaxParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using X = Scalar<op.x>;
  using Y = Scalar<op.y>;
  using Rows = RowTeam<plan.team, plan.threads>;
  constexpr int n = plan.vector;
  AC_DYNAMIC_SHARED(shared);
  AC_SHARED(float, scratch, Rows::scratch_size);
  Rows team(scratch);
  RowPart<plan.team, plan.threads, n, plan.keep, plan.kept> part(shared, p.columns);
  launch_dependents();
  wait_for_dependency();

  // Both factors of the sum are 0 for -inf, also where nothing larger was seen yet. fmaf: what
  // rounding does to scale * x does not depend on how large it is.
  const auto weight = [&](float x, float maximum) {
    return x * p.scale == -INFINITY ? 0.f : expf(fmaf(x, p.scale, -maximum));
  };
  const auto shrink = [](float old_maximum, float maximum) {
    return old_maximum == -INFINITY ? 0.f : expf(old_maximum - maximum);
  };

  for (int row = Rows::first_row(); row < p.rows; row += Rows::row_stride()) {
    const X* const x = static_cast<const X*>(p.x) + row * p.x_pitch;
    Y* const y = static_cast<Y*>(p.y) + row * p.y_pitch;
    // Past the end of the row there is NaN, which fmaxf ignores, whatever the scale's sign.
    const float nothing = NAN;
    float maximum = -INFINITY, sum = 0;
    const auto largest = [&](const float(&v)[n]) {
      float m = -INFINITY;
      AC_UNROLL
      for (int e = 0; e < n; ++e) m = fmaxf(m, v[e] * p.scale);
      return m;
    };
    const auto add = [&](const float(&v)[n], int count, float at_most) {
      AC_UNROLL
      for (int e = 0; e < n; ++e)
        if (e < count) sum += weight(v[e], at_most);
    };
    part.first_pass(x, nothing, [&](const float(&v)[n], int, int count) {
      const float new_maximum = fmaxf(maximum, largest(v));
      if constexpr (plan.passes == SoftmaxPasses::online) {
        sum *= shrink(maximum, new_maximum);
        add(v, count, new_maximum);
      }
      maximum = new_maximum;
    });
    const float row_maximum = team.reduce(maximum, [](float a, float b) { return fmaxf(a, b); });
    if constexpr (plan.passes == SoftmaxPasses::online)
      sum *= shrink(maximum, row_maximum);
    else
      part.next_pass(x, nothing,
                     [&](const float(&v)[n], int, int count) { add(v, count, row_maximum); });
    sum = team.sum(sum);
    part.next_pass(x, nothing, [&](const float(&v)[n], int column, int count) {
      float out[n];
      AC_UNROLL
      for (int e = 0; e < n; ++e) out[e] = weight(v[e], row_maximum) / sum;
      store_some(y + column, count, out);
    });
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_SOFTMAX_KERNEL(name, op, plan)                                                     \
  AC_KERNEL_ENTRY(name, ::ac::kernels::SoftmaxParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::softmax<op, plan>(p))

}  // namespace ac::kernels
