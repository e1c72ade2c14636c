// Weights that share a scale, rounded to codes: the scale is searched for, so that the squared
// error is small.
#pragma once

#include <span>

#include "base/weight_format.h"

namespace ac {

struct RoundedGroup {
  double scale;          // one of the scales' type
  double squared_error;  // of code * scale, exactly, against the weights, by their importance
};

// `codes` becomes the numbers that are multiplied with the scale: whole ones count from the middle.
// A weight's squared error counts `importance` times. The error is at most that of the scale that
// maps the largest weight to the end of the codes' range, as compressed-tensors chooses it. Weights
// must be finite.
RoundedGroup round_group(Codes kind, DType scale_type, std::span<const float> weights,
                         std::span<const float> importance, std::span<float> codes);

}  // namespace ac
