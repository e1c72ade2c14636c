// Divides a step into regions: every compute node in exactly one, by rules that look at the step
// alone. Row-wise ops (pointwise, norms, softmax, reductions, RoPE) that follow each other merge;
// a matrix product takes a simple epilogue; gathers, copies and what is a hard boundary stand
// alone. Each region says why it does not begin earlier.
//
// It stands before the planner, which may ask for other regions of the same step (make_region) and
// compares them with these.
#pragma once

#include <string>
#include <vector>

#include "analyze/region.h"
#include "base/json.h"

namespace ac {

// Regions that one compilation serves.
struct Equals {
  std::string signature;
  std::vector<int> regions;
  bool operator==(const Equals&) const = default;
};

struct Regions {
  StepGraph step;
  std::vector<Region> regions;       // in an order that can run
  std::vector<Equals> signatures;    // in order of their first region
  std::vector<Boundary> boundaries;  // outputs that no region computes: views of inputs or weights
  std::vector<Work> node_work;       // of each node of the step, as if it ran alone

  // Of all regions.
  Amount total(const Bindings& at) const;
};

Regions analyse(StepGraph step);

// Every compute node in exactly one region, every region legal and described as make_region would,
// regions in an order that can run, signatures complete. An error (bad_input) names the region.
void verify(const Regions& regions, const std::string& origin);

// For `inspect --stage regions`; amounts of work are given at one T and P.
std::string print(const Regions& regions, const Bindings& at);
Json to_json(const Regions& regions, const Bindings& at);

}  // namespace ac
