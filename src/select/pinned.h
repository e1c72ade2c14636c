// Stage 9 for a step whose schedule was decided elsewhere, as by a search over whole steps: what is
// said here is built and admitted, and nothing else is tried or timed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "select/timed_steps.h"

namespace ac {

struct PhasePlan;

// Candidates, best first, by the signature of the region: what a search has found.
using Preferred = std::map<std::string, std::vector<std::string>>;

struct Pinned {
  // What computes steps after `from` tokens and more.
  struct Variant {
    std::int64_t from = 0;
    std::map<std::string, std::string> candidates;  // by signature; "": the fallback
    // An option of each neighbourhood of the plan; none: those that have the parts above.
    std::vector<std::size_t> fusions = {};
  };
  std::vector<Variant> variants;    // by rising `from`, the first one's 0
  std::vector<TimedCut> cuts;       // that were timed, and
  std::vector<InContext> contexts;  // what timing the variants gave
};

// The regions of the cut that the variant comes to.
std::vector<std::string> pinned_signatures(const PhasePlan& phase, const Pinned::Variant& variant);

}  // namespace ac
