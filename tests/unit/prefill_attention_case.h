// One prefill attention launch on the host device against a loop in double precision.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "kernels/prefill_attention.cuh"
#include "tests/unit/elements.h"

namespace ac::kernels {

struct PrefillAttentionCase {
  const char* name = "";
  PrefillAttentionOp op = {};
  PrefillAttentionPlan plan = {};
  void (*kernel)(PrefillAttentionParams) = nullptr;
  int kv_heads = 2;
  int tokens = 1, position = 0;
  int capacity = 256;
  int window = 0;
  int gap = 0;  // elements between the rows of q
  float softcap = 0;
  float size = 2;        // of queries and keys
  bool hostile = false;  // the last KV head's keys are NaN
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
};

// Runs the case; returns what is wrong, or "". `output_bytes` gets the outputs as they are.
std::string run_prefill_attention(const PrefillAttentionCase& c,
                                  std::string* output_bytes = nullptr);

}  // namespace ac::kernels
