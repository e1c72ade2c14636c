// What a model is asked to generate, as token ids.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grammar/matcher.h"
#include "program/penalties.h"
#include "program/sampling.h"

namespace ac {

// What of an earlier prompt's states may be kept.
enum class Reuse {
  alike,  // all that the prompts begin with alike
  exact,  // what a prompt that is run from its beginning computes by the same steps: the same bits
};

struct TokenRequest {
  std::vector<std::int64_t> ids;
  std::int64_t max_new_tokens = 16;
  std::vector<std::int64_t> stop_ids = {};  // tokens after which no more are generated
  Sampling sampling = {};
  Penalties penalties = {};
  std::map<std::int64_t, double> bias = {};        // added to the logits of tokens
  bool wants_logits = false;                       // of each token: see Generator::token_logits()
  std::shared_ptr<grammar::Matcher> matcher = {};  // of the grammar of the answer; null: none
  Reuse reuse = Reuse::alike;
  std::string where = {};  // "requests.jsonl: line 2: ", or nothing

  // The host chooses tokens, from the logits of each step: that takes longer.
  bool on_host() const { return !penalties.none() || !bias.empty() || wants_logits; }
  // Steps choose the tokens that follow them, and the host only looks on.
  bool by_steps() const { return !on_host() && matcher == nullptr; }
};

}  // namespace ac
