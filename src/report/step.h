// One decode step as it was timed, launch by launch, beside what the package says of each region.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "program/program.h"

namespace ac {

// Neighbouring launches of a decode step that compute one region, and which of the plan's
// selections it is.
constexpr int kUnknownSelection = -1, kEndOfStep = -2;
struct StepPart {
  std::size_t from = 0, count = 0;
  int selection = kUnknownSelection;
};
std::vector<StepPart> parts_of(const Program& program, const Phase& phase, const Json& planned);

// `lines`: what `bench --timeline` says of a step of the phase, in order, each launch with its
// parts; `planned`: the plan of it. Gives the launches, and the parts that they make up: a region's
// launches, its bytes, and its FLOPs where the plan knows them at this context. That it is of
// another package is an error (bad_input) naming `origin`.
Json step_of(const Program& program, const Phase& phase, const Json& planned,
             const std::vector<Json>& lines, const std::string& origin);

}  // namespace ac
