// Greedy sampling: the index of the largest of `vocab` logits. Among equals the lowest wins. If a
// logit is not finite there is no choice: the token is a negative number that names the first such
// logit. The block that comes last combines the blocks' best.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

enum class BadLogit : unsigned char { nan, infinity, minus_infinity };
// The token that stands for a logit that is not finite, and what it says.
constexpr int most_logits = 1 << 29;
constexpr int bad_token(int row, BadLogit what) { return ~(row * 4 + static_cast<int>(what)); }
constexpr int bad_row(int token) { return ~token / 4; }
constexpr BadLogit bad_logit(int token) { return static_cast<BadLogit>(~token % 4); }

struct SamplingOp {
  Type logits = Type::f32;
  AC_FIELDS(SamplingOp, logits)
};

struct SamplingPlan {
  int threads = 512;
  int vector = 4;  // neighbouring elements that a thread takes at once
  int resident = 512;
  bool persistent = true;  // grid of what is resident; else a thread for each vector
  AC_FIELDS(SamplingPlan, threads, vector, resident, persistent)

  constexpr int warps() const { return threads / 32; }
  constexpr int blocks_per_sm() const { return resident > threads ? resident / threads : 1; }
  constexpr int shared_bytes() const { return 0; }
  constexpr int grid(int vocab, int sms) const {
    return work_grid(divide_up(vocab, vector), threads, persistent, sms, blocks_per_sm());
  }
  // The first reason why no size can run with this plan, or null.
  constexpr const char* why_illegal(const SamplingOp&) const {
    return why_threads_illegal(threads, vector, resident);
  }
};

struct SamplingParams {
  const void* logits;  // [vocab]
  int vocab;
  unsigned long long* block_best;  // [grid]
  unsigned* finished_blocks;       // 0 before the first launch; every launch leaves 0 again
  int* token;                      // [1]: below 0 if a logit is not finite
};

constexpr double sampling_bytes(const SamplingOp& op, int vocab) {
  return double(vocab) * bytes_of(op.logits);
}
constexpr double sampling_flops(const SamplingOp&, int vocab) { return double(vocab); }

}  // namespace ac::kernels
