#include "compile/positions.h"

#include <algorithm>
#include <limits>

#include "ir/layout.h"

namespace ac {

std::int64_t learned_positions(const StepGraph& step) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Node& node : step.graph.nodes) {
    if (node.op != Op::embedding) continue;
    if (step.graph[storage_of(step.graph, node.inputs[1])].op != Op::positions) continue;
    const Dim& rows = step.graph.type(node.inputs[0]).shape[0];
    if (rows.is_constant()) least = std::min(least, rows.constant());
  }
  return least;
}

}  // namespace ac
