// One RoPE and append launch on the host device against a loop in double precision.
#pragma once

#include <string>

#include "kernels/rope_append.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {

struct RopeAppendCase {
  const char* name = "";
  RopeAppendOp op = {};
  RopeAppendPlan plan = {};
  void (*kernel)(RopeAppendParams) = nullptr;
  int tokens = 1, heads = 4, kv_heads = 2;
  int position = 0, capacity = 64;
  float rope_scale = 1, norm_offset = 0;
  bool fused_qkv = false;  // q, k and v are parts of each row of one matrix
  int gap = 0;             // elements between those rows
  bool in_place = false;   // q_out is q
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
};

// Runs the case; returns what is wrong, or "".
std::string run_rope_append(const RopeAppendCase& c);

}  // namespace ac::kernels
