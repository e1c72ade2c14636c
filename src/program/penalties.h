// What makes a token less likely because the text has it already.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"

namespace ac {

struct Penalties {
  // Divides a logit above 0, and multiplies one below it, of each token of the prompt and of what
  // was generated. 1: none.
  double repeat = 1;
  // Taken from the logit of each token that was generated. 0: none.
  double presence = 0;
  // Taken from it for each time that it was generated. 0: none.
  double frequency = 0;

  bool none() const { return repeat == 1 && presence == 0 && frequency == 0; }
  bool operator==(const Penalties&) const = default;
};

// An error (wrong_usage) names what is out of range.
void check(const Penalties& penalties);
Json to_json(const Penalties& penalties);

// `seen` is the prompt's tokens and then those that were generated.
void penalise(std::vector<double>& logits, const Penalties& penalties,
              std::span<const std::int64_t> seen, std::size_t prompt_tokens);

}  // namespace ac
