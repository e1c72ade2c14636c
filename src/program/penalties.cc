#include "program/penalties.h"

#include <unordered_set>

#include "base/error.h"

namespace ac {
namespace {

// Beyond them, a logit has left the range of its type or no token is possible but new ones.
constexpr double kLeastRepeat = 0.01, kMostRepeat = 100, kMostPresence = 100;

std::unordered_set<std::int64_t> distinct(std::span<const std::int64_t> tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace

void check(const Penalties& penalties) {
  // Written so that NaN is refused.
  if (!(penalties.repeat >= kLeastRepeat && penalties.repeat <= kMostRepeat))
    wrong_usage("the repeat penalty {} is not {} to {}; 1 is none", penalties.repeat, kLeastRepeat,
                kMostRepeat);
  if (!(penalties.presence >= -kMostPresence && penalties.presence <= kMostPresence))
    wrong_usage("the presence penalty {} is not {} to {}; 0 is none", penalties.presence,
                -kMostPresence, kMostPresence);
  if (!(penalties.frequency >= -kMostPresence && penalties.frequency <= kMostPresence))
    wrong_usage("the frequency penalty {} is not {} to {}; 0 is none", penalties.frequency,
                -kMostPresence, kMostPresence);
}

Json to_json(const Penalties& penalties) {
  Json json{{"repeat_penalty", penalties.repeat}, {"presence_penalty", penalties.presence}};
  if (penalties.frequency != 0) json["frequency_penalty"] = penalties.frequency;
  return json;
}

void penalise(std::vector<double>& logits, const Penalties& penalties,
              std::span<const std::int64_t> seen, std::size_t prompt_tokens) {
  for (const std::int64_t token : distinct(seen)) {
    double& logit = logits.at(static_cast<std::size_t>(token));
    logit = logit < 0 ? logit * penalties.repeat : logit / penalties.repeat;
  }
  for (const std::int64_t token : distinct(seen.subspan(prompt_tokens)))
    logits.at(static_cast<std::size_t>(token)) -= penalties.presence;
  if (penalties.frequency != 0)
    for (const std::int64_t token : seen.subspan(prompt_tokens))
      logits.at(static_cast<std::size_t>(token)) -= penalties.frequency;
}

}  // namespace ac
