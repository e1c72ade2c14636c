// Rewriting by local rules. Passes are lists of rules; this is the one loop that applies them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/builder.h"

namespace ac {

// Looks at a node whose inputs are already part of `out`, and either builds something better there
// and returns it, or returns nothing.
using Rule = std::function<std::optional<NodeId>(Builder& out, const Graph& graph, const Node&)>;

// Applies the rules until none matches. Also merges equal nodes and drops unused ones.
Graph rewrite(const Graph& graph, const std::vector<Rule>& rules);

// The nodes that the outputs need, in depth-first order: graphs that compute the same thing the
// same way become equal, whatever order they were captured in.
Graph prune(const Graph& graph);

// Copies `node` with other inputs, letting its type follow from them.
NodeId copy_node(Graph& out, const Node& node, std::vector<NodeId> inputs);

// What is different, for people ("%12: mul(...) against add(...)"); empty when the graphs are
// equal. Names, modules and the rounding of constants (1e-6 relative) do not count.
std::string first_difference(const Graph& a, const Graph& b);

}  // namespace ac
