// How far a model can count: one with a table of positions knows no position beyond it.
#pragma once

#include <cstdint>

#include "ir/step_graph.h"

namespace ac {

// Rows of the shortest table that positions look up; the largest number if there is none.
std::int64_t learned_positions(const StepGraph& step);

}  // namespace ac
