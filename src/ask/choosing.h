// How the tokens of an answer are chosen: by whoever asks, else by the model's makers.
#pragma once

#include <cstdint>
#include <optional>

#include "program/penalties.h"
#include "program/sampling.h"
#include "text/generation_config.h"

namespace ac {

// What somebody has said of it.
struct Wishes {
  std::optional<double> temperature = {}, top_p = {}, min_p = {};
  std::optional<double> repeat_penalty = {}, presence_penalty = {}, frequency_penalty = {};
  std::optional<std::int64_t> top_k = {}, max_new_tokens = {};
  std::optional<std::uint64_t> seed = {};

  // These, and where they say nothing, the others.
  Wishes over(const Wishes& others) const;
};

struct Choosing {
  Sampling sampling;
  Penalties penalties;
  std::optional<std::int64_t> max_new_tokens;  // not set: as many as there is room for
};

// A seed that nobody has given is a random one. Does not check what it makes.
Choosing choose(const Wishes& wishes, const text::GenerationConfig& config);

}  // namespace ac
