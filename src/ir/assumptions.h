// What a graph assumes of a model's numbers, because no compiler can prove it: that attention
// scores are small beside the finite mask that hides some of them (`scores_within`, ops.def).
#pragma once

#include <string>

#include "ir/step_graph.h"

namespace ac {

inline constexpr const char* kScoresWithin = "scores_within";
// A mask hides while no score is larger than this part of it.
inline constexpr double kMaskOverScores = 4;

// "the mask's -10000 is sure to hide tokens only while no attention score is beyond 2500".
std::string what_is_assumed(const Node& attention);
// The attention that assumes the least score; -1 where none assumes any.
NodeId strictest_assumption(const Graph& graph);
// The same step without them. What runs on drawn numbers breaks assumptions about a model's.
StepGraph without_assumptions(StepGraph step);

}  // namespace ac
