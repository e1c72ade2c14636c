// Which nodes go together: the decisions of analyse().
#pragma once

#include <vector>

#include "analyze/region.h"

namespace ac {

struct Group {
  std::vector<NodeId> nodes;
  std::vector<Boundary> boundaries;
};

// All compute nodes, in groups that are legal regions, in an order that can run.
std::vector<Group> group_nodes(const UseDef& uses);

}  // namespace ac
