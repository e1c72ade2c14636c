// RMSNorm and LayerNorm of each row of [rows, columns]; if asked, of the sum of x and a residual,
// which is stored as well.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

enum class Norm : unsigned char {
  rms,    // y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight)
  layer,  // y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias
};
constexpr const char* names_of(Norm) { return "Norm, rms, layer"; }

struct NormOp {
  Norm norm = Norm::rms;
  Type x = Type::f16;       // and of the residual and the sum
  Type weight = Type::f16;  // and of the bias
  Type y = Type::f16;
  bool weighted = true;  // else y is not multiplied by anything
  bool bias = false;     // LayerNorm only
  bool residual = false;
  AC_FIELDS(NormOp, norm, x, weight, y, weighted, bias, residual)

  constexpr bool layer() const { return norm == Norm::layer; }
};

// How LayerNorm finds the variance.
enum class Variance : unsigned char {
  two_pass,  // after the mean, in a pass of its own
  welford,   // with the mean, in one pass
};
constexpr const char* names_of(Variance) { return "Variance, two_pass, welford"; }

struct NormPlan {
  Team team = Team::block;
  Keep keep = Keep::registers;
  int kept = 2;  // vectors of a row that a thread keeps in registers
  Variance variance = Variance::two_pass;
  int threads = 256;
  int vector = 8;       // neighbouring elements that a thread takes at once
  int resident = 1024;  // threads an SM that registers and grid aim at
  bool persistent = true;
  AC_FIELDS(NormPlan, team, keep, kept, variance, threads, vector, resident, persistent)

  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  constexpr int rows_at_once() const { return threads / team_threads(team, threads); }
  constexpr int shared_bytes(int columns) const {
    return kept_row_bytes(keep, threads, team_threads(team, threads), vector, columns);
  }
  constexpr int grid(int rows, int sms) const {
    return work_grid(rows, rows_at_once(), persistent, sms, blocks_per_sm());
  }
  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const NormOp& op) const {
    if (op.bias && !op.layer()) return "RMSNorm has no bias";
    if (variance == Variance::welford && !op.layer()) return "RMSNorm has no variance";
    if (const char* reason = why_threads_illegal(threads, vector, resident)) return reason;
    return why_keep_illegal(keep, vector, kept);
  }
  // As above, for one length of row and the shared memory a block may have.
  constexpr const char* why_illegal(const NormOp& op, int columns, int max_shared_bytes) const {
    if (const char* reason = why_illegal(op)) return reason;
    const int size = team_threads(team, threads);
    if (const char* reason = why_row_illegal(keep, size, vector, kept, columns)) return reason;
    return shared_bytes(columns) + 1024 > max_shared_bytes ? "too much shared memory" : nullptr;
  }
};

struct NormParams {
  const void* x;  // [rows, columns], `x_pitch` elements from row to row
  long long x_pitch;
  const void* residual;  // [rows, columns], if op.residual
  void* sum;             // [rows, columns] x + residual, if op.residual; may be x or the residual
  const void* weight;    // [columns], if op.weighted
  const void* bias;      // [columns], if op.bias
  void* y;               // [rows, columns], `y_pitch` elements from row to row; may be x
  long long y_pitch;
  int rows, columns;
  float eps;
  float weight_offset;  // of RMSNorm: 1 where it multiplies by 1 + weight
};

constexpr double norm_bytes(const NormOp& op, int rows, int columns) {
  const int a_row = bytes_of(op.x) * (op.residual ? 3 : 1) + bytes_of(op.y);
  const int once = bytes_of(op.weight) * (op.weighted + op.bias);
  return double(columns) * (double(rows) * a_row + once);
}
constexpr double norm_flops(const NormOp& op, int rows, int columns) {
  return double(rows) * columns * ((op.layer() ? 7 : 4) + op.residual);
}

}  // namespace ac::kernels
