// The kernel that chooses under a mask; mask_logits_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/argmax.cuh"
#include "kernels/mask_logits_plan.h"
#include "kernels/vectors.cuh"

namespace ac::kernels {

template <MaskLogitsOp op, MaskLogitsPlan plan>
AC_DEVICE void mask_logits(const MaskLogitsParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using Logit = Scalar<op.logits>;
  constexpr int n = plan.vector();
  static_assert(mask_word % n == 0);  // a thread's tokens have their bits in one word
  launch_dependents();
  wait_for_dependency();

  const int first = static_cast<int>(blockIdx.x * plan.threads + threadIdx.x) * n;
  float v[n];
  load_some(static_cast<const Logit*>(p.logits) + first, p.vocab - first, v);
  unsigned bits = 0;
  if (first < p.vocab) bits = load_fresh(p.allowed + first / mask_word) >> first % mask_word;
  unsigned long long best = 0;
  AC_UNROLL
  for (int e = 0; e < n; ++e) {
    if (first + e >= p.vocab) continue;
    const bool is_allowed = (bits >> e & 1) != 0;
    const unsigned long long key = logit_key(v[e], first + e);
    const bool is_bad = argmax_token(key) < 0;
    if (is_allowed || is_bad) best = key > best ? key : best;
    if (!is_allowed) v[e] = __uint_as_float(0xff800000u);  // -infinity
  }
  store_some(static_cast<Logit*>(p.masked) + first, p.vocab - first, v);
  combine_argmax<plan.warps()>(best, p.block_best, p.finished_blocks, p.token);
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_MASK_LOGITS_KERNEL(name, op, plan)                                                    \
  AC_KERNEL_ENTRY(name, ::ac::kernels::MaskLogitsParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::mask_logits<op, plan>(p))

}  // namespace ac::kernels
