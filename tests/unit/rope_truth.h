// What norm and RoPE make of a head, in double precision, and how far off float32 may be.
#pragma once

#include <vector>

#include "kernels/rope_append_plan.h"
#include "tests/unit/tensors.h"

namespace ac::kernels {

struct Truth {
  double value, error;
};

struct RopeTruth {
  RopeAppendOp op = {};
  double norm_offset = 0, rope_scale = 1;
  const Input& inv_freq;

  // Of a head whose dimensions were that far off before; `norm`: its weight, or null.
  std::vector<Truth> of(std::vector<Truth> x, const Input* norm, int position, bool turn) const;
};

}  // namespace ac::kernels
