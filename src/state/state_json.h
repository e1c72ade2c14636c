// A state as JSON: of a program with its slots, of a step with its module.
#pragma once

#include "base/json.h"
#include "state/state.h"

namespace ac {

Json to_json(const StateSpec& state);

}  // namespace ac
