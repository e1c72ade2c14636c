#include "ir/assumptions.h"

#include <fmt/format.h>

namespace ac {

std::string what_is_assumed(const Node& attention) {
  const double within = attention.number(kScoresWithin);
  return fmt::format(
      "the mask's {:.6g} is sure to hide tokens only while no attention score is beyond {:.6g}",
      -kMaskOverScores * within, within);
}

NodeId strictest_assumption(const Graph& graph) {
  NodeId found = -1;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (const Node& node = graph.nodes[i];
        node.has(kScoresWithin) &&
        (found < 0 || node.number(kScoresWithin) < graph[found].number(kScoresWithin)))
      found = static_cast<NodeId>(i);
  return found;
}

StepGraph without_assumptions(StepGraph step) {
  for (Node& node : step.graph.nodes) node.attrs.erase(kScoresWithin);
  return step;
}

}  // namespace ac
