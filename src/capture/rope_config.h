// Reads what a config says about rotary embeddings, in every spelling that transformers accepts:
// `rope_theta` with `rope_scaling: {type | rope_type, ...}`, or `rope_parameters: {rope_type,
// rope_theta, ...}`.
#pragma once

#include <cstdint>

#include "capture/config_fields.h"
#include "capture/rope_frequencies.h"

namespace ac {

RopeConfig read_rope_config(const ConfigFields& config, std::int64_t head_dim,
                            std::int64_t max_positions);

}  // namespace ac
