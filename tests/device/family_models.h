// Small steps in which every kernel family finds something to compute, with sizes that leave tails.
// They are made here, with no file from outside, as what a bundle holds must be enough.
#pragma once

#include <string>
#include <vector>

#include "ir/step_graph.h"

namespace ac::test {

struct FamilyModel {
  std::string name;
  StepGraph step;
  std::int64_t tokens = 1;  // new ones that plans are made for
};

// Prefill instances, for prompts of so many tokens, and behind each its decode instance.
std::vector<FamilyModel> family_models(std::int64_t prompt);

// Over any number of tokens: one node of each op of the table that has a fallback.
StepGraph step_of_all_ops();

}  // namespace ac::test
