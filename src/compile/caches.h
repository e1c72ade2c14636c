// How many tokens the caches of a package hold.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device_info.h"
#include "ir/step_graph.h"
#include "program/program.h"

namespace ac {

// Tokens of the prompt in one step, where nobody says. A GPU's products need many to be fast; the
// host device's are no faster for more, and take longer to time.
std::int64_t default_chunk(const DeviceInfo& device);

// One for each of the step's caches. A window's is a ring with room for a chunk more: a step of
// many tokens overwrites no token that its first one still sees.
std::vector<CacheSpec> cache_specs(const StepGraph& step, std::int64_t max_context,
                                   std::int64_t chunk);

}  // namespace ac
