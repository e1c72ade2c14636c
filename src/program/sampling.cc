#include "program/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/sampling_plan.h"

namespace ac {
namespace {

// Between them, distances of logits fit the grid that kernels tell them apart on.
constexpr double kLeastTemperature = 1e-6, kMostTemperature = 100;

[[noreturn]] void damaged(std::int64_t token, double logit) {
  job_failed("the logit of token {} is {}: the weights or the model are damaged", token,
             std::isnan(logit) ? std::fabs(logit) : logit);  // the sign of a NaN says nothing
}

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

std::int32_t greedy_token(const std::vector<double>& logits) {
  const auto bad =
      std::ranges::find_if_not(logits, [](double logit) { return std::isfinite(logit); });
  if (bad == logits.end())
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  using kernels::BadLogit;
  const BadLogit what = std::isnan(*bad) ? BadLogit::nan
                        : *bad > 0       ? BadLogit::infinity
                                         : BadLogit::minus_infinity;
  return kernels::bad_token(static_cast<int>(bad - logits.begin()), what);
}

std::int64_t checked_token(std::int32_t token, std::int64_t vocab) {
  if (token >= 0 && token < vocab) return token;
  if (token >= 0 || kernels::bad_row(token) >= vocab)
    job_failed("the step chose the token {} of {}: the weights or the model are damaged", token,
               vocab);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (kernels::bad_logit(token)) {
    case kernels::BadLogit::infinity:
      damaged(kernels::bad_row(token), kInfinity);
    case kernels::BadLogit::minus_infinity:
      damaged(kernels::bad_row(token), -kInfinity);
    default:
      damaged(kernels::bad_row(token), std::numeric_limits<double>::quiet_NaN());
  }
}

void check_finite(const std::vector<double>& logits) {
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i])) damaged(static_cast<std::int64_t>(i), logits[i]);
}

}  // namespace ac
