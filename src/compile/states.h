// How many tokens the states of a package hold.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device_info.h"
#include "ir/step_graph.h"

namespace ac {

// Tokens of the prompt in one step, where nobody says. A GPU's products need many to be fast; the
// host device's are no faster for more, and take longer to time.
std::int64_t default_chunk(const DeviceInfo& device);

// The step's states, with slots for max_context tokens and steps of up to `chunk` tokens.
std::vector<StateSpec> sized_states(const StepGraph& step, std::int64_t max_context,
                                    std::int64_t chunk);

}  // namespace ac
