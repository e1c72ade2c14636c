// Reproducible random values where a checkpoint would be: a machine's speed can then be measured
// with a model's geometry alone.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

constexpr int random_threads = 512;

// to[i * every] = offset + scale * u, with u in [-1, 1) made of `seed` and i alone.
struct RandomParams {
  void* to;
  unsigned long long count, every;
  unsigned long long seed;
  float offset, scale;
};

}  // namespace ac::kernels
