// How a request chooses its tokens: the likeliest, or drawn as kernels/draw_plan.h describes.
#pragma once

#include <cstdint>

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

}  // namespace ac
