#include "api/reply.h"

#include <fmt/format.h>

#include <random>

namespace ac::api {

std::int64_t Reply::completion_tokens() const {
  std::int64_t sum = 0;
  for (const Choice& choice : choices) sum += choice.tokens;
  return sum;
}

std::int64_t Reply::reasoning_tokens() const {
  std::int64_t sum = 0;
  for (const Choice& choice : choices) sum += choice.reasoning_tokens;
  return sum;
}

void Choice::add(const Part& part, const std::string& new_id) {
  switch (part.kind) {
    case Part::Kind::text:
      text += part.text;
      return;
    case Part::Kind::reasoning:
      reasoning += part.text;
      reasoning_tokens = tokens;
      return;
    case Part::Kind::call:
      calls.push_back({new_id, part.text, {}});
      return;
    case Part::Kind::arguments:
      calls.back().arguments += part.text;
      return;
  }
}

// A tool's name may end in the middle of a character.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event(const Json& data, const std::string& name) {
  if (name.empty()) return fmt::format("data: {}\n\n", dump(data));
  return fmt::format("event: {}\ndata: {}\n\n", name, dump(data));
}

std::string random_id(const std::string& prefix, std::size_t length) {
  constexpr std::string_view kCharacters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id = prefix;
  for (std::size_t i = 0; i < length; ++i) id += kCharacters[random() % kCharacters.size()];
  return id;
}

}  // namespace ac::api
