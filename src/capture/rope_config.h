// Reads what a config says about rotary embeddings, in every spelling that transformers accepts:
// `rope_theta` with `rope_scaling: {type | rope_type, ...}`, or `rope_parameters: {rope_type,
// rope_theta, ...}`.
#pragma once

#include <cstdint>

#include "capture/config_fields.h"
#include "capture/rope_frequencies.h"

namespace ac {

// What the parameters are relative to.
struct RopeScope {
  std::int64_t head_dim, max_positions;
};

// `theta` is what the architecture uses where the config says nothing.
RopeConfig read_rope(const ConfigFields& config, double theta, const RopeScope& scope);

}  // namespace ac
