// The schedule sub-planner: which kernel families can compute a region exactly, and as what; of
// the others, why not. A match is about meaning and layout only; plans and devices come later.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "analyze/region.h"
#include "plan/operands.h"
#include "plan/task.h"

namespace ac {

// What a kernel is wanted for.
struct Wanted {
  Region region;
  bool argmax = false;  // also the index of the largest result, for greedy sampling
};

struct Matched {
  Task task;
  Operands operands;
};
using Match = std::variant<Matched, std::string>;  // or why not

struct FamilyMatch {
  std::string_view family;
  Match match;
};

// Names of all families that compute regions.
std::vector<std::string_view> family_names();
// An error (wrong_usage) if one of these is the name of no family.
void check_families(const std::vector<std::string>& families);

// Of all families that compute regions. Sizes are taken at one T and P.
std::vector<FamilyMatch> match_families(const StepGraph& step, const Wanted& wanted,
                                        const Bindings& at);

}  // namespace ac
