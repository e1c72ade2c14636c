// Softmax of each row of [rows, columns] by one thread: small, to show what a family is made of.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

struct LeanSoftmaxOp {
  Type x = Type::f16;  // and of y
  AC_FIELDS(LeanSoftmaxOp, x)
};

struct LeanSoftmaxPlan {
  int threads = 128;
  AC_FIELDS(LeanSoftmaxPlan, threads)

  constexpr int grid(int rows) const { return work_grid(rows, threads, false, 1, 1); }
  constexpr const char* why_illegal(const LeanSoftmaxOp&) const {
    return why_threads_illegal(threads, 1, threads);
  }
};

struct LeanSoftmaxParams {
  const void* x;  // [rows, columns], `x_pitch` elements from row to row
  long long x_pitch;
  void* y;  // [rows, columns]
  int rows, columns;
  float scale;
};

}  // namespace ac::kernels
