// How tokens are chosen: by whoever asks, else by the model's makers.
#include "ask/choosing.h"

#include <doctest/doctest.h>

namespace ac::test {

TEST_CASE("wishes go before what the model's makers say") {
  text::GenerationConfig config;
  CHECK(choose({}, config).sampling.is_greedy());
  config.draws = true;
  config.temperature = 0.6, config.top_k = 20, config.repetition_penalty = 1.5;
  config.max_new_tokens = 9;
  const Choosing theirs = choose({.seed = 3}, config);
  CHECK(theirs.sampling == Sampling{.temperature = 0.6, .top_k = 20, .seed = 3});
  CHECK(theirs.penalties == Penalties{.repeat = 1.5});
  CHECK(theirs.max_new_tokens == 9);
  const Wishes first{.top_p = 0.5, .frequency_penalty = 1, .top_k = 0},
      second{.top_p = 0.9, .seed = 4};
  const Choosing ours = choose(first.over(second), config);
  CHECK(ours.sampling == Sampling{.temperature = 0.6, .top_k = 0, .top_p = 0.5, .seed = 4});
  CHECK(ours.penalties == Penalties{.repeat = 1.5, .frequency = 1});
  // Of a greedy request, nothing else matters.
  CHECK(choose({.temperature = 0, .top_p = 0.5}, config).sampling == Sampling{});
  // Nobody's seed is another one each time.
  CHECK(choose({}, config).sampling.seed != choose({}, config).sampling.seed);
}

}  // namespace ac::test
