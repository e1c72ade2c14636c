// Softmax over the last axis: y = softmax(scale * x) of each row of [rows, columns]. -inf gets 0; a
// row of nothing but -inf, and one with NaN or +inf in it, is NaN.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

struct SoftmaxOp {
  Type x = Type::f16;
  Type y = Type::f16;
  AC_FIELDS(SoftmaxOp, x, y)
};

// How maximum and sum are found.
enum class SoftmaxPasses : unsigned char {
  online,  // together, the sum shrinking whenever the maximum grows
  two,     // one after the other
};
constexpr const char* names_of(SoftmaxPasses) { return "SoftmaxPasses, online, two"; }

struct SoftmaxPlan {
  Team team = Team::block;
  SoftmaxPasses passes = SoftmaxPasses::online;
  Keep keep = Keep::reread;
  int kept = 1;  // vectors of a row that a thread keeps in registers
  int threads = 256;
  int vector = 8;       // neighbouring elements that a thread takes at once
  int resident = 1024;  // threads an SM that registers and grid aim at
  bool persistent = true;
  AC_FIELDS(SoftmaxPlan, team, passes, keep, kept, threads, vector, resident, persistent)

  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  constexpr int rows_at_once() const { return threads / team_threads(team, threads); }
  constexpr int shared_bytes(int columns) const {
    return kept_row_bytes(keep, threads, team_threads(team, threads), vector, columns);
  }
  constexpr int grid(int rows, int sms) const {
    return work_grid(rows, rows_at_once(), persistent, sms, blocks_per_sm());
  }
  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const SoftmaxOp&) const {
    if (const char* reason = why_threads_illegal(threads, vector, resident)) return reason;
    return why_keep_illegal(keep, vector, kept);
  }
  // As above, for one length of row and the shared memory a block may have.
  constexpr const char* why_illegal(const SoftmaxOp& op, int columns, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    const int size = team_threads(team, threads);
    if (const char* reason = why_row_illegal(keep, size, vector, kept, columns)) return reason;
    return shared_bytes(columns) + 1024 > max_shared_bytes ? "too much shared memory" : nullptr;
  }
};

struct SoftmaxParams {
  const void* x;  // [rows, columns], `x_pitch` elements from row to row
  long long x_pitch;
  void* y;  // [rows, columns], `y_pitch` elements from row to row; may be x
  long long y_pitch;
  int rows, columns;
  float scale;
};

constexpr double softmax_bytes(const SoftmaxOp& op, int rows, int columns) {
  return double(rows) * columns * (bytes_of(op.x) + bytes_of(op.y));
}
constexpr double softmax_flops(const SoftmaxOp&, int rows, int columns) {
  return 5.0 * rows * columns;
}

}  // namespace ac::kernels
