// Sizes of a step as numbers of a launch, which may depend on the tokens of a step in a linear way
// only.
#pragma once

#include <optional>
#include <string>

#include "ir/dim.h"
#include "program/launch.h"

namespace ac {

// Nothing if the size depends on more than T, or is not linear in it.
std::optional<Count> linear_count(const Dim& dim);

// Of a size that a matcher has looked at: asserts that there is a count.
Count count_of(const Dim& dim);

// An error (bad_input) instead of nothing, which says `what` it is about.
Count count_of(const Dim& dim, const std::string& what);

}  // namespace ac
