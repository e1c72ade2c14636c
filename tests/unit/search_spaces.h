// Spaces for tests of search, whose every outcome is known.
#pragma once

#include <vector>

#include "search/run.h"

namespace ac::search::test {

struct Known {
  std::vector<Point> points;
  std::vector<PointOutcome> outcomes;
};

// Plans of two families over a handful of fields that act together, as real kernels' do; what is
// predicted is right up to a factor that differs from point to point (`spread`, in logarithms).
Known structured(std::uint64_t seed, double spread = 0.3);

// Without structure: latencies 1, 2, 3 ... in an order of their own, of which the last `failures`
// are none; all are predicted alike.
Known unstructured(std::size_t size, std::size_t failures, std::uint64_t seed);

// A step of so many sites, of which the first two may be fused. What a schedule takes is the sum
// over its sites, and a little more for each two neighbours of different families.
struct Step {
  Step(std::size_t count, std::uint64_t seed);
  ProductSpace space;
  std::vector<Known> known;  // of the sites behind the one that fuses

  PointOutcome outcome(int point) const;
};

}  // namespace ac::search::test
