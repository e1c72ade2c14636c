// One greedy sampling launch on the host device against a loop.
#pragma once

#include <string>
#include <vector>

#include "kernels/sampling.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {

struct SamplingCase {
  const char* name = "";
  SamplingOp op = {};
  SamplingPlan plan = {};
  void (*kernel)(SamplingParams) = nullptr;
  std::size_t skip = 0;  // elements by which the logits miss 16-byte alignment
  int sms = 3;
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
};

// Runs the case; returns what is wrong, or "".
std::string run_sampling(const SamplingCase& c, const std::vector<float>& logits);

}  // namespace ac::kernels
