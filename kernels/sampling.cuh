// The greedy sampling kernel; sampling_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/argmax.cuh"
#include "kernels/sampling_plan.h"
#include "kernels/vectors.cuh"

namespace ac::kernels {

template <SamplingOp op, SamplingPlan plan>
AC_DEVICE void sampling(const SamplingParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  constexpr int n = plan.vector;
  const auto* const logits = static_cast<const Scalar<op.logits>*>(p.logits);
  launch_dependents();
  wait_for_dependency();

  const unsigned vectors = divide_up(p.vocab, n), stride = gridDim.x * plan.threads;
  unsigned long long best = 0;
  for (unsigned i = blockIdx.x * plan.threads + threadIdx.x; i < vectors; i += stride) {
    const int first = i * n;
    float v[n];
    load_some(logits + first, p.vocab - first, v);
    AC_UNROLL
    for (int e = 0; e < n; ++e) {
      if (first + e >= p.vocab) continue;
      const unsigned long long key = logit_key(v[e], first + e);
      best = key > best ? key : best;
    }
  }
  combine_argmax<plan.warps()>(best, p.block_best, p.finished_blocks, p.token);
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_SAMPLING_KERNEL(name, op, plan)                                                     \
  AC_KERNEL_ENTRY(name, ::ac::kernels::SamplingParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::sampling<op, plan>(p))

}  // namespace ac::kernels
