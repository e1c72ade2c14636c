#include "study/cost.h"

namespace ac::study {
namespace {

constexpr double kBytesOfToken = 4;
// Less than any answer takes: a reply lay in a folder.
constexpr double kNoAnswer = 1e-2;

}  // namespace

CallCosts& CallCosts::operator+=(const CallCosts& other) {
  calls += other.calls, counted += other.counted;
  prompt_tokens += other.prompt_tokens, reply_tokens += other.reply_tokens;
  seconds += other.seconds;
  models.insert(other.models.begin(), other.models.end());
  dates.insert(other.dates.begin(), other.dates.end());
  return *this;
}

CallCosts CallCosts::over(double searches) const {
  CallCosts mean = *this;
  for (double* of :
       {&mean.calls, &mean.counted, &mean.prompt_tokens, &mean.reply_tokens, &mean.seconds})
    *of /= searches;
  return mean;
}

double CallCosts::money(const Prices& prices) const {
  return (prompt_tokens * prices.input + reply_tokens * prices.output) / 1e6;
}

CallCosts costs_of(const Json& calls) {
  CallCosts costs;
  for (const Json& call : calls) {
    costs.calls += 1;
    const auto in = call.value("input_tokens", 0.0), out = call.value("output_tokens", 0.0);
    const bool is_counted = in > 0 || out > 0;
    costs.counted += is_counted;
    costs.prompt_tokens += is_counted ? in : call.value("prompt_bytes", 0.0) / kBytesOfToken;
    costs.reply_tokens += is_counted ? out : call.value("reply_bytes", 0.0) / kBytesOfToken;
    if (const double seconds = call.value("seconds", 0.0); seconds > kNoAnswer)
      costs.seconds += seconds;
    if (const auto model = call.value("model", ""); !model.empty()) costs.models.insert(model);
    if (const auto date = call.value("date", ""); !date.empty()) costs.dates.insert(date);
  }
  return costs;
}

BreakEven break_even(const CallCosts& costs, double saved_attempts,
                     const std::optional<Prices>& prices) {
  BreakEven even;
  if (!(saved_attempts > 0)) return even;
  if (costs.seconds > 0) even.by_seconds = costs.seconds / saved_attempts;
  if (prices) even.by_money = costs.money(*prices) / (saved_attempts * prices->gpu / 3600);
  return even;
}

}  // namespace ac::study
