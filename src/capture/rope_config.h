// Reads what a config says about rotary embeddings, in every spelling that transformers accepts:
// `rope_theta` with `rope_scaling: {type | rope_type, ...}`, or `rope_parameters: {rope_type,
// rope_theta, ...}`.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/config_fields.h"
#include "capture/rope_frequencies.h"

namespace ac {

// What the parameters are relative to.
struct RopeScope {
  std::int64_t head_dim, max_positions;
};

// `theta` is what the architecture uses where the config says nothing.
RopeConfig read_rope(const ConfigFields& config, double theta, const RopeScope& scope);

// The rope of the layers that see all tokens, then that of the layers with a window. Spelled as
// `rope_theta`, `rope_local_base_freq` and a `rope_scaling` that is for the former, or as
// `rope_parameters: {full_attention: {...}, sliding_attention: {...}}`.
std::vector<RopeConfig> read_ropes_by_layer(const ConfigFields& config, double theta,
                                            double local_theta, const RopeScope& scope);

}  // namespace ac
