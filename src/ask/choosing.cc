#include "ask/choosing.h"

#include <random>

namespace ac {

Wishes Wishes::over(const Wishes& others) const {
  Wishes all = *this;
  const auto fill = [](auto& to, const auto& from) {
    if (!to) to = from;
  };
  fill(all.temperature, others.temperature);
  fill(all.top_p, others.top_p);
  fill(all.min_p, others.min_p);
  fill(all.repeat_penalty, others.repeat_penalty);
  fill(all.presence_penalty, others.presence_penalty);
  fill(all.frequency_penalty, others.frequency_penalty);
  fill(all.top_k, others.top_k);
  fill(all.max_new_tokens, others.max_new_tokens);
  fill(all.seed, others.seed);
  return all;
}

Choosing choose(const Wishes& wishes, const text::GenerationConfig& config) {
  Choosing chosen;
  Sampling& sampling = chosen.sampling;
  sampling.temperature =
      wishes.temperature.value_or(config.draws ? config.temperature.value_or(1) : 0);
  if (!sampling.is_greedy()) {
    sampling.top_k = wishes.top_k.value_or(config.top_k.value_or(0));
    sampling.top_p = wishes.top_p.value_or(config.top_p.value_or(1));
    sampling.min_p = wishes.min_p.value_or(config.min_p.value_or(0));
    sampling.seed = wishes.seed ? *wishes.seed : std::random_device{}();
  }
  chosen.penalties = {wishes.repeat_penalty.value_or(config.repetition_penalty.value_or(1)),
                      wishes.presence_penalty.value_or(0), wishes.frequency_penalty.value_or(0)};
  chosen.max_new_tokens = wishes.max_new_tokens ? wishes.max_new_tokens : config.max_new_tokens;
  return chosen;
}

}  // namespace ac
