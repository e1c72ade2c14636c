// Sizes of a step as counts of a launch.
#pragma once

#include "ir/dim.h"
#include "program/launch.h"

namespace ac {

// A size that is a constant, or grows evenly with the new tokens. Asserts that it does: what sizes
// a step may have is checked before anything is generated.
Count count_of(const Dim& dim);

}  // namespace ac
