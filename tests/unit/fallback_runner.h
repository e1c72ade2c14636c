// Runs whole steps by fallback kernels on the host device: every region, a buffer for each storage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/step_graph.h"

namespace ac::test {

struct Trial {
  std::string name;
  StepGraph step;
  std::int64_t tokens = 1, position = 0;
  std::vector<std::int64_t> slots = {};  // of each cache
  double tolerance = 4e-6;               // of max(1, |truth|), before the result is rounded
  bool plain = false;                    // compared with a truth that rounds between ops
  int multiprocessors = 1;               // of the device that launches are for
};

// For each trial: what differs from the reference executor, or nothing.
std::vector<std::string> run_by_fallback(const std::vector<Trial>& trials);

// Fails if a kernel of theirs does not compile for a GPU. Skipped without a compiler for one.
void build_fallback_for_gpu(const std::vector<Trial>& trials);

// An input with that name holds numbers from low to high; "ids" are below 40, all else is in [-1,
// 1].
std::string input_name(int number, double low, double high);

}  // namespace ac::test
