// The checks behind regions: which nodes are hard boundaries, and which sets of nodes hang
// together.
#pragma once

#include <optional>
#include <vector>

#include "analyze/region.h"

namespace ac {

// Element by element, over floats: fusing it anywhere costs nothing but its own arithmetic.
bool is_pointwise(Op op);
bool is_matrix(Op op);

// Why a node must stand alone whatever surrounds it; a state op is not one of these, since values
// may lead into it.
std::optional<Boundary> hard_boundary(const Graph& graph, NodeId id);
// Why `to`, which reads `from`, must not share its region.
std::optional<Boundary> hard_edge(const UseDef& uses, NodeId from, NodeId to);

// What make_region refuses; `nodes` are distinct compute nodes.
std::optional<Boundary> why_illegal(const UseDef& uses, const std::vector<NodeId>& nodes,
                                    Behind states);

}  // namespace ac
