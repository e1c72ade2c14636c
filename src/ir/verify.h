// Checks a whole graph. Runs after every stage, and on every graph that comes from a file.
#pragma once

#include "ir/graph.h"

namespace ac {

// An error (bad_input) names the first node that is wrong, its op and its module path. `origin`
// names what produced the graph: a file or a stage.
void verify(const Graph& graph, const std::string& origin);

}  // namespace ac
