// Evaluates a node whose inputs are constants.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace ac {

// Nothing when the node is not of a kind worth folding, or too large.
std::optional<std::vector<double>> fold_constant(const Graph& graph, const Node& node);

}  // namespace ac
