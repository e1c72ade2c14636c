// The kernel that ends a step; advance_plan.h says what its parameters mean.
#pragma once

#include "kernels/advance_plan.h"
#include "kernels/ptx.cuh"

namespace ac::kernels {

template <AdvanceOp op>
AC_DEVICE void advance(const AdvanceParams& p) {
  // The next kernel is let in by this one's end alone: kernels that look at the position before
  // they wait may then see that of the token before theirs, but never an older one.
  wait_for_dependency();
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  const int token = load_fresh(p.token);
  const int position = load_fresh(p.position) + p.tokens;
  // Of a bad token the host learns by the log, some steps later: until then any id will do.
  const int id = token < 0 ? 0 : token;
  if constexpr (op.wide_ids)
    *static_cast<long long*>(p.ids) = id;
  else
    *static_cast<int*>(p.ids) = id;
  if (position >= 0 && position < p.positions) p.log[position] = token;
  *p.position = position;
}

// Defines the kernel `name`.
#define AC_ADVANCE_KERNEL(name, op)                                                      \
  AC_KERNEL_ENTRY(name, ::ac::kernels::AdvanceParams, ::ac::kernels::advance_threads, 1, \
                  ::ac::kernels::advance<op>(p))

}  // namespace ac::kernels
