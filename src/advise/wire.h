// What two kinds of services speak: Anthropic's Messages API, and chat completions as OpenAI
// defined them and vLLM, llama.cpp, Ollama and others serve them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "advise/provider.h"

namespace ac {

struct Wire {
  std::string url;
  std::vector<std::string> headers;  // hold the key
  // `structured`: ask for JSON under the schema of the reply, as far as the service can be held to
  // it.
  std::function<Json(const Prompt& prompt, int max_tokens, bool structured)> request;
  // Text, model and tokens of a successful response, or why it has none. Throws Json::exception for
  // what is no such response.
  std::function<Reply(const Json& response)> read;
};

Wire anthropic_wire(const std::string& model, const std::string& url, const std::string& key);
Wire openai_wire(const std::string& model, const std::string& url, const std::string& key);

inline constexpr std::string_view kOpenAiUrl = "https://api.openai.com/v1";

}  // namespace ac
