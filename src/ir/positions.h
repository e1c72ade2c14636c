// What a step takes, how far a model can count, and where in that its steps are priced: one with a
// table of positions knows no position beyond it.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/step_graph.h"

namespace ac {

// The token ids. A step that takes none is an error (bad_input).
NodeId ids_of(const StepGraph& step);

// How many tokens the step is right for: what its graph says, and the rows of the shortest table
// that positions look up.
TokenLimit token_limit(const StepGraph& step);

// How many tokens a package of this step shall hold: so many or, of 0, 4096 as far as the model
// knows them. More than it can count is an error (bad_input), more than it was made for (`known`) a
// warning.
std::int64_t max_context(const StepGraph& step, std::int64_t wanted,
                         std::optional<std::int64_t> known = {});

// Where in a context candidates of a step of so many new tokens are priced.
Bindings priced_at(std::int64_t tokens, std::int64_t max_context);

}  // namespace ac
