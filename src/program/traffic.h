// What a launch moves through memory at the least: each buffer that it refers to once, as far as a
// step touches it.
#pragma once

#include "program/program.h"

namespace ac {

struct Traffic {
  std::int64_t weights = 0, cache = 0, rest = 0;  // bytes
  std::int64_t total() const { return weights + cache + rest; }
  Traffic& operator+=(const Traffic& other);
};

// With `cached` tokens before those of the step.
Traffic traffic_of(const Program& program, const Launch& launch, std::int64_t tokens,
                   std::int64_t cached);
Traffic traffic_of(const Program& program, const Phase& phase, std::int64_t tokens,
                   std::int64_t cached);

}  // namespace ac
