// One forward over T new tokens after P cached ones: what a runtime executes, again and again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "state/state.h"

namespace ac {

struct StepGraph {
  Graph graph;                    // over T and P; its ops of memory `state` name states by index
  std::vector<StateSpec> states;  // each written by one op; without slots
};

// The op of a whole forward as a step computes it: with a state, where it looks at other tokens.
Op in_a_step(Op op);
// What a node of such an op, before or after, keeps of a sequence; an axis that is not constant
// counts as 0.
StateSpec state_of(const Graph& graph, const Node& node, KvStorage storage = KvStorage::elements);

void verify(const StepGraph& step, const std::string& origin);

}  // namespace ac
