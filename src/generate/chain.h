// The functor of a fused elementwise chain: the one piece of a kernel that is written anew.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace ac {

// The members of a struct that computes `result` from `inputs`, in that order; what is between them
// must be elementwise ops and constants of one element.
std::string chain_functor(const Graph& graph, const std::vector<NodeId>& inputs, NodeId result);

}  // namespace ac
