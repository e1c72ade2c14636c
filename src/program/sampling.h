// How a request chooses its tokens: the likeliest, or drawn as kernels/draw_plan.h describes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "kernels/draw_plan.h"

namespace ac {

struct Sampling {
  double temperature = 0;  // 0: the likeliest token, and nothing below matters
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1, min_p = 0;
  std::uint64_t seed = 0;

  bool is_greedy() const { return temperature == 0; }
  bool operator==(const Sampling&) const = default;
};

// Of what a buffer of the kind settings holds.
constexpr std::int64_t kSettingsBytes = sizeof(kernels::DrawSettings);

// An error (wrong_usage) names what is out of range.
void check(const Sampling& sampling);
// As kernels take them; not of a greedy request.
kernels::DrawSettings draw_settings(const Sampling& sampling);
Json to_json(const Sampling& sampling);

// What a step that takes the likeliest token leaves as its token: the first of the largest logits,
// or a negative number for the first that is not finite (kernels/sampling_plan.h).
std::int32_t greedy_token(const std::vector<double>& logits);
// The token that a step left, of a vocabulary of this size. One that stands for a logit that is not
// finite is an error (job_failed) that names the logit.
std::int64_t checked_token(std::int32_t token, std::int64_t vocab);
// The same error if one of them is not finite.
void check_finite(const std::vector<double>& logits);

}  // namespace ac
