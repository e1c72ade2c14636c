// One attention launch on the host device against a loop in double precision.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "kernels/attention.cuh"
#include "tests/unit/elements.h"

namespace ac::kernels {

struct AttentionCase {
  const char* name = "";
  AttentionOp op = {};
  AttentionPlan plan = {};
  void (*kernel)(AttentionParams) = nullptr;
  int kv_heads = 2;
  int position = 0;
  int capacity = 512;
  int window = 0;
  float softcap = 0, norm_offset = 0;
  int lag = 0;  // of the position that the kernel sees before its wait
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
  // Instead of `kernel`.
  std::function<LaunchReport(const HostLaunch&, const AttentionParams&)> launcher = {};
};

// Runs the case; returns what is wrong, or "".
std::string run_attention(const AttentionCase& c);

}  // namespace ac::kernels
