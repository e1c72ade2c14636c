// y[i] = scale * table[ids[i]]. An id outside the table gives a row of NaN and reads nothing.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

struct EmbeddingOp {
  Type table = Type::f16;
  Type y = Type::f16;
  bool wide_ids = false;  // int64, else int32
  AC_FIELDS(EmbeddingOp, table, y, wide_ids)
};

struct EmbeddingPlan {
  int threads = 128;
  int vector = 8;  // neighbouring elements that a thread takes at once
  int resident = 1024;
  bool persistent = false;  // grid of what is resident; else a thread for each vector
  AC_FIELDS(EmbeddingPlan, threads, vector, resident, persistent)

  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  constexpr int shared_bytes() const { return 0; }
  constexpr long long vectors(int count, int width) const {
    return static_cast<long long>(count) * divide_up(width, vector);
  }
  constexpr int grid(int count, int width, int sms) const {
    return work_grid(vectors(count, width), threads, persistent, sms, blocks_per_sm());
  }
  // The first reason why no shape can run with this plan, or null.
  constexpr const char* why_illegal(const EmbeddingOp&) const {
    return why_threads_illegal(threads, vector, resident);
  }
  // As above, for one shape.
  constexpr const char* why_illegal(const EmbeddingOp& op, int count, int width) const {
    if (const char* reason = why_illegal(op)) return reason;
    if (count < 0 || width < 0) return "count and width must not be negative";
    if (vectors(count, width) > 1 << 30) return "too many vectors to count in 32 bits";
    return nullptr;
  }
};

struct EmbeddingParams {
  const void* table;  // [entries, width]
  const void* ids;    // [count] int32 or int64
  void* y;            // [count, width]
  long long entries;
  int width, count;
  float scale;
};

constexpr double embedding_bytes(const EmbeddingOp& op, int count, int width) {
  return double(count) *
         (double(width) * (bytes_of(op.table) + bytes_of(op.y)) + (op.wide_ids ? 8 : 4));
}
constexpr double embedding_flops(const EmbeddingOp&, int count, int width) {
  return double(count) * width;
}

}  // namespace ac::kernels
