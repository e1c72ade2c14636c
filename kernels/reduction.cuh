// The reduction kernel; reduction_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/reduction_plan.h"
#include "kernels/rows.cuh"

namespace ac::kernels {

// What is reduced is the elements themselves.
struct Identity {
  AC_DEVICE float operator()(float x) const { return x; }
};

template <ReductionOp op, ReductionPlan plan, class Map = Identity>
AC_DEVICE void reduction(const ReductionParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using X = Scalar<op.x>;
  using Y = Scalar<op.y>;
  using Rows = RowTeam<plan.team, plan.threads>;
  constexpr int n = plan.vector;
  AC_SHARED(float, scratch, Rows::scratch_size);
  Rows team(scratch);
  RowPart<plan.team, plan.threads, n, Keep::reread, 1> part(nullptr, p.columns);
  launch_dependents();
  wait_for_dependency();

  for (int row = Rows::first_row(); row < p.rows; row += Rows::row_stride()) {
    float total = op.fold == Fold::max ? -INFINITY : 0.f;
    part.first_pass(static_cast<const X*>(p.x) + row * p.x_pitch, 0.f,
                    [&](const float(&v)[n], int, int count) {
                      AC_UNROLL
                      for (int e = 0; e < n; ++e) {
                        if (e >= count) continue;
                        const float value = Map()(v[e]);
                        total = op.fold == Fold::max ? math::maximum(total, value) : total + value;
                      }
                    });
    if constexpr (op.fold == Fold::max)
      total = team.reduce(total, math::Maximum());
    else
      total = team.sum(total);
    if constexpr (op.fold == Fold::mean) total /= static_cast<float>(p.columns);
    if (Rows::lane() == 0) static_cast<Y*>(p.y)[row] = from_float<Y>(total);
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_REDUCTION_KERNEL(name, op, plan, Map)                                                \
  AC_KERNEL_ENTRY(name, ::ac::kernels::ReductionParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::reduction<op, plan, Map>(p))

}  // namespace ac::kernels
