// From a choice that was made for a region, or for one that is equal to it, to what computes the
// region: its operands are those that the choice's family matches there.
#pragma once

#include <optional>

#include "generate/generate.h"
#include "plan/match.h"
#include "plan/space.h"

namespace ac {

// Without a region, the choice is how the token is chosen from the step's logits.
Generated generate_for(const StepGraph& step, const std::optional<Wanted>& wanted,
                       const Choice& choice, const Bindings& at, const Setting& setting);

}  // namespace ac
