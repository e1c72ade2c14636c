// One GEMV launch on the host device against a loop in double precision.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/gemv.cuh"
#include "tests/unit/elements.h"

namespace ac::kernels {

struct GemvCase {
  const char* name = "";
  GemvOp op = {};
  GemvPlan plan = {};
  void (*kernel)(GemvParams) = nullptr;
  std::vector<int> rows = {};  // of each matrix; of gate and up: one number
  int k = 0;
  bool interleaved = false;  // the pair's rows alternate in one matrix
  float norm_offset = 0, scale = 1, softcap = 0;
  int sms = 2;
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
  // Instead of `kernel`.
  std::function<LaunchReport(const HostLaunch&, const GemvParams&)> launcher = {};
};

// Runs the case; returns what is wrong, or "". `output_bytes` gets the outputs as they are.
std::string run_gemv(const GemvCase& c, std::string* output_bytes = nullptr);

}  // namespace ac::kernels
