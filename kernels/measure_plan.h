// What launches the kernels of measure.cuh: their parameters and how much they do.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

constexpr int measure_threads = 512;

struct MeasureMemoryParams {
  const void* from;
  void* to;                  // of a read: one word a thread
  unsigned long long count;  // of 16-byte pieces
};

struct MeasureFillParams {
  void* to;
  unsigned long long count;  // of 4-byte words
  unsigned clear, set;       // bits of every word
};

// A warp's register tile of a matrix product: so many fragments of A, twice as many of B.
constexpr int measure_mma_threads = 256, measure_mma_side = 4;
constexpr int measure_mma_tile = 16 * measure_mma_side;  // rows and columns
constexpr int measure_mma_operand_words = 2 * measure_mma_side * 4 * 32;
// Of a warp in a round.
constexpr double measure_mma_flops = 2.0 * measure_mma_tile * measure_mma_tile * 16;

struct MeasureMmaParams {
  const void* operands;  // measure_mma_operand_words, each two f16
  void* sums;            // float, one a thread
  int rounds;
};

}  // namespace ac::kernels
