// What a client is told when its request cannot be served. Each API puts it into its own form.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/json.h"

namespace ac::api {

struct Refusal {
  int status = 400;
  std::string message;
  std::string param = {};  // the field of the request, "messages[2].role"; empty: none
  std::string code = {};   // "context_length_exceeded"; empty: none
};

// A field is wrong: status 400. `message` says what it is not.
template <class... Args>
[[noreturn]] void refuse(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal{400, fmt::format(format, std::forward<Args>(args)...), std::move(param)};
}

enum class ErrorForm { openai, anthropic };
Json to_json(const Refusal& refusal, ErrorForm form);

}  // namespace ac::api
