// Stage 6, towards the advisor: a question in words, complete in itself, so that any language model
// or person can answer it.
#pragma once

#include <string>

#include "advise/question.h"
#include "base/json.h"

namespace ac {

struct Prompt {
  std::string name;  // for files: "decode-linear+add-0123456789ab"
  std::string hash;  // SHA-256 of the text
  std::string text;
  bool diagnosis = false;  // of what failed, while the compiler waits: it goes on without a reply
};

Prompt prompt_for(const Question& question);

// What a reply must be, for services that can be held to a JSON schema. The prompt says the same.
const Json& reply_schema();

}  // namespace ac
