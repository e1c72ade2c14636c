// Drawing a token in double precision: what kernels/draw_plan.h describes, by sorting, with the
// same random numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/draw_plan.h"

namespace ac {

// Whether each token may be drawn. Positive `slack` lets in what is that close to a limit (in
// distance below the largest, or in probability), negative keeps it out.
std::vector<bool> tokens_kept(const std::vector<double>& logits,
                              const kernels::DrawSettings& settings, double slack = 0);

// The token for this position; -1 if the logits give no probabilities.
std::int64_t draw_token(const std::vector<double>& logits, const kernels::DrawSettings& settings,
                        std::int64_t position);

// Whether an implementation that is off by `slack` may have drawn this token.
bool may_draw(const std::vector<double>& logits, const kernels::DrawSettings& settings,
              std::int64_t position, std::int64_t token, double slack);

}  // namespace ac
