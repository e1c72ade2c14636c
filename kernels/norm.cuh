// The norm kernel; norm_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/norm_plan.h"
#include "kernels/rows.cuh"

namespace ac::kernels {

// Mean and squared distance from it of the elements seen so far, by Welford's recurrence.
struct Moments {
  float count = 0, mean = 0, squares = 0;

  AC_DEVICE void add(float x) {
    count += 1;
    const float distance = x - mean;
    mean += distance / count;
    squares = fmaf(distance, x - mean, squares);
  }
};

template <NormOp op, NormPlan plan>
AC_DEVICE void norm(const NormParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using X = Scalar<op.x>;
  using W = Scalar<op.weight>;
  using Y = Scalar<op.y>;
  using Rows = RowTeam<plan.team, plan.threads>;
  constexpr int n = plan.vector;
  constexpr bool welford = op.layer() && plan.variance == Variance::welford;
  AC_DYNAMIC_SHARED(shared);
  AC_SHARED(float, scratch, Rows::scratch_size);
  Rows team(scratch);
  RowPart<plan.team, plan.threads, n, plan.keep, plan.kept> part(shared, p.columns);
  launch_dependents();
  wait_for_dependency();

  const float length = static_cast<float>(p.columns);
  for (int row = Rows::first_row(); row < p.rows; row += Rows::row_stride()) {
    const X* x = static_cast<const X*>(p.x) + row * p.x_pitch;
    Y* const y = static_cast<Y*>(p.y) + row * p.y_pitch;
    const long long offset = static_cast<long long>(row) * p.columns;
    X* const sum = static_cast<X*>(p.sum) + offset;

    Moments moments;
    float total = 0;  // of squares for RMSNorm, of elements for LayerNorm
    part.first_pass(x, 0.f, [&](float(&v)[n], int column, int count) {
      if constexpr (op.residual) {
        float r[n];
        load_some(static_cast<const X*>(p.residual) + offset + column, count, r);
        // Every plan norms what is stored.
        AC_UNROLL
        for (int e = 0; e < n; ++e) v[e] = math::cast<X>(v[e] + r[e]);
        store_some(sum + column, count, v);
      }
      AC_UNROLL
      for (int e = 0; e < n; ++e) {
        if constexpr (welford) {
          if (e < count) moments.add(v[e]);
        } else {
          total = op.layer() ? total + v[e] : fmaf(v[e], v[e], total);
        }
      }
    });
    if constexpr (op.residual) x = sum;

    float mean = 0, squares = 0;
    if constexpr (!op.layer()) {
      squares = team.sum(total);
    } else if constexpr (welford) {
      mean = team.sum(moments.count * moments.mean) / length;
      const float distance = moments.mean - mean;
      squares = team.sum(fmaf(moments.count * distance, distance, moments.squares));
    } else {
      mean = team.sum(total) / length;
      float part_squares = 0;
      part.next_pass(x, 0.f, [&](const float(&v)[n], int, int count) {
        AC_UNROLL
        for (int e = 0; e < n; ++e)
          if (e < count) part_squares = fmaf(v[e] - mean, v[e] - mean, part_squares);
      });
      squares = team.sum(part_squares);
    }
    const float scale = rsqrtf(squares / length + p.eps);

    part.next_pass(x, 0.f, [&](const float(&v)[n], int column, int count) {
      float out[n];
      AC_UNROLL
      for (int e = 0; e < n; ++e) out[e] = (op.layer() ? v[e] - mean : v[e]) * scale;
      if constexpr (op.weighted) {
        float w[n] = {};
        load_some<Data::constant>(static_cast<const W*>(p.weight) + column, count, w);
        AC_UNROLL
        for (int e = 0; e < n; ++e) out[e] *= op.layer() ? w[e] : p.weight_offset + w[e];
      }
      if constexpr (op.bias) {
        float b[n] = {};
        load_some<Data::constant>(static_cast<const W*>(p.bias) + column, count, b);
        AC_UNROLL
        for (int e = 0; e < n; ++e) out[e] += b[e];
      }
      store_some(y + column, count, out);
    });
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_NORM_KERNEL(name, op, plan)                                                     \
  AC_KERNEL_ENTRY(name, ::ac::kernels::NormParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::norm<op, plan>(p))

}  // namespace ac::kernels
