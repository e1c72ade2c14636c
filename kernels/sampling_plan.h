// Greedy sampling: the index of the largest of `vocab` logits. Among equals the lowest wins; NaN
// never does (unless there is nothing else). The block that comes last combines the blocks' best.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

struct SamplingOp {
  Type logits = Type::f32;
};

struct SamplingPlan {
  int threads = 512;
  int vector = 4;  // neighbouring elements that a thread takes at once
  int resident = 512;
  bool persistent = true;  // grid of what is resident; else a thread for each vector

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
  int* token;                      // [1]
};

constexpr double sampling_bytes(const SamplingOp& op, int vocab) {
  return double(vocab) * bytes_of(op.logits);
}
constexpr double sampling_flops(const SamplingOp&, int vocab) { return double(vocab); }

}  // namespace ac::kernels
