// One matrix product on the host device, of either family, against a loop in double precision.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/gemm.cuh"
#include "kernels/mma_gemm.cuh"
#include "tests/unit/elements.h"

namespace ac::kernels {

struct GemmCase {
  const char* name = "";
  GemmOp op = {};
  void (*kernel)(GemmParams) = nullptr;
  // What the plan says of a shape.
  struct Launch {
    const char* illegal = nullptr;
    int grid = 0, split = 1, threads = 0, shared_bytes = 0;
    long long workspace_bytes = 0;
    int cluster = 1;
  };
  Launch (*launch)(const GemmOp& op, const GemmShape& shape) = nullptr;

  void (*coded)(CodedGemmParams) = nullptr;  // instead, of weights in a format of codes
  GemmShape shape = {};
  bool interleaved = false;  // the pair's rows alternate in one matrix
  bool in_place = false;     // y is the residual
  bool hostile = false;      // an infinity in token 0 and a NaN in weight row 0
  int gap = 0;               // elements between the rows of x, and of y
  float size = 1;            // of x
  float scale = 1, softcap = 0;
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
};

template <GemmPlan plan>
GemmCase::Launch launch_of(const GemmOp& op, const GemmShape& shape) {
  return {plan.why_illegal(op, shape, 227 * 1024), plan.grid(op, shape), 1, plan.threads(),
          plan.shared_bytes()};
}
template <MmaGemmPlan plan>
GemmCase::Launch launch_of(const GemmOp& op, const GemmShape& shape) {
  return {plan.why_illegal(op, shape, 227 * 1024),
          plan.grid(op, shape),
          plan.split,
          plan.threads(),
          plan.shared_bytes(),
          plan.workspace_bytes(op, shape)};
}

// Runs the case; returns what is wrong, or "". `output_bytes` gets the outputs as they are.
std::string run_gemm(const GemmCase& c, std::string* output_bytes = nullptr);

// Each case at each shape, with what `as` says of the rest. A split that a shape is too small for
// is left out.
void check_gemm(std::vector<GemmCase> cases, const std::vector<GemmShape>& shapes,
                const GemmCase& as = {});
// At a shape, in any order of threads and blocks, each case gives the same bits.
void check_order(std::vector<GemmCase> cases, const GemmShape& shape);

}  // namespace ac::kernels
