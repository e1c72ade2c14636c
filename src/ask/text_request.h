// What a model is asked to write, and what it has written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ask/token_request.h"
#include "grammar/matcher.h"
#include "text/vocabulary.h"

namespace ac {

struct TextRequest {
  std::vector<std::int64_t> ids;
  // The answer goes on with the prompt's text, in whose middle a space is a space; else it is a
  // text of its own.
  bool continues = false;
  std::optional<std::int64_t> max_new_tokens;  // not set: what there is room for
  Sampling sampling;
  Penalties penalties;
  std::map<std::int64_t, double> bias = {};
  std::vector<std::string> stop = {};
  std::set<text::TokenId> shown = {};  // special tokens that have a text in the answer
  // With the probability of each token, and of so many of the likeliest ones.
  std::optional<int> logprobs = {};
  grammar::Rules rules = {};  // of its answer; without a grammar and its source, none
  Reuse reuse = Reuse::alike;
};

// Natural logarithms of the probabilities that the model gives to tokens, whatever penalties, bias
// and temperature make of them.
struct TokenLogprobs {
  double own = 0;
  std::vector<std::pair<std::int64_t, double>> likeliest;  // the first one first
};

struct TextPiece {
  std::string text;         // whole characters; empty where they are not complete yet
  std::int64_t token = -1;  // that it came with; -1 at the end of an answer
  std::optional<TokenLogprobs> logprobs = {};
};

struct TextAnswer {
  std::string text;
  std::vector<std::int64_t> ids;  // with the one that ended it
  // "stop": a token or text that ends the answer; "length": there is no room for more, or no more
  // was wanted; "interrupted".
  std::string finish = "length";
  std::string stopped_by;  // the stop string
  bool full = false;       // the context, where it has no room for more
  std::int64_t prompt_tokens = 0, cached = 0;
  // The latter of each but the first; 0 if there are too few to tell.
  double first_token_seconds = 0, token_seconds = 0;
  std::optional<double> memory_share;  // of the speed of the device's memory
};

}  // namespace ac
