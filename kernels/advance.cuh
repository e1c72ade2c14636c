// The kernel that ends a step; advance_plan.h says what its parameters mean.
#pragma once

#include "kernels/advance_plan.h"
#include "kernels/ptx.cuh"

namespace ac::kernels {

// Before a step whose first token is `first`.
template <class Id>
AC_DEVICE bool has_ended(const Until& until, int left, Id first) {
  const int stops = load_fresh(&until.stops);
  int ids[most_stop_ids];
  AC_UNROLL
  for (int i = 0; i < most_stop_ids; ++i) ids[i] = load_fresh(&until.ids[i]);
  bool ended = left == 0;
  AC_UNROLL
  for (int i = 0; i < most_stop_ids; ++i) ended = ended || (ids[i] == first && i < stops);
  return ended;
}

template <class Id>
AC_DEVICE void advance_by(const AdvanceParams& p) {
  // The next kernel is let in by this one's end alone: kernels that look at the position before
  // they wait may then see that of the token before theirs, but never an older one.
  wait_for_dependency();
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  Id* const ids = static_cast<Id*>(p.ids);
  const int token = load_fresh(p.token), left = load_fresh(&p.until->left);
  const int position = load_fresh(p.position) + p.tokens;
  if (const Id first = load_fresh(ids); has_ended(*p.until, left, first)) {
    *p.token = static_cast<int>(first);
    return;
  }
  if (left > 0) p.until->left = left - 1;
  // Of a bad token the host learns by the log, some steps later: until then any id will do.
  *ids = token < 0 ? 0 : token;
  if (position >= 0 && position < p.positions) p.log[position] = token;
  *p.position = position;
}

template <AdvanceOp op>
AC_DEVICE void advance(const AdvanceParams& p) {
  if constexpr (op.wide_ids)
    advance_by<long long>(p);
  else
    advance_by<int>(p);
}

// Defines the kernel `name`.
#define AC_ADVANCE_KERNEL(name, op)                                                      \
  AC_KERNEL_ENTRY(name, ::ac::kernels::AdvanceParams, ::ac::kernels::advance_threads, 1, \
                  ::ac::kernels::advance<op>(p))

}  // namespace ac::kernels
