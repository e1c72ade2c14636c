#include "api/request_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ask/packed_ids.h"
#include "base/error.h"
#include "text/vocabulary.h"

namespace ac::api {
namespace {

constexpr std::string_view kName = "prompt", kOrigin = "the body";

std::size_t without_space(std::string_view text, std::size_t at) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (at < text.size() && is_space(text[at])) ++at;
  return std::min(at, text.size());
}

// Where the closing quote is of a string whose first character is at `at`, if the text is valid.
std::size_t string_end(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at, text.size());
}

// Where the prompt begins; the text's end: there is none.
std::size_t prompt_begin(std::string_view text) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '{' || text[at] == '[') ++depth;
    if (text[at] == '}' || text[at] == ']') --depth;
    if (text[at] != '"') continue;
    const std::size_t begin = at + 1;
    at = string_end(text, begin);
    if (depth != 1 || text.substr(begin, at - begin) != kName) continue;
    const std::size_t colon = without_space(text, at + 1);
    if (text.substr(colon, 1) == ":") return without_space(text, colon + 1);
  }
  return text.size();
}

// The ids of a list that begins there, and where it ends; no ids: it has something else.
std::vector<std::int64_t> read_ids(std::string_view text, std::size_t& at) {
  if (text.substr(at, 1) != "[") return {};
  std::vector<std::int64_t> ids;
  do {
    at = without_space(text, at + 1);
    const std::size_t begin = at;
    std::int64_t id = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && id < text::kMostTokens; ++at)
      id = 10 * id + (text[at] - '0');
    if (at == begin || id >= text::kMostTokens || (text[begin] == '0' && at > begin + 1)) return {};
    ids.push_back(id);
    at = without_space(text, at);
  } while (text.substr(at, 1) == ",");
  return text.substr(at++, 1) == "]" ? ids : std::vector<std::int64_t>{};
}

}  // namespace

Json read_body(std::string_view text, const JsonLimits& limits) {
  const std::size_t begin = prompt_begin(text);
  std::size_t end = begin;
  const std::vector<std::int64_t> ids = read_ids(text, end);
  if (!ids.empty() && text.size() <= limits.bytes && ids.size() < limits.values) try {
      JsonLimits others = limits;
      others.values -= ids.size();
      const std::string rest = fmt::format("{}null{}", text.substr(0, begin), text.substr(end));
      Json body = parse_json(rest, std::string(kOrigin), others);
      body[kName] = packed(ids);
      return body;
    } catch (const Error&) {
      // It is said of the whole text what is wrong.
    }
  return parse_json(text, std::string(kOrigin), limits);
}

}  // namespace ac::api
