#include "program/sampling.h"

#include <limits>

#include "base/error.h"

namespace ac {
namespace {

// Between them, distances of logits fit the grid that kernels tell them apart on.
constexpr double kLeastTemperature = 1e-6, kMostTemperature = 100;

}  // namespace

void check(const Sampling& sampling) {
  // Written so that NaN is refused.
  const double t = sampling.temperature;
  if (!(t == 0 || (t >= kLeastTemperature && t <= kMostTemperature)))
    wrong_usage("the temperature {} is neither 0, for the likeliest token, nor {} to {}", t,
                kLeastTemperature, kMostTemperature);
  if (sampling.top_k < 0 || sampling.top_k > std::numeric_limits<std::int32_t>::max())
    wrong_usage("top-k {} is neither 0, for all tokens, nor a number of them", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    wrong_usage("top-p {} is not above 0 and at most 1", sampling.top_p);
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    wrong_usage("min-p {} is not 0 to 1", sampling.min_p);
}

kernels::DrawSettings draw_settings(const Sampling& sampling) {
  AC_ASSERT(!sampling.is_greedy());
  check(sampling);
  return {static_cast<float>(sampling.temperature), static_cast<int>(sampling.top_k),
          static_cast<float>(sampling.top_p), static_cast<float>(sampling.min_p), sampling.seed};
}

Json to_json(const Sampling& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"seed", sampling.seed}};
}

}  // namespace ac
