// One launch of a row-wise kernel on the host device against a loop in double precision.
#pragma once

#include <string>

#include "kernels/norm.cuh"
#include "kernels/reduction.cuh"
#include "kernels/softmax.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {

// What a kernel is launched on, whatever its family.
struct RowsShape {
  int rows = 1, columns = 1;
  std::size_t skip = 0;   // elements by which every tensor misses 16-byte alignment
  bool pitched = false;   // rows of x and y do not follow each other at once
  bool in_place = false;  // y is x
  // Fills a row of x; by default with values of -3 to 3.
  void (*fill)(Input& x, std::size_t row, std::size_t columns) = nullptr;
  Schedule schedule = Schedule::shuffled;
  bool check_races = false;
};

struct ReductionCase {
  const char* name = "";
  ReductionOp op = {};
  ReductionPlan plan = {};
  void (*kernel)(ReductionParams) = nullptr;
  bool squares = false;  // of squares
};
struct SoftmaxCase {
  const char* name = "";
  SoftmaxOp op = {};
  SoftmaxPlan plan = {};
  void (*kernel)(SoftmaxParams) = nullptr;
  float scale = 1;
};
struct NormCase {
  const char* name = "";
  NormOp op = {};
  NormPlan plan = {};
  void (*kernel)(NormParams) = nullptr;
  float weight_offset = 0, eps = 1e-5f;
  float low = -3, high = 3;  // of x, where the shape does not fill it
};

// Each runs a case; returns what is wrong, or "". `output_bytes` gets the outputs as they are.
std::string run_reduction(const ReductionCase& c, const RowsShape& shape);
std::string run_softmax(const SoftmaxCase& c, const RowsShape& shape,
                        std::string* output_bytes = nullptr);
std::string run_norm(const NormCase& c, const RowsShape& shape,
                     std::string* output_bytes = nullptr);

}  // namespace ac::kernels
