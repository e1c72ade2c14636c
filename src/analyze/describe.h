// The description of a set of nodes that is known to be a region.
#pragma once

#include <vector>

#include "analyze/region.h"

namespace ac {

Region describe_region(const UseDef& uses, const std::vector<NodeId>& nodes);

// Fills in category, dominant op, access pattern and reduction axes.
void classify(const Graph& graph, Region& region);

// From a region whose nodes and interface are known.
std::string signature_of(const StepGraph& step, const Region& region);

}  // namespace ac
