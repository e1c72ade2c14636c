// The embedding kernel; embedding_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/embedding_plan.h"
#include "kernels/math.cuh"
#include "kernels/vectors.cuh"

namespace ac::kernels {

template <EmbeddingOp op, EmbeddingPlan plan>
AC_DEVICE void embedding(const EmbeddingParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using Entry = Scalar<op.table>;
  using Y = Scalar<op.y>;
  constexpr int n = plan.vector;
  launch_dependents();
  wait_for_dependency();

  const unsigned per_row = divide_up(p.width, n), total = per_row * p.count;
  const unsigned stride = gridDim.x * plan.threads;
  for (unsigned i = blockIdx.x * plan.threads + threadIdx.x; i < total; i += stride) {
    const int row = i / per_row, column = i % per_row * n, count = p.width - column;
    long long id;
    if constexpr (op.wide_ids)
      id = load_fresh(static_cast<const long long*>(p.ids) + row);
    else
      id = load_fresh(static_cast<const int*>(p.ids) + row);
    float v[n];
    if (id >= 0 && id < p.entries) {
      load_some<Data::constant>(static_cast<const Entry*>(p.table) + id * p.width + column, count,
                                v);
      AC_UNROLL
      for (int e = 0; e < n; ++e) v[e] *= p.scale;
    } else {
      AC_UNROLL
      for (int e = 0; e < n; ++e) v[e] = NAN;
    }
    store_some(static_cast<Y*>(p.y) + static_cast<long long>(row) * p.width + column, count, v);
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_EMBEDDING_KERNEL(name, op, plan)                                                     \
  AC_KERNEL_ENTRY(name, ::ac::kernels::EmbeddingParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::embedding<op, plan>(p))

}  // namespace ac::kernels
