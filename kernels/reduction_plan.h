// [rows, columns] -> [rows]: sum, mean or maximum of each row, of what a functor makes of its
// elements (nothing by default; the generated source may bring another, such as a square).
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

enum class Fold : unsigned char { sum, mean, max };
constexpr const char* names_of(Fold) { return "Fold, sum, mean, max"; }

struct ReductionOp {
  Type x = Type::f16;
  Type y = Type::f16;
  Fold fold = Fold::sum;
  AC_FIELDS(ReductionOp, x, y, fold)
};

struct ReductionPlan {
  Team team = Team::block;
  int threads = 256;
  int vector = 8;       // neighbouring elements that a thread takes at once
  int resident = 1024;  // threads an SM that registers and grid aim at
  bool persistent = true;
  AC_FIELDS(ReductionPlan, team, threads, vector, resident, persistent)

  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  constexpr int rows_at_once() const { return threads / team_threads(team, threads); }
  constexpr int shared_bytes() const { return 0; }
  constexpr int grid(int rows, int sms) const {
    return work_grid(rows, rows_at_once(), persistent, sms, blocks_per_sm());
  }
  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const ReductionOp&) const {
    return why_threads_illegal(threads, vector, resident);
  }
};

struct ReductionParams {
  const void* x;  // [rows, columns], `x_pitch` elements from row to row
  long long x_pitch;
  void* y;  // [rows]
  int rows, columns;
};

constexpr double reduction_bytes(const ReductionOp& op, int rows, int columns) {
  return double(rows) * columns * bytes_of(op.x) + double(rows) * bytes_of(op.y);
}
constexpr double reduction_flops(const ReductionOp&, int rows, int columns) {
  return double(rows) * columns;
}

}  // namespace ac::kernels
