// One launch of the products of q, k and v with norm, RoPE and append on the host device, against
// loops in double precision.
#pragma once

#include <string>

#include "kernels/qkv_rope.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {

struct QkvRopeCase {
  const char* name = "";
  QkvRopeOp op = {};
  TmaGemmPlan plan = {};
  void (*kernel)(QkvRopeParams) = nullptr;
  int tokens = 1, heads = 4, kv_heads = 2, k = 72;
  int position = 0, capacity = 160;
  int gap = 0;  // elements between the rows of x
  float rope_scale = 1, norm_offset = 0;
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;

  GemmShape shape() const;
};

// Runs the case; returns what is wrong, or "". `output_bytes` gets the outputs as they are.
std::string run_qkv_rope(const QkvRopeCase& c, std::string* output_bytes = nullptr);

}  // namespace ac::kernels
