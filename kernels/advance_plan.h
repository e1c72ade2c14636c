// Ends a step on the device, so that the next one needs nothing of the host: the chosen token
// becomes the next step's input, goes to the log of the whole sequence, and the position moves on.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

struct AdvanceOp {
  bool wide_ids = false;  // int64, else int32
};

constexpr int advance_threads = 32;

struct AdvanceParams {
  const int* token;  // [1] that the step chose; below 0: none, as kernels/sampling_plan.h says
  void* ids;         // [1 and more] int32 or int64: the first is written, 0 if there is no token
  int* log;          // [positions]: the token at each position
  int* position;     // [1]
  int tokens;        // of the step
  int positions;     // of the log; beyond it nothing is written
};

}  // namespace ac::kernels
