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

void verify(const StepGraph& step, const std::string& origin);

}  // namespace ac
