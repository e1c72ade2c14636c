// A chain of elementwise ops over [rows, columns] in one pass, with up to four inputs that may
// broadcast. What the chain computes is a functor that the generated source brings along:
//
//   struct Chain {
//     AC_DEVICE float operator()(float a, float b) const { return math::mul(math::silu(a), b); }
//   };
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

struct ElementwiseOp {
  Type out = Type::f16;
  int inputs = 1;  // 1 to 4: what the functor takes
  Type in[4] = {Type::f16, Type::f16, Type::f16, Type::f16};

  template <class Visit>
  constexpr auto fields(const Visit& visit) const {
    return visit("ElementwiseOp, out, inputs, in", out, inputs, FirstOf<Type, 4>{in, inputs});
  }
};

struct ElementwisePlan {
  int threads = 256;
  int vector = 8;          // neighbouring elements that a thread takes at once
  int unroll = 1;          // vectors of each input that a thread has in flight
  int resident = 1024;     // threads an SM that registers and grid aim at
  bool persistent = true;  // grid of what is resident; else a thread for each `unroll` vectors
  AC_FIELDS(ElementwisePlan, threads, vector, unroll, resident, persistent)

  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  constexpr int shared_bytes() const { return 0; }
  constexpr long long vectors(int rows, int columns) const {
    return static_cast<long long>(rows) * divide_up(columns, vector);
  }
  constexpr int grid(int rows, int columns, int sms) const {
    return work_grid(vectors(rows, columns), threads * unroll, persistent, sms, blocks_per_sm());
  }

  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const ElementwiseOp& op) const {
    if (op.inputs < 1 || op.inputs > 4) return "inputs must be 1 to 4";
    if (const char* reason = why_threads_illegal(threads, vector, resident)) return reason;
    if (unroll < 1 || unroll > 8) return "unroll must be 1 to 8";
    if (op.inputs * vector * unroll > 64) return "the inputs do not fit in registers";
    return nullptr;
  }
  // As above, for one shape.
  constexpr const char* why_illegal(const ElementwiseOp& op, int rows, int columns) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (rows < 0 || columns < 0) return "rows and columns must not be negative";
    if (vectors(rows, columns) > 1 << 30) return "too many vectors to count in 32 bits";
    return nullptr;
  }
};

// A stride is in elements: 0 broadcasts along its axis, and columns that are neighbours (1) are
// loaded in vectors.
struct ElementwiseInput {
  const void* data;
  long long row_stride;
  long long column_stride;
};

struct ElementwiseParams {
  ElementwiseInput in[4];
  void* out;  // [rows, columns], `out_pitch` elements from row to row; may be an input of its shape
  long long out_pitch;
  int rows, columns;
};

// Bytes that must cross the memory bus if the first `full_inputs` inputs do not broadcast, and
// operations of a chain of `ops`.
constexpr double elementwise_bytes(const ElementwiseOp& op, int full_inputs, int rows,
                                   int columns) {
  double bytes = bytes_of(op.out);
  for (int i = 0; i < full_inputs; ++i) bytes += bytes_of(op.in[i]);
  return bytes * rows * columns;
}
constexpr double elementwise_flops(int ops, int rows, int columns) {
  return 1.0 * ops * rows * columns;
}

}  // namespace ac::kernels
