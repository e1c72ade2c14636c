// Ends a step on the device, so that the next one needs nothing of the host: the chosen token
// becomes the next step's input, goes to the log of the whole sequence, and the position moves on.
// Steps that the host enqueued beyond the end of a text are void: they leave token, ids, log and
// position as they were. Keys and values of a void step go to the slot of the next token, which no
// token sees before it is written again.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

struct AdvanceOp {
  bool wide_ids = false;  // int64, else int32
};

constexpr int advance_threads = 32;

// When a text ends. A step is void if no tokens are left, or if its first token is a stop id.
constexpr int most_stop_ids = 14;
struct Until {
  int left;   // tokens that steps may still choose; below 0: any number
  int stops;  // of `ids` that are stop ids
  int ids[most_stop_ids];
};

struct AdvanceParams {
  int* token;     // [1] that the step chose; below 0: none, as kernels/sampling_plan.h says
  void* ids;      // [1 and more] int32 or int64: the first is written, 0 if there is no token
  int* log;       // [positions]: the token at each position
  int* position;  // [1]
  Until* until;   // [1]
  int tokens;     // of the step
  int positions;  // of the log; beyond it nothing is written
};

}  // namespace ac::kernels
